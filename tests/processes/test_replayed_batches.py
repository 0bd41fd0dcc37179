"""Replay of batches that lie in a frame: what they carry is what the audit of the directory has, and no more."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import auditor
from auditor import cli
from auditor.api.opened import UNDECIDED
from auditor.base.errors import AuditInputError
from auditor.pipeline import frames_audit
from tests import corpora
from tests.conftest import NIGHTLY

# Of `transactions` what only a coordinator's log shows, and when one began by it; of `events` the kinds that rest on
# snapshots and checkpoints, on indexes or on records.
NOT_IN_BATCHES = ("transactional_id", "class", "transaction_key", "began_earliest_at", "began_latest_at")
OTHER_EVENTS = {"first_nonzero", "index_entry", "time_index_entry", "leader_epoch_checkpoint", "record_flaw",
                "null_key", "batch_timestamp", "record_timestamp"}  # fmt: skip
HOLES = {"offset_hole", "count_below_span"}  # which cleaning explains, unless somebody says what is compacted


def rows(table: auditor.Table) -> Counter[str]:
    found = ({k: str(v) for k, v in row.items() if k not in NOT_IN_BATCHES} for row in table.to_dicts())
    # Behind a log start that a checkpoint has, the broker does not know by which leader the batch before came.
    texts = (re.sub(r'\\"previous_leader_epoch\\": -?\d+', "", json.dumps(row)) for row in found
             if row.get("kind") not in OTHER_EVENTS)  # fmt: skip
    return Counter(texts)


@pytest.mark.parametrize("name", corpora.names() if NIGHTLY else corpora.names()[::3])
def test_a_frame_gives_what_the_directory_gives(name: str) -> None:
    as_of = corpora.manifest(name).get("copied_at")
    with (
        auditor.open(corpora.unpack(name), master="inline[1]", as_of=as_of) as audit,
        auditor.replay_batches(audit.table("batches"), master="inline[1]", as_of=as_of) as replayed,
    ):
        assert rows(replayed.transaction_partitions) == rows(audit.table("transaction_partitions"))
        assert rows(replayed.events) <= rows(audit.table("events"))
        missed = rows(audit.table("events")) - rows(replayed.events)
        assert all(any(f'"kind": "{kind}"' in row for kind in HOLES) for row in missed)
        wrong = {(f.topic, f.partition, f.offset) for f in audit.findings.where(min_severity="warning")}
        alarms = replayed.findings.where(min_severity="warning")
        assert {(f.topic, f.partition, f.offset) for f in alarms} <= wrong


def test_with_the_coordinators_tables_open_transactions_are_decided() -> None:
    """As the audit of the directory says, and as its manifest does: which of them hang, and whose they are."""
    for name in ("hanging-36", "altered-41", "not-hanging-41"):
        manifest = corpora.manifest(name)
        as_of = manifest.get("copied_at")
        with auditor.open(corpora.unpack(name), master="inline[1]", as_of=as_of) as audit:
            given = {table: audit.table(table) for table in frames_audit.RECORDS}
            metadata = {table: audit.table(table) for table in frames_audit.METADATA}
            with auditor.replay_batches(
                audit.table("batches"), master="inline[1]", as_of=as_of, at_once=True, metadata=metadata, **given
            ) as replayed:
                assert statuses(replayed.transaction_partitions) == statuses(audit.table("transaction_partitions"))
                keys = [transaction["transaction_key"] for transaction in audit.table("transactions").to_dicts()]
                assert Counter(t["transaction_key"] for t in replayed.transactions.to_dicts()) == Counter(keys)
                open_here = {"hanging-transaction", "transaction-past-timeout", "open-transaction"}
                found, expected = (
                    {(f.kind, f.severity, f.topic, f.partition, f.offset) for f in one.findings if f.rule in open_here}
                    for one in (replayed, audit)
                )
                assert found == expected
                hanging = {(e["topic"], e["partition"], e["firstOffset"]) for e in manifest["expect"]
                           if e["finding"] == "hanging_transaction"}  # fmt: skip
                told = {(f.topic, f.partition, f.offset) for f in replayed.findings.where(rule="hanging-transaction")
                        if f.severity == "critical"}  # fmt: skip
                assert told >= hanging
                assert not any("__transaction_state" in what for what in replayed.undecided)


def statuses(table: auditor.Table) -> Counter[str]:
    names = ("topic", "partition", "producer_id", "first_offset", "marker_offset", "outcome", *NOT_IN_BATCHES[:3])
    return Counter(str([row[name] for name in names]) for row in table.to_dicts())


def test_frames_of_other_columns_are_mistakes(batches: pa.Table) -> None:
    for given, says in {
        "transaction_log": "transaction_log is not the table of docs/tables.md",
        "metadata": "metadata has no table 'batches'; give partitions, topic_configs, broker_configs",
    }.items():
        wrong = {"batches": batches} if given == "metadata" else batches
        with pytest.raises(AuditInputError, match=says):
            auditor.replay_batches(batches, master="inline[1]", **{given: wrong})


def test_holes_are_losses_where_nothing_is_compacted() -> None:
    """The manifest has one that was cut out."""
    with auditor.open(corpora.unpack("altered-41"), master="inline[1]") as audit:
        topics = audit.table("topic_configs").to_dicts()
        compacted = [row["topic"] for row in topics if row["name"] == "cleanup.policy" and "compact" in row["value"]]
        with auditor.replay_batches(audit.table("batches"), master="inline[1]", compacted=compacted) as replayed:
            assert rows(replayed.events) == rows(audit.table("events"))
            assert replayed.findings.where(rule="offset-hole")


@pytest.fixture(scope="module")
def batches() -> Iterator[pa.Table]:
    with auditor.open(corpora.unpack("altered-41"), master="inline[1]") as audit:
        yield audit.table("batches").to_arrow()


@pytest.fixture(scope="module")
def found(batches: pa.Table) -> Iterator[Any]:
    with auditor.replay_batches(batches, master="inline[1]") as replayed:
        yield said(replayed)


def said(replayed: auditor.ReplayedBatches) -> Any:
    tables = (replayed.transaction_partitions, replayed.events, replayed.producers)
    return [rows(table) for table in tables], replayed.findings.to_dicts()


def test_what_was_done_to_headers_is_found(found: Any) -> None:
    """By the manifest; what was done to indexes, snapshots and checkpoints is not in batches."""
    by_name = {rule: e for e in corpora.manifest("altered-41")["expect"] for rule in corpora.rule_ids()[e["finding"]]}
    kinds = {f["kind"] for f in found[1]}
    assert {
        "batch-crc-mismatch",
        "epoch-regression",
        "sequence-gap",
        "duplicate-sequence-range",
    } <= kinds & by_name.keys()


def test_rows_may_come_in_any_order_and_form(batches: pa.Table, found: Any, tmp_path: Any) -> None:
    shuffled = batches.take(pc.sort_indices(batches, [("crc", "ascending")]))
    pq.write_table(shuffled, tmp_path / "batches.parquet")
    plain = shuffled.drop_columns(["last_sequence"])
    number = plain.column_names.index("max_timestamp")
    plain = plain.set_column(number, "max_timestamp", plain.column("max_timestamp").cast(pa.int64()))
    plain = plain.set_column(3, "topic", plain.column("topic").dictionary_encode())
    for form in (shuffled, pq.read_table(tmp_path), shuffled.to_pandas(), plain):
        with auditor.replay_batches(form, master="inline[1]") as replayed:
            assert said(replayed) == found


def test_a_copy_without_payload_has_what_it_takes(found: Any, tmp_path: Any) -> None:
    assert cli.main(["copy", str(corpora.unpack("altered-41")), "--out", str(tmp_path / "copy"), "--quiet"]) == 0
    with (
        auditor.open(tmp_path / "copy", master="inline[1]") as audit,
        auditor.replay_batches(audit.table("batches"), master="inline[1]") as replayed,
    ):
        assert (rows(replayed.transaction_partitions), rows(replayed.events)) == tuple(found[0][:2])


def test_a_frame_of_several_brokers_without_names_is_told_apart(batches: pa.Table) -> None:
    """By broker and cluster; nothing of one is taken for the other's."""
    few = batches.filter(pc.equal(batches.column("topic"), "bay.case")).drop_columns(["log_dir"])
    number = few.column_names.index("broker_id")
    other = few.set_column(number, "broker_id", pa.array([2] * len(few), pa.int32()))
    with auditor.replay_batches(pa.concat_tables([few, other]), master="inline[1]") as replayed:
        assert set(replayed.producers.to_arrow().column("log_dir").to_pylist()) == {
            f"{few.column('cluster_id')[0].as_py()}/broker-{n}" for n in (1, 2)
        }


def test_what_batches_do_not_carry_is_said(batches: pa.Table) -> None:
    with auditor.replay_batches(batches, master="inline[1]") as replayed:
        assert replayed.undecided == UNDECIDED
        opened = [row for row in replayed.transaction_partitions.to_dicts() if row["kind"] == "open"]
        assert {
            (row["transactional_id"], row["transaction_key"]) for row in replayed.transaction_partitions.to_dicts()
        } == {(None, None)}
        assert {row["class"] for row in opened} <= {"undecidable"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop_columns(["producer_id", "crc"]), "has no column crc, producer_id"),
        (lambda t: t.drop_columns(["magic"]).append_column("magic", t.column("magic").cast("string")),
         "column magic of the frame is string, where batches has int32"),
        (lambda t: t.drop_columns(["is_control"]).append_column("is_control", t.column("magic")),
         "column is_control of the frame is int32, where batches has bool"),
        (lambda _: [1], "not a list"),
    ],
)  # fmt: skip
def test_a_frame_of_other_columns_is_a_mistake(batches: pa.Table, change: Any, says: str) -> None:
    with pytest.raises(AuditInputError, match=says) as raised:
        auditor.replay_batches(change(batches))
    assert "\n" not in str(raised.value)


def test_a_number_that_no_batch_has_is_a_mistake(batches: pa.Table) -> None:
    number = batches.column_names.index("magic")
    large = batches.set_column(number, "magic", pa.array([1 << 40] * len(batches), pa.int64()))
    with (
        auditor.replay_batches(large, master="inline[1]") as replayed,
        pytest.raises(AuditInputError, match="column magic of the frame has an invalid value"),
    ):
        _ = replayed.findings


def test_an_empty_frame_has_nothing(batches: pa.Table) -> None:
    with auditor.replay_batches(batches.slice(0, 0), master="inline[1]") as replayed:
        assert (replayed.transaction_partitions.num_rows, len(replayed.findings)) == (0, 0)


def test_columns_are_what_the_page_says() -> None:
    assert {*frames_audit.NEEDED, *frames_audit.OPTIONAL, "last_sequence", "bytes", "records"} == set(
        frames_audit.BATCHES.names
    )


@pytest.mark.parametrize("name", ["base_offset", "last_offset"])
def test_an_offset_that_no_batch_has_is_a_mistake(batches: pa.Table, name: str) -> None:
    """Behind 2^63 - 1 there is none where the log could go on."""
    far = pa.array([2**63 - 1] * len(batches), pa.int64())
    large = batches.set_column(batches.column_names.index(name), name, far)
    with (
        auditor.replay_batches(large, master="inline[1]") as replayed,
        pytest.raises(AuditInputError, match=f"column {name} of the frame has an invalid value"),
    ):
        _ = replayed.findings
