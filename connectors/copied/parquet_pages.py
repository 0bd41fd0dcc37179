"""What a Parquet file would become in memory, before anything is unpacked: by its footer and the headers of its pages.

Some hundred kilobytes of Parquet can say that they are hundreds of megabytes, or repeat one value without end. So the
headers of all pages are read first, in the compact protocol of Thrift. What is more than its rows can be is refused.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple

from auditor.base.errors import MIB

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


class Page(NamedTuple):
    """The header of a page: its kind, bytes as unpacked and as stored, and the encoding of its values (-1: none)."""

    kind: int
    unpacked: int
    packed: int
    encoding: int


class _Wrong(Exception):
    """Bytes that are no header of a page."""


class _Thrift:
    """Reads structs of numbers; everything else is stepped over."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise _Wrong
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _Wrong

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
            raise _Wrong
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
                raise _Wrong
            return [self._value(head & 0x0F or _BYTE, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise _Wrong

    def _skip(self, size: int) -> None:
        if size > self.end - self.at:
            raise _Wrong
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


def _pages(data: bytes, start: int, size: int) -> list[Page] | None:
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
    except _Wrong:
        return None
    return pages if at == end else None


def _page(fields: dict[int, Any]) -> Page:
    numbers = [fields.get(key) for key in (_TYPE, _UNPACKED, _PACKED)]
    if not all(type(n) is int and n >= 0 for n in numbers):
        raise _Wrong
    kind, unpacked, packed = (int(n or 0) for n in numbers)
    inner = fields.get(_DATA if kind == 0 else _DATA_2)
    encoding = -1
    if kind in _DATA_PAGES and isinstance(inner, dict):
        encoding = inner.get(2 if kind == 0 else 4, -1)  # of DataPageHeader and DataPageHeaderV2
    return Page(kind, unpacked, packed, encoding if type(encoding) is int else -1)
