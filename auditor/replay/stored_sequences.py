"""Where a producer's sequences were stored before, compiled: runs of them without a gap, the newest beside LIVE.

The newest run ends where the producer stands: what repeats older records, or comes from a fenced producer, does not
move it. A broker's own state remembers five batches; a log remembers all of them.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.replay.new_rows import later_row
from auditor.replay.state import MAX_OLD_RUNS, Replay

NOTHING, SOME, ALL = 0, 1, 2  # of a range
LAST_SEQUENCE = 2**31 - 1  # a mask, too: sequences are a ring of 2**31


@kernel
def _holds(start: int, length: int, sequence: int) -> bool:
    """Whether a run has a sequence. Of a full turn the oldest number counts as the one that comes next."""
    return length > 0 and (sequence - start) & LAST_SEQUENCE < min(length, LAST_SEQUENCE)


@kernel
def overlap(start: int, length: int, first: int, last: int) -> int:
    """How much of the range [first, last] a run has: NOTHING, SOME or ALL of it, by its two ends."""
    return NOTHING + _holds(start, length, first) + _holds(start, length, last)


@kernel
def next_in_run(live: np.record) -> int:
    """The sequence that goes on where the producer stands."""
    return (live.run_start + live.run_length) & LAST_SEQUENCE


@kernel
def extend_run(live: np.record, length: int) -> None:
    """The producer goes on; after one full turn of the numbers the oldest ones may come again."""
    if live.run_length + length <= LAST_SEQUENCE:
        live.run_length += length
    else:
        live.run_start = (live.run_start + length) & LAST_SEQUENCE


@kernel
def stored_before(replay: Replay, row: int, epoch: int, first: int, last: int) -> int:
    """How much of the range [first, last] the producer stored before in the epoch of its data, by the run that has
    most of it."""
    live, later = replay.live[row], replay.born[row].later
    most = overlap(live.run_start, live.run_length, first, last)
    at, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while most < ALL and at >= 0 and steps < MAX_OLD_RUNS:
        run = replay.runs[at]
        if run.epoch == epoch:
            most = max(most, overlap(run.start, run.length, first, last))
        at, steps = run.older, steps + 1
    return most


@kernel
def begin_run(replay: Replay, row: int, before: int, epoch: int, first: int, length: int) -> None:
    """The producer goes on from here: its run is closed, another begins. ``before``: the epoch of its runs so far."""
    live, later = replay.live[row], replay.born[row].later
    if before != epoch:  # of an epoch that is over nothing can be repeated
        if later >= 0:
            replay.later[later].old_run = -1
    elif live.run_length > 0:
        _keep_run(replay, row, epoch, live.run_start, live.run_length)
    live.run_start = first
    live.run_length = length


@kernel
def note_repeated(replay: Replay, row: int, epoch: int, first: int, length: int) -> None:
    """A batch of which SOME was stored before: from now on all of it is."""
    live = replay.live[row]
    if _holds(live.run_start, live.run_length, first):
        live.run_length = ((first - live.run_start) & LAST_SEQUENCE) + length
    else:
        _keep_run(replay, row, epoch, first, length)


@kernel
def note_below(replay: Replay, row: int, before: int, epoch: int, first: int, length: int) -> None:
    """A batch below the log start, where nothing is judged. ``before``: the epoch of the one before, -1 for none."""
    live = replay.live[row]
    if before == epoch and first == next_in_run(live):
        extend_run(live, length)
    else:
        begin_run(replay, row, before, epoch, first, length)


@kernel
def _keep_run(replay: Replay, row: int, epoch: int, first: int, length: int) -> None:
    """Notes a run among the older ones of the producer, which all are of one epoch."""
    progress = replay.log.progress[0]
    later = replay.later[later_row(replay.log, replay.later, replay.born[row])]
    at = progress.runs
    progress.runs = at + 1
    run = replay.runs[at]
    run.epoch = epoch
    run.start = first
    run.length = length
    run.older = later.old_run
    later.old_run = at
