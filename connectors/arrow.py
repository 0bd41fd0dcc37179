"""From columns and rows to the Arrow tables of :mod:`auditor.connectors.schema`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import DecodeError
from auditor.connectors.schema import DECODE_ERRORS, LOG_KEY

Key = tuple[str | None, int | None, str, str | None, int | None]  # the values of LOG_KEY
KEPT_ROWS = 1 << 16  # of a column of one value that is kept for later; of a long text less
MAX_TIME_MS = 253_402_300_799_999  # the last millisecond of year 9999, the last year that SQL and Python know


# pyarrow.array and pyarrow.scalar import pandas before anything else: half a second for which ``auditor decode`` has
# no use. So columns are made of buffers, except where they come as rows.


def array_of(values: np.ndarray, null: np.ndarray | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """A column of numbers or truth values without a copy, or of a ``kind`` of the same bytes.

    ``null`` says which rows are null.
    """
    valid = None if null is None or not null.any() else _bits(~null)
    data = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind or pa.from_numpy_dtype(values.dtype), len(values), [valid, data])


def texts(values: Sequence[str | None]) -> pa.Array:
    """A column of texts."""
    encoded = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *(len(value) for value in encoded)], dtype=np.int32)
    valid = _bits(np.array([value is not None for value in values], bool))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    )


def lists(values: Sequence[Sequence[str] | None]) -> pa.Array:
    """A column of lists of texts."""
    ends = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)
    null = np.array([value is None for value in values], bool)
    items = texts([text for value in values for text in value or ()])
    valid = _bits(~null) if null.any() else None
    return pa.Array.from_buffers(pa.list_(pa.string()), len(values), [valid, pa.py_buffer(ends)], children=[items])


def repeated(value: str | int | bool | None, kind: pa.DataType, rows: int) -> pa.Array:
    """One value for all rows; of not too many, a part of what is at hand from before."""
    block = 1 << (rows - 1).bit_length() if rows else 0
    if max(block, len(str(value)) * block // 64) > KEPT_ROWS:
        return _repeated.__wrapped__(value, kind, rows)
    return _repeated(value, kind, block).slice(0, rows)


@lru_cache(maxsize=16)
def _repeated(value: str | int | bool | None, kind: pa.DataType, rows: int) -> pa.Array:
    if value is None:
        return pa.nulls(rows, kind)
    one = texts([value]) if isinstance(value, str) else array_of(np.array([value])).cast(kind)
    return one.take(array_of(np.zeros(rows, np.int64)))


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def times(values: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    """Milliseconds as numbers, or times in ms, of a ``kind``: null for none (negative) and beyond year 9999."""
    wide = values.astype(np.int64, copy=False)
    return array_of(wide, wide.view(np.uint64) > MAX_TIME_MS, kind)  # what is negative is large


def from_columns(schema: pa.Schema, key: Key, rows: int, columns: Values) -> pa.RecordBatch:
    """``rows`` rows of a table: ``columns`` by name, each an array or one value for all rows; absent ones are null."""
    values: Fields = dict(zip((field.name for field in LOG_KEY), key, strict=True)) | dict(columns)
    return pa.RecordBatch.from_arrays([_array(values.get(f.name), f.type, rows) for f in schema], schema=schema)


def _array(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(value, np.ndarray):
        value = times(value, kind) if pa.types.is_timestamp(kind) else array_of(value)
    if isinstance(value, pa.Array):
        return value if value.type == kind else value.cast(kind)
    return repeated(value, kind, rows)


def from_rows(schema: pa.Schema, key: Sequence[Any], rows: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Rows, each the values behind those of ``key``; times are in ms as of :func:`times`."""
    rest = [schema.field(number) for number in range(len(key), len(schema))]
    given = list(rows)
    columns = zip(*given, strict=True) if given else ((),) * len(rest)
    arrays = [repeated(v, f.type, len(given)) for v, f in zip(key, schema, strict=False)]
    arrays += [_column(values, field.type) for values, field in zip(columns, rest, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_dicts(schema: pa.Schema, key: Sequence[Any], rows: Iterable[Values]) -> pa.RecordBatch:
    """The same of rows by name; null where a row does not say, and what is no column is left out."""
    names = schema.names[len(key) :]
    return from_rows(schema, key, [[row.get(name) for name in names] for row in rows])


def from_errors(key: Key, errors: Iterable[DecodeError]) -> pa.RecordBatch:
    """Rows of the table ``decode_errors``."""
    return from_rows(DECODE_ERRORS, key, [error[:5] for error in errors])


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    return pa.array([v if v is not None and 0 <= v <= MAX_TIME_MS else None for v in values], pa.int64()).cast(kind)


def for_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows as Spark takes them: times in microseconds, the only unit it knows."""
    fields = [f.with_type(pa.timestamp("us", f.type.tz)) if pa.types.is_timestamp(f.type) else f for f in batch.schema]
    return batch.cast(pa.schema(fields))
