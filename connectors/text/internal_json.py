"""Records of the internal topics as JSON of their stored structures, as printed since 3.8, 3.9 (console) or 4.0."""

from __future__ import annotations

from auditor.base.at_rest import Fields
from auditor.connectors.codec.consumer_offsets import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.group_records import GROUP_TYPES
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.schema import TRANSACTION_STATES
from auditor.connectors.text.checked_rows import DELETE, NOT_OURS, PARTITION, Row, Unread, load, small_number, typed


def read_json_texts(key: str, value: str | None) -> Row | Unread:
    """A record from key and value as separate JSON texts; here types and versions are strings."""
    key_fields = load(key)
    if key_fields is None or value is None:
        return NOT_OURS
    value_fields = None if value == DELETE else load(value)
    return NOT_OURS if value != DELETE and value_fields is None else read_json(key_fields, value_fields)


def read_json(key: Fields, value: Fields | None) -> Row | Unread:
    """A record as JSON of its stored key and value; None for a tombstone."""
    kind = small_number(key.get("type", key.get("version")))
    names = key.get("data")
    if kind is None:
        return NOT_OURS
    if not isinstance(names, dict):
        return Unread("unknown_key_type", "the tool did not know the key's type either", skipped=True)
    version = fields = None
    if value is not None:
        version, fields = small_number(value.get("version")), value.get("data")
        if version is None or not isinstance(fields, dict):
            return Unread("bad_version", "the tool did not know the value's version either")
    if "transactionalId" in names:
        return _json_transaction(names, version, fields)
    if "topic" in names:
        return _json_commit(names, version, fields)
    return _json_group(kind, names, version, fields)


def _json_transaction(names: Fields, version: int | None, fields: Fields | None) -> Row | Unread:
    row = TransactionLogRow(names["transactionalId"], tombstone=fields is None)
    if fields is None:
        return typed(row)
    topics = fields.get("transactionPartitions")
    partitions = None if topics is None else _partitions(topics)
    if topics is not None and partitions is None:
        return NOT_OURS
    status = fields.get("transactionStatus")
    return typed(
        row,
        value_version=version,
        producer_id=fields.get("producerId"),
        producer_epoch=fields.get("producerEpoch"),
        timeout_ms=fields.get("transactionTimeoutMs"),
        status=status,
        state=dict(enumerate(TRANSACTION_STATES)).get(status) if isinstance(status, int) else None,
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
    return names if all(map(PARTITION.fullmatch, names)) else None


def _json_commit(names: Fields, version: int | None, fields: Fields | None) -> Row | Unread:
    row = OffsetCommitRow(names.get("group", ""), names["topic"], names.get("partition", -1), tombstone=fields is None)
    if fields is None:
        return typed(row)
    return typed(
        row,
        value_version=version,
        committed_offset=fields.get("offset"),
        leader_epoch=fields.get("leaderEpoch", -1),
        commit_timestamp=fields.get("commitTimestamp"),
        expire_timestamp=fields.get("expireTimestamp"),
    )


def _json_group(kind: int, names: Fields, version: int | None, fields: Fields | None) -> Row | Unread:
    known = GROUP_TYPES.get(kind)
    if known is None:
        return Unread("unknown_key_type", f"key type {kind} is not read", skipped=True)
    group = names.get("group", names.get("groupId"))
    row = GroupMetadataRow(group, kind, known.kind, tombstone=fields is None)  # type: ignore[arg-type]
    if "memberId" in names:
        row = row._replace(member_ids=[names["memberId"]])
    if fields is None:
        return typed(row)
    row = row._replace(value_version=version, generation=fields.get(known.epoch) if known.epoch else None)
    if kind != 2:
        return typed(row)
    members = fields.get("members")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return NOT_OURS
    return typed(
        row,
        protocol_type=fields.get("protocolType"),
        protocol=fields.get("protocol"),
        leader=fields.get("leader"),
        state_timestamp=fields.get("currentStateTimestamp"),
        member_ids=[member.get("memberId") for member in members],
        group_instance_ids=[member.get("groupInstanceId") for member in members],
        client_ids=[member.get("clientId") for member in members],
    )
