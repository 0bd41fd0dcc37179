"""Facts at rest: what was kept comes back as it was, and only where nothing of the input changed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.stores.results import PARTIAL
from auditor.facts.packed import Packed, PackedRows, packed
from auditor.facts.replica_facts import PRODUCER, ReplicaFacts, blank_producers, log_of
from auditor.inline import FactsHere
from auditor.pipeline import plan, work_folder
from auditor.pipeline.runner import BRIEFS_AT_REST, PackedFacts, Replicas, briefs_of, read_all, read_list, read_task
from auditor.pipeline.work_folder import (
    BEGUN,
    FACTS,
    FOREIGN,
    HALF,
    OLDER,
    AnyTask,
    WorkFolder,
    identities,
    is_kept,
    kept_tasks,
)
from auditor.replay.reading.chunks import FACTS_AT_REST
from auditor.replay.task import KeptTask, ReplicaTask
from tests import corpora
from tests.whole.test_split import same, tasks_below


def tasks_of(folder: Path) -> list[ReplicaTask]:
    return [task for task in tasks_below(folder) if is_kept(task)]


def read(tasks: list[ReplicaTask]) -> list[ReplicaFacts]:
    return [facts for task in tasks for facts in read_task(task)]


@pytest.fixture
def work(tmp_path: Path) -> WorkFolder:
    made = WorkFolder(str(tmp_path / "work"))
    made.key()
    return made


@pytest.mark.parametrize("name", ["altered-41", "replicas-41", "hanging-36"])
def test_what_was_kept_comes_back_as_it_was(work: WorkFolder, name: str) -> None:
    """Every field of every replica: rows, packed columns, sums, errors."""
    tasks = tasks_of(corpora.unpack(name))
    facts, names = read(tasks), identities(tasks)
    work.keep(list(zip(names, facts, strict=True)), names)
    there, left_alone = work.known()
    assert (there.keys(), left_alone) == ({*names}, {})
    for identity, before in zip(names, facts, strict=True):
        (after,) = work.facts(there[identity].file, [there[identity].row]) or ()
        assert same(after, before)
        assert after.rank == before.rank


def test_a_file_that_changed_is_another_input(tmp_path: Path) -> None:
    folder = corpora.copy("hanging-36", tmp_path / "logs")
    tasks = tasks_of(folder)
    names = identities(tasks)
    assert len({*names}) == len(tasks) > 1
    assert identities(tasks_of(folder)) == names
    segment = tasks[0].replica.segments[0]
    path = Path(tasks[0].place.path) / segment.name
    os.utime(path, ns=(1, 1))
    changed = identities(tasks_of(folder))
    assert [a == b for a, b in zip(names, changed, strict=True)] == [False] + [True] * (len(tasks) - 1)
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(content)  # as a cleaner does, which gives what it rewrites the old time
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert identities(tasks_of(folder))[0] != changed[0]
    assert identities([replace(tasks[1], records=not tasks[1].records)]) != names[1:2]


def test_a_resume_point_from_a_file_is_dropped(work: WorkFolder) -> None:
    """It is a pickle for the next reading of the replica, and others may have written the file."""
    tasks = tasks_of(corpora.unpack("hanging-36"))[:1]
    names = identities(tasks)
    facts = replace(read(tasks)[0], resume_point=pickle.dumps("x"))
    work.keep([(names[0], facts)], names)
    at = work.known().there[names[0]]
    found = work.facts(at.file, [at.row])
    assert found is not None
    assert found[0].resume_point == b""


def test_what_is_half_written_older_or_foreign_is_told_apart(
    work: WorkFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(corpora.unpack("hanging-36"))[:2]
    facts, names = read(tasks), identities(tasks)
    work.keep([(names[0], facts[0])], names[:1])
    (whole,) = Path(work.text).glob(f"*{FACTS}")
    lengths = (0, 10, whole.stat().st_size // 2, whole.stat().st_size - 1)
    cut = [f"cut-{length}{FACTS}" for length in lengths]
    for name, length in zip(cut, lengths, strict=True):
        (whole.parent / name).write_bytes(whole.read_bytes()[:length])
    (whole.parent / f"foreign{FACTS}").write_bytes(pickle.dumps(facts[0]))
    with monkeypatch.context() as older:
        older.setattr(work_folder, "SCHEMA", work_folder.SCHEMA.with_metadata(work_folder.META | {b"form": b"0"}))
        work.keep([(names[1], facts[1])], names[1:])
    (older,) = {path.name for path in Path(work.text).glob(f"*{FACTS}")} - {whole.name, f"foreign{FACTS}", *cut}
    (whole.parent / "notes.txt").write_text("mine")
    (whole.parent / f"{PARTIAL}killed{FACTS}").write_bytes(whole.read_bytes())
    (whole.parent / f"another{BEGUN}").write_bytes(b"begun")
    with (
        pa.OSFile(str(whole.parent / f"table{FACTS}"), "wb") as out,
        pa.ipc.new_file(out, pa.schema([("n", pa.int32())])),
    ):
        pass
    known = work.known()
    assert known.there == {names[0]: (whole.name, 0)}
    halves = dict.fromkeys([*cut, f"foreign{FACTS}", f"{PARTIAL}killed{FACTS}"], HALF)
    assert known.left_alone == halves | {older: OLDER, "notes.txt": FOREIGN, f"table{FACTS}": FOREIGN}
    said = known.notes([names[1]])
    assert [note.partition(":")[0] for note in said[:3]] == [
        "--work has 6 files left alone, half-written or damaged",
        "--work has 1 file left alone, of another release",
        "--work has 2 files left alone, not of an audit",
    ]
    assert "facts of 1 partition copy that are of no use here" in said[3]
    assert len(known.notes(names[:1])) == 3


def write(path: str, names: list[bytes], facts: bytes) -> None:
    """A file as audits write them, with these bytes for the facts."""
    table = pa.table([[names], [facts]], schema=work_folder.SCHEMA)
    with pa.OSFile(path, "wb") as out, pa.ipc.new_file(out, work_folder.SCHEMA) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    "facts", [b"", b"[1]", pickle.dumps([]), FACTS_AT_REST.pack([]), BRIEFS_AT_REST.pack([]), b"\xff" * 64]
)
def test_no_other_bytes_are_taken_for_facts(work: WorkFolder, facts: bytes) -> None:
    write(f"{work.text}/made{FACTS}", [b"x" * 32], facts)
    assert work.known().there.keys() == {b"x" * 32}
    assert work.facts(f"made{FACTS}", [0]) is None
    assert work.facts(f"gone{FACTS}", [0]) is None


def test_a_damaged_column_is_found_before_a_rule_reads_it(work: WorkFolder) -> None:
    """It is compressed by itself, so that its bytes are opened only where a rule wants them."""
    rows = PackedRows(PRODUCER, [blank_producers(3)])
    sound = Packed(3, 1, -897, 2, True, "lz4_raw", packed(np.array([1, 900, 3])).data)
    for column, is_sound in (
        (sound, True),
        (sound._replace(data=b"no compressed bytes"), False),
        (sound._replace(width=1 << 40), False),
    ):
        rows.columns["batches"] = [column]
        facts = FACTS_AT_REST.pack([ReplicaFacts(None, None, "d", "t", 0, producers=rows)])
        write(f"{work.text}/made{FACTS}", [b"x" * 32], facts)
        assert (work.facts(f"made{FACTS}", [0]) is not None) == is_sound


def test_what_is_damaged_is_read_anew(work: WorkFolder) -> None:
    """Rows under a sound header that are no facts, and beside them a file of sound ones."""
    tasks = tasks_of(corpora.unpack("hanging-36"))
    names, facts = identities(tasks), read(tasks)
    work.keep([(names[0], facts[0])], names[:1])
    write(f"{work.text}/made{FACTS}", names[1:], FACTS_AT_REST.pack(facts[1:])[:-1])
    assert work.known().there.keys() == {*names}
    asked: list[AnyTask] = []

    def each(given: Sequence[AnyTask], died: bool) -> Iterator[ReplicaFacts]:
        assert not died
        asked.extend(given)
        return read_all(given)

    notes: list[str] = []
    packed = read_list(kept_tasks(tasks, work, notes), work, each)
    assert notes == []
    found = Replicas(FactsHere(lambda: [packed]), notes).briefs()
    assert sorted((*log_of(one), one.log_dir) for one in found) == sorted((*log_of(one), one.log_dir) for one in facts)
    assert asked == tasks[1:]
    assert notes == [f"--work has 1 file left alone, {HALF}: made{FACTS}; what would have been there was read"]


def kept_list(work: WorkFolder) -> tuple[list[ReplicaTask], list[bytes], list[KeptTask]]:
    """Some tasks, their identities, and the list of them."""
    tasks = tasks_of(corpora.unpack("hanging-36"))
    return tasks, identities(tasks), [item for item in kept_tasks(tasks, work, []) if isinstance(item, KeptTask)]


def test_a_list_is_read_once(work: WorkFolder) -> None:
    """What an attempt kept of it is not read by the next one, nor by a later audit."""
    tasks, names, items = kept_list(work)
    first = read_list(items, work, lambda given, _: read_all(given))
    assert set(work.known().there) == {*names}
    assert not list(Path(work.text).glob(f"*{BEGUN}"))
    never = lambda given, _: iter([] if not given else pytest.fail("is read again"))  # noqa: E731
    later = kept_tasks(tasks, work, [])
    assert all(isinstance(item, KeptTask) and item.at for item in later)
    for again in (read_list(items, work, never), read_list(later, work, never)):
        assert same_names(again, first)


def same_names(one: PackedFacts, other: PackedFacts) -> bool:
    found, expected = (briefs_of(some.briefs).briefs for some in (one, other))
    return [(*log_of(b), b.log_dir, b.bounds) for b in found] == [(*log_of(b), b.log_dir, b.bounds) for b in expected]


def test_a_folder_that_only_the_driver_sees_keeps_nothing_and_loses_nothing(work: WorkFolder, tmp_path: Path) -> None:
    """As on a machine that does not share it: every partition is in the result, and a note says why none was kept."""
    _, names, items = kept_list(work)
    elsewhere = WorkFolder(str(tmp_path / "of this machine alone"))
    found = read_list(items, elsewhere, lambda given, _: read_all(given))
    assert len(briefs_of(found.briefs).briefs) == len(names)
    assert not Path(elsewhere.text).exists()
    replicas = Replicas(FactsHere(lambda: [found]))
    assert len(replicas.briefs()) == len(names)
    (note,) = replicas.notes
    assert note.startswith("--work does not exist where partitions are read: nothing was cached")


def test_what_another_attempt_left_damaged_is_read(work: WorkFolder) -> None:
    _, names, items = kept_list(work)
    write(f"{work.text}/{work_folder._name(names)}{FACTS}", names, b"[1]")
    found = read_list(items, work, lambda given, _: read_all(given))
    assert len(briefs_of(found.briefs).briefs) == len(names)


def test_a_list_that_ended_early_is_read_with_care(work: WorkFolder) -> None:
    """The note of the attempt before is there, and goes once the list is read."""
    _, names, items = kept_list(work)
    work.begins(names)
    told: list[bool] = []

    def each(given: Sequence[AnyTask], died: bool) -> Iterator[ReplicaFacts]:
        if given:
            told.append(died)
        return read_all(given)

    read_list(items, work, each)
    assert told == [True]
    assert not work.begins(names)


def test_a_note_says_that_a_reader_ended_early(work: WorkFolder) -> None:
    names = [b"a" * 32, b"b" * 32]
    assert [work.begins(names), work.begins(names), work.begins(names[:1])] == [False, True, False]
    work.ended(names)
    work.ended(names)
    assert not work.begins(names)


def test_the_key_outlives_a_run_and_a_wrong_one_is_said(work: WorkFolder, tmp_path: Path) -> None:
    assert WorkFolder(work.text).key() == work.key() != plan.KEY
    Path(work.text, "key").write_bytes(b"something else, which is longer")
    with pytest.raises(AuditInputError, match="that no audit wrote"):
        work.key()
    shutil.rmtree(work.text)
    Path(work.text).write_text("a file")
    with pytest.raises(AuditInputError, match="choose another --work"):
        work.key()
