"""Records of ``__transaction_state``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from auditor.base.at_rest import Fields, Values
from auditor.base.compiled import kernel
from auditor.connectors.codec.batches import RecordColumns
from auditor.connectors.codec.primitives import be16, be32, be64
from auditor.connectors.codec.structs import (
    MAX_ELEMENTS,
    Field,
    Message,
    Problem,
    decode,
    decode_versioned,
    left_over,
    plain_fields,
    read_int16,
)
from auditor.connectors.schema import TRANSACTION_STATES

# The coordinator's log of each transactional id (TransactionLogKey and -Value).


KEY = Message("TransactionLogKey", (Field("transactionalId", "string"),), flexible=1)
VALUE = Message(
    "TransactionLogValue",
    (
        *plain_fields("producerId int64, producerEpoch int16, transactionTimeoutMs int32, transactionStatus int8"),
        Field("transactionPartitions", "[]struct", plain_fields("topic string, partitionIds []int32"), nullable=0),
        *plain_fields("transactionLastUpdateTimestampMs int64, transactionStartTimestampMs int64"),
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
    """A record of ``__transaction_state``, named as in the table ``transaction_log``; a tombstone has None elsewhere.

    Times are ms (-1: none), ``partitions`` are ``topic-partition`` in stored order (None if the array is null).
    ``state`` is None for an unknown ``status``. Fields that version 0 lacks have Kafka's defaults.
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
    """Decode one record. Row and problem together: bytes were left over, which Kafka ignores; no row: unreadable.

    Reasons: ``unknown_key_type`` (Kafka skips the record), ``bad_value`` (null key), ``bad_version``, ``truncated``,
    ``bad_size``, ``limit`` (on these Kafka stops loading the partition), ``bad_length`` (bytes left). Source: Kafka's
    TransactionLog.readTxnRecordKey and -Value.
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
    topics = fields["transactionPartitions"]
    if any(len(topic["topic"]) > MAX_TOPIC_LENGTH for topic in topics or ()):
        return None, Problem("limit", 0, f"a topic name of more than {MAX_TOPIC_LENGTH} characters")
    partitions = None if topics is None else [f"{t['topic']}-{p}" for t in topics for p in t["partitionIds"]]
    row = TransactionLogRow(transactional_id, False, partitions=partitions, **value_columns(version, fields))
    return row, left_over(key, key_end) or left_over(value, end)


def value_columns(version: int | None, fields: Values) -> Fields:
    """The columns of a stored value, except ``partitions``; missing fields are null or have Kafka's defaults."""
    status = fields.get("transactionStatus")
    return {
        "value_version": version,
        "producer_id": fields.get("producerId"),
        "producer_epoch": fields.get("producerEpoch"),
        "timeout_ms": fields.get("transactionTimeoutMs"),
        "status": status,
        "state": dict(enumerate(TRANSACTION_STATES)).get(status) if isinstance(status, int) else None,
        "partitions_null": fields.get("transactionPartitions") is None,
        "last_update_timestamp": fields.get("transactionLastUpdateTimestampMs"),
        "start_timestamp": fields.get("transactionStartTimestampMs"),
        "previous_producer_id": fields.get("previousProducerId", -1),
        "next_producer_id": fields.get("nextProducerId", -1),
        "client_transaction_version": fields.get("clientTransactionVersion", 0),
        "next_producer_epoch": fields.get("nextProducerEpoch", -1),
    }


# Records as columns: the versions that brokers write, read by a compiled kernel. Everything else (an unknown version or
# tag, bytes left over, a name that is not ASCII, a length that does not fit) is *odd*, and left to
# :func:`decode_transaction_log`.


TOMBSTONE = -1  # in VERSION
ODD = -2
(
    VERSION,
    ID_START,
    ID_SIZE,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    TIMEOUT_MS,
    STATUS,
    LIST_START,
    LIST_SIZE,
    LAST_UPDATE,
    START,
    CLIENT_VERSION,
    FIELDS,
) = range(13)
MAX_COUNT = MAX_ELEMENTS


class Lists(NamedTuple):
    """Decoded lists of partitions: elements ``ends[k - 1]`` to ``ends[k]`` are those of list ``k``.

    Each element is the place of its topic's name (``start``, ``size``) and a ``partition``.
    """

    ends: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    partitions: np.ndarray


@kernel
def uvarint(data: np.ndarray, position: int, end: int) -> tuple[np.int64, int]:
    """The value and the index after it; the index is -1 if there is none up to 2^31 - 1."""
    value = np.int64(0)
    for k in range(5):
        if position + k >= end:
            return np.int64(0), -1
        byte = np.int64(data[position + k])
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            return value, position + k + 1 if value <= 0x7FFFFFFF else -1
    return np.int64(0), -1


@kernel
def all_ascii(data: np.ndarray, start: int, size: int) -> bool:
    """Whether bytes are ASCII, so that their texts are equal only if the bytes are."""
    k = 0
    while k + 8 <= size:
        if np.uint64(be64(data, start + k)) & np.uint64(0x8080808080808080):
            return False
        k += 8
    while k < size:
        if data[start + k] >= 0x80:
            return False
        k += 1
    return True


@kernel
def _count(data: np.ndarray, position: int, end: int, flexible: bool) -> tuple[np.int64, int]:
    # Elements of an array, -1 for null, and the index after the count, -1 if it does not fit.
    if flexible:
        count, after = uvarint(data, position, end)
        return count - 1, after
    if position + 4 > end:
        return np.int64(0), -1
    return be32(data, position), position + 4


@kernel
def _name(data: np.ndarray, position: int, end: int, flexible: bool) -> tuple[Any, np.int64]:
    # Start and size of a topic's name; size -1 if it is odd.
    if flexible:
        size, position = uvarint(data, position, end)
        size -= 1
        if position < 0:
            return np.int64(0), np.int64(-1)
    else:
        if position + 2 > end:
            return np.int64(0), np.int64(-1)
        size = be16(data, position)
        position += 2
    if size < 0 or size > MAX_TOPIC_LENGTH or position + size > end or not all_ascii(data, position, size):
        return np.int64(0), np.int64(-1)
    return np.int64(position), size


@kernel
def _list_end(data: np.ndarray, position: int, end: int, flexible: bool) -> int:
    # The index after a list of partitions, -1 if it is odd.
    topics, position = _count(data, position, end, flexible)
    if position < 0 or topics < -1:
        return -1
    elements = max(topics, 0)
    for _ in range(topics):
        if elements > MAX_COUNT:
            return -1
        begin, size = _name(data, position, end, flexible)
        if size < 0:
            return -1
        ids, position = _count(data, begin + size, end, flexible)
        if position < 0 or ids < 0 or position + 4 * ids > end:
            return -1
        elements += ids
        position += 4 * ids
        if flexible:
            if position >= end or data[position] != 0:
                return -1
            position += 1
    return position if elements <= MAX_COUNT else -1


@kernel
def _tags(data: np.ndarray, position: int, end: int, out: np.ndarray) -> bool:
    # Whether all tagged fields are known and end with the value.
    tags, position = uvarint(data, position, end)
    if position < 0:
        return False
    for _ in range(tags):
        tag, position = uvarint(data, position, end)
        if position < 0:
            return False
        size, position = uvarint(data, position, end)
        if position < 0 or tag > 3 or size != (8 if tag < 2 else 2) or position + size > end:
            return False
        if tag == 2:
            out[CLIENT_VERSION] = be16(data, position)
        position += size
    return position == end


@kernel
def _later_fields(data: np.ndarray, fields: np.ndarray, out: np.ndarray) -> None:
    # Previous and next producer id and next epoch, which only tags of version 1 have; -1 without the tag.
    for k in range(len(fields)):
        out[:, k] = -1
        if fields[k, VERSION] == 1:
            end = len(data)  # the tags were parsed before, and fit
            tags, position = uvarint(data, fields[k, LIST_START] + fields[k, LIST_SIZE] + 16, end)
            for _ in range(tags):
                tag, position = uvarint(data, position, end)
                size, position = uvarint(data, position, end)
                if tag == 3:
                    out[2, k] = be16(data, position)
                elif tag < 2:
                    out[tag, k] = be64(data, position)
                position += size


@kernel
def _value(data: np.ndarray, position: int, size: int, out: np.ndarray) -> int:
    # Returns the version, or ODD.
    end = position + size
    if size < 21:
        return ODD
    version = be16(data, position)
    if version < 0 or version > 1:
        return ODD
    flexible = version == 1
    out[PRODUCER_ID], out[PRODUCER_EPOCH] = be64(data, position + 2), be16(data, position + 10)
    out[TIMEOUT_MS], out[STATUS] = be32(data, position + 12), np.int8(data[position + 16])
    out[LIST_START] = position + 17
    position = _list_end(data, position + 17, end, flexible)
    if position < 0 or position + 16 > end:
        return ODD
    out[LIST_SIZE] = position - out[LIST_START]
    out[LAST_UPDATE], out[START] = be64(data, position), be64(data, position + 8)
    out[CLIENT_VERSION] = 0
    position += 16
    if flexible:
        return version if _tags(data, position, end, out) else ODD
    return version if position == end else ODD


@kernel
def _parse(
    data: np.ndarray,
    key_start: np.ndarray,
    key_size: np.ndarray,
    value_start: np.ndarray,
    value_size: np.ndarray,
    out: np.ndarray,
) -> None:
    for k in range(len(key_start)):
        row, position, size = out[k], key_start[k], key_size[k]
        row[:] = -1
        row[VERSION] = ODD
        if (
            size < 4
            or be16(data, position) != 0
            or be16(data, position + 2) != size - 4
            or not all_ascii(data, position + 4, size - 4)
        ):
            continue
        row[ID_START], row[ID_SIZE] = position + 4, size - 4
        if value_size[k] >= 0:
            row[VERSION] = _value(data, value_start[k], value_size[k], row)
        else:
            row[VERSION], row[LIST_SIZE], row[CLIENT_VERSION] = TOMBSTONE, 0, 0


@kernel
def _are_null(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(starts)):
        last = sizes[k] - 1
        if last < 0 or (last == 3 and be32(data, starts[k]) == -1):  # the latter is version 0
            out[k] = True
            continue
        position, end = starts[k], starts[k] + last
        while position < end and data[position] == 0x80:
            position += 1
        out[k] = position == end and data[position] == 0  # a varint of 0, however long


@kernel
def _take_apart(
    data: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    flexible: np.ndarray,
    name_starts: np.ndarray,
    name_sizes: np.ndarray,
    partitions: np.ndarray,
    out: np.ndarray,
) -> None:
    row = 0
    for k in range(len(starts)):
        position, end = starts[k], ends[k]
        if end > position:
            topics, position = _count(data, position, end, flexible[k])
            for _ in range(topics):
                begin, size = _name(data, position, end, flexible[k])
                ids, position = _count(data, begin + size, end, flexible[k])
                for _ in range(ids):
                    name_starts[row], name_sizes[row], partitions[row] = begin, size, be32(data, position)
                    row += 1
                    position += 4
                position += np.int64(flexible[k])
        out[k] = row


def parse(records: RecordColumns, chosen: np.ndarray) -> np.ndarray:
    """A row of FIELDS numbers for each of the ``chosen`` records, which must have their payload."""
    return parse_with(_parse, FIELDS, records, chosen)


def parse_with(parser: Any, width: int, records: RecordColumns, chosen: np.ndarray) -> np.ndarray:
    """Call a kernel with keys and values of the ``chosen`` records; it fills a row of ``width`` numbers for each."""
    out = np.empty((len(chosen), width), np.int64)
    columns = (records.key_start, records.key_size, records.value_start, records.value_size)
    parser(records.payload, *(np.ascontiguousarray(c[chosen]) for c in columns), out)
    return out


def later_fields(data: np.ndarray, fields: np.ndarray) -> np.ndarray:
    """Three columns of records none of which is odd: previous producer id, next producer id, next epoch."""
    out = np.empty((3, len(fields)), np.int64)
    _later_fields(data, fields, out)
    return out


def is_flexible(data: np.ndarray, start: int, end: int) -> bool:
    """Whether stored bytes of a list that is not odd are of version 1: counts of version 0 start with zeros or ones."""
    return bool(end > start and not (end - start >= 4 and (data[start] == 0 or be32(data, start) == -1)))


def are_null(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Which stored lists, none of which is odd, are null, of either version; also one of no bytes."""
    out = np.empty(len(starts), bool)
    _are_null(data, starts, sizes, out)
    return out


def take_apart(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, flexible: np.ndarray | None = None) -> Lists:
    """The partitions of stored lists, none of which is odd; an empty or null list has none.

    ``flexible``: whether each is of version 1, if known.
    """
    if flexible is None:
        flags = (is_flexible(data, s, e) for s, e in zip(starts.tolist(), ends.tolist(), strict=True))
        flexible = np.fromiter(flags, bool, len(starts))
    room = int(((ends - starts) // 4).sum())
    out = Lists(np.empty(len(starts), np.int64), *np.empty((3, room), np.int64))
    _take_apart(data, starts, ends, flexible, *out[1:], out.ends)
    used = int(out.ends[-1]) if len(out.ends) else 0
    return Lists(out.ends, *(column[:used] for column in out[1:]))


# Columns of texts from stored bytes, as Arrow stores them.


DASH, ZERO = 0x2D, 0x30


class Texts(NamedTuple):
    """``ends``: int32, 0 and the end of each text in ``data``."""

    ends: np.ndarray
    data: np.ndarray


@kernel
def _gather(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(starts)):
        begin = ends[k]
        for j in range(ends[k + 1] - begin):
            out[begin + j] = data[starts[k] + j]


@kernel
def _digits(number: np.int64) -> np.int64:
    left, digits = abs(number), np.int64(1 if number >= 0 else 2)
    while left >= 10:
        left //= 10
        digits += 1
    return digits


@kernel
def _name_sizes(sizes: np.ndarray, partitions: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(sizes)):
        out[k] = sizes[k] + 1 + _digits(partitions[k])


@kernel
def _names(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, partitions: np.ndarray, ends: np.ndarray, out: np.ndarray
) -> None:
    for k in range(len(starts)):
        position, end = ends[k], ends[k + 1] - 1
        for j in range(sizes[k]):
            out[position + j] = data[starts[k] + j]
        out[position + sizes[k]] = DASH
        left = abs(partitions[k])
        if partitions[k] < 0:
            out[position + sizes[k] + 1] = DASH
        while True:
            out[end] = ZERO + left % 10
            left //= 10
            end -= 1
            if left == 0:
                break


@kernel
def _are_ascii(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(starts)):
        out[k] = all_ascii(data, starts[k], sizes[k])


def _ends(sizes: np.ndarray) -> np.ndarray:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return ends


def gather(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> Texts:
    """The texts of ``sizes`` bytes at ``starts``; a size below 0 is an empty text. At most 2 GiB in total."""
    ends = _ends(np.maximum(sizes, 0))
    out = np.empty(int(ends[-1]), np.uint8)
    _gather(data, np.ascontiguousarray(starts), ends, out)
    return Texts(ends, out)


def partition_names(data: np.ndarray, lists: Lists) -> Texts:
    """``topic-partition`` of every element of decoded lists."""
    sizes = np.empty(len(lists.sizes), np.int64)
    _name_sizes(lists.sizes, lists.partitions, sizes)
    ends = _ends(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    _names(data, lists.starts, lists.sizes, lists.partitions, ends, out)
    return Texts(ends, out)


def are_ascii(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Whether each text is ASCII, so that its bytes are its characters."""
    out = np.empty(len(starts), bool)
    _are_ascii(data, np.ascontiguousarray(starts), np.ascontiguousarray(sizes), out)
    return out
