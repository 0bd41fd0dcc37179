"""Advices of different findings that must not cross: a replica that one has fetched again is no source for another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from auditor.base.advice import Advice, Condition, Moves, Verdict
from auditor.rules.lib import repairs
from auditor.rules.seen.finding import Finding

Place = tuple[str | None, int | None]  # topic and partition
ANOTHER = "another finding"


def settled(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a cluster, those of whose advices cross changed: what is left as a source is fetched from, where
    nothing is left nothing is moved."""
    found = list(findings)
    moved: dict[Place, set[int]] = defaultdict(set)
    for f in found:
        if f.advice is not None and f.advice.moves.away is not None:
            moved[f.topic, f.partition].add(f.advice.moves.away)
    for f in found:
        if f.advice is not None and (gone := moved[f.topic, f.partition]):
            f.advice = _without(f.advice, gone, f"{f.topic}-{f.partition}")
    return found


def _without(advice: Advice, gone: Collection[int], name: str) -> Advice:
    """An advice that rests on none of these brokers' replicas."""
    moves = advice.moves
    left = tuple(broker for broker in moves.sources if broker not in gone)
    if moves.leads in gone or (moves.sources and not left):
        crossed = [b for b in (*moves.sources, moves.leads) if b is not None and b in gone]
        damaged = [
            Condition(f"broker {b} keeps its replica of {name}, to fetch from", False, f"{ANOTHER} names its damage")
            for b in dict.fromkeys(crossed)
        ]
        then = "copy the folders to a safe place first: no replica is known to be whole"
        return replace(advice.unless(*damaged), verdict=Verdict.DO_NOT_ACT, then=then)
    if left == moves.sources:
        return advice
    before, now = (repairs.isr_lists(name, brokers) for brokers in (moves.sources, left))
    return replace(
        advice,
        conditions=tuple(c for c in advice.conditions if not _is_about(c, set(moves.sources) - set(left), name)),
        look=tuple(replace(each, expect=each.expect.replace(before, now)) for each in advice.look),
        moves=Moves(moves.away, left, moves.leads),
    )


def _is_about(condition: Condition, brokers: Collection[int], name: str) -> bool:
    return any(condition.what == repairs.has_in_sync(name, broker) for broker in brokers)
