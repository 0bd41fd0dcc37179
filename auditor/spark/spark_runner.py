"""Runner of an audit's two steps on Spark."""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.base.errors import MIB
from auditor.base.words import plural
from auditor.connectors.stores import retries
from auditor.pipeline.plan import GIB, Item, bytes_of
from auditor.pipeline.runner import (
    HeldFacts,
    Joins,
    OverFacts,
    OverShares,
    PackedFacts,
    Replicas,
    Runner,
    SharesOf,
    TaskRows,
    pack_logs,
    pair_of,
)
from auditor.processes.isolation import Pool
from auditor.spark.session import described, is_local, tuned, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.frames_audit import RecordsOfLogs
    from auditor.pipeline.runner import Audited, Frames, ViewsOf
    from auditor.pipeline.table_tasks import TableRequest, WrittenPart, WrittenTables
    from auditor.pipeline.work_folder import WorkFolder
    from auditor.spark.jobs import Counted


# Runner on Spark: any master, classic or Connect.


# Loaded while Java starts: what the read step needs, and what pyspark loads at its first call with a list or dict
# (NumpyScalarConverter). Nothing of pyspark's own, whose modules the start loads at the same time.
AHEAD = ("auditor.spark.jobs", "pandas")


COMPILED = (
    "Python workers compiled native code first, a minute each; to avoid it pack the code with 'make env' for "
    "--archives (docs/spark.md)"
)


def _load_ahead() -> None:
    for name in AHEAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class FactsOfJob(HeldFacts):
    """Facts in a persisted frame, see :data:`auditor.spark.jobs.FACTS`; ``plan`` makes it.

    ``job`` describes the job that makes its rows, which is tried ``tries`` times where workers die.
    """

    def __init__(self, runner: SparkRunner, plan: Callable[[], DataFrame], tries: int = 1) -> None:
        self._runner = runner
        self._plan = plan
        self.tries = tries
        self.job = "read facts"
        self.counted: Counted | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """Its plan, made once."""
        return self._plan()

    def briefs(self) -> Iterator[bytes]:
        """Bring the packed briefs. Runs the job, whose tasks have about as many bytes each."""
        from auditor.spark import jobs

        frame = self.frame
        spark = frame.sparkSession
        for left in reversed(range(self.tries)):
            try:
                with watched(spark, self._progress()), tuned(spark), described(spark, self.job):
                    column = frame.select("briefs").toArrow().column("briefs")
                break
            except jobs.failures() as error:
                if not left or not jobs.worker_died(error):
                    raise
        if self.counted is not None and self.counted.compiled.value and not is_local(spark):
            logging.getLogger("auditor").warning(COMPILED)
        return (value.as_py() for value in column)

    def _progress(self) -> Callable[[float], None] | None:
        heard, counted = self._runner.progress, self.counted
        if heard is None or counted is None:
            return heard
        return lambda part: heard(part, counted.batches.value)

    def packed(self) -> list[PackedFacts]:
        """Bring all facts to the driver."""
        return [PackedFacts(**row) for row in self.frame.toArrow().to_pylist()]

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

    def hold(self, items: Callable[[], Sequence[Item]], work: WorkFolder | None) -> FactsOfJob:
        """Plan the first job."""
        from auditor.spark import jobs

        def plan() -> DataFrame:
            some = items()
            held.job = f"read {plural(len(some), 'replica')}, {_size(int(bytes_of(some).sum()))}"
            held.counted = jobs.Counted.on(self.spark)
            return jobs.read_lists(self.spark, some, work, held.counted)

        held = FactsOfJob(self, plan, 1 if work is None else retries.ROUNDS)
        return held

    def hold_packed(self, packed: Callable[[], Iterable[PackedFacts]]) -> FactsOfJob:
        """Hold facts of the driver as a frame."""
        from auditor.spark import jobs

        return FactsOfJob(self, lambda: jobs.facts_frame(self.spark, packed()))

    def over(self, held: HeldFacts, work: OverFacts, job: str = "") -> Iterator[bytes]:
        """Run a job over the facts."""
        from auditor.spark import jobs

        assert isinstance(held, FactsOfJob)
        return jobs.brought(jobs.over(held.frame, work), job)

    def gather(self, held: HeldFacts, shares: SharesOf, work: OverShares, job: str = "") -> Iterator[bytes]:
        """Run a job with an exchange of shares."""
        from auditor.spark import jobs

        assert isinstance(held, FactsOfJob)
        return jobs.brought(jobs.gather(held.frame, shares, work), job)

    def decode(self, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
        """Write the decoded tables in one job."""
        from auditor.spark import spark_tables

        with described(self.spark, f"write {plural(len(wanted.decoded), 'table')}"):
            return spark_tables.write_decoded(self.spark, self.pool, audit, wanted)

    def table(self, audit: Audited, name: str) -> DataFrame:
        """Return a table as a frame."""
        from auditor.spark import spark_tables

        return spark_tables.frame(self.spark, audit, _facts(audit, name), name)

    def query(self, audit: Audited, text: str, tables: frozenset[str]) -> pa.Table:
        from auditor.spark.spark_tables import query

        return query(self.spark, audit, text, tables)

    def joins(
        self, name: str, columns: pa.Schema, tasks: Sequence[Any], work: TaskRows
    ) -> AbstractContextManager[Joins]:
        from auditor.spark.spark_tables import SparkJoins

        return SparkJoins(self.spark, name, columns, tasks, work)

    @property
    def elsewhere(self) -> bool:
        """Whether tasks may run on other machines: on any cluster, and with a Connect server."""
        return not is_local(self.spark) or not hasattr(self.spark, "_jvm")

    def frames(self, written: WrittenTables | None, held: Mapping[str, pa.Table], views: ViewsOf) -> Iterator[Frames]:
        from auditor.spark.spark_tables import frames, local, read

        tables = {name: local(self.spark, table) for name, table in held.items()}
        if written is not None:
            tables |= {name: read(self.spark, written, name) for name in written.names() if name not in held}
        return frames(self.spark, tables, views)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"


def _facts(audit: Audited, table: str) -> DataFrame | None:
    from auditor.pipeline.derived_tables import OF_FACTS

    return audit.replicas.held.frame if table in OF_FACTS else None  # type: ignore[attr-defined]


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
# As many tasks behind an exchange as its bytes need, of a persisted frame too.
BY_SIZE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
NUMBER = r"(\d{20})[^/]*$"  # that in the name of a segment's file


def check(batches: DataFrame) -> None:
    """Raise ``AuditInputError`` unless the columns are those of ``batches``."""
    from auditor.pipeline import frames_audit

    types = ((field.name, field.dataType.simpleString().partition("(")[0]) for field in batches.schema)
    frames_audit.check(pa.schema([(name, TYPES.get(kind, pa.binary())) for name, kind in types]))


def replicas(
    runner: SparkRunner, batches: DataFrame, compacted: tuple[str, ...] | None, records: RecordsOfLogs
) -> Replicas:
    """Return the facts of each replica of a frame, persisted for the judge step. Lazy.

    ``compacted``: globs of compacted topics, None if unknown. Cost: one exchange of all rows by log, sorted, which
    spills to disk; a task holds the batches of one replica at a time, packed, and the ``records`` of all.
    """
    from pyspark.sql import functions as F

    from auditor.connectors.tables.sources import spark_schema
    from auditor.pipeline.frames_audit import COLUMNS, KEY, OF_LOG, replicas_of
    from auditor.spark.jobs import FACTS, FACTS_ARROW, in_batches

    types = {field.name: field.dataType for field in spark_schema(COLUMNS)}
    columns = [F.col(n) if n in batches.columns else F.lit(None).cast(types[n]).alias(n) for n in COLUMNS.names]
    rows = batches.select(*columns).repartition(*KEY[:OF_LOG])
    ordered = rows.sortWithinPartitions(*KEY, F.regexp_extract("file", NUMBER, 1), "file", "position")

    def work(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(pack_logs(map(pair_of, replicas_of(parts, compacted, records))), FACTS_ARROW)

    def plan() -> DataFrame:
        with tuned(batches.sparkSession, BY_SIZE):
            return ordered.mapInArrow(work, FACTS).persist()

    return Replicas(FactsOfJob(runner, plan))
