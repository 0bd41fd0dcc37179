"""The records of internal topics as rows: what the coordinators wrote, and what is known of remote segments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.errors import RECORD_AT, DecodeError, Limits
from auditor.connectors import schema
from auditor.connectors.arrow import Key, from_rows
from auditor.connectors.codec.batches import CONTROL, TRANSACTIONAL, BatchColumns
from auditor.connectors.codec.group_topics import OffsetCommitRow, decode_consumer_offsets, decode_share_group_state
from auditor.connectors.codec.records import Decoded, Record, failures_of, records_of, sound
from auditor.connectors.codec.remote_log_metadata import decode_remote_log_metadata
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.structs import Problem
from auditor.connectors.codec.transaction_log import decode_transaction_log

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
SHARE_GROUP_STATE = "__share_group_state"
REMOTE_LOG_METADATA = "__remote_log_metadata"
TABLES = {
    TRANSACTION_STATE: frozenset({"transaction_log"}),
    CONSUMER_OFFSETS: frozenset({"offset_commits", "group_metadata"}),
    SHARE_GROUP_STATE: frozenset({"share_group_state"}),
    REMOTE_LOG_METADATA: frozenset({"remote_log_metadata"}),
}
MOST_NAMED = 100_000  # records of a replica that cannot be decoded: some 600 bytes each
PACKED = frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS})  # topics that an audit reads by column


class DataRun(NamedTuple):
    """A run of records of a chunk's batches that are data. ``sound``: the records that are whole; ``errors``: what kept
    batches closed. The run's rows are those of ``batches``."""

    run: Decoded
    batches: BatchColumns
    sound: np.ndarray
    errors: list[DecodeError]


def data_runs(chunk: Chunk, file: str, limits: Limits) -> Iterator[DataRun]:
    """The records of a chunk (read with its bytes) by column, but for those of control batches."""
    batches = chunk.batches
    data = np.flatnonzero((batches.attributes & CONTROL == 0) | (batches.magic != 2))
    chosen = batches.take(data)
    for run in chunk.opened(data, chosen, limits):
        yield DataRun(run, chosen, sound(run, limits), failures_of(run, chosen, file, limits))


class RecordProblems:
    """Records of an internal topic that could not be decoded.

    ``unreadable`` are those whose key or value is not as it should be: they stop a coordinator's load, so they are kept
    apart from damaged bytes; each with its offset and the position of its batch. ``unknown`` are records of key types
    that nobody knows yet, which a coordinator skips. The last of more than :data:`MOST_NAMED` stands for all others.
    The errors' length is that of the batch, in bytes.
    """

    def __init__(self) -> None:
        self.unreadable: list[tuple[int, int, DecodeError]] = []
        self.unknown: list[DecodeError] = []
        self.more = {"unreadable": 0, "unknown": 0}

    def note(self, batch: tuple[str, int, int], offset: int, problem: Problem) -> None:
        """Adds one; ``batch``: its file, position and size in bytes."""
        error = DecodeError(*batch, problem.reason, f"{RECORD_AT} {offset}: {problem.detail}")
        if problem.reason == "unknown_key_type":
            if len(self.unknown) <= MOST_NAMED:
                self.unknown.append(error)
            else:
                self.unknown[-1] = self._more(batch, offset, "unknown")
        elif len(self.unreadable) <= MOST_NAMED:
            self.unreadable.append((offset, batch[1], error))
        else:
            self.unreadable[-1] = (offset, batch[1], self._more(batch, offset, "unreadable"))

    def _more(self, batch: tuple[str, int, int], offset: int, kind: str) -> DecodeError:
        """One more that is not named: what stands for all of them, with the last offset."""
        self.more[kind] += 1
        detail = f"{self.more[kind] + 1} more such records, the last at offset {offset}, are not named one by one"
        return DecodeError(*batch, "limit", detail)

    def errors(self) -> list[DecodeError]:
        """All of them as errors."""
        return [error for _offset, _position, error in self.unreadable] + self.unknown


class InternalRows(RecordProblems):
    """Collects the decoded records of one replica of an internal topic. ``payload``: also what clients alone chose."""

    def __init__(self, topic: str, limits: Limits, *, payload: bool = False) -> None:
        super().__init__()
        self.topic = topic
        self.limits = limits.counting()
        self.payload = payload
        self.rows: dict[str, list[tuple[Any, ...]]] = {}

    def add(self, file: str, chunk: Chunk) -> list[DecodeError]:
        """Decodes the records of every batch of a chunk (read with ``raw``); returns what kept a batch closed."""
        errors = []
        batches = chunk.batches
        data = np.flatnonzero((batches.attributes & CONTROL == 0) | (batches.magic != 2))
        raw = [chunk.raw[i] for i in data] if chunk.raw else []
        chosen = batches.take(data)
        for row, record in records_of(raw, chosen, file=file, limits=self.limits):
            if isinstance(record, DecodeError):
                errors.append(record)
                continue
            table, values = self.row_of(file, chosen, row, record)
            if values is not None:
                self.rows.setdefault(table, []).append(values)
        return errors

    def row_of(self, file: str, batches: BatchColumns, row: int, record: Record) -> tuple[str, tuple[Any, ...] | None]:
        """The table of a record of the batch ``row``, and its row; None where it cannot be read, which is noted."""
        batch = (
            int(batches.partition_leader_epoch[row]),
            bool(batches.attributes[row] & TRANSACTIONAL and batches.magic[row] == 2),
            int(batches.producer_id[row]),
            int(batches.producer_epoch[row]),
        )
        table, values, problem = self._decode(record, batch)
        position = int(batches.position[row])
        if values is not None:
            return table, (file, position, record.offset, record.timestamp, *values)
        if problem is not None:
            self.note((file, position, int(batches.size[row])), record.offset, problem)
        return table, None

    def _decode(
        self, record: Record, batch: tuple[int, bool, int, int]
    ) -> tuple[str, tuple[Any, ...] | None, Problem | None]:
        """A record's table, its values there behind the record's place, and what is wrong with it.

        ``batch``: partition leader epoch, whether it is transactional, producer id and epoch.
        """
        if self.topic == TRANSACTION_STATE:
            transaction, problem = decode_transaction_log(record.key, record.value)
            return "transaction_log", None if transaction is None else (batch[0], *transaction), problem
        if self.topic == SHARE_GROUP_STATE:
            return "share_group_state", *decode_share_group_state(record.key, record.value)
        if self.topic == REMOTE_LOG_METADATA:
            return "remote_log_metadata", *decode_remote_log_metadata(record.value)
        row, problem = decode_consumer_offsets(record.key, record.value, payload=self.payload)
        if isinstance(row, OffsetCommitRow):
            return "offset_commits", (*row, *batch[1:]), problem
        return "group_metadata", row, problem

    def tables(self, key: Key) -> dict[str, pa.Table]:
        """The tables of contract section 4 with what was collected, the replica's key in front."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for name, batch in self._batches(key):
            found.setdefault(name, []).append(batch)
        return {name: pa.Table.from_batches(batches) for name, batches in found.items()}

    def drain(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The same a batch at a time, forgetting what is handed out."""
        yield from self._batches(key)
        self.forget()

    def forget(self) -> None:
        """Lets go what was collected."""
        self.rows = {}

    def _batches(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name, rows in self.rows.items():
            yield name, from_rows(schema.DECODED[name], key, rows)
