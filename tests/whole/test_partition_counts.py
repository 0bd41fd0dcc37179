"""How many partitions an internal topic has, when not all of its folders were copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import corpora
from tests.forge import audit_folder


@pytest.mark.parametrize("settings", [True, False])
def test_a_part_of_the_partitions_is_not_taken_for_all(tmp_path: Path, settings: bool) -> None:
    """ZooKeeper's brokers keep no metadata beside the logs. Without the last folder of three, two look like all."""
    source = corpora.unpack("healthy-28")
    shutil.copytree(source / "broker-1", tmp_path / "broker-1")
    if settings:
        shutil.copy(source / "server-1.properties", tmp_path)
    for topic in ("__transaction_state", "__consumer_offsets"):
        shutil.rmtree(max((tmp_path / "broker-1").glob(f"{topic}-*"), key=lambda p: int(p.name.rpartition("-")[2])))
    found = audit_folder(tmp_path, int(corpora.manifest("healthy-28")["copied_at"]), records=True)
    assert [f.message for f in found if f.severity != "info"] == []
