"""Remedies of different findings that must not cross: a replica that one has fetched again is no source for another."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable

from auditor.rules import repairs
from auditor.rules.finding import Finding

Place = tuple[str | None, int | None]  # topic and partition


def settled(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a cluster, those of whose remedies cross changed: what is left as a source is fetched from, where
    nothing is left nothing is moved."""
    found = list(findings)
    moved: dict[Place, set[str]] = defaultdict(set)
    for f in found:
        moved[f.topic, f.partition].update(m["broker"] for m in repairs.FETCHED.finditer(f.remedy))
    for f in found:
        if gone := moved[f.topic, f.partition]:
            f.remedy = repairs.FETCHED.sub(functools.partial(_without, gone), f.remedy)
            f.remedy = repairs.LEADS.sub(functools.partial(_not_leading, gone), f.remedy)
    return found


def _without(moved: set[str], remedy: re.Match[str]) -> str:
    named = remedy["sources"].split(" or ")
    left = [broker for broker in named if broker not in moved]
    if not left:
        return repairs.keep(remedy["folder"], remedy["broker"], remedy["look"])
    return remedy[0].replace(f"broker {remedy['sources']} is", f"broker {' or '.join(left)} is", 1)


def _not_leading(moved: set[str], remedy: re.Match[str]) -> str:
    if remedy["broker"] not in moved:
        return remedy[0]
    return f"do not make broker {remedy['broker']} leader before its replica is whole: another finding names its damage"
