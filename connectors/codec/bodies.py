"""The plain bodies of batches, so many at a time that a compiled kernel is called once for many batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from connectors.codec.batch import CODEC_MASK, HEADER
from connectors.codec.columns import BatchColumns
from connectors.codec.compression import Failure, decompress, decompress_into
from connectors.codec.legacy import compressed_part
from connectors.limits import MIB, Limits

ARENA = 4 * MIB


class Bodies(NamedTuple):
    """Plain bodies: that of batch ``rows[i]`` is ``data[starts[i]:ends[i]]``; of an uncompressed message, the whole."""

    data: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class _Arena:
    """Room for decompressed bodies, used again and again."""

    def __init__(self) -> None:
        self.data = np.empty(ARENA, np.uint8)
        self.used = 0
        self.rows: list[int] = []
        self.starts: list[int] = []

    def add(self, row: int, codec: int, stored: np.ndarray, magic: int, limits: Limits) -> int | Failure | None:
        """Decompress one more body; None where only the room is too small."""
        cap = limits.decompressed_cap(len(stored))
        room = min(cap, ARENA - self.used)
        size = decompress_into(codec, stored, self.data[self.used : self.used + room], magic=magic)
        if isinstance(size, Failure):
            return None if size.reason == "bomb_limit" and room < cap else size
        self.rows.append(row)
        self.starts.append(self.used)
        self.used += size
        return size

    def empty(self) -> Bodies:
        """All bodies in it; it begins anew with the next one added."""
        starts = np.array(self.starts, np.int64)
        full = Bodies(self.data, np.array(self.rows, np.int64), starts, np.append(starts[1:], self.used))
        self.rows, self.starts, self.used = [], [], 0
        return full


def plain_bodies(
    buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits, failures: list[tuple[int, Failure]]
) -> Iterator[Bodies]:
    """The bodies of ``batches``: first those stored plain, then the others, decompressed, each in the order of rows.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. What comes is valid until the next
    one. Batches that cannot be opened are added to ``failures`` by row. Memory: an arena of 4 MiB, or the largest body.
    """
    starts = batches.position - origin
    ends = starts + batches.size
    plain = (batches.attributes & CODEC_MASK == 0) | ((batches.magic == 2) & (batches.record_count <= 0))
    rows = np.flatnonzero(plain)
    yield Bodies(buf, rows, starts[rows] + HEADER * (batches.magic[rows] == 2), ends[rows])
    arena = _Arena()
    for row in np.flatnonzero(~plain).tolist():
        codec, magic = int(batches.attributes[row]) & CODEC_MASK, int(batches.magic[row])
        stored = compressed_part(buf[starts[row] : ends[row]], magic)
        if isinstance(stored, Failure):
            failures.append((row, stored))
            continue
        size = arena.add(row, codec, stored, magic, limits)
        if size is None and arena.rows:
            yield arena.empty()
            size = arena.add(row, codec, stored, magic, limits)
        if size is None:
            alone = decompress(codec, stored, magic=magic, limits=limits)
            if not isinstance(alone, Failure):
                yield Bodies(alone, np.array([row]), np.array([0]), np.array([len(alone)]))
                continue
            size = alone
        if isinstance(size, Failure):
            failures.append((row, size))
    yield arena.empty()
