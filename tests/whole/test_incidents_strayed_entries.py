"""Entries of transaction indexes in other segments than their markers', with twins where no fetch misses them.

What a fetch finds is Kafka's own search: from the .txnindex of its own segment on, until a last stable offset is at or
above the end of what is fetched (TransactionIndex.collectAbortedTxns, LocalLog.collectAbortedTransactions).
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import bare_broker
from tests.audited import above_info, audit_folder
from tests.bare_broker import BEGAN, data, end, finish
from tests.forge import Forged

LOG, ENTRY = "a-0", ">hqqqq"  # version, producer id, first offset, marker's offset, last stable offset


def rolled(root: Path, *, split: int, another: bool = False) -> Forged:
    """Data of one aborted transaction at 0 to 5 with its marker at 6, segments from 0, ``split`` and the end before a
    last batch on. ``another``: an aborted transaction begins and ends between."""
    log = Forged(bare_broker.broker(root, LOG), LOG)
    batch = data(log, 100, 0, BEGAN, transactional=True)
    data(log, 100, 3, BEGAN + 10, transactional=True)
    end(log, batch, False, BEGAN + 20)
    if another:
        end(log, data(log, 300, 0, BEGAN + 30, transactional=True), False, BEGAN + 40)
    third = log.end
    data(log, 200, 0, BEGAN + 50)
    batches = log.all()
    for base, stop in ((0, split), (split, third), (third, log.end)):
        log.segments[base] = [b for b in batches if base <= b["base_offset"] < stop]
        log.tails[base] = b""
        for suffix in ("log", "index", "timeindex"):
            log.file(base, suffix).touch()
    return log


def audited(log: Forged, root: Path, **entries: list[tuple[int, int, int, int]]) -> list[Finding]:
    """What is found where the segments' transaction indexes have just these entries."""
    log.aborted = []
    finish(log)
    for base, rows in zip(sorted(log.segments), entries.values(), strict=True):
        log.file(base, "txnindex").write_bytes(b"".join(struct.pack(ENTRY, 0, *row) for row in rows))
    found = audit_folder(root, BEGAN + 3_600_000)
    return [f for f in above_info(found) if "index" in f.kind]


OURS, OTHER = (100, 0, 6, 7), (300, 7, 10, 11)


def test_the_entry_beside_its_marker_is_where_it_belongs(tmp_path: Path) -> None:
    assert audited(rolled(tmp_path, split=3), tmp_path, first=[], second=[OURS], third=[]) == []


def test_an_entry_in_an_earlier_segment_than_some_of_the_data(tmp_path: Path) -> None:
    log = rolled(tmp_path, split=3)
    (f,) = audited(log, tmp_path, first=[OURS], second=[], third=[])
    assert (f.kind, f.severity, f.offset, f.last_offset) == ("aborted-transaction-not-indexed", "critical", 0, 6)
    assert (f.file, f.position) == (f"{LOG}/{0:020}.txnindex", 0)
    assert f.evidence["expected_file"] == f"{LOG}/{3:020}.txnindex"
    assert "fetches from offset 3 on miss it" in f.message


def test_all_of_the_data_lies_where_fetches_find_the_entry(tmp_path: Path) -> None:
    """Its marker alone is in the next segment: whoever fetches the data begins at the index that has the entry."""
    assert audited(rolled(tmp_path, split=6), tmp_path, first=[OURS], second=[], third=[]) == []


def test_an_entry_in_a_later_segment_is_found_and_taken_for_corrupt(tmp_path: Path) -> None:
    log = rolled(tmp_path, split=3)
    (f,) = audited(log, tmp_path, first=[], second=[], third=[OURS])
    assert (f.kind, f.severity, f.offset, f.last_offset) == ("aborted-transaction-not-indexed", "warning", 0, 6)
    assert (f.file, f.evidence["expected_file"]) == (f"{LOG}/{7:020}.txnindex", f"{LOG}/{3:020}.txnindex")


@pytest.mark.parametrize(("second", "third", "severity"), [([OTHER], [OURS], "critical"), ([OURS, OTHER], [], None)])
def test_an_entry_behind_one_that_ends_the_search(
    tmp_path: Path, second: list[tuple[int, int, int, int]], third: list[tuple[int, int, int, int]], severity: str
) -> None:
    """A fetch of 0 to 5 ends at the other's entry, whose last stable offset 11 is beyond it."""
    log = rolled(tmp_path, split=3, another=True)
    found = audited(log, tmp_path, first=[], second=second, third=third)
    assert [(f.kind, f.severity) for f in found] == (
        [("aborted-transaction-not-indexed", severity)] if severity else []
    )


def test_an_entry_in_both_is_found(tmp_path: Path) -> None:
    log = rolled(tmp_path, split=3)
    assert audited(log, tmp_path, first=[OURS], second=[OURS], third=[]) == []
