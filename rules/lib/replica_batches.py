"""The batches of a replica by offset, for comparison: a stretch at a time, so that nobody holds a whole log's.

Of a small log all headers are there, in some 9 bytes a batch, in pieces of 65 536
(:class:`auditor.facts.packed.PackedColumns`). Of a long one there are the sums of ranges of offsets
(:class:`auditor.facts.batch_sums.BatchSums`), and the headers of a range are read again when somebody asks for them
(:mod:`auditor.rules.lib.headers_again`). Where the batches of a log follow each other, as brokers write them, a stretch
of offsets is in the pieces or ranges that hold it. A log whose batches overlap or go back is sorted as a whole, at some
100 bytes a batch.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator

import numpy as np

from auditor.base.errors import DecodeError
from auditor.facts.batch_sums import SUMMED, BatchSums
from auditor.facts.packed import PackedColumns
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib.headers_again import Allowance, Columns, HeadersAgain, Unknown

COMPARED = ("last_offset", "crc", "producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch")
NAMES = ("base_offset", *COMPARED, "crc_ok", "magic")  # what a comparison looks at
SPAN = ("base_offset", "last_offset")
LINEAGE = ("base_offset", "partition_leader_epoch", "crc_ok", "magic")
PIECES_AT_HAND = 2  # a stretch of one replica may end within a piece of the other


class ReplicaBatches:
    """The batches of one replica by base offset, the first read of each.

    ``ordered``: whether they follow each other without overlap. ``starts``: the first base offset of each piece or
    range that is not empty; one for all where they do not. ``sums``: of a long log, where it has any use. Cost of
    making: a pass over two columns, or none. What is asked for may have to be read again: errors: :class:`Unknown`.
    """

    def __init__(self, replica: ReplicaFacts, allowance: Allowance | None = None) -> None:
        self.replica = replica
        self.sums: BatchSums | None = None
        self.ordered, self.starts = True, []
        self.again: HeadersAgain | None = None
        self._at_hand: dict[tuple[int, tuple[str, ...]], Columns] = {}
        self._numbers: list[int] = []
        self._kept: dict[str, np.ndarray] | PackedColumns = {}
        self._unknown = False
        self._made: BatchSums | None = None
        if isinstance(replica.digests, BatchSums):
            self.again = HeadersAgain(replica, replica.digests, allowance or Allowance())
            if replica.digests.ordered:
                self.sums = replica.digests
                self.starts = self.again.ranges["first"].tolist()
                return
            try:
                self._kept = self.again.everything() or {}
            except Unknown as why:
                self._unknown, self.ordered = True, False
                if why.limited:
                    self.again.limit(0, "its batches are out of order, and too many to be put in order")
                return
        else:
            self._kept = replica.digests
        self._order()

    def _order(self) -> None:
        reach = -1
        for number, rows in enumerate(self._pieces(SPAN)):
            base, last = rows["base_offset"], rows["last_offset"]
            if len(base):
                follow = bool((last >= base).all() and (base[1:] > last[:-1]).all() and base[0] > reach)
                self.ordered, reach = self.ordered and follow, int(last[-1])
                self.starts.append(int(base[0]))
                self._numbers.append(number)
        if not self.ordered:
            self.starts, self._numbers = [-1], [0]

    @property
    def errors(self) -> list[DecodeError]:
        """Why batches could not be read again, or were not."""
        return [] if self.again is None else self.again.errors

    def _pieces(self, names: tuple[str, ...]) -> Iterator[Columns]:
        """Columns of all batches at hand in the order in which they were read, some at a time."""
        count = self._kept.piece_count() if isinstance(self._kept, PackedColumns) else int(bool(self._kept))
        return (self._piece(number, names) for number in range(count))

    def _piece(self, number: int, names: tuple[str, ...]) -> Columns:
        if isinstance(self._kept, PackedColumns):
            return self._kept.piece(number, names)
        return {name: self._kept[name] for name in names}

    def _rows(self, place: int, names: tuple[str, ...]) -> Columns:
        """A piece, or range, by its place among ``starts``."""
        key = (place, names if self.sums is None else ())  # what is read again has all columns
        if key not in self._at_hand:
            if len(self._at_hand) >= PIECES_AT_HAND:
                del self._at_hand[next(iter(self._at_hand))]
            self._at_hand[key] = self._unpacked(place, names)
        return self._at_hand[key]

    def _unpacked(self, place: int, names: tuple[str, ...]) -> Columns:
        if self.sums is not None and self.again is not None:
            return self.again.between(place, place, evidence=True)
        if self.ordered:
            return self._piece(self._numbers[place], names)
        _, first = np.unique(self._kept["base_offset"], return_index=True)
        return {name: self._kept[name][first] for name in names}

    def between(self, first: int | None, until: int | None) -> Columns:
        """NAMES of the batches whose base offset is at or above one offset and below another; None: of all there."""
        if self._unknown:
            raise Unknown
        begin = 0 if first is None else self._place(first)
        places = range(begin, len(self.starts) if until is None else bisect.bisect_left(self.starts, until))
        if self.sums is not None and self.again is not None and places:
            pieces = [self.again.between(places[0], places[-1], NAMES)]
        else:
            pieces = [self._rows(place, NAMES) for place in places]
        found = []
        for rows in pieces:
            low = 0 if first is None else int(np.searchsorted(rows["base_offset"], first))
            high = len(rows["base_offset"]) if until is None else int(np.searchsorted(rows["base_offset"], until))
            found.append({name: rows[name][low:high] for name in NAMES})
        return joined(found)

    def above(self, first: int, until: int | None, names: tuple[str, ...]) -> Iterator[Columns]:
        """Columns of the batches between two offsets, some at a time, also of those that came twice; as many as can be
        had."""
        pieces = self._pieces(names) if self.sums is None else self._ranges(first, until, names)
        for rows in pieces:
            inside = rows["base_offset"] >= first
            if until is not None:
                inside &= rows["base_offset"] < until
            yield {name: rows[name][inside] for name in names}

    def _ranges(self, first: int, until: int | None, names: tuple[str, ...]) -> Iterator[Columns]:
        last = len(self.starts) if until is None else bisect.bisect_left(self.starts, until)
        try:
            for place in range(self._place(first), last):
                yield self._rows(place, names)
        except Unknown as why:  # what is shown of them is the least that there is
            if why.limited and self.again is not None:
                self.again.limit(first, "what findings show of many batches was too much to be read again")

    def _place(self, offset: int) -> int:
        return max(0, bisect.bisect_right(self.starts, offset) - 1)

    def start_of(self, offset: int) -> int | None:
        """The base offset of :meth:`row_of`, where nothing is out of order; None if there is none."""
        if self.starts and offset <= (start := self.starts[self._place(offset)]):
            return start
        return self.row_of(offset).get("base_offset")

    def row_of(self, offset: int) -> dict[str, int]:
        """The batch that holds ``offset`` with all that is known of it, else the next one, else the last; empty if
        there is none."""
        if not self.starts:
            return {}
        names = tuple(self._kept.dtypes if isinstance(self._kept, PackedColumns) else self._kept)
        place = self._place(offset)
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
        if self.sums is not None:
            for run in self.sums.runs.tolist():
                found.setdefault(run[0], run[1])
            return found
        for place in range(len(self.starts)):
            rows = self._unpacked(place, LINEAGE)
            sound = (rows["crc_ok"] != 0) & (rows["magic"] == 2) & (rows["partition_leader_epoch"] >= 0)
            epochs, at = np.unique(rows["partition_leader_epoch"][sound], return_index=True)
            for epoch, base in zip(epochs.tolist(), rows["base_offset"][sound][at].tolist(), strict=True):
                found.setdefault(epoch, base)
        return found

    def summed(self, key: bytes) -> BatchSums:
        """Its sums under a key, made of its headers where these are kept. Cost: then, a pass over them."""
        if self.sums is not None:
            return self.sums
        if self._made is None or self._made.key != key:
            self._made = BatchSums(key)
            for place in range(len(self.starts)):
                self._made.add_columns(self._unpacked(place, SUMMED))
        return self._made


def joined(parts: list[Columns]) -> Columns:
    """Batches one stretch after the other; NAMES without any for no parts."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0] if parts else NAMES
    return {name: np.concatenate([np.empty(0, np.int64), *(rows[name] for rows in parts)]) for name in names}
