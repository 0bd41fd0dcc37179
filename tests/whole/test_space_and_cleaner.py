"""The tables ``space`` and ``cleaner`` over real directories: sums that have to come out, copies that say the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests import corpora
from tests.copies import copy_of
from tests.facts import opened


def rows_of(path: Path, table: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(path, **options).table(table).to_pylist()
    for row in rows:
        row["log_dir"] = row["log_dir"].rpartition("/")[2]
    return rows


@pytest.mark.parametrize("corpus", ["healthy-41", "healthy-28", "replicas-41", "tiered-43"])
def test_copies_say_the_same_and_each_segment_stands_once(corpus: str, tmp_path: Path) -> None:
    path = corpora.unpack(corpus)
    copy_of(path, tmp_path / "copy")
    for table in ("space", "cleaner"):
        ours = rows_of(path, table)
        assert ours == rows_of(tmp_path / "copy", table)
    files = [
        f for f in path.rglob("*.log")
        if not f.parent.name.startswith("__cluster_metadata") and not f.parent.name.endswith("-delete")
    ]  # fmt: skip
    if corpus in ("healthy-41", "replicas-41"):
        said = {(row["topic"], row["partition"], row["broker_id"], row["base_offset"]): row["bytes"]
                for row in rows_of(path, "space")}  # fmt: skip
        assert sorted(said.values()) == sorted(f.stat().st_size for f in files)


def test_a_topic_without_its_settings_is_not_sure(tmp_path: Path) -> None:
    shutil.copytree(corpora.unpack("healthy-41"), tmp_path / "taken")
    for folder in (tmp_path / "taken").rglob("__cluster_metadata-0"):
        shutil.rmtree(folder)
    rows = rows_of(tmp_path / "taken", "space")
    assert rows
    assert all("not all settings" in row["undecided"] for row in rows)


def test_time_alone_lets_segments_go(tmp_path: Path) -> None:
    """Each at the time that was named, and not a millisecond before."""
    path = corpora.unpack("healthy-41")
    waiting = [row for row in rows_of(path, "space") if row["kept_by"] == "not_old_enough"]
    assert waiting
    first = min(row["goes_at"] for row in waiting)
    at = int(first.timestamp() * 1000)
    key = ("topic", "partition", "base_offset")
    named = {tuple(row[k] for k in key) for row in waiting if row["goes_at"] == first}

    def gone(as_of: int) -> set[tuple[Any, ...]]:
        return {tuple(row[k] for k in key) for row in rows_of(path, "space", as_of=as_of) if row["goes"]}

    assert gone(at) - gone(at - 1) == named


def test_internal_topics_are_compacted_without_being_told() -> None:
    rows = rows_of(corpora.unpack("healthy-28"), "cleaner")
    assert {"__consumer_offsets", "__transaction_state"} <= {row["topic"] for row in rows}
    assert all(row["clean_bytes"] + row["cleanable_bytes"] + row["uncleanable_bytes"] >= 0 for row in rows)
