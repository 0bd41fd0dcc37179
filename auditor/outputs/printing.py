"""What commands print, and the journal of ``auditor watch``."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from auditor.base.at_rest import Fields, Values, parsed
from auditor.base.errors import AuditInputError
from auditor.connectors.stores import results
from auditor.dashboards import answers, output_formats, terminal
from auditor.dashboards.finding_groups import LEAST, Printing, Selection, is_partition, named
from auditor.outputs import delivery
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import SECTIONS

# Results on stdout.


def check(audit: Audit, selection: Selection) -> None:
    """Errors: :class:`AuditInputError` for a value that matches nothing of the input. Cost: judges the audit."""
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
            raise _nothing("--transactional-id", glob, "transactional id", "another name, or a glob in quotes")
    all_known = not any(row["more"] for row in audit.judged["readers"])
    for glob in selection.groups if all_known else ():
        if not named(_groups(audit), (glob,)):
            raise _nothing("--group", glob, "group", "another name, or a glob in quotes")


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


def show(done: Audit, printing: Printing, run: answers.RunReport) -> None:
    """Print the results of an audit. With ``table`` the answer and the findings; else the findings to stdout and the
    verdict to stderr. ``run``: the results as publishing them returned."""
    shown = printing.selection
    if printing.format == "json":
        sys.stdout.writelines(f.to_json() + "\n" for f in done.open_findings if shown.shows(f.to_dict()))
    width = shutil.get_terminal_size((120, 24)).columns
    report = delivery.shown(done.options.out, "report.html")
    now = datetime.datetime.now(datetime.UTC)
    if printing.format == "table":
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        terminal.print_findings(run, sys.stdout, width, color, report, printing.verbose, now, shown)
        return
    if printing.format != "json":
        picked = [row for row in answers.unaccepted(run.findings) if shown.shows(row)]
        if printing.format == "markdown" and not (printing.verbose or shown.infos):
            picked = [row for row in picked if row["severity"] != LEAST]
        hidden = Counter(row["rule"] for row in run.findings) - Counter(row["rule"] for row in picked)
        rules = {name: row | {"hidden": hidden[name]} for name, row in _rules(done.kinds).items()}
        sys.stdout.writelines(output_formats.rendered(printing.format, picked, run, rules, done.options.fail_on))
    sys.stdout.flush()
    terminal.print_findings(run, sys.stderr, width, False, report, now=now, shown=shown, brief=True)


def _rules(kinds: Iterable[str]) -> dict[str, Fields]:
    ran = dict.fromkeys(registry.kinds()[name].rule for name in kinds)
    rules = (registry.load()[name] for name in ran)
    return {
        rule.id: {
            "title": rule.title,
            "family": rule.family,
            "former_ids": rule.former_ids,
            "sections": {name: rule.text(name) for name in SECTIONS},
        }
        for rule in rules
    }


# One finding.


def finding_by_fingerprint(rows: Iterable[Values], name: str) -> Values:
    """Return the finding whose fingerprint begins with ``name``; of several with one fingerprint the first.

    ``rows`` have the contract's fields and ``fingerprint``. Errors: :class:`AuditInputError` for none or several.
    """
    wanted = name.lower()
    if not wanted:
        raise AuditInputError("missing finding ID; the audit prints the IDs")
    matches = {row["fingerprint"]: row for row in reversed(list(rows)) if row["fingerprint"].startswith(wanted)}
    if len(matches) != 1:
        many = f"{len(matches)} findings have" if matches else "no finding has"
        raise AuditInputError(f"{many} an ID that starts with {wanted!r}; the audit prints the IDs")
    (row,) = matches.values()
    return row


def text(row: Values, width: int, events: Sequence[Values] | None) -> str:
    """Return a finding with its evidence and its rule as text. ``width``: in columns; ``events``: the summary's
    ``cluster_events``, None for a run of a release without them."""
    kind = registry.kinds().get(row.get("kind") or row["rule"])
    page = {} if kind is None else {"Title": kind.title, **kind.sections}
    return "\n".join(terminal.explained(row, page, width, events)) + "\n"


# ``watch.jsonl``: one line when a finding appears and one when it is resolved, also after a kill.
#
# The journal is append-only and authoritative: the checkpoint only saves reading all of it. A line that a kill cut off
# is removed, so its finding is reported again.


JOURNAL, CHECKPOINT = "watch.jsonl", "checkpoint.json"
FOUND, RESOLVED = "found", "resolved"
REPORTED_AGAIN = ("rule", "severity", "broker_id", "topic", "partition", "offset", "transactional_id", "group_id")

Open = dict[str, Fields]  # key of a finding -> what is reported again when it is resolved


def key_of(fingerprint: str, severity: str) -> str:
    """Return the key of a finding in the journal: one that becomes more severe is reported again."""
    return f"{fingerprint}:{severity}"


def fingerprint_in(key: str) -> str:
    """Return the fingerprint in a key."""
    return key.rpartition(":")[0]


class Journal:
    """The journal in a directory that no other process uses (:mod:`auditor.outputs.delivery`).

    ``open``: the open findings by key. It resumes from the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.open: Open = {}
        self.size = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (self.path, folder / CHECKPOINT):
            if path.is_symlink():  # its target is not ours to write to
                path.unlink()
        self._recover()

    def _recover(self) -> None:
        size = self.path.stat().st_size if self.path.exists() else 0
        self.open, self.size = self._checkpoint(size)
        if not size:
            return
        with self.path.open("r+b") as f:
            f.seek(self.size)
            for line in f:
                if not line.endswith(b"\n"):
                    break
                self._apply(parsed(line))
                self.size += len(line)
            f.truncate(self.size)

    def _checkpoint(self, size: int) -> tuple[Open, int]:
        # Empty if it is missing or of another journal.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stored = parsed((self.folder / CHECKPOINT).read_bytes())
            if 0 <= stored["bytes"] <= size:
                return dict(stored["open"]), int(stored["bytes"])
        return {}, 0

    def _apply(self, line: Values) -> None:
        if line["event"] == FOUND:
            self.open[line["key"]] = {name: line[name] for name in REPORTED_AGAIN}
        else:
            self.open.pop(line["key"], None)

    def update(self, time: str, holding: Mapping[str, Values]) -> list[Fields]:
        """Append what is new and what is resolved. ``time``: ISO-8601; ``holding``: all open findings by key."""
        lines = [
            {"event": FOUND, "at": time, "key": key, **row} for key, row in holding.items() if key not in self.open
        ]
        lines += [
            {"event": RESOLVED, "at": time, "key": key, **row} for key, row in self.open.items() if key not in holding
        ]
        if lines:
            self._append(lines)
        return lines

    def _append(self, lines: Iterable[Fields]) -> None:
        data = b""
        for line in lines:
            data += json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
            self._apply(line)
        with self.path.open("ab") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        self.size += len(data)
        state = {"bytes": self.size, "open": self.open}
        results.folder(self.folder).put_text(CHECKPOINT, json.dumps(state, ensure_ascii=False, sort_keys=True) + "\n")
