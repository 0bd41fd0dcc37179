"""Records of ``__transaction_state`` and ``__consumer_offsets`` as rows of their tables, by column.

What brokers write goes from bytes to Arrow by compiled kernels. Whatever is odd to them (another version or kind of
record, damage, text that is not ASCII) goes the way of :mod:`auditor.connectors.internal_rows`, record by record; the
rows are the same, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, Limits
from auditor.connectors import schema
from auditor.connectors.arrow import Key, array_of, from_columns, from_rows, texts
from auditor.connectors.codec import group_topics as commits
from auditor.connectors.codec import transaction_log as transactions
from auditor.connectors.codec.batches import TRANSACTIONAL, BatchColumns
from auditor.connectors.codec.records import Decoded, Record
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.structs import uuid_text
from auditor.connectors.codec.transaction_log import Texts, are_ascii, gather, partition_names
from auditor.connectors.internal_rows import PACKED, TRANSACTION_STATE, InternalRows, data_runs

_STATES = texts([*schema.TRANSACTION_STATES, None])
_NO_STATE = len(schema.TRANSACTION_STATES)
_NO_TOPIC = bytes(16)
Columns = Fields


def internal_records(topic: str, limits: Limits, *, payload: bool = False) -> InternalRows:
    """Who collects the rows of an internal topic. ``payload``: also what clients alone chose."""
    return (InternalColumns if topic in PACKED else InternalRows)(topic, limits, payload=payload)


class Run(NamedTuple):
    """The rows of one run of batches: ``columns`` of the records at ``places`` in it, and others that were read one by
    one, by table, each with its place."""

    table: str
    places: np.ndarray
    columns: Columns
    others: dict[str, list[tuple[int, tuple[Any, ...]]]]


class InternalColumns(InternalRows):
    """Collects the same rows of a topic of :data:`auditor.connectors.internal_rows.PACKED`."""

    def __init__(self, topic: str, limits: Limits, *, payload: bool = False) -> None:
        super().__init__(topic, limits, payload=payload)
        self.runs: list[Run] = []

    def add(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Decodes the records of every batch of a chunk (read with its bytes); returns what kept a batch closed."""
        errors = []
        for one in data_runs(chunk, file, self.limits):
            errors += one.errors
            if len(one.sound):
                self._run(file, one.run, one.batches, one.sound)
        return errors

    def _run(self, file: str, run: Decoded, batches: BatchColumns, chosen: np.ndarray) -> None:
        records = run.records
        if self.topic == TRANSACTION_STATE:
            fields = transactions.parse(records, chosen)
            odd = fields[:, transactions.VERSION] == transactions.ODD
            plain = np.flatnonzero(~odd)
            table, columns = "transaction_log", _transactions(records.payload, fields[plain])
        else:
            fields = commits.parse(records, chosen)
            odd = fields[:, commits.VERSION] == commits.ODD
            details = self._details(run, chosen, fields, odd)
            plain = np.flatnonzero(~odd)
            table, columns = "offset_commits", _commits(records.payload, fields[plain], details[:, plain])
            columns["metadata"] = _metadata(records.payload, details[:, plain]) if self.payload else None
        batch = records.batch[chosen[plain]]
        columns |= {
            "file": file,
            "position": batches.position[batch],
            "offset": records.offset[chosen[plain]],
            "record_timestamp": records.timestamp[chosen[plain]],
        }
        if self.topic == TRANSACTION_STATE:
            columns["leader_epoch"] = batches.partition_leader_epoch[batch]
        else:
            in_transaction = batches.attributes[batch] & TRANSACTIONAL != 0
            columns["is_transactional"] = in_transaction & (batches.magic[batch] == 2)
            columns["producer_id"], columns["producer_epoch"] = (
                batches.producer_id[batch],
                batches.producer_epoch[batch],
            )
        self.runs.append(Run(table, plain, columns, self._others(file, run, batches, chosen, odd)))

    def _details(self, run: Decoded, chosen: np.ndarray, fields: np.ndarray, odd: np.ndarray) -> np.ndarray:
        """Of commits; those whose metadata is wanted and no ASCII become odd."""
        versions = np.where(odd, commits.TOMBSTONE, fields[:, commits.VERSION])
        found = commits.details(run.records, chosen, versions)
        if self.payload:
            odd |= ~are_ascii(run.records.payload, found[commits.TEXT_START], found[commits.TEXT_SIZE])
        return found

    def _others(
        self, file: str, run: Decoded, batches: BatchColumns, chosen: np.ndarray, odd: np.ndarray
    ) -> dict[str, list[tuple[int, tuple[Any, ...]]]]:
        """The rows of odd records; those that cannot be read are noted."""
        found: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        for place in np.flatnonzero(odd).tolist():
            record, row = _record(run, int(chosen[place])), int(run.records.batch[chosen[place]])
            table, values = self.row_of(file, batches, row, record)
            if values is not None:
                found.setdefault(table, []).append((place, values))
        return found

    def _batches(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        for run in self.runs:
            columns = schema.DECODED[run.table]
            rows = from_columns(columns, key, len(run.places), run.columns)
            if run.table in run.others:
                places, values = zip(*run.others.pop(run.table), strict=True)
                order = np.argsort(np.concatenate([run.places, np.array(places, np.int64)]))
                rows = pa.concat_batches([rows, from_rows(columns, key, values)]).take(array_of(order))
            if rows.num_rows:
                yield run.table, rows
            for table, others in run.others.items():
                yield table, from_rows(schema.DECODED[table], key, [values for _, values in others])

    def forget(self) -> None:
        """Lets go what was collected."""
        self.runs = []


def _record(run: Decoded, number: int) -> Record:
    return Record(int(run.records.offset[number]), int(run.records.timestamp[number]), *run.stored(number), ())


def _array(found: Texts, null: np.ndarray | None = None) -> pa.Array:
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(
        pa.string(), len(found.ends) - 1, [valid, pa.py_buffer(found.ends), pa.py_buffer(found.data)]
    )


def _transactions(data: np.ndarray, fields: np.ndarray) -> Columns:
    """The columns of ``transaction_log`` that a record's key and value give."""
    t, f = transactions, np.ascontiguousarray(fields.T)
    gone = f[t.VERSION] == t.TOMBSTONE
    flexible = f[t.VERSION] == 1
    partitions, null = _partitions(data, f[t.LIST_START], f[t.LIST_SIZE], flexible)
    status = np.where(gone | (f[t.STATUS] < 0) | (f[t.STATUS] >= _NO_STATE), _NO_STATE, f[t.STATUS])
    later = t.later_fields(data, fields)
    numbers = {
        "value_version": f[t.VERSION],
        "producer_id": f[t.PRODUCER_ID],
        "producer_epoch": f[t.PRODUCER_EPOCH],
        "timeout_ms": f[t.TIMEOUT_MS],
        "status": f[t.STATUS],
        "previous_producer_id": later[0],
        "next_producer_id": later[1],
        "client_transaction_version": f[t.CLIENT_VERSION],
        "next_producer_epoch": later[2],
    }
    return {name: array_of(values, gone) for name, values in numbers.items()} | {
        "transactional_id": _array(gather(data, f[t.ID_START], f[t.ID_SIZE])),
        "tombstone": gone,
        "state": _STATES.take(array_of(status)),
        "partitions": partitions,
        "partitions_null": array_of(null & ~gone, gone),
        "last_update_timestamp": f[t.LAST_UPDATE],
        "start_timestamp": f[t.START],
    }


def _partitions(
    data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flexible: np.ndarray
) -> tuple[pa.Array, np.ndarray]:
    """Stored lists of partitions as a column, and which are null; those of no bytes, of tombstones, are too."""
    found = transactions.take_apart(data, starts, starts + sizes, flexible)
    null = transactions.are_null(data, starts, sizes)
    ends = np.zeros(len(starts) + 1, np.int32)
    ends[1:] = found.ends
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    names = _array(partition_names(data, found))
    column = pa.Array.from_buffers(pa.list_(pa.string()), len(starts), [valid, pa.py_buffer(ends)], children=[names])
    return column, null


def _commits(data: np.ndarray, fields: np.ndarray, details: np.ndarray) -> Columns:
    """The columns of ``offset_commits`` that a record's key and value give."""
    c, f = commits, np.ascontiguousarray(fields.T)
    gone = f[c.VERSION] == c.TOMBSTONE
    return {
        "group_id": _array(gather(data, f[c.KEY_START] + 2, f[c.GROUP_SIZE])),
        "consumed_topic": _array(gather(data, f[c.TOPIC_START], f[c.TOPIC_SIZE])),
        "consumed_partition": f[c.PARTITION],
        "tombstone": gone,
        "value_version": array_of(f[c.VERSION], gone),
        "committed_offset": array_of(f[c.VALUE], gone),
        "leader_epoch": array_of(details[c.LEADER_EPOCH], gone),
        "commit_timestamp": details[c.COMMIT_TIME],
        "expire_timestamp": details[c.EXPIRE_TIME],
        "topic_id": _topic_ids(data, details[c.TOPIC_ID]),
    }


def _metadata(data: np.ndarray, details: np.ndarray) -> pa.Array:
    start, size = details[commits.TEXT_START], details[commits.TEXT_SIZE]
    return _array(gather(data, start, size), size < 0)


def _topic_ids(data: np.ndarray, at: np.ndarray) -> pa.Array:
    """The texts of the topic ids stored at some places, null where there is none: few differ."""
    if not (at >= 0).any():
        return pa.nulls(len(at), pa.string())
    stored = data[np.maximum(at, 0)[:, None] + np.arange(16)]
    stored[at < 0] = 0
    known, which = np.unique(stored.view("V16").ravel(), return_inverse=True)
    names = texts([None if (raw := one.tobytes()) == _NO_TOPIC else uuid_text(raw) for one in known])
    return names.take(array_of(which.astype(np.int64)))
