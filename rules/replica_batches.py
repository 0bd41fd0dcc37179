"""The batches of a replica by offset, for comparison: unpacked a piece at a time, so that nobody holds a whole log's.

Headers are at rest in some 9 bytes a batch, in pieces of 65 536 (:class:`auditor.facts.packed.PackedColumns`). Where
the batches of a log follow each other, as brokers write them, a stretch of offsets is in the pieces that hold it. A log
whose batches overlap or go back is sorted as a whole, at some 100 bytes a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from auditor.facts.copy_facts import CopyFacts
from auditor.facts.packed import PackedColumns

COMPARED = ("last_offset", "crc", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
NAMES = ("base_offset", *COMPARED, "crc_ok", "magic")  # what a comparison looks at
SPAN = ("base_offset", "last_offset")
LINEAGE = ("base_offset", "partition_leader_epoch", "crc_ok", "magic")
PIECES_AT_HAND = 2  # a stretch of one replica may end within a piece of the other
Columns = dict[str, np.ndarray]


def pieces(copy: CopyFacts, names: tuple[str, ...]) -> Iterator[Columns]:
    """Columns of all batches of a replica in the order in which they were read, some at a time."""
    return (_piece(copy, number, names) for number in range(_count(copy)))


def _count(copy: CopyFacts) -> int:
    return copy.digests.piece_count() if isinstance(copy.digests, PackedColumns) else int(bool(copy.digests))


def _piece(copy: CopyFacts, number: int, names: tuple[str, ...]) -> Columns:
    if isinstance(copy.digests, PackedColumns):
        return copy.digests.piece(number, names)
    return {name: copy.digests[name] for name in names}


class ReplicaBatches:
    """The batches of one replica by base offset, the first read of each.

    ``ordered``: whether they follow each other without overlap. ``starts``: the first base offset of each piece that is
    not empty; one piece for all where they do not. Cost of making: a pass over two columns.
    """

    def __init__(self, copy: CopyFacts) -> None:
        self.copy = copy
        self.ordered, self.starts = True, []
        self._numbers: list[int] = []
        reach = -1
        for number, rows in enumerate(pieces(copy, SPAN)):
            base, last = rows["base_offset"], rows["last_offset"]
            if len(base):
                follow = bool((last >= base).all() and (base[1:] > last[:-1]).all() and base[0] > reach)
                self.ordered, reach = self.ordered and follow, int(last[-1])
                self.starts.append(int(base[0]))
                self._numbers.append(number)
        if not self.ordered:
            self.starts, self._numbers = [-1], [0]
        self._at_hand: dict[tuple[int, tuple[str, ...]], Columns] = {}

    def _rows(self, place: int, names: tuple[str, ...]) -> Columns:
        """A piece by its place among ``starts``."""
        if (place, names) not in self._at_hand:
            if len(self._at_hand) >= PIECES_AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[place, names] = self._unpacked(place, names)
        return self._at_hand[place, names]

    def _unpacked(self, place: int, names: tuple[str, ...]) -> Columns:
        if self.ordered:
            return _piece(self.copy, self._numbers[place], names)
        _, first = np.unique(self.copy.digests["base_offset"], return_index=True)
        return {name: self.copy.digests[name][first] for name in names}

    def between(self, first: int | None, until: int | None) -> Columns:
        """NAMES of the batches whose base offset is at or above one offset and below another; None: of all there."""
        found = []
        for place, start in enumerate(self.starts):
            beyond = place + 1 < len(self.starts) and first is not None and self.starts[place + 1] <= first
            if beyond or (until is not None and start >= until):
                continue
            rows = self._rows(place, NAMES)
            low = 0 if first is None else int(np.searchsorted(rows["base_offset"], first))
            high = len(rows["base_offset"]) if until is None else int(np.searchsorted(rows["base_offset"], until))
            found.append({name: column[low:high] for name, column in rows.items()})
        return joined(found)

    def row_of(self, offset: int) -> dict[str, int]:
        """The batch that holds ``offset`` with all that is known of it, else the next one, else the last; empty if
        there is none."""
        if not self.starts:
            return {}
        digests = self.copy.digests
        names = tuple(digests.dtypes if isinstance(digests, PackedColumns) else digests)
        place = max(0, int(np.searchsorted(self.starts, offset, side="right")) - 1)
        rows = self._rows(place, names)
        at = int(np.searchsorted(rows["base_offset"], offset, side="right")) - 1
        at += at < 0 or int(rows["last_offset"][at]) < offset
        if at == len(rows["base_offset"]):
            more = place + 1 < len(self.starts)
            rows, at = (self._rows(place + 1, names), 0) if more else (rows, at - 1)
        return {name: int(column[at]) for name, column in rows.items()}

    @functools.cached_property
    def lineage(self) -> dict[int, int]:
        """The first offset of each leader epoch that sound batches have."""
        found: dict[int, int] = {}
        for place in range(len(self.starts)):
            rows = self._unpacked(place, LINEAGE)
            sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (rows["partition_leader_epoch"] >= 0)
            epochs, at = np.unique(rows["partition_leader_epoch"][sound], return_index=True)
            for epoch, base in zip(epochs.tolist(), rows["base_offset"][sound][at].tolist(), strict=True):
                found.setdefault(epoch, base)
        return found


def joined(parts: list[Columns]) -> Columns:
    """Batches one stretch after the other; NAMES without any for no parts."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([np.empty(0, np.int64), *(rows[name] for rows in parts)]) for name in NAMES}
