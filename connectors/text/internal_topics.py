"""Records of ``__transaction_state`` and ``__consumer_offsets`` as Kafka's decoders and formatters print them.

Old releases print texts of their own, 3.8 (offsets), 3.9 (console) and 4.0 (dump-log) on JSON of the stored structures.
The rows are those that the binary decoders give; what a text cannot show is None. reference/formats.md
section 11.6 to 11.8.
"""

from __future__ import annotations

import re

from auditor.connectors.codec.consumer_offsets import GroupMetadataRow, OffsetCommitRow
from auditor.connectors.codec.group_records import GROUP_TYPES
from auditor.connectors.codec.transaction_log import TransactionLogRow
from auditor.connectors.schema import TRANSACTION_STATES
from auditor.connectors.text.checked_rows import DELETE, NOT_OURS, PARTITION, Row, Unread, checked, clean, load, typed
from auditor.connectors.text.internal_json import read_json_texts

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
_SAID_UNREADABLE = ("unknown::", "Error at offset ", "Unknown record type ")
_OLD_TRANSACTION = re.compile(
    r"producerId:(-?\d{1,19}),producerEpoch:(-?\d{1,5}),state=(\w+),partitions=(?:(?:Hash)?Set\(|\[)(.*?)[)\]],"
    r"txnLastUpdateTimestamp=(-?\d{1,19}),txnTimeoutMs=(\d{1,10})",
    re.ASCII,
)
_OLD_COMMIT_KEY = re.compile(
    r"offset_commit::group=(.*),partition=([a-zA-Z0-9._-]{1,249})-(\d{1,10})", re.ASCII | re.DOTALL
)
_OLDEST_COMMIT_KEY = re.compile(r"offset::(.*):([a-zA-Z0-9._-]{1,249}):(\d{1,10})", re.ASCII | re.DOTALL)
_OLD_COMMIT = re.compile(r"offset=(-?\d{1,19})(?:,metadata=.*)?", re.ASCII | re.DOTALL)
_OLDEST_COMMIT = re.compile(r"(-?\d{1,19})(?::.*)?", re.ASCII | re.DOTALL)
_OLDEST_GROUP = re.compile(r"([^:]*):([^:]*):(-?\d{1,10}):\{.*\}", re.ASCII | re.DOTALL)


def looks_decoded(key: str) -> bool:
    """Whether a printed key may be a decoder's."""
    return key.startswith(_KEYS)


def read_printed(key: str, value: str | None) -> Row | Unread:
    """A record as ``kafka-dump-log.sh`` prints it under a decoder."""
    if key.startswith("{") and not key.startswith('{"metadata":'):
        return read_json_texts(key, value)
    if key.startswith(_SAID_UNREADABLE):
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
    found = _OLD_TRANSACTION.fullmatch(value)
    if not found:
        return NOT_OURS
    producer_id, epoch, state, partitions, updated, timeout = found.groups()
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
    found = (_OLD_COMMIT_KEY if newer else _OLDEST_COMMIT_KEY).fullmatch(key)
    if not found:
        return NOT_OURS
    row = OffsetCommitRow(found[1], found[2], int(found[3]), tombstone=value == DELETE)
    if row.tombstone:
        return checked(row)
    offset = (_OLD_COMMIT if newer else _OLDEST_COMMIT).fullmatch(value)
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
    if found := _OLDEST_GROUP.fullmatch(value):
        return checked(row._replace(protocol_type=found[1], protocol=found[2], generation=int(found[3])))
    fields = load(value)
    if fields is None:
        return NOT_OURS
    return typed(
        row,
        protocol_type=fields.get("protocolType"),
        protocol=fields.get("protocol"),
        generation=fields.get("generationId"),
    )
