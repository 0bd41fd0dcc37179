"""Where a producer's sequences were stored before, compiled: runs of them without a gap, the newest beside LIVE.

The newest run ends where the producer stands: what repeats older records, or comes from a fenced producer, does not
move it. A broker's own state remembers five batches; a log remembers all of them.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.base.numbers import LAST_SEQUENCE, SEQUENCES
from auditor.replay.producers.new_rows import later_row
from auditor.replay.producers.state import MAX_OLD_RUNS, Replay

NOTHING, SOME, ALL = 0, 1, 2  # of a range
RESET, LOG_START = 1, 2  # what began after a run: its producer again at 0, the log to be judged
NEAR = SEQUENCES // 2  # sequences; a run that lies farther ahead in the ring lies behind


@kernel
def _holds(start: int, length: int, sequence: int) -> bool:
    """Whether a run has a sequence. Of a full turn the oldest number counts as the one that comes next."""
    return length > 0 and (sequence - start) & LAST_SEQUENCE < min(length, LAST_SEQUENCE)


@kernel
def overlap(start: int, length: int, first: int, count: int) -> int:
    """How much of the ``count`` sequences from ``first`` on a run has: NOTHING, SOME or ALL."""
    if _holds(start, length, first):
        return ALL if _holds(start, length, first + count - 1) else SOME
    return SOME if length > 0 and (start - first) & LAST_SEQUENCE < count else NOTHING


@kernel
def next_in_run(live: np.record) -> int:
    """The sequence that goes on where the producer stands."""
    return (live.run_start + live.run_length) & LAST_SEQUENCE


@kernel
def extend_run(live: np.record, count: int) -> None:
    """The producer goes on; after one full turn of the numbers the oldest ones may come again."""
    if live.run_length + count <= LAST_SEQUENCE:
        live.run_length += count
    else:
        live.run_start = (live.run_start + count) & LAST_SEQUENCE


@kernel
def stored_before(replay: Replay, row: int, epoch: int, first: int, count: int, behind: int) -> int:
    """How much of some sequences the producer stored before in the epoch of its data, by the run that has most of it.
    ``behind``: bits of RUN.behind, 0 for all runs; else the newest is not asked, nor those after which such a thing
    began."""
    live, later = replay.live[row], replay.born[row].later
    most = NOTHING if behind else overlap(live.run_start, live.run_length, first, count)
    at, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while most < ALL and at >= 0 and steps < MAX_OLD_RUNS:
        run = replay.runs[at]
        if run.epoch != epoch or run.behind & behind:
            break
        most = max(most, overlap(run.start, run.length, first, count))
        at, steps = run.older, steps + 1
    return most


@kernel
def note_crowd(replay: Replay, row: int) -> None:
    """Notes whether an older run lies where the producer stands, or ahead of it: then to go on may be to repeat."""
    live, later = replay.live[row], replay.born[row].later
    live.crowded = 0
    following = next_in_run(live)
    at, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while at >= 0 and steps < MAX_OLD_RUNS and not replay.runs[at].behind:
        run = replay.runs[at]
        if _holds(run.start, run.length, following) or (run.start - following) & LAST_SEQUENCE < NEAR:
            live.crowded = 1
        at, steps = run.older, steps + 1


@kernel
def begin_run(replay: Replay, row: int, before: int, epoch: int, first: int, count: int) -> None:
    """The producer goes on from here: its run is closed, another begins. ``before``: the epoch of its runs so far."""
    live, later = replay.live[row], replay.born[row].later
    if before != epoch:  # of an epoch that is over nothing can be repeated
        live.crowded = 0
        if later >= 0:
            replay.later[later].old_run = -1
    elif live.run_length > 0:
        _keep_run(replay, row, epoch, live.run_start, live.run_length)
    live.run_start = first
    live.run_length = count


@kernel
def reset_run(replay: Replay, row: int, epoch: int, count: int) -> None:
    """The producer begins again at 0: what it numbered before says nothing about how it goes on."""
    live = replay.live[row]
    begin_run(replay, row, epoch, epoch, 0, count)
    live.crowded = 0
    replay.runs[replay.later[replay.born[row].later].old_run].behind |= RESET


@kernel
def note_repeated(replay: Replay, row: int, epoch: int, first: int, count: int) -> None:
    """Sequences of which some at least were stored before, be it below the log start: from now on all of them are, and
    above it."""
    live = replay.live[row]
    if _holds(live.run_start, live.run_length, first):
        live.run_length = max(live.run_length, ((first - live.run_start) & LAST_SEQUENCE) + count)
    elif stored_before(replay, row, epoch, first, count, LOG_START) < ALL:
        _keep_run(replay, row, epoch, first, count)


@kernel
def note_below(replay: Replay, row: int, before: int, epoch: int, first: int, count: int) -> None:
    """A batch below the log start, where nothing is judged. ``before``: the epoch of the one before, -1 for none."""
    live = replay.live[row]
    if before == epoch and first == next_in_run(live):
        extend_run(live, count)
    elif before == epoch and first == 0:
        reset_run(replay, row, epoch, count)
    else:
        begin_run(replay, row, before, epoch, first, count)


@kernel
def begin_judging(replay: Replay, row: int) -> None:
    """The older runs lie below the log start: that the producer goes on is compared with what is judged alone."""
    live, later = replay.live[row], replay.born[row].later
    live.crowded = 0
    if later >= 0 and replay.later[later].old_run >= 0:
        replay.runs[replay.later[later].old_run].behind |= LOG_START


@kernel
def _keep_run(replay: Replay, row: int, epoch: int, first: int, count: int) -> None:
    """Notes a run among the older ones of the producer, which all are of one epoch."""
    progress = replay.log.progress[0]
    later = replay.later[later_row(replay.log, replay.later, replay.born[row])]
    at = progress.runs
    progress.runs = at + 1
    run = replay.runs[at]
    run.epoch = epoch
    run.start = first
    run.length = count
    run.older = later.old_run
    run.behind = 0
    later.old_run = at
