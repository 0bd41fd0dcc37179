"""What a broker would meet in each segment if it recovered it, gathered while the segment is read.

Follows ``LogSegment.recover`` of 4.1: batches are taken in file order until one is not whole or its checksum is wrong;
offsets matter only where the rebuilt indexes get an entry. Which batches stop a start, and what becomes of the log, is
for rules/lib/crash_recovery.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as col
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.segment import MAGIC_AT, Chunk, foreign_row
from auditor.facts.replica_facts import SegmentScan
from auditor.replay.task.batch_records import as_records

INDEX_INTERVAL_BYTES = 4096  # index.interval.bytes, its default
MAX_INT = 2**31 - 1
MAX_FATAL = 100  # of a segment
NOT_VERIFIED = "checksums of batches in it were not verified when it was copied"
MAX_FOREIGN = 1000  # batches of an unknown magic in a segment whose checksums are looked at
NOT_WHOLE = ("unreadable", "vanished", "limit", "batch_limit")  # the auditor's own limits, not the broker's
ODD_MARKER = col.FLAW_CONTROL_KEY | col.FLAW_CONTROL_VALUE | col.FLAW_CONTROL_TYPE

# The indexes that recovery rebuilds: where the last entry was made, how many and the last one's offset; the largest
# time so far with its offset; how many time entries, and the last one's time and offset.
REBUILT = np.dtype(
    [
        ("entry_position", "i8"),
        ("entries", "i8"),
        ("entry_offset", "i8"),
        ("max_time", "i8"),
        ("max_time_offset", "i8"),
        ("time_entries", "i8"),
        ("entry_time", "i8"),
        ("time_entry_offset", "i8"),
    ]
)


@kernel
def _append(batch: np.record, rebuilt: np.record) -> bool:
    """Appends to the indexes what recovery appends for a batch; False where an index refuses the offset."""
    if batch.max_timestamp > rebuilt.max_time:
        rebuilt.max_time = batch.max_timestamp
        rebuilt.max_time_offset = batch.last_offset
    if batch.position - rebuilt.entry_position <= INDEX_INTERVAL_BYTES:
        return True
    if rebuilt.entries > 0 and batch.last_offset <= rebuilt.entry_offset:
        return False
    rebuilt.entries += 1
    rebuilt.entry_offset = batch.last_offset
    if rebuilt.time_entries > 0 and rebuilt.max_time_offset < rebuilt.time_entry_offset:
        return False
    if rebuilt.max_time > rebuilt.entry_time:
        rebuilt.time_entries += 1
        rebuilt.entry_time = rebuilt.max_time
        rebuilt.time_entry_offset = rebuilt.max_time_offset
    rebuilt.entry_position = batch.position
    return True


@kernel
def _refused_row(batches: np.ndarray, stop: int, rebuilt: np.ndarray) -> int:
    """The first row before ``stop`` at which an index refuses the offset, else -1."""
    for row in range(stop):
        if not _append(batches[row], rebuilt[0]):
            return row
    return -1


@kernel
def _all_plain(batches: np.ndarray, base: int, rebuilt: np.ndarray) -> int:
    """The records of the batches where there is nothing to say of any of them, else -1 and ``rebuilt`` is spoilt."""
    records = 0
    for row in range(len(batches)):
        batch = batches[row]
        relative = batch.last_offset - base
        # Control batches without a producer id, as in __cluster_metadata, are not looked into.
        if batch.flaws & col.FLAW_CRC or (batch.flaws & ODD_MARKER and batch.producer_id >= 0):
            return -1
        if relative < 0 or relative > MAX_INT or not _append(batch, rebuilt[0]):
            return -1
        records += max(batch.record_count, 0)
    return records


class RecoveryScan:
    """The scan of one segment: chunks in, a :class:`SegmentScan` out.

    ``read`` gives the bytes of a stretch (position, length) of the segment once more, for batches of a magic that only
    the broker takes; None where they cannot be read.
    """

    def __init__(self, base_offset: int, size: int, indexed: bool, read: Callable[[int, int], bytes | None]) -> None:
        self.scan = SegmentScan(base_offset, size, indexed, base_offset)
        self.read = read
        self.foreign = 0
        self.rebuilt = np.zeros(1, REBUILT)
        self.rebuilt["max_time"] = self.rebuilt["max_time_offset"] = self.rebuilt["entry_time"] = -1
        self.rebuilt["entry_offset"] = self.rebuilt["time_entry_offset"] = base_offset

    def take(self, chunk: Chunk) -> None:
        """The next chunk: its batches and the bytes between them, in file order, with damaged fields as they are."""
        chunk = chunk.as_stored()
        rows, at = chunk.rows, 0
        if np.any(rows[:, walking.FLAWS] & col.UNVERIFIED) and not self.scan.undecided:
            self.scan.undecided = NOT_VERIFIED
        for error in sorted(chunk.errors, key=lambda e: e.position):
            behind = int(np.searchsorted(rows[:, walking.POSITION], error.position))
            self._batches(rows[at:behind])
            self._unread(error)
            at = behind
        self._batches(rows[at:])

    def finish(self) -> SegmentScan:
        """The scan, when the segment is at its end."""
        rebuilt = self.rebuilt[0]
        if rebuilt["time_entries"] > 0 and rebuilt["max_time_offset"] < rebuilt["time_entry_offset"]:
            self._refused()
        return self.scan

    def _batches(self, rows: np.ndarray) -> None:
        if not len(rows):
            return
        rebuilt = self.rebuilt.copy()
        plain = int(_all_plain(as_records(rows), self.scan.base_offset, rebuilt)) if self.scan.cut < 0 else -1
        if plain >= 0:
            self.rebuilt = rebuilt
            self.scan.records += plain
        else:
            self._odd_batches(rows)
        self.scan.next_offset = int(rows[-1, walking.LAST_OFFSET]) + 1

    def go_on(self, scan: SegmentScan, rebuilt: np.ndarray) -> None:
        """Takes over what another one had come to, of the same segment when it was smaller."""
        scan.size = self.scan.size
        self.scan, self.rebuilt = scan, rebuilt

    def _odd_batches(self, rows: np.ndarray) -> None:
        self.scan.plain = False
        b = BatchColumns(*rows.T)
        sound = b.flaws & col.FLAW_CRC == 0
        if self.scan.cut < 0:
            self._recover(rows, b, sound)
        self.scan.records += int(np.maximum(b.record_count, 0)[sound].sum())

    def _recover(self, rows: np.ndarray, b: BatchColumns, sound: np.ndarray) -> None:
        """Takes batches up to the first that recovery refuses."""
        broken = b.flaws & (col.FLAW_CONTROL_KEY | col.FLAW_CONTROL_VALUE) != 0  # such a record ends it, but stays
        ends = np.flatnonzero(~sound | (broken & (b.producer_id >= 0)))
        stop = int(ends[0]) + int(sound[ends[0]]) if len(ends) else len(b.position)
        refused = int(_refused_row(as_records(rows), stop, self.rebuilt))
        self._fatal(b, stop if refused < 0 else refused)
        if refused >= 0:
            self._refused()
        elif len(ends):
            row = int(ends[0])
            reason = "crc_mismatch" if not sound[row] else "control_record"
            after = int(b.last_offset[stop - 1]) + 1 if stop else self.scan.next_offset
            kept = int(np.maximum(b.record_count[:stop], 0).sum())
            self._cut(int(b.position[row]) + (int(b.size[row]) if sound[row] else 0), reason, after, kept)

    def _fatal(self, b: BatchColumns, stop: int) -> None:
        """Notes markers of a type that is none, and offsets that no index of this segment can hold."""
        unknown = (b.flaws[:stop] & col.FLAW_CONTROL_TYPE != 0) & (b.producer_id[:stop] >= 0)
        for row in np.flatnonzero(unknown)[: MAX_FATAL - len(self.scan.fatal)]:
            values = (b.position[row], b.base_offset[row], b.producer_id[row], b.control_type[row])
            position, offset, producer, kind = map(int, values)
            self.scan.fatal.append((position, offset, producer, kind))
        relative = b.last_offset[:stop] - self.scan.base_offset
        if np.any((relative < 0) | (relative > MAX_INT)):
            self.scan.undecided = "a batch whose offset does not belong into its segment: the broker would split it"
        beyond = np.flatnonzero(relative > MAX_INT)
        if len(beyond) and self.scan.overflow[0] < 0:
            self.scan.overflow = int(b.position[beyond[0]]), int(b.base_offset[beyond[0]])

    def _cut(self, position: int, reason: str, after: int, kept: int) -> None:
        if position < self.scan.size:  # a record refused at the very end leaves nothing to cut
            s = self.scan
            s.cut, s.cut_reason, s.cut_offset, s.cut_records = position, reason, after, s.records + kept

    def _refused(self) -> None:
        """An index refuses an offset: the broker empties the whole segment."""
        if self.scan.cut != 0 and self.scan.size:
            s = self.scan
            s.cut, s.cut_reason, s.cut_offset, s.cut_records = 0, "offsets_not_increasing", s.base_offset, 0

    def _unread(self, error: DecodeError) -> None:
        """Bytes that the auditor does not take for a batch."""
        self.scan.plain = False
        if self.scan.cut >= 0:
            return
        if error.reason in NOT_WHOLE:
            self.scan.undecided = f"bytes from {error.position} on were not read ({error.reason})"
        elif error.reason != "bad_magic" or not self._taken_by_brokers(error):
            self._cut(error.position, error.reason, self.scan.next_offset, 0)

    def _taken_by_brokers(self, error: DecodeError) -> bool:
        """Whether it is a whole batch of a magic above 2, which brokers take for 2 if its checksum is right."""
        self.foreign += 1
        data = self.read(error.position, error.length) if self.foreign <= MAX_FOREIGN else None
        if data is None or len(data) <= MAGIC_AT:
            self.scan.undecided = f"a batch of an unknown magic at byte {error.position} was not looked at"
            return True
        row = foreign_row(data, error.position)
        if row is not None:
            self._batches(row[np.newaxis])
        return row is not None
