"""auditor.pipeline.isolation: what kills its reader is refused by name, and everything else is read as ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from auditor.base.errors import DecodeError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.connectors.inventory import discover
from auditor.facts.copy_facts import CopyFacts
from auditor.pipeline import plan
from auditor.pipeline.isolation import Pool, read_apart
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.read_step import read_task
from auditor.replay.batch_headers import SegmentHeaders
from auditor.replay.copy_task import CopyTask
from tests import corpora
from tests.crashing_files import CrashingPlace

NAME = "unknown-producer-41"


def tasks() -> list[CopyTask]:
    path = str(corpora.unpack(NAME))
    found = plan.copy_tasks(discover([path]), {}, AuditOptions((path,), None, records=True))  # type: ignore[arg-type]
    return [task for task in found if isinstance(task, CopyTask)]


def with_crashing(task: CopyTask, file: str, how: str, once: str = "") -> CopyTask:
    return replace(task, place=CrashingPlace(*task.place, file, how, once))  # type: ignore[arg-type]


def shown(facts: CopyFacts) -> tuple[object, ...]:
    return facts.topic, facts.partition, facts.sums, facts.log_end, facts.events.tolist(), facts.errors


def test_sound_copies_read_as_in_one_process() -> None:
    apart = [shown(facts) for found in read_apart(tasks(), read_task) for facts in found]
    assert apart == [shown(facts) for task in tasks() for facts in read_task(task)]


@pytest.mark.parametrize(
    ("how", "ending"),
    [
        ("exit", "ends the process: exit status 7"),
        ("segfault", "ends the process: SIGSEGV"),
        ("raise", "ends the process: exit status 1"),
        ("hang", "takes more than 15 s"),
    ],
)
def test_the_file_that_kills_is_named_and_the_rest_is_read(how: str, ending: str) -> None:
    whole = tasks()
    victim = next(n for n, task in enumerate(whole) if task.copy.segments and task.copy.segments[0].size)
    segment = whole[victim].copy.segments[0]
    mixed = list(whole)
    mixed[victim] = with_crashing(whole[victim], segment.name, how)
    sound = [shown(one) for n, task in enumerate(whole) if n != victim for one in read_task(task)]
    patience_s = 15 if how == "hang" else 3600  # enough to load what was compiled right now
    facts = [one for found in read_apart(mixed, read_task, patience_s) for one in found]
    errors = [(e.file, e.length, e.reason, e.detail) for one in facts for e in one.errors]
    reported = (segment.name, segment.size, "unreadable", f"reading it {ending}")
    assert errors == [reported]
    others = [shown(one) for n, one in enumerate(facts) if n != victim]
    assert others == sound
    sums = facts[victim].sums
    assert sums["bytes_total"] == sums["bytes_decoded"] + sums["bytes_skipped"] + sums["bytes_error"]
    assert sums["bytes_total"] == sum(file.size for file in whole[victim].copy.files())


def test_a_copy_of_which_every_file_kills_is_given_up_file_by_file() -> None:
    task = next(task for task in tasks() if len(task.copy.files()) > 2)
    ((facts,),) = read_apart([with_crashing(task, "", "exit")], read_task)
    read = {error.file for error in facts.errors}
    assert {error.reason for error in facts.errors} == {"unreadable"}
    assert {segment.name for segment in task.copy.segments} <= read
    assert facts.sums["bytes_error"] == facts.sums["bytes_total"] - facts.sums["bytes_skipped"]


def test_what_kills_without_any_file_ends_with_an_error() -> None:
    task = replace(tasks()[0], copy=None)  # type: ignore[arg-type]
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


def headers_of(place: CrashingPlace) -> list[object]:
    """What the judge reads again of a long replica."""
    return list(SegmentHeaders(place, (("0.log", 0, 100),), DEFAULT_LIMITS).read(0, 0, None, 0))  # type: ignore[arg-type]


def test_a_file_that_kills_when_replicas_are_compared_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(bytes(100))
    place = CrashingPlace("", str(tmp_path), None, "0.log", "segfault", "")
    with Pool(1) as pool:
        ((_, found),) = pool.map([place], headers_of, reads=False)
    assert found == [DecodeError("0.log", 0, -1, "unreadable", "reading it ends the process: SIGSEGV")]
