"""The table ``impact`` against ledgers of producers, of a cluster run that ``tests/broker/ledgers.py`` made.

Kafka 3.9.1: broker 3, a follower, was killed. The leader, broker 2, was killed and lost the end of each log, and was
elected again. ``ledgers.json`` has, by partition, which acknowledged and committed records are not in the leader's log:
the offsets of those that broker 3 has by kafka-dump-log.sh, and how many other transactions have no marker. That is the
number that their producer was told are committed, less the COMMIT markers in the leader's log and the transactions on
broker 3. Data that was open where the log was cut is not lost, though a later marker ended it: one less.
"""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from tests.facts import opened

HOME = Path(__file__).parents[1] / "data" / "ledgers" / "cut-39"
MISSING: dict[str, dict[str, Any]] = json.loads((HOME / "ledgers.json").read_text(encoding="utf-8"))["missing"]
AT = [(place.split()[0], int(place.split()[1])) for place in MISSING]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cut")
    with tarfile.open(HOME / "data.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def rows(directories: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = opened(directories).table("impact").to_pylist()
    return [row for row in found if row["outcome"] == "lost"]


@pytest.mark.parametrize("at", AT)
def test_the_follower_has_what_its_leader_lost(rows: list[dict[str, Any]], at: tuple[str, int]) -> None:
    """No aborted record is among them, and none that the producer sent again."""
    mine = [row for row in rows if (row["topic"], row["partition"]) == at and row["first_offset"] is not None]
    offsets = [offset for row in mine for offset in range(row["first_offset"], row["last_offset"] + 1)]
    assert sorted(offsets) == MISSING[f"{at[0]} {at[1]}"]["on broker 3"]
    assert sum(row["records"] for row in mine) == len(offsets)
    assert {row["other_log_dir"] for row in mine} <= {"broker-3"}


@pytest.mark.parametrize("at", AT)
def test_committed_transactions_that_are_on_no_disk_are_lost(rows: list[dict[str, Any]], at: tuple[str, int]) -> None:
    mine = [row for row in rows if (row["topic"], row["partition"]) == at and row["first_offset"] is None]
    assert len(mine) == MISSING[f"{at[0]} {at[1]}"]["transactions"]
    keys = {row["transaction"] for row in mine}
    assert len(keys) == len(mine)
    assert None not in keys
    assert {row["transactional_id"] for row in mine} <= {at[0].removeprefix("of.")}
    elsewhere = {row["transaction"] for row in rows if row["first_offset"] is not None} - {None}
    assert not elsewhere & {row["transaction"] for row in mine}


def test_the_replay_file_has_the_followers_records(directories: Path, tmp_path: Path) -> None:
    """Each value names its ledger, partition and number."""
    file = tmp_path / "replay.jsonl"
    assert cli.main(["impact", str(directories), "--include-payload", str(file)]) == 1
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for topic, partition in AT:
        expected = MISSING[f"{topic} {partition}"]["on broker 3"]
        mine = [line for line in lines if (line["topic"], line["partition"]) == (topic, partition)]
        begin = f"{topic.removeprefix('of.')}.{partition}.".encode()
        assert all(base64.b64decode(line["value"]).startswith(begin) for line in mine)
        assert set(expected) <= {line["offset"] for line in mine}
