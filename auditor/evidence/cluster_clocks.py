"""What time it is for a cluster and for each of its brokers, and the order of times that different clocks wrote."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from auditor.facts.replica_facts import FALL_MS

T = TypeVar("T")
Ms = TypeVar("Ms", int, float, np.ndarray)  # times or differences of clocks, of one or of many

ONE_CLOCK_MS = FALL_MS  # two reads of one broker's clock, and a marker's way through its queues
TWO_CLOCKS_MS = 30_000  # clocks of two brokers
NO_CLOCK_MS = 60_000  # a client's stamp that lies farther back than this is no reading of a clock
READ_MS = 50  # from one reading of a clock to the next, where markers show how far two clocks are apart
INTERVAL_MS = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms by default
FAR_MS = 3_600_000  # how far a wrong clock is ahead: a single time beyond all others of its broker may be one
SHORT_FALL_MS = 10 * 60_000  # a larger fall may be the end of a jump ahead
LOOK_MS = 10_000  # past the timeout and the coordinator's interval: the end is in its log by then
OVERDUE_MS = 20_000  # likewise, with the clocks of two machines
SESSION_MS = 9_000  # broker.session.timeout.ms by default: how long a dead broker is unfenced at most
MAX_TIMEOUT_MS = 15 * 60_000  # transaction.max.timeout.ms by default
RESTART_MS = 5 * 60_000  # a partition may lack its leader for as long while a broker restarts
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
ALWAYS = 1 << 62  # ms, beyond any time
MOST_ERAS = 64  # of a log that are known everywhere, the newest


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


# The order of times (ms) that the clocks of two brokers show, or one where ``one_clock`` is set. Columns stay numbers.


def at_most_ms(time: Ms, *, one_clock: bool = False) -> Ms:
    """Return the latest time, or the largest difference, that is the same by the clock of another broker."""
    return time + (ONE_CLOCK_MS if one_clock else TWO_CLOCKS_MS)


def at_least_ms(time: Ms, *, one_clock: bool = False) -> Ms:
    """Return the earliest time, or the smallest difference, that is the same by the clock of another broker."""
    return time - (ONE_CLOCK_MS if one_clock else TWO_CLOCKS_MS)


def is_after(one: int, other: int, *, one_clock: bool = False) -> bool:
    """Whether a time is later than another one by more than clocks usually differ."""
    return one > at_most_ms(other, one_clock=one_clock)


def beyond_ms(apart: Ms, *, one_clock: bool = False) -> Ms:
    """Return a difference, 0 for what clocks usually differ by."""
    return apart * (abs(apart) > at_most_ms(0, one_clock=one_clock))


def is_read_after(one: int, other: int) -> bool:
    """Whether a clock read a time after another one, by which markers show how far two clocks are apart."""
    return one > other + READ_MS


def by_a_client(time: int) -> int:
    """Return the earliest stamp of a client that read its clock at a time of a broker."""
    return time - NO_CLOCK_MS


def same_clock(one: int | None, other: int | None) -> bool:
    """Whether two brokers are one; None: an unknown broker."""
    return one is not None and one == other


def most_at_once(least: np.ndarray, most: np.ndarray) -> int:
    """Return how many differences one pair of clocks may have at once, at most, by their bounds."""
    low, high = np.sort(at_least_ms(least, one_clock=True)), np.sort(at_most_ms(most, one_clock=True))
    return int((np.searchsorted(low, high, "right") - np.arange(len(high))).max(initial=0))


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

    def is_doubted(self, of_its_broker: Iterable[int], newest_of_all: int) -> bool:
        """Whether a newest time that is alone and far ahead of all other logs may be of a wrong clock.

        ``of_its_broker``: the newest broker-written times of the broker's other logs (ms, -1: none). One of them has to
        be as new as this log is without that time: an idle log contradicts nothing.
        """
        if not self._starts or newest_of_all >= self.newest - FAR_MS:
            return False
        before = self._before_last[self._starts[-1]] - TWO_CLOCKS_MS
        return any(time >= max(before, 0) for time in of_its_broker)

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


def falls(track: np.ndarray) -> list[Fall]:
    """Return the falls of the clock in a track (STAMP rows), by offset, without those whose rows were removed."""
    if not len(track) or track["era"][0] == track["era"][-1]:
        return []
    starts = np.flatnonzero(np.diff(track["era"])) + 1
    newest = np.maximum.reduceat(track["time"], np.concatenate([[0], starts]))
    return [
        Fall(None, int(newest[number]), int(track["time"][row]), -1, "", int(track["offset"][row]))
        for number, row in enumerate(starts.tolist())
        if track["era"][row] == track["era"][row - 1] + 1 and newest[number] - track["time"][row] > ONE_CLOCK_MS
    ]


def step_between(steps: Sequence[Fall], before: int, begun: int, offset: int, time: int) -> Fall | None:
    """Return the fall of a log's clock that may explain how long before ``time`` at an offset ``begun`` is.

    ``before``: the offset of ``begun``. The clock ran ahead until it fell behind both offsets; or it fell before the
    later one, to about ``begun`` at the latest, and was set right between them.
    """
    for step in steps:
        if step.offset > offset and step.then < time <= step.was + ONE_CLOCK_MS:
            return step
        newest = step.was if step.offset <= before else step.then
        if step.offset <= offset and step.then - MINUTE_MS <= begun <= newest and step.was <= time + ONE_CLOCK_MS:
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

    def is_after(self, other: BrokerTime) -> bool:
        """Whether it is later than another one by more than one clock, or two, usually differ."""
        return is_after(self.__ms, other.__ms, one_clock=same_clock(self.broker, other.broker))

    def __repr__(self) -> str:
        return f"BrokerTime({self.__ms}, {self.broker})"


class Era(NamedTuple):
    """A part of a log that one leader wrote, whose clock did not fall in it. Times are ms.

    ``before``: its newest time more than a minute before ``newest``, -1 for none; ``ahead_from``: the time behind its
    longest pause, of ``pause_ms`` (-1: of one time alone), at which its clock may have jumped ahead.
    """

    leader_epoch: int
    first_offset: int
    oldest: int
    before: int
    newest: int
    ahead_from: int
    pause_ms: int = -1


class Fall(NamedTuple):
    """A step back of a broker's clock, which read ``was`` and then ``then`` (ms), at an offset of a log.

    ``wrong_from``: since when it had read times that it read again: since it had jumped ahead as far, else ``then``.
    """

    broker: int | None
    was: int
    then: int
    ahead_from: int
    log: str
    offset: int
    wrong_from: int = -1

    @property
    def by_ms(self) -> int:
        """How far it fell."""
        return self.was - self.then


class LogEras(NamedTuple):
    """The eras of a copy of a log, each with its leader (None: unknown), and the broker that has the copy.

    ``of_controllers``: it is the metadata log.
    """

    name: str
    holder: int | None
    eras: Sequence[tuple[int | None, Era]]
    of_controllers: bool = False

    def written_by(self, time: int) -> int | None:
        """Return the broker that wrote a time (ms) in it, None where it may have been another one."""
        brokers = {leader for leader, era in self.eras if era.oldest <= time <= era.newest}
        return brokers.pop() if len(brokers) == 1 else None


def eras_of(track: np.ndarray) -> list[Era]:
    """Return the eras of a log's broker-written times (STAMP rows), in order: one for each leader epoch of an era."""
    begins = np.flatnonzero(np.diff(track["era"]) | np.diff(track["leader_epoch"])) + 1
    rows = [0, *begins.tolist(), len(track)] if len(track) else []
    return [_era(track[begin:end]) for begin, end in pairwise(rows[-MOST_ERAS - 1 :])]


def _era(rows: np.ndarray) -> Era:
    times = np.maximum.accumulate(rows["time"])
    earlier = times[times < times[-1] - MINUTE_MS]
    jump = int(np.argmax(np.diff(times))) + 1 if len(times) > 1 else 0
    return Era(
        leader_epoch=int(rows["leader_epoch"][0]),
        first_offset=int(rows["offset"][0]),
        oldest=int(times[0]),
        before=int(earlier[-1]) if len(earlier) else -1,
        newest=int(times[-1]),
        ahead_from=int(times[jump]),
        pause_ms=int(times[jump] - times[jump - 1]) if jump else -1,
    )


def newest_of(log: LogEras, clocks: Clocks | None = None) -> int:
    """Return the newest time of a log behind the last fall of its clock, ms; -1 without any.

    Another leader's clock may be behind the last one's, which is no fall: the newest time of either counts, by the last
    one's clock where ``clocks`` show how far they differ. Where they show that clocks differ by far, but not by how
    much these two do, only the last leader's times count: it wrote them last.
    """
    last = log.eras[-1][0] if log.eras else None
    times = {leader: era.newest for leader, era in log.eras}
    if clocks is not None:
        measured = {leader for leader in times if leader == last or clocks.measured_ms(last, leader) is not None}
        times = {leader: times[leader] + clocks.ahead_ms(last, leader) for leader in measured}
    return max(times.values(), default=-1)


class Lag(NamedTuple):
    """A decision and its marker: their brokers, and how far the marker's clock is ahead, ms, at least and at most.

    ``most`` is :data:`ALWAYS` where only order shows it.
    """

    decided_by: int
    written_by: int
    least: int
    most: int


def differences(lags: Iterable[Lag]) -> dict[int | None, tuple[int, int]]:
    """Return by broker how far (ms) its clock is ahead of the first broker's that it is compared with, and that one.

    By the difference of two clocks that fits most of their markers, two or more.
    """
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lag in lags:
        if lag.decided_by < lag.written_by:
            spans.setdefault((lag.decided_by, lag.written_by), []).append((lag.least, lag.most))
        elif lag.decided_by > lag.written_by:
            spans.setdefault((lag.written_by, lag.decided_by), []).append((-lag.most, -lag.least))
    ahead: dict[int, dict[int, int]] = {}
    for (one, other), of_pair in spans.items():
        if (by := _of_most(np.array(of_pair))) is not None:
            ahead.setdefault(one, {})[other], ahead.setdefault(other, {})[one] = by, -by
    out: dict[int | None, tuple[int, int]] = {}
    for first in sorted(ahead):
        reached = [] if first in out else [first]
        for broker in reached:
            out[broker] = (0 if broker == first else out[broker][0]), first
            for other, by in ahead[broker].items():
                if other not in out:
                    out[other] = out[broker][0] + by, first
                    reached.append(other)
    return out


def _of_most(spans: np.ndarray) -> int | None:
    least, most = np.sort(spans[:, 0] - ONE_CLOCK_MS), np.sort(spans[:, 1] + ONE_CLOCK_MS)
    count = np.arange(1, len(least) + 1) - most.searchsorted(least, "left")
    best = int(count.argmax())
    if count[best] < 2 or 2 * count[best] <= len(spans):
        return None
    soonest = int(most[most.searchsorted(least[best], "left")]) - ONE_CLOCK_MS  # markers come soon
    return soonest if soonest < ALWAYS else int(least[best]) + ONE_CLOCK_MS


def _falls(log: LogEras) -> Iterator[Fall]:
    for (led, era), (leads, later) in pairwise(log.eras):
        if later.oldest < era.newest - ONE_CLOCK_MS and (
            era.leader_epoch == later.leader_epoch or (led is not None and led == leads)
        ):
            by_ms = era.newest - later.oldest
            jumped = by_ms > SHORT_FALL_MS and (era.pause_ms < 0 or 10 * era.pause_ms >= 9 * by_ms)
            wrong_from = era.ahead_from if jumped else later.oldest
            yield Fall(leads, era.newest, later.oldest, era.ahead_from, log.name, later.first_offset, wrong_from)


@dataclass(slots=True)
class Clocks:
    """The clocks of one cluster's brokers. Times are ms.

    ``cluster_now``: the evaluation time, by ``given`` that of the user, which then is that of every broker; ``newest``:
    the newest time that each broker (None: an unknown one) wrote, behind the last fall of its clock; ``up_until``:
    until when each broker looked at timeouts, as far as the metadata shows; ``intervals``: how often it looks;
    ``apart``: how far clocks differ, of :func:`differences`; ``spread_ms``: how far a time of an unknown clock may be
    from any broker's, beyond what clocks usually differ by.
    """

    cluster_now: int = -1
    given: bool = False
    newest: Mapping[int | None, int] = field(default_factory=dict)
    up_until: Mapping[int | None, int] = field(default_factory=dict)
    intervals: Mapping[int | None, int] = field(default_factory=dict)
    falls: tuple[Fall, ...] = ()
    apart: Mapping[int | None, tuple[int, int]] = field(default_factory=dict)
    spread_ms: int = 0

    def now(self) -> BrokerTime:
        """Return the evaluation time of the cluster."""
        return BrokerTime(self.cluster_now, None)

    def enforced_until(self, broker: int | None) -> BrokerTime:
        """Return until when a broker was up for certain, by its own clock: so long it ended what was overdue.

        Neither other brokers nor controllers say so, but for what the metadata shows of its sessions.
        """
        if self.given or broker is None:
            return BrokerTime(self.cluster_now, broker)
        known = [times[broker] for times in (self.newest, self.up_until) if broker in times]
        return BrokerTime(max(known, default=self.cluster_now), broker)

    def beyond_ms(self, broker: int | None, time: int) -> int:
        """Return how far (ms) a time of a broker is ahead of all that shows when it was up, by a wrong clock."""
        beyond = 0 if self.given else time - self.enforced_until(broker).ms_for_display()
        return beyond if beyond > ONE_CLOCK_MS else 0

    def age_ms(self, begun: BrokerTime) -> int:
        """Return for how long something of a broker is open for certain, while that broker was up."""
        return max(0, self.enforced_until(begun.broker).ms_for_display() - begun.ms_for_display())

    def interval_ms(self, broker: int | None) -> int:
        """Return how often a coordinator looks for transactions past their timeout, ms, by its settings.

        Of an unknown coordinator: the longest that is known. One that looks every hour, or less often, leaves readers
        blocked for longer than is normal: its transactions are overdue after the default.
        """
        known = self.intervals.values() if broker is None else [self.intervals.get(broker, INTERVAL_MS)]
        return max((interval for interval in known if interval < HOUR_MS), default=INTERVAL_MS)

    def overdue_after_ms(self, broker: int | None, timeout_ms: int) -> int:
        """Return after how many ms an open transaction is overdue at its coordinator: the one threshold."""
        return timeout_ms + self.interval_ms(broker) + OVERDUE_MS

    def ended_after_ms(self, broker: int | None, timeout_ms: int) -> int:
        """Return after how many ms the coordinator's log has the end of a transaction, if its coordinator was up."""
        return timeout_ms + self.interval_ms(broker) + LOOK_MS

    def is_overdue(self, begun: BrokerTime, timeout_ms: int) -> bool:
        """Whether a transaction is overdue at the coordinator that wrote its start.

        It compares the stored start with its clock of now. Source: TransactionStateManager.timedOutTransactions.
        """
        return self.age_ms(begun) > self.overdue_after_ms(begun.broker, timeout_ms)

    def ahead_ms(self, one: int | None, other: int | None) -> int:
        """Return how far (ms) one broker's clock is ahead of another's; 0 for what two clocks usually differ by."""
        return beyond_ms(self.measured_ms(one, other) or 0)

    def measured_ms(self, one: int | None, other: int | None) -> int | None:
        """Return how far (ms) one broker's clock is ahead of another's, None where nothing shows it."""
        (by, first), (than, its) = self.apart.get(one, (0, -1)), self.apart.get(other, (0, -2))
        return by - than if first == its else 0 if one == other and one is not None else None

    def compare(self, lags: Iterable[Lag]) -> None:
        """Note how far clocks differ, by decisions and their markers."""
        self.apart = differences(lags)
        groups: dict[int, list[int]] = {}
        for by, first in self.apart.values():
            groups.setdefault(first, []).append(by)
        self.spread_ms = beyond_ms(max((max(some) - min(some) for some in groups.values()), default=0))

    def fell_ms(self, times: np.ndarray, *brokers: int | None) -> np.ndarray:
        """Return by how much the clocks of some brokers fell across each of these times (ms), 0 where they did not.

        Two times may stand in the wrong order only if both lie between what a clock read before a fall and after it.
        """
        out = np.zeros(len(times), np.int64)
        for fall in self.falls:
            if fall.broker is None or None in brokers or fall.broker in brokers:
                across = (times <= fall.was + ONE_CLOCK_MS) & (times >= fall.then - ONE_CLOCK_MS)
                out = np.maximum(out, np.where(across, fall.by_ms, 0))
        return out

    def may_be_reversed(self, known: int, asked: int, log: str) -> bool:
        """Whether a time (ms) that looks newer than another one may have been written before it, for a clock fell.

        ``known``: the newer one, of a copy; ``log``: its log, which itself shows the falls of its clock.
        """
        return any(
            fall.log != log
            and fall.wrong_from - ONE_CLOCK_MS <= known <= fall.was + ONE_CLOCK_MS
            and fall.then - ONE_CLOCK_MS <= asked <= fall.was + ONE_CLOCK_MS
            for fall in self.falls
        )

    def explains(self, broker: int | None, ms: int, time: int) -> Fall | None:
        """Return the fall of a broker's clock that ran ahead within ``ms`` before a time (ms) that it read then."""
        for fall in self.falls:
            ahead = fall.then < time and fall.ahead_from <= time <= fall.was + ONE_CLOCK_MS
            if fall.broker in (broker, None) and ahead and time - ms < fall.ahead_from:
                return fall
        return None


def clocks(
    logs: Sequence[LogEras],
    sessions: Mapping[int | None, int],
    intervals: Mapping[int | None, int],
    given: int | None,
    otherwise: int = -1,
) -> Clocks:
    """Return the clocks of a cluster.

    ``given``: the user's evaluation time; ``otherwise``: that of logs without any time of a broker; for the others see
    :class:`Clocks`.
    """
    falls = tuple(fall for log in logs for fall in _falls(log))
    own: dict[int | None, list[Era]] = {}
    for log in logs:
        for leader, era in dict(log.eras).items() if not log.of_controllers else ():
            if leader is None:  # its leader wrote these times, and the holder of the copy read them
                era = era._replace(before=era.before - TWO_CLOCKS_MS, newest=era.newest - TWO_CLOCKS_MS)
            own.setdefault(log.holder if leader is None else leader, []).append(era)
    newest = {broker: _newest(eras, [f for f in falls if f.broker == broker]) for broker, eras in own.items()}
    now = max(map(newest_of, logs), default=-1)
    now = given if given is not None else now if now >= 0 else otherwise
    return Clocks(now, given is not None, newest, sessions, intervals, falls)


def up_until(end: int, behind: int, *, of_controller: bool) -> int:
    """Return until when (ms) a broker was up by its own clock, of a session that ends at a time of the controllers'.

    ``behind``: by how much its clock is behind theirs, as far as known; ``of_controller``: it is the only controller.
    """
    if of_controller:
        return end
    return end - SESSION_MS - (behind if behind > ONE_CLOCK_MS else 0) - TWO_CLOCKS_MS


def _newest(eras: Sequence[Era], falls: Sequence[Fall]) -> int:
    """The newest time of a broker's logs, but for times of a clock that ran ahead.

    These are a time that its clock read before it fell in another log, and never again as far as that log shows; and a
    time of a minute's records that is a day ahead of all its other logs.
    """
    in_order = sorted(eras, key=lambda era: era.newest)
    while len(in_order) > 1:
        others, last = in_order[-2].newest, in_order[-1]
        fell = any(
            f.ahead_from - MINUTE_MS <= last.newest <= f.was + MINUTE_MS and others < f.ahead_from for f in falls
        )
        alone = last.newest > others + DAY_MS and last.before <= others
        if not (fell or alone):
            break
        in_order[-1] = last._replace(newest=last.before, before=-1)
        in_order.sort(key=lambda era: era.newest)
        if last.before < 0:
            in_order.pop(0)
    return in_order[-1].newest
