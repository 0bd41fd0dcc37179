"""Output of ``kafka-dump-log.sh``, parsed section by section."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as col
from auditor.connectors.codec.batches import BATCH_DTYPES, BatchColumns
from auditor.connectors.text import lines
from auditor.connectors.text.internal_topics import looks_decoded

# From the batch and record lines of a segment's dump to :class:`BatchColumns`.


_CODECS = {b"no": 0, b"none": 0, b"gzip": 1, b"snappy": 2, b"lz4": 3, b"zstd": 4}
_CONTROL_NAMES = {b"LeaderChange": 2, b"SnapshotHeader": 3, b"SnapshotFooter": 4, b"KRaftVersion": 5, b"KRaftVoters": 6}
_LIMITS = {
    name: (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, dtype in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
}

Match = re.Match[bytes]


@dataclass(slots=True)
class BatchRow:
    """One batch; names and meanings as in :class:`BatchColumns`."""

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
        """Whether every number fits its column; those of a garbled line may not."""
        return all(_LIMITS[item.name][0] <= getattr(self, item.name) <= _LIMITS[item.name][1] for item in fields(self))

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch."""
        return bool(self.attributes & col.CONTROL)


class Batches(NamedTuple):
    """The batches of a segment in a dump. ``cannot_show``: columns that are unknown or guessed in some row.

    ``cut``: records are shown, but not all of the last batch.
    """

    columns: BatchColumns
    cannot_show: frozenset[str]
    cut: bool


class SegmentBuilder:
    """Collects the lines of one segment in order; returns False for a line whose numbers fit no column."""

    def __init__(self) -> None:
        self.rows: list[BatchRow] = []
        self._cannot_show: set[str] = set()
        self._shown = 0  # records shown of the last batch
        self._shows_records = False
        self._deep = False  # records without batch lines: batches are guessed from equal positions

    def batch(self, line: Match) -> bool:
        """Add a batch of magic 2."""
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
            row.attributes |= col.DELETE_HORIZON
        if line["control"] is None:
            self._cannot_show.add("is_control")
            # Data of a producer has a sequence, a marker has none.
            if row.producer_id >= 0 and row.base_sequence < 0:
                row.attributes |= col.CONTROL
        elif line["control"] == b"true":
            row.attributes |= col.CONTROL
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
        self._shown += 1
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
        """Add a record of a release without batch lines in deep mode: records at one position are one batch."""
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
                row.attributes |= col.CONTROL
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
        cut = self._shows_records and bool(self.rows) and self._shown < self.rows[-1].record_count
        return Batches(columns(self.rows), frozenset(self._cannot_show), cut)

    def _fits(self, before: BatchRow) -> bool:
        # If the last row no longer fits, restores it to before.
        if self.rows[-1].fits():
            return True
        self.rows[-1] = before
        return False

    def _add(self, row: BatchRow) -> bool:
        if not row.fits():
            return False
        self.rows.append(row)
        self._shown = 0
        return True


def columns(rows: list[BatchRow]) -> BatchColumns:
    """Rows as columns."""
    return BatchColumns(
        *(
            np.array([getattr(row, name) for row in rows], dtype)
            for name, dtype in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)
        )
    )


def _row(line: Match, *names: str) -> BatchRow:
    row = BatchRow()
    _fill(row, line, *names)
    return row


def _fill(row: BatchRow, line: Match, *names: str) -> None:
    for name in names:
        if line[name] is not None:
            setattr(row, name, int(line[name]))


def _codec(line: Match) -> int | None:
    # By any name in any release; None for an unknown one.
    return _CODECS.get(line["codec"].lower().removesuffix(b"compressioncodec"))


def _header(row: BatchRow, line: Match, codec: int) -> None:
    groups = line.groupdict()
    row.attributes |= codec
    if groups["time_label"] == b"LogAppendTime":
        row.attributes |= col.LOG_APPEND_TIME
    if groups.get("transactional") == b"true":
        row.attributes |= col.TRANSACTIONAL
    if b"false" in (groups.get("valid"), groups.get("valid_early")):
        row.flaws |= col.FLAW_CRC


def _control(row: BatchRow, line: Match) -> None:
    if line["marker"] is not None:
        row.control_type = int(line["marker"] == b"COMMIT")
        row.coordinator_epoch = int(line["coordinator_epoch"])
    elif line["control_type"] is not None:
        row.control_type = int(line["control_type"])
    elif line["control_name"] is not None:
        row.control_type = _CONTROL_NAMES[line["control_name"]]


def _flaws(row: BatchRow) -> int:
    # The FLAW_* bits that the fields of a magic 2 header show.
    flaws = 0
    span = row.last_offset - row.base_offset + 1
    flaws |= col.FLAW_NEGATIVE_SPAN * (span < 1 or row.record_count < 0)
    flaws |= col.FLAW_COUNT_ABOVE_SPAN * (row.record_count > span >= 1)
    flaws |= col.FLAW_COUNT_BELOW_SPAN * (0 <= row.record_count < span)
    if row.producer_id < 0:
        fields_set = row.producer_epoch >= 0 or row.base_sequence >= 0 or row.attributes & col.TRANSACTIONAL
        flaws |= col.FLAW_NO_PRODUCER_FIELDS * bool(fields_set)
    else:
        flaws |= col.FLAW_PRODUCER_EPOCH * (row.producer_epoch < 0)
    if not row.is_control:
        return flaws | col.FLAW_PRODUCER_SEQUENCE * (row.producer_id >= 0 > row.base_sequence)
    flaws |= col.FLAW_CONTROL_NO_PRODUCER * (row.producer_id < 0)
    flaws |= col.FLAW_CONTROL_SEQUENCE * (row.base_sequence >= 0)
    flaws |= col.FLAW_CONTROL_RECORDS * (row.record_count > 1)
    flaws |= col.FLAW_CONTROL_NOT_TRANSACTIONAL * (not row.attributes & col.TRANSACTIONAL)
    flaws |= col.FLAW_CONTROL_TYPE * (row.control_type > 1)
    return flaws | col.FLAW_CONTROL_COMPRESSED * bool(row.attributes & 0x07)


# The text: one :class:`Section` per dumped file. Every line is either known or part of an error.


Numbers = dict[str, int]


class ShownRecord(NamedTuple):
    """A record whose key was printed by a decoder. ``batch`` is the row of its batch (-1: none above it).

    ``offset`` and ``timestamp`` (ms) are None if the dump omits them (``--skip-record-metadata``); ``position`` and
    ``length`` are bytes of the text.
    """

    batch: int
    offset: int | None
    timestamp: int | None
    key: str
    value: str | None
    position: int
    length: int


@dataclass(slots=True)
class Section:
    """One dumped file: ``path`` from its banner (None without one).

    ``snapshot``, ``aborted``, ``offset_entries`` and ``time_entries`` are the lines of a snapshot or index, name to
    number (a snapshot's names as printed). ``invalid_tail`` is the number of invalid bytes that the tool found at a
    segment's end; ``crashed``: it printed an exception, so the dump ends early.
    """

    path: str | None
    batches: Batches
    records: list[ShownRecord] = field(default_factory=list)
    snapshot: list[Numbers] = field(default_factory=list)
    aborted: list[Numbers] = field(default_factory=list)
    offset_entries: list[Numbers] = field(default_factory=list)
    time_entries: list[Numbers] = field(default_factory=list)
    invalid_tail: int = 0
    crashed: bool = False


class Dump(NamedTuple):
    """A whole text: its sections in order, and errors for other lines."""

    sections: list[Section]
    errors: list[DecodeError]


def parse_dump(text: bytes, file: str = "") -> Dump:
    """Parse a dump. ``text`` as from :func:`auditor.connectors.text.lines.normalise`; positions are bytes of it.

    Errors: ``bad_line`` for text that no tool prints, ``truncated`` for an incomplete last line. Cost: one pass.
    """
    return _DumpReader(text, file).read()


class _DumpReader:
    # Reads line by line; a section is complete when the next banner comes.
    def __init__(self, text: bytes, file: str) -> None:
        self.text = text
        self.file = file
        self.errors: list[DecodeError] = []
        self.section = Section(None, SegmentBuilder().build())
        self.sections = [self.section]
        self.builder = SegmentBuilder()
        self.loose = False  # the end of the last payload is a guess, so an unknown line may belong to it

    def read(self) -> Dump:
        position = 0
        while position < len(self.text):
            end = self._line(position)
            if end < 0:
                end = lines.line_end(self.text, position)
                if not self.loose:
                    self._bad(position, end)
            position = end + 1
        self._close()
        return Dump([item for item in self.sections if not _blank(item)], self.errors)

    def _line(self, position: int) -> int:
        # The end of the line at position, or -1 for one that no tool prints.
        if self.text[position : position + 1] == b"|" or self.text.startswith(lines.PAYLOAD, position):
            return self._record(position)
        end = lines.line_end(self.text, position)
        line = self.text[position:end]
        whole = lines.LEGACY_BATCH.fullmatch(line) or lines.OFFSET_ENTRY.fullmatch(line)
        if line.startswith(b"offset: ") and not whole:
            return self._deep_record(position)
        if not (self._batch(line) or self._entry(line) or self._other_line(line)):
            return -1
        self.loose = False
        return end

    def _batch(self, line: bytes) -> bool:
        for pattern, take in (
            (lines.BATCH, SegmentBuilder.batch),
            (lines.LEGACY_BATCH, SegmentBuilder.legacy_batch),
        ):
            if match := pattern.fullmatch(line):
                self._next_segment(match)
                return take(self.builder, match)
        return False

    def _next_segment(self, match: Match) -> None:
        # Without banners, a position that decreases starts the next segment.
        if self.builder.rows and int(match["position"]) < self.builder.rows[-1].position:
            self._open(None)

    def _entry(self, line: bytes) -> bool:
        if lines.SNAPSHOT.fullmatch(line):
            pairs = lines.SNAPSHOT_PAIR.finditer(line)
            return _append(self.section.snapshot, {pair["name"].decode(): pair["number"] for pair in pairs})
        for pattern, entries in (
            (lines.ABORTED, self.section.aborted),
            (lines.OFFSET_ENTRY, self.section.offset_entries),
            (lines.TIME_ENTRY, self.section.time_entries),
        ):
            if match := pattern.fullmatch(line):
                return _append(entries, match.groupdict())
        return False

    def _other_line(self, line: bytes) -> bool:
        # Banners, and messages of the tool, the JVM or a shell.
        if match := lines.BANNER.fullmatch(line):
            self._open(match["path"].decode("utf-8", "replace").strip())
        elif match := lines.INVALID_TAIL.fullmatch(line):
            self.section.invalid_tail = int(match["size"])
        elif lines.CRASH.fullmatch(line):
            self.section.crashed = True
        else:
            return bool(lines.STARTING.fullmatch(line) or lines.is_noise(line))
        return True

    def _record(self, position: int) -> int:
        # Key and payload may span several lines.
        match = lines.RECORD.match(self.text, position) or lines.RECORD_28.match(self.text, position)
        if not match:
            return self._bare_record(position)
        shown = lines.take(self.text, match.end(), int(match["key_size"]), int(match["value_size"]))
        if shown is None or not self.builder.record(match):
            return -1
        self._keep(shown, position, int(match["offset"]), int(match["timestamp"]))
        return shown.end

    def _bare_record(self, position: int) -> int:
        # Printed with --skip-record-metadata: key and payload alone.
        start = position + 1 if self.text[position : position + 1] == b"|" else position
        shown = lines.take(self.text, start, -1, -1)
        if shown is None or shown.end == start:
            return -1
        self._keep(shown, position, None, None)
        return shown.end

    def _deep_record(self, position: int) -> int:
        # Of a release before 2.2, without a batch line above it.
        match = lines.DEEP_RECORD.match(self.text, position)
        if not match:
            return -1
        key_size = int(match["key_size"] or match["late_key_size"] or -1)
        shown = lines.take(self.text, match.end(), key_size, int(match["value_size"] or match["payload_size"] or -1))
        if shown is None:
            return -1
        self._next_segment(match)
        if not self.builder.deep_record(match):
            return -1
        self._keep(shown, position, int(match["offset"]), int(match["timestamp"] or -1))
        return shown.end

    def _keep(self, shown: lines.PrintedRecord, position: int, offset: int | None, timestamp: int | None) -> None:
        # Payload of other topics is dropped at once.
        self.loose = not shown.exact
        if shown.key is None:
            return
        key = shown.key.decode("utf-8", "replace")
        if looks_decoded(key):
            value = None if shown.value is None else shown.value.decode("utf-8", "replace")
            row = len(self.builder.rows) - 1
            self.section.records.append(ShownRecord(row, offset, timestamp, key, value, position, shown.end - position))

    def _open(self, path: str | None) -> None:
        self._close()
        self.section = Section(path, SegmentBuilder().build())
        self.sections.append(self.section)

    def _close(self) -> None:
        self.section.batches = self.builder.build()
        self.builder = SegmentBuilder()

    def _bad(self, position: int, end: int) -> None:
        # Consecutive lines become one error.
        last = self.errors[-1] if self.errors else None
        if end == len(self.text):
            self.errors.append(
                DecodeError(self.file, position, end - position, "truncated", "the last line is cut short")
            )
        elif last and last.position + last.length == position:
            self.errors[-1] = last._replace(length=end + 1 - last.position)
        else:
            self.errors.append(
                DecodeError(self.file, position, end + 1 - position, "bad_line", "not printed by kafka-dump-log")
            )


def _blank(section: Section) -> bool:
    # Such as before the first banner.
    printed = (
        section.path,
        section.records,
        section.snapshot,
        section.aborted,
        section.offset_entries,
        section.time_entries,
    )
    return not any(printed) and not len(section.batches.columns.position)


def _append(entries: list[Numbers], texts: dict[str, bytes | None]) -> bool:
    # Unless a number exceeds 64 bits.
    numbers = {name: int(text) for name, text in texts.items() if text is not None}
    if not all(-(1 << 63) <= number < 1 << 63 for number in numbers.values()):
        return False
    entries.append(numbers)
    return True
