"""Records of ``__transaction_state``: the coordinator's log of each transactional id (TransactionLogKey and -Value)."""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.connectors.codec.structs import Field, Message, Problem, decode, decode_versioned, left_over, read_int16
from auditor.connectors.schema import TRANSACTION_STATES

KEY = Message("TransactionLogKey", (Field("transactionalId", "string"),), flexible=1)
VALUE = Message(
    "TransactionLogValue",
    (
        Field("producerId", "int64"),
        Field("producerEpoch", "int16"),
        Field("transactionTimeoutMs", "int32"),
        Field("transactionStatus", "int8"),
        Field(
            "transactionPartitions",
            "[]struct",
            (Field("topic", "string"), Field("partitionIds", "[]int32")),
            nullable=0,
        ),
        Field("transactionLastUpdateTimestampMs", "int64"),
        Field("transactionStartTimestampMs", "int64"),
        Field("previousProducerId", "int64", since=1, tag=0, default=-1),
        Field("nextProducerId", "int64", since=1, tag=1, default=-1),
        Field("clientTransactionVersion", "int16", since=1, tag=2, default=0),
        Field("nextProducerEpoch", "int16", since=1, tag=3, default=-1),
    ),
    last_version=1,
    flexible=1,
)
MAX_TOPIC_LENGTH = 249  # Kafka's own; a longer name would be repeated for each partition id


class TransactionLogRow(NamedTuple):
    """A record of ``__transaction_state``, named as in the table ``transaction_log``; of a tombstone all else is None.

    Times are ms (-1: none), ``partitions`` are ``topic-partition`` in stored order (None where the array is null).
    ``state`` is None for a ``status`` that does not exist. Fields that version 0 lacks have Kafka's defaults.
    """

    transactional_id: str
    tombstone: bool
    value_version: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    status: int | None = None
    state: str | None = None
    partitions: list[str] | None = None
    partitions_null: bool | None = None
    last_update_timestamp: int | None = None
    start_timestamp: int | None = None
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    client_transaction_version: int | None = None
    next_producer_epoch: int | None = None


def decode_transaction_log(key: bytes | None, value: bytes | None) -> tuple[TransactionLogRow | None, Problem | None]:
    """One record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    Reasons: ``unknown_key_type`` (Kafka skips the record), ``bad_value`` (null key), ``bad_version``, ``truncated``,
    ``bad_size``, ``limit`` (on these Kafka stops loading the partition), ``bad_length`` (bytes left).
    Source: Kafka's TransactionLog.readTxnRecordKey and -Value.
    """
    if key is None:
        return None, Problem("bad_value", 0, "the key is null")
    key_type = read_int16(key)
    if isinstance(key_type, Problem):
        return None, key_type
    if key_type != 0:
        return None, Problem("unknown_key_type", 0, f"key type {key_type}, known: 0")
    decoded_key = decode(KEY, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    key_fields, key_end = decoded_key
    transactional_id = key_fields["transactionalId"]
    if value is None:
        return TransactionLogRow(transactional_id, tombstone=True), left_over(key, key_end)
    decoded = decode_versioned(VALUE, value)
    if isinstance(decoded, Problem):
        return None, decoded
    version, fields, end = decoded
    if any(len(topic["topic"]) > MAX_TOPIC_LENGTH for topic in fields["transactionPartitions"] or ()):
        return None, Problem("limit", 0, f"a topic name of more than {MAX_TOPIC_LENGTH} characters")
    return _row(transactional_id, version, fields), left_over(key, key_end) or left_over(value, end)


def _row(transactional_id: str, version: int, fields: Fields) -> TransactionLogRow:
    status, topics = fields["transactionStatus"], fields["transactionPartitions"]
    return TransactionLogRow(
        transactional_id,
        tombstone=False,
        value_version=version,
        producer_id=fields["producerId"],
        producer_epoch=fields["producerEpoch"],
        timeout_ms=fields["transactionTimeoutMs"],
        status=status,
        state=TRANSACTION_STATES[status] if 0 <= status < len(TRANSACTION_STATES) else None,
        partitions=None if topics is None else [f"{t['topic']}-{p}" for t in topics for p in t["partitionIds"]],
        partitions_null=topics is None,
        last_update_timestamp=fields["transactionLastUpdateTimestampMs"],
        start_timestamp=fields["transactionStartTimestampMs"],
        previous_producer_id=fields["previousProducerId"],
        next_producer_id=fields["nextProducerId"],
        client_transaction_version=fields["clientTransactionVersion"],
        next_producer_epoch=fields["nextProducerEpoch"],
    )
