"""The history of a real cluster's metadata against the records that Kafka's own tool printed of it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditor.connectors.codec.cluster_metadata import Change, ClusterMetadata, MetadataEntry
from auditor.connectors.logdir.internal_rows import row_of
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.schema import METADATA_HISTORY, from_rows
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from tests import corpora, formats
from tests.unit.log_reader import read_partition

TABLE = frozenset({"metadata_history"})
UNCLEAN = 613  # what the corpus' manifest says of its unclean election


def history(folder: Path) -> list[dict[str, Any]]:
    inventory = discover([str(folder)])
    found = [rows for piece in plan(inventory, TABLE) for _, rows in read_piece(piece, TABLE, How())]
    rows: list[dict[str, Any]] = pa.Table.from_batches(found).to_pylist()
    return rows


def said(corpus: str) -> dict[int, dict[str, Any]]:
    """The records of the log by offset, as Kafka's tool printed them."""
    ((_, _, records),) = (found for found in formats.printed("__cluster_metadata") if found[0] == corpus)
    return {offset: json.loads(text) for (file, offset), (_, text) in records.items() if file.endswith(".log")}


@pytest.fixture(scope="module")
def unclean() -> list[dict[str, Any]]:
    return history(corpora.unpack("unclean-43"))


def test_the_unclean_election(unclean: list[dict[str, Any]]) -> None:
    (row,) = (row for row in unclean if row["offset"] == UNCLEAN)
    assert (row["record"], row["topic"], row["partition"]) == ("PartitionChangeRecord", "un", 0)
    assert (row["isr"], row["previous_isr"]) == ([2], [1])
    assert (row["leader"], row["leader_recovery_state"]) == (2, "RECOVERING")
    assert row["leader"] not in row["previous_isr"] + row["previous_elr"]
    assert said("unclean-43")[UNCLEAN]["data"] == {
        "partitionId": 0, "topicId": row["topic_id"], "isr": [2], "leader": 2, "leaderRecoveryState": 1,
    }  # fmt: skip


def test_every_change_is_a_row_in_order(unclean: list[dict[str, Any]]) -> None:
    quiet = {"NO_OP_RECORD", "PRODUCER_IDS_RECORD", "BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD"}
    printed = {
        offset: record["type"].replace("_", "").lower()
        for offset, record in said("unclean-43").items()
        if record["type"] not in quiet and not record["type"].startswith(("KRAFT", "SNAPSHOT"))
    }
    offsets = [row["offset"] for row in unclean]
    assert offsets == sorted(offsets)
    ours = {row["offset"]: row["record"].lower() for row in unclean}
    assert ours.items() <= printed.items()
    nothing_to_clear = {offset for offset, kind in printed.items() if kind == "clearelrrecord"}
    assert printed.keys() - ours.keys() <= nothing_to_clear


def test_states_follow_from_what_was_printed(unclean: list[dict[str, Any]]) -> None:
    """Replayed here from the tool's words: the values of each record, and epochs that grow by Kafka's rules."""
    printed = said("unclean-43")
    epochs: dict[tuple[str, int], tuple[int, int]] = {}
    compared = 0
    for row in unclean:
        data = printed[row["offset"]]["data"]
        if row["record"] not in ("PartitionRecord", "PartitionChangeRecord"):
            continue
        key = (row["topic_id"], row["partition"])
        assert key == (data["topicId"], data["partitionId"])
        if row["record"] == "PartitionRecord":
            epochs[key] = (data["leaderEpoch"], data["partitionEpoch"])
        else:
            leader_epoch, partition_epoch = epochs[key]
            epochs[key] = (leader_epoch + ("leader" in data), partition_epoch + 1)
        assert (row["leader_epoch"], row["partition_epoch"]) == epochs[key]
        for name, field in (("isr", "isr"), ("replicas", "replicas"), ("leader", "leader"),
                            ("adding_replicas", "addingReplicas"), ("removing_replicas", "removingReplicas"),
                            ("eligible_leader_replicas", "eligibleLeaderReplicas"),
                            ("last_known_elr", "lastKnownElr")):  # fmt: skip
            if field in data:
                assert row[name] == data[field]
        compared += 1
    assert compared > 100


def test_brokers_settings_and_features(unclean: list[dict[str, Any]]) -> None:
    printed = said("unclean-43")
    seen = set()
    for row in unclean:
        data = printed[row["offset"]]["data"]
        match row["record"]:
            case "RegisterBrokerRecord":
                assert (row["node_id"], row["broker_epoch"]) == (data["brokerId"], data["brokerEpoch"])
                assert (row["fenced"], row["in_controlled_shutdown"]) == (data["fenced"], data["inControlledShutdown"])
            case "BrokerRegistrationChangeRecord":
                assert row["node_id"] == data["brokerId"]
                if "fenced" in data:
                    assert row["fenced"] == (data["fenced"] == 1)
                if "inControlledShutdown" in data:
                    assert row["in_controlled_shutdown"]
            case "ConfigRecord":
                assert (row["entity"], row["name"]) == (data["resourceName"], data["name"])
                assert row["topic"] == (data["resourceName"] if data["resourceType"] == 2 else None)
                assert row["value"] == data["value"]
            case "FeatureLevelRecord":
                assert (row["name"], row["value"]) == (data["name"], str(data["featureLevel"]))
            case "TopicRecord":
                assert (row["topic"], row["topic_id"]) == (data["name"], data["topicId"])
            case _:
                continue
        seen.add(row["record"])
    assert len(seen) == 5
    features = {row["name"] for row in unclean if row["record"] == "FeatureLevelRecord"}
    assert features >= {"share.version", "streams.version", "transaction.version", "metadata.version"}
    assert "eligible.leader.replicas.version" in features


def test_a_log_without_its_beginning_starts_from_its_oldest_snapshot(tmp_path: Path) -> None:
    """Cut by hand at a snapshot, as a controller would: the snapshot's state first, then the same history."""
    whole = history(corpora.copy("healthy-41", tmp_path / "whole"))
    folder = tmp_path / "whole" / "broker-1" / "__cluster_metadata-0"
    snapshots = sorted(folder.glob("*-*.checkpoint"))
    end = int(snapshots[0].name.partition("-")[0]) if snapshots else 0
    if not end:
        pytest.skip("no snapshot in this corpus")
    cut = tmp_path / "cut" / "broker-1"
    shutil.copytree(tmp_path / "whole" / "broker-1", cut)
    log = cut / "__cluster_metadata-0"
    data = (log / f"{0:020}.log").read_bytes()
    at = 0
    while int.from_bytes(data[at : at + 8], "big") < end:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    for old in log.glob(f"{0:020}.*"):
        old.unlink()
    (log / f"{end:020}.log").write_bytes(data[at:])
    rows = history(tmp_path / "cut")
    first, later = [r for r in rows if r["offset"] is None], [r for r in rows if r["offset"] is not None]
    assert first == rows[: len(first)]
    assert {r["topic"] for r in first if r["record"] == "TopicRecord"} == {
        r["topic"] for r in whole if r["record"] == "TopicRecord" and r["offset"] < end
    }
    assert all(r["timestamp"] is not None for r in first)
    kept = [r for r in whole if r["offset"] >= end]
    assert [r["offset"] for r in later] == [r["offset"] for r in kept]
    assert later == kept


def test_no_metadata_raises() -> None:
    """Changed bytes of real records: each is a change with a row, an error, or nothing."""
    chance = random.Random(8)
    _name, folder, _said = next(found for found in formats.printed("__cluster_metadata") if found[0] == "unclean-43")
    reads = list(read_partition(folder))
    changes: list[Change] = []
    metadata = ClusterMetadata(0, changes.append)
    for read in reads:
        value = bytearray(read.value or b"")
        if read.offset > 20 and chance.random() < 0.3 and value:  # behind the transaction that a log begins with
            value[chance.randrange(len(value))] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
        metadata.log_entry(MetadataEntry("f", 0, 1, read.is_control, read.offset, 0, read.key, bytes(value)))
    assert len(changes) > 100
    from_rows(METADATA_HISTORY, ("c", 1, "broker-1"), [row_of(change, None) for change in changes])
