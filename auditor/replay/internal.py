"""The records of internal topics as rows: ``__transaction_state`` and ``__consumer_offsets``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from connectors import schema
from connectors.codec.consumer_offsets import OffsetCommitRow, decode_consumer_offsets
from connectors.codec.records import records_of
from connectors.codec.segment import Chunk
from connectors.codec.transaction_log import decode_transaction_log
from connectors.errors import DecodeError
from connectors.limits import Limits

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
ATTR_TRANSACTIONAL, ATTR_CONTROL = 0x10, 0x20
Key = tuple[str | None, int | None, str, str, int]


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
        b = chunk.batches
        data = np.flatnonzero((b.attributes & ATTR_CONTROL == 0) | (b.magic != 2))
        raw = [chunk.raw[i] for i in data] if chunk.raw else []
        chosen = b.take(data)
        for i, record in records_of(raw, chosen, file=file, limits=self.limits):
            if isinstance(record, DecodeError):
                errors.append(record)
                continue
            batch = (
                int(chosen.partition_leader_epoch[i]),
                bool(chosen.attributes[i] & ATTR_TRANSACTIONAL and chosen.magic[i] == 2),
                int(chosen.producer_id[i]),
                int(chosen.producer_epoch[i]),
            )
            head = (file, int(chosen.position[i]))
            if self.topic == TRANSACTION_STATE:
                self._transaction(head, batch, record)
            else:
                self._offsets(head, batch, record)
        return errors

    def _transaction(self, head: tuple[str, int], batch: tuple[int, bool, int, int], record: Any) -> None:
        row, problem = decode_transaction_log(record.key, record.value)
        if row is not None:
            place = (*head, record.offset, record.timestamp, batch[0])
            self.rows.setdefault("transaction_log", []).append((*place, *row))
        elif problem is not None:
            self._problem(head, record.offset, problem)

    def _offsets(self, head: tuple[str, int], batch: tuple[int, bool, int, int], record: Any) -> None:
        row, problem = decode_consumer_offsets(record.key, record.value)
        place = (*head, record.offset, record.timestamp)
        if isinstance(row, OffsetCommitRow):
            self.rows.setdefault("offset_commits", []).append((*place, *row, *batch[1:]))
        elif row is not None:
            self.rows.setdefault("group_metadata", []).append((*place, *row))
        elif problem is not None:
            self._problem(head, record.offset, problem)

    def _problem(self, head: tuple[str, int], offset: int, problem: Any) -> None:
        if problem.reason == "unknown_key_type":
            self.skipped_kinds[problem.detail] = self.skipped_kinds.get(problem.detail, 0) + 1
        else:
            error = DecodeError(head[0], head[1], -1, problem.reason, f"record at offset {offset}: {problem.detail}")
            self.unreadable.append((offset, head[1], error))

    def tables(self, key: Key) -> dict[str, pa.Table]:
        """The tables of contract section 4, with the copy's key in front."""
        return {name: to_table(schema.DECODED[name], key, rows) for name, rows in self.rows.items()}


def to_table(target: pa.Schema, key: Key, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows without their key columns as an Arrow table of the schema."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(target) - len(key))
    arrays = [pa.array([value] * len(rows), field.type) for value, field in zip(key, target, strict=False)]
    arrays += [_column(values, field) for values, field in zip(columns, list(target)[len(key) :], strict=True)]
    return pa.Table.from_arrays(arrays, schema=target)


def _column(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array([None if v is None or v < 0 else v for v in values], pa.int64()).cast(field.type)
    return pa.array(values, field.type)
