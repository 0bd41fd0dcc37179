"""Sums of the records that read_committed consumers get from a replica, under a secret key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import REASONS, DecodeError, Limits
from auditor.base.siphash import U64, State, absorb, begun, ended
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import mirror_maker
from auditor.connectors.codec.batches import BatchColumns, RecordColumns
from auditor.connectors.codec.primitives import le64, varint
from auditor.connectors.codec.records import UNRELIABLE, Decoded, decode_records
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.logdir.copy_view import CopyView
from auditor.facts.replica_facts import SummedRun
from auditor.replay.reading import lag_counts
from auditor.replay.reading.lag_counts import FAR, Outcomes
from auditor.replay.task import ReplicaTask

# Sums: SipHash-2-4 of the key, of the value and of the stored headers of each record. 0 stands for null, and for no
# headers. Who lacks the key cannot learn from a sum what it was made of. Partitions are first compared by sums of whole
# records in order, which stay in this comparison: SipHash-1-3, in half the time.


KEY_BYTES = 32
SIZE = 8
MODULUS = (1 << 61) - 1  # of sums in order; a prime, so that they depend on each place
MOST_RUNS = 4096  # of a segment, each with one sum
_LENGTH, _VALUE = U64(56), U64(32)  # bits below the length of a part, and below the size of a value


@kernel
def _absorb_part(v: State, data: np.ndarray, position: int, size: int, rounds: int) -> State:
    if size <= 0:
        return absorb(v, U64(0), rounds)
    if position < 0 or size > data.size - position:
        raise ValueError("a record outside of its buffer")
    rest = position + size - size % 8
    for place in range(position, rest, 8):
        v = absorb(v, U64(le64(data, place)), rounds)
    word = U64(size) << _LENGTH
    for k in range(size % 8):
        word |= U64(data[rest + k]) << U64(8 * k)
    return absorb(v, word, rounds)


@kernel
def _headers_end(data: np.ndarray, position: int) -> int:
    # The record was parsed before.
    count, position = varint(data, position, data.size)
    for _ in range(count):
        for _ in range(2):
            size, position = varint(data, position, data.size)
            position += max(size, 0)
    return position


@kernel
def sum_parts(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, key: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` with the sum of each part; a size of -1 is null, -2 are the headers from there on."""
    for k in range(starts.size):
        position, size = starts[k], sizes[k]
        if size == -2:
            size = _headers_end(data, position) - position
        out[k] = U64(0) if size < 0 else ended(_absorb_part(begun(key), data, position, size, 2), 4)


@kernel
def sum_whole(r: RecordColumns, kept: np.ndarray, key: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` with one sum of each of the ``kept`` records: of timestamp, sizes, key, value and headers."""
    to = 0
    for k in range(kept.size):
        if kept[k]:
            headers = 0
            if r.header_count[k] > 0 and r.header_start[k] >= 0:
                headers = _headers_end(r.payload, r.header_start[k]) - r.header_start[k]
            sizes = U64(r.key_size[k] + 1) | U64(r.value_size[k] + 1) << _VALUE
            v = absorb(absorb(begun(key), U64(r.timestamp[k]), 1), sizes, 1)
            v = _absorb_part(v, r.payload, r.key_start[k], r.key_size[k], 1)
            v = _absorb_part(v, r.payload, r.value_start[k], r.value_size[k], 1)
            out[to] = ended(_absorb_part(v, r.payload, r.header_start[k], headers, 1), 3)
            to += 1


_31, _30, _61, _LOW30, _LOW31, _MODULUS = map(U64, (31, 30, 61, (1 << 30) - 1, (1 << 31) - 1, MODULUS))


@kernel
def _reduced(x: U64) -> U64:
    x = (x & _MODULUS) + (x >> _61)
    return x - _MODULUS if x >= _MODULUS else x


@kernel
def fold(sums: np.ndarray, factor: U64) -> U64:
    """Return the polynomial of ``sums`` at ``factor`` modulo 2^61 - 1, the last one without a factor."""
    total, high, low = U64(0), factor >> _31, factor & _LOW31
    for k in range(sums.size):
        h, w = total >> _31, total & _LOW31
        middle = w * high + h * low
        product = h * high * U64(2) + (middle >> _30) + ((middle & _LOW30) << _31) + w * low
        total = _reduced(_reduced(product) + _reduced(sums[k]))
    return total


class RecordSummer:
    """Sums under one key of :data:`KEY_BYTES` bytes, whose ``name`` does not reveal it."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self.key = np.frombuffer(hashlib.blake2b(b"sums", key=key, digest_size=2 * SIZE).digest(), U64)
        self.factor = int.from_bytes(hashlib.blake2b(b"order", key=key, digest_size=SIZE).digest()) % MODULUS
        self.name = hashlib.blake2b(b"SipHash-2-4", key=key, digest_size=SIZE).hexdigest()

    def sums(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the sum (uint64) of each ``data[start:start + size]``; of a size of -1 it is 0."""
        out = np.empty(len(starts), U64)
        starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
        sum_parts(data, starts, sizes, self.key, out)
        return out

    def in_order(self, sums: np.ndarray) -> int:
        """Return the sum of records in order, below :data:`MODULUS`, by the sum (uint64) of each."""
        return int(fold(sums, U64(self.factor)))

    def joined(self, first: int, last: int, records: int) -> int:
        """Return the sum in order of two runs of records; ``records``: how many the last one has."""
        return (first * pow(self.factor, records, MODULUS) + last) % MODULUS

    def whole(self, run: Decoded, kept: np.ndarray) -> np.ndarray:
        """Return one sum (uint64) of each of the ``kept`` records of a run."""
        out = np.empty(np.count_nonzero(kept), U64)
        sum_whole(run.records, kept, self.key, out)
        return out

    def of_records(self, run: Decoded) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sums (int64) of keys, values and headers of a run's records."""
        r = run.records
        headers = np.where((r.header_count > 0) & (r.header_start >= 0), -2, -1)
        parts = ((r.key_start, r.key_size), (r.value_start, r.value_size), (r.header_start, headers))
        key, value, header = (self.sums(r.payload, *part).view(np.int64) for part in parts)
        return key, value, header


# Sums in a copy without payload, in place of the records of a batch: behind its header the name of the key, and the
# columns of each record as numbers of 64 bits.


_NAME = 2 * SIZE
_COLUMNS = 5  # offset, timestamp and the three sums


class SummedBatches:
    """Puts sums in place of the records of one topic's batches (:class:`auditor.connectors.codec.blanking.Blanks`).

    MirrorMaker's own topics, which have no payload, are left as they are, and batches of magic 0 and 1 get no sums.
    """

    def __init__(self, key: bytes, limits: Limits, topic: str) -> None:
        self.summer, self.limits, self.whole = RecordSummer(key), limits, mirror_maker.is_read(topic)

    def blanked(self, batches: BatchColumns, raw: list[bytes]) -> list[bytes]:
        """Return what is stored of batches, in order."""
        data = (batches.magic == 2) & (batches.attributes & walking.CONTROL == 0)
        if self.whole:
            return raw
        values, places = [stored[: walking.HEADER] for stored in raw], np.flatnonzero(data)
        some = batches.take(places)
        for run in decode_records([raw[n] for n in places.tolist()], some, limits=self.limits, payload=True):
            r, sound = run.records, run.summary.flaws & ~walking.RECORD_OFFSET_DELTA == 0
            columns = np.stack((r.offset, r.timestamp, *self.summer.of_records(run)), axis=1).astype("<i8")
            ends = np.cumsum(run.summary.present).tolist()
            for row, end in zip(range(run.rows.start, run.rows.stop), ends, strict=True):
                begin = end - int(run.summary.present[row - run.rows.start])
                if sound[row - run.rows.start]:
                    values[places[row]] += self.summer.name.encode() + columns[begin:end].tobytes()
        return values


def _stored_sums(stored: bytes, name: str) -> np.ndarray | None:
    """The columns that a copy has of a batch; None where it has none under the key of this name."""
    body = stored[walking.HEADER :]
    if body[:_NAME] != name.encode() or (len(body) - _NAME) % (8 * _COLUMNS):
        return None
    return np.frombuffer(body, "<i8", offset=_NAME).reshape(-1, _COLUMNS)


# Reading.


class SummedRecords(NamedTuple):
    """Records in offset order. ``append_time``: whether a broker set their timestamps (LogAppendTime)."""

    offset: np.ndarray  # int64
    timestamp: np.ndarray  # int64 ms
    producer_id: np.ndarray  # int64
    key_sum: np.ndarray  # int64
    value_sum: np.ndarray  # int64
    header_sum: np.ndarray  # int64
    append_time: np.ndarray  # bool


class RecordsInOrder(NamedTuple):
    """Records of consecutive offsets with one sum, that of their order too."""

    offset: np.ndarray  # int64
    producer_id: int  # as in SummedRun
    by_broker: bool  # whether a broker set the timestamp of any
    total: int


class UnreadRecords(NamedTuple):
    """Offsets whose records could not be read, and why."""

    first: int
    last: int
    reason: str


UNSURE = UNRELIABLE | walking.RECORD_COUNT_MISMATCH | walking.RECORD_UNDECOMPRESSABLE  # flaws of a batch
CRC, UNPARSED = "CRC mismatch", "records that do not parse"
LACKING = "a copy without records: make it with auditor copy --records --sum-key FILE (remote segments get no sums)"
OTHER_KEY = "a copy with sums under another key, or with records without sums: give its key by --sum-key FILE"
OLD_FORMAT = "copies have no sums of message formats 0 and 1: compare the log directories"


Summed = SummedRecords | RecordsInOrder | UnreadRecords


class RecordReading(NamedTuple):
    """Reads the records of a log from offset ``start`` to before its last stable offset ``stable``.

    Without markers, and without records of transactions that ``outcomes`` has as open or aborted; where it is None,
    runs of records are of one transaction each. ``each``: yields sums of each record, else one of many. Checksums are
    verified.
    """

    task: ReplicaTask
    start: int
    stable: int
    outcomes: Outcomes | None
    summer: RecordSummer
    each: bool

    def summed(self, segments: range) -> Iterator[Summed]:
        """Yield the records of segments, given by number, and what could not be read.

        Memory: a buffer of a segment. Cost: decompression, and a pass over keys, values and headers.
        """
        spans = lag_counts.stretches(self.task)
        for number in segments:
            base, behind = spans[number]
            if behind <= self.start or base >= self.stable:
                continue
            reached = max(base, self.start)
            size = self.task.replica.segments[number].size
            for chunk in lag_counts.chunks_with_bytes(self.task, number):
                if isinstance(chunk, DecodeError):
                    yield UnreadRecords(reached, min(behind, self.stable) - 1, f"{chunk.file}: {chunk.detail}")
                    break
                for error in chunk.errors:  # at the end of the log it may be in flight, and hides nothing
                    if error.reason != "vanished" and (behind < FAR or error.position + error.length < size):
                        yield _lost_in(error, chunk.rows, reached, min(behind, self.stable))
                yield from self.of_chunk(chunk)
                if len(chunk.rows):
                    reached = max(reached, int(chunk.rows[-1, walking.LAST_OFFSET]) + 1)

    def of_chunk(self, chunk: Chunk) -> Iterator[Summed]:
        """Yield the records of a chunk, and what could not be read."""
        rows, raw = chunk.rows, chunk.raw
        first, last = rows[:, walking.BASE_OFFSET], rows[:, walking.LAST_OFFSET]
        attributes = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES], 0)
        chosen = (last >= self.start) & (first < self.stable) & (attributes & walking.CONTROL == 0)
        inside = chosen & (attributes & walking.TRANSACTIONAL != 0)
        if self.outcomes is not None:
            chosen[inside] = self.outcomes.of(first[inside], rows[inside, walking.PRODUCER_ID]) == lag_counts.SEEN
        chosen &= rows[:, walking.RECORD_COUNT] != 0
        wrong = chosen & (rows[:, walking.FLAWS] & walking.FLAW_CRC != 0)
        for n in np.flatnonzero(wrong).tolist():
            yield UnreadRecords(int(first[n]), int(last[n]), CRC)
        places = np.flatnonzero(chosen & ~wrong)
        some = walking.columns_of(rows[places])
        if isinstance(self.task.place.view, CopyView):
            yield from self._of_copy([raw[n] if raw else b"" for n in places.tolist()], some)
            return
        for run in chunk.opened(places, some, self.task.limits):
            r = run.records
            for n in np.flatnonzero(run.summary.flaws & UNSURE).tolist():
                n += run.rows.start
                yield UnreadRecords(int(some.base_offset[n]), int(some.last_offset[n]), UNPARSED)
            kept = (r.offset >= self.start) & (r.offset < self.stable) & (r.flaws & UNRELIABLE == 0)
            by_broker = (some.attributes & walking.LOG_APPEND_TIME != 0) & (some.magic >= 1)
            if not self.each:
                whose = np.where(inside[places] & (self.outcomes is None), some.producer_id, -1)[r.batch]
                yield from self._in_order(run, kept, whose, by_broker[r.batch])
                continue
            headers = np.where(kept, r.header_count, 0)
            sums = self.summer.of_records(run._replace(records=r._replace(header_count=headers)))
            columns = (r.offset, r.timestamp, some.producer_id[r.batch], *sums, by_broker[r.batch])
            yield SummedRecords(*(column[kept] for column in columns))

    def _in_order(self, run: Decoded, kept: np.ndarray, whose: np.ndarray, by_broker: np.ndarray) -> Iterator[Summed]:
        sums, offset = self.summer.whole(run, kept), run.records.offset[kept]
        whose, by_broker = whose[kept], by_broker[kept]
        # There is a marker between transactions, so an offset is missing.
        cuts = np.flatnonzero((np.diff(whose) != 0) | ((whose[1:] >= 0) & (np.diff(offset) > 1))) + 1
        if len(cuts) > MOST_RUNS:
            yield UnreadRecords(int(offset[0]), int(offset[-1]), "too many transactions")
            return
        for begin, end in pairwise((0, *cuts.tolist(), len(offset))):
            if begin < end:
                total = self.summer.in_order(sums[begin:end])
                yield RecordsInOrder(offset[begin:end], int(whose[begin]), bool(by_broker[begin:end].any()), total)

    def _of_copy(self, raw: Sequence[bytes], some: BatchColumns) -> Iterator[Summed]:
        for n, stored in enumerate(raw):
            if (columns := _stored_sums(stored, self.summer.name)) is None:
                lacking = OLD_FORMAT if some.magic[n] < 2 else OTHER_KEY if len(stored) > walking.HEADER else LACKING
                yield UnreadRecords(int(some.base_offset[n]), int(some.last_offset[n]), lacking)
                continue
            kept = columns[(columns[:, 0] >= self.start) & (columns[:, 0] < self.stable)].astype(np.int64)
            by_broker = bool(some.attributes[n] & walking.LOG_APPEND_TIME)
            offset, timestamp, key, value, header = kept.T
            if not self.each:
                data, width = kept.view(np.uint8).ravel(), kept.itemsize * _COLUMNS
                starts = np.arange(len(kept)) * width + kept.itemsize  # behind the offset
                sums = self.summer.sums(data, starts, np.full(len(kept), width - kept.itemsize))
                yield RecordsInOrder(offset, -1, by_broker, self.summer.in_order(sums))
                continue
            producer, times = np.full(len(kept), some.producer_id[n]), np.full(len(kept), by_broker)
            yield SummedRecords(offset, timestamp, producer, key, value, header, times)


def _lost_in(error: DecodeError, rows: np.ndarray, reached: int, behind: int) -> UnreadRecords:
    """The offsets between the batches around bytes that are no batch."""
    place = int(np.searchsorted(rows[:, walking.POSITION], error.position))
    first = int(rows[place - 1, walking.LAST_OFFSET]) + 1 if place else reached
    last = int(rows[place, walking.BASE_OFFSET]) - 1 if place < len(rows) else behind - 1
    return UnreadRecords(first, max(first, last), f"{error.file}: {REASONS.get(error.reason, error.reason)}")


class SegmentSums:
    """Sums the records of a segment in order while an audit reads it; ``runs`` are those of ``SegmentScan.sums``."""

    def __init__(self, task: ReplicaTask) -> None:
        self.reading = RecordReading(task, -FAR, FAR, None, RecordSummer(task.sum_key), each=False)
        self.runs: list[SummedRun] | None = [] if task.place.view is None else None  # who made a copy chose the key

    def take(self, chunk: Chunk) -> None:
        """Add a chunk, read with its bytes."""
        if self.runs is None:
            return
        if chunk.errors or chunk.body_errors:
            self.runs = None
            return
        for one in self.reading.of_chunk(chunk):
            if not isinstance(one, RecordsInOrder) or len(self.runs) >= MOST_RUNS or not self._goes_on(one):
                self.runs = None
                return
            self._add(self.runs, one)

    def _goes_on(self, one: RecordsInOrder) -> bool:
        """Whether offsets rise, so that the first and last one of a run bound all of it."""
        after = not self.runs or int(one.offset[0]) > self.runs[-1].last
        return after and bool((np.diff(one.offset) > 0).all())

    def _add(self, runs: list[SummedRun], one: RecordsInOrder) -> None:
        first, last, records = int(one.offset[0]), int(one.offset[-1]), len(one.offset)
        run = SummedRun(first, last, one.producer_id, records, one.total, one.by_broker)
        before = runs[-1] if runs else run
        if runs and before.producer_id == run.producer_id and (run.producer_id < 0 or first == before.last + 1):
            total = self.reading.summer.joined(before.total, one.total, records)
            by_broker, run = run.by_broker or before.by_broker, runs.pop()
            run = run._replace(last=last, records=run.records + records, total=total, by_broker=by_broker)
        runs.append(run)
