"""Which finding stays: one cause, one finding (rules.md). Findings that another explains go into its evidence.

What explains what stands with each rule (``absorbed_by``), so there is no order of steps: a finding that is explained
still explains others, and all of them go to the one at the head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import Kind
from auditor.rules.catalogue.relations import Tie
from auditor.rules.seen.finding import NO_OUTCOME, Finding, highest, in_order
from auditor.rules.settled.crossed import settled
from auditor.rules.settled.floods import is_summed

Causes = dict[Tie, dict[Any, list[int]]]


def resolve(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stay, in the contract's order."""
    catalogue = registry.kinds()
    found = _but_for_void(list(findings), catalogue)
    cause = _explained(found, catalogue)
    steps, head = _chains(cause)
    for number in sorted(cause, key=lambda n: -steps[n]):  # the farthest first, so that severities climb
        _absorb(found[cause[number]], found[head[number]], found[number])
    for number in set(head.values()):
        found[number].evidence["also"].sort(
            key=lambda a: (a["rule"], a["topic"] or "", a["partition"] or 0, a["message"])
        )
    stay = [f for number, f in enumerate(found) if number not in cause]
    return settled(in_order(_one_of_each_cause(stay, catalogue)))


def resolve_each(findings: Iterable[Finding], cluster_of: Mapping[str, str]) -> list[Finding]:
    """:func:`resolve` of each cluster's findings for themselves, whatever the order they come in.

    ``cluster_of``: each log directory's cluster. Two clusters have partitions, producers and ids of the same names.
    """
    clusters = defaultdict(list)
    for f in in_order(findings):
        clusters[cluster_of.get(f.evidence.get("log_dir", ""))].append(f)
    return in_order(f for found in clusters.values() for f in resolve(found))


def _but_for_void(findings: list[Finding], catalogue: Mapping[str, Kind]) -> list[Finding]:
    """Nothing may rest on the bytes of a batch that is declared void."""
    voiding = {name for name, each in catalogue.items() if each.voids}
    damaged = {_bytes(f) for f in findings if f.kind in voiding}
    return [f for f in findings if f.kind in voiding or f.position is None or _bytes(f) not in damaged]


def _bytes(f: Finding) -> tuple[Any, ...]:
    return f.evidence.get("log_dir"), f.file, f.position


def _explained(findings: list[Finding], catalogue: Mapping[str, Kind]) -> dict[int, int]:
    """Of each finding that another explains, the number of that one."""
    declared = {f.kind: catalogue[f.kind].explained_by if f.kind in catalogue else () for f in findings}
    wanted = defaultdict(list)
    for tie in {tie for several in declared.values() for tie in several}:
        wanted[tie.kind].append(tie)
    causes: Causes = {tie: defaultdict(list) for several in wanted.values() for tie in several}
    for number, f in enumerate(findings):
        for tie in () if is_summed(f) else wanted.get(f.kind, ()):
            causes[tie][tie.relation.in_common(f)].append(number)
    out = {}
    for number, f in enumerate(findings):
        for tie in () if is_summed(f) else declared[f.kind]:
            near = causes[tie].get(tie.relation.in_common(f), ())
            before = (n for n in near if tie.kind != f.kind or n < number)  # of two alike the first stays
            first = next((n for n in before if tie.explains(findings[n], f)), None)
            if first is not None:
                out[number] = first
                break
    return out | _explained_by_sums(findings, catalogue, out)


def _explained_by_sums(
    findings: list[Finding], catalogue: Mapping[str, Kind], explained: Mapping[int, int]
) -> dict[int, int]:
    """Of what no listed finding explains, the sum that does: of a kind that would, over the same offsets of a log."""
    sums = defaultdict(list)
    for number, f in enumerate(findings):
        if is_summed(f):
            sums[f.kind, f.topic, f.partition, f.evidence.get("log_dir")].append(number)
    out = {}
    for number, f in enumerate(findings) if sums else ():
        for tie in catalogue[f.kind].explained_by if number not in explained and f.kind in catalogue else ():
            near = sums.get((tie.kind, f.topic, f.partition, f.evidence.get("log_dir")), ())
            first = next((n for n in near if tie.kind != f.kind and _overlap(findings[n], f)), None)
            if first is not None and not tie.when:
                out[number] = first
                break
    return out


def _overlap(cause: Finding, f: Finding) -> bool:
    first, last = _offsets(f)
    begin, end = _offsets(cause)
    return None not in (first, begin) and first <= end and begin <= last


def _offsets(f: Finding) -> tuple[Any, Any]:
    return (f.evidence["first_offset"], f.evidence["last_offset"]) if is_summed(f) else (f.offset, f.offset)


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
    if f.severity != cause.severity or cause.outcome == NO_OUTCOME:  # the outcome is that of the higher severity
        cause.outcome = f.outcome if highest(cause.severity, f.severity) == f.severity else cause.outcome
    cause.severity = highest(cause.severity, f.severity)  # doubt has lowered both by now
    if cause.if_true or f.if_true:
        if_true = highest(cause.if_true or cause.severity, f.if_true or f.severity)
        cause.if_true = None if if_true == cause.severity else if_true
    also = {
        "rule": f.kind,
        "severity": f.severity,
        "topic": f.topic,
        "partition": f.partition,
        "message": f.message,
    }
    head.evidence.setdefault("also", []).append(also)


def _one_of_each_cause(findings: list[Finding], catalogue: Mapping[str, Kind]) -> list[Finding]:
    """The findings of a kind that have one cause as one, where it declares that
    (:mod:`auditor.rules.settled.together`)."""
    out, several = [], defaultdict(list)
    for f in findings:
        if f.kind in catalogue and catalogue[f.kind].together is not None:
            several[f.kind].append(f)
        else:
            out.append(f)
    for kind, found in several.items():
        each = catalogue[kind]
        assert each.together is not None
        out += each.together(in_order(found), each.advice)
    return out
