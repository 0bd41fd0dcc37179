"""Many rows at rest: a table of a million producers that takes a tenth of its memory until it is asked for columns,
and columns of a row a batch, packed as they grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.compiled import kernel
from auditor.facts.packed_table import packed_table, unpacked_table

PACK_ABOVE = 50_000  # rows; fewer are kept as they are
PIECE = 65_536  # rows that are packed together
WIDTHS = tuple((np.iinfo(t).min, np.iinfo(t).max, np.dtype(t)) for t in (np.int8, np.int16, np.int32, np.int64))
_CODEC = pa.Codec("zstd", 1)
_FAST = pa.Codec("lz4_raw")  # of steps, which are small already
# Type of the steps (of Compressed also of the numbers), the first number, how many, and the steps compressed; no bytes
# where all numbers are the same.
Packed = tuple[np.dtype, int, int, bytes]
Compressed = tuple[str, int, int, bytes]


class PackedRows:
    """A structured array kept compressed, column by column, that is read as one. ``parts``: its rows, some at a time.

    ``rows["name"]`` is a column, ``rows[mask]`` (or indexes, or a slice) a structured array of those rows; each reading
    costs a decompression of the columns it takes (1 or 2 ms a million rows).
    """

    def __init__(self, dtype: np.dtype, parts: Iterable[np.ndarray]) -> None:
        self.dtype = dtype
        self.length = 0
        self.columns: dict[str, list[Packed]] = {name: [] for name in dtype.names or ()}
        for rows in parts:
            self.length += len(rows)
            varying = _varying(rows)
            for name, packed in self.columns.items():
                column = rows[name]
                packed.append(packed_column(column) if name in varying else _all_the_same(column))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, str):
            return _joined(self.columns[key], self.dtype[key])
        first, *others = self.dtype.names or ()
        head = self[first][key]
        out = np.empty(head.shape, self.dtype)
        out[first] = head
        for name in others if head.size else ():  # most rules choose none, and each column is unpacked for it
            out[name] = self[name][key]
        return out[()]

    def __iter__(self) -> Iterator[np.void]:
        return iter(self[:])


def _varying(rows: np.ndarray) -> frozenset[str]:
    """The columns of a structured array that are not the same in all rows: of producers a few, and to look at each
    column by itself takes longer than to pack those."""
    size, fields = rows.dtype.itemsize, rows.dtype.fields
    assert fields is not None
    change = np.zeros(size, np.uint8)
    _varying_bytes(np.ascontiguousarray(rows).view(np.uint8).reshape(-1, size), change)
    return frozenset(name for name, (kind, at, *_) in fields.items() if change[at : at + kind.itemsize].any())


@kernel
def _varying_bytes(rows: np.ndarray, change: np.ndarray) -> None:
    """Leaves bits in ``change`` for bytes that are not the same in all rows."""
    for at in range(1, len(rows)):
        for k in range(len(change)):
            change[k] |= rows[at, k] ^ rows[0, k]


def _steps(column: np.ndarray) -> np.ndarray:
    """From each number to the next, the first 0, in the smallest type that holds them all; none where all are 0.

    Steps that overflow do so again where they are added up. Those of uint32 are within 32 bits: checksums, which
    nothing compresses, would take 33.
    """
    column = np.ascontiguousarray(column)  # a field of many rows is far apart, and is read several times here
    if not len(column) or (column[0] == column[-1] and (column == column[0]).all()):
        return np.empty(0, np.int64)
    steps = np.zeros(len(column), np.int64)
    if column.dtype == np.uint32:
        steps[1:] = (column[1:] - column[:-1]).view(np.int32)
    else:
        np.subtract(column[1:], column[:-1], out=steps[1:], dtype=np.int64)
    low, high = steps.min(), steps.max()
    return steps.astype(next(t for least, most, t in WIDTHS if least <= low and high <= most))


def packed_column(column: np.ndarray) -> Packed:
    """Numbers at rest for a short time: the first, and steps from each to the next, compressed.

    Cost: about 2 ns a number. What comes back of uint32 is so modulo 2^32.
    """
    steps = _steps(column)
    if not len(steps):
        return _all_the_same(column)
    data = bytes(_FAST.compress(steps.data, asbytes=True))
    return steps.dtype, int(column[0]), len(column), data


def _all_the_same(column: np.ndarray) -> Packed:
    """What :func:`packed_column` makes of a column of equal numbers, or of none."""
    return np.dtype(np.int64), int(column[0]) if len(column) else 0, len(column), b""


def unpacked_column(packed: Packed, out: np.ndarray) -> None:
    """Undoes :func:`packed_column` into int64."""
    dtype, first, length, data = packed
    if not data:
        out[:] = first
        return
    steps = np.frombuffer(_FAST.decompress(data, length * dtype.itemsize, asbytes=True), dtype)
    np.cumsum(steps, dtype=np.int64, out=out)
    if first:
        out += first


def _joined(parts: list[Packed], dtype: np.dtype) -> np.ndarray:
    """A column whose parts were packed one by one."""
    out, end = np.empty(sum(length for _, _, length, _ in parts), dtype), 0
    for part in parts:
        place = out[end : end + part[2]]
        plain = place if dtype == np.int64 else np.empty(len(place), np.int64)
        unpacked_column(part, plain)
        place[:] = plain
        end += len(place)
    return out


def _turned(lines: np.ndarray) -> np.ndarray:
    """Bytes that lie the other way round as they are to lie, a byte of the number at a time: numpy's own copy takes
    three times as long."""
    out = np.empty(lines.shape, np.uint8)
    by_line = lines.shape[0] < lines.shape[1]
    for k in range(min(lines.shape)):
        place = (k, slice(None)) if by_line else (slice(None), k)
        out[place] = lines[place]
    return out


def compressed(column: np.ndarray, *, steps: bool = True) -> Compressed:
    """Numbers at rest for long: the first, and steps from each to the next where asked for, the like bytes of all of
    them together, under zstd. Cost: some 5 ns a number, of equal ones next to nothing; half the size of
    :func:`packed_column`."""
    plain = _steps(column) if steps else np.ascontiguousarray(column)
    first = int(column[0]) if steps and len(column) else 0
    kind = plain.dtype.str if steps else "u1"
    if steps and not len(plain):
        return kind, first, len(column), b""
    turned = _turned(plain.view(np.uint8).reshape(-1, plain.dtype.itemsize).T)
    return kind, first, len(plain), bytes(_CODEC.compress(turned.data, asbytes=True))


def decompressed(packed: Compressed, kind: str | np.dtype = "i8") -> np.ndarray:
    """Undoes :func:`compressed`: numbers of a type that has room for them, or the bytes (uint8) of what was no
    steps."""
    stored, first, length, data = packed
    dtype = np.dtype(stored)
    if not data:
        return np.full(length, first, kind)
    turned = np.frombuffer(_CODEC.decompress(data, length * dtype.itemsize, asbytes=True), np.uint8)
    if dtype == np.uint8:
        return turned
    plain = _turned(turned.reshape(dtype.itemsize, -1).T).view(dtype).reshape(-1)
    out = np.cumsum(plain, dtype=kind)
    if first:
        out += out.dtype.type(first)
    return out


class PackedColumns:
    """Columns of numbers that grow by some rows at a time, kept as compressed steps: of batches, about 10 bytes a row.

    Read like a dictionary of arrays; each reading costs a decompression of the column. ``dtypes`` are those of what is
    read, by name, in the order in which rows are added.
    """

    def __init__(self, dtypes: dict[str, np.dtype]) -> None:
        self.dtypes = dtypes
        self.pieces: list[list[Packed]] = []
        self.waiting: list[np.ndarray] = []
        self.size = 0  # bytes of the pieces
        self.rows = 0

    def add(self, rows: np.ndarray) -> None:
        """More rows: an array with a column to each line."""
        self.waiting.append(rows)
        self.rows += rows.shape[1]
        if self._waiting_rows() >= PIECE:
            self.pack()

    def pack(self) -> None:
        """Packs what is not yet: to be called when the last row is there."""
        if not self.waiting:
            return
        columns = zip(np.concatenate(self.waiting, axis=1), self.dtypes.values(), strict=True)
        self.pieces.append([packed_column(c.astype(np.uint32) if t == np.uint32 else c) for c, t in columns])
        self.size += sum(len(data) for *_, data in self.pieces[-1])
        self.waiting = []

    def append(self, more: PackedColumns) -> None:
        """The rows of another one of the same columns behind those of this one, few of them with these in a piece."""
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

    def __getstate__(self) -> dict[str, Any]:
        waiting = packed_table(np.concatenate(self.waiting, axis=1).T.copy()) if self.waiting else None
        return vars(self) | {"waiting": waiting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        waiting = state["waiting"]
        vars(self).update(state)
        self.waiting = [] if waiting is None else [np.ascontiguousarray(unpacked_table(waiting).T)]

    def __len__(self) -> int:
        """Columns; none where nothing was added, not even no rows."""
        return len(self.dtypes) if self.pieces or self.waiting else 0

    def piece_count(self) -> int:
        """How many pieces there are for :meth:`piece`; what waits is packed for it."""
        self.pack()
        return len(self.pieces)

    def piece(self, number: int, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Some columns of one piece, of about PIECE rows."""
        at = {name: place for place, name in enumerate(self.dtypes)}
        return {name: _joined([self.pieces[number][at[name]]], self.dtypes[name]) for name in names}

    def __getitem__(self, name: str) -> np.ndarray:
        at, dtype = list(self.dtypes).index(name), self.dtypes[name]
        packed = _joined([piece[at] for piece in self.pieces], dtype)
        return np.concatenate([packed, *(rows[at].astype(dtype) for rows in self.waiting)]) if self.waiting else packed

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each column with its name."""
        return ((name, self[name]) for name in self.dtypes)
