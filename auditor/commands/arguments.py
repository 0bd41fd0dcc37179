"""The options that commands share: those of ``audit``, and how a run is started."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS, IN_ALL, OF_A_RULE
from auditor.model.policies import AUTO, CHOICES
from auditor.pipeline.options import LEVELS, AuditOptions, parse_time


def add_master(p: argparse.ArgumentParser) -> None:
    """The option that says how to run."""
    p.add_argument(
        "--master", metavar="URL",
        help="Spark master (default local[*]); inline or inline[N]: without Spark, in N processes",
    )  # fmt: skip


def add_audit_options(p: argparse.ArgumentParser, paths: bool = True) -> None:
    """The options of ``audit``; ``live`` has the same but for PATH."""
    if paths:
        p.add_argument(
            "paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, file, URI"
        )
        p.add_argument("--bootstrap-server", metavar="H:P", help="put into the commands that remedies print")
    p.add_argument("--out", type=Path, required=True, help="where results are written")
    p.add_argument("--policy", default=AUTO, choices=CHOICES, help="which brokers' rules the log was written under")
    p.add_argument("--records", action="store_true", help="decode every record too (KIP-467 checks)")
    p.add_argument("--fail-on", default="error", choices=LEVELS, help="exit 1 at findings of this severity or above")
    p.add_argument("--rule", action="append", default=[], metavar="ID", help="only this rule (repeatable)")
    p.add_argument("--skip-rule", action="append", default=[], metavar="ID", help="all but this rule (repeatable)")
    p.add_argument("--topic", action="append", default=[], metavar="GLOB", help="only these topics (repeatable)")
    p.add_argument(
        "--max-findings", type=int, default=OF_A_RULE, metavar="N",
        help=f"of a rule in a partition (default {OF_A_RULE}; {IN_ALL} times as many in all), those beyond are summed",
    )  # fmt: skip
    p.add_argument("--as-of", metavar="TIME", help="clock that time-outs are judged by: ISO-8601, epoch ms or now")
    add_master(p)
    p.add_argument(
        "--split-size", type=int, default=128 << 20, metavar="BYTES", help="tables: bytes of a segment a task reads"
    )
    p.add_argument("--max-batch-bytes", type=int, default=DEFAULT_LIMITS.max_batch_bytes, metavar="BYTES")
    p.add_argument("--max-batch-ratio", type=int, default=DEFAULT_LIMITS.max_batch_ratio, metavar="N")
    p.add_argument("--tables", action="store_true", help="write the decoded and derived tables as Parquet")
    p.add_argument("--expectations", action="store_true", help="run the great-expectations suites over the results")
    p.add_argument("--history", type=Path, metavar="DIR", help="keep this run's results under DIR ('auditor history')")
    p.add_argument("--run-id", metavar="ID", help="what the kept run is called; a run of that id is replaced")
    p.add_argument(
        "--alert", action="append", default=[], choices=("slack", "pagerduty"), help="send alerts (repeatable)"
    )
    p.add_argument("--alert-on", default="error", choices=LEVELS[:-1], help="alert at this severity or above")
    p.add_argument("--include-payload", action="store_true", help="let record keys and values into the tables")
    p.add_argument("--format", default="table", choices=("table", "json"), help="what is printed of the findings")
    p.add_argument("--verbose", action="store_true", help="print every finding, not only their causes")
    p.add_argument("--quiet", action="store_true", help="print nothing but errors")


def audit_options(args: argparse.Namespace, paths: Sequence[str]) -> AuditOptions:
    """The options as checked data. Errors: :class:`AuditInputError`."""
    if args.max_batch_bytes < 1 << 10 or args.max_batch_ratio < 1:
        raise AuditInputError("--max-batch-bytes is at least 1024 and --max-batch-ratio at least 1")
    run_id = args.run_id
    if args.history is not None:
        from auditor.outputs import runs

        run_id = run_id or runs.new_run_id()
        runs.folder_of(args.history, run_id)
    limits = DEFAULT_LIMITS._replace(max_batch_bytes=args.max_batch_bytes, max_batch_ratio=args.max_batch_ratio)
    return AuditOptions(
        tuple(paths), args.out, args.policy, args.records, args.fail_on, tuple(args.rule), tuple(args.skip_rule),
        tuple(args.topic), parse_time(args.as_of) if args.as_of is not None else None, args.master, args.split_size,
        limits, args.tables, args.expectations, args.include_payload, args.history, run_id,
        args.max_findings, getattr(args, "bootstrap_server", None),
    )  # fmt: skip
