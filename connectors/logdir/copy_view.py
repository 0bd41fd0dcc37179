"""Opens the files of a copy without payload as those of the copied directory."""

from __future__ import annotations

import functools
import gzip
import os
import stat
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import DEFAULT_LIMITS, MIB, AuditInputError, DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import (
    LOG_APPEND_TIME,
    RECORD_UNDECOMPRESSABLE,
    BatchColumns,
    RecordColumns,
    RecordSummary,
    empty_records,
    header_of,
    with_right_checksum,
)
from auditor.connectors.codec.records import LEAST_RECORD, Decoded
from auditor.connectors.codec.segment import ROWS, Chunk, Look, Opens, StoredChunks
from auditor.connectors.kafka_names import COPY_LIST_1, COPY_README
from auditor.connectors.logdir.copy_format import (
    LIST,
    TAIL,
    FolderList,
    Listed,
    RowGroup,
    SegmentRows,
    TakenSegment,
    decode_list,
    read_footer,
)
from auditor.connectors.stores import storage
from auditor.connectors.stores.retries import REFUSED, side_by_side
from auditor.connectors.stores.storage import (
    BinaryFile,
    FolderListing,
    ListedFile,
    StorageLocation,
    Unused,
    open_file,
    printable,
    read_head,
)

# Record details, which a copy without payload keeps beside the summary of a batch: timestamps, whether each record has
# a key, and its flaws. No key, no value, no header.
#
# A batch that is fully described by its summary (one timestamp, all or none with keys, no flaws) has none. The format,
# little-endian: a byte for the bytes per step (0, 1, 2, 4 or 8), a byte of bits (1: keys follow, 2: flaws follow); for
# each record the difference of its timestamp (ms) to the one before it, for the first one to the batch's own; bits of
# the records without a key, the first record's lowest; 2 bytes of flaws each (RECORD_* of
# :mod:`auditor.connectors.codec.batches`).


_STEPS = {1: "i1", 2: "<i2", 4: "<i4", 8: "<i8"}
WIDEST = 8  # bytes of a step
KEYS, FLAWS = 1, 2  # bits
RUN_RECORDS = 1 << 16  # per run of more than one batch
WRONG = "the records of a batch of the copy are not those of its summary"


def details_of(opens: Opens, b: BatchColumns, s: RecordSummary) -> np.ndarray | None:
    """The record details of each batch as bytes, 0 for none (a :data:`auditor.connectors.codec.segment.Look`)."""
    mixed = (s.null_keys > 0) & (s.null_keys < s.present)
    rows = np.flatnonzero((s.flaws != 0) | (s.min_timestamp != s.max_timestamp) | mixed)
    if not len(rows):
        return None
    out = np.zeros(len(s.present), object)
    stamps = _stamps(b, s)
    for run in opens(rows):
        some, r = rows[run.rows], run.records
        ends = np.cumsum(run.summary.present, dtype=np.int64)
        text = np.empty(2 * len(some) + (WIDEST + 2 + 1) * len(r.timestamp), np.uint8)
        cuts = np.zeros(len(some) + 1, np.int64)
        _code(stamps[some], ends, r.timestamp, r.key_size, r.flaws, text, cuts)
        blanked = text[: cuts[-1]].tobytes()
        for k in np.flatnonzero(np.diff(cuts)).tolist():
            out[some[k]] = blanked[cuts[k] : cuts[k + 1]]
    return out


def _stamps(b: BatchColumns, s: RecordSummary) -> np.ndarray:
    # The timestamp from which the first record's of each batch is counted.
    by_broker = (b.magic > 0) & (b.attributes & LOG_APPEND_TIME != 0)
    return np.where(by_broker, b.max_timestamp, s.first_timestamp)


@kernel
def _width(least: int, most: int) -> int:
    # Bytes of a step between these, 0 for no steps.
    if least == 0 and most == 0:
        return 0
    for width in (1, 2, 4):
        if -(1 << (8 * width - 1)) <= least and most < 1 << (8 * width - 1):
            return width
    return WIDEST


@kernel
def _code(
    stamps: np.ndarray,
    ends: np.ndarray,
    timestamp: np.ndarray,
    key_size: np.ndarray,
    flaws: np.ndarray,
    text: np.ndarray,
    cuts: np.ndarray,
) -> None:
    # Batch i is written from cuts[i] to cuts[i + 1] of text. Its records end before ends[i]; its first step counts from
    # stamps[i].
    position, start = 0, 0
    for i in range(len(ends)):
        end, previous = ends[i], stamps[i]
        least, most, nulls, flawed = np.int64(0), np.int64(0), 0, False
        for n in range(start, end):
            step, previous = timestamp[n] - previous, timestamp[n]
            least, most = min(least, step), max(most, step)
            nulls += key_size[n] < 0
            flawed |= flaws[n] != 0
        width, keys = _width(least, most), 0 < nulls < end - start
        if width > 0 or keys or flawed:
            text[position], text[position + 1] = width, KEYS * keys + FLAWS * flawed
            position, previous = position + 2, stamps[i]
            for n in range(start, end):
                step, previous = timestamp[n] - previous, timestamp[n]
                for k in range(width):
                    text[position] = (step >> (8 * k)) & 0xFF
                    position += 1
            if keys:
                for n in range(0, end - start, 8):
                    bits = 0
                    for k in range(min(8, end - start - n)):
                        bits |= (key_size[start + n + k] < 0) << k
                    text[position] = bits
                    position += 1
            if flawed:
                for n in range(start, end):
                    text[position], text[position + 1] = flaws[n] & 0xFF, (flaws[n] >> 8) & 0xFF
                    position += 2
        cuts[i + 1], start = position, end


def records_from_details(
    b: BatchColumns, s: RecordSummary, details: Sequence[bytes | None], rows: np.ndarray, limits: Limits
) -> Iterator[Decoded]:
    """The records of some batches from their summaries and details, as
    :func:`auditor.connectors.codec.records.decode_stored` returns those of a file, without sizes and offsets.

    ``limits`` count their total size. Errors: ``OSError`` if these contradict each other, or there would be more
    records than possible.
    """
    present = np.where(s.present[rows] > limits.max_records, 0, s.present[rows])
    position = 0
    while position < len(rows):
        until = position + max(
            1, int(np.searchsorted(np.cumsum(present[position:], dtype=np.int64), RUN_RECORDS, side="right"))
        )
        for row in rows[position:until].tolist():
            _count(int(b.size[row]), int(s.present[row]), limits)
        yield _run(b, s, details, rows, slice(position, until), limits)
        position = until


def _count(stored: int, present: int, limits: Limits) -> None:
    # OSError if a body of stored bytes cannot have so many records.
    if present * LEAST_RECORD > limits.decompressed_cap(stored):
        raise OSError(0, "a batch of the copy would have more records than there can be")
    limits.note_made(stored, present * LEAST_RECORD)


def _run(
    b: BatchColumns, s: RecordSummary, details: Sequence[bytes | None], rows: np.ndarray, run: slice, limits: Limits
) -> Decoded:
    some = rows[run]
    summary = s.take(some)
    too_many = summary.present > limits.max_records
    summary.present[too_many] = 0
    summary.flaws[too_many] |= RECORD_UNDECOMPRESSABLE
    records, stamps = empty_records(int(summary.present.sum())), _stamps(b.take(some), summary)
    end = 0
    for k, row in enumerate(some.tolist()):
        start, end = end, end + int(summary.present[k])
        here = slice(start, end)
        records.batch[here] = run.start + k
        records.index[here] = np.arange(end - start)
        records.timestamp[here] = stamps[k]
        records.key_size[here] = -1 if s.null_keys[row] >= s.present[row] else 0
        records.flaws[here] = 0
        if (text := details[k + run.start]) is not None and end > start:
            _decode(text, records, here)
    for column in (records.offset, records.value_size, records.header_count, records.sequence):
        column[:] = -1  # not used for copies
    return Decoded(run, records, summary, {})


def _decode(text: bytes, records: RecordColumns, here: slice) -> None:
    count = here.stop - here.start
    width, bits = (text[0], text[1]) if len(text) >= 2 else (-1, 0)
    keys, flaws = bool(bits & KEYS) * -(-count // 8), bool(bits & FLAWS) * 2 * count
    if width not in (0, *_STEPS) or bits > KEYS | FLAWS or len(text) != 2 + width * count + keys + flaws:
        raise OSError(0, WRONG)
    if width:
        records.timestamp[here] += np.cumsum(np.frombuffer(text, _STEPS[width], count, 2).astype(np.int64))
    position = 2 + width * count
    if keys:
        no_key = np.unpackbits(np.frombuffer(text, np.uint8, keys, position), count=count, bitorder="little")
        records.key_size[here] = np.where(no_key, -1, 0)
    if flaws:
        records.flaws[here] = np.frombuffer(text, "<u2", count, position + keys)


# Index entries relative to a segment's batches: for large batches an index is longer than their rows.
#
# An entry of an offset index names a batch's position and the last offset of that or a later one, an entry of a time
# index a batch's largest time and an offset of it. So each is stored as row numbers, nearly always in steps of one, and
# differences to their values, nearly always zero, which compress to nothing. All bytes are restored exactly.


ENTRY = {"index": 8, "timeindex": 12}  # bytes of one
MOST_ROWS = 1 << 18  # of a segment; few small batches have an entry
_COLUMNS = 4
_TIME_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


def encoded_index(kind: str, data: bytes, rows: np.ndarray, base: int) -> bytes | None:
    """Encode the entries of an index of a segment that starts at offset ``base`` and has these rows of a walk; None if
    they would not be restored exactly."""
    if not 0 < len(rows) <= MOST_ROWS:
        return None
    size = ENTRY[kind]
    data = data.ljust(-(-len(data) // size) * size, b"\0")
    first, offset = _columns(kind, data)
    behind = np.searchsorted(rows[:, walking.LAST_OFFSET], offset + base).clip(0, len(rows) - 1)
    by = rows[behind, walking.LAST_OFFSET] - offset - base
    if kind == "index":
        rows_at = np.searchsorted(rows[:, walking.POSITION], first).clip(0, len(rows) - 1)
        entries = (np.diff(rows_at, prepend=0), behind - rows_at, rows[rows_at, walking.POSITION] - first, by)
    else:
        entries = (np.diff(behind, prepend=0), np.zeros_like(by), rows[behind, walking.MAX_TIMESTAMP] - first, by)
    text = np.vstack(entries).astype("<i8").tobytes()
    return text if decoded_index(kind, text, rows, base) == data else None


def decoded_index(kind: str, text: bytes, rows: np.ndarray, base: int) -> bytes:
    """Restore entries from :func:`encoded_index`. Errors: ``OSError`` if they are not of these rows."""
    if len(text) % (8 * _COLUMNS):
        raise OSError(0, "an index of the copy is not as it should be")
    if not text:
        return b""
    steps, more, first_by, by = np.frombuffer(text, "<i8").reshape(_COLUMNS, -1)
    rows_at = np.cumsum(steps)
    behind = rows_at + more
    if not len(rows) or np.any((rows_at < 0) | (rows_at >= len(rows)) | (behind < 0) | (behind >= len(rows))):
        raise OSError(0, "an index of the copy names batches that are not there")
    offset = rows[behind, walking.LAST_OFFSET] - by - base
    if kind == "index":
        first = rows[rows_at, walking.POSITION] - first_by
        return np.column_stack((offset, first)).astype(">i4").tobytes()
    entries = np.empty(len(offset), _TIME_ENTRY)
    entries["time"], entries["offset"] = rows[behind, walking.MAX_TIMESTAMP] - first_by, offset
    return entries.tobytes()


def most_encoded(length: int) -> int:
    """The maximum size of the encoded entries of an index of ``length`` bytes."""
    return 8 * _COLUMNS * (length // ENTRY["index"] + 1)


def _columns(kind: str, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    # Position or time, and relative offset, of each entry.
    if kind == "index":
        entries = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
        return entries[:, 1], entries[:, 0]
    timed = np.frombuffer(data, _TIME_ENTRY)
    return timed["time"].astype(np.int64), timed["offset"].astype(np.int64)


# Opening files: those of a list from what was taken of them, all others as they are.


NOT_TAKEN = "its name alone was taken into the copy"
LISTS = 64  # cached lists
LEAST_BATCH = 26  # bytes, of any magic


def list_of(folder: StorageLocation, as_of: int = 0) -> FolderList | DecodeError | None:
    """The list of a directory, None for none. ``folder`` has no view.

    ``as_of``: when, in ns, a store's directories were listed: its lists are read once per listing.
    """
    if folder.uri:
        return _cached_list(folder, (as_of,)) if as_of else _opened_list(folder)
    try:
        status = os.lstat(folder.child(LIST).path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return _cached_list(folder, (status.st_ino, status.st_size, status.st_mtime_ns))


@functools.lru_cache(maxsize=LISTS)
def _cached_list(folder: StorageLocation, _as_of: tuple[int, ...]) -> FolderList | DecodeError | None:
    return _opened_list(folder)


def _opened_list(folder: StorageLocation) -> FolderList | DecodeError | None:
    opened = open_file(folder, LIST)
    if isinstance(opened, DecodeError):
        return None if opened.reason == "vanished" else opened
    try:
        size = opened.seek(0, os.SEEK_END)
        whole = storage.read_opened(opened, size) if size <= TAIL else None
        read = _reader(opened, whole)
        content = decode_list(read_footer(read, size)[1])
    except REFUSED as error:
        why = storage.problem(LIST, error)
        return None if why.reason == "vanished" else why
    finally:
        opened.close()
    if isinstance(content, str):
        return DecodeError(LIST, 0, size, "bad_manifest", content)
    if whole is not None:
        _small[folder] = content.groups, whole
        if len(_small) > LISTS:
            del _small[next(iter(_small))]
    return content


_small: dict[StorageLocation, tuple[tuple[RowGroup, ...], bytes]] = {}  # files that were read with their list


def _reader(opened: BinaryFile | None, whole: bytes | None) -> Callable[[int, int], bytes]:
    # Reads from a position so many bytes, of an open file or of all its bytes.
    if opened is None or whole is not None:
        data = whole or b""
        return lambda begin, count: data[begin : begin + count]
    return lambda begin, count: storage.read_opened(opened, count, begin)


@functools.lru_cache(maxsize=2)
def rows_of(folder: StorageLocation, groups: tuple[RowGroup, ...]) -> SegmentRows:
    """The rows of a directory's file with these row groups. Errors: ``OSError``."""
    held, whole = _small.get(folder, ((), None))
    if whole is not None and held == groups:
        read = _reader(None, whole)
        return SegmentRows(read_footer(read, len(whole))[0], groups, read)
    opened = open_file(folder, LIST)
    if isinstance(opened, DecodeError):
        raise OSError(0, opened.detail)
    read = _reader(opened, None)
    try:
        rows = SegmentRows(read_footer(read, opened.seek(0, os.SEEK_END))[0], groups, read)
    except BaseException:
        opened.close()
        raise
    weakref.finalize(rows, opened.close)
    return rows


class CopyView(NamedTuple):
    """A place with copies below it: each directory with a list is presented as the list describes it.

    ``seen``: when its lists were first listed in this state (ns), 0 for never; later lists are of another copy, whose
    files may differ under the same name and size.
    """

    seen: int = 0

    def open(self, folder: StorageLocation, name: str) -> BinaryFile | DecodeError:
        """Open a file as it was in the directory; if a later copy has replaced it meanwhile, as that has it."""
        opened = self._open(folder, name)
        lacks = (
            opened.reason in ("vanished", "unreadable")
            if isinstance(opened, DecodeError)
            else (isinstance(opened, CopiedSegment) and not opened.is_there())
        )
        return CopyView(time.time_ns())._open(folder, name) if lacks else opened

    def _open(self, folder: StorageLocation, name: str) -> BinaryFile | DecodeError:
        where = folder.child(name)
        above = where.parent
        content = list_of(above, self.seen)
        if content is None:
            return open_file(folder, name)
        shown = printable(name or folder.name)
        if isinstance(content, DecodeError):
            return content._replace(file=shown, position=0, length=-1, reason="unreadable")
        last = where.path.rpartition("/")[2]
        item = _by_name(content).get(last)
        if item is None:
            return DecodeError(shown, 0, -1, "vanished", "gone since the directory was listed")
        return _opened(above, item, shown, content)


_LISTED: dict[StorageLocation, tuple[int, FolderList]] = {}  # by log directory: when (ns), and its list


def remember_list(place: StorageLocation, as_of: int, content: FolderList) -> None:
    """Keep the list by which a log directory was listed, so that all answers about it agree."""
    _LISTED[place] = as_of, content


def copy_list(place: StorageLocation) -> FolderList | None:
    """The list of a directory that was copied without payload, None for any other."""
    if not isinstance(place.view, CopyView):
        return None
    bare, as_of = place._replace(view=None), place.view.seen
    kept_as_of, cached = _LISTED.get(bare, (0, None))
    content = cached if kept_as_of == as_of else list_of(bare, as_of)
    return content if isinstance(content, FolderList) else None


def is_whole(place: StorageLocation, listed: int) -> bool:
    """Whether a copied log directory is one complete copy, unchanged since its list, with hash ``listed``, was read.

    A copy marks the list before it starts, and when it has ended.
    """
    now = list_of(place._replace(view=None))
    return isinstance(now, FolderList) and not now.under_way and hash(now) == listed


@functools.lru_cache(maxsize=LISTS)
def _by_name(content: FolderList) -> dict[str, Listed]:
    return {item.name: item for item in content.files}


def _opened(folder: StorageLocation, item: Listed, shown: str, among: FolderList) -> BinaryFile | DecodeError:
    if item.content is not None:
        return _Content(item.content, item.length)
    if item.kept is not None:
        return _stored_file(folder, item, shown, among)
    if item.taken is not None:
        return CopiedSegment(folder, among.groups, item.taken, item.size, shown, summed=bool(among.summed))
    if item.refused is not None:
        return DecodeError(shown, 0, -1, *item.refused)
    return DecodeError(shown, 0, -1, "unreadable", NOT_TAKEN)


def _stored_file(folder: StorageLocation, item: Listed, shown: str, among: FolderList) -> BinaryFile | DecodeError:
    assert item.kept is not None
    most = min(DEFAULT_LIMITS.max_index_bytes, item.length)
    content = unpacked(folder, item.kept, most if item.like is None else most_encoded(most))
    if isinstance(content, DecodeError):
        return content._replace(file=shown)
    if item.like is not None:
        segment = _by_name(among).get(item.like)
        try:
            content = _entries(folder, item.name, content, among.groups, segment.taken if segment is not None else None)
        except OSError as error:
            return DecodeError(shown, 0, -1, "unreadable", str(error.strerror))
    return _Content(content[: item.length], item.length)


def _entries(
    folder: StorageLocation, name: str, text: bytes, groups: tuple[RowGroup, ...], segment: TakenSegment | None
) -> bytes:
    says = kafka_names.data_name(name)
    if segment is None or says is None or says.kind not in ENTRY or segment.rows > MOST_ROWS:
        raise OSError(0, "an index of the copy is of no segment")
    rows, _ = rows_of(folder, groups).rows(segment.first, segment.first + segment.rows)
    return decoded_index(says.kind, text, rows, says.offset)


def unpacked(folder: StorageLocation, kept: tuple[int, int], most: int) -> bytes | DecodeError:
    """The content of a small file, at most ``most`` bytes, that the directory's file has there."""
    begin, size = kept
    if size > DEFAULT_LIMITS.max_index_bytes:
        return DecodeError(LIST, 0, -1, "limit", f"more than the limit of {DEFAULT_LIMITS.max_index_bytes} bytes")
    whole = _small[folder][1] if folder in _small else None
    data = read_head(folder, LIST, size, start=begin) if whole is None else whole[begin : begin + size]
    if isinstance(data, DecodeError):
        return data
    try:
        text = zlib.decompressobj(wbits=31).decompress(data, most + 1)
    except zlib.error:
        return DecodeError(LIST, 0, -1, "unreadable", "what the copy keeps of it cannot be unpacked")
    if len(text) > most:
        return DecodeError(LIST, 0, -1, "limit", "the copy keeps more of it than its list says")
    return text


def packed(content: bytes) -> bytes:
    """A file's content as a copy stores it beside the list."""
    return gzip.compress(content, compresslevel=6, mtime=0)


class _Bytes:
    # A file that is generated while it is read: stretch returns up to count bytes from a position on.
    def __init__(self) -> None:
        self.at = 0

    def stretch(self, position: int, count: int) -> bytes:
        raise NotImplementedError

    def readinto(self, buffer: Any, /) -> int:
        """Fill ``buffer`` with one read."""
        view = memoryview(buffer).cast("B")
        data = self.stretch(self.at, min(len(view), MIB))
        view[: len(data)] = data
        self.at += len(data)
        return len(data)

    def seek(self, position: int, whence: int = 0, /) -> int:
        """Go to a byte, counted from the first one."""
        self.at = position
        return position

    def close(self) -> None:
        """Nothing is open."""


class _Content(_Bytes):
    # Bytes, followed by zeros up to length.
    def __init__(self, data: bytes, length: int) -> None:
        super().__init__()
        self.data, self.length = data, length

    def stretch(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``position`` on."""
        count = max(0, min(count, self.length - position))
        return self.data[position : position + count].ljust(count, b"\0")


class CopiedSegment(_Bytes, StoredChunks):
    """A segment of a copy. Its chunks are as they were when it was read; its bytes are batch headers, from their rows,
    and zeros."""

    def __init__(
        self, folder: StorageLocation, groups: tuple[RowGroup, ...], segment: TakenSegment, size: int, name: str,
        *, summed: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.summed = summed
        self.name = name
        self.folder, self.groups, self.taken, self.size = folder, groups, segment, size
        # First byte, end, the number of the first row, the rows
        self.held: tuple[int, int, int, np.ndarray] = (0, 0, 0, walking.walk_rows(0))

    def is_there(self) -> bool:
        """Whether its first batches can be read, if it has any."""
        try:
            return not self.taken.rows or bool(len(self._rows(0, 1, False)[0]))
        except OSError:
            return False

    @functools.cached_property
    def _reader(self) -> SegmentRows:
        return rows_of(self.folder, self.groups)

    def _records(
        self, first: int, rows: np.ndarray, limits: Limits, look: Look | None
    ) -> tuple[RecordSummary, np.ndarray | None]:
        # Summaries and results of look for rows from number first on. OSError for impossible summaries.
        batches, summary = walking.columns_of(rows), self._summaries(first, len(rows))
        if look is None or not len(rows):
            return summary, None
        return summary, look(lambda some: self._opened(first, batches, summary, some, limits), batches, summary)

    def _summaries(self, first: int, count: int) -> RecordSummary:
        begin = self.taken.first + first
        summary = self._reader.summaries(begin, begin + count)
        closed = summary.flaws & RECORD_UNDECOMPRESSABLE != 0
        if np.any((summary.present < 0) | (closed & (summary.present > 0))):
            raise OSError(0, "a batch of the copy has records that it cannot have")
        return summary

    def _opened(
        self, first: int, batches: BatchColumns, summary: RecordSummary, some: np.ndarray, limits: Limits
    ) -> Iterator[Decoded]:
        begin = self.taken.first + first
        details = self._reader.details(begin, begin + len(summary.present))
        return records_from_details(batches, summary, [details[row] for row in some.tolist()], some, limits)

    @property
    def has_records(self) -> bool:
        """See :class:`auditor.connectors.codec.segment.StoredChunks`."""
        return self.taken.records

    def batch(self, position: int, limits: Limits) -> tuple[BatchColumns, Decoded] | None:
        """See :class:`auditor.connectors.codec.segment.StoredChunks`."""
        if not self.taken.records:
            return None
        try:
            above, rows = self._chunk_rows(position)
            number = int(np.searchsorted(rows[:, walking.POSITION], position))
            row = rows[number : number + 1]
            if not len(row) or row[0, walking.POSITION] != position:
                return None
            first = above + number
            batches, summary = walking.columns_of(row), self._summaries(first, 1)
            for run in self._opened(first, batches, summary, np.zeros(1, np.int64), limits.counting()):
                return batches, run
        except OSError:
            return None
        return None

    def _rows(self, first: int, behind: int, raw: bool) -> tuple[np.ndarray, list[bytes] | None]:
        if first >= behind:
            return walking.walk_rows(0), [] if raw else None
        rows, stored = self._reader.rows(self.taken.first + first, self.taken.first + behind, stored=raw)
        _check(rows, stored, self.size)
        return rows, stored

    def chunks(
        self, start: int, stop: int | None, pause: int, *, limits: Limits, raw: bool, records: bool, look: Look | None
    ) -> Iterator[Chunk]:
        """See :func:`auditor.connectors.codec.segment.read_segment`."""
        first, begin, limits, records = 0, 0, limits.counting(), records and self.taken.records
        raw = raw and (self.gives_sums or not self.summed)
        for count, end, following in self.taken.chunks:
            for some in range(0, max(count, 1), ROWS):  # as in a chunk of a file, whatever the list says
                last = some + ROWS >= count
                try:
                    rows, stored = self._rows(first + some, first + min(some + ROWS, count), raw)
                    of_records = self._records(first + some, rows, limits, look) if records else None
                except OSError as error:
                    yield self._broken(begin, str(error.strerror))
                    return
                upto = end if last else int(rows[-1, walking.POSITION] + rows[-1, walking.SIZE])
                behind = following if last else int(rows[-1, walking.LAST_OFFSET]) + 1
                at_end = last and end == self.taken.chunks[-1][1]
                chunk = self._chunk(rows, stored, of_records, (begin, upto, behind), at_end=at_end)
                yield from _cut(chunk, start, stop, pause)
                if stop is not None and upto >= stop:
                    return
                begin = upto
            first += count

    def _broken(self, begin: int, why: str) -> Chunk:
        # Replaces everything after byte begin.
        error = DecodeError(self.name, begin, self.size - begin, "unreadable", why)
        return Chunk(walking.walk_rows(0), [error], [], None, None, self.size)

    def _chunk(
        self,
        rows: np.ndarray,
        stored: list[bytes] | None,
        of_records: tuple[RecordSummary, np.ndarray | None] | None,
        place: tuple[int, int, int],
        *,
        at_end: bool,
    ) -> Chunk:
        # place: first byte, end, and the offset after it.
        begin, end, following = place

        def here(errors: tuple[DecodeError, ...]) -> list[DecodeError]:
            return [e for e in errors if begin <= e.position < end or (at_end and e.position >= end)]

        errors, bodies = here(self.taken.errors), here(self.taken.met(records=of_records is not None))
        summary, looked = of_records or (None, None)
        flipped = tuple(here(self.taken.flipped))
        return Chunk(rows, errors, bodies, summary, stored, end, next_offset=following, looked=looked, flipped=flipped)

    def stretch(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``position`` on."""
        made = np.zeros(max(0, min(count, self.size - position)), np.uint8)
        if not len(made):
            return b""
        _, rows = self._chunk_rows(position)
        starts = rows[:, walking.POSITION]
        here = rows[(starts < position + len(made)) & (starts + walking.HEADER > position)]
        headers = [(int(row[walking.POSITION]), header_of(row)) for row in here]
        for start, header in [*headers, *self._foreign]:
            low, high = max(start, position), min(start + len(header), position + len(made))
            if low < high:
                made[low - position : high - position] = np.frombuffer(header[low - start : high - start], np.uint8)
        return made.tobytes()

    @functools.cached_property
    def _foreign(self) -> list[tuple[int, bytes]]:
        # Complete batches of an unknown magic: brokers read them by their checksum.
        batches = []
        for row in self.taken.foreign:
            position, size = row[walking.POSITION], row[walking.SIZE]
            if walking.HEADER <= size <= min(self.size - position, DEFAULT_LIMITS.max_batch_bytes):
                batches.append((position, with_right_checksum(header_of(np.array(row, np.int64)), size)))
        return batches

    def _chunk_rows(self, position: int) -> tuple[int, np.ndarray]:
        # The rows of the chunk that has this byte, with the number of the first one.
        begin, end, first, rows = self.held
        if begin <= position < end:
            return first, rows
        first = begin = 0
        for count, end, _ in self.taken.chunks:
            if position < end:
                rows = self._rows(first, first + count, False)[0]
                self.held = begin, end, first, rows
                return first, rows
            first, begin = first + count, end
        return 0, walking.walk_rows(0)


def _check(rows: np.ndarray, stored: list[bytes] | None, size: int) -> None:
    # OSError if batches do not follow each other within the segment, or a batch has no bytes.
    positions, length = rows[:, walking.POSITION], rows[:, walking.SIZE]
    sound = (positions >= 0) & (length >= LEAST_BATCH) & (length <= size - positions)
    magic = rows[:, walking.MAGIC]
    if not sound.all() or np.any(positions[1:] < positions[:-1] + length[:-1]) or np.any((magic < 0) | (magic > 2)):
        raise OSError(0, "batches of the copy do not lie in their segment")
    if stored is not None and any(item is None for item in stored):
        raise OSError(0, "a batch of the copy has no bytes")


def _cut(chunk: Chunk, start: int, stop: int | None, pause: int) -> Iterator[Chunk]:
    # Without the batches that start before start, or at or after stop; split at pause.
    if chunk.end <= start and start > 0:
        return
    positions = chunk.rows[:, walking.POSITION]
    low = int(np.searchsorted(positions, start))
    high = len(positions) if stop is None else int(np.searchsorted(positions, stop))
    middle = int(np.searchsorted(positions, pause)) if pause >= 0 else high
    floor = start if low else -1
    if low < middle < high:
        yield _part(chunk, low, middle, floor)
        yield _part(chunk, middle, high, int(positions[middle]))
    elif low or high < len(positions):
        yield _part(chunk, low, high, floor)
    else:
        yield chunk


def _part(chunk: Chunk, low: int, high: int, floor: int) -> Chunk:
    # Rows low to before high, with the errors between byte floor and the next row.
    whole = high == len(chunk.rows)
    end = chunk.end if whole else int(chunk.rows[high, walking.POSITION])
    following = chunk.next_offset if whole or not high else int(chunk.rows[high - 1, walking.LAST_OFFSET]) + 1
    return Chunk(
        chunk.rows[low:high],
        [e for e in chunk.errors if floor <= e.position and (whole or e.position < end)],
        [e for e in chunk.body_errors if floor <= e.position and (whole or e.position < end)],
        None if chunk.summary is None else chunk.summary.take(slice(low, high)),
        None if chunk.raw is None else chunk.raw[low:high],
        end,
        next_offset=following,
        looked=None if chunk.looked is None else chunk.looked[low:high],
        flipped=tuple(e for e in chunk.flipped if floor <= e.position and (whole or e.position < end)),
    )


# Listings of PATHs with copies.


_LAST: dict[StorageLocation, tuple[int, int]] = {}  # by place: a hash of its lists, and when (ns) it was first found
HELD = "held by a copy: the broker has deleted it, and the log begins behind it; the table batches has it"
OF_VERSION_1 = "a copy of version 1, which is not read: expected version 2; run: auditor copy --out {}"
NOT_IN_LIST = "a file of Kafka's in the directory of a copy that its list lacks: it is not read"


def resolve_copies(
    where: StorageLocation, listing: FolderListing, limits: Limits
) -> tuple[StorageLocation, FolderListing]:
    """A directory and its listing, with every directory that has a list as the list describes it; the place then opens
    files so.

    A list hides every other file of its directory. Those that look like a broker's own are errors, since they may have
    been meant to be read.
    """
    copied = {entry.name.rpartition("/")[0] for entry in listing.files if entry.name.rpartition("/")[2] == LIST}
    earlier = {entry.name.rpartition("/")[0] for entry in listing.files if entry.name.rpartition("/")[2] == COPY_LIST_1}
    earlier -= copied
    if not copied and not earlier:
        return where, listing
    merged = FolderListing([], list(listing.unused), list(listing.errors))
    if earlier:
        detail = OF_VERSION_1.format(_top_of_copy(where, min(earlier)).shown)
        merged.errors.append(
            DecodeError("/".join(filter(None, (min(earlier), COPY_LIST_1))), 0, -1, "unreadable", detail)
        )
    for entry in listing.files:
        folder, _, name = entry.name.rpartition("/")
        if folder in earlier:
            continue
        if folder not in copied:
            merged.files.append(entry)
        elif kafka_names.data_name(name) or name in kafka_names.OF_A_BROKER:
            merged.errors.append(DecodeError(entry.name, 0, entry.size, "unreadable", NOT_IN_LIST))
    now, folders, all_said, tops = time.time_ns(), sorted(copied), 0, list[tuple[str, FolderList]]()
    to_read = side_by_side if where.uri else map
    for folder, content in zip(folders, to_read(lambda part: list_of(where.child(part), now), folders), strict=True):
        prefix, all_said = f"{folder}/" if folder else "", hash((all_said, content))
        if isinstance(content, FolderList):
            _add(content, prefix, merged, limits)
            if content.readings or content.under_way:
                tops.append((folder, content))
        else:
            why = content or DecodeError(LIST, 0, -1, "vanished", "gone since the directory was listed")
            merged.errors.append(why._replace(file=prefix + LIST))
    for part in merged:
        part.sort()
    since = _since(where._replace(view=None), all_said, now)
    for folder, content in tops:
        remember_list(where._replace(view=None).child(folder), since, content)
    return where._replace(view=CopyView(since)), merged


def _top_of_copy(where: StorageLocation, folder: str) -> StorageLocation:
    # The directory of the whole copy, at or above one of its directories.
    place = where._replace(view=None).child(folder)
    above = [place := place.parent for _ in range(folder.count("/") + 3)]
    tops = (top for top in (where.child(folder), *above) if isinstance(read_head(top, COPY_README, 1), bytes))
    return next(tops, where)


def _since(where: StorageLocation, lists: int, now: int) -> int:
    # When (ns) this process first found these lists at a place, without others since.
    before, since = _LAST.get(where, (lists, now))
    _LAST[where] = lists, (moment := since if before == lists else now)
    return moment


def _add(content: FolderList, prefix: str, merged: FolderListing, limits: Limits) -> None:
    if len(merged.files) + len(merged.unused) + len(content.files) > limits.max_files:
        detail = f"more than {limits.max_files} files: not all listed"
        merged.errors.append(DecodeError(prefix + LIST, 0, -1, "limit", detail))
        return
    for item in content.files:
        if item.gone is not None:
            merged.unused.append(Unused(prefix + item.name, item.size, HELD))
        elif item.unused is None:
            merged.files.append(ListedFile(prefix + item.name, item.size))
        else:
            merged.unused.append(Unused(prefix + item.name, item.size, item.unused))
    for error in content.errors:
        merged.errors.append(error._replace(file=prefix + error.file if error.file else prefix.rstrip("/")))


# Files of a copy named on the command line: original files, a file of batches, or a directory.


class CopiedFile(NamedTuple):
    """A file of a copy, as the file it was taken from, with its original size in bytes."""

    place: StorageLocation
    size: int


def files_named(path: str) -> list[CopiedFile]:
    """The files of a copy that ``path`` names; none if it names anything else, or nothing.

    Errors: :class:`AuditInputError` for an unreadable list.
    """
    folder, last = path.rstrip("/"), ""
    content = _list_above(folder)
    if content is None:
        folder, _, last = folder.rpartition("/")
        content = _list_above(folder or ("/" if path.startswith("/") else "."))
    if content is None:
        return []
    place = storage.place(folder or ("/" if path.startswith("/") else "."))._replace(view=CopyView())
    return [CopiedFile(place.child(item.name), item.size) for item in content.files if _is_meant(item, last)]


def _is_meant(item: Listed, last: str) -> bool:
    present = item.taken is not None or item.content is not None or item.kept is not None or item.refused is not None
    if last in ("", LIST):
        return present and not item.unused
    return item.name == last


def _list_above(path: str) -> FolderList | None:
    try:
        place = storage.place(path)
    except AuditInputError:
        return None
    content = list_of(place) if storage.is_folder(place) else None
    if content is None and isinstance(read_head(place, COPY_LIST_1, 1), bytes):
        raise AuditInputError(OF_VERSION_1.format(_top_of_copy(place, "").shown))
    if content is None or isinstance(content, FolderList):
        return content
    raise AuditInputError(f"{place.shown}: {content.detail}; make the copy again")
