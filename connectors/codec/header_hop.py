"""Large batches by their headers alone: what lies between two headers is not read, and its checksum not verified.

Only as long as nothing is odd: where an offset is missing, the leader epoch changes or a batch is no plain one, its
body is read and its checksum verified. At the first thing that does not fit the hop ends, some batches before it, and
the rest is for :func:`auditor.connectors.codec.segment.read_segment`, which knows of damage.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.base.errors import Limits
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.batch_columns import UNVERIFIED
from auditor.connectors.codec.primitives import be32
from auditor.connectors.codec.window import SeekableFile

READ = 128  # bytes at a header: a marker is in it as a whole
LARGE = 16 << 10  # bytes of a batch that are worth a leap: less is a page or two, which is read anyway
SAMPLE = 32  # batches that show whether a segment has large ones
BACK = 4  # batches before what is odd that are read again, so that their neighbours are seen
ROWS = 8_184  # of a chunk


class HeaderHop:
    """Hops over a segment from one header to the next.

    ``f``, ``size``: as of :func:`read_segment`; ``start`` and ``offsets``: a batch's position, and the offsets that are
    possible from there on; ``rows``: of a chunk. When :meth:`chunks` has ended, ``end`` and ``next_offset`` say how far
    it came, ``read`` how many bytes were read.
    """

    def __init__(
        self,
        f: SeekableFile,
        size: int,
        limits: Limits,
        start: int,
        offsets: tuple[int, int],
        rows: int = ROWS,
    ) -> None:
        self.f, self.size, self.limits = f, size, limits
        self.end, self.next_offset, self.below = start, offsets[0], offsets[1]
        self.read, self.rows = 0, rows

    def chunks(self) -> Iterator[np.ndarray]:
        """Rows of a walk, chunk by chunk; those whose checksum was not verified have :data:`UNVERIFIED`."""
        rows, count = walking.walk_rows(self.rows + BACK), 0
        at, last, whole, tried = self.end, self.next_offset - 1, False, 0
        while at < self.size:
            fits = self._header(at, last, rows, count)
            if tried == SAMPLE and at - self.end < SAMPLE * LARGE:
                return  # small batches: all of it is read anyway
            if not fits or (count and not self._goes_on(rows, count)):
                whole = True
                break
            tried += 1
            last = int(rows[count, walking.LAST_OFFSET])
            at += int(rows[count, walking.SIZE])
            count += 1
            if count == len(rows):
                yield self._out(rows[: self.rows])
                rows[:BACK] = rows[self.rows :]
                count = BACK
        if not whole and count and self._plain_end(rows, count) and self._verified(rows[count - 1]):
            yield self._out(rows[:count])
        elif count > BACK:
            yield self._out(rows[: count - BACK])

    def _out(self, rows: np.ndarray) -> np.ndarray:
        self.end = int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE])
        self.next_offset = int(rows[-1, walking.LAST_OFFSET]) + 1
        return rows.copy()

    def _bytes(self, at: int, count: int) -> np.ndarray:
        found, got = np.empty(count, np.uint8), 0
        try:
            self.f.seek(at)
            while got < count and (more := self.f.readinto(found.data[got:])):
                got += more
        except OSError:
            return found[:0]
        self.read += got
        return found[:got]

    def _header(self, at: int, last: int, rows: np.ndarray, row: int) -> bool:
        """Whether a plain batch begins at a byte behind offset ``last``, which ``row`` then is."""
        data = self._bytes(at, min(READ, self.size - at))
        if len(data) < walking.HEADER or data[walking.PREFIX - 1] != 2:
            return False
        total = int(be32(data, 8)) + walking.OVERHEAD
        if not walking.HEADER <= total <= min(self.size - at, self.limits.max_batch_bytes):
            return False
        flaws = int(walking.header_row(data, total, at, rows[row]))
        mine = rows[row]
        if flaws or not last < mine[walking.BASE_OFFSET] <= mine[walking.LAST_OFFSET] < self.below:
            return False
        if mine[walking.PARTITION_LEADER_EPOCH] < 0:
            return False
        if mine[walking.ATTRIBUTES] & walking.CONTROL or total <= READ:
            return total <= READ and bool(walking.is_sound(data, 0, total, 2))
        mine[walking.FLAWS] = UNVERIFIED
        return True

    def _goes_on(self, rows: np.ndarray, row: int) -> bool:
        """Whether a batch follows the one before it; where not directly, both their bodies are as they were written."""
        before, mine = rows[row - 1], rows[row]
        rise = mine[walking.PARTITION_LEADER_EPOCH] - before[walking.PARTITION_LEADER_EPOCH]
        if rise < 0 or (rise and row < BACK):
            return False
        hole = mine[walking.BASE_OFFSET] != before[walking.LAST_OFFSET] + 1
        return not (hole or rise) or (self._verified(before) and self._verified(mine))

    @staticmethod
    def _plain_end(rows: np.ndarray, count: int) -> bool:
        """Whether the last batch simply goes on: what contradicts nothing else has no neighbour behind it that would
        show it as damaged."""
        before, mine = rows[count - 2], rows[count - 1]
        same = mine[walking.PARTITION_LEADER_EPOCH] == before[walking.PARTITION_LEADER_EPOCH]
        return bool(count > 1 and same and mine[walking.BASE_OFFSET] == before[walking.LAST_OFFSET] + 1)

    def _verified(self, row: np.ndarray) -> bool:
        """Whether a batch has the checksum that it says, which is then known."""
        if not row[walking.FLAWS] & UNVERIFIED:
            return True
        total = int(row[walking.SIZE])
        data = self._bytes(int(row[walking.POSITION]), total)
        if len(data) < total or not walking.is_sound(data, 0, total, 2):
            return False
        row[walking.FLAWS] = 0
        return True
