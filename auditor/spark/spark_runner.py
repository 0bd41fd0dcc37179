"""Runner of an audit's two steps on Spark."""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import MIB
from auditor.base.words import plural
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.plan import GIB, bytes_of
from auditor.pipeline.runner import REPLICA, Judged, JudgeLog, KeptFacts, Replicas, Runner, briefs_of, kept
from auditor.processes.isolation import Pool
from auditor.replay.task import ReplicaTask, TextTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.spark.session import described, is_local, tuned, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.runner import Audited
    from auditor.pipeline.table_tasks import TableRequest, WrittenPart, WrittenTables
    from auditor.pipeline.work_folder import WorkFolder
    from auditor.spark.jobs import Counted


# Runner on Spark: any master, classic or Connect.


# Loaded while Java starts: what the read step needs, and what pyspark loads at its first call with a list or dict
# (NumpyScalarConverter). Nothing of pyspark's own, whose modules the start loads at the same time.
AHEAD = ("auditor.spark.jobs", "pandas")


COMPILED = (
    "Python workers compiled code before they read, which takes each of them a minute; 'make env' packs it for "
    "--archives (docs/running.md)"
)


def _load_ahead() -> None:
    for name in AHEAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class SparkReplicas(Replicas):
    """Facts in a frame, see :data:`auditor.spark.jobs.FACTS`."""

    def __init__(
        self,
        frame: DataFrame | Callable[[], DataFrame],
        progress: Callable[[float], None] | None = None,
        job: str = "read facts",
        counted: Counted | None = None,
    ) -> None:
        self._frame = frame
        self.progress = progress
        self.job = job
        self.counted = counted
        self.logs: int | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The frame; with a work folder, missing facts are read for it."""
        return self._frame() if callable(self._frame) else self._frame

    def briefs(self) -> list[Brief]:
        """Return the briefs of all replicas. Runs the first job, whose tasks have about as many bytes each."""
        frame = self.frame
        spark = frame.sparkSession
        with watched(spark, self.progress), tuned(spark), described(spark, self.job):
            column = frame.select("brief").toArrow().column("brief")
        briefs = briefs_of(row for chunk in column.chunks for row in chunk.to_pylist())
        if self.counted is not None and self.counted.compiled.value and not is_local(spark):
            logging.getLogger("auditor").warning(COMPILED)
        self.logs = len({(brief.join_key, brief.topic, brief.partition) for brief in briefs})
        return briefs

    def rows(self) -> list[KeptFacts]:
        """Bring all facts to the driver."""
        return [KeptFacts(**row) for row in self.frame.toArrow().to_pylist()]

    def replaced(self, again: Replicas) -> SparkReplicas:
        """Return the facts with newer ones of some replicas."""
        assert isinstance(again, SparkReplicas)
        gone = again.frame.select(*REPLICA)
        return SparkReplicas(self.frame.join(gone, list(REPLICA), "left_anti").unionByName(again.frame))

    def close(self) -> None:
        """Release Spark's memory, unless Java has ended: then what ended it is the error to show, not this."""
        with contextlib.suppress(Exception):
            self.frame.unpersist()


class SparkRunner(Runner):
    """Runs on a session: the caller's, or one that is started when needed, for an input of so many bytes."""

    slow_start = True

    def __init__(self, start: Callable[[int], SparkSession]) -> None:
        super().__init__(Pool(1))
        self._start = start
        self.name = "Spark"

    def ready(self) -> None:
        """Start the session."""
        _ = self.spark

    @cached_property
    def spark(self) -> SparkSession:
        """The session."""
        threading.Thread(target=_load_ahead, daemon=True).start()
        return self._start(self.input_bytes)

    def read(self, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder | None = None) -> SparkReplicas:
        """Plan the first job."""
        from auditor.spark import jobs

        counted, heard = jobs.Counted.on(self.spark), self.progress
        progress = heard
        if heard is not None and counted is not None:
            progress = lambda part: heard(part, counted.batches.value)  # noqa: E731
        job = f"read {plural(len(tasks), 'replica')}, {_size(int(bytes_of(tasks).sum()))}"
        if work is not None:

            def read() -> DataFrame:
                with watched(self.spark, progress), tuned(self.spark), described(self.spark, job):
                    return jobs.read_kept_replicas(self.spark, tasks, work, self.work_notes, counted)

            return SparkReplicas(read, progress, job, counted)

        return SparkReplicas(jobs.read_replicas(self.spark, tasks, counted), progress, job, counted)

    def keep(self, rows: Sequence[KeptFacts]) -> SparkReplicas:
        """Hold facts of the driver as a frame."""
        from auditor.spark import jobs

        return SparkReplicas(jobs.facts_frame(self.spark, rows))

    def judge(self, replicas: Replicas, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
        """Run the second job."""
        from auditor.spark import jobs

        assert isinstance(replicas, SparkReplicas)
        logs = "logs" if replicas.logs is None else plural(replicas.logs, "log")
        return jobs.judge_logs(replicas.frame, clusters, judge, f"judge {logs}")

    def parts(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Write tables in one job."""
        from auditor.spark import spark_tables

        with described(self.spark, f"write {plural(len(wanted.decoded) + len(wanted.derived), 'table')}"):
            return spark_tables.run(self.spark, self.pool, audit, wanted)

    def table(self, audit: Audited, name: str) -> DataFrame:
        """Return a table as a frame."""
        from auditor.spark import spark_tables

        return spark_tables.frame(self.spark, audit, _facts(audit, name), name)

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        from auditor.spark.spark_tables import query

        return query(self.spark, audit, text, tables)

    @property
    def elsewhere(self) -> bool:
        """Whether tasks may run on other machines: on any cluster, and with a Connect server."""
        return not is_local(self.spark) or not hasattr(self.spark, "_jvm")

    def count(self, written: WrittenTables, table: str) -> list[Fields]:
        from auditor.spark.spark_tables import count, read

        return count(read(self.spark, written, table), table)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"


def _facts(audit: Audited, table: str) -> DataFrame | None:
    from auditor.pipeline.derived_tables import OF_FACTS

    return audit.replicas.frame if table in OF_FACTS else None  # type: ignore[attr-defined]


# A DataFrame of batches, classic or Connect: sorted by log, so that a task replays log after log.


# Of Spark's types those that columns of batches may have, and a few that they may not.
TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "double": pa.float64(),
    "float": pa.float32(),
    "date": pa.date32(),
}
NUMBER = r"(\d{20})[^/]*$"  # that in the name of a segment's file


def check(batches: DataFrame) -> None:
    """Raise ``AuditInputError`` unless the columns are those of ``batches``."""
    from auditor.pipeline import frames_audit

    types = ((field.name, field.dataType.simpleString().partition("(")[0]) for field in batches.schema)
    frames_audit.check(pa.schema([(name, TYPES.get(kind, pa.binary())) for name, kind in types]))


def replicas(batches: DataFrame, compacted: tuple[str, ...] | None) -> SparkReplicas:
    """Return the facts of each replica of a frame, persisted for the judge step. Lazy.

    ``compacted``: globs of compacted topics, None if unknown. Cost: one exchange of all rows by replica, sorted, which
    spills to disk; a task holds the batches of one replica at a time, packed.
    """
    from pyspark.sql import functions as F

    from auditor.connectors.tables.sources import spark_schema
    from auditor.pipeline.frames_audit import COLUMNS, KEY, replicas_of
    from auditor.spark.jobs import FACTS, FACTS_ARROW, in_batches

    types = {field.name: field.dataType for field in spark_schema(COLUMNS)}
    columns = [F.col(n) if n in batches.columns else F.lit(None).cast(types[n]).alias(n) for n in COLUMNS.names]
    rows = batches.select(*columns).repartition(*KEY)
    ordered = rows.sortWithinPartitions(*KEY, F.regexp_extract("file", NUMBER, 1), "file", "position")

    def work(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(map(kept, replicas_of(parts, compacted)), FACTS_ARROW)

    return SparkReplicas(ordered.mapInArrow(work, FACTS).persist())
