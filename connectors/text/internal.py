"""Records of ``__transaction_state`` and ``__consumer_offsets`` as Kafka's decoders and formatters print them.

Old releases print texts of their own, 3.8 (offsets), 3.9 (console) and 4.0 (dump-log) on JSON of the stored structures.
The rows are those that the binary decoders give; what a text cannot show is None. reference/formats.md
section 11.6 to 11.8.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from connectors.codec.consumer_offsets import GROUP_TYPES, GroupMetadataRow, OffsetCommitRow
from connectors.codec.transaction_log import TransactionLogRow
from connectors.schema import TRANSACTION_STATES

Row = TransactionLogRow | OffsetCommitRow | GroupMetadataRow

DELETE = "<DELETE>"
_KEYS = (
    '{"type":', '{"version":', '{"metadata":', "transaction_metadata::", "transactionalId=", "offset_commit::",
    "offset::", "group_metadata::", "metadata::", "unknown::", "Error at offset ", "Unknown record type ",
)  # fmt: skip
_SAID_UNREADABLE = ("unknown::", "Error at offset ", "Unknown record type ")
_PARTITION = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")
_OLD_TRANSACTION = re.compile(
    r"producerId:(-?\d{1,19}),producerEpoch:(-?\d{1,5}),state=(\w+),partitions=(?:(?:Hash)?Set\(|\[)(.*?)[)\]],"
    r"txnLastUpdateTimestamp=(-?\d{1,19}),txnTimeoutMs=(\d{1,10})", re.ASCII
)  # fmt: skip
_OLD_COMMIT_KEY = re.compile(
    r"offset_commit::group=(.*),partition=([a-zA-Z0-9._-]{1,249})-(\d{1,10})", re.ASCII | re.DOTALL
)
_OLDEST_COMMIT_KEY = re.compile(r"offset::(.*):([a-zA-Z0-9._-]{1,249}):(\d{1,10})", re.ASCII | re.DOTALL)
_OLD_COMMIT = re.compile(r"offset=(-?\d{1,19})(?:,metadata=.*)?", re.ASCII | re.DOTALL)
_OLDEST_COMMIT = re.compile(r"(-?\d{1,19})(?::.*)?", re.ASCII | re.DOTALL)
_OLDEST_GROUP = re.compile(r"([^:]*):([^:]*):(-?\d{1,10}):\{.*\}", re.ASCII | re.DOTALL)


class Unread(NamedTuple):
    """Why a record gives no row: a reason code and words without payload. ``skipped``: Kafka's tool skipped it too."""

    reason: str
    detail: str
    skipped: bool = False


_NOT_OURS = Unread("bad_line", "key or payload that no decoder prints")


def looks_decoded(key: str) -> bool:
    """Whether a printed key may be a decoder's."""
    return key.startswith(_KEYS)


def read_printed(key: str, value: str | None) -> Row | Unread:
    """A record as ``kafka-dump-log.sh`` prints it under a decoder."""
    if key.startswith("{") and not key.startswith('{"metadata":'):
        return _read_json_texts(key, value)
    if key.startswith(_SAID_UNREADABLE):
        return Unread("unknown_key_type", "the tool could not read the record either", skipped=True)
    if value is None:
        return _NOT_OURS
    for prefix in ("transaction_metadata::transactionalId=", "transactionalId="):
        if key.startswith(prefix):
            return old_transaction(key.removeprefix(prefix), value)
    if key.startswith(("offset_commit::", "offset::")):
        return _old_commit(key, value)
    return _old_group(key, value)


def old_transaction(transactional_id: str, value: str) -> Row | Unread:
    """A transaction's state as printed up to 3.9."""
    if value == DELETE:
        return TransactionLogRow(transactional_id, tombstone=True)
    found = _OLD_TRANSACTION.fullmatch(value)
    if not found:
        return _NOT_OURS
    producer_id, epoch, state, partitions, updated, timeout = found.groups()
    numbers = {"producer_id": int(producer_id), "producer_epoch": int(epoch), "timeout_ms": int(timeout)}
    return transaction(transactional_id, state, partitions, last_update_timestamp=int(updated), **numbers)


def transaction(transactional_id: str, state: str, partitions: str, **numbers: int) -> Row | Unread:
    """A row from a state's name and partitions as Java (``a-0,b-1``) or Scala (``a-0, b-1``) print a set."""
    names = re.split(", ?", partitions) if partitions else []
    if state not in TRANSACTION_STATES or not all(map(_PARTITION.fullmatch, names)):
        return _NOT_OURS
    row = TransactionLogRow(transactional_id, False, partitions=names, state=state, **numbers)
    return checked(row._replace(status=TRANSACTION_STATES.index(state)))


def _old_commit(key: str, value: str) -> Row | Unread:
    newer = key.startswith("offset_commit::")
    found = (_OLD_COMMIT_KEY if newer else _OLDEST_COMMIT_KEY).fullmatch(key)
    if not found:
        return _NOT_OURS
    row = OffsetCommitRow(found[1], found[2], int(found[3]), tombstone=value == DELETE)
    if row.tombstone:
        return checked(row)
    offset = (_OLD_COMMIT if newer else _OLDEST_COMMIT).fullmatch(value)
    return checked(row._replace(committed_offset=int(offset[1]))) if offset else _NOT_OURS


def _old_group(key: str, value: str) -> Row | Unread:
    if key.startswith("{"):
        group = (load(key) or {}).get("metadata")
    else:
        group = key.removeprefix("group_metadata::group=").removeprefix("metadata::")
    if not isinstance(group, str):
        return _NOT_OURS
    row = GroupMetadataRow(clean(group), 2, GROUP_TYPES[2].kind, tombstone=value == DELETE)
    if row.tombstone:
        return row
    if found := _OLDEST_GROUP.fullmatch(value):
        return checked(row._replace(protocol_type=found[1], protocol=found[2], generation=int(found[3])))
    fields = load(value)
    if fields is None:
        return _NOT_OURS
    return _typed(
        row,
        protocol_type=fields.get("protocolType"),
        protocol=fields.get("protocol"),
        generation=fields.get("generationId"),
    )


def _read_json_texts(key: str, value: str | None) -> Row | Unread:
    """Key and value as separate JSON texts; here types and versions are strings."""
    key_fields = load(key)
    if key_fields is None or value is None:
        return _NOT_OURS
    value_fields = None if value == DELETE else load(value)
    return _NOT_OURS if value != DELETE and value_fields is None else read_json(key_fields, value_fields)


def read_json(key: dict[str, Any], value: dict[str, Any] | None) -> Row | Unread:
    """A record as JSON of its stored key and value; None for a tombstone."""
    kind = _number(key.get("type", key.get("version")))
    names = key.get("data")
    if kind is None:
        return _NOT_OURS
    if not isinstance(names, dict):
        return Unread("unknown_key_type", "the tool did not know the key's type either", skipped=True)
    version = fields = None
    if value is not None:
        version, fields = _number(value.get("version")), value.get("data")
        if version is None or not isinstance(fields, dict):
            return Unread("bad_version", "the tool did not know the value's version either")
    if "transactionalId" in names:
        return _json_transaction(names, version, fields)
    if "topic" in names:
        return _json_commit(names, version, fields)
    return _json_group(kind, names, version, fields)


def _json_transaction(names: dict[str, Any], version: int | None, fields: dict[str, Any] | None) -> Row | Unread:
    row = TransactionLogRow(names["transactionalId"], tombstone=fields is None)
    if fields is None:
        return _typed(row)
    topics = fields.get("transactionPartitions")
    partitions = None if topics is None else _partitions(topics)
    if topics is not None and partitions is None:
        return _NOT_OURS
    status = fields.get("transactionStatus")
    known = type(status) is int and 0 <= status < len(TRANSACTION_STATES)
    return _typed(
        row,
        value_version=version,
        producer_id=fields.get("producerId"),
        producer_epoch=fields.get("producerEpoch"),
        timeout_ms=fields.get("transactionTimeoutMs"),
        status=status,
        state=TRANSACTION_STATES[status] if known else None,
        partitions=partitions,
        partitions_null=topics is None,
        last_update_timestamp=fields.get("transactionLastUpdateTimestampMs"),
        start_timestamp=fields.get("transactionStartTimestampMs"),
        previous_producer_id=fields.get("previousProducerId", -1),
        next_producer_id=fields.get("nextProducerId", -1),
        client_transaction_version=fields.get("clientTransactionVersion", 0),
        next_producer_epoch=fields.get("nextProducerEpoch", -1),
    )


def _partitions(topics: object) -> list[str] | None:
    """``topic-partition`` of each, None for anything else than the stored structure."""
    if not isinstance(topics, list):
        return None
    names = []
    for item in topics:
        if not isinstance(item, dict) or not isinstance(item.get("partitionIds"), list):
            return None
        names += [f"{item.get('topic')}-{number}" for number in item["partitionIds"]]
    return names if all(map(_PARTITION.fullmatch, names)) else None


def _json_commit(names: dict[str, Any], version: int | None, fields: dict[str, Any] | None) -> Row | Unread:
    row = OffsetCommitRow(names.get("group", ""), names["topic"], names.get("partition", -1), tombstone=fields is None)
    if fields is None:
        return _typed(row)
    return _typed(
        row,
        value_version=version,
        committed_offset=fields.get("offset"),
        leader_epoch=fields.get("leaderEpoch", -1),
        commit_timestamp=fields.get("commitTimestamp"),
        expire_timestamp=fields.get("expireTimestamp"),
    )


def _json_group(kind: int, names: dict[str, Any], version: int | None, fields: dict[str, Any] | None) -> Row | Unread:
    known = GROUP_TYPES.get(kind)
    if known is None:
        return Unread("unknown_key_type", f"key type {kind} is not read", skipped=True)
    group = names.get("group", names.get("groupId"))
    row = GroupMetadataRow(group, kind, known.kind, tombstone=fields is None)  # type: ignore[arg-type]
    if "memberId" in names:
        row = row._replace(member_ids=[names["memberId"]])
    if fields is None:
        return _typed(row)
    row = row._replace(value_version=version, generation=fields.get(known.epoch) if known.epoch else None)
    if kind != 2:
        return _typed(row)
    members = fields.get("members")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return _NOT_OURS
    return _typed(
        row,
        protocol_type=fields.get("protocolType"),
        protocol=fields.get("protocol"),
        leader=fields.get("leader"),
        state_timestamp=fields.get("currentStateTimestamp"),
        member_ids=[member.get("memberId") for member in members],
        group_instance_ids=[member.get("groupInstanceId") for member in members],
        client_ids=[member.get("clientId") for member in members],
    )


# Bits of the numbers in the rows; all others have 64.
_BITS = {"producer_epoch": 16, "next_producer_epoch": 16, "value_version": 16, "client_transaction_version": 16,
         "status": 8, "timeout_ms": 32, "consumed_partition": 32, "generation": 32, "leader_epoch": 32}  # fmt: skip
_TEXTS = {"transactional_id", "group_id", "consumed_topic", "kind", "state", "protocol_type", "protocol", "leader"}
_LISTS = {"partitions", "member_ids", "group_instance_ids", "client_ids"}
_NEEDED = {"transactional_id", "group_id", "consumed_topic", "consumed_partition"}


def _typed(row: Row, **fields: Any) -> Row | Unread:
    """``row`` with ``fields``, every value of its column's type: a JSON text may hold anything anywhere."""
    return checked(row._replace(**fields))  # type: ignore[arg-type]


def checked(row: Row) -> Row | Unread:
    """The row with its texts clean, or why a value fits no column."""
    result: dict[str, Any] = {}
    for name, value in row._asdict().items():
        if not _fits(name, value):
            return Unread("bad_value", f"{name} is no value that Kafka prints")
        if isinstance(value, str):
            result[name] = clean(value)
        elif isinstance(value, list):
            result[name] = [clean(item) if isinstance(item, str) else item for item in value]
    return row._replace(**result)


def _fits(name: str, value: object) -> bool:
    """Whether a value may stand in the column ``name``."""
    if value is None:
        return name not in _NEEDED
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _LISTS:
        nullable = name == "group_instance_ids"
        return isinstance(value, list) and all(isinstance(i, str) or (nullable and i is None) for i in value)
    if isinstance(value, bool):
        return name in ("tombstone", "partitions_null")
    half = 1 << _BITS.get(name, 64) - 1
    return isinstance(value, int) and -half <= value < half


def clean(text: str) -> str:
    """The text with lone halves of UTF-16 pairs, which JSON can express and UTF-8 cannot, made U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def load(text: str) -> dict[str, Any] | None:
    """A JSON object, None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: object) -> int | None:
    """A number, also one printed as a string, as types and versions are by dump-log."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value):
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 15 else None
