"""Records of ``__consumer_offsets`` against the reference's bytes and Kafka's own tools."""

from __future__ import annotations

import json
import random
import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import REASONS
from auditor.connectors.codec import group_topics
from auditor.connectors.codec.group_topics import GroupMetadataRow, OffsetCommitRow, Row, decode_consumer_offsets
from auditor.connectors.schema import GROUP_METADATA, OFFSET_COMMITS
from tests import corpora
from tests.unit import client_encoding, dumps
from tests.unit.log_reader import read_partition

# formats.md section 9
KEY = bytes.fromhex("0001 0009 672d636c6173736963 0003 696e70 00000000")
VALUE_V4 = bytes.fromhex("0004 0000000000000004 00000000 05 6d657461 000001a1fc1159be 00")
GROUP_KEY = b"\0\2\0\1g"
OLD_COMMIT = re.compile(
    r"\[(.*),(.*),(\d+)\]::(?:\[OffsetMetadata\[(\d+),(?:.*)\],CommitTime (\d+),ExpirationTime (\d+)\]"
    r"|OffsetAndMetadata\(offset=(\d+), leaderEpoch=Optional(?:\.empty|\[(\d+)\]), metadata=.*, commitTimestamp=(\d+), "
    r"expireTimestamp=(?:None|Some\((\d+)\))\)|(NULL))"
)
OLD_GROUP = re.compile(
    r"(.*)::(?:GroupMetadata\(groupId=.*?, generation=(\d+), protocolType=(?:Some\((.*?)\)|None), currentState=\w+, "
    r"members=(?:Hash)?Map\((.*)\)\)|NULL)$"
)


def row(key: bytes | None, value: bytes | None) -> Row:
    found, problem = decode_consumer_offsets(key, value)
    assert problem is None
    assert found is not None
    return found


def stored(folder: Path) -> dict[int, Row]:
    return {read.offset: row(read.key, read.value) for read in read_partition(folder) if not read.is_control}


def test_the_reference_commit() -> None:
    assert row(KEY, VALUE_V4) == OffsetCommitRow("g-classic", "inp", 0, False, 4, 4, 0, 1795230357950, None)
    assert row(KEY, None) == OffsetCommitRow("g-classic", "inp", 0, True)
    assert row(b"\0\0" + KEY[2:], None) == OffsetCommitRow("g-classic", "inp", 0, True)


def test_rows_are_those_of_the_tables() -> None:
    assert set(OffsetCommitRow._fields) < set(OFFSET_COMMITS.names)
    assert GROUP_METADATA.names[-len(GroupMetadataRow._fields) :] == list(GroupMetadataRow._fields)


@pytest.mark.parametrize(
    ("version", "leader_epoch", "expire"), [(0, -1, None), (1, -1, 99), (2, -1, None), (3, 6, None), (4, 6, None)]
)
def test_every_version_of_a_commit(version: int, leader_epoch: int, expire: int | None) -> None:
    fields = {"offset": 42, "leaderEpoch": 6, "metadata": "m", "commitTimestamp": 98, "expireTimestamp": 99}
    present = {f.name for f in group_topics.OFFSET_COMMIT_VALUE.fields if f.since <= version <= f.until}
    body = client_encoding.encode(
        group_topics.OFFSET_COMMIT_VALUE, version, {name: fields[name] for name in present & fields.keys()}
    )
    found = row(KEY, struct.pack(">h", version) + body)
    assert found == OffsetCommitRow("g-classic", "inp", 0, False, version, 42, leader_epoch, 98, expire)


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_classic_group(version: int) -> None:
    member = {"memberId": "m-1", "clientId": "c", "clientHost": "/h", "rebalanceTimeout": 1, "sessionTimeout": 2}
    member |= {"subscription": b"s", "assignment": b"", "groupInstanceId": "i"}
    fields = {"protocolType": "consumer", "generation": 7, "protocol": None, "leader": "m-1", "members": [member]}
    fields["currentStateTimestamp"] = 5
    body = client_encoding.encode(group_topics.GROUP_METADATA_VALUE, version, only(version, fields, member))
    found = row(GROUP_KEY, struct.pack(">h", version) + body)
    assert isinstance(found, GroupMetadataRow)
    said = json.loads(found.value or "")
    (said_member,) = said.pop("members")
    assert said | {"members": [member]} == only(version, fields, member) | {"members": [member]}
    hidden = {"clientHost": None, "subscription": None, "assignment": None}
    assert said_member == only(version, fields, member)["members"][0] | hidden
    assert found._replace(value=None) == GroupMetadataRow(
        "g", 2, "GroupMetadata", False, version, "consumer", None, 7, "m-1", 5 if version > 1 else None,
        ["m-1"], ["i"] if version > 2 else [None], ["c"],
    )  # fmt: skip


def only(version: int, fields: dict[str, Any], member: dict[str, Any]) -> dict[str, Any]:
    """The fields that are in a version."""
    members = group_topics.GROUP_METADATA_VALUE.fields[-1]
    kept = {f.name: fields[f.name] for f in group_topics.GROUP_METADATA_VALUE.fields if f.since <= version}
    return kept | {"members": [{f.name: member[f.name] for f in members.fields if f.since <= version}]}


def test_every_record_is_as_dump_log_says() -> None:
    kinds: dict[str, int] = defaultdict(int)
    for name, folder, text in dumps.partitions("__consumer_offsets"):
        rows = stored(folder)
        for offset, key, payload in dumps.records(text):
            if key.startswith("{"):
                kinds[as_json_says(rows[offset], json.loads(key), payload)] += 1
            else:
                kinds[as_old_tool_says(rows[offset], key, payload)] += 1
        assert rows or name == "legacy-0102"
    assert kinds["0"] + kinds["1"] > 40
    assert kinds["2"] > 20
    assert all(kinds[kind] for kind in "35678")


def as_json_says(found: Row, key: dict[str, Any], payload: str) -> str:
    kind, names = str(key["type"]), key["data"]
    value = None if payload == "<DELETE>" else json.loads(payload)
    compare_key(found, int(kind), names)
    assert found.tombstone == (value is None)
    if value is not None:
        assert found.value_version == int(value["version"])
        compare_value(found, value["data"])
    return kind


def compare_key(found: Row, kind: int, names: dict[str, Any]) -> None:
    if isinstance(found, OffsetCommitRow):
        assert kind in (0, 1)
        consumed = (found.group_id, found.consumed_topic, found.consumed_partition)
        assert consumed == (names["group"], names["topic"], names["partition"])
        return
    assert found.key_type == kind
    assert found.group_id == names.get("group", names.get("groupId"))
    if "memberId" in names:
        assert found.member_ids == [names["memberId"]]


def compare_value(found: Row, data: dict[str, Any]) -> None:
    if isinstance(found, OffsetCommitRow):
        assert (found.committed_offset, found.leader_epoch) == (data["offset"], data.get("leaderEpoch", -1))
        assert (found.commit_timestamp, found.expire_timestamp) == (
            data["commitTimestamp"],
            data.get("expireTimestamp"),
        )
    elif found.key_type == 2:
        assert (found.protocol_type, found.protocol) == (data["protocolType"], data["protocol"])
        assert (found.generation, found.leader) == (data["generation"], data["leader"])
        assert found.state_timestamp == data["currentStateTimestamp"]
        assert found.member_ids == [member["memberId"] for member in data["members"]]
        assert found.group_instance_ids == [member["groupInstanceId"] for member in data["members"]]
        assert found.client_ids == [member["clientId"] for member in data["members"]]
    else:
        epochs = {3: "epoch", 6: "assignmentEpoch", 8: "memberEpoch"}
        assert found.generation == (data[epochs[found.key_type]] if found.key_type in epochs else None)


def as_old_tool_says(found: Row, key: str, payload: str) -> str:
    if isinstance(found, OffsetCommitRow):
        consumed = f"{found.consumed_topic}-{found.consumed_partition}"
        assert key == f"offset_commit::group={found.group_id},partition={consumed}"
        assert payload == ("<DELETE>" if found.tombstone else f"offset={found.committed_offset}")
        return "1"
    assert key == f"group_metadata::group={found.group_id}"
    assert found.tombstone == (payload == "<DELETE>")
    if not found.tombstone:
        data = json.loads(payload)
        assert found.protocol_type == data["protocolType"]
        assert (found.generation, found.protocol) == (data["generationId"], data["protocol"])
        assert all(f"{member}=" in data["assignment"] for member in found.member_ids or ())
    return "2"


@pytest.mark.parametrize("name", corpora.names())
def test_every_commit_is_as_the_console_consumer_says(name: str) -> None:
    """It prints no offsets of records, so each key's records are compared in their order."""
    found: dict[tuple[Any, ...], list[OffsetCommitRow]] = defaultdict(list)
    for folder in sorted(corpora.unpack(name).glob("broker-1/__consumer_offsets-*")):
        for one in stored(folder).values():
            if isinstance(one, OffsetCommitRow):
                found[one.group_id, one.consumed_topic, one.consumed_partition].append(one)
    compared = 0
    for key, value in said_commits(dumps.console(name, "consumer-offsets")):
        one = found[key].pop(0)
        assert one.tombstone == (value is None)
        if value is not None:
            compare_value(one, value)
        compared += 1
    assert compared or name not in ("healthy-28", "healthy-41", "legacy-0102")


def said_commits(text: str) -> list[tuple[tuple[str, str, int], dict[str, Any] | None]]:
    if "]::" not in text:
        records = list(dumps.json_stream(text))
        return [(tuple(r["key"]["data"].values()), r["value"] and r["value"]["data"]) for r in records]
    out: list[tuple[tuple[str, str, int], dict[str, Any] | None]] = []
    for said in OLD_COMMIT.finditer(text):
        value: dict[str, Any] = {"offset": int(said[4] or said[7] or -1), "leaderEpoch": int(said[8] or -1)}
        value["commitTimestamp"] = int(said[5] or said[9] or -1)
        if said[6] or said[10]:
            value["expireTimestamp"] = int(said[6] or said[10])
        out.append(((said[1], said[2], int(said[3])), None if said[11] else value))
    return out


@pytest.mark.parametrize("name", ["healthy-28", "hanging-36"])
def test_every_group_is_as_the_old_console_consumer_says(name: str) -> None:
    found: dict[str, list[GroupMetadataRow]] = defaultdict(list)
    for folder in sorted(corpora.unpack(name).glob("broker-1/__consumer_offsets-*")):
        for one in stored(folder).values():
            if isinstance(one, GroupMetadataRow):
                found[one.group_id].append(one)
    compared = 0
    for line in dumps.console(name, "consumer-group-metadata").splitlines():
        if (said := OLD_GROUP.match(line)) and found[said[1]]:  # the run that printed it may outlive the copy
            one = found[said[1]].pop(0)
            assert one.tombstone == (said[2] is None)
            if said[2] is not None:
                assert (one.generation, one.protocol_type) == (int(said[2]), said[3])
                assert one.member_ids == re.findall(r"MemberMetadata\(memberId=(.*?), ", said[4])
                assert one.client_ids == re.findall(r" clientId=(.*?), clientHost", said[4])
            compared += 1
    assert compared > 3


@pytest.mark.parametrize(
    ("key", "value", "reason", "has_row"),
    [
        (None, VALUE_V4, "bad_value", False),
        (b"\0", VALUE_V4, "truncated", False),
        (KEY, b"\0\5" + VALUE_V4[2:], "bad_version", False),
        (KEY, b"", "truncated", False),
        (KEY, VALUE_V4 + b"\0", "bad_length", True),
        (b"\0\x0b\0\1g", b"\0\0", "truncated", False),  # share group
        (b"\0\x11\0\1g", b"\0\0", "truncated", False),  # streams group
        (b"\0\x63\0\1g", b"\0\0", "unknown_key_type", False),
        (b"\xff\xff\0\1g", b"\0\0", "unknown_key_type", False),
        (GROUP_KEY, b"\0\5", "bad_version", False),
    ],
)
def test_what_is_unreadable_is_reported(key: bytes | None, value: bytes | None, reason: str, has_row: bool) -> None:
    found, problem = decode_consumer_offsets(key, value)
    assert problem is not None
    assert (problem.reason, found is not None) == (reason, has_row)


def test_kip_848_records_of_no_epoch() -> None:
    topics = GroupMetadataRow("g", 4, "ConsumerGroupPartitionMetadata", False, 0, value='{"topics":[]}')
    assert row(b"\0\4\0\1g", b"\0\0\1\0") == topics
    expression = row(b"\0\x10\0\1g\0\1r", b"\0\0\2\2t" + bytes([*[0] * 7, 5, *[0] * 7, 6, 0]))
    assert isinstance(expression, GroupMetadataRow)
    assert (expression.kind, expression.regular_expression) == ("ConsumerGroupRegularExpression", "r")
    assert expression.value == '{"topics":["t"],"version":5,"timestamp":6}'


def test_no_bytes_raise() -> None:
    chance = random.Random(9)
    for _ in range(5000):
        key = struct.pack(">h", chance.randrange(-1, 26)) + bytes(chance.choice((0, 1, 2, 65)) for _ in range(9))
        value = bytearray(VALUE_V4[: chance.randrange(len(VALUE_V4) + 1)])
        for _ in range(chance.randrange(4) if value else 0):
            value[chance.randrange(len(value))] = chance.choice((0, 1, 3, 0x7F, 0xFF))
        found, problem = decode_consumer_offsets(key, bytes(value))
        assert (found is None) <= (problem is not None)
        assert problem is None or problem.reason in REASONS
