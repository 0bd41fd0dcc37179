"""The tables of contract section 4 on Spark: as views for SQL, as Parquet for ``--tables``.

Decoded tables come from the data sources of :mod:`auditor.connectors.sources`, those about the cluster from its
metadata,
derived ones from the facts of :mod:`auditor.spark.scan`, with what the coordinator's log knows of each producer.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.connectors import schema
from auditor.connectors.arrow import Key, array_of, for_spark, from_columns, from_errors, texts
from auditor.connectors.schema import LOG_KEY, TIME
from auditor.connectors.sources import SOURCES, spark_schema
from auditor.facts.copy_facts import CopyFacts
from auditor.facts.packed import PackedRows
from auditor.outputs import publish
from auditor.pipeline import cluster_settings
from auditor.rules.open_transactions import open_transactions
from auditor.rules.view import Cluster, LogView
from auditor.spark import fatal_files
from auditor.spark.streams import LOG, by_log, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.audit import Audit

# What each copy's replay leaves of its producers, as a broker would hold it at the log's end. A producer that only a
# snapshot knows has no batches. first_offset, first_sequence: of its first batch at or behind the log start.
PRODUCER_STATES = pa.schema(
    [*LOG_KEY, ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("last_sequence", pa.int32()),
     ("last_offset", pa.int64()), ("offset_delta", pa.int32()), ("last_timestamp", TIME),
     ("coordinator_epoch", pa.int32()), ("current_txn_first_offset", pa.int64()), ("transactional_id", pa.string()),
     ("batches", pa.int64()), ("records", pa.int64()), ("markers", pa.int64()), ("first_offset", pa.int64()),
     ("first_sequence", pa.int32()), ("max_epoch", pa.int32())]
)  # fmt: skip
# One row a transaction of a producer in a copy; first_offset -1: a marker that ended nothing here. outcome: COMMIT,
# ABORT, null while open; class, of open ones in the leader copy: active, late, hanging, orphan, ghost, undecidable.
TRANSACTIONS = pa.schema(
    [*LOG_KEY, ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("transactional_id", pa.string()),
     ("outcome", pa.string()), ("class", pa.string()), ("first_offset", pa.int64()), ("last_offset", pa.int64()),
     ("marker_offset", pa.int64()), ("marker_epoch", pa.int32()), ("coordinator_epoch", pa.int32()),
     ("last_stable_offset", pa.int64()), ("first_timestamp", TIME), ("last_timestamp", TIME),
     ("marker_timestamp", TIME), ("batches", pa.int64()), ("records", pa.int64()), ("size", pa.int64()),
     ("file", pa.string()), ("position", pa.int64()), ("leader_copy", pa.bool_())]
)  # fmt: skip
OF_FACTS = {"producer_states": PRODUCER_STATES, "transactions": TRANSACTIONS}
OF_METADATA = ("topics", "topic_configs", "broker_configs", "partitions")
FORMATS = {source.table: source.format for source in SOURCES}
NAMES = (*schema.DECODED, *OF_FACTS, "verdicts", "findings")
UNOPENED = ("unreadable", "vanished")
_OUTCOMES = texts(["ABORT", "COMMIT"])


def decoded(spark: SparkSession, audit: Audit, table: str) -> DataFrame:
    """A decoded table of the audit's paths. Nothing is read until it is asked for, and then only this table's files."""
    options = audit.options
    if table in OF_METADATA:
        return _of_metadata(spark, audit, table)
    source = next(source for source in SOURCES if source.table == table)
    spark.dataSource.register(source)
    reader = spark.read.format(source.format).options(
        paths=json.dumps([*options.paths]),
        topics=json.dumps([*options.topics]),
        splitSize=str(options.split_size),
        includePayload=str(options.include_payload),
        deep=str(options.records),
        maxBatchBytes=str(options.limits.max_batch_bytes),
        maxBatchRatio=str(options.limits.max_batch_ratio),
        refused=json.dumps(fatal_files.refused(audit)),
    )
    rows = reader.load()
    if table == "decode_errors" and audit.outside:
        rows = rows.unionAll(local(spark, _outside(audit)))
    return rows


def _of_metadata(spark: SparkSession, audit: Audit, table: str) -> DataFrame:
    """A table of what ``__cluster_metadata`` says, of all clusters."""
    found = [cluster_settings.tables(cluster) for cluster in audit.settings.values()]
    batches = [batch for tables in found if table in tables for batch in tables[table].to_batches()]
    return local(spark, pa.Table.from_batches(batches, schema.DECODED[table]))


def _outside(audit: Audit) -> pa.Table:
    """What could not be read of the clusters' metadata, but for files that the source itself cannot open either."""
    dirs = {log_dir.name: log_dir for log_dir in audit.inventory.log_dirs}

    def rows(log_dir: str, error: DecodeError) -> pa.RecordBatch:
        known = dirs[log_dir]
        key = (known.cluster_id, known.broker_id, log_dir, cluster_settings.METADATA_TOPIC, 0)
        return from_errors(key, [error])

    found = [(log_dir, error) for log_dir, error in audit.outside if error.reason not in UNOPENED]
    return pa.Table.from_batches([rows(*item) for item in found], schema.DECODE_ERRORS)


def local(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table that the driver holds."""
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)  # Spark takes no table without a single batch
    batches = [for_spark(batch) for batch in table.to_batches() or [empty]]
    return spark.createDataFrame(pa.Table.from_batches(batches), schema=spark_schema(table.schema))


def from_facts(spark: SparkSession, facts: DataFrame, clusters: dict[str, Cluster], table: str) -> DataFrame:
    """``producer_states`` or ``transactions``: one exchange by log, since the copies of a log explain each other."""
    shipped = spark.sparkContext.broadcast(clusters)
    rows_of: Callable[[LogView, CopyFacts], pa.RecordBatch] = _states if table == "producer_states" else _transactions

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (join_key, *_), found in logs(batches):
            log = LogView([pickle.loads(copy) for (copy,) in found], shipped.value[join_key])
            for copy in log.copies:
                yield for_spark(rows_of(log, copy))

    return by_log(facts.select(*LOG, "facts")).mapInArrow(work, spark_schema(OF_FACTS[table]))


def _key(copy: CopyFacts) -> Key:
    return (copy.cluster_id, copy.broker_id, copy.log_dir, copy.topic, copy.partition)


def _columns(rows: np.ndarray | PackedRows, wanted: pa.Schema) -> dict[str, Any]:
    """The columns that facts and table have by the same name."""
    return {name: rows[name].copy() for name in rows.dtype.names or () if name in wanted.names}


def _owners(log: LogView, producer_ids: np.ndarray) -> pa.Array:
    """The transactional id of each producer id, null where the coordinator's log does not tell."""
    known, at = np.unique(producer_ids, return_inverse=True)
    return texts([log.owner(pid) for pid in known.tolist()]).take(array_of(at.astype(np.int64)))


def _states(log: LogView, copy: CopyFacts) -> pa.RecordBatch:
    rows = copy.producers
    columns = _columns(rows, PRODUCER_STATES)
    columns |= {
        "current_txn_first_offset": rows["txn_first_offset"].copy(),
        "transactional_id": _owners(log, rows["producer_id"]),
    }
    return from_columns(PRODUCER_STATES, _key(copy), len(rows), columns)


def _transactions(log: LogView, copy: CopyFacts) -> pa.RecordBatch:
    rows = copy.transactions
    is_open = rows["marker_offset"] < 0
    classes: dict[tuple[int, int], str] = {}
    if copy is log.leader:
        classes = {(int(t.row["producer_id"]), int(t.row["first_offset"])): t.klass for t in open_transactions(log)}
    where = zip(rows["producer_id"].tolist(), rows["first_offset"].tolist(), is_open.tolist(), strict=True)
    segments = np.where(rows["segment"] >= 0, rows["segment"], rows["marker_segment"])
    positions = np.where(rows["segment"] >= 0, rows["position"], rows["marker_position"])
    columns = _columns(rows, TRANSACTIONS)
    columns |= {
        "transactional_id": _owners(log, rows["producer_id"]),
        "outcome": _OUTCOMES.take(array_of((rows["commit"] == 1).astype(np.int64), is_open)),
        "class": texts([classes.get((pid, first)) if still else None for pid, first, still in where]),
        "size": rows["bytes"].copy(),
        "file": texts([copy.file(number) for number in segments.tolist()]),
        "position": positions,
        "leader_copy": copy is log.leader,
    }
    return from_columns(TRANSACTIONS, _key(copy), len(rows), columns)


def findings(spark: SparkSession, audit: Audit) -> DataFrame:
    """The audit's findings; ``evidence`` is JSON."""
    rows = [
        f.to_dict() | {"evidence": json.dumps(f.evidence, sort_keys=True, ensure_ascii=False)} for f in audit.findings
    ]
    return local(spark, pa.Table.from_pylist(rows, schema=publish.FINDINGS_SCHEMA))


def write(spark: SparkSession, audit: Audit, facts: DataFrame, folder: Path) -> None:
    """Every table as Parquet below ``folder``, each in a folder of its name; ``records`` only under ``--records``.

    Cost: each table reads its own files once more; ``batches`` and ``records`` all segments.
    """
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def save(name: str, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet((folder / name).absolute().as_uri())

    def decode(name: str) -> None:
        save(name, decoded(spark, audit, name))

    for name in schema.DECODED:  # decode_errors is the last of them, and so tells what others died of
        if name != "records" or audit.options.records:
            fatal_files.without(spark, audit, frozenset({name}), partial(decode, name))
    for name in OF_FACTS:
        save(name, from_facts(spark, facts, audit.clusters, name))
    save("findings", findings(spark, audit))
