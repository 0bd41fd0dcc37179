"""Records of the internal topics of Kafka 4.3.1, every one field by field as its own DumpLogSegments prints them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.connectors.codec.cluster_metadata import (
    BY_NAME,
    MetadataRecord,
    decode_control_record,
    decode_metadata_record,
)
from auditor.connectors.codec.group_topics import (
    GROUP_TYPES,
    NO_TOPIC_ID,
    TYPES,
    GroupMetadataRow,
    OffsetCommitRow,
    decode_consumer_offsets,
    decode_share_group_state,
)
from auditor.connectors.codec.remote_log_metadata import decode_remote_log_metadata
from auditor.connectors.codec.structs import as_printed
from auditor.connectors.schema import (
    GROUP_METADATA,
    OFFSET_COMMITS,
    REMOTE_LOG_METADATA,
    RENAMED,
    SHARE_GROUP_STATE,
    from_rows,
)
from tests import formats
from tests.conftest import NIGHTLY
from tests.unit import client_encoding
from tests.unit.log_reader import Read, read_log

PREVIEWED = {f"{name}_preview": kind for name, kind in [
    *((k.kind, k) for k in GROUP_TYPES.values() if k.preview), *((k.kind, k) for k in TYPES.values())]}  # fmt: skip
ZERO = "A" * 22


def reads(folder: Path) -> dict[tuple[str, int], Read]:
    files = [*folder.glob("*.log"), *folder.glob("*-*.checkpoint")]
    return {(path.name, read.offset): read for path in files for read in read_log(path) if not read.is_control}


def as_group_row_says(row: GroupMetadataRow) -> tuple[dict[str, Any], Any]:
    key = {"group" if row.key_type == 2 else "groupId": row.group_id}
    if "memberId" in {field.name for field in GROUP_TYPES[row.key_type].key.fields}:
        assert row.member_ids is not None
        key["memberId"] = row.member_ids[0]
    if row.regular_expression is not None:
        key["regularExpression"] = row.regular_expression
    value = None if row.value is None else {"version": str(row.value_version), "data": json.loads(row.value)}
    return {"type": str(row.key_type), "data": key}, value


def as_commit_says(row: OffsetCommitRow) -> tuple[dict[str, Any], Any]:
    key = {"group": row.group_id, "topic": row.consumed_topic, "partition": row.consumed_partition}
    if row.tombstone:
        return {"type": "1", "data": key}, None
    data = {"offset": row.committed_offset, "leaderEpoch": row.leader_epoch, "metadata": row.metadata,
            "commitTimestamp": row.commit_timestamp}  # fmt: skip
    if row.topic_id is not None:
        data["topicId"] = row.topic_id
    return {"type": "1", "data": key}, {"version": str(row.value_version), "data": data}


def test_every_record_of_every_kind_of_group() -> None:
    kinds: Counter[str] = Counter()
    for _name, folder, said in formats.printed("__consumer_offsets"):
        stored = reads(folder)
        assert stored.keys() == said.keys()
        for place, (key, payload) in said.items():
            row, problem = decode_consumer_offsets(stored[place].key, stored[place].value, payload=True)
            assert problem is None
            assert row is not None
            ours = as_commit_says(row) if isinstance(row, OffsetCommitRow) else as_group_row_says(row)
            assert key is not None
            theirs = json.loads(key), None if payload == "<DELETE>" else json.loads(payload)
            assert ours == theirs, place
            kinds[theirs[0]["type"]] += 1
    assert kinds.keys() == {str(kind) for kind in (1, *range(2, 9), *range(10, 18), *range(19, 24))}


def test_what_clients_chose_and_addresses_are_withheld() -> None:
    withheld: Counter[str] = Counter()
    for _name, folder, _said in formats.printed("__consumer_offsets"):
        for read in reads(folder).values():
            row, _ = decode_consumer_offsets(read.key, read.value)
            if isinstance(row, OffsetCommitRow):
                assert row.metadata is None
            elif row is not None and row.value is not None:
                assert "127.0.0.1" not in row.value
                for name in ("clientHost", "userData", "metadata"):
                    withheld[name] += row.value.count(f'"{name}":')
                    assert row.value.count(f'"{name}":') == row.value.count(f'"{name}":null')
    assert all(withheld[name] for name in ("clientHost", "userData", "metadata"))


def test_every_record_of_share_groups_state() -> None:
    kinds: Counter[str] = Counter()
    for _name, folder, said in formats.printed("__share_group_state"):
        stored = reads(folder)
        assert stored.keys() == said.keys()
        for place, (key, payload) in said.items():
            row, problem = decode_share_group_state(stored[place].key, stored[place].value)
            assert problem is None
            assert row is not None
            assert key is not None
            assert json.loads(key) == {
                "type": str(row.key_type),
                "data": {"groupId": row.group_id, "topicId": row.topic_id, "partition": row.consumed_partition},
            }
            kinds[row.kind] += 1
            assert row.tombstone == (payload == "<DELETE>")
            if row.tombstone:
                continue
            value = json.loads(payload)
            assert value.pop("version") == str(row.value_version)
            data = value["data"]
            assert json.loads(row.state_batches or "") == data.pop("stateBatches")
            assert row.delivery_complete_count == data.pop("deliveryCompleteCount", -1)
            assert row.snapshot_epoch == data.pop("snapshotEpoch")
            assert (row.leader_epoch, row.start_offset) == (data.pop("leaderEpoch"), data.pop("startOffset"))
            assert row.state_epoch == data.pop("stateEpoch", None)
            assert row.create_timestamp == data.pop("createTimestamp", None)
            assert row.write_timestamp == data.pop("writeTimestamp", None)
            assert data == {}
    assert kinds["ShareSnapshot"] > 5
    assert kinds["ShareUpdate"] > 5


REMOTE = re.compile(
    r"(?P<kind>\w+)\{remoteLogSegmentId=RemoteLogSegmentId\{topicIdPartition=(?P<topic_id>[\w-]{22}):(?P<topic>\S+)"
    r"-(?P<partition>\d+), id=(?P<id>[\w-]{22})\}, (?P<rest>.*)\}"
)


def test_every_record_of_remote_segments() -> None:
    kinds: Counter[str] = Counter()
    for _name, folder, said in formats.printed("__remote_log_metadata"):
        stored = reads(folder)
        assert stored.keys() == said.keys()
        for place, (_key, payload) in said.items():
            row, problem = decode_remote_log_metadata(stored[place].value)
            assert problem is None
            assert row is not None
            match = REMOTE.fullmatch(payload)
            assert match is not None
            assert (row.kind, row.topic_id, row.tiered_topic) == (match["kind"], match["topic_id"], match["topic"])
            assert (row.tiered_partition, row.segment_id) == (int(match["partition"]), match["id"])
            rest = dict(re.findall(r"(\w+)=(\{[^}]*\}|[^,]+)", match["rest"]))
            assert (row.state, str(row.event_broker_id)) == (rest["state"], rest["brokerId"])
            assert str(row.event_timestamp) == rest["eventTimestampMs"]
            assert (row.custom_metadata is None) == (rest["customMetadata"] == "Optional.empty")
            if "startOffset" in rest:
                assert (str(row.start_offset), str(row.end_offset)) == (rest["startOffset"], rest["endOffset"])
                assert (str(row.max_timestamp), str(row.size)) == (rest["maxTimestampMs"], rest["segmentSizeInBytes"])
                assert str(row.txn_index_empty).lower() == rest["txnIdxEmpty"]
                epochs = json.loads(row.leader_epochs or "")
                assert rest["segmentLeaderEpochs"] == "{" + ", ".join(f"{k}={v}" for k, v in epochs.items()) + "}"
            kinds[row.kind] += 1
    assert kinds.keys() == {"RemoteLogSegmentMetadata", "RemoteLogSegmentMetadataUpdate"}


def test_every_record_of_the_clusters_metadata() -> None:
    kinds: Counter[tuple[str, int]] = Counter()
    for _name, folder, said in formats.printed("__cluster_metadata"):
        stored = reads(folder)
        for place, (_key, payload) in said.items():
            theirs = json.loads(payload)
            if place not in stored:  # a control record of a snapshot, which the tool shows under its own name
                assert theirs["type"] in (
                    "SnapshotHeader",
                    "SnapshotFooter",
                    "KRaftVersion",
                    "KRaftVoters",
                    "LeaderChange",
                )
                continue
            ours = decode_metadata_record(stored[place].value)
            assert isinstance(ours, MetadataRecord)
            assert re.sub(r"(?<!^)(?=[A-Z])", "_", ours.name).upper() == theirs["type"]
            assert ours.version == theirs["version"]
            assert as_printed(BY_NAME[ours.name], ours.version, ours.fields, payload=True) == theirs["data"]
            kinds[ours.name, ours.version] += 1
    assert kinds["RegisterBrokerRecord", 4]
    assert kinds["PartitionChangeRecord", 2] > 100
    assert len(kinds) > 9


@pytest.mark.parametrize("kind", PREVIEWED)
def test_what_3_9_and_4_0_wrote_under_the_same_version(kind: str) -> None:
    """KIP-932 changed these without a new version; the schemas are those of the 4.0.0 jars."""
    message = PREVIEWED[kind].preview
    assert message is not None
    fields: dict[str, Any] = {"epoch": 7, "snapshotEpoch": 60000, "stateEpoch": 3, "leaderEpoch": 4, "startOffset": 5}
    fields |= {"stateBatches": [{"firstOffset": 5, "lastOffset": 9, "deliveryState": 2, "deliveryCount": 1}]}
    fields |= {"initializedTopics": [{"topicId": ZERO, "topicName": "t", "partitions": [0, 1]}], "deletingTopics": []}
    fields = {field.name: fields[field.name] for field in message.fields}
    value = b"\0\0" + client_encoding.encode(message, 0, fields)
    if kind.startswith(("ShareSnapshot", "ShareUpdate")):
        key = (b"\0\0" if kind.startswith("ShareSnapshot") else b"\0\1") + b"\0\1g" + bytes(16) + b"\0\0\0\3"
        state, problem = decode_share_group_state(key, value)
        assert problem is None
        assert state is not None
        assert (state.snapshot_epoch, state.start_offset, state.consumed_partition) == (60000, 5, 3)
        assert json.loads(state.state_batches or "") == fields["stateBatches"]
    else:
        number = next(n for n, known in GROUP_TYPES.items() if known.kind == kind.removesuffix("_preview"))
        row, problem = decode_consumer_offsets(bytes([0, number]) + b"\0\1g", value)
        assert problem is None
        assert isinstance(row, GroupMetadataRow)
        assert json.loads(row.value or "") == fields


@pytest.mark.parametrize(
    ("key", "value", "reason", "detail"),
    [
        (b"\0\x18\0\1g", b"\0\0", "unknown_key_type", "__consumer_offsets with the unknown key type 24"),
        (b"\0\x12\0\1g", b"\0\0", "unknown_key_type", "__consumer_offsets with the unknown key type 18"),
        (b"\0\x11\0\1g", b"\0\1\0", "bad_version", "StreamsGroupMetadataValue version 1, known: 0 to 0"),
        (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\5", "bad_version", "OffsetCommitValue version 5, known: 0 to 4"),
    ],
)
def test_what_is_newer_is_named(key: bytes, value: bytes, reason: str, detail: str) -> None:
    row, problem = decode_consumer_offsets(key, value)
    assert row is None
    assert problem is not None
    assert (problem.reason, problem.detail.endswith(detail)) == (reason, True)


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        (None, "bad_value", "a null value"),
        (b"\2\0\0", "bad_version", "frame version 2, known: 1"),
        (b"\1\4\0", "unknown_key_type", "a record of __remote_log_metadata with the unknown api key 4"),
        (b"\1\0\1", "bad_version", "RemoteLogSegmentMetadataRecord version 1, known: 0 to 0"),
    ],
)
def test_remote_metadata_that_is_not_understood(value: bytes | None, reason: str, detail: str) -> None:
    row, problem = decode_remote_log_metadata(value)
    assert row is None
    assert problem is not None
    assert (problem.reason, problem.detail) == (reason, detail)


def test_metadata_in_newer_versions_is_named() -> None:
    for value, said in (
        (b"\1\0\5", "RegisterBrokerRecord version 5, known: 0 to 4"),
        (b"\1\x11\4", "BrokerRegistrationChangeRecord version 4, known: 0 to 3"),
        (b"\1\x12\1", "AccessControlEntryRecord version 1, known: 0 to 0"),
        (b"\1\x1e\0", "a record with api key 30, which Kafka does not have"),
    ):
        problem = decode_metadata_record(value)
        assert not isinstance(problem, MetadataRecord)
        assert problem.detail == said
    assert not isinstance(decode_control_record(b"\0\0\0\3", b"\0\1"), MetadataRecord)


KEY = ("cluster", 1, "broker-1", "t", 0)


def mutants(topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of real records with a few bytes changed, and cut."""
    chance = random.Random(topic)
    real = [read for _name, folder, _said in formats.printed(topic) for read in reads(folder).values()]
    for _ in range(3000 if NIGHTLY else 800):
        read = chance.choice(real)
        parts = [bytearray(part or b"") for part in (read.key, read.value)]
        part = chance.choice([part for part in parts if part])
        for _ in range(chance.randrange(4)):
            part[chance.randrange(len(part))] = chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF))
        if chance.random() < 0.3:
            del part[chance.randrange(len(part)) :]
        yield bytes(parts[0]) or None, bytes(parts[1]) or None


def test_no_bytes_raise() -> None:
    head = ("f", 0, 0, 0)
    for key, value in mutants("__consumer_offsets"):
        row, problem = decode_consumer_offsets(key, value, payload=True)
        assert row is not None or problem is not None
        if isinstance(row, OffsetCommitRow):
            from_rows(OFFSET_COMMITS, KEY, [(*head, *row, False, -1, -1)])
        elif row is not None:
            from_rows(GROUP_METADATA, KEY, [(*head, *row)])
            assert row.value is None or json.loads(row.value) is not None
    for key, value in mutants("__share_group_state"):
        share, problem = decode_share_group_state(key, value)
        assert share is not None or problem is not None
        if share is not None:
            from_rows(SHARE_GROUP_STATE, KEY, [(*head, *share)])
    for _key, value in mutants("__remote_log_metadata"):
        remote, problem = decode_remote_log_metadata(value)
        assert remote is not None or problem is not None
        if remote is not None:
            from_rows(REMOTE_LOG_METADATA, KEY, [(*head, *remote)])


def test_a_float_that_is_no_number_is_text() -> None:
    quota = b"\1\x0e\0" + b"\1" + b"\2k" + bytes.fromhex("fff0000000000000") + b"\0\0"
    record = decode_metadata_record(quota)
    assert isinstance(record, MetadataRecord)
    assert as_printed(BY_NAME[record.name], 0, record.fields)["value"] == "-Infinity"


def test_rows_are_those_of_the_tables() -> None:
    commit, _ = decode_consumer_offsets(b"\0\1\0\1g\0\1t\0\0\0\0", None)
    group, _ = decode_consumer_offsets(b"\0\2\0\1g", None)
    share, _ = decode_share_group_state(b"\0\0\0\1g" + bytes(20), None)
    assert isinstance(commit, OffsetCommitRow)
    assert isinstance(group, GroupMetadataRow)
    assert share is not None
    assert share.topic_id == NO_TOPIC_ID
    assert list(commit._fields) == OFFSET_COMMITS.names[9:-3]
    assert list(group._fields) == GROUP_METADATA.names[9:]
    assert list(share._fields) == SHARE_GROUP_STATE.names[9:]
    _n, folder, _s = next(formats.printed("__remote_log_metadata"))
    remote, _ = decode_remote_log_metadata(next(iter(reads(folder).values())).value)
    assert remote is not None
    columns = RENAMED["remote_log_metadata"]
    assert [columns.get(name, name) for name in remote._fields] == REMOTE_LOG_METADATA.names[9:]
