"""What a command prints of its audit: for people, or in a format for other programs on standard output."""

from __future__ import annotations

import datetime
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.dashboards import answers, output_formats, report_shapes, terminal, verdict
from auditor.dashboards.selection import LEAST, Printing, Selection, is_partition, named
from auditor.outputs import delivery
from auditor.outputs.publish import described_findings, summarise
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import SECTIONS


def check(audit: Audit, selection: Selection) -> None:
    """Errors: :class:`AuditInputError` for a value that nothing of the input has. Cost: judges the audit."""
    logs = audit.judged["log"]
    brokers = {d.broker_id for d in audit.inventory.log_dirs} | {row["broker_id"] for row in logs}
    for glob in selection.partitions:
        if not any(is_partition(row, glob) for row in logs):
            raise _nothing("--partition", glob, "partition", "TOPIC-N, a glob in quotes, or a number")
    for broker in selection.brokers:
        if broker not in brokers:
            raise _nothing("--broker", broker, "broker", f"one of {sorted(b for b in brokers if b is not None)}")
    for glob in selection.transactional_ids:
        if not named(_transactional_ids(audit), (glob,)):
            raise _nothing("--transactional-id", glob, "transactional id", "another one, or a glob in quotes")
    all_known = not any(row["more"] for row in audit.judged["readers"])
    for glob in selection.groups if all_known else ():
        if not named(_groups(audit), (glob,)):
            raise _nothing("--group", glob, "group", "another one, or a glob in quotes")


def _nothing(option: str, value: object, what: str, hint: str) -> AuditInputError:
    return AuditInputError(f"{option} {value} matches no {what} of the input; give {hint}")


def _transactional_ids(audit: Audit) -> Iterator[str | None]:
    for cluster in audit.clusters.values():
        for log in cluster.coordinator.logs.values() if cluster.coordinator is not None else ():
            yield from log.ids
    yield from (f.transactional_id for f in audit.findings)
    yield from (row["transactional_id"] for row in audit.judged["blocked"])


def _groups(audit: Audit) -> Iterator[str | None]:
    for row in audit.judged["readers"]:
        yield from row["groups"]
    yield from (f.group_id for f in audit.findings)


def show(done: Audit, printing: Printing) -> None:
    """Prints what came of an audit. For people: the answer and the findings; else the findings on standard output, and
    the verdict on standard error."""
    shown = printing.selection
    if printing.format == "json":
        sys.stdout.writelines(f.to_json() + "\n" for f in done.open_findings if shown.shows(f.to_dict()))
    rows, summary = described_findings(done), summarise(done)
    width = shutil.get_terminal_size((120, 24)).columns
    report = delivery.shown(done.options.out, "report.html")
    now = datetime.datetime.now(datetime.UTC)
    if printing.format == "table":
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        terminal.print_findings(rows, summary, sys.stdout, width, color, report, printing.verbose, now, shown)
        return
    if printing.format != "json":
        picked = [row for row in answers.unaccepted(rows) if shown.shows(row)]
        if printing.format == "markdown" and not (printing.verbose or shown.infos):
            picked = [row for row in picked if row["severity"] != LEAST]
        whole, full = report_shapes.whole(rows, report_shapes.FINDING), report_shapes.summary(summary)
        decided = verdict.of_run(whole, full)
        hidden = Counter(row["rule"] for row in rows) - Counter(row["rule"] for row in picked)
        rules = {name: row | {"hidden": hidden[name]} for name, row in _rules(done.kinds).items()}
        sys.stdout.writelines(
            output_formats.rendered(printing.format, picked, decided, full, rules, done.options.fail_on)
        )
    sys.stdout.flush()
    terminal.print_verdict(rows, summary, sys.stderr, width, report, now, shown)


def _rules(kinds: Iterable[str]) -> dict[str, Fields]:
    """The rules of these kinds by id, as lists of findings need them."""
    ran = dict.fromkeys(registry.kinds()[name].rule for name in kinds)
    rules = (registry.load()[name] for name in ran)
    return {
        rule.id: {
            "title": rule.title,
            "family": rule.family,
            "kinds": [kind.id for kind in rule.kinds],
            "sections": {name: rule.text(name) for name in SECTIONS},
        }
        for rule in rules
    }
