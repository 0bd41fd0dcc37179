"""Header fields that no checksum covers, inferred from their neighbours."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import MOST_OFFSET, DamagedField, DecodeError, bounded
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import CHECKED_FROM, FLAW_CRC
from auditor.connectors.codec.gaps import FileWindow
from auditor.connectors.codec.primitives import CRC32C_TABLES, be16, be32, be64, crc32c

# Base offset, length, leader epoch and magic of a v2 batch are before its checksum. Offsets and leader epochs only rise
# within a log: a batch that contradicts its neighbours, while these are consistent without it, has a damaged field, and
# the value that fits them is used from there on. Holes of compaction contradict nothing. Length and magic decide which
# bytes are summed: with the right value the checksum is correct. Source: DefaultRecordBatch.


NAMES = {walking.BASE_OFFSET: "base offset", walking.PARTITION_LEADER_EPOCH: "leader epoch"}
BITS = {"base offset": 64, "leader epoch": 32}
MOST_CONTRADICTIONS = 1_000  # checked per segment, 0.1 ms each; later ones stay as stored
LEAP = 1 << 16  # a one-bit hole of this size before a log's last batch is damage
RISE = 8  # of the last batch's leader epoch by one bit, against the checkpoint: no election causes it
NO_EPOCH = -1


class ReadsEpochs(Protocol):
    """Reads the checkpoint of leader epochs."""

    def __call__(self) -> Sequence[tuple[int, int]]:
        """Return each epoch with its first offset."""


class SegmentContext(NamedTuple):
    """Facts about a segment from other sources.

    ``end``: the offset after its last batch, from the next segment or a clean shutdown, -1 for unknown; ``has_holes``:
    whether offsets may be missing in it; ``epochs`` reads the checkpoint of leader epochs, each with its first offset,
    which a ``clean`` shutdown wrote last.
    """

    end: int = -1
    has_holes: bool = True
    epochs: ReadsEpochs | None = None
    clean: bool = False


BATCH, END, UNKNOWN = range(3)  # what is at a position


class Around(NamedTuple):
    """A batch and its neighbours: ``row`` is -1 if it is not in the window."""

    row: int
    base: int
    last: int
    epoch: int
    kind: int = BATCH


class WrongField(NamedTuple):
    """A row with a field that should have another value; ``sure``: the neighbours allow no other."""

    row: int
    value: int
    sure: bool


@kernel
def _first_odd(rows: np.ndarray, first: int, stop: int, last: int, epoch: int) -> int:
    # The first row in [first, stop) with an offset or leader epoch below those before it, else -1.
    for row in range(first, stop):
        own = rows[row, walking.PARTITION_LEADER_EPOCH]
        if rows[row, walking.BASE_OFFSET] <= last:
            return row
        if own != NO_EPOCH:
            if own < max(epoch, 0):
                return row
            epoch = own
        last = rows[row, walking.LAST_OFFSET]
    return -1


class Mender:
    """Corrects damaged fields in the rows that a walk over a segment adds.

    ``offsets``: the lowest that the segment's first batch may have, and one above those of the whole segment. ``found``
    has an error per damaged field since the last :meth:`take`. Cost: a pass over two columns; for each contradiction,
    the next header and perhaps the batch itself are read once more.
    """

    def __init__(
        self, file: str, window: FileWindow, limit: int, offsets: tuple[int, int], context: SegmentContext
    ) -> None:
        self.file, self.window, self.limit = file, window, limit
        self.last, self.epoch, self.below, self.known = offsets[0] - 1, NO_EPOCH, offsets[1], context
        self.left, self.begins = MOST_CONTRADICTIONS, True
        self.found: list[DecodeError] = []

    def rows(self, rows: np.ndarray, first: int, stop: int, *, checked: bool) -> None:
        """Correct the rows [first, stop) that a walk added, up to the window's position. ``checked``: their flaws say
        whether the checksum is correct."""
        if first == stop:
            return
        row, last, epoch = first, self.last, self.epoch
        if self.begins and stop - first > 1:
            self._first_epoch(rows, first, stop, checked)
        while self.left:
            odd = int(_first_odd(rows, row, stop, last, epoch))
            if odd < 0:
                break
            self.left -= 1
            self._pair(rows, first, stop, odd, checked)
            row, last, epoch = odd + 1, int(rows[odd, walking.LAST_OFFSET]), self._epoch_before(rows, first, odd + 1)
        if self.left and self._may_be_odd(rows, first, stop):
            self._pair(rows, first, stop, stop, checked)
        self.last, self.epoch = int(rows[stop - 1, walking.LAST_OFFSET]), self._epoch_before(rows, first, stop)
        self.begins = False

    def take(self) -> list[DecodeError]:
        """Return and clear the damaged fields."""
        fields, self.found = self.found, []
        return fields

    def header(self, position: int, end: int) -> bool:
        """Correct length or magic of the batch at ``position`` in the window, if the checksum proves them damaged;
        return whether it did.

        ``end``: where the next sound batch starts, or the file ends. Cost: the batch is read twice at most.
        """
        head = self.window.look(position, walking.HEADER).copy()
        if len(head) < walking.HEADER:
            return False
        magic, stated = int(np.int8(head[16])), int(be32(head, 8)) + walking.OVERHEAD
        name, total = ("length", end - position) if magic == 2 else ("magic", stated)
        if not walking.HEADER <= total <= min(self.limit, self.window.size - position):
            return False
        if (magic == 2 and total == stated) or not self._sound(position, total):
            return False
        window = self.window
        window.go_to(position)
        if window.left < total:
            window.fill(total)
        window.data[window.at + 8 : window.at + 12] = np.array([total - walking.OVERHEAD], ">i4").view(np.uint8)
        window.data[window.at + 16] = 2
        base, delta = int(be64(head, 0)), int(be32(head, 23))
        stored, right = (magic, 2) if name == "magic" else (stated - walking.OVERHEAD, total - walking.OVERHEAD)
        field = DamagedField(name, stored, right, True, int(be64(head, 43)), int(be16(head, 51)))
        self.found.append(field.error(self.file, position, total, bounded(base), bounded(base + delta)))
        return True

    def _pair(self, rows: np.ndarray, first: int, stop: int, odd: int, checked: bool) -> None:
        # A contradiction between row odd and the one before it; odd is stop for the batch behind all rows.
        four = [self._around(rows, first, stop, odd + by) for by in (-2, -1, 0, 1)]
        self._settle(rows, self._base(four), walking.BASE_OFFSET, checked)
        four = [self._around(rows, first, stop, odd + by) for by in (-2, -1, 0, 1)]
        self._settle(rows, self._epoch(four), walking.PARTITION_LEADER_EPOCH, checked)

    def _settle(self, rows: np.ndarray, wrong: WrongField | None, column: int, checked: bool) -> None:
        # Only if the checksum confirms that the rest of the batch is sound.
        if wrong is None or wrong.row < 0 or not self._is_sound(rows[wrong.row], checked):
            return
        row = rows[wrong.row]
        stored = int(row[column])
        row[column] = wrong.value
        if column == walking.BASE_OFFSET:
            row[walking.LAST_OFFSET] = signed64(int(row[walking.LAST_OFFSET]) + wrong.value - stored)
        place = int(row[walking.POSITION]), int(row[walking.SIZE])
        span = int(row[walking.BASE_OFFSET]), int(row[walking.LAST_OFFSET])
        whose = int(row[walking.PRODUCER_ID]), int(row[walking.PRODUCER_EPOCH])
        field = DamagedField(NAMES[column], stored, wrong.value, wrong.sure, *whose)
        self.found.append(field.error(self.file, *place, *span))

    @functools.cached_property
    def _starts(self) -> Sequence[tuple[int, int]]:
        return () if self.known.epochs is None else self.known.epochs()

    def _checkpointed(self, one: Around) -> int:
        number = bisect.bisect_right([start for _, start in self._starts], one.base) - 1
        return self._starts[number][0] if number >= 0 else NO_EPOCH

    def _first_epoch(self, rows: np.ndarray, first: int, stop: int, checked: bool) -> None:
        # A leader epoch that is too low in the first batch contradicts only the checkpoint.
        own, behind = (self._around(rows, first, stop, row) for row in (first, first + 1))
        if own.epoch < behind.epoch and own.epoch != NO_EPOCH:
            right = self._checkpointed(own)
            if own.epoch < right <= behind.epoch and _one_bit(own.epoch, right):
                wrong = WrongField(first, right, right == behind.epoch)
                self._settle(rows, wrong, walking.PARTITION_LEADER_EPOCH, checked)

    def _epoch(self, four: list[Around]) -> WrongField | None:
        # By the checkpoint if it confirms one of the two, else by their neighbours.
        q, p, r, n = four
        if r.kind == END:
            right, rise = self._checkpointed(p), p.epoch - max(q.epoch, 0)
            odd = q.epoch <= right < p.epoch and _one_bit(p.epoch, right) and (self.known.clean or rise >= RISE)
            return WrongField(p.row, right, self.known.clean) if odd and right != NO_EPOCH else None
        if r.kind == BATCH and NO_EPOCH not in (p.epoch, r.epoch) and r.epoch < p.epoch:
            high, low = self._checkpointed(p), self._checkpointed(r)
            if high < p.epoch and low == r.epoch and q.epoch <= high <= r.epoch:
                return WrongField(p.row, high, True)
            if low > r.epoch and high == p.epoch and p.epoch <= low and (n.epoch == NO_EPOCH or low <= n.epoch):
                return WrongField(r.row, low, True)
        return _epoch(four)

    def _around(self, rows: np.ndarray, first: int, stop: int, row: int) -> Around:
        if row < first:
            return Around(-1, self.last, self.last, self.epoch)
        if row < stop:
            columns = (walking.BASE_OFFSET, walking.LAST_OFFSET, walking.PARTITION_LEADER_EPOCH)
            return Around(row, *(int(rows[row, column]) for column in columns))
        return self._ahead(int(rows[stop - 1, walking.POSITION] + rows[stop - 1, walking.SIZE]), row - stop)

    def _ahead(self, position: int, steps: int) -> Around:
        # The header so many batches after the rows, or the segment's end.
        if position >= self.window.size:
            return Around(-1, self.known.end, -1, NO_EPOCH, END if not steps else UNKNOWN)
        head = self.window.look(position, walking.HEADER)
        if len(head) < walking.HEADER or head[16] != 2 or (size := int(be32(head, 8))) < walking.MIN_SIZES[2]:
            return Around(-1, -1, -1, NO_EPOCH, UNKNOWN)
        base, delta, epoch = int(be64(head, 0)), int(be32(head, 23)), int(be32(head, 12))
        return Around(-1, base, base + delta, epoch) if not steps else self._ahead(position + size + 12, steps - 1)

    def _may_be_odd(self, rows: np.ndarray, first: int, stop: int) -> bool:
        # If the last row simply continues, the header after it need not be read.
        before, own = (self._around(rows, first, stop, row) for row in (stop - 2, stop - 1))
        return own.base != before.last + 1 or own.epoch != before.epoch

    def _epoch_before(self, rows: np.ndarray, first: int, stop: int) -> int:
        epoch = int(rows[stop - 1, walking.PARTITION_LEADER_EPOCH])
        return epoch if epoch != NO_EPOCH else self.epoch

    def _base(self, four: list[Around]) -> WrongField | None:
        # Either the batch before is too high, or the one behind too low.
        q, p, r, n = four
        behind = self.below if r.kind == END and r.base < 0 else r.base
        if r.kind == UNKNOWN or p.last < behind:
            return self._leap(q, p) if r.kind == END and r.base < 0 else None
        high = list(_shifted(p, q.last + 1, behind)) if p.base > q.last + 1 else []
        low = list(_shifted(r, p.last + 1, -1 if n.kind == UNKNOWN else n.base)) if r.kind == BATCH else []
        return _only(high, low)

    def _leap(self, q: Around, p: Around) -> WrongField | None:
        # The last batch of a log has no neighbour behind it: only a leap by a power of two is suspicious.
        leap = p.base - q.last - 1
        odd = leap >= (LEAP if self.known.has_holes else 1) and _one_bit(p.base, q.last + 1)
        return WrongField(p.row, q.last + 1, False) if odd else None

    def _is_sound(self, row: np.ndarray, checked: bool) -> bool:
        if row[walking.MAGIC] != 2 or row[walking.FLAWS] & FLAW_CRC:
            return False
        return checked or self._sound(int(row[walking.POSITION]), int(row[walking.SIZE]))

    def _sound(self, position: int, total: int) -> bool:
        data = self.window.look(position, total)
        return len(data) == total and walking.is_sound(data, 0, total, 2)


def _shifted(one: Around, least: int, behind: int) -> Iterator[WrongField]:
    # The base offset that leaves no hole, or those that differ in one bit; behind: the start of the next batch, -1 for
    # unknown.
    length = one.last - one.base
    if behind < 0:
        if _one_bit(one.base, least):
            yield WrongField(one.row, least, False)
        return
    if least + length + 1 == behind:
        yield WrongField(one.row, least, True)
        return
    for value in _neighbours(one.base, "base offset"):
        if least <= value and value + length < behind:
            yield WrongField(one.row, value, False)


def _only(high: list[WrongField], low: list[WrongField]) -> WrongField | None:
    # Sure explanations come before possible ones; two of a kind are none.
    fitting = [w for w in (*high, *low) if abs(w.value) <= MOST_OFFSET]  # beyond it nothing is an offset
    candidates = [w for w in fitting if w.sure] or fitting
    return candidates[0] if len(candidates) == 1 else None


def _epoch(four: list[Around]) -> WrongField | None:
    # Either the batch before is too high, or the one behind too low.
    q, p, r, n = (neighbour.epoch for neighbour in four)
    above, below = four[1].row, four[2].row
    if r < NO_EPOCH and four[2].kind == BATCH:  # the sign bit was flipped
        positive = r + (1 << 31)
        fits = p <= positive and (n == NO_EPOCH or positive <= n)
        return WrongField(below, positive, positive in (p, n)) if fits else None
    if NO_EPOCH in (p, r) or r >= p or four[2].kind != BATCH:
        return None
    if n == NO_EPOCH:  # the last batch: only if the one before it fits its own predecessor
        if q == r:
            return WrongField(above, r, True)
        return WrongField(below, p, False) if q > r and _one_bit(r, p) else None
    if q == NO_EPOCH:  # the first batch
        return WrongField(above, r, False) if n == r and _one_bit(r, p) else _only([], list(_between(below, r, p, n)))
    return _only(list(_between(above, p, q, r)), list(_between(below, r, p, n)))


def _between(row: int, stored: int, least: int, most: int) -> Iterator[WrongField]:
    if least == most:
        yield WrongField(row, least, True)
    elif least < most:
        yield from (WrongField(row, v, False) for v in _neighbours(stored, "leader epoch") if least <= v <= most)


def _neighbours(value: int, name: str) -> Iterator[int]:
    bits = BITS[name]
    for bit in range(bits):
        other = (value & ((1 << bits) - 1)) ^ (1 << bit)
        if other < 1 << (bits - 1):
            yield other


def signed64(value: int) -> int:
    """Wrap a number to a signed one of 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _one_bit(a: int, b: int) -> bool:
    return ((a ^ b) & ((1 << 64) - 1)).bit_count() == 1


# The one flipped bit that explains a CRC mismatch.
#
# CRC-32C is linear: the checksums of two batches that differ in one bit differ by a pattern of that bit's place alone,
# and no two bits of a batch below 256 MiB have the same pattern. So at most one bit explains a mismatch. Damage of many
# bits looks like one flipped bit by chance about once in 2^32 / bits batches.


STORED_AT = CHECKED_FROM - 4  # byte of a batch at which its checksum is stored
MOST_BYTES = 1 << 18  # of a batch to search
BYTES_IN_ALL = 1 << 23  # of the batches searched while a segment is read
MOST_FLIPPED = 100  # flipped bits noted while a segment is read
_ONES = 0xFFFFFFFF


_TABLE: list[int] = CRC32C_TABLES[0].tolist()
_BY_TOP_BYTE = {state >> 24: index for index, state in enumerate(_TABLE)}
_LAST_BYTE = {_TABLE[1 << bit]: bit for bit in range(8)}  # bit of the last byte by the checksum's change


def flipped_bit(batch: np.ndarray) -> tuple[int, int] | None:
    """Return byte and bit (0: the lowest) of a stored batch of magic 2 whose inversion makes its checksum correct.

    None if no single bit does, and for a batch above :data:`MOST_BYTES`. Cost: one step per byte, from the end.
    """
    size = len(batch)
    if not CHECKED_FROM < size <= MOST_BYTES:
        return None
    stored = int.from_bytes(batch[STORED_AT:CHECKED_FROM].tobytes(), "big")
    change = stored ^ int(crc32c(batch, CHECKED_FROM, size)) & _ONES
    if change.bit_count() == 1:
        bit = change.bit_length() - 1
        return STORED_AT + 3 - bit // 8, bit % 8
    for position in range(size - 1, CHECKED_FROM - 1, -1):
        if change in _LAST_BYTE:
            return position, _LAST_BYTE[change]
        index = _BY_TOP_BYTE[change >> 24]  # drop the last byte, which is equal in both
        change = (change ^ _TABLE[index]) << 8 & _ONES | index
    return None
