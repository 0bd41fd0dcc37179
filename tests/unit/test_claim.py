"""A folder for results: one run at a time, nothing of an earlier one, all at once, and never in a log directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from auditor import running
from auditor.base.errors import AuditFailure, AuditInputError
from auditor.cli import main
from auditor.connectors.stores.results import ResultFolder
from auditor.outputs import publish, runs
from auditor.outputs.delivery import FAILURE, RESULTS, claimed
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import here

CORPUS = "unknown-producer-41"


def audit_into(out: Path, path: Path | None = None) -> Audit:
    return Audit(AuditOptions((str(path or corpora.unpack(CORPUS)),), out), here())


def test_an_earlier_run_goes_by_its_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "old.parquet").touch()
    for name in ("report.html", "failure.log", "mine.txt", "watch.jsonl"):
        (tmp_path / name).touch()
    with claimed(tmp_path) as folder:
        assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", ".unfinished", "mine.txt", "watch.jsonl"]
        (folder / "summary.json").write_text("{}")
        assert not (tmp_path / "summary.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "mine.txt", "summary.json", "watch.jsonl"]


def test_what_raises_leaves_nothing(tmp_path: Path) -> None:
    def half_done(out: Path) -> None:
        with claimed(out) as folder:
            (folder / "report.html").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half_done(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_a_second_run_at_a_time_is_a_mistake(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(AuditInputError, match="another run is writing to"), claimed(tmp_path):
        pass
    with claimed(tmp_path):
        assert main(["audit", str(corpora.unpack(CORPUS)), "--out", str(tmp_path), "--master", "inline[1]"]) == 2


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("through", ["directly", "link", "link within", "history"])
def test_nothing_is_written_into_a_log_directory(tmp_path: Path, meta: bool, through: str) -> None:
    folder = corpora.copy(CORPUS, tmp_path / "evidence")
    broker = next(folder.glob("broker-*"))
    if not meta:
        (broker / "meta.properties").unlink()
    before = {str(p): p.lstat().st_mtime_ns for p in [folder, *folder.rglob("*")]}
    out = broker / "out"
    history = None
    if through == "link":
        out = tmp_path / "elsewhere"
        out.symlink_to(broker)
    if through == "link within":
        (tmp_path / "elsewhere").symlink_to(broker)
        out = tmp_path / "elsewhere" / "out"
    if through == "history":
        out, history = tmp_path / "out", broker / "history"
    options = AuditOptions((str(folder),), out, history=history, run_id="r" if history else None)
    with pytest.raises(AuditInputError, match="outside it"):
        running.write(Audit(options, here()))
    assert {str(p): p.lstat().st_mtime_ns for p in [folder, *folder.rglob("*")]} == before


def test_links_under_out_are_taken_away_and_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "00000000000000000000.log").write_bytes(b"evidence")
    out = tmp_path / "out"
    out.mkdir()
    for name in (*RESULTS, ".unfinished"):
        (out / name).symlink_to(precious)
    running.write(audit_into(out))
    assert [p.name for p in precious.iterdir()] == ["00000000000000000000.log"]
    assert not any(p.is_symlink() for p in out.iterdir())
    (out / ".lock").unlink()
    (out / ".lock").symlink_to(precious / "lock")
    with pytest.raises(AuditInputError, match="cannot write"):
        running.write(audit_into(out))
    assert not (precious / "lock").exists()


def test_links_in_the_history_are_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "kept.parquet").write_bytes(b"evidence")
    run = tmp_path / "history" / runs.name_of("r")
    run.mkdir(parents=True)
    for name in ("findings", "logs", "notes"):
        (run / name).symlink_to(precious)
    table = pa.table({"n": [1]})
    runs.publish(tmp_path / "history", "r", {"findings": table, "logs": table}, {})
    assert [(p.name, p.read_bytes()) for p in precious.iterdir()] == [("kept.parquet", b"evidence")]


@pytest.mark.parametrize("name", ["watch.jsonl", "findings.jsonl.part"])
def test_links_under_the_out_of_a_watch_are_never_followed(tmp_path: Path, name: str) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_bytes(b"evidence")
    out.mkdir()
    (out / name).symlink_to(precious)
    call = ["watch", str(corpora.unpack(CORPUS)), "--out", str(out), "--master", "inline[1]", "--quiet"]
    assert main([*call, "--until-idle", "0"]) in (0, 1)
    assert precious.read_bytes() == b"evidence"
    assert (out / "watch.jsonl").stat().st_size > 0


def test_results_that_cannot_be_moved_are_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(to: ResultFolder, path: Path) -> None:
        if path.name == "report.html":
            raise PermissionError(13, "Permission denied")
        take(to, path)

    take = ResultFolder.take
    monkeypatch.setattr(ResultFolder, "take", refused)
    with pytest.raises(AuditFailure, match=r"Permission denied; they are complete in .*/\.unfinished$"):
        running.write(audit_into(tmp_path))
    assert not (tmp_path / "summary.json").exists()
    assert (tmp_path / ".unfinished" / "summary.json").exists()
    monkeypatch.undo()
    running.write(audit_into(tmp_path))
    assert (tmp_path / "summary.json").exists()
    assert not (tmp_path / ".unfinished").exists()


def test_a_full_disk_is_a_failure_with_its_log_and_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running.write(audit_into(tmp_path))
    assert (tmp_path / "summary.json").exists()

    def full(to: ResultFolder, name: str, text: str | Iterable[str]) -> None:
        if name == FAILURE:  # there is room for it again
            assert not [*(tmp_path / ".unfinished").iterdir()]
            put_text(to, name, text)
            return
        with open("/dev/full", "w") as f:
            f.writelines(text)

    put_text = ResultFolder.put_text
    monkeypatch.setattr(ResultFolder, "put_text", full)
    with pytest.raises(AuditFailure, match="No space left on device; free space") as failed:
        running.write(audit_into(tmp_path))
    assert "\n" not in str(failed.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "failure.log"]
    assert "Traceback" in (tmp_path / "failure.log").read_text()
    monkeypatch.undo()
    running.write(audit_into(tmp_path))
    assert not (tmp_path / "failure.log").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount a disk can fill one")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    with pytest.raises(AuditFailure, match="No space left on device; free space"):
        running.write(audit_into(small_disk / "out"))
    assert sorted(p.name for p in (small_disk / "out").iterdir()) == [".lock", "failure.log"]


@pytest.mark.parametrize("error", [MemoryError(), ValueError("a bug\nof two lines")])
def test_whatever_goes_wrong_ends_with_4_and_one_sentence(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(publish, "_summarise", fails)
    call = ["audit", str(corpora.unpack(CORPUS)), "--out", str(tmp_path), "--master", "inline[1]", "--quiet"]
    assert main(call) == 4
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert type(error).__name__ in said
    assert sorted(os.listdir(tmp_path)) == [".lock", "failure.log"]


def test_ctrl_c_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(publish, "_summarise", interrupted)
    call = ["audit", str(corpora.unpack(CORPUS)), "--out", str(tmp_path), "--master", "inline[1]", "--quiet"]
    assert main(call) == 130
    assert os.listdir(tmp_path) == [".lock"]
