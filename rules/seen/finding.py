"""The one shape of every finding, its order, and its line in ``findings.jsonl`` (contract section 3)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from auditor.base.advice import Advice, text
from auditor.base.at_rest import Fields, Values

SEVERITIES = ("critical", "error", "warning", "info")
GRAVE = ("critical", "error")  # severities whose findings have an outcome
# What a finding means for records, readers and writers. lost: records below a high watermark, or whose acceptance the
# producer's later sequences prove, that no replica which may lead has; hidden: committed, and read_committed readers do
# not get them; exposed: aborted, and readers get them; at_risk: none of these yet.
OUTCOMES = (
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
)  # fmt: skip
NO_OUTCOME = "none"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253402300800000  # the end of the year 9999


@dataclass(slots=True)
class Finding:
    """One cause, said once. Fields and their order are the contract's; null where one does not apply.

    ``offset`` and ``last_offset`` are inclusive; ``timestamp`` is in UTC with milliseconds, in rows and lines
    ISO-8601; ``position`` a byte in ``file``, which is relative to the log directory named in ``evidence["log_dir"]``.
    ``if_true``: the severity that it would have if what is in doubt were so, None where nothing is. ``kind``: which of
    the rule's questions, the rule's id where it has one alone. ``fingerprint`` is given once all findings are known.
    ``outcome``: one of :data:`OUTCOMES` that its kind declares; empty until its kind completes the finding.
    """

    rule: str
    severity: str
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    last_offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    group_id: str | None = None
    timestamp: datetime | None = None
    file: str | None = None
    position: int | None = None
    message: str = ""
    evidence: Fields = field(default_factory=dict)
    source: str = ""
    if_true: str | None = None
    kind: str = ""
    fingerprint: str = ""
    advice: Advice | None = None
    outcome: str = ""

    def __post_init__(self) -> None:
        self.kind = self.kind or self.rule

    @property
    def remedy(self) -> str:
        """What to do on one line, made of the advice; empty where there is none yet."""
        return "" if self.advice is None else text(self.advice.row())

    def to_dict(self) -> Fields:
        """The fields in the contract's order, ``advice`` as an object."""
        row = {name: getattr(self, name) for name in FIELDS}
        advice = None if self.advice is None else self.advice.row()
        return row | {"timestamp": iso_text(self.timestamp), "advice": advice}

    def carried(self) -> Fields:
        """All that it is made of, for :meth:`of` in another process."""
        row = {name: getattr(self, name) for name in MADE_OF}
        advice = None if self.advice is None else self.advice.carried()
        return row | {"timestamp": iso_text(self.timestamp), "advice": advice}

    @classmethod
    def of(cls, row: Values) -> Finding:
        """What :meth:`carried` or :meth:`to_dict` made."""
        given = {name: row[name] for name in MADE_OF}
        at = None if row["timestamp"] is None else datetime.fromisoformat(row["timestamp"])
        return cls(**given | {"timestamp": at, "advice": None if row["advice"] is None else Advice.of(row["advice"])})

    def to_json(self) -> str:
        """One line: fields in the contract's order, keys of ``evidence`` sorted, UTF-8 kept as it is."""
        row = self.to_dict()
        row["evidence"] = json.loads(json.dumps(self.evidence, sort_keys=True, ensure_ascii=False))
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace").decode("utf-8")

    def sort_key(self) -> tuple[Any, ...]:
        """Severity, topic, partition, broker, offset, then the other fields in order; nulls first."""
        row = self.to_dict()
        row["evidence"] = json.dumps(self.evidence, sort_keys=True, ensure_ascii=False)
        lead = ("topic", "partition", "broker_id", "offset")
        names = (*lead, *(name for name in FIELDS if name not in (*lead, "severity", "advice")))
        return (SEVERITIES.index(self.severity), *((row[name] is not None, row[name]) for name in names))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the contract's order (:meth:`Finding.sort_key`). Cost: all fields are looked at only of those that
    are at one place, of one rule."""
    ordered: list[Finding] = []
    for _, alike in groupby(sorted(findings, key=_place), key=_place):
        several = list(alike)
        ordered += several if len(several) == 1 else sorted(several, key=Finding.sort_key)
    return ordered


def _place(f: Finding) -> tuple[Any, ...]:
    """What :meth:`Finding.sort_key` begins with."""
    given = (f.topic, f.partition, f.broker_id, f.offset)
    return (SEVERITIES.index(f.severity), *((value is not None, value) for value in given), f.rule)


MADE_OF = tuple(f.name for f in fields(Finding))
_FIRST, _LAST = ("rule", "kind", "fingerprint", "if_true"), ("remedy", "advice", "source")
_MIDDLE = (name for name in MADE_OF if name not in (*_FIRST, "severity", "outcome", *_LAST))
FIELDS = (*_FIRST, "severity", "outcome", *_MIDDLE, *_LAST)


def lowered(severity: str) -> str:
    """One step less severe, info at least."""
    return SEVERITIES[min(SEVERITIES.index(severity) + 1, len(SEVERITIES) - 1)]


def highest(*severities: str) -> str:
    """The most severe of them."""
    return min(severities, key=SEVERITIES.index)


def moment(ms: int | None) -> datetime | None:
    """Epoch milliseconds as a moment in UTC; None for none (negative) and for years beyond 9999."""
    return None if ms is None or ms < 0 or ms >= LAST_MS else EPOCH + timedelta(milliseconds=int(ms))


def iso_text(at: datetime | None) -> str | None:
    """A moment as ``2026-11-21T04:00:00.123Z``."""
    return None if at is None else at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def iso(ms: int | None) -> str | None:
    """Epoch milliseconds as ``2026-11-21T04:00:00.123Z``; None as of :func:`moment`."""
    return iso_text(moment(ms))
