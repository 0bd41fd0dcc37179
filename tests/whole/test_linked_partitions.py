"""A partition that lies elsewhere, behind a link that is not followed, never goes unsaid and never makes an alarm."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests import corpora
from tests.whole.test_safety import opened


def linked(name: str, tmp_path: Path, part: str) -> tuple[Path, int]:
    """A corpus whose folders with ``part`` in their names lie elsewhere, and how many do."""
    root = tmp_path / "corpus"
    shutil.copytree(corpora.unpack(name), root)
    folders = sorted(path for path in root.glob("broker-*/*") if path.is_dir() and part in path.name)
    for number, folder in enumerate(folders):
        target = tmp_path / f"away-{number}x"
        folder.rename(target)
        os.symlink(target, folder)
    return root, len(folders)


INTERNAL = ("__transaction_state-", "__consumer_offsets-")
FOLDERS = [
    *(("healthy-41", part) for part in (*INTERNAL, "__cluster_metadata-", "-0", "-1")),
    *(("healthy-28", part) for part in (*INTERNAL, "-0", "-1")),
    *(("default-clients-43", part) for part in ("__cluster_metadata-", "-0")),
]


@pytest.mark.parametrize(("name", "part"), FOLDERS)
def test_no_alarm_and_not_complete(name: str, part: str, tmp_path: Path) -> None:
    root, count = linked(name, tmp_path, part)
    assert count
    audit = opened(root, as_of=corpora.manifest(name)["copied_at"])
    assert audit.incomplete()
    assert Counter(f.severity for f in audit.findings if f.severity != "info") == {}


def test_a_hanging_transaction_behind_a_link_is_no_green_page(tmp_path: Path) -> None:
    root, count = linked("hanging-36", tmp_path, "bank.ledger-")
    assert count
    audit = opened(root, as_of=corpora.manifest("hanging-36")["copied_at"])
    assert audit.incomplete()


def test_a_packed_index_is_not_taken_for_one_that_never_was(tmp_path: Path) -> None:
    root = tmp_path / "corpus"
    shutil.copytree(corpora.unpack("healthy-41"), root)
    packed = list(root.rglob("*.txnindex"))
    assert packed
    for path in packed:
        path.rename(f"{path}.gz")
    audit = opened(root, as_of=corpora.manifest("healthy-41")["copied_at"])
    assert audit.incomplete()
    assert [f.kind for f in audit.findings if f.severity != "info"] == []
