"""Completed transactions whose marker a partition never got, and the later marker that ended their data there.

A coordinator that skips a partition (KAFKA-20734) leaves its data open. Where the application goes on, the marker of
its next transaction ends both; where it does not, somebody may write one by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from auditor.base.advice import Advice
from auditor.base.at_rest import Fields
from auditor.facts.events import Kind
from auditor.model import policies
from auditor.rules.lib.cleaning import whole_from
from auditor.rules.seen.finding import iso
from auditor.rules.seen.memo import once
from auditor.rules.seen.named import SKEW_MS, Window
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.windows import (
    SAME_CLOCK_MS,
    closed_behind,
    marker_window,
    own_window,
    skew,
    unmarked_windows,
)
from auditor.rules.transactions.written_times import around, closed

DEFECT = policies.SKIPS_MARKERS
UNTIL_IT_IS_FIXED = (
    f"It happens again whenever a partition has no live leader as a transaction ends ({DEFECT.issue}, brokers "
    f"{DEFECT.releases}): keep replication.factor at 3, stop one broker at a time, and only while no transaction "
    "is open in its partitions without another in-sync replica, and look for 'likely deleted already and hence can be "
    "skipped' in the coordinators' logs until a release has the fix"
)


def until_it_is_fixed(advice: Advice) -> Advice:
    """An advice that says how it is kept from happening again."""
    return replace(advice, then=f"{advice.then}. {UNTIL_IT_IS_FIXED}" if advice.then else UNTIL_IT_IS_FIXED)


@dataclass(frozen=True, slots=True)
class Ended:
    """Data of ``window``, whose own marker never came, that the marker of ``row`` (TRANSACTION) ended.

    ``by``: the later transaction whose marker that is; None for one that no coordinator decided. ``doubt``: its own
    marker may have come before the data, and gone with what retention deleted.
    """

    window: Window
    row: np.void
    by: Window | None
    doubt: bool = False

    @property
    def as_decided(self) -> bool:
        """Whether that marker has the result that was decided."""
        return self.window.prepare is not None and self.window.prepare.commit == bool(self.row["commit"])

    @property
    def sure(self) -> bool:
        """Whether epochs tell whose data it is; before transaction.version 2 only times do."""
        return self.window.client_version >= 2 and self._first

    @property
    def _first(self) -> bool:
        """Whether the data begins with this transaction's, not with that of one before it that was skipped as well."""
        prepare = self.window.prepare
        by_epoch = self.window.client_version >= 2 and prepare is not None
        return not by_epoch or prepare is None or self.row["producer_epoch"] == prepare.producer_epoch - 1

    @property
    def span(self) -> tuple[int, int]:
        """First and last offset of the data: the last one of both transactions' where they have the same epoch."""
        t = self.row
        if not self._first:
            return int(t["risen_offset"]), int(t["last_offset"])
        return int(t["first_offset"]), int(t["risen_behind"] if t["risen_offset"] >= 0 else t["last_offset"])

    @property
    def alone(self) -> bool:
        """Whether all within :attr:`span` is of this transaction."""
        return self._first and (self.by is None or bool(self.row["risen_offset"] >= 0))

    def evidence(self) -> Fields:
        """What was ended, and by what."""
        t, prepare = self.row, self.window.prepare
        first, last = self.span
        return {
            "expected": None if prepare is None else "COMMIT" if prepare.commit else "ABORT",
            "marker": "COMMIT" if t["commit"] else "ABORT",
            "marker_offset": t["marker_offset"],
            "marker_epoch": t["marker_epoch"],
            "transaction_first_offset": first,
            "data_offsets": [first, last],
            "records": (t["risen_records"] if t["risen_offset"] >= 0 else t["records"]) if self.alone else None,
            "next_first_offset": t["risen_offset"] if self.alone and t["risen_offset"] >= 0 else None,
            "ended_by": "nobody's decision" if self.by is None else "the marker of a later transaction",
            "ended_by_prepare_offset": None if self.by is None or self.by.prepare is None else self.by.prepare.offset,
            "prepare_offset": None if prepare is None else prepare.offset,
            "complete_offset": None if self.window.complete is None else self.window.complete.offset,
            "decided": None if prepare is None else iso(prepare.time),
            "confidence": "proved" if self.sure else "likely",
        }

    def data(self) -> str:
        """Its data in words."""
        first, last = self.span
        if self.alone:
            return f"offset {first}" if first == last else f"offsets {first} to {last}"
        return f"offset {first} on (with what its next transaction wrote, to {last})"


@once
def ended_by_another(log: LogView) -> dict[tuple[int, int, int], Ended]:
    """Of completed transactions without a marker here, those whose data a later marker ended, by :func:`key`.

    Not where an offset is missing in the marker's place, or bytes could not be read: it was there then, and is lost.
    The log need not reach back to before the transaction, whose data shows that it does. Made once a log.
    """
    found: dict[tuple[int, int, int], Ended] = {}
    leader = log.leader
    broken = leader.unreadable or leader.absent or (leader.text and not leader.live)
    for window, between in () if broken else unmarked_windows(log):
        t = closed_behind(log, window.producer_id, between[0])
        if t is None or t["marker_offset"] > between[1] or _was_there(log, between, t):
            continue
        by = marker_window(log, t)
        if _is_its(log, window, t, by) and (was := _was_open(log, window, between, t)) is not None:
            found[key(window)] = Ended(window, t, by, doubt=not was)
    return found


def key(window: Window) -> tuple[int, int, int]:
    """What tells a prepared transaction from all others."""
    assert window.prepare is not None
    return window.producer_id, window.prepare.partition, window.prepare.offset


def as_decided_after_all(log: LogView, t: np.void) -> bool:
    """Whether a marker that no decision sent did what one had decided, whose own marker never came."""
    return int(t["marker_offset"]) in _late_ends(log)


@once
def _late_ends(log: LogView) -> set[int]:
    ended = ended_by_another(log).values()
    return {int(e.row["marker_offset"]) for e in ended if e.by is None and e.as_decided}


def _is_its(log: LogView, window: Window, t: np.void, by: Window | None) -> bool:
    """Whether a closed stretch begins with the data of a transaction that its marker was not sent for.

    Under transaction.version 2 epochs tell. Before it the data's times do: they lie before the next transaction had
    the partition, and not behind this one's decision.
    """
    prepare = window.prepare
    assert prepare is not None
    if by is None and not _may_end_by_hand(prepare.producer_epoch, window, t):
        return False
    if window.client_version >= 2:
        below = by is None or by.prepare is None or prepare.producer_epoch < by.prepare.producer_epoch
        return below and bool(t["producer_epoch"] < prepare.producer_epoch <= t["last_epoch"] + 1)
    own = own_window(log, t)
    if own is None or own.prepare is None or key(own) != key(window) or t["first_offset"] < whole_from(log):
        return False
    began = log.time(t["first_time"])
    return by is None or (by.added is not None and began < by.added.time and began <= prepare.time + SAME_CLOCK_MS)


def _was_open(log: LogView, window: Window, between: tuple[int, int], t: np.void) -> bool | None:
    """Whether data was there before the decision of a transaction that it may be of: surely, perhaps (False) or not
    (None).

    Where an earlier marker of its producer is left, or the log's beginning, the decision's own would be there too, and
    nobody asks. Of what retention left behind that it is another transaction's, unless it was there by then: by a
    marker of anyone behind it, or by its stamps, as slow as its producer's clock can be.
    """
    prepare, start = window.prepare, log.leader.log_start
    assert prepare is not None
    if start <= 0 or between[0] >= start or window.client_version >= 2:
        return True
    apart = skew(log, prepare.partition)
    apart = 0 if apart <= SAME_CLOCK_MS else apart
    _, latest = around(log, window.producer_id, int(t["first_offset"]))
    began, mine = log.time(t["first_time"]), closed(log)
    mine = mine[mine["producer_id"] == window.producer_id]
    slow = max(0, int((mine["marker_timestamp"] - mine["last_timestamp"]).min(initial=1 << 62)))
    if 0 <= latest <= prepare.time - apart or began + slow <= prepare.time - apart:
        return True
    return False if began <= prepare.time else None


def _may_end_by_hand(epoch: int, window: Window, t: np.void) -> bool:
    """Whether a marker has the decision's epoch, or is an abort with the data's, as kafka-transactions.sh writes it."""
    of_data = not t["commit"] and t["marker_epoch"] == t["last_epoch"] and window.client_version >= 2
    return bool(t["marker_epoch"] == epoch or of_data)


def _was_there(log: LogView, between: tuple[int, int], t: np.void) -> bool:
    """Whether a single offset is missing where the marker should be, behind the data's beginning."""
    low, high = np.searchsorted(_single_holes(log), [max(between[0], int(t["first_offset"])), between[1]])
    return bool(low < high)


@once
def _single_holes(log: LogView) -> np.ndarray:
    holes = ((int(e["first_missing_offset"]), int(e["base_offset"])) for e in log.events(Kind.OFFSET_HOLE))
    return np.array(sorted(at for at, behind in holes if at + 1 == behind), np.int64)


def of_the_defect(log: LogView, windows: Iterable[Window]) -> Fields | None:
    """For the evidence: that the coordinator completed one of these while nobody led this partition, which brokers with
    the defect do instead of waiting for a leader. None where that is not so."""
    history = log.cluster.coordinator
    for window in windows:
        done = window.complete
        broker = None if history is None or done is None else history.brokers.get(done.partition)
        if done is None or not log.cluster.release(broker).may_have(DEFECT):
            continue
        for gone in log.cluster.leaderless.get((log.topic, log.partition), ()):
            if gone.since <= done.record_time + SKEW_MS and (gone.until is None or done.record_time <= gone.until):
                return {
                    "known_defect": DEFECT.issue,
                    "completed": iso(done.record_time),
                    "no_leader_from": iso(gone.since),
                    "no_leader_until": None if gone.until is None else iso(gone.until),
                }
    return None


def defect_in_words(log: LogView) -> str:
    """What the defect did."""
    return (
        f"Its coordinator completed it while {log.name} had no leader, and sent no marker there: brokers "
        f"{DEFECT.releases} take such a partition for a deleted one ({DEFECT.issue})"
    )
