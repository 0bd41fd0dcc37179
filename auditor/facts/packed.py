"""Many rows at rest: a table of a million producers that takes a tenth of its memory until it is asked for columns,
and columns of a row a batch, packed as they grow.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

PACK_ABOVE = 50_000  # rows; fewer are kept as they are
PIECE = 65_536  # rows that are packed together
WIDTHS = tuple((np.iinfo(t).min, np.iinfo(t).max, np.dtype(t)) for t in (np.int8, np.int16, np.int32, np.int64))
_CODEC = pa.Codec("zstd", 1)
_FAST = pa.Codec("lz4_raw")  # of steps, which are small already
Packed = tuple[np.dtype, int, bytes]  # type of the steps, how many, compressed
Compressed = tuple[str, int, int, bytes]  # type of the numbers or steps, the first number, how many, compressed


class PackedRows:
    """A structured array kept compressed, column by column, that is read as one.

    ``rows["name"]`` is a column, ``rows[mask]`` (or indexes, or a slice) a structured array of those rows; each reading
    costs a decompression of the columns it takes (some ms a million rows).
    """

    def __init__(self, dtype: np.dtype, length: int, column: Callable[[str], np.ndarray]) -> None:
        self.dtype = dtype
        self.length = length
        self.columns = {name: self._packed(name, column(name)) for name in dtype.names or ()}

    def _packed(self, name: str, column: np.ndarray) -> bytes:
        plain = np.ascontiguousarray(column, self.dtype[name])
        return bytes(_CODEC.compress(plain.data.cast("B"), asbytes=True))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> np.ndarray:
        if isinstance(key, str):
            dtype = self.dtype[key]
            size = self.length * dtype.itemsize
            return np.frombuffer(_CODEC.decompress(self.columns[key], size, asbytes=True), dtype)
        first, *others = self.dtype.names or ()
        head = self[first][key]
        out = np.empty(head.shape, self.dtype)
        out[first] = head
        for name in others if head.size else ():  # most rules choose none, and each column is unpacked for it
            out[name] = self[name][key]
        return out[()]

    def __iter__(self) -> Iterator[np.void]:
        return iter(self[:])


def packed_column(column: np.ndarray) -> Packed:
    """Numbers as steps from each to the next, beginning at 0, in the smallest type that holds them all, compressed.

    Cost: about 2 ns a number. Steps that overflow do so again in :func:`unpacked_column`.
    """
    steps = np.diff(column.astype(np.int64, copy=False), prepend=0)
    low, high = steps.min(initial=0), steps.max(initial=0)
    narrow = steps.astype(next(t for least, most, t in WIDTHS if least <= low and high <= most))
    return narrow.dtype, len(narrow), bytes(_FAST.compress(narrow.data, asbytes=True))


def unpacked_column(packed: Packed, out: np.ndarray) -> None:
    """Undoes :func:`packed_column` into int64."""
    dtype, length, data = packed
    steps = np.frombuffer(_FAST.decompress(data, length * dtype.itemsize, asbytes=True), dtype)
    np.cumsum(steps, dtype=np.int64, out=out)


def compressed(column: np.ndarray, *, steps: bool = True) -> Compressed:
    """Numbers at rest for long: as steps from each to the next where asked for, the like bytes of all of them together,
    under zstd. Cost: some 5 ns a number; half the size of :func:`packed_column`."""
    first = int(column[0]) if steps and len(column) else 0
    if steps:
        plain = np.diff(column.astype(np.int64, copy=False), prepend=first)
        low, high = plain.min(initial=0), plain.max(initial=0)
        plain = plain.astype(next(t for least, most, t in WIDTHS if least <= low and high <= most))
    else:
        plain = np.ascontiguousarray(column)
    width = plain.dtype.itemsize
    turned = np.ascontiguousarray(plain.view(np.uint8).reshape(-1, width).T)
    return plain.dtype.str if steps else "u1", first, len(plain), bytes(_CODEC.compress(turned.data, asbytes=True))


def decompressed(packed: Compressed) -> np.ndarray:
    """Undoes :func:`compressed`: int64, or the bytes (uint8) of what was no steps."""
    kind, first, length, data = packed
    dtype = np.dtype(kind)
    turned = np.frombuffer(_CODEC.decompress(data, length * dtype.itemsize, asbytes=True), np.uint8)
    if dtype == np.uint8:
        return turned
    plain = np.ascontiguousarray(turned.reshape(dtype.itemsize, -1).T).view(dtype).reshape(-1)
    out = np.cumsum(plain, dtype=np.int64)
    out += first
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

    def add(self, rows: np.ndarray) -> None:
        """More rows: an array with a column to each line."""
        self.waiting.append(rows)
        if sum(r.shape[1] for r in self.waiting) >= PIECE:
            self.pack()

    def pack(self) -> None:
        """Packs what is not yet: to be called when the last row is there."""
        if not self.waiting:
            return
        self.pieces.append([packed_column(column) for column in np.concatenate(self.waiting, axis=1)])
        self.size += sum(len(data) for *_, data in self.pieces[-1])
        self.waiting = []

    def __len__(self) -> int:
        """Columns; none where nothing was added, not even no rows."""
        return len(self.dtypes) if self.pieces or self.waiting else 0

    def __getitem__(self, name: str) -> np.ndarray:
        at, dtype = list(self.dtypes).index(name), self.dtypes[name]
        parts = itertools.chain(
            (self._unpacked(piece[at]) for piece in self.pieces), (rows[at] for rows in self.waiting)
        )
        out = np.empty(sum(piece[at][1] for piece in self.pieces) + sum(len(rows[at]) for rows in self.waiting), dtype)
        end = 0
        for part in parts:
            out[end : end + len(part)] = part
            end += len(part)
        return out

    def _unpacked(self, packed: Packed) -> np.ndarray:
        out = np.empty(packed[1], np.int64)
        unpacked_column(packed, out)
        return out

    def items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Each column with its name."""
        return ((name, self[name]) for name in self.dtypes)


def loads(packed: bytes) -> Any:
    """What :func:`dumps` packed."""
    size = int.from_bytes(packed[:8], "little")
    return pickle.loads(decompressed(("u1", 0, size, packed[8:])).tobytes())


def dumps(value: Any) -> bytes:
    """A value of our own, pickled and compressed, behind its size."""
    plain = np.frombuffer(pickle.dumps(value, 5), np.uint8)
    return len(plain).to_bytes(8, "little") + compressed(plain, steps=False)[3]
