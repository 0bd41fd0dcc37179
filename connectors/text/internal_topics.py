"""Records of internal topics as Kafka's formatters and decoders print them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from auditor.base.at_rest import Fields, parsed
from auditor.base.errors import DecodeError
from auditor.connectors.codec.group_topics import GROUP_TYPES, GroupMetadataRow, OffsetCommitRow, member_columns
from auditor.connectors.codec.transaction_log import TransactionLogRow, value_columns
from auditor.connectors.schema import TRANSACTION_STATES
from auditor.connectors.text import lines
from auditor.connectors.text.lines import line_end

# Rows from text: each value is checked against its column.


Row = TransactionLogRow | OffsetCommitRow | GroupMetadataRow

DELETE = "<DELETE>"
PARTITION = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


class Unread(NamedTuple):
    """Why a record has no row: a reason code and words without payload. ``skipped``: Kafka's tool skipped it too."""

    reason: str
    detail: str
    skipped: bool = False


NOT_OURS = Unread("bad_line", "key or payload that no decoder prints")

# Bits of the numbers in the rows; all others have 64.
_BITS = {
    "producer_epoch": 16,
    "next_producer_epoch": 16,
    "value_version": 16,
    "client_transaction_version": 16,
    "status": 8,
    "timeout_ms": 32,
    "consumed_partition": 32,
    "generation": 32,
    "leader_epoch": 32,
}
_TEXTS = {"transactional_id", "group_id", "consumed_topic", "kind", "state", "protocol_type", "protocol", "leader"}
_LISTS = {"partitions", "member_ids", "group_instance_ids", "client_ids"}
_NEEDED = {"transactional_id", "group_id", "consumed_topic", "consumed_partition"}


def typed(row: Row, **fields: Any) -> Row | Unread:
    """``row`` with ``fields``, every value checked for its column's type: JSON may have anything anywhere."""
    return checked(row._replace(**fields))


def checked(row: Row) -> Row | Unread:
    """The row with its texts clean, or why a value does not fit its column."""
    result: Fields = {}
    for name, value in row._asdict().items():
        if not _fits(name, value):
            return Unread("bad_value", f"{name} is no value that Kafka prints")
        if isinstance(value, str):
            result[name] = clean(value)
        elif isinstance(value, list):
            result[name] = [clean(item) if isinstance(item, str) else item for item in value]
    return row._replace(**result)


def _fits(name: str, value: object) -> bool:
    if value is None:
        return name not in _NEEDED
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _LISTS:
        nullable = name == "group_instance_ids"
        return isinstance(value, list) and all(isinstance(i, str) or (nullable and i is None) for i in value)
    if isinstance(value, bool):
        return name in ("tombstone", "partitions_null")
    half = 1 << _BITS.get(name, 64) - 1
    return isinstance(value, int) and -half <= value < half


def clean(text: str) -> str:
    """Replace lone UTF-16 surrogates, which JSON can express and UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def load(text: str) -> Fields | None:
    """Parse a JSON object; None for anything else."""
    try:
        value = parsed(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def small_number(value: object) -> int | None:
    """A number, also one printed as a string, as dump-log prints types and versions."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value):
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 15 else None


# JSON of the stored structures, printed since 3.8, 3.9 (console) or 4.0.


def read_json_texts(key: str, value: str | None) -> Row | Unread:
    """A record from key and value as separate JSON texts; types and versions are strings here."""
    key_fields = load(key)
    if key_fields is None or value is None:
        return NOT_OURS
    value_fields = None if value == DELETE else load(value)
    return NOT_OURS if value != DELETE and value_fields is None else read_json(key_fields, value_fields)


def read_json(key: Fields, value: Fields | None) -> Row | Unread:
    """A record from its stored key and value as JSON; None for a tombstone."""
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
    return typed(row, partitions=partitions, **value_columns(version, fields))


def _partitions(topics: object) -> list[str] | None:
    # None if it is not the stored structure.
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
    message = GROUP_TYPES.get(kind)
    if message is None:
        return Unread("unknown_key_type", f"key type {kind} is not read", skipped=True)
    group = names.get("group", names.get("groupId"))
    row = GroupMetadataRow(group, kind, message.kind, tombstone=fields is None)  # type: ignore[arg-type]
    if "memberId" in names:
        row = row._replace(member_ids=[names["memberId"]])
    if fields is None:
        return typed(row)
    row = row._replace(value_version=version, generation=fields.get(message.epoch) if message.epoch else None)
    if kind != 2:
        return typed(row)
    members = fields.get("members")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return NOT_OURS
    return typed(row, **member_columns(fields))


# Older releases print texts of their own, before 3.8 (offsets), 3.9 (console) and 4.0 (dump-log). The rows equal those
# of the binary decoders; what a text cannot show is None. reference/formats.md section 11.6 to 11.8.


_KEYS = (
    '{"type":',
    '{"version":',
    '{"metadata":',
    "transaction_metadata::",
    "transactionalId=",
    "offset_commit::",
    "offset::",
    "group_metadata::",
    "metadata::",
    "unknown::",
    "Error at offset ",
    "Unknown record type ",
)
_UNREADABLE_KEYS = ("unknown::", "Error at offset ", "Unknown record type ")
_OLD_TRANSACTION = re.compile(
    r"producerId:(-?\d{1,19}),producerEpoch:(-?\d{1,5}),state=(\w+),partitions=(?:(?:Hash)?Set\(|\[)(.*?)[)\]],"
    r"txnLastUpdateTimestamp=(-?\d{1,19}),txnTimeoutMs=(\d{1,10})",
    re.ASCII,
)
_OLD_COMMIT_KEY = re.compile(
    r"offset_commit::group=(.*),partition=([a-zA-Z0-9._-]{1,249})-(\d{1,10})", re.ASCII | re.DOTALL
)
_OLDEST_COMMIT_KEY = re.compile(r"offset::(.*):([a-zA-Z0-9._-]{1,249}):(\d{1,10})", re.ASCII | re.DOTALL)
_OLD_DECODED_COMMIT = re.compile(r"offset=(-?\d{1,19})(?:,metadata=.*)?", re.ASCII | re.DOTALL)
_OLDEST_COMMIT = re.compile(r"(-?\d{1,19})(?::.*)?", re.ASCII | re.DOTALL)
_OLDEST_GROUP = re.compile(r"([^:]*):([^:]*):(-?\d{1,10}):\{.*\}", re.ASCII | re.DOTALL)


def looks_decoded(key: str) -> bool:
    """Whether a printed key may be a decoder's."""
    return key.startswith(_KEYS)


def read_printed(key: str, value: str | None) -> Row | Unread:
    """A record as ``kafka-dump-log.sh`` prints it with a decoder."""
    if key.startswith("{") and not key.startswith('{"metadata":'):
        return read_json_texts(key, value)
    if key.startswith(_UNREADABLE_KEYS):
        return Unread("unknown_key_type", "the tool could not read the record either", skipped=True)
    if value is None:
        return NOT_OURS
    for prefix in ("transaction_metadata::transactionalId=", "transactionalId="):
        if key.startswith(prefix):
            return old_transaction(key.removeprefix(prefix), value)
    if key.startswith(("offset_commit::", "offset::")):
        return _old_commit(key, value)
    return _old_group(key, value)


def old_transaction(transactional_id: str, value: str) -> Row | Unread:
    """A transaction's state as printed up to 3.9."""
    if value == DELETE:
        return TransactionLogRow(transactional_id, tombstone=True)
    match = _OLD_TRANSACTION.fullmatch(value)
    if not match:
        return NOT_OURS
    producer_id, epoch, state, partitions, updated, timeout = match.groups()
    return transaction(
        transactional_id,
        state,
        partitions,
        producer_id=int(producer_id),
        producer_epoch=int(epoch),
        timeout_ms=int(timeout),
        last_update_timestamp=int(updated),
    )


def transaction(transactional_id: str, state: str, partitions: str, **numbers: int) -> Row | Unread:
    """A row from a state's name and partitions as Java (``a-0,b-1``) or Scala (``a-0, b-1``) print a set."""
    names = re.split(", ?", partitions) if partitions else []
    if state not in TRANSACTION_STATES or not all(map(PARTITION.fullmatch, names)):
        return NOT_OURS
    row = TransactionLogRow(transactional_id, tombstone=False, partitions=names, state=state)
    return typed(row, status=TRANSACTION_STATES.index(state), **numbers)


def _old_commit(key: str, value: str) -> Row | Unread:
    newer = key.startswith("offset_commit::")
    match = (_OLD_COMMIT_KEY if newer else _OLDEST_COMMIT_KEY).fullmatch(key)
    if not match:
        return NOT_OURS
    row = OffsetCommitRow(match[1], match[2], int(match[3]), tombstone=value == DELETE)
    if row.tombstone:
        return checked(row)
    offset = (_OLD_DECODED_COMMIT if newer else _OLDEST_COMMIT).fullmatch(value)
    return checked(row._replace(committed_offset=int(offset[1]))) if offset else NOT_OURS


def _old_group(key: str, value: str) -> Row | Unread:
    if key.startswith("{"):
        group = (load(key) or {}).get("metadata")
    else:
        group = key.removeprefix("group_metadata::group=").removeprefix("metadata::")
    if not isinstance(group, str):
        return NOT_OURS
    row = GroupMetadataRow(clean(group), 2, GROUP_TYPES[2].kind, tombstone=value == DELETE)
    if row.tombstone:
        return row
    if match := _OLDEST_GROUP.fullmatch(value):
        return checked(row._replace(protocol_type=match[1], protocol=match[2], generation=int(match[3])))
    fields = load(value)
    if fields is None:
        return NOT_OURS
    return typed(
        row,
        protocol_type=fields.get("protocolType"),
        protocol=fields.get("protocol"),
        generation=fields.get("generationId"),
    )


# Output of the console consumer for ``__transaction_state`` and ``__consumer_offsets`` with a formatter.
#
# Up to 3.9 one line per record, since 3.9 JSON objects without separators. Neither shows the record's offset, partition
# or time: records of one id or group are in order, others need not be. reference/formats.md section 11.8.


_JSON = b'{"key":'
_TRANSACTION = b"::TransactionMetadata(transactionalId="
_STATE = re.compile(
    rb", producerId=(-?[0-9]{1,19}), producerEpoch=(-?[0-9]{1,5}), txnTimeoutMs=([0-9]{1,10}), state=(\w+),"
    rb" pendingState=\w+, topicPartitions=(?:Hash)?Set\(([^)]*)\), txnStartTimestamp=(-?[0-9]{1,19}),"
    rb" txnLastUpdateTimestamp=(-?[0-9]{1,19})\)(?=\n|\Z)"
)
_STATE_FIELD = rb", %s=?(-?[0-9]{1,19})(?=[,)])"  # formatters of other builds: other names, signs and order
_STATE_NUMBERS = tuple(
    re.compile(_STATE_FIELD % name)
    for name in (b"producerId", b"producerEpoch", b"txnTimeoutMs", b"txnStartTimestamp", b"txnLastUpdateTimestamp")
)
_STATE_NAME = re.compile(rb", state=?(\w+)(?=[,)])")
_STATE_PARTITIONS = re.compile(rb", (?:topicP|p)artitions=?(?:(?:Hash)?Set\(([^)\n]*)\)|\[([^\]\n]*)\])")
_COMMIT = re.compile(
    rb"OffsetAndMetadata\(offset=(?P<offset>-?[0-9]{1,19}), leaderEpoch=Optional(?:\.empty|\[(?P<epoch>[0-9]{1,10})\]),"
    rb" metadata=.*, commitTimestamp=(?P<committed>-?[0-9]{1,19}),"
    rb" expireTimestamp=(?:None|Some\((?P<expires>[0-9]{1,19})\))\)"
)
_OLD_PRINTED_COMMIT = re.compile(
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
    """A record in the console's output, and its place in the text (bytes)."""

    row: Row
    position: int
    length: int


class Console(NamedTuple):
    """A whole text: its records in order, and errors for other text."""

    rows: list[PrintedRow]
    errors: list[DecodeError]


def parse_console(text: bytes, file: str = "") -> Console:
    """Parse a formatter's output. ``text`` as from :func:`auditor.connectors.text.lines.normalise`.

    ``id::NULL`` alone does not show what was deleted: it counts as a group if the text has groups, else as a
    transactional id. Errors: ``bad_line``, ``bad_value``, ``bad_version``, ``unknown_key_type``, ``truncated``. Cost:
    one pass.
    """
    return _TopicReader(text, file).read()


class _TopicReader:
    def __init__(self, text: bytes, file: str) -> None:
        self.text = text
        self.file = file
        self.result = Console([], [])
        self.shows_groups = b"::GroupMetadata(" in text
        self.next_transaction = 0  # index of the next _TRANSACTION, so that bad lines need no search each

    def read(self) -> Console:
        position = 0
        while position < len(self.text):
            position = self._json(position) if self.text.startswith(_JSON, position) else self._line(position)
        return self.result

    def _json(self, position: int) -> int:
        # Returns the index after one JSON object, or after invalid text.
        end = _json_end(self.text, position)
        try:
            fields = parsed(self.text[position:end])
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or not isinstance(fields.get("key"), dict):
            return self._bad(position, end)
        value = fields.get("value")
        if value is not None and not isinstance(value, dict):
            return self._bad(position, end)
        self._take(read_json(fields["key"], value), position, end)
        return end

    def _line(self, position: int) -> int:
        # One record of an old formatter, or another line.
        end = self._transaction(position)
        if end >= 0:
            return end + 1
        stop = line_end(self.text, position)
        json_at = self.text.find(_JSON, position, stop)
        if json_at > position:  # a message of the tool before the objects, which have no line ends
            stop = json_at
        line = self.text[position:stop]
        row = self._keyed(line)
        if row is not None:
            self._take(row, position, stop)
        elif not lines.is_noise(line) and not lines.CRASH.fullmatch(line):
            return self._bad(position, stop)
        return stop if stop == json_at else stop + 1

    def _transaction(self, position: int) -> int:
        # The id occurs twice and may contain anything. Returns the end, or -1.
        if 0 <= self.next_transaction < position or position == 0:
            self.next_transaction = self.text.find(_TRANSACTION, position)
        middle = self.next_transaction
        if not position <= middle <= position + _MAX_ID:
            return -1
        transactional_id = self.text[position:middle]
        again = middle + len(_TRANSACTION)
        if not self.text.startswith(transactional_id, again):
            return -1
        match = _STATE.match(self.text, again + len(transactional_id))
        if match is not None:
            fields, end = match.groups(), match.end()
        else:
            end = line_end(self.text, again + len(transactional_id))
            fields = _state_by_names(self.text[again + len(transactional_id) : end])
        if not fields:
            return -1
        producer_id, epoch, timeout, state, partitions, start, updated = (b.decode("utf-8", "replace") for b in fields)
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
        self._take(row, position, end)
        return end

    def _keyed(self, line: bytes) -> Row | Unread | None:
        # A line "key::value" of any old formatter.
        if _UNKNOWN.fullmatch(line):
            return Unread("unknown_key_type", "the tool did not know the key's version either", skipped=True)
        match = _VALUE.search(line)
        if not match:
            return None
        key, value = line[: match.start()], line[match.end() :]
        if match[0].startswith(b"]"):
            return _commit(key, value)
        name = key.decode("utf-8", "replace")
        if value.startswith(b"GroupMetadata("):
            return _group(name, value.removeprefix(b"GroupMetadata("))
        if value != b"NULL":
            return None
        if self.shows_groups:
            return checked(GroupMetadataRow(name, 2, GROUP_TYPES[2].kind, tombstone=True))
        return checked(TransactionLogRow(name, tombstone=True))

    def _take(self, row: Row | Unread, position: int, end: int) -> None:
        if not isinstance(row, Unread):
            self.result.rows.append(PrintedRow(row, position, end - position))
        elif not row.skipped:
            self.result.errors.append(DecodeError(self.file, position, end - position, row.reason, row.detail))

    def _bad(self, position: int, end: int) -> int:
        # Continues after the text and the line end that follows it.
        reason, detail = "bad_line", "not printed by a formatter"
        if end >= len(self.text):
            reason, detail = "truncated", "the last record is cut short"
        self.result.errors.append(DecodeError(self.file, position, end - position, reason, detail))
        return end + 1 if self.text[end : end + 1] == b"\n" else max(end, position + 1)


def _state_by_names(fields: bytes) -> tuple[bytes, ...]:
    # The fields of a transaction in the order of :data:`_STATE`, empty where one is missing or the line is cut short.
    numbers = [pattern.search(fields) for pattern in _STATE_NUMBERS]
    state, partitions = _STATE_NAME.search(fields), _STATE_PARTITIONS.search(fields)
    if None in numbers or state is None or partitions is None or not fields.endswith(b")"):
        return ()
    producer_id, epoch, timeout, start, updated = (match[1] for match in numbers if match is not None)
    return producer_id, epoch, timeout, state[1], partitions[1] or partitions[2] or b"", start, updated


def _json_end(text: bytes, position: int) -> int:
    # At the next object's start or the line's end, outside of strings.
    in_string = depth = 0
    for match in _JSON_SIGNS.finditer(text, position):
        sign = match[0]
        if sign == b"\n":
            return match.start()  # Kafka's JSON contains no newline
        if sign == b'"':
            in_string ^= 1
        elif not in_string and len(sign) == 1:
            depth += 1 if sign in b"{[" else -1
            if depth <= 0:
                return match.end()
    return len(text)


_JSON_SIGNS = re.compile(rb'\\.|["{}\[\]\n]', re.DOTALL)


def _commit(key: bytes, value: bytes) -> Row | Unread | None:
    # Also a tombstone; the key is "[group,topic,partition".
    parts = key[1:].decode("utf-8", "replace").rsplit(",", 2)
    if not key.startswith(b"[") or len(parts) != 3:
        return None
    if not parts[2].isdigit() or not PARTITION.fullmatch("-".join(parts[1:])):
        return None
    row = OffsetCommitRow(parts[0], parts[1], int(parts[2]), tombstone=value == b"NULL")
    if row.tombstone:
        return checked(row)
    match = _COMMIT.fullmatch(value) or _OLD_PRINTED_COMMIT.fullmatch(value)
    if not match:
        return None
    return typed(
        row,
        committed_offset=int(match["offset"]),
        leader_epoch=int(match.groupdict().get("epoch") or -1),
        commit_timestamp=int(match["committed"]),
        expire_timestamp=int(match["expires"]) if match["expires"] else None,
    )


def _group(name: str, value: bytes) -> Row | Unread | None:
    # Since 2.4 the value has the id too.
    match = _GROUP.fullmatch(value)
    if not match or (match["again"] is not None and match["again"].decode("utf-8", "replace") != name):
        return None
    members = _MEMBER.findall(match["members"])
    kind = match["type"]
    return typed(
        GroupMetadataRow(name, 2, GROUP_TYPES[2].kind, tombstone=False),
        generation=int(match["generation"]),
        protocol_type=None if kind is None else kind.decode("utf-8", "replace"),
        member_ids=[member.decode("utf-8", "replace") for member, _, _ in members],
        group_instance_ids=[_option(instance) for _, instance, _ in members],
        client_ids=[client.decode("utf-8", "replace") for _, _, client in members],
    )


def _option(text: bytes) -> str | None:
    # A Scala Option: None or Some(x).
    return text[5:-1].decode("utf-8", "replace") if text.startswith(b"Some(") else None
