"""Replace secrets and client data in stored batches of internal topics by zeros of the same length.

Blanked are: metadata of commits, members' user data, client hosts and other values that only clients choose; SCRAM,
delegation-token and access-control records; values of settings that are sensitive or unknown. Everything else is kept,
so that every record decodes to the same rows. Unreadable records, fields and bytes stay unreadable, without their
content.
"""

from __future__ import annotations

import numpy as np

from auditor.base.errors import Limits
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec import group_topics as commits
from auditor.connectors.codec.batches import BatchColumns
from auditor.connectors.codec.cluster_metadata import CONFIG, MESSAGES, UNREAD
from auditor.connectors.codec.group_topics import (
    ASSIGNMENT,
    CONSUMER_PROTOCOL,
    GROUP_METADATA_VALUE,
    GROUP_TYPES,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    SUBSCRIPTION,
)
from auditor.connectors.codec.primitives import varint
from auditor.connectors.codec.records import BROKEN, UNRELIABLE, Decoded, decode_stored, next_record
from auditor.connectors.codec.small_files import may_show, may_show_topic
from auditor.connectors.codec.structs import (
    FieldSpan,
    Message,
    Problem,
    decode,
    decode_either,
    read_frame,
    read_int16,
    spans_of,
)

OFFSETS, METADATA = "__consumer_offsets", "__cluster_metadata"
# Copied unchanged: they have neither client data nor secrets.
PLAIN = frozenset({"__transaction_state", "__share_group_state", "__remote_log_metadata"})
COPIED = PLAIN | {OFFSETS, METADATA}
_OF_CLIENTS = frozenset({"", "metadata", "clientHost", "userData", "host", "value"})  # fields of group records
_CONSUMER_MESSAGES = {"subscription": SUBSCRIPTION, "assignment": ASSIGNMENT}
_OF_TOPIC, _OF_BROKER = 2, 4  # ConfigResource.Type
UNREADABLE = 0xFF  # replaces unreadable bytes, which stay unreadable; zeros might be a valid value
BAD = "bad"  # the name of an unreadable span
_HEADERS = (18, 26, walking.HEADER)  # bytes before the first possible secret, by magic


class Blanks:
    """Blanks the batches of one internal topic, one of :data:`COPIED`."""

    def __init__(self, topic: str, limits: Limits) -> None:
        self.topic, self.limits = topic, limits

    def blanked(self, batches: BatchColumns, raw: list[bytes]) -> list[bytes]:
        """The stored bytes of ``batches`` without secrets, in order. Compressed batches become plain, as their header
        then states."""
        if self.topic in PLAIN:
            return raw
        values = list(raw)
        control = (batches.magic == 2) & (batches.attributes & walking.CONTROL != 0)
        compressed = (batches.attributes & walking.CODEC_MASK != 0) & ((batches.record_count > 0) | (batches.magic < 2))
        self._plain(batches, np.flatnonzero(~control & ~compressed), values)
        for row in np.flatnonzero(~control & compressed).tolist():
            values[row] = self._compressed(batches.take(np.array([row])), raw[row])
        return values

    def _plain(self, batches: BatchColumns, rows: np.ndarray, values: list[bytes]) -> None:
        if not len(rows):
            return
        buf = np.frombuffer(bytearray().join(values[row] for row in rows), np.uint8)
        ends = np.cumsum(batches.size[rows], dtype=np.int64)
        starts = ends - batches.size[rows]
        some = batches.take(rows)._replace(position=starts)
        first = walking.HEADER if some.magic[0] == 2 else 0  # byte at which the payload begins
        bodies = starts + np.array(_HEADERS)[some.magic]
        for run in decode_stored(buf, 0, some, limits=self.limits, payload=True):  # one run, since all are plain
            self._blank(run, bodies - first, ends - first, some.magic)
            buf[first : first + len(run.records.payload)] = run.records.payload
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            values[row] = buf[start:end].tobytes()

    def _compressed(self, batch: BatchColumns, raw: bytes) -> bytes:
        # A body that cannot be opened becomes zeros, as does a wrapper of magic 0 or 1.
        header = _HEADERS[int(batch.magic[0])]
        if header == walking.HEADER:
            one = batch._replace(position=np.zeros(1, np.int64))
            for run in decode_stored(np.frombuffer(bytearray(raw), np.uint8), 0, one, limits=self.limits, payload=True):
                body = run.records.payload
                if not run.failures and len(body):
                    self._blank(run, np.zeros(1, np.int64), np.array([len(body)]), one.magic)
                    attributes = int.from_bytes(raw[21:23], "big") & ~walking.CODEC_MASK
                    return raw[:21] + attributes.to_bytes(2, "big") + raw[23:header] + body.tobytes()
        return raw[:header].ljust(len(raw), b"\0")

    def _blank(self, run: Decoded, starts: np.ndarray, ends: np.ndarray, magic: np.ndarray) -> None:
        records, payload = run.records, run.records.payload
        unsound = (records.flaws & UNRELIABLE != 0) | (records.header_count > self.limits.max_headers)
        broken = run.summary.flaws & BROKEN != 0
        broken[list(run.failures)] = True
        broken[np.unique(records.batch[unsound])] = True
        for start, end, of in zip(*(x[broken].tolist() for x in (starts, ends, magic)), strict=True):
            _blank_unsound(payload, start if of == 2 else end, end)
            if of < 2:
                payload[start:end] = UNREADABLE
        left = np.flatnonzero(~unsound & ~(broken & (magic < 2))[records.batch])
        if self.topic == OFFSETS and len(left):
            left = _blank_commits(run, left)
        for number in left.tolist():
            self._record(run, number)

    def _record(self, run: Decoded, number: int) -> None:
        r, payload = run.records, run.records.payload
        key, value = run.stored(number)
        secret = _of_metadata(key, value) if self.topic == METADATA else _of_groups(key, value)
        for begins, spans in zip((r.key_start[number], r.value_start[number]), secret, strict=True):
            for span in spans:
                payload[begins + span.start : begins + span.start + span.size] = UNREADABLE if span.name == BAD else 0
        if r.header_count[number] > 0:
            _blank_headers(payload, int(r.header_start[number]))


def _blank_commits(run: Decoded, chosen: np.ndarray) -> np.ndarray:
    # Commits as brokers write them; returns the other records.
    fields = commits.parse(run.records, chosen)
    odd = (fields[:, commits.VERSION] == commits.ODD) | (run.records.header_count[chosen] > 0)
    plain = chosen[~odd]
    details = commits.details(run.records, plain, fields[~odd, commits.VERSION])
    for start, size in zip(details[commits.TEXT_START].tolist(), details[commits.TEXT_SIZE].tolist(), strict=True):
        if size > 0:
            run.records.payload[start : start + size] = 0
    return chosen[odd]


def _blank_unsound(payload: np.ndarray, position: int, end: int) -> None:
    while position < end:
        behind, *_, flaws = next_record(payload, position, end)
        if behind < 0:
            payload[position:end] = UNREADABLE
            return
        if flaws & UNRELIABLE:
            _size, inside = varint(payload, position, end)
            payload[inside:behind] = UNREADABLE
        position = behind


def _blank_headers(payload: np.ndarray, position: int) -> None:
    end = len(payload)
    count, position = varint(payload, position, end)
    for _ in range(2 * count):
        size, position = varint(payload, position, end)
        payload[position : position + max(size, 0)] = 0
        position += max(size, 0)


def _all_from(data: bytes | None, start: int, name: str = "") -> list[FieldSpan]:
    return [] if data is None or len(data) <= start else [FieldSpan(name, start, len(data) - start)]


def _secret(
    message: Message, version: int, data: bytes, names: frozenset[str], start: int = 2
) -> tuple[list[FieldSpan], list[FieldSpan]]:
    # The spans to blank, among them the bytes behind the last field, and all spans.
    secrets = spans_of(message, version, data, start)
    if isinstance(secrets, Problem):
        return _all_from(data, start, BAD), []
    spans, end = secrets
    return [s for s in spans if s.name in names] + _all_from(data, end), spans


def _of_groups(key: bytes | None, value: bytes | None) -> tuple[list[FieldSpan], list[FieldSpan]]:
    kind = None if key is None else read_int16(key)
    if key is None or not isinstance(kind, int) or kind not in {0, 1, *GROUP_TYPES}:
        return _all_from(key, 2), _all_from(value, 2)
    behind = _secret(OFFSET_COMMIT_KEY if kind < 2 else GROUP_TYPES[kind].key, 0, key, frozenset())[0]
    return behind, _of_group_value(kind, value)


def _of_group_value(kind: int, value: bytes | None) -> list[FieldSpan]:
    version = read_int16(value or b"")
    if value is None or isinstance(version, Problem):
        return _all_from(value, 0, BAD)
    if kind < 2:
        return _secret(OFFSET_COMMIT_VALUE, version, value, _OF_CLIENTS)[0]
    record_type = GROUP_TYPES[kind]
    decoded = decode_either(record_type.value, record_type.preview, value)
    if isinstance(decoded, Problem):
        return _all_from(value, 2, BAD)
    message, version, fields, _end = decoded
    secret, spans = _secret(message, version, value, _OF_CLIENTS)
    if message is GROUP_METADATA_VALUE:
        consumers = fields["protocolType"] == CONSUMER_PROTOCOL
        for span in (s for s in spans if s.name in _CONSUMER_MESSAGES):
            secret += _client_spans(_CONSUMER_MESSAGES[span.name], value, span) if consumers else [span]
    return secret


def _client_spans(message: Message, value: bytes, span: FieldSpan) -> list[FieldSpan]:
    data = value[span.start : span.start + span.size]
    version = read_int16(data)
    if isinstance(version, Problem):
        return [span]
    inner = _secret(message, version, data, _OF_CLIENTS)[0]
    return [FieldSpan(s.name, span.start + s.start, s.size) for s in inner]


def _of_metadata(key: bytes | None, value: bytes | None) -> tuple[list[FieldSpan], list[FieldSpan]]:
    # Records of __cluster_metadata have no keys.
    keys = _all_from(key, 0)
    frame = read_frame(value or b"")
    if isinstance(frame, Problem):
        return keys, _all_from(value, 0, BAD)
    api_key, version, start = frame
    if api_key in UNREAD or api_key not in MESSAGES:
        return keys, _all_from(value, start)
    assert value is not None
    message = MESSAGES[api_key]
    secret, spans = _secret(message, version, value, frozenset({""}), start)
    if message is CONFIG and spans:
        fields = decode(message, version, value, start)
        if isinstance(fields, Problem) or not _may_show(fields[0]["resourceType"], fields[0]["name"]):
            secret += [s for s in spans if s.name == "value"]
    return keys, secret


def _may_show(resource: int, name: str) -> bool:
    if resource == _OF_BROKER:
        return may_show(name)
    return resource == _OF_TOPIC and may_show_topic(name)
