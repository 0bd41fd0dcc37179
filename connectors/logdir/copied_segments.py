"""The batches of copied segments as Parquet, read with bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.errors import MIB
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import BATCH_DTYPES, FLAW_CRC, UNVERIFIED, BatchColumns, RecordSummary
from auditor.connectors.codec.records import DTYPES, empty_summary

# What a Parquet file would become in memory, before anything is unpacked: by its footer and the headers of its pages.
#
# Some hundred kilobytes of Parquet can say that they are hundreds of megabytes, or repeat one value without end. So the
# headers of all pages are read first, in the compact protocol of Thrift. What is more than its rows can be is refused.


MOST_FOOTER = 8 * MIB  # bytes, of which 2 KB are a row group
MOST_ROWS = 1 << 19  # of a row group
MOST_STORED = 512 * MIB  # plain bytes of a column of bytes in a row group: a batch of 256 MiB, and others
PLAIN_BYTES = 16  # of one number, with what pages add to it
PAGE_BYTES = 64 << 10  # what a column of few rows may take at least
PLAIN = 0  # the encoding of bytes: no other repeats a value
_TYPE, _UNPACKED, _PACKED, _DATA, _DATA_2 = 1, 2, 3, 5, 8  # fields of a page's header
_DATA_PAGES = (0, 3)
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DEEPEST = 8
_MAGIC = b"PAR1"


class ParquetPage(NamedTuple):
    """The header of a page: its kind, bytes as unpacked and as stored, and the encoding of its values (-1: none)."""

    kind: int
    unpacked: int
    packed: int
    encoding: int


class _BadPageHeader(Exception):
    """Bytes that are no header of a page."""


class _Thrift:
    """Reads structs of numbers; everything else is stepped over."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

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
        """Fields of a struct by their ids."""
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
    """Whether these bytes end in a footer that may be read."""
    size = int.from_bytes(data[-8:-4], "little")
    return data[:4] == data[-4:] == _MAGIC and 0 < size <= min(MOST_FOOTER, len(data) - 12)


def group_fits(data: bytes, group: Any, of_bytes: Container[int]) -> bool:
    """Whether a row group (``pyarrow.parquet.RowGroupMetaData``) becomes no more than its rows can be. ``of_bytes``:
    the numbers of its columns of bytes."""
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
    """The pages of a column, None where they do not fill its bytes."""
    if start < 0 or size < 0 or start + size > len(data):
        return None
    pages, at, end = [], start, start + size
    try:
        while at < end:
            thrift = _Thrift(data, at, end)
            page = _page(thrift.struct())
            at = thrift.at + page.packed
            pages.append(page)
    except _BadPageHeader:
        return None
    return pages if at == end else None


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


# Batches of segments as Parquet: the columns of a walk, named as in the table ``batches``; and the same read back.
#
# Numbers that go on by steps are stored as steps, others by dictionary; a batch takes about ten bytes, of which four
# are
# its checksum. Of internal topics the stored bytes of each batch are there too. Where it was asked for, a batch also
# has
# what its records come to, and what that leaves open of each of them (:mod:`auditor.connectors.logdir.copy_view`).


SUFFIX = ".log.parquet"
GROUP_ROWS = 1 << 17  # of a row group, of which one is in memory at a time
GROUP_BYTES = 4 * MIB  # of stored batches in it
FEW_ROWS = 128  # of a file so small that every byte of a page counts
FILE_ROWS, FILE_BYTES = 1 << 21, 64 * MIB  # of a file, after which another one begins; bytes of stored batches
ROWS_AT_ONCE = 2_048
MOST_FILE = 256 * MIB  # that is read of one
STORED = "stored"
DETAILS = "record_details"
# Of RecordSummary, by their names in a copy; -1 or 0 where a batch has no records.
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
        pa.field("crc_ok", pa.bool_()),  # null where nobody has verified it
    ]
)
OF_RECORDS = [
    *(pa.field(n, pa.from_numpy_dtype(np.dtype(t)), False) for n, t in zip(SUMMARY, DTYPES, strict=True)),
    pa.field(DETAILS, pa.binary()),
]
MAY_BE_NULL = ("crc_ok", DETAILS, STORED)


def columns_of(*, stored: bool, records: bool) -> pa.Schema:
    """The columns of a file, with the stored bytes of batches, or with what their records come to."""
    more = [*(OF_RECORDS if records else ()), *([pa.field(STORED, pa.binary())] if stored else ())]
    return pa.schema([*COLUMNS, *more])


def file_name(first: str, digest: str) -> str:
    """The name of a file of batches: the first segment's, and what its content comes to (:func:`digest_of`)."""
    return f"{first}-{digest}{SUFFIX}"


def digest_of(data: bytes) -> str:
    """What a content comes to. Damage to a file is found by its name, before anything reads it: libraries may die of
    a damaged footer."""
    return hashlib.blake2b(data, digest_size=6).hexdigest()


class Records(NamedTuple):
    """What the records of some batches come to, and the details of each batch, None where it has none."""

    summary: RecordSummary
    details: Sequence[bytes | None]


class SegmentWriter:
    """Writes rows of a walk, and the stored bytes beside them where ``stored``, what their records come to where
    ``records``, into one Parquet file."""

    def __init__(self, target: object, *, stored: bool, records: bool = False) -> None:
        self.target, self.schema, self.records = target, columns_of(stored=stored, records=records), records
        self.writer: pq.ParquetWriter | None = None
        self.rows = 0
        self.waiting: list[pa.Table] = []
        self.waits = self.bytes = 0

    def add(self, rows: np.ndarray, stored: Sequence[bytes] | None = None, records: Records | None = None) -> None:
        """More rows, with their bytes as they are stored, and what their records come to."""
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
        """The file, begun. Of ``few`` rows, numbers go by steps and as they are: a dictionary and the frame of a
        compressed page take more than they save."""
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
        """The file, when all rows are there."""
        self._flush(last=True)
        if self.writer is not None:
            self.writer.close()


class SegmentRows:
    """Reads rows of such a file, whose content is ``data``. Memory: that, and a row group.

    Errors: ``OSError`` for a file that is none, or is not of this form.
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
        if not _same(schema, columns_of(stored=self.stored, records=self.records)):
            raise OSError(0, "not the columns of a copy")
        self.of_bytes = {k for k, name in enumerate(schema.names) if name in (STORED, DETAILS)}
        meta = self.file.metadata
        sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
        self.ends = np.cumsum([0, *sizes])
        self.group: tuple[int, list[np.ndarray]] = (-1, [])
        self.more: dict[tuple[str, ...], tuple[int, pa.Table]] = {}  # of other columns

    def rows(self, first: int, behind: int, *, stored: bool = False) -> tuple[np.ndarray, list[bytes] | None]:
        """Rows of a walk from number ``first`` to before ``behind``, with the stored bytes if asked for.

        Errors: ``OSError`` where the file has them not, or they cannot be read.
        """
        found, raw = [], list[bytes]()
        for number, here in self._parts(first, behind):
            found.append(_as_rows([column[here] for column in self._group(number)]))
            if stored and self.stored:
                raw += self._columns(number, (STORED,)).column(0)[here].to_pylist()
        rows = found[0] if len(found) == 1 else np.concatenate([walking.walk_rows(0), *found])
        return rows, (raw if stored and self.stored else None)

    def summaries(self, first: int, behind: int) -> RecordSummary:
        """What the records of these batches come to. Errors: as of :meth:`rows`."""
        found = [empty_summary(0)]
        for number, here in self._parts(first, behind):
            table = self._columns(number, SUMMARY)
            columns = zip(table.columns, DTYPES, strict=True)
            found.append(RecordSummary(*(column[here].to_numpy().astype(dtype) for column, dtype in columns)))
        return RecordSummary(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def details(self, first: int, behind: int) -> list[bytes | None]:
        """The details of the records of these batches. Errors: as of :meth:`rows`."""
        found = list[bytes | None]()
        for number, here in self._parts(first, behind):
            found += self._columns(number, (DETAILS,)).column(0)[here].to_pylist()
        return found

    def _parts(self, first: int, behind: int) -> Iterator[tuple[int, slice]]:
        """The row groups that have these rows, and which of each."""
        at = first
        while at < behind:
            number = int(np.searchsorted(self.ends, at, side="right")) - 1
            if number + 1 >= len(self.ends):
                raise OSError(0, "the copy has fewer batches than its list says")
            begin, end = int(self.ends[number]), int(self.ends[number + 1])
            yield number, slice(at - begin, min(behind, end) - begin)
            at = end

    def _group(self, number: int) -> list[np.ndarray]:
        """The columns of a row group; the last one is kept."""
        held, values = self.group
        if held != number:
            read = self._read(number, (*BatchColumns._fields, "crc_ok"))
            values = [read.column(name).to_numpy() for name in BatchColumns._fields]
            values[walking.FLAWS] = values[walking.FLAWS] & ~UNVERIFIED
            if (unknown := read.column("crc_ok")).null_count:
                values[walking.FLAWS] |= np.where(unknown.is_null().to_numpy(), UNVERIFIED, 0)
            self.group = number, values
        return values

    def _columns(self, number: int, names: tuple[str, ...]) -> pa.Table:
        """Other columns of a row group; the last ones are kept."""
        held, table = self.more.get(names, (-1, None))
        if held != number or table is None:
            table = self._read(number, names)
            self.more[names] = number, table
        return table

    def _read(self, number: int, names: tuple[str, ...]) -> pa.Table:
        try:
            if not group_fits(self.data, self.file.metadata.row_group(number), self.of_bytes):
                raise OSError(0, "batches of the copy would become more than there can be")
            found = self.file.read_row_group(number, columns=list(names), use_threads=False)
        except (pa.ArrowException, ValueError) as error:
            raise OSError(0, "the batches of the copy cannot be read") from error
        if any(found.column(name).null_count for name in names if name not in MAY_BE_NULL):
            raise OSError(0, "a batch of the copy lacks a value")
        return found


def _as_rows(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Columns as rows of a walk. Of few at a time, so that the cache has them: each column touches every line."""
    rows = np.empty((len(columns[0]), len(columns)), np.int64)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = slice(first, first + ROWS_AT_ONCE)
        for k, column in enumerate(columns):
            rows[some, k] = column[some]
    return rows


def _same(found: pa.Schema, known: pa.Schema) -> bool:
    """Whether the columns are these, in their order and of these types."""
    return found.names == known.names and [f.type for f in found] == [f.type for f in known]
