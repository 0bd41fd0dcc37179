"""The read step of Spark with a work folder: what a list of replicas came to is written there by the task that read it,
and everything later reads it from there. Whatever is lost or killed, a list is read once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.base.at_rest import dumps, loads
from auditor.base.errors import is_unread
from auditor.connectors.stores import retries
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline.plan import divide, list_count, segment_tasks, spread
from auditor.pipeline.runner import REPLICA, KeptFacts, kept, read_task
from auditor.pipeline.work_folder import Kept, WorkFolder, identities, is_kept
from auditor.replay.reading.task import ReplicaTask, TextTask
from auditor.spark import scan
from auditor.spark.query_errors import FAILED, worker_died
from auditor.spark.retries import attempts, read_each
from auditor.spark.split import replay_parts
from auditor.spark.streams import in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Identified = tuple[ReplicaTask, bytes]
AtRest = tuple[str, list[int], list[ReplicaTask]]  # a file, rows of it, and what they were read of


def read_replicas(
    spark: SparkSession, tasks: Sequence[ReplicaTask | TextTask], work: WorkFolder, notes: list[str]
) -> DataFrame:
    """The facts of every replica, a row each, most of them as rows of the work folder's files. What is not there yet
    is read by this call; ``notes``: gets what is left alone there. Errors: the job's, where it fails
    :data:`asking.ROUNDS` times."""
    mine = [task for task in tasks if isinstance(task, ReplicaTask) and is_kept(task)]
    named = list(zip(mine, identities(mine), strict=True))
    before = work.known()
    notes[:] = before.notes([identity for _, identity in named])
    loose = _read_missing(spark, named, work, before)
    there = work.known().there
    rows: dict[str, AtRest] = {}
    for at, task in sorted(((there[i], task) for task, i in named if i in there), key=itemgetter(0)):
        of_file = rows.setdefault(at.file, (at.file, [], []))
        of_file[1].append(at.row)
        of_file[2].append(task)
    facts = scan.each_list(spark, list(rows.values()), partial(_at_rest, attempts(spark), work), scan.FACTS)
    if loose is not None:  # another attempt, or another audit, may have kept what this one could not
        facts = facts.join(loose.select(*REPLICA), list(REPLICA), "left_anti").unionByName(loose)
    others = [task for task in tasks if not is_kept(task)]
    return facts.unionByName(scan.read_replicas(spark, others)) if others else facts


def _read_missing(spark: SparkSession, named: Sequence[Identified], work: WorkFolder, before: Kept) -> DataFrame | None:
    """Reads what the work folder lacks; rows of what cannot be kept there, None without any."""
    known = before
    for left in reversed(range(retries.ROUNDS)):
        missing = [one for one in named if one[1] not in known.there]
        if not missing:
            return None
        rows = _missing(spark, missing, work).persist()
        try:
            return rows if rows.count() else None
        except FAILED as error:
            rows.unpersist()
            if not worker_died(error) or not left:
                raise
            known = work.known()
    return None


def _missing(spark: SparkSession, missing: Sequence[Identified], work: WorkFolder) -> DataFrame:
    of = {_at(task): identity for task, identity in missing}  # not by the objects: of many there are others
    large, others = divide([task for task, _ in missing])
    cores, tries = scan.slots(spark), attempts(spark)
    lists = [
        [(task, of[_at(task)]) for task in some if isinstance(task, ReplicaTask)]
        for some in spread(others, list_count(others, cores))
    ]
    rows = scan.each_list(spark, lists, partial(_read_list, tries, work), scan.FACTS)
    if not large:
        return rows
    shipped = dumps((large, [of[_at(task)] for task in large]))

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks, names = loads(shipped)
        numbers = {_at(task): number for number, task in enumerate(tasks)}
        for facts in replay_parts(batches, tasks):
            number = numbers[facts.log_dir, facts.folder]
            yield from _kept_or_rows(work, [(names[number], facts)], [names[number]])

    parts = scan.read_parts(spark, large, list_count(segment_tasks(large), cores))
    return parts.mapInArrow(replay, scan.FACTS).union(rows)


def _at(task: ReplicaTask) -> tuple[str, str]:
    """What tells a replica from all others of an audit."""
    return task.replica.log_dir, task.replica.folder


def _read_list(tries: int, work: WorkFolder, named: list[Identified]) -> Iterator[pa.RecordBatch]:
    """Reads a list but for what another attempt left. The note says to the next attempt that this one ended early."""
    names = [identity for _, identity in named]
    there = work.kept_of(names)
    left = [one for one in named if one[1] not in there]
    if there and not left:
        return
    died = work.begins(names)
    found = read_each([task for task, _ in left], read_task, tries, apart=died)
    read = [(identity, facts) for (_, identity), some in zip(left, found, strict=True) for facts in some]
    yield from _kept_or_rows(work, read, names, there)
    work.ended(names)


def _kept_or_rows(
    work: WorkFolder, read: list[tuple[bytes, ReplicaFacts]], names: list[bytes], there: frozenset[bytes] = frozenset()
) -> Iterator[pa.RecordBatch]:
    """Keeps what can be; rows of the rest: of what was not read in whole nothing is kept."""
    whole = [one for one in read if not any(is_unread(e.reason, e.detail) for e in one[1].errors)]
    kept_now = there or work.keep(whole, names)
    yield from in_batches((kept(facts) for identity, facts in read if identity not in kept_now), scan.FACTS_ARROW)


def _at_rest(tries: int, work: WorkFolder, of_file: AtRest) -> Iterator[pa.RecordBatch]:
    """What a file has; where it is damaged, what is read anew of the same replicas."""
    name, numbers, tasks = of_file
    found: Iterable[ReplicaFacts] | None = work.facts(name, numbers)
    if found is None:
        found = itertools.chain.from_iterable(read_each(tasks, read_task, tries))
    rows: Iterator[KeptFacts] = map(kept, found)
    yield from in_batches(rows, scan.FACTS_ARROW)
