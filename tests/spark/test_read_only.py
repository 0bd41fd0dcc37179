"""The evidence after an audit is the evidence before it: bytes, times, names, and no permission to write was needed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "hanging-36"


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything about every entry of a folder that a reader must leave as it is."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *folder.rglob("*")]:
        about = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(about.st_mode) else ""
        found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, content)
    return found


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    """A corpus that nobody may write to (root may all the same, so the state is compared too)."""
    folder = corpora.copy(NAME, tmp_path / "evidence")
    outside = tmp_path / "outside.log"
    outside.write_bytes(b"not part of the evidence")
    broker = next(folder.glob("broker-*"))
    (broker / "link").symlink_to(outside)
    (broker / "up").symlink_to(tmp_path)
    entries = [folder, *folder.rglob("*")]
    for path in entries:
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in entries:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


def test_nothing_of_the_input_changes(sealed: Path, spark: SparkSession, tmp_path: Path) -> None:
    before = state(sealed)
    here = set(os.listdir())
    options = AuditOptions((str(sealed),), tmp_path / "out", records=True, tables=True)
    result = running.audit(options, lambda _: None, spark)
    assert state(sealed) == before
    assert set(os.listdir()) == here  # nor is anything left where the program was started
    assert result.findings
    unused = {item.file: item.reason for item in result.inventory.skipped}
    assert unused["link"] == unused["up"] == "symbolic link"


def test_results_do_not_go_into_a_log_directory(tmp_path: Path) -> None:
    """A broker does not start where there is a folder that it does not know."""
    folder = corpora.copy(NAME, tmp_path / "evidence")
    before = state(folder)
    out = next(folder.glob("broker-*")) / "out"
    with pytest.raises(AuditInputError, match="choose an --out outside it"):
        published(AuditOptions((str(folder),), out))
    assert state(folder) == before
