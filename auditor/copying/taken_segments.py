"""The file of a directory of a copy: batches of its segments, contents of small files, and the list."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from auditor.base.at_rest import Json
from auditor.base.errors import DEFAULT_LIMITS, MIB, DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import CHECKED_FROM, UNVERIFIED, header_of
from auditor.connectors.codec.blanking import Blanks
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.codec.gaps import offset_range
from auditor.connectors.codec.segment import UNKNOWN, Chunk, HeaderHop, StoredChunks, foreign_row, read_segment
from auditor.connectors.kafka_names import COPY_LIST_1
from auditor.connectors.logdir.copy_format import (
    LIST,
    LIST_VERSION,
    MOST_FOOTER,
    MOST_LIST_BYTES,
    ROW_GROUPS,
    FolderList,
    Listed,
    Records,
    RowGroup,
    SegmentRows,
    SegmentWriter,
    TakenSegment,
    decode_list,
    digest_of,
    footer_in,
    is_name,
    parsed_struct,
)
from auditor.connectors.logdir.copy_view import ENTRY, MOST_ROWS, details_of, encoded_index, packed
from auditor.connectors.stores.storage import BinaryFile, StorageLocation, open_file, read_file, read_head
from auditor.copying.target import Target
from auditor.replay.producers.audit_replay import known_of
from auditor.replay.reading.record_sums import SummedBatches
from auditor.replay.task import ReplicaTask

MOST_OPEN = 1000  # transactions at the end of a segment that are kept in its list
MAX_FOREIGN = 1000  # batches of an unknown magic in a segment that are looked at, as in the recovery scan


WITH_LIST = 4 << 10  # bytes of a small file that are stored in the list; larger ones are stored beside it


class EarlierUnreadable(OSError):
    """The file of an earlier copy cannot be read, or has another content than its list says."""


_INDEXED = [walking.POSITION, walking.LAST_OFFSET, walking.MAX_TIMESTAMP]  # columns that entries of an index name


@dataclass
class _LastSegment:
    # The rows of the segment that was copied last, as long as they are few: indexes are stored relative to them.
    name: str = ""
    earlier: tuple[int, int] = (0, 0)  # from row to before row of the earlier file
    rows: list[np.ndarray] = field(default_factory=list)
    few: bool = True


class SegmentsTaken:
    """Writes the file of a directory, in the order of its segments; what an earlier copy has of them is moved.

    Nothing is written before something differs from the earlier copy. ``before``: its list; ``blanks``: removes secrets
    from the records of an internal topic, or puts sums in place of records; None if no bytes are copied;
    ``records``: record summaries are taken of some.
    """

    def __init__(
        self,
        target: Target,
        folder: str,
        limits: Limits,
        blanks: Blanks | SummedBatches | None,
        before: FolderList | None,
        *,
        records: bool = False,
    ) -> None:
        self.target, self.folder, self.limits, self.blanks = target, folder, limits, blanks
        self.stored = blanks is not None
        self.before = before
        entries = [item.taken for item in before.files if item.taken is not None] if before is not None else []
        self.records = records or any(entry.records for entry in entries)
        self.writer: SegmentWriter | None = None
        self.path: Path
        self.run = (0, 0)  # rows of the earlier file that are next
        self.done: dict[str, TakenSegment] = {}
        self.contents: set[str] = set()  # small files that are new in the file
        self.last = _LastSegment()
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
        self.last = _LastSegment(last)
        records = records and not (isinstance(f, StoredChunks) and not f.has_records)
        with contextlib.closing(f):
            self.done[last] = self._chunks_taken(
                place, name, self._chunks(f, place, name, size, task, whole, records), records
            )
        return None

    def carry(self, name: str, old: TakenSegment, *, held: bool = False) -> None:
        """Leave a segment as the earlier copy has it; ``held``: the log begins behind it."""
        first, behind = self.run
        if old.rows and first < behind != old.first:
            self.writing()
        number = self._rows()
        if old.rows:
            first, behind = self.run
            self.run = (first if first < behind else old.first), old.first + old.rows
        self.done[name] = old._replace(first=number)
        self.last = _LastSegment(name, (old.first, old.first + old.rows))
        if not held:
            self.unended = None if old.unended is None else set(old.unended)

    def segment(self, name: str, entry: TakenSegment, reader: SegmentRows) -> TakenSegment:
        """Move a segment from another file. Errors: ``OSError``."""
        if self.writer is None:
            self.stored = reader.stored
        writer = self.writing()
        first = writer.rows
        writer.carry(reader, entry.first, entry.first + entry.rows)
        self.done[name] = entry._replace(first=first)
        return self.done[name]

    def _rows(self) -> int:
        return self.run[1] - self.run[0] + (self.writer.rows if self.writer is not None else 0)

    def writing(self) -> SegmentWriter:
        """Move what is to be moved by now. Errors: ``OSError`` of the target, and of the earlier file."""
        if self.writer is None:
            self.path = self.target.begun(self.folder)
            self.writer = SegmentWriter(self.path, stored=self.stored, records=self.records)
        first, behind = self.run
        if first < behind:
            self.run = 0, 0
            try:
                self.writer.carry(self.earlier(), first, behind)
            except OSError as error:
                raise EarlierUnreadable(0, str(error.strerror)) from error
        return self.writer

    def earlier(self) -> SegmentRows:
        """The rows of the earlier file. Errors: ``OSError``."""
        if self.before is None:
            raise OSError(0, "no earlier copy")
        reader = self.target.earlier(self.folder, self.before.groups)
        if reader.stored != self.stored:
            raise OSError(0, "the earlier copy has other columns")
        return reader

    def content(self, item: Listed, data: bytes) -> Listed:
        """Store the content of a small file: in the list, or beside it. A large index is stored as its differences
        from the batches of its segment, if that is possible."""
        content = data.rstrip(b"\0")
        if len(content) <= WITH_LIST:
            return item._replace(content=content)
        text = self._relative(item, content)
        like = self.last.name if text is not None else None
        return self.packed(item._replace(like=like), packed(content if text is None else text))

    def packed(self, item: Listed, content: bytes) -> Listed:
        """Store the packed content of a small file beside the list."""
        self.contents.add(item.name)
        return item._replace(kept=self.writing().keep(content))

    def _relative(self, item: Listed, data: bytes) -> bytes | None:
        says = kafka_names.data_name(item.name)
        entry = self.done.get(self.last.name)
        if says is None or says.kind not in ENTRY or entry is None or entry.rows > MOST_ROWS or entry.damaged:
            return None
        if self.last.name.partition(".")[0] != item.name.partition(".")[0] or not self.last.few:
            return None
        first, behind = self.last.earlier
        earlier = [self.earlier().rows(first, behind)[0][:, _INDEXED]] if first < behind else []
        indexed = np.concatenate([np.empty((0, len(_INDEXED)), np.int64), *earlier, *self.last.rows])
        rows = walking.walk_rows(len(indexed))
        rows[:, _INDEXED] = indexed
        return encoded_index(says.kind, data, rows, says.offset)

    def is_there(self, place: StorageLocation, name: str, entry: TakenSegment) -> bool:
        """Whether the last copied batch of a segment is still at its position, with its checksum."""
        last = entry.first + entry.rows - 1
        try:
            return entry.rows > 0 and _is_there(place, name, self.earlier().rows(last, last + 1)[0][0])
        except OSError:
            return False

    def _chunks(
        self,
        f: BinaryFile,
        place: StorageLocation,
        name: str,
        size: int,
        task: ReplicaTask | None,
        whole: bool,
        records: bool,
        start: tuple[int, int] = (0, 0),
    ) -> Iterator[Chunk]:
        offsets, context = _offsets(name, task)
        internal = self.blanks is not None
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
        entry, last = old.taken, name.rpartition("/")[2]
        if entry is None or entry.damaged or not entry.rows or size < old.size:
            return False
        f = open_file(place, name)
        if isinstance(f, DecodeError):
            return False
        with contextlib.closing(f):
            if not self.is_there(place, name, entry):
                return False
            self.carry(last, entry)
            first, end, following = self.done[last].first, *entry.chunks[-1][1:]
            chunks = self._chunks(f, place, name, size, task, whole, entry.records, (end, following))
            more = self._chunks_taken(place, name, chunks, entry.records)
        self.done[last] = more._replace(
            first=first,
            rows=entry.rows + more.rows,
            chunks=(*entry.chunks, *more.chunks),
            checked=entry.checked and more.checked,
            body_errors=(*entry.body_errors, *more.body_errors),
            of_records=(*entry.of_records, *more.of_records),
        )
        return True

    def finish(self, content: FolderList) -> None:
        """Replace the file of the directory by one with this list, unless it has it. Errors: ``OSError`` of the
        target."""
        before = self.before
        total = sum(group.rows for group in before.groups) if before is not None else 0
        if self.writer is None and before is not None and self.run == (0, total):
            content = content._replace(groups=before.groups)
            if content == before:
                return
        writer = self.writing()
        files = tuple(self._moved(item, writer) for item in content.files)
        writer.close(content._replace(files=files))
        self.target.replace(self.folder, self.path)
        self.writer = None

    def _moved(self, item: Listed, writer: SegmentWriter) -> Listed:
        if item.kept is None or item.name in self.contents:
            return item
        begin, size = item.kept
        data = read_head(self.target.place.child(self.folder), LIST, size, start=begin)
        if isinstance(data, DecodeError) or len(data) != size:
            raise EarlierUnreadable(0, "a file of the earlier copy cannot be read")
        return item._replace(kept=writer.keep(data))

    def close(self) -> None:
        """Drop what is not finished."""
        if self.writer is not None:
            self.writer.out.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            self.writer = None

    def _add(self, rows: np.ndarray, stored: list[bytes] | None, records: Records | None) -> None:
        self.writing().add(rows, stored, records)
        self.last.few &= sum(map(len, self.last.rows)) + len(rows) <= MOST_ROWS
        self.last.rows = [*self.last.rows, rows[:, _INDEXED]] if self.last.few else []

    def _chunks_taken(
        self, place: StorageLocation, name: str, segment_chunks: Iterator[Chunk], records: bool
    ) -> TakenSegment:
        first = self._rows()
        chunks, errors, bodies, checked, of_records = [], [], [], True, list[int]()
        for chunk in segment_chunks:
            stored = None
            if self.blanks is not None and chunk.raw is not None:
                stored = self.blanks.blanked(chunk.batches, chunk.raw)
            if len(chunk.rows):
                self._add(chunk.rows, stored, _records_of(chunk) if records else None)
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
            first=first,
            rows=self._rows() - first,
            chunks=tuple(chunks),
            errors=tuple(errors),
            body_errors=tuple(bodies),
            foreign=foreign,
            checked=checked,
            records=records,
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


def segments_first(file: str) -> tuple[str, bool, str]:
    """The order of the files of a directory: by offset, and a segment before its indexes."""
    base, _, kind = file.partition(".")
    return base, kind != "log", kind


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


# Copies of version 1: the list, Parquet files of batches and packed contents of small files are files of their own.


_BATCHES_1, _PACKED_1 = ".log.parquet", ".gz"
_MOST_1 = 256 * MIB  # bytes of a file of batches


def convert(target: Target, folder: str, limits: Limits) -> None:
    """Make the file of a directory from its files of version 1, and then delete these.

    Killed at any point, the directory is of one version or the other. Errors: ``OSError`` of the target, and for a list
    that cannot be read.
    """
    if target.list_of(folder) is None:
        _convert(target, folder, limits)
    others = {file for file in target.files(folder) if file.endswith((_BATCHES_1, _PACKED_1))}
    target.clear(folder, others - {COPY_LIST_1})
    target.remove(folder, COPY_LIST_1)


def _convert(target: Target, folder: str, limits: Limits) -> None:
    place, beside = target.place.child(folder), dict[str, str]()
    data = read_file(place, COPY_LIST_1, limit=MOST_LIST_BYTES)
    content = decode_list(data, partial(_of_this_version, beside)) if isinstance(data, bytes) else data.detail
    if isinstance(content, str):
        raise OSError(0, f"{folder}/{COPY_LIST_1}: {content}")
    records = any(item.taken is not None and item.taken.records for item in content.files)
    with contextlib.closing(SegmentsTaken(target, folder, limits, None, None, records=records)) as segments:
        files = sorted(content.files, key=lambda item: (item.unused or "", item.gone or (), segments_first(item.name)))
        items = [_converted(segments, place, item, beside.get(item.name, "")) for item in files]
        segments.finish(content._replace(files=tuple(items)))


def _of_this_version(beside: dict[str, str], data: Json) -> Json:
    # ``beside`` gets the file with what was taken, by name. ValueError for any other list.
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("files"), list):
        raise ValueError
    for item in data["files"]:
        taken = item.get("taken") if isinstance(item, dict) else None
        where = taken.pop("file", None) if isinstance(taken, dict) else item.get("kept") if taken is None else None
        if where is not None:
            if not isinstance(where, str) or not is_name(where) or not isinstance(item.get("name"), str):
                raise ValueError
            beside[item["name"]] = where
            item |= {"kept": [0, 0]} if taken is None else {}
    return data | {"version": LIST_VERSION}


def _converted(segments: SegmentsTaken, place: StorageLocation, item: Listed, beside: str) -> Listed:
    # One that cannot be read is an error of its file, as it was.
    try:
        if item.taken is not None:
            return item._replace(taken=segments.segment(item.name, item.taken, _rows_1(place, beside)))
        if item.kept is not None:
            return segments.packed(item, _data_1(place, beside, DEFAULT_LIMITS.max_index_bytes))
    except OSError as error:
        why = "unreadable", str(error.strerror)
        return item._replace(taken=None, gone=None, kept=None, like=None, refused=why)
    return item


@lru_cache(maxsize=1)
def _rows_1(place: StorageLocation, file: str) -> SegmentRows:
    data = _data_1(place, file, _MOST_1)
    if not file.endswith(f"-{digest_of(data)}{_BATCHES_1}"):
        raise OSError(0, "a file of the copy has another content than its name says")
    footer = footer_in(data)
    if len(footer) > min(MOST_FOOTER, len(data)):
        raise OSError(0, "no Parquet file of a copy")
    groups = []
    try:
        for group in parsed_struct(footer)[ROW_GROUPS][1][1]:
            chunks = [chunk[3][1] for chunk in group[1][1][1]]
            starts = [min(chunk[field][1] for field in (9, 11) if field in chunk) for chunk in chunks]
            begin, behind = min(starts), max(s + chunk[7][1] for s, chunk in zip(starts, chunks, strict=True))
            groups.append(RowGroup(begin, behind - begin, group[3][1], digest_of(data[begin:behind])))
    except (ValueError, TypeError, LookupError) as error:
        raise OSError(0, "no Parquet file of a copy") from error
    return SegmentRows(footer, groups, lambda begin, count: data[begin : begin + count])


def _data_1(place: StorageLocation, file: str, most: int) -> bytes:
    data = read_file(place, file, limit=most)
    if isinstance(data, DecodeError):
        raise OSError(0, data.detail)
    return data
