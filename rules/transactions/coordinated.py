"""Transactions of the coordinators' logs."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from auditor.base.advice import Advice
from auditor.base.at_rest import Fields
from auditor.base.errors import LAST_EPOCH
from auditor.evidence.cluster_clocks import BrokerTime, Order
from auditor.facts.coordinator_history import (
    SKEW_MS,
    CoordinatorHistory,
    TransactionEnds,
    TransactionWindow,
    ends_of,
    first_rows,
    last_rows,
)
from auditor.facts.coordinator_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    TOMBSTONE,
    Columns,
    CoordinatorLog,
    Damaged,
    StateRecord,
    gaps_before,
    split,
    tally,
    windows_of,
)
from auditor.facts.events import EventKind
from auditor.model import policies
from auditor.model.transaction_states import (
    EXHAUSTED_EPOCH,
    NO_TIMESTAMP,
    CachedTransaction,
    IdAccount,
    Judgement,
    TransactionState,
    TransactionValue,
    step_problem,
    value_problem,
)
from auditor.rules.lib.evidence import CONSUMER_OFFSETS, watched
from auditor.rules.lib.log_bounds import whole_from
from auditor.rules.seen.cluster_view import OpenHere
from auditor.rules.seen.view import LogView, iso, once
from auditor.rules.transactions.making import around, closed, open_transactions
from auditor.transactions.matching import (
    SAME_CLOCK_MS,
    closed_behind,
    marker_window,
    naming,
    own_window,
    skew,
    unmarked_windows,
    windows_of_markers,
)
from auditor.transactions.record import ITS_COORDINATORS

# Transactions by the coordinators' logs, for transaction-abort-rate and the table coordinated_transactions.


CLIENT, TIMEOUT, FENCED, OPERATOR, COORDINATOR = "client", "timeout", "fenced", "operator", "coordinator"
OPERATORS_TIMEOUT_MS = 1  # what Admin.fenceProducers asks an id's next producer for
# What the partitions' logs add to a transaction, by its producer id and the offset of its first record that is left.
BRANCH = np.dtype(
    [("producer_id", "i8"), ("offset", "i8"), ("logs", "i8"), ("batches", "i8"), ("records", "i8"), ("bytes", "i8")]
)


class Transactions(NamedTuple):
    """The transactions of one piece of a coordinator log, as row numbers of the piece (-1: no such record).

    ``starts``: the first record still stored; ``forced``: whether the coordinator itself aborted the transaction.
    """

    starts: np.ndarray
    ongoing: np.ndarray
    ends: TransactionEnds
    forced: np.ndarray


def transactions(columns: Columns, damaged: Damaged | None = None) -> Transactions:
    """Find the transactions of a piece, in log order. ``damaged``: batches of the log whose records are lost."""
    numbers = windows_of(columns, damaged)
    starts = np.flatnonzero((numbers >= 0) & (np.append(-1, numbers[:-1])[: len(numbers)] != numbers))
    inside = numbers >= 0
    ends = ends_of(columns, starts, inside)
    ongoing = last_rows(starts, columns["state"] == ONGOING)
    return Transactions(starts, ongoing, ends, _forced(columns, starts, ends.prepare))


def _forced(columns: Columns, starts: np.ndarray, prepare: np.ndarray) -> np.ndarray:
    # The epoch rises from the record before to the abort: by one, or by two where each end bumps it (KIP-890).
    before = np.maximum(prepare - 1, -1)
    in_transaction = (prepare >= 0) & (before >= starts)
    state, version = columns["state"], columns["client_version"] >= 2
    failed = in_transaction & (state[before] != ONGOING)  # a decision whose append failed
    least = 1 + version[prepare] - (failed & version[before])
    rise = columns["producer_epoch"][prepare] - columns["producer_epoch"][before]
    same = columns["producer_id"][prepare] == columns["producer_id"][before]
    return in_transaction & same & (state[prepare] == PREPARE_ABORT) & (rise >= least)


def decisions(state_log: CoordinatorLog) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count per id the decided transactions, the aborted ones, and those aborted by the coordinator.

    A decision followed by another record of its transaction failed to append and is not counted.
    """
    decided, aborted, forced = (np.zeros(state_log.id_count, np.int64) for _ in range(3))
    for columns in state_log.all_pieces():
        piece = transactions(columns, state_log.damaged)
        ids, prepare = columns["id"][piece.starts], piece.ends.prepare
        abort = (prepare >= 0) & (columns["state"][prepare] == PREPARE_ABORT)
        tally(decided, ids[prepare >= 0])
        tally(aborted, ids[abort])
        tally(forced, ids[piece.forced])
    return decided, aborted, forced


def begun(columns: Columns, piece: Transactions) -> np.ndarray:
    """Return when each transaction began by the coordinator's clock (ms; -1: unknown)."""
    times = columns["start"][piece.starts]
    first = first_rows(piece.starts, columns["state"] == ONGOING)
    update_time = np.where(columns["last_update"] >= 0, columns["last_update"], columns["record_time"])
    return np.where((times < 0) & (first >= 0), update_time[first], times)


def decided_by(columns: Columns, piece: Transactions, began: np.ndarray) -> list[str | None]:
    """Tell who decided each transaction.

    The client, the coordinator after the timeout, another instance of the id (fenced), or an operator
    (Admin.fenceProducers). None where it is open or the log no longer shows it.
    """
    prepare, complete = piece.ends.prepare, piece.ends.complete
    commit = piece.ends.decision == 1
    has_records = (prepare >= 0) & (prepare > piece.starts)
    timeout = columns["timeout_ms"][prepare]
    waited = columns["last_update"][prepare] - began
    late = (began >= 0) & (timeout > 0) & (waited >= timeout)
    last = np.maximum(prepare, complete)
    after = np.minimum(last + 1, len(columns["id"]) - 1)
    same = (after > last) & (columns["id"][after] == columns["id"][last])
    asked = same & (columns["state"][after] == EMPTY) & (columns["timeout_ms"][after] == OPERATORS_TIMEOUT_MS)
    forced = piece.forced
    choices = [commit | (has_records & ~forced), forced & late, forced & asked, forced & (began >= 0), forced]
    names = [CLIENT, TIMEOUT, OPERATOR, FENCED, COORDINATOR, None]
    return [names[n] for n in np.select(choices, range(len(choices)), len(choices)).tolist()]


class Share(NamedTuple):
    """What one log adds to the transactions of one partition of ``__transaction_state``.

    ``at``: cluster, broker and log directory of the leader replica, set for the coordinator log itself alone;
    ``groups``: the consumer groups whose offsets a transaction commits, by producer id and first offset.
    """

    at: tuple[str | None, int | None, str] | None
    branches: np.ndarray
    groups: dict[tuple[int, int], list[str]]


@once
def windows_of_rows(log: LogView) -> np.ndarray:
    """Return for each transaction of the leader replica its row in ``naming(log).rows``, -1 for none."""
    window_rows, named = windows_of_markers(log), naming(log).rows
    if not len(named):
        return window_rows
    places = {
        (int(row["producer_id"]), int(row["first_offset"])): number
        for number, row in enumerate(log.leader.transactions)
        if row["marker_offset"] < 0
    }
    for t in open_transactions(log) if places else ():
        span = naming(log).of(int(t.row["producer_id"]))
        if t.case in ITS_COORDINATORS and span.stop > span.start and not named["has_complete"][span.stop - 1]:
            window_rows[places[int(t.row["producer_id"]), int(t.row["first_offset"])]] = span.stop - 1
    return window_rows


def keys(log: LogView) -> list[str | None]:
    """Return the key that joins each transaction of the leader replica with ``coordinated_transactions``."""
    rows = naming(log).rows
    return [
        None if n < 0 else transaction_key(int(rows["producer_id"][n]), int(rows["offset"][n]))
        for n in windows_of_rows(log).tolist()
    ]


def begun_at(log: LogView) -> np.ndarray:
    """Return when each transaction of the leader replica began by the coordinator's clock, ms; -1 where unknown."""
    return np.append(naming(log).rows["begun"], -1)[windows_of_rows(log)]


def transaction_key(producer_id: int, offset: int) -> str:
    """Name a transaction. Its start time is not unique: a fast broker begins two of one producer in a millisecond."""
    return f"{producer_id}:{offset}"


def shares(log: LogView) -> Iterator[tuple[int, Share]]:
    """Yield what a log adds to transactions, by the partition of ``__transaction_state`` that has them."""
    history = log.cluster.coordinator
    if history is None:
        return
    if log.topic == "__transaction_state":
        c = log.leader
        yield log.partition, Share((c.cluster_id, c.broker_id, c.log_dir), np.empty(0, BRANCH), {})
        return
    window_rows = windows_of_rows(log)
    which = np.flatnonzero(window_rows >= 0)
    if not len(which):
        return
    windows, rows = naming(log).rows[window_rows[which]], log.leader.transactions[which]
    groups = _groups(log, rows)
    partitions = _coordinators(log, windows)
    for partition in np.unique(partitions).tolist():
        inside = np.flatnonzero(partitions == partition)
        yield partition, Share(None, _branches(windows[inside], rows[inside]), _by_key(windows[inside], inside, groups))


def _branches(windows: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros(len(rows), BRANCH)
    out["producer_id"], out["offset"], out["logs"] = windows["producer_id"], windows["offset"], 1
    for name in ("batches", "records", "bytes"):
        out[name] = rows[name]
    return summed(out, logs=False)


def summed(branches: np.ndarray, *, logs: bool = True) -> np.ndarray:
    """Sum branches to one row per transaction; ``logs``: whether the rows come from different logs."""
    order = np.lexsort((branches["offset"], branches["producer_id"]))
    rows = branches[order]
    new = np.ones(len(rows), bool)
    new[1:] = (rows["producer_id"][1:] != rows["producer_id"][:-1]) | (rows["offset"][1:] != rows["offset"][:-1])
    starts = np.flatnonzero(new)
    out = rows[starts]
    for name in ("logs", "batches", "records", "bytes") if len(starts) else ():
        if logs or name != "logs":
            out[name] = np.add.reduceat(rows[name], starts)
    return out


def _coordinators(log: LogView, windows: np.ndarray) -> np.ndarray:
    named, history = naming(log), log.cluster.coordinator
    assert history is not None
    out = np.full(len(windows), -1)
    rows = np.maximum.reduce([windows[name] for name in ("first_row", "prepare_row", "ongoing_row", "added_row")])
    for chunk in np.unique(windows["chunk"]).tolist():
        in_chunk = windows["chunk"] == chunk
        source, columns = named.chunks[chunk]
        if source is history.shared:
            out[in_chunk] = source.first_partitions()[columns["id"][rows[in_chunk]]]
        else:
            out[in_chunk] = columns["partition"][rows[in_chunk]]
    return out


def _groups(log: LogView, rows: np.ndarray) -> list[list[str]]:
    # By the first and last commit of each producer for a group, in transactions that were not aborted.
    if log.topic != CONSUMER_OFFSETS:
        return []
    of: dict[int, list[tuple[str, int, int]]] = {}
    for group, producers in watched(log).committers.items():
        for producer_id, (first, last) in producers.items():
            of.setdefault(producer_id, []).append((group, first.record_offset, last.record_offset))
    out = []
    for row in rows:
        writers = of.get(int(row["producer_id"]), []) if row["records"] > 0 else []
        begin, end = int(row["first_offset"]), int(row["last_offset"])
        inside = [group for group, first, last in writers if len(writers) == 1 or (first <= end and last >= begin)]
        out.append(sorted(inside))
    return out


def _by_key(windows: np.ndarray, which: np.ndarray, groups: list[list[str]]) -> dict[tuple[int, int], list[str]]:
    groups_by_key: dict[tuple[int, int], list[str]] = {}
    for window, number in zip(windows, which.tolist(), strict=True) if groups else ():
        if groups[number]:
            groups_by_key.setdefault((int(window["producer_id"]), int(window["offset"])), []).extend(groups[number])
    return groups_by_key


# Completed transactions without a marker in a partition, and the later marker that ended their data there.
#
# A coordinator that skips a partition (KAFKA-20734) leaves its data open. The marker of the application's next
# transaction then ends both, or an operator writes one by hand.


DEFECT = policies.SKIPS_MARKERS
UNTIL_IT_IS_FIXED = (
    f"It happens again whenever a partition has no live leader as a transaction ends ({DEFECT.issue}, brokers "
    f"{DEFECT.releases}): keep replication.factor at 3, stop one broker at a time, and only while no transaction "
    "is open in its partitions without another in-sync replica, and look for 'likely deleted already and hence can be "
    "skipped' in the coordinators' logs until a release has the fix"
)


def until_it_is_fixed(advice: Advice) -> Advice:
    """Add to an advice how to keep the defect from recurring."""
    return replace(advice, then=f"{advice.then}. {UNTIL_IT_IS_FIXED}" if advice.then else UNTIL_IT_IS_FIXED)


@dataclass(frozen=True, slots=True)
class Ended:
    """Data of ``window``, whose own marker is missing, that the marker of ``row`` (TRANSACTION) ended.

    ``by``: the later transaction that sent this marker; None if no coordinator decided it. ``doubt``: the own marker
    may have been written before the data, and deleted by retention.
    """

    window: TransactionWindow
    row: np.void
    by: TransactionWindow | None
    doubt: bool = False

    @property
    def as_decided(self) -> bool:
        """Whether the marker has the result that was decided."""
        return self.window.prepare is not None and self.window.prepare.commit == bool(self.row["commit"])

    @property
    def sure(self) -> bool:
        """Whether epochs prove whose data it is; before transaction.version 2 only times do."""
        return self.window.client_version >= 2 and self._first

    @property
    def _first(self) -> bool:
        # Whether the data begins with this transaction, not with a skipped one before it.
        prepare = self.window.prepare
        by_epoch = self.window.client_version >= 2 and prepare is not None
        return not by_epoch or prepare is None or self.row["producer_epoch"] == prepare.producer_epoch - 1

    @property
    def span(self) -> tuple[int, int]:
        """First and last offset of the data; the last of both transactions where they share an epoch."""
        t = self.row
        if not self._first:
            return int(t["risen_offset"]), int(t["last_offset"])
        return int(t["first_offset"]), int(t["risen_behind"] if t["risen_offset"] >= 0 else t["last_offset"])

    @property
    def alone(self) -> bool:
        """Whether all data within :attr:`span` is of this transaction."""
        return self._first and (self.by is None or bool(self.row["risen_offset"] >= 0))

    def evidence(self) -> Fields:
        """Return the evidence: what was ended, and by which marker."""
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
        """Name the data's offsets in words."""
        first, last = self.span
        if self.alone:
            return f"offset {first}" if first == last else f"offsets {first} to {last}"
        return f"offset {first} on (with what its next transaction wrote, to {last})"


@once
def ended_by_another(log: LogView) -> dict[tuple[int, int, int], Ended]:
    """Find completed transactions without a marker here whose data a later marker ended, by :func:`skipped_key`.

    Skipped where an offset is missing in the marker's place or bytes could not be read: the marker was there and is
    lost. The log need not reach back to before the transaction: its data shows that it does. Computed once per log.
    """
    by_key: dict[tuple[int, int, int], Ended] = {}
    leader = log.leader
    broken = leader.unreadable or leader.absent or (leader.text and not leader.live)
    for window, between in () if broken else unmarked_windows(log):
        t = closed_behind(log, window.producer_id, between[0])
        if t is None or t["marker_offset"] > between[1] or _marker_was_there(log, between, t):
            continue
        by = marker_window(log, t)
        if _is_its(log, window, t, by) and (was := _was_open(log, window, between, t)) is not None:
            by_key[skipped_key(window)] = Ended(window, t, by, doubt=not was)
    return by_key


def skipped_key(window: TransactionWindow) -> tuple[int, int, int]:
    """Identify a prepared transaction."""
    assert window.prepare is not None
    return window.producer_id, window.prepare.partition, window.prepare.offset


def as_decided_after_all(log: LogView, t: np.void) -> bool:
    """Whether a marker without a decision carried out one whose own marker is missing."""
    return int(t["marker_offset"]) in _late_ends(log)


@once
def _late_ends(log: LogView) -> set[int]:
    ended = ended_by_another(log).values()
    return {int(e.row["marker_offset"]) for e in ended if e.by is None and e.as_decided}


def _is_its(log: LogView, window: TransactionWindow, t: np.void, by: TransactionWindow | None) -> bool:
    # Whether a closed stretch begins with data of a transaction that its marker was not sent for. Under
    # transaction.version 2 epochs tell; before it the data's times do: before the next transaction added the partition,
    # and not after this one's decision.
    prepare = window.prepare
    assert prepare is not None
    if by is None and not _may_end_by_hand(prepare.producer_epoch, window, t):
        return False
    if window.client_version >= 2:
        below = by is None or by.prepare is None or prepare.producer_epoch < by.prepare.producer_epoch
        return below and bool(t["producer_epoch"] < prepare.producer_epoch <= t["last_epoch"] + 1)
    own = own_window(log, t)
    if (
        own is None
        or own.prepare is None
        or skipped_key(own) != skipped_key(window)
        or t["first_offset"] < whole_from(log)
    ):
        return False
    began = log.time(t["first_time"])
    return by is None or (by.added is not None and began < by.added.time and began <= prepare.time + SAME_CLOCK_MS)


def _was_open(log: LogView, window: TransactionWindow, between: tuple[int, int], t: np.void) -> bool | None:
    # Whether the data was there before the decision of a transaction that it may be of: True, False (perhaps) or None
    # (no). An earlier marker of the producer, or the log start, proves it: the decision's own marker would then be
    # stored too. Otherwise retention may have deleted it; the data counts only if a marker behind it, or its stamps
    # corrected for a slow client clock, place it before the decision.
    prepare, start = window.prepare, log.leader.log_start
    assert prepare is not None
    if start <= 0 or between[0] >= start or window.client_version >= 2:
        return True
    apart = skew(log, prepare.partition)
    apart = 0 if apart <= SAME_CLOCK_MS else apart
    _, latest = around(log, window.producer_id, int(t["first_offset"]))
    began, producer_rows = log.time(t["first_time"]), closed(log)
    producer_rows = producer_rows[producer_rows["producer_id"] == window.producer_id]
    slow = max(0, int((producer_rows["marker_timestamp"] - producer_rows["last_timestamp"]).min(initial=1 << 62)))
    if 0 <= latest <= prepare.time - apart or began + slow <= prepare.time - apart:
        return True
    return False if began <= prepare.time else None


def _may_end_by_hand(epoch: int, window: TransactionWindow, t: np.void) -> bool:
    # kafka-transactions.sh writes an abort with the epoch of the data.
    of_data = not t["commit"] and t["marker_epoch"] == t["last_epoch"] and window.client_version >= 2
    return bool(t["marker_epoch"] == epoch or of_data)


def _marker_was_there(log: LogView, between: tuple[int, int], t: np.void) -> bool:
    # A single offset missing there was the marker.
    low, high = np.searchsorted(_single_holes(log), [max(between[0], int(t["first_offset"])), between[1]])
    return bool(low < high)


@once
def _single_holes(log: LogView) -> np.ndarray:
    holes = log.events(EventKind.OFFSET_HOLE)
    single = [e["base_offset"] for e in holes if e["first_missing_offset"] + 1 == e["base_offset"]]
    return np.array(sorted(single), np.int64) - 1


def of_the_defect(log: LogView, windows: Iterable[TransactionWindow]) -> Fields | None:
    """Return evidence that the coordinator completed one of these while the partition had no leader (KAFKA-20734).

    None where it did not. Brokers with the defect do so instead of waiting for a leader.
    """
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
    """Describe what the defect did."""
    return (
        f"Its coordinator completed it while {log.name} had no leader, and sent no marker there: brokers "
        f"{DEFECT.releases} take such a partition for a deleted one ({DEFECT.issue})"
    )


# The records of one partition of ``__transaction_state``, by column: only odd ones become objects.


TOPIC = "__transaction_state"
OFFSETS = "__consumer_offsets-"
AT_HAND = 2_000  # odd records or steps that are kept for the next rule
Found = TypeVar("Found")


def records(log: LogView) -> CoordinatorLog | None:
    """Return the records of this partition of ``__transaction_state``; None for other logs."""
    history = log.cluster.coordinator
    return history.logs.get(log.partition) if log.topic == TOPIC and history is not None else None


def value(entry: StateRecord) -> TransactionValue | None:
    """Convert a record to the model's value, None for a tombstone."""
    if entry.state is None:
        return None
    return TransactionValue(
        entry.producer_id,
        entry.producer_epoch,
        entry.timeout_ms,
        TransactionState(entry.state),
        entry.partitions,
        entry.start,
        entry.last_update,
        client_tv=entry.client_version,
    )


def cached(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> Iterable[Found]:
    """Return what several rules ask for: cached if it is at most :data:`AT_HAND` items, otherwise found again."""
    cached = _at_hand(log, find)
    return find(log) if cached is None else cached


@once
def _at_hand(log: LogView, find: Callable[[LogView], Iterator[Found]]) -> list[Found] | None:
    first = list(itertools.islice(find(log), AT_HAND + 1))
    return first if len(first) <= AT_HAND else None


def unsound_records(log: LogView) -> Iterable[tuple[StateRecord, list[str]]]:
    """Return records that are unsound by themselves, with their problems, including states that are never written."""
    return cached(log, _unsound_of_log)


def _unsound_of_log(log: LogView) -> Iterator[tuple[StateRecord, list[str]]]:
    state_log = records(log)
    return iter(()) if state_log is None else _unsound_in(state_log, log.leader.log_start)


def _unsound_in(state_log: CoordinatorLog, log_start: int) -> Iterator[tuple[StateRecord, list[str]]]:
    for columns in state_log.all_pieces():
        state, start = columns["state"], columns["start"]
        idle = (state == EMPTY) | ((state > PREPARE_ABORT) & (state <= COMPLETE_ABORT))
        odd = (columns["producer_id"] < 0) | (columns["producer_epoch"] < 0) | (state > COMPLETE_ABORT)
        odd |= idle & (state_log.set_sizes(columns["set"]) > 0)
        odd |= (start == NO_TIMESTAMP) & (state != EMPTY)
        odd &= (state != TOMBSTONE) & (columns["offset"] >= log_start)
        for entry in state_log.entries(columns, np.flatnonzero(odd)):
            stored = value(entry) if entry.state in STATES else None
            problems = ["state_never_written"] if stored is None else value_problem(stored)
            if entry.start < 0 and entry.record_time < 0:  # old text dumps print no start
                problems = [p for p in problems if p != "start_missing"]
            if problems:
                yield entry, problems


@once
def last_records(log: LogView) -> tuple[Columns, np.ndarray]:
    """Return the last judged record of each id, as columns by id, and which ids have one; no ids for other logs."""
    state_log = records(log)
    none: tuple[Columns, np.ndarray] = ({}, np.empty(0, bool))
    return none if state_log is None else state_log.last_rows(log.leader.log_start)


def commit_offsets(state_log: CoordinatorLog, log_start: int) -> np.ndarray:
    """Find the ids with a judged record that names a partition of ``__consumer_offsets``."""
    topics = [number for number, topic in enumerate(state_log.topics) if (topic + "-").startswith(OFFSETS)]
    ends, elements = state_log.sets
    having = np.zeros(len(ends), bool)
    having[np.searchsorted(ends, np.flatnonzero(np.isin(elements >> 32, topics)), side="right")] = True
    out = np.zeros(state_log.id_count, bool)
    for columns in state_log.all_pieces():
        out[columns["id"][having[columns["set"]] & (columns["offset"] >= log_start)]] = True
    return out


def producer_runs(state_log: CoordinatorLog, log_start: int) -> np.ndarray:
    """Find where judged records of an id change to another producer id: rows of id, producer id, piece, row."""
    out = [np.empty((0, 4), np.int64)]
    last_id, last_producer = -1, 0
    for number in range(len(state_log.pieces)):
        columns = state_log.piece(number)
        rows = np.flatnonzero((columns["state"] != TOMBSTONE) & (columns["offset"] >= log_start))
        ids, producers = columns["id"][rows], columns["producer_id"][rows]
        new = np.append(last_id, ids[:-1])[: len(ids)] != ids
        new |= np.append(last_producer, producers[:-1])[: len(ids)] != producers
        out.append(np.stack([ids[new], producers[new], np.full(int(new.sum()), number), rows[new]], axis=1))
        if len(ids):
            last_id, last_producer = int(ids[-1]), int(producers[-1])
    return np.concatenate(out)


def raised(columns: Columns) -> np.ndarray:
    """Return rows whose epoch is above the id's previous record, except where its own transaction ended."""
    state, epoch = columns["state"][1:], columns["producer_epoch"]
    ended = (state == PREPARE_ABORT) & (columns["client_version"][1:] < 2)
    same = (columns["id"][1:] == columns["id"][:-1]) & (columns["producer_id"][1:] == columns["producer_id"][:-1])
    return np.flatnonzero(same & ((state == EMPTY) | ended) & (epoch[1:] > epoch[:-1])) + 1


def last_entries(log: LogView, *states: int) -> Iterator[StateRecord]:
    """Yield the last record of each id of this partition that is in one of these states."""
    (columns, has_record), state_log = last_records(log), records(log)
    if state_log is not None:
        yield from state_log.entries(columns, np.flatnonzero(has_record & np.isin(columns["state"], states)))


# The records of each id, one after the other, judged by the model's account of an id (IdAccount).
#
# The model judges each kind of step once: steps that agree in all its inputs are of one kind, and a sound log of ten
# million records has some dozens. Where a record does not follow the one before it, the account is replayed from the
# last record before which nothing matters.


KIND_BITS = 23  # of a number of _kinds
LATEST = 64  # records of an id that matter for what its coordinator may have in memory


class StateStep(NamedTuple):
    """A record that does not follow the previous one: its problems, or the earlier records now known to have failed."""

    old: StateRecord
    new: StateRecord
    problems: list[str]
    failed: tuple[StateRecord, ...] = ()


def steps(log: LogView) -> Iterable[StateStep]:
    """Return intact records of each id that follow no state their coordinator can have had in memory."""
    return cached(log, _problems)


def _problems(log: LogView) -> Iterator[StateStep]:
    return (step for step in cached(log, _all) if step.problems)


def resumed(log: LogView) -> Iterator[StateStep]:
    """Yield steps whose coordinator continued from before records whose append failed, id by id."""
    return (step for step in cached(log, _all) if step.failed)


def may_be_held(history: CoordinatorHistory, transactional_id: str) -> list[TransactionValue]:
    """Return what the coordinator that wrote an id's last record may have in memory, if appends failed."""
    state_log, number = history.place(transactional_id)
    if state_log is None:
        return []
    columns, span = list(state_log.rows_of(number))[-1]
    first, *behind = state_log.entries(columns, slice(max(span.start, span.stop - LATEST), span.stop))
    if any(entry.state is not None and entry.state not in STATES for entry in (first, *behind)):
        return []
    last = behind[-1] if behind else first
    if history.leader_epochs.get(last.partition, -1) > last.leader_epoch:  # it has loaded that record
        return []
    account = IdAccount(value(first), first.leader_epoch, known=False)
    for entry in behind:
        account.take(value(entry), entry.leader_epoch)
    return [cached.value for cached in account.held() if cached.value is not None]


def _all(log: LogView) -> Iterator[StateStep]:
    state_log, history = records(log), log.cluster.coordinator
    if state_log is None or history is None:
        return iter(())
    intact = history.complete_from.get(log.partition, 1 << 62)
    return odd_steps(state_log, log.leader.log_start, intact, partial(appended_for_sure, log, state_log))


# Offsets of records of an id, by its number, whose append cannot have failed.
Appended = Callable[[int], frozenset[int]]


def odd_steps(
    state_log: CoordinatorLog, log_start: int, intact: int, appended: Appended = lambda _: frozenset()
) -> Iterator[StateStep]:
    """Yield steps from ``log_start`` and ``intact`` on that the previous record does not explain."""
    sieve = _Sieve(state_log)
    for columns in state_log.neighbours(log_start):
        states = columns["state"]
        readable = states < len(STATES)
        pairs = (columns["id"][1:] == columns["id"][:-1]) & readable[1:] & readable[:-1]
        gaps = gaps_before(columns, state_log.damaged)
        lost = gaps[1:] != gaps[:-1]  # records between two rows are in a batch with a CRC mismatch
        candidates = np.flatnonzero(pairs & ((states[1:] != TOMBSTONE) | (states[:-1] != TOMBSTONE)))
        odd = candidates[~sieve.sound(columns, candidates)]
        if not len(odd):
            continue
        whole = (columns["offset"][odd] >= intact) & ~lost[odd]
        parted = np.append(False, ~pairs | lost)  # a piece begins behind a completed transaction, or with another id
        parted[odd[~whole] + 1] = True  # records between may have been cleaned away
        yield from _replayed(state_log, columns, odd[whole], parted, appended)


def _beginnings(columns: Columns, odd: np.ndarray, parted: np.ndarray) -> np.ndarray:
    # For each odd row the last row up to it from which the account can be replayed: the first one known, the last one
    # under a coordinator epoch, or a decision that was completed.
    state, epoch = columns["state"], columns["leader_epoch"]
    decided = (state[:-1] == PREPARE_COMMIT) | (state[:-1] == PREPARE_ABORT)
    completed = decided & (state[1:] >= COMPLETE_COMMIT) & (state[1:] <= COMPLETE_ABORT)
    completed[odd] = False
    once = np.append(state[2:] != state[1:-1], True)  # from one that comes again it is replayed before that
    begins = parted.copy()
    begins[:-1] |= (epoch[1:] != epoch[:-1]) | (completed & ~once)
    begins[1:] |= completed & once
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))[odd]


def _replayed(
    state_log: CoordinatorLog, columns: Columns, odd: np.ndarray, parted: np.ndarray, appended: Appended
) -> Iterator[StateStep]:
    # ``parted``: rows before which another record may have been.
    account, reached, reported = None, -1, -1
    latest: deque[StateRecord] = deque(maxlen=AT_HAND)
    number, sure = -1, frozenset[int]()
    for row, begin in zip(odd.tolist(), _beginnings(columns, odd, parted).tolist(), strict=True):
        if number != columns["id"][row]:
            number = int(columns["id"][row])
            sure = appended(number)
        anew = account is None or begin > reached
        entries = state_log.entries(columns, slice(begin if anew else reached + 1, row + 2))
        if account is None or anew:
            latest.append(next(entries))
            known = not parted[begin] or latest[-1].offset in sure
            account = IdAccount(value(latest[-1]), latest[-1].leader_epoch, known=known)
            reported = begin - 1
        judgement = Judgement([])
        for entry in entries:
            judgement = account.take(value(entry), entry.leader_epoch, appended=entry.offset in sure)
            latest.append(entry)
        reached = row + 1
        failed = min(judgement.failed, row - reported, len(latest) - 1)
        reported = row if failed else reported
        behind = len(latest) - 1
        yield StateStep(
            latest[-2], latest[-1], judgement.problems, tuple(itertools.islice(latest, behind - failed, behind))
        )


# Ongoing records whose append succeeded, by data that nothing else explains.
#
# A client below transaction.version 2 writes to a partition only after AddPartitionsToTxn was answered; above it the
# partition's broker appends only after the coordinator has added the partition (KIP-890). So an open transaction in a
# partition shows that a record which names it was appended: the first one that does, since a later one of the same
# transaction may have failed.


class _Begin(NamedTuple):
    """An Ongoing record and what its id had before: the number of its transaction, the last Prepare record before."""

    entry: StateRecord
    number: int
    ended: StateRecord | None


def appended_for_sure(log: LogView, state_log: CoordinatorLog, number: int) -> frozenset[int]:
    """Return the offsets of an id's Ongoing records whose append cannot have failed. Cost: its records."""
    opened, begins, whole = log.cluster.open_here, dict[tuple[int, int], list[_Begin]](), set[tuple[int, int]]()
    transaction, ended = 0, None
    for entry in state_log.entries_of(number):
        producer = (entry.producer_id, entry.producer_epoch)
        if entry.state != "Ongoing":
            transaction += 1
            ended = entry if entry.state in ("PrepareCommit", "PrepareAbort") else ended
            if producer not in begins and not state_log.damaged:
                whole.add(producer)  # its epoch begins here
        elif entry.producer_id in opened:
            begins.setdefault(producer, []).append(_Begin(entry, transaction, ended))
    out = set[int]()
    for producer, several in begins.items():
        for name, here in opened[producer[0]].items():
            if here.epoch == producer[1]:
                naming = [begin for begin in several if name in begin.entry.partitions]
                out.update(_explained(log, split(name), here, naming, whole=producer in whole))
    return frozenset(out)


def _explained(
    log: LogView, place: tuple[str, int], here: OpenHere, naming: list[_Begin], *, whole: bool
) -> Iterator[int]:
    # Offsets of records without which the data at ``place`` would not be there.
    cluster = log.cluster

    def by_coordinator(entry: StateRecord) -> BrokerTime:
        return BrokerTime(entry.time, cluster.led(TOPIC, entry.partition, entry.leader_epoch))

    def order(ms: int, entry: StateRecord) -> Order:
        written = BrokerTime(ms, cluster.led(*place, here.leader_epoch))
        return Order.EITHER if ms < 0 else cluster.clocks.order(written, by_coordinator(entry))

    for before, begin, behind in zip([None, *naming], naming, [*naming[1:], None], strict=False):
        same = before is not None and before.number == begin.number and before.entry.start == begin.entry.start
        if same or order(here.appended, begin.entry) is Order.BEFORE:
            continue
        if behind is not None and order(here.appended, behind.entry) is not Order.BEFORE:
            continue
        ended = begin.ended
        if whole and naming[0].number == begin.number:
            yield begin.entry.offset
            continue
        late = not log.policy().verifies and (ended is None or not ended.commit)  # of a request that came late
        marked = ended is not None and order(here.ended_before, ended) is not Order.BEFORE and here.ended_before >= 0
        if not late and (marked or order(here.appended, begin.entry) is Order.AFTER):
            yield begin.entry.offset


class _Sieve:
    """Judges steps by the previous record alone, once per kind of step."""

    def __init__(self, state_log: CoordinatorLog) -> None:
        self._found = state_log
        self._judged = np.zeros(1 << KIND_BITS, np.int8)  # by kind: 1 sound, -1 not, 0 not judged yet

    def sound(self, columns: Columns, old_rows: np.ndarray) -> np.ndarray:
        """Whether each step from one of these rows to the next row is sound."""
        kinds = _kinds(self._found, columns, old_rows)
        new, example = np.unique(kinds[self._judged[kinds] == 0], return_index=True)
        rows = old_rows[self._judged[kinds] == 0][example]
        for kind, row in zip(new.tolist(), rows.tolist(), strict=True):
            old, following = (value(entry) for entry in self._found.entries(columns, slice(row, row + 2)))
            self._judged[kind] = -1 if step_problem(CachedTransaction(old), following) else 1
        return self._judged[kinds] > 0


def _kinds(state_log: CoordinatorLog, columns: Columns, rows: np.ndarray) -> np.ndarray:
    # Every input of step_problem, packed into one number per step.
    def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
        return columns[name][rows].astype(np.int64), columns[name][rows + 1].astype(np.int64)

    (old_state, state), (old_epoch, epoch), (old_start, start) = pair("state"), pair("producer_epoch"), pair("start")
    (old_producer, producer), (old_timeout, timeout) = pair("producer_id"), pair("timeout_ms")
    facts = (
        columns["client_version"][rows + 1] >= 2,
        producer == old_producer,
        old_epoch == LAST_EPOCH,
        old_epoch >= EXHAUSTED_EPOCH,
        epoch == LAST_EPOCH,
        epoch == 0,
        timeout == old_timeout,
        start == old_start,
        start == NO_TIMESTAMP,
        start == columns["last_update"][rows + 1],
    )
    kind = (old_state + 1) << 4 | (state + 1)
    kind = kind << 3 | (np.clip(epoch - old_epoch, -1, 3) + 1)
    kind = kind << 2 | _relation(state_log, *pair("set"), state)
    for fact in facts:
        kind = kind << 1 | fact
    return kind


def _relation(state_log: CoordinatorLog, old: np.ndarray, new: np.ndarray, state: np.ndarray) -> np.ndarray:
    # 0: same sets of partitions; 1: an Ongoing record adds partitions; 2: they differ otherwise.
    out = np.where(old == new, 0, 2)
    grown = np.flatnonzero((old != new) & (state == ONGOING))
    begun = state_log.set_sizes(old[grown]) == 0
    out[grown[begun]] = 1
    grown = grown[~begun]
    both, which = np.unique(old[grown] << 32 | new[grown], return_inverse=True)
    within = [state_log.partitions(one >> 32) <= state_log.partitions(one & 0xFFFFFFFF) for one in both.tolist()]
    out[grown[np.array(within, bool)[which]]] = 1
    return out
