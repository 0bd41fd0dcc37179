"""The table ``lag`` over real directories: copies say the same, and what is missing is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import corpora
from tests.copies import copy_of
from tests.facts import opened


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(path, **options).table("lag").to_pylist()
    return rows


@pytest.mark.parametrize("corpus", ["groups-43", "healthy-41", "healthy-28", "tiered-43"])
def test_a_copy_without_payload_says_what_its_directory_says(corpus: str, tmp_path: Path) -> None:
    path = corpora.unpack(corpus)
    copy_of(path, tmp_path / "copy")
    ours, theirs = rows_of(path), rows_of(tmp_path / "copy")
    for row in (*ours, *theirs):
        row["log_dir"] = row["log_dir"].rpartition("/")[2]
    assert ours == theirs
    assert ours


def test_a_share_group_has_left_what_it_has_not_settled() -> None:
    """What is settled behind the start, by the state batches that Kafka's own tool printed."""
    rows = [row for row in rows_of(corpora.unpack("groups-43")) if row["kind"] == "share"]
    assert {row["group_id"] for row in rows} == {"pier-9-share"}
    assert sum(row["settled_records"] for row in rows) > 0
    for row in rows:
        ahead = row["uncommitted_records"] + row["settled_records"] + row["marker_offsets"] + row["missing_offsets"]
        assert ahead == row["offsets"] == row["end_offset"] - row["committed_offset"]


def test_a_log_that_is_not_there_is_not_decided(tmp_path: Path) -> None:
    shutil.copytree(corpora.unpack("groups-43"), tmp_path / "taken")
    before = rows_of(tmp_path / "taken")
    for folder in (tmp_path / "taken").rglob("pier-9.in-0"):
        shutil.rmtree(folder)
    after = rows_of(tmp_path / "taken")
    gone = [row for row in after if (row["topic"], row["partition"]) == ("pier-9.in", 0)]
    # The share group names the topic by its id, which its other partitions show.
    assert len(gone) == sum((row["topic"], row["partition"]) == ("pier-9.in", 0) for row in before) > 1
    assert all(row["undecided"] == "the partition is not in the input" for row in gone)
    assert all(row["offsets"] is None for row in gone)
    assert len(after) == len(before)


def test_damage_behind_a_position_is_said(tmp_path: Path) -> None:
    shutil.copytree(corpora.unpack("groups-43"), tmp_path / "taken")
    (log,) = (tmp_path / "taken").rglob("pier-9.out-0/00000000000000000000.log")
    data = bytearray(log.read_bytes())
    data[100:260] = b"\x07" * 160
    log.write_bytes(data)
    rows = [row for row in rows_of(tmp_path / "taken") if (row["topic"], row["partition"]) == ("pier-9.out", 0)]
    assert rows
    assert all("could not be read" in row["undecided"] for row in rows if row["committed_offset"] == 0)


def test_a_scope_leaves_out_logs_and_says_nothing_of_them() -> None:
    rows = rows_of(corpora.unpack("groups-43"), topics=("pier-9.out",))
    assert {row["topic"] for row in rows} == {"pier-9.out"}
    assert all(row["undecided"] is None for row in rows)
