"""``auditor baseline``: accept findings of a run, with the reason, by whom and until when."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import getpass
import sys
from pathlib import Path

from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.base.words import plural
from auditor.commands.arguments import add_repeatable, examples
from auditor.connectors.stores.results import folder
from auditor.dashboards.wording import kind
from auditor.outputs import delivery
from auditor.outputs.alerts import where
from auditor.pipeline import options
from auditor.pipeline.options import AcceptedFinding, out_of
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import cluster_of

FILE = Path("auditor-baseline.json")
DAYS = 90
NEVER, NO_REASON = "never", "no reason given"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "baseline",
        help="suppress findings of a run in later runs",
        epilog=examples(
            "auditor baseline dfe6f71ca00b --out /tmp/audit --reason 'OPS-17, under repair' --until 2026-12-31",
            "auditor audit /var/kafka-logs --out /tmp/audit --baseline auditor-baseline.json",
        ),
    )
    p.add_argument(
        "fingerprints",
        nargs="*",
        metavar="FINGERPRINT",
        help="finding ID as the audit prints it, or its first digits (default: all findings)",
    )
    p.add_argument("-o", "--out", type=out_of, required=True, metavar="DIR|URI", help="output directory of an audit")
    p.add_argument("--baseline", type=Path, default=FILE, metavar="FILE", help="baseline file to create or extend")
    p.add_argument("--reason", default=NO_REASON, metavar="TEXT", help="why they are suppressed")
    p.add_argument("--who", metavar="NAME", help="who suppresses them (default: the current user)")
    p.add_argument(
        "--until", metavar="DAY", help=f"expiry date, such as 2026-12-31, or {NEVER} (default: in {DAYS} days)"
    )
    add_repeatable(p, "--rule", "ID", "only findings of this rule (repeatable)")
    add_repeatable(p, "--topic", "GLOB", "only findings of these topics (repeatable)")
    p.add_argument("--prune", action="store_true", help="remove entries without a finding in the run; alone: add none")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    results = delivery.read(args.out)
    rows, of_dir = results.findings, {row["log_dir"]: row["cluster_id"] for row in results.summary["inputs"]}
    file: Path = args.baseline
    accepted = dict(options.read_baseline(file).entries) if file.exists() else {}
    before = len(accepted)
    if args.prune:
        present = {row["fingerprint"] for row in rows}
        clusters = {"", *of_dir.values()}  # of other clusters the run knows nothing
        accepted = {name: entry for name, entry in accepted.items() if name in present or entry.cluster not in clusters}
    only_prune = args.prune and not (args.fingerprints or args.rule or args.topic)
    chosen = [] if only_prune else _chosen(rows, args)
    if not chosen and not only_prune:
        raise AuditInputError(
            f"no finding of {user_input.shown_uri(str(args.out))} matches; check --rule, --topic and its findings.jsonl"
        )
    until, who, reason = _until(args.until), args.who or _user(), args.reason.strip() or NO_REASON
    new = [
        AcceptedFinding(
            row["fingerprint"],
            row["severity"],
            reason,
            who,
            until,
            kind(row),
            where(row),
            cluster_of(row, of_dir) or "",
        )
        for row in chosen
    ]
    entries = accepted | {entry.fingerprint: entry for entry in new}
    try:
        folder(file.parent).put_text(file.name, options.text_of(entries.values()))
    except OSError as error:
        raise AuditInputError(f"cannot write {file}: {error.strerror}; give another --baseline FILE") from None
    end = "without expiry" if until is None else f"until {until.isoformat()}"
    lines = [f"{plural(len(new), 'finding')} suppressed by {who} {end}: {reason}"] if new else []
    lines += [f"{plural(before - len(accepted), 'entry')} removed"] if args.prune else []
    sys.stdout.write("\n".join([*lines, f"{file} has {plural(len(entries), 'entry')}"]) + "\n")
    return 0


def _chosen(rows: list[Values], args: argparse.Namespace) -> list[Values]:
    candidates = rows
    if args.fingerprints:
        candidates = []
        for name in args.fingerprints:
            matches = {row["fingerprint"]: row for row in rows if name and row["fingerprint"].startswith(name.lower())}
            if len(matches) != 1:
                many = f"{len(matches)} findings have" if matches else "no finding has"
                raise AuditInputError(f"{many} an ID that starts with {name!r}; the audit prints the IDs")
            candidates += matches.values()
    kinds = {k.id for name in args.rule or () for k in registry.named(name)}
    return [
        row
        for row in candidates
        if (not args.rule or kind(row) in kinds)
        and (not args.topic or any(fnmatch.fnmatchcase(row["topic"] or "", glob) for glob in args.topic))
    ]


def _until(text: str | None) -> datetime.date | None:
    if text == NEVER:
        return None
    if text is None:
        return datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=DAYS)
    return options.parse_day(text, "--until")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no entry for this user, as in some containers
        raise AuditInputError("unknown user name; give --who NAME") from None
