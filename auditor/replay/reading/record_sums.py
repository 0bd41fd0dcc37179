"""Sums of the records that read_committed consumers get from a replica, under a secret key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError, Limits
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import mirror_maker
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.primitives import le64, varint
from auditor.connectors.codec.records import UNRELIABLE, Decoded, decode_records
from auditor.connectors.logdir.copy_view import CopyView
from auditor.replay.reading import lag_counts
from auditor.replay.reading.lag_counts import FAR, Outcomes
from auditor.replay.task import ReplicaTask

# Sums: keyed BLAKE2b (RFC 7693) with a digest of 8 bytes, as ``hashlib.blake2b(part, key=key, digest_size=8)`` makes
# them, of the key, of the value and of the stored headers of each record. 0 stands for null, and for no headers. Who
# lacks the key cannot learn from a sum what it was made of.


KEY_BYTES = 32
SIZE = 8
U64 = np.uint64
Words = tuple[U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64, U64]
_BLOCK = 128
_IV = np.array(
    [
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    ],
    U64,
)
_PARAMETERS = U64(0x01010000 | KEY_BYTES << 8 | SIZE)
_R32, _R24, _R40, _R16, _R48, _R63, _R1 = map(U64, (32, 24, 40, 16, 48, 63, 1))


@kernel
def _mix(a: U64, b: U64, c: U64, d: U64, x: U64, y: U64) -> tuple[U64, U64, U64, U64]:
    a = a + b + x
    d = d ^ a
    d = (d >> _R32) | (d << _R32)
    c = c + d
    b = b ^ c
    b = (b >> _R24) | (b << _R40)
    a = a + b + y
    d = d ^ a
    d = (d >> _R16) | (d << _R48)
    c = c + d
    b = b ^ c
    b = (b >> _R63) | (b << _R1)
    return a, b, c, d


@kernel
def _round(
    v: Words, x0: U64, x1: U64, x2: U64, x3: U64, x4: U64, x5: U64, x6: U64, x7: U64, x8: U64, x9: U64, x10: U64,
    x11: U64, x12: U64, x13: U64, x14: U64, x15: U64,
) -> Words:  # fmt: skip
    v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15 = v
    v0, v4, v8, v12 = _mix(v0, v4, v8, v12, x0, x1)
    v1, v5, v9, v13 = _mix(v1, v5, v9, v13, x2, x3)
    v2, v6, v10, v14 = _mix(v2, v6, v10, v14, x4, x5)
    v3, v7, v11, v15 = _mix(v3, v7, v11, v15, x6, x7)
    v0, v5, v10, v15 = _mix(v0, v5, v10, v15, x8, x9)
    v1, v6, v11, v12 = _mix(v1, v6, v11, v12, x10, x11)
    v2, v7, v8, v13 = _mix(v2, v7, v8, v13, x12, x13)
    v3, v4, v9, v14 = _mix(v3, v4, v9, v14, x14, x15)
    return v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15


@kernel
def _compress(h: np.ndarray, m: np.ndarray, count: U64, last: bool, iv: np.ndarray) -> None:
    m0, m1, m2, m3, m4, m5, m6, m7 = m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7]
    m8, m9, m10, m11, m12, m13, m14, m15 = m[8], m[9], m[10], m[11], m[12], m[13], m[14], m[15]
    end = ~iv[6] if last else iv[6]
    begin = h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7]
    v = (*begin, iv[0], iv[1], iv[2], iv[3], iv[4] ^ count, iv[5], end, iv[7])
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
    v = _round(v, m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3)
    v = _round(v, m11, m8, m12, m0, m5, m2, m15, m13, m10, m14, m3, m6, m7, m1, m9, m4)
    v = _round(v, m7, m9, m3, m1, m13, m12, m11, m14, m2, m6, m5, m10, m4, m0, m15, m8)
    v = _round(v, m9, m0, m5, m7, m2, m4, m10, m15, m14, m1, m11, m12, m6, m8, m3, m13)
    v = _round(v, m2, m12, m6, m10, m0, m11, m8, m3, m4, m13, m7, m5, m15, m14, m1, m9)
    v = _round(v, m12, m5, m1, m15, m14, m13, m4, m10, m0, m7, m6, m3, m9, m2, m8, m11)
    v = _round(v, m13, m11, m7, m14, m12, m1, m3, m9, m5, m0, m15, m4, m8, m6, m2, m10)
    v = _round(v, m6, m15, m14, m9, m11, m3, m0, m8, m12, m2, m13, m7, m1, m4, m10, m5)
    v = _round(v, m10, m2, m8, m4, m7, m6, m1, m5, m15, m11, m9, m14, m3, m12, m13, m0)
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
    v = _round(v, m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3)
    for k in range(8):
        h[k] ^= v[k] ^ v[k + 8]


@kernel
def _load(data: np.ndarray, position: int, end: int, m: np.ndarray) -> None:
    # The words of a block; behind the end of the part they are 0.
    for k in range(16):
        begin = position + 8 * k
        if begin + 8 <= end:
            m[k] = U64(le64(data, begin))
        else:
            word = U64(0)
            for i in range(max(end - begin, 0)):
                word |= U64(data[begin + i]) << U64(8 * i)
            m[k] = word


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
def sum_parts(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    keyed: np.ndarray,
    empty: U64,
    scratch: np.ndarray,
    iv: np.ndarray,
    out: np.ndarray,
) -> None:
    """Fill ``out`` with the sum of each part; a size of -1 is null, -2 are the headers from there on.

    ``keyed``: the state behind the block of the key; ``empty``: the sum of no bytes; ``scratch``: 24 words.
    """
    h, m = scratch[:8], scratch[8:]
    for k in range(starts.size):
        position, size = starts[k], sizes[k]
        if size == -2:
            size = _headers_end(data, position) - position
        if size < 0:
            out[k] = U64(0)
            continue
        if size == 0:
            out[k] = empty
            continue
        if position < 0 or size > data.size - position:
            raise ValueError("a record outside of its buffer")
        for i in range(8):
            h[i] = keyed[i]
        end, count = position + size, U64(_BLOCK)
        while position < end:
            _load(data, position, end, m)
            last = end - position <= _BLOCK
            count += U64(min(end - position, _BLOCK))
            _compress(h, m, count, last, iv)
            position += _BLOCK
        out[k] = h[0]


class RecordSummer:
    """Sums under one key of :data:`KEY_BYTES` bytes, whose ``name`` does not reveal it."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self._scratch = np.zeros(24, U64)
        self.keyed = _IV.copy()
        self.keyed[0] ^= _PARAMETERS
        words = np.frombuffer(bytearray(key.ljust(_BLOCK, b"\0")), U64).copy()
        _compress(self.keyed, words, U64(_BLOCK), False, _IV)
        self.name = hashlib.blake2b(b"name", key=key, digest_size=SIZE).hexdigest()
        self.empty = U64(int.from_bytes(hashlib.blake2b(b"", key=key, digest_size=SIZE).digest(), "little"))

    def sums(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the sum (uint64) of each ``data[start:start + size]``; of a size of -1 it is 0."""
        out = np.empty(len(starts), U64)
        starts, sizes = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(sizes, np.int64)
        sum_parts(data, starts, sizes, self.keyed, self.empty, self._scratch, _IV, out)
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
LACKING = "a copy without sums under this key: make it with auditor copy --records --sum-key FILE"


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
    return UnreadRecords(first, max(first, last), f"{error.file}: {error.reason}")


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
    for n in places[wrong | short].tolist():
        reason = CRC if rows[n, walking.FLAWS] & walking.FLAW_CRC else LACKING
        yield UnreadRecords(int(first[n]), int(last[n]), reason)
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
            yield UnreadRecords(int(some.base_offset[n]), int(some.last_offset[n]), LACKING)
            continue
        kept = columns[(columns[:, 0] >= span[0]) & (columns[:, 0] < span[1])].astype(np.int64)
        producer = np.full(len(kept), some.producer_id[n])
        by_broker = np.full(len(kept), some.attributes[n] & walking.LOG_APPEND_TIME != 0)
        offset, timestamp, key, value, header = kept.T
        yield SummedRecords(offset, timestamp, producer, key, value, header, by_broker)
