"""The files of a copy without payload: lists of what each directory had, and batches of segments as Parquet."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import itertools
import json
import zlib
from collections.abc import Container, Iterator, Mapping, Sequence
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
LIST_VERSION = 1
MOST_LIST_BYTES, MOST_UNPACKED_BYTES = 256 * MIB, 256 * MIB  # of a list: stored and unpacked
MOST_NUMBER = 2**63 - 1


class Stat(NamedTuple):
    """Identifies the state of a file: its inode and, in ns, its modification and change time."""

    inode: int
    modified_ns: int
    changed_ns: int


class TakenSegment(NamedTuple):
    """The batches of a segment: ``rows`` rows of the Parquet file ``file`` from row ``first`` on.

    ``chunks``: for each chunk from the codec, its number of rows, the byte at which it ends, and the lowest offset
    after it; ``errors`` and ``body_errors`` are theirs. ``foreign``: rows of complete batches of a magic that only the
    broker accepts, which are also in the errors. ``checked``: whether all checksums were verified. ``records``: whether
    the file has record summaries; the ``body_errors`` at the positions ``of_records`` then occur only when records are
    read. ``unended``: producer ids of the transactions that are open at its end; None if they are too many, or unknown.
    """

    file: str
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

    ``content``: its bytes, followed by zeros up to ``length`` (-1: none); ``kept``: the same in a file of its own;
    ``like``: that file is an index, encoded relative to the batches of this segment
    (:mod:`auditor.connectors.logdir.copy_view`); ``taken``: its batches; ``refused``: reason and detail why it could
    not be opened; ``unused``: why it is never opened. With none of them only its name was taken. ``gone``: the broker
    has deleted it from below the log's start, and the copy still keeps it.
    """

    name: str
    size: int
    stat: Stat | None = None
    content: bytes | None = None
    kept: str | None = None
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


class FolderList(NamedTuple):
    """All files of a directory, and errors of its listing.

    ``readings``: for a log directory, when each of its directories was read; ``machine``: a unique id of the machine of
    that clock. ``under_way``: a copy was started and has not ended, so that its directories may be of that one or of
    the one before.
    """

    files: tuple[Listed, ...]
    errors: tuple[DecodeError, ...] = ()
    readings: tuple[CopyTimes, ...] = ()
    machine: str = ""
    under_way: bool = False

    def file(self, name: str) -> Listed | None:
        """The file of that name."""
        return next((item for item in self.files if item.name == name), None)


def encode_list(content: FolderList) -> bytes:
    """A list as bytes; equal lists give equal bytes."""
    data = (
        {
            "version": LIST_VERSION,
            "files": [_as_json(item) for item in content.files],
            "errors": [list(error) for error in content.errors],
            "readings": [list(reading) for reading in content.readings],
        }
        | ({"machine": content.machine} if content.machine else {})
        | ({"under_way": True} if content.under_way else {})
    )
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


def decode_list(data: bytes) -> FolderList | str:
    """Decode a list, or return why the bytes are none."""
    if len(data) > MOST_LIST_BYTES:
        return f"a list of more than {MOST_LIST_BYTES} bytes"
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
            text = unpacked.read(MOST_UNPACKED_BYTES + 1)
        if len(text) > MOST_UNPACKED_BYTES:
            return f"a list that becomes more than {MOST_UNPACKED_BYTES} bytes"
        return _list(parsed(text))
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
    return FolderList(files, errors, readings, machine, data.get("under_way", False) is True)


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
    stored = item.get("kept")
    _require(stored is None or (isinstance(stored, str) and is_name(stored)), "a name")
    like = item.get("like")
    _require(like is None or (isinstance(like, str) and is_name(like) and stored is not None), "a name")
    refused, unused = item.get("refused"), item.get("unused")
    unused = None if unused is None else _words(unused, "a reason")
    if refused is not None:
        _require(len(_items(refused)) == 2, "a reason")
        refused = (_reason(refused[0]), _words(refused[1], "a reason"))
    segment = _segment(item["taken"], size) if "taken" in item else None
    _require(sum(x is not None for x in (content, stored, refused, unused, segment)) <= 1, "a file")
    _require(content is None or len(content) <= length, "a length")
    gone = DeletionTimes(*_numbers(item["gone"], 2)) if "gone" in item else None
    _require(gone is None or segment is not None, "a file")
    return Listed(
        name=name,
        size=size,
        stat=stat,
        content=content,
        kept=stored,
        length=length,
        taken=segment,
        refused=refused,
        unused=unused,
        like=like,
        gone=gone,
    )


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
    file, first, rows = data.get("file"), _number(data.get("first")), _number(data.get("rows"))
    _require(isinstance(file, str) and is_name(file) and file.endswith(".parquet"), "a name")
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
    return TakenSegment(
        file=file,
        first=first,
        rows=rows,
        chunks=chunks,
        errors=errors,
        body_errors=bodies,
        foreign=foreign,
        checked=checked,
        records=records,
        of_records=of_records,
        unended=unended,
    )


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


# The unpacked size of a Parquet file, before anything is unpacked, from its footer and the headers of its pages.
#
# Some hundred kilobytes of Parquet can unpack to any size, or repeat one value endlessly. So the headers of all pages
# are read first, in the compact protocol of Thrift. Sizes that the rows cannot have are refused.


MOST_FOOTER = 8 * MIB  # bytes; a row group takes 2 KB
MOST_ROWS = 1 << 19  # of a row group
MOST_STORED = 512 * MIB  # plain bytes of a column of bytes in a row group: a batch of 256 MiB, and others
PLAIN_BYTES = 16  # of one number, with the overhead of pages
PAGE_BYTES = 64 << 10  # always allowed for a column, even of few rows
PLAIN = 0  # the only encoding of bytes that cannot repeat a value
_TYPE, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8  # fields of a page's header
_DATA_PAGES = (0, 3)
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8
_MAGIC = b"PAR1"


class ParquetPage(NamedTuple):
    """The header of a page: its kind, unpacked and stored size in bytes, and the encoding of its values (-1: none)."""

    kind: int
    unpacked: int
    packed: int
    encoding: int


class _BadPageHeader(Exception):
    """Bytes that are no header of a page."""


class _Thrift:
    # Reads structs of numbers; everything else is skipped.
    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data, self.at, self.end = data, position, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise _BadPageHeader
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _BadPageHeader

    def struct(self, depth: int = 0) -> dict[int, Any]:
        # By field id.
        fields: dict[int, Any] = {}
        field = 0
        while (head := self.byte()) != 0:
            step = head >> 4
            field = field + step if step else self._zigzag()
            fields[field] = self._value(head & 0x0F, depth)
        return fields

    def _zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _BadPageHeader
        if kind in _BOOLEANS:
            return kind == _BOOLEANS[0]
        if kind == _BYTE:
            return self.byte()
        if kind in _INTEGERS:
            return self._zigzag()
        if kind in (_DOUBLE, _BINARY):
            return self._skip(8 if kind == _DOUBLE else self.varint())
        if kind in _LISTS:
            head = self.byte()
            count = head >> 4 if head >> 4 < 15 else self.varint()
            if count > self.end - self.at:
                raise _BadPageHeader
            return [self._value(head & 0x0F or _BYTE, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise _BadPageHeader

    def _skip(self, size: int) -> None:
        if size > self.end - self.at:
            raise _BadPageHeader
        self.at += size


def footer_fits(data: bytes) -> bool:
    """Whether these bytes end in a footer that is safe to read."""
    size = int.from_bytes(data[-8:-4], "little")
    return data[:4] == data[-4:] == _MAGIC and 0 < size <= min(MOST_FOOTER, len(data) - 12)


def group_fits(data: bytes, group: Any, of_bytes: Container[int]) -> bool:
    """Whether a row group (``pyarrow.parquet.RowGroupMetaData``) unpacks to no more than its rows can take.

    ``of_bytes``: the numbers of its columns of bytes.
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
        if pages is None or (is_stored and any(p.encoding != PLAIN for p in pages)):
            return False
        if sum(page.unpacked for page in pages) > (MOST_STORED if is_stored else PAGE_BYTES + PLAIN_BYTES * rows):
            return False
    return True


def _pages(data: bytes, start: int, size: int) -> list[ParquetPage] | None:
    # None if the pages do not fill the column's bytes.
    if start < 0 or size < 0 or start + size > len(data):
        return None
    pages, position, end = [], start, start + size
    try:
        while position < end:
            thrift = _Thrift(data, position, end)
            page = _page(thrift.struct())
            position = thrift.at + page.packed
            pages.append(page)
    except _BadPageHeader:
        return None
    return pages if position == end else None


def _page(fields: dict[int, Any]) -> ParquetPage:
    numbers = [fields.get(key) for key in (_TYPE, _UNPACKED, _PACKED)]
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise _BadPageHeader
    kind, unpacked, packed = (int(n or 0) for n in numbers)
    inner = fields.get(_DATA if kind == 0 else _DATA_2)
    encoding = -1
    if kind in _DATA_PAGES and isinstance(inner, dict):
        encoding = inner.get(2 if kind == 0 else 4, -1)  # of DataPageHeader and DataPageHeaderV2
    return ParquetPage(kind, unpacked, packed, encoding if type(encoding) is int else -1)


# Batches of segments as Parquet: the columns of a walk, named as in the table ``batches``.
#
# Growing numbers are stored as steps, others by dictionary; a batch takes about ten bytes, four of them its checksum.
# Batches of internal topics also have their stored bytes. On request, a batch has a summary of its records, and the
# details that this lacks (:mod:`auditor.connectors.logdir.copy_view`).


SUFFIX = ".log.parquet"
GROUP_ROWS = 1 << 17  # per row group, one of which is in memory at a time
GROUP_BYTES = 4 * MIB  # of stored batches in it
FEW_ROWS = 128  # of a file so small that every byte of a page matters
FILE_ROWS, FILE_BYTES = 1 << 21, 64 * MIB  # per file, then the next one starts; bytes of stored batches
ROWS_AT_ONCE = 2_048
MOST_FILE = 256 * MIB  # bytes read of one file
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


def file_name(first: str, digest: str) -> str:
    """The name of a file of batches: the first segment's, and the digest of its content (:func:`digest_of`)."""
    return f"{first}-{digest}{SUFFIX}"


def digest_of(data: bytes) -> str:
    """A digest of a file's content. It is part of the name and checked before the file is parsed, since libraries may
    crash on a damaged footer."""
    return hashlib.blake2b(data, digest_size=6).hexdigest()


class Records(NamedTuple):
    """The summaries of the records of some batches, and the details of each batch, None for none."""

    summary: RecordSummary
    details: Sequence[bytes | None]


class SegmentWriter:
    """Writes rows of a walk into one Parquet file; with ``stored`` also the stored bytes, with ``records`` record
    summaries."""

    def __init__(self, target: object, *, stored: bool, records: bool = False) -> None:
        self.target, self.schema, self.records = target, columns_of(stored=stored, records=records), records
        self.writer: pq.ParquetWriter | None = None
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
            assert records is not None
            columns += [*records.summary, pa.array(records.details, pa.binary())]
            self.bytes += sum(len(text or b"") for text in records.details)
        if stored is not None:
            columns.append(pa.array(stored, pa.binary()))
            self.bytes += sum(map(len, stored))
        self.waiting.append(pa.table(columns, schema=self.schema))
        self.rows += len(rows)
        self.waits += len(rows)
        if self.waits >= GROUP_ROWS or self.bytes >= GROUP_BYTES:
            self._flush()

    def _opened(self, *, few: bool) -> pq.ParquetWriter:
        # With few rows, numbers are stored as steps and plainly: a dictionary and the frame of a compressed page take
        # more than they save.
        plain = ("crc", "crc_ok", DETAILS, STORED)
        numbers = [name for name in self.schema.names if name not in plain]
        by_steps = numbers if few else [name for name in numbers if name in _BY_STEPS]
        compressed = [name for name in self.schema.names if not few or name in (*_BY_STEPS[:6], DETAILS, STORED)]
        return pq.ParquetWriter(
            self.target,
            self.schema,
            write_statistics=False,
            store_schema=False,
            compression=dict.fromkeys(self.schema.names, "none") | dict.fromkeys(compressed, "zstd"),
            compression_level=dict.fromkeys(compressed, 9),
            use_dictionary=[name for name in numbers if name not in by_steps],
            column_encoding=dict.fromkeys(by_steps, "DELTA_BINARY_PACKED") | {"crc": "PLAIN"},
        )

    def _flush(self, *, last: bool = False) -> None:
        if self.writer is None and (self.waiting or last):
            self.writer = self._opened(few=last and self.rows <= FEW_ROWS)
        if self.waiting and self.writer is not None:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=2 * GROUP_ROWS)
        self.waiting, self.waits, self.bytes = [], 0, 0

    def close(self) -> None:
        """Finish the file."""
        self._flush(last=True)
        if self.writer is not None:
            self.writer.close()


class SegmentRows:
    """Reads rows of such a file with content ``data``. Memory: that, and a row group.

    Errors: ``OSError`` if it is not a Parquet file of this form.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        if not footer_fits(data):
            raise OSError(0, "no Parquet file of a copy")
        try:
            self.file = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowException, ValueError) as error:
            raise OSError(0, "no Parquet file of a copy") from error
        schema = self.file.schema_arrow
        self.stored, self.records = STORED in schema.names, DETAILS in schema.names
        if not _same_columns(schema, columns_of(stored=self.stored, records=self.records)):
            raise OSError(0, "not the columns of a copy")
        self.of_bytes = {k for k, name in enumerate(schema.names) if name in (STORED, DETAILS)}
        meta = self.file.metadata
        sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
        self.ends = np.cumsum([0, *sizes])
        self.group: tuple[int, list[np.ndarray]] = (-1, [])
        self.more: dict[tuple[str, ...], tuple[int, pa.Table]] = {}  # of other columns

    def rows(self, first: int, behind: int, *, stored: bool = False) -> tuple[np.ndarray, list[bytes] | None]:
        """Rows of a walk from number ``first`` to before ``behind``, with the stored bytes if requested.

        Errors: ``OSError`` if the file lacks them, or they cannot be read.
        """
        batches, raw = [], list[bytes]()
        for number, here in self._parts(first, behind):
            batches.append(_as_rows([column[here] for column in self._group(number)]))
            if stored and self.stored:
                raw += self._columns(number, (STORED,)).column(0)[here].to_pylist()
        rows = batches[0] if len(batches) == 1 else np.concatenate([walking.walk_rows(0), *batches])
        return rows, (raw if stored and self.stored else None)

    def summaries(self, first: int, behind: int) -> RecordSummary:
        """The record summaries of these batches. Errors: as for :meth:`rows`."""
        summaries = [empty_summary(0)]
        for number, here in self._parts(first, behind):
            table = self._columns(number, SUMMARY)
            columns = zip(table.columns, DTYPES, strict=True)
            summaries.append(RecordSummary(*(column[here].to_numpy().astype(dtype) for column, dtype in columns)))
        return RecordSummary(*(np.concatenate(columns) for columns in zip(*summaries, strict=True)))

    def details(self, first: int, behind: int) -> list[bytes | None]:
        """The details of the records of these batches. Errors: as for :meth:`rows`."""
        details = list[bytes | None]()
        for number, here in self._parts(first, behind):
            details += self._columns(number, (DETAILS,)).column(0)[here].to_pylist()
        return details

    def _parts(self, first: int, behind: int) -> Iterator[tuple[int, slice]]:
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
        try:
            if not group_fits(self.data, self.file.metadata.row_group(number), self.of_bytes):
                raise OSError(0, "batches of the copy would become more than there can be")
            group = self.file.read_row_group(number, columns=list(names), use_threads=False)
        except (pa.ArrowException, ValueError) as error:
            raise OSError(0, "the batches of the copy cannot be read") from error
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
