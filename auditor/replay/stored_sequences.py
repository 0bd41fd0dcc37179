"""Where a producer's sequences were stored before, compiled: runs of them without a gap, the newest beside LIVE.

The newest run ends where the producer stands: what repeats older records, or comes from a fenced producer, does not
move it. A broker's own state remembers five batches; a log remembers all of them.
"""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.replay.new_rows import later_row
from auditor.replay.state import MAX_OLD_RUNS, SEQUENCES, Replay


@kernel
def _holds(start: int, length: int, sequence: int) -> bool:
    """Whether a run has a sequence. Of a full turn the oldest number counts as the one that comes next."""
    return length > 0 and (sequence - start) % SEQUENCES < min(length, SEQUENCES - 1)


@kernel
def run_touches(live: np.record, first: int, last: int) -> bool:
    """Whether the range [first, last] touches the newest run."""
    return _holds(live.run_start, live.run_length, first) or _holds(live.run_start, live.run_length, last)


@kernel
def next_in_run(live: np.record) -> int:
    """The sequence that goes on where the producer stands."""
    return (live.run_start + live.run_length) % SEQUENCES


@kernel
def extend_run(live: np.record, length: int) -> None:
    """The producer goes on; after one full turn of the numbers the oldest ones may come again."""
    if live.run_length + length < SEQUENCES:
        live.run_length += length
    else:
        live.run_start = (live.run_start + length) % SEQUENCES


@kernel
def stored_before(replay: Replay, row: int, epoch: int, first: int, last: int) -> bool:
    """Whether the range [first, last] touches one that the producer stored before in the epoch of its data."""
    live, later = replay.live[row], replay.born[row].later
    if run_touches(live, first, last):
        return True
    at, steps = replay.later[later].old_run if later >= 0 else -1, 0
    while at >= 0 and steps < MAX_OLD_RUNS:
        run = replay.runs[at]
        if run.epoch == epoch and (_holds(run.start, run.length, first) or _holds(run.start, run.length, last)):
            return True
        at, steps = run.older, steps + 1
    return False


@kernel
def begin_run(replay: Replay, row: int, epoch: int, first: int, length: int) -> None:
    """The producer goes on from here: its run is closed, another begins."""
    live, later = replay.live[row], replay.born[row].later
    if live.data_epoch != epoch:  # of an epoch that is over nothing can be repeated
        if later >= 0:
            replay.later[later].old_run = -1
    elif live.run_length > 0:
        _keep_run(replay, row, live.run_start, live.run_length)
    live.run_start = first
    live.run_length = length


@kernel
def note_repeated(replay: Replay, row: int, first: int, length: int) -> None:
    """A batch that touches what was stored: where it reaches beyond, that is stored from now on too."""
    live = replay.live[row]
    ends_in = _holds(live.run_start, live.run_length, (first + length - 1) % SEQUENCES)
    if _holds(live.run_start, live.run_length, first):
        if not ends_in:
            live.run_length = (first - live.run_start) % SEQUENCES + length
    else:
        _keep_run(replay, row, first, length)


@kernel
def _keep_run(replay: Replay, row: int, first: int, length: int) -> None:
    """Notes a run among the older ones of the producer, which all are of the epoch of its data."""
    progress, live = replay.log.progress[0], replay.live[row]
    later = replay.later[later_row(replay.log, replay.later, replay.born[row])]
    at = progress.runs
    progress.runs = at + 1
    run = replay.runs[at]
    run.epoch = live.data_epoch
    run.start = first
    run.length = length
    run.older = later.old_run
    later.old_run = at


@kernel
def note_below(live: np.record, goes_on: bool, first: int, length: int) -> None:
    """A batch below the log start: what it has is remembered up to the first judged batch. ``goes_on``: with the epoch
    of the one before it."""
    if goes_on and first == next_in_run(live):
        extend_run(live, length)
    else:
        live.run_start = first
        live.run_length = length
