"""The tables of contract section 4 of a running cluster: batches and records are written while they pass by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

import pyarrow as pa

from auditor.connectors.codec.records import decode_records
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.tables import internal_rows, schema
from auditor.connectors.tables.internal_rows import internal_records
from auditor.connectors.tables.rows import batch_rows, record_rows, table_schema
from auditor.connectors.tables.schema import Key, from_errors
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.tables.parquet_files import ParquetFile
from auditor.replay.reading.other_replicas import LiveTask

INTERNAL = ("transaction_log", "offset_commits", "group_metadata")
PASSING = ("batches", *INTERNAL, "records")
PART = "part-0.parquet"


class Tables:
    """Writes batches, and records where they are read, below ``folder``; does nothing without one."""

    def __init__(self, options: AuditOptions, folder: Path | None) -> None:
        self.options = options
        self.folder = folder
        self.writers: dict[str, ParquetFile] = {}

    def __enter__(self) -> Self:
        if self.folder is not None:
            for name in PASSING if self.options.records else PASSING[:-1]:
                columns = table_schema(name, self.options.include_payload)
                (self.folder / name).mkdir(parents=True)
                self.writers[name] = ParquetFile(self.folder / name / PART, columns)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers.values():
            writer.close()

    def watch(self, task: LiveTask) -> Callable[[Chunk], None] | None:
        """Who is shown the chunks of a log."""
        if self.folder is None:
            return None
        key: Key = (task.cluster_id, task.broker_id, task.log_dir, task.topic, task.partition)

        decoded = internal_records(task.topic, task.limits) if task.topic in internal_rows.TABLES else None

        def show(chunk: Chunk) -> None:
            if decoded is not None and chunk.raw is not None:
                decoded.add(task.file, chunk)  # what could not be read is reported by the audit
                decoded.unreadable.clear()
                decoded.unknown.clear()
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
            self.writers[name].add(rows)


def from_facts(replicas: list[ReplicaFacts], table: str) -> pa.Table | None:
    """A decoded table as far as facts have it; one that a cluster cannot fill is there without rows. None: derived."""
    if table not in schema.DECODED:
        return None
    wanted = schema.DECODED[table]
    found = [f.tables[table] for f in replicas if table in f.tables]
    if table == "decode_errors":
        found = [pa.Table.from_batches([from_errors(f.table_key, f.errors)]) for f in replicas if f.errors]
    return pa.concat_tables([wanted.empty_table(), *found])
