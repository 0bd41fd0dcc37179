"""The file of a directory of a copy without payload: batches as Parquet, with the list of its files as metadata."""

from __future__ import annotations

import base64
import binascii
import functools
import gzip
import hashlib
import io
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.at_rest import Fields, Json, parsed
from auditor.base.errors import FLIPPED_BIT, MIB, REASONS, DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BATCH_DTYPES, FLAW_CRC, UNVERIFIED, BatchColumns, RecordSummary
from auditor.connectors.codec.records import DTYPES, empty_summary
from auditor.connectors.kafka_names import COPY_LIST

# Lists: the files of each directory, and what was taken of each.


LIST = COPY_LIST
LIST_VERSION = 2
MOST_LIST_BYTES, MOST_UNPACKED_BYTES = 64 * MIB, 256 * MIB  # of a list: stored and unpacked
MOST_NUMBER = 2**63 - 1


class Stat(NamedTuple):
    """Identifies the state of a file: its inode and, in ns, its modification and change time."""

    inode: int
    modified_ns: int
    changed_ns: int


class TakenSegment(NamedTuple):
    """The batches of a segment: ``rows`` rows of the directory's file from row ``first`` on.

    ``chunks``: for each chunk from the codec, its number of rows, the byte at which it ends, and the lowest offset
    after it; ``errors`` and ``body_errors`` are theirs. ``foreign``: rows of complete batches of a magic that only the
    broker accepts, which are also in the errors. ``checked``: whether all checksums were verified. ``records``: whether
    it has record summaries; the ``body_errors`` at the positions ``of_records`` then occur only when records are
    read. ``unended``: producer ids of the transactions that are open at its end; None if they are too many, or unknown.
    """

    first: int
    rows: int
    chunks: tuple[tuple[int, int, int], ...]
    errors: tuple[DecodeError, ...] = ()
    body_errors: tuple[DecodeError, ...] = ()
    foreign: tuple[tuple[int, ...], ...] = ()
    checked: bool = True
    records: bool = False
    of_records: tuple[int, ...] = ()
    unended: tuple[int, ...] | None = None

    def met(self, *, records: bool) -> tuple[DecodeError, ...]:
        """The errors of bodies that occur in a reading with or without ``records``."""
        left_out = frozenset[int]() if records else frozenset(self.of_records)
        met = (error for error in self.body_errors if error.reason != FLIPPED_BIT)
        return tuple(error for error in met if error.position not in left_out)

    @property
    def flipped(self) -> tuple[DecodeError, ...]:
        """The flipped bits of its batches (:class:`auditor.base.errors.FlippedBit`)."""
        return tuple(error for error in self.body_errors if error.reason == FLIPPED_BIT)

    @property
    def damaged(self) -> bool:
        """Whether bytes are no batch, or a batch is damaged: how these are read depends on their neighbours."""
        return bool(self.errors or self.met(records=False))


class DeletionTimes(NamedTuple):
    """The time (ms) by which a segment was first missing, and until when the copy keeps it."""

    since: int
    until: int


class Listed(NamedTuple):
    """A file of the directory. At most one of the other fields has its content or the reason for none.

    ``content``: its bytes, followed by zeros up to ``length`` (-1: none); ``kept``: the same, packed, by position and
    size in the directory's file; ``like``: it is an index, encoded relative to the batches of this segment
    (:mod:`auditor.connectors.logdir.copy_view`); ``taken``: its batches; ``refused``: reason and detail why it could
    not be opened; ``unused``: why it is never opened. With none of them only its name was taken. ``gone``: the broker
    has deleted it from below the log's start, and the copy still keeps it.
    """

    name: str
    size: int
    stat: Stat | None = None
    content: bytes | None = None
    kept: tuple[int, int] | None = None
    length: int = -1
    taken: TakenSegment | None = None
    refused: tuple[str, str] | None = None
    unused: str | None = None
    like: str | None = None
    gone: DeletionTimes | None = None


class CopyTimes(NamedTuple):
    """When a directory was copied, in ms by the clock of the machine that copied.

    Its files were listed after ``begun``, and all were read before ``done``. ``live``: a broker of that machine, with
    the same clock, was running in between.
    """

    folder: str
    begun: int
    done: int
    live: bool


class RowGroup(NamedTuple):
    """A row group of the Parquet file: position and size in bytes, rows, and a digest of its bytes."""

    position: int
    size: int
    rows: int
    digest: str


class FolderList(NamedTuple):
    """All files of a directory, and errors of its listing.

    ``readings``: for a log directory, when each of its directories was read; ``machine``: a unique id of the machine of
    that clock. ``under_way``: a copy was started and has not ended, so that its directories may be of that one or of
    the one before. ``groups``: of the Parquet file. ``summed``: the stored bytes are sums of records under the key of
    this name (:mod:`auditor.replay.reading.record_sums`); empty: they are batches, or there are none.
    """

    files: tuple[Listed, ...]
    errors: tuple[DecodeError, ...] = ()
    readings: tuple[CopyTimes, ...] = ()
    machine: str = ""
    under_way: bool = False
    groups: tuple[RowGroup, ...] = ()
    summed: str = ""

    def file(self, name: str) -> Listed | None:
        """The file of that name."""
        return next((item for item in self.files if item.name == name), None)


def encode_list(content: FolderList) -> bytes:
    """A list as bytes; equal lists give equal bytes."""
    data = {
        "version": LIST_VERSION,
        "files": [_as_json(item) for item in content.files],
        "errors": [list(error) for error in content.errors],
        "readings": [list(reading) for reading in content.readings],
        "groups": [list(group) for group in content.groups],
    } | {name: value for name in ("machine", "under_way", "summed") if (value := getattr(content, name))}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(text, compresslevel=6, mtime=0)


def _as_json(item: Listed) -> Fields:
    entry: Fields = {"name": item.name, "size": item.size}
    if item.stat is not None:
        entry["stat"] = list(item.stat)
    if item.content is not None:
        entry["content"] = base64.b64encode(item.content).decode()
    for name in ("kept", "refused", "unused", "like"):
        if (value := getattr(item, name)) is not None:
            entry[name] = value
    if item.length >= 0:
        entry["length"] = item.length
    if item.gone is not None:
        entry["gone"] = list(item.gone)
    if item.taken is not None:
        entry["taken"] = item.taken._asdict()
    return entry


def decode_list(data: bytes, earlier: Callable[[Json], Json] = lambda data: data) -> FolderList | str:
    """Decode a list, or return why the bytes are none. ``earlier``: makes a list of this version of an earlier one."""
    if len(data) > MOST_LIST_BYTES:
        return f"a list of more than {MOST_LIST_BYTES} bytes"
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
            text = unpacked.read(MOST_UNPACKED_BYTES + 1)
        if len(text) > MOST_UNPACKED_BYTES:
            return f"a list that becomes more than {MOST_UNPACKED_BYTES} bytes"
        return _list(earlier(parsed(text)))
    except _BadListValue as wrong:
        return str(wrong)
    except (OSError, EOFError, zlib.error, ValueError):
        return "a list that cannot be unpacked"


class _BadListValue(Exception):
    """A value that no list has."""


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise _BadListValue(f"{what} of the list is not as it should be")


def _list(data: Json) -> FolderList:
    _require(isinstance(data, dict), "the form")
    if data.get("version") != LIST_VERSION:
        raise _BadListValue("a list of a version that this program does not know")
    files = tuple(_listed(item) for item in _items(data.get("files", [])))
    _require(len({item.name for item in files}) == len(files), "a name")
    readings = tuple(_reading(item) for item in _items(data.get("readings", [])))
    machine = _words(data.get("machine", ""), "a machine")
    errors = _errors(data.get("errors", []), folder=True)
    groups = tuple(_row_group(item) for item in _items(data.get("groups", [])))
    under_way, summed = data.get("under_way", False) is True, _words(data.get("summed", ""), "a key")
    return FolderList(files, errors, readings, machine, under_way, groups, summed)


def _row_group(item: Json) -> RowGroup:
    _require(len(_items(item)) == len(RowGroup._fields), "a row group")
    position, size, rows = _numbers(item[:3], 3)
    _require(0 < size <= MOST_GROUP and 0 < rows <= MOST_ROWS, "a row group")
    return RowGroup(position, size, rows, _words(item[3], "a row group"))


def _reading(item: Json) -> CopyTimes:
    _require(len(_items(item)) == len(CopyTimes._fields), "a moment")
    folder, begun, done, live = item
    _require(isinstance(live, bool), "a moment")
    begun, done = _numbers([begun, done], 2)
    _require(begun <= done, "a moment")
    return CopyTimes(_words(folder, "a moment"), begun, done, live)


def _listed(item: Json) -> Listed:
    _require(isinstance(item, dict), "a file")
    name = item.get("name")
    _require(isinstance(name, str) and is_name(name), "a name")
    size, length = _number(item.get("size")), _number(item.get("length", -1), least=-1)
    stat = Stat(*_numbers(item["stat"], 3)) if "stat" in item else None
    content = _content(item["content"]) if "content" in item else None
    begin, count = _numbers(item.get("kept", [0, 0]), 2)
    kept = (begin, count) if "kept" in item else None
    like = item.get("like")
    _require(like is None or (isinstance(like, str) and is_name(like) and kept is not None), "a name")
    refused, unused = item.get("refused"), item.get("unused")
    unused = None if unused is None else _words(unused, "a reason")
    if refused is not None:
        _require(len(_items(refused)) == 2, "a reason")
        refused = (_reason(refused[0]), _words(refused[1], "a reason"))
    segment = _segment(item["taken"], size) if "taken" in item else None
    _require(sum(x is not None for x in (content, kept, refused, unused, segment)) <= 1, "a file")
    _require(content is None or len(content) <= length, "a length")
    gone = DeletionTimes(*_numbers(item["gone"], 2)) if "gone" in item else None
    _require(gone is None or segment is not None, "a file")
    return Listed(name, size, stat, content, kept, length, segment, refused, unused, like, gone)


def is_name(name: str) -> bool:
    """Whether it is a file name that cannot lead to another directory."""
    return (
        0 < len(name) <= 1024
        and name not in (".", "..")
        and "/" not in name
        and "\\" not in name
        and name.isprintable()
    )


def _segment(data: Json, size: int) -> TakenSegment:
    _require(isinstance(data, Mapping), "a segment")
    first, rows = _number(data.get("first")), _number(data.get("rows"))
    spans = [_numbers(chunk, 3, least=-MOST_NUMBER - 1) for chunk in _items(data.get("chunks"))]
    chunks = tuple((count, end, following) for count, end, following in spans)
    _require(bool(chunks) and sum(c[0] for c in chunks) == rows and all(c[0] >= 0 for c in chunks), "a segment's rows")
    ends = [0, *(end for _, end, _ in chunks), size]
    _require(all(a <= b for a, b in itertools.pairwise(ends)), "a segment's end")
    foreign = tuple(tuple(_numbers(row, 17, least=-(2**63))) for row in _items(data.get("foreign", [])))
    errors, bodies = _errors(data.get("errors", [])), _errors(data.get("body_errors", []))
    of_records = tuple(_number(number) for number in _items(data.get("of_records", [])))
    checked, records = data.get("checked", True) is True, data.get("records", False) is True
    stored = data.get("unended")
    unended = None if stored is None else tuple(_number(number, -(2**63)) for number in _items(stored))
    return TakenSegment(first, rows, chunks, errors, bodies, foreign, checked, records, of_records, unended)


def _errors(data: object, *, folder: bool = False) -> tuple[DecodeError, ...]:
    errors = []
    for item in _items(data):
        _require(len(_items(item)) == len(DecodeError._fields), "an error")
        file, position, length, reason, detail, *offsets = item
        file, detail = _words(file, "an error"), _words(detail, "an error")
        _require(not folder or "/" not in file, "a name")
        numbers = _numbers([position, length, *offsets], 4, least=-(2**63))
        errors.append(DecodeError(file, numbers[0], numbers[1], _reason(reason), detail, numbers[2], numbers[3]))
    return tuple(errors)


def _reason(value: object) -> str:
    _require(isinstance(value, str) and value in REASONS, "a reason")
    return str(value)


def _words(value: Json, what: str) -> str:
    # ValueError for a lone surrogate, which JSON can express and nobody can write.
    _require(isinstance(value, str), what)
    value.encode()
    return str(value)


def _items(value: Json) -> list[Json]:
    _require(isinstance(value, list), "a list")
    items: list[Json] = value
    return items


def _numbers(value: Json, count: int, least: int = 0) -> list[int]:
    _require(len(_items(value)) == count, "a number")
    return [_number(item, least) for item in value]


def _number(value: Json, least: int = 0) -> int:
    _require(type(value) is int and least <= value <= MOST_NUMBER, "a number")
    return int(value)


def _content(value: Json) -> bytes:
    _require(isinstance(value, str), "a content")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise _BadListValue("a content of the list is not as it should be") from None


# Parquet's own structs, in the compact protocol of Thrift: headers of pages and the footer.
#
# Some hundred kilobytes of Parquet can unpack to any size, or repeat one value endlessly. So the headers of all pages
# are read before anything is unpacked. Sizes that the rows cannot have are refused. Footers are also written, so that
# the row groups of an earlier copy are moved as they are.


MOST_FOOTER = 32 * MIB  # bytes without the list; a row group takes 1.3 KB
MOST_GROUP, MOST_ROWS = 256 * MIB, 1 << 19  # of a row group: bytes and rows
MOST_STORED = 512 * MIB  # plain bytes of a column of bytes in a row group: a batch of 256 MiB, and others
PLAIN_BYTES = 16  # of one number, with the overhead of pages
PAGE_BYTES = 64 << 10  # always allowed for a column, even of few rows
PLAIN = 0  # the only encoding of bytes that cannot repeat a value
_TYPE, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8  # fields of a page's header
_DATA_PAGES = (0, 3)
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8
_MAGIC = b"PAR1"
_END, _DIGEST = 8, 6  # bytes: the size of the footer and _MAGIC; a digest
_NUMBER_OF_ROWS, ROW_GROUPS, METADATA = 3, 4, 5  # fields of the footer
_POSITIONS = (9, 10, 11)  # fields of a column: of pages, in the file
_NEEDED = (1, 2, 3, 4, 5, 6, 7, *_POSITIONS)
_REFUSED = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
)  # of bytes that are no Parquet file of this form
_TRAILER = struct.Struct(f"<{_DIGEST}sII")  # before the footer: its digest; where in it the list is, and its size
METADATA_KEY = b"auditor.copy"  # of the list: base64 of gzip of JSON
TAIL = 64 << 10  # bytes at the end that are read at once

Struct = dict[int, tuple[int, Any]]  # kind and value by field id


class _BadStruct(ValueError):
    """Bytes that are no struct of Thrift."""


class _Thrift:
    # Reads structs.
    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, position, len(data) if end is None else end

    def byte(self) -> int:
        if self.at >= self.end:
            raise _BadStruct
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _BadStruct

    def struct(self, depth: int = 0) -> Struct:
        fields: Struct = {}
        field = 0
        while (head := self.byte()) != 0:
            step = head >> 4
            field = field + step if step else self._zigzag()
            fields[field] = head & 0x0F, self._value(head & 0x0F, depth)
        return fields

    def _zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _BadStruct
        if kind in _BOOLEANS:
            return kind == _BOOLEANS[0]
        if kind == _BYTE:
            return self.byte()
        if kind in _INTEGERS:
            return self._zigzag()
        if kind in (_DOUBLE, _BINARY):
            return self._bytes(8 if kind == _DOUBLE else self.varint())
        if kind in _LISTS:
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.varint()
            if count > self.end - self.at:
                raise _BadStruct
            return head & 0x0F, [self._value(head & 0x0F or _BYTE, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise _BadStruct

    def _bytes(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise _BadStruct
        self.at += size
        return self.data[self.at - size : self.at]


def parsed_struct(data: bytes) -> Struct:
    """A struct of Thrift. Errors: ``ValueError`` for other bytes."""
    return _Thrift(data).struct()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def packed_struct(fields: Struct) -> bytes:
    """The reverse of :func:`parsed_struct`, for the ids and kinds of footers."""
    out, before = [], 0
    for field, (kind, value) in sorted(fields.items()):
        out += [bytes([(field - before) << 4 | kind]), b"" if kind in _BOOLEANS else _packed_value(kind, value)]
        before = field
    return b"".join([*out, b"\0"])


def _packed_value(kind: int, value: Any) -> bytes:
    if kind in _INTEGERS:
        return _varint(value << 1 if value >= 0 else ~(value << 1))
    if kind in _LISTS:
        of, items = value
        head = bytes([len(items) << 4 | of]) if len(items) < 15 else bytes([0xF0 | of]) + _varint(len(items))
        return head + b"".join(_packed_value(of, item) for item in items)
    if kind == _STRUCT:
        return packed_struct(value)
    return _varint(len(value)) + bytes(value) if kind == _BINARY else bytes([value])


def group_fits(data: bytes, group: Any, of_bytes: Container[int]) -> bool:
    """Whether a row group (``pyarrow.parquet.RowGroupMetaData``) unpacks to no more than its rows can take.

    ``data``: the bytes of the file; ``of_bytes``: the numbers of its columns of bytes.
    """
    rows = group.num_rows
    if not 0 < rows <= MOST_ROWS:
        return False
    for number in range(group.num_columns):
        column = group.column(number)
        is_stored = number in of_bytes
        start = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset is not None:
            start = min(start, column.dictionary_page_offset)
        pages = _pages(data, start, column.total_compressed_size)
        if pages is None or (is_stored and any(encoding != PLAIN for _, encoding in pages)):
            return False
        if sum(unpacked for unpacked, _ in pages) > (MOST_STORED if is_stored else PAGE_BYTES + PLAIN_BYTES * rows):
            return False
    return True


def _pages(data: bytes, start: int, size: int) -> list[tuple[int, int]] | None:
    # Of each page its unpacked size in bytes, and the encoding of its values (-1: none). None if the pages do not fill
    # the column's bytes.
    if start < 0 or size < 0 or start + size > len(data):
        return None
    pages, position, end = [], start, start + size
    try:
        while position < end:
            thrift = _Thrift(data, position, end)
            page = thrift.struct()
            kind, unpacked, packed = (page[field][1] for field in (_TYPE, _UNPACKED, _PACKED))
            if not all(type(n) is int and n >= 0 for n in (kind, unpacked, packed)):
                return None
            inner = page.get(_DATA if kind == 0 else _DATA_2) if kind in _DATA_PAGES else None
            # Of DataPageHeader and DataPageHeaderV2
            encoding = inner[1].get(2 if kind == 0 else 4) if inner and isinstance(inner[1], dict) else None
            position = thrift.at + packed
            pages.append((unpacked, encoding[1] if encoding and type(encoding[1]) is int else -1))
    except (_BadStruct, KeyError):
        return None
    return pages if position == end else None


# Batches of segments as Parquet: the columns of a walk, named as in the table ``batches``.
#
# Growing numbers are stored as steps, others by dictionary; a batch takes about ten bytes, four of them its checksum.
# Batches of internal topics also have their stored bytes. On request, a batch has a summary of its records, and the
# details that this lacks (:mod:`auditor.connectors.logdir.copy_view`).


GROUP_ROWS = 1 << 17  # per row group, one of which is in memory at a time
GROUP_BYTES = 4 * MIB  # of stored batches in it
FEW_ROWS = 128  # of a file so small that every byte of a page matters
FULL_BYTES = GROUP_BYTES // 16  # packed, at least; smaller row groups are merged
ROWS_AT_ONCE = 2_048
STORED = "stored"
DETAILS = "record_details"
# Names of RecordSummary's fields in a copy; -1 or 0 if a batch has no records.
SUMMARY = (
    "records_present",
    "first_record_timestamp",
    "min_record_timestamp",
    "max_record_timestamp",
    "null_keys",
    "first_null_key",
    "record_flaws",
    "first_record_flaw",
    "plain_size",
)
_BY_STEPS = (
    "position",
    "size",
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "base_sequence",
    *SUMMARY[1:4],
    "plain_size",
)
COLUMNS = pa.schema(
    [
        *(pa.field(n, pa.from_numpy_dtype(t), False) for n, t in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)),
        pa.field("crc_ok", pa.bool_()),  # null if it was not verified
    ]
)
OF_RECORDS = [
    *(pa.field(n, pa.from_numpy_dtype(np.dtype(t)), False) for n, t in zip(SUMMARY, DTYPES, strict=True)),
    pa.field(DETAILS, pa.binary()),
]
MAY_BE_NULL = ("crc_ok", DETAILS, STORED)


def columns_of(*, stored: bool, records: bool) -> pa.Schema:
    """The columns of a file, with the stored bytes of batches, or with record summaries."""
    more = [*(OF_RECORDS if records else ()), *([pa.field(STORED, pa.binary())] if stored else ())]
    return pa.schema([*COLUMNS, *more])


def digest_of(data: bytes) -> str:
    """A digest of bytes that are checked before they are parsed, since libraries may crash on damaged ones."""
    return hashlib.blake2b(data, digest_size=_DIGEST).hexdigest()


class Records(NamedTuple):
    """The summaries of the records of some batches, and the details of each batch, None for none."""

    summary: RecordSummary
    details: Sequence[bytes | None]


class SegmentWriter:
    """Writes the file of a directory: rows of a walk in their order, packed contents of small files, and the list.

    With ``stored`` also the stored bytes of batches, with ``records`` record summaries, empty ones where none are
    given.
    """

    def __init__(self, path: Path, *, stored: bool, records: bool = False) -> None:
        self.out, self.schema, self.records = path.open("wb"), columns_of(stored=stored, records=records), records
        self.out.write(_MAGIC)
        self.groups: list[RowGroup] = []
        self.structs: list[Struct] = []
        self.rows = 0
        self.waiting: list[pa.Table] = []
        self.waits = self.bytes = 0

    def add(self, rows: np.ndarray, stored: Sequence[bytes] | None = None, records: Records | None = None) -> None:
        """Add rows, with their stored bytes, and their record summaries."""
        if not len(rows):
            return
        flaws = rows[:, walking.FLAWS]
        columns: list[Any] = list(walking.columns_of(rows)._replace(flaws=(flaws & ~UNVERIFIED).astype(np.int32)))
        columns.append(pa.array(flaws & FLAW_CRC == 0, mask=flaws & UNVERIFIED != 0))
        if self.records:
            summary, details = records or Records(empty_summary(len(rows)), [None] * len(rows))
            columns += [*summary, pa.array(details, pa.binary())]
            self.bytes += sum(len(text or b"") for text in details)
        if stored is not None:
            columns.append(pa.array(stored, pa.binary()))
            self.bytes += sum(map(len, stored))
        self.waiting.append(pa.table(columns, schema=self.schema))
        self.rows += len(rows)
        self.waits += len(rows)
        if self.waits >= GROUP_ROWS or self.bytes >= GROUP_BYTES:
            self._flush()

    def carry(self, reader: SegmentRows, first: int, behind: int) -> None:
        """Add rows of an earlier file. Large row groups are copied as they are. Errors: ``OSError`` for unreadable
        ones."""
        position = first
        for number, here in reader.parts(first, behind):
            group, count = reader.groups[number], here.stop - here.start
            large = group.rows >= GROUP_ROWS // 2 or group.size >= FULL_BYTES
            if count == group.rows and large and _same_columns(reader.schema, self.schema):
                self._flush()
                self._append(reader.group_bytes(number), reader.struct(number), group.position, count)
                self.rows += count
            else:
                rows, stored = reader.rows(position, position + count, stored=True)
                records = None
                if reader.records:
                    span = position, position + count
                    records = Records(reader.summaries(*span), reader.details(*span))
                self.add(rows, stored, records)
            position += count

    def keep(self, content: bytes) -> tuple[int, int]:
        """Add the packed content of a small file; return its position and size."""
        position = self.out.tell()
        self.out.write(content)
        return position, len(content)

    def _flush(self) -> None:
        if self.waiting:
            data = _parquet(pa.concat_tables(self.waiting), few=self.waits <= FEW_ROWS)
            footer = footer_in(data)
            (group,) = parsed_struct(footer)[ROW_GROUPS][1][1]
            self._append(data[len(_MAGIC) : -len(footer) - _END], group, len(_MAGIC), self.waits)
        self.waiting, self.waits, self.bytes = [], 0, 0

    def _append(self, data: bytes, group: Struct, before: int, rows: int) -> None:
        now, _ = self.keep(data)
        self.structs.append(_moved(group, now - before))
        self.groups.append(RowGroup(now, len(data), rows, digest_of(data)))

    def close(self, content: FolderList) -> FolderList:
        """Finish the file with this list; return the list with its row groups."""
        self._flush()
        content = content._replace(groups=tuple(self.groups))
        text = base64.b64encode(encode_list(content))
        frame = parsed_struct(footer_in(_empty(STORED in self.schema.names, self.records)))
        frame[_NUMBER_OF_ROWS] = frame[_NUMBER_OF_ROWS][0], self.rows
        frame[ROW_GROUPS] = _LISTS[0], (_STRUCT, self.structs)
        frame[METADATA] = _LISTS[0], (_STRUCT, [{1: (_BINARY, METADATA_KEY), 2: (_BINARY, text)}])
        footer = packed_struct(frame)
        if len(footer) - len(text) > MOST_FOOTER or len(text) > 4 * MOST_LIST_BYTES // 3:
            raise OSError(0, "more batches or files than a copy can list")
        trailer = _TRAILER.pack(bytes.fromhex(digest_of(footer)), footer.rindex(text), len(text))
        with self.out as out:
            out.write(trailer + _ended(footer))
        return content


def _parquet(table: pa.Table, *, few: bool) -> bytes:
    # With few rows, numbers are stored as steps and plainly: a dictionary and the frame of a compressed page take more
    # than they save.
    plain = ("crc", "crc_ok", DETAILS, STORED)
    names = table.schema.names
    numbers = [name for name in names if name not in plain]
    by_steps = numbers if few else [name for name in numbers if name in _BY_STEPS]
    compressed = [name for name in names if not few or name in (*_BY_STEPS[:6], DETAILS, STORED)]
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        table.schema,
        write_statistics=False,
        store_schema=False,
        compression=dict.fromkeys(names, "none") | dict.fromkeys(compressed, "zstd"),
        compression_level=dict.fromkeys(compressed, 9),
        use_dictionary=[name for name in numbers if name not in by_steps],
        column_encoding=dict.fromkeys(by_steps, "DELTA_BINARY_PACKED") | {"crc": "PLAIN"},
    ) as writer:
        if len(table):
            writer.write_table(table, row_group_size=len(table))
    return out.getvalue()


@functools.cache
def _empty(stored: bool, records: bool) -> bytes:
    return _parquet(columns_of(stored=stored, records=records).empty_table(), few=True)


def _ended(footer: bytes) -> bytes:
    return footer + len(footer).to_bytes(4, "little") + _MAGIC


def footer_in(data: bytes) -> bytes:
    """The footer at the end of a Parquet file, as far as it has one."""
    size = int.from_bytes(data[-_END : -len(_MAGIC)], "little")
    return data[-size - _END : -_END]


def _moved(group: Struct, by: int) -> Struct:
    # A row group whose bytes are moved by so many, without optional fields.
    kind, (of, chunks) = group[1]
    moved = []
    for chunk in chunks:
        columns = {field: value for field, value in chunk[3][1].items() if field in _NEEDED}
        places = {field: (columns[field][0], columns[field][1] + by) for field in _POSITIONS if field in columns}
        moved.append(chunk | {2: (chunk[2][0], 0), 3: (chunk[3][0], columns | places)})
    return {1: (kind, (of, moved))} | {field: group[field] for field in (2, 3, 6) if field in group}


def read_footer(read: Callable[[int, int], bytes], size: int) -> tuple[bytes, bytes]:
    """The footer of a file of ``size`` bytes, and its list, packed. ``read``: from a position, so many bytes. Errors:
    ``OSError`` for any other file."""
    end = read(max(0, size - TAIL), min(size, TAIL))
    count = int.from_bytes(end[-_END : -len(_MAGIC)], "little")
    whole = count + _END + _TRAILER.size
    if end[-len(_MAGIC) :] != _MAGIC or not 0 < count <= MOST_FOOTER + 2 * MOST_LIST_BYTES or whole > size:
        raise OSError(0, "no Parquet file of a copy")
    if whole > len(end):
        end = read(size - whole, whole)
    footer = footer_in(end)
    digest, begin, length = _TRAILER.unpack(end[-whole:][: _TRAILER.size])
    if digest.hex() != digest_of(footer) or count - length > MOST_FOOTER:
        raise OSError(0, "no Parquet file of a copy")
    try:
        return footer, base64.b64decode(footer[begin : begin + length], validate=True)
    except binascii.Error:
        raise OSError(0, "no Parquet file of a copy") from None


class SegmentRows:
    """Reads rows of such a file, with this ``footer`` and these row groups by its list. Memory: a row group.

    ``read``: as for :func:`read_footer`. Errors: ``OSError`` if it is not a Parquet file of this form.
    """

    def __init__(self, footer: bytes, groups: Sequence[RowGroup], read: Callable[[int, int], bytes]) -> None:
        self.footer, self.groups, self.read = footer, groups, read
        try:
            self.meta = pq.read_metadata(pa.BufferReader(_MAGIC + _ended(footer)))
            self.schema = self.meta.schema.to_arrow_schema()
        except _REFUSED as error:
            raise OSError(0, "no Parquet file of a copy") from error
        sizes = [self.meta.row_group(k).num_rows for k in range(self.meta.num_row_groups)]
        self.stored, self.records = STORED in self.schema.names, DETAILS in self.schema.names
        if not _same_columns(self.schema, columns_of(stored=self.stored, records=self.records)):
            raise OSError(0, "not the columns of a copy")
        if sizes != [group.rows for group in groups]:
            raise OSError(0, "not the batches of the list")
        self.of_bytes = {k for k, name in enumerate(self.schema.names) if name in (STORED, DETAILS)}
        self.ends = np.cumsum([0, *sizes])
        self.bytes: tuple[int, bytes] = (-1, b"")
        self.group: tuple[int, list[np.ndarray]] = (-1, [])
        self.more: dict[tuple[str, ...], tuple[int, pa.Table]] = {}  # of other columns

    @functools.cached_property
    def frame(self) -> Struct:
        """The footer without the list."""
        return {field: value for field, value in parsed_struct(self.footer).items() if field != METADATA}

    def struct(self, number: int) -> Struct:
        """A row group in the footer. Errors: ``OSError``."""
        try:
            group: Struct = self.frame[ROW_GROUPS][1][1][number]
        except _REFUSED as error:
            raise OSError(0, "no Parquet file of a copy") from error
        return group

    def _moved(self, number: int) -> bytes:
        # A Parquet file of this row group alone.
        data = self.group_bytes(number)
        group = _moved(self.struct(number), len(_MAGIC) - self.groups[number].position)
        frame = self.frame | {ROW_GROUPS: (_LISTS[0], (_STRUCT, [group]))}
        return _MAGIC + data + _ended(packed_struct(frame))

    def group_bytes(self, number: int) -> bytes:
        """The bytes of a row group; the last ones are cached. Errors: ``OSError`` if they are others now."""
        if self.bytes[0] != number:
            group = self.groups[number]
            data = self.read(group.position, group.size)
            if digest_of(data) != group.digest:
                raise OSError(0, "the file of the copy has another content than its list says")
            self.bytes = number, data
        return self.bytes[1]

    def rows(self, first: int, behind: int, *, stored: bool = False) -> tuple[np.ndarray, list[bytes] | None]:
        """Rows of a walk from number ``first`` to before ``behind``, with the stored bytes if requested.

        Errors: ``OSError`` if the file lacks them, or they cannot be read.
        """
        batches, raw = [], list[bytes]()
        for number, here in self.parts(first, behind):
            batches.append(_as_rows([column[here] for column in self._group(number)]))
            if stored and self.stored:
                raw += self._columns(number, (STORED,)).column(0)[here].to_pylist()
        rows = batches[0] if len(batches) == 1 else np.concatenate([walking.walk_rows(0), *batches])
        return rows, (raw if stored and self.stored else None)

    def summaries(self, first: int, behind: int) -> RecordSummary:
        """The record summaries of these batches. Errors: as for :meth:`rows`."""
        summaries = [empty_summary(0)]
        for number, here in self.parts(first, behind):
            table = self._columns(number, SUMMARY)
            columns = zip(table.columns, DTYPES, strict=True)
            summaries.append(RecordSummary(*(column[here].to_numpy().astype(dtype) for column, dtype in columns)))
        return RecordSummary(*(np.concatenate(columns) for columns in zip(*summaries, strict=True)))

    def details(self, first: int, behind: int) -> list[bytes | None]:
        """The details of the records of these batches. Errors: as for :meth:`rows`."""
        details = list[bytes | None]()
        for number, here in self.parts(first, behind):
            details += self._columns(number, (DETAILS,)).column(0)[here].to_pylist()
        return details

    def parts(self, first: int, behind: int) -> Iterator[tuple[int, slice]]:
        """The row groups of these batches, each with the rows in it. Errors: ``OSError`` if the file lacks some."""
        position = first
        while position < behind:
            number = int(np.searchsorted(self.ends, position, side="right")) - 1
            if number + 1 >= len(self.ends):
                raise OSError(0, "the copy has fewer batches than its list says")
            begin, end = int(self.ends[number]), int(self.ends[number + 1])
            yield number, slice(position - begin, min(behind, end) - begin)
            position = end

    def _group(self, number: int) -> list[np.ndarray]:
        # The last one is cached.
        group, values = self.group
        if group != number:
            read = self._read(number, (*BatchColumns._fields, "crc_ok"))
            values = [read.column(name).to_numpy() for name in BatchColumns._fields]
            values[walking.FLAWS] = values[walking.FLAWS] & ~UNVERIFIED
            if (unknown := read.column("crc_ok")).null_count:
                values[walking.FLAWS] |= np.where(unknown.is_null().to_numpy(), UNVERIFIED, 0)
            self.group = number, values
        return values

    def _columns(self, number: int, names: tuple[str, ...]) -> pa.Table:
        # The last ones are cached.
        group, table = self.more.get(names, (-1, None))
        if group != number or table is None:
            table = self._read(number, names)
            self.more[names] = number, table
        return table

    def _read(self, number: int, names: tuple[str, ...]) -> pa.Table:
        moved = len(self.groups) > 1 or self.groups[number].position != len(_MAGIC)
        data = self._moved(number) if moved else _MAGIC + self.group_bytes(number) + _ended(self.footer)
        try:
            file = pq.ParquetFile(pa.BufferReader(data), metadata=None if moved else self.meta)
            fits = group_fits(data, file.metadata.row_group(0), self.of_bytes)
            group = file.read_row_group(0, columns=list(names), use_threads=False) if fits else None
        except _REFUSED as error:
            raise OSError(0, "the batches of the copy cannot be read") from error
        if group is None:
            raise OSError(0, "batches of the copy would become more than there can be")
        if any(group.column(name).null_count for name in names if name not in MAY_BE_NULL):
            raise OSError(0, "a batch of the copy lacks a value")
        return group


def _as_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    # A few rows at a time, so that the cache holds them: each column touches every line.
    rows = np.empty((len(columns[0]), len(columns)), np.int64)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        for k, column in enumerate(columns):
            rows[some, k] = column[some]
    return rows


def _same_columns(actual: pa.Schema, expected: pa.Schema) -> bool:
    return actual.names == expected.names and [f.type for f in actual] == [f.type for f in expected]
