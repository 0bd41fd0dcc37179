"""Batches of segments as Parquet: the columns of a walk, named as in the table ``batches``; and the same read back.

Numbers that go on by steps are stored as steps, others by dictionary; a batch takes about ten bytes, of which four are
its checksum. Of internal topics the stored bytes of each batch are there too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.limits import MIB
from auditor.connectors.codec import batch as walking
from auditor.connectors.codec.batch_columns import BATCH_DTYPES, FLAW_CRC, UNVERIFIED, BatchColumns
from auditor.connectors.copied.parquet_pages import footer_fits, group_fits

SUFFIX = ".log.parquet"
GROUP_ROWS = 1 << 17  # of a row group, of which one is in memory at a time
GROUP_BYTES = 16 * MIB  # of stored batches in it
FILE_ROWS, FILE_BYTES = 1 << 21, 64 * MIB  # of a file, after which another one begins; bytes of stored batches
MOST_FILE = 256 * MIB  # that is read of one
STORED = "stored"
_BY_STEPS = ("position", "size", "base_offset", "last_offset", "base_timestamp", "max_timestamp", "base_sequence")
COLUMNS = pa.schema(
    [
        *(pa.field(n, pa.from_numpy_dtype(t), False) for n, t in zip(BatchColumns._fields, BATCH_DTYPES, strict=True)),
        pa.field("crc_ok", pa.bool_()),  # null where nobody has verified it
    ]
)
WITH_BYTES = COLUMNS.append(pa.field(STORED, pa.binary()))


def file_name(first: str, digest: str) -> str:
    """The name of a file of batches: the first segment's, and what its content comes to (:func:`digest_of`)."""
    return f"{first}-{digest}{SUFFIX}"


def digest_of(data: bytes) -> str:
    """What a content comes to. Damage to a file is found by its name, before anything reads it: libraries may die of
    a damaged footer."""
    return hashlib.blake2b(data, digest_size=6).hexdigest()


class SegmentWriter:
    """Writes rows of a walk, and the stored bytes beside them where ``stored``, into one Parquet file."""

    def __init__(self, target: Any, *, stored: bool) -> None:
        self.schema = WITH_BYTES if stored else COLUMNS
        self.writer = pq.ParquetWriter(
            target, self.schema, compression="zstd", compression_level=9, write_statistics=False, store_schema=False,
            use_dictionary=[n for n in self.schema.names if n not in (*_BY_STEPS, "crc", "crc_ok", STORED)],
            column_encoding=dict.fromkeys(_BY_STEPS, "DELTA_BINARY_PACKED") | {"crc": "PLAIN"},
        )  # fmt: skip
        self.rows = 0
        self.waiting: list[pa.Table] = []
        self.waits = self.bytes = 0

    def add(self, rows: np.ndarray, stored: Sequence[bytes] | None = None) -> None:
        """More rows, with their bytes as they are stored."""
        if not len(rows):
            return
        flaws = rows[:, walking.FLAWS]
        columns: list[Any] = list(walking.columns_of(rows)._replace(flaws=(flaws & ~UNVERIFIED).astype(np.int32)))
        columns.append(pa.array(flaws & FLAW_CRC == 0, mask=flaws & UNVERIFIED != 0))
        if stored is not None:
            columns.append(pa.array(stored, pa.binary()))
            self.bytes += sum(map(len, stored))
        self.waiting.append(pa.table(columns, schema=self.schema))
        self.rows += len(rows)
        self.waits += len(rows)
        if self.waits >= GROUP_ROWS or self.bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=2 * GROUP_ROWS)
        self.waiting, self.waits, self.bytes = [], 0, 0

    def close(self) -> None:
        """The file, when all rows are there."""
        self._flush()
        self.writer.close()


class SegmentRows:
    """Reads rows of such a file, whose content is ``data``. Memory: that, and a row group.

    Errors: ``OSError`` for a file that is none, or is not of this form.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        if not footer_fits(data):
            raise OSError(0, "no Parquet file of a copy")
        try:
            self.file = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowException, ValueError) as error:
            raise OSError(0, "no Parquet file of a copy") from error
        schema = self.file.schema_arrow
        if not any(_same(schema, known) for known in (COLUMNS, WITH_BYTES)):
            raise OSError(0, "not the columns of a copy")
        self.stored = STORED in schema.names
        meta = self.file.metadata
        sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
        self.ends = np.cumsum([0, *sizes])
        self.group: tuple[int, np.ndarray, pa.Table | None] = (-1, walking.walk_rows(0), None)

    def rows(self, first: int, behind: int, *, stored: bool = False) -> tuple[np.ndarray, list[bytes] | None]:
        """Rows of a walk from number ``first`` to before ``behind``, with the stored bytes if asked for.

        Errors: ``OSError`` where the file has them not, or they cannot be read.
        """
        found, raw, at = [], [], first
        while at < behind:
            number = int(np.searchsorted(self.ends, at, side="right")) - 1
            if number + 1 >= len(self.ends):
                raise OSError(0, "the copy has fewer batches than its list says")
            values, table = self._group(number, stored and self.stored)
            here = slice(at - int(self.ends[number]), min(behind, int(self.ends[number + 1])) - int(self.ends[number]))
            found.append(values[here])
            if table is not None:
                raw += table.column(STORED)[here].to_pylist()
            at = int(self.ends[number]) + here.stop
        rows = np.concatenate(found) if len(found) != 1 else found[0].copy()
        return (rows if found else walking.walk_rows(0)), (raw if stored and self.stored else None)

    def _group(self, number: int, stored: bool) -> tuple[np.ndarray, pa.Table | None]:
        held, values, table = self.group
        if held != number or (stored and table is None):
            names = [*BatchColumns._fields, "crc_ok", *([STORED] if stored else [])]
            try:
                if not group_fits(self.data, self.file.metadata.row_group(number), len(COLUMNS)):
                    raise OSError(0, "batches of the copy would become more than there can be")
                read = self.file.read_row_group(number, columns=names, use_threads=False)
            except (pa.ArrowException, ValueError) as error:
                raise OSError(0, "the batches of the copy cannot be read") from error
            values = np.empty((read.num_rows, len(BatchColumns._fields)), np.int64)
            for k, name in enumerate(BatchColumns._fields):
                values[:, k] = read.column(name).to_numpy()
            values[:, walking.FLAWS] &= ~UNVERIFIED
            if (unknown := read.column("crc_ok")).null_count:
                values[:, walking.FLAWS] |= np.where(unknown.is_null().to_numpy(), UNVERIFIED, 0)
            table = read.select([STORED]) if stored else None
            self.group = number, values, table
        return values, table


def _same(found: pa.Schema, known: pa.Schema) -> bool:
    """Whether the columns are these, in their order and of these types."""
    return found.names == known.names and [f.type for f in found] == [f.type for f in known]
