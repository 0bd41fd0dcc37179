"""Findings on batches with an unverified checksum, as a copy without payload may have them, are not proved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from auditor.base.advice import Advice, Condition
from auditor.base.at_rest import Fields, Values
from auditor.facts.batch_sums import touches
from auditor.facts.replica_facts import ReplicaFacts

Ranges = list[tuple[int, int]]
SHOWN = 20  # ranges of offsets that a finding names
THEN = "Verify them first: copy the log again with auditor copy --checksums all, and audit that copy"


def unverified(replicas: Iterable[ReplicaFacts]) -> Ranges:
    """Return the offset ranges of the unverified batches of some replicas."""
    return sorted({span for replica in replicas for span in replica.unverified})


def between(ranges: Ranges, fields: Values) -> Ranges:
    """Return the unverified batches among the offsets that a finding with these fields names.

    The lowest offset counts: what is missed before a batch may be in a damaged one.
    """
    begin, until = fields.get("offset"), fields.get("last_offset")
    first, last = (None if offset is None else int(offset) for offset in (begin, until))
    if first is not None:
        named = (value for name, value in fields.get("evidence", {}).items() if name.endswith("_offset"))
        last = max(first, first if last is None else last)
        first = min([first, *(int(value) for value in named if isinstance(value, (int, np.integer)) and value >= 0)])
    return [span for span in ranges if touches([span], first, last)]


def not_proved(evidence: Fields, ranges: Ranges) -> None:
    """Lower the confidence of a finding derived from unverified batches, and name these."""
    evidence["checksums"] = "not verified"
    evidence["unverified_offsets"] = [list(span) for span in ranges[:SHOWN]]
    if evidence.get("confidence", "proved") == "proved":
        evidence["confidence"] = "likely"


def verified_first(advice: Advice, ranges: Ranges) -> Advice:
    """Return the same advice without its acts, which unverified batches may invalidate."""
    if not advice.act:
        return advice
    first, last = ranges[0][0], ranges[-1][1]
    what = "the batches that it rests on are as they were written"
    asked = advice.unless(Condition(what, None, f"checksums not verified between offsets {first} and {last}"))
    acts = " ; ".join(act.command for act in advice.act)
    later = f". {advice.then}" if advice.then else ""
    # What it would move counts, so that no other finding's advice fetches from there.
    return replace(asked, then=f"{THEN}. Only once that is so: {acts}{later}", moves=advice.moves)
