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
from auditor.base.errors import MIB, is_unread
from auditor.connectors.stores import remote_files, retries, storage
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.plan import divide, list_count, segment_tasks, sharing, spread
from auditor.pipeline.runner import (
    FACTS_AT_REST,
    REPLICA,
    Judged,
    JudgeLog,
    KeptFacts,
    judge_list,
    judged_rows,
    judged_texts,
    kept,
    read_task,
    unpacked_facts,
)
from auditor.pipeline.work_folder import WorkFolder, WorkFolderContent, identities, is_kept
from auditor.processes.isolation import Pool, read_apart
from auditor.replay.reading.chunks import PackedRow, Part, SegmentTask, read_packed, unpacked_parts
from auditor.replay.reading.replica_reader import ReplicaReader, read_replica
from auditor.replay.reading.segment_checks import SegmentOutcome
from auditor.replay.task import ReplicaTask, SharingTask, TextTask
from auditor.spark.session import A_TASK_EACH, described, lacking, tuned

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from auditor.rules.seen.cluster_view import Cluster


# Rows between Spark and its Python workers: few Arrow batches, and logs one after the other.
#
# A batch, like a group of Spark's own, costs milliseconds, which ten thousand small logs would pay one by one.


LOG = ("join_key", "topic", "partition")
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
    columns = [array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
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


def by_log(rows: DataFrame) -> DataFrame:
    """Return rows whose first columns are :data:`LOG`, those of a log adjacent in one task: for :func:`logs`."""
    return rows.repartition(*LOG).sortWithinPartitions(*LOG)


def logs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[LogRow, Iterator[LogRow]]]:
    """Yield each log's key, and its rows without the key, which must be read before the next log.

    Memory: a batch as Arrow brings it; values become Python's one row at a time, since facts may be large.
    """
    rows = (tuple(c[row].as_py() for c in batch.columns) for batch in batches for row in range(batch.num_rows))
    for key, group in itertools.groupby(rows, key=lambda row: row[: len(LOG)]):
        yield key, (row[len(LOG) :] for row in group)


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


# One row for some chunks: numbers of the replica, of the segment in it and of the row in the segment; the chunks.
CHUNKS = "replica int, segment int, chunk int, packed binary"
CHUNKS_ARROW = arrow_schema(CHUNKS)
SplitRow = tuple[int, int, int, pa.Buffer]


def read_list(tries: int, parts: list[SegmentTask]) -> Iterator[pa.RecordBatch]:
    """Yield the chunks of some segments. Memory: a chunk, and a batch of packed rows."""
    how = list_packed if failed_before() else read_packed
    yield from in_batches(itertools.chain.from_iterable(read_each(parts, how, tries)), CHUNKS_ARROW)


def list_packed(part: SegmentTask) -> list[PackedRow]:
    """Return all rows of a segment, for a process that hands them to another. Memory: some 10 bytes per batch."""
    return list(read_packed(part))


def replay_parts(
    batches: Iterator[pa.RecordBatch], tasks: list[ReplicaTask], counted: Counted | None = None
) -> Iterator[ReplicaFacts]:
    """Yield the facts of replicas whose chunks come in order. Memory: one chunk, and a batch as Arrow brings it.

    After failed attempts the replica is read as a whole in a process apart, with the same result.
    """
    for number, rows in itertools.groupby(_rows(batches), itemgetter(0)):
        if failed_before():
            (facts,) = read_apart([tasks[number]], read_replica)
        else:
            with storage.guarded({}):
                facts = ReplicaReader(tasks[number], arriving(rows)).run()
        yield from counting([facts], counted)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[SplitRow]:
    for batch in batches:
        replicas, segments, chunks = (batch.column(k).to_pylist() for k in range(3))
        for row in range(batch.num_rows):
            yield replicas[row], segments[row], chunks[row], batch.column(3)[row].as_buffer()


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


# Jobs: read every replica, then judge every log with all its replicas.
#
# Task input travels as rows, one packed list each, so that a task gets only its own: in a function it would be
# shipped whole to every worker, and Spark Connect would refuse it.


LOCAL = re.compile(r"local\[(\d+)(?:,\d+)?\]")

# One row a replica: see auditor.pipeline.runner.KeptFacts.
FACTS = "join_key string, topic string, partition int, log_dir string, brief binary, facts binary, resume_point binary"
FACTS_ARROW = arrow_schema(FACTS)
# What judging logs gives: see auditor.pipeline.runner.judged_texts.
JUDGED = "kind string, row binary"
APART = 256  # logs that are judged at once in a process apart, which is sent what is known of the clusters each time
JUDGED_ARROW = arrow_schema(JUDGED)


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


def read_replicas(
    spark: SparkSession, tasks: Sequence[ReplicaTask | TextTask], counted: Counted | None = None
) -> DataFrame:
    """Return the facts of every replica, one row each, persisted for the second job; ``counted`` gets batches. Lazy.

    A replica is read by one task, except large ones (:func:`auditor.pipeline.plan.divide`); their replay comes first,
    since it takes longest.
    """
    cores = slots(spark)
    large, others = divide(tasks)
    tries = attempts(spark)
    whole = sharing(others)
    facts = each_list(spark, spread(whole, list_count(whole, cores)), partial(_read_whole, tries, counted), FACTS)
    if large:
        facts = _read_in_parts(spark, large, cores, counted).union(facts)
    with tuned(spark, A_TASK_EACH):
        return facts.persist()


def _read_whole(
    tries: int, counted: Counted | None, tasks: list[ReplicaTask | SharingTask | TextTask]
) -> Iterator[pa.RecordBatch]:
    replicas = itertools.chain.from_iterable(read_each(tasks, read_task, tries))
    yield from in_batches(map(kept, counting(replicas, counted)), FACTS_ARROW)


def _read_in_parts(spark: SparkSession, tasks: list[ReplicaTask], cores: int, counted: Counted | None) -> DataFrame:
    shipped = dumps(tasks)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from in_batches(map(kept, replay_parts(batches, loads(shipped), counted)), FACTS_ARROW)

    return read_parts(spark, tasks, list_count(segment_tasks(tasks), cores)).mapInArrow(replay, FACTS)


def read_parts(spark: SparkSession, tasks: list[ReplicaTask], parts: int) -> DataFrame:
    """Return the chunks of all these replicas, read by ``parts`` tasks; those of a replica are adjacent, in log order.

    Spark sorts the rows of a partition, and spills to disk. Replicas that share one are replayed one after the other.
    """
    lists = spread(segment_tasks(tasks), parts)
    chunks = each_list(spark, lists, partial(read_list, attempts(spark)), CHUNKS)
    return chunks.repartition("replica").sortWithinPartitions("replica", "segment", "chunk")


def facts_frame(spark: SparkSession, rows: Sequence[KeptFacts]) -> DataFrame:
    """Return facts of the driver as a frame."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(FACTS_ARROW)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, FACTS_ARROW, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=FACTS_ARROW), schema=FACTS)


def judged(facts: DataFrame, clusters: dict[str, Cluster], judge: JudgeLog) -> DataFrame:
    """Return the plan of the second job: one exchange by log, then each log is judged with all its replicas.

    Of long logs headers are read again to compare replicas. After failed attempts that is done in a process apart,
    :data:`APART` logs at a time, so that a file that kills is named; if only machines were lost, the result is the
    same.
    """
    shipped, tries = dumps((clusters, judge)), attempts(facts.sparkSession)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clusters_by_key, of_log = loads(shipped)

        def rows() -> Iterator[LogRow]:
            if failed_before():
                pending = ((key[0], [facts for (facts,) in replicas]) for key, replicas in logs(batches))
                with Pool(1) as pool:
                    while some := list(itertools.islice(pending, APART)):
                        for _, results in pool.map([some], partial(judge_list, clusters_by_key, of_log), reads=False):
                            yield from results
                return
            with storage.guarded({}), retries.resigned(rounds(tries)):
                streamed = (
                    (clusters_by_key[key[0]], (facts for (facts,) in replicas)) for key, replicas in logs(batches)
                )
                yield from judged_texts(streamed, of_log)

        yield from in_batches(rows(), JUDGED_ARROW)

    return by_log(facts.select(*LOG, "facts")).mapInArrow(work, JUDGED)


def judge_logs(
    facts: DataFrame, clusters: dict[str, Cluster], judge: JudgeLog, job: str = "judge logs"
) -> Iterator[Judged]:
    """Run the judge step over every log and bring its rows to the driver; ``job`` describes it."""
    with tuned(facts.sparkSession), described(facts.sparkSession, job):
        rows = judged(facts, clusters, judge).toArrow()
    yield from judged_rows(zip(rows.column("kind").to_pylist(), rows.column("row").to_pylist(), strict=True))


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


# Read step with a work folder: the task that reads a list writes its facts there, and everything later reads them
# from there. Whatever is lost or killed, a list is read once.


Identified = tuple[ReplicaTask, bytes]
AtRest = tuple[str, list[int], list[ReplicaTask]]  # a file, rows of it, and what they were read of


def read_kept_replicas(
    spark: SparkSession,
    tasks: Sequence[ReplicaTask | TextTask],
    work: WorkFolder,
    notes: list[str],
    counted: Counted | None = None,
) -> DataFrame:
    """Return the facts of every replica, a row each, most of them as rows of the work folder's files.

    Missing ones are read by this call; ``notes`` gets what is left alone there. Errors: the job's, where it fails
    :data:`retries.ROUNDS` times.
    """
    kept_tasks = [task for task in tasks if isinstance(task, ReplicaTask) and is_kept(task)]
    named = list(zip(kept_tasks, identities(kept_tasks), strict=True))
    before = work.known()
    notes[:] = before.notes([identity for _, identity in named])
    loose = _read_missing(spark, named, work, before, counted)
    positions = work.known().there
    rows: dict[str, AtRest] = {}
    for position, task in sorted(((positions[i], task) for task, i in named if i in positions), key=itemgetter(0)):
        of_file = rows.setdefault(position.file, (position.file, [], []))
        of_file[1].append(position.row)
        of_file[2].append(task)
    facts = each_list(spark, list(rows.values()), partial(_at_rest, attempts(spark), work), FACTS)
    if loose is not None:  # another attempt, or another audit, may have kept what this one could not
        facts = facts.join(loose.select(*REPLICA), list(REPLICA), "left_anti").unionByName(loose)
    others = [task for task in tasks if not is_kept(task)]
    return facts.unionByName(read_replicas(spark, others, counted)) if others else facts


def _read_missing(
    spark: SparkSession,
    named: Sequence[Identified],
    work: WorkFolder,
    before: WorkFolderContent,
    counted: Counted | None = None,
) -> DataFrame | None:
    """Read what the work folder lacks; return rows of what cannot be stored there, None without any."""
    content = before
    for left in reversed(range(retries.ROUNDS)):
        missing = [one for one in named if one[1] not in content.there]
        if not missing:
            return None
        with tuned(spark, A_TASK_EACH):
            rows = _missing(spark, missing, work, counted).persist()
        try:
            return rows if rows.count() else None
        except failures() as error:
            rows.unpersist()
            if not worker_died(error) or not left:
                raise
            content = work.known()
    return None


def _missing(
    spark: SparkSession, missing: Sequence[Identified], work: WorkFolder, counted: Counted | None = None
) -> DataFrame:
    of = {_replica_key(task): identity for task, identity in missing}  # not by the objects: of many there are others
    large, others = divide([task for task, _ in missing])
    cores, tries = slots(spark), attempts(spark)
    lists = [
        [(task, of[_replica_key(task)]) for task in some if isinstance(task, ReplicaTask)]
        for some in spread(others, list_count(others, cores))
    ]
    rows = each_list(spark, lists, partial(_read_list, tries, work, counted), FACTS)
    if not large:
        return rows
    shipped = dumps((large, [of[_replica_key(task)] for task in large]))

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks, names = loads(shipped)
        numbers = {_replica_key(task): number for number, task in enumerate(tasks)}
        for facts in replay_parts(batches, tasks, counted):
            number = numbers[facts.log_dir, facts.folder]
            yield from _kept_or_rows(work, [(names[number], facts)], [names[number]])

    parts = read_parts(spark, large, list_count(segment_tasks(large), cores))
    return parts.mapInArrow(replay, FACTS).union(rows)


def _replica_key(task: ReplicaTask) -> tuple[str, str]:
    """Key of a replica within an audit."""
    return task.replica.log_dir, task.replica.folder


def _read_list(
    tries: int, work: WorkFolder, counted: Counted | None, named: list[Identified]
) -> Iterator[pa.RecordBatch]:
    """Read a list except what another attempt left. A note tells the next attempt that this one ended early."""
    names = [identity for _, identity in named]
    stored = work.kept_of(names)
    left = [one for one in named if one[1] not in stored]
    if stored and not left:
        return
    died = work.begins(names)
    replicas = read_each([task for task, _ in left], read_task, tries, apart=died)
    read = [
        (identity, facts)
        for (_, identity), some in zip(left, replicas, strict=True)
        for facts in counting(some, counted)
    ]
    yield from _kept_or_rows(work, read, names, stored)
    work.ended(names)


def _kept_or_rows(
    work: WorkFolder, read: list[tuple[bytes, ReplicaFacts]], names: list[bytes], stored: frozenset[bytes] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """Store what is complete; return rows of the rest."""
    whole = [one for one in read if not any(is_unread(e.reason, e.detail) for e in one[1].errors)]
    kept_now = stored or {identity for identity, _ in whole}
    if not stored:
        work.keep([identity for identity, _ in whole], FACTS_AT_REST.pack(facts for _, facts in whole), names)
    yield from in_batches((kept(facts) for identity, facts in read if identity not in kept_now), FACTS_ARROW)


def _at_rest(tries: int, work: WorkFolder, of_file: AtRest) -> Iterator[pa.RecordBatch]:
    """Facts in a file; if it is damaged, those of its replicas read again."""
    name, numbers, tasks = of_file
    replicas: Iterable[ReplicaFacts] | None = unpacked_facts(work.facts(name), numbers)
    if replicas is None:
        replicas = itertools.chain.from_iterable(read_each(tasks, read_task, tries))
    rows: Iterator[KeptFacts] = map(kept, replicas)
    yield from in_batches(rows, FACTS_ARROW)
