"""When data was written and logs were read, by broker clocks."""

from __future__ import annotations

import numpy as np

from auditor.facts.coordinator_log import StateRecord
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib.log_bounds import cleaned
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster, ReadTimes
from auditor.rules.seen.coordinator_history import SKEW_MS, TransactionWindow
from auditor.rules.seen.view import LogView, once
from auditor.rules.transactions.windows import SAME_CLOCK_MS, owner_complete, skew

# Open transactions by the times at which logs were read, where a copy's manifest has them.
#
# These times only count where nothing in the logs contradicts them. Data is read before its coordinator's log, so a
# transaction that ended in between is open in the one and completed in the other.


def read_of(log: LogView) -> ReadTimes | None:
    """Return when a log was read, None where no copy says it."""
    bounds = log.cluster.bounds.get((log.topic, log.partition))
    return None if bounds is None else bounds.read


def read_behind(cluster: Cluster, log: tuple[str, int], other: tuple[str, int]) -> bool:
    """Whether another log was read after this one by the same clock: it then has the records this one needed."""
    first, then = (bounds.read if (bounds := cluster.bounds.get(place)) else None for place in (log, other))
    return first is not None and then is not None and first.clock == then.clock and first.done <= then.begun


def ended_behind(log: LogView, window: TransactionWindow) -> bool:
    """Whether a transaction completed no sooner than its log was read: its marker may have come after the copy."""
    read, end = read_of(log), window.end_time
    if read is None or end is None or window.complete is None:
        return False
    bounds = log.cluster.bounds.get((TRANSACTION_STATE, window.complete.partition))
    same = bounds is not None and bounds.read is not None and bounds.read.clock == read.clock
    return end >= read.begun + (0 if same else SKEW_MS)


def ended_since(log: LogView, row: np.void, entry: StateRecord, ends: list[TransactionWindow], allowed_ms: int) -> bool:
    """Whether a transaction was open when its log was read and ended afterwards.

    ``entry``: the last record of its id, which does not show it; ``ends``: completed transactions of the id that it may
    be. Either one of them ended after the read, or the cleaner removed the later records of a transaction that is
    within ``allowed_ms``.
    """
    read, bounds = read_of(log), log.cluster.bounds.get((TRANSACTION_STATE, entry.partition))
    coordinators = None if bounds is None else bounds.read
    if read is None or log.cluster.coordinator is None:
        return False
    if any(ended_behind(log, window) for window in ends):
        return True
    same = coordinators is not None and coordinators.clock == read.clock
    young = log.time(row["first_time"]) >= read.begun - allowed_ms
    return same and young and not log.cluster.coordinator.known_since(entry, read.begun)


def open_in_time(log: LogView, entry: StateRecord, begun: int, allowed_ms: int) -> bool:
    """Whether a transaction was within ``allowed_ms`` when its coordinator log was read, after the data. ``begun``:
    ms."""
    coordinators = TRANSACTION_STATE, entry.partition
    bounds = log.cluster.bounds.get(coordinators)
    read = None if bounds is None else bounds.read
    behind = read_behind(log.cluster, (log.topic, log.partition), coordinators)
    return read is not None and behind and read.begun <= begun + allowed_ms


# When data was written, by broker clocks: clients may stamp records with event times, however old.


UNBOUNDED = 1 << 62  # ms; later than any file was copied
CLIENT_MS = 250  # from a client's stamp, or the last broker's stamp before a batch, to the record that let it write


def around(log: LogView, producer_id: int, offset: int) -> tuple[int, int]:
    """Bound when data at an offset was written: earliest and latest, ms; -1: no bound.

    Markers before and after it in the leader replica carry broker times. Data is also no older than the first
    coordinator record of its producer id, and than the checkpoint below which it is not.
    """
    earliest, latest = around_each(log, np.array([producer_id]), np.array([offset]))
    return int(earliest[0]), int(latest[0])


def around_each(log: LogView, producer_ids: np.ndarray, at_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """:func:`around` for many."""
    offsets, newest, oldest = _marker_clocks(log)
    before, behind = offsets.searchsorted(at_offsets, "left"), offsets.searchsorted(at_offsets, "right")
    ids, which = np.unique(producer_ids, return_inverse=True)
    known_from = np.array([_known_from(log, producer_id) for producer_id in ids.tolist()], np.int64)[which]
    entry, written = log.leader.high_watermark, log.cluster.checkpointed.get(log.leader.log_dir, -1)
    checkpointed = np.where(at_offsets >= entry, written, -1) if entry is not None else np.full(len(at_offsets), -1)
    earliest = np.maximum.reduce([np.append(newest, -1)[before - 1], known_from, checkpointed])
    return earliest, np.append(oldest, -1)[behind]


def written_bounds(log: LogView, replica: ReplicaFacts) -> tuple[np.ndarray, np.ndarray]:
    """:func:`around` for the first data of each transaction of a replica; -1 too where it has none."""
    rows = replica.transactions
    bounds = np.full((2, len(rows)), -1)
    data = np.flatnonzero(rows["first_offset"] >= 0)
    if not log.is_gone and replica not in log.of_another and len(data):  # the offsets of the leader replica
        bounds[:, data] = around_each(log, rows["producer_id"][data], rows["first_offset"][data])
    return bounds[0], bounds[1]


def last_seen(log: LogView, replica: ReplicaFacts) -> np.ndarray:
    """Return the earliest time each producer of a replica can have written last, by broker clocks, ms; -1: unknown."""
    rows = replica.producers
    offsets, newest, _ = _marker_clocks(log)
    before = offsets.searchsorted(rows["data_last_offset"], "left")
    return np.maximum(rows["marker_time"], np.append(newest, -1)[before - 1])


def at_the_latest(log: LogView, producer_id: int, offset: int, stamp: int) -> int:
    """Return the time (ms) after which a file must have been copied to hold what was written before this data.

    Its timestamp, unless broker times show that the data is younger: then the marker after it, or :data:`UNBOUNDED` for
    none. A timestamp up to :data:`SKEW_MS` too early may come from a slow clock, and bounds the data by that much.
    """
    earliest, latest = around(log, producer_id, offset)
    if stamp >= earliest:
        return stamp
    bound = stamp + SKEW_MS if stamp >= earliest - SKEW_MS else UNBOUNDED
    return min(bound, latest) if latest >= 0 else bound


def recorded(log: LogView, partition: int, t: np.void) -> bool:
    """Whether the coordinator file would hold the record that let a transaction write: it precedes the first batch.

    Clients stamp records before they ask the coordinator, which :data:`CLIENT_MS` allows for. A marker after the data
    bounds the record's time, however old the timestamps are. Data committed when the broker wrote its checkpoint, or
    read before the coordinator log, proves it without any clock.
    """
    own, entry = (log.topic, log.partition), log.leader.high_watermark
    if read_behind(log.cluster, own, (TRANSACTION_STATE, partition)):
        return True
    if entry is not None and t["first_offset"] < entry and log.cluster.of_one_pass(own, (TRANSACTION_STATE, partition)):
        return True  # the data was committed by then, and so was what let it be written, whatever its stamps say
    stamp = log.time(t["first_time"]) + CLIENT_MS
    written = at_the_latest(log, int(t["producer_id"]), int(t["first_offset"]), stamp)
    needed_by = max(written, int(t["marker_timestamp"]))
    other = skew(log, partition) > SAME_CLOCK_MS
    return not log.cluster.lacks(TRANSACTION_STATE, partition, needed_by, other_clock=other)


@once
def _marker_clocks(log: LogView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Offsets of the leader replica's markers, the newest time up to each and the oldest from each: a search per
    # transaction in place of a pass over all markers.
    rows = log.leader.transactions
    rows = rows[(rows["marker_offset"] >= 0) & (rows["marker_timestamp"] >= 0)]
    order = np.argsort(rows["marker_offset"], kind="stable")
    times = rows["marker_timestamp"][order]
    oldest = np.minimum.accumulate(times[::-1])[::-1]
    return rows["marker_offset"][order], np.maximum.accumulate(times), oldest


def _known_from(log: LogView, producer_id: int) -> int:
    history = log.cluster.coordinator
    if history is None or not owner_complete(log, producer_id):
        return -1
    owners = history.owners(producer_id)
    return int(owners["first_time"].min()) if len(owners) else -1


@once
def began(log: LogView) -> int:
    """Return when the log began, ms by broker clocks; -1: unknown.

    Of a whole log: its first timestamp, corrected by the least lag of markers behind their data, since a client clock
    may be slow. Otherwise no later than the first marker stored or read: timestamps of clients may be any. Unknown too
    where no marker follows its data: a clock may have been set back.
    """
    ended, markers = closed(log), log.leader.transactions
    if log.leader.log_start == 0:
        slow = max(0, int((ended["marker_timestamp"] - ended["last_timestamp"]).min())) if len(ended) else 0
        return log.leader.first_time + slow if log.leader.first_time >= 0 else -1
    markers = markers[markers["marker_offset"] >= log.leader.log_start]
    first = markers["marker_timestamp"][np.argsort(markers["marker_offset"])[:1]]
    return int(first[0]) if len(first) and len(ended) else -1


def closed(log: LogView) -> np.ndarray:
    """Return the leader replica's transactions that have data and a marker."""
    rows = log.leader.transactions
    return rows[(rows["marker_offset"] >= 0) & (rows["first_offset"] >= 0)]


def must_have_marker(log: LogView, window: TransactionWindow, before: int = -1) -> bool:
    """Whether the log reaches back far enough, uncleaned, that it would still have the window's marker.

    ``before``: the offset of the producer's last marker of an earlier decision. If it is stored above everything
    cleaned, the order of both logs decides and no clock is needed.
    """
    prepare, replica = window.prepare, log.leader
    assert prepare is not None
    if replica.unreadable or replica.absent or (replica.text and not replica.live):
        return False
    end, newest = cleaned(log, replica)
    if before >= max(end, 0):
        return True
    begin = window.start_time if window.start_time >= 0 else prepare.time
    first_time = began(log)
    if first_time < 0 or first_time > begin - (0 if replica.log_start == 0 else SKEW_MS):
        return False
    if end <= replica.log_start:
        return True
    times = [time for base, time in zip(replica.segment_bases[1:], replica.segment_times, strict=False) if base <= end]
    return begin > max(newest, *times, -1) + SKEW_MS
