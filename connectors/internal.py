"""The records of internal topics as rows: ``__transaction_state`` and ``__consumer_offsets``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.errors import DecodeError
from auditor.base.limits import Limits
from auditor.connectors import schema
from auditor.connectors.arrow import Key, from_rows
from auditor.connectors.codec.batch import CONTROL, TRANSACTIONAL
from auditor.connectors.codec.consumer_offsets import OffsetCommitRow, decode_consumer_offsets
from auditor.connectors.codec.records import Record, records_of
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.codec.structs import Problem
from auditor.connectors.codec.transaction_log import decode_transaction_log

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
TABLES = {
    TRANSACTION_STATE: frozenset({"transaction_log"}),
    CONSUMER_OFFSETS: frozenset({"offset_commits", "group_metadata"}),
}


class InternalRows:
    """Collects the decoded records of one copy of an internal topic.

    ``unreadable`` are records whose key or value could not be decoded: they stop a coordinator's load, so they are
    told apart from damaged bytes. ``skipped_kinds`` counts records of kinds that this reader names but does not decode.
    """

    def __init__(self, topic: str, limits: Limits) -> None:
        self.topic = topic
        self.limits = limits
        self.rows: dict[str, list[tuple[Any, ...]]] = {}
        self.unreadable: list[tuple[int, int, DecodeError]] = []
        self.skipped_kinds: dict[str, int] = {}

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
            batch = (
                int(chosen.partition_leader_epoch[row]),
                bool(chosen.attributes[row] & TRANSACTIONAL and chosen.magic[row] == 2),
                int(chosen.producer_id[row]),
                int(chosen.producer_epoch[row]),
            )
            head = (file, int(chosen.position[row]))
            if self.topic == TRANSACTION_STATE:
                self._transaction(head, batch, record)
            else:
                self._offsets(head, batch, record)
        return errors

    def _transaction(self, head: tuple[str, int], batch: tuple[int, bool, int, int], record: Record) -> None:
        row, problem = decode_transaction_log(record.key, record.value)
        if row is not None:
            place = (*head, record.offset, record.timestamp, batch[0])
            self.rows.setdefault("transaction_log", []).append((*place, *row))
        elif problem is not None:
            self._problem(head, record.offset, problem)

    def _offsets(self, head: tuple[str, int], batch: tuple[int, bool, int, int], record: Record) -> None:
        row, problem = decode_consumer_offsets(record.key, record.value)
        place = (*head, record.offset, record.timestamp)
        if isinstance(row, OffsetCommitRow):
            self.rows.setdefault("offset_commits", []).append((*place, *row, *batch[1:]))
        elif row is not None:
            self.rows.setdefault("group_metadata", []).append((*place, *row))
        elif problem is not None:
            self._problem(head, record.offset, problem)

    def _problem(self, head: tuple[str, int], offset: int, problem: Problem) -> None:
        if problem.reason == "unknown_key_type":
            self.skipped_kinds[problem.detail] = self.skipped_kinds.get(problem.detail, 0) + 1
        else:
            error = DecodeError(head[0], head[1], -1, problem.reason, f"record at offset {offset}: {problem.detail}")
            self.unreadable.append((offset, head[1], error))

    def tables(self, key: Key) -> dict[str, pa.Table]:
        """The tables of contract section 4 with what was collected, the copy's key in front."""
        return {name: pa.Table.from_batches([batch]) for name, batch in self._batches(key)}

    def drain(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The same a batch at a time, forgetting what is handed out."""
        yield from self._batches(key)
        self.rows = {}

    def _batches(self, key: Key) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name, rows in self.rows.items():
            yield name, from_rows(schema.DECODED[name], key, rows)
