"""Which decision of a coordinator each marker of a producer carries out, in one partition.

By the epoch of the Prepare and the result, in the order of both logs. Times choose among the candidates that are left:
first as they are, then as far apart as clocks may be, then by clocks that differ as the order shows. They veto nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from auditor.base.compiled import kernel
from auditor.rules.seen.named import COMMIT, NONE

SAME_CLOCK_MS = 1_000  # two reads of one broker's clock, and a marker's way through its queues
CLOSE_MS = 100  # markers of one clock come so close behind their decisions, by most of them
MOST_BETWEEN = 1_000  # windows of a producer that are passed over for one marker
Asked = Callable[[], bool]


def paired(
    windows: np.ndarray,
    given: list[np.ndarray],
    slack: int,
    *,
    whole: Asked,
    there: Asked,
    other_clocks: bool,
    until: int,
) -> np.ndarray:
    """The number of the window that each marker is of, -1 for none; a marker that was sent again is of the same one.

    ``windows``: rows of :data:`auditor.rules.seen.named.WINDOW` of one producer, in the order of the coordinator's log;
    ``given``: times (ms), epochs, results (0: ABORT) and first data offsets (-1: closed nothing) of its markers, in the
    order of the partition's. ``slack``: how far (ms) their clocks may be apart where nothing shows more. ``whole``:
    whether all of both were ever kept; ``there``: whether neither can lack anything because it was copied too early;
    ``other_clocks``: whether brokers of both may be different ones. ``until``: the time (ms) of the last marker in the
    partition, of any producer.
    Cost: some passes over both; more only where clocks leave some of both over.
    """
    numbers, exact = _by_time(windows, given, slack)
    if _left_on_both_sides(windows, given, numbers) and not (
        _all_behind(windows, numbers, until - slack) and not whole()
    ):
        return _by_order(windows, given, slack, numbers, exact, whole, there, other_clocks=other_clocks)
    return numbers


def fits_exactly(windows: np.ndarray, given: list[np.ndarray]) -> bool:
    """Whether most markers lie between decision and completion of a window of theirs, by clocks as they are: only then
    is it sure which goes with which, where either of both may begin later than the other."""
    return 2 * _by_time(windows, given, 0)[1] >= len(given[0])


def _by_time(windows: np.ndarray, given: list[np.ndarray], slack: int, ahead: int = 0) -> tuple[np.ndarray, int]:
    """Numbers of windows by clocks of which the markers' is ``ahead`` ms ahead, and how many fit without any slack.

    First without: where transactions follow one another within milliseconds, slack takes a neighbour's.
    """
    numbers = np.full(len(given[0]), -1)
    exact = 0
    for span, mine in _stretches(windows, given[0]):
        here = windows[mine]
        stamps, *others = (column[span] for column in given)
        found, ends, taken = np.full(len(stamps), -1), np.empty(len(stamps), np.int64), np.zeros(len(here), np.bool_)
        for allowed in (0, slack):
            if allowed:
                _pair_repeats(here, stamps - ahead, *others, allowed, found)
            _pair(here, stamps - ahead, *others, allowed, found, ends, taken)
            _pair_repeats(here, stamps - ahead, *others, allowed, found)
            taken[found[found >= 0]] = True
            exact += int((found >= 0).sum()) if not allowed else 0
        numbers[span] = np.where(found >= 0, found + mine.start, -1)
    return numbers, exact


def _stretches(windows: np.ndarray, stamps: np.ndarray) -> Iterator[tuple[slice, slice]]:
    """Markers and windows of one stretch of time each: cut where a clock went back. Both logs end at about one time, so
    the last stretches of both belong together, where one of them begins later than the other."""
    decided = np.flatnonzero(windows["has_prepare"])
    falls = [
        at[1:][np.diff(times) < -SAME_CLOCK_MS]
        for at, times in ((np.arange(len(stamps)), stamps), (decided, windows["prepared"][decided]))
    ]
    count = min(map(len, falls)) + 1
    cuts = (
        [0, *fell.tolist(), end][-count - 1 :] for fell, end in zip(falls, map(len, (stamps, windows)), strict=True)
    )
    for span, mine in zip(*map(pairwise, cuts), strict=True):
        yield slice(*span), slice(*mine)


def _all_behind(windows: np.ndarray, numbers: np.ndarray, end: int) -> bool:
    """Whether no marker fits any window, and each window may have its marker behind the end (ms) of the log.

    Where the cleaner has taken away older transactions, the markers are theirs. No pair shows that clocks are apart.
    """
    open_ended = ~windows["has_complete"] | (windows["ended"] < 0)
    return bool((numbers < 0).all() and (open_ended | (windows["ended"] >= end)).all())


def _left_on_both_sides(windows: np.ndarray, given: list[np.ndarray], numbers: np.ndarray) -> bool:
    """Whether a marker is left, and a prepared window of its epoch and result: clocks may be what parts them."""
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
    there: Asked,
    *,
    other_clocks: bool,
) -> np.ndarray:
    """The same where clocks leave markers and windows of one epoch and result over: by the order of both logs.

    Times choose where more than one order is possible, by clocks that differ as those pairs show that would be if the
    first, or the last, of both were of one transaction. What is left then, between pairs, goes in order: times veto
    nothing.
    """
    stamps, epochs, commits, firsts = given
    each = _one_each(windows, given) if whole() else None
    if each is not None and (2 * exact < len(stamps) or _is_shifted(windows, by_time) or there()):
        return each
    numbers, enough = by_time, 2 * exact + 1
    for ahead in _differences(windows, given) if other_clocks else ():
        found, fit = _by_time(windows, given, slack, ahead)
        if fit >= enough:
            numbers, enough = found, fit + 1
    taken = np.zeros(len(windows), np.bool_)
    taken[numbers[numbers >= 0]] = True
    filled = numbers.copy()
    _fill(windows, epochs, commits, firsts, filled, np.empty(len(stamps), np.int64), taken)
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
    """The pairs where there are as many decisions as markers, or as markers that close data, with the same epochs and
    results in the same order; None where there are not. A marker that was sent again is of the one before it."""
    stamps, epochs, commits, firsts = given
    decided = np.flatnonzero(windows["decision"] != NONE)
    for at in (np.arange(len(stamps)), np.flatnonzero(firsts >= 0)):
        if len(at) == len(decided) and np.array_equal(_keys(epochs[at], commits[at]), _keys_of(windows[decided])):
            numbers = np.full(len(stamps), -1)
            numbers[at] = decided
            for k in np.flatnonzero(numbers < 0).tolist():
                if k and epochs[k] == epochs[k - 1] and commits[k] == commits[k - 1]:
                    numbers[k] = numbers[k - 1]
            return numbers
    return None


def _differences(windows: np.ndarray, given: list[np.ndarray]) -> Iterator[int]:
    """By how much (ms) the markers' clock may be ahead: as pairs show in the order of both logs, from their beginning
    and from their end, of all markers and of those that close data (one that was sent again closes nothing)."""
    stamps, epochs, commits, firsts = given
    for at in (np.arange(len(stamps)), np.flatnonzero(firsts >= 0)):
        for step in (1, -1):
            order = np.full(len(at), -1)
            _in_order(windows[::step], epochs[at][::step], commits[at][::step], order)
            prepared = windows["prepared"][::step][order[order >= 0]]
            lags = stamps[at][::step][order >= 0] - prepared
            if len(lags):  # those of right pairs lie close together: where one is lost, wrong ones are scattered
                lags.sort()
                close = np.searchsorted(lags, lags + CLOSE_MS, "right") - np.arange(len(lags))
                yield int(lags[np.argmax(close)])


def _is_shifted(windows: np.ndarray, numbers: np.ndarray) -> bool:
    """Whether what clocks leave over are markers at one end and windows at the other one: all pairs are off by some."""
    free = windows["decision"] != NONE
    free[numbers[numbers >= 0]] = False
    left, free = np.flatnonzero(numbers < 0), np.flatnonzero(free)
    count = len(numbers) - len(left)
    early, late = left.max() < len(left), left.min() >= count
    return bool((early and free.min() >= count) or (late and free.max() < len(free)))


@kernel
def _in_order(windows, epochs, commits, numbers):  # type: ignore[no-untyped-def]
    """Pairs each marker with the next window of its epoch and result; backwards where all is given backwards."""
    behind = len(windows)
    n = 0
    for k in range(len(numbers)):
        at = n
        while at < behind and not _same_end(windows[at], epochs[k], commits[k]):
            at += 1
            if at - n > MOST_BETWEEN:
                at = behind
        if at < behind:
            numbers[k] = at
            n = at + 1


@kernel
def _fill(windows, epochs, commits, firsts, numbers, ends, taken):  # type: ignore[no-untyped-def]
    """Pairs what is left, between the pairs that are there, in the order of both. ``ends`` is room as for ``_pair``."""
    limit = len(windows)
    for k in range(len(numbers) - 1, -1, -1):
        if numbers[k] >= 0:
            limit = min(limit, numbers[k])
        ends[k] = limit
    n = 0
    for k in range(len(numbers)):
        if numbers[k] < 0:
            until = min(ends[k], n + MOST_BETWEEN)
            at = n
            while at < until and (taken[at] or not _same_end(windows[at], epochs[k], commits[k])):
                at += 1
            if firsts[k] < 0 and k > 0 and epochs[k] == epochs[k - 1] and commits[k] == commits[k - 1]:
                numbers[k] = numbers[k - 1]  # sent again, first of all
            elif at < until:
                numbers[k] = at
                taken[at] = True
        n = max(n, numbers[k] + 1)


@kernel
def _same_end(window, epoch, commit):  # type: ignore[no-untyped-def]
    """Whether a marker can be a prepared window's by epoch and result."""
    return window.has_prepare and window.epoch == epoch and (window.decision == COMMIT) == (commit != 0)


@kernel
def _pair(windows, stamps, epochs, commits, firsts, slack, numbers, ends, taken):  # type: ignore[no-untyped-def]
    """Pairs what is left of markers and windows, in the order of both, between the pairs that are there already.

    Cost: one pass over both, since windows that ended ``slack`` ms before a marker are behind for good. ``ends`` is
    room for the number of the first window behind each marker that is taken.
    """
    limit = len(windows)
    for k in range(len(numbers) - 1, -1, -1):
        if numbers[k] >= 0:
            limit = numbers[k]
        ends[k] = limit
    at = 0
    for k in range(len(numbers)):
        stamp = stamps[k]
        if numbers[k] < 0:
            while at < ends[k] and windows[at].has_complete and windows[at].ended < stamp - slack:
                at += 1
            n = at
            while n < ends[k] and (not windows[n].has_prepare or windows[n].prepared <= stamp + slack):
                if not taken[n] and _fits(windows[n], stamp, epochs[k], commits[k], slack):
                    numbers[k] = n
                    break
                n += 1
        at = max(at, numbers[k] + 1)


@kernel
def _pair_repeats(windows, stamps, epochs, commits, firsts, slack, numbers):  # type: ignore[no-untyped-def]
    """A marker that was sent again closes nothing and belongs to the window of the one before it."""
    before = -1
    for k in range(len(numbers)):
        lone = firsts[k] < 0 and numbers[k] < 0 and before >= 0
        if lone and _fits(windows[before], stamps[k], epochs[k], commits[k], slack):
            numbers[k] = before
        if numbers[k] >= 0:
            before = numbers[k]


@kernel
def _fits(window, stamp, epoch, commit, slack):  # type: ignore[no-untyped-def]
    """Whether a marker can be one of this window's: by epoch, result and the time between decision and completion."""
    if window.decision == NONE or (window.decision == COMMIT) != (commit != 0):
        return False
    if window.has_prepare and window.epoch != epoch:
        return False
    begin = window.prepared if window.has_prepare else window.begun
    return begin - slack <= stamp and (not window.has_complete or stamp <= window.ended + slack)
