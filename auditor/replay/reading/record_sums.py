"""Sums of the records that read_committed consumers get from a replica, under a secret key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import REASONS, DecodeError, Limits
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import mirror_maker
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.primitives import le64, varint
from auditor.connectors.codec.records import UNRELIABLE, Decoded, decode_records
from auditor.connectors.logdir.copy_view import CopyView
from auditor.replay.reading import lag_counts
from auditor.replay.reading.lag_counts import FAR, Outcomes
from auditor.replay.task import ReplicaTask

# Sums: SipHash-2-4 (Aumasson and Bernstein, 2012), an authentication code of 8 bytes for short messages, of the key, of
# the value and of the stored headers of each record. 0 stands for null, and for no headers. Who lacks the key cannot
# learn from a sum what it was made of.


KEY_BYTES = 32
SIZE = 8
U64 = np.uint64
Words = tuple[U64, U64, U64, U64]
_BEGIN = np.frombuffer(b"uespemosmodnarodarenegylsetybdet", U64)
_R13, _R16, _R17, _R21, _R32, _R43, _R47, _R48, _R51 = map(U64, (13, 16, 17, 21, 32, 43, 47, 48, 51))
_LENGTH, _END = U64(56), U64(0xFF)


@kernel
def _round(v: Words) -> Words:
    v0, v1, v2, v3 = v
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = ((v1 << _R13) | (v1 >> _R51)) ^ v0, ((v3 << _R16) | (v3 >> _R48)) ^ v2
    v0, v2 = ((v0 << _R32) | (v0 >> _R32)) + v3, v2 + v1
    v1, v3 = ((v1 << _R17) | (v1 >> _R47)) ^ v2, ((v3 << _R21) | (v3 >> _R43)) ^ v0
    return v0, v1, (v2 << _R32) | (v2 >> _R32), v3


@kernel
def _absorb(v: Words, word: U64) -> Words:
    v0, v1, v2, v3 = _round(_round((v[0], v[1], v[2], v[3] ^ word)))
    return v0 ^ word, v1, v2, v3


@kernel
def _ended(v: Words) -> U64:
    v0, v1, v2, v3 = _round(_round(_round(_round((v[0], v[1], v[2] ^ _END, v[3])))))
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def _sum(data: np.ndarray, position: int, size: int, begin: Words) -> U64:
    v, rest = begin, position + size - size % 8
    for place in range(position, rest, 8):
        v = _absorb(v, U64(le64(data, place)))
    word = U64(size) << _LENGTH
    for k in range(size % 8):
        word |= U64(data[rest + k]) << U64(8 * k)
    return _ended(_absorb(v, word))


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
def sum_parts(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, begin: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` with the sum of each part; a size of -1 is null, -2 are the headers from there on.

    ``begin``: the four words with which a sum begins.
    """
    words = begin[0], begin[1], begin[2], begin[3]
    for k in range(starts.size):
        position, size = starts[k], sizes[k]
        if size == -2:
            size = _headers_end(data, position) - position
        if size < 0:
            out[k] = U64(0)
            continue
        if size and (position < 0 or size > data.size - position):
            raise ValueError("a record outside of its buffer")
        out[k] = _sum(data, position, size, words)


@kernel
def sum_in_order(before: U64, factor: U64, begin: np.ndarray, columns: np.ndarray) -> U64:
    """Return ``before`` continued by the sum of each row of numbers, so that it depends on their order."""
    for k in range(len(columns)):
        v = begin[0], begin[1], begin[2], begin[3]
        for word in columns[k]:
            v = _absorb(v, U64(word))
        before = before * factor + _ended(v)
    return before


class RecordSummer:
    """Sums under one key of :data:`KEY_BYTES` bytes, whose ``name`` does not reveal it.

    ``factor``: of sums of several records in order. That of two runs of records is ``first * factor**n + last`` modulo
    2**64, where the last run has ``n`` records.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        words = np.frombuffer(hashlib.blake2b(b"sums", key=key, digest_size=2 * SIZE).digest(), U64)
        self.begin = _BEGIN ^ np.tile(words, 2)
        self.factor = int.from_bytes(hashlib.blake2b(b"order", key=key, digest_size=SIZE).digest()) | 1
        self.name = hashlib.blake2b(b"SipHash-2-4", key=key, digest_size=SIZE).hexdigest()

    def sums(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the sum (uint64) of each ``data[start:start + size]``; of a size of -1 it is 0."""
        out = np.empty(len(starts), U64)
        starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
        sum_parts(data, starts, sizes, self.begin, out)
        return out

    def in_order(self, before: int, records: SummedRecords) -> int:
        """Return the sum ``before`` of the records before, continued by further ones."""
        columns = np.stack((records.timestamp, records.key_sum, records.value_sum, records.header_sum), axis=1)
        return int(sum_in_order(U64(before), U64(self.factor), self.begin, columns))

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


def _of_copy(stored: bytes, name: str) -> np.ndarray | None:
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


class UnreadRecords(NamedTuple):
    """Offsets whose records could not be read, and why."""

    first: int
    last: int
    reason: str


CRC, UNPARSED = "CRC mismatch", "records that do not parse"
LACKING = "a copy without records: make it with auditor copy --records --sum-key FILE (remote segments get no sums)"
OTHER_KEY = "a copy with sums under another key, or with records without sums: give its key by --sum-key FILE"
OLD_FORMAT = "copies have no sums of message formats 0 and 1: compare the log directories"


def summed_records(
    task: ReplicaTask, segments: range, start: int, stable: int, outcomes: Outcomes, key: bytes
) -> Iterator[SummedRecords | UnreadRecords]:
    """Yield the records from ``start`` to before the last stable offset ``stable``, and what could not be read.

    ``segments``: numbers of those to read. Without markers, and without records of transactions that ``outcomes`` has
    as open or aborted. Checksums are verified. Memory: a chunk of a segment. Cost: decompression, and a pass over keys,
    values and headers.
    """
    summer = RecordSummer(key)
    spans = lag_counts.stretches(task)
    copied = isinstance(task.place.view, CopyView)
    for number in segments:
        base, behind = spans[number]
        if behind <= start or base >= stable:
            continue
        reached = max(base, start)
        size = task.replica.segments[number].size
        for chunk in lag_counts.chunks_with_bytes(task, number):
            if isinstance(chunk, DecodeError):
                yield UnreadRecords(reached, min(behind, stable) - 1, f"{chunk.file}: {chunk.detail}")
                break
            for error in chunk.errors:  # at the end of the log it may be in flight, and hides nothing
                if error.reason != "vanished" and (behind < FAR or error.position + error.length < size):
                    yield _lost_in(error, chunk.rows, reached, min(behind, stable))
            yield from _of_chunk(chunk.rows, chunk.raw or (), task, (start, stable), outcomes, summer, copied=copied)
            if len(chunk.rows):
                reached = max(reached, int(chunk.rows[-1, walking.LAST_OFFSET]) + 1)


def _lost_in(error: DecodeError, rows: np.ndarray, reached: int, behind: int) -> UnreadRecords:
    """The offsets between the batches around bytes that are no batch."""
    place = int(np.searchsorted(rows[:, walking.POSITION], error.position))
    first = int(rows[place - 1, walking.LAST_OFFSET]) + 1 if place else reached
    last = int(rows[place, walking.BASE_OFFSET]) - 1 if place < len(rows) else behind - 1
    return UnreadRecords(first, max(first, last), f"{error.file}: {REASONS.get(error.reason, error.reason)}")


def _of_chunk(
    rows: np.ndarray,
    raw: Sequence[bytes],
    task: ReplicaTask,
    span: tuple[int, int],
    outcomes: Outcomes,
    summer: RecordSummer,
    *,
    copied: bool,
) -> Iterator[SummedRecords | UnreadRecords]:
    first, last = rows[:, walking.BASE_OFFSET], rows[:, walking.LAST_OFFSET]
    attributes = np.where(rows[:, walking.MAGIC] == 2, rows[:, walking.ATTRIBUTES], 0)
    chosen = (last >= span[0]) & (first < span[1]) & (attributes & walking.CONTROL == 0)
    inside = chosen & (attributes & walking.TRANSACTIONAL != 0)
    chosen[inside] = outcomes.of(first[inside], rows[inside, walking.PRODUCER_ID]) == lag_counts.SEEN
    chosen &= rows[:, walking.RECORD_COUNT] != 0
    places = np.flatnonzero(chosen)
    wrong = rows[places, walking.FLAWS] & walking.FLAW_CRC != 0
    short = np.array([len(raw[n]) <= walking.HEADER for n in places.tolist()] if raw else [True] * len(places), bool)
    short &= copied | (rows[places, walking.MAGIC] == 2)
    for n in places[wrong | short].tolist():
        lacking = LACKING if rows[n, walking.MAGIC] == 2 else OLD_FORMAT
        yield UnreadRecords(int(first[n]), int(last[n]), CRC if rows[n, walking.FLAWS] & walking.FLAW_CRC else lacking)
    places = places[~(wrong | short)]
    some = walking.columns_of(rows[places])
    if copied:
        yield from _from_copy([raw[n] for n in places.tolist()], some, span, summer.name)
        return
    for run in decode_records([raw[n] for n in places.tolist()], some, limits=task.limits, payload=True):
        r = run.records
        for n in np.flatnonzero(run.summary.flaws & (UNRELIABLE | walking.RECORD_COUNT_MISMATCH)).tolist():
            n += run.rows.start
            yield UnreadRecords(int(some.base_offset[n]), int(some.last_offset[n]), UNPARSED)
        kept = (r.offset >= span[0]) & (r.offset < span[1]) & (r.flaws & UNRELIABLE == 0)
        sums = summer.of_records(run._replace(records=r._replace(header_count=np.where(kept, r.header_count, 0))))
        by_broker = (some.attributes & walking.LOG_APPEND_TIME != 0) & (some.magic >= 1)
        columns = (r.offset, r.timestamp, some.producer_id[r.batch], *sums, by_broker[r.batch])
        yield SummedRecords(*(column[kept] for column in columns))


def _from_copy(
    raw: Sequence[bytes], some: BatchColumns, span: tuple[int, int], name: str
) -> Iterator[SummedRecords | UnreadRecords]:
    for n, stored in enumerate(raw):
        if (columns := _of_copy(stored, name)) is None:
            yield UnreadRecords(int(some.base_offset[n]), int(some.last_offset[n]), OTHER_KEY)
            continue
        kept = columns[(columns[:, 0] >= span[0]) & (columns[:, 0] < span[1])].astype(np.int64)
        producer = np.full(len(kept), some.producer_id[n])
        by_broker = np.full(len(kept), some.attributes[n] & walking.LOG_APPEND_TIME != 0)
        offset, timestamp, key, value, header = kept.T
        yield SummedRecords(offset, timestamp, producer, key, value, header, by_broker)
