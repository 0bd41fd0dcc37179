"""A work folder on Spark: what is damaged there is read anew, and what came twice counts once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from auditor.pipeline import work_folder
from auditor.pipeline.runner import FACTS_AT_REST, REPLICA, kept, read_task
from auditor.pipeline.work_folder import FACTS, WorkFolder, WorkFolderContent, identities, is_kept
from auditor.replay.task import ReplicaTask
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
    assert replicas(jobs.read_kept_replicas(spark, tasks, work, [])) == replicas_of(tasks)


def test_what_another_attempt_kept_counts_once(
    spark: SparkSession, work: WorkFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one could not read a file, and gave rows in place of a file; another, as slow, could, and left the file."""
    tasks = [task for task in tasks_below(corpora.unpack("hanging-36")) if is_kept(task)]
    names = identities(tasks)
    work.keep(names, FACTS_AT_REST.pack(facts for task in tasks for facts in read_task(task)), names)
    mine = [kept(facts) for facts in read_task(tasks[0])]
    read_missing = jobs._read_missing

    def also_loose(
        spark: SparkSession, named: Sequence[jobs.Identified], work: WorkFolder, before: WorkFolderContent, _: None
    ) -> DataFrame:
        assert read_missing(spark, named, work, before) is None
        return jobs.facts_frame(spark, mine)

    monkeypatch.setattr(jobs, "_read_missing", also_loose)
    assert replicas(jobs.read_kept_replicas(spark, tasks, work, [])) == replicas_of(tasks)


def replicas(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in frame.select(*REPLICA).toArrow().to_pylist())


def replicas_of(tasks: Sequence[ReplicaTask]) -> list[tuple[object, ...]]:
    return sorted(kept(facts)[:4] for task in tasks for facts in read_task(task))
