"""An audit in a Python program: opened from paths or a running cluster, asked for what is wanted, closed.

A thin face of the one audit (:mod:`auditor.pipeline.whole_audit`): it turns Python's arguments into its options, and
what it gives into what programs and notebooks take. Nothing is read before it is asked for, and nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fnmatch
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from auditor import running
from auditor.api import notebook
from auditor.api.finding_list import Findings
from auditor.api.notebook import Page, Text
from auditor.base import uris
from auditor.base.errors import AuditInputError
from auditor.base.extras import require
from auditor.base.limits import DEFAULT_LIMITS
from auditor.base.scope import Since, since_of
from auditor.connectors import client_properties
from auditor.connectors.result_folder import Folder
from auditor.model.policies import AUTO, CHOICES, DRAFT_WINDOW, named
from auditor.outputs import explaining, publish
from auditor.outputs.claim import writable
from auditor.pipeline import derived_tables, results
from auditor.pipeline.options import AuditOptions, check_window, out_of, parse_time
from auditor.pipeline.what_if_audit import AuditWithVerdicts, WhatIfAudit
from auditor.pipeline.whole_audit import Audit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from auditor.pipeline.runner import Runner

Time = str | int | datetime.datetime
Several = str | tuple[str, ...] | list[str]
TABLES = derived_tables.NAMES
LIMITS = ("max_batch_bytes", "max_batch_ratio")
WIDTH = 110  # columns of an explanation


def open(
    *paths: str | os.PathLike[str], spark: SparkSession | None = None, master: str | None = None,
    bootstrap_server: str | None = None, client_config: Mapping[str, Any] | None = None,
    command_config: str | os.PathLike[str] | None = None, as_of: Time | None = None,
    topic: Several = (), only_partition: Several | int = (), only_broker: int | Sequence[int] = (),
    since: Time | None = None, rule: Several = (), skip_rule: Several = (), remote: Several = (), **options: Any,
) -> OpenedAudit:  # fmt: skip
    """Opens an audit of log directories, or of a running cluster. Nothing is read yet.

    Arguments:
        paths: Log directories, folders above some, partition folders, files, URIs (``s3://...``).
        spark: The session to run on, classic or Connect. It stays open, and learns the data sources.
        master: Where ``spark`` is not given: ``inline`` (the default: processes of this machine, no Java),
            ``inline[N]``, or a Spark master such as ``local[4]`` or ``sc://HOST:PORT``.
        bootstrap_server: With paths, what the commands of remedies name. Without, the cluster to read, by read-only
            requests (needs the extra ``live``).
        client_config: Options of the connection to that cluster, as kafka-python calls them.
        command_config: Instead, a file of Java client properties, as every Kafka tool takes them.
        as_of: The clock that time-outs are judged by: a ``datetime``, ISO-8601, epoch milliseconds or ``"now"``.
            Default: the newest broker-written time in the input.
        topic: Read only the topics that match this glob, or one of several. Internal topics are always read.
        only_partition: Read only the partitions ``TOPIC-N`` that match, or those of this number; one or several.
        only_broker: Read only the copies of this broker, or of these.
        since: Read logs from here on: an offset (a number), a ``datetime``, or ISO-8601. What a producer snapshot has
            open there is named all the same.
        rule: Only this rule, or these.
        skip_rule: All but this rule, or these.
        remote: A folder with the remote part of tiered topics, or several, where it is not below the paths.
        options: The other options of ``auditor audit`` by name: ``policy``, ``records``, ``fail_on``, ``max_findings``,
            ``split_size``, ``max_batch_bytes``, ``max_batch_ratio``, ``include_payload``, ``at_once``,
            ``fail_on_unsure``, ``whole``; ``work``, a folder or URI where what was read of each partition is kept, so
            that the next audit of the same input reads nothing twice, and ``resume``, where that must have begun.

    Returns:
        The audit, which is also a context manager.

    Errors:
        ``AuditInputError``, one sentence, for what is wrong with the call, here or once it is seen.
    """
    if not paths and bootstrap_server is None:
        raise AuditInputError("auditor.open needs a path, or the bootstrap_server of a running cluster")
    if wrong := [path for path in paths if not isinstance(path, str | os.PathLike)]:
        given = type(wrong[0]).__name__
        raise AuditInputError(f"a path is a text or a Path, not a {given}; give several as open(*paths)")
    if spark is not None and not hasattr(spark, "createDataFrame"):
        given = type(spark).__name__
        raise AuditInputError(f"spark is a SparkSession, not a {given}; give the URL of a master as master=")
    if spark is not None and master is not None:
        raise AuditInputError("auditor.open takes spark or master, not both")
    if spark is not None:
        from auditor.spark.adopted import register

        register(spark)
    live = not paths
    if live and options.get("work") is not None:
        raise AuditInputError("work keeps what was read of log directories; a running cluster is read anew each time")
    if live and command_config is not None:
        client_config = {**client_properties.connection(Path(command_config)), **(client_config or {})}
    chosen = AuditOptions(
        tuple(os.fspath(path) for path in paths), Path(), as_of=_time("now" if live and as_of is None else as_of),
        master=master or "inline", topics=_several(topic), only_partitions=_several(_text(only_partition)),
        only_brokers=_numbers(only_broker), since=_since(since), rules=_several(rule), skip_rules=_several(skip_rule),
        remote=_several(remote), bootstrap=bootstrap_server, **_checked(options),
    )  # fmt: skip
    return OpenedAudit(chosen, running.runner_for(chosen.master, spark), client_config if live else None, live=live)


class OpenedAudit:
    """An audit that was opened by :func:`auditor.open`. Close it, or use it in ``with``, to end its processes."""

    def __init__(
        self, options: AuditOptions, runner: Runner, client_config: Mapping[str, Any] | None = None, *,
        live: bool = False,
    ) -> None:  # fmt: skip
        self._ends = contextlib.ExitStack()
        self._ends.callback(runner.close)
        self._runner = runner
        self._closed = False
        with _closing_on_error(self._ends):
            self._opened: Audit = (
                self._live(options, client_config or {}) if live else AuditWithVerdicts(options, runner)
            )

    @property
    def _audit(self) -> Audit:
        """The audit. Errors: :class:`AuditInputError` once it is closed."""
        if self._closed:
            raise AuditInputError("this audit is closed; open it again with auditor.open, or ask before it is closed")
        if self._opened.options.work is not None:
            _ = self._work
        return self._opened

    @cached_property
    def _work(self) -> Folder:
        """Where facts are kept: outside of what is read. Errors: as of :func:`claim.writable`."""
        with running.failures():
            return writable(out_of(self._opened.options.work or ""), self._opened.inventory, "work")

    def _live(self, options: AuditOptions, client_config: Mapping[str, Any]) -> Audit:
        require("kafka")
        from auditor.connectors.client_options import MAX_BYTES, MAX_RATE
        from auditor.connectors.live_cluster import Budget, LiveCluster
        from auditor.pipeline.live_audit import LiveAudit
        from auditor.pipeline.live_reading import Reading

        assert options.bootstrap is not None
        cluster = self._ends.enter_context(LiveCluster(options.bootstrap, dict(client_config)))
        return LiveAudit(Reading(cluster, options, Budget(MAX_BYTES, MAX_RATE), "lso"), self._runner)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return TABLES

    def table(self, name: str) -> Any:
        """A table: Spark's DataFrame, which reads when it is used, or without Spark an Arrow table, held in memory.

        ``audit.sql`` asks tables that do not fit there. Errors: ``AuditInputError`` for a name that is none.
        """
        with running.failures():
            return self._audit.table(name)

    def sql(self, text: str) -> pa.Table:
        """The result of an SQL text over the tables, as an Arrow table: Spark's SQL, or without Spark DuckDB's.

        Errors: ``AuditInputError`` for a text that is wrong, or where DuckDB is needed and not there.
        """
        with running.failures():
            return self._audit.query(text)

    @cached_property
    def findings(self) -> Findings:
        """What was found, the worst first. The first time, all input is read and judged."""
        with running.failures():
            return Findings(self._audit.findings, results.findings_table(self._audit))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds: counts, inputs, every byte accounted for, each log."""
        with running.failures():
            found = publish.summarise(self._audit)
            return found | {name: [*found[name]] for name in ("logs", "blocked")}

    @property
    def exit_status(self) -> int:
        """What ``auditor audit`` would end with: 0, 1 (findings at or above ``fail_on``), 3 (input not read)."""
        with running.failures():
            return self._audit.exit_code()

    def explain(self, fingerprint: str) -> Text:
        """One finding with its evidence and its rule, by its fingerprint or the first digits of it."""
        row = explaining.one(self.findings.to_dicts(), fingerprint)
        with running.failures():
            return Text(explaining.text(row, WIDTH, self._audit.cluster_events))

    def timeline(self, topic: Several = ()) -> Page:
        """The transactions of partitions as a picture, those that are blocked first; of topics by glob, or all."""
        from auditor.dashboards.report import render_timelines

        with running.failures():
            rows = publish.described_findings(self._audit)
            shown = [row for row in self._audit.judged["timeline"] if _matches(row["topic"], _several(topic))]
            html = render_timelines(rows, self.summary, self._audit.judged["open"], shown)
        return Page(html, 420)

    def report(self) -> Page:
        """The page that ``report.html`` is."""
        with running.failures():
            return Page(publish.report_page(self._audit), 720)

    def what_if(self, *policies: str, duplicate_window: int = DRAFT_WINDOW) -> WhatIf:
        """The same history under other broker policies (all of them where none is named): who would have been refused.

        The policy that the input itself worked under comes along, to compare with. ``duplicate_window``: how many
        sequence numbers behind the newest the draft takes for duplicates.

        Errors: ``AuditInputError`` for a policy that is none, a window below 1, and for a running cluster.
        """
        if not isinstance(self._audit, AuditWithVerdicts):
            raise AuditInputError("what-if needs log directories; a running cluster does not give what it compares")
        for policy in policies:
            if policy not in CHOICES or policy == AUTO:
                raise AuditInputError(
                    f"no policy named {policy!r}; one of {', '.join(n for n in CHOICES if n != AUTO)}"
                )
        check_window(duplicate_window)
        options = dataclasses.replace(self._audit.options, fail_on="never")
        return WhatIf(WhatIfAudit(options, self._runner, named(policies), duplicate_window))

    def write(
        self, out: str | os.PathLike[str], *, tables: bool = False, expectations: bool = False,
        history: str | os.PathLike[str] | None = None, run_id: str | None = None,
    ) -> Path | str:  # fmt: skip
        """Writes what ``auditor audit --out`` writes, with its options of these names, and returns the folder or URI.

        Errors: ``AuditInputError`` where it cannot be written, is another run's, or is in a log directory.
        """
        kept = None if history is None else out_of(os.fspath(history))
        if kept is not None and run_id is None:
            from auditor.outputs import runs

            run_id = runs.new_run_id()
        where = out_of(os.fspath(out))
        before = self._audit.options
        self._audit.options = dataclasses.replace(
            before, out=where, tables=tables, expectations=expectations, history=kept, run_id=run_id
        )
        try:
            running.write(self._audit)
        finally:
            self._audit.options = before
        return where

    def close(self) -> None:
        """Ends what was started. A session of the caller's stays open; findings and Arrow tables stay what they are."""
        self._closed = True
        self._opened.close()
        self._ends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Who is blocked and what to do, once something was asked that needed reading: nothing is read for a look."""
        if self._closed or "findings" not in self._opened.__dict__:
            return notebook.unread_html(repr(self))
        headline, rows = self.summary["verdict"]["headline"], results.blocked_table(self._opened).to_pylist()
        return notebook.audit_html(headline, rows, self.findings)

    def __repr__(self) -> str:
        options = self._opened.options
        what = ", ".join(map(uris.shown, options.paths)) or options.bootstrap
        return f"<{'closed ' * self._closed}audit of {what} by {self._runner.name}>"


class WhatIf:
    """The same history under each broker policy, as :meth:`OpenedAudit.what_if` gives it."""

    def __init__(self, audit: WhatIfAudit) -> None:
        self._audit = audit

    @cached_property
    def result(self) -> dict[str, Any]:
        """What ``what-if.json`` holds: refusals by policy, and each broker's producer state."""
        with running.failures():
            return self._audit.result

    @cached_property
    def verdicts(self) -> pa.Table:
        """The table ``verdicts``: a row a run of stored batches that a policy would have answered otherwise."""
        with running.failures():
            return self._audit.held("verdicts")

    @cached_property
    def findings(self) -> Findings:
        """What the policies would have changed, as findings."""
        with running.failures():
            return Findings(self._audit.findings, results.findings_table(self._audit))

    def write(self, out: str | os.PathLike[str]) -> Path | str:
        """Writes what ``auditor what-if --out`` writes, and returns the folder or URI."""
        where = out_of(os.fspath(out))
        self._audit.options = dataclasses.replace(self._audit.options, out=where)
        running.write(self._audit, publish.publish_what_if)
        return where


@contextlib.contextmanager
def _closing_on_error(ends: contextlib.ExitStack) -> Iterator[None]:
    try:
        yield
    except BaseException:
        ends.close()
        raise


def _time(given: Time | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, datetime.datetime):
        return parse_time(given.isoformat())
    return parse_time(str(given))


def _several(given: Several) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _text(given: Several | int) -> Several:
    return str(given) if isinstance(given, int) else given


def _numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    """Broker ids. Errors: :class:`AuditInputError` for what is none."""
    numbers = (given,) if isinstance(given, int) else tuple(given)
    if not all(isinstance(number, int) for number in numbers):
        raise AuditInputError(f"only_broker is a broker's id, or several, not {given!r}; give whole numbers")
    return numbers


def _since(given: Time | None) -> Since | None:
    if given is None:
        return None
    return since_of(given.isoformat() if isinstance(given, datetime.datetime) else str(given))


def _matches(topic: str, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """The options as the audit has them. Errors: :class:`AuditInputError` for a name or number that is none."""
    plain = (
        "policy",
        "records",
        "fail_on",
        "max_findings",
        "split_size",
        "include_payload",
        "at_once",
        "fail_on_unsure",
        "whole",
        "work",
        "resume",
    )
    if unknown := sorted(options.keys() - {*plain, *LIMITS}):
        raise AuditInputError(f"no option named {unknown[0]!r}; there are {', '.join((*plain, *LIMITS))}")
    limits = {name: options.pop(name) for name in LIMITS if name in options}
    if limits.get("max_batch_bytes", 1 << 10) < 1 << 10 or limits.get("max_batch_ratio", 1) < 1:
        raise AuditInputError("max_batch_bytes is at least 1024 and max_batch_ratio at least 1")
    work = options.get("work")
    return options | {"limits": DEFAULT_LIMITS._replace(**limits), "work": None if work is None else os.fspath(work)}
