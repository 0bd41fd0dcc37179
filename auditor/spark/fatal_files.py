"""Files that kill who reads them for a table: they are looked for when a job has failed, and left out of the next one.

The replay finds its own (:mod:`auditor.processes.isolation`); here are those that only the decoding into rows dies of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute

from auditor.base.errors import DecodeError
from auditor.connectors.logdir import scope
from auditor.connectors.tables.rows import How, Piece, read_piece
from auditor.processes.isolation import KILLS, read_apart
from auditor.spark import scan
from auditor.spark.query_errors import FAILED, worker_died

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from auditor.pipeline.runner import Audited

Result = TypeVar("Result")
Work = tuple[Piece, frozenset[str], How]

FATAL = "log_dir string, file string, detail string"
FATAL_ARROW = pa.schema([("log_dir", pa.string()), ("file", pa.string()), ("detail", pa.string())])
UNCUT = 1 << 62  # bytes of a piece: cutting a segment would read its index here, on the driver


def without(spark: SparkSession, audit: Audited, tables: frozenset[str], work: Callable[[], Result]) -> Result:
    """``work``, which reads decoded tables; where it fails for files that kill their reader, once more without them.

    They go to ``audit.fatal``, and are looked for where a Python worker died alone. Cost: there the tables' files are
    read twice more. Errors: those of ``work`` where no file is the cause.
    """
    try:
        return work()
    except FAILED as error:
        if not worker_died(error):
            raise
        known = audit.refused()
        audit.fatal += _find(spark, audit, tables)
        if audit.refused() == known:
            raise
    return work()


def _find(spark: SparkSession, audit: Audited, tables: frozenset[str]) -> list[tuple[str, DecodeError]]:
    """Reads the files that some tables need in processes apart; those that kill, in a fixed order."""
    options, tables = audit.options, tables | {"decode_errors"}
    how = How(options.limits, options.include_payload, options.records)
    found = scope.plan(audit.scoped, tables, UNCUT)
    lists = [[(piece, tables, how) for piece in some] for some in scope.spread(found, scan.slots(spark))]

    def look(work: list[Work]) -> Iterator[pa.RecordBatch]:
        for found in read_apart(work, _fatal):
            yield from found

    rows = scan.each_list(spark, lists, look, FATAL).toArrow().to_pylist()
    sizes = {(d.name, f.name): f.size for d in audit.inventory.log_dirs for f in d.files()}
    return sorted(
        (row["log_dir"], DecodeError(row["file"], 0, sizes[row["log_dir"], row["file"]], "unreadable", row["detail"]))
        for row in rows
    )


def _fatal(work: Work) -> list[pa.RecordBatch]:
    """What the reader of a piece was not allowed to open."""
    found = [rows for table, rows in read_piece(*work) if table == "decode_errors"]
    kills = [pa.compute.starts_with(rows.column("detail"), KILLS) for rows in found]
    return [
        rows.filter(mask).select(FATAL_ARROW.names).cast(FATAL_ARROW) for rows, mask in zip(found, kills, strict=True)
    ]
