"""Facts at rest: what was kept comes back as it was, and only where nothing of the input changed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from auditor import inline
from auditor.base.errors import AuditInputError
from auditor.connectors.stores.results import PARTIAL
from auditor.facts.packed import Packed, PackedRows, packed
from auditor.facts.replica_facts import PRODUCER, ReplicaFacts, blank_producers
from auditor.inline import KeptReplicas
from auditor.pipeline import plan, work_folder
from auditor.pipeline.runner import BRIEFS_AT_REST, FACTS_AT_REST, KeptFacts, kept, read_task, unpacked_facts
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
)
from auditor.replay.task import ReplicaTask
from tests import corpora
from tests.whole.test_split import same, tasks_below


def tasks_of(folder: Path) -> list[ReplicaTask]:
    return [task for task in tasks_below(folder) if is_kept(task)]


def read(tasks: list[ReplicaTask]) -> list[ReplicaFacts]:
    return [facts for task in tasks for facts in read_task(task)]


def rows_of(tasks: Sequence[AnyTask]) -> list[KeptFacts]:
    return [kept(facts) for task in tasks for facts in read_task(task)]


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
    work.keep(names, FACTS_AT_REST.pack(facts), names)
    there, left_alone = work.known()
    assert (there.keys(), left_alone) == ({*names}, {})
    for identity, before in zip(names, facts, strict=True):
        (after,) = unpacked_facts(work.facts(there[identity].file), [there[identity].row]) or ()
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
    work.keep(names, FACTS_AT_REST.pack([facts]), names)
    at = work.known().there[names[0]]
    found = unpacked_facts(work.facts(at.file), [at.row])
    assert found is not None
    assert found[0].resume_point == b""


def test_what_is_half_written_older_or_foreign_is_told_apart(
    work: WorkFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(corpora.unpack("hanging-36"))[:2]
    facts, names = read(tasks), identities(tasks)
    work.keep(names[:1], FACTS_AT_REST.pack([facts[0]]), names[:1])
    (whole,) = Path(work.text).glob(f"*{FACTS}")
    lengths = (0, 10, whole.stat().st_size // 2, whole.stat().st_size - 1)
    cut = [f"cut-{length}{FACTS}" for length in lengths]
    for name, length in zip(cut, lengths, strict=True):
        (whole.parent / name).write_bytes(whole.read_bytes()[:length])
    (whole.parent / f"foreign{FACTS}").write_bytes(pickle.dumps(facts[0]))
    with monkeypatch.context() as older:
        older.setattr(work_folder, "SCHEMA", work_folder.SCHEMA.with_metadata(work_folder.META | {b"form": b"0"}))
        work.keep(names[1:], FACTS_AT_REST.pack([facts[1]]), names[1:])
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
        "--work has 2 files left alone, no audit's",
    ]
    assert "facts of 1 partition copy that are of no use here" in said[3]
    assert len(known.notes(names[:1])) == 3


def write(work: WorkFolder, names: list[bytes], facts: bytes) -> None:
    """A file as audits write them, with these bytes for the facts."""
    table = pa.table([[names], [facts]], schema=work_folder.SCHEMA)
    with pa.OSFile(f"{work.text}/made{FACTS}", "wb") as out, pa.ipc.new_file(out, work_folder.SCHEMA) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    "facts", [b"", b"[1]", pickle.dumps([]), FACTS_AT_REST.pack([]), BRIEFS_AT_REST.pack([]), b"\xff" * 64]
)
def test_no_other_bytes_are_taken_for_facts(work: WorkFolder, facts: bytes) -> None:
    write(work, [b"x" * 32], facts)
    assert work.known().there.keys() == {b"x" * 32}
    assert unpacked_facts(work.facts(f"made{FACTS}"), [0]) is None
    assert work.facts(f"gone{FACTS}") is None
    assert unpacked_facts(None, [0]) is None


def test_a_damaged_column_is_found_before_a_rule_reads_it() -> None:
    """It is compressed by itself, so that its bytes are opened only where a rule wants them."""
    facts = ReplicaFacts(None, None, "d", "t", 0, producers=PackedRows(PRODUCER, [blank_producers(3)]))
    for data in (packed(np.array([1, 900, 3])).data, b"no compressed bytes"):
        facts.producers.columns["batches"] = [Packed(3, 1, -897, 2, True, "lz4_raw", data)]  # type: ignore[union-attr]
        assert (unpacked_facts(FACTS_AT_REST.pack([facts]), [0]) is None) == (data == b"no compressed bytes")
    facts.producers.columns["batches"] = [Packed(3, 1, 0, 1 << 40, True, "zstd", b"")]  # type: ignore[union-attr]
    assert unpacked_facts(FACTS_AT_REST.pack([facts]), [0]) is None


def test_what_is_damaged_is_read_anew(work: WorkFolder) -> None:
    """Rows under a sound header that are no facts, and beside them a file of sound ones."""
    tasks = tasks_of(corpora.unpack("hanging-36"))
    names, facts = identities(tasks), read(tasks)
    work.keep(names[:1], FACTS_AT_REST.pack([facts[0]]), names[:1])
    write(work, names[1:], FACTS_AT_REST.pack(facts[1:])[:-1])
    assert work.known().there.keys() == {*names}
    asked: list[AnyTask] = []

    def read_others(given: list[AnyTask]) -> KeptReplicas:
        asked.extend(given)
        return KeptReplicas(lambda: rows_of(given))

    notes: list[str] = []
    found = sorted(row[:4] for row in inline.read([*tasks], work, read_others, notes).rows())
    assert found == sorted(row[:4] for row in rows_of(tasks))
    assert asked == tasks[1:]
    assert notes == [f"--work has 1 file left alone, {HALF}: made{FACTS}; what would have been there was read"]


def test_a_note_says_that_a_reader_ended_early(work: WorkFolder) -> None:
    names = [b"a" * 32, b"b" * 32]
    assert [work.begins(names), work.begins(names), work.begins(names[:1])] == [False, True, False]
    work.ended(names)
    work.ended(names)
    assert not work.begins(names)


def test_the_key_outlives_a_run_and_a_wrong_one_is_said(work: WorkFolder, tmp_path: Path) -> None:
    assert WorkFolder(work.text).key() == work.key() != plan.KEY
    Path(work.text, "key").write_bytes(b"something else, which is longer")
    with pytest.raises(AuditInputError, match="no audit left there"):
        work.key()
    shutil.rmtree(work.text)
    Path(work.text).write_text("a file")
    with pytest.raises(AuditInputError, match="choose another --work"):
        work.key()
