"""Columns of texts made from stored bytes by compiled kernels: the bytes of all, and where each ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.transaction_columns import Lists, all_ascii

DASH, ZERO = 0x2D, 0x30


class Texts(NamedTuple):
    """``ends``: int32, 0 and where each text ends in ``data``."""

    ends: np.ndarray
    data: np.ndarray


@kernel
def _gather(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(starts)):
        begin = ends[k]
        for j in range(ends[k + 1] - begin):
            out[begin + j] = data[starts[k] + j]


@kernel
def _digits(number: np.int64) -> np.int64:
    """Characters of a number in decimal, its sign included."""
    left, found = abs(number), np.int64(1 if number >= 0 else 2)
    while left >= 10:
        left //= 10
        found += 1
    return found


@kernel
def _name_sizes(sizes: np.ndarray, partitions: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(sizes)):
        out[k] = sizes[k] + 1 + _digits(partitions[k])


@kernel
def _names(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, partitions: np.ndarray, ends: np.ndarray, out: np.ndarray
) -> None:
    for k in range(len(starts)):
        at, end = ends[k], ends[k + 1] - 1
        for j in range(sizes[k]):
            out[at + j] = data[starts[k] + j]
        out[at + sizes[k]] = DASH
        left = abs(partitions[k])
        if partitions[k] < 0:
            out[at + sizes[k] + 1] = DASH
        while True:
            out[end] = ZERO + left % 10
            left //= 10
            end -= 1
            if left == 0:
                break


@kernel
def _are_ascii(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(starts)):
        out[k] = all_ascii(data, starts[k], sizes[k])


def _ends(sizes: np.ndarray) -> np.ndarray:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return ends


def gather(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> Texts:
    """The texts of ``sizes`` bytes at ``starts``; a size below 0 is an empty text. At most 2 GiB in all."""
    ends = _ends(np.maximum(sizes, 0))
    out = np.empty(int(ends[-1]), np.uint8)
    _gather(data, np.ascontiguousarray(starts), ends, out)
    return Texts(ends, out)


def partition_names(data: np.ndarray, found: Lists) -> Texts:
    """``topic-partition`` of every element of lists that were taken apart."""
    sizes = np.empty(len(found.sizes), np.int64)
    _name_sizes(found.sizes, found.partitions, sizes)
    ends = _ends(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    _names(data, found.starts, found.sizes, found.partitions, ends, out)
    return Texts(ends, out)


def are_ascii(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whether each text is ASCII, so that its bytes are its characters."""
    out = np.empty(len(starts), bool)
    _are_ascii(data, np.ascontiguousarray(starts), np.ascontiguousarray(sizes), out)
    return out
