"""What a log says of its producers whatever the broker's policy, batch by batch, compiled.

Each batch leaves a step: whose it is, what time it was by then, and what may be proved there. The kernels of the
policies (:mod:`auditor.replay.policy_kernel`) walk the same batches with these steps beside them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.batch_columns import FLAW_CRC as _FLAW_CRC
from auditor.model import producer_appends
from auditor.model import producers as model
from auditor.replay.batch_kinds import has_broker_time, is_control, is_foreign, is_marker
from auditor.replay.bounds import CopyBounds, Inherited
from auditor.replay.copy_task import FAR
from auditor.replay.state import ATTR_TRANSACTIONAL, MAX_OLD_RUNS, RUN, SEQUENCES

FLAW_CRC = int(_FLAW_CRC)
MOST_FOLLOW = 100  # batches that follow one another are counted up to here: more than a broker remembers
LAST_SEQUENCE = 2**31 - 1
IN_FLIGHT = 5  # batches that one producer may have under way (max.in.flight.requests.per.connection)

# A batch in a replay. row: its producer's, -1 where it names none; kind: one of those below. time: the newest time(b)
# so far, ms. judged: it lies at or above the log start. provable: nothing can be missing between it and the
# producer's last one. seen: the producer wrote before; below: its last batch lies below the log start. stored_before:
# its sequences touch some that the producer stored before in this epoch. follows: how many of the producer's batches on
# end, this one the last, each begin where the one before ended, in the same epoch and without a wraparound.
STEP = np.dtype(
    [
        ("time", "i8"), ("row", "i4"), ("last_sequence", "i4"), ("kind", "i1"), ("judged", "i1"), ("provable", "i1"),
        ("seen", "i1"), ("below", "i1"), ("stored_before", "i1"), ("follows", "i1"),
    ],
    align=True,
)  # fmt: skip
UNREADABLE, OTHER, DATA, MARKER = 0, 1, 2, 3  # OTHER: of no producer

# What is remembered of a producer. run_*: sequences that it stored on end in run_epoch; lengths: of its newest batches,
# in_flight their sum, span the largest that this ever was. first_*, last_*: of its data,
# epoch: of its last batch; times are time(b).
PAST = np.dtype(
    [
        ("last_offset", "i8"), ("ordinal", "i8"), ("run_length", "i8"), ("batches", "i8"), ("records", "i8"),
        ("first_time", "i8"), ("last_time", "i8"), ("wraps", "i8"), ("in_flight", "i8"), ("span", "i8"),
        ("run_epoch", "i4"), ("run_start", "i4"), ("old_run", "i4"), ("first_epoch", "i4"), ("last_epoch", "i4"),
        ("epoch", "i4"), ("last_sequence", "i4"), ("newest_length", "i4"), ("follows", "i4"), ("seen", "i1"),
        ("transactional", "i1"),
    ],
    align=True,
)  # fmt: skip
# What moves with the log, one row. ordinal: batches so far; unreadable: how many there were when bytes came that could
# not be read, -1 for none; now: the newest time(b); runs: rows used of the table of runs.
PLACE = np.dtype(
    [("ordinal", "i8"), ("unreadable", "i8"), ("segment", "i8"), ("broker_time", "i8"), ("any_time", "i8"),
     ("now", "i8"), ("runs", "i8")]
)  # fmt: skip


class History(NamedTuple):
    """The producers of one copy, and where its replay stands. ``newest_time``: no clock is believed beyond it, ms."""

    bounds: CopyBounds
    inherited: Inherited
    start_known: bool
    newest_time: int
    ids: model.Producers  # for the rows of producers alone
    past: np.ndarray  # PAST, by row
    lengths: np.ndarray  # int32, IN_FLIGHT a row: lengths of the newest batches
    runs: np.ndarray  # RUN
    place: np.ndarray  # PLACE, one row


def new_history(
    bounds: CopyBounds, inherited: Inherited, *, start_known: bool = True, newest_time: int = FAR
) -> History:
    """A copy before its first batch."""
    place = np.zeros(1, PLACE)
    for name in ("unreadable", "segment", "broker_time", "any_time", "now"):
        place[name] = -1
    rows = 64
    return History(
        bounds, inherited, start_known, newest_time, model.new_producers(rows, 1), np.empty(rows, PAST),
        np.empty((rows, IN_FLIGHT), np.int32), np.empty(64, RUN), place,
    )  # fmt: skip


def with_room(h: History, rows: int) -> History:
    """The same with room for ``rows`` more producers and runs."""
    ids, past, lengths, runs = h.ids, h.past, h.lengths, h.runs
    if int(ids.meta[0]) + rows > len(ids.entries):
        ids = model.grow(ids, int(ids.meta[0]) + rows)
        past, lengths = longer(past, len(ids.entries)), longer(lengths, len(ids.entries))
    if (used := int(h.place["runs"][0])) + rows > len(runs):
        runs = longer(runs, max(used + rows, 2 * len(runs)))
    return h._replace(ids=ids, past=past, lengths=lengths, runs=runs)


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
    o = h.past[row]
    o.last_offset = -1
    o.ordinal = -1
    o.run_epoch = -1
    o.run_start = 0
    o.run_length = 0
    o.old_run = -1
    o.batches = 0
    o.records = 0
    o.first_time = -1
    o.last_time = -1
    o.first_epoch = 0
    o.last_epoch = 0
    o.wraps = 0
    o.in_flight = 0
    o.span = 0
    o.epoch = -1
    o.last_sequence = -1
    o.newest_length = 0
    o.follows = 0
    o.seen = 0
    o.transactional = 0
    for k in range(IN_FLIGHT):
        h.lengths[row, k] = 0
    return row


@kernel
def _inherited(h, batch):  # type: ignore[no-untyped-def]
    """Whether a broker may have known a producer that this log shows here for the first time (rules.md)."""
    if not h.start_known:
        return True
    if h.bounds.log_start <= 0:
        return False
    if h.place[0].segment <= h.bounds.start_segment or h.inherited.first_snapshot > batch.base_offset:
        return True
    known = h.inherited.producer_ids
    at = np.searchsorted(known, batch.producer_id)
    found = at < len(known) and known[at] == batch.producer_id
    return found and h.inherited.known_at[at] <= batch.base_offset


@kernel
def _provable(h, batch, o):  # type: ignore[no-untyped-def]
    """Whether nothing can be missing between this batch and the producer's last one but what never was there."""
    intact = h.bounds.intact_from
    if o.last_offset < 0:
        return intact <= 0 and h.place[0].unreadable < 0 and not _inherited(h, batch)
    return o.last_offset >= intact and batch.base_offset >= intact and h.place[0].unreadable <= o.ordinal


@kernel
def _pass_time(h, batch, marker):  # type: ignore[no-untyped-def]
    """Moves the clocks to a batch; answers time(b)."""
    s, stamp = h.place[0], batch.max_timestamp
    if has_broker_time(batch, marker, h.bounds.broker_times):
        s.broker_time = max(s.broker_time, stamp)
    s.any_time = max(s.any_time, stamp)
    time = min(max(stamp, s.broker_time), h.newest_time)
    s.now = max(s.now, time)
    return time


@kernel
def _touches(start, length, sequence):  # type: ignore[no-untyped-def]
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@kernel
def _stored_before(h, o, epoch, first, last):  # type: ignore[no-untyped-def]
    """Whether the range [first, last] touches one that the producer has stored in this epoch."""
    if o.run_epoch != epoch:
        return False
    if _touches(o.run_start, o.run_length, first) or _touches(o.run_start, o.run_length, last):
        return True
    at, steps = o.old_run, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = h.runs[at]
        if _touches(run.start, run.length, first) or _touches(run.start, run.length, last):
            return True
        at, steps = run.older, steps + 1
    return False


@kernel
def _note_range(h, o, epoch, first, length):  # type: ignore[no-untyped-def]
    """Adds a batch's sequences to what the producer has stored in this epoch."""
    if o.run_epoch == epoch and first == (o.run_start + o.run_length) % SEQUENCES:
        o.run_length = min(o.run_length + length, SEQUENCES)
        return
    if o.run_epoch == epoch:
        at = h.place[0].runs
        h.place[0].runs = at + 1
        h.runs[at].epoch = epoch
        h.runs[at].start = o.run_start
        h.runs[at].length = o.run_length
        h.runs[at].older = o.old_run
        o.old_run = at
    else:
        o.old_run = -1
    o.run_epoch = epoch
    o.run_start = first
    o.run_length = length


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
def _data(h, batch, step):  # type: ignore[no-untyped-def]
    o, epoch, first = h.past[step.row], batch.producer_epoch, batch.base_sequence
    length = batch.last_offset - batch.base_offset + 1
    last = -1
    if first >= 0 and length > 0:
        last = producer_appends.add_sequence(first, length - 1)
    step.last_sequence = last
    step.provable = _provable(h, batch, o)
    step.seen = o.seen
    step.below = 0 <= o.last_offset < h.bounds.log_start
    step.stored_before = last >= 0 and _stored_before(h, o, epoch, first, last)
    same_epoch = o.epoch == epoch
    goes_on = same_epoch and 0 < first <= last and first == o.last_sequence + 1
    o.follows = min(o.follows + 1, MOST_FOLLOW) if goes_on else 0
    step.follows = o.follows
    if last >= 0:
        wrapped = same_epoch and o.last_sequence == LAST_SEQUENCE and first == 0
        o.wraps += 1 if last < first or wrapped else 0
        _note_range(h, o, epoch, first, length)
    _note_length(h, step.row, o, same_epoch, length)
    if o.batches == 0:
        o.first_time = step.time
        o.first_epoch = epoch
    o.batches += 1
    o.records += max(batch.record_count, 0)
    o.last_time = max(o.last_time, step.time)
    o.last_epoch = max(o.last_epoch, epoch)
    o.epoch = epoch
    o.last_sequence = last
    if batch.attributes & ATTR_TRANSACTIONAL:
        o.transactional = 1
    o.last_offset = batch.last_offset
    o.ordinal = h.place[0].ordinal
    o.seen = 1


@kernel
def load_history(h, entries, rows):  # type: ignore[no-untyped-def]
    """The producers of a snapshot before the first batch; fills ``rows`` with the row of each entry."""
    for k in range(len(entries.producer_id)):
        rows[k] = producer_row(h, entries.producer_id[k])
        h.past[rows[k]].last_offset = entries.last_offset[k]
        h.past[rows[k]].seen = 1


@kernel
def take_steps(h, batches, start, stop, steps):  # type: ignore[no-untyped-def]
    """Fills ``steps`` for rows [start, stop) of the batches, the first at 0."""
    s = h.place[0]
    for i in range(start, stop):
        batch, step = batches[i], steps[i - start]
        step.kind = UNREADABLE
        step.row = -1
        step.follows = 0
        if batch.flaws & FLAW_CRC:  # nothing may rest on its content
            s.ordinal += 1
            s.unreadable = s.ordinal
            step.time = s.now
            continue
        marker = is_marker(batch)
        time = _pass_time(h, batch, marker)
        step.kind = OTHER
        step.time = time
        step.judged = batch.last_offset >= h.bounds.log_start
        if marker:
            step.kind = MARKER
            step.last_sequence = -1  # it has none, and a verdict on it says so
            step.stored_before = 0
            step.row = producer_row(h, batch.producer_id)
            h.past[step.row].seen = 1
        elif (
            batch.magic == 2
            and batch.producer_id >= 0
            and not is_control(batch)
            and not is_foreign(batch, h.bounds.sequences)
        ):
            step.kind = DATA
            step.row = producer_row(h, batch.producer_id)
            _data(h, batch, step)
        step.time = s.now
        s.ordinal += 1
