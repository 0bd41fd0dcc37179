"""The file of accepted findings: which ones, why, who said so, until when.

An accepted finding stays in ``findings.jsonl``; it is counted apart, not printed, raises no alert, and does not count
for ``--fail-on``. It comes back when its date is over, and when it has become graver than it was when it was accepted.
The date is compared with the audit's own clock (``--as-of``, by default the newest time that a broker wrote in the
input), so that the same input and the same file give the same result whenever they are audited.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.rules.seen.view import SEVERITIES

KEY = "accepted"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """An accepted finding. ``severity``: the gravest that is accepted; ``until``: the last day (UTC), None for no end;
    ``rule``, ``where`` and ``cluster`` are for people, and where the rule did not run, or the cluster (empty: any) was
    not looked at, its finding's absence says nothing."""

    fingerprint: str
    severity: str
    reason: str
    who: str
    until: datetime.date | None
    rule: str = ""
    where: str = ""
    cluster: str = ""

    def row(self) -> Fields:
        """As it stands in the file."""
        return asdict(self) | {"until": None if self.until is None else self.until.isoformat()}


ENTRY = tuple(each.name for each in fields(Entry))


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file of accepted findings by fingerprint; empty where none was given."""

    file: str = ""
    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A baseline compared with findings: ``accepted``, an entry or None for each finding in their order; ``back``:
    entries that do not count any more, with the reason; ``gone``: entries that no finding has."""

    accepted: Sequence[Entry | None]
    back: Sequence[tuple[Entry, str]] = ()
    gone: Sequence[Entry] = ()


def judge(
    baseline: Baseline,
    found: Iterable[tuple[str, str]],
    as_of_ms: int,
    looked_for: Iterable[str] | None,
    clusters: Iterable[str] = (),
) -> Verdicts:
    """Compares a baseline with findings, each a fingerprint and a severity. ``looked_for``: ids of the rules that ran,
    None where only a part of the input was looked at, so that nothing can be said to be gone. ``clusters``: ids of
    those that were looked at."""
    accepted: list[Entry | None] = []
    back: dict[str, tuple[Entry, str]] = {}
    seen = set()
    for fingerprint, severity in found:
        entry = baseline.entries.get(fingerprint)
        seen.add(fingerprint)
        why = "" if entry is None else _over(entry, severity, as_of_ms)
        if entry is not None and why:
            back[fingerprint] = entry, why
        accepted.append(None if why else entry)
    rules = frozenset(looked_for or ())
    mine = {"", *clusters}
    gone = [
        e
        for e in baseline.entries.values()
        if e.fingerprint not in seen and (not e.rule or e.rule in rules) and e.cluster in mine
    ]
    return Verdicts(accepted, list(back.values()), gone if looked_for is not None else ())


def _over(entry: Entry, severity: str, as_of_ms: int) -> str:
    """Why an entry does not count for its finding any more; empty where it does."""
    if SEVERITIES.index(severity) < SEVERITIES.index(entry.severity):
        return f"accepted as {entry.severity}, now {severity}"
    if entry.until is not None:
        end = datetime.datetime.combine(entry.until + datetime.timedelta(days=1), datetime.time(), datetime.UTC)
        if as_of_ms >= end.timestamp() * 1000:
            return f"accepted until {entry.until.isoformat()}"
    return ""


def read(path: Path) -> Baseline:
    """The file at ``path``. Errors: :class:`AuditInputError` naming the file and the entry."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AuditInputError(f"cannot read {path}: {error.strerror}; 'auditor baseline' writes one") from None
    except ValueError as error:
        raise AuditInputError(f"{path} is no baseline: {error}; 'auditor baseline' writes one") from None
    rows = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise AuditInputError(f"{path} is no baseline: it has no list {KEY!r}; 'auditor baseline' writes one")
    entries = [_entry(row, f"{path}: entry {number}") for number, row in enumerate(rows, 1)]
    return Baseline(str(path), {entry.fingerprint: entry for entry in entries})


def _entry(row: object, at: str) -> Entry:
    if not isinstance(row, dict) or not _FINGERPRINT.fullmatch(str(row.get("fingerprint"))):
        raise AuditInputError(f"{at} has no fingerprint of 64 hex digits; 'auditor baseline' writes them")
    if row.get("severity") not in SEVERITIES:
        raise AuditInputError(f"{at}: severity is one of {', '.join(SEVERITIES)}")
    for name in ("reason", "who"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise AuditInputError(f"{at} has no {name}; say it, for whoever reads it next")
    until = row.get("until")
    return Entry(
        row["fingerprint"],
        row["severity"],
        row["reason"],
        row["who"],
        None if until is None else day(until, at),
        *(str(row.get(name) or "") for name in ("rule", "where", "cluster")),
    )


def day(text: object, at: str) -> datetime.date:
    """A day as ``2026-12-31``. Errors: :class:`AuditInputError`, beginning with ``at``."""
    try:
        return datetime.date.fromisoformat(str(text))
    except ValueError:
        raise AuditInputError(f"{at}: {text!r} is no day; write it as 2026-12-31") from None


def text_of(entries: Iterable[Entry]) -> str:
    """The file's content, by rule, place and fingerprint."""
    ordered = sorted(entries, key=lambda e: (e.rule, e.where, e.fingerprint))
    return json.dumps({KEY: [entry.row() for entry in ordered]}, indent=1, ensure_ascii=False) + "\n"
