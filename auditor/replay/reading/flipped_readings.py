"""Both readings of a batch whose CRC mismatch one flipped bit explains: as it is stored, and with that bit inverted.

What neither says is left out, and so is what nobody may carry out of the house: a copy without payload shows the same.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, FlippedBit
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import columns_of, header_of
from auditor.connectors.codec.blanking import KEPT, METADATA, Blanks
from auditor.connectors.codec.cluster_metadata import decode_metadata_record
from auditor.connectors.codec.records import Record, records_of
from auditor.connectors.codec.structs import Problem
from auditor.connectors.tables import internal_rows, schema
from auditor.connectors.tables.rows import shown_fields
from auditor.facts.events import Kind, events_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.headers_from import stored_batch
from auditor.replay.task.replica_task import ReplicaTask

BATCHES = 100  # of a replica that are read once more
HEADER = {  # of a batch: name, first byte, bytes
    "checksum": (17, 4),
    "attributes": (21, 2),
    "last offset delta": (23, 4),
    "base timestamp": (27, 8),
    "max timestamp": (35, 8),
    "producer id": (43, 8),
    "producer epoch": (51, 2),
    "base sequence": (53, 4),
    "record count": (57, 4),
}
MARKER_BYTES = 78  # of a batch with one end marker, as brokers write it
MARKER_TYPE, COORDINATOR_EPOCH = (68, 2), (73, 4)  # first byte and bytes there
OUTCOMES = {0: "ABORT", 1: "COMMIT"}
NAMES = ("transactional_id", "group_id", "consumed_topic", "consumed_partition", "topic_id", "name")  # whose record


def readings(task: ReplicaTask, facts: ReplicaFacts) -> dict[tuple[int, int], Fields]:
    """Return both readings of the first damaged batches by segment number and position. Cost: each is read again."""
    found: dict[tuple[int, int], Fields] = {}
    for event in events_of(facts.events, Kind.CRC):
        at = (int(event["segment"]), int(event["position"]))
        bit = facts.flipped_bits.get(at)
        if bit is None or len(found) >= BATCHES:
            continue
        batch = stored_batch(task, *at)
        if batch is not None:
            found[at] = {"base_offset": event["base_offset"], "byte": bit.byte, "bit": bit.bit}
            found[at] |= _both(*batch, bit, task)
    return found


def _both(row: np.ndarray, raw: bytes | None, bit: FlippedBit, task: ReplicaTask) -> Fields:
    stored, size = header_of(row), int(row[walking.SIZE])
    first, _ = HEADER["checksum"]
    if len(stored) != walking.HEADER or not first <= bit.byte < size:  # of a copy that others made
        return {"field": "unknown"}
    if bit.byte < len(stored):
        name, (start, size) = next((n, at) for n, at in HEADER.items() if at[0] <= bit.byte < sum(at))
        return {"field": name} | _numbers(stored[start : start + size], bit, start, signed=name != "checksum")
    is_control = int(row[walking.ATTRIBUTES]) & walking.CONTROL != 0
    if is_control and size == MARKER_BYTES:
        return _of_marker(row, bit)
    topic = task.replica.topic or ""
    compressed = int(row[walking.ATTRIBUTES]) & walking.CODEC_MASK != 0
    if is_control or raw is None or len(raw) != size or topic not in KEPT or compressed:
        return {"field": "records"}
    plain = Blanks(topic, task.limits).blanked(columns_of(row[None, :]), [raw])[0]
    both = [_records(row, plain, topic, task), _records(row, _inverted(plain, bit), topic, task)]
    return {"field": "records", "records": [_difference(*pair) for pair in zip_longest(*both) if pair[0] != pair[1]]}


def _inverted(data: bytes, bit: FlippedBit, start: int = 0) -> bytes:
    out = bytearray(data)
    out[bit.byte - start] ^= 1 << bit.bit
    return bytes(out)


def _numbers(data: bytes, bit: FlippedBit, start: int, *, signed: bool = True) -> Fields:
    as_stored, inverted = (int.from_bytes(each, "big", signed=signed) for each in (data, _inverted(data, bit, start)))
    return {"as_stored": as_stored, "inverted": inverted}


def _of_marker(row: np.ndarray, bit: FlippedBit) -> Fields:
    """Of an end marker by its columns, which is all that a copy has of it."""
    for name, (start, size), column in (
        ("marker", MARKER_TYPE, walking.CONTROL_TYPE),
        ("coordinator epoch", COORDINATOR_EPOCH, walking.COORDINATOR_EPOCH),
    ):
        if start <= bit.byte < start + size:
            stored = int(row[column]) & (1 << 8 * size) - 1
            said = _numbers(stored.to_bytes(size, "big"), bit, start)
            if name == "marker":
                said = {key: OUTCOMES.get(value, f"type {value}") for key, value in said.items()}
            return {"field": name} | said
    return {"field": "records"}


def _records(row: np.ndarray, raw: bytes, topic: str, task: ReplicaTask) -> list[Fields]:
    """The records of a batch, as tables show them."""
    batches = columns_of(row[None, :])
    reader = internal_rows.InternalRows(topic, task.limits)
    out = []
    for _, record in records_of([raw], batches, file="", limits=task.limits):
        if isinstance(record, DecodeError):
            out.append({"unreadable": record.detail})
        elif topic == METADATA:
            out.append(_of_metadata(record))
        else:
            table, values = reader.row_of("", batches, 0, record)
            names = schema.DECODED[table].names[len(schema.LOG_KEY) :]
            out.append({"unreadable": "the record"} if values is None else dict(zip(names, values, strict=True)))
    return out


def _of_metadata(record: Record) -> Fields:
    said = decode_metadata_record(record.value)
    if isinstance(said, Problem):
        return {"unreadable": said.detail}
    return {"offset": record.offset, "record": said.name, **shown_fields(said, False)}


def _difference(stored: Fields | None, inverted: Fields | None) -> Fields:
    """What two readings of a record do not have alike, and whose record it is."""
    one, other = stored or {}, inverted or {}
    names = [name for name in dict.fromkeys([*one, *other]) if one.get(name) != other.get(name)]
    alike: dict[str, Any] = {name: one[name] for name in ("offset", *NAMES) if name in one and name not in names}
    return alike | {
        "as_stored": {name: one[name] for name in names if name in one},
        "inverted": {name: other[name] for name in names if name in other},
    }
