"""Parquet as every table of ours is written: typed as Spark types it, encoded for what the columns hold."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.connectors.tables.schema import for_spark

GROUP_ROWS = 1 << 17
GROUP_BYTES = 8 << 20  # of Arrow, which is what waits in memory; on disk a tenth of it and less


def typed(columns: pa.Schema) -> pa.Schema:
    """The columns as they are written: times in microseconds."""
    return for_spark(pa.RecordBatch.from_pylist([], schema=columns)).schema


class ParquetFile:
    """A file that rows of a table are added to, a few or many at a time. Memory: :data:`GROUP_BYTES`.

    Texts, of which few differ, get a dictionary. Numbers and times, which mostly grow by little, are stored as
    differences (DELTA_BINARY_PACKED): a tenth of the size and a third of the work of the default.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        wanted = typed(columns)
        leaves = {field.name: field.type for field in wanted}
        lists = {name: kind for name, kind in leaves.items() if pa.types.is_list(kind)}
        leaves = {name: kind for name, kind in leaves.items() if name not in lists}
        leaves |= {f"{name}.list.element": kind.value_type for name, kind in lists.items()}
        numbers = [name for name, kind in leaves.items() if pa.types.is_integer(kind) or pa.types.is_timestamp(kind)]
        self._file = pq.ParquetWriter(
            path,
            wanted,
            use_dictionary=[name for name, kind in leaves.items() if pa.types.is_string(kind)],
            column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        )
        self._path = path
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows; they are written when there are enough of them."""
        self._waiting.append(for_spark(rows))
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def size(self) -> int:
        """Bytes written so far, those that wait not counted."""
        return self._path.stat().st_size

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_batches(self._waiting), row_group_size=GROUP_ROWS)
        self._waiting.clear()
        self._rows = self._bytes = 0

    def close(self) -> None:
        """Writes what waits, and ends the file; once more is nothing."""
        self._flush()
        self._file.close()


def write(table: pa.Table, path: Path) -> None:
    """Writes a table that is held in memory into one file, whose folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ParquetFile(path, table.schema) as file:
        for batch in table.to_batches():
            file.add(batch)
