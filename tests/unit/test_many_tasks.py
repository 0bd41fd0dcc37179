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
from auditor.pipeline import plan, work_folder
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.work_folder import WorkFolder
from auditor.replay.task import KeptTask, ReplicaTask

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
def test_segments_are_in_lists_of_about_the_same_bytes(count: int) -> None:
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


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_lists_have_whole_logs_each_once_and_about_the_same_bytes(count: int, lazy: bool) -> None:
    """Three brokers have each log. No list has more than its share and a half, but a log that is alone there."""
    rng = random.Random(count)
    first = inventory([rng.randrange(1_000_000) for _ in range(300)] + [40_000_000, 70_000_000]).log_dirs[0]
    others = [dataclasses.replace(first, name=f"b{n}", broker_id=n) for n in (1, 2)]
    tasks = plan.replica_tasks(Inventory((first, *others), (), (), (), ()), {}, OPTIONS)
    lists = plan.WorkLists(tasks if lazy else list(tasks), count)
    found = [[(task.replica.partition, task.place.path) for task in some] for some in lists]
    assert sorted(one for some in found for one in some) == sorted((p, "/b0") for p in range(302) for _ in range(3))
    logs = [sorted({partition for partition, _ in some}) for some in found]
    assert sorted(p for some in logs for p in some) == list(range(302)), "a log is in one list"
    assert all(some == [p for p, _ in some_found[::3]] for some, some_found in zip(logs, found, strict=True))
    assert sorted(logs) == logs, "lists are in the order of their first logs"
    sizes = [sum(map(plan.size, some)) for some in lists]
    assert lists.sizes.tolist() == sizes
    share = sum(sizes) / count
    assert all(size <= 1.5 * share + 3_150_000 for size, some in zip(sizes, logs, strict=True) if len(some) > 1)
    assert len(lists) <= count + sum(1 for some in logs if len(some) == 1) + 1
    ordered = lists.largest_first()
    assert [sum(map(plan.size, some)) for some in ordered] == sorted(sizes, reverse=True)
    assert [ordered[number] for number in range(len(lists))] == [lists[number] for number in ordered.numbers]


def test_no_items_are_no_lists() -> None:
    assert list(plan.WorkLists([], 3)) == list(plan.WorkLists(tasks_of([]), 3).largest_first()) == []


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


def test_of_very_many_tasks_each_is_kept_under_its_own_identity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tasks are made when they are reached: new objects each time, which reuse the addresses of earlier ones."""
    monkeypatch.setattr(work_folder, "identities", lambda tasks: [str(t.replica.partition).encode() for t in tasks])
    tasks = tasks_of([100] * (SORTED_TOGETHER + 2))
    items = work_folder.kept_tasks(tasks, WorkFolder(str(tmp_path)), [])
    found = {item.identity: item.task.replica.partition for item in items if isinstance(item, KeptTask)}
    assert found == {str(n).encode(): n for n in range(SORTED_TOGETHER + 2)}
