"""Which finding stays: one cause, one finding (rules.md). Findings that another explains go into its evidence.

What explains what stands with each rule (``absorbed_by``), so there is no order of steps: a finding that is explained
still explains others, and all of them go to the one at the head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from auditor.rules import registry
from auditor.rules.finding import Finding, highest
from auditor.rules.registry import Rule
from auditor.rules.relations import By

Causes = dict[By, dict[Any, list[int]]]


def resolve(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stay, in the contract's order."""
    catalogue = registry.load()
    found = _but_for_void(list(findings), catalogue)
    cause = _explained(found, catalogue)
    steps, head = _chains(cause)
    for number in sorted(cause, key=lambda n: -steps[n]):  # the farthest first, so that severities climb
        _absorb(found[cause[number]], found[head[number]], found[number])
    for number in set(head.values()):
        found[number].evidence["also"].sort(
            key=lambda a: (a["rule"], a["topic"] or "", a["partition"] or 0, a["message"])
        )
    return sorted((f for number, f in enumerate(found) if number not in cause), key=Finding.sort_key)


def _but_for_void(findings: list[Finding], catalogue: Mapping[str, Rule]) -> list[Finding]:
    """Nothing may rest on the bytes of a batch that a rule declares void."""
    voiding = {name for name, each in catalogue.items() if each.voids}
    damaged = {_bytes(f) for f in findings if f.rule in voiding}
    return [f for f in findings if f.rule in voiding or f.position is None or _bytes(f) not in damaged]


def _bytes(f: Finding) -> tuple[Any, ...]:
    return f.evidence.get("log_dir"), f.file, f.position


def _explained(findings: list[Finding], catalogue: Mapping[str, Rule]) -> dict[int, int]:
    """Of each finding that another explains, the number of that one."""
    declared = {f.rule: catalogue[f.rule].absorbed_by if f.rule in catalogue else () for f in findings}
    wanted = defaultdict(list)
    for by in {by for several in declared.values() for by in several}:
        wanted[by.rule].append(by)
    causes: Causes = {by: defaultdict(list) for several in wanted.values() for by in several}
    for number, f in enumerate(findings):
        for by in wanted.get(f.rule, ()):
            causes[by][by.relation.in_common(f)].append(number)
    out = {}
    for number, f in enumerate(findings):
        for by in declared[f.rule]:
            near = causes[by].get(by.relation.in_common(f), ())
            before = (n for n in near if by.rule != f.rule or n < number)  # of two alike the first stays
            first = next((n for n in before if by.explains(findings[n], f)), None)
            if first is not None:
                out[number] = first
                break
    return out


def _chains(cause: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """How many steps each explained finding is from the one at the head, and which one that is."""
    steps: dict[int, int] = {}
    head: dict[int, int] = {}
    for number in cause:
        path = [number]
        while path[-1] in cause and path[-1] not in steps:
            path.append(cause[path[-1]])
        top = path.pop()
        for each in reversed(path):
            steps[each] = steps.get(cause[each], 0) + 1
            head[each] = head.get(top, top)
    return steps, head


def _absorb(cause: Finding, head: Finding, f: Finding) -> None:
    if cause.severity != "info" or not cause.evidence.get("in_flight"):
        cause.severity = highest(cause.severity, f.severity)
    also = {
        "rule": f.rule, "severity": f.severity, "topic": f.topic, "partition": f.partition, "message": f.message,
    }  # fmt: skip
    head.evidence.setdefault("also", []).append(also)
