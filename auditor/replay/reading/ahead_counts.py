"""What lies ahead of offsets in a log, out of its batches' headers: records by what readers make of them, and markers.

One pass over the batches answers for any number of offsets: what lies ahead of one is all that there is, less what lies
before it. A stretch that no offset points into may be passed over, by sums. Memory: some hundred bytes an offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from auditor.connectors.codec import batches as walking

# What a batch is to readers: below the last stable offset; above it, and decided; of a transaction that is open; of an
# aborted one; a marker or another control record.
SEEN, WAITING, OPEN, ABORTED, MARKER = range(5)
CLASSES = 5
NOWHERE, RECORD, IN_BATCH, AT_MARKER, GAP = range(5)  # where an offset points: none of a batch's yet; may be a gap
FAR = 1 << 62


class Outcomes:
    """Which transactional batches are of an aborted or open transaction, by a replica's transactions.

    Markers at or above ``end`` count for nothing yet.
    """

    def __init__(self, transactions: np.ndarray, end: int) -> None:
        begun = transactions[transactions["first_offset"] >= 0] if len(transactions) else transactions
        is_open = (begun["marker_offset"] < 0) | (begun["marker_offset"] >= end)
        odd = is_open | (begun["commit"] == 0)
        self.producer = begun["producer_id"][odd]
        self.first = begun["first_offset"][odd]
        self.until = np.where(is_open, FAR, begun["marker_offset"])[odd]
        self.open = is_open[odd]
        self.last, self.records = begun["last_offset"][odd], begun["records"][odd]
        self.marker_offsets = transactions["marker_offset"]

    @cached_property
    def _markers(self) -> np.ndarray:
        return np.unique(self.marker_offsets)

    def markers_in(self, at: int, behind: int) -> int:
        """How many markers lie in ``[at, behind)``."""
        low, high = np.searchsorted(self._markers, [at, behind])
        return int(high - low)

    @property
    def first_open(self) -> int:
        """Where the first open transaction begins; :data:`FAR` without any."""
        return int(self.first[self.open].min(initial=FAR))

    @property
    def holder(self) -> int | None:
        """The producer id of the first open transaction; None without any."""
        return int(self.producer[self.open][self.first[self.open].argmin()]) if self.open.any() else None

    def crosses(self, offset: int) -> bool:
        """Whether a transaction that is not committed has data on both sides of an offset."""
        return bool(((self.first < offset) & (self.last >= offset)).any())

    def begun(self, at: int, behind: int) -> tuple[int, int]:
        """The records of all open and of all aborted transactions that begin in ``[at, behind)``."""
        here = (self.first >= at) & (self.first < behind)
        return int(self.records[here & self.open].sum()), int(self.records[here & ~self.open].sum())

    def of(self, base: np.ndarray, producer: np.ndarray) -> np.ndarray:
        """OPEN, ABORTED, or SEEN for all else, of transactional batches in the order of their offsets."""
        which = self.which(base, producer)
        if not len(self.first):
            return np.full(len(base), SEEN, np.int64)
        return np.where(which < 0, SEEN, np.where(self.open[which], OPEN, ABORTED))

    def which(self, base: np.ndarray, producer: np.ndarray) -> np.ndarray:
        """The row of the open or aborted transaction that each of these batches belongs to, -1 for none."""
        found = np.full(len(base), -1, np.int64)
        if not len(base) or not len(self.first):
            return found
        low, high = int(base[0]), int(base[-1])
        near = np.flatnonzero((self.first <= high) & (self.until >= low))
        if not len(near):
            return found
        producers = np.unique(self.producer[near])
        # One number for producer and offset, by which both are in order; at most one of a producer's began before.
        width = high - low + 2
        begins = np.searchsorted(producers, self.producer[near]) * width + np.maximum(self.first[near] - low, 0)
        order = np.argsort(begins, kind="stable")
        begins, near = begins[order], near[order]
        number = np.minimum(np.searchsorted(producers, producer), len(producers) - 1)
        at = np.searchsorted(begins, number * width + (base - low), "right") - 1
        which = near[np.maximum(at, 0)]
        inside = (at >= 0) & (self.producer[which] == producer) & (self.until[which] >= base)
        found[inside] = which[inside]
        return found


@dataclass(frozen=True, slots=True)
class Ahead:
    """What lies ahead of an offset. ``least`` and ``most``: records of each class; they differ where the offset points
    into a batch that was cleaned, at byte ``position`` of ``segment``. ``stands``: where it points. ``fetched``,
    ``fetched_stable``: bytes of the batches from its own on, of all and of those below the last stable offset.
    ``first``: the row of the first batch with a record that a read_committed reader gets, None for none and where it is
    not sure which.
    """

    least: np.ndarray
    most: np.ndarray
    stands: int
    fetched: int
    fetched_stable: int
    first: np.ndarray | None
    segment: int
    position: int


class Counts:
    """Counts what lies ahead of ``offsets`` up to ``end``; ``stable``: the last stable offset.

    :meth:`take` is given the batches from the lowest of the offsets on, or from before it, in order.
    """

    def __init__(self, offsets: list[int], outcomes: Outcomes, stable: int, end: int) -> None:
        edge = [stable] if min(offsets) < stable < end else []  # so that nothing is passed over that it lies in
        self.offsets = np.array(sorted({*offsets, *edge}), np.int64)
        self.outcomes, self.stable, self.end = outcomes, stable, end
        rows = len(self.offsets)
        self.before = np.zeros((rows, CLASSES), np.int64)
        self.bytes_before = np.zeros((rows, 2), np.int64)
        self.part = np.full((rows, 4), -1, np.int64)  # class, fewest and most records before it in its batch, all of it
        self.place = np.full((rows, 2), -1, np.int64)
        self.stands = np.full(rows, NOWHERE, np.int64)
        self.first: list[list[np.ndarray | None]] = [[None, None] for _ in range(rows)]  # with its own batch, without
        self.total = np.zeros(CLASSES, np.int64)
        self.bytes = np.zeros(2, np.int64)
        self.reached = 0  # of offsets, those whose place is known
        self.without_first: list[tuple[int, int]] = []
        self.next_offset = -1  # behind the last batch

    def take(self, rows: np.ndarray, segment: int) -> None:
        """The next batches, rows of a walk."""
        rows = rows[rows[:, walking.BASE_OFFSET] < self.end]
        if not len(rows):
            return
        base, last = rows[:, walking.BASE_OFFSET], rows[:, walking.LAST_OFFSET]
        classes = self._classes(rows, base)
        counts = np.maximum(rows[:, walking.RECORD_COUNT], 0)
        sizes = rows[:, walking.SIZE]
        behind = int(last.max())
        here = slice(self.reached, int(np.searchsorted(self.offsets, behind, "right")))
        seen = (classes == SEEN) & (counts > 0)
        if here.start < here.stop:
            self._begins(here, rows, segment, (last, classes, counts, sizes, seen))
        elif self.without_first and seen.any():
            self._found(rows[int(seen.argmax())])
        self.total += [counts[classes == k].sum() for k in range(CLASSES)]
        self.bytes += (sizes.sum(), sizes[base < self.stable].sum())
        self.reached = here.stop
        self.next_offset = behind + 1

    def may_pass(self, at: int, behind: int) -> bool:
        """Whether ``[at, behind)`` may be passed over: no offset points into it, the first record for a read_committed
        reader is known, and no open or aborted transaction crosses one of its ends: :meth:`pass_over` counts each with
        all of its records where it begins, and batches that are read behind would count the rest again."""
        asked = self.reached < len(self.offsets) and self.offsets[self.reached] < behind
        if asked or (self.without_first and at < self.stable):
            return False
        return not (self.outcomes.crosses(at) or self.outcomes.crosses(behind))

    def pass_over(self, at: int, behind: int, sums: np.ndarray) -> None:
        """What lies in ``[at, behind)``, by its records, those of control batches, and its bytes."""
        records, controls, size = sums.tolist()
        still, aborted = self.outcomes.begun(at, behind)
        self.total[[OPEN, ABORTED, MARKER]] += (still, aborted, controls)
        self.total[SEEN if at < self.stable else WAITING] += records - controls - still - aborted
        self.bytes += (size, size if at < self.stable else 0)
        self.next_offset = behind

    def _begins(self, here: slice, rows: np.ndarray, segment: int, columns: tuple[np.ndarray, ...]) -> None:
        """Of the offsets that lie in these batches, or between them: what lies before each."""
        last, classes, counts, sizes, seen = columns
        by_class = np.zeros((len(rows) + 1, CLASSES), np.int64)
        by_class[np.arange(1, len(rows) + 1), classes] = counts
        bytes_of = np.zeros((len(rows) + 1, 2), np.int64)
        bytes_of[1:, 0] = sizes
        bytes_of[1:, 1] = np.where(rows[:, walking.BASE_OFFSET] < self.stable, sizes, 0)
        asked = self.offsets[here]
        at = np.searchsorted(np.maximum.accumulate(last), asked)  # the first batch that ends at or behind each
        self.before[here] = self.total + np.cumsum(by_class, axis=0)[at]
        self.bytes_before[here] = self.bytes + np.cumsum(bytes_of, axis=0)[at]
        self._within(here, asked, at, rows, classes, segment)
        self._firsts(here, at, rows, seen)

    def _classes(self, rows: np.ndarray, base: np.ndarray) -> np.ndarray:
        attributes = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES], 0)
        control, inside = attributes & walking.CONTROL != 0, attributes & walking.TRANSACTIONAL != 0
        classes = np.full(len(rows), SEEN, np.int64)
        classes[inside] = self.outcomes.of(base[inside], rows[inside, walking.PRODUCER_ID])
        classes[(classes == SEEN) & (base >= self.stable)] = WAITING
        classes[control] = MARKER
        return classes

    def _within(
        self, here: slice, asked: np.ndarray, at: np.ndarray, rows: np.ndarray, classes: np.ndarray, segment: int
    ) -> None:
        """Of each offset, what of its own batch lies before it, and where it points."""
        base, last = rows[at, walking.BASE_OFFSET], rows[at, walking.LAST_OFFSET]
        count = np.maximum(rows[at, walking.RECORD_COUNT], 0)
        whole, inside = count >= last - base + 1, base <= asked
        stands = np.where(classes[at] == MARKER, AT_MARKER, np.where(whole, RECORD, IN_BATCH))
        self.stands[here] = np.where(inside, np.where(count == 0, GAP, stands), GAP)
        behind = base < asked
        fewest = np.where(whole, asked - base, np.maximum(count - (last - asked + 1), 0))
        self.part[here] = np.column_stack((classes[at], fewest, np.minimum(count, asked - base), count))
        self.part[here][~behind] = -1
        self.place[here] = np.column_stack((np.full(len(at), segment), rows[at, walking.POSITION]))

    def _firsts(self, here: slice, at: np.ndarray, rows: np.ndarray, seen: np.ndarray) -> None:
        """The first batch from each offset on that a read_committed reader gets a record of."""
        none = len(rows)
        following = np.append(np.where(seen, np.arange(none), none), [none, none])
        following = np.minimum.accumulate(following[::-1])[::-1]
        if following[0] < none:
            self._found(rows[following[0]])
        for which in (0, 1):
            for number, row in zip(range(here.start, here.stop), following[at + which].tolist(), strict=True):
                if row < none:
                    self.first[number][which] = rows[row].copy()
                else:
                    self.without_first.append((number, which))

    def _found(self, row: np.ndarray) -> None:
        """The first batch of those that come before has been found."""
        for number, which in self.without_first:
            self.first[number][which] = row.copy()
        self.without_first = []

    def unsure(self) -> list[tuple[int, int, int]]:
        """Offsets that point into a cleaned batch, with its segment and position: only its records tell more."""
        part = self.part
        open_ones = np.flatnonzero((part[:, 0] >= 0) & (part[:, 1] != part[:, 2]) | (self.stands == IN_BATCH))
        return [(int(self.offsets[k]), int(self.place[k, 0]), int(self.place[k, 1])) for k in open_ones]

    def looked_into(self, offset: int, offsets: np.ndarray) -> None:
        """Settles an offset by the offsets of the records in its batch."""
        k = int(np.searchsorted(self.offsets, offset))
        if self.part[k, 0] >= 0:
            self.part[k, 1:3] = int((offsets < offset).sum())
        self.stands[k] = RECORD if bool((offsets == offset).any()) else GAP

    def ahead(self, offset: int) -> Ahead:
        """What lies ahead of one of the offsets, once all batches were given."""
        k = int(np.searchsorted(self.offsets, offset))
        if k >= self.reached:
            none = np.zeros(CLASSES, np.int64)
            return Ahead(none, none, NOWHERE, 0, 0, None, -1, -1)
        least = self.total - self.before[k]
        most = least.copy()
        klass, fewest, highest, count = self.part[k].tolist()
        first = self.first[k][0]
        if klass >= 0:
            least[klass] -= highest
            most[klass] -= fewest
            if klass == SEEN and count == highest:  # none of its own batch may be left
                first = self.first[k][1] if count == fewest else None
        stable = int(self.bytes[1] - self.bytes_before[k, 1])
        return Ahead(
            least,
            most,
            int(self.stands[k]),
            int(self.bytes[0] - self.bytes_before[k, 0]),
            stable,
            first,
            *map(int, self.place[k]),
        )

    def between(self, first: int, behind: int) -> tuple[np.ndarray, np.ndarray]:
        """The records of each class from one of the offsets to before another, at least and at most."""
        here, there = self.ahead(first), self.ahead(behind)
        return np.maximum(here.least - there.most, 0), here.most - there.least
