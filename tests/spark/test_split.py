"""Replicas read in parts on Spark: not a byte of the results differs from those of replicas read whole."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from auditor import running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import Item, log_of, reads_records, segment_tasks, unread
from auditor.pipeline.runner import briefs_of, read_task
from auditor.pipeline.work_folder import WorkFolder, is_kept, kept_tasks
from auditor.spark import jobs
from auditor.spark.jobs import read_parts
from auditor.spark.session import tuned
from tests import corpora
from tests.audited import published
from tests.whole.test_split import in_parts, tasks_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
Divided = tuple[list[list[Item]], list[Item]]


def divide_all(items: Sequence[Item]) -> Divided:
    """Instead of :func:`auditor.pipeline.plan.divide`: all logs in parts but those that never may be, however small."""
    logs: dict[tuple[str, str, int], list[Item]] = {}
    for item in items:
        logs.setdefault(log_of(item), []).append(item)
    large = [of_log for of_log in logs.values() if any(map(with_segments, of_log))]
    return large, [item for of_log in logs.values() if of_log not in large for item in of_log]


def with_segments(item: Item) -> bool:
    task = unread(item)
    return task is not None and bool(task.replica.segments) and not reads_records(task)


def audited(name: str, out: Path, spark: SparkSession | None = None, *, tables: bool = False) -> Path:
    """What an audit leaves: on Spark, or in this process."""
    as_of = corpora.manifest(name)["copied_at"]
    options = AuditOptions((str(corpora.unpack(name)),), out, records=True, as_of=as_of, tables=tables)
    if spark is None:
        published(options)
    else:
        running.audit(options, spark=spark)
    return out


def results(out: Path) -> dict[str, Any]:
    """What an audit wrote, but for how long it took, tables as rows in the order of their texts."""
    import pyarrow.parquet as pq

    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    del summary["timings"], summary["ran"]
    tables = {p.name: sorted(map(str, pq.read_table(p).to_pylist())) for p in sorted(out.glob("tables/*"))}
    return {"findings": (out / "findings.jsonl").read_bytes(), "summary": summary, "tables": tables}


def test_results_are_the_same_bytes_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables too; the findings of every corpus in parts are in ``test_every_corpus``."""
    whole = results(audited("altered-41", tmp_path / "whole", tables=True))
    monkeypatch.setattr(jobs, "divide", divide_all)
    parts = results(audited("altered-41", tmp_path / "parts", spark, tables=True))
    assert parts["summary"] == whole["summary"]
    assert parts == whole
    assert whole["findings"]
    assert whole["tables"]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_batches_are_counted_where_replicas_are_read(
    kept: bool, large: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(jobs, "divide", divide_all)
    tasks = [task for task in tasks_below(corpora.unpack("hanging-36")) if is_kept(task)]
    counted = jobs.Counted.on(spark)
    assert counted is not None
    if kept:
        work = WorkFolder(str(tmp_path / "work"))
        work.key()
        frame = jobs.read_lists(spark, kept_tasks(tasks, work, []), work, counted)
    else:
        frame = jobs.read_lists(spark, tasks, counted=counted)
    assert sum(len(briefs_of(row.briefs).briefs) for row in frame.collect()) == len(tasks)
    frame.unpersist()
    assert counted.batches.value == sum(facts.sums["batches"] for task in tasks for facts in read_task(task)) > 0
    assert counted.compiled.value == 0


@pytest.mark.parametrize(("parts", "partitions"), [(1, 1), (100, 5)])
def test_chunks_arrive_in_order_and_those_of_a_log_together(parts: int, partitions: int, spark: SparkSession) -> None:
    logs = jobs.numbered(divide_all(tasks_below(corpora.unpack("altered-41")))[0])
    tasks = [task for items in logs for _, item in items if (task := unread(item))]
    with tuned(spark, {"spark.sql.shuffle.partitions": str(partitions)}):
        chunks = read_parts(spark, logs, parts).drop("packed")
        found = [rows for rows in chunks.rdd.glom().map(lambda rows: [tuple(row) for row in rows]).collect() if rows]
    # A row for each segment, with its chunk and its outcome.
    expected = [
        [(log, k, n, 0) for k, item in items if (t := unread(item)) for n in range(len(t.replica.segments))]
        for log, items in enumerate(logs)
    ]
    assert [rows for rows in found if rows == sorted(rows)] == found
    assert 1 <= len(found) <= partitions
    together = [list(some) for rows in found for _, some in itertools.groupby(rows, key=lambda row: row[0])]
    assert sorted(together) == expected
    assert sum(map(len, found)) == len(segment_tasks(tasks)) > len(in_parts(tasks[:1]))
