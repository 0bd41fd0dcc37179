"""``auditor recheck``: what an audit had for held, or could not decide, looked at again in a newer copy or live."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.base import uris
from auditor.base.errors import AuditInputError
from auditor.commands import live
from auditor.commands.arguments import add_remote
from auditor.commands.parser import add_limits, examples
from auditor.outputs import earlier_results
from auditor.pipeline.options import AuditOptions, out_of, parse_time

if TYPE_CHECKING:
    from auditor.pipeline.asked_again import Question
    from auditor.pipeline.runner import Runner
    from auditor.pipeline.whole_audit import Audit


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "recheck",
        help="what a run left held or not decided, looked at again in a newer input",
        epilog=examples(
            "auditor recheck --out /tmp/audit /copies/newer",
            "auditor recheck --out /tmp/audit --bootstrap-server kafka:9092 --command-config client.properties",
        )
        + "\nexit status: 0 where each is over, or waits as is normal; 1 where one is not, or is not decided; 3 where "
        "part of the newer input could not be read",
    )
    p.add_argument(
        "paths", nargs="*", metavar="PATH", help="a newer copy of what was audited, as 'auditor audit' takes"
    )
    p.add_argument("--out", type=out_of, required=True, metavar="DIR|URI", help="the results of the earlier audit")
    p.add_argument("--bootstrap-server", metavar="HOST:PORT[,...]", help="ask the running cluster instead of a PATH")
    p.add_argument("--as-of", metavar="TIME", help="clock that time-outs are judged by: ISO-8601, epoch ms or now")
    p.add_argument("--at-once", action="store_true", help="every file is of one moment, as in a snapshot of the disk")
    p.add_argument("--format", default="table", choices=("table", "json"), metavar="FORMAT", help="table, json (lines)")
    add_remote(p)
    live.add_connection(p.add_argument_group("with --bootstrap-server"))
    add_limits(p)
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns its exit status."""
    if bool(args.paths) == (args.bootstrap_server is not None):
        raise AuditInputError("recheck needs a PATH or --bootstrap-server H:P; give one of them")
    from auditor.pipeline import asked_again

    questions = _questions(args.out)
    if not questions:
        sys.stdout.write("The run left nothing held and nothing undecided.\n")
        return 0
    options = _options(args, questions)
    with running.failures(), running.runner(options) as runner, _newer(args, options, questions, runner) as audit:
        told = list(asked_again.Newer(audit).answers(questions))
        unread = audit.incomplete()
        running.warn_of_empty(audit)
    out = sys.stdout
    out.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    if args.format == "json":
        out.writelines(json.dumps(each.row(), ensure_ascii=True) + "\n" for each in told)
    else:
        from auditor.dashboards.recheck_lines import lines

        out.writelines(
            f"{line}\n" for line in lines([each.row() for each in told], shutil.get_terminal_size((120, 24)).columns)
        )
    return 3 if unread else int(not all(each.fine for each in told))


def _questions(out: Path | str) -> list[Question]:
    from auditor.pipeline import asked_again

    found = earlier_results.read(out)
    try:
        return asked_again.asked(found.summary, found.findings)
    except (KeyError, TypeError, AttributeError):
        shown = uris.shown(str(out))
        raise AuditInputError(f"{shown} holds no results that can be read; audit the older copy again") from None


def _options(args: argparse.Namespace, questions: Sequence[Question]) -> AuditOptions:
    as_of = parse_time(args.as_of) if args.as_of is not None else None
    if as_of is None and args.bootstrap_server is not None:
        as_of = int(time.time() * 1000)

    only = tuple(dict.fromkeys(f"{each.topic}-{each.partition}" for each in questions))
    return AuditOptions(
        tuple(args.paths),
        args.out,
        master="inline",
        as_of=as_of,
        at_once=args.at_once,
        remote=tuple(args.remote),
        only_partitions=only,
        may_lack=True,
        bootstrap=args.bootstrap_server,
    )


@contextlib.contextmanager
def _newer(
    args: argparse.Namespace, options: AuditOptions, questions: Sequence[Question], runner: Runner
) -> Iterator[Audit]:
    """The audit of the newer input, read no further than the questions need."""
    if args.bootstrap_server is None:
        from auditor.pipeline.whole_audit import Audit

        with contextlib.closing(Audit(options, runner)) as audit:
            yield audit
        return
    from auditor.pipeline.live.live_audit import LiveAudit

    begins: dict[tuple[str, int], int] = {}
    for each in questions:
        if each.first_offset is not None:
            begins[each.place] = min(each.first_offset, begins.get(each.place, each.first_offset))
    with live.opened(args, options, "lso", begins) as reading, contextlib.closing(LiveAudit(reading, runner)) as audit:
        yield audit
