"""Files that kill who reads them for a table: they are looked for when a job has failed, and left out of the next one.

The replay finds its own (:mod:`auditor.pipeline.isolation`); here are those that only the decoding into rows dies of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from auditor.base.errors import DecodeError
from auditor.connectors import pieces
from auditor.connectors.rows import How, Piece, read_piece
from auditor.pipeline.isolation import KILLS, read_apart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from auditor.pipeline.audit import Audit

Result = TypeVar("Result")
Work = tuple[Piece, frozenset[str], How]

FAILED = (PySparkException, Py4JError)  # how a job's end comes to the driver
TOLD = "log_dir string, file string, detail string"
TOLD_ARROW = pa.schema([("log_dir", pa.string()), ("file", pa.string()), ("detail", pa.string())])
UNCUT = 1 << 62  # bytes of a piece: cutting a segment would read its index here, on the driver


def refused(audit: Audit) -> dict[str, str]:
    """Paths of the files that are known to kill their reader, with the reason."""
    places = {log_dir.name: log_dir.place for log_dir in audit.inventory.log_dirs}
    found = [(places[log_dir], e) for log_dir, e in audit.unread() if log_dir in places and e.detail.startswith(KILLS)]
    return {f"{place.path}/{error.file}": error.detail for place, error in found}


def without(spark: SparkSession, audit: Audit, tables: frozenset[str], work: Callable[[], Result]) -> Result:
    """``work``, which reads decoded tables; where it fails for files that kill their reader, once more without them.

    They go to ``audit.deadly``. Cost: where it fails, the tables' files are read twice more. Errors: those of ``work``
    where no file is to blame.
    """
    try:
        return work()
    except FAILED:
        known = refused(audit)
        audit.deadly += _find(spark, audit, tables)
        if refused(audit) == known:
            raise
    return work()


def _find(spark: SparkSession, audit: Audit, tables: frozenset[str]) -> list[tuple[str, DecodeError]]:
    """Reads the files that some tables need in processes apart; those that kill, in a fixed order."""
    options, tables = audit.options, tables | {"decode_errors"}
    how = How(options.limits, options.include_payload, options.records)
    lists = pieces.spread(
        pieces.plan(audit.inventory, tables, UNCUT, options.wants_topic), spark.sparkContext.defaultParallelism
    )
    shipped = spark.sparkContext.broadcast(lists)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (n for batch in batches for n in batch.column(0).to_pylist()):
            for found in read_apart([(piece, tables, how) for piece in shipped.value[number]], _deadly):
                yield from found

    rows = spark.range(0, len(lists), 1, max(1, len(lists))).mapInArrow(look, TOLD).toArrow().to_pylist()
    sizes = {(d.name, f.name): f.size for d in audit.inventory.log_dirs for f in d.files()}
    return sorted(
        (row["log_dir"], DecodeError(row["file"], 0, sizes[row["log_dir"], row["file"]], "unreadable", row["detail"]))
        for row in rows
    )


def _deadly(work: Work) -> list[pa.RecordBatch]:
    """What the one who reads a piece was told not to open."""
    found = [rows for table, rows in read_piece(*work) if table == "decode_errors"]
    kills = [pa.compute.starts_with(rows.column("detail"), KILLS) for rows in found]
    return [
        rows.filter(mask).select(TOLD_ARROW.names).cast(TOLD_ARROW) for rows, mask in zip(found, kills, strict=True)
    ]
