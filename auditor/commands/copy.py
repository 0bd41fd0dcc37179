"""``auditor copy``: a log directory without what nobody outside may read, which audits as it does."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor import running
from auditor.base.errors import AuditFailure, AuditInputError, DecodeError, attempt
from auditor.base.user_input import shown_uri
from auditor.base.words import plural
from auditor.commands.arguments import examples, utf8_stdout
from auditor.commands.compare import key_of
from auditor.copying import throttling
from auditor.pipeline.options import AuditOptions, folder_of, out_of, parse_time

if TYPE_CHECKING:
    from auditor.copying.copy_job import CopyJob, CopyResult, Part
    from auditor.pipeline.whole_audit import Audit


def add_parser(commands: Any) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "copy",
        help="copy log directories without payload: headers, markers, internal topics",
        epilog=examples(
            "auditor copy /var/lib/kafka --out /copies/broker-1",
            "auditor audit /copies/broker-1 --out /tmp/audit",
            "auditor copy --around 1f2e3d --run /tmp/audit /var/lib/kafka --out ticket",
        ),
    )
    p.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="log directory, a directory above several, partition directory or URI; without PATH, a copy of version 1 "
        "in --out is converted in place",
    )
    p.add_argument(
        "-o", "--out", type=out_of, required=True, metavar="DIR|URI", help="empty directory, or an earlier copy"
    )
    p.add_argument(
        "--limit-rate",
        type=throttling.rate,
        default=throttling.DEFAULT_RATE,
        metavar="BYTES",
        help="maximum read rate per second, such as 200MB or 1GiB; none: no limit (default %(default)s)",
    )
    p.add_argument(
        "--records",
        action="store_true",
        help="also store the results of record checks, for audit --records: reads all bodies, copies no keys or values",
    )
    p.add_argument(
        "--sum-key",
        metavar="FILE",
        help="with --records: also store sums of records under this key of 32 bytes, for auditor compare",
    )
    p.add_argument(
        "--keep",
        type=throttling.keep_time,
        metavar="TIME",
        help="keep segments in the copy this long after the broker's retention deletes them (0d: drop them)",
    )
    p.add_argument(
        "--checksums",
        choices=("none", "budget", "all"),
        default="budget",
        help="verify checksums of bodies: none, budget (1 GiB per run, continued by the next run), or all "
        "(default %(default)s)",
    )
    p.add_argument(
        "--around", metavar="FINGERPRINT", help="copy only the evidence of this finding (to attach to a ticket)"
    )
    p.add_argument(
        "--run", dest="run_folder", type=out_of, metavar="DIR|URI", help="output directory of an audit of PATH"
    )
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code: 3 if input was unreadable, had no segments, or lost segments of an
    earlier copy."""
    throttling.lower_priority()
    throttling.trim_freed_memory()
    # Imported only now: it loads Arrow, which has been told by trim_freed_memory.
    from auditor.copying.copy_job import check_apart, check_copy

    check(args)
    started, out, begun_ms = time.monotonic(), args.out, time.time_ns() // 1_000_000
    try:
        if args.around is not None:
            status, says = around(args, folder_of(str(out)))
            if not args.quiet:
                utf8_stdout().writelines(f"{line}\n" for line in says)
            return status
        check_apart(args.paths, out)
        if not args.paths:
            check_copy(out)
        with _alone(out) as still_alone:
            done = _job(args, **_content(args)).apart(_copied, still_alone)
            if not args.quiet and (done.converted or not args.paths):
                sys.stdout.write(f"{plural(done.converted, 'directory')} of version 1 converted\n")
            if not args.paths:
                return 0
            failures: list[DecodeError] = []  # of the second looks: what is copied stays
            again: list[CopyResult] = []
            if done.live and done.unended:
                again = attempt(failures, "no log was re-read", lambda: _looked_again(args, out, begun_ms, done), [])
            if done.unverified and args.checksums == "budget":
                verified = attempt(failures, "no checksum was verified", lambda: _verified(args), done)
                done.unverified, done.failed = verified.unverified, done.failed | verified.failed
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise AuditFailure(f"{shown_uri(str(out))}: {what}; completed parts are kept, run again to continue") from error
    if done.emptied:
        running.warn([_refusal(sorted(done.emptied), out)])
        return 3
    failed = sorted(done.failed.union(*(one.failed for one in again))) + [failure.detail for failure in failures]
    running.warn(failed)
    if not args.quiet:
        _write(done, len(again), time.monotonic() - started, out)
    if not done.segments:
        from auditor.pipeline.whole_audit import NO_SEGMENTS

        lacking = ": its partition directories are without their .log files" if done.folders > 1 else ""
        running.warn([f"{NO_SEGMENTS.reason}{lacking}"])
    return 3 if done.refused or failed or not done.segments else 0


def _write(done: CopyResult, rounds: int, seconds: float, out: Path | str) -> None:
    sys.stdout.write(
        f"{plural(done.folders, 'directory')}, {done.bytes_seen:,} bytes, in {seconds:.1f} s: "
        f"{plural(done.segments, 'segment')} ({done.kept:,} unchanged); "
        f"copied {plural(done.batches, 'batch')} ({done.bytes_read:,} bytes) without keys and values\n"
    )
    if done.held:
        sys.stdout.write(f"kept: {plural(done.held, 'segment')} that the broker has deleted\n")
    if rounds:
        sys.stdout.write(f"re-read logs with open transactions {plural(rounds, 'time')}\n")
    if done.moving:
        sys.stdout.write(
            f"{plural(len(done.moving), 'directory')} changed during each of three reads: indexes of replaced segments "
            "are missing; an audit of the copy lists them\n"
        )
    if done.unverified:
        sys.stdout.write(
            f"unverified checksums: {plural(done.unverified, 'segment')}; run again to continue, or use "
            "--checksums all\n"
        )
    if done.refused:
        sys.stdout.write(f"unreadable: {plural(done.refused, 'file')}; an audit of the copy lists them\n")
    sys.stdout.write(f"This is not a backup. Next: auditor audit {shown_uri(str(out))} --out DIR\n")


def _job(args: argparse.Namespace, **how: Any) -> CopyJob:
    from auditor.copying.copy_job import CopyJob

    return CopyJob(**{"paths": args.paths, "out": args.out, "checksums": args.checksums, "rate": args.limit_rate} | how)


def _content(args: argparse.Namespace) -> dict[str, Any]:
    key = None if args.sum_key is None else key_of(Path(args.sum_key))
    return {"records": args.records, "keep_ms": args.keep, "sum_key": key}


def _copied(job: CopyJob) -> Iterator[Part]:
    # In a worker, which alone loads the module.
    throttling.trim_freed_memory()
    from auditor.copying.run import copied

    return copied(job)


def _refusal(emptied: list[str], out: Path | str) -> str:
    more = f" and {len(emptied) - 1:,} more" if len(emptied) > 1 else ""
    return (
        f"no segment files (.log) of {shown_uri(emptied[0])}{more} in the input, "
        f"but {shown_uri(str(out))} has copies of them: nothing was copied; restore the files, or choose another --out"
    )


@contextlib.contextmanager
def _alone(out: Path | str) -> Iterator[Callable[[str], None]]:
    # Yields a function to call after each directory: in a store it renews the lease, or fails if that is lost.
    from auditor.connectors.stores.results import alone_in, locked
    from auditor.connectors.stores.retries import ignore
    from auditor.copying.copy_job import COPYING

    if isinstance(out, str):
        with alone_in(out, COPYING, "copy") as still_alone:
            yield still_alone
        return
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        yield ignore


def _looked_again(args: argparse.Namespace, out: Path | str, begun_ms: int, done: CopyResult) -> list[CopyResult]:
    from auditor.copying.run import reread_open_logs

    options = AuditOptions((str(out),), out, master="inline[1]")
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        def audit(some: list[str]) -> Audit:
            return Audit(replace(options, paths=tuple(some)), runner)

        def again(only: frozenset[str]) -> CopyResult:
            return _job(args, only=only, **_content(args)).apart(_copied)

        return reread_open_logs(out, begun_ms, done, audit, again)


def _verified(args: argparse.Namespace) -> CopyResult:
    # Verifies the segments that findings of the copy rest on.
    from auditor.copying.run import referenced_segments

    options = AuditOptions((str(args.out),), args.out, master="inline[1]")
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        return _job(args, segments=referenced_segments(Audit(options, runner))).apart(_copied)


# ``auditor copy --around``.


def around(args: argparse.Namespace, out: Path) -> tuple[int, list[str]]:
    """Copy what the finding ``--around`` rests on into the empty directory ``out`` and audit the copy.

    More is copied until that audit reports the finding again. Returns the exit code and the lines to print. Errors:
    :class:`AuditInputError` for a usage error, ``OSError`` of the target.
    """
    from auditor.copying import run as copying  # only now: it loads the readers
    from auditor.copying.copy_job import ALL
    from auditor.outputs import delivery, printing

    results, checksums = delivery.read(args.run_folder), args.checksums
    row, as_of = printing.finding_by_fingerprint(results.findings, args.around), results.summary.get("as_of")
    records = results.summary.get("records_decoded") is True
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise AuditInputError(
            f"{out} is not empty: --around needs an empty directory, so that a ticket gets nothing else"
        )
    clock = parse_time(as_of) if isinstance(as_of, str) else None
    options = AuditOptions((str(out),), out, records=records, as_of=clock, master="inline[1]")
    unverified = 0
    tried: list[tuple[set[str], str]] = []
    for folders, mode in product(copying.folder_choices(row, args.paths), dict.fromkeys((checksums, ALL))):
        if (folders, mode) in tried or (tried and mode != checksums and not unverified):
            continue
        tried.append((folders, mode))
        done = _job(args, out=out, only=folders, checksums=mode, records=records).apart(_copied)
        unverified = done.unverified
        with running.failures(), running.runner(options) as runner:
            from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

            audit = Audit(options, runner)
            again = next((f for f in audit.findings if f.fingerprint == row["fingerprint"]), None)
            named = copying.names_in(audit)
        if again is not None and again.severity == row["severity"]:
            break
    says = ["The copy contains these names:", *(f"  {line}" for line in named.lines()), ""]
    says.append(f"{out}: {copying.size_of(out):,} bytes, without keys and values, not a backup")
    if again is not None:
        when = " --records" * records + (f" --as-of {as_of}" if clock is not None else "")
        other = f", as {again.severity}" if again.severity != row["severity"] else ""
        says.append(f"An audit of the copy reproduces the finding{other}: auditor audit {out}{when} --out DIR")
    else:
        says.append("An audit of the copy does not reproduce the finding: its evidence is not copied, or was deleted")
    if done.refused:
        says.append("Part of the input is unreadable; an audit of the copy lists it")
    running.warn(sorted(done.failed))
    return (3 if done.refused or done.failed else int(again is None)), says


def check(args: Any) -> None:
    """Errors: :class:`AuditInputError` if only one of ``--around`` and ``--run`` is given."""
    if args.sum_key is not None and not args.records:
        raise AuditInputError("--sum-key needs --records, which reads the records; give both")
    if args.around is not None and not args.paths:
        raise AuditInputError("missing PATH: give those of the run of --around")
    if (args.around is None) != (args.run_folder is None):
        raise AuditInputError(
            "--around FINGERPRINT and --run DIR|URI (the --out of an audit) need each other; give both"
        )
