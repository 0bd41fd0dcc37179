"""Resume points in a work folder: what was read of a growing log is not read again, and no point changes a result."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

from auditor import cli
from auditor.facts.arrow_codec import DamagedFacts
from auditor.pipeline.work_folder import WorkFolder
from auditor.replay.reading import replica_reader
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import POINT, KeptPoints, ReplicaTask
from tests import corpora, segments
from tests.forge import snapshot
from tests.whole.test_resume_inside import Growing
from tests.whole.test_resume_point import SEGMENTS, places_read, tasks_below
from tests.whole.test_split import same

KEY = bytes(range(16))


@pytest.fixture(autouse=True)
def every_replica_leaves_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reader, "FROM_BYTES", 1)
    monkeypatch.setattr(replica_reader, "BYTES_A_PRODUCER", 0)


class Log:
    """A partition of three segments, of which the last one is not there yet."""

    def __init__(self, root: Path) -> None:
        task = next(t for t in tasks_below(corpora.unpack(SEGMENTS), records=False) if len(t.replica.segments) == 3)
        self.source = Path(task.place.path) / task.replica.folder
        self.folder = root / "broker-1" / task.replica.folder
        shutil.copytree(self.source, self.folder)
        (self.folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")  # nothing was cleaned
        self.logs = sorted(self.folder.glob("*.log"))
        for file in self.folder.iterdir():
            if file.stem >= self.logs[2].stem and file.stem.isdigit():
                file.unlink()
        self.points = KeptPoints(str(root / "work"), KEY)

    def task(self) -> ReplicaTask:
        (task,) = tasks_below(self.folder.parent, records=False, least=1)
        return replace(task, leaves_resume_point=False, points=self.points)

    def roll(self) -> None:
        for file in self.source.glob(self.logs[2].stem + ".*"):
            shutil.copyfile(file, self.folder / file.name)

    def rewrite(self, number: int, at: int) -> None:
        """Another file with other bytes, of the same size and time, as a cleaner leaves one."""
        file = self.logs[number]
        data, status = bytearray(file.read_bytes()), file.stat()
        data[at] ^= 1
        new = file.with_suffix(".new")
        new.write_bytes(data)
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        new.replace(file)


def check(task: ReplicaTask) -> list[tuple[int, int]]:
    """What it reads, and that its facts are those of a reading of all."""
    places = places_read(task)
    assert same(read_replica(task), read_replica(replace(task, points=None)))
    return places


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ("roll", 1),
        ("snapshot", 1),
        ("rewritten active segment", 1),
        ("truncation", 1),
        ("retention", 0),
        ("compaction", 0),
        ("log start", 0),
    ],
)
def test_only_what_rests_on_the_same_files_is_skipped(change: str, begins: int, tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert check(log.task())[0] == (0, 0)
    assert len(list((tmp_path / "work").glob(f"*{POINT}"))) in (1, 2)
    first, active = log.logs[0], log.logs[1]
    if change == "roll":
        log.roll()
    elif change == "snapshot":
        (log.folder / f"{int(log.logs[2].stem):020}.snapshot").write_bytes(snapshot([]))
    elif change == "rewritten active segment":
        log.rewrite(1, 30)
    elif change == "truncation":
        active.write_bytes(active.read_bytes()[: active.stat().st_size // 2])
    elif change == "retention":
        for file in log.folder.glob(first.stem + ".*"):
            file.unlink()
    elif change == "compaction":
        log.rewrite(0, 30)
    else:
        (log.folder.parent / "log-start-offset-checkpoint").write_text(
            f"0\n1\n{log.folder.name.rpartition('-')[0]} {log.folder.name.rpartition('-')[2]} 3\n"
        )
    assert check(log.task())[0][0] == begins


def test_a_reading_goes_on_inside_the_active_segment(tmp_path: Path) -> None:
    log = Growing("healthy-41/shop.plain-0", tmp_path)
    points = KeptPoints(str(tmp_path / "work"), KEY)
    random, ends = Random(57), [len(log.bytes)]
    ends = [*sorted(random.sample(range(1, len(log.bytes)), 12)), *ends]
    indexed = [struct.unpack(">ii", entry)[1] for entry in log.entries]
    for before, size in zip([0, *ends], ends, strict=False):
        log.grow(size)
        task = replace(log.task(), leaves_resume_point=False, points=points)
        stood = max((at for at in indexed if at < before), default=0)
        assert check(task)[-1] == (len(task.replica.segments) - 1, stood)
    data, new = log.log.read_bytes(), log.log.with_suffix(".new")
    new.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])  # a batch that was read before
    new.replace(log.log)
    assert check(task)[-1][1] == 0


def test_a_point_without_proof_is_refused(tmp_path: Path) -> None:
    """Whatever the bytes: they are read only where they were made with the folder's key, under that name."""
    log = Log(tmp_path)
    read_replica(log.task())
    files = sorted((tmp_path / "work").glob(f"*{POINT}"))
    contents, random = [file.read_bytes() for file in files], Random(56)
    assert check(log.task())[0][0] == 1
    for _ in range(100):
        for file, content in zip(files, contents, strict=True):
            data = bytearray(content)
            at = random.randrange(len(data))
            if random.random() < 0.5:
                data[at] ^= 1 << random.randrange(8)
            else:
                del data[at:]
            file.write_bytes(data)
        assert places_read(replace(log.task(), points=log.points))[0] == (0, 0)
        for file in files:
            assert file.exists()
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    other = replace(log.task(), points=KeptPoints(log.points.folder, bytes(16)))
    assert places_read(other)[0] == (0, 0)


def test_points_of_one_partition_are_none_of_another(tmp_path: Path) -> None:
    log = Log(tmp_path)
    read_replica(log.task())
    before = sorted((tmp_path / "work").glob(f"*{POINT}"))
    shutil.copytree(log.folder, log.folder.with_name("other-0"))
    tasks = tasks_below(log.folder.parent, records=False, least=1)
    other = next(task for task in tasks if task.replica.topic == "other")
    read_replica(replace(other, leaves_resume_point=False, points=log.points))
    after = sorted(set((tmp_path / "work").glob(f"*{POINT}")) - {*before})
    assert len(after) == len(before)
    for mine, theirs in zip(before, after, strict=True):
        shutil.copyfile(mine, theirs)
    assert check(replace(other, leaves_resume_point=False, points=log.points))[0] == (0, 0)


def test_bytes_that_no_reading_left_are_damaged_facts(tmp_path: Path) -> None:
    """Also behind a proof: who has the folder's key can prove any bytes, but they are no program."""
    log = Log(tmp_path)
    read_replica(log.task())
    (file, *_) = (tmp_path / "work").glob(f"*{POINT}")
    content, random = file.read_bytes()[replica_reader.PROOF_BYTES :], Random(5)
    damaged = 0
    for _ in range(200):
        data = bytearray(content)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        try:
            (point,) = replica_reader.POINTS.unpack(bytes(data))
            assert isinstance(point, replica_reader.ResumePoint)
        except DamagedFacts:
            damaged += 1
    assert damaged
    wrong = pickle.dumps(print)
    file.write_bytes(replica_reader._proof(log.points, file.name, wrong) + wrong)
    assert check(log.task())


def test_an_audit_of_a_grown_directory_says_what_one_of_all_does(tmp_path: Path) -> None:
    """A partition large enough for points, which grows by a segment, and is cut at its start."""
    folder, work = tmp_path / "broker-1" / "large-0", tmp_path / "work"
    folder.mkdir(parents=True)
    (folder.parent / "cleaner-offset-checkpoint").write_text("0\n0\n")

    def write(first: int) -> None:
        batches = [segments.simple(first + 3 * k, value=bytes(100_000)) for k in range(60)]
        (folder / f"{first:020}.log").write_bytes(b"".join(batches))

    def findings(*more: str) -> str:
        out = tmp_path / "out"
        cli.main(["audit", str(folder.parent), "--out", str(out), "--master", "inline[1]", "--quiet", *more])
        text = (out / "findings.jsonl").read_text(encoding="utf-8")
        shutil.rmtree(out)
        return text

    write(0)
    write(180)
    points = []
    for change in (lambda: None, partial(write, 366), (folder / f"{0:020}.log").unlink):
        change()
        assert findings("--work", str(work)) == findings()
        points.append({file.name: file.read_bytes() for file in work.glob(f"*{POINT}")})
        assert not WorkFolder(str(work)).known().left_alone
    assert [len(some) for some in points] == [1, 1, 1]
    assert points[0] != points[1] != points[2]
