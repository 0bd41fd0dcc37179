"""When data was written, by brokers' clocks: clients may stamp records with the times of events, however old."""

from __future__ import annotations

import numpy as np

from auditor.rules.named import SKEW_MS
from auditor.rules.view import LogView
from auditor.rules.windows import owner_complete

UNBOUNDED = 1 << 62  # ms; later than any file was copied


def around(log: LogView, producer_id: int, offset: int) -> tuple[int, int]:
    """No earlier and no later than when data at an offset was written, in ms; -1: no bound.

    Markers before and behind it in the leader replica carry a broker's time, and no data is older than the first record
    of its producer id at the coordinator.
    """
    offsets, newest, oldest = _marker_clocks(log)
    before, behind = np.searchsorted(offsets, offset, "left"), np.searchsorted(offsets, offset, "right")
    earliest = max(int(newest[before - 1]) if before else -1, _known_from(log, producer_id))
    return earliest, int(oldest[behind]) if behind < len(offsets) else -1


def at_the_latest(log: LogView, producer_id: int, offset: int, stamp: int) -> int:
    """The time (ms) that a file must have been copied after, to hold what was written before this data.

    That is its stamp, unless what brokers wrote shows that the data is younger: then the marker behind it, and
    :data:`UNBOUNDED` where none is.
    """
    earliest, latest = around(log, producer_id, offset)
    if stamp >= earliest - SKEW_MS:
        return stamp
    return latest if latest >= 0 else UNBOUNDED


def _marker_clocks(log: LogView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The offsets of the leader replica's markers in order, for each the newest time up to it and the oldest from it.

    Worked out once a log: a search for each transaction, and no pass over all markers.
    """
    if "marker_clocks" not in log.cache:
        rows = log.leader.transactions
        rows = rows[(rows["marker_offset"] >= 0) & (rows["marker_timestamp"] >= 0)]
        order = np.argsort(rows["marker_offset"], kind="stable")
        times = rows["marker_timestamp"][order]
        oldest = np.minimum.accumulate(times[::-1])[::-1]
        log.cache["marker_clocks"] = rows["marker_offset"][order], np.maximum.accumulate(times), oldest
    found: tuple[np.ndarray, np.ndarray, np.ndarray] = log.cache["marker_clocks"]
    return found


def _known_from(log: LogView, producer_id: int) -> int:
    """When the coordinator first wrote of a producer id, in ms; -1 where its history is not whole."""
    history = log.cluster.coordinator
    if history is None or not owner_complete(log, producer_id):
        return -1
    owners = history.owners(producer_id)
    return int(owners["first_time"].min()) if len(owners) else -1
