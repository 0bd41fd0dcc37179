"""Offset commits of ``__consumer_offsets`` as columns: the versions that brokers write, read by a compiled kernel.

Whatever is not exactly as brokers write it, and every record of another kind, is *odd*, and left to
:mod:`auditor.connectors.codec.consumer_offsets`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.primitives import be16, be32, be64
from auditor.connectors.codec.records import RecordColumns
from auditor.connectors.codec.transaction_columns import all_ascii, uvarint

TOMBSTONE = -1  # in VERSION
ODD = -2
VERSION, KEY_START, KEY_SIZE, GROUP_SIZE, TOPIC_START, TOPIC_SIZE, PARTITION, VALUE, FIELDS = range(9)
KEY_OVERHEAD = 2 + 2 + 2 + 4  # type, two lengths, partition
MAX_STRING = 0x7FFF
LEADER_EPOCH, COMMIT_TIME, EXPIRE_TIME, TOPIC_ID, TEXT_START, TEXT_SIZE, DETAILS = range(7)


@kernel
def _key(data: np.ndarray, at: int, size: int, out: np.ndarray) -> bool:
    """Reads a key; whether it is that of a commit."""
    if size < KEY_OVERHEAD or be16(data, at) < 0 or be16(data, at) > 1:
        return False
    group = be16(data, at + 2)
    if group < 0 or group + KEY_OVERHEAD > size:
        return False
    topic = be16(data, at + 4 + group)
    if topic < 0 or group + topic + KEY_OVERHEAD != size or not all_ascii(data, at + 4, group):
        return False
    out[KEY_START], out[KEY_SIZE], out[GROUP_SIZE] = at + 2, size - 2, group
    out[TOPIC_START], out[TOPIC_SIZE] = at + 6 + group, topic
    out[PARTITION] = be32(data, at + size - 4)
    return bool(all_ascii(data, at + 6 + group, topic))


@kernel
def _tags_fit(data: np.ndarray, at: int, end: int) -> bool:
    """Whether the tagged fields end the value: none, or the topic's id."""
    return (at + 1 == end and data[at] == 0) or (
        at + 19 == end and data[at] == 1 and data[at + 1] == 0 and data[at + 2] == 16
    )


@kernel
def _value(data: np.ndarray, at: int, size: int, out: np.ndarray) -> Any:
    """Reads a value; its version, or ODD."""
    end = at + size
    if size < 10:
        return ODD
    version = be16(data, at)
    if version < 0 or version > 4:
        return ODD
    out[VALUE] = be64(data, at + 2)
    at += 14 if version >= 3 else 10
    if version == 4:
        text, at = uvarint(data, at, end)
        text -= 1
        if at < 0 or text < 0 or text > MAX_STRING or at + text + 8 > end:
            return ODD
        return 4 if _tags_fit(data, at + text + 8, end) else ODD
    if at + 2 > end:
        return ODD
    text = be16(data, at)
    if text < 0 or at + 2 + text + (16 if version == 1 else 8) != end:
        return ODD
    return np.int64(version)


@kernel
def _details(data: np.ndarray, versions: np.ndarray, value_start: np.ndarray, out: np.ndarray) -> None:
    for k in range(len(versions)):
        version, at = versions[k], value_start[k] + 10
        out[:, k] = -1
        if version < 0:
            continue
        if version >= 3:
            out[LEADER_EPOCH, k] = be32(data, at)
            at += 4
        if version == 4:
            text, at = uvarint(data, at, len(data))  # it was read before, and fits
            text -= 1
        else:
            text = be16(data, at)
            at += 2
        out[TEXT_START, k], out[TEXT_SIZE, k] = at, text
        at += text
        out[COMMIT_TIME, k] = be64(data, at)
        if version == 1:
            out[EXPIRE_TIME, k] = be64(data, at + 8)
        if version == 4 and data[at + 8] == 1:
            out[TOPIC_ID, k] = at + 11


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
        row = out[k]
        row[:] = -1
        row[VERSION] = ODD
        if _key(data, key_start[k], key_size[k], row):
            row[VERSION] = TOMBSTONE if value_size[k] < 0 else _value(data, value_start[k], value_size[k], row)


def parse(records: RecordColumns, chosen: np.ndarray) -> np.ndarray:
    """A row of FIELDS numbers for each of the ``chosen`` records, which must have their payload."""
    out = np.empty((len(chosen), FIELDS), np.int64)
    columns = (records.key_start, records.key_size, records.value_start, records.value_size)
    _parse(records.payload, *(np.ascontiguousarray(c[chosen]) for c in columns), out)
    return out


def details(records: RecordColumns, chosen: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """What the values of ``chosen`` records, none of which is odd, say beside the offset: DETAILS columns, -1 for what
    there is none of. ``versions``: what :func:`parse` gave as VERSION. TOPIC_ID and TEXT_START (the metadata) are
    places in the payload."""
    out = np.empty((DETAILS, len(chosen)), np.int64)
    _details(records.payload, versions, np.ascontiguousarray(records.value_start[chosen]), out)
    return out
