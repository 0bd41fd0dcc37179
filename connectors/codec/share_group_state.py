"""Records of ``__share_group_state`` (KIP-932): how far share groups have delivered and acknowledged each partition.

Key: int16 type (0 a whole snapshot, 1 an update of one), group, topic id and partition, without flexible encoding.
"""

from __future__ import annotations

from typing import NamedTuple

from auditor.connectors.codec.struct_json import as_printed, json_text
from auditor.connectors.codec.structs import Field, Message, Problem, decode, decode_either, left_over, read_int16

KEY = Message(
    "ShareSnapshotKey",
    (Field("groupId", "string"), Field("topicId", "uuid"), Field("partition", "int32")),
    flexible=1,
)
_BATCH = (
    Field("firstOffset", "int64"),
    Field("lastOffset", "int64"),
    Field("deliveryState", "int8"),
    Field("deliveryCount", "int16"),
)
_COMPLETE = Field("deliveryCompleteCount", "int32", tag=0, default=-1)
_BATCHES = Field("stateBatches", "[]struct", _BATCH)
_LEADER_EPOCH, _START = Field("leaderEpoch", "int32"), Field("startOffset", "int64")


class ShareRecordType(NamedTuple):
    """A key type: its name, its value, and the value of 3.9 and 4.0 under the same version number."""

    kind: str
    value: Message
    preview: Message


TYPES = {
    0: ShareRecordType(
        "ShareSnapshot",
        Message(
            "ShareSnapshotValue",
            (
                Field("snapshotEpoch", "int32"),
                Field("stateEpoch", "int32"),
                _LEADER_EPOCH,
                _START,
                Field("createTimestamp", "int64"),
                Field("writeTimestamp", "int64"),
                _BATCHES,
                _COMPLETE,
            ),
        ),
        Message(
            "ShareSnapshotValue",
            (Field("snapshotEpoch", "uint16"), Field("stateEpoch", "int32"), _LEADER_EPOCH, _START, _BATCHES),
        ),
    ),
    1: ShareRecordType(
        "ShareUpdate",
        Message("ShareUpdateValue", (Field("snapshotEpoch", "int32"), _LEADER_EPOCH, _START, _BATCHES, _COMPLETE)),
        Message("ShareUpdateValue", (Field("snapshotEpoch", "uint16"), _LEADER_EPOCH, _START, _BATCHES)),
    ),
}


class ShareGroupStateRow(NamedTuple):
    """A record of it, named as in the table ``share_group_state``; what its kind does not say is None.

    ``start_offset`` is the first offset that is not settled yet (-1: not known, and in an update: unchanged);
    ``state_batches`` are, as JSON like Kafka's tool prints them, the offsets from there on that were delivered:
    ``deliveryState`` 0 available, 2 acknowledged, 3 archiving, 4 archived, and how often delivered.
    ``delivery_complete_count`` -1 where it is not known (before 4.2). Times are ms.
    """

    group_id: str
    topic_id: str
    consumed_partition: int
    key_type: int
    kind: str
    tombstone: bool
    value_version: int | None = None
    snapshot_epoch: int | None = None
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int | None = None
    delivery_complete_count: int | None = None
    create_timestamp: int | None = None
    write_timestamp: int | None = None
    state_batches: str | None = None


def decode_share_group_state(
    key: bytes | None, value: bytes | None
) -> tuple[ShareGroupStateRow | None, Problem | None]:
    """One record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    Reasons: ``unknown_key_type``, ``bad_value`` (null key), ``bad_version``, ``truncated``, ``bad_size``, ``limit``,
    ``bad_length`` (bytes left). Source: Kafka's ShareCoordinatorRecordSerde.
    """
    if key is None:
        return None, Problem("bad_value", 0, "the key is null")
    key_type = read_int16(key)
    if isinstance(key_type, Problem):
        return None, key_type
    if key_type not in TYPES:
        detail = f"a record of __share_group_state with the unknown key type {key_type}"
        return None, Problem("unknown_key_type", 0, detail)
    kind = TYPES[key_type]
    decoded_key = decode(KEY, 0, key, 2)
    if isinstance(decoded_key, Problem):
        return None, decoded_key
    names, key_end = decoded_key
    row = ShareGroupStateRow(
        names["groupId"], names["topicId"], names["partition"], key_type, kind.kind, tombstone=value is None
    )
    if value is None:
        return row, left_over(key, key_end)
    decoded = decode_either(kind.value, kind.preview, value)
    if isinstance(decoded, Problem):
        return None, decoded
    message, version, fields, end = decoded
    row = row._replace(
        value_version=version,
        snapshot_epoch=fields["snapshotEpoch"],
        state_epoch=fields.get("stateEpoch"),
        leader_epoch=fields["leaderEpoch"],
        start_offset=fields["startOffset"],
        delivery_complete_count=fields.get("deliveryCompleteCount", -1),
        create_timestamp=fields.get("createTimestamp"),
        write_timestamp=fields.get("writeTimestamp"),
        state_batches=json_text(as_printed(message, version, fields)["stateBatches"]),
    )
    return row, left_over(key, key_end) or left_over(value, end)
