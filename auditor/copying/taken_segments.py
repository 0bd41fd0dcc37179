"""The batches that a copy takes of segments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from auditor.base.errors import DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import CHECKED_FROM, UNVERIFIED, header_of
from auditor.connectors.codec.blanking import Blanks
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.segment import UNKNOWN, Chunk, HeaderHop, StoredChunks, foreign_row, read_segment
from auditor.connectors.logdir.copy_format import (
    FILE_BYTES,
    FILE_ROWS,
    GROUP_ROWS,
    Listed,
    Records,
    SegmentRows,
    SegmentWriter,
    TakenSegment,
)
from auditor.connectors.logdir.copy_view import details_of
from auditor.connectors.stores.storage import BinaryFile, StorageLocation, open_file, read_head
from auditor.copying.target import Target
from auditor.replay.producers.audit_replay import known_of
from auditor.replay.task import ReplicaTask

MOST_OPEN = 1000  # transactions at the end of a segment that are kept in its list
MAX_FOREIGN = 1000  # batches of an unknown magic in a segment that are looked at, as in the recovery scan


class SegmentsTaken:
    """Copies the segments of a directory one after the other; several share a Parquet file until it is full.

    ``blanks``: removes secrets from the records of an internal topic; None if no bytes are copied.
    """

    def __init__(self, target: Target, folder: str, limits: Limits, blanks: Blanks | None) -> None:
        self.target, self.folder, self.limits, self.blanks = target, folder, limits, blanks
        self.open: contextlib.ExitStack | None = None
        self.writer: SegmentWriter
        self.path: Path
        self.first = ""
        self.pending: list[tuple[str, TakenSegment]] = []  # of the file that is open
        self.done: dict[str, TakenSegment] = {}
        self.bytes = 0  # of stored batches in it
        self.unended: set[int] | None = set()  # producer ids whose transactions are open by now; None for too many
        self.batches = self.read = self.kept = 0  # batches and bytes that were read; segments that were as they were

    def take(
        self,
        place: StorageLocation,
        name: str,
        size: int,
        task: ReplicaTask | None,
        *,
        whole: bool = True,
        records: bool = False,
    ) -> DecodeError | None:
        """Copy one segment; return why if it could not be opened.

        ``whole``: read all bytes, not only the headers of large batches; ``records``: also take summaries of its
        records.
        """
        last = name.rpartition("/")[2]
        f = open_file(place, name)
        if isinstance(f, DecodeError):
            return f
        self._began(last, records and not (isinstance(f, StoredChunks) and not f.has_records))
        with contextlib.closing(f):
            self.pending.append(
                (last, self._chunks_taken(place, name, self._chunks(f, place, name, size, task, whole)))
            )
        self._file_is_full()
        return None

    def keep(self, name: str, entry: TakenSegment) -> None:
        """Leave a segment as an earlier copy has it."""
        self.done[name] = entry
        self.unended = None if entry.unended is None else set(entry.unended)
        self.kept += 1

    def carry(self, name: str, old: TakenSegment) -> bool:
        """Move the rows of a segment from an earlier file; return whether that was possible."""
        reader = self._earlier(old)
        if reader is None:
            return False
        self._began(name, old.records)
        first = self.writer.rows
        self._add_earlier(reader, old)
        self.pending.append((name, old._replace(first=first)))
        self.unended = None if old.unended is None else set(old.unended)
        self._file_is_full()
        return True

    def is_there(self, place: StorageLocation, name: str, entry: TakenSegment) -> bool:
        """Whether the last copied batch of a segment is still at its position, with its checksum."""
        reader = self._earlier(entry)
        last = entry.first + entry.rows - 1
        return reader is not None and entry.rows > 0 and _is_there(place, name, reader.rows(last, last + 1)[0][0])

    def _chunks(
        self,
        f: BinaryFile,
        place: StorageLocation,
        name: str,
        size: int,
        task: ReplicaTask | None,
        whole: bool,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Chunk]:
        offsets, context = _offsets(name, task)
        internal, records = self.blanks is not None, self.writer.records
        if not whole and not internal and not records and not place.uri and place.view is None:
            hop = HeaderHop(f, size, self.limits, start[0], _behind(offsets, start))
            for rows in hop.chunks():
                yield Chunk(rows, [], [], None, None, hop.end, next_offset=hop.next_offset)
            self.read += hop.read
            if hop.end == size and size > start[0]:
                return
            start = (hop.end, hop.next_offset) if hop.end > start[0] else start
        look, limits, offsets = details_of if records else None, self.limits, _behind(offsets, start)
        for chunk in read_segment(
            f, size, file=name, limits=limits, raw=internal, start=start[0], offsets=offsets, context=context,
            records=records, look=look,
        ):  # fmt: skip
            self.read += int(chunk.rows[:, walking.SIZE].sum())
            yield chunk

    def go_on(
        self, place: StorageLocation, name: str, size: int, task: ReplicaTask | None, old: Listed, *, whole: bool = True
    ) -> bool:
        """Copy what follows the batches that an earlier copy has of a segment; return False if those changed (the
        last one is compared by checksum)."""
        entry = old.taken
        if entry is None or entry.damaged or not entry.rows or size < old.size:
            return False
        reader = self._earlier(entry)
        f = open_file(place, name)
        if reader is None or isinstance(f, DecodeError):
            return False
        last = reader.rows(entry.first + entry.rows - 1, entry.first + entry.rows)[0][0]
        with contextlib.closing(f):
            if not _is_there(place, name, last):
                return False
            self._began(name.rpartition("/")[2], entry.records)
            self.unended = None if entry.unended is None else set(entry.unended)
            first, end, following = self.writer.rows, *entry.chunks[-1][1:]
            self._add_earlier(reader, entry)
            chunks = self._chunks(f, place, name, size, task, whole, (end, following))
            more = self._chunks_taken(place, name, chunks)
        joined = more._replace(first=first, rows=self.writer.rows - first, chunks=(*entry.chunks, *more.chunks))
        joined = joined._replace(
            checked=entry.checked and more.checked,
            body_errors=(*entry.body_errors, *more.body_errors),
            of_records=(*entry.of_records, *more.of_records),
        )
        self.pending.append((name.rpartition("/")[2], joined))
        self._file_is_full()
        return True

    def _earlier(self, entry: TakenSegment) -> SegmentRows | None:
        # None if unreadable, or written with other columns.
        try:
            reader = self.target.earlier(self.folder, entry.file)
            reader.rows(entry.first, entry.first + entry.rows)
        except OSError:
            return None
        fits = (reader.stored, reader.records) == (self.blanks is not None, entry.records)
        return reader if fits else None

    def _add_earlier(self, reader: SegmentRows, old: TakenSegment) -> None:
        for first in range(old.first, old.first + old.rows, GROUP_ROWS):
            behind = min(first + GROUP_ROWS, old.first + old.rows)
            rows, stored = reader.rows(first, behind, stored=reader.stored)
            records = Records(reader.summaries(first, behind), reader.details(first, behind)) if old.records else None
            self._add(rows, stored, records)

    def finish(self) -> dict[str, TakenSegment]:
        """Close the open file; return the segments copied so far by name."""
        if self.open is not None:
            self.writer.close()
            file = self.target.finished(self.path, self.folder, self.first)
            self.open.close()
            self.open = None
            self.done |= {name: entry._replace(file=file) for name, entry in self.pending}
            self.pending, self.bytes = [], 0
        return self.done

    def _file_is_full(self) -> None:
        if self.writer.rows >= FILE_ROWS or self.bytes >= FILE_BYTES:
            self.finish()

    def _add(self, rows: np.ndarray, stored: list[bytes] | None, records: Records | None) -> None:
        self.bytes += sum(map(len, stored or ())) + sum(
            len(text or b"") for text in (records.details if records else ())
        )
        self.writer.add(rows, stored, records)

    def _began(self, name: str, records: bool) -> None:
        # A file has record summaries for all of its segments or for none.
        if self.open is not None and self.writer.records != records:
            self.finish()
        if self.open is not None:
            return
        self.open = contextlib.ExitStack()
        self.first = first = name.partition(".")[0]
        self.path = self.open.enter_context(self.target.begun(self.folder, first))
        self.writer = SegmentWriter(self.path, stored=self.blanks is not None, records=records)

    def _chunks_taken(self, place: StorageLocation, name: str, segment_chunks: Iterator[Chunk]) -> TakenSegment:
        first = self.writer.rows
        chunks, errors, bodies, checked, of_records = [], [], [], True, list[int]()
        for chunk in segment_chunks:
            stored = None
            if self.blanks is not None and chunk.raw is not None:
                stored = self.blanks.blanked(chunk.batches, chunk.raw)
            self._add(chunk.rows, stored, _records_of(chunk))
            checked &= not np.any(chunk.rows[:, walking.FLAWS] & UNVERIFIED)
            self.batches += len(chunk.rows)
            self._follow(chunk.rows)
            chunks.append((len(chunk.rows), chunk.end, chunk.next_offset))
            errors += chunk.errors
            bodies += [*chunk.body_errors, *chunk.flipped]
            of_records += chunk.of_records
        foreign = tuple(_foreign(place, name, errors, self.limits))
        unended = None if self.unended is None else tuple(sorted(self.unended))
        return TakenSegment(
            file="",
            first=first,
            rows=self.writer.rows - first,
            chunks=tuple(chunks),
            errors=tuple(errors),
            body_errors=tuple(bodies),
            foreign=foreign,
            checked=checked,
            records=self.writer.records,
            of_records=tuple(of_records),
            unended=unended,
        )

    def _follow(self, rows: np.ndarray) -> None:
        # A producer with data after its last marker has an open transaction.
        attributes = rows[:, walking.ATTRIBUTES]
        transactional = np.flatnonzero((attributes & walking.TRANSACTIONAL != 0) & (rows[:, walking.MAGIC] == 2))[::-1]
        if not len(transactional) or self.unended is None:
            return
        producers, last = np.unique(rows[transactional, walking.PRODUCER_ID], return_index=True)
        ended = attributes[transactional[last]] & walking.CONTROL != 0
        self.unended = (self.unended - set(producers[ended].tolist())) | set(producers[~ended].tolist())
        if len(self.unended) > MOST_OPEN:
            self.unended = None


def _records_of(chunk: Chunk) -> Records | None:
    if chunk.summary is None:
        return None
    details = [None] * len(chunk.rows) if chunk.looked is None else [text or None for text in chunk.looked.tolist()]
    return Records(chunk.summary, details)


def _is_there(place: StorageLocation, name: str, last: np.ndarray) -> bool:
    header = header_of(last)[: CHECKED_FROM if last[walking.MAGIC] == 2 else walking.PREFIX - 1]
    return read_head(place, name, len(header), start=int(last[walking.POSITION])) == header


def _offsets(name: str, task: ReplicaTask | None) -> tuple[tuple[int, int], SegmentContext]:
    numbers = {s.name: k for k, s in enumerate(task.replica.segments)} if task is not None else {}
    number = numbers.get(name)
    if task is None or number is None:
        says = kafka_names.data_name(name.rpartition("/")[2]) or kafka_names.remote_name(name.rpartition("/")[2])
        return offset_range(says.offset if says else -1), UNKNOWN
    behind = task.replica.segments[number + 1 : number + 2]
    offsets = offset_range(task.replica.segments[number].base_offset, behind[0].base_offset if behind else -1)
    return offsets, known_of(task, number)


def _behind(offsets: tuple[int, int], start: tuple[int, int]) -> tuple[int, int]:
    return (max(offsets[0], start[1]), offsets[1]) if start[0] else offsets


def _foreign(place: StorageLocation, name: str, errors: list[DecodeError], limits: Limits) -> Iterator[tuple[int, ...]]:
    # Brokers accept batches of a magic above 2 whose checksum is right.
    bad = [e for e in errors if e.reason == "bad_magic" and 0 < e.length <= limits.max_batch_bytes]
    for error in bad[:MAX_FOREIGN]:
        data = read_head(place, name, error.length, start=error.position)
        row = None if isinstance(data, DecodeError) else foreign_row(data, error.position)
        if row is not None and isinstance(data, bytes):
            foreign = row.copy()
            foreign[walking.MAGIC] = np.int64(data[walking.PREFIX - 1])
            yield tuple(foreign.tolist())
