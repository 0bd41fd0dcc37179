"""The table ``impact`` against manifests, dumps and arithmetic."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.pipeline import impact_table
from tests import corpora
from tests.facts import opened
from tests.forge import Lab

PLACE = ("outcome", "topic", "partition", "broker_id", "first_offset", "last_offset", "records")


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(path, **options).table("impact").to_pylist()
    return rows


def of_corpus(name: str) -> list[dict[str, Any]]:
    return rows_of(corpora.unpack(name))


def places(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in PLACE) for row in rows]


def test_the_tail_of_a_former_leader_is_lost_and_its_replica_has_it() -> None:
    """Offsets and number of lost records by the manifest; sizes and times of its six batches by kafka-dump-log.sh."""
    expected = corpora.manifest("replicas-39-unclean")["expect"][0]
    (row,) = of_corpus("replicas-39-unclean")
    assert places([row]) == [("lost", "trivet.log", 0, 1, *expected["broker_1"]["offsets"], expected["lost_records"])]
    assert row["bytes"] == 4730
    assert [int(row[name].timestamp() * 1000) for name in ("first_at", "last_at")] == [1795308951377, 1795308951390]
    assert (row["on_other_replica"], row["other_log_dir"]) == (True, "broker-1")
    assert (row["producer_id"], row["sent_again"]) == (None, None)  # batches without sequences prove nothing


def test_an_unclean_election_lost_what_the_manifest_says() -> None:
    """Broker 1: 20..39 pid 2000 epoch 0 seq 20..39, leader epoch 2."""
    (row,) = of_corpus("unclean-43")
    assert places([row]) == [("lost", "un", 0, 1, 20, 39, 20)]
    assert (row["producer_id"], row["producer_epoch"], row["first_sequence"]) == (2000, 0, 20)
    assert (row["on_other_replica"], row["sent_again"], row["confidence"]) == (True, False, "proved")


def test_skipped_markers_hide_and_expose() -> None:
    """go-ca: 10 to 12 decided COMMIT, ended by an ABORT; go-ac: 16 to 18 decided ABORT, ended by a COMMIT."""
    rows = of_corpus("skipped-then-goes-on-43")
    assert places(rows) == [("hidden", "leg", 0, 2, 10, 12, 3), ("exposed", "leg", 0, 2, 16, 18, 3)]
    assert [row["transactional_id"] for row in rows] == ["go-ca", "go-ac"]


def test_transactions_have_the_key_of_the_table_transactions() -> None:
    audit = opened(corpora.unpack("skipped-then-goes-on-43"))
    keys = {row["transaction_key"]: row["transactional_id"] for row in audit.table("transactions").to_pylist()}
    rows = audit.table("impact").to_pylist()
    assert [keys[row["transaction"]] for row in rows] == [row["transactional_id"] for row in rows]


def test_a_real_consumer_got_as_many_aborted_records_as_are_exposed() -> None:
    got = corpora.manifest("index-hides-abort-43")["read_committed_records"]
    right, wrong = got["leader broker 1"], got["leader broker 2, max.partition.fetch.bytes=1"]
    rows = of_corpus("index-hides-abort-43")
    assert {(row["outcome"], row["broker_id"], row["transactional_id"]) for row in rows} == {("exposed", 2, "A")}
    for topic in ("big", "small"):
        assert sum(row["records"] for row in rows if row["topic"] == topic) == wrong[topic] - right[topic]


def test_a_log_has_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thirteen ranges in big-0 the first three, and a row that says how many are left."""
    monkeypatch.setattr(impact_table, "MOST_ROWS", 3)
    rows = [row for row in of_corpus("index-hides-abort-43") if row["topic"] == "big"]
    assert [row["records"] for row in rows if row["first_offset"] is not None] == [2, 2, 2]
    (last,) = (row for row in rows if row["first_offset"] is None)
    assert last["undecided"] == "10 further ranges of this partition are not listed"


def test_records_stored_twice_across_a_bump_are_duplicated() -> None:
    (row,) = rows_of(corpora.unpack("incidents") / "stored-twice-across-a-local-bump" / "input")
    assert places([row]) == [("duplicated", "t", 0, 1, 10, 14, 5)]
    assert (row["producer_epoch"], row["kind"], row["sent_again"]) == (1, "repeated-records", None)


@pytest.mark.parametrize(
    "corpus",
    [
        "healthy-28",
        "healthy-41",
        "replicas-41",
        "trimmed-28",
        "tiered-43",
        "default-clients-43",
        "twopc-43",
        "hanging-36",
    ],
)
def test_logs_that_lack_nothing_have_no_rows(corpus: str) -> None:
    """Open transactions block consumers. They lose nothing."""
    audit = opened(corpora.unpack(corpus))
    assert audit.table("impact").to_pylist() == impact_table.without_rows(audit.findings, []) == []


def _end_removed(log: Path) -> None:
    max(log.glob("*.log")).unlink()


def _byte_changed(log: Path) -> None:
    file = min(log.glob("*.log"))
    content = bytearray(file.read_bytes())
    content[70] ^= 1  # a record of the first batch, which its checksum covers
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [_end_removed, _byte_changed])
def test_a_loss_without_rows_is_no_all_clear(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only replica lost its end, or a byte of it changed: the documented exit code of an incomplete list."""
    copy = shutil.copytree(corpora.unpack("healthy-41"), tmp_path / "copy")
    damage(next(copy.rglob("shop.orders-0")))
    assert cli.main(["impact", str(copy)]) == 3
    note = "1 finding without a row: records may be lost or unreadable"
    assert capsys.readouterr().out == f"{note}. Run: auditor audit PATH\n"
    assert cli.main(["impact", str(copy), "--format", "json"]) == 3
    assert note in capsys.readouterr().err
    assert cli.main(["impact", str(copy), "--topic", "shop.plain"]) == 0
    cli.main(["audit", str(copy), "--out", str(tmp_path / "out"), "--master", "inline", "--quiet"])
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["impact"]["unlisted"] == 1
    assert note in (tmp_path / "out" / "report.html").read_text()


def test_missing_offsets_of_a_lone_replica_are_lost(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "altered-41", "bay.case-0")
    log = lab.log("bay.case-0")
    gone = log.data()[3]
    first, last = gone["base_offset"], gone.last
    log.drop(gone)
    log.save()
    (row,) = (row for row in rows_of(tmp_path, as_of=lab.as_of) if row["first_offset"] is not None)
    assert places([row]) == [("lost", log.topic, log.partition, 1, first, last, None)]
    assert (row["on_other_replica"], row["other_log_dir"]) == (False, None)


def test_what_the_leader_lacks_is_lost_and_followers_have_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "replicas-41", "trio.log-0", brokers=(1, 2, 3))
    (cluster,) = opened(tmp_path, as_of=lab.as_of).clusters.values()
    log = lab.log("trio.log-0", cluster.last_leader("trio.log", 0) or 1)
    gone = log.data()[3]
    log.drop(gone)
    log.save()
    rows = rows_of(tmp_path, as_of=lab.as_of)
    (row,) = rows
    assert (row["first_offset"], row["last_offset"]) == (gone["base_offset"], gone.last)
    assert (row["records"], row["bytes"]) == (gone["delta"] + 1, len(gone.data))
    assert (row["on_other_replica"], row["sent_again"]) == (True, False)
    assert row["other_log_dir"] != log.broker.name


def test_each_altered_log_has_the_rows_of_its_manifest() -> None:
    """A gap of three sequence numbers, fourteen missing offsets, an aborted transaction without its index entry, and a
    batch that is stored twice; nothing of the other fifteen logs."""
    expected = {row["finding"]: row for row in corpora.manifest("altered-41")["expect"]}
    gap, hole, entry, twice = (
        expected[name] for name in ("sequence_gap", "offset_gap", "txnindex_entry_missing", "duplicate_batch")
    )
    missing = gap["baseSequence"] - gap["expectedSequence"]
    rows = of_corpus("altered-41")
    assert {(row["outcome"], row["partition"], row["first_offset"], row["last_offset"]) for row in rows} == {
        ("lost", gap["partition"], None, None),
        ("lost", hole["partition"], hole["expectedOffset"], hole["baseOffset"] - 1),
        ("exposed", entry["partition"], entry["firstOffset"], entry["lastOffset"] - 1),  # but for its marker
        ("duplicated", twice["partition"], twice["baseOffset"], twice["baseOffset"] + 2),
    }
    assert {(row["first_sequence"], row["records"]) for row in rows if row["first_offset"] is None} == {
        (gap["expectedSequence"], missing)
    }
    assert {row["first_sequence"] for row in rows if row["outcome"] == "duplicated"} == {twice["baseSequence"]}


@pytest.mark.parametrize("first", [90, 91])
def test_an_index_entry_hides_whole_batches(tmp_path: Path, first: int) -> None:
    """A consumer drops each batch of the producer that ends at or behind the first offset of the entry."""
    lab = Lab(tmp_path, "altered-41", "bay.case-0")
    log = lab.log("bay.case-0")
    batches = [b for b in log.data(1) if b.last >= first and b["base_offset"] <= 99]
    log.file(0, "txnindex").write_bytes(struct.pack(">hqqqq", 0, 1, first, 99, 100))
    rows = rows_of(tmp_path, as_of=lab.as_of)
    assert batches
    assert {(row["outcome"], row["producer_id"], row["kind"]) for row in rows} == {
        ("hidden", 1, "aborted-index-extra-entry")
    }
    assert min(row["first_offset"] for row in rows) == min(b["base_offset"] for b in batches)
    assert sum(row["records"] for row in rows) == sum(b["delta"] + 1 for b in batches)


def test_a_gap_in_a_committed_transaction_has_sequences_and_no_offsets(tmp_path: Path) -> None:
    """As in ``test_a_gap_inside_a_transaction``: five sequence numbers that no record has."""
    lab = Lab(tmp_path, "altered-41", "bay.case-0")
    log = lab.log("bay.case-0")
    ends = [b for b in log.markers() if b.records()[0]["key"][3] == 1 and b["base_offset"] > 100]
    mine = [b for b in log.data(ends[0]["producer_id"]) if b["base_offset"] < ends[0]["base_offset"]]
    batch, expected = mine[-1], mine[-1]["sequence"]
    log.resequence(batch["producer_id"], batch["epoch"], batch["base_offset"], 5)
    log.save()
    (row,) = rows_of(tmp_path, as_of=lab.as_of)
    assert places([row]) == [("lost", log.topic, 0, 1, None, None, 5)]
    assert (row["producer_id"], row["producer_epoch"]) == (batch["producer_id"], batch["epoch"])
    assert (row["first_sequence"], row["sent_again"]) == (expected, False)


def test_exit_codes_and_formats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lost = str(corpora.unpack("unclean-43"))
    assert cli.main(["impact", lost]) == 1
    assert "lost: 20 records" in capsys.readouterr().out
    assert cli.main(["impact", lost, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_offset"] == 20
    assert cli.main(["impact", lost, "--format", "csv", "--topic", "jb"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert cli.main(["impact", str(corpora.unpack("healthy-41"))]) == 0
    assert "No records are known to be lost" in capsys.readouterr().out


def test_summary_and_page_have_the_same_sums(tmp_path: Path) -> None:
    cli.main(["audit", str(corpora.unpack("unclean-43")), "--out", str(tmp_path), "--master", "inline", "--quiet"])
    impact = json.loads((tmp_path / "summary.json").read_text())["impact"]
    assert impact["outcomes"] == {"lost": {"ranges": 1, "records": 20, "bytes": impact["rows"][0]["bytes"]}}
    assert (impact["rows"][0]["first_offset"], impact["left_out"]) == (20, 0)
    page = (tmp_path / "report.html").read_text()
    assert 'id="impact"' in page
    assert "20 records lost" in page


def test_payload_is_what_the_producer_sent(tmp_path: Path) -> None:
    """Offsets by the manifest; the values are in the segment as they are."""
    file = tmp_path / "replay.jsonl"
    assert cli.main(["impact", str(corpora.unpack("unclean-43")), "--include-payload", str(file)]) == 1
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["topic"], line["partition"], line["offset"]) for line in lines] == [
        ("un", 0, n) for n in range(20, 40)
    ]
    segment = next((corpora.unpack("unclean-43") / "broker-1b" / "un-0").glob("*.log")).read_bytes()
    for line in lines:  # its batches are not compressed
        value = base64.b64decode(line["value"])
        assert value
        assert value in segment
