"""Compiled replay under another policy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.errors import LAST_MS, LAST_SEQUENCE
from auditor.facts.replica_facts import BYTES_A_BATCH, BYTES_A_PRODUCER, VERDICT
from auditor.model import producers as model
from auditor.model.policies import INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, OK, Policy
from auditor.replay.producers.audit_replay import Inherited, ReplicaBounds
from auditor.replay.producers.state import ATTR_TRANSACTIONAL, DATA, MARKER, UNREADABLE
from auditor.replay.task import FAR

# State of producers that is the same under all policies, compiled: rows, what may be proved, and how fast sequences
# and epochs are used up.
#
# Based on the steps that the audit's replay of the same batches leaves (:mod:`auditor.replay.producers.kernel`),
# without judging anything.


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
NEW_PACE = np.zeros(1, PACE)
for _name in ("loaded_offset", "first_time", "last_time", "epoch", "last_sequence"):
    NEW_PACE[_name] = -1
# One row. now: the newest time(b), beyond which no clock is believed; any_time: the newest time-stamp of all.
PLACE = np.dtype([("now", "i8"), ("any_time", "i8")])


class Paces(NamedTuple):
    """Sequence and epoch rates of one replica's producers. ``newest_time``: no clock is believed beyond it, ms.

    Rows are those of the policies' tables, in which the producers of a snapshot come first; ``row_of`` maps the rows of
    the audit's replay to them, -1 where there is none yet.
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


def new_rates(
    bounds: ReplicaBounds, inherited: Inherited, *, start_known: bool = True, newest_time: int = FAR
) -> Paces:
    """Return the rates of a replica before its first batch."""
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


def rates_with_room(h: Paces, rows: int, highest: int = -1) -> Paces:
    """Return the rates with room for ``rows`` more producers; ``highest``: last row of the audit's replay."""
    ids, pace, lengths, row_of = h.ids, h.pace, h.lengths, h.row_of
    if int(ids.meta[0]) + rows > len(ids.entries):
        ids = model.grow(ids, int(ids.meta[0]) + rows)
        pace, lengths = longer(pace, len(ids.entries)), longer(lengths, len(ids.entries))
    if highest >= len(row_of):
        row_of = longer(row_of, max(highest + 1, 2 * len(row_of)))
        row_of[len(h.row_of) :] = -1
    return h._replace(ids=ids, pace=pace, lengths=lengths, row_of=row_of)


def longer(table: np.ndarray, rows: int) -> np.ndarray:
    """Return the table with so many rows; new ones are uninitialized."""
    out = np.empty((rows, *table.shape[1:]), table.dtype)
    out[: len(table)] = table
    return out


@kernel
def producer_row(h, producer_id):  # type: ignore[no-untyped-def]
    """Return the row of a producer, a new one if it was unknown. ``rates_with_room`` must have made room."""
    row = model.find(h.ids, producer_id)
    if row >= 0:
        return row
    row = model.insert(h.ids, producer_id)
    h.pace[row] = NEW_PACE[0]
    for k in range(IN_FLIGHT):
        h.lengths[row, k] = 0
    return row


@kernel
def load_rates(h, entries, rows):  # type: ignore[no-untyped-def]
    """Load the producers of a snapshot before the first batch; fill ``rows`` with the row of each entry."""
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
    ids = h.inherited.producer_ids
    index = np.searchsorted(ids, batch.producer_id)
    is_listed = index < len(ids) and ids[index] == batch.producer_id
    return is_listed and h.inherited.known_at[index] <= batch.base_offset


@kernel
def _provable(h, batch, step):  # type: ignore[no-untyped-def]
    """Whether nothing can be missing between this batch and the producer's last one."""
    intact = h.bounds.intact_from
    if step.unreadable_between:
        return False
    if step.previous_offset < 0:
        return intact <= 0 and not _inherited(h, batch)
    return step.previous_offset >= intact and batch.base_offset >= intact


@kernel
def _note_length(h, row, o, same_epoch, length):  # type: ignore[no-untyped-def]
    """Update the newest batches' lengths, which a new epoch resets, and the most sequences they ever spanned."""
    if not same_epoch:
        for k in range(IN_FLIGHT):
            h.lengths[row, k] = 0
        o.in_flight = 0
    place = o.newest_length + 1
    if place == IN_FLIGHT:
        place = 0
    o.newest_length = place
    o.in_flight += length - h.lengths[row, place]
    h.lengths[row, place] = length
    o.span = max(o.span, o.in_flight)


@kernel
def _count(h, batch, step, time):  # type: ignore[no-untyped-def]
    """Add a data batch to its producer's volumes."""
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
    """Complete the steps of the first ``count`` batches for policies.

    Rows become those of the policies' tables, ``time`` the newest so far.
    """
    s = h.place[0]
    for i in range(count):
        batch, step = batches[i], steps[i]
        if step.kind == UNREADABLE:
            continue
        time = min(step.time, h.newest_time)
        s.now = max(s.now, time)
        if batch.max_timestamp <= LAST_MS:
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


# Replay under another policy, compiled: its leader's answers, and the cost of its state.
#
# A log has only what was accepted. Each data batch counts as one client append, each marker as one of the
# coordinator, in offset order; after a refusal the replay goes on as if the batch had been accepted, so that one
# cause is reported once (semantics 2.6). Time passes with the batches: producers expire and retention removes
# segments as on a broker. What does not depend on the policy is in the steps of the audit's replay.


MAX_VERDICTS = 10_000  # kept of one replica and policy; what is beyond is counted

SEGMENT = np.dtype([("next_base", "i8"), ("newest", "i8"), ("size", "i8")])
# What moves with the log, one row. swept: when producers were last looked through, ms; live, cached: producers and
# batches in memory; verdicts, dropped: kept and not kept; late: batches that found their producer forgotten. Of the log
# as retention leaves it: segments that are complete, the oldest left, newest time and bytes of the one being written,
# and bytes in all.
TOTALS = np.dtype(
    [
        ("swept", "i8"),
        ("live", "i8"),
        ("cached", "i8"),
        ("peak_bytes", "i8"),
        ("peak_producers", "i8"),
        ("verdicts", "i8"),
        ("dropped", "i8"),
        ("late", "i8"),
        ("segment", "i8"),
        ("segments", "i8"),
        ("oldest", "i8"),
        ("segment_newest", "i8"),
        ("segment_bytes", "i8"),
        ("bytes", "i8"),
    ]
)


class Rules(NamedTuple):
    """Fixed settings of a replica under a policy. Times in ms, sizes in bytes; negative: no limit.

    ``check_ms`` is producer.id.expiration.check.interval.ms.
    """

    log_start: int
    sequences: bool
    expiration_ms: int
    check_ms: int
    retention_ms: int
    retention_bytes: int


class World(NamedTuple):
    """One replica under one policy; a producer has the same row as in :class:`Paces`."""

    rules: Rules
    producers: model.Producers
    verdict_of: np.ndarray  # int32, by row: where its run of verdicts is, -1 for none
    verdicts: np.ndarray  # VERDICT
    segments: np.ndarray  # SEGMENT, those that are complete
    totals: np.ndarray  # TOTALS, one row


def new_world(policy: Policy, rules: Rules) -> World:
    """Return the state of a replica before its first batch."""
    totals = np.zeros(1, TOTALS)
    for name in ("swept", "segment", "segment_newest"):
        totals[name] = -1
    producers = model.new_producers(64, policy.cached_batches)
    return World(rules, producers, np.empty(64, np.int32), np.empty(16, VERDICT), np.empty(64, SEGMENT), totals)


def verdicts_with_room(w: World, rows: int) -> World:
    """Return the state with room for ``rows`` more producers and verdicts, and one more segment."""
    table, verdict_of, verdicts, segments = w.producers, w.verdict_of, w.verdicts, w.segments
    if int(table.meta[0]) + rows > len(table.entries):
        table = model.grow(table, int(table.meta[0]) + rows)
        verdict_of = longer(verdict_of, len(table.entries))
    wanted = min(int(w.totals["verdicts"][0]) + rows, MAX_VERDICTS)
    if wanted > len(verdicts):
        verdicts = longer(verdicts, min(max(wanted, 2 * len(verdicts)), MAX_VERDICTS))
    if int(w.totals["segments"][0]) + 1 > len(segments):
        segments = longer(segments, 2 * len(segments))
    return w._replace(producers=table, verdict_of=verdict_of, verdicts=verdicts, segments=segments)


@kernel
def end_segment(w, next_base):  # type: ignore[no-untyped-def]
    """Complete the segment: from now on retention may remove it. ``verdicts_with_room`` must have made room."""
    t = w.totals[0]
    segment = w.segments[t.segments]
    segment.next_base = next_base
    segment.newest = t.segment_newest
    segment.size = t.segment_bytes
    t.segments += 1
    t.segment_newest = -1
    t.segment_bytes = 0


@kernel
def load_entries(w, policy, entries, rows):  # type: ignore[no-untyped-def]
    """Load the producers of a snapshot before the first batch, with their last batches only, in these rows."""
    p, t = w.producers, w.totals[0]
    for k in range(len(rows)):
        row = rows[k]
        _enter(w, row, entries.producer_id[k])
        entry = p.entries[row]
        t.live += entry.epoch < 0
        cached = entry.cached
        model.set_epoch(p, row, entries.producer_epoch[k])
        entry.coordinator_epoch = entries.coordinator_epoch[k]
        entry.last_timestamp = entries.last_timestamp[k]
        entry.txn_first_offset = entries.current_txn_first_offset[k]
        if entries.last_offset[k] >= 0 or policy.snapshot_batch_always:
            model.remember_batch(
                p,
                row,
                entries.last_sequence[k],
                entries.last_offset[k],
                entries.offset_delta[k],
                entries.last_timestamp[k],
            )
        t.cached += entry.cached - cached
        t.segment_newest = max(t.segment_newest, entries.last_timestamp[k])
    _weigh(t)


@kernel
def _enter(w, row, producer_id):  # type: ignore[no-untyped-def]
    """Ensure that the producer has its row: rows come in the same order as in the rates."""
    if row == w.producers.meta[0]:
        model.insert(w.producers, producer_id)
        w.verdict_of[row] = -1


@kernel
def _weigh(t):  # type: ignore[no-untyped-def]
    size = BYTES_A_PRODUCER * t.live + BYTES_A_BATCH * t.cached
    t.peak_bytes = max(t.peak_bytes, size)
    t.peak_producers = max(t.peak_producers, t.live)


@kernel
def _forget(w, row):  # type: ignore[no-untyped-def]
    """Drop the producer's state; its row stays, empty, for when it returns."""
    entry = w.producers.entries[row]
    if entry.epoch < 0:
        return
    w.totals[0].live -= 1
    w.totals[0].cached -= entry.cached
    entry.epoch = -1
    entry.coordinator_epoch = -1
    entry.last_timestamp = -1
    entry.txn_first_offset = -1
    entry.cached = 0


@kernel
def _sweep(w, policy, now):  # type: ignore[no-untyped-def]
    """Expire idle producers, as often as brokers check."""
    t = w.totals[0]
    if t.swept >= 0 and now - t.swept < w.rules.check_ms:
        return
    if t.swept >= 0:
        for row in range(w.producers.meta[0]):
            is_live = w.producers.entries[row].epoch >= 0
            if is_live and model.is_expired(w.producers, row, policy, now, w.rules.expiration_ms):
                _forget(w, row)
    t.swept = now


@kernel
def _retain(w, batch, now):  # type: ignore[no-untyped-def]
    """Remove complete segments by retention, the oldest first, and with them idle producers (up to 2.3)."""
    t, start = w.totals[0], -1
    t.segment_newest = max(t.segment_newest, batch.max_timestamp)
    t.segment_bytes += batch.bytes
    t.bytes += batch.bytes
    while t.oldest < t.segments:
        segment = w.segments[t.oldest]
        old = w.rules.retention_ms >= 0 and segment.newest + w.rules.retention_ms < now
        large = w.rules.retention_bytes >= 0 and t.bytes - w.rules.retention_bytes >= segment.size
        if not (old or large):
            break
        start = segment.next_base
        t.bytes -= segment.size
        t.oldest += 1
    if start >= 0:
        for row in range(w.producers.meta[0]):
            if model.newest_offset(w.producers, row) < start:
                _forget(w, row)


@kernel
def _answer(w, policy, batch, step, transactional):  # type: ignore[no-untyped-def]
    """The leader's answer to a data batch, as far as the log proves it."""
    p, row = w.producers, step.row
    last = step.last_sequence if w.rules.sequences else -1
    answer = model.check_append(p, row, policy, batch.producer_epoch, batch.base_sequence, last, transactional)
    of_sequences = answer != OK and answer != INVALID_PRODUCER_EPOCH and answer != INVALID_TXN_STATE
    if of_sequences and not step.provable:
        return model.check_transaction(p, row, transactional)
    return answer


@kernel
def _verdict(w, batch, step, error):  # type: ignore[no-untyped-def]
    """Note an answer that differs; one that goes on a run extends it."""
    t, p, row = w.totals[0], w.producers, step.row
    number = w.verdict_of[row]
    if number >= 0 and w.verdicts[number].error == error:
        w.verdicts[number].batches += 1
        w.verdicts[number].records += max(batch.record_count, 0)
        w.verdicts[number].run_last_offset = batch.last_offset
        return
    number = t.verdicts
    if number >= MAX_VERDICTS:
        t.dropped += 1
        return
    t.verdicts = number + 1
    w.verdict_of[row] = number
    v = w.verdicts[number]
    v.error = error
    v.producer_id = batch.producer_id
    v.producer_epoch = batch.producer_epoch
    v.segment = t.segment
    v.position = batch.position
    v.base_offset = batch.base_offset
    v.last_offset = batch.last_offset
    v.run_last_offset = batch.last_offset
    v.base_sequence = batch.base_sequence
    v.last_sequence = step.last_sequence
    v.known_epoch = p.entries[row].epoch
    v.known_last_sequence = model.newest_sequence(p, row)
    v.max_timestamp = batch.max_timestamp
    v.transactional = batch.attributes & ATTR_TRANSACTIONAL != 0
    v.control = step.kind == MARKER
    v.batches = 1
    v.records = max(batch.record_count, 0)
    v.stored_before = step.stored_before


@kernel
def _data(w, policy, batch, step):  # type: ignore[no-untyped-def]
    p, t, row = w.producers, w.totals[0], step.row
    entry = p.entries[row]
    transactional = batch.attributes & ATTR_TRANSACTIONAL != 0
    if step.judged and step.below and policy.evicts_below_log_start and batch.base_sequence == 0:
        _forget(w, row)  # it began again because this had happened
    if entry.epoch < 0:
        t.late += step.seen
        t.live += 1
    answer = _answer(w, policy, batch, step, transactional) if step.judged else OK
    if answer != OK:
        _verdict(w, batch, step, answer)
    else:
        w.verdict_of[row] = -1
    t.cached -= entry.cached
    model.apply_data(
        p,
        row,
        batch.producer_epoch,
        step.last_sequence,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        transactional,
    )
    t.cached += entry.cached


@kernel
def _marker(w, batch, step):  # type: ignore[no-untyped-def]
    p, t, row = w.producers, w.totals[0], step.row
    entry = p.entries[row]
    epoch, coordinator_epoch = batch.producer_epoch, batch.coordinator_epoch
    answer = model.check_marker(p, row, epoch, coordinator_epoch, 0)
    if answer != OK and step.judged:
        _verdict(w, batch, step, answer)
    t.live += entry.epoch < 0
    t.cached -= entry.cached
    model.apply_marker(p, row, epoch, coordinator_epoch, batch.max_timestamp)
    t.cached += entry.cached


@kernel
def replay_under(w, policy, batches, steps, count):  # type: ignore[no-untyped-def]
    """Replay the first ``count`` batches by their steps; ``verdicts_with_room`` must have made room for them."""
    t = w.totals[0]
    for i in range(count):
        batch, step = batches[i], steps[i]
        if step.kind == UNREADABLE:
            continue
        _sweep(w, policy, step.time)
        if policy.evicts_below_log_start:
            _retain(w, batch, step.time)
        if step.kind >= DATA:
            _enter(w, step.row, batch.producer_id)
            if step.kind == MARKER:
                _marker(w, batch, step)
            else:
                _data(w, policy, batch, step)
            _weigh(t)
