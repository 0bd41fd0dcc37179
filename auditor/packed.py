"""Many rows at rest: a table of a million producers that takes a tenth of its memory until it is asked for columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

PACK_ABOVE = 50_000  # rows; fewer are kept as they are
_CODEC = pa.Codec("zstd", 1)


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
        for name in others:
            out[name] = self[name][key]
        return out[()]

    def __iter__(self) -> Iterator[np.void]:
        return iter(self[:])


def table(dtype: np.dtype, length: int, column: Callable[[str], np.ndarray]) -> np.ndarray | PackedRows:
    """Rows made of columns, which ``column`` gives by name: a structured array, packed if it is long."""
    if length > PACK_ABOVE:
        return PackedRows(dtype, length, column)
    out = np.empty(length, dtype)
    for name in dtype.names or ():
        out[name] = column(name)
    return out
