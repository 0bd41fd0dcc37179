"""Rows of the internal topics whose values come from text: each checked against its column before it is believed."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from auditor.base.at_rest import Fields
from auditor.connectors.codec.consumer_offsets import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.transaction_log import TransactionLogRow

Row = TransactionLogRow | OffsetCommitRow | GroupMetadataRow

DELETE = "<DELETE>"
PARTITION = re.compile(r"[a-zA-Z0-9._-]{1,249}-[0-9]{1,10}")


class Unread(NamedTuple):
    """Why a record gives no row: a reason code and words without payload. ``skipped``: Kafka's tool skipped it too."""

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
    """``row`` with ``fields``, every value of its column's type: a JSON text may hold anything anywhere."""
    return checked(row._replace(**fields))


def checked(row: Row) -> Row | Unread:
    """The row with its texts clean, or why a value fits no column."""
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
    """Whether a value may stand in the column ``name``."""
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
    """The text with lone halves of UTF-16 pairs, which JSON can express and UTF-8 cannot, made U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def load(text: str) -> Fields | None:
    """A JSON object, None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def small_number(value: object) -> int | None:
    """A number, also one printed as a string, as types and versions are by dump-log."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value):
        return int(value)
    return value if type(value) is int and 0 <= value < 1 << 15 else None
