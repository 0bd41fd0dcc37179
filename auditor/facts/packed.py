"""Many rows at rest: a table of a million producers that takes a tenth of its memory until it is asked for columns,
and columns of a row a batch, packed as they grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.compiled import kernel
from auditor.facts.packed_numbers import Packed, equal, packed, packed_table, unpacked, unpacked_table

PACK_ABOVE = 50_000  # rows; fewer are kept as they are
PIECE = 65_536  # rows that are packed together


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
            for name, pieces in self.columns.items():
                pieces.append((packed if name in varying else equal)(rows[name]))

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


def _joined(parts: list[Packed], dtype: np.dtype) -> np.ndarray:
    """A column whose parts were packed one by one."""
    return np.concatenate([np.empty(0, dtype), *(unpacked(part, dtype) for part in parts)])


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
        self.pieces.append([packed(column) for column in np.concatenate(self.waiting, axis=1)])
        self.size += sum(len(column.data) for column in self.pieces[-1])
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

    def __getstate__(self) -> Fields:
        waiting = packed_table(np.concatenate(self.waiting, axis=1).T.copy()) if self.waiting else None
        return vars(self) | {"waiting": waiting}

    def __setstate__(self, state: Fields) -> None:
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
