"""Findings grouped by rule and cause, cut to what a page can carry, with every cut said.

A page holds at most ``MAX_ROWS`` findings and about ``MAX_TEXT`` characters of them: every rule gets its share, and
in it every cause, so that a hundred thousand findings of one kind cannot hide the single finding of another. Of those
that are not shown the page has a line each, for its search, as far as they fit. The whole is in ``findings.jsonl``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from auditor.base.at_rest import Values
from auditor.dashboards.causes import Cause, causes
from auditor.dashboards.evidence import in_words
from auditor.dashboards.wording import (
    SEVERITIES,
    Finding,
    clip,
    log_name,
    offsets,
    short_fingerprint,
    value,
    visible,
    who,
)

MAX_ROWS = 800
MAX_ROWS_PER_RULE = 250
MAX_TEXT = 3_000_000
MAX_UNSHOWN = 8_000_000  # characters of lines for the search
CAUSES = 50  # of a rule
_MESSAGE, _REMEDY, _FACT, _FACTS, _RAW = 1200, 2400, 400, 24, 3000


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A finding ready to be shown: the finding itself, and its texts cut to size; ``facts``: its evidence in words,
    ``raw``: as JSON; ``anchor``: its place on the page, empty where it has no fingerprint, or that of a finding above
    it."""

    finding: Finding
    message: str
    remedy: str
    facts: Sequence[tuple[str, str]]
    raw: str
    anchor: str = ""


@dataclass(slots=True, eq=False)
class Part:
    """The findings of one cause, and those of them that are shown."""

    cause: Cause
    rows: list[Row] = field(default_factory=list)

    @property
    def more(self) -> int:
        """How many are not shown."""
        return len(self.cause.findings) - len(self.rows)

    @property
    def single(self) -> bool:
        """Whether it is one finding, which needs no row to open it."""
        return len(self.cause.findings) == 1

    @property
    def places(self) -> list[str]:
        """The partitions that they name, each once."""
        return list(dict.fromkeys(filter(None, map(log_name, self.cause.findings))))


@dataclass(slots=True)
class Group:
    """All findings of one rule: how many there are, the worst severity, and its causes, worst and largest first."""

    rule: str
    severity: str
    parts: list[Part]
    count: int = 0
    by_severity: dict[str, int] = field(default_factory=dict)

    @property
    def more(self) -> int:
        """How many are not shown."""
        return self.count - sum(len(part.rows) for part in self.parts)

    @property
    def open_rows(self) -> int:
        """How many lines it takes when it is unfolded, and its causes are not."""
        return len(self.rows) if len(self.parts) == 1 else len(self.parts)

    @property
    def rows(self) -> list[Row]:
        """Those that are shown."""
        return [row for part in self.parts for row in part.rows]


def group(findings: Sequence[Finding], counts: Values | None = None) -> list[Group]:
    """Findings by rule: worst severity first, then most findings, then name; of a cause in the order given.

    ``counts`` are the summary's, for when fewer findings were handed in than were written. Cost: linear.
    """
    by_rule: dict[str, list[Part]] = {}
    for cause in causes(findings, CAUSES):
        by_rule.setdefault(cause.rule, []).append(Part(cause))
    given = (counts or {}).get("by_rule", {})
    groups = []
    for rule, parts in by_rule.items():
        parts.sort(key=lambda p: (SEVERITIES.index(p.cause.severity), -len(p.cause.findings)))
        mine = sum(len(part.cause.findings) for part in parts)
        entry = Group(rule, parts[0].cause.severity, parts, max(mine, given.get(rule, 0)))
        for part in parts:
            name = part.cause.severity
            entry.by_severity[name] = entry.by_severity.get(name, 0) + len(part.cause.findings)
        groups.append(entry)
    groups.sort(key=lambda g: (SEVERITIES.index(g.severity), -g.count, g.rule))
    _share_out(groups)
    return groups


def _share_out(groups: Sequence[Group]) -> None:
    """Give every rule its rows, and of these every cause: the same number to each that has as many, none more than
    fits the page."""
    share = _level([sum(len(part.cause.findings) for part in g.parts) for g in groups], MAX_ROWS_PER_RULE, MAX_ROWS)
    room, anchors = MAX_TEXT, set[str]()
    for entry in groups:
        each = _level([len(part.cause.findings) for part in entry.parts], share, share)
        for part in entry.parts:
            for finding in part.cause.findings[:each]:
                anchor = short_fingerprint(finding)
                row = _row(finding, "" if anchor in anchors else anchor)
                anchors.add(anchor)
                length = len(row.message) + len(row.remedy) + len(row.raw) + sum(len(k) + len(v) for k, v in row.facts)
                if part.rows and length > room:
                    break
                part.rows.append(row)
                room -= length


def _level(wanted: Sequence[int], share: int, room: int) -> int:
    """The highest equal share up to ``share``, but at least 1, that keeps the sum of min(wanted, share) in ``room``."""
    while share > 1 and sum(min(count, share) for count in wanted) > room:
        share -= 1
    return share


def unshown(groups: Sequence[Group]) -> tuple[Markup, int]:
    """Lines for the page's search, one for each finding that is not shown, and how many findings have neither.

    A line has where, offsets, who and fingerprint, between tabs; one that begins with ``>`` says severity and rule of
    those below it, and ``=`` in place of where or who that it is that of the line above. Hidden characters are visible
    already. At most :data:`MAX_UNSHOWN` characters.
    """
    lines: list[str] = []
    room, left = MAX_UNSHOWN, 0
    for entry in groups:
        left += entry.count - sum(len(part.cause.findings) for part in entry.parts)
        for part in entry.parts:
            rest = part.cause.findings[len(part.rows) :]
            lines += [f">{part.cause.severity}\t{visible(entry.rule)}"] if rest else []
            above: tuple[str, str] = ("", "")
            for n, f in enumerate(rest):
                broker = "" if f["broker_id"] is None else f" broker {f['broker_id']}"
                mine = visible((log_name(f) or f["file"] or "") + broker), visible(who(f))
                place, owner = ("=" if n and new == old else new for new, old in zip(mine, above, strict=True))
                line = "\t".join((place, offsets(f["offset"], f["last_offset"]), owner, short_fingerprint(f)))
                room -= len(line) + 1
                if room < 0:
                    left += len(rest) - n
                    break
                lines.append(line)
                above = mine
    return Markup("\n").join(lines), left


def _row(finding: Finding, anchor: str) -> Row:
    evidence = finding.get("evidence") or {}
    facts = [(name, clip(said, _FACT)) for name, said in in_words(evidence)]
    if len(facts) > _FACTS:
        facts = [*facts[:_FACTS], ("…", f"{len(facts) - _FACTS} more facts in findings.jsonl")]
    message, remedy = clip(finding["message"], _MESSAGE), clip(finding["remedy"] or "", _REMEDY)
    return Row(finding, message, remedy, facts, clip(value(dict(evidence)), _RAW), anchor)
