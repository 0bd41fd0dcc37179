"""auditor.processes.isolation: what kills its reader is refused by name, and everything else is read as ever."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import DEFAULT_LIMITS, FAILURES_RAISE, DecodeError, attempt
from auditor.connectors.codec.damaged_fields import SegmentContext
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import PATIENCE_S
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import read_task
from auditor.processes.isolation import Note, Pool, _Job, read_apart
from auditor.replay.reading.segment_checks import SegmentHeaders
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
        ("exit", "ends the process: exit status 7"),
        ("segfault", "ends the process: SIGSEGV"),
        ("kill", "ends the process: SIGKILL"),
        ("raise", "ends the process: exit status 1 after ZeroDivisionError: a mistake of the reader's own"),
        ("hang", "takes more than 15 s"),
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
    with pytest.raises(RuntimeError, match="exit status 1"):
        list(read_apart([task], read_task))


def fill(path: str) -> None:
    """Writes where there is no room."""
    with open(path, "w") as f:
        f.write("x" * 10_000)


def test_a_full_disk_is_no_files_doing() -> None:
    """A table is written while files are read: none of those may be named for a disk that is full."""
    with pytest.raises(OSError, match="No space left on device"):
        list(read_apart(["/dev/full"], fill))


@pytest.mark.parametrize("how", ["segfault", "raise", "hang"])
def test_of_tasks_that_are_handed_out_together_only_the_file_that_kills_is_left_out(how: str, tmp_path: Path) -> None:
    """Tasks before and behind it are done again, and nothing is lost or there twice."""
    (sound,) = [task for task in tasks() if len(task.replica.files()) > 2][:1]
    many = [sound] * 300
    victims = (100,) if how == "hang" else (0, 100, 101, 299)
    files = dict.fromkeys(victims, sound.replica.segments[0].name)
    if 101 in files:
        files[101] = ""  # all of its files
    folder = tmp_path / "copy"
    shutil.copytree(sound.place.path, folder)  # or what kills one would be refused to all of the same path
    own = replace(sound, place=sound.place._replace(path=str(folder)))
    for number, file in files.items():
        many[number] = with_crashing(own, file, how)
    heard: list[tuple[int, str]] = []
    with Pool(2) as pool:
        sizes = [1000] * len(many)
        hears = {"opens": lambda *opened: heard.append(opened), "patience_s": 15 if how == "hang" else PATIENCE_S}
        found = list(pool.map(many, read_task, sizes=sizes, **hears))  # type: ignore[arg-type]
    assert sorted(number for number, _ in found) == list(range(len(many)))
    whole = shown(read_task(sound)[0])
    for number, (facts,) in found:
        named = {error.file for error in facts.errors}
        if number not in victims:
            assert shown(facts) == whole
        elif files[number]:
            assert files[number] in named
        else:
            assert {segment.name for segment in sound.replica.segments} <= named
    assert {number for number, _ in heard} <= set(range(len(many)))


class KillsOnItsWay:
    """A result that ends, once, the process that hands it back, as where memory is used up."""

    def __init__(self, number: int, once: Path | None) -> None:
        self.number, self.once = number, once

    def __reduce__(self) -> tuple[object, ...]:
        if self.once is not None and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        return (int, (self.number,))


def open_three(task: tuple[int, Path | None]) -> KillsOnItsWay:
    refused = sum(bool(storage.closed(f"/disk/{task[0]}/{k}.log")) for k in range(3))
    return KillsOnItsWay(refused, task[1])


@pytest.mark.parametrize("together", [True, False])
def test_who_dies_handing_results_back_takes_no_whole_replica_along(together: bool, tmp_path: Path) -> None:
    many = [(number, tmp_path / "once" if number == 3 else None) for number in range(40)]
    with Pool(1) as pool:
        found = dict(pool.map(many, open_three, sizes=[10] * len(many) if together else None))
    assert (tmp_path / "once").exists()
    assert {number: refused for number, refused in found.items() if refused} == ({} if together else {3: 1})


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


def test_few_or_large_tasks_are_handed_out_one_by_one() -> None:
    job = _Job(b"", 1, {}, deque(range(100)), [1 << 20, *[1] * 99])
    assert job.next_ones(2) == [0]
    assert job.next_ones(2) == list(range(1, 13))  # an eighth of what is left, for four turns of each
    job.of_task[15] = {"/x": "killed"}
    assert job.next_ones(2) == [13, 14]
    assert job.next_ones(2) == [15]
    job.todo = deque([98, 99])
    assert job.next_ones(2) == [98]
    alone = _Job(b"", 1, {}, deque(range(100)), None)
    assert alone.next_ones(2) == [0]


def test_a_note_that_was_not_finished_does_not_count() -> None:
    note = Note()
    assert note.read() == (-1, "")
    note.write(3, "/d/\udcff/0.log")
    assert note.read() == (3, "/d/\udcff/0.log")
    note.write(4, "/" * 70_000)
    assert note.read() == (4, "")
    current = note._memory[0]
    other = 1 + (1 - current) * note.ROOM
    note._memory[other : other + 4] = b"torn"
    assert note.read() == (4, "")


def headers_of(place: CrashingPlace) -> list[object]:
    """What the judge reads again of a long replica."""
    return list(SegmentHeaders(place, (("0.log", 0, 100, SegmentContext()),), DEFAULT_LIMITS).read(0, 0, None, 0))  # type: ignore[arg-type]


def test_a_file_that_kills_when_replicas_are_compared_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(bytes(100))
    place = CrashingPlace("", str(tmp_path), None, "0.log", "segfault", "")
    with Pool(1) as pool:
        ((_, found),) = pool.map([place], headers_of, reads=False)
    assert found == [DecodeError("0.log", 0, -1, "unreadable", "reading it ends the process: SIGSEGV")]
