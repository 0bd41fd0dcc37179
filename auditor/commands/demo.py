"""``auditor demo``: the main job on the small log directories of a real cluster that come with the project.

Three brokers of 4.3.1, one of which was down as transactions ended: the coordinators took its partition for a deleted
one and completed them without its marker (KAFKA-20734).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from auditor import running
from auditor.commands.arguments import add_master, examples
from auditor.dashboards.finding_groups import Printing
from auditor.pipeline.options import AuditOptions, folder_of, parse_time

DEMO = Path(__file__).parents[1] / "demo"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "demo",
        help="audit small sample logs of a real cluster",
        epilog=examples("auditor demo --out /tmp/demo"),
    )
    p.add_argument(
        "-o", "--out", type=folder_of, help="output directory (default: in the system's temporary directory)"
    )
    add_master(p)
    p.add_argument("-v", "--verbose", action="store_true", help="list every finding and partition, not only causes")
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command. Findings are expected, so they do not fail it."""
    out = args.out or Path(tempfile.mkdtemp(prefix="auditor-demo-"))
    as_of = (DEMO / "as-of").read_text(encoding="utf-8").strip()
    options = AuditOptions(
        (str(DEMO / "logs"),), out, records=True, as_of=parse_time(as_of), master=args.master, fail_on="never"
    )
    with running.runner(options) as runner:
        from auditor.pipeline.whole_audit import Audit  # only now: see running.runner

        return running.command(Audit(options, runner), Printing(quiet=args.quiet, verbose=args.verbose))
