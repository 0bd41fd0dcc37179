"""Life cycle of a command's audit: way to run, output directory, results, alerts, exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from auditor.base import code_cache
from auditor.base.errors import AuditFailure, AuditInputError, StoreTrouble, install, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from auditor.dashboards.answers import RunReport
    from auditor.dashboards.finding_groups import Printing, Selection
    from auditor.outputs.alerts import AlertOptions
    from auditor.pipeline.options import AuditOptions
    from auditor.pipeline.plan import Slots
    from auditor.pipeline.runner import Runner
    from auditor.pipeline.whole_audit import Audit, Say

Done = TypeVar("Done", bound="Audit")
Made = TypeVar("Made")
INSTALLED = "local[*]"  # the master where none is named


def runner_for(master: str | None, spark: SparkSession | None = None) -> Runner:
    """Return the way to run that a master means; ``spark``: the caller's session.

    ``master`` None: Spark on this machine, or inline without it. Errors: :class:`AuditInputError` for an invalid
    master, or Spark's where it is not installed.
    """
    from auditor.base.user_input import check_master
    from auditor.spark import session

    submitted = bool(os.environ.get(session.SUBMITTED))
    if master is not None:
        check_master(master)
    if spark is None and not submitted and (master or INSTALLED).startswith(("inline", "local")):
        _say_first()
    if master is not None and master.startswith("inline") and spark is None and not submitted:
        return _inline(master)
    if spark is not None:
        from auditor.spark.session import adopt

        return _on_spark(lambda _: adopt(spark))
    if submitted:
        return _on_spark(lambda _: session.start(None, say=_say))
    missing = missing_for_spark()
    if master is None:
        if not missing:
            return _on_spark(lambda size: session.start(INSTALLED, input_bytes=size, say=_say))
        return _inline("inline")  # the same findings: nobody who did not ask for Spark has to hear of it
    if missing == "pyspark":
        how = install("spark")
        raise AuditInputError(
            f"--master {master} needs pyspark, which is not installed; use --master inline, or run: {how}"
        )
    return _on_spark(lambda size: session.start(master, input_bytes=size, say=_say))


def _on_spark(start: Callable[[int], SparkSession]) -> Runner:
    """A runner on the session that ``start`` gives for this many bytes of input."""
    from auditor.spark.spark_runner import SparkRunner  # imports pyspark, which may be missing where nobody needs it

    return SparkRunner(start)


def _say(text: str) -> None:
    warn([text])


def _say_first() -> None:
    """Announce compilation on the first run of a machine, if set-up has not compiled the kernels."""
    if not code_cache.is_cached("auditor.connectors.codec.batches"):
        warn(["compiling native code (first run only, up to a minute)"])


def missing_for_spark() -> str:
    """Return what Spark on this machine lacks: ``pyspark`` or ``Java``; empty if nothing."""
    from auditor.spark import session

    if importlib.util.find_spec("pyspark") is None:
        return "pyspark"
    return "" if session.find_java() is not None else "Java"


def slots_of(master: str | None) -> Slots:
    """Return how a master would run, without starting anything. Errors: as of :func:`runner_for`."""
    from auditor.base.user_input import check_master, processes_of
    from auditor.pipeline.plan import LISTS_PER_CORE, Slots
    from auditor.spark import session

    if os.environ.get(session.SUBMITTED):
        return Slots("Spark", None, LISTS_PER_CORE)
    if master is None:
        master = "inline" if missing_for_spark() else INSTALLED
    check_master(master)
    if master.startswith("inline"):
        return Slots("inline", processes_of(master), 0)
    local = session.LOCAL.fullmatch(master)
    count = None if local is None else processes_of("inline") if local[1] == "*" else int(local[1] or 1)
    return Slots("Spark", count, LISTS_PER_CORE)


def _inline(master: str) -> Runner:
    from auditor.base.user_input import processes_of
    from auditor.processes.isolation import Pool

    pool = Pool(processes_of(master))
    pool.start()  # it loads what workers need while this process loads what the driver needs
    from auditor.inline import InlineRunner

    return InlineRunner(pool)


@contextlib.contextmanager
def runner(options: AuditOptions, spark: SparkSession | None = None) -> Iterator[Runner]:
    """Provide the way to run that the options ask for, and close it at the end. The caller's session stays open."""
    chosen = runner_for(options.master, spark)
    try:
        yield chosen
    finally:
        chosen.close()


def audit(options: AuditOptions, say: Say | None = None, spark: SparkSession | None = None) -> Audit:
    """Audit ``options.paths`` and write all results to ``options.out``; return the audit.

    Errors: :class:`AuditInputError` for a usage error, :class:`AuditFailure` where the audit itself failed.
    """
    with runner(options, spark) as chosen:
        from auditor.pipeline.whole_audit import Audit, nobody

        done = Audit(options, chosen, say or nobody)
        write(done)
        return done


def write(done: Audit, selection: Selection | None = None) -> RunReport:
    """Brings an audit to its end: claims ``--out``, does what is left to do, and publishes all of it or nothing.

    Publishes the results of the contract's section 3 and returns them as they are shown. ``selection``: what will be
    printed, which must fit something of the input. Errors: as of :func:`audit`; what failed is in ``failure.log``.
    """
    from auditor.outputs import publish as publishing

    return write_by(done, publishing.publish, selection)


def write_by(done: Done, publish: Callable[[Done, Path], Made], selection: Selection | None = None) -> Made:
    """:func:`write` with other results: those that ``publish`` writes into a folder, and what it returns."""
    from auditor.outputs import printing
    from auditor.outputs.delivery import claimed, writable
    from auditor.pipeline import summary
    from auditor.pipeline.options import out_of
    from auditor.spark import session

    options = done.options
    _ = done.kinds, done.baseline
    if options.expectations:
        require("great_expectations")
    with failures():
        if os.environ.get(
            session.SUBMITTED
        ):  # YARN ends a driver whose Spark is not there in 100 s, and a list may take
            done.runner.ready()
        spared = done.spared()
        if spared is not None and options.cluster_name is not None:
            summary.cluster_names(done)  # which may be a usage error
        if options.work is not None:
            writable(out_of(options.work), spared, "--work")
        if options.history is not None:
            writable(options.history, spared, "--history")
        with (
            claimed(options.out, spared) as folder,
            failures() as trace_in,
            contextlib.closing(done),
        ):
            trace_in += [options.out if isinstance(options.out, Path) else folder, folder]
            done.staged(folder)
            _ = done.findings
            if selection is not None and selection.narrow:
                printing.check(done, selection)
            with done.step("publish"):
                return publish(done, folder)


def command(done: Audit, printed: Printing | None = None, alert: AlertOptions | None = None) -> int:
    """Complete a command's audit: results, output (None: the default), alerts. Returns the exit code."""
    from auditor.dashboards.finding_groups import Printing
    from auditor.outputs import alerts, printing

    asked = alert or alerts.AlertOptions()
    alerts.check(asked)
    chosen = printed or Printing()
    progress = Progress(chosen.quiet, is_terminal := sys.stderr.isatty())
    if not chosen.quiet and (is_terminal or done.runner.slow_start):
        done.say = progress.say
    try:
        report = write(done, selection=chosen.selection)
    finally:
        progress.done()
    if not chosen.quiet:
        printing.show(done, chosen, report)
    warn_of_empty(done)
    if chosen.verbose and done.options.master is None and (missing := missing_for_spark()):
        warn([f"{missing} is not installed: ran without Spark (as with --master inline)"])
    if asked.channels:
        warn(alerts.send(alerts.news(done, asked), asked.channels))
    return done.exit_code()


def warn(lines: Sequence[str]) -> None:
    """Print warnings to stderr."""
    sys.stderr.writelines(f"auditor: {line}\n" for line in lines)


@contextlib.contextmanager
def failures() -> Iterator[list[Path]]:
    """Turn exceptions within, other than user errors, into an :class:`AuditFailure` with a trace file.

    The trace is written to ``failure.log`` in the first directory that the block appends to the list, which must be
    claimed, or without one to a temporary directory. What others in the list have is deleted.
    """
    claimed: list[Path] = []
    outside = sys.exception()
    try:
        yield claimed
    except (AuditInputError, AuditFailure, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if _stopped(error, outside):
            raise KeyboardInterrupt from error
        if (mistake := _mistake(error)) is not None:
            raise mistake from error
        from auditor.outputs.delivery import failed

        folder = claimed[0] if claimed else Path(tempfile.mkdtemp(prefix="auditor-failure-"))
        log = failed(folder, error, *claimed[1:])
        where = f"the trace is in {log}" if log is not None else "the trace could not be written"
        raise AuditFailure(f"{_what(error)}; {_hint(error)}; {where}") from error


def _stopped(error: BaseException | None, outside: BaseException | None) -> bool:
    """Whether somebody pressed Ctrl-C: a Spark query that this cancels raises an error of its own.

    The exception that was being handled ``outside``, before all this, is not considered.
    """
    while error is not None and error is not outside:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _mistake(error: BaseException) -> AuditInputError | None:
    """User error for a name that is too long, or a missing package here or on Spark's workers; None for any other."""
    from auditor.base.errors import absent

    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return AuditInputError(f"path too long for the file system: {str(error.filename)[:60]}...; use a shorter path")
    if isinstance(error, ModuleNotFoundError):
        return absent(error.name or "")
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return None
    from auditor.spark.session import lacking

    message = lacking(error)
    return None if message is None else AuditInputError(message)


def _what(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = (error.strerror if isinstance(error, OSError) else None) or (lines[0] if lines else "")
    return f"the audit failed: {type(error).__name__}" + (f": {text[:300]}" if text else "")


def _without_answer(error: BaseException) -> bool:
    """Whether Java did not answer at all; for failures in Java, py4j's error has the trace."""
    return type(error).__name__ in ("Py4JError", "Py4JNetworkError") and "Trace:" not in str(error)


def _hint(error: BaseException) -> str:
    message = str(error)
    if isinstance(error, MemoryError) or "OutOfMemoryError" in message:
        return "provide more memory, or audit fewer topics at a time (--topic)"
    if "spark.driver.maxResultSize" in message:
        return "start the session with --conf spark.driver.maxResultSize=0, or audit fewer topics at a time (--topic)"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or os.strerror(errno.ENOSPC) in message:
        return "free space below --out and in the temporary directory (TMPDIR), or choose others"
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        return "a file would exceed the limit of this process (ulimit -f) or of the file system"
    if isinstance(error, StoreTrouble):
        return "run again, or wait longer for the store (AUDITOR_STORE_PATIENCE, in seconds)"
    if isinstance(error, ConnectionError) or _without_answer(error):
        return (
            "Spark's JVM has ended (out of memory?), is unreachable, or its version differs from pyspark; "
            "to run without Spark: --master inline"
        )
    if type(error).__module__.startswith(("py4j", "pyspark")):
        return "Spark's error is in the trace; to run without Spark: --master inline"
    return "this is a bug; please report it with the trace"


def warn_of_empty(done: Audit) -> None:
    """Print to stderr why there was nothing to judge, if so."""
    if (empty := done.empty_input) is not None:
        warn([empty.reason])


LINE_EVERY_S = 60


class Progress:
    """Current step with elapsed time, on one terminal line that is wiped at the end; elsewhere, as in a driver's log,
    one line per minute."""

    def __init__(self, silent: bool, is_terminal: bool = True) -> None:
        self.silent, self.is_terminal = silent, is_terminal
        self.text, self.said = "", time.monotonic()
        self._began, self._ended = self.said, threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def say(self, text: str) -> None:
        """Show the current step."""
        if self.silent:
            return
        if not self.is_terminal:
            if time.monotonic() - self.said >= LINE_EVERY_S:
                self.said = time.monotonic()
                warn([text])
        elif text != self.text:
            self.text = text
            self._draw()
            if self._ticker.ident is None:
                self._ticker.start()

    def _tick(self) -> None:
        # Compilation on the first run takes a minute within one step.
        while not self._ended.wait(1):
            self._draw()

    def _draw(self) -> None:
        seconds = int(time.monotonic() - self._began)
        sys.stderr.write(f"\r\x1b[K… {self.text}" + (f" ({seconds} s)" if seconds else ""))
        sys.stderr.flush()

    def done(self) -> None:
        """Wipe the line."""
        self._ended.set()
        if self._ticker.ident is not None:
            self._ticker.join()
        if not self.silent and self.is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
