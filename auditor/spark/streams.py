"""Rows on their way between Spark and its Python workers: few Arrow batches, and logs that come one after the other.

A batch, like a group of Spark's own, costs milliseconds, which ten thousand small logs would pay one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditor.base.errors import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOG = ("join_key", "topic", "partition")
BATCH_BYTES = MIB
ROW_BYTES = 16  # of a row beside its texts and bytes

Row = tuple[Any, ...]


def in_batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in batches of a MiB or a little more, or of a single row that is larger."""
    waiting: list[Row] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
        if size >= BATCH_BYTES:
            yield _batch(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = [array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """``pyarrow.array`` of int32, texts or bytes, none of them null: that one loads pandas to look at its first list,
    for a third of a second of every worker.

    Errors: OverflowError for more than 2 GiB of texts or bytes.
    """
    if kind == pa.int32():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.array(values, np.int32))])
    data = [value.encode() if isinstance(value, str) else value for value in values]
    ends = [0, *itertools.accumulate(map(len, data))]
    return pa.Array.from_buffers(
        kind, len(data), [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(b"".join(data))]
    )


def by_log(rows: DataFrame) -> DataFrame:
    """Rows whose first columns are :data:`LOG`, those of a log in one task and next to each other: for :func:`logs`."""
    return rows.repartition(*LOG).sortWithinPartitions(*LOG)


def logs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Row, Iterator[Row]]]:
    """Each log's key, and its rows without the key, which are to be read before the next log is asked for.

    Memory: a batch as Arrow brings it; values become Python's one row at a time, since facts may be large.
    """
    rows = (tuple(c[row].as_py() for c in batch.columns) for batch in batches for row in range(batch.num_rows))
    for key, mine in itertools.groupby(rows, key=lambda row: row[: len(LOG)]):
        yield key, (row[len(LOG) :] for row in mine)
