"""What the console consumer printed of ``__transaction_state`` and ``__consumer_offsets`` with a formatter.

Up to 3.9 one line a record, since 3.9 JSON objects without anything between them. Neither shows the record's offset,
partition or time: records of one id or group are in order, others need not be. reference/formats.md section 11.8.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from auditor.base.errors import DecodeError
from auditor.connectors.codec.consumer_offsets import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.group_records import GROUP_TYPES
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.text import lines
from auditor.connectors.text.checked_rows import PARTITION, Row, Unread, checked, typed
from auditor.connectors.text.internal_json import read_json
from auditor.connectors.text.internal_topics import transaction
from auditor.connectors.text.payload import line_end

_JSON = b'{"key":'
_TRANSACTION = b"::TransactionMetadata(transactionalId="
_STATE = re.compile(
    rb", producerId=(-?[0-9]{1,19}), producerEpoch=(-?[0-9]{1,5}), txnTimeoutMs=([0-9]{1,10}), state=(\w+),"
    rb" pendingState=\w+, topicPartitions=(?:Hash)?Set\(([^)]*)\), txnStartTimestamp=(-?[0-9]{1,19}),"
    rb" txnLastUpdateTimestamp=(-?[0-9]{1,19})\)(?=\n|\Z)"
)
_COMMIT = re.compile(
    rb"OffsetAndMetadata\(offset=(?P<offset>-?[0-9]{1,19}), leaderEpoch=Optional(?:\.empty|\[(?P<epoch>[0-9]{1,10})\]),"
    rb" metadata=.*, commitTimestamp=(?P<committed>-?[0-9]{1,19}),"
    rb" expireTimestamp=(?:None|Some\((?P<expires>[0-9]{1,19})\))\)"
)
_OLD_COMMIT = re.compile(
    rb"\[OffsetMetadata\[(?P<offset>-?[0-9]{1,19}),.*\],CommitTime (?P<committed>-?[0-9]{1,19}),"
    rb"ExpirationTime (?P<expires>-?[0-9]{1,19})\]"
)
_GROUP = re.compile(
    rb"(?:groupId=(?P<again>.*), )?generation=(?P<generation>[0-9]{1,10}),"
    rb" protocolType=(?:None|Some\((?P<type>[^()]*)\)),"
    rb" currentState=\w+, members=(?:Hash)?Map\((?P<members>.*)\)\)"
)
_MEMBER = re.compile(  # bounded, so that a garbled line cannot cost more than its length
    rb"MemberMetadata\(memberId=(.{0,1000}?), (?:groupInstanceId=(None|Some\(.{0,1000}?\)), )?"
    rb"clientId=(.{0,1000}?), clientHost="
)
_VALUE = re.compile(rb"\]?::(?=NULL|OffsetAndMetadata\(|\[OffsetMetadata\[|GroupMetadata\()")
_MAX_ID = 100_000  # bytes; Kafka's ids have at most 32767, printed at most three times as long
_UNKNOWN = re.compile(rb"unknown::version=-?[0-9]{1,5}")


class PrintedRow(NamedTuple):
    """A record as the console shows it, and where in the text (bytes)."""

    row: Row
    position: int
    length: int


class Console(NamedTuple):
    """A whole text: its records in order, and what in it no formatter prints."""

    rows: list[PrintedRow]
    errors: list[DecodeError]


def parse_console(text: bytes, file: str = "") -> Console:
    """Read back the formatter's output. ``text`` is as :func:`auditor.connectors.text.sniff.normalise` gives it.

    ``id::NULL`` alone does not say what was deleted: it is taken for a group where the text shows groups, else for a
    transactional id. Errors: ``bad_line``, ``bad_value``, ``bad_version``, ``unknown_key_type``, ``truncated``.
    Cost: one pass.
    """
    return _Reader(text, file).read()


class _Reader:
    def __init__(self, text: bytes, file: str) -> None:
        self.text = text
        self.file = file
        self.result = Console([], [])
        self.shows_groups = b"::GroupMetadata(" in text
        self.next_transaction = 0  # where the next _TRANSACTION stands, so that bad lines cost no search each

    def read(self) -> Console:
        at = 0
        while at < len(self.text):
            at = self._json(at) if self.text.startswith(_JSON, at) else self._line(at)
        return self.result

    def _json(self, at: int) -> int:
        """One JSON object; the index after it, or after a stretch that is none."""
        end = _json_end(self.text, at)
        try:
            fields = json.loads(self.text[at:end])
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("key"), dict):
            return self._bad(at, end)
        value = fields.get("value")
        if value is not None and not isinstance(value, dict):
            return self._bad(at, end)
        self._take(read_json(fields["key"], value), at, end)
        return end

    def _line(self, at: int) -> int:
        """One record of an old formatter, or a line of something else."""
        end = self._transaction(at)
        if end >= 0:
            return end + 1
        stop = line_end(self.text, at)
        json_at = self.text.find(_JSON, at, stop)
        if json_at > at:  # a message of the tool got in front of the objects, which have no line ends
            stop = json_at
        line = self.text[at:stop]
        row = self._keyed(line)
        if row is not None:
            self._take(row, at, stop)
        elif not lines.is_noise(line) and not lines.CRASH.fullmatch(line):
            return self._bad(at, stop)
        return stop if stop == json_at else stop + 1

    def _transaction(self, at: int) -> int:
        """A transaction's state at ``at``: the id stands in it twice, and may hold anything; the end, or -1."""
        if 0 <= self.next_transaction < at or at == 0:
            self.next_transaction = self.text.find(_TRANSACTION, at)
        middle = self.next_transaction
        if not at <= middle <= at + _MAX_ID:
            return -1
        transactional_id = self.text[at:middle]
        again = middle + len(_TRANSACTION)
        found = _STATE.match(self.text, again + len(transactional_id))
        if not found or not self.text.startswith(transactional_id, again):
            return -1
        texts = [item.decode("utf-8", "replace") for item in found.groups()]
        producer_id, epoch, timeout, state, partitions, start, updated = texts
        row = transaction(
            transactional_id.decode("utf-8", "replace"),
            state,
            partitions,
            producer_id=int(producer_id),
            producer_epoch=int(epoch),
            timeout_ms=int(timeout),
            start_timestamp=int(start),
            last_update_timestamp=int(updated),
        )
        self._take(row, at, found.end())
        return found.end()

    def _keyed(self, line: bytes) -> Row | Unread | None:
        """A line ``key::value`` of any old formatter."""
        if _UNKNOWN.fullmatch(line):
            return Unread("unknown_key_type", "the tool did not know the key's version either", skipped=True)
        found = _VALUE.search(line)
        if not found:
            return None
        key, value = line[: found.start()], line[found.end() :]
        if found[0].startswith(b"]"):
            return _commit(key, value)
        name = key.decode("utf-8", "replace")
        if value.startswith(b"GroupMetadata("):
            return _group(name, value.removeprefix(b"GroupMetadata("))
        if value != b"NULL":
            return None
        if self.shows_groups:
            return checked(GroupMetadataRow(name, 2, GROUP_TYPES[2].kind, tombstone=True))
        return checked(TransactionLogRow(name, tombstone=True))

    def _take(self, row: Row | Unread, at: int, end: int) -> None:
        if not isinstance(row, Unread):
            self.result.rows.append(PrintedRow(row, at, end - at))
        elif not row.skipped:
            self.result.errors.append(DecodeError(self.file, at, end - at, row.reason, row.detail))

    def _bad(self, at: int, end: int) -> int:
        """Report a stretch, and go on after it and the line end that follows it."""
        reason, detail = "bad_line", "not printed by a formatter"
        if end >= len(self.text):
            reason, detail = "truncated", "the last record is cut short"
        self.result.errors.append(DecodeError(self.file, at, end - at, reason, detail))
        return end + 1 if self.text[end : end + 1] == b"\n" else max(end, at + 1)


def _json_end(text: bytes, at: int) -> int:
    """Where the object at ``at`` ends: at the next object's beginning or the line's end, outside of strings."""
    in_string = depth = 0
    for found in _JSON_SIGNS.finditer(text, at):
        sign = found[0]
        if sign == b"\n":
            return found.start()  # Kafka's JSON has no newline in it
        if sign == b'"':
            in_string ^= 1
        elif not in_string and len(sign) == 1:
            depth += 1 if sign in b"{[" else -1
            if depth <= 0:
                return found.end()
    return len(text)


_JSON_SIGNS = re.compile(rb'\\.|["{}\[\]\n]', re.DOTALL)


def _commit(key: bytes, value: bytes) -> Row | Unread | None:
    """An offset commit, or its tombstone; the key is ``[group,topic,partition``."""
    parts = key[1:].decode("utf-8", "replace").rsplit(",", 2)
    if not key.startswith(b"[") or len(parts) != 3:
        return None
    if not parts[2].isdigit() or not PARTITION.fullmatch("-".join(parts[1:])):
        return None
    row = OffsetCommitRow(parts[0], parts[1], int(parts[2]), tombstone=value == b"NULL")
    if row.tombstone:
        return checked(row)
    found = _COMMIT.fullmatch(value) or _OLD_COMMIT.fullmatch(value)
    if not found:
        return None
    return typed(
        row,
        committed_offset=int(found["offset"]),
        leader_epoch=int(found.groupdict().get("epoch") or -1),
        commit_timestamp=int(found["committed"]),
        expire_timestamp=int(found["expires"]) if found["expires"] else None,
    )


def _group(name: str, value: bytes) -> Row | Unread | None:
    """A classic group's state; since 2.4 the id stands in the value too."""
    found = _GROUP.fullmatch(value)
    if not found or (found["again"] is not None and found["again"].decode("utf-8", "replace") != name):
        return None
    members = _MEMBER.findall(found["members"])
    kind = found["type"]
    return typed(
        GroupMetadataRow(name, 2, GROUP_TYPES[2].kind, tombstone=False),
        generation=int(found["generation"]),
        protocol_type=None if kind is None else kind.decode("utf-8", "replace"),
        member_ids=[member.decode("utf-8", "replace") for member, _, _ in members],
        group_instance_ids=[_option(instance) for _, instance, _ in members],
        client_ids=[client.decode("utf-8", "replace") for _, _, client in members],
    )


def _option(text: bytes) -> str | None:
    """What a Scala Option prints: ``None`` or ``Some(x)``."""
    return text[5:-1].decode("utf-8", "replace") if text.startswith(b"Some(") else None
