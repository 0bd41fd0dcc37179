"""Records of ``__remote_log_metadata`` (KIP-405): which segments of tiered topics were copied to or deleted remotely.

A value is: uvarint frame version (1), uvarint api key, uvarint version, body in the flexible form. Keys are null. A
segment's first record says what it holds, later ones only its state. Api key 3 stands in snapshots that brokers keep
of a partition's segments.
"""

from __future__ import annotations

from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.connectors.codec.struct_json import json_text
from auditor.connectors.codec.structs import Field, Message, Problem, decode, left_over, read_frame

_TOPIC_ID_PARTITION = (Field("name", "string"), Field("id", "uuid"), Field("partition", "int32"))
_PARTITION = Field("topicIdPartition", "struct", _TOPIC_ID_PARTITION)
_SEGMENT_ID = Field("remoteLogSegmentId", "struct", (_PARTITION, Field("id", "uuid")))
_BROKER, _EVENT = Field("brokerId", "int32"), Field("eventTimestampMs", "int64")
_CUSTOM = Field("customMetadata", "bytes", nullable=0)
_STATE = Field("remoteLogSegmentState", "int8")
_SEGMENT = (
    Field("startOffset", "int64"),
    Field("endOffset", "int64"),
    _BROKER,
    Field("maxTimestampMs", "int64"),
    _EVENT,
    Field("segmentLeaderEpochs", "[]struct", (Field("leaderEpoch", "int32"), Field("offset", "int64"))),
    Field("segmentSizeInBytes", "int32"),
    _CUSTOM,
    _STATE,
    Field("txnIndexEmpty", "bool", tag=0, default=False),
)
MESSAGES = {
    0: Message("RemoteLogSegmentMetadataRecord", (_SEGMENT_ID, *_SEGMENT)),
    1: Message("RemoteLogSegmentMetadataUpdateRecord", (_SEGMENT_ID, _BROKER, _EVENT, _CUSTOM, _STATE)),
    2: Message(
        "RemotePartitionDeleteMetadataRecord",
        (_PARTITION, _BROKER, _EVENT, Field("remotePartitionDeleteState", "int8")),
    ),
    3: Message("RemoteLogSegmentMetadataSnapshotRecord", (Field("segmentId", "uuid"), *_SEGMENT)),
}
"""api key -> message."""

SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


class RemoteLogMetadataRow(NamedTuple):
    """A record of it, named as in the table ``remote_log_metadata``; what its kind does not say is None.

    ``tiered_topic``, ``tiered_partition`` and ``topic_id``: what the segment is of (None in a snapshot's record).
    ``start_offset`` and ``end_offset`` are the segment's first and last offset; ``state_number`` is as stored and
    ``state`` its name (None for a number that has none); ``event_broker_id`` wrote the record. Times are ms, ``size``
    is bytes; ``leader_epochs`` is JSON: leader epoch to its first offset in the segment; ``custom_metadata`` are bytes
    of the plugin. ``txn_index_empty``: the segment's transaction index has no entry (before 4.0 never said).
    """

    key_type: int
    kind: str
    value_version: int
    tiered_topic: str | None
    tiered_partition: int | None
    topic_id: str | None
    segment_id: str | None
    state: str | None
    state_number: int
    event_broker_id: int
    event_timestamp: int
    start_offset: int | None = None
    end_offset: int | None = None
    max_timestamp: int | None = None
    size: int | None = None
    leader_epochs: str | None = None
    txn_index_empty: bool | None = None
    custom_metadata: bytes | None = None


def decode_remote_log_metadata(value: bytes | None) -> tuple[RemoteLogMetadataRow | None, Problem | None]:
    """One record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    Reasons: ``unknown_key_type`` (of the api key), ``bad_value`` (null value), ``bad_version``, ``truncated``,
    ``bad_size``, ``limit``, ``bad_length`` (bytes left). Source: Kafka's RemoteLogMetadataSerde.
    """
    if value is None:
        return None, Problem("bad_value", 0, "a null value")
    frame = read_frame(value)
    if isinstance(frame, Problem):
        return None, frame
    api_key, version, position = frame
    message = MESSAGES.get(api_key)
    if message is None:
        detail = f"a record of __remote_log_metadata with the unknown api key {api_key}"
        return None, Problem("unknown_key_type", 0, detail)
    decoded = decode(message, version, value, position)
    if isinstance(decoded, Problem):
        return None, decoded
    fields, end = decoded
    return _row(api_key, message.name.removesuffix("Record"), version, fields), left_over(value, end)


def _row(key_type: int, kind: str, version: int, fields: Fields) -> RemoteLogMetadataRow:
    segment = fields.get("remoteLogSegmentId", {})
    partition = segment.get("topicIdPartition") or fields.get("topicIdPartition") or {}
    of_segment = "remoteLogSegmentState" in fields
    number = fields["remoteLogSegmentState" if of_segment else "remotePartitionDeleteState"]
    states = SEGMENT_STATES if of_segment else DELETE_STATES
    epochs = fields.get("segmentLeaderEpochs")
    return RemoteLogMetadataRow(
        key_type=key_type,
        kind=kind,
        value_version=version,
        tiered_topic=partition.get("name"),
        tiered_partition=partition.get("partition"),
        topic_id=partition.get("id"),
        segment_id=segment.get("id") or fields.get("segmentId"),
        state=states[number] if 0 <= number < len(states) else None,
        state_number=number,
        event_broker_id=fields["brokerId"],
        event_timestamp=fields["eventTimestampMs"],
        start_offset=fields.get("startOffset"),
        end_offset=fields.get("endOffset"),
        max_timestamp=fields.get("maxTimestampMs"),
        size=fields.get("segmentSizeInBytes"),
        leader_epochs=None
        if epochs is None
        else json_text({str(item["leaderEpoch"]): item["offset"] for item in epochs}),
        txn_index_empty=fields.get("txnIndexEmpty"),
        custom_metadata=fields.get("customMetadata"),
    )
