"""Findings grouped by rule and cut to what a page can carry, with every cut said.

A page holds at most ``MAX_ROWS`` findings and about ``MAX_TEXT`` characters of them: every rule gets its share, so that
a hundred thousand findings of one rule cannot hide the single finding of another. The whole is in ``findings.jsonl``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor.dashboards.wording import SEVERITIES, Finding, clip, value

MAX_ROWS = 2500
MAX_ROWS_PER_RULE = 250
MAX_TEXT = 3_000_000
_MESSAGE, _REMEDY, _FACT, _FACTS = 1200, 2400, 400, 24


@dataclass(frozen=True, slots=True)
class Row:
    """A finding ready to be shown: the finding itself, and its texts cut to size."""

    finding: Finding
    message: str
    remedy: str
    facts: Sequence[tuple[str, str]]


@dataclass(slots=True)
class Group:
    """All findings of one rule: how many there are, the worst severity, and those that are shown."""

    rule: str
    severity: str
    count: int = 0
    by_severity: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    @property
    def more(self) -> int:
        """How many are not shown."""
        return self.count - len(self.rows)


def group(findings: Sequence[Finding], counts: Mapping[str, Any] | None = None) -> list[Group]:
    """Findings by rule: worst severity first, then most findings, then name; rows keep the order given.

    ``counts`` are the summary's, for when fewer findings were handed in than were written. Cost: linear.
    """
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding["rule"], []).append(finding)
    given = (counts or {}).get("by_rule", {})
    groups = []
    for rule, mine in by_rule.items():
        entry = Group(
            rule, min((f["severity"] for f in mine), key=SEVERITIES.index), max(len(mine), given.get(rule, 0))
        )
        for finding in mine:
            entry.by_severity[finding["severity"]] = entry.by_severity.get(finding["severity"], 0) + 1
        groups.append(entry)
    groups.sort(key=lambda g: (SEVERITIES.index(g.severity), -g.count, g.rule))
    _share_out(groups, by_rule)
    return groups


def _share_out(groups: Sequence[Group], by_rule: Mapping[str, Sequence[Finding]]) -> None:
    """Give every rule its rows: the same number to each that has as many, none more than fits the page."""
    share = _level([len(by_rule[g.rule]) for g in groups])
    room = MAX_TEXT
    for entry in groups:
        for finding in by_rule[entry.rule][:share]:
            row = _row(finding)
            length = len(row.message) + len(row.remedy) + sum(len(k) + len(v) for k, v in row.facts)
            if entry.rows and length > room:
                break
            entry.rows.append(row)
            room -= length


def _level(wanted: Sequence[int]) -> int:
    """The highest equal share that keeps the sum of min(wanted, share) within ``MAX_ROWS``."""
    share = MAX_ROWS_PER_RULE
    while share > 1 and sum(min(count, share) for count in wanted) > MAX_ROWS:
        share -= 1
    return share


def _row(finding: Finding) -> Row:
    evidence = finding.get("evidence") or {}
    facts = [
        (clip(str(key), 80), clip(value(evidence[key]), _FACT))
        for key in sorted(evidence, key=str)
        if evidence[key] is not None
    ]
    if len(facts) > _FACTS:
        facts = [*facts[:_FACTS], ("…", f"{len(facts) - _FACTS} more facts in findings.jsonl")]
    return Row(finding, clip(finding["message"], _MESSAGE), clip(finding["remedy"] or "", _REMEDY), facts)
