"""A work folder on Spark: what is damaged there is read anew, and what came twice counts once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from auditor.facts.replica_facts import log_of
from auditor.pipeline import work_folder
from auditor.pipeline.plan import WorkLists, list_count
from auditor.pipeline.runner import briefs_of, read_task
from auditor.pipeline.work_folder import FACTS, WorkFolder, identities, is_kept, kept_tasks
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import KeptTask, ReplicaTask
from auditor.spark import jobs
from tests import corpora
from tests.whole.test_split import tasks_below


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    made = WorkFolder(str(tmp_path / "work"))
    made.key()
    return made


def test_what_is_damaged_is_read_anew(spark: SparkSession, work: WorkFolder) -> None:
    tasks = [task for task in tasks_below(corpora.unpack("hanging-36")) if is_kept(task)]
    names = identities(tasks)
    table = pa.table([[names], [b"[1]"]], schema=work_folder.SCHEMA)
    with pa.OSFile(f"{work.text}/made{FACTS}", "wb") as out, pa.ipc.new_file(out, work_folder.SCHEMA) as writer:
        writer.write_table(table)
    frame = jobs.read_lists(spark, kept_tasks(tasks, work, []), work)
    assert replicas(frame) == replicas_of(tasks)


def test_what_another_attempt_kept_is_not_read_again(spark: SparkSession, work: WorkFolder, tmp_path: Path) -> None:
    """It kept all of a list but one replica, and its task was lost before it gave them."""
    folder = corpora.copy("hanging-36", tmp_path / "logs")
    items = kept_tasks([task for task in tasks_below(folder) if is_kept(task)], work, [])
    expected = replicas_of([item.task for item in items if isinstance(item, KeptTask)])
    lists = WorkLists(items, list_count(items, 2)).largest_first()
    for some in lists:
        facts = [(item.identity, read_replica(item.task)) for item in some]
        work.keep(facts[1:], [item.identity for item in some])
        for item in some[1:]:
            for segment in item.task.replica.segments:
                (folder / item.task.replica.log_dir / segment.name).unlink(missing_ok=True)
    frame = jobs.read_lists(spark, items, work)
    assert replicas(frame) == expected
    assert not any(briefs for row in frame.collect() for briefs in briefs_of(row.briefs).briefs if briefs.nothing_read)


def replicas(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((*log_of(one), one.log_dir) for row in frame.collect() for one in briefs_of(row.briefs).briefs)


def replicas_of(tasks: Sequence[ReplicaTask]) -> list[tuple[object, ...]]:
    return sorted((*log_of(facts), facts.log_dir) for task in tasks for facts in read_task(task))
