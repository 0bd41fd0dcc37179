"""What holds a broker's copy is not written over by the copy of another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from tests.copies import copy_of
from tests.growing import broker


def other(root: Path, number: int, cluster: str = "Q0xVU1RFUi0tLS0tLS0tLQ") -> Path:
    path = broker(root)
    (path / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id={cluster}\n")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_another_brokers_copy_is_refused_and_stays(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_of(other(tmp_path / "host-1" / "kafka", 1), copy)
    before = content(copy)
    of_another_cluster = other(tmp_path / "host-3" / "kafka", 1, "b3RoZXItLS0tLS0tLS0tLQ")
    for source in (other(tmp_path / "host-2" / "kafka", 2), of_another_cluster):
        with pytest.raises(AuditInputError, match="contains the copy of broker 1 of cluster Q0xVU1RFUi0tLS0tLS0tLQ"):
            copy_of(source, copy)
    assert content(copy) == before


def test_a_broker_that_is_gone_from_a_folder_of_several_goes(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        other(tmp_path / "in" / f"broker-{number}", number)
    copy_of(tmp_path / "in", tmp_path / "copy")
    shutil.rmtree(tmp_path / "in" / "broker-2")
    copy_of(tmp_path / "in", tmp_path / "copy")
    assert {p.name for p in (tmp_path / "copy").iterdir() if p.is_dir()} == {"broker-1", "broker-3"}


def test_what_names_no_broker_is_followed(tmp_path: Path) -> None:
    path = broker(tmp_path / "in")
    copy_of(path / "t-0", tmp_path / "copy")
    (path / "t-0").rename(path / "t-7")
    copy_of(path / "t-7", tmp_path / "copy")
