"""Rows in partitions of Spark's as they are counted: one to each, exactly, where a hash would put two together."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOGETHER = 1 << 16  # numbers that are tried at a time
SEED = 42  # of the hash by which Spark repartitions


def apart(rows: DataFrame, count: int, number: str) -> DataFrame:
    """Rows as ``count`` partitions, each of one value of the int column ``number``, which counts from 0.

    By the hash of a key that falls there: ``repartitionById`` does it without, from Spark 4.1 on.
    """
    from pyspark.sql import functions as F

    keys = F.from_json(F.lit(f"[{','.join(map(str, keys_of(count).tolist()))}]"), "array<bigint>")
    return rows.repartition(count, keys[F.col(number)])


@cache
def keys_of(count: int) -> np.ndarray:
    """For each of so many partitions a number that Spark puts there, int64."""
    keys = np.full(count, -1, np.int64)
    tried = 0
    while (keys < 0).any():
        numbers = np.arange(tried, tried + TOGETHER, dtype=np.int64)
        places = hashed(numbers) % count
        found, first = np.unique(places, return_index=True)
        keys[found] = np.where(keys[found] < 0, numbers[first], keys[found])
        tried += TOGETHER
    return keys


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Spark's ``hash`` of bigints as int64: Murmur3 of 32 bits over their lower and upper half (Murmur3_x86_32)."""
    state = np.full(len(numbers), SEED, np.uint32)
    for half in (numbers & 0xFFFFFFFF, numbers >> 32):
        word = _turned(half.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        state = _turned(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    state ^= state >> np.uint32(16)
    return state.view(np.int32).astype(np.int64)


def _turned(words: np.ndarray, by: int) -> np.ndarray:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
