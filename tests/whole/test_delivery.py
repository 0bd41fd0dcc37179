"""``--out`` as a URI: what a run leaves in a store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from auditor.base.errors import AuditFailure, AuditInputError
from auditor.cli import main
from auditor.connectors.logdir.files import DataFile, Inventory, LogDir, RemoteFiles, RemoteFolder
from auditor.connectors.stores import results
from auditor.connectors.stores.storage import StorageLocation
from auditor.outputs import publish
from auditor.outputs.delivery import RUNNING, claimed
from auditor.pipeline.options import AuditOptions, out_of
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.audited import published

NAME = "hanging-36"
OUT = "memory://audits/tonight"


@pytest.fixture
def store() -> Iterator[Any]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.rm("/", recursive=True)


def options(out: Path | str, *paths: str) -> AuditOptions:
    return AuditOptions(paths or (str(corpora.unpack(NAME)),), out, as_of=corpora.manifest(NAME)["copied_at"])


def files_of(store: Any) -> dict[str, bytes]:
    return {name.removeprefix("/audits/tonight/"): store.cat(name) for name in store.find("/audits/tonight")}


def test_a_store_gets_what_a_folder_gets(store: Any, tmp_path: Path) -> None:
    published(options(tmp_path))
    store.pipe(
        {
            "/audits/tonight/tables/batches/old.parquet": b"old",
            "/audits/tonight/notes.txt": b"mine",
            "/audits/tonight/summary.json": b"{}",
        }
    )
    published(options(out_of(OUT)))
    found = files_of(store)
    local = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"}
    assert set(found) == local | {"notes.txt"}, "results of an earlier run go, and nothing else"
    assert found["findings.jsonl"] == (tmp_path / "findings.jsonl").read_bytes()
    assert b"hanging-transaction" in found["findings.jsonl"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("the driver's own")])
def test_the_summary_comes_last(error: Exception, store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the store breaks off there is none, and the message says where all results are; the next run goes well."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store.pipe({"/audits/tonight/summary.json": b"{}", "/audits/tonight/findings.jsonl": b""})
    with monkeypatch.context() as broken:
        _refuse(broken, "report.html", error)
        with pytest.raises(AuditFailure, match=r"cannot copy results to memory://audits/tonight: ") as failed:
            published(options(OUT))
    (kept,) = tmp_path.glob("auditor-out-*")
    assert str(kept) in str(failed.value)
    assert (kept / "summary.json").exists()
    left = files_of(store)
    assert "findings.jsonl" in left
    assert "summary.json" not in left
    published(options(OUT))
    assert "summary.json" in files_of(store)


def _refuse(monkeypatch: pytest.MonkeyPatch, part: str, error: Exception) -> None:
    """Lets the store refuse to write objects with that in their names."""
    written = MemoryFileSystem._open

    def refuses(self: MemoryFileSystem, path: str, mode: str = "rb", **more: Any) -> Any:
        if "w" in mode and part in path:
            raise error
        return written(self, path, mode=mode, **more)

    monkeypatch.setattr(MemoryFileSystem, "_open", refuses)


def test_of_two_runs_into_one_uri_the_second_is_refused(
    store: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the first one wrote is whole, and nothing is left of the second, nor of a run that was killed."""
    monkeypatch.setattr(results, "RENEW_S", 0.05)
    monkeypatch.setattr(results, "WATCHED_S", 2.0)
    words = ["audit", str(corpora.unpack(NAME)), "--out", OUT, "--quiet", "--master", "inline"]
    with claimed(OUT, None) as folder:
        (folder / "findings.jsonl").write_text("of the first")
        assert main(words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(f"another run is writing to {OUT}; wait until it ends or choose another --out")
    assert files_of(store) == {"findings.jsonl": b"of the first"}
    store.pipe(f"/audits/tonight/{RUNNING}of-the-killed", b"7")
    assert main(words) == 1
    assert b"hanging-transaction" in files_of(store)["findings.jsonl"]
    assert not [name for name in files_of(store) if name.startswith(RUNNING)]


def test_nothing_is_taken_away_by_a_call_that_is_a_mistake(store: Any, tmp_path: Path) -> None:
    store.pipe({"/audits/tonight/summary.json": b"{}", "/audits/tonight/tables/x/0.parquet": b"old"})
    before = files_of(store)
    call = ["audit", str(corpora.unpack(NAME)), "--out", OUT, "--master", "inline[1]", "--quiet"]
    assert main([*call, "--partition", "nosuch-1"]) == 2
    assert files_of(store) == before


@pytest.mark.parametrize("ours", [False, True])
def test_folders_of_other_owners_are_spared(ours: bool, store: Any) -> None:
    found = {"/audits/tonight/tables/customers/1.parquet": b"a", "/audits/tonight/findings/research.doc": b"b"}
    store.pipe(found | ({"/audits/tonight/failure.log": b""} if ours else {}))
    if ours:
        published(options(OUT))
        assert not set(files_of(store)) & {"tables/customers/1.parquet", "findings/research.doc", "failure.log"}
        return
    with pytest.raises(
        AuditInputError, match="holds findings, tables, which are not results of an audit; choose another"
    ):
        published(options(OUT))
    assert {name: store.cat(name) for name in store.find("/")} == found


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RuntimeError("x"), NotImplementedError()])
def test_a_store_that_refuses_is_found_out_before_the_audit(
    error: Exception, store: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _refuse(monkeypatch, ".auditor-", error)
    monkeypatch.setattr(publish, "publish", None)
    assert main(["audit", str(corpora.unpack(NAME)), "--out", OUT, "--master", "inline[1]", "--quiet"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("auditor: cannot write to memory://audits/tonight: ")
    assert said.count("\n") == 1


def test_the_trace_of_a_failure_goes_to_the_store(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(publish, "_summarise", fails)
    store.pipe({"/audits/tonight/summary.json": b"{}"})
    assert main(["audit", str(corpora.unpack(NAME)), "--out", OUT, "--master", "inline[1]", "--quiet"]) == 4
    assert [*files_of(store)] == ["failure.log"]
    assert b"MemoryError" in files_of(store)["failure.log"]
    assert capfd.readouterr().err.endswith(f"/failure.log, and in {OUT}/failure.log\n")


def test_a_failure_without_a_trace_names_none(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Audit, folder: Path) -> None:
        (folder / "report.html").touch()
        raise AuditFailure("no room for --history")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(publish, "publish", fails)
    with pytest.raises(AuditFailure, match=r"^no room for --history$"):
        published(options(OUT))
    assert not [*tmp_path.glob("auditor-out-*")]
    assert not files_of(store)


def test_ctrl_c_leaves_nothing_here(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(publish, "_summarise", interrupted)
    assert main(["audit", str(corpora.unpack(NAME)), "--out", OUT, "--master", "inline[1]", "--quiet"]) == 130
    assert not [*tmp_path.glob("auditor-out-*")]
    assert not files_of(store)


def test_a_store_within_the_input_is_refused(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store.put(str(corpora.unpack(NAME)), "/copies", recursive=True)
    log_dir = next(iter(sorted(store.ls("/copies", detail=False)))).lstrip("/")
    before = store.find("/copies")
    for out in (f"memory://{log_dir}", f"memory://{log_dir}/audits"):
        with pytest.raises(AuditInputError, match="is in the log directory"):
            published(options(out, "memory://copies"))
    assert store.find("/copies") == before
    assert not [*tmp_path.glob("auditor-out-*")]


def test_a_store_that_cannot_be_written_to_is_a_mistake() -> None:
    with pytest.raises(AuditInputError, match="nothing-opens-this"):
        published(options("nothing-opens-this://x/y"))


def test_a_file_uri_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    assert out_of(f"file://{tmp_path}/with%20space") == tmp_path / "with space"
    for out in (f"file://{tmp_path}", f"local://{tmp_path}", f"simplecache::file://{tmp_path}"):
        with pytest.raises(AuditInputError, match="is not a separate store: use a path"):
            published(options(out))
    copied = tmp_path / "copy"
    shutil.copytree(corpora.unpack(NAME), copied)
    log_dir = next(path.parent for path in copied.rglob("meta.properties"))
    call = ["audit", str(copied), "--out", f"file://{log_dir}/audit", "--master", "inline[1]", "--quiet"]
    assert main(call) == 2
    assert not (log_dir / "audit").exists()


def test_no_store_is_written_to_where_it_is_read(store: Any) -> None:
    """Another scheme of the same store, a way round by ``..``, and remote storage."""
    copy = DataFile("x-0/0.log", 1, "log", 0, StorageLocation("gs://b", "b/tier"))
    remote = RemoteFolder("x", 0, "", (RemoteFiles(0, "", (copy,)),))
    log_dir = LogDir("d", StorageLocation("hdfs://nn", "/logs/1"), "", small_files=(copy,))
    inventory = Inventory((log_dir,), (), (), (), (), (remote,))
    for out in ("memory://b/tier", "memory://b/tier/x", "memory://logs/1/a", "memory://logs/2/../1"):
        with (
            pytest.raises(AuditInputError, match=r"is in the (log directory|remote storage) "),
            claimed(out, inventory),
        ):
            pass
    with claimed("memory://logs/12", inventory):
        pass


def test_what_an_out_means() -> None:
    assert out_of("/a/b") == Path("/a/b")
    assert out_of("hdfs://nn/a") == "hdfs://nn/a"
