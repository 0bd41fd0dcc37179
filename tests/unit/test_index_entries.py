"""Entries of transaction indexes against the replay: by columns as one by one, and no finding each for millions."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import numpy as np

from auditor.base.errors import DEFAULT_LIMITS
from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile
from auditor.connectors.stores.storage import place
from auditor.facts.replica_facts import ABORTED, TRANSACTION
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from auditor.rules import snapshots_and_indexes
from auditor.rules.catalogue.registry import kinds
from auditor.rules.lib import replica_pairs
from auditor.rules.resolution.finding_limits import SUMMED, judge_bounded
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from tests.made import facts
from tests.seeded_tests import seeded
from tests.segments import simple

RULE = "aborted-index-extra-entry"
KEYS = ("producer_id", "first_offset", "last_offset")


def _pairs(draw: random.Random, count: int) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([draw.randrange(5) for _ in range(count)], np.int64) for _ in range(2))  # type: ignore[return-value]


@seeded(40)
def test_the_last_row_with_a_key_is_that_of_a_dictionary(seed: int) -> None:
    draw = random.Random(seed)
    keys, wanted = _pairs(draw, draw.randrange(30)), _pairs(draw, draw.randrange(30))
    last = {pair: row for row, pair in enumerate(zip(*(k.tolist() for k in keys), strict=True))}
    expected = [last.get(pair, -1) for pair in zip(*(w.tolist() for w in wanted), strict=True)]
    assert replica_pairs.last_of(keys, wanted).tolist() == expected


@seeded(40)
def test_what_an_entry_hides_is_what_a_look_at_every_transaction_shows(seed: int) -> None:
    draw = random.Random(seed)
    t = np.zeros(draw.randrange(20), TRANSACTION)
    for row in t:
        row["producer_id"], row["commit"] = draw.randrange(3), draw.randrange(2)
        row["first_offset"] = draw.randrange(-1, 9)
        row["last_offset"] = row["first_offset"] + draw.randrange(6)
    entries = [(draw.randrange(4), first, first + draw.randrange(5)) for first in range(9)]
    data = t[(t["commit"] == 1) & (t["first_offset"] >= 0)]
    expected = [
        any(row["producer_id"] == pid and row["first_offset"] <= last and row["last_offset"] >= first for row in data)
        for pid, first, last in entries
    ]
    columns = np.array(entries, np.int64).T
    assert snapshots_and_indexes.hides(facts(transactions=t), *columns).tolist() == expected


@seeded(20)
def test_rows_of_one_side(seed: int) -> None:
    draw = random.Random(seed)
    kind = [(name, "i8") for name in KEYS]
    sides = [[tuple(draw.randrange(3) for _ in KEYS) for _ in range(draw.randrange(20))] for _ in range(2)]
    found = replica_pairs.entries_apart(*(np.array(rows, kind) for rows in sides))
    assert [rows.tolist() for rows in found] == [sorted({*a} - {*b}) for a, b in itertools.permutations(sides)]


def test_a_made_up_index_makes_no_more_findings_than_are_listed() -> None:
    """Of a million entries without a transaction, those with the lowest offsets and one that stands for all others."""
    entries = np.zeros(1_000_000, ABORTED)
    entries["producer_id"] = np.arange(len(entries)) % 1000
    entries["first_offset"] = np.arange(len(entries))[::-1]
    entries["last_offset"] = entries["first_offset"] + 1
    log = LogView([facts(aborted=entries, log_end=2_000_000)], Cluster(0, 0))
    log.most = 10
    assert len(list(snapshots_and_indexes.aborted_index_extra_entry(log))) == 11
    *listed, rest = judge_bounded(log, [kinds()[RULE]], 100)
    assert sorted(f.offset for f in listed if f.offset is not None) == list(range(100))
    assert {f.severity for f in (*listed, rest)} == {"error"}
    evidence = rest.evidence
    assert (evidence[SUMMED], evidence["first_offset"], evidence["last_offset"]) == (999_900, 100, 999_999)
    assert "--max-findings 1000000" in evidence["listed_by"]


def test_the_indexes_of_all_segments_have_one_limit(tmp_path: Path) -> None:
    """Each within its own, a hundred of them were several gigabytes."""
    entries = struct.pack(">hqqqq", 0, 7, 1, 2, 3) * 3
    segments = []
    for base in (0, 3, 6):
        data = simple(base)
        name = f"{base:020}"
        (tmp_path / f"{name}.log").write_bytes(data)
        (tmp_path / f"{name}.txnindex").write_bytes(entries)
        index = DataFile(f"{name}.txnindex", len(entries), "txnindex", base)
        segments.append(SegmentFile(f"{name}.log", base, len(data), txnindex=index))
    replica = Replica("dir", "t", 0, "", segments=tuple(segments))
    limits = DEFAULT_LIMITS._replace(max_producer_entries=4)
    facts = read_replica(ReplicaTask(place(str(tmp_path)), replica, None, 1, "", False, limits=limits))
    assert facts.aborted["segment"].tolist() == [0, 0, 0, 1]
    assert [(e.file[:20], e.position, e.length, e.reason) for e in facts.errors if e.reason == "limit"] == [
        (f"{3:020}", 34, 68, "limit"), (f"{6:020}", 0, 102, "limit")
    ]  # fmt: skip
