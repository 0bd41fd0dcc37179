"""Which records of a batch are to blame, and what would remain of it without them, for the evidence (KIP-467)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from auditor.base.at_rest import Fields
from auditor.base.numbers import SEQUENCES
from auditor.facts.events import Culprits, Event
from auditor.rules.seen.view import LogView

SHOWN = 20  # batches of one finding


class Place(TypedDict):
    """Where a batch is."""

    segment: int
    position: int
    base_offset: int


def blamed(log: LogView, run: Sequence[Event | Place], kind: str, *, newest: int | None = None) -> list[Fields] | None:
    """The culprits of a kind (a field of :class:`Culprits`) in the first batches of a run, and what remains of each.

    ``error_records`` counts from 0 in the batch, as a ProduceResponse does; None where the batches were not at hand to
    be read once more (a running cluster). ``newest``: the latest stamp (ms) that is in order, where one is known.
    """
    rows = []
    for e in run[:SHOWN]:
        found = log.leader.culprits.get((int(e["segment"]), int(e["position"])))
        if found is None:
            continue
        if newest is not None:
            found = found._replace(ahead=tuple(named for named in found.ahead if named[1] > newest))
        if mine := _of(found, kind):
            rows.append(_row(int(e["base_offset"]), found, mine))
    return rows or None


def _of(found: Culprits, kind: str) -> list[int]:
    named = getattr(found, kind)
    return [index for index, _stamp in named] if kind == "ahead" else list(named)


def _row(base_offset: int, found: Culprits, mine: list[int]) -> Fields:
    row: Fields = {"base_offset": base_offset, "records": found.records, "error_records": mine}
    others = {index for kind in ("null_keys", "flawed", "old", "ahead") for index in _of(found, kind)}
    if found.left_out:
        row["left_out"] = found.left_out
    elif found.records == found.declared:  # else nobody can tell what is behind the last one that could be read
        row["remaining"] = _remaining(found, others)
    return row


def _remaining(found: Culprits, culprits: set[int]) -> Mapping[str, int]:
    """The batch that a client would send again by the KIP: without any culprit, numbered from 0 on."""
    records = found.records - len(culprits)
    if not records:
        return {"records": 0}
    out = {"records": records, "last_offset_delta": records - 1}
    if found.base_sequence >= 0:
        out |= {
            "base_sequence": found.base_sequence,
            "last_sequence": (found.base_sequence + records - 1) % SEQUENCES,
        }
    return out
