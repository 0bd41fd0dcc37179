"""``--out`` as a URI: what a run leaves in a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from auditor.base.errors import AuditFailure, AuditInputError
from auditor.pipeline.options import AuditOptions, out_of
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
    store.pipe({"/audits/tonight/tables/batches/old.parquet": b"old", "/audits/tonight/notes.txt": b"mine"})
    published(options(out_of(OUT)))
    found = files_of(store)
    local = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file() and p.name != ".lock"}
    assert set(found) == local | {"notes.txt"}, "results of an earlier run go, and nothing else"
    assert found["findings.jsonl"] == (tmp_path / "findings.jsonl").read_bytes()
    assert b"hanging-transaction" in found["findings.jsonl"]


def test_the_summary_comes_last(store: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where copying breaks off there is none, and the message says where all of them are."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    written = Path.open

    def full(path: Path, *rest: Any, **more: Any) -> Any:
        if path.name == "report.html":
            raise OSError(28, "No space left on device")
        return written(path, *rest, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(AuditFailure, match=r"cannot be copied to memory://.*tonight: No space left") as failed:
        published(options(OUT))
    (kept,) = tmp_path.glob("auditor-out-*")
    assert str(kept) in str(failed.value)
    assert (kept / "summary.json").exists()
    assert "summary.json" not in files_of(store)


def test_a_store_within_the_input_is_refused(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store.put(str(corpora.unpack(NAME)), "/copies", recursive=True)
    log_dir = next(iter(sorted(store.ls("/copies", detail=False)))).lstrip("/")
    before = store.find("/copies")
    for out in (f"memory://{log_dir}", f"memory://{log_dir}/audits"):
        with pytest.raises(AuditInputError, match="is in the log directory"):
            published(options(out, "memory://copies"))
    assert store.find("/copies") == before
    assert not [*tmp_path.iterdir()]


def test_a_store_that_cannot_be_written_to_is_a_mistake() -> None:
    with pytest.raises(AuditInputError, match="nothing-opens-this"):
        published(options("nothing-opens-this://x/y"))


def test_what_an_out_means() -> None:
    assert out_of("/a/b") == Path("/a/b")
    assert out_of("hdfs://nn/a") == "hdfs://nn/a"
