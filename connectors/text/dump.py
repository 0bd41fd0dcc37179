"""What ``kafka-dump-log.sh`` printed, read back: one :class:`Section` a dumped file.

Every line is either known or part of an error. A dump that was cut, or whose tool crashed, gives what it shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from auditor.base.errors import DecodeError
from auditor.connectors.text import lines, payload
from auditor.connectors.text.dump_segments import Batches, Match, SegmentBuilder
from auditor.connectors.text.internal_topics import looks_decoded

Numbers = dict[str, int]


class ShownRecord(NamedTuple):
    """A record whose key a decoder printed. ``batch`` is the row of its batch (-1: none above it).

    ``offset`` and ``timestamp`` (ms) are None where the dump leaves them out (``--skip-record-metadata``);
    ``position`` and ``length`` are bytes of the text.
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
    number (a snapshot's names as printed). ``invalid_tail`` is bytes that the tool found at a segment's end;
    ``crashed``: it printed an exception, so the dump ends early.
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
    """A whole text: its sections in order, and what in it no tool prints."""

    sections: list[Section]
    errors: list[DecodeError]


def parse_dump(text: bytes, file: str = "") -> Dump:
    """Read back a dump. ``text`` is as :func:`auditor.connectors.text.sniff.normalise` gives it; positions are bytes
    of it.

    Errors: ``bad_line`` for stretches that no tool prints, ``truncated`` for a last line cut short. Cost: one pass.
    """
    return _Reader(text, file).read()


class _Reader:
    """Reads line by line; what a section holds is closed into it when the next banner comes."""

    def __init__(self, text: bytes, file: str) -> None:
        self.text = text
        self.file = file
        self.errors: list[DecodeError] = []
        self.section = Section(None, SegmentBuilder().build())
        self.sections = [self.section]
        self.builder = SegmentBuilder()
        self.loose = False  # the last payload ended by guess, so a line that is none of ours may belong to it

    def read(self) -> Dump:
        at = 0
        while at < len(self.text):
            end = self._line(at)
            if end < 0:
                end = payload.line_end(self.text, at)
                if not self.loose:
                    self._bad(at, end)
            at = end + 1
        self._close()
        return Dump([item for item in self.sections if not _blank(item)], self.errors)

    def _line(self, at: int) -> int:
        """Take in the line at ``at``; the index of its end, or -1 for one that no tool prints."""
        if self.text[at : at + 1] == b"|" or self.text.startswith(payload.PAYLOAD, at):
            return self._record(at)
        end = payload.line_end(self.text, at)
        line = self.text[at:end]
        whole = lines.LEGACY_BATCH.fullmatch(line) or lines.OFFSET_ENTRY.fullmatch(line)
        if line.startswith(b"offset: ") and not whole:
            return self._deep_record(at)
        if not (self._batch(line) or self._entry(line) or self._said(line)):
            return -1
        self.loose = False
        return end

    def _batch(self, line: bytes) -> bool:
        for pattern, take in (
            (lines.BATCH, SegmentBuilder.batch),
            (lines.LEGACY_BATCH, SegmentBuilder.legacy_batch),
        ):
            if found := pattern.fullmatch(line):
                self._next_segment(found)
                return take(self.builder, found)
        return False

    def _next_segment(self, found: Match) -> None:
        """Where no banners were kept, a position that goes back shows that the next segment begins."""
        if self.builder.rows and int(found["position"]) < self.builder.rows[-1].position:
            self._open(None)

    def _entry(self, line: bytes) -> bool:
        """A line of a snapshot or an index."""
        if lines.SNAPSHOT.fullmatch(line):
            pairs = lines.SNAPSHOT_PAIR.finditer(line)
            return _append(self.section.snapshot, {pair["name"].decode(): pair["number"] for pair in pairs})
        for pattern, entries in (
            (lines.ABORTED, self.section.aborted),
            (lines.OFFSET_ENTRY, self.section.offset_entries),
            (lines.TIME_ENTRY, self.section.time_entries),
        ):
            if found := pattern.fullmatch(line):
                return _append(entries, found.groupdict())
        return False

    def _said(self, line: bytes) -> bool:
        """What is no content: banners, and what the tool, the JVM or a shell say."""
        if found := lines.BANNER.fullmatch(line):
            self._open(found["path"].decode("utf-8", "replace").strip())
        elif found := lines.INVALID_TAIL.fullmatch(line):
            self.section.invalid_tail = int(found["size"])
        elif lines.CRASH.fullmatch(line):
            self.section.crashed = True
        else:
            return bool(lines.STARTING.fullmatch(line) or lines.is_noise(line))
        return True

    def _record(self, at: int) -> int:
        """A record line with its key and payload, which may go over several lines."""
        found = lines.RECORD.match(self.text, at) or lines.RECORD_28.match(self.text, at)
        if not found:
            return self._bare_record(at)
        shown = payload.take(self.text, found.end(), int(found["key_size"]), int(found["value_size"]))
        if shown is None or not self.builder.record(found):
            return -1
        self._keep(shown, at, int(found["offset"]), int(found["timestamp"]))
        return shown.end

    def _bare_record(self, at: int) -> int:
        """A record printed with ``--skip-record-metadata``: key and payload alone."""
        start = at + 1 if self.text[at : at + 1] == b"|" else at
        shown = payload.take(self.text, start, -1, -1)
        if shown is None or shown.end == start:
            return -1
        self._keep(shown, at, None, None)
        return shown.end

    def _deep_record(self, at: int) -> int:
        """A record of a release before 2.2, without a batch line above it."""
        found = lines.DEEP_RECORD.match(self.text, at)
        if not found:
            return -1
        key_size = int(found["key_size"] or found["late_key_size"] or -1)
        shown = payload.take(self.text, found.end(), key_size, int(found["value_size"] or found["payload_size"] or -1))
        if shown is None:
            return -1
        self._next_segment(found)
        if not self.builder.deep_record(found):
            return -1
        self._keep(shown, at, int(found["offset"]), int(found["timestamp"] or -1))
        return shown.end

    def _keep(self, shown: payload.Shown, at: int, offset: int | None, timestamp: int | None) -> None:
        """Keep a decoder's print; payload of other topics is forgotten at once."""
        self.loose = not shown.exact
        if shown.key is None:
            return
        key = shown.key.decode("utf-8", "replace")
        if looks_decoded(key):
            value = None if shown.value is None else shown.value.decode("utf-8", "replace")
            row = len(self.builder.rows) - 1
            self.section.records.append(ShownRecord(row, offset, timestamp, key, value, at, shown.end - at))

    def _open(self, path: str | None) -> None:
        """Begin the next dumped file."""
        self._close()
        self.section = Section(path, SegmentBuilder().build())
        self.sections.append(self.section)

    def _close(self) -> None:
        self.section.batches = self.builder.build()
        self.builder = SegmentBuilder()

    def _bad(self, at: int, end: int) -> None:
        """A line that no tool prints; lines one after the other become one error."""
        last = self.errors[-1] if self.errors else None
        if end == len(self.text):
            self.errors.append(DecodeError(self.file, at, end - at, "truncated", "the last line is cut short"))
        elif last and last.position + last.length == at:
            self.errors[-1] = last._replace(length=end + 1 - last.position)
        else:
            self.errors.append(DecodeError(self.file, at, end + 1 - at, "bad_line", "not printed by kafka-dump-log"))


def _blank(section: Section) -> bool:
    """Whether a section says nothing at all: the one before the first banner."""
    said = (
        section.path,
        section.records,
        section.snapshot,
        section.aborted,
        section.offset_entries,
        section.time_entries,
    )
    return not any(said) and not len(section.batches.columns.position)


def _append(entries: list[Numbers], texts: dict[str, bytes | None]) -> bool:
    """Add a line's numbers, unless one fits no long."""
    numbers = {name: int(text) for name, text in texts.items() if text is not None}
    if not all(-(1 << 63) <= number < 1 << 63 for number in numbers.values()):
        return False
    entries.append(numbers)
    return True
