"""The two jobs of an audit on Spark: read every copy where it lies, then judge every log with all its copies."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from auditor.facts.copy_facts import CopyFacts
from auditor.pipeline.context import Brief, brief
from auditor.pipeline.isolation import read_each
from auditor.pipeline.plan import divide, spread
from auditor.replay.copy_reader import CopyTask, read_copy
from auditor.replay.text_copy import TextTask, read_text_copies
from auditor.spark.split import read_parts, replay_parts
from auditor.spark.streams import LOG, Row, by_log, in_batches, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.rules.view import Cluster

LISTS_PER_CORE = 2

# One row a copy: its log's key, the brief that the driver needs, and all its facts.
FACTS = "join_key string, topic string, partition int, log_dir string, brief binary, facts binary"
FACTS_ARROW = pa.schema(
    [("join_key", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("log_dir", pa.string()),
     ("brief", pa.binary()), ("facts", pa.binary())]
)  # fmt: skip
# What judging a log gives: kind is finding, log, open or timeline; row is JSON.
JUDGED = "kind string, row string"
JUDGED_ARROW = pa.schema([("kind", pa.string()), ("row", pa.string())])


def read_copies(spark: SparkSession, tasks: list[CopyTask | TextTask]) -> DataFrame:
    """The facts of every copy, one row each, kept for the second job. Nothing runs until it is asked for.

    A copy is read by one task, but for those that are too large for that (:func:`auditor.pipeline.plan.divide`);
    their replay comes first, since it is what takes longest.
    """
    slots = max(1, spark.sparkContext.defaultParallelism)
    large, others = divide(tasks, slots)
    facts = _read_whole(spark, others, slots * LISTS_PER_CORE)
    if large:
        facts = _read_in_parts(spark, large, slots * LISTS_PER_CORE).union(facts)
    return facts.persist()


def _read_whole(spark: SparkSession, tasks: list[CopyTask | TextTask], parts: int) -> DataFrame:
    lists = spread(tasks, parts)
    shipped = spark.sparkContext.broadcast(lists)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (n for batch in batches for n in batch.column(0).to_pylist()):
            copies = itertools.chain.from_iterable(read_each(shipped.value[number], read_task))
            yield from in_batches(map(_row, copies), FACTS_ARROW)

    return spark.range(0, len(lists), 1, max(1, len(lists))).mapInArrow(read, FACTS)


def read_task(task: CopyTask | TextTask) -> list[CopyFacts]:
    """The facts of a task's copies."""
    return read_text_copies(task) if isinstance(task, TextTask) else [read_copy(task)]


def _read_in_parts(spark: SparkSession, tasks: list[CopyTask], parts: int) -> DataFrame:
    shipped = spark.sparkContext.broadcast(tasks)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(map(_row, replay_parts(batches, shipped.value)), FACTS_ARROW)

    return read_parts(spark, tasks, parts).mapInArrow(replay, FACTS)


def _row(facts: CopyFacts) -> Row:
    key = (facts.join_key, facts.topic, facts.partition, facts.log_dir)
    return (*key, pickle.dumps(brief(facts), 5), pickle.dumps(facts, 5))


def collect_briefs(facts: DataFrame) -> list[Brief]:
    """The briefs of all copies, in a fixed order. Runs the first job."""
    rows = facts.select("brief").toArrow().column("brief").to_pylist()
    return sorted((pickle.loads(row) for row in rows), key=lambda b: (b.join_key, b.topic, b.partition, b.log_dir))


def judged(spark: SparkSession, facts: DataFrame, clusters: dict[str, Cluster], rule_ids: list[str]) -> DataFrame:
    """The plan of the second job: one exchange by log, then one log after the other, judged with all its copies."""
    shipped = spark.sparkContext.broadcast((clusters, rule_ids))

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from auditor.pipeline.judge import judge_log

        known, ids = shipped.value

        def rows() -> Iterator[Row]:
            for (join_key, *_), copies in logs(batches):
                facts = [pickle.loads(found) for (found,) in copies]
                for kind, row in judge_log(facts, known[join_key], ids):
                    yield kind, json.dumps(row, ensure_ascii=False)

        yield from in_batches(rows(), JUDGED_ARROW)

    return by_log(facts.select(*LOG, "facts")).mapInArrow(judge, JUDGED)


def judge_logs(
    spark: SparkSession, facts: DataFrame, clusters: dict[str, Cluster], rule_ids: list[str]
) -> list[tuple[str, Any]]:
    """Runs the rules over every log and brings what they say to the driver."""
    rows = judged(spark, facts, clusters, rule_ids).toArrow()
    texts = rows.column("row").to_pylist()
    return [(kind, json.loads(text)) for kind, text in zip(rows.column("kind").to_pylist(), texts, strict=True)]
