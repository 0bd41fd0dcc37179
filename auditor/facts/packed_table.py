"""A table of numbers at rest for a short time, for some ten ns a row each way.

Most columns of batches go on by the same step all the time: those are two numbers. Of the others the like bytes of all
rows lie together, compressed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.compiled import kernel

_CODEC = pa.Codec("lz4_raw")  # of numbers that are small already
NUMBER_BYTES = 8


class Varying(NamedTuple):
    """A column whose steps differ. Each number, or where ``steps`` each step from one to the next, is so far above
    ``low`` as ``width`` bytes say."""

    column: int
    low: int
    width: int
    steps: bool


class PackedTable(NamedTuple):
    """``length`` rows: the ``first`` one, the ``step`` of every column to the next row where it is always the same, and
    ``data`` of those that are ``varying``: their lowest bytes first, compressed."""

    length: int
    first: np.ndarray
    step: np.ndarray
    varying: list[Varying]
    data: bytes


def packed_table(rows: np.ndarray) -> PackedTable:
    """Rows of int64 in C order at rest. Differences that overflow do so again where they are added up."""
    length, count = rows.shape
    first, step, change = np.zeros((3, count), np.int64)
    first[:] = rows[:1].sum(axis=0)
    if length > 1:
        np.subtract(rows[1], rows[0], out=step)
        _find_changes(rows, step, change)
    varying, planes = [], [np.empty((0, length), np.uint8)]
    for column in np.flatnonzero(change).tolist():
        found, plane = _stored(np.ascontiguousarray(rows[:, column]), column)
        varying.append(found)
        planes.append(plane)
    data = np.concatenate(planes).tobytes()
    return PackedTable(length, first, step, varying, bytes(_CODEC.compress(data, asbytes=True)) if data else b"")


def unpacked_table(packed: PackedTable) -> np.ndarray:
    """Undoes :func:`packed_table`."""
    rows = np.empty((packed.length, len(packed.first)), np.int64)
    _go_on(rows, packed.first, packed.step)
    size = sum(found.width for found in packed.varying) * packed.length
    plain = _CODEC.decompress(packed.data, size, asbytes=True) if size else b""
    planes = np.frombuffer(plain, np.uint8).reshape(-1, max(packed.length, 1))
    at = 0
    for found in packed.varying:
        numbers = np.zeros((packed.length, NUMBER_BYTES), np.uint8)
        for k in range(found.width):
            numbers[:, k] = planes[at + k]
        column = numbers.view(np.int64)[:, 0]
        column += found.low
        if found.steps:
            column[0] = packed.first[found.column]
            np.cumsum(column, out=column)
        rows[:, found.column] = column
        at += found.width
    return rows


def _stored(column: np.ndarray, number: int) -> tuple[Varying, np.ndarray]:
    """How a column is stored, and its bytes, a line for all lowest ones and so on: steps or the numbers themselves,
    whichever takes fewer."""
    steps = np.diff(column, prepend=column[:1])
    steps[0] = steps[1]  # it has none, and is not asked for
    (low, width), (low_step, step_width) = _span(column), _span(steps)
    by_steps = step_width <= width
    if by_steps:
        column, low, width = steps, low_step, step_width
    plain = (column - low).view(np.uint8).reshape(-1, NUMBER_BYTES)
    planes = np.empty((width, len(column)), np.uint8)
    for k in range(width):
        planes[k] = plain[:, k]
    return Varying(number, low, width, by_steps), planes


def _span(column: np.ndarray) -> tuple[int, int]:
    """The least number, and how many bytes the distance of the others from it takes."""
    low = int(column.min())
    return low, ((int(column.max()) - low).bit_length() + 7) // 8


@kernel
def _find_changes(rows: np.ndarray, step: np.ndarray, change: np.ndarray) -> None:
    """Leaves bits in ``change`` for columns that do not always go on by their ``step``."""
    for at in range(1, len(rows)):
        for column in range(rows.shape[1]):
            change[column] |= (rows[at, column] - rows[at - 1, column]) ^ step[column]


@kernel
def _go_on(rows: np.ndarray, first: np.ndarray, step: np.ndarray) -> None:
    """Fills rows with columns that go on by their ``step``."""
    for at in range(len(rows)):
        for column in range(rows.shape[1]):
            rows[at, column] = first[column] + at * step[column]
