"""The two jobs of an audit on Spark: read every replica where it lies, then judge every log with all its replicas.

What tasks work on travels as rows, each list by itself and packed, so that a task gets its own alone: in a function it
would go whole to every worker, and Spark Connect would refuse it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.base.at_rest import dumps, loads
from auditor.connectors.stores import retries, storage
from auditor.pipeline.plan import divide, list_count, segment_tasks, sharing, spread
from auditor.pipeline.runner import Judged, JudgeLog, KeptFacts, judge_list, judged_rows, judged_texts, kept, read_kept
from auditor.processes.isolation import Pool
from auditor.replay.reading.task import ReplicaTask, SharingTask, TextTask
from auditor.spark.apart import apart
from auditor.spark.retries import attempts, failed_before, read_each, rounds
from auditor.spark.session import tuned
from auditor.spark.split import CHUNKS, read_list, replay_parts
from auditor.spark.streams import LOG, Row, by_log, in_batches, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.rules.seen.cluster_view import Cluster

LOCAL = re.compile(r"local\[(\d+)(?:,\d+)?\]")

# One row a replica: see auditor.pipeline.runner.KeptFacts.
FACTS = "join_key string, topic string, partition int, log_dir string, brief binary, facts binary, resume_point binary"
FACTS_ARROW = pa.schema(
    [
        ("join_key", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("log_dir", pa.string()),
        ("brief", pa.binary()),
        ("facts", pa.binary()),
        ("resume_point", pa.binary()),
    ]
)
# What judging logs gives: see auditor.pipeline.runner.judged_texts.
JUDGED = "kind string, row binary"
APART = 256  # logs that are judged at once in a process apart, which is sent what is known of the clusters each time
JUDGED_ARROW = pa.schema([("kind", pa.string()), ("row", pa.binary())])


def slots(spark: SparkSession) -> int:
    """How many tasks run at a time: as configured, as the local master says, or as Spark cuts a range."""
    if (configured := spark.conf.get("spark.default.parallelism", "")) and configured.isdigit():
        return max(1, int(configured))
    if found := LOCAL.fullmatch(spark.conf.get("spark.master", "") or ""):
        return int(found[1])
    return max(1, spark.range(1 << 16).selectExpr("spark_partition_id() AS part").distinct().count())


def each_list(
    spark: SparkSession, lists: Iterable[Any], work: Callable[[Any], Iterator[pa.RecordBatch]], columns: str
) -> DataFrame:
    """The rows that ``work`` makes of each list, a task a list. Nothing runs until it is asked for."""
    packed = pa.array(map(dumps, lists), pa.binary())
    table = pa.table({"number": pa.array(range(len(packed)), pa.int32()), "work": packed})

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in (row for batch in batches for row in batch.column(1)):
            yield from work(loads(one.as_py()))

    rows = spark.createDataFrame(table, schema="number int, work binary")
    return apart(rows, max(1, len(packed)), "number").mapInArrow(run, columns)


def read_replicas(spark: SparkSession, tasks: Sequence[ReplicaTask | TextTask]) -> DataFrame:
    """The facts of every replica, one row each, kept for the second job. Nothing runs until it is asked for.

    A replica is read by one task, but for those that are too large for that (:func:`auditor.pipeline.plan.divide`);
    their replay comes first, since it is what takes longest.
    """
    cores = slots(spark)
    large, others = divide(tasks)
    tries = attempts(spark)
    whole = sharing(others)
    facts = each_list(spark, spread(whole, list_count(whole, cores)), partial(_read_whole, tries), FACTS)
    if large:
        facts = _read_in_parts(spark, large, cores).union(facts)
    return facts.persist()


def _read_whole(tries: int, tasks: list[ReplicaTask | SharingTask | TextTask]) -> Iterator[pa.RecordBatch]:
    yield from in_batches(itertools.chain.from_iterable(read_each(tasks, read_kept, tries)), FACTS_ARROW)


def _read_in_parts(spark: SparkSession, tasks: list[ReplicaTask], cores: int) -> DataFrame:
    shipped = dumps(tasks)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(map(kept, replay_parts(batches, loads(shipped))), FACTS_ARROW)

    return read_parts(spark, tasks, list_count(segment_tasks(tasks), cores)).mapInArrow(replay, FACTS)


def read_parts(spark: SparkSession, tasks: list[ReplicaTask], parts: int) -> DataFrame:
    """The chunks of all these replicas, read by ``parts`` tasks: a partition a replica, in the order of its log.

    The rows of a replica are sorted by Spark, which spills to disk what its memory does not hold.
    """
    lists = spread(segment_tasks(tasks), parts)
    chunks = each_list(spark, lists, partial(read_list, attempts(spark)), CHUNKS)
    return apart(chunks, len(tasks), "replica").sortWithinPartitions("replica", "segment", "chunk")


def held(spark: SparkSession, rows: Sequence[KeptFacts]) -> DataFrame:
    """Facts that the driver has, on Spark."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(FACTS_ARROW)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FACTS_ARROW, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=FACTS_ARROW), schema=FACTS)


def judged(facts: DataFrame, clusters: dict[str, Cluster], judge: JudgeLog) -> DataFrame:
    """The plan of the second job: one exchange by log, then one log after the other, judged with all its replicas.

    Of long logs headers are read again to compare replicas. An attempt after others that failed has that done apart,
    :data:`APART` logs at a time, so that a file that kills is named; where nothing but machines went, nothing differs.
    """
    shipped, tries = dumps((clusters, judge)), attempts(facts.sparkSession)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        known, of_log = loads(shipped)

        def rows() -> Iterator[Row]:
            if failed_before():
                each = ((key[0], [found for (found,) in replicas]) for key, replicas in logs(batches))
                with Pool(1) as pool:
                    while some := list(itertools.islice(each, APART)):
                        for _, said in pool.map([some], partial(judge_list, known, of_log), reads=False):
                            yield from said
                return
            with storage.guarded({}), retries.resigned(rounds(tries)):
                streamed = ((known[key[0]], (found for (found,) in replicas)) for key, replicas in logs(batches))
                yield from judged_texts(streamed, of_log)

        yield from in_batches(rows(), JUDGED_ARROW)

    return by_log(facts.select(*LOG, "facts")).mapInArrow(work, JUDGED)


def judge_logs(facts: DataFrame, clusters: dict[str, Cluster], judge: JudgeLog) -> Iterator[Judged]:
    """Runs the judge step over every log and brings its rows to the driver."""
    with tuned(facts.sparkSession):
        rows = judged(facts, clusters, judge).toArrow()
    yield from judged_rows(zip(rows.column("kind").to_pylist(), rows.column("row").to_pylist(), strict=True))
