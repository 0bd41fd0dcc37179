"""Which setting or practice would have prevented what was found: the last answer of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.dashboards.wording import SEVERITIES, Finding


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that prevents: where it is set, what it does, how to set it now; ``rank`` orders equals."""

    setting: str
    where: str
    why: str
    command: str | None
    rank: int


Safeguards = Mapping[str, Sequence[Mapping[str, Any]]]  # by rule: what prevents its findings, as rows of Setting


def declared(findings: Iterable[Finding]) -> Safeguards:
    """What prevents any finding of a rule, as declared with each; nothing prevents a defect of Kafka itself."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        if not (finding["evidence"] or {}).get("known_defect"):
            mine = found.setdefault(finding["rule"], [])
            mine += [row for row in (finding.get("declared") or {}).get("prevented_by") or () if row not in mine]
    return found


def prevent(
    by_rule: Mapping[str, int], severity_of: Mapping[str, str], safeguards: Safeguards
) -> list[tuple[Setting, int]]:
    """The settings that would have prevented findings, with how many: worst severity first, then most findings.

    ``by_rule`` counts findings by rule; ``severity_of`` gives the worst severity of each. Rules that only inform (info)
    ask for no setting.
    """
    rules: dict[Setting, list[str]] = {}
    for rule, rows in safeguards.items():
        if by_rule.get(rule) and severity_of.get(rule, "info") != "info":
            for row in rows:
                rules.setdefault(Setting(**row), []).append(rule)
    weighed = [
        (min(SEVERITIES.index(severity_of[rule]) for rule in mine), -sum(by_rule[rule] for rule in mine), setting)
        for setting, mine in rules.items()
    ]
    weighed.sort(key=lambda entry: (entry[0], entry[1], entry[2].rank, entry[2].setting))
    return [(setting, -count) for _, count, setting in weighed]
