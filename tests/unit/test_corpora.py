"""The corpora are whole, and unpacking one gives exactly what its archive holds."""

from __future__ import annotations

import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import corpora


@pytest.mark.parametrize("name", corpora.judged())
def test_every_file_of_the_archive_is_unpacked(name: str) -> None:
    folder = corpora.unpack(name)
    with tarfile.open(corpora.ROOT / name / "data.tar.gz") as tar:
        files = {member.name.removeprefix("./"): member.size for member in tar if member.isfile()}
    assert {p.relative_to(folder).as_posix(): p.stat().st_size for p in folder.rglob("*") if p.is_file()} == files
    assert list(folder.glob("broker-*/meta.properties"))


@pytest.mark.parametrize("name", corpora.judged() + corpora.names(text=True))
def test_every_expectation_has_a_rule(name: str) -> None:
    assert corpora.manifest(name)["corpus"] == name
    assert {e["finding"] for e in corpora.manifest(name).get("expect", [])} <= set(corpora.rule_ids())


def test_two_at_once_make_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))
    unpack = corpora.unpack.__wrapped__
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(unpack, ["unknown-producer-23"] * 4))
    cache = next(tmp_path.iterdir())
    assert folders == set(cache.iterdir())
    assert len(folders) == 1


def test_a_cache_of_someone_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"kafka-log-auditor-corpora-{corpora.os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="another user"):
        corpora.unpack.__wrapped__("unknown-producer-23")


def test_a_copy_can_be_changed(tmp_path: Path) -> None:
    copied = corpora.copy("unknown-producer-23", tmp_path / "mine")
    (copied / "broker-1" / "meta.properties").unlink()
    assert (corpora.unpack("unknown-producer-23") / "broker-1" / "meta.properties").is_file()
