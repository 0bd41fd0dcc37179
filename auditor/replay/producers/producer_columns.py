"""What a replay knows of its producers, in the order of its rows: one column at a time, or all of them at once."""

from __future__ import annotations

import numpy as np

from auditor.base.compiled import kernel
from auditor.facts.replica_facts import PRODUCER, ZERO_AT_START
from auditor.replay.producers.state import Replay

NEWEST = frozenset({"last_sequence", "last_offset", "offset_delta"})
STATE = {"producer_epoch": "epoch"} | {
    name: name for name in ("producer_id", "coordinator_epoch", "last_timestamp", "txn_first_offset")
}


def column(replay: Replay, name: str) -> np.ndarray:
    """A column of PRODUCER (auditor.facts.replica_facts), or ``markers`` and ``marker_offset``; what is not known is -1
    or 0."""
    used = int(replay.producers.meta[0])
    p, live, born = replay.producers, replay.live[:used], replay.born[:used]
    if name in STATE:
        found: np.ndarray = getattr(p, STATE[name])[:used]
        return found
    if name in NEWEST:
        newest = getattr(p, name)[np.arange(used), p.newest[:used]]
        return np.where(p.cached[:used] > 0, newest, 0 if name == "offset_delta" else -1)
    if name == "max_data_epoch":
        name = "data_epoch"  # data of a fenced producer does not count
    if name in (live.dtype.names or ()):
        return np.asarray(live[name])
    if name.startswith("below_") and name != "below_in_snapshot":
        return _beside(replay.below, born["below"], name.removeprefix("below_"))
    if name == "idle_count":
        return _beside(replay.later, born["later"], name)
    if name == "markers" or name.startswith("marker_"):
        return _beside(replay.marked, live["marked"], name.removeprefix("marker_"))
    if name.startswith("first_"):
        return np.where(live["batches"] > 0, born[name], -1)
    if name.startswith("max_data_epoch_"):
        out = born["first_" + name.removeprefix("max_data_epoch_")].copy()
        later = np.flatnonzero(born["later"] >= 0)
        out[later] = replay.later[name][born["later"][later]]
        return np.where(live["data_epoch"] >= 0, out, -1)
    assert name == "below_in_snapshot"
    return np.zeros(used, np.int8)


def _beside(table: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """A column of a table that only some producers have a row in; the others count 0 and know nothing."""
    out = np.full(len(rows), 0 if name in ZERO_AT_START else -1, table.dtype[name])
    there = np.flatnonzero(rows >= 0)
    out[there] = table[name][rows[there]]
    return out


def rows_of_producers(replay: Replay, wanted: slice = slice(None)) -> np.ndarray:
    """All columns of PRODUCER as rows: what :func:`column` gives, in one pass. Few producers cost no more than one."""
    chosen = range(int(replay.producers.meta[0]))[wanted]
    out = np.empty(len(chosen), PRODUCER)
    if len(out):
        _fill(out, chosen.start, replay)
    return out


@kernel
def _fill(out: np.ndarray, first: int, replay: Replay) -> None:
    p = replay.producers
    for at in range(len(out)):
        row = first + at
        o, known, born, entry = out[at], replay.live[row], replay.born[row], p.entries[row]
        o["producer_id"], o["producer_epoch"] = entry.producer_id, entry.epoch
        o["coordinator_epoch"], o["last_timestamp"] = entry.coordinator_epoch, entry.last_timestamp
        o["txn_first_offset"] = entry.txn_first_offset
        o["last_sequence"], o["last_offset"], o["offset_delta"] = -1, -1, 0
        if entry.cached > 0:
            newest = p.rings[entry.newest, row]
            o["last_sequence"], o["last_offset"] = newest.last_sequence, newest.last_offset
            o["offset_delta"] = newest.offset_delta
        o["batches"] = known["batches"]
        o["records"] = known["records"]
        o["max_epoch"] = known["max_epoch"]
        o["data_epoch"] = known["data_epoch"]
        o["data_last_sequence"] = known["data_last_sequence"]
        o["data_last_offset"] = known["data_last_offset"]
        o["data_timestamp"] = known["data_timestamp"]
        o["data_time"] = known["data_time"]
        o["max_idle_ms"] = known["max_idle_ms"]
        o["transactional"] = known["transactional"]
        o["max_data_epoch"] = known["data_epoch"]
        _fill_first(o, known, born, replay.later)
        _fill_beside(o, known["marked"], born["below"], replay.marked, replay.below)


@kernel
def _fill_first(o: np.void, known: np.void, born: np.void, table: np.ndarray) -> None:
    """What a first batch and what came later left."""
    if known["batches"] > 0:
        o["first_offset"] = born["first_offset"]
        o["first_sequence"] = born["first_sequence"]
        o["first_epoch"] = born["first_epoch"]
        o["first_segment"] = born["first_segment"]
        o["first_position"] = born["first_position"]
        o["first_timestamp"] = born["first_timestamp"]
        o["first_time"] = born["first_time"]
    else:
        o["first_offset"] = -1
        o["first_sequence"] = -1
        o["first_epoch"] = -1
        o["first_segment"] = -1
        o["first_position"] = -1
        o["first_timestamp"] = -1
        o["first_time"] = -1
    o["max_data_epoch_offset"], o["max_data_epoch_time"], o["idle_count"] = o["first_offset"], o["first_time"], 0
    if born["later"] >= 0:
        later = table[born["later"]]
        o["max_data_epoch_offset"], o["max_data_epoch_time"] = (
            later["max_data_epoch_offset"],
            later["max_data_epoch_time"],
        )
        o["idle_count"] = later["idle_count"]
    if known["data_epoch"] < 0:
        o["max_data_epoch_offset"], o["max_data_epoch_time"] = -1, -1


@kernel
def _fill_beside(o: np.void, marked_row: int, below_row: int, marked: np.ndarray, below: np.ndarray) -> None:
    """What only some producers have a row for."""
    o["markers"], o["marker_time"] = 0, -1
    if marked_row >= 0:
        m = marked[marked_row]
        o["markers"], o["marker_time"] = m["markers"], m["time"]
    o["below_in_snapshot"], o["below_batches"] = 0, 0
    if below_row >= 0:
        b = below[below_row]
        o["below_batches"], o["below_last_offset"] = b["batches"], b["last_offset"]
        o["below_last_sequence"], o["below_epoch"] = b["last_sequence"], b["epoch"]
        o["below_timestamp"] = b["timestamp"]
    else:
        o["below_last_offset"], o["below_last_sequence"] = -1, -1
        o["below_epoch"], o["below_timestamp"] = -1, -1
