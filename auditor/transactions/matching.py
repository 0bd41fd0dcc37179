"""Which transaction a marker or data belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from auditor.base.compiled import kernel
from auditor.evidence.cluster_clocks import at_least_ms, at_most_ms, beyond_ms, is_after, most_at_once, same_clock
from auditor.facts.coordinator_history import COMMIT, NONE, NamedTransactions, TransactionWindow
from auditor.facts.replica_facts import LogFacts, once
from auditor.model.policies import SKIPS_MARKERS

# Match each marker of a producer in one partition to the coordinator's decision.
#
# By the epoch of the Prepare and the result, in the order of both logs. Times only choose between candidates: first as
# they are, then with the slack of two clocks, then with the clock difference that the order shows.


CLOSE_MS = 100  # markers of one clock come so close behind their decisions, by most of them
MOST_BETWEEN = 1_000  # windows of a producer that are passed over for one marker
Asked = Callable[[], bool]


class Pairs(NamedTuple):
    """The number of each marker's window, -1 for none; ``inconclusive``: the clocks' difference may hide some."""

    numbers: np.ndarray
    inconclusive: bool = False


def paired(
    windows: np.ndarray,
    given: list[np.ndarray],
    slack: int,
    *,
    whole: Asked,
    complete: Asked,
    delivered: Asked,
    is_open: Asked,
    clocks_agree: Asked,
    may_be_skipped: Asked,
    other_clocks: bool,
    until: int,
    ahead: int = 0,
) -> Pairs:
    """Match each marker to the number of its window, -1 for none; a marker that was sent again has the same number.

    ``windows``: rows of :data:`auditor.facts.coordinator_history.WINDOW` of one producer, in log order; ``given``:
    times (ms), epochs, results (0: ABORT) and first data offsets (-1: closed nothing) of its markers, in partition
    order. ``slack``: how far (ms) their clocks may differ where nothing shows more. ``whole``: whether both logs are
    complete from the start; ``complete``: whether neither can lack anything because it was copied too early;
    ``delivered``: whether the partition has all that was ever written; ``is_open``: whether data follows the last
    marker; ``clocks_agree``: whether other producers show that the clocks do; ``may_be_skipped``: whether the
    coordinator may have completed windows without a marker here. ``other_clocks``: whether different brokers may have
    written both. ``until``: the time (ms) of the last marker in the partition, of any producer. ``ahead``: how far (ms)
    the markers' clock is ahead, as far as other producers show it: what fits better then is right.

    Cost: a few passes over both; more only where clocks leave unmatched rows on both sides.
    """
    numbers, exact = _by_time(windows, given, slack)
    if ahead:
        corrected, fit = _by_time(windows, given, slack, ahead)
        numbers, exact = (corrected, fit) if fit > exact else (numbers, exact)
    if not _left_on_both_sides(windows, given, numbers):
        return Pairs(numbers)
    behind = _all_behind(windows, numbers, until - slack) and not whole()
    if behind and (not other_clocks or clocks_agree()):
        return Pairs(numbers)
    if behind and _by_epoch(windows, given, numbers):
        return Pairs(numbers)
    by_order = _by_order(windows, given, slack, numbers, exact, whole, complete, other_clocks=other_clocks)
    if not behind:
        return Pairs(by_order)
    # Perhaps the partition's clock is behind, and its last markers are of the last windows: a coordinator completes a
    # transaction once its markers are written. One pair alone fits any difference.
    count = _of_one_difference(windows, given[0], by_order)
    fits, unfinished = count > 1 and 2 * count > len(windows), is_open()
    if fits and not unfinished and delivered():
        return Pairs(by_order)
    return Pairs(numbers, inconclusive=(fits or not unfinished) and not may_be_skipped())


def _by_epoch(windows: np.ndarray, given: list[np.ndarray], numbers: np.ndarray) -> bool:
    # Where each end raises the epoch (version 2), it alone tells which decision a marker carries out.
    _, epochs, commits, firsts = given
    decided = np.flatnonzero(windows["has_prepare"] & (windows["decision"] != NONE))
    keys, wanted = _keys(epochs, commits), _keys_of(windows[decided])
    rises = np.diff(epochs) > 0
    again = (np.diff(keys) == 0) & (firsts[1:] < 0)
    if rises.sum() < 2 or not (rises | again).all() or (np.diff(windows["epoch"][decided]) <= 0).any():
        return False
    matched = wanted[np.minimum(wanted.searchsorted(keys), len(wanted) - 1)] == keys
    numbers[matched] = decided[wanted.searchsorted(keys[matched])]
    return bool(matched.any())


def _of_one_difference(windows: np.ndarray, stamps: np.ndarray, numbers: np.ndarray) -> int:
    # The largest number of pairs that one difference of clocks puts between decision and completion.
    matched = np.flatnonzero(numbers >= 0)
    of, times = windows[numbers[matched]], stamps[matched]
    return most_at_once(times - np.where(of["has_complete"], of["ended"], of["prepared"]), times - of["prepared"])


def fits_exactly(windows: np.ndarray, given: list[np.ndarray]) -> bool:
    """Whether most markers lie between decision and completion of a window, without slack.

    Only then is the match certain where either log may begin later than the other.
    """
    return 2 * _by_time(windows, given, 0)[1] >= len(given[0])


def _by_time(windows: np.ndarray, given: list[np.ndarray], slack: int, ahead: int = 0) -> tuple[np.ndarray, int]:
    # ``ahead``: how many ms the markers' clock is ahead. Without slack first: where transactions follow within
    # milliseconds, slack would match a neighbour. Also returns how many fit without slack.
    numbers = np.full(len(given[0]), -1)
    exact = 0
    for span, window_span in _stretches(windows, given[0]):
        here = windows[window_span]
        stamps, *others = (column[span] for column in given)
        matched, ends, used = np.full(len(stamps), -1), np.empty(len(stamps), np.int64), np.zeros(len(here), np.bool_)
        for allowed in (0, slack):
            if allowed:
                _pair_repeats(here, stamps - ahead, *others, allowed, matched)
            _pair(here, stamps - ahead, *others, allowed, matched, ends, used)
            _pair_repeats(here, stamps - ahead, *others, allowed, matched)
            used[matched[matched >= 0]] = True
            exact += int((matched >= 0).sum()) if not allowed else 0
        numbers[span] = np.where(matched >= 0, matched + window_span.start, -1)
    return numbers, exact


def _stretches(windows: np.ndarray, stamps: np.ndarray) -> Iterator[tuple[slice, slice]]:
    # Cut where a clock went back. Both logs end at about the same time, so the last stretches belong together where one
    # log begins later.
    decided = np.flatnonzero(windows["has_prepare"])
    falls = [
        indexes[1:][beyond_ms(np.diff(times), one_clock=True) < 0]
        for indexes, times in ((np.arange(len(stamps)), stamps), (decided, windows["prepared"][decided]))
    ]
    count = min(map(len, falls)) + 1
    cuts = (
        [0, *fell.tolist(), end][-count - 1 :] for fell, end in zip(falls, map(len, (stamps, windows)), strict=True)
    )
    for span, window_span in zip(*map(pairwise, cuts), strict=True):
        yield slice(*span), slice(*window_span)


def _all_behind(windows: np.ndarray, numbers: np.ndarray, end: int) -> bool:
    # Where the cleaner removed older transactions the markers are theirs, and no pair shows that the clocks differ.
    may_follow = ~windows["has_complete"] | (windows["ended"] < 0) | (windows["ended"] >= end)
    return bool((numbers < 0).all() and may_follow.all())


def _left_on_both_sides(windows: np.ndarray, given: list[np.ndarray], numbers: np.ndarray) -> bool:
    # Differing clocks may be what separates them.
    _, epochs, commits, _ = given
    free = windows["has_prepare"] & (windows["decision"] != NONE)
    free[numbers[numbers >= 0]] = False
    left = numbers < 0
    if not left.any() or not free.any():
        return False
    return bool(np.isin(_keys(epochs[left], commits[left]), _keys_of(windows[free])).any())


def _keys(epochs: np.ndarray, commits: np.ndarray) -> np.ndarray:
    return epochs.astype(np.int64) * 2 + (commits != 0)


def _keys_of(windows: np.ndarray) -> np.ndarray:
    return _keys(windows["epoch"], windows["decision"] == COMMIT)


def _by_order(
    windows: np.ndarray,
    given: list[np.ndarray],
    slack: int,
    by_time: np.ndarray,
    exact: int,
    whole: Asked,
    complete: Asked,
    *,
    other_clocks: bool,
) -> np.ndarray:
    # Match by the order of both logs. Times only choose between possible orders, by the clock difference that the
    # first, or the last, pairs of both logs show. The rest is matched in order between the pairs.
    stamps, epochs, commits, firsts = given
    from_start = whole()
    one_each = _one_each(windows, given) if from_start else None
    if one_each is not None and (2 * exact < len(stamps) or _is_shifted(windows, by_time) or complete()):
        return one_each
    numbers, enough = by_time, 2 * exact + 1
    for ahead in _differences(windows, given, (1, -1) if from_start else (-1, 1)) if other_clocks else ():
        candidates, fit = _by_time(windows, given, slack, ahead)
        if fit >= enough:
            numbers, enough = candidates, fit + 1
    used = np.zeros(len(windows), np.bool_)
    used[numbers[numbers >= 0]] = True
    filled = numbers.copy()
    _fill(windows, epochs, commits, firsts, filled, np.empty(len(stamps), np.int64), used)
    for k in np.flatnonzero(filled[:-1] < 0)[:MOST_BETWEEN].tolist():  # the marker behind it is the same, sent again
        n = filled[k + 1]
        again = n >= 0 and firsts[k + 1] < 0 and _same_end(windows[n], epochs[k], commits[k])
        if again and (windows["epoch"] == epochs[k]).sum() == 1:
            filled[k] = n
    for k in np.flatnonzero(filled < 0)[:MOST_BETWEEN].tolist():
        # Written just when another result was decided: that decision is contradicted, and no later marker is its own.
        denied = (windows["epoch"] == epochs[k]) & windows["has_complete"] & (windows["prepared"] <= stamps[k])
        denied &= stamps[k] <= windows["ended"]
        filled[np.isin(filled, np.flatnonzero(denied)) & (by_time < 0)] = -1
    return filled


def _one_each(windows: np.ndarray, given: list[np.ndarray]) -> np.ndarray | None:
    # The counts, epochs and results of decisions equal those of all markers, or of those that close data. A repeated
    # marker has the number of the one before it.
    stamps, epochs, commits, firsts = given
    decided = np.flatnonzero(windows["decision"] != NONE)
    for rows in (np.arange(len(stamps)), np.flatnonzero(firsts >= 0)):
        if len(rows) == len(decided) and np.array_equal(_keys(epochs[rows], commits[rows]), _keys_of(windows[decided])):
            numbers = np.full(len(stamps), -1)
            numbers[rows] = decided
            for k in np.flatnonzero(numbers < 0).tolist():
                if k and epochs[k] == epochs[k - 1] and commits[k] == commits[k - 1]:
                    numbers[k] = numbers[k - 1]
            return numbers
    return None


def _differences(windows: np.ndarray, given: list[np.ndarray], steps: tuple[int, int]) -> Iterator[int]:
    # From the beginning (1) and from the end (-1), of all markers and of those that close data (a repeated marker
    # closes nothing).
    stamps, epochs, commits, firsts = given
    for rows in (np.arange(len(stamps)), np.flatnonzero(firsts >= 0)):
        for step in steps:
            order = np.full(len(rows), -1)
            _in_order(windows[::step], epochs[rows][::step], commits[rows][::step], order)
            prepared = windows["prepared"][::step][order[order >= 0]]
            lags = stamps[rows][::step][order >= 0] - prepared
            if len(lags):  # those of right pairs lie close together: where one is lost, wrong ones are scattered
                lags.sort()
                close = np.searchsorted(lags, lags + CLOSE_MS, "right") - np.arange(len(lags))
                yield int(lags[np.argmax(close)])


def _is_shifted(windows: np.ndarray, numbers: np.ndarray) -> bool:
    # Unmatched markers at one end and unmatched windows at the other: every pair is off by some.
    free = windows["decision"] != NONE
    free[numbers[numbers >= 0]] = False
    left, free = np.flatnonzero(numbers < 0), np.flatnonzero(free)
    count = len(numbers) - len(left)
    early, late = left.max() < len(left), left.min() >= count
    return bool((early and free.min() >= count) or (late and free.max() < len(free)))


@kernel
def _in_order(windows, epochs, commits, numbers):  # type: ignore[no-untyped-def]
    # Both sides may be given backwards.
    behind = len(windows)
    n = 0
    for k in range(len(numbers)):
        row = n
        while row < behind and not _same_end(windows[row], epochs[k], commits[k]):
            row += 1
            if row - n > MOST_BETWEEN:
                row = behind
        if row < behind:
            numbers[k] = row
            n = row + 1


@kernel
def _fill(windows, epochs, commits, firsts, numbers, ends, used):  # type: ignore[no-untyped-def]
    # ``ends``: scratch space as in ``_pair``.
    limit = len(windows)
    for k in range(len(numbers) - 1, -1, -1):
        if numbers[k] >= 0:
            limit = min(limit, numbers[k])
        ends[k] = limit
    n = 0
    for k in range(len(numbers)):
        if numbers[k] < 0:
            until = min(ends[k], n + MOST_BETWEEN)
            row = n
            while row < until and (used[row] or not _same_end(windows[row], epochs[k], commits[k])):
                row += 1
            if firsts[k] < 0 and k > 0 and epochs[k] == epochs[k - 1] and commits[k] == commits[k - 1]:
                numbers[k] = numbers[k - 1]  # sent again, first of all
            elif row < until:
                numbers[k] = row
                used[row] = True
        n = max(n, numbers[k] + 1)


@kernel
def _same_end(window, epoch, commit):  # type: ignore[no-untyped-def]
    return window.has_prepare and window.epoch == epoch and (window.decision == COMMIT) == (commit != 0)


@kernel
def _pair(windows, stamps, epochs, commits, firsts, slack, numbers, ends, used):  # type: ignore[no-untyped-def]
    # One pass over both, since windows that ended ``slack`` ms before a marker never match later ones. ``ends``:
    # scratch space for the number of the first used window after each marker.
    limit = len(windows)
    for k in range(len(numbers) - 1, -1, -1):
        if numbers[k] >= 0:
            limit = numbers[k]
        ends[k] = limit
    row = 0
    for k in range(len(numbers)):
        stamp = stamps[k]
        if numbers[k] < 0:
            while row < ends[k] and windows[row].has_complete and windows[row].ended < stamp - slack:
                row += 1
            n = row
            while n < ends[k] and (not windows[n].has_prepare or windows[n].prepared <= stamp + slack):
                if not used[n] and _fits(windows[n], stamp, epochs[k], commits[k], slack):
                    numbers[k] = n
                    break
                n += 1
        row = max(row, numbers[k] + 1)


@kernel
def _pair_repeats(windows, stamps, epochs, commits, firsts, slack, numbers):  # type: ignore[no-untyped-def]
    # A repeated marker closes nothing and belongs to the window of the one before it.
    before = -1
    for k in range(len(numbers)):
        lone = firsts[k] < 0 and numbers[k] < 0 and before >= 0
        if lone and _fits(windows[before], stamps[k], epochs[k], commits[k], slack):
            numbers[k] = before
        if numbers[k] >= 0:
            before = numbers[k]


@kernel
def _fits(window, stamp, epoch, commit, slack):  # type: ignore[no-untyped-def]
    if window.decision == NONE or (window.decision == COMMIT) != (commit != 0):
        return False
    if window.has_prepare and window.epoch != epoch:
        return False
    begin = window.prepared if window.has_prepare else window.begun
    return begin - slack <= stamp and (not window.has_complete or stamp <= window.ended + slack)


# The coordinator's transaction that a marker or a stretch of data in a partition belongs to.
#
# Within a partition the markers of a producer have the order of the coordinator's decisions, so both are matched one to
# one in that order, by epoch, result and time; a neighbour's marker never replaces a missing one.


TRANSACTION_STATE = "__transaction_state"
MATCHINGS_AT_HAND = 100_000  # producers of a log; those of more are matched again
MARKER = ("producer_id", "marker_offset", "marker_timestamp", "marker_epoch", "commit", "first_offset")


@dataclass(slots=True)
class Matching:
    """The markers of one producer in one partition, matched with the coordinator's transactions that name it.

    ``windows``: rows of :data:`auditor.facts.coordinator_history.WINDOW` in log order, from row ``first`` of
    ``named`` on. ``markers``: offsets, ascending; ``numbers``: the window of each, -1 for none. ``unmarked``: numbers
    of the prepared windows without a marker.

    Where the log was not read from its start (:func:`begins_inside`), windows completed before that are excluded and
    ``unmarked`` has only those whose marker would follow one that was read. ``unsure``: the match is unknown, and there
    are no windows. ``inconclusive``: a difference of clocks may be why windows have no marker.
    """

    named: NamedTransactions
    first: int
    windows: np.ndarray
    markers: np.ndarray
    numbers: np.ndarray
    unmarked: np.ndarray
    unsure: bool = False
    inconclusive: bool = False

    def number(self, marker_offset: int) -> int | None:
        """Return the number of a marker's window."""
        index = int(np.searchsorted(self.markers, marker_offset))
        exists = index < len(self.markers) and self.markers[index] == marker_offset
        return int(self.numbers[index]) if exists and self.numbers[index] >= 0 else None

    def is_first(self, marker_offset: int) -> bool:
        """Whether no earlier marker has a window."""
        return not (self.numbers[self.markers < marker_offset] >= 0).any()

    def window(self, number: int) -> TransactionWindow:
        """Return a window as an object."""
        return self.named.window(self.first + number)


def base_skew(log: LogFacts, partition: int | None) -> int:
    """Return how far (ms) a coordinator broker's clock and this log's leader's may differ by default."""
    history = log.cluster.coordinator
    broker = None if history is None or partition is None else history.brokers.get(partition)
    return at_most_ms(0, one_clock=same_clock(broker, log.leader.broker_id))


def skew(log: LogFacts, partition: int | None) -> int:
    """Return :func:`base_skew`, or more where pairs of decisions and markers show it."""
    usual = base_skew(log, partition)
    apart = clocks_apart(log)
    return max(usual, apart.get(-1 if partition is None else partition, max(apart.values(), default=0)))


def other_clock(log: LogFacts, partition: int | None) -> bool:
    """Whether a coordinator's times may be of another clock than this log's."""
    return beyond_ms(skew(log, partition), one_clock=True) > 0


@once
def clocks_apart(log: LogFacts) -> dict[int, int]:
    """Measure by coordinator partition how far, ms, its clock and this log's differ, where above :func:`base_skew`.

    A marker is written after its decision and before its completion. Cost: the first call matches all producers.
    """
    skews: dict[int, int] = {}
    rows = naming(log).rows
    for producer_id in np.unique(rows["producer_id"]).tolist():
        of = matching(log, producer_id)
        matched = np.flatnonzero(of.numbers >= 0)
        windows = of.windows[of.numbers[matched]]
        ahead = np.abs(ahead_by(windows, markers_of(log, producer_id, matched)["marker_timestamp"]))
        for partition in np.unique(windows["partition"]).tolist():
            in_partition = windows["partition"] == partition
            apart = int(ahead[in_partition].max(initial=0))
            if apart > base_skew(log, partition):
                skews[partition] = max(skews.get(partition, 0), at_most_ms(apart, one_clock=True))
    return skews


def ahead_by(windows: np.ndarray, stamps: np.ndarray) -> np.ndarray:
    """Return by how much (ms, at least) each marker's clock is ahead of its decision's; negative for behind."""
    behind = np.where(windows["has_prepare"] & (windows["prepared"] >= 0), windows["prepared"] - stamps, 0)
    ahead = np.where(windows["has_complete"] & (windows["ended"] >= 0), stamps - windows["ended"], 0)
    return np.where(ahead > 0, ahead, -np.maximum(behind, 0))


def markers_of(log: LogFacts, producer_id: int, which: np.ndarray) -> np.ndarray:
    """Return the leader replica's rows of some of a producer's markers, by their numbers in its matching."""
    markers = _markers(log)
    begin = int(np.searchsorted(markers["producer_id"], producer_id))
    return log.leader.transactions[markers["row"][begin + which]]


def owner_complete(log: LogFacts, producer_id: int) -> bool:
    """Whether the input has the whole history of the id with this producer id, or of all ids if none has it.

    False where it is unknown which part of it is this log's.
    """
    history = log.cluster.coordinator
    if history is None or naming(log).left_out or (begins_inside(log) and matching(log, int(producer_id)).unsure):
        return False
    owner = history.owner(int(producer_id))
    return history.complete_for_all() if owner is None else history.complete(owner)


def matching(log: LogFacts, producer_id: int) -> Matching:
    """Return the matching of one producer, cached."""
    made = _matchings(log)
    if producer_id not in made:
        if len(made) >= MATCHINGS_AT_HAND:
            del made[next(iter(made))]
        made[producer_id] = _match(log, producer_id)
    return made[producer_id]


@once
def _matchings(log: LogFacts) -> dict[int, Matching]:
    # The cache of :func:`matching`.
    return {}


@once
def naming(log: LogFacts) -> NamedTransactions:
    """Return the coordinators' transactions that name this partition, looked up once per log."""
    history = log.cluster.coordinator
    return NamedTransactions() if history is None else history.named(log.name)


@once
def _markers(log: LogFacts) -> dict[str, np.ndarray]:
    # By column, ordered by producer id, then log order.
    rows = log.leader.transactions
    which = np.flatnonzero(rows["marker_offset"] >= 0)
    which = which[np.lexsort((rows["marker_offset"][which], rows["producer_id"][which]))]
    return {"row": which} | {name: np.ascontiguousarray(rows[name][which]) for name in MARKER}


def windows_of_markers(log: LogFacts) -> np.ndarray:
    """Return for each transaction of the leader replica its marker's row in ``naming(log).rows``, -1 for none."""
    rows, markers = naming(log).rows, _markers(log)
    out = np.full(len(log.leader.transactions), -1)
    for producer_id in np.intersect1d(rows["producer_id"], markers["producer_id"]).tolist():
        begin, end = np.searchsorted(markers["producer_id"], [producer_id, producer_id + 1]).tolist()
        matched = matching(log, producer_id)
        out[markers["row"][begin:end]] = np.where(matched.numbers >= 0, matched.first + matched.numbers, -1)
    return out


def closed_behind(log: LogFacts, producer_id: int, offset: int) -> np.void | None:
    """Return a producer's first closed stretch of data whose marker follows an offset."""
    markers = _markers(log)
    span = slice(*np.searchsorted(markers["producer_id"], [producer_id, producer_id + 1]).tolist())
    closed = (markers["marker_offset"][span] > offset) & (markers["first_offset"][span] >= 0)
    candidates = np.flatnonzero(closed)[:1]
    return log.leader.transactions[markers["row"][span][candidates[0]]] if len(candidates) else None


def _match(log: LogFacts, producer_id: int) -> Matching:
    named, markers = naming(log), _markers(log)
    rows = named.of(producer_id)
    if begins_inside(log):
        rows = slice(rows.start + _over_before(log, named.rows[rows]), rows.stop)
    windows = named.rows[rows]
    span = slice(*np.searchsorted(markers["producer_id"], [producer_id, producer_id + 1]).tolist())
    _, offset, *given = (markers[name][span] for name in MARKER)
    numbers, inconclusive = np.full(len(offset), -1), False
    if begins_inside(log) and len(windows) and len(offset) and not fits_exactly(windows, given):
        return Matching(named, rows.start, windows[:0], offset, numbers, np.empty(0, np.int64), unsure=True)
    if len(windows) and len(offset):
        decided = windows[windows["decision"] != NONE]
        coordinator = int(decided["partition"][0]) if len(decided) else -1
        slack = base_skew(log, coordinator if len(decided) else None)
        brokers = (
            log.cluster.writer(*place) for place in ((log.topic, log.partition), (TRANSACTION_STATE, coordinator))
        )
        several = beyond_ms(slack, one_clock=True) > 0 or _has_other_brokers(log)
        whole, complete = partial(_is_whole, log, producer_id), partial(_is_there, log, windows)
        numbers, inconclusive = paired(
            windows,
            given,
            slack,
            whole=whole,
            complete=complete,
            delivered=partial(_has_all, log),
            is_open=partial(_is_open, log, producer_id),
            clocks_agree=partial(_clocks_agree, log, windows),
            may_be_skipped=partial(_may_be_skipped, log, windows),
            other_clocks=several,
            until=int(markers["marker_timestamp"].max()),
            ahead=log.cluster.clocks.ahead_ms(*brokers),
        )
    used = np.zeros(len(windows), np.bool_)
    used[numbers[numbers >= 0]] = True
    unmarked = np.flatnonzero(windows["has_prepare"] & ~used)
    if begins_inside(log):
        unmarked = unmarked[_would_be_here(log, windows, unmarked, numbers)]
    return Matching(named, rows.start, windows, offset, numbers, unmarked, inconclusive=inconclusive)


def _would_be_here(log: LogFacts, windows: np.ndarray, which: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    # Its marker follows that of an earlier window, or the decision is newer than the first marker read.
    first = numbers[numbers >= 0].min(initial=len(windows))
    later = windows["prepared"][which] > _first_marker_time(log) + _base_skews(log, windows[which])
    return (which > first) | later


def begins_inside(log: LogFacts) -> bool:
    """Whether the leader replica was not read from its log start: markers may be in the unread part."""
    return log.leader.unread_from >= 0


@once
def _first_marker_time(log: LogFacts) -> int:
    # Beyond all times where there is no marker.
    rows = log.leader.transactions
    rows = rows[rows["marker_offset"] >= log.leader.log_start]
    first = rows["marker_timestamp"][np.argsort(rows["marker_offset"])[:1]]
    return int(first[0]) if len(first) else 1 << 62


def _base_skews(log: LogFacts, windows: np.ndarray) -> np.ndarray:
    # Within one broker by how much its clock was set back: a marker is written after the decision and before the
    # completion.
    partitions, which = np.unique(windows["partition"], return_inverse=True)
    skews = (base_skew(log, p if p >= 0 else None) for p in partitions.tolist())
    slacks = [beyond_ms(apart, one_clock=True) for apart in skews]
    logs = [(log.topic, log.partition), *((TRANSACTION_STATE, p) for p in partitions.tolist())]
    fell = log.cluster.clocks.fell_ms(windows["prepared"], *(log.cluster.writer(*of) for of in logs))
    return np.array(slacks, np.int64)[which] + fell


def _over_before(log: LogFacts, windows: np.ndarray) -> int:
    going_on = ~windows["has_complete"] | (windows["ended"] >= _first_marker_time(log) - _base_skews(log, windows))
    return int(np.flatnonzero(going_on)[0]) if going_on.any() else len(windows)


def _has_other_brokers(log: LogFacts) -> bool:
    brokers: set[int | None] = {b.broker_id for b in log.cluster.bounds.values()}
    return len(brokers.union(*log.cluster.in_sync.values())) > 1


def _is_whole(log: LogFacts, producer_id: int) -> bool:
    whole = log.leader.own_start == 0 and not begins_inside(log)
    return whole and owner_complete(log, producer_id) and log.intact_from() <= 0


def _is_there(log: LogFacts, windows: np.ndarray) -> bool:
    partitions = np.unique(windows["partition"][windows["partition"] >= 0]).tolist()
    logs = [(log.topic, log.partition), *((TRANSACTION_STATE, partition) for partition in partitions)]
    bounds = [log.cluster.bounds.get(place) for place in logs]
    return log.cluster.at_once or all(log_bounds is not None and log_bounds.clean_shutdown for log_bounds in bounds)


def _has_all(log: LogFacts) -> bool:
    bounds = log.cluster.bounds.get((log.topic, log.partition))
    return log.cluster.at_once or (bounds is not None and bounds.clean_shutdown and bounds.until < 0)


def _clocks_agree(log: LogFacts, windows: np.ndarray) -> bool:
    return not _agreeing(log).isdisjoint(windows["partition"][windows["has_complete"]].tolist())


def _may_be_skipped(log: LogFacts, windows: np.ndarray) -> bool:
    # A partition without a leader when they were completed (KAFKA-20734).
    history, completed = log.cluster.coordinator, windows[windows["has_complete"]]
    partitions = np.unique(completed["partition"]).tolist()
    brokers = {None if history is None else history.brokers.get(p) for p in partitions}
    if not any(log.cluster.release(broker).may_have(SKIPS_MARKERS) for broker in brokers):
        return False
    ended = completed["ended"]
    return any(
        ((gone.since <= at_most_ms(ended)) & ((gone.until is None) | (ended <= at_most_ms(gone.until or 0)))).any()
        for gone in log.cluster.leaderless.get((log.topic, log.partition), ())
    )


def _is_open(log: LogFacts, producer_id: int) -> bool:
    rows = log.leader.transactions
    return bool(
        ((rows["producer_id"] == producer_id) & (rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)).any()
    )


@once
def _agreeing(log: LogFacts) -> frozenset[int]:
    # Coordinator partitions whose clock and this log's agree: by a producer of whose markers, or windows, most fit.
    named, markers = naming(log), _markers(log)
    out: set[int] = set()
    for producer_id in np.intersect1d(named.rows["producer_id"], markers["producer_id"]).tolist():
        windows = named.rows[named.of(producer_id)]
        span = slice(*np.searchsorted(markers["producer_id"], [producer_id, producer_id + 1]).tolist())
        numbers, exact = _by_time(windows, [markers[name][span] for name in MARKER[2:]], 0)
        if exact and 2 * exact >= min(len(windows), len(numbers)):
            out.update(windows["partition"][numbers[numbers >= 0]].tolist())
    return frozenset(out)


def _decided_at(windows: np.ndarray, t: np.void, slack: np.ndarray) -> np.ndarray:
    begin = np.where(windows["has_prepare"], windows["prepared"], windows["begun"])
    stamp = int(t["marker_timestamp"])
    return (begin - slack <= stamp) & (~windows["has_complete"] | (stamp <= windows["ended"] + slack))


def _of_clients(log: LogFacts) -> int:
    # How far (ms) a client's clock and a coordinator's may differ.
    return at_most_ms(log.cluster.clocks.spread_ms)


def _slacks(log: LogFacts, windows: np.ndarray) -> np.ndarray:
    partitions, which = np.unique(windows["partition"], return_inverse=True)
    return np.array([skew(log, p if p >= 0 else None) for p in partitions.tolist()], np.int64)[which]


def marker_window(log: LogFacts, t: np.void) -> TransactionWindow | None:
    """Return the window that sent this marker, None where none fits."""
    matched = matching(log, int(t["producer_id"]))
    number = matched.number(int(t["marker_offset"]))
    return None if number is None else matched.window(number)


# Late markers under transaction.version 2 (KIP-1228): brokers before 4.2 take a repeated marker of epoch e for the next
# transaction, whose data has epoch e and whose own marker has e + 1.


class LateMarker(NamedTuple):
    """A marker's row that ended data of the next transaction, and that one's own marker; None if it is not stored."""

    row: np.void
    own: np.void | None


def is_late(log: LogFacts, t: np.void) -> bool:
    """Whether a marker that closed data looks like a late one of the transaction before.

    It has the epoch of its data, and epoch and result of the marker before it, as an operator's abort may have. Where
    coordinator records of the data's transaction are stored they tell its version, else the markers around it.
    """
    repeats = t["prev_marker_epoch"] == t["marker_epoch"] and t["prev_marker_commit"] == t["commit"]
    if not repeats or t["marker_epoch"] != t["producer_epoch"] or t["first_offset"] < 0:
        return False
    if marker_window(log, t) is not None:
        return False
    window = own_window(log, t) or window_after(log, t)
    if window is not None and (window.client_version >= 2 or window.prepare is not None):
        return window.client_version >= 2
    return int(t["marker_offset"]) in late_markers(log)


@once
def late_markers(log: LogFacts) -> dict[int, LateMarker]:
    """Find late COMMIT markers by the partition alone, by offset.

    The marker before it proves transaction.version 2: a COMMIT that raised the epoch. The one behind it, repeats aside,
    ends the same epoch, or nothing: it is of the same transaction, since each end raises the epoch.
    """
    markers = _markers(log)
    rows = log.leader.transactions[markers["row"]]
    producers, epochs, closes = rows["producer_id"], rows["marker_epoch"], rows["first_offset"] >= 0
    again = np.zeros(len(rows), np.bool_)
    for name in ("producer_id", "marker_epoch", "commit"):
        again[1:] |= rows[name][1:] != rows[name][:-1]
    kept = np.flatnonzero(again | closes)
    one, it = kept[:-1], kept[1:]
    same = (producers[one] == producers[it]) & (epochs[one] == epochs[it]) & (rows["commit"][one] == 1)
    raised = closes[one] & (rows["last_epoch"][one] == epochs[one] - 1)
    within = (rows["commit"][it] == 1) & closes[it] & (rows["last_epoch"][it] == epochs[it])
    late: dict[int, LateMarker] = {}
    for k in np.flatnonzero(same & raised & within & (rows["producer_epoch"][it] == epochs[it])).tolist():
        t = rows[it[k]]
        own = rows[kept[k + 2]] if k + 2 < len(kept) and producers[kept[k + 2]] == t["producer_id"] else None
        ends_it = own is None or own["first_offset"] < 0 or own["producer_epoch"] == t["marker_epoch"]
        if ends_it and (own is None or 1 <= own["marker_epoch"] - t["marker_epoch"] <= 2):  # 2 where it timed out
            late[int(t["marker_offset"])] = LateMarker(t, own)
    return late


def contradicting_window(log: LogFacts, t: np.void) -> TransactionWindow | None:
    """Return a window without its own marker whose decision this unmatched marker contradicts in time."""
    matched = matching(log, int(t["producer_id"]))
    if matched.number(int(t["marker_offset"])) is not None:
        return None
    numbers = _unmarked_behind(log, matched, t)
    if not len(numbers):
        return None
    windows = matched.windows[numbers]
    denied = ((windows["decision"] == COMMIT) != bool(t["commit"])) & (
        ~windows["has_prepare"] | (windows["epoch"] == t["marker_epoch"])
    )
    in_time = _decided_at(windows, t, _slacks(log, windows))
    for number, sure in zip(numbers[denied].tolist(), in_time[denied].tolist(), strict=True):
        window = matched.window(number)
        if (sure or window.client_version >= 2) and not _may_be_of_one_before(log, window, t):
            return window
    return None


def _may_be_of_one_before(log: LogFacts, window: TransactionWindow, t: np.void) -> bool:
    # The cleaner may have removed the older decision, and the window's own marker may follow the copy of this log.
    history, prepare = log.cluster.coordinator, window.prepare
    if history is None or prepare is None or history.known_since(prepare, int(t["marker_timestamp"])):
        return False
    end = prepare.time if window.end_time is None else window.end_time
    end += log.cluster.clocks.spread_ms
    return log.doubt(end, other_clock=other_clock(log, prepare.partition), committed=True)


def own_window(log: LogFacts, t: np.void) -> TransactionWindow | None:
    """Return the transaction that a closed stretch of data belongs to, among those without an earlier marker.

    By the data, whenever and by whomever it was ended: the first transaction after the previous marker that had the
    partition by then, with the data's epoch. Markers with either result count.
    """
    matched = matching(log, int(t["producer_id"]))
    if not len(matched.windows):  # as where the coordinator's log was cleaned: of nearly all markers
        return None
    carried_out = matched.numbers[(matched.markers < t["marker_offset"]) & (matched.numbers >= 0)]
    if begins_inside(log) and not len(carried_out):
        return None
    windows = matched.windows
    behind = np.arange(len(windows)) > carried_out.max(initial=-1)
    data_time, epoch = log.time(t["first_time"]), int(t["producer_epoch"])
    added = windows["added_row"] >= 0
    # Where its Ongoing records are gone, the decision may have raised the epoch (KIP-890, a timeout).
    after = (windows["decided_epoch"] == epoch) | (windows["decided_epoch"] - 1 == epoch)
    same_epoch = np.where(added, windows["added_epoch"] == epoch, after)
    begun = np.where(added, windows["added_time"], windows["begun"])
    slack = _slacks(log, windows)
    latest = np.minimum(data_time + _of_clients(log), int(t["marker_timestamp"]) + slack)
    fits = behind & (windows["decision"] != NONE) & same_epoch & (begun >= 0) & (begun <= latest)
    window = _first(
        matched, fits & (data_time <= windows["decided_time"] + np.maximum(slack, log.cluster.clocks.spread_ms))
    )
    return None if window is None or _may_be_of_one_before(log, window, t) else window


def _first(matched: Matching, fits: np.ndarray) -> TransactionWindow | None:
    numbers = np.flatnonzero(fits)
    return matched.window(int(numbers[0])) if len(numbers) else None


def unmarked_behind(log: LogFacts, t: np.void) -> Iterator[TransactionWindow]:
    """Yield decided windows without a marker here that follow the marker before this data: markers keep their order.

    Where that marker's window is unknown, windows remain that ended after it: the cleaner removes older markers, and
    the coordinator log may end before it.
    """
    matched = matching(log, int(t["producer_id"]))
    return (matched.window(number) for number in _unmarked_behind(log, matched, t).tolist())


def missing_behind(log: LogFacts, t: np.void) -> Iterator[TransactionWindow]:
    """Yield those of :func:`unmarked_behind` whose marker is not in a deleted or unread part at the log start."""
    matched = matching(log, int(t["producer_id"]))
    numbers = _unmarked_behind(log, matched, t)
    if log.leader.log_start > 0:
        numbers = numbers[_would_be_here(log, matched.windows, numbers, matched.numbers)]
    return map(matched.window, numbers.tolist())


def _unmarked_behind(log: LogFacts, matched: Matching, t: np.void) -> np.ndarray:
    if not len(matched.unmarked):
        return matched.unmarked
    behind = matched.number(int(t["prev_marker_offset"]))
    if behind is not None:
        return matched.unmarked[matched.unmarked > behind]
    if t["prev_marker_offset"] < 0:
        return matched.unmarked
    return matched.unmarked[_may_follow(log, matched.windows[matched.unmarked], int(t["prev_marker_time"]))]


def unmarked_windows(log: LogFacts) -> Iterator[tuple[TransactionWindow, tuple[int, int]]]:
    """Yield completed windows that name this partition and have no marker in the leader replica.

    Each with the offsets that bound where its marker belongs: the producer's markers of earlier and later windows.
    """
    rows = naming(log).rows
    if not len(rows):
        return
    for producer_id in np.unique(rows["producer_id"][rows["has_complete"]]).tolist():
        matched = matching(log, producer_id)
        for number in matched.unmarked[matched.windows["has_complete"][matched.unmarked]].tolist():
            before = matched.markers[(matched.numbers >= 0) & (matched.numbers < number)]
            behind = matched.markers[matched.numbers > number]
            yield matched.window(number), (int(before.max(initial=-1)), int(behind.min(initial=log.leader.log_end)))


def may_hold(window: TransactionWindow, t: np.void, time: int) -> bool:
    """Whether data with its newest timestamp at ``time`` (ms) may be of a transaction, by epoch and timestamp.

    A timestamp after the end rules it out; one before the start only where a broker wrote it: clients stamp records
    with event times, which Streams passes on to its output.
    """
    after = t["first_append_time"] != 1 or not is_after(window.start_time, time)
    until = window.end_time is None or not is_after(time, window.end_time)
    return window.data_epoch in (None, int(t["last_epoch"])) and after and until


def window_after(log: LogFacts, t: np.void) -> TransactionWindow | None:
    """Return a window that names the partition and may have allowed this data after the previous marker.

    Closed data belongs to the window of its own marker, if that is later than the previous marker's. Open data may
    belong to any later window that had the partition by then; client timestamps may precede the record that allowed the
    batch, which the slack allows for.
    """
    matched = matching(log, int(t["producer_id"]))
    before = matched.number(int(t["prev_marker_offset"]))
    own = matched.number(int(t["marker_offset"])) if t["marker_offset"] >= 0 else None
    if own is not None:
        return matched.window(own) if before is None or own > before else None
    windows = matched.windows
    if before is not None:
        later = np.arange(len(windows)) > before
    else:
        later = _may_follow(log, windows, int(t["prev_marker_time"]))
    later &= (windows["added_row"] >= 0) & (windows["added_epoch"] == t["producer_epoch"])
    later &= windows["added_time"] <= log.time(t["first_time"]) + np.maximum(_slacks(log, windows), _of_clients(log))
    carried_out = matched.numbers[(matched.markers <= t["prev_marker_offset"]) & (matched.numbers >= 0)]
    later[carried_out] = False
    return _first(matched, later)


def _may_follow(log: LogFacts, windows: np.ndarray, marker_time: int) -> np.ndarray:
    # They did not end before the marker, as far as clocks show.
    others = beyond_ms(_slacks(log, windows), one_clock=True) > 0
    return ~windows["has_complete"] | (windows["ended"] > np.where(others, at_least_ms(marker_time), marker_time))
