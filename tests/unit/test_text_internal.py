"""auditor.connectors.text: records of the internal topics in every shape that Kafka's tools printed them in."""

from __future__ import annotations

import json
import random

import pytest

from auditor.connectors.codec.group_topics import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.text.internal_topics import Row, Unread, parse_console, read_printed
from auditor.connectors.text.lines import normalise, sniff
from tests import corpora

VALUE = {
    "producerId": 12, "producerEpoch": 1, "transactionTimeoutMs": 60000, "transactionStatus": 2,
    "transactionPartitions": [{"topic": "txn", "partitionIds": [0, 1]}, {"topic": "a-b", "partitionIds": [7]}],
    "transactionLastUpdateTimestampMs": 1795230365655, "transactionStartTimestampMs": 1795230365639,
    "clientTransactionVersion": 2,
}  # fmt: skip
NEW = TransactionLogRow(
    "tv2-a", False, 1, 12, 1, 60000, 2, "PrepareCommit", ["txn-0", "txn-1", "a-b-7"], False, 1795230365655,
    1795230365639, -1, -1, 2, -1,
)  # fmt: skip
OLD = TransactionLogRow("my::id", False, None, 0, 0, 60000, 1, "Ongoing", ["txn-0", "txn-1"], None, 1700000000001, None)


def transaction_json(value: object, kind: object = "0", version: object = "1") -> tuple[str, str]:
    key = {"type": kind, "data": {"transactionalId": "tv2-a"}}
    return json.dumps(key, separators=(",", ":")), json.dumps({"version": version, "data": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transactionalId=my::id", "partitions=Set(txn-0, txn-1)"),
        ("transactionalId=my::id", "partitions=HashSet(txn-0, txn-1)"),
        ("transaction_metadata::transactionalId=my::id", "partitions=[txn-0,txn-1]"),
    ],
)
def test_transactions_of_old_releases(key: str, value: str) -> None:
    printed = (
        f"producerId:0,producerEpoch:0,state=Ongoing,{value},txnLastUpdateTimestamp=1700000000001,txnTimeoutMs=60000"
    )
    assert read_printed(key, printed) == OLD
    assert read_printed(key, "<DELETE>") == TransactionLogRow("my::id", True)
    assert isinstance(read_printed(key, printed.replace("Ongoing", "Dancing")), Unread)


def test_transactions_as_json() -> None:
    assert read_printed(*transaction_json(VALUE)) == NEW
    assert read_printed(transaction_json(VALUE)[0], "<DELETE>") == TransactionLogRow("tv2-a", True)
    empty = read_printed(*transaction_json(VALUE | {"transactionStatus": 0, "transactionPartitions": None}))
    assert isinstance(empty, TransactionLogRow)
    assert (empty.state, empty.partitions, empty.partitions_null) == ("Empty", None, True)
    odd = read_printed(*transaction_json(VALUE | {"transactionStatus": 9}))
    assert isinstance(odd, TransactionLogRow)
    assert (odd.status, odd.state) == (9, None)


@pytest.mark.parametrize(
    "change",
    [
        {"producerId": 2**63}, {"producerId": "5"}, {"producerId": 1.5}, {"producerEpoch": 40000}, {"producerId": True},
        {"transactionPartitions": 5}, {"transactionPartitions": [{"topic": "a b", "partitionIds": [0]}]},
        {"transactionPartitions": [{"topic": "a", "partitionIds": None}]}, {"transactionStatus": [1]},
    ],
)  # fmt: skip
def test_json_values_that_fit_no_column_are_reported(change: dict[str, object]) -> None:
    assert isinstance(read_printed(*transaction_json(VALUE | change)), Unread)


def test_lone_surrogates_do_not_break_utf8() -> None:
    row = read_printed('{"type":"0","data":{"transactionalId":"a\\ud800"}}', "<DELETE>")
    assert row == TransactionLogRow("a\ufffd", True)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("offset::G:x:inp:0", "42:meta", OffsetCommitRow("G:x", "inp", 0, False, None, 42)),
        ("offset::G:inp:0", "42", OffsetCommitRow("G", "inp", 0, False, None, 42)),
        ("offset_commit::group=G,partition=i-p-0", "offset=4,metadata=m",
         OffsetCommitRow("G", "i-p", 0, False, None, 4)),
        ("offset_commit::group=G,partition=inp-0", "<DELETE>", OffsetCommitRow("G", "inp", 0, True)),
        (
            '{"type":"1","data":{"group":"g-classic","topic":"inp","partition":0}}',
            '{"version":"4","data":{"offset":4,"leaderEpoch":0,"metadata":"meta","commitTimestamp":1795230357950}}',
            OffsetCommitRow("g-classic", "inp", 0, False, 4, 4, 0, 1795230357950),
        ),
        ("metadata::G", "consumer:range:3:{member=[inp-0]}",
         GroupMetadataRow("G", 2, "GroupMetadata", False, None, "consumer", "range", 3)),
        ('{"metadata":"G"}', '{"protocolType":"consumer","protocol":"range","generationId":3,"assignment":"{}"}',
         GroupMetadataRow("G", 2, "GroupMetadata", False, None, "consumer", "range", 3)),
        ("group_metadata::group=G", '{"protocolType":"consumer","protocol":null,"generationId":2,"assignment":"{}"}',
         GroupMetadataRow("G", 2, "GroupMetadata", False, None, "consumer", None, 2)),
        ('{"type":"3","data":{"groupId":"g"}}', '{"version":"0","data":{"epoch":5}}',
         GroupMetadataRow("g", 3, "ConsumerGroupMetadata", False, 0, generation=5)),
        ('{"type":"8","data":{"groupId":"g","memberId":"m"}}', "<DELETE>",
         GroupMetadataRow("g", 8, "ConsumerGroupCurrentMemberAssignment", True, member_ids=["m"])),
    ],
)  # fmt: skip
def test_offsets_and_groups_as_dump_log_prints_them(key: str, value: str, expected: Row) -> None:
    assert read_printed(key, value) == expected


@pytest.mark.parametrize(
    ("key", "skipped"),
    [
        ("unknown::version=7", True),
        ("Error at offset 5, skipping. x", True),
        ("Unknown record type 99 at offset 5, skipping.", True),
        ('{"type":"18","data":{"groupId":"g"}}', True),
        ('{"type":"0","data":"unknown"}', True),
        ('{"type":"0","data":{"transactionalId":', False),
        ("offset_commit::group=G", False),
    ],
)
def test_what_the_tool_could_not_read_either(key: str, skipped: bool) -> None:
    row = read_printed(key, '{"version":"0","data":{}}')
    assert isinstance(row, Unread)
    assert row.skipped is skipped


def rows(text: str, errors: int = 0) -> list[Row]:
    found = parse_console(text.encode())
    assert len(found.errors) == errors, found.errors
    return [item.row for item in found.rows]


STATE = (
    "producerId=0, producerEpoch=0, txnTimeoutMs=60000, state=Ongoing, pendingState=None, "
    "topicPartitions={}(txn-0, txn-1), txnStartTimestamp=1700000000000, txnLastUpdateTimestamp=1700000000001)"
)


@pytest.mark.parametrize("kind", ["Set", "HashSet"])
@pytest.mark.parametrize("name", ["my::id", "a, b=c", "two\nlines", "x::NULL", "::", "é😀"])
def test_console_transactions_of_old_releases(kind: str, name: str) -> None:
    text = (
        f"{name}::TransactionMetadata(transactionalId={name}, {STATE.format(kind)}\nother::NULL\nunknown::version=1\n"
    )
    first = OLD._replace(transactional_id=name, start_timestamp=1700000000000)
    assert sniff(text.encode()) == "console"
    assert rows(text) == [first, TransactionLogRow("other", True)]


@pytest.mark.parametrize("prefix", ["    ", "> ", "kafka-1  | ", "2026-11-28T10:00:00.123Z "])
@pytest.mark.parametrize("name", ["my-id", "a, b=c", " x", "> y"])
def test_what_stands_before_every_line_is_no_part_of_an_id(prefix: str, name: str) -> None:
    text = f"{name}::TransactionMetadata(transactionalId={name}, {STATE.format('Set')}\n[G,inp,3]::NULL\n"
    pasted = "".join(prefix + line for line in text.splitlines(keepends=True)).encode()
    assert sniff(pasted) == "console"
    assert normalise(pasted) == text.encode()


def test_console_transactions_of_other_builds_are_read_by_the_names_of_fields() -> None:
    text = (
        "a::TransactionMetadata(transactionalId=a, producerId4015, prevProducerId=7, producerEpoch=2, state=Ongoing,"
        " txnTimeoutMs=60000, pendingState=None, txnStartTimestamp=5, txnLastUpdateTimestamp=6, "
        "partitions=[t-0, t-1])\n"
    )
    (row,) = rows(text)
    assert isinstance(row, TransactionLogRow)
    assert (row.producer_id, row.producer_epoch, row.state, row.partitions) == (4015, 2, "Ongoing", ["t-0", "t-1"])
    assert (row.timeout_ms, row.start_timestamp, row.last_update_timestamp) == (60_000, 5, 6)
    assert rows(text[:-10] + "\n", errors=1) == []


def test_console_transactions_need_their_id_twice() -> None:
    text = f"a::TransactionMetadata(transactionalId=b, {STATE.format('Set')}\nc::NULL\n"
    assert rows(text, errors=1) == [TransactionLogRow("c", True)]


def test_console_offsets_of_old_releases() -> None:
    text = (
        "[G,x,inp,0]::OffsetAndMetadata(offset=4, leaderEpoch=Optional[0], metadata=m, commitTimestamp=5,"
        " expireTimestamp=None)\n"
        "[G,inp,1]::OffsetAndMetadata(offset=4, leaderEpoch=Optional.empty, metadata=, commitTimestamp=5,"
        " expireTimestamp=Some(9))\n"
        "[G,inp,2]::[OffsetMetadata[4,NO_METADATA],CommitTime 5,ExpirationTime 6]\n"
        "[G,inp,3]::NULL\n"
    )
    assert rows(text) == [
        OffsetCommitRow("G,x", "inp", 0, False, None, 4, 0, 5, None),
        OffsetCommitRow("G", "inp", 1, False, None, 4, -1, 5, 9),
        OffsetCommitRow("G", "inp", 2, False, None, 4, -1, 5, 6),
        OffsetCommitRow("G", "inp", 3, True),
    ]


def test_console_groups_of_old_releases() -> None:
    member = (
        "m-1 -> MemberMetadata(memberId=m-1, groupInstanceId=Some(i), clientId=c, clientHost=/127.0.0.1, "
        "sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range))"
    )
    text = (
        f"G::GroupMetadata(groupId=G, generation=1, protocolType=Some(consumer), currentState=Stable,"
        f" members=HashMap({member}))\n"
        "G::GroupMetadata(groupId=G, generation=2, protocolType=None, currentState=Empty, members=Map())\nG::NULL\n"
    )
    assert rows(text) == [
        GroupMetadataRow("G", 2, "GroupMetadata", False, None, "consumer", None, 1, None, None, ["m-1"], ["i"], ["c"]),
        GroupMetadataRow("G", 2, "GroupMetadata", False, None, None, None, 2, None, None, [], [], []),
        GroupMetadataRow("G", 2, "GroupMetadata", True),
    ]


@pytest.mark.parametrize("name", ["type", "version"])
def test_console_json_has_nothing_between_records(name: str) -> None:
    key = {name: 0, "data": {"transactionalId": "tv2-a"}}
    one = json.dumps({"key": key, "value": {"version": 1, "data": VALUE}}, separators=(",", ":"))
    none = json.dumps({"key": key, "value": None}, separators=(",", ":"))
    text = f"{one}{none}{one}Processed a total of 3 messages\n"
    assert sniff(text.encode()) == "console"
    assert rows(text) == [NEW, TransactionLogRow("tv2-a", True), NEW]
    assert rows(text[:-60] + "\n", errors=1) == [NEW, TransactionLogRow("tv2-a", True)]


def test_console_json_with_braces_in_ids() -> None:
    key = {"type": 0, "data": {"transactionalId": '}{"key":\\"'}}
    one = json.dumps({"key": key, "value": None}, separators=(",", ":"))
    assert rows(one + one) == [TransactionLogRow('}{"key":\\"', True)] * 2


def test_garbage_in_console_text_is_an_error_with_its_place() -> None:
    found = parse_console(b'a::NULL\nsecret\n{"key":5}b::NULL\n{"key":{"type":0', "c.txt")
    assert [item.row for item in found.rows] == [TransactionLogRow("a", True), TransactionLogRow("b", True)]
    assert [(e.file, e.position, e.length, e.reason) for e in found.errors] == [
        ("c.txt", 8, 6, "bad_line"),
        ("c.txt", 15, 9, "bad_line"),
        ("c.txt", 32, 16, "truncated"),
    ]
    assert "secret" not in repr(found.errors)


def test_no_mutation_of_console_text_raises() -> None:
    rng = random.Random(41)
    texts = corpora.ROOT / "text-dumps" / "texts"
    for name in (
        "healthy-41/console-transaction-log.txt",
        "healthy-28/console-consumer-offsets.txt",
        "hanging-36/console-consumer-group-metadata.txt",
        "healthy-41/console-consumer-group-metadata.txt",
    ):
        text = (texts / name).read_bytes()[:3000]
        for cut in range(0, len(text), 11):
            parse_console(text[:cut])
        for _ in range(200):
            changed = bytearray(text)
            for _ in range(rng.randint(1, 8)):
                at = rng.randrange(len(changed))
                changed[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            found = parse_console(bytes(changed))
            assert all(0 <= e.position < e.position + e.length <= len(changed) for e in found.errors)
