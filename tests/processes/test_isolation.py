"""auditor.processes.isolation: what kills its reader is refused by name, and everything else is read as ever."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import FAILURES_RAISE, DecodeError, attempt
from auditor.connectors.logdir.inventory import discover
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import read_task
from auditor.processes.isolation import Pool, read_apart
from auditor.replay.task import ReplicaTask
from tests import corpora
from tests.crashing_files import CrashingPlace

NAME = "unknown-producer-41"


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAILURES_RAISE)


def tasks() -> list[ReplicaTask]:
    path = str(corpora.unpack(NAME))
    found = plan.replica_tasks(discover([path]), {}, AuditOptions((path,), None, records=True))  # type: ignore[arg-type]
    return [task for task in found if isinstance(task, ReplicaTask)]


def with_crashing(task: ReplicaTask, file: str, how: str, once: str = "") -> ReplicaTask:
    return replace(task, place=CrashingPlace(*task.place, file, how, once))  # type: ignore[arg-type]


def shown(facts: ReplicaFacts) -> tuple[object, ...]:
    return facts.topic, facts.partition, facts.sums, facts.log_end, facts.events.tolist(), facts.errors


def test_sound_replicas_read_as_in_one_process() -> None:
    apart = [shown(facts) for found in read_apart(tasks(), read_task) for facts in found]
    assert apart == [shown(facts) for task in tasks() for facts in read_task(task)]


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("exit", "ends the process: exit code 7"),
        ("segfault", "ends the process: SIGSEGV"),
        ("kill", "ends the process: SIGKILL"),
        ("raise", "ends the process: exit code 1 after ZeroDivisionError: a mistake of the reader's own"),
        ("hang", "takes longer than 15 s"),
    ],
)
def test_the_file_that_kills_is_named_and_the_rest_is_read(how: str, ending: str) -> None:
    whole = tasks()
    victim = next(n for n, task in enumerate(whole) if task.replica.segments and task.replica.segments[0].size)
    segment = whole[victim].replica.segments[0]
    mixed = list(whole)
    mixed[victim] = with_crashing(whole[victim], segment.name, how)
    sound = [shown(one) for n, task in enumerate(whole) if n != victim for one in read_task(task)]
    patience_s = 15 if how == "hang" else 3600  # enough to load what was compiled right now
    facts = [one for found in read_apart(mixed, read_task, patience_s) for one in found]
    errors = [(e.file, e.length, e.reason, e.detail.partition(" (")[0]) for one in facts for e in one.errors]
    reported = (segment.name, segment.size, "unreadable", f"reading it {ending}")
    assert errors == [reported]
    others = [shown(one) for n, one in enumerate(facts) if n != victim]
    assert others == sound
    sums = facts[victim].sums
    assert sums["bytes_total"] == sums["bytes_decoded"] + sums["bytes_skipped"] + sums["bytes_error"]
    assert sums["bytes_total"] == sum(file.size for file in whole[victim].replica.files())


def in_parts(task: ReplicaTask) -> Iterator[tuple[int, list[DecodeError]]]:
    yield 0, []
    yield from ((1, facts.errors) for facts in read_task(task))


@pytest.mark.parametrize("how", ["exit", "segfault", "raise"])
def test_a_stream_goes_on_without_the_file_that_kills(how: str) -> None:
    """What came before the death stays, and the file is an error of what follows."""
    victim = next(task for task in tasks() if task.replica.segments and task.replica.segments[0].size)
    other = next(task for task in tasks() if task.replica.folder != victim.replica.folder)
    name = victim.replica.segments[0].name
    with Pool(1) as pool:
        parts: list[tuple[int, Any]] = [*pool.map([with_crashing(victim, name, how), other], in_parts)]  # type: ignore[list-item]
    of_first = [part for number, part in parts if number == 0]
    assert of_first[:2] == [(0, []), (0, [])]
    assert [error.file for error in of_first[2][1]] == [name]
    assert [part for number, part in parts if number == 1] == [(0, []), (1, []), None]
    assert of_first[3:] == [None]


def contains(_task: int) -> int:
    """Fails in a part that is contained."""
    return attempt([], "a look", lambda: {}["since"], 1)


def test_what_a_worker_contains_is_a_failure_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(1) as pool:
        assert pool.all([0], contains) == [1]
    monkeypatch.setenv(FAILURES_RAISE, "1")
    with Pool(1) as pool, pytest.raises(RuntimeError, match="KeyError"):
        pool.all([0], contains)


def test_who_was_killed_once_may_have_been_by_anybody(tmp_path: Path) -> None:
    """Each of the readers of three replicas, over its first file that has anything in it."""
    whole = [task for task in tasks() if task.replica.segments and task.replica.segments[0].size][:3]
    files = [(task, task.replica.segments[0].name) for task in whole]
    mixed = [with_crashing(t, file, "kill", str(tmp_path / str(n))) for n, (t, file) in enumerate(files)]
    found = [shown(facts) for some in read_apart(mixed, read_task) for facts in some]
    assert found == [shown(facts) for task in whole for facts in read_task(task)]
    assert len(list(tmp_path.iterdir())) == len(mixed) > 1


def test_readers_killed_before_they_opened_a_file_say_nothing_of_any() -> None:
    """Two that waited for work, as where memory is short; each is then handed a replica."""
    whole = [task for task in tasks() if task.replica.segments and task.replica.segments[0].size][:2]
    with Pool(2) as pool:
        sound = pool.all(whole, read_task)
        time.sleep(0.3)  # until both have noted that they wait
        for worker in pool._idle:
            os.kill(worker.pid, signal.SIGKILL)
        found = pool.all(whole, read_task)
    assert [[shown(facts) for facts in some] for some in found] == [[shown(f) for f in some] for some in sound]
    assert not [error for some in found for facts in some for error in facts.errors]


def test_a_replica_of_which_every_file_kills_is_given_up_file_by_file() -> None:
    task = next(task for task in tasks() if len(task.replica.files()) > 2)
    ((facts,),) = read_apart([with_crashing(task, "", "exit")], read_task)
    read = {error.file for error in facts.errors}
    assert {error.reason for error in facts.errors} == {"unreadable"}
    assert {segment.name for segment in task.replica.segments} <= read
    assert facts.sums["bytes_error"] == facts.sums["bytes_total"] - facts.sums["bytes_skipped"]


def test_what_kills_without_any_file_ends_with_an_error() -> None:
    task = replace(tasks()[0], replica=None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="exit code 1"):
        list(read_apart([task], read_task))


def fill(path: str) -> None:
    """Writes where there is no room."""
    with open(path, "w") as f:
        f.write("x" * 10_000)


def test_a_full_disk_is_no_files_doing() -> None:
    """A table is written while files are read: none of those may be named for a disk that is full."""
    with pytest.raises(OSError, match="No space left on device"):
        list(read_apart(["/dev/full"], fill))


def kill(number: int) -> int:
    """Ends its process over one number."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    return number


def test_a_task_that_is_not_to_be_repeated_has_no_result() -> None:
    with Pool(2) as pool:
        assert dict(pool.map(range(6), kill, once=True)) == {n: None if n == 3 else n for n in range(6)}


def huge_pages(size: int) -> bool:
    """Whether the kernel was asked for huge pages for an array of so many bytes (``hg``, as madvise sets it)."""
    import numpy as np

    table = np.empty(size, np.uint8)
    inside, mine = table.ctypes.data + size // 2, False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            mine = int(found[1], 16) <= inside < int(found[2], 16)
        elif mine and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("the array is in no mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux shows what was asked for")
def test_workers_ask_for_no_huge_pages() -> None:
    """Whatever it is here: numpy asks for them by default."""
    with Pool(1) as pool:
        assert pool.all([64 << 20], huge_pages) == [False]
