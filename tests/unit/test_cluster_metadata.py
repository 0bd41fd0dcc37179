"""The metadata log against the reference's bytes, what the brokers have on disk besides, and the manifests."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.codec import cluster_metadata
from auditor.connectors.codec.cluster_metadata import (
    CONTROL_MESSAGES,
    MESSAGES,
    Change,
    ClusterMetadata,
    MetadataEntry,
    MetadataRecord,
    PartitionState,
    decode_control_record,
    decode_metadata_record,
    fold_metadata,
)
from auditor.connectors.codec.small_files import decode_partition_metadata, may_show
from auditor.connectors.codec.structs import Problem
from tests import corpora
from tests.seeded_tests import seeded
from tests.unit import client_encoding
from tests.unit.log_reader import Read, read_log, read_partition

ID = "v5HzUXNOSymlK4fSJuwxjA"
RAW_ID = "bf91f351734e4b29a52b87d226ec318c"
DIRECTORY = "00000000000000000000000000000001"
# formats.md 10.2
TOPIC = bytes.fromhex(f"01 02 00 06 706c61696e {RAW_ID} 00")
CONFIG = bytes.fromhex(
    "01 04 00 02 04 6c6174 17 6d6573736167652e74696d657374616d702e74797065 0e 4c6f67417070656e6454696d65 00"
)
PARTITION = bytes.fromhex(
    f"01 03 02 00000000 {RAW_ID} 02 00000007 02 00000007 01 01 00000007 00000000 00000000 02 {DIRECTORY} 00"
)
DIRECTORY_CHANGE = bytes.fromhex(f"01 05 02 00000000 {RAW_ID} 01 08 11 02 {DIRECTORY}")
PRODUCER_IDS = bytes.fromhex("01 0f 00 00000007 0000000000000008 00000000000003e8 00")
FEATURE = bytes.fromhex("01 0c 00 11 6d657461646174612e76657273696f6e 001b 00")
NO_OP = bytes.fromhex("01 14 00 00")
KRAFT = [name for name in corpora.names() if list(corpora.unpack(name).glob("broker-1/__cluster_metadata-0"))]
NAMES = {message.name: key for key, message in MESSAGES.items()}


def record(name: str, version: int = 0, /, **fields: Any) -> bytes:
    message = MESSAGES[NAMES[name]]
    return bytes([1, NAMES[name], version]) + client_encoding.encode(message, version, fields)


def control(name: str, version: int = 0, **fields: Any) -> tuple[bytes, bytes]:
    kind, message = next((kind, message) for kind, message in CONTROL_MESSAGES.items() if message.name == name)
    return bytes([0, 0, 0, kind]), bytes([0, version]) + client_encoding.encode(message, version, fields)


def entry(offset: int, value: bytes | None, key: bytes | None = None) -> MetadataEntry:
    return MetadataEntry("f", 100 * offset, 90, key is not None, offset, 1000 + offset, key, value)


def fold(*values: bytes) -> tuple[ClusterMetadata, list[DecodeError]]:
    return fold_metadata([], [entry(offset, value) for offset, value in enumerate(values)])


def entries(reads: Iterator[Read], file: str) -> Iterator[MetadataEntry]:
    for r in reads:
        yield MetadataEntry(file, r.position, r.size, r.is_control, r.offset, r.timestamp, r.key, r.value)


def folded(
    broker: Path, *, with_snapshots: bool = True, until: int = 1 << 62
) -> tuple[ClusterMetadata, list[DecodeError]]:
    folder = broker / "__cluster_metadata-0"
    snapshots = []
    for path in sorted(folder.glob("*-*.checkpoint"), reverse=True) if with_snapshots else ():
        snapshots.append((int(path.name.partition("-")[0]), entries(read_log(path), path.name)))
    log = entries(read_partition(folder), "log")
    return fold_metadata(snapshots, (one for one in log if one.offset < until))


def test_the_reference_records() -> None:
    metadata, errors = fold(TOPIC, CONFIG, PARTITION, DIRECTORY_CHANGE, PRODUCER_IDS, FEATURE, NO_OP)
    assert errors == []
    assert metadata.topics == {"plain": ID}
    assert metadata.topic_configs == {"lat": {"message.timestamp.type": "LogAppendTime"}}
    assert metadata.partitions == {(ID, 0): PartitionState("plain", 0, ID, (7,), (7,), 7, 0, 1)}
    assert metadata.producer_ids == (7, 1000, 4, 1004)
    assert metadata.next_producer_id() == 1000
    assert metadata.features == {"metadata.version": (27, 5, 1005)}
    assert metadata.end_offset == 7


def test_the_leader_epoch_grows_with_every_leader_even_the_same() -> None:
    change = {"partitionId": 0, "topicId": ID}
    metadata, errors = fold(
        TOPIC,
        PARTITION,
        record("PartitionChangeRecord", **change, leader=7),
        record("PartitionChangeRecord", **change, isr=[7, 8], replicas=[8, 7]),
        record("PartitionChangeRecord", **change, leader=-1, isr=[]),
    )
    assert errors == []
    assert metadata.partitions[ID, 0] == PartitionState("plain", 0, ID, (8, 7), (), -1, 2, 3)


def test_a_removed_topic_takes_its_partitions_and_settings_along() -> None:
    setting = {"resourceType": 2, "resourceName": "plain", "name": "cleanup.policy", "value": "compact"}
    metadata, errors = fold(
        TOPIC, PARTITION, record("ConfigRecord", **setting), record("RemoveTopicRecord", topicId=ID)
    )
    assert (errors, metadata.topics, metadata.partitions, metadata.topic_configs) == ([], {}, {}, {})


class Unwalked(dict[tuple[str, int], PartitionState]):
    """Partitions that may be looked up, and not walked: a record is about one topic, of which there may be many."""

    def __iter__(self) -> Iterator[tuple[str, int]]:
        raise AssertionError("all partitions were walked")

    values = items = keys = __iter__  # type: ignore[assignment]


EMPTY = {"leaderEpoch": 0, "partitionEpoch": 0, "removingReplicas": [], "addingReplicas": [], "directories": []}
TOPICS = [f"{number:02}" for number in range(12)]


@seeded(20)
def test_topics_that_are_removed_or_lose_their_eligible_replicas_are_found_without_a_walk(seed: int) -> None:
    """Against a reading that walks all partitions for each of these records."""
    chosen, metadata = random.Random(seed), ClusterMetadata()
    metadata.partitions = Unwalked()
    ids = {topic: str(uuid_of(number)) for number, topic in enumerate(TOPICS)}
    wanted: dict[tuple[str, int], tuple[int, ...]] = {}
    there: set[str] = set()
    for offset in range(300):
        topic = chosen.choice(TOPICS)
        what = chosen.choice(["make", "partition", "partition", "partition", "clear", "clear all", "remove"])
        if what == "make" or topic not in there:
            what, there = "make", there | {topic}
            value = record("TopicRecord", name=topic, topicId=ids[topic])
        elif what == "partition":
            number, elr = chosen.randrange(4), chosen.choice([(), (2,), (2, 3)])
            wanted[topic, number] = elr
            fields = {"replicas": [1, 2, 3], "isr": [1], "leader": 1, **EMPTY}
            place = {"partitionId": number, "topicId": ids[topic], "eligibleLeaderReplicas": list(elr)}
            value = record("PartitionRecord", 2, **place, **fields)
        elif what == "remove":
            there.remove(topic)
            wanted = {place: elr for place, elr in wanted.items() if place[0] != topic}
            value = record("RemoveTopicRecord", topicId=ids[topic])
        else:
            cleared = topic if what == "clear" else ""
            wanted = {place: () if cleared in ("", place[0]) else elr for place, elr in wanted.items()}
            value = record("ClearElrRecord", topicName=cleared)
        assert metadata.log_entry(entry(offset, value)) is None
    found = {(state.topic, state.partition): state.elr for state in dict.values(metadata.partitions)}
    assert found == wanted


def test_clearing_a_topic_looks_at_its_eligible_replicas_alone() -> None:
    """Of a topic with many partitions too: that record may come as often as its sender likes."""
    change = {"partitionId": 0, "topicId": ID}
    changes: list[Change] = []
    metadata = ClusterMetadata(0, changes.append)
    for offset, value in enumerate((TOPIC, PARTITION, record("PartitionChangeRecord", 2, **change, lastKnownElr=[8]))):
        assert metadata.log_entry(entry(offset, value)) is None
    metadata._numbers = {ID: UnwalkedNumbers([0])}
    for offset, topic in enumerate(("plain", "plain", "", ""), 3):
        assert metadata.log_entry(entry(offset, record("ClearElrRecord", topicName=topic))) is None
    assert metadata.partitions[ID, 0].last_known_elr == ()
    assert [(c.record.name, c.partition and c.partition.partition_epoch) for c in changes] == [
        ("TopicRecord", None), ("PartitionRecord", 0), ("PartitionChangeRecord", 1), ("ClearElrRecord", 2),
    ]  # fmt: skip


class UnwalkedNumbers(list[int]):
    """Partitions of a topic that nobody may walk."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all partitions of a topic were walked")


def uuid_of(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")


def test_settings_are_deleted_by_null() -> None:
    setting = {"resourceType": 2, "resourceName": "plain", "name": "cleanup.policy"}
    metadata, _ = fold(
        record("ConfigRecord", **setting, value="compact"), record("ConfigRecord", **setting, value=None)
    )
    assert metadata.topic_configs == {}


def test_secrets_of_brokers_are_withheld() -> None:
    names = ["log.retention.ms", "listener.name.external.ssl.keystore.password", "my.plugin.thing"]
    metadata, errors = fold(
        *(record("ConfigRecord", resourceType=4, resourceName="", name=name, value="s3cret") for name in names)
    )
    assert errors == []
    assert metadata.broker_configs == {"": {names[0]: "s3cret", names[1]: None, names[2]: None}}
    assert may_show("transaction.state.log.min.isr")
    assert not may_show("log.secret.key.token")
    assert not may_show("logpassword")


@pytest.mark.parametrize("api_key", [10, 11, 26])
def test_records_with_secrets_are_not_read(api_key: int) -> None:
    decoded = decode_metadata_record(bytes([1, api_key, 0]) + b"\x05hash\x05salt\0")
    assert isinstance(decoded, MetadataRecord)
    assert decoded.fields == {}
    assert fold(bytes([1, api_key, 0]) + b"\x05hash")[1] == []


def test_transactions_apply_at_their_end_or_not_at_all() -> None:
    begin, end, abort = (record(f"{name}TransactionRecord") for name in ("Begin", "End", "Abort"))
    other = record("TopicRecord", name="other", topicId="A" * 21 + "Q")
    third = record("TopicRecord", name="third", topicId="A" * 21 + "g")
    metadata, errors = fold(begin, TOPIC, PARTITION, end, begin, other, abort, begin, third)
    assert (errors, list(metadata.topics), len(metadata.partitions)) == ([], ["plain"], 1)


def test_a_snapshot_counts_only_when_complete() -> None:
    header = entry(0, *reversed(control("SnapshotHeaderRecord", lastContainedLogTimestamp=5)))
    footer = entry(2, *reversed(control("SnapshotFooterRecord")))
    body = entry(1, TOPIC)
    log = [entry(8, record("TopicRecord", name="old", topicId="A" * 22)), entry(9, FEATURE), entry(10, NO_OP)]
    metadata, errors = fold_metadata([(20, [header, body]), (9, [header, body, footer])], log)
    assert errors == []
    assert (metadata.topics, metadata.snapshot_timestamp) == ({"plain": ID}, 5)
    assert (metadata.features["metadata.version"], metadata.end_offset) == ((27, 9, 1009), 11)


def test_what_a_snapshot_has_taken_in_is_read_too() -> None:
    """A record of a newer release there, and bytes that are none: the state stands, and they are said nonetheless."""
    snapshot = [
        entry(0, *reversed(control("SnapshotHeaderRecord", lastContainedLogTimestamp=5))),
        entry(1, TOPIC),
        entry(2, *reversed(control("SnapshotFooterRecord"))),
    ]
    newer, odd = b"\1\0\5\0", b"\2" + TOPIC[1:]
    metadata, errors = fold_metadata(
        [(9, snapshot)], [entry(6, newer), entry(7, odd), entry(8, NO_OP), entry(9, NO_OP)]
    )
    assert [(e.position, e.reason, e.detail.partition(": ")[0]) for e in errors] == [
        (600, "bad_version", "record at offset 6"), (700, "bad_version", "record at offset 7"),
    ]  # fmt: skip
    assert (list(metadata.topics), metadata.end_offset) == (["plain"], 10)


def test_a_gap_is_reported_once_and_excuses_what_it_hides() -> None:
    metadata, errors = fold_metadata([], [entry(5, NO_OP), entry(6, DIRECTORY_CHANGE), entry(7, PARTITION)])
    assert metadata.gaps == [(0, 5)]
    assert [(error.position, error.reason) for error in errors] == [(500, "bad_value")]
    assert metadata.partitions == {}


@pytest.mark.parametrize("name", KRAFT)
def test_topics_are_those_on_disk(name: str) -> None:
    for broker in sorted(corpora.unpack(name).glob("broker-*")):
        metadata, errors = folded(broker)
        assert errors == []
        assert metadata.gaps == []
        compared = 0
        for path in broker.glob("*/partition.metadata"):
            topic, _, partition = path.parent.name.rpartition("-")
            if topic == "__cluster_metadata" or not partition.isdigit():  # moved aside or deleted: not in the metadata
                continue
            topic_id, _ = decode_partition_metadata(path.read_bytes())
            assert metadata.topics[topic] == topic_id
            state = metadata.partitions[str(topic_id), int(partition)]
            assert int(broker.name.removeprefix("broker-")) in state.replicas
            epochs = [read[12:16] for read in raw_batches(path.parent)]
            assert all(int.from_bytes(epoch, "big") <= state.leader_epoch for epoch in epochs)
            compared += 1
        assert compared >= 3


def raw_batches(folder: Path) -> Iterator[bytes]:
    """The batches of the newest segment, as far as they are whole."""
    data, at = max(folder.glob("*.log")).read_bytes(), 0
    while at + 61 <= len(data) and (size := 12 + int.from_bytes(data[at + 8 : at + 12], "big")) > 61:
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("name", KRAFT)
def test_settings_are_those_the_topics_were_made_with(name: str) -> None:
    metadata, _ = folded(corpora.unpack(name) / "broker-1")
    compared = 0
    for step in corpora.manifest(name)["steps"]:
        if step.get("op") == "topic" and step["name"] in metadata.topics:
            wanted = {key: str(value) for key, value in (step.get("cfg") or {}).items()}
            assert metadata.topic_configs.get(step["name"], {}).items() >= wanted.items()
            topic_id = metadata.topics[step["name"]]
            assert sum(key[0] == topic_id for key in metadata.partitions) == (
                step["parts"] if "parts" in step else len(step["assignment"])
            )
            compared += 1
    assert compared or not any(step.get("op") == "topic" for step in corpora.manifest(name)["steps"])


@pytest.mark.parametrize("name", KRAFT)
def test_features_and_the_allocator_fit_the_release(name: str) -> None:
    metadata, _ = folded(corpora.unpack(name) / "broker-1")
    wanted = {"4.1.0": (27, 2), "3.6.2": (14, 0)}[corpora.manifest(name)["kafka"]["version"]]
    levels = [metadata.features[feature].level if feature in metadata.features else 0 for feature in
              ("metadata.version", "transaction.version")]  # fmt: skip
    assert tuple(levels) == wanted
    used = [p["producerId"] for live in corpora.manifest(name)["live"].values() for p in live.get("producers") or ()]
    next_id = metadata.next_producer_id()
    assert next_id is not None
    assert next_id % 1000 == 0
    if name not in ("altered-41", "unknown-producer-41"):
        assert all(producer < next_id for producer in used)


def test_a_snapshot_says_what_the_log_before_it_says() -> None:
    broker = corpora.unpack("healthy-41") / "broker-1"
    with_it, _ = folded(broker)
    without, errors = folded(broker, with_snapshots=False)
    assert errors == []
    assert with_it.snapshot_complete
    assert with_it.end_offset == without.end_offset
    for part in ("topics", "partitions", "topic_configs", "broker_configs"):
        assert getattr(with_it, part) == getattr(without, part)
    assert with_it.next_producer_id() == without.next_producer_id()
    assert {k: v.level for k, v in with_it.features.items()} == {k: v.level for k, v in without.features.items()}


def test_all_three_nodes_of_a_quorum_say_the_same() -> None:
    brokers = [corpora.unpack("replicas-41") / f"broker-{node}" for node in (1, 2, 3)]
    last = min(folded(broker)[0].end_offset for broker in brokers)
    nodes = [folded(broker, until=last)[0] for broker in brokers]
    assert {node.end_offset for node in nodes} == {last}
    for part in ("topics", "partitions", "topic_configs", "broker_configs", "features", "producer_ids"):
        assert all(getattr(node, part) == getattr(nodes[0], part) for node in nodes)
    assert len(nodes[0].partitions) == 4 + 3 + 3  # trio.log, __transaction_state, __consumer_offsets


@pytest.mark.parametrize("name", KRAFT)
def test_bootstrap_checkpoints_and_control_records_are_read(name: str) -> None:
    broker = corpora.unpack(name) / "broker-1"
    metadata = ClusterMetadata()
    for one in entries(read_log(broker / "bootstrap.checkpoint"), "bootstrap.checkpoint"):
        assert metadata.snapshot_entry(one) is None
    assert metadata.snapshot_complete
    assert "metadata.version" in metadata.features
    leaders = [
        decoded
        for read in read_partition(broker / "__cluster_metadata-0")
        if read.is_control and isinstance(decoded := decode_control_record(read.key, read.value), MetadataRecord)
    ]
    assert leaders
    assert {leader.name for leader in leaders} == {"LeaderChangeMessage"}
    assert all(leader.fields["leaderId"] in {v["voterId"] for v in leader.fields["voters"]} for leader in leaders)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "bad_value"),
        (b"", "truncated"),
        (b"\0\2\0", "bad_version"),
        (b"\1\x63\0", "vendor"),
        (b"\1\6\0", "vendor"),
        (b"\1\2\1" + TOPIC[3:], "bad_version"),
        (TOPIC + b"\0", "bad_length"),
        (TOPIC[:-1], "truncated"),
    ],
)
def test_what_is_unreadable_is_reported(value: bytes | None, reason: str) -> None:
    problem = decode_metadata_record(value)
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    _, errors = fold_metadata([], [entry(0, NO_OP), entry(1, value)])
    assert [(error.file, error.position, error.length, error.reason) for error in errors] == [("f", 100, 90, reason)]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"", "bad_record"),
        (b"\0\0\0", b"", "bad_record"),
        (b"\0\0\0\1", b"\0\0\0\0\0\0", "unknown_key_type"),
        (b"\0\0\0\x63", b"\0\0", "vendor"),
        (b"\0\0\0\3", None, "bad_value"),
        (b"\0\0\0\3", b"\0\1", "bad_version"),
        (b"\0\0\0\3", b"\0\0\0", "truncated"),
    ],
)
def test_control_records_that_are_none(key: bytes | None, value: bytes | None, reason: str) -> None:
    problem = decode_control_record(key, value)
    assert isinstance(problem, Problem)
    assert problem.reason == reason


def test_no_bytes_raise() -> None:
    chance = random.Random(10)
    sound = [TOPIC, CONFIG, PARTITION, DIRECTORY_CHANGE, PRODUCER_IDS, FEATURE, NO_OP]
    for _ in range(2000):
        values = [bytearray(chance.choice(sound)) for _ in range(6)]
        for value in values:
            value[chance.randrange(len(value))] = chance.choice((0, 1, 2, 7, 9, 23, 24, 0x7F, 0x80, 0xFF))
        cut = [bytes(value[: chance.randrange(1, len(value) + 1)]) for value in values]
        metadata, errors = fold(TOPIC, PARTITION, *cut)
        assert metadata.end_offset == 8
        assert all(error.file == "f" for error in errors)


def test_records_that_cannot_be_read_are_named_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of a few bytes may hold a million of them, and the driver keeps an error for each."""
    monkeypatch.setattr(cluster_metadata, "MOST_NAMED", 3)
    _, errors = fold_metadata([], [entry(offset, b"") for offset in range(5)])
    assert [e.reason for e in errors][3:] == ["limit"]
    assert "limit" not in [e.reason for e in errors][:3]
    assert errors[3].detail == "2 more such records, the last at offset 4, are not named one by one"
    _, errors = fold_metadata([], [entry(offset, b"\1\x63\0") for offset in range(5)])
    assert [e.reason for e in errors] == ["vendor"] * 4
    assert errors[3].detail == "2 more such records, the last at offset 4, are not named one by one"
