"""The console script ``auditor`` (contract section 2)."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.model.policies import AUTO, CHOICES
from auditor.pipeline.options import LEVELS, AuditOptions, parse_time

DEMO = Path(__file__).parent / "demo"
OTHER_COMMANDS = ("decode", "what_if", "sql", "live", "watch", "history", "dashboard")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status. A user's mistake ends in one line and 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser(words[0] if words else None).parse_args(words)
    try:
        return int(args.run(args))
    except AuditInputError as error:
        print(f"auditor: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("auditor: stopped", file=sys.stderr)
        return 128 + signal.SIGINT


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong with a call in one line with a hint, without the usage in front of it."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit status 2."""
        self.exit(2, f"{self.prog}: {message}; '{self.prog} --help' lists what it takes\n")


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """All commands and options; of the commands in modules of their own only ``command``, if it is one of them.

    ``decode`` must not wait for the imports of what it does not use.
    """
    top = OneLineParser(prog="auditor", description="Audits Kafka log directories for exactly-once invariants.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="the main job on a small log directory of a real broker")
    demo.add_argument("--out", type=Path, help="where results go (default: a folder in the system's temporary folder)")
    demo.add_argument("--master", default="local[*]")
    demo.add_argument("--quiet", action="store_true")
    demo.set_defaults(run=_demo)
    audit = commands.add_parser("audit", help="decode, replay, judge; write findings, summary and report")
    add_audit_options(audit)
    audit.set_defaults(run=_audit)
    rules = commands.add_parser("rules", help="the catalogue of rules; with an id, all about one")
    rules.add_argument("id", nargs="?", help="a rule's id")
    rules.set_defaults(run=_rules)
    asked = (command or "").replace("-", "_")
    for name in (asked,) if asked in OTHER_COMMANDS else OTHER_COMMANDS:
        if importlib.util.find_spec(f"auditor.commands.{name}") is not None:
            importlib.import_module(f"auditor.commands.{name}").add_parser(commands)
    return top


def add_audit_options(p: argparse.ArgumentParser, paths: bool = True) -> None:
    """The options of ``audit``; ``live`` has the same but for PATH."""
    if paths:
        p.add_argument(
            "paths", nargs="+", metavar="PATH", help="log directory, folder above some, partition folder, file, URI"
        )
    p.add_argument("--out", type=Path, required=True, help="where results are written")
    p.add_argument("--policy", default=AUTO, choices=CHOICES, help="which brokers' rules the log was written under")
    p.add_argument("--records", action="store_true", help="decode every record too (KIP-467 checks)")
    p.add_argument("--fail-on", default="error", choices=LEVELS, help="exit 1 at findings of this severity or above")
    p.add_argument("--rule", action="append", default=[], metavar="ID", help="only this rule (repeatable)")
    p.add_argument("--skip-rule", action="append", default=[], metavar="ID", help="all but this rule (repeatable)")
    p.add_argument("--topic", action="append", default=[], metavar="GLOB", help="only these topics (repeatable)")
    p.add_argument("--as-of", metavar="TIME", help="clock that time-outs are judged by: ISO-8601 or epoch ms")
    p.add_argument("--master", default="local[*]", metavar="URL", help="Spark master (default local[*])")
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
    )  # fmt: skip


def _audit(args: argparse.Namespace) -> int:
    from auditor.outputs import alerts

    alerts.check(args.alert)
    return run_audit(
        audit_options(args, args.paths), quiet=args.quiet, as_json=args.format == "json",
        alert=args.alert, alert_on=args.alert_on,
    )  # fmt: skip


def run_audit(
    options: AuditOptions, *, quiet: bool, as_json: bool, alert: Sequence[str] = (), alert_on: str = "error"
) -> int:
    """Audits, prints the findings, sends alerts where asked to, returns the exit status."""
    from auditor.outputs import alerts
    from auditor.pipeline import audit

    progress = Progress(quiet or not sys.stderr.isatty())
    result = audit.run(options, progress.say)
    progress.done()
    if not quiet:
        show(result, as_json)
    for line in alerts.send(alerts.news(result, alert_on), alert) if alert else ():
        print(f"auditor: {line}", file=sys.stderr)
    return result.exit_code()


def show(result: object, as_json: bool) -> None:
    """Prints the findings of an audit: a table for people, or the lines of findings.jsonl."""
    from auditor.dashboards.terminal import print_findings
    from auditor.outputs.publish import summarise
    from auditor.pipeline.audit import Audit

    assert isinstance(result, Audit)
    if as_json:
        sys.stdout.writelines(f.to_json() + "\n" for f in result.findings)
        return
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = 120
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    report = str(result.options.out / "report.html")
    print_findings([f.to_dict() for f in result.findings], summarise(result), sys.stdout, width, color, report)


class Progress:
    """What is going on, on one line of the terminal that is wiped at the end."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent

    def say(self, text: str) -> None:
        """Shows what is being done now."""
        if not self.silent:
            sys.stderr.write(f"\r\x1b[K… {text}")
            sys.stderr.flush()

    def done(self) -> None:
        """Wipes the line."""
        if not self.silent:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _demo(args: argparse.Namespace) -> int:
    """Findings are what the demo is there to show, so they are no failure of it."""
    out = args.out or Path(tempfile.mkdtemp(prefix="auditor-demo-"))
    as_of = (DEMO / "as-of").read_text(encoding="utf-8").strip()
    options = AuditOptions(
        (str(DEMO / "logs"),), out, records=True, as_of=parse_time(as_of), master=args.master, fail_on="never"
    )
    return run_audit(options, quiet=args.quiet, as_json=False)


def _rules(args: argparse.Namespace) -> int:
    from auditor.rules import registry
    from auditor.rules.rule_page import catalogue, page

    known = registry.load()
    if args.id is None:
        sys.stdout.write(catalogue(known))
        return 0
    if args.id not in known:
        raise AuditInputError(f"no rule named {args.id!r}; 'auditor rules' lists them")
    sys.stdout.write(page(known[args.id]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
