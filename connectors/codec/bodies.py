"""The plain bodies of batches, so many at a time that a compiled kernel is called once for many batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from auditor.base.errors import MIB, Limits
from auditor.connectors.codec.batch import CODEC_MASK, HEADER
from auditor.connectors.codec.batch_columns import BatchColumns
from auditor.connectors.codec.compression import NONE, Failure, counted, decompress, decompress_into
from auditor.connectors.codec.legacy import compressed_part

RUN_BYTES = 2 * MIB  # of plain bodies at a time: a core's own cache holds them until they are read


class Bodies(NamedTuple):
    """Plain bodies: that of batch ``rows[i]`` is ``data[starts[i]:ends[i]]``; of an uncompressed message, the whole.

    ``stop``: all batches before this row have been reported, here, before, or as failures.
    """

    data: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    stop: int


def runs(sizes: np.ndarray) -> Iterator[slice]:
    """Cut rows of these sizes in bytes into runs that stay within RUN_BYTES where more than one row is in them."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + RUN_BYTES, side="right")))
        yield slice(start, stop)
        start = stop


class _Arena:
    """Room for plain bodies, used again and again."""

    def __init__(self) -> None:
        self.data = np.empty(RUN_BYTES, np.uint8)
        self.used = 0
        self.rows: list[int] = []
        self.starts: list[int] = []

    def add(self, row: int, codec: int, stored: np.ndarray, magic: int, limits: Limits) -> int | Failure | None:
        """Decompress one more body; None where only the room is too small."""
        cap = limits.decompressed_cap(len(stored))
        room = min(cap, RUN_BYTES - self.used)
        size = decompress_into(codec, stored, self.data[self.used : self.used + room], magic=magic)
        if isinstance(size, Failure) and size.reason == "bomb_limit" and room < cap:
            return None
        size = counted(size, len(stored), limits)
        if isinstance(size, Failure):
            return size
        self.rows.append(row)
        self.starts.append(self.used)
        self.used += size
        return size

    def empty(self, stop: int) -> Bodies:
        """All bodies in it; it begins anew with the next one added."""
        starts = np.array(self.starts, np.int64)
        full = Bodies(self.data, np.array(self.rows, np.int64), starts, np.append(starts[1:], self.used), stop)
        self.rows, self.starts, self.used = [], [], 0
        return full


def plain_bodies(
    buf: np.ndarray, origin: int, batches: BatchColumns, limits: Limits, failures: list[tuple[int, Failure]]
) -> Iterator[Bodies]:
    """The bodies of ``batches`` in the order of rows; once at least, and ``stop`` of the last is the number of rows.

    ``buf`` holds the stored bytes, ``origin`` is the file position of ``buf[0]``. What comes is valid until the next
    one. Batches that cannot be opened are added to ``failures`` by row. Where all are stored plain, they are not moved.
    Memory: 2 MiB, or the largest body.
    """
    starts = batches.position - origin
    ends = starts + batches.size
    plain = (batches.attributes & CODEC_MASK == 0) | ((batches.magic == 2) & (batches.record_count <= 0))
    if plain.all():
        yield Bodies(buf, np.arange(len(plain)), starts + HEADER * (batches.magic == 2), ends, len(plain))
        return
    arena = _Arena()
    codecs = np.where(plain, NONE, batches.attributes & CODEC_MASK)
    for row, (codec, magic, start, end) in enumerate(
        zip(codecs.tolist(), batches.magic.tolist(), starts.tolist(), ends.tolist(), strict=True)
    ):
        stored = buf[start:end] if codec == NONE and magic < 2 else compressed_part(buf[start:end], magic)
        if isinstance(stored, Failure):
            failures.append((row, stored))
            continue
        size = arena.add(row, codec, stored, magic, limits)
        if size is None and arena.rows:
            yield arena.empty(row)
            size = arena.add(row, codec, stored, magic, limits)
        if size is None:
            alone = decompress(codec, stored, magic=magic, limits=limits)
            if not isinstance(alone, Failure):
                yield Bodies(alone, np.array([row]), np.array([0]), np.array([len(alone)]), row + 1)
                continue
            size = alone
        if isinstance(size, Failure):
            failures.append((row, size))
    yield arena.empty(len(plain))
