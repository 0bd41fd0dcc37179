"""What replays under other policies ask of a replica's producers whatever the policy, compiled: whose row is whose,
what may be proved, and how fast sequences and epochs are used up.

They go by the steps that the audit's replay of the same batches leaves (:mod:`auditor.replay.producers.kernel`), and
judge nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.numbers import LAST_SEQUENCE
from auditor.model import producers as model
from auditor.replay.producers.bounds import Inherited, ReplicaBounds
from auditor.replay.producers.state import ATTR_TRANSACTIONAL, DATA, MARKER, UNREADABLE
from auditor.replay.task.replica_task import FAR

IN_FLIGHT = 5  # batches that one producer may have under way (max.in.flight.requests.per.connection)

# A producer. loaded_offset: where its data ended by the snapshot before the first batch, -1 for none, and loaded: 1
# where that has it. lengths of its newest batches add up to in_flight, span is the largest that this ever was; wraps:
# how often sequences began again at 0. first_*, last_*: of its data, epoch: of its last batch; times are time(b), ms.
PACE = np.dtype(
    [
        ("loaded_offset", "i8"),
        ("batches", "i8"),
        ("records", "i8"),
        ("first_time", "i8"),
        ("last_time", "i8"),
        ("wraps", "i8"),
        ("in_flight", "i8"),
        ("span", "i8"),
        ("first_epoch", "i4"),
        ("last_epoch", "i4"),
        ("epoch", "i4"),
        ("last_sequence", "i4"),
        ("newest_length", "i4"),
        ("loaded", "i1"),
        ("transactional", "i1"),
    ],
    align=True,
)
# One row. now: the newest time(b), beyond which no clock is believed; any_time: the newest time-stamp of all.
PLACE = np.dtype([("now", "i8"), ("any_time", "i8")])


class Paces(NamedTuple):
    """The producers of one replica. ``newest_time``: no clock is believed beyond it, ms.

    Rows are those of the policies' tables, in which the producers of a snapshot come first; ``row_of`` gives them for
    the rows of the audit's replay, -1 where there is none yet.
    """

    bounds: ReplicaBounds
    inherited: Inherited
    start_known: bool
    newest_time: int
    ids: model.Producers  # for the rows of producers alone
    row_of: np.ndarray  # int32
    pace: np.ndarray  # PACE, by row
    lengths: np.ndarray  # int32, IN_FLIGHT a row: lengths of the newest batches
    place: np.ndarray  # PLACE, one row


def new_paces(
    bounds: ReplicaBounds, inherited: Inherited, *, start_known: bool = True, newest_time: int = FAR
) -> Paces:
    """A replica before its first batch."""
    place = np.zeros(1, PLACE)
    for name in PLACE.names or ():
        place[name] = -1
    rows = 64
    return Paces(
        bounds=bounds,
        inherited=inherited,
        start_known=start_known,
        newest_time=newest_time,
        ids=model.new_producers(rows, 1),
        row_of=np.full(rows, -1, np.int32),
        pace=np.empty(rows, PACE),
        lengths=np.empty((rows, IN_FLIGHT), np.int32),
        place=place,
    )


def with_room(h: Paces, rows: int, highest: int = -1) -> Paces:
    """The same with room for ``rows`` more producers; ``highest``: the last row of the audit's replay that comes."""
    ids, pace, lengths, row_of = h.ids, h.pace, h.lengths, h.row_of
    if int(ids.meta[0]) + rows > len(ids.entries):
        ids = model.grow(ids, int(ids.meta[0]) + rows)
        pace, lengths = longer(pace, len(ids.entries)), longer(lengths, len(ids.entries))
    if highest >= len(row_of):
        row_of = longer(row_of, max(highest + 1, 2 * len(row_of)))
        row_of[len(h.row_of) :] = -1
    return h._replace(ids=ids, pace=pace, lengths=lengths, row_of=row_of)


def longer(table: np.ndarray, rows: int) -> np.ndarray:
    """The table with so many rows; those that are new hold anything."""
    out = np.empty((rows, *table.shape[1:]), table.dtype)
    out[: len(table)] = table
    return out


@kernel
def producer_row(h, producer_id):  # type: ignore[no-untyped-def]
    """The row of a producer, a new one if it was unknown. ``with_room`` must have made room."""
    row = model.find(h.ids, producer_id)
    if row >= 0:
        return row
    row = model.insert(h.ids, producer_id)
    o = h.pace[row]
    o.loaded_offset = -1
    o.batches = 0
    o.records = 0
    o.first_time = -1
    o.last_time = -1
    o.wraps = 0
    o.in_flight = 0
    o.span = 0
    o.first_epoch = 0
    o.last_epoch = 0
    o.epoch = -1
    o.last_sequence = -1
    o.newest_length = 0
    o.loaded = 0
    o.transactional = 0
    for k in range(IN_FLIGHT):
        h.lengths[row, k] = 0
    return row


@kernel
def load_paces(h, entries, rows):  # type: ignore[no-untyped-def]
    """The producers of a snapshot before the first batch; fills ``rows`` with the row of each entry."""
    for k in range(len(entries.producer_id)):
        rows[k] = producer_row(h, entries.producer_id[k])
        h.pace[rows[k]].loaded_offset = entries.last_offset[k]
        h.pace[rows[k]].loaded = 1


@kernel
def _inherited(h, batch):  # type: ignore[no-untyped-def]
    """Whether a broker may have known a producer that this log shows here for the first time (rules.md)."""
    if not h.start_known:
        return True
    if h.bounds.log_start <= 0:
        return False
    if h.inherited.first_snapshot > batch.base_offset:
        return True
    known = h.inherited.producer_ids
    at = np.searchsorted(known, batch.producer_id)
    found = at < len(known) and known[at] == batch.producer_id
    return found and h.inherited.known_at[at] <= batch.base_offset


@kernel
def _provable(h, batch, step):  # type: ignore[no-untyped-def]
    """Whether nothing can be missing between this batch and the producer's last one but what never was there."""
    intact = h.bounds.intact_from
    if step.unreadable_between:
        return False
    if step.previous_offset < 0:
        return intact <= 0 and not _inherited(h, batch)
    return step.previous_offset >= intact and batch.base_offset >= intact


@kernel
def _note_length(h, row, o, same_epoch, length):  # type: ignore[no-untyped-def]
    """The newest batches, which a new epoch begins anew, and the most sequences that they ever spanned."""
    if not same_epoch:
        for k in range(IN_FLIGHT):
            h.lengths[row, k] = 0
        o.in_flight = 0
    at = o.newest_length + 1
    if at == IN_FLIGHT:
        at = 0
    o.newest_length = at
    o.in_flight += length - h.lengths[row, at]
    h.lengths[row, at] = length
    o.span = max(o.span, o.in_flight)


@kernel
def _count(h, batch, step, time):  # type: ignore[no-untyped-def]
    """Adds a data batch to its producer's volumes."""
    o, epoch, first, last = h.pace[step.row], batch.producer_epoch, batch.base_sequence, step.last_sequence
    same_epoch = o.epoch == epoch
    if last >= 0:
        wrapped = same_epoch and o.last_sequence == LAST_SEQUENCE and first == 0
        o.wraps += 1 if last < first or wrapped else 0
    _note_length(h, step.row, o, same_epoch, batch.last_offset - batch.base_offset + 1)
    if o.batches == 0:
        o.first_time = time
        o.first_epoch = epoch
    o.batches += 1
    o.records += max(batch.record_count, 0)
    o.last_time = max(o.last_time, time)
    o.last_epoch = max(o.last_epoch, epoch)
    o.epoch = epoch
    o.last_sequence = last
    if batch.attributes & ATTR_TRANSACTIONAL:
        o.transactional = 1


@kernel
def complete_steps(h, batches, steps, count):  # type: ignore[no-untyped-def]
    """What policies ask beyond the steps of the first ``count`` batches, put into them: rows become those of the
    policies' tables, ``time`` the newest so far."""
    s = h.place[0]
    for i in range(count):
        batch, step = batches[i], steps[i]
        if step.kind == UNREADABLE:
            continue
        time = min(step.time, h.newest_time)
        s.now = max(s.now, time)
        s.any_time = max(s.any_time, batch.max_timestamp)
        step.time = s.now
        if step.kind < DATA:
            continue
        row = h.row_of[step.row]
        if row < 0:
            row = producer_row(h, batch.producer_id)
            h.row_of[step.row] = row
            step.seen |= h.pace[row].loaded
        step.row = row
        if step.kind == MARKER:
            continue
        if step.previous_offset < 0:
            step.previous_offset = h.pace[row].loaded_offset
        step.provable = _provable(h, batch, step)
        step.below = 0 <= step.previous_offset < h.bounds.log_start
        _count(h, batch, step, time)
