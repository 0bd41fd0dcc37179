"""What time it is for a cluster and for each of its brokers, and the order of times that different clocks wrote."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from auditor.facts.replica_facts import Fall

T = TypeVar("T")

ONE_CLOCK_MS = 1_000  # two reads of one broker's clock, and a marker's way through its queues
TWO_CLOCKS_MS = 30_000  # clocks of two brokers
INTERVAL_MS = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms by default
FAR_MS = 3_600_000  # how far a wrong clock is ahead: a single time beyond all others of its broker may be one
OVERDUE_MS = 20_000  # past the timeout and the coordinator's interval: what it does is in its log by then


class Confidence(StrEnum):
    """How certain an answer is."""

    PROVED = "proved"
    LIKELY = "likely"
    INCONCLUSIVE = "inconclusive"


class Answer(NamedTuple, Generic[T]):
    """An answer from evidence, how certain it is, and why."""

    value: T
    confidence: Confidence
    why: str


class Order(StrEnum):
    """Whether one time is before another, as far as their clocks allow to say."""

    BEFORE = "before"
    AFTER = "after"
    EITHER = "either"


class Held(NamedTuple):
    """How long data has been in a log, at least, by the times that brokers wrote behind it there; ms.

    ``without_last_ms``: the same without a newest time that is alone and :data:`FAR_MS` ahead: a clock that was wrong
    may have written it.
    """

    at_least_ms: int = 0
    without_last_ms: int = 0


class OwnTimes:
    """The broker-written times of one log, by the clocks that can tell how much time passed.

    Counts what passed by one clock after the other, one per leader epoch, behind the last fall of one: what passed
    between two of them, and before a clock was corrected, is unknown.
    """

    def __init__(self, track: np.ndarray, until: int | None = None) -> None:
        """``track``: STAMP rows; ``until``: later times (ms) are of a wrong clock."""
        if until is not None:
            track = track[track["time"] <= until]
        era, epoch = (track[name][1:] != track[name][:-1] for name in ("era", "leader_epoch"))
        fell = np.flatnonzero(era & ~epoch) + 1  # a new leader starts over: its clock is another one
        starts = [int(fell.max(initial=0)), *(np.flatnonzero(era | epoch) + 1).tolist()]
        starts = [row for row in starts if starts[0] <= row < len(track)]
        self._offsets: list[int] = track["offset"].tolist()
        self._times: list[int] = track["time"].tolist()
        self._starts = sorted(set(starts))
        self._begin = [self._offsets[row] for row in self._starts]
        self._before_last = [-1] * len(self._times)  # the newest time from each row on, but for the last of its run
        self._behind = [Held()]  # of all runs from the last one on, from the last two, ...
        for run in reversed(range(len(self._starts))):
            for row in reversed(range(self._starts[run], self._last(run))):
                self._before_last[row] = max(self._times[row], self._before_last[row + 1])
            self._behind.append(self._with(run, self._starts[run], -1))

    @property
    def newest(self) -> int:
        """The newest time that counts, ms; -1 for none."""
        return max(self._before_last[self._starts[-1]], self._times[-1]) if self._starts else -1

    def held(self, offset: int, own: int = -1) -> Held:
        """Return how long the data at an offset has been in the log.

        ``own``: the time (ms) of the data itself if its broker wrote it, else -1.
        """
        run = bisect.bisect_right(self._begin, offset) - 1
        if run < 0:
            return self._behind[-1]
        return self._with(run, bisect.bisect_left(self._offsets, offset), own)

    def _last(self, run: int) -> int:
        return (self._starts[run + 1] if run + 1 < len(self._starts) else len(self._times)) - 1

    def _with(self, run: int, row: int, own: int) -> Held:
        # What passed in a run from a row on, and in all runs behind it.
        behind, last = self._behind[len(self._starts) - 1 - run], self._last(run)
        if row > last:
            return behind
        begun = own if own >= 0 else self._times[row]
        before = max(begun, self._before_last[row])
        newest = max(self._times[last], self._before_last[row])
        passed, jump = max(0, newest - begun), newest - before
        sure = passed - (jump if jump > FAR_MS else 0)
        return Held(behind.at_least_ms + passed, behind.without_last_ms + sure)


def step_between(steps: Sequence[Fall], before: int, begun: int, offset: int, time: int) -> Fall | None:
    """Return the fall of a log's clock that may explain how long before ``time`` at an offset ``begun`` is.

    ``before``: the offset of ``begun``. The clock ran ahead until it fell behind both offsets; or it fell before both,
    and was set right between them.
    """
    for step in steps:
        was = step.time + step.by_ms
        if step.offset > offset and step.time < time <= was + ONE_CLOCK_MS:
            return step
        if step.offset <= before and step.time - ONE_CLOCK_MS <= begun <= was <= time + ONE_CLOCK_MS:
            return step
    return None


class BrokerTime:
    """A time that a broker wrote, and whose clock it is.

    Has no order and no arithmetic: only this package compares times. ``broker``: None where it is unknown.
    """

    __slots__ = ("__ms", "broker")

    def __init__(self, ms: int, broker: int | None) -> None:
        self.__ms = ms
        self.broker = broker

    def ms_for_display(self) -> int:
        """Return the milliseconds for a record, row or message; never to be compared."""
        return self.__ms

    def __repr__(self) -> str:
        return f"BrokerTime({self.__ms}, {self.broker})"


@dataclass(slots=True)
class Clocks:
    """The clocks of one cluster's brokers. Times are ms.

    ``newest``: the newest broker-written time of each broker (None: unknown broker), behind the last fall of each log's
    clock; ``given``: the evaluation time that the user gave, None for none.
    """

    newest: Mapping[int | None, int] = field(default_factory=dict)
    given: int | None = None
    intervals: Mapping[int | None, int] = field(default_factory=dict)

    def order(self, one: BrokerTime, other: BrokerTime) -> Order:
        """Return the order of two times: beyond what one clock, or two, may differ by."""
        same = one.broker is not None and one.broker == other.broker
        slack = ONE_CLOCK_MS if same else TWO_CLOCKS_MS
        apart = one.ms_for_display() - other.ms_for_display()
        return Order.BEFORE if apart < -slack else Order.AFTER if apart > slack else Order.EITHER

    def interval_ms(self, broker: int | None) -> int:
        """Return how often a coordinator looks for transactions past their timeout, ms, by its settings."""
        return self.intervals.get(broker, INTERVAL_MS)

    def overdue_after_ms(self, broker: int | None, timeout_ms: int) -> int:
        """Return after how many ms an open transaction is overdue at its coordinator: the one threshold."""
        return timeout_ms + self.interval_ms(broker) + OVERDUE_MS
