"""What to do about critical and error findings that hold no partition: the same on the page and on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from auditor.dashboards.answers import Blocked, unaccepted
from auditor.dashboards.verdict import LOSSES, is_loss
from auditor.dashboards.wording import GRAVE, SEVERITIES, Finding, kind

SHOWN = 4


@dataclass(slots=True)
class Remedy:
    """One text, given for findings of one or more rules. ``first``: the finding that it names; ``count``: of those that
    it is for; ``others``: how many more of these kinds have another one."""

    text: str
    severity: str
    rules: list[str]
    first: Finding
    count: int
    others: int


def remedies(findings: Sequence[Finding], held: Sequence[Blocked]) -> list[Remedy]:
    """One remedy for each kind of critical or error findings, the gravest first: loss before the rest, then many
    before few. Kinds of which findings are about the partitions in ``held`` are left out: what to do about these stands
    with them. Findings that a baseline accepts are left out too. Cost: linear."""
    answered = {kind(finding) for row in held for finding in row.holder.findings}
    by_kind: dict[str, list[Finding]] = {}
    for finding in unaccepted(findings):
        if finding["severity"] in GRAVE and kind(finding) not in answered:
            by_kind.setdefault(kind(finding), []).append(finding)
    return _merged(sorted(by_kind.values(), key=_order))


def _order(found: Sequence[Finding]) -> tuple[int, int, int, str]:
    worst = _worst(found)
    loss = list(LOSSES).index(worst["outcome"]) if is_loss(worst) else len(LOSSES)
    return SEVERITIES.index(worst["severity"]), loss, -len(found), kind(worst)


def _worst(found: Sequence[Finding]) -> Finding:
    return min(found, key=lambda finding: SEVERITIES.index(finding["severity"]))


def _merged(kinds: Collection[Sequence[Finding]]) -> list[Remedy]:
    """Kinds with the same text share it: two may find the two sides of one loss."""
    made: dict[str, Remedy] = {}
    for found in kinds:
        first = _worst(found)
        text = str(first.get("remedy") or "")
        same = sum(finding.get("remedy") == text for finding in found)
        if text in made:
            made[text].rules += [first["rule"]] if first["rule"] not in made[text].rules else []
            made[text].count += same
            made[text].others += len(found) - same
        elif text:
            made[text] = Remedy(text, first["severity"], [first["rule"]], first, same, len(found) - same)
    return list(made.values())
