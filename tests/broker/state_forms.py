"""Which records of ``__transaction_state`` show that an append before them failed, and which markers they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.broker.dumped import TOMBSTONE, StateRecord

FOLLOWING = {
    "Empty": ("Ongoing", TOMBSTONE), "Ongoing": ("PrepareCommit", "PrepareAbort"),
    "PrepareCommit": ("CompleteCommit",), "PrepareAbort": ("CompleteAbort",),
    "CompleteCommit": ("Ongoing", "Empty", TOMBSTONE), "CompleteAbort": ("Ongoing", "Empty", TOMBSTONE),
    TOMBSTONE: ("Empty",),
}  # fmt: skip


def forms(records: list[StateRecord]) -> dict[str, dict[str, Any]]:
    """What came up of records that a broker would not have written had the append before not failed.

    By the states of such a stretch, from the record before to the one that took, each with what its epoch is above the
    first one's (a new id's is not told): how often, and where first.
    """
    by_id: dict[str, list[StateRecord]] = {}
    for record in records:
        by_id.setdefault(record.transactional_id, []).append(record)
    found: dict[str, dict[str, Any]] = {}
    for name, own in by_id.items():
        for stretch in _odd_stretches(own):
            form = found.setdefault(" ".join(_named(record, stretch) for record in stretch), {"count": 0})
            form["count"] += 1
            form.setdefault("first", f"{name} at {' '.join(str(record.offset) for record in stretch)}")
    return dict(sorted(found.items()))


def _odd_stretches(own: list[StateRecord]) -> Iterator[list[StateRecord]]:
    stretch: list[StateRecord] = []
    for before, record in pairwise(own):
        if not _ordinary(before, record):
            stretch = stretch or [before]
            stretch.append(record)
        elif stretch:
            yield [*stretch, record]
            stretch = []
    if stretch:
        yield stretch


def _ordinary(before: StateRecord, record: StateRecord) -> bool:
    """Whether a record may follow another that was acknowledged."""
    step = (before.state, record.state)
    if step == ("Empty", "Empty"):
        return record.epoch > before.epoch
    if step == ("Ongoing", "Ongoing"):
        return record.start_ms == before.start_ms and set(record.partitions) > set(before.partitions)
    return record.state in FOLLOWING[before.state]


def _named(record: StateRecord, stretch: list[StateRecord]) -> str:
    first = next((each for each in stretch if each.state != TOMBSTONE), record)
    if record.state == TOMBSTONE:
        return TOMBSTONE
    if record.producer_id != first.producer_id:
        return f"{record.state}(new)"
    return record.state + (f"+{record.epoch - first.epoch}" if record.epoch > first.epoch else "")


def decided(records: list[StateRecord]) -> Counter[tuple[str, int, int, str]]:
    """The markers that completed decisions ask for: partition, producer id, epoch and result of each."""
    asked: Counter[tuple[str, int, int, str]] = Counter()
    last: dict[str, StateRecord] = {}
    for record in records:
        before = last.get(record.transactional_id)
        if before is not None and record.state.startswith("Complete") and before.state.startswith("Prepare"):
            result = before.state.removeprefix("Prepare").upper()
            asked.update((place, before.producer_id, before.epoch, result) for place in before.partitions)
        last[record.transactional_id] = record
    return asked
