"""Sums of a long replica's batches, and offsets of unverified batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError
from auditor.base.siphash import U64, absorb, begun, ended

# Long replicas are compared by a keyed sum of each range of 256 offsets, in place of their headers.
#
# Two replicas with equal sums of a range have the same batches there, equal in all compared columns. A sum is that,
# modulo 2^64, of SipHash-1-3 of each batch's columns, under a random key of the driver that no output contains: nobody
# who writes a log can search for different batches with an equal sum (Aumasson and Bernstein, "SipHash: a fast
# short-input PRF", 2012), and accidental collisions have a probability of 1 in 2^64. Because it is a sum, adjacent
# ranges are merged when there are too many: memory is bounded by :data:`MAX_RANGES` and :data:`MAX_RUNS`, 6 MiB.

# The columns in a sum: those that a comparison of replicas uses, and the place of the batch.
SUMMED = (
    "base_offset",
    "last_offset",
    "crc",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "magic",
    "crc_ok",
    "position",
    "segment",
)
BASE_OFFSET, LAST_OFFSET, CRC, LEADER_EPOCH, PRODUCER, PRODUCER_EPOCH, SEQUENCE, MAGIC, CRC_OK, POSITION = range(10)
_AT = np.arange(10)
KEY_BYTES = 16
MOST_KEPT = 1_000_000  # batches of a replica whose headers are kept, in 10 to 17 MB; longer logs are summed
SHIFT = 8  # a range has 2^8 offsets at first, so that one of large records can be read again fast
MAX_RANGES = 65_536
MAX_RUNS = 65_536  # of leader epochs
FIRST_ROOM = 1_024
# A range: its number (offset >> shift), batches, first base offset, highest last offset, sum, batches with a wrong
# checksum, and where the first batch is.
OF_RANGE = ("number", "batches", "first", "last", "digest", "unsound", "segment", "position")
RANGE = np.dtype([(name, "i8") for name in OF_RANGE])
OF_RUN = ("epoch", "first", "last")  # a leader epoch, base offsets of its first and last sound batch
RUN = np.dtype([(name, "i8") for name in OF_RUN])
RANGES, RUNS, ORDERED, REACH, WIDTH, ALL, ALL_DIGEST = range(7)  # of a state; ALL: batches, once out of order
_LENGTH = U64(40 << 56)
_LOW32, _LOW16, _LOW8 = U64(0xFFFFFFFF), U64(0xFFFF), U64(0xFF)
_16, _24, _32 = U64(16), U64(24), U64(32)


class HeaderFiles(Protocol):
    """Reads headers of a replica's segments again. Plain data, so that it can be pickled."""

    def read(
        self, number: int, start: int, stop: int | None, lowest: int
    ) -> Iterator[dict[str, np.ndarray] | DecodeError]:
        """Yield the batches that start between two bytes of a segment, in parts, by column as the first pass kept them.

        Yields an error, and nothing after it, if the file cannot be read. ``start``: the first byte of a batch without
        an offset below ``lowest``. Raises nothing about its input.
        """

    def size(self, number: int) -> int:
        """Size in bytes of a segment as it was listed."""


@kernel
def siphash(key: np.ndarray, w0: U64, w1: U64, w2: U64, w3: U64, w4: U64) -> U64:
    """SipHash-1-3 of five words of 64 bits under a key of two (all uint64)."""
    v = begun(key)
    for word in (w0, w1, w2, w3, w4, _LENGTH):
        v = absorb(v, word, 1)
    return ended(v, 3)


@kernel
def _digest(batches: np.ndarray, columns: np.ndarray, i: int, ok: int, key: np.ndarray) -> U64:
    # Checksums of magic 0 and 1 are replaced by 0: replicas need not share them.
    magic = batches[i, columns[MAGIC]]
    crc = U64(batches[i, columns[CRC]]) if magic == 2 else U64(0)
    epoch = U64(batches[i, columns[LEADER_EPOCH]]) & _LOW32
    small = (U64(batches[i, columns[PRODUCER_EPOCH]]) & _LOW16) | ((U64(magic) & _LOW8) << _16)
    sequence = U64(batches[i, columns[SEQUENCE]]) << _32
    return siphash(
        key,
        U64(batches[i, columns[BASE_OFFSET]]),
        U64(batches[i, columns[LAST_OFFSET]]),
        (crc << _32) | epoch,
        U64(batches[i, columns[PRODUCER]]),
        small | (U64(ok) << _24) | sequence,
    )


@kernel
def _add(
    batches: np.ndarray,
    columns: np.ndarray,
    wrong: int,
    key: np.ndarray,
    segment: int,
    begin: int,
    ranges: np.ndarray,
    runs: np.ndarray,
    state: np.ndarray,
) -> int:
    # Returns the first batch that did not fit or is out of order, else the number of batches. wrong: bits of column
    # CRC_OK that mean a CRC mismatch.
    row, run = state[RANGES] - 1, state[RUNS] - 1
    for i in range(begin, len(batches)):
        base, last = batches[i, columns[BASE_OFFSET]], batches[i, columns[LAST_OFFSET]]
        if last < base or base <= state[REACH]:
            state[ORDERED] = 0
            return i
        ok = np.int64(batches[i, columns[CRC_OK]] & wrong == 0)
        epoch = batches[i, columns[LEADER_EPOCH]]
        tells = ok == 1 and batches[i, columns[MAGIC]] == 2 and epoch >= 0
        fresh = tells and (run < 0 or runs[run, 0] != epoch)
        number = base >> state[WIDTH]
        begins = row < 0 or ranges[row, 0] != number
        if (begins and row + 1 == len(ranges)) or (fresh and run + 1 == len(runs)):
            return i
        if begins:
            row += 1
            state[RANGES] = row + 1
            ranges[row] = 0
            ranges[row, 0], ranges[row, 2] = number, base
            ranges[row, 6], ranges[row, 7] = segment, batches[i, columns[POSITION]]
        ranges[row, 1] += 1
        ranges[row, 3] = last
        ranges[row, 4] += np.int64(_digest(batches, columns, i, ok, key))
        ranges[row, 5] += 1 - ok
        if fresh:
            run += 1
            state[RUNS] = run + 1
            runs[run, 0], runs[run, 1] = epoch, base
        if tells:
            runs[run, 2] = base
        state[REACH] = last
    return len(batches)


@kernel
def _add_all(
    batches: np.ndarray, columns: np.ndarray, wrong: int, key: np.ndarray, begin: int, state: np.ndarray
) -> None:
    for i in range(begin, len(batches)):
        ok = np.int64(batches[i, columns[CRC_OK]] & wrong == 0)
        state[ALL] += 1
        state[ALL_DIGEST] += np.int64(_digest(batches, columns, i, ok, key))


class SumsStored(NamedTuple):
    """Attributes of sums."""

    key: bytes
    files: HeaderFiles | None
    state: np.ndarray
    ranges: np.ndarray
    runs: np.ndarray


class BatchSums:
    """The sums of one replica's ranges, in the order of its log, and the leader epochs of its sound batches.

    ``ordered``: the batches follow each other without overlap and their epochs fit; otherwise only the sum of all of
    them is meaningful. ``files`` reads the headers again where sums differ.
    """

    stored_as = SumsStored

    def __init__(self, key: bytes, shift: int = SHIFT) -> None:
        self.key = key
        self.files: HeaderFiles | None = None
        self._state = np.array([0, 0, 1, -1, shift, 0, 0], np.int64)
        self._ranges = np.empty((FIRST_ROOM, len(OF_RANGE)), np.int64)
        self._runs = np.empty((FIRST_ROOM, len(OF_RUN)), np.int64)

    def at_rest(self) -> SumsStored:
        """See :mod:`auditor.facts.arrow_codec`."""
        return SumsStored(self.key, self.files, self._state, self._ranges, self._runs)

    @classmethod
    def restored(cls, stored: SumsStored) -> BatchSums:
        """Return what was stored. Errors: ValueError for numbers that no sums have."""
        sums = cls(stored.key)
        sums.files, sums._state, sums._ranges, sums._runs = stored[1:]
        sizes = (len(sums.key), sums._state.shape, sums._ranges.shape[1:], sums._runs.shape[1:])
        if sizes != (KEY_BYTES, (7,), (len(OF_RANGE),), (len(OF_RUN),)):
            raise ValueError("other sums")
        ranges, runs, width = sums._state[[RANGES, RUNS, WIDTH]].tolist()
        if not (0 <= ranges <= len(sums._ranges) and 0 <= runs <= len(sums._runs) and 0 <= width < 64):
            raise ValueError("more sums than there are")
        return sums

    @property
    def ordered(self) -> bool:
        """Whether the sums of single ranges are meaningful."""
        return bool(self._state[ORDERED])

    @property
    def total(self) -> tuple[int, int]:
        """The number of batches and their sum."""
        if self.ordered or not self._state[ALL]:
            return int(self.ranges["batches"].sum()), int(self.ranges["digest"].sum())
        return int(self._state[ALL]), int(self._state[ALL_DIGEST])

    @property
    def shift(self) -> int:
        """A range has 2^shift offsets."""
        return int(self._state[WIDTH])

    def add(self, batches: np.ndarray, columns: np.ndarray, wrong: int, segment: int) -> None:
        """Add batches, one row each (int64).

        ``columns``: the columns of :data:`SUMMED` (int64); ``wrong``: the bits of the one for ``crc_ok`` that mean a
        CRC mismatch. Cost: see docs/memory.md.
        """
        key, begin = np.frombuffer(self.key, np.uint64), 0
        while self.ordered:
            begin = _add(batches, columns, wrong, key, segment, begin, self._ranges, self._runs, self._state)
            if begin == len(batches):
                return
            self._make_room()
            if not self.ordered:
                self._state[[ALL, ALL_DIGEST]] = self.total
        _add_all(batches, columns, wrong, key, begin, self._state)

    def add_columns(self, columns: dict[str, np.ndarray]) -> None:
        """Add batches by column, :data:`SUMMED`."""
        batches = np.empty((len(columns["base_offset"]), len(_AT)), np.int64)
        for k, name in enumerate(SUMMED[: len(_AT)]):
            batches[:, k] = columns[name] == 0 if k == CRC_OK else columns[name]
        segments = columns["segment"]
        cuts = (np.flatnonzero(segments[1:] != segments[:-1]) + 1).tolist()
        for start, stop in itertools.pairwise([0, *cuts, len(batches)] if len(batches) else []):
            self.add(batches[start:stop], _AT, 1, int(segments[start]))

    def append(self, more: BatchSums) -> None:
        """Append the sums of the batches that follow in the log, under the same key."""
        first = more.ranges["first"][:1]
        if not (self.ordered and more.ordered) or (len(first) and first[0] <= self._state[REACH]):
            self._state[[ALL, ALL_DIGEST]] = np.array(self.total) + np.array(more.total)
            self._state[ORDERED] = 0
            return
        shift = max(self.shift, more.shift)
        ranges = np.concatenate([wide(one.ranges, shift - one.shift) for one in (self, more)])
        ranges = wide(ranges, 0)  # the last range of one may be the first of the other
        while len(ranges) > MAX_RANGES:
            shift, ranges = shift + 1, wide(ranges, 1)
        self._ranges = np.concatenate([ranges.view(np.int64).reshape(-1, len(OF_RANGE)), _room(OF_RANGE)])
        self._append_runs(more.runs)
        self._state[[RANGES, WIDTH]] = len(ranges), shift
        self._state[REACH] = max(self._state[REACH], more._state[REACH])
        if self._state[RUNS] > MAX_RUNS:
            self._state[[ALL, ALL_DIGEST]] = self.total
            self._state[ORDERED] = 0

    def _append_runs(self, more: np.ndarray) -> None:
        runs = self.runs
        if len(runs) and len(more) and runs["epoch"][-1] == more["epoch"][0]:
            runs["last"][-1] = more["last"][0]
            more = more[1:]
        runs = np.concatenate([runs, more])
        self._runs = np.concatenate([runs.view(np.int64).reshape(-1, len(OF_RUN)), _room(OF_RUN)])
        self._state[RUNS] = len(runs)

    def _make_room(self) -> None:
        if self._state[RUNS] == len(self._runs):
            if len(self._runs) >= MAX_RUNS:
                self._state[ORDERED] = 0
                return
            self._runs = _longer(self._runs, MAX_RUNS)
        if self._state[RANGES] == len(self._ranges):
            if len(self._ranges) < MAX_RANGES:
                self._ranges = _longer(self._ranges, MAX_RANGES)
            else:
                self._widen()

    def _widen(self) -> None:
        self._state[WIDTH] += 1
        wider = wide(self.ranges, 1)
        self._state[RANGES] = len(wider)
        self._ranges[: len(wider)] = wider.view(np.int64).reshape(-1, len(OF_RANGE))

    @property
    def ranges(self) -> np.ndarray:
        """A row of :data:`RANGE` for each range that has batches."""
        return self._ranges[: self._state[RANGES]].copy().view(RANGE).reshape(-1)

    @property
    def runs(self) -> np.ndarray:
        """A row of :data:`RUN` for each run of sound batches of one leader epoch."""
        return self._runs[: self._state[RUNS]].copy().view(RUN).reshape(-1)

    def pack(self) -> None:
        """Release unused memory, after the last batch."""
        self._ranges = self._ranges[: max(1, self._state[RANGES])].copy()
        self._runs = self._runs[: max(1, self._state[RUNS])].copy()


def _room(columns: Sequence[str]) -> np.ndarray:
    return np.zeros((FIRST_ROOM, len(columns)), np.int64)  # at least one row, even if none is used


def _longer(rows: np.ndarray, most: int) -> np.ndarray:
    return np.concatenate([rows, np.empty((min(len(rows), most - len(rows)), rows.shape[1]), rows.dtype)])


def wide(ranges: np.ndarray, by: int) -> np.ndarray:
    """Merge ranges into ranges of 2^by times their width."""
    if not len(ranges):
        return ranges
    numbers = ranges["number"] >> by
    starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    widened = ranges[starts]
    widened["number"] = numbers[starts]
    for name in ("batches", "digest", "unsound"):
        widened[name] = np.add.reduceat(ranges[name], starts)
    widened["last"] = np.maximum.reduceat(ranges["last"], starts)
    return widened


def places_in(columns: Sequence[str]) -> np.ndarray:
    """The positions of :data:`SUMMED` among the columns of a walk's rows: of one segment, with ``flaws`` for
    ``crc_ok``."""
    names = ["flaws" if name == "crc_ok" else name for name in SUMMED[: len(_AT)]]
    return np.array([list(columns).index(name) for name in names], np.int64)


# Offset ranges of batches whose checksum was not verified: conclusions from them are inconclusive.


MOST = 256  # ranges of a log; above this, neighbours are merged


def joined(ranges: list[tuple[int, int]], first: np.ndarray, last: np.ndarray) -> list[tuple[int, int]]:
    """Add the offsets of batches to ranges, in the order of the log; adjacent ranges are merged."""
    begins = np.ones(len(first), bool)
    begins[1:] = first[1:] != last[:-1] + 1
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(first)) - 1
    merged = list(ranges)
    for a, b in zip(first[starts].tolist(), last[ends].tolist(), strict=True):
        if merged and merged[-1][1] + 1 == a:
            merged[-1] = merged[-1][0], b
        else:
            merged.append((a, b))
    if len(merged) > MOST:
        merged = [
            (min(pair)[0], max(end for _, end in pair))
            for pair in (merged[k : k + 2] for k in range(0, len(merged), 2))
        ]
    return merged


def touches(ranges: list[tuple[int, int]], first: int | None, last: int | None) -> bool:
    """Whether a range overlaps the offsets from ``first`` to ``last``; without ``first``, whether there is a range at
    all."""
    if first is None or not ranges:
        return bool(ranges)
    return any(a <= max(first, first if last is None else last) and first <= b for a, b in ranges)
