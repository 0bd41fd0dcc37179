"""The tables of contract section 4 of a running cluster: batches and records are written while they pass by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.connectors import internal, schema
from auditor.connectors.arrow import Key, from_rows
from auditor.connectors.batch_rows import batch_rows, record_rows
from auditor.connectors.codec.records import decode_records
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.internal import InternalRows
from auditor.connectors.rows import table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.facts.copy_facts import CopyFacts
    from auditor.pipeline.audit import Audit
    from auditor.pipeline.options import AuditOptions
    from auditor.replay.live_copy import LiveTask

INTERNAL = ("transaction_log", "offset_commits", "group_metadata")
PASSING = ("batches", *INTERNAL, "records")
PART = "part-0.parquet"


class Tables:
    """Does nothing unless ``--tables`` was given. A table that a cluster cannot fill is there, without rows."""

    def __init__(self, options: AuditOptions) -> None:
        self.options = options
        self.folder = options.out / "tables"
        self.writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> Self:
        if self.options.tables:
            for name in PASSING if self.options.records else PASSING[:-1]:
                rows = table_schema(name, self.options.include_payload)
                self.writers[name] = pq.ParquetWriter(_part(self.folder / name), rows)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers.values():
            writer.close()

    def watch(self, task: LiveTask) -> Callable[[Chunk], None] | None:
        """Who is shown the chunks of a log."""
        if not self.options.tables:
            return None
        key: Key = (task.cluster_id, task.broker_id, task.log_dir, task.topic, task.partition)

        decoded = InternalRows(task.topic, task.limits) if task.topic in internal.TABLES else None

        def show(chunk: Chunk) -> None:
            if decoded is not None and chunk.raw is not None:
                decoded.add(task.file, chunk)  # what could not be read the audit tells
                decoded.unreadable.clear()
                for name, batch in decoded.drain(key):
                    self._write(name, batch)
            self._write("batches", batch_rows(key, task.file, chunk.batches))
            if "records" in self.writers and chunk.raw is not None:
                payload = self.options.include_payload
                runs = decode_records(chunk.raw, chunk.batches, limits=task.limits, payload=payload)
                for rows in record_rows(key, task.file, chunk.batches, runs, payload):
                    self._write("records", rows)

        return show

    def _write(self, name: str, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self.writers[name].write_batch(rows)

    def publish(self, audit: Audit, copies: list[CopyFacts], spark: SparkSession, facts: DataFrame) -> None:
        """Writes the other tables."""
        if not self.options.tables:
            return
        from auditor.spark import tables

        for name, wanted in schema.DECODED.items():
            if name not in PASSING:
                found = [f.tables[name] for f in copies if name in f.tables]
                if name == "decode_errors":
                    found = [pa.Table.from_batches([from_rows(wanted, _key(f), f.errors)]) for f in copies if f.errors]
                pq.write_table(pa.concat_tables([wanted.empty_table(), *found]), _part(self.folder / name))
        frames = {name: tables.from_facts(spark, facts, audit.clusters, name) for name in tables.OF_FACTS}
        frames["findings"] = tables.findings(spark, audit)
        for name, frame in frames.items():
            frame.write.mode("overwrite").parquet((self.folder / name).absolute().as_uri())


def _key(copy: CopyFacts) -> Key:
    return (copy.cluster_id, copy.broker_id, copy.log_dir, copy.topic, copy.partition)


def _part(folder: Path) -> Path:
    """The one file of a table, in a folder that holds nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    return folder / PART
