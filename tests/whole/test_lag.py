"""The table ``lag`` over real directories: copies say the same, and what is missing is said."""

from __future__ import annotations

import dataclasses
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.codec import batches as walking
from auditor.connectors.logdir.files import Replica
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.pipeline.lag_table import stable_end
from auditor.replay.reading.lag_counts import Counts, Outcomes, RecordsAhead, count, headers_of, stretches
from auditor.replay.task import ReplicaTask
from tests import corpora
from tests.copies import copy_of
from tests.facts import logs_of, opened
from tests.forge import Forged

COMPARED = [walking.POSITION, walking.SIZE, walking.BASE_OFFSET, walking.LAST_OFFSET, walking.RECORD_COUNT]


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


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("damaged", [False, True])
def test_headers_from_an_offset_on_are_those_of_the_whole_log(damaged: bool, copied: bool, tmp_path: Path) -> None:
    """Where an index helps, and where it points anywhere."""
    path = tmp_path / "taken"
    shutil.copytree(corpora.unpack("healthy-41"), path)
    for index in path.rglob("*.index") if damaged else ():
        index.write_bytes(bytes(b ^ 5 for b in index.read_bytes()))
    if copied:
        copy_of(path, tmp_path / "copy")
        path = tmp_path / "copy"
    compared = 0
    for task in (t for t in opened(path).tasks if isinstance(t, ReplicaTask)):
        whole = _walked(task, 0)
        if len(whole) < 50:
            continue
        for row in whole[:: len(whole) // 7]:
            wanted = whole[whole[:, walking.LAST_OFFSET] >= row[walking.BASE_OFFSET]]
            found = _walked(task, int(row[walking.BASE_OFFSET]))
            assert np.array_equal(found[-len(wanted) :, COMPARED], wanted[:, COMPARED])
            assert damaged or copied or len(found) < len(whole) or row[walking.POSITION] < 8192
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("corpus", ["healthy-41", "hanging-36", "altered-41", "tiered-43"])
def test_what_is_passed_over_counts_as_if_it_were_read(corpus: str) -> None:
    """The same offsets by the sums of segments, and with every header read again."""
    audit = opened(corpora.unpack(corpus))
    tasks = {_place(t.replica): t for t in audit.tasks if isinstance(t, ReplicaTask)}
    read = {True: 0, False: 0}
    for log in logs_of(audit):
        facts, end = log.leader, log.readable_end
        if log.is_gone or facts.own_start >= end:
            continue
        rng, stable = random.Random(end), stable_end(facts, end)
        asked = [[rng.randrange(facts.own_start, end) for _ in range(count)] for count in (1, 1, 2, 3, 6)]
        for some in ([facts.own_start], *asked):
            found = []
            for by_sums in (True, False):
                counts = Counted(some, Outcomes(facts.transactions, end), stable, end)
                assert count(counts, tasks[_place(facts)], facts.scans if by_sums else ()) is None
                read[by_sums] += counts.taken
                found.append([_compared(counts.ahead(offset)) for offset in some])
            assert found[0] == found[1]
    assert read[True] < read[False] or "hanging" in corpus  # where an open transaction goes through all of it


class Counted(Counts):
    """Counts how many batches it was given."""

    taken = 0

    def take(self, rows: np.ndarray, segment: int) -> None:
        self.taken += len(rows)
        super().take(rows, segment)


def _place(of: Replica | ReplicaFacts) -> tuple[str, str | None, int | None]:
    return of.log_dir, of.topic, of.partition


def _compared(ahead: RecordsAhead) -> list[Any]:
    """All of it; of a batch what is not said of its checksum, which only one of the ways looks at."""
    *plain, first, segment, position = (getattr(ahead, f.name) for f in dataclasses.fields(ahead))
    shown = None if first is None else first[COMPARED].tolist()
    return [*(x.tolist() if isinstance(x, np.ndarray) else x for x in plain), shown, segment, position]


def _walked(task: ReplicaTask, offset: int) -> np.ndarray:
    numbers = [number for number, (_, behind) in enumerate(stretches(task)) if behind > offset]
    scans = [SegmentScan(s.base_offset, s.size, True, 0) for s in task.replica.segments]  # nothing odd
    parts = [rows for number in numbers for rows in headers_of(task, number, offset, scans)]
    return np.concatenate([rows for rows in parts if not isinstance(rows, DecodeError)])


def test_a_batch_that_was_being_written_while_it_was_copied_hides_nothing(tmp_path: Path) -> None:
    """The torn end of an active segment."""
    shutil.copytree(corpora.unpack("groups-43"), tmp_path / "taken")
    before = rows_of(tmp_path / "taken")
    logs = {row["topic"]: row["end_offset"] for row in before if row["partition"] == 0 and row["offsets"]}
    for topic, end in logs.items():
        (*_, log) = sorted((tmp_path / "taken").rglob(f"{topic}-0/*.log"))
        data = log.read_bytes()
        log.write_bytes(data + end.to_bytes(8, "big") + data[8:50])
    assert logs
    assert rows_of(tmp_path / "taken") == before
    assert any(row["undecided"] is None and row["offsets"] for row in before)


def test_what_a_coordinator_lost_is_said(tmp_path: Path) -> None:
    """Of the groups that it has, and of no others."""
    shutil.copytree(corpora.unpack("groups-43"), tmp_path / "taken")
    before = {row["group_id"] for row in rows_of(tmp_path / "taken") if row["undecided"] is None}
    log = max((tmp_path / "taken").rglob("__consumer_offsets-*/*.log"), key=lambda file: file.stat().st_size)
    data = bytearray(log.read_bytes())
    data[200:260] = b"\x07" * 60
    log.write_bytes(data)
    rows = rows_of(tmp_path / "taken")
    unsure = {row["group_id"] for row in rows if "coordinator" in (row["undecided"] or "")}
    sure = {row["group_id"] for row in rows if row["undecided"] is None}
    assert unsure
    assert sure
    assert unsure | sure == before


def test_aborted_records_that_readers_may_get_are_counted_at_most(tmp_path: Path) -> None:
    """The first entry of the transaction index ends each search from its segment: of the aborted records there only
    those of its own transaction stay hidden."""
    shutil.copytree(corpora.unpack("healthy-41"), tmp_path / "taken")
    log = Forged(tmp_path / "taken" / "broker-1", "shop.orders-0")
    files = [log.file(base, "txnindex") for base in sorted(log.segments)]
    entries = [entry[1:4] for file in files for entry in struct.iter_unpack(">hqqqq", file.read_bytes())]
    data = bytearray(files[0].read_bytes())
    struct.pack_into(">q", data, 26, log.end)
    files[0].write_bytes(data)
    batches = log.segments[min(log.segments)]
    exposed = sum(
        b["count"]
        for b in batches
        for producer, first, last in entries[1:]
        if b["producer_id"] == producer and first <= b["base_offset"] < last
    )
    copy_of(tmp_path / "taken", tmp_path / "copy")
    for folder in ("taken", "copy"):
        (row,) = (r for r in rows_of(tmp_path / folder) if (r["topic"], r["partition"]) == ("shop.orders", 0))
        assert row["committed_offset"] == 0
        assert row["aborted_records"] > exposed > 0
        assert row["committed_most_records"] - row["committed_records"] == exposed
        assert "aborted-records-exposed" in row["undecided"]
