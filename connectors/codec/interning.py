"""Byte strings that come again and again, each kept once and known by a number: ids, groups, lists of partitions.

The numbers count up from 0 in the order in which the strings first came. Memory: the distinct bytes, about 30 bytes
more a string, and never more than ``limit`` bytes of strings.
"""

from __future__ import annotations

import itertools
import os

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.primitives import le64

LEAST_SLOTS = 1 << 10
COUNT, USED = 0, 1  # of Interner.meta
FULL = -1  # in place of a number: the string is new, and there is no room for it


@kernel
def _hash(data: np.ndarray, start: int, size: int, seed: np.uint64) -> np.uint64:
    h = seed ^ np.uint64(size)
    at, end = start, start + size
    while at + 8 <= end:
        h = (h ^ np.uint64(le64(data, at))) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        at += 8
    while at < end:
        h = (h ^ np.uint64(data[at])) * np.uint64(0x9E3779B97F4A7C15)
        at += 1
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@kernel
def _same(data: np.ndarray, start: int, arena: np.ndarray, begin: int, size: int) -> bool:
    k = 0
    while k + 8 <= size:
        if le64(data, start + k) != le64(arena, begin + k):
            return False
        k += 8
    while k < size:
        if data[start + k] != arena[begin + k]:
            return False
        k += 1
    return True


@kernel
def intern_one(
    data: np.ndarray,
    start: int,
    size: int,
    limit: int,
    seed: np.uint64,
    slots: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    arena: np.ndarray,
    meta: np.ndarray,
) -> np.int64:
    """The number of ``data[start:start + size]``; FULL where it is new and the limit is reached."""
    h = _hash(data, start, size, seed)
    mask = len(slots) - 1
    at = np.int64(h & np.uint64(mask))
    while slots[at] >= 0:
        code = slots[at]
        begin = ends[code]
        if hashes[code] == h and ends[code + 1] - begin == size and _same(data, start, arena, begin, size):
            return np.int64(code)
        at = (at + 1) & mask
    used = meta[USED]
    if used + size > limit:
        return np.int64(FULL)
    code = meta[COUNT]
    slots[at], hashes[code] = code, h
    for k in range(size):
        arena[used + k] = data[start + k]
    ends[code + 1] = used + size
    meta[COUNT], meta[USED] = code + 1, used + size
    return np.int64(code)


@kernel
def _intern(
    data: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    limit: int,
    seed: np.uint64,
    slots: np.ndarray,
    hashes: np.ndarray,
    ends: np.ndarray,
    arena: np.ndarray,
    meta: np.ndarray,
    out: np.ndarray,
) -> None:
    for k in range(len(starts)):
        out[k] = intern_one(data, starts[k], sizes[k], limit, seed, slots, hashes, ends, arena, meta)


@kernel
def _rehash(hashes: np.ndarray, count: int, slots: np.ndarray) -> None:
    mask = len(slots) - 1
    for code in range(count):
        at = np.int64(hashes[code] & np.uint64(mask))
        while slots[at] >= 0:
            at = (at + 1) & mask
        slots[at] = code


class Interner:
    """A growing dictionary of byte strings. Which slots they take follows a random seed, so no input can choose it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self.slots = np.full(LEAST_SLOTS, -1, np.int32)
        self.hashes = np.empty(LEAST_SLOTS // 2, np.uint64)
        self.ends = np.zeros(LEAST_SLOTS // 2 + 1, np.int64)
        self.arena = np.empty(1 << 16, np.uint8)
        self.meta = np.zeros(2, np.int64)

    def __len__(self) -> int:
        return int(self.meta[COUNT])

    def codes(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """The number (int64) of each ``data[start:start + size]``, FULL where the limit is reached."""
        out = np.empty(len(starts), np.int64)
        self._make_room(len(starts), int(sizes.sum()))
        _intern(
            data, starts, sizes, self.limit, self.seed, self.slots, self.hashes, self.ends, self.arena, self.meta, out
        )
        return out

    def code(self, text: bytes) -> int:
        """The number of one string."""
        data = np.frombuffer(bytearray(text), np.uint8)
        return int(self.codes(data, np.zeros(1, np.int64), np.full(1, len(text), np.int64))[0])

    def _make_room(self, more: int, size: int) -> None:
        count, used = int(self.meta[COUNT]), int(self.meta[USED])
        if count + more > len(self.hashes):
            room = max(count + more, len(self.hashes) * 3 // 2)
            self.hashes = np.append(self.hashes[:count], np.empty(room - count, np.uint64))
            self.ends = np.append(self.ends[: count + 1], np.empty(room - count, np.int64))
        if (count + more) * 2 > len(self.slots):
            self.slots = np.full(1 << ((count + more) * 2 - 1).bit_length(), -1, np.int32)
            _rehash(self.hashes, count, self.slots)
        need = min(used + size, max(self.limit, used))
        if need > len(self.arena):
            room = min(max(need, len(self.arena) * 3 // 2), max(self.limit, need))
            self.arena = np.append(self.arena[:used], np.empty(room - used, np.uint8))

    def bytes_of(self, code: int) -> bytes:
        """The string of a number."""
        return self.arena[self.ends[code] : self.ends[code + 1]].tobytes()

    def texts(self) -> list[str]:
        """All strings as text, by number; bytes that are no UTF-8 as in Java."""
        data = self.arena[: self.meta[USED]].tobytes()
        ends = self.ends[: len(self) + 1].tolist()
        return [data[start:end].decode("utf-8", "replace") for start, end in itertools.pairwise(ends)]
