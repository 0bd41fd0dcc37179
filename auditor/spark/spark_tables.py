"""Tables on Spark."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException

from auditor.base.at_rest import dumps, loads
from auditor.base.errors import AuditInputError, DecodeError
from auditor.connectors import schema
from auditor.connectors.schema import for_spark
from auditor.connectors.stores import retries, storage
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.rows import How, Piece, read_piece
from auditor.connectors.tables.sources import FORMATS, register_all, spark_schema
from auditor.pipeline import derived_tables, summary, table_parts, table_tasks
from auditor.pipeline.runner import Joins, TaskRows
from auditor.pipeline.table_tasks import TableRequest, WrittenPart
from auditor.processes.isolation import KILLS, Pool, read_apart
from auditor.replay.reading.chunks import logs_of
from auditor.rules.expectations import measures
from auditor.rules.seen.cluster_view import Cluster
from auditor.spark import jobs
from auditor.spark.session import A_TASK_EACH, quiet_errors, tuned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.runner import Audited, Frames, ViewsOf
    from auditor.pipeline.table_tasks import WrittenTables


# Files that kill their reader: searched once a job has failed, and excluded from the next one.
#
# The replay finds its own (:mod:`auditor.processes.isolation`); here are those that only kill the decoding into rows.


Result = TypeVar("Result")
Work = tuple[Piece, frozenset[str], How]

FATAL = "log_dir string, file string, detail string"
FATAL_ARROW = jobs.arrow_schema(FATAL)
UNCUT = 1 << 62  # bytes of a piece: cutting a segment would read its index here, on the driver


def without_fatal_files(
    spark: SparkSession, audit: Audited, tables: frozenset[str], work: Callable[[], Result]
) -> Result:
    """Return the result of ``work``, which reads decoded tables; if files kill its workers, repeat it without them.

    These files are added to ``audit.fatal``, and searched only where a Python worker died. Cost: the tables' files are
    then read twice more. Errors: those of ``work`` where no file is the cause.
    """
    try:
        return work()
    except jobs.failures() as error:
        if not jobs.worker_died(error):
            raise
        refused = audit.refused()
        audit.fatal += _find(spark, audit, tables)
        if audit.refused() == refused:
            raise
    return work()


def _find(spark: SparkSession, audit: Audited, tables: frozenset[str]) -> list[tuple[str, DecodeError]]:
    """Read the files that some tables need in processes apart; return those that kill, in a fixed order."""
    options, tables = audit.options, tables | {"decode_errors"}
    how = How(options.limits, options.include_payload, options.records)
    pieces = input_splits.plan(audit.scoped, tables, UNCUT)
    lists = [[(piece, tables, how) for piece in some] for some in input_splits.spread(pieces, jobs.slots(spark))]

    def look(work: list[Work]) -> Iterator[pa.RecordBatch]:
        for rows in read_apart(work, _fatal):
            yield from rows

    with tuned(spark, A_TASK_EACH):
        rows = jobs.each_list(spark, lists, look, FATAL).toArrow().to_pylist()
    sizes = {(d.name, f.name): f.size for d in audit.inventory.log_dirs for f in d.files()}
    return sorted(
        (row["log_dir"], DecodeError(row["file"], 0, sizes[row["log_dir"], row["file"]], "unreadable", row["detail"]))
        for row in rows
    )


def _fatal(work: Work) -> list[pa.RecordBatch]:
    """Errors of files that the reader of a piece was not allowed to open."""
    batches = [rows for table, rows in read_piece(*work) if table == "decode_errors"]
    kills = [pa.compute.starts_with(rows.column("detail"), KILLS) for rows in batches]
    return [
        rows.filter(mask).select(FATAL_ARROW.names).cast(FATAL_ARROW) for rows, mask in zip(batches, kills, strict=True)
    ]


# Tables of contract section 4 on Spark, as frames and as views for SQL.
#
# Decoded tables come from the data sources of :mod:`auditor.connectors.tables.sources`, derived ones from the facts
# of :mod:`auditor.spark.jobs`, and the rest is in memory of the driver (:mod:`auditor.pipeline.derived_tables`).


def decoded(spark: SparkSession, audit: Audited, table: str, columns: Sequence[str] = ()) -> DataFrame:
    """Return a decoded table of the audit's paths, or some of its columns. Lazy; only this table's files are read.

    With ``leader_copy`` it is decided which copies count: where the input has several of a log, all are read for it.
    """
    options = audit.options
    if (table_in_memory := audit.held(table)) is not None:
        return local(spark, table_in_memory)
    register_all(spark)
    shares = audit.copy_shares if not columns or "leader_copy" in columns else {}
    reader = spark.read.format(FORMATS[table]).options(
        paths=json.dumps([*options.inputs]),
        topics=json.dumps([*options.topics]),
        partitions=json.dumps([*options.only_partitions]),
        brokers=json.dumps([*options.only_brokers]),
        splitSize=str(options.split_size),
        includePayload=str(options.include_payload),
        deep=str(options.records),
        maxBatchBytes=str(options.limits.max_batch_bytes),
        maxBatchRatio=str(options.limits.max_batch_ratio),
        refused=json.dumps(audit.refused()),
        inventory=_shipped(audit),
        shares=json.dumps([(*place, *share) for place, share in shares.items()]),
        columns=json.dumps([*columns]),
    )
    if options.since is not None:
        reader = reader.option("since", options.since.text)
    rows = reader.load()
    if table == "decode_errors" and audit.outside:
        outside = local(spark, derived_tables.metadata_errors(audit.inventory, audit.outside, shares))
        rows = rows.unionAll(outside.select(*rows.columns))
    return rows


_SHIPPED: WeakKeyDictionary[Audited, str] = WeakKeyDictionary()


def _shipped(audit: Audited) -> str:
    """The audit's inventory as text, for the data sources, so that they list nothing again."""
    if audit not in _SHIPPED:
        _SHIPPED[audit] = input_splits.dumps(audit.scoped)
    return _SHIPPED[audit]


def local(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table of the driver as a frame."""
    empty = pa.RecordBatch.from_pylist([], schema=table.schema)  # Spark takes no table without a single batch
    batches = [for_spark(batch) for batch in table.to_batches() or [empty]]
    return spark.createDataFrame(pa.Table.from_batches(batches), schema=spark_schema(table.schema))


def from_facts(facts: DataFrame, clusters: dict[str, Cluster], table: str) -> DataFrame:
    """Return a derived table: the replicas of a log, which explain each other, are in one list."""
    shipped = dumps(clusters)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clusters_by_key = loads(shipped)
        for replicas in logs_of(jobs.packed(batches)):
            for rows in derived_tables.of_log(replicas, clusters_by_key[replicas[0].join_key], table):
                yield for_spark(rows)

    return facts.select("facts").mapInArrow(work, spark_schema(schema.TABLES[table].schema()))


def _coordinated(facts: DataFrame, clusters: dict[str, Cluster]) -> DataFrame:
    """The table that all logs contribute to: an exchange."""
    shipped = dumps(clusters)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clusters_by_key = loads(shipped)
        for (join_key, partition), shares in jobs.keyed(batches):
            for rows in derived_tables.coordinated_rows(clusters_by_key[join_key], partition, shares):
                yield for_spark(rows)

    shares = jobs.shares(facts, partial(derived_tables.shares_of, clusters))
    return shares.mapInArrow(work, spark_schema(derived_tables.TRANSACTIONS))


def path_of(folder: Path) -> str:
    """Return a local directory as Spark writes to it: not as a URI, whose escapes it would take literally."""
    return f"file:{folder.absolute()}"


def read(spark: SparkSession, written: WrittenTables, table: str) -> DataFrame:
    """Return a table that was written; glob characters in the directory's name are escaped.

    Tasks open parts in a store by the drivers that read input, since Spark's own may lack access.
    """
    if table not in written.stored:
        return spark.read.parquet(re.sub(r"([\[\]{}*?\\])", r"\\\1", path_of(written.folder / table)))
    where = written.staging

    def rows(name: str) -> Iterator[pa.RecordBatch]:
        with where.files.open_input_file(f"{where.path}/{name}") as file:
            yield from pq.ParquetFile(file).iter_batches()

    return jobs.each_list(spark, written.stored[table], rows, spark_schema(written.columns(table)).simpleString())


def frame(spark: SparkSession, audit: Audited, facts: DataFrame | None, table: str) -> DataFrame:
    """Return any table of an audit; ``facts`` for the derived ones."""
    if table in derived_tables.OF_FACTS and audit.held(table) is None:
        assert facts is not None
        if schema.TABLES[table].made_of is schema.MadeOf.LOGS:
            return _coordinated(facts, audit.clusters)
        return from_facts(facts, summary.clusters_for(audit, (table,)), table)
    return decoded(spark, audit, table)


def query(spark: SparkSession, audit: Audited, text: str, wanted: frozenset[str]) -> pa.Table:
    """Return the result of an SQL text over ``wanted`` tables. Errors: :class:`AuditInputError` for an invalid text."""
    return without_fatal_files(
        spark, audit, wanted & frozenset(schema.DECODED), partial(_ask, spark, audit, text, wanted)
    )


def _ask(spark: SparkSession, audit: Audited, text: str, wanted: frozenset[str]) -> pa.Table:
    with _mistakes(spark, text):
        plan = _plan(spark, audit, text, wanted)
    for name in wanted:
        facts = audit.replicas.held.frame if name in derived_tables.OF_FACTS else None  # type: ignore[attr-defined]
        rows = _pruned(spark, audit, name, plan) if plan and name in FORMATS else frame(spark, audit, facts, name)
        rows.createOrReplaceTempView(name)
    _views(spark, wanted)
    with _mistakes(spark, text):
        return spark.sql(text).toArrow()


@contextlib.contextmanager
def _mistakes(spark: SparkSession, text: str) -> Iterator[None]:
    try:
        with quiet_errors(spark):
            yield
    except AnalysisException as error:
        says = str(error).strip().splitlines()[0]
        where = derived_tables.moved(text) or f"tables: {', '.join(derived_tables.NAMES)}"
        raise AuditInputError(f"{says} ({where})") from None
    except jobs.failures() as error:
        if (wrong := jobs.mistake(error)) is None:
            raise
        raise AuditInputError(wrong) from None


PLAN = re.compile(r"== Optimized Logical Plan ==(.*)== Physical Plan ==", re.S)


def _plan(spark: SparkSession, audit: Audited, text: str, wanted: frozenset[str]) -> str:
    """Return Spark's plan of a text, without the line of each table; over views, which it leaves, without rows."""
    for name, columns in derived_tables.all_columns(audit.options.include_payload).items():
        if name in wanted or name in schema.DECODED:
            names = [derived_tables.marked(name, column) for column in columns.names]
            types = spark_schema(for_spark(columns.empty_table().rename_columns(names)).schema)
            rows = spark.range(0).mapInArrow(lambda rows: rows, types)
            rows.toDF(*columns.names).createOrReplaceTempView(name)
    _views(spark, wanted)
    shown = io.StringIO()
    with tuned(spark, {"spark.sql.debug.maxToStringFields": "10000"}), contextlib.redirect_stdout(shown):
        spark.sql(text).explain(extended=True)
    plan = PLAN.search(shown.getvalue())
    return "" if plan is None else re.sub(r"(?m)^\W*MapInArrow.*$", "", plan[1])


def _views(spark: SparkSession, wanted: frozenset[str]) -> None:
    for name, of in derived_tables.VIEWS.items():
        if derived_tables.tables_in(of) <= wanted:
            spark.sql(of).createOrReplaceTempView(name)


def _pruned(spark: SparkSession, audit: Audited, table: str, plan: str) -> DataFrame:
    """Return a decoded table whose columns are only read where the plan names them."""
    from pyspark.sql import functions as F

    whole = schema.TABLES[table].schema(audit.options.include_payload)
    columns = derived_tables.columns_in(plan, table, whole)
    unread = F.raise_error(F.lit("this column was not read"))
    return decoded(spark, audit, table, columns).select(
        *(F.col(f.name) if f.name in columns else unread.cast(f.dataType).alias(f.name) for f in spark_schema(whole))
    )


def frames(spark: SparkSession, tables: Mapping[str, DataFrame], views: ViewsOf) -> Iterator[Frames]:
    """Yield tables and views over them as frames: large tables as they are, all else as pandas frames."""
    for name, rows in tables.items():
        rows.createOrReplaceTempView(name)
        first = rows.limit(table_tasks.GROUP_ROWS).toArrow()
        yield name, [rows if first.num_rows == table_tasks.GROUP_ROWS else first.to_pandas()]
    for name, text in views(measures.SPARK, tuple(tables)).items():
        yield name, [spark.sql(text).toArrow().to_pandas()]


# Tasks that write decoded tables, as one Spark job: no row of a table passes through the JVM or the driver.


PARTS = "task int, name string, file string"
PARTS_ARROW = jobs.arrow_schema(PARTS)


def write_decoded(spark: SparkSession, pool: Pool, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
    """Run the tasks; repeat them without files that kill their reader, which are added to ``audit.fatal``."""
    return without_fatal_files(spark, audit, wanted.decoded, partial(_write_decoded, spark, pool, audit, wanted))


def _write_decoded(spark: SparkSession, pool: Pool, audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
    refused = audit.refused()
    shares = list(enumerate(table_parts.lists(audit, wanted, jobs.slots(spark), pool, refused)))
    frame = jobs.each_list(spark, shares, partial(_decode, wanted, refused, jobs.attempts(spark)), PARTS)
    with tuned(spark, A_TASK_EACH):
        rows = frame.toArrow()
    return [WrittenPart(*row) for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)]


def _decode(
    wanted: TableRequest, refused: dict[str, str], tries: int, numbered: tuple[int, list[Piece]]
) -> Iterator[pa.RecordBatch]:
    with storage.guarded(refused), retries.resigned(jobs.rounds(tries) if wanted.has_errors else None):
        parts = table_tasks.decode(wanted, numbered)
    yield from jobs.in_batches(parts, PARTS_ARROW)


# Joins of rows that tasks make.


class SparkJoins(Joins):
    """SQL over the rows of tasks, each of which runs once; what is kept is persisted, on disk where it is large."""

    def __init__(
        self, spark: SparkSession, name: str, columns: pa.Schema, tasks: Sequence[Any], work: TaskRows
    ) -> None:
        self.spark = spark
        self._kept: list[DataFrame] = []
        read = partial(_joined, work, jobs.attempts(spark))
        rows = jobs.each_list(spark, tasks, read, spark_schema(columns).simpleString()[7:-1])
        with tuned(spark, A_TASK_EACH):
            self._persisted(name, rows).count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _persisted(self, name: str, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        frame.createOrReplaceTempView(name)
        return frame

    def put(self, name: str, table: pa.Table) -> None:
        """Make a view of it."""
        local(self.spark, table).createOrReplaceTempView(name)

    def keep(self, name: str, text: str) -> None:
        """Persist it."""
        self._persisted(name, self.spark.sql(text))

    def ask(self, text: str) -> pa.Table:
        """Return it."""
        return self.spark.sql(text).toArrow()


def _joined(work: TaskRows, tries: int, task: Any) -> Iterator[pa.RecordBatch]:
    with storage.guarded({}), retries.resigned(jobs.rounds(tries)):
        yield from map(for_spark, work(task))
