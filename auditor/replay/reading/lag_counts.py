"""Records ahead of an offset, counted from batch headers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.indexes import OffsetIndex, decode_offset_index
from auditor.connectors.codec.records import decode_records
from auditor.connectors.codec.segment import Chunk, HeaderHop, StoredChunks, before, read_segment
from auditor.connectors.stores.retries import REFUSED
from auditor.connectors.stores.storage import open_file, problem, read_file
from auditor.facts.replica_facts import SegmentScan
from auditor.replay.producers.audit_replay import known_of
from auditor.replay.task import ReplicaTask

# Counts of records and markers ahead of offsets in a log, from its batches' headers.
#
# One pass over the batches answers for any number of offsets: what is ahead of one is the total less what precedes
# it. A range that no offset points into may be skipped, by sums. Memory: some hundred bytes per offset.


# What a batch is to readers: below the last stable offset; above it, and decided; of a transaction that is open; of an
# aborted one; a marker or another control record.
SEEN, WAITING, OPEN, ABORTED, MARKER = range(5)
CLASSES = 5
NOWHERE, RECORD, IN_BATCH, AT_MARKER, GAP = range(5)  # where an offset points: none of a batch's yet; may be a gap
FAR = 1 << 62


class Outcomes:
    """Which transactional batches are of an aborted or open transaction, by a replica's transactions.

    Markers at or above ``end`` do not count yet.
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

    def markers_in(self, first: int, behind: int) -> int:
        """Return the number of markers in ``[first, behind)``."""
        low, high = np.searchsorted(self._markers, [first, behind])
        return int(high - low)

    @property
    def first_open(self) -> int:
        """First offset of the first open transaction; :data:`FAR` without any."""
        return int(self.first[self.open].min(initial=FAR))

    @property
    def holder(self) -> int | None:
        """Producer id of the first open transaction; None without any."""
        return int(self.producer[self.open][self.first[self.open].argmin()]) if self.open.any() else None

    def crosses(self, offset: int) -> bool:
        """Whether a transaction that is not committed has data on both sides of an offset."""
        return bool(((self.first < offset) & (self.last >= offset)).any())

    def begun(self, first: int, behind: int) -> tuple[int, int]:
        """Return the records of all open and of all aborted transactions that begin in ``[first, behind)``."""
        here = (self.first >= first) & (self.first < behind)
        return int(self.records[here & self.open].sum()), int(self.records[here & ~self.open].sum())

    def of(self, base: np.ndarray, producer: np.ndarray) -> np.ndarray:
        """Return OPEN, ABORTED, or SEEN for all else, of transactional batches in offset order."""
        which = self.which(base, producer)
        if not len(self.first):
            return np.full(len(base), SEEN, np.int64)
        return np.where(which < 0, SEEN, np.where(self.open[which], OPEN, ABORTED))

    def which(self, base: np.ndarray, producer: np.ndarray) -> np.ndarray:
        """Return the row of the open or aborted transaction that each of these batches belongs to, -1 for none."""
        rows = np.full(len(base), -1, np.int64)
        if not len(base) or not len(self.first):
            return rows
        low, high = int(base[0]), int(base[-1])
        near = np.flatnonzero((self.first <= high) & (self.until >= low))
        if not len(near):
            return rows
        producers = np.unique(self.producer[near])
        # One number for producer and offset, by which both are in order; at most one of a producer's began before.
        width = high - low + 2
        begins = np.searchsorted(producers, self.producer[near]) * width + np.maximum(self.first[near] - low, 0)
        order = np.argsort(begins, kind="stable")
        begins, near = begins[order], near[order]
        number = np.minimum(np.searchsorted(producers, producer), len(producers) - 1)
        position = np.searchsorted(begins, number * width + (base - low), "right") - 1
        which = near[np.maximum(position, 0)]
        inside = (position >= 0) & (self.producer[which] == producer) & (self.until[which] >= base)
        rows[inside] = which[inside]
        return rows


@dataclass(frozen=True, slots=True)
class RecordsAhead:
    """Counts ahead of an offset.

    ``least`` and ``most``: records of each class; they differ where the offset points into a compacted batch, at byte
    ``position`` of ``segment``. ``stands``: what the offset points at. ``fetched``, ``fetched_stable``: bytes of the
    batches from its own on, of all and of those below the LSO. ``first``: the row of the first batch with a record that
    a read_committed consumer gets, None for none or where that is not certain.
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
    """Counts what is ahead of ``offsets`` up to ``end``; ``stable``: the last stable offset.

    :meth:`take` gets the batches from the lowest of the offsets on, or from before it, in order.
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
        """Take the next batches, rows of a walk."""
        rows = rows[rows[:, walking.BASE_OFFSET] < self.end]
        if not len(rows):
            return
        base, last = rows[:, walking.BASE_OFFSET], rows[:, walking.LAST_OFFSET]
        classes = self._classes(rows, base)
        counts = np.maximum(rows[:, walking.RECORD_COUNT], 0)
        sizes = rows[:, walking.SIZE]
        behind = int(last.max())
        here = slice(self.reached, int(np.searchsorted(self.offsets, behind, "right")))
        visible = (classes == SEEN) & (counts > 0)
        if here.start < here.stop:
            self._begins(here, rows, segment, (last, classes, counts, sizes, visible))
        elif self.without_first and visible.any():
            self._found(rows[int(visible.argmax())])
        self.total += [counts[classes == k].sum() for k in range(CLASSES)]
        self.bytes += (sizes.sum(), sizes[base < self.stable].sum())
        self.reached = here.stop
        self.next_offset = behind + 1

    def may_pass(self, first: int, behind: int) -> bool:
        """Whether ``[first, behind)`` may be skipped.

        That is if no offset points into it, the first record for a read_committed consumer is known, and no open or
        aborted transaction crosses one of its ends: :meth:`pass_over` counts each with all of its records where it
        begins, and batches that are read behind would count the rest again.
        """
        asked = self.reached < len(self.offsets) and self.offsets[self.reached] < behind
        if asked or (self.without_first and first < self.stable):
            return False
        return not (self.outcomes.crosses(first) or self.outcomes.crosses(behind))

    def pass_over(self, first: int, behind: int, sums: np.ndarray) -> None:
        """Add ``[first, behind)`` by its numbers of records, of control records, and its bytes."""
        records, controls, size = sums.tolist()
        still, aborted = self.outcomes.begun(first, behind)
        self.total[[OPEN, ABORTED, MARKER]] += (still, aborted, controls)
        self.total[SEEN if first < self.stable else WAITING] += records - controls - still - aborted
        self.bytes += (size, size if first < self.stable else 0)
        self.next_offset = behind

    def _begins(self, here: slice, rows: np.ndarray, segment: int, columns: tuple[np.ndarray, ...]) -> None:
        """Set what precedes each of the offsets in these batches, or between them."""
        last, classes, counts, sizes, visible = columns
        by_class = np.zeros((len(rows) + 1, CLASSES), np.int64)
        by_class[np.arange(1, len(rows) + 1), classes] = counts
        bytes_of = np.zeros((len(rows) + 1, 2), np.int64)
        bytes_of[1:, 0] = sizes
        bytes_of[1:, 1] = np.where(rows[:, walking.BASE_OFFSET] < self.stable, sizes, 0)
        asked = self.offsets[here]
        index = np.searchsorted(np.maximum.accumulate(last), asked)  # the first batch that ends at or behind each
        self.before[here] = self.total + np.cumsum(by_class, axis=0)[index]
        self.bytes_before[here] = self.bytes + np.cumsum(bytes_of, axis=0)[index]
        self._within(here, asked, index, rows, classes, segment)
        self._firsts(here, index, rows, visible)

    def _classes(self, rows: np.ndarray, base: np.ndarray) -> np.ndarray:
        attributes = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES], 0)
        control, inside = attributes & walking.CONTROL != 0, attributes & walking.TRANSACTIONAL != 0
        classes = np.full(len(rows), SEEN, np.int64)
        classes[inside] = self.outcomes.of(base[inside], rows[inside, walking.PRODUCER_ID])
        classes[(classes == SEEN) & (base >= self.stable)] = WAITING
        classes[control] = MARKER
        return classes

    def _within(
        self, here: slice, asked: np.ndarray, index: np.ndarray, rows: np.ndarray, classes: np.ndarray, segment: int
    ) -> None:
        """Set what precedes each offset within its own batch, and what it points at."""
        base, last = rows[index, walking.BASE_OFFSET], rows[index, walking.LAST_OFFSET]
        count = np.maximum(rows[index, walking.RECORD_COUNT], 0)
        whole, inside = count >= last - base + 1, base <= asked
        stands = np.where(classes[index] == MARKER, AT_MARKER, np.where(whole, RECORD, IN_BATCH))
        self.stands[here] = np.where(inside, np.where(count == 0, GAP, stands), GAP)
        behind = base < asked
        fewest = np.where(whole, asked - base, np.maximum(count - (last - asked + 1), 0))
        self.part[here] = np.column_stack((classes[index], fewest, np.minimum(count, asked - base), count))
        self.part[here][~behind] = -1
        self.place[here] = np.column_stack((np.full(len(index), segment), rows[index, walking.POSITION]))

    def _firsts(self, here: slice, index: np.ndarray, rows: np.ndarray, visible: np.ndarray) -> None:
        """Find the first batch from each offset on with a record for read_committed consumers."""
        none = len(rows)
        following = np.append(np.where(visible, np.arange(none), none), [none, none])
        following = np.minimum.accumulate(following[::-1])[::-1]
        if following[0] < none:
            self._found(rows[following[0]])
        for which in (0, 1):
            for number, row in zip(range(here.start, here.stop), following[index + which].tolist(), strict=True):
                if row < none:
                    self.first[number][which] = rows[row].copy()
                else:
                    self.without_first.append((number, which))

    def _found(self, row: np.ndarray) -> None:
        """Set the first batch of the offsets that lack one."""
        for number, which in self.without_first:
            self.first[number][which] = row.copy()
        self.without_first = []

    def unsure(self) -> list[tuple[int, int, int]]:
        """Return offsets that point into a compacted batch, by segment and position: only its records tell more."""
        part = self.part
        open_ones = np.flatnonzero((part[:, 0] >= 0) & (part[:, 1] != part[:, 2]) | (self.stands == IN_BATCH))
        return [(int(self.offsets[k]), int(self.place[k, 0]), int(self.place[k, 1])) for k in open_ones]

    def looked_into(self, offset: int, offsets: np.ndarray) -> None:
        """Resolve an offset by the offsets of the records in its batch."""
        k = int(np.searchsorted(self.offsets, offset))
        if self.part[k, 0] >= 0:
            self.part[k, 1:3] = int((offsets < offset).sum())
        self.stands[k] = RECORD if bool((offsets == offset).any()) else GAP

    def ahead(self, offset: int) -> RecordsAhead:
        """Return what is ahead of one of the offsets, once all batches were taken."""
        k = int(np.searchsorted(self.offsets, offset))
        if k >= self.reached:
            none = np.zeros(CLASSES, np.int64)
            return RecordsAhead(none, none, NOWHERE, 0, 0, None, -1, -1)
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
        return RecordsAhead(
            least,
            most,
            int(self.stands[k]),
            int(self.bytes[0] - self.bytes_before[k, 0]),
            stable,
            first,
            *map(int, self.place[k]),
        )

    def between(self, first: int, behind: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of each class from one of the offsets to before another, at least and at most."""
        here, beyond = self.ahead(first), self.ahead(behind)
        return np.maximum(here.least - beyond.most, 0), here.most - beyond.least


# Headers of a replica from an offset on, read again for questions about single batches.
#
# Checksums are not verified again: the audit before has reported damage.


ROWS = 512  # of a chunk of large batches: who needs a few of a segment need not look at all


def stretches(task: ReplicaTask) -> list[tuple[int, int]]:
    """Return the base offset of each segment of a replica, and the next one's; after the last one :data:`FAR`."""
    return list(pairwise([*(segment.base_offset for segment in task.replica.segments), FAR]))


def headers_of(
    task: ReplicaTask, number: int, offset: int, scans: Sequence[SegmentScan]
) -> Iterator[np.ndarray | DecodeError]:
    """Yield the batches of a segment from one at or before an offset on, or a read error.

    Of large batches on a disk only the headers are read. A segment in which the audit found something odd is read from
    its beginning: damaged fields are inferred from the batches before, and from elsewhere they might be others.
    """
    segment = task.replica.segments[number]
    start, lowest = _place(task, number, offset) if number < len(scans) and scans[number].plain else (0, -1)
    if segment.place is None and not task.place.uri and task.place.view is None:
        f = open_file(task.place, segment.name)
        if not isinstance(f, DecodeError):
            least, below = _offsets(task, number)
            with contextlib.closing(f):
                hop = HeaderHop(f, segment.size, task.limits, start, (max(least, lowest), below), ROWS)
                yield from hop.chunks()
                if hop.end == segment.size > start:
                    return
                start, lowest = (hop.end, hop.next_offset) if hop.end > start else (start, lowest)
    for chunk in _chunks(task, number, start, None, raw=False, lowest=lowest):
        yield chunk if isinstance(chunk, DecodeError) else chunk.rows


def offset_index(task: ReplicaTask, number: int) -> OffsetIndex | None:
    """Return the offset index of a segment; None without one, and where it is unreadable or not in order."""
    segment = task.replica.segments[number]
    if segment.index is None:
        return None
    data = read_file(segment.index.place or task.place, segment.index.name, limit=task.limits.small_file("index"))
    if isinstance(data, DecodeError):
        return None
    index = decode_offset_index(data, segment.base_offset, segment.index.name)[0]
    return index if (np.diff(index.offset) > 0).all() and (np.diff(index.log_position) >= 0).all() else None


def _place(task: ReplicaTask, number: int, offset: int) -> tuple[int, int]:
    """Position and offset of a batch at or before an offset, by the segment's index.

    The segment's beginning where the index has no such entry, or one that does not match the segment.
    """
    segment = task.replica.segments[number]
    if segment.place is not None or offset <= segment.base_offset or (index := offset_index(task, number)) is None:
        return 0, -1
    entry = int(np.searchsorted(index.offset, offset, "right")) - 1
    if entry < 0:
        return 0, -1
    position = int(index.log_position[entry])
    for chunk in _chunks(task, number, position, position + 1, raw=False):
        if not isinstance(chunk, DecodeError) and len(chunk.rows):
            row = chunk.rows[0]
            if int(row[walking.POSITION]) == position and int(row[walking.LAST_OFFSET]) == int(index.offset[entry]):
                return position, int(row[walking.BASE_OFFSET])
    return 0, -1


def _offsets(task: ReplicaTask, number: int) -> tuple[int, int]:
    behind = task.replica.segments[number + 1 : number + 2]
    return offset_range(task.replica.segments[number].base_offset, behind[0].base_offset if behind else -1)


def offsets_in(task: ReplicaTask, number: int, position: int) -> np.ndarray | None:
    """Return the offsets of the records in one batch; None where they cannot be read."""
    row, raw = stored_batch(task, number, position) or (None, None)
    if row is None or raw is None:
        return None
    decoded = decode_records([raw], walking.columns_of(row[None, :]), limits=task.limits)
    runs = [run for run in decoded if not run.failures]
    return np.concatenate([run.records.offset for run in runs]) if runs else None


def stored_batch(task: ReplicaTask, number: int, position: int) -> tuple[np.ndarray, bytes | None] | None:
    """Return one batch: its row of a walk and its stored bytes; None where it cannot be read.

    The bytes are None in a copy without payload.
    """
    for chunk in _chunks(task, number, position, position + 1, raw=True):
        if isinstance(chunk, DecodeError) or not len(chunk.rows):
            continue
        row = chunk.rows[0]
        if int(row[walking.POSITION]) == position:
            raw = chunk.raw[0] if chunk.raw else b""
            return row, raw if len(raw) >= min(int(row[walking.SIZE]), walking.HEADER + 1) else None
    return None


def chunks_with_bytes(task: ReplicaTask, number: int) -> Iterator[Chunk | DecodeError]:
    """Yield the chunks of a segment with verified checksums and a buffer of bytes, or a copy's sums; or an error."""
    return _chunks(task, number, 0, None, keep_bytes=True, crc=True)


def _chunks(
    task: ReplicaTask,
    number: int,
    start: int,
    stop: int | None,
    *,
    raw: bool = False,
    lowest: int = -1,
    crc: bool = False,
    keep_bytes: bool = False,
) -> Iterator[Chunk | DecodeError]:
    segment, behind = task.replica.segments[number], task.replica.segments[number + 1 : number + 2]
    f = open_file(segment.place or task.place, segment.name)
    if isinstance(f, DecodeError):
        yield f._replace(file=segment.name)
        return
    least, below = _offsets(task, number)
    if crc and isinstance(f, StoredChunks):
        f.gives_sums = True
    with contextlib.closing(f):
        try:
            chunks = read_segment(
                f,
                segment.size,
                file=segment.name,
                start=start,
                stop=stop,
                limits=task.limits,
                raw=raw,
                crc=crc,
                keep_bytes=keep_bytes,
                offsets=(max(least, lowest), below),
                context=known_of(task, number),
            )
            # Remote segments of different leaders overlap; a broker's own never do where they are sound.
            yield from before(chunks, behind[0].base_offset) if segment.place is not None and behind else chunks
        except REFUSED as error:
            yield problem(segment.name, error)._replace(file=segment.name)


# Counting with minimal reading: ranges that no offset points into are counted by sums in the facts.


def count(counts: Counts, task: ReplicaTask, scans: Sequence[SegmentScan]) -> DecodeError | None:
    """Give ``counts`` everything from its lowest offset on; return a read error if a segment cannot be read.

    ``scans``: of each segment of the replica, what an audit found. Cost: of a segment that offsets point into, the
    headers from the first to the last of them, where each offset of it has a record; of a compacted one those from its
    beginning to there, or from there to its end; of any other nothing, unless an aborted or open transaction begins in
    one and goes on in another, or it is remote or odd.
    """
    low, end = int(counts.offsets[0]), counts.end
    segments = [(number, base, min(behind, end)) for number, (base, behind) in enumerate(stretches(task))]
    segments = [(number, base, behind) for number, base, behind in segments if low < behind and base < end]
    for number, base, behind in segments:
        left = _sums(task, number, scans, behind)
        if left is not None and counts.may_pass(base, behind):
            counts.pass_over(base, behind, left)
            continue
        full = left is not None and _is_full(counts, scans[number])
        # Where less follows the lowest offset than comes before it, what follows is read to its end.
        if low - base > behind - low and not full:
            left = None
        begins_inside = full and base < low
        for rows in headers_of(task, number, low if full or left is None else base, scans):
            if isinstance(rows, DecodeError):
                if counts.next_offset >= end:  # what is behind had not been written when it was copied
                    break
                return rows
            counts.take(rows, number)
            if left is None or not len(rows):  # an empty segment, or all of it is below the lowest offset
                continue
            left = left - _of(rows) - (_before(counts, base, rows[0]) if begins_inside else 0)
            begins_inside = False
            if counts.may_pass(counts.next_offset, behind):
                counts.pass_over(counts.next_offset, behind, left)
                break
    return None


def _sums(task: ReplicaTask, number: int, scans: Sequence[SegmentScan], behind: int) -> np.ndarray | None:
    """Records, control records and bytes of a segment; None where only its batches show what counts."""
    scan = scans[number] if number < len(scans) else None
    remote = task.replica.segments[number].place is not None
    if scan is None or remote or not scan.plain or scan.next_offset > behind:
        return None
    return np.array([scan.records, scan.controls, scan.size])


def _is_full(counts: Counts, scan: SegmentScan) -> bool:
    """Whether each offset of a segment has a record, and all of its control records are known markers."""
    base, behind = scan.base_offset, scan.next_offset
    return scan.records == behind - base and scan.controls == counts.outcomes.markers_in(base, behind)


def _before(counts: Counts, base: int, row: np.ndarray) -> np.ndarray:
    """Sums of what precedes a batch in a segment of which each offset has a record."""
    base_offset = int(row[walking.BASE_OFFSET])
    return np.array([base_offset - base, counts.outcomes.markers_in(base, base_offset), row[walking.POSITION]])


def _of(rows: np.ndarray) -> np.ndarray:
    """Sums of some batches."""
    records = np.maximum(rows[:, walking.RECORD_COUNT], 0)
    controls = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES] & walking.CONTROL, 0) != 0
    return np.array([records.sum(), records[controls].sum(), rows[:, walking.SIZE].sum()])
