"""What a replay knows of its producers, one column at a time and in the order of its rows."""

from __future__ import annotations

import numpy as np

from auditor.replay.state import Replay

NEWEST = frozenset({"last_sequence", "last_offset", "offset_delta"})
STATE = {"producer_epoch": "epoch"} | {
    name: name for name in ("producer_id", "coordinator_epoch", "last_timestamp", "txn_first_offset")
}


def column(replay: Replay, name: str) -> np.ndarray:
    """A column of PRODUCER (auditor.facts.producer_rows), or ``markers`` and ``marker_offset``; what is not known is -1
    or 0."""
    used = int(replay.producers.meta[0])
    p, live, born = replay.producers, replay.live[:used], replay.born[:used]
    if name in STATE:
        found: np.ndarray = getattr(p, STATE[name])[:used]
        return found
    if name in NEWEST:
        newest = getattr(p, name)[np.arange(used), p.newest[:used]]
        return np.where(p.cached[:used] > 0, newest, 0 if name == "offset_delta" else -1)
    if name in (live.dtype.names or ()):
        return np.asarray(live[name])
    if name.startswith("below_") and name != "below_in_snapshot":
        return _beside(replay.below, live["below"], name.removeprefix("below_"))
    if name == "markers" or name.startswith("marker_"):
        return _beside(replay.marked, live["marked"], name.removeprefix("marker_"))
    if name.startswith("first_"):
        return np.where(live["batches"] > 0, born[name], -1)
    if name.startswith("max_data_epoch_"):
        return np.where(live["max_data_epoch"] >= 0, born[name], -1)
    assert name == "below_in_snapshot"
    return np.zeros(used, np.int8)


def _beside(table: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """A column of a table that only some producers have a row in; the others count 0 and know nothing."""
    out = np.full(len(rows), 0 if name in ("batches", "markers") else -1, table.dtype[name])
    there = np.flatnonzero(rows >= 0)
    out[there] = table[name][rows[there]]
    return out
