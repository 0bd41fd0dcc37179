"""From the batch and record lines of a segment's dump to :class:`BatchColumns`, and a list of what text cannot show."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec import batch_columns as col
from auditor.connectors.codec.batch_columns import BATCH_DTYPES, BatchColumns

_CODECS = {b"no": 0, b"none": 0, b"gzip": 1, b"snappy": 2, b"lz4": 3, b"zstd": 4}
_CONTROL_NAMES = {b"LeaderChange": 2, b"SnapshotHeader": 3, b"SnapshotFooter": 4, b"KRaftVersion": 5, b"KRaftVoters": 6}
_LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL, _HORIZON = 0x08, 0x10, 0x20, 0x40
_LIMITS = {
    name: (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, dtype in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
}

Match = re.Match[bytes]


@dataclass(slots=True)
class Row:
    """One batch; the names and meanings of :class:`BatchColumns`."""

    position: int = -1
    size: int = -1
    magic: int = 2
    attributes: int = 0
    base_offset: int = -1
    last_offset: int = -1
    record_count: int = -1
    partition_leader_epoch: int = -1
    crc: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    control_type: int = -1
    coordinator_epoch: int = -1
    flaws: int = 0

    def fits(self) -> bool:
        """Whether every number fits its column; a garbled line may hold any."""
        return all(_LIMITS[item.name][0] <= getattr(self, item.name) <= _LIMITS[item.name][1] for item in fields(self))

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch."""
        return bool(self.attributes & _CONTROL)


class Batches(NamedTuple):
    """What a dump shows of a segment. ``cannot_show``: names of columns that are unknown or guessed in some row.

    ``cut``: records were shown, but not all of the last batch.
    """

    columns: BatchColumns
    cannot_show: frozenset[str]
    cut: bool


class SegmentBuilder:
    """Takes the lines of one segment in order. A line whose numbers fit no column is refused (False)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._cannot_show: set[str] = set()
        self._seen = 0  # records shown of the last batch
        self._shows_records = False
        self._deep = False  # records without batch lines: batches are guessed from equal positions

    def batch(self, line: Match) -> bool:
        """A batch of magic 2."""
        row = _row(line, "position", "size", "magic", "base_offset", "last_offset", "partition_leader_epoch", "crc")
        _fill(row, line, "producer_id", "producer_epoch", "base_sequence")
        codec = _codec(line)
        if codec is None:
            return False
        _header(row, line, codec)
        row.max_timestamp = int(line["timestamp"])
        row.record_count = row.last_offset - row.base_offset + 1
        if line["record_count"] is None:
            self._cannot_show.add("record_count")
        else:
            row.record_count = int(line["record_count"])
        if line["delete_horizon"] is not None:
            row.base_timestamp = int(line["delete_horizon"])
            row.attributes |= _HORIZON
        if line["control"] is None:
            self._cannot_show.add("is_control")
            # Data of a producer has a sequence, a marker has none.
            if row.producer_id >= 0 and row.base_sequence < 0:
                row.attributes |= _CONTROL
        elif line["control"] == b"true":
            row.attributes |= _CONTROL
        self._cannot_show.add("base_timestamp")
        return self._add(row)

    def legacy_batch(self, line: Match) -> bool:
        """A message or wrapper of magic 0 or 1; a wrapper's first offset comes with its records, if they are shown."""
        row = _row(line, "position", "size", "magic", "last_offset", "crc")
        codec = _codec(line)
        if codec is None or row.magic not in (0, 1):
            return False
        _header(row, line, codec)
        row.base_offset = row.last_offset
        row.base_timestamp = row.max_timestamp = int(line["timestamp"])
        row.record_count = 1 if codec == 0 else 0  # a wrapper's records are counted as they come
        return self._add(row)

    def record(self, line: Match) -> bool:
        """A record of the batch above it: control records show their type, legacy ones the wrapper's first offset."""
        offset = int(line["offset"])
        if not self.rows:
            return True  # the dump begins in the middle of a batch
        self._seen += 1
        self._shows_records = True
        row = self.rows[-1]
        before = replace(row)
        if not row.base_offset <= offset <= row.last_offset and row.magic == 2:
            return False
        if row.magic < 2 and row.attributes & 0x07:
            row.base_offset = min(row.base_offset, offset)
            row.record_count += 1
        if row.is_control:
            _control(row, line)
        return self._fits(before)

    def deep_record(self, line: Match) -> bool:
        """A record of a release that prints no batch lines in deep mode: records at one position are one batch."""
        offset, position = int(line["offset"]), int(line["position"])
        self._deep = True
        if self.rows and self.rows[-1].position == position:
            row = self.rows[-1]
            before = replace(row)
            row.last_offset = offset
            row.record_count += 1
            row.crc = 0
        else:
            row = _row(line, "position", "magic", "producer_id", "producer_epoch")
            row.base_offset = row.last_offset = offset
            row.record_count = 1
            row.base_sequence = int(line["sequence"] or -1)
            row.crc = int(line["crc"] or 0)
            codec = _codec(line)
            if codec is None:
                return False
            _header(row, line, codec)
            if row.magic == 2 and row.producer_id >= 0 and row.base_sequence < 0:
                row.attributes |= _CONTROL
            if not self._add(row):
                return False
            before = replace(row)
        row.max_timestamp = max(row.max_timestamp, int(line["timestamp"] or -1))
        if line["valid"] == b"false":
            row.flaws |= col.FLAW_CRC
        if line["producer_id"] is not None and line["producer_epoch"] is None:
            self._cannot_show.add("producer_epoch")
        if row.is_control:
            _control(row, line)
        return self._fits(before)

    def build(self) -> Batches:
        """The batches so far."""
        if self._deep:
            self._cannot_show |= {
                "size",
                "crc",
                "partition_leader_epoch",
                "last_offset",
                "base_timestamp",
                "compression",
            }
            for row, following in zip(self.rows, self.rows[1:], strict=False):
                row.size = min(max(following.position - row.position, -1), _LIMITS["size"][1])
        for row in self.rows:
            if row.magic < 2 and row.attributes & 0x07 and row.record_count == 0:
                row.record_count = 1
                row.flaws |= col.FLAW_LEGACY_WRAPPER
            if row.magic == 2:
                row.flaws |= _flaws(row)
        if any(row.is_control and row.control_type < 0 for row in self.rows):
            self._cannot_show |= {"control_type", "coordinator_epoch"}
        cut = self._shows_records and bool(self.rows) and self._seen < self.rows[-1].record_count
        return Batches(columns(self.rows), frozenset(self._cannot_show), cut)

    def _fits(self, before: Row) -> bool:
        """Whether the last row still fits after a line was added to it; if not, it becomes what it was ``before``."""
        if self.rows[-1].fits():
            return True
        self.rows[-1] = before
        return False

    def _add(self, row: Row) -> bool:
        if not row.fits():
            return False
        self.rows.append(row)
        self._seen = 0
        return True


def columns(rows: list[Row]) -> BatchColumns:
    """Rows as columns."""
    return BatchColumns(
        *(
            np.array([getattr(row, name) for row in rows], dtype)
            for name, dtype in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
        )
    )


def _row(line: Match, *names: str) -> Row:
    row = Row()
    _fill(row, line, *names)
    return row


def _fill(row: Row, line: Match, *names: str) -> None:
    """Set the columns that the line shows."""
    for name in names:
        if line[name] is not None:
            setattr(row, name, int(line[name]))


def _codec(line: Match) -> int | None:
    """The codec's number by any of the names it had; None for no known one."""
    return _CODECS.get(line["codec"].lower().removesuffix(b"compressioncodec"))


def _header(row: Row, line: Match, codec: int) -> None:
    """Attributes and checksum as the line says them."""
    groups = line.groupdict()
    row.attributes |= codec
    if groups["time_label"] == b"LogAppendTime":
        row.attributes |= _LOG_APPEND_TIME
    if groups.get("transactional") == b"true":
        row.attributes |= _TRANSACTIONAL
    if b"false" in (groups.get("valid"), groups.get("valid_early")):
        row.flaws |= col.FLAW_CRC


def _control(row: Row, line: Match) -> None:
    """The type of a control record, and the coordinator epoch of an end marker."""
    if line["marker"] is not None:
        row.control_type = int(line["marker"] == b"COMMIT")
        row.coordinator_epoch = int(line["coordinator_epoch"])
    elif line["control_type"] is not None:
        row.control_type = int(line["control_type"])
    elif line["control_name"] is not None:
        row.control_type = _CONTROL_NAMES[line["control_name"]]


def _flaws(row: Row) -> int:
    """The FLAW_* bits that the fields of a magic 2 header show."""
    flaws = 0
    span = row.last_offset - row.base_offset + 1
    flaws |= col.FLAW_NEGATIVE_SPAN * (span < 1 or row.record_count < 0)
    flaws |= col.FLAW_COUNT_ABOVE_SPAN * (row.record_count > span >= 1)
    flaws |= col.FLAW_COUNT_BELOW_SPAN * (0 <= row.record_count < span)
    if row.producer_id < 0:
        fields_set = row.producer_epoch >= 0 or row.base_sequence >= 0 or row.attributes & _TRANSACTIONAL
        flaws |= col.FLAW_NO_PRODUCER_FIELDS * bool(fields_set)
    else:
        flaws |= col.FLAW_PRODUCER_EPOCH * (row.producer_epoch < 0)
    if not row.is_control:
        return flaws | col.FLAW_PRODUCER_SEQUENCE * (row.producer_id >= 0 > row.base_sequence)
    flaws |= col.FLAW_CONTROL_NO_PRODUCER * (row.producer_id < 0)
    flaws |= col.FLAW_CONTROL_SEQUENCE * (row.base_sequence >= 0)
    flaws |= col.FLAW_CONTROL_RECORDS * (row.record_count > 1)
    flaws |= col.FLAW_CONTROL_NOT_TRANSACTIONAL * (not row.attributes & _TRANSACTIONAL)
    flaws |= col.FLAW_CONTROL_TYPE * (row.control_type > 1)
    return flaws | col.FLAW_CONTROL_COMPRESSED * bool(row.attributes & 0x07)
