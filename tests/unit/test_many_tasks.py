"""What a driver holds of very many partitions: replicas at rest, and tasks that are made when they are come to."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from auditor.base.at_rest import OPEN, SORTED_TOGETHER, TOGETHER, RowsAtRest, TextRows, as_json, row_text
from auditor.connectors.codec.small_files import Offsets
from auditor.connectors.logdir.files import Inventory, LogDir, Replica, SegmentFile
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.work_folder import WorkFolder
from auditor.replay.task import ReplicaTask
from auditor.spark import jobs

OPTIONS = AuditOptions(("/nowhere",), Path("out"))


def replica(log_dir: str, partition: int, size: int) -> Replica:
    folder = f"t-{partition}"
    return Replica(log_dir, "t", partition, folder, segments=(SegmentFile(f"{folder}/{0:020}.log", 0, size),))


def inventory(*sizes: list[int]) -> Inventory:
    """A log directory for each list, of one cluster, with partitions of so many bytes."""
    dirs, first = [], 0
    for number, some in enumerate(sizes):
        rows = tuple(replica(f"b{number}", first + n, size) for n, size in enumerate(some))
        dirs.append(
            LogDir(f"b{number}", StorageLocation("", f"/b{number}"), "cluster c", broker_id=number, replicas=rows)
        )
        first += len(some)
    return Inventory(tuple(dirs), (), (), (), ())


def tasks_of(*sizes: list[int]) -> plan.ReplicaTasks:
    found = plan.replica_tasks(inventory(*sizes), {}, OPTIONS)
    assert isinstance(found, plan.ReplicaTasks)
    return found


def partitions(tasks: object) -> list[int | None]:
    return [task.replica.partition for task in tasks if isinstance(task, ReplicaTask)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("counts", [(0, 3), (1, TOGETHER, 0, 2), (5 * TOGETHER + 1, 3 * TOGETHER - 1)])
def test_tasks_by_their_number_are_those_in_turn(counts: tuple[int, ...]) -> None:
    tasks = tasks_of(*([100] * count for count in counts))
    assert len(tasks) == sum(counts)
    assert partitions(tasks) == list(range(sum(counts)))
    numbers = random.Random(1).sample(range(len(tasks)), len(tasks))
    assert partitions(tasks[number] for number in numbers) == numbers
    assert partitions(tasks[1:-1]) == list(range(len(tasks)))[1:-1]
    assert tasks == list(tasks)
    assert tasks != list(tasks)[1:]
    with pytest.raises(IndexError):
        tasks[len(tasks)]


def test_files_and_bytes_of_a_log_directory_are_those_of_its_replicas() -> None:
    (log_dir,) = inventory(list(range(3 * TOGETHER))).log_dirs
    assert (log_dir.file_count, log_dir.size) == (3 * TOGETHER, sum(range(3 * TOGETHER)))
    assert len(log_dir.files()) == log_dir.file_count
    fewer = dataclasses.replace(log_dir, replicas=log_dir.replicas[:2])
    assert (fewer.file_count, fewer.size) == (2, 1)


def test_only_logs_with_several_replicas_are_asked_for_what_compares_them() -> None:
    first, second = inventory([1, 1]).log_dirs[0], inventory([1]).log_dirs[0]
    second = dataclasses.replace(second, name="b1")
    found = plan.replica_tasks(Inventory((first, second), (), (), (), ()), {}, OPTIONS)
    assert [bool(task.digests) for task in found if isinstance(task, ReplicaTask)] == [True, False, True]


@pytest.mark.parametrize("count", [7, SORTED_TOGETHER + 9])
def test_lists_have_each_task_once_and_about_the_same_bytes(count: int) -> None:
    """By the greedy rule no list has more than the lightest and its last, which is its smallest."""
    rng = random.Random(2)
    tasks = tasks_of([rng.randrange(10_000_000) for _ in range(count)])
    lists = list(plan.spread(tasks, 5))
    assert len(lists) == 5
    assert sorted(n for some in lists for n in partitions(some) if n is not None) == list(range(count))
    sizes = [[plan.size(task) for task in some] for some in lists]
    assert all(some == sorted(some, reverse=True) for some in sizes)
    lightest = min(map(sum, sizes))
    assert all(sum(some) <= lightest + some[-1] for some in sizes)


def test_of_many_tasks_the_largest_go_first_and_the_others_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [5, 1, 9, 2, 8, 3, 7]
    assert partitions(plan.largest_first(tasks_of(sizes))) == [2, 4, 6, 0, 5, 3, 1]
    monkeypatch.setattr(plan, "FEW", 6)
    monkeypatch.setattr(plan, "LARGEST", 2)
    found = plan.largest_first(tasks_of(sizes))
    assert partitions(found) == [2, 4, 0, 1, 3, 5, 6]
    assert partitions(found[1:3]) == [4, 0]
    assert plan.bytes_of(found).tolist() == [9, 8, 5, 1, 2, 3, 7]


def test_offsets_are_as_those_they_were_made_of() -> None:
    given = {("a", 0): 5, ("b", 7): 6, ("a", 2): 7}
    found = Offsets(given)
    assert dict(found) == given
    assert (found["a", 2], found.get(("a", 1)), found.get(("c", 0)), len(found)) == (7, None, None, 3)


def test_single_rows_of_many_blocks_in_any_order() -> None:
    rows = RowsAtRest([n, str(n)] for n in range((OPEN + 3) * TOGETHER + 1))
    for number in random.Random(3).choices(range(len(rows)), k=200):
        assert rows[number] == [number, str(number)]


def test_rows_that_were_written_before_are_written_as_they_are() -> None:
    rows = [{"b": n, "a": {"x": [1, "\u00e9"]}, "none": []} for n in range(3)]
    texts = TextRows([row_text(row) for row in rows])
    assert as_json({"rows": texts, "n": 1}) == as_json({"rows": rows, "n": 1})
    assert (list(texts), texts[1], texts[1:], len(texts)) == (rows, rows[1], rows[1:], 3)


def test_of_very_many_tasks_each_is_kept_under_its_own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of so many are made of what was at rest meanwhile: other objects than those that were given."""
    named = [(t, str(number).encode()) for number, t in enumerate(tasks_of([100] * (SORTED_TOGETHER + 2)))]
    lists: list[list[tuple[ReplicaTask, bytes]]] = []
    monkeypatch.setattr(jobs, "slots", lambda _: 2)
    monkeypatch.setattr(jobs, "attempts", lambda _: 4)
    monkeypatch.setattr(jobs, "each_list", lambda _spark, some, *_: lists.extend(some))
    jobs._missing(None, named, WorkFolder("/nowhere"))  # type: ignore[arg-type]
    found = {identity: task.replica.partition for some in lists for task, identity in some}
    assert found == {str(n).encode(): n for n in range(SORTED_TOGETHER + 2)}
