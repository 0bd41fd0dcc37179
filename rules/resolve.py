"""Which finding stays: one cause, one finding (rules.md). Findings that another explains go into its evidence.

What explains what stands with each rule (``absorbed_by``), so there is no order of steps: a finding that is explained
still explains others, and all of them go to the one at the head.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from auditor.rules import clocks, registry
from auditor.rules.crossed import settled
from auditor.rules.finding import MADE_OF, Finding, highest, in_order
from auditor.rules.floods import SUMMED, is_summed
from auditor.rules.registry import Rule
from auditor.rules.relations import By

SHOWN = 20  # transactional ids of a finding that stands for several
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
    stay = [f for number, f in enumerate(found) if number not in cause]
    return settled(in_order(_in_flight_together(stay, catalogue)))


def resolve_each(findings: Iterable[Finding], cluster_of: Mapping[str, str]) -> list[Finding]:
    """:func:`resolve` of each cluster's findings for themselves, whatever the order they come in.

    ``cluster_of``: each log directory's cluster. Two clusters have partitions, producers and ids of the same names.
    """
    clusters = defaultdict(list)
    for f in in_order(findings):
        clusters[cluster_of.get(f.evidence.get("log_dir", ""))].append(f)
    return in_order(f for found in clusters.values() for f in resolve(clocks.once(found)))


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
        for by in () if is_summed(f) else wanted.get(f.rule, ()):
            causes[by][by.relation.in_common(f)].append(number)
    out = {}
    for number, f in enumerate(findings):
        for by in () if is_summed(f) else declared[f.rule]:
            near = causes[by].get(by.relation.in_common(f), ())
            before = (n for n in near if by.rule != f.rule or n < number)  # of two alike the first stays
            first = next((n for n in before if by.explains(findings[n], f)), None)
            if first is not None:
                out[number] = first
                break
    return out | _explained_by_sums(findings, catalogue, out)


def _explained_by_sums(
    findings: list[Finding], catalogue: Mapping[str, Rule], explained: Mapping[int, int]
) -> dict[int, int]:
    """Of what no listed finding explains, the sum that does: of a rule that would, over the same offsets of a log."""
    sums = defaultdict(list)
    for number, f in enumerate(findings):
        if is_summed(f):
            sums[f.rule, f.topic, f.partition, f.evidence.get("log_dir")].append(number)
    out = {}
    for number, f in enumerate(findings) if sums else ():
        for by in catalogue[f.rule].absorbed_by if number not in explained and f.rule in catalogue else ():
            near = sums.get((by.rule, f.topic, f.partition, f.evidence.get("log_dir")), ())
            first = next((n for n in near if by.rule != f.rule and _overlap(findings[n], f)), None)
            if first is not None and by.when is None:
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
    cause.severity = highest(cause.severity, f.severity)  # doubt has lowered both by now
    if cause.if_true or f.if_true:
        if_true = highest(cause.if_true or cause.severity, f.if_true or f.severity)
        cause.if_true = None if if_true == cause.severity else if_true
    also = {
        "rule": f.rule, "severity": f.severity, "topic": f.topic, "partition": f.partition, "message": f.message,
    }  # fmt: skip
    head.evidence.setdefault("also", []).append(also)


def _in_flight_together(findings: list[Finding], catalogue: Mapping[str, Rule]) -> list[Finding]:
    """What a copy that was made too early lacks has one cause: one finding of such a rule for a log, with counts."""
    out, groups = [], defaultdict(list)
    for f in findings:
        alone = f.rule not in catalogue or catalogue[f.rule].together is None
        if alone or f.offset is not None or not f.evidence.get("in_flight"):
            out.append(f)
        else:
            groups[f.rule, f.severity, f.topic, f.partition, f.evidence.get("log_dir")].append(f)
    for (rule_id, *_), group in groups.items():
        out.append(group[0] if len(group) == 1 else _one_of(group, catalogue[rule_id]))
    return out


def _one_of(group: list[Finding], each: Rule) -> Finding:
    alike = {name: getattr(group[0], name) for name in MADE_OF if len({str(getattr(f, name)) for f in group}) == 1}
    count = sum(f.evidence.get(SUMMED, 1) for f in group)
    times = sorted(f.timestamp for f in group if f.timestamp is not None)
    ids = sorted({f.transactional_id for f in group if f.transactional_id is not None})
    names = {"log_dir", "confidence", "in_flight", "listed_by"}
    evidence = {name: value for f in group for name, value in f.evidence.items() if name in names}
    evidence |= {"count": count, "transactional_ids": ids[:SHOWN], "transactional_ids_in_all": len(ids)}
    evidence |= {"first_time": times[0], "last_time": times[-1]} if times else {}
    if also := [other for f in group for other in f.evidence.get("also", ())]:
        evidence["also"] = also
    said = str(each.together).format(count=count, log=f"{group[0].topic}-{group[0].partition}")
    return Finding(**alike | {"message": said, "evidence": evidence, "advice": each.advice})
