"""``auditor recheck``: what an audit found, compared with a newer copy or the running cluster."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from auditor import running
from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.commands import live
from auditor.commands.arguments import add_limits, add_point_in_time, add_remote, add_work, examples, utf8_stdout
from auditor.dashboards.table_lines import recheck_lines
from auditor.outputs import delivery, recheck
from auditor.outputs.delivery import Earlier
from auditor.outputs.recheck import Question
from auditor.pipeline.options import AuditOptions, out_of, parse_time
from auditor.pipeline.runner import Runner
from auditor.pipeline.whole_audit import Audit


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "recheck",
        help="compare findings of a run with a newer input",
        epilog=examples(
            "auditor recheck --out /tmp/audit /copies/newer",
            "auditor recheck --out /tmp/audit --bootstrap-server kafka:9092 --command-config client.properties",
        )
        + "\nCompares blocked partitions, inconclusive findings, and findings at or above the run's --fail-on (never: "
        "error) with an audit of the newer input. It does not replace that audit. A running cluster shows which "
        "partitions are blocked. It shows no files: findings about bytes, segments and indexes need a PATH.\n"
        "exit code: 0 if each is resolved, or open within its timeout. 1 if one is still present or inconclusive, or "
        "new at or above --fail-on. 3 if one could not be checked (1 takes precedence over 3)",
    )
    p.add_argument("paths", nargs="*", metavar="PATH", help="newer copy of the same input, as for 'auditor audit'")
    p.add_argument(
        "-o", "--out", type=out_of, required=True, metavar="DIR|URI", help="output directory of the earlier audit"
    )
    p.add_argument(
        "--bootstrap-server", metavar="HOST:PORT[,...]", help="compare with a running cluster instead of a PATH"
    )
    p.add_argument("--as-of", metavar="TIME", help="evaluation time for timeouts: ISO-8601, epoch ms, or now")
    add_point_in_time(p)
    p.add_argument("--format", default="table", choices=("table", "json"), metavar="FORMAT", help="table, json (lines)")
    add_work(p)
    add_remote(p)
    live.add_connection(p.add_argument_group("with --bootstrap-server"))
    add_limits(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if bool(args.paths) == (args.bootstrap_server is not None):
        raise AuditInputError("missing newer input: give a PATH or --bootstrap-server H:P")
    if args.work is not None and not args.paths:
        raise AuditInputError("--work needs a PATH: it caches what was read of files")
    earlier, live_input = delivery.read(args.out), args.bootstrap_server is not None
    questions, notes = _questions(args.out, earlier)
    if not questions:
        return _nothing_to_compare(earlier.summary, notes, args.format)
    options = _options(args, earlier.summary, questions)
    with running.failures(), running.runner(options) as runner, _newer(args, options, questions, runner) as audit:
        newer = recheck.Newer(audit, earlier.summary, live_input)
        answers = list(newer.answers(questions, recheck.suppressed(earlier.summary)))
        unread = audit.incomplete()
        running.warn_of_empty(audit)
    notes += ["unreadable: part of the newer input"] if unread else []
    if live_input:
        notes.append("not scanned: other partitions and earlier offsets; for new findings run: auditor live")
    notes.append("only findings of that run were compared; for all findings of the newer input run: auditor audit")
    out = utf8_stdout()
    if args.format == "json":
        out.writelines(json.dumps(answer.row(), ensure_ascii=True) + "\n" for answer in answers)
        running.warn(notes)
    else:
        width = shutil.get_terminal_size((120, 24)).columns
        out.writelines(f"{line}\n" for line in recheck_lines([answer.row() for answer in answers], notes, width))
    return recheck.exit_code(answers, unread)


def _nothing_to_compare(earlier: Values, notes: list[str], format: str) -> int:
    """Say that the run left nothing to compare. Exit code 3 if that run could not judge all of its input."""
    complete = earlier.get("complete", True)
    if not complete:
        notes.append("the earlier run had read errors or no input to check: audit the newer input")
    lines = [
        "the earlier run has no blocked partition, no inconclusive finding and no finding at or above "
        f"{recheck.level_of(earlier)}{' that is not suppressed' if recheck.suppressed(earlier) else ''}: "
        "nothing was compared, and the newer input was not scanned",
        *notes,
    ]
    if format == "json":
        running.warn(lines)
    else:
        sys.stdout.writelines(f"{line[0].upper()}{line[1:]}.\n" for line in lines)
    return 0 if complete else 3


def _questions(out: Path | str, earlier: Earlier) -> tuple[list[Question], list[str]]:
    try:
        asked = recheck.questions_of(earlier.summary, earlier.findings)
        left = recheck.uncompared(earlier.summary, earlier.findings)
    except (KeyError, TypeError, AttributeError):
        shown = user_input.shown_uri(str(out))
        raise AuditInputError(f"{shown}: no readable results; audit the older copy again") from None
    return asked, [f"not compared: {line}" for line in left]


def _options(args: argparse.Namespace, earlier: Values, questions: Sequence[Question]) -> AuditOptions:
    # The scope of the earlier audit; of a running cluster only the partitions that are asked about.
    as_of = parse_time(args.as_of) if args.as_of is not None else None
    if as_of is None and args.bootstrap_server is not None:
        as_of = int(time.time() * 1000)
    scope = earlier.get("scope") or {}
    partitions = tuple(scope.get("partitions") or ())
    if args.bootstrap_server is not None:
        placed = (question for question in questions if question.partition is not None)
        partitions = tuple(dict.fromkeys(f"{question.topic}-{question.partition}" for question in placed))
    return AuditOptions(
        tuple(args.paths),
        args.out,
        master="inline",
        as_of=as_of,
        at_once=args.at_once,
        remote=tuple(args.remote),
        work=args.work,
        records=bool(earlier.get("records_decoded")),
        whole=bool(scope.get("whole")),
        topics=tuple(scope.get("topics") or ()),
        only_partitions=partitions,
        only_brokers=tuple(scope.get("brokers") or ()),
        may_lack=True,
        bootstrap=args.bootstrap_server,
    )


@contextlib.contextmanager
def _newer(
    args: argparse.Namespace, options: AuditOptions, questions: Sequence[Question], runner: Runner
) -> Iterator[Audit]:
    # A running cluster is read no further than the questions need.
    if args.bootstrap_server is None:
        with contextlib.closing(Audit(options, runner)) as audit:
            yield audit
        return
    from auditor.pipeline.live_audit import LiveAudit

    begins: dict[tuple[str, int], int] = {}
    for item in questions:
        if item.waits and item.first_offset is not None and item.topic is not None and item.partition is not None:
            place = item.topic, item.partition
            begins[place] = min(item.first_offset, begins.get(place, item.first_offset))
    with live.opened(args, options, "lso", begins) as reading, contextlib.closing(LiveAudit(reading, runner)) as audit:
        yield audit
