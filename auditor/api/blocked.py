"""Partitions that a transaction holds, as objects: what ``audit.blocked`` is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, overload

import numpy as np

from auditor.api import notebook
from auditor.api.tabular import Session, Tabular, no_session
from auditor.base.advice import Advice
from auditor.base.at_rest import Fields
from auditor.connectors.tables.schema import array_of
from auditor.rules.transactions.blocking import BLOCKED

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition whose last stable offset a transaction keeps below its end: a row of the table ``blocked``, whose
    columns docs/tables.md explains. Times are datetimes in UTC, ``advice`` is an object; ``transaction_class`` is the
    column ``class``."""

    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int
    standing: str
    transaction_class: str
    transactional_id: str | None
    producer_id: int | None
    producer_epoch: int | None
    since: datetime | None
    since_not_before: datetime | None
    since_not_after: datetime | None
    since_by_producer: datetime | None
    age_ms: int
    at_least: bool
    timeout_ms: int | None
    beyond_timeout: bool | None
    state: str | None
    why: str
    first_offset: int | None
    last_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    log_end: int | None
    readable_end: int | None
    batches: int | None
    records: int | None
    bytes: int | None
    others: int
    readers: list[str]
    severity: str | None
    if_true: str | None
    rule: str | None
    fingerprint: str | None
    accepted: bool
    left_out: bool
    remedy: str
    advice: Advice | None

    @property
    def is_blocked(self) -> bool:
        """Whether it is held for longer than is normal, so far as the input shows."""
        return self.standing in BLOCKED

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


COLUMNS = tuple("class" if f.name == "transaction_class" else f.name for f in fields(BlockedPartition))


class Blocked(Sequence[BlockedPartition], Tabular):
    """The partitions that transactions hold, the worst first: blocked ones before those that only wait, and of these
    the one held longest. In a notebook it shows itself as a table with what to do."""

    def __init__(self, table: pa.Table, session: Session = no_session) -> None:
        self._table = table
        self._session = session
        self._rows: list[Fields] = table.to_pylist()
        self._found = tuple(map(_partition, self._rows))

    @overload
    def __getitem__(self, at: int) -> BlockedPartition: ...

    @overload
    def __getitem__(self, at: slice) -> Blocked: ...

    def __getitem__(self, at: int | slice) -> BlockedPartition | Blocked:
        """One partition by its place, or some of them."""
        if isinstance(at, slice):
            return Blocked(self._table.take(array_of(np.arange(len(self), dtype=np.int64)[at])), self._session)
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[BlockedPartition]:
        return iter(self._found)

    def to_arrow(self) -> pa.Table:
        """The table ``blocked``; ``advice`` is JSON text."""
        return self._table

    def __repr__(self) -> str:
        blocked = sum(one.is_blocked for one in self)
        return f"<{blocked} blocked, {len(self) - blocked} others held>"

    def _repr_html_(self) -> str:
        return notebook.blocked_html(repr(self).strip("<>"), self._rows)


def _partition(row: Fields) -> BlockedPartition:
    advice = json.loads(row["advice"] or "null")
    values = [row[name] for name in COLUMNS[:-1]]
    names = (f.name for f in fields(BlockedPartition))
    return BlockedPartition(**dict(zip(names, [*values, advice and Advice.of(advice)], strict=True)))
