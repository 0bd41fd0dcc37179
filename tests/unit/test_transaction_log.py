"""Records of ``__transaction_state`` against the reference's bytes, Kafka's own tools and the manifests."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from auditor.base.errors import REASONS
from auditor.connectors.codec.transaction_log import TransactionLogRow, decode_transaction_log
from auditor.connectors.schema import LOG_KEY, TRANSACTION_LOG
from tests import corpora
from tests.unit import dumps
from tests.unit.log_reader import read_partition

# formats.md section 8
KEY = bytes.fromhex("0000 0008 7476302d68616e67")
ONGOING_V0 = bytes.fromhex(
    "0000 0000000000000006 0000 00000bb8 01 00000001 0003 74786e 00000001 00000000 000001a1fc114a11 000001a1fc114a11"
)
EMPTY_V0 = bytes.fromhex("0000 0000000000000006 0000 00000bb8 00 ffffffff 000001a1fc1149f3 ffffffffffffffff")
PREPARE_V1 = bytes.fromhex(
    "0001 000000000000000c 0001 0000ea60 02 02 04 74786e 03 00000000 00000001 00 000001a1fc1177d7 000001a1fc1177c7"
    "01 02 02 0002"
)
COMPLETE_V1 = bytes.fromhex("0001 00000000000003e8 0000 0000ea60 04 01 000001a1fc170d9b 000001a1fc170c30 01 02 02 0002")
OLD_VALUE = re.compile(
    r"producerId:(-?\d+),producerEpoch:(-?\d+),state=(\w+),partitions=\[(.*?)\],"
    r"txnLastUpdateTimestamp=(-?\d+),txnTimeoutMs=(\d+)"
)
OLD_CONSOLE = re.compile(
    r"(.*)::TransactionMetadata\(transactionalId=(.*), producerId=(-?\d+), producerEpoch=(-?\d+), txnTimeoutMs=(\d+), "
    r"state=(\w+), pendingState=None, topicPartitions=HashSet\((.*?)\), txnStartTimestamp=(-?\d+), "
    r"txnLastUpdateTimestamp=(-?\d+)\)"
)


def row(key: bytes | None, value: bytes | None) -> TransactionLogRow:
    found, problem = decode_transaction_log(key, value)
    assert problem is None
    assert found is not None
    return found


def test_the_reference_values() -> None:
    ongoing = row(KEY, ONGOING_V0)
    assert ongoing == TransactionLogRow(
        "tv0-hang", False, 0, 6, 0, 3000, 1, "Ongoing", ["txn-0"], False, 1795230353937, 1795230353937, -1, -1, 0, -1
    )
    empty = row(KEY, EMPTY_V0)
    assert (empty.state, empty.partitions, empty.partitions_null, empty.start_timestamp) == ("Empty", None, True, -1)
    prepare = row(KEY, PREPARE_V1)
    assert (prepare.state, prepare.partitions) == ("PrepareCommit", ["txn-0", "txn-1"])
    assert (prepare.client_transaction_version, prepare.producer_epoch) == (2, 1)
    complete = row(KEY, COMPLETE_V1)
    assert (complete.state, complete.partitions, complete.producer_id) == ("CompleteCommit", [], 1000)


def test_a_tombstone_says_nothing_but_its_id() -> None:
    assert row(KEY, None) == TransactionLogRow("tv0-hang", tombstone=True)


def test_rows_are_those_of_the_table() -> None:
    columns = TRANSACTION_LOG.names
    assert tuple(columns[columns.index("transactional_id") :]) == TransactionLogRow._fields
    assert columns[: len(LOG_KEY)] == [field.name for field in LOG_KEY]


def stored(folder: Any) -> list[tuple[int, TransactionLogRow]]:
    return [(read.offset, row(read.key, read.value)) for read in read_partition(folder)]


def test_every_record_is_as_dump_log_says() -> None:
    compared = 0
    for _, folder, text in dumps.partitions("__transaction_state"):
        rows = dict(stored(folder))
        for offset, key, payload in dumps.records(text):
            if key.startswith("{"):
                as_json_says(
                    rows[offset], json.loads(key)["data"], None if payload == "<DELETE>" else json.loads(payload)
                )
            else:
                as_old_tool_says(rows[offset], key, payload)
            compared += 1
    assert compared > 400


def as_json_says(found: TransactionLogRow, key: dict[str, Any], value: dict[str, Any] | None) -> None:
    assert found.transactional_id == key["transactionalId"]
    assert found.tombstone == (value is None)
    if value is None:
        return
    data = value["data"]
    assert found.value_version == int(value["version"])
    assert found.producer_id == data["producerId"]
    assert found.producer_epoch == data["producerEpoch"]
    assert found.timeout_ms == data["transactionTimeoutMs"]
    assert found.status == data["transactionStatus"]
    topics = data["transactionPartitions"]
    said = None if topics is None else [f"{topic['topic']}-{p}" for topic in topics for p in topic["partitionIds"]]
    assert (found.partitions, found.partitions_null) == (said, said is None)
    assert found.last_update_timestamp == data["transactionLastUpdateTimestampMs"]
    assert found.start_timestamp == data["transactionStartTimestampMs"]
    assert found.client_transaction_version == data.get("clientTransactionVersion", 0)
    assert found.previous_producer_id == data.get("previousProducerId", -1)
    assert found.next_producer_id == data.get("nextProducerId", -1)
    assert found.next_producer_epoch == data.get("nextProducerEpoch", -1)


def as_old_tool_says(found: TransactionLogRow, key: str, payload: str) -> None:
    assert found.transactional_id == key.partition("transactionalId=")[2]
    if payload == "<DELETE>":
        assert found.tombstone
        return
    said = OLD_VALUE.fullmatch(payload)
    assert said, payload
    partitions = sorted(said[4].split(",")) if said[4] else []
    assert (found.producer_id, found.producer_epoch, found.state) == (int(said[1]), int(said[2]), said[3])
    assert sorted(found.partitions or []) == partitions
    assert (found.last_update_timestamp, found.timeout_ms) == (int(said[5]), int(said[6]))


@pytest.mark.parametrize("name", corpora.names())
def test_every_record_is_as_the_console_consumer_says(name: str) -> None:
    """It prints no offsets, so records are compared id by id in their order, which is that of one partition."""
    text = dumps.console(name, "transaction-log")
    found: dict[str, list[TransactionLogRow]] = {}
    for folder in sorted(corpora.unpack(name).glob("broker-1/__transaction_state-*")):
        for _, one in stored(folder):
            found.setdefault(one.transactional_id, []).append(one)
    said: dict[str, int] = {}
    if "::TransactionMetadata" in text:
        for match in OLD_CONSOLE.finditer(text):
            one = found[match[2]][said.setdefault(match[2], 0)]
            said[match[2]] += 1
            assert (one.producer_id, one.producer_epoch, one.timeout_ms) == tuple(map(int, match.group(3, 4, 5)))
            assert one.state == match[6]
            assert sorted(one.partitions or []) == sorted(match[7].split(", ") if match[7] else [])
            assert (one.start_timestamp, one.last_update_timestamp) == (int(match[8]), int(match[9]))
    else:
        for record in dumps.json_stream(text):
            key = record["key"]["data"]
            one = found[key["transactionalId"]][said.setdefault(key["transactionalId"], 0)]
            said[key["transactionalId"]] += 1
            as_json_says(one, key, record["value"])
    # A console consumer run may have ended early, or before the copy was made; what it printed must be there in order.
    assert bool(text) == bool(said)


@pytest.mark.parametrize("name", corpora.names())
def test_last_values_are_those_of_the_manifest(name: str) -> None:
    last: dict[str, TransactionLogRow] = {}
    for folder in corpora.unpack(name).glob("broker-1/__transaction_state-*"):
        last |= {one.transactional_id: one for _, one in stored(folder)}
    truth = corpora.manifest(name).get("transaction_state_last_values") or {}
    assert truth.keys() <= last.keys()
    for transactional_id, said in truth.items():
        found = last[transactional_id]
        assert (found.value_version, found.producer_id) == (said["version"], said["producerId"])
        assert (found.producer_epoch, found.timeout_ms, found.state) == (
            said["producerEpoch"],
            said["timeoutMs"],
            said["state"],
        )
        assert (found.last_update_timestamp, found.start_timestamp) == (said["lastUpdateMs"], said["startMs"])


@pytest.mark.parametrize(
    ("key", "value", "reason", "has_row"),
    [
        (None, EMPTY_V0, "bad_value", False),
        (b"", EMPTY_V0, "truncated", False),
        (b"\0\1" + KEY[2:], EMPTY_V0, "unknown_key_type", False),
        (KEY, b"\0\2" + EMPTY_V0[2:], "bad_version", False),
        (KEY, b"\xff\xff" + EMPTY_V0[2:], "bad_version", False),
        (KEY, b"\0", "truncated", False),
        (KEY, EMPTY_V0 + b"x", "bad_length", True),
        (KEY + b"x", None, "bad_length", True),
        (b"\0\0\0\3ab", EMPTY_V0, "truncated", False),
    ],
)
def test_what_is_unreadable_is_reported(key: bytes | None, value: bytes | None, reason: str, has_row: bool) -> None:
    found, problem = decode_transaction_log(key, value)
    assert problem is not None
    assert (problem.reason, found is not None) == (reason, has_row)


def test_a_status_that_does_not_exist_is_kept() -> None:
    found = row(KEY, EMPTY_V0[:16] + b"\x63" + EMPTY_V0[17:])
    assert (found.status, found.state) == (0x63, None)


def test_a_long_topic_name_cannot_be_multiplied() -> None:
    topic = b"\xfe\x07" + b"t" * 1021  # compact string of 1021 bytes
    partitions = b"\x81\x02" + b"\0\0\0\1" * 256
    value = COMPLETE_V1[:17] + b"\2" + topic + partitions + b"\0" + COMPLETE_V1[18:]
    found, problem = decode_transaction_log(KEY, value)
    assert found is None
    assert problem is not None
    assert problem.reason == "limit"


@pytest.mark.parametrize("value", [ONGOING_V0, EMPTY_V0, PREPARE_V1, COMPLETE_V1])
def test_every_cut_is_reported(value: bytes) -> None:
    for length in range(len(value)):
        found, problem = decode_transaction_log(KEY, value[:length])
        assert found is None
        assert problem is not None
        assert problem.reason in ("truncated", "bad_size")


def test_no_bytes_raise() -> None:
    chance = random.Random(8)
    for _ in range(5000):
        value = bytearray(chance.choice((ONGOING_V0, EMPTY_V0, PREPARE_V1, COMPLETE_V1)))
        for _ in range(chance.randrange(1, 5)):
            value[chance.randrange(2, len(value))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        found, problem = decode_transaction_log(KEY, bytes(value))
        assert (found is None) <= (problem is not None)
        assert problem is None or problem.reason in REASONS
