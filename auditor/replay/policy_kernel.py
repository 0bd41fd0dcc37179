"""The same batches under another policy, compiled: what its leader would have answered, and what its state would cost.

A log holds only what was accepted. Each data batch counts as one client append, each marker as one of the coordinator,
in offset order; after a refusal the replay goes on as if the batch had been accepted, so that one cause is told once
(semantics 2.6). Time passes with the batches: producers expire and segments fall to retention as on a broker.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.connectors.codec.columns import FLAW_CRC as _FLAW_CRC
from auditor.connectors.codec.columns import FLAW_PRODUCER_EPOCH as _FLAW_EPOCH
from auditor.model import producers as model
from auditor.model.policies import INVALID_TXN_STATE, OK, OUT_OF_ORDER_SEQUENCE_NUMBER, Policy
from auditor.replay.state import ATTR_APPEND_TIME, ATTR_CONTROL, ATTR_TRANSACTIONAL, MAX_OLD_RUNS, RUN, SEQUENCES

FLAW_CRC, FLAW_EPOCH = int(_FLAW_CRC), int(_FLAW_EPOCH)
BYTES_A_PRODUCER, BYTES_A_BATCH = 224, 40  # of a 64-bit JVM with compressed references, an estimate (semantics 2.6)
MAX_VERDICTS = 10_000  # kept of one copy and policy; what is beyond is counted
NEVER = 1 << 62
LAST_SEQUENCE = 2**31 - 1

# One row a run of batches (or a marker) that would have been answered otherwise; the first of the run, and how many.
VERDICT = np.dtype(
    [
        ("error", "i4"), ("producer_id", "i8"), ("producer_epoch", "i4"), ("segment", "i4"), ("position", "i8"),
        ("base_offset", "i8"), ("last_offset", "i8"), ("base_sequence", "i4"), ("last_sequence", "i4"),
        ("known_epoch", "i4"), ("known_last_sequence", "i4"), ("max_timestamp", "i8"), ("transactional", "i1"),
        ("control", "i1"), ("batches", "i8"), ("records", "i8"), ("run_last_offset", "i8"), ("stored_before", "i1"),
    ]
)  # fmt: skip

# Beside each producer's state: where its last run of verdicts is, and what the numbers on producers are made of.
# span: most sequences in five batches on end, which is what may be in flight at once. times: time(b), ms.
HISTORY = np.dtype(
    [
        ("verdict", "i4"), ("ordinal", "i8"), ("last_offset", "i8"), ("seen", "i1"), ("run_epoch", "i4"),
        ("run_start", "i4"), ("run_length", "i8"), ("old_run", "i4"), ("batches", "i8"), ("records", "i8"),
        ("first_time", "i8"), ("last_time", "i8"), ("first_epoch", "i4"), ("last_epoch", "i4"), ("wraps", "i8"),
        ("span", "i8"), ("transactional", "i1"),
    ]
)  # fmt: skip
SEGMENT = np.dtype([("next_base", "i8"), ("newest", "i8"), ("size", "i8")])

# Indexes into World.params.
P_LOG_START, P_START_SEGMENT, P_INTACT_FROM, P_SEQUENCES, P_EXPIRY_MS = 0, 1, 2, 3, 4
P_CHECK_MS = 5  # producer.id.expiration.check.interval.ms
P_RETENTION_MS, P_RETENTION_BYTES = 6, 7  # negative: none
P_NEWEST_TIME = 8  # no clock goes beyond it
P_BROKER_TIMES, P_FIRST_SNAPSHOT = 9, 10
PARAMS = 11
# Indexes into World.scalars.
S_NOW, S_BROKER_TIME, S_SWEPT, S_LIVE, S_CACHED, S_PEAK_BYTES, S_PEAK_PRODUCERS = 0, 1, 2, 3, 4, 5, 6
S_VERDICTS, S_DROPPED, S_ORDINAL, S_UNREADABLE, S_SEGMENT, S_RUNS = 7, 8, 9, 10, 11, 12
S_SEGMENTS, S_OLDEST, S_SEGMENT_NEWEST, S_SEGMENT_BYTES, S_BYTES = 13, 14, 15, 16, 17  # of the log kept by retention
S_LATE = 18  # batches that found the producer forgotten
SCALARS = 19


class World(NamedTuple):
    """One copy under one policy. ``known_ids`` are the producers that snapshots know, each from ``known_at`` on."""

    producers: model.Producers
    history: np.ndarray  # HISTORY, a row beside each row of producers
    verdicts: np.ndarray  # VERDICT
    runs: np.ndarray  # RUN
    segments: np.ndarray  # SEGMENT, those that are complete
    known_ids: np.ndarray  # int64, sorted
    known_at: np.ndarray  # int64
    params: np.ndarray
    scalars: np.ndarray


def new_world(policy: Policy, params: np.ndarray, known_ids: np.ndarray, known_at: np.ndarray) -> World:
    """A copy before its first batch."""
    scalars = np.zeros(SCALARS, np.int64)
    scalars[[S_NOW, S_BROKER_TIME, S_SWEPT, S_UNREADABLE, S_SEGMENT, S_SEGMENT_NEWEST]] = -1
    return World(
        model.new_producers(64, policy.cached_batches),
        blank_history(64),
        np.zeros(MAX_VERDICTS, VERDICT),
        np.zeros(256, RUN),
        np.zeros(64, SEGMENT),
        known_ids,
        known_at,
        params,
        scalars,
    )


def blank_history(rows: int) -> np.ndarray:
    """Rows of producers of which nothing is known."""
    history = np.zeros(rows, HISTORY)
    for name in ("verdict", "ordinal", "last_offset", "run_epoch", "old_run", "first_time", "last_time"):
        history[name] = -1
    return history


def with_room(w: World, rows: int) -> World:
    """The same with room for ``rows`` more producers and runs, and one more segment."""
    table, history, runs, segments = w.producers, w.history, w.runs, w.segments
    while int(table.meta[0]) + rows > len(table.producer_id):
        table = model.grow(table)
    if len(history) < len(table.producer_id):
        history = np.concatenate([history, blank_history(len(table.producer_id) - len(history))])
    if int(w.scalars[S_RUNS]) + rows > len(runs):
        runs = np.concatenate([runs, np.zeros(max(rows, len(runs)), RUN)])
    if int(w.scalars[S_SEGMENTS]) + 1 > len(segments):
        segments = np.concatenate([segments, np.zeros(len(segments), SEGMENT)])
    return w._replace(producers=table, history=history, runs=runs, segments=segments)


@kernel
def end_segment(w, next_base):  # type: ignore[no-untyped-def]
    """The segment read so far is complete: from now on retention may take it. ``with_room`` must have made room."""
    s = w.scalars
    segment = w.segments[s[S_SEGMENTS]]
    segment.next_base = next_base
    segment.newest = s[S_SEGMENT_NEWEST]
    segment.size = s[S_SEGMENT_BYTES]
    s[S_SEGMENTS] += 1
    s[S_SEGMENT_NEWEST] = -1
    s[S_SEGMENT_BYTES] = 0


@kernel
def load_entry(w, policy, pid, epoch, coordinator, stamp, txn_first, last_sequence, last_offset, delta):  # type: ignore[no-untyped-def]
    """A producer as a snapshot before the first batch has it: with its last batch only."""
    row = model.insert(w.producers, pid)
    model.set_epoch(w.producers, row, epoch)
    w.producers.coordinator_epoch[row] = coordinator
    w.producers.last_timestamp[row] = stamp
    w.producers.txn_first_offset[row] = txn_first
    if last_sequence >= 0 or policy.snapshot_batch_always:
        model.remember_batch(w.producers, row, last_sequence, last_offset, delta, stamp)
    w.history[row].last_offset = last_offset
    w.history[row].seen = 1
    w.scalars[S_LIVE] += 1
    w.scalars[S_CACHED] += w.producers.cached[row]
    _weigh(w)


@kernel
def _weigh(w):  # type: ignore[no-untyped-def]
    s = w.scalars
    size = BYTES_A_PRODUCER * s[S_LIVE] + BYTES_A_BATCH * s[S_CACHED]
    s[S_PEAK_BYTES] = max(s[S_PEAK_BYTES], size)
    s[S_PEAK_PRODUCERS] = max(s[S_PEAK_PRODUCERS], s[S_LIVE])


@kernel
def _forget(w, row):  # type: ignore[no-untyped-def]
    """The broker loses this producer; its row stays, empty, for when it comes back."""
    p = w.producers
    if p.epoch[row] < 0:
        return
    w.scalars[S_LIVE] -= 1
    w.scalars[S_CACHED] -= p.cached[row]
    p.epoch[row] = -1
    p.coordinator_epoch[row] = -1
    p.last_timestamp[row] = -1
    p.txn_first_offset[row] = -1
    p.cached[row] = 0


@kernel
def _pass_time(w, policy, b, i, marker):  # type: ignore[no-untyped-def]
    """Moves the clock to time(b), and lets go whom and what is due by then. Returns the time."""
    s, params, stamp = w.scalars, w.params, b.max_timestamp[i]
    append_time = b.magic[i] >= 1 and b.attributes[i] & ATTR_APPEND_TIME
    if marker or append_time or params[P_BROKER_TIMES]:
        s[S_BROKER_TIME] = max(s[S_BROKER_TIME], stamp)
    time = min(max(stamp, s[S_BROKER_TIME]), params[P_NEWEST_TIME])
    s[S_NOW] = max(s[S_NOW], time)
    s[S_SEGMENT_NEWEST] = max(s[S_SEGMENT_NEWEST], stamp)
    s[S_SEGMENT_BYTES] += b.size[i]
    s[S_BYTES] += b.size[i]
    if s[S_SWEPT] < 0:
        s[S_SWEPT] = s[S_NOW]
    if s[S_NOW] - s[S_SWEPT] >= params[P_CHECK_MS]:
        s[S_SWEPT] = s[S_NOW]
        for row in range(w.producers.meta[0]):
            if w.producers.epoch[row] >= 0 and model.is_expired(
                w.producers, row, policy, s[S_NOW], params[P_EXPIRY_MS]
            ):
                _forget(w, row)
    if policy.evicts_below_log_start:
        _retain(w)
    return time


@kernel
def _retain(w):  # type: ignore[no-untyped-def]
    """Retention takes complete segments from the oldest on, and with them who wrote nothing since (up to 2.3)."""
    s, params, start = w.scalars, w.params, -1
    while s[S_OLDEST] < s[S_SEGMENTS]:
        segment = w.segments[s[S_OLDEST]]
        old = params[P_RETENTION_MS] >= 0 and segment.newest + params[P_RETENTION_MS] < s[S_NOW]
        large = params[P_RETENTION_BYTES] >= 0 and s[S_BYTES] - params[P_RETENTION_BYTES] >= segment.size
        if not (old or large):
            break
        start = segment.next_base
        s[S_BYTES] -= segment.size
        s[S_OLDEST] += 1
    if start >= 0:
        for row in range(w.producers.meta[0]):
            if model.newest_offset(w.producers, row) < start:
                _forget(w, row)


@kernel
def _inherited(w, b, i):  # type: ignore[no-untyped-def]
    """Whether a broker may have known a producer that this log shows here for the first time (rules.md)."""
    if w.params[P_LOG_START] <= 0:
        return False
    if w.scalars[S_SEGMENT] <= w.params[P_START_SEGMENT] or w.params[P_FIRST_SNAPSHOT] > b.base_offset[i]:
        return True
    at = np.searchsorted(w.known_ids, b.producer_id[i])
    found = at < len(w.known_ids) and w.known_ids[at] == b.producer_id[i]
    return found and w.known_at[at] <= b.base_offset[i]


@kernel
def _provable(w, b, i, h):  # type: ignore[no-untyped-def]
    """Whether nothing can be missing between this batch and the producer's last one but what never was there."""
    intact = w.params[P_INTACT_FROM]
    if h.last_offset < 0:
        return intact <= 0 and not _inherited(w, b, i) and w.scalars[S_UNREADABLE] < 0
    return h.last_offset >= intact and b.base_offset[i] >= intact and w.scalars[S_UNREADABLE] <= h.ordinal


@kernel
def _answer(w, policy, b, i, row, last):  # type: ignore[no-untyped-def]
    """What the leader would have said to a data batch."""
    p, h = w.producers, w.history[row]
    epoch, first = b.producer_epoch[i], b.base_sequence[i]
    if not w.params[P_SEQUENCES] or last < 0:
        return model.check_epoch(p, row, epoch)
    answer = model.check_append(p, row, policy, epoch, first, last)
    transactional = b.attributes[i] & ATTR_TRANSACTIONAL
    nothing_known = p.cached[row] == 0 or p.epoch[row] != epoch
    if policy.strict_first_sequence and transactional and answer == OK and nothing_known and first != 0:
        answer = OUT_OF_ORDER_SEQUENCE_NUMBER
    if answer != OK and answer != model.check_epoch(p, row, epoch) and not _provable(w, b, i, h):
        return OK
    return answer


@kernel
def _verdict(w, b, i, row, error, last, control):  # type: ignore[no-untyped-def]
    """Notes an answer that differs; one that goes on a run only makes that longer."""
    s, h, p = w.scalars, w.history[row], w.producers
    at = h.verdict
    if at >= 0 and w.verdicts[at].error == error:
        w.verdicts[at].batches += 1
        w.verdicts[at].records += max(b.record_count[i], 0)
        w.verdicts[at].run_last_offset = b.last_offset[i]
        return
    at = s[S_VERDICTS]
    if at >= len(w.verdicts):
        s[S_DROPPED] += 1
        return
    s[S_VERDICTS] = at + 1
    h.verdict = at
    v = w.verdicts[at]
    v.error = error
    v.producer_id = b.producer_id[i]
    v.producer_epoch = b.producer_epoch[i]
    v.segment = s[S_SEGMENT]
    v.position = b.position[i]
    v.base_offset = b.base_offset[i]
    v.last_offset = b.last_offset[i]
    v.run_last_offset = b.last_offset[i]
    v.base_sequence = b.base_sequence[i]
    v.last_sequence = last
    v.known_epoch = p.epoch[row]
    v.known_last_sequence = model.newest_sequence(p, row)
    v.max_timestamp = b.max_timestamp[i]
    v.transactional = 1 if b.attributes[i] & ATTR_TRANSACTIONAL else 0
    v.control = control
    v.batches = 1
    v.records = max(b.record_count[i], 0)
    v.stored_before = 1 if last >= 0 and _stored_before(w, h, b.producer_epoch[i], b.base_sequence[i], last) else 0


@kernel
def _touches(start, length, sequence):  # type: ignore[no-untyped-def]
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@kernel
def _stored_before(w, h, epoch, first, last):  # type: ignore[no-untyped-def]
    """Whether the range [first, last] touches one that the producer has stored in this epoch."""
    if h.run_epoch != epoch:
        return False
    if _touches(h.run_start, h.run_length, first) or _touches(h.run_start, h.run_length, last):
        return True
    at, steps = h.old_run, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = w.runs[at]
        if _touches(run.start, run.length, first) or _touches(run.start, run.length, last):
            return True
        at, steps = run.older, steps + 1
    return False


@kernel
def _note_range(w, h, epoch, first, length):  # type: ignore[no-untyped-def]
    """Adds a batch's sequences to what the producer has stored in this epoch."""
    if h.run_epoch == epoch and first == (h.run_start + h.run_length) % SEQUENCES:
        h.run_length = min(h.run_length + length, SEQUENCES)
        return
    if h.run_epoch == epoch:
        at = w.scalars[S_RUNS]
        w.scalars[S_RUNS] = at + 1
        w.runs[at].start = h.run_start
        w.runs[at].length = h.run_length
        w.runs[at].older = h.old_run
        h.old_run = at
    else:
        h.old_run = -1
    h.run_epoch = epoch
    h.run_start = first
    h.run_length = length


@kernel
def _count(w, b, i, row, time, last, newest):  # type: ignore[no-untyped-def]
    """The numbers on producers that the capacity part of a what-if is made of."""
    h, p = w.history[row], w.producers
    epoch = b.producer_epoch[i]
    if h.batches == 0:
        h.first_time = time
        h.first_epoch = epoch
    h.batches += 1
    h.records += max(b.record_count[i], 0)
    h.last_time = max(h.last_time, time)
    h.last_epoch = max(h.last_epoch, epoch)
    if last >= 0 and (last < b.base_sequence[i] or (newest == LAST_SEQUENCE and b.base_sequence[i] == 0)):
        h.wraps += 1
    if b.attributes[i] & ATTR_TRANSACTIONAL:
        h.transactional = 1
    span = 0
    for age in range(p.cached[row]):
        span += p.offset_delta[row, model.cached_slot(p, row, age)] + 1
    h.span = max(h.span, span)


@kernel
def _data(w, policy, b, i, row, judged, time):  # type: ignore[no-untyped-def]
    p, h = w.producers, w.history[row]
    epoch, transactional = b.producer_epoch[i], b.attributes[i] & ATTR_TRANSACTIONAL != 0
    length, last = b.last_offset[i] - b.base_offset[i] + 1, -1
    if b.base_sequence[i] >= 0 and length > 0:
        last = model.add_sequence(b.base_sequence[i], length - 1)
    below = 0 <= h.last_offset < w.params[P_LOG_START]
    if judged and below and policy.evicts_below_log_start and b.base_sequence[i] == 0:
        _forget(w, row)  # it began again because this had happened
    if h.seen and p.epoch[row] < 0:
        w.scalars[S_LATE] += 1
    answer = _answer(w, policy, b, i, row, last) if judged else OK
    if answer == OK and judged and p.txn_first_offset[row] >= 0 and not transactional:
        answer = INVALID_TXN_STATE
    if answer != OK:
        _verdict(w, b, i, row, answer, last, 0)
    else:
        h.verdict = -1
    w.scalars[S_LIVE] += p.epoch[row] < 0
    cached, newest = p.cached[row], model.newest_sequence(p, row) if p.epoch[row] == epoch else -1
    model.apply_data(p, row, epoch, last, b.base_offset[i], b.last_offset[i], b.max_timestamp[i], transactional)
    w.scalars[S_CACHED] += p.cached[row] - cached
    if last >= 0:
        _note_range(w, h, epoch, b.base_sequence[i], length)
    _count(w, b, i, row, time, last, newest)
    h.last_offset = b.last_offset[i]
    h.ordinal = w.scalars[S_ORDINAL]
    h.seen = 1


@kernel
def _marker(w, b, i, row, judged):  # type: ignore[no-untyped-def]
    p = w.producers
    answer = model.check_epoch(p, row, b.producer_epoch[i])
    if answer == OK:
        answer = model.check_coordinator_epoch(p, row, b.coordinator_epoch[i])
    if answer != OK and judged:
        _verdict(w, b, i, row, answer, -1, 1)
    w.scalars[S_LIVE] += p.epoch[row] < 0
    cached = p.cached[row]
    model.apply_marker(p, row, b.producer_epoch[i], b.coordinator_epoch[i], b.max_timestamp[i])
    w.scalars[S_CACHED] += p.cached[row] - cached
    w.history[row].seen = 1


@kernel
def replay_under(w, policy, b, start, stop):  # type: ignore[no-untyped-def]
    """Replays rows [start, stop) of the columns; ``with_room`` must have made room for that many producers."""
    for i in range(start, stop):
        s = w.scalars
        if b.flaws[i] & FLAW_CRC:
            s[S_ORDINAL] += 1
            s[S_UNREADABLE] = s[S_ORDINAL]
            continue
        control = b.magic[i] == 2 and b.attributes[i] & ATTR_CONTROL != 0
        known = b.magic[i] == 2 and b.producer_id[i] >= 0 and not b.flaws[i] & FLAW_EPOCH
        marker = known and control and (b.control_type[i] == 0 or b.control_type[i] == 1)
        time = _pass_time(w, policy, b, i, marker)
        judged = b.last_offset[i] >= w.params[P_LOG_START]
        if marker:
            _marker(w, b, i, model.insert(w.producers, b.producer_id[i]), judged)
        elif known and not control:
            _data(w, policy, b, i, model.insert(w.producers, b.producer_id[i]), judged, time)
        _weigh(w)
        s[S_ORDINAL] += 1
