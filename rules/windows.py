"""Which transaction of a coordinator a marker or a stretch of data in a partition belongs to.

Within a partition the markers of a producer come in the order of the coordinator's decisions, so both are matched one
to one in that order, by epoch, result and time; a neighbour's marker never stands in for a missing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from auditor.rules.coordinator_history import SKEW_MS, Named, Window
from auditor.rules.view import LogView, arrived

CLIENT_MS = 250  # from a client's stamp, or the last broker's stamp before a batch, to the record that let it write
NO_CLOCK_MS = 60_000  # a client's stamp that lies farther back than this is no reading of a clock
SAME_CLOCK_MS = 1_000  # two reads of one broker's clock, and a marker's way through its queues


@dataclass(slots=True)
class Matching:
    """The markers of one producer in one partition, matched with the coordinator's transactions that name it.

    ``windows`` in the order of the log; ``of_marker``: marker offset -> number of its window; ``unmarked``: numbers of
    the decided windows that no marker was found for.
    """

    windows: list[Window]
    of_marker: dict[int, int] = field(default_factory=dict)
    unmarked: list[int] = field(default_factory=list)


def skew(log: LogView, partition: int | None) -> int:
    """How far the clocks of a coordinator partition's broker and of this log's leader replica may be apart, in ms."""
    history = log.cluster.coordinator
    broker = None if history is None or partition is None else history.brokers.get(partition)
    same = broker is not None and broker == log.leader.broker_id
    return SAME_CLOCK_MS if same else SKEW_MS


def recorded(log: LogView, partition: int, t: np.void) -> bool:
    """Whether the coordinator's file would hold the record that let a transaction write: it precedes the first batch.

    Clients stamp records before they ask the coordinator, and brokers do not stamp them: that much is allowed for.
    """
    history = log.cluster.coordinator
    assert history is not None
    just_now = t["first_timestamp"] >= t["first_time"] - NO_CLOCK_MS
    needed_by = log.time(t["first_time"]) + (CLIENT_MS if just_now else 0)
    other = skew(log, partition) > SAME_CLOCK_MS
    return arrived(history.times.get(partition, -1), history.clean.get(partition, False), needed_by, other_clock=other)


def owner_complete(log: LogView, producer_id: int) -> bool:
    """Whether the whole history of the id that has this producer id, or of all ids if none has it, is in the input."""
    history = log.cluster.coordinator
    if history is None:
        return False
    owner = history.owner(int(producer_id))
    return history.complete_for_all() if owner is None else history.complete(owner)


def matching(log: LogView, producer_id: int) -> Matching:
    """The matching of one producer, made once a log."""
    made: dict[int, Matching] = log.cache.setdefault("matching", {})
    if producer_id not in made:
        made[producer_id] = _match(log, producer_id)
    return made[producer_id]


def naming(log: LogView) -> Named:
    """What the coordinators wrote of this partition, looked up once a log."""
    if "naming" not in log.cache:
        history = log.cluster.coordinator
        log.cache["naming"] = Named() if history is None else history.named(log.name)
    found: Named = log.cache["naming"]
    return found


def _markers(log: LogView) -> dict[int, list[np.void]]:
    """The markers of every producer in the order of the log, looked up once."""
    if "markers" not in log.cache:
        rows = log.leader.transactions
        by_producer: dict[int, list[np.void]] = {}
        for row in rows[rows["marker_offset"] >= 0]:
            by_producer.setdefault(int(row["producer_id"]), []).append(row)
        log.cache["markers"] = by_producer
    found: dict[int, list[np.void]] = log.cache["markers"]
    return found


def _match(log: LogView, producer_id: int) -> Matching:
    windows = naming(log).windows.get(producer_id, [])
    markers = _markers(log).get(producer_id, [])
    out = Matching(windows)
    # First without any slack: where transactions follow one another within milliseconds, slack takes a neighbour's.
    partition = next((w.decided.partition for w in windows if w.decided is not None), None)
    for slack in (0, skew(log, partition)):
        _pair(out, markers, slack)
        _pair_repeats(out, markers, slack)
    used = set(out.of_marker.values())
    out.unmarked = [n for n, w in enumerate(windows) if w.prepare is not None and n not in used]
    return out


def _pair(out: Matching, markers: list[np.void], slack: int) -> None:
    """Pairs what is left of markers and windows, in the order of both, between the pairs that are there already.

    Cost: one pass over both, since windows that ended ``slack`` ms before a marker are behind for good.
    """
    taken = set(out.of_marker.values())
    ends: list[int] = []  # for each marker the number of the first window behind it that is taken
    limit = len(out.windows)
    for t in reversed(markers):
        limit = out.of_marker.get(int(t["marker_offset"]), limit)
        ends.append(limit)
    at = 0
    for t, end in zip(markers, reversed(ends), strict=True):
        offset, stamp = int(t["marker_offset"]), int(t["marker_timestamp"])
        number = out.of_marker.get(offset, -1)
        while number < 0 and at < end and _over(out.windows[at], stamp - slack):
            at += 1
        for n in range(at, end):
            if number >= 0 or not _begun(out.windows[n], stamp + slack):
                break
            if n not in taken and _fits(out.windows[n], t, slack):
                number = out.of_marker[offset] = n
        at = max(at, number + 1)


def _begun(window: Window, time: int) -> bool:
    return window.prepare is None or window.prepare.time <= time


def _over(window: Window, time: int) -> bool:
    end = window.end_time
    return end is not None and end < time


def _pair_repeats(out: Matching, markers: list[np.void], slack: int) -> None:
    """A marker that was sent again closes nothing and belongs to the window of the one before it."""
    before = -1
    for t in markers:
        offset = int(t["marker_offset"])
        lone = t["first_offset"] < 0 and offset not in out.of_marker and before >= 0
        if lone and _fits(out.windows[before], t, slack):
            out.of_marker[offset] = before
        before = out.of_marker.get(offset, before)


def _fits(window: Window, t: np.void, slack: int) -> bool:
    """Whether a marker can be one of this window's: by epoch, result and the time between decision and completion."""
    decision = window.decided
    if decision is None or bool(t["commit"]) != decision.commit:
        return False
    return _epoch_fits(window, t) and _decided_at(window, t, slack)


def _epoch_fits(window: Window, t: np.void) -> bool:
    return window.prepare is None or bool(t["marker_epoch"] == window.prepare.producer_epoch)


def _decided_at(window: Window, t: np.void, slack: int) -> bool:
    begin = window.prepare.time if window.prepare is not None else window.start_time
    end = window.end_time
    stamp = int(t["marker_timestamp"])
    return begin - slack <= stamp and (end is None or stamp <= end + slack)


def marker_window(log: LogView, t: np.void) -> Window | None:
    """The window that sent this marker, None where none fits or the transaction is open."""
    found = matching(log, int(t["producer_id"]))
    number = found.of_marker.get(int(t["marker_offset"]))
    return None if number is None else found.windows[number]


def contradicting_window(log: LogView, t: np.void) -> Window | None:
    """A window without a marker of its own here, whose decision this unmatched marker denies right in its time."""
    found = matching(log, int(t["producer_id"]))
    if int(t["marker_offset"]) in found.of_marker:
        return None
    for window in unmarked_behind(log, t):
        prepare = window.prepare
        if prepare is None or prepare.commit == bool(t["commit"]) or not _epoch_fits(window, t):
            continue
        if window.client_version >= 2 or _decided_at(window, t, skew(log, prepare.partition)):
            return window
    return None


def own_window(log: LogView, t: np.void) -> Window | None:
    """The transaction that a closed stretch of data belongs to, of those that no marker before its end carried out.

    Goes by the data, whenever and by whomever it was ended: the first transaction behind the marker before it that had
    the partition by then, with the data's epoch. That marker, or one that came later, may be on either result.
    """
    found = matching(log, int(t["producer_id"]))
    carried_out = {n for offset, n in found.of_marker.items() if offset < t["marker_offset"]}
    data_time = log.time(t["first_time"])
    for number, window in enumerate(found.windows):
        decided = window.decided
        if number in carried_out or (carried_out and number < max(carried_out)) or decided is None:
            continue
        entry = window.added.get(log.name)
        if entry is None:  # its Ongoing records are gone; the decision may have raised the epoch (KIP-890, a time-out)
            epochs, begun = {decided.producer_epoch, decided.producer_epoch - 1}, window.start_time
        else:
            epochs, begun = {entry.producer_epoch}, entry.time
        slack = skew(log, decided.partition)
        if int(t["producer_epoch"]) not in epochs or begun < 0:
            continue
        if begun <= min(data_time + SKEW_MS, int(t["marker_timestamp"]) + slack) and data_time <= decided.time + slack:
            return window
    return None


def unmarked_behind(log: LogView, t: np.void) -> list[Window]:
    """Decided windows without a marker here that come behind the marker before this data: markers keep their order.

    Where nobody knows whose that marker is, those remain that ended after it: the cleaner takes the markers of older
    ones away, and the coordinator's log may end before it.
    """
    found = matching(log, int(t["producer_id"]))
    windows = [(n, found.windows[n]) for n in found.unmarked]
    behind = found.of_marker.get(int(t["prev_marker_offset"]))
    if behind is not None or t["prev_marker_offset"] < 0:
        return [w for n, w in windows if behind is None or n > behind]
    return [w for _, w in windows if _may_follow(log, w, int(t["prev_marker_time"]))]


def unmarked_windows(log: LogView) -> list[Window]:
    """Complete windows that name this partition and of which no marker is found in the leader replica."""
    out = []
    for producer_id in naming(log).windows:
        found = matching(log, producer_id)
        windows = (found.windows[n] for n in found.unmarked)
        out += [w for w in windows if w.complete is not None and w.prepare is not None]
    return out


def window_after(log: LogView, t: np.void) -> Window | None:
    """A window of the producer that names the partition and may have allowed this data after the marker before it.

    Closed data belongs to the window of its own marker, if that is a later one than the marker's before. Open data may
    belong to any later window that had the partition by then; stamps of clients may be earlier than the record that
    allowed the batch: that is what the slack is for.
    """
    found = matching(log, int(t["producer_id"]))
    before = found.of_marker.get(int(t["prev_marker_offset"]))
    own = found.of_marker.get(int(t["marker_offset"])) if t["marker_offset"] >= 0 else None
    if own is not None:
        return found.windows[own] if before is None or own > before else None
    data_time = log.time(t["first_time"])
    for number, window in enumerate(found.windows):
        entry = window.added.get(log.name)
        later = number > before if before is not None else _may_follow(log, window, int(t["prev_marker_time"]))
        if not later or entry is None or entry.producer_epoch != t["producer_epoch"]:
            continue
        if entry.time <= data_time + SKEW_MS and number not in found.of_marker.values():
            return window
    return None


def _may_follow(log: LogView, window: Window, marker_time: int) -> bool:
    """Whether the window may come behind a marker of another one: it did not end before it, as far as clocks show."""
    end = window.end_time
    slack = skew(log, None if window.decided is None else window.decided.partition)
    return end is None or end > marker_time - (SKEW_MS if slack > SAME_CLOCK_MS else 0)
