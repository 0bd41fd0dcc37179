"""The two jobs of an audit on Spark."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from auditor.base import code_cache
from auditor.base.at_rest import dumps, loads
from auditor.base.errors import MIB
from auditor.connectors.stores import remote_files, retries, storage
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.plan import Item, WorkLists, divide, list_count, segment_tasks, sharing, spread, unread
from auditor.pipeline.runner import OverFacts, PackedFacts, listed, read_list, read_task
from auditor.pipeline.work_folder import WorkFolder
from auditor.processes.isolation import Pool, read_apart
from auditor.replay.reading.chunks import PackedRow, Part, SegmentTask, read_packed, unpacked_parts
from auditor.replay.reading.replica_reader import ReplicaReader, read_replica
from auditor.replay.reading.segment_checks import SegmentOutcome
from auditor.replay.task import ReplicaTask
from auditor.spark.session import A_TASK_EACH, described, lacking, tuned

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


# Rows between Spark and its Python workers: few Arrow batches, and rows with one key one after the other.
#
# A batch, like a group of Spark's own, costs milliseconds, which ten thousand small ones would pay one by one.


KEY = ("join_key", "topic", "partition")
BATCH_BYTES = MIB
ROW_BYTES = 16  # of a row beside its texts and bytes

LogRow = tuple[Any, ...]


def arrow_schema(columns: str) -> pa.Schema:
    """Return the Arrow schema of a Spark schema text such as ``name string, number int, data binary``."""
    kinds = {"string": pa.string(), "int": pa.int32(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])


def in_batches(rows: Iterable[LogRow], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of about a MiB, or of a single row that is larger."""
    waiting: list[LogRow] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
        if size >= BATCH_BYTES:
            yield _batch(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting, schema)


def _batch(rows: list[LogRow], schema: pa.Schema) -> pa.RecordBatch:
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    columns = [array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return ``pyarrow.array`` of int32, texts or bytes without nulls, without its import of pandas (0.3 s per worker).

    Errors: OverflowError for more than 2 GiB of texts or bytes.
    """
    if kind == pa.int32():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.array(values, np.int32))])
    data = [value.encode() if isinstance(value, str) else value for value in values]
    ends = [0, *itertools.accumulate(map(len, data))]
    return pa.Array.from_buffers(
        kind, len(data), [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(b"".join(data))]
    )


def keyed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[LogRow, Iterator[Any]]]:
    """Yield each key, and the last column of its rows, which must be read before the next key.

    Rows with one key are adjacent. Memory: a batch as Arrow brings it; values become Python's one row at a time, since
    they may be large.
    """
    rows = (tuple(c[row].as_py() for c in batch.columns) for batch in batches for row in range(batch.num_rows))
    for key, group in itertools.groupby(rows, key=lambda row: row[:-1]):
        yield key, (row[-1] for row in group)


# Reading in a Spark worker: in a process apart after failed attempts, and again in another attempt where a store
# refuses files.
#
# A worker that dies takes its task along, and so does a machine that is taken away; Spark starts the task again, and
# does not say which it was. So nothing is concluded from the number of attempts: later ones read apart
# (:mod:`auditor.processes.isolation`), where each file is noted before it is opened, and a surviving process asks the
# system how the reader ended. Only then is a file refused. If the machine dies, all of them do, and their results go
# nowhere.
#
# A store that refuses for now ends an attempt too. What it still refuses in the last attempt, after as long as all
# attempts together would have asked, is unreadable, however many of them were lost for other reasons.


Task = TypeVar("Task")
Result = TypeVar("Result")

FROM_ATTEMPT = 2  # counted from 0; Spark gives a task four


def attempts(spark: SparkSession) -> int:
    """Return how often Spark tries a task, as far as it says so: four times, on one machine as its master says."""
    from auditor.spark.session import ATTEMPTS_OF, LOCAL_ATTEMPTS

    if matched := LOCAL_ATTEMPTS.fullmatch(spark.conf.get("spark.master", "") or ""):
        return int(matched[1] or 1)
    configured = spark.conf.get(ATTEMPTS_OF, "") or ""
    return int(configured) if configured.isdigit() else retries.ROUNDS


def read_each(
    tasks: Sequence[Task], read: Callable[[Task], Result], tries: int = retries.ROUNDS, *, apart: bool | None = None
) -> Iterator[Result]:
    """Yield ``read`` of each task; in a process apart if earlier attempts at these tasks failed.

    ``tries``: how often Spark tries this; ``apart``: whether an attempt ended early, if the caller knows.
    """
    if failed_before() if apart is None else apart:
        yield from read_apart(tasks, read)
        return
    with storage.guarded({}), retries.resigned(rounds(tries)), remote_files.coming(remote_files.of_work(tasks)):
        for task in tasks:
            yield read(task)


def failed_before() -> bool:
    """Whether Spark retries the running task after it failed, or was lost, more than once.

    A reason for care, and none to exclude anything.
    """
    return _attempt() >= FROM_ATTEMPT


def rounds(tries: int) -> int | None:
    """Return how many rounds the running attempt asks a store before it gives up; None while Spark will retry the task.

    As many rounds as :mod:`auditor.connectors.stores.retries` has in all: how many of the attempts before this one the
    store had ended is unknown.
    """
    return retries.ROUNDS if _attempt() + 1 >= min(tries, retries.ROUNDS) else None


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


class Counted(NamedTuple):
    """Counts of tasks that have ended: ``batches`` that were read, and how often kernels were compiled first."""

    batches: Accumulator[int]
    compiled: Accumulator[int]

    @classmethod
    def on(cls, spark: SparkSession) -> Counted | None:
        """Return new counts; None on Spark Connect, which has none."""
        if "connect" in type(spark).__module__:
            return None
        return cls(spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0))


def counting(replicas: Iterable[ReplicaFacts], counted: Counted | None) -> Iterator[ReplicaFacts]:
    """Yield facts as they are, and count what their reading came to."""
    for facts in replicas:
        if counted is not None:
            counted.batches.add(facts.sums["batches"])
            if code_cache.compiled:
                counted.compiled.add(1)
                code_cache.compiled.clear()
        yield facts


# Replicas far larger than others: many tasks read their segments, one task per replica replays them.
#
# Reading, checksums and decompression take nearly all of the time and are independent between segments; the replay
# needs the headers alone, in order, and of most not even those. Between them is an exchange of sums and packed
# headers (:mod:`auditor.replay.reading.chunks`).


# A row for some chunks: numbers of their log, the replica in it, the segment in that and the row in that; the chunks.
CHUNKS = "log int, replica int, segment int, chunk int, packed binary"
CHUNKS_ARROW = arrow_schema(CHUNKS)
SplitRow = tuple[int, int, int, pa.Buffer]
Numbered = tuple[int, Item]  # of a large log, with the number of the replica to read, -1 for what is there


def read_segments(tries: int, logs: Sequence[int], parts: list[SegmentTask]) -> Iterator[pa.RecordBatch]:
    """Yield the chunks of some segments; ``logs``: of each replica. Memory: a chunk, and a batch of packed rows."""
    how = list_packed if failed_before() else read_packed
    rows = itertools.chain.from_iterable(read_each(parts, how, tries))
    yield from in_batches(((logs[row[0]], *row) for row in rows), CHUNKS_ARROW)


def list_packed(part: SegmentTask) -> list[PackedRow]:
    """Return all rows of a segment, for a process that hands them to another. Memory: some 10 bytes per batch."""
    return list(read_packed(part))


def replay(rows: Iterable[SplitRow], tasks: dict[int, ReplicaTask], died: bool = False) -> Iterator[ReplicaFacts]:
    """Yield the facts of a log's replicas, by their numbers, whose chunks come in order.

    Memory: one chunk, and a batch as Arrow brings it. After failed attempts each is read as a whole in a process apart,
    with the same result, as are those without a segment.
    """
    left = dict(tasks)
    if left and not (died or failed_before()):
        for number, chunks in itertools.groupby(rows, itemgetter(0)):
            if number in left:
                with storage.guarded({}):
                    yield ReplicaReader(left.pop(number), arriving(chunks)).run()
    yield from read_apart(list(left.values()), read_replica)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, SplitRow]]:
    for batch in batches:
        logs, *numbers = (batch.column(k).to_pylist() for k in range(4))
        for row, log in enumerate(logs):
            yield log, (*(column[row] for column in numbers), batch.column(4)[row].as_buffer())


def arriving(rows: Iterator[SplitRow]) -> Callable[[int], Iterator[Part]]:
    """Return the ``segments`` callback of :class:`ReplicaReader` for rows that come in log order."""
    segments = itertools.groupby(rows, itemgetter(1))

    def parts(number: int) -> Iterator[Part]:
        arrived, group = next(segments, (None, iter(())))
        if arrived != number:
            raise RuntimeError(f"segment {number} of a replica did not arrive, but {arrived} did")
        part: Part | None = None
        for row in group:
            for part in unpacked_parts(row[3]):
                yield part
        if not isinstance(part, SegmentOutcome):
            raise RuntimeError(f"the end of segment {number} of a replica did not arrive")

    return parts


# Jobs: read every list, then work over the facts of its logs where they are.
#
# Task input travels as rows, one packed list each, so that a task gets only its own: in a function it would be
# shipped whole to every worker, and Spark Connect would refuse it.


LOCAL = re.compile(r"local\[(\d+)(?:,\d+)?\]")

FACTS = "briefs binary, facts binary"  # one row a list: auditor.pipeline.runner.PackedFacts
FACTS_ARROW = arrow_schema(FACTS)
RESULT = "result binary"
RESULT_ARROW = arrow_schema(RESULT)


def slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time: as configured, by the local master, or as Spark splits a range."""
    if (configured := spark.conf.get("spark.default.parallelism", "")) and configured.isdigit():
        return max(1, int(configured))
    if matched := LOCAL.fullmatch(spark.conf.get("spark.master", "") or ""):
        return int(matched[1])
    return max(1, spark.range(1 << 16).selectExpr("spark_partition_id() AS part").distinct().count())


def each_list(
    spark: SparkSession, lists: Iterable[Any], work: Callable[[Any], Iterator[pa.RecordBatch]], columns: str
) -> DataFrame:
    """Return the rows that ``work`` makes of each list. Lazy.

    With :data:`A_TASK_EACH` a task per list, else as many tasks as slots.
    """
    packed = [pa.array([dumps(one)], pa.binary()) for one in lists] or [pa.array([], pa.binary())]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in (row for batch in batches for row in batch.column(0)):
            yield from work(loads(one.as_py()))

    # A batch per list: of more than 48 MB a session that is not of Connect makes a partition per batch.
    rows = spark.createDataFrame(pa.table({"work": pa.chunked_array(packed)}), schema="work binary")
    return rows.mapInArrow(run, columns)


def read_lists(
    spark: SparkSession, items: Sequence[Item], work: WorkFolder | None = None, counted: Counted | None = None
) -> DataFrame:
    """Return the facts of lists, one row each, persisted; ``counted`` gets batches. Lazy.

    A replica is read by one task, except those of large logs (:func:`auditor.pipeline.plan.divide`); their replay comes
    first, since it takes longest.
    """
    cores, tries = slots(spark), attempts(spark)
    large, others = divide(items)
    lists = WorkLists(others, list_count(others, cores)).largest_first()
    facts = each_list(spark, lists, partial(_read_list, tries, work, counted), FACTS)
    if large:
        logs = numbered(large)
        replayed = partial(_replay, dumps(logs), work, counted)
        facts = read_parts(spark, logs, cores).mapInArrow(replayed, FACTS).union(facts)
    with tuned(spark, A_TASK_EACH):
        return facts.persist()


def _read_list(
    tries: int, work: WorkFolder | None, counted: Counted | None, items: list[Item]
) -> Iterator[pa.RecordBatch]:
    def read(tasks: Sequence[Any], died: bool) -> Iterator[ReplicaFacts]:
        replicas = read_each(sharing(tasks), read_task, tries, apart=died or failed_before())
        return counting(itertools.chain.from_iterable(replicas), counted)

    yield from in_batches([read_list(items, work, read)], FACTS_ARROW)


def _replay(
    shipped: bytes, work: WorkFolder | None, counted: Counted | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    large: list[list[Numbered]] = loads(shipped)
    for log, of_log in itertools.groupby(_rows(batches), itemgetter(0)):
        numbers = {id(unread(item)): number for number, item in large[log]}
        rows = map(itemgetter(1), of_log)

        def read(tasks: Sequence[Any], died: bool, rows: Any = rows, of: Any = numbers) -> Iterator[ReplicaFacts]:
            return counting(replay(rows, {of[id(task)]: task for task in tasks}, died), counted)

        yield from in_batches([read_list([item for _, item in large[log]], work, read)], FACTS_ARROW)


def read_parts(spark: SparkSession, logs: list[list[Numbered]], cores: int) -> DataFrame:
    """Return the chunks of all replicas of these logs; those of a log are adjacent, in order.

    Spark sorts the rows of a partition, and spills to disk. Logs that share one are replayed one after the other.
    """
    of_log = {number: (log, task) for log, items in enumerate(logs) for number, item in items if (task := unread(item))}
    segments = segment_tasks([task for _, task in of_log.values()])
    lists = spread(segments, list_count(segments, cores))
    read = partial(read_segments, attempts(spark), [log for log, _ in of_log.values()])
    chunks = each_list(spark, lists, read, CHUNKS)
    return chunks.repartition("log").sortWithinPartitions("log", "replica", "segment", "chunk")


def numbered(logs: list[list[Item]]) -> list[list[Numbered]]:
    """Return the items of logs, those to read numbered."""
    numbers = itertools.count()
    return [[(next(numbers) if unread(item) else -1, item) for item in items] for items in logs]


def facts_frame(spark: SparkSession, facts: Iterable[PackedFacts]) -> DataFrame:
    """Return facts of the driver as a frame."""
    batches = [_batch([row], FACTS_ARROW) for row in facts] or [_batch([], FACTS_ARROW)]
    with tuned(spark, A_TASK_EACH):
        return spark.createDataFrame(pa.Table.from_batches(batches), schema=FACTS).persist()


def over(facts: DataFrame, work: OverFacts, job: str = "") -> Iterator[bytes]:
    """Bring what ``work`` yields over the facts to the driver; ``job`` describes it.

    Of long logs headers are read again to compare replicas. After failed attempts that is done in a process apart, a
    list at a time, so that a file that kills is named; if only machines were lost, the result is the same.
    """
    spark = facts.sparkSession
    with tuned(spark), described(spark, job):
        rows = over_each(facts, work).toArrow()
    for chunk in rows.column(0).chunks:
        yield from (value.as_py() for value in chunk)


def over_each(facts: DataFrame, work: OverFacts) -> DataFrame:
    """Return the plan of :func:`over`: no exchange, each list is worked over where it is."""
    return facts.select("facts").mapInArrow(partial(_over, dumps(work), attempts(facts.sparkSession)), RESULT)


def _over(shipped: bytes, tries: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    work = loads(shipped)
    if failed_before():
        with Pool(1) as pool:
            for one in packed(batches):
                for _, results in pool.map([[one]], partial(listed, work), reads=False):
                    yield from in_batches(((result,) for result in results), RESULT_ARROW)
        return
    with storage.guarded({}), retries.resigned(rounds(tries)):
        yield from in_batches(((result,) for result in work(packed(batches))), RESULT_ARROW)


def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the packed facts of each list."""
    return (value.as_py() for batch in batches for value in batch.column(0))


# Causes of failed Spark queries: a mistake in the query, a dead Python worker, or Spark itself.


@cache
def failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that a failed job raises in the driver."""
    # Imported only now: this module is loaded in a thread beside the one that starts Spark, and pyspark does not allow
    # that two threads import it at a time.
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:  # Spark Connect alone
        return (PySparkException,)
    return PySparkException, Py4JError


# An executor that is lost takes its workers along: what a file costs may have been too much for its container.
DIED = re.compile(r"Python worker exited|ExecutorLostFailure")
OURS = re.compile(r'auditor[/\\](?:connectors|spark)[/\\](?!worker_daemon)\w+\.py", line')  # in a trace of Python's
CONDITION = re.compile(r"(?:^|: )(\[[A-Z][A-Z0-9_.]+\] .*)$", re.MULTILINE)  # [DIVIDE_BY_ZERO] Division by zero.
RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)


def worker_died(error: BaseException) -> bool:
    """Whether a job failed because Python workers died over a task."""
    return DIED.search(str(error)) is not None


def mistake(error: BaseException) -> str | None:
    """Return what is wrong with the query, in one line; None where Spark or our code failed."""
    message = str(error).strip()
    lacks_room = "OutOfMemoryError" in message or os.strerror(errno.ENOSPC) in message
    from pyspark.errors import PySparkException

    no_answer = not isinstance(error, PySparkException) and "Trace:" not in message and "\n\tat " not in message
    stopped = isinstance(error.__context__, KeyboardInterrupt)
    if worker_died(error) or lacks_room or no_answer or stopped or OURS.search(message) or lacking(error):
        return None
    for pattern in (RAISED, CONDITION, CAUSE):
        if matches := pattern.findall(message):
            return str(matches[-1]).strip()
    return message.splitlines()[0] if message else type(error).__name__
