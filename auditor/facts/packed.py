"""Compressed columns and tables of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.compiled import kernel

# Columns of numbers. Most columns of batches grow by a constant step: these take two numbers. The others are compressed
# with the lowest bytes of all numbers, or of the differences between them, together, then the next ones.


NUMBER_BYTES = 8
Codec = Literal["lz4_raw", "zstd"]
_CODECS = {"lz4_raw": pa.Codec("lz4_raw"), "zstd": pa.Codec("zstd", 1)}


class Packed(NamedTuple):
    """``length`` numbers, starting with ``first``.

    Each number, or with ``steps`` each difference to the one before, exceeds ``low`` by ``width`` bytes of ``data``:
    all lowest bytes first, compressed by ``codec``.
    """

    length: int
    first: int
    low: int
    width: int
    steps: bool
    codec: Codec
    data: bytes


def packed(column: np.ndarray, codec: Codec = "lz4_raw") -> Packed:
    """Compress numbers of at most 64 bits, for a short time, or for long (``zstd``: fewer bytes, twice the time).

    Differences that overflow do so again when they are added up. Cost: docs/lab-book.md.
    """
    column = np.ascontiguousarray(column, np.int64)
    if len(column) < 2:
        return equal(column)
    numbers, steps = column[1:] - column[:-1], True
    low, width = _span(numbers)
    if width > 1 and (plain := _span(column))[1] < width:
        numbers, steps, (low, width) = column, False, plain
    data = b""
    if width:
        apart = (numbers - low).view(np.uint8).reshape(-1, NUMBER_BYTES)
        lines = np.ascontiguousarray(apart[:, :width].T)
        data = bytes(_CODECS[codec].compress(lines.data, asbytes=True))
    return Packed(len(column), int(column[0]), low, width, steps, codec, data)


def equal(column: np.ndarray) -> Packed:
    """What :func:`packed` returns for a column whose numbers are known to be equal."""
    return Packed(len(column), int(column[0]) if len(column) else 0, 0, 0, True, "lz4_raw", b"")


def unpacked(stored: Packed, kind: str | np.dtype = "i8") -> np.ndarray:
    """Restore a column of :func:`packed`, as a type that has room for its numbers."""
    out = np.empty(stored.length, np.int64)
    out[:1] = stored.first
    rest = out[1:] if stored.steps else out
    if stored.width:
        plain = _CODECS[stored.codec].decompress(stored.data, stored.width * len(rest), asbytes=True)
        _put_together(np.frombuffer(plain, np.uint8).reshape(stored.width, len(rest)), rest)
        rest += stored.low
    elif stored.low:
        rest[:] = stored.low
    else:
        rest[:] = stored.first
        return out.astype(kind, copy=False)
    if stored.steps:
        np.cumsum(out, out=out)
    return out.astype(kind, copy=False)


def packed_table(rows: np.ndarray) -> list[Packed]:
    """Compress rows of numbers by column, for a short time."""
    return [packed(column) for column in rows.T]


def unpacked_table(columns: list[Packed]) -> np.ndarray:
    """Restore :func:`packed_table`: int64 in C order. There is at least one column."""
    rows = np.empty((columns[0].length, len(columns)), np.int64)
    for number, column in enumerate(columns):
        rows[:, number] = unpacked(column) if column.width or column.low else column.first
    return rows


def _span(numbers: np.ndarray) -> tuple[int, int]:
    low = int(numbers.min())
    return low, ((int(numbers.max()) - low).bit_length() + 7) // NUMBER_BYTES


def _put_together(lines: np.ndarray, out: np.ndarray) -> None:
    if len(lines) == 1:
        out[:] = lines[0]
        return
    out[:] = 0
    places = out.view(np.uint8).reshape(-1, NUMBER_BYTES)
    for k, line in enumerate(lines):
        places[:, k] = line


# Tables: one of a million producers takes a tenth of its memory until its columns are read.


PACK_ABOVE = 50_000  # rows; fewer stay uncompressed
PIECE = 65_536  # rows per piece
# Bounds of what is read from a file: equal numbers take no bytes, however many there are.
MOST_ROWS, MOST_ROWS_OF_PIECE = 1 << 27, 1 << 23


class RowsStored(NamedTuple):
    """Packed rows: their type, which has the names of the columns, and these."""

    dtype: np.dtype
    columns: list[list[Packed]]


class ColumnsStored(NamedTuple):
    """Packed columns: ``pieces`` by number, and all rows that were ``waiting``, None for none."""

    dtypes: dict[str, np.dtype]
    pieces: list[list[Packed]]
    waiting: list[Packed] | None


class PackedRows:
    """A structured array, compressed by column, that is read as one. ``parts``: its rows in chunks.

    ``rows["name"]`` is a column, ``rows[mask]`` (or indexes, or a slice) a structured array of those rows; each read
    decompresses the columns it needs (1 or 2 ms per million rows).
    """

    stored_as = RowsStored

    def __init__(self, dtype: np.dtype, parts: Iterable[np.ndarray]) -> None:
        self.dtype = dtype
        self.length = 0
        self.columns: dict[str, list[Packed]] = {name: [] for name in dtype.names or ()}
        for rows in parts:
            self.length += len(rows)
            varying = _varying(rows)
            for name, pieces in self.columns.items():
                pieces.append((packed if name in varying else equal)(rows[name]))

    def at_rest(self) -> RowsStored:
        """See :mod:`auditor.facts.arrow_codec`."""
        return RowsStored(self.dtype, list(self.columns.values()))

    @classmethod
    def restored(cls, stored: RowsStored) -> PackedRows:
        """Return what was stored. Errors: ValueError for columns of other numbers of rows than others."""
        rows = cls(stored.dtype, [])
        rows.columns = dict(zip(rows.columns, stored.columns, strict=True))
        rows.length = _length(stored.columns)
        return rows

    def check(self) -> None:
        """Read all columns once. Errors: those of damaged ones."""
        for column in itertools.chain.from_iterable(self.columns.values()):
            unpacked(column)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, str):
            return _joined(self.columns[key], self.dtype[key])
        first, *others = self.dtype.names or ()
        head = self[first][key]
        out = np.empty(head.shape, self.dtype)
        out[first] = head
        for name in others if head.size else ():  # most rules select no rows: no column needs unpacking
            out[name] = self[name][key]
        return out[()]

    def __iter__(self) -> Iterator[np.void]:
        return iter(self[:])


def _varying(rows: np.ndarray) -> frozenset[str]:
    # Of producers only a few columns vary; checking each column by itself takes longer than packing those.
    size, fields = rows.dtype.itemsize, rows.dtype.fields
    assert fields is not None
    change = np.zeros(size, np.uint8)
    _varying_bytes(np.ascontiguousarray(rows).view(np.uint8).reshape(-1, size), change)
    return frozenset(
        name for name, (kind, offset, *_) in fields.items() if change[offset : offset + kind.itemsize].any()
    )


@kernel
def _varying_bytes(rows: np.ndarray, change: np.ndarray) -> None:
    for row in range(1, len(rows)):
        for k in range(len(change)):
            change[k] |= rows[row, k] ^ rows[0, k]


def _joined(parts: list[Packed], dtype: np.dtype) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *(unpacked(part, dtype) for part in parts)])


def _length(columns: Sequence[list[Packed]]) -> int:
    """Return the number of rows that all columns have. Errors: ValueError where they differ, or are too many."""
    lengths = [[piece.length for piece in pieces] for pieces in columns]
    widths = [piece.width for pieces in columns for piece in pieces]
    bounded = sum(lengths[0]) <= MOST_ROWS and all(0 <= n <= MOST_ROWS_OF_PIECE for n in lengths[0])
    if any(of_column != lengths[0] for of_column in lengths) or not bounded:
        raise ValueError("columns of other lengths")
    if widths and not 0 <= min(widths) <= max(widths) <= NUMBER_BYTES:
        raise ValueError("numbers of other widths")
    return sum(lengths[0])


class PackedColumns:
    """Growing columns of numbers, kept as compressed steps: for batches, about 10 bytes per row.

    Read like a dictionary of arrays; each read decompresses the column. ``dtypes``: by column name, in the order in
    which rows are added.
    """

    stored_as = ColumnsStored

    def __init__(self, dtypes: dict[str, np.dtype]) -> None:
        self.dtypes = dtypes
        self.pieces: list[list[Packed]] = []
        self.waiting: list[np.ndarray] = []
        self.size = 0  # bytes of the pieces
        self.rows = 0

    def add(self, rows: np.ndarray) -> None:
        """Add rows: an array with one line per column."""
        self.waiting.append(rows)
        self.rows += rows.shape[1]
        if self._waiting_rows() >= PIECE:
            self.pack()

    def pack(self) -> None:
        """Pack the remaining rows, after the last one."""
        if not self.waiting:
            return
        self.pieces.append([packed(column) for column in np.concatenate(self.waiting, axis=1)])
        self.size += sum(len(column.data) for column in self.pieces[-1])
        self.waiting = []

    def append(self, more: PackedColumns) -> None:
        """Append the rows of another one with the same columns; a few of them join this one's last piece."""
        rest = np.concatenate([np.empty((len(self.dtypes), 0), np.int64), *more.waiting], axis=1)
        if more.pieces or self._waiting_rows() + rest.shape[1] > PIECE:
            self.pack()
            self.pieces += more.pieces
            self.size += more.size
        self.rows += more.rows - rest.shape[1]
        if more.waiting:
            self.add(rest)

    def _waiting_rows(self) -> int:
        return sum(rows.shape[1] for rows in self.waiting)

    def at_rest(self) -> ColumnsStored:
        """See :mod:`auditor.facts.arrow_codec`."""
        waiting = packed_table(np.concatenate(self.waiting, axis=1).T.copy()) if self.waiting else None
        return ColumnsStored(self.dtypes, self.pieces, waiting)

    @classmethod
    def restored(cls, stored: ColumnsStored) -> PackedColumns:
        """Return what was stored. Errors: ValueError for columns of other numbers of rows than others."""
        columns = cls(stored.dtypes)
        if any(len(piece) != len(stored.dtypes) for piece in (*stored.pieces, stored.waiting or stored.dtypes)):
            raise ValueError("other columns")
        columns.rows = sum(_length([[column] for column in piece]) for piece in stored.pieces)
        columns.pieces, columns.size = stored.pieces, sum(len(c.data) for piece in stored.pieces for c in piece)
        if stored.waiting is not None:
            columns.rows += _length([[column] for column in stored.waiting])
            columns.waiting = [np.ascontiguousarray(unpacked_table(stored.waiting).T)]
        return columns

    def __reduce__(self) -> Any:
        return self.restored, (self.at_rest(),)

    def check(self) -> None:
        """Read all columns once. Errors: those of damaged ones."""
        for column in itertools.chain.from_iterable(self.pieces):
            unpacked(column)

    def __len__(self) -> int:
        """The number of columns; 0 if nothing was added, not even zero rows."""
        return len(self.dtypes) if self.pieces or self.waiting else 0

    def piece_count(self) -> int:
        """The number of pieces for :meth:`piece`; packs the remaining rows."""
        self.pack()
        return len(self.pieces)

    def piece(self, number: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Some columns of one piece, of about PIECE rows."""
        places = {name: place for place, name in enumerate(self.dtypes)}
        return {name: _joined([self.pieces[number][places[name]]], self.dtypes[name]) for name in names}

    def __getitem__(self, name: str) -> np.ndarray:
        index, dtype = list(self.dtypes).index(name), self.dtypes[name]
        packed = _joined([piece[index] for piece in self.pieces], dtype)
        return (
            np.concatenate([packed, *(rows[index].astype(dtype) for rows in self.waiting)]) if self.waiting else packed
        )

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each column with its name."""
        return ((name, self[name]) for name in self.dtypes)
