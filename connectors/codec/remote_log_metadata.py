"""Records of ``__remote_log_metadata`` and the manifests of stored segments (KIP-405)."""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import Fields, parsed
from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors.codec.compression import ZSTD, Failure, decompress
from auditor.connectors.codec.structs import (
    Field,
    Message,
    Problem,
    decode,
    json_text,
    left_over,
    plain_fields,
    read_frame,
)

# Records: which segments of tiered topics were copied to remote storage, or deleted there.
#
# A value is: uvarint frame version (1), uvarint api key, uvarint version, body in the flexible form. Keys are null. A
# segment's first record describes it, later ones have only its state. Api key 3 occurs in snapshots that brokers keep
# of a partition's segments.


_TOPIC_ID_PARTITION = plain_fields("name string, id uuid, partition int32")
_PARTITION = Field("topicIdPartition", "struct", _TOPIC_ID_PARTITION)
_SEGMENT_ID = Field("remoteLogSegmentId", "struct", (_PARTITION, Field("id", "uuid")))
_BROKER, _EVENT = plain_fields("brokerId int32, eventTimestampMs int64")
_CUSTOM = Field("customMetadata", "bytes", nullable=0)
_STATE = Field("remoteLogSegmentState", "int8")
_SEGMENT = (
    *plain_fields("startOffset int64, endOffset int64"),
    _BROKER,
    Field("maxTimestampMs", "int64"),
    _EVENT,
    Field("segmentLeaderEpochs", "[]struct", plain_fields("leaderEpoch int32, offset int64")),
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
    """A record, named as in the table ``remote_log_metadata``; None for what its kind does not have.

    ``tiered_topic``, ``tiered_partition`` and ``topic_id``: the partition of the segment (None in a snapshot's record).
    ``start_offset`` and ``end_offset`` are the segment's first and last offset; ``state_number`` is as stored and
    ``state`` its name (None for an unknown number); ``event_broker_id`` wrote the record. Times are ms, ``size`` is
    bytes; ``leader_epochs`` is JSON: leader epoch to its first offset in the segment; ``custom_metadata`` are bytes of
    the plugin. ``txn_index_empty``: the segment's transaction index has no entry (before 4.0 never stored).
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
    """Decode one record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

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


# The manifest of a segment that Aiven's RemoteStorageManager stored.
#
# ``.rsm-manifest`` is JSON beside ``<offset>-<id>.log`` and ``.indexes``: the segment was cut into chunks of one size,
# each compressed (zstd) and encrypted separately or neither, and its indexes were concatenated. Source: the plugin's
# documentation, and files that it wrote on a 4.3.1 broker.


VERSION = "1"
LARGEST = (1 << 31) - 1  # bytes of a segment, and of a chunk
PARTS = {  # the name in the manifest: the kind of file, in the order in which the plugin stores them
    "offset": "index",
    "timestamp": "timeindex",
    "producerSnapshot": "snapshot",
    "leaderEpoch": "leader-epoch-checkpoint",
    "transaction": "txnindex",
}
CHUNKS_HEAD = struct.Struct(">iib")  # number of sizes, the smallest except the last, bytes per difference to it


class IndexPart(NamedTuple):
    """One index in the object with the segment's indexes: its kind and place, in bytes."""

    kind: str
    position: int
    size: int


class Manifest(NamedTuple):
    """How a segment of ``size`` bytes is stored.

    ``chunks``: the stored size of each chunk (int64) of ``chunk_bytes`` of the segment, the last one of the rest.
    ``encrypted_by``: the name of the key that wraps the segment's own, None if it is not encrypted.
    """

    size: int
    chunk_bytes: int
    chunks: np.ndarray
    compressed: bool
    encrypted_by: str | None
    parts: tuple[IndexPart, ...]

    @property
    def plain(self) -> bool:
        """Whether the stored object is the unchanged segment."""
        return not self.compressed and self.encrypted_by is None


class _BadManifest(ValueError):
    """An error in a manifest, in words; :func:`decode_manifest` catches it."""


def decode_manifest(data: bytes, file: str = "", *, limits: Limits = DEFAULT_LIMITS) -> Manifest | DecodeError:
    """Decode a manifest and check its consistency. Errors: reasons ``bad_manifest`` and ``limit``.

    Cost: its size, and 8 bytes per chunk, of which there are at most ``limits.max_index_entries``.
    """
    try:
        content = parsed(data)
        return _manifest(content, limits)
    except _BadManifest as error:
        return DecodeError(file, 0, len(data), "bad_manifest", str(error))
    except ValueError:
        return DecodeError(file, 0, len(data), "bad_manifest", "not JSON")


def _manifest(content: object, limits: Limits) -> Manifest:
    if _field(content, "version", str) != VERSION:
        raise _BadManifest(f"version {_field(content, 'version', str)[:20]!r}, only {VERSION!r} is known")
    index = _field(content, "chunkIndex", dict)
    size, chunk_bytes = _number(index, "originalFileSize"), _number(index, "originalChunkSize", least=1)
    count = -(-size // chunk_bytes)
    if count > limits.max_index_entries:
        raise _BadManifest(f"{count} chunks, limit {limits.max_index_entries}")
    chunks = _sizes(index, count, limits)
    if len(chunks) != count and not (size == 0 and len(chunks) == 1):
        raise _BadManifest(f"{len(chunks)} chunks where {size} bytes in chunks of {chunk_bytes} make {count}")
    encryption = content.get("encryption") if isinstance(content, dict) else None
    key = None if encryption is None else _field(encryption, "dataKey", str).partition(":")[0][:100]
    compressed = _field(content, "compression", bool)
    if key is None and not compressed and int(chunks.sum()) != size:
        raise _BadManifest(f"chunks of {int(chunks.sum())} bytes, not compressed, of a segment of {size}")
    return Manifest(size, chunk_bytes, chunks, compressed, key, _parts(_field(content, "segmentIndexes", dict)))


def _sizes(index: Fields, count: int, limits: Limits) -> np.ndarray:
    if index.get("type") == "fixed":
        sizes = np.full(count, _number(index, "transformedChunkSize"), np.int64)
        sizes[-1:] = _number(index, "finalTransformedChunkSize")
        return sizes
    if index.get("type") == "variable":
        return _packed(_field(index, "transformedChunks", str), limits)
    raise _BadManifest("a chunk index of an unknown type")


def _packed(text: str, limits: Limits) -> np.ndarray:
    # As the plugin packs sizes: base64 of zstd of differences to the smallest one; the last one is stored apart.
    try:
        stored = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise _BadManifest("sizes of chunks that are not base64") from error
    room = limits._replace(max_batch_bytes=CHUNKS_HEAD.size + 4 * limits.max_index_entries)
    plain = decompress(ZSTD, np.frombuffer(stored, np.uint8), limits=room)
    if isinstance(plain, Failure):
        raise _BadManifest(f"sizes of chunks: {plain.detail}")
    data = plain.tobytes()
    if len(data) in (4, 8) and data[:4] == (len(data) // 4 - 1).to_bytes(4):
        return np.frombuffer(data[4:], ">i4").astype(np.int64)
    if len(data) < CHUNKS_HEAD.size:
        raise _BadManifest("sizes of chunks that break off")
    count, least, width = CHUNKS_HEAD.unpack_from(data)
    end = CHUNKS_HEAD.size + (count - 1) * width
    if count < 2 or not 1 <= width <= 4 or least < 0 or len(data) != end + 4:
        raise _BadManifest("sizes of chunks in a form that does not exist")
    digits = np.frombuffer(data[CHUNKS_HEAD.size : end], np.uint8).reshape(count - 1, width).astype(np.int64)
    above = digits @ (np.int64(256) ** np.arange(width - 1, -1, -1, dtype=np.int64))
    sizes = np.append(above + least, int.from_bytes(data[end:]))
    if (sizes > LARGEST).any():
        raise _BadManifest("a chunk that is larger than a segment can be")
    return sizes


def _parts(indexes: Fields) -> tuple[IndexPart, ...]:
    # By position. A segment without aborted transactions has no transaction index.
    given = {name: indexes[name] for name in PARTS if indexes.get(name) is not None}
    parts = sorted(
        (
            IndexPart(PARTS[name], _number(bounds, "position"), _number(bounds, "size"))
            for name, bounds in given.items()
        ),
        key=lambda part: (part.position, part.size),
    )
    end = 0
    for part in parts:
        if part.position < end:
            raise _BadManifest("indexes that overlap")
        end = part.position + part.size
    return tuple(parts)


def _field(content: object, name: str, kind: type) -> Any:
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not kind:
        raise _BadManifest(f"no sound {name}")
    return value


def _number(content: object, name: str, least: int = 0) -> int:
    value = int(_field(content, name, int))
    if not least <= value <= LARGEST:
        raise _BadManifest(f"{name} of {value if abs(value) < 1 << 63 else 'many'} bytes")
    return value
