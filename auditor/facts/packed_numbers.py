"""Numbers at rest: the one form of columns and tables of them.

Most columns of batches go on by the same step all the time: those are two numbers. Of the others the like bytes of all
numbers, or of the steps from each to the next, lie together, compressed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

NUMBER_BYTES = 8
Codec = Literal["lz4_raw", "zstd"]
_CODECS = {"lz4_raw": pa.Codec("lz4_raw"), "zstd": pa.Codec("zstd", 1)}


class Packed(NamedTuple):
    """``length`` numbers, the ``first`` and what follows. Each, or where ``steps`` each step from one to the next, is
    as far above ``low`` as ``width`` bytes of ``data`` say: their lowest bytes first, compressed by ``codec``."""

    length: int
    first: int
    low: int
    width: int
    steps: bool
    codec: Codec
    data: bytes


def packed(column: np.ndarray, codec: Codec = "lz4_raw") -> Packed:
    """Numbers of at most 64 bits at rest, for a short time, or for long (``zstd``: fewer bytes, twice the time).

    Differences that overflow do so again where they are added up. Cost: docs/lab-book.md.
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
    """What :func:`packed` makes of a column of which the caller knows that all numbers are the same."""
    return Packed(len(column), int(column[0]) if len(column) else 0, 0, 0, True, "lz4_raw", b"")


def unpacked(stored: Packed, kind: str | np.dtype = "i8") -> np.ndarray:
    """Undoes :func:`packed`: numbers of a type that has room for them."""
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
    """Rows of numbers at rest for a short time, column by column."""
    return [packed(column) for column in rows.T]


def unpacked_table(columns: list[Packed]) -> np.ndarray:
    """Undoes :func:`packed_table`: int64 in C order. There is at least one column."""
    rows = np.empty((columns[0].length, len(columns)), np.int64)
    for number, column in enumerate(columns):
        rows[:, number] = unpacked(column) if column.width or column.low else column.first
    return rows


def _span(numbers: np.ndarray) -> tuple[int, int]:
    """The least number, and how many bytes the distance of the others from it takes."""
    low = int(numbers.min())
    return low, ((int(numbers.max()) - low).bit_length() + 7) // NUMBER_BYTES


def _put_together(lines: np.ndarray, out: np.ndarray) -> None:
    """Numbers of which the lowest bytes are in the first line, the next ones in the second."""
    if len(lines) == 1:
        out[:] = lines[0]
        return
    out[:] = 0
    places = out.view(np.uint8).reshape(-1, NUMBER_BYTES)
    for k, line in enumerate(lines):
        places[:, k] = line
