"""How complete the copy of each log is, and what may be concluded from what it lacks.

Absence of a record in a log at a time proves something only if the log's horizon is at or after that time: everything
written to the log before its horizon is in the copy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from auditor.evidence.cluster_clocks import ALWAYS, Lag, LogEras, at_least_ms, at_most_ms, is_after, same_clock
from auditor.facts.coordinator_history import (
    COMMIT,
    NONE,
    CoordinatorHistory,
    EpochChange,
    NamedTransactions,
    Restored,
    StartsLate,
)
from auditor.facts.events import HOLES, Event, hole_of
from auditor.facts.replica_facts import COMMITTED, ENDED, LogFacts, ReplicaFacts, once
from auditor.model.transaction_states import PREPARED

BYTES_A_MS = 20_000  # 20 MB/s, as slow as copies are
TEXT_MS = 15 * 60_000  # texts are dumped by hand, one after another
NO_MARKERS, NO_COMMITS = np.empty(0, ENDED), np.empty(0, COMMITTED)
METADATA_TOPIC, TRANSACTION_STATE = "__cluster_metadata", "__transaction_state"
Place = tuple[str, int]  # topic and partition
Decided = tuple[tuple[int, int], ...]  # when (ms) transactions were decided and completed, the newest first


class HorizonSource(StrEnum):
    """What shows the horizon of a log."""

    NONE = "nothing"
    AT_ONCE = "the input is a point-in-time snapshot"
    CLEAN_SHUTDOWN = "its broker was stopped cleanly"
    OWN_STAMPS = "its own broker-written times"
    READ_TIMES = "the read times of the copy"
    DIRECTORY = "the newest time in its log directory"
    CHECKPOINT = "the high watermark checkpoint of its log directory"


class Horizon(NamedTuple):
    """Everything written to a log until ``until`` (ms, by its leader's clock; -1: unknown) is in the copy."""

    until: int
    by: HorizonSource

    def reaches(self, time: int, *, other_clock: bool) -> bool:
        """Whether absence of what was written at a time (ms) is proof; ``other_clock``: not its leader's."""
        if self.by in (HorizonSource.AT_ONCE, HorizonSource.CLEAN_SHUTDOWN):
            return self.until >= time
        return self.until > (at_most_ms(time) if other_clock else time)


class ReadTimes(NamedTuple):
    """When a log was read, by a copy's manifest, ms by its broker's clock.

    It has what was written before ``begun``, and nothing written after ``done``. Times of one ``clock`` compare
    directly.
    """

    begun: int
    done: int
    clock: str


class LogEnd(NamedTuple):
    """The end of a replica, as far as it shows when its file was copied.

    ``newest``: its newest broker-written time behind the last fall of its clock (ms, -1: none); ``leader``: the broker
    that led it last, which wrote that time (None: unknown); ``checkpoint``: its entry in
    ``replication-offset-checkpoint``; ``epoch_start``: where its last leader epoch began; ``is_text``: from dumps;
    ``is_cut``: its end could not be read; ``whole``: all its markers are there, from offset 0 on. ``first_markers``,
    ``last_markers``: of each producer, rows of :data:`ENDED`; ``commits``: COMMIT markers, some of each stretch of
    time. ``decided``: the newest two transactions that were completed and name the log, by the coordinators. ``ahead``:
    how far (ms) the clock of ``newest`` is ahead of the broker's own, as far as that is measured.
    """

    log_dir: str
    topic: str
    partition: int
    newest: int
    broker_id: int | None = None
    leader: int | None = None
    log_end: int = -1
    checkpoint: int | None = None
    epoch_start: int = -1
    is_text: bool = False
    is_cut: bool = False
    whole: bool = False
    first_markers: np.ndarray = NO_MARKERS
    last_markers: np.ndarray = NO_MARKERS
    commits: np.ndarray = NO_COMMITS
    decided: Decided = ()
    ahead: int = 0

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def name(self) -> str:
        """``topic-partition``."""
        return f"{self.topic}-{self.partition}"

    @property
    def by_its_broker(self) -> int:
        """``newest``, as early as the clock of the log's own broker may have shown then."""
        newest = self.newest - self.ahead
        return max(newest if self.is_text or same_clock(self.leader, self.broker_id) else at_least_ms(newest), -1)


class LastMarker(NamedTuple):
    """The newest marker of a producer in a log, of a producer whose last transaction is undecided at its coordinator.

    ``name`` of the log (``topic-partition``) and its broker; ``time`` (ms), ``before``: of the marker before it, -1 for
    none. ``has_decision``: the coordinator's log has its decision, whatever the clocks of both say.
    """

    name: str
    broker_id: int | None
    epoch: int
    time: int
    before: int
    commit: bool
    has_decision: bool = False


# How far the clocks of brokers differ, by decisions and their markers.


MOST_MARKED, MOST_COMPARED = 8, 50  # logs of a leader, and producers of a log, that are asked


class Marked(NamedTuple):
    """A log, with the first and the last marker of each producer (:data:`ENDED`). ``whole``: all its markers are there.

    ``leads``: the broker that led it last.
    """

    log: LogEras
    leads: int | None
    first: np.ndarray
    last: np.ndarray
    whole: bool


def lags(history: CoordinatorHistory, logs: Iterable[Marked], coordinators: Mapping[int, LogEras]) -> Iterator[Lag]:
    """Yield markers with their decisions, matched by order and epoch alone, where different brokers wrote both.

    A marker whose decision was cleaned away was written before the decisions of later epochs of its producer: two of
    them show how far its clock is ahead at least.
    ``coordinators``: their logs, by partition. Cost: a few logs of each leader.
    """
    asked: dict[int | None, int] = {}
    for marked in sorted(logs, key=lambda marked: -len(marked.last)):
        asked[marked.leads] = asked.get(marked.leads, 0) + 1
        if asked[marked.leads] > MOST_MARKED or marked.leads is None:
            continue
        named = history.named(marked.log.name)
        if named.left_out:
            continue
        for rows, begins in ((marked.first[:MOST_COMPARED], True), (marked.last[-MOST_COMPARED:], False)):
            for marker in rows:
                windows = named.rows[named.of(int(marker["producer_id"]))]
                windows = windows[windows["decision"] != NONE]
                exact, time = _decision_of(marker, windows, history, marked.whole, begins), int(marker["time"])
                later = windows[windows["has_prepare"] & (windows["epoch"] > marker["epoch"])]
                for window in later[:2] if exact is None else [exact]:
                    coordinator = coordinators.get(int(window["partition"]))
                    decided = None if coordinator is None else coordinator.written_by(int(window["prepared"]))
                    wrote, ahead = marked.log.written_by(time), time - int(window["prepared"])
                    if decided is not None and wrote is not None and (exact is not None or is_after(ahead, 0)):
                        span = (ahead, ALWAYS) if exact is None else (time - int(window["ended"]), ahead)
                        yield Lag(decided, wrote, *span)


def _decision_of(
    marker: np.void, windows: np.ndarray, history: CoordinatorHistory, whole: bool, begins: bool
) -> np.void | None:
    """Return the completed transaction of a producer's first (``begins``) or last marker, where no other may be it."""
    if not len(windows):
        return None
    epochs = windows["epoch"]
    if len(windows) > 1 and len(np.unique(epochs)) == len(windows):  # each end raises the epoch (version 2)
        windows = windows[epochs == marker["epoch"]]
    else:
        owner = history.owner(int(marker["producer_id"]))
        if not whole or owner is None or not history.complete(owner):
            return None
        if not begins and marker["count"] != len(windows):
            return None
    window = windows[0 if begins else -1] if len(windows) else None
    if window is None or not (window["has_prepare"] and window["has_complete"]):
        return None
    same = window["epoch"] == marker["epoch"] and (window["decision"] == COMMIT) == (marker["commit"] == 1)
    return window if same else None


# The horizon of each log directory.


def copying_ms(size: int) -> int:
    """Return the time, in ms, that copying ``size`` bytes is assumed to take unless the input shows a longer one."""
    return at_most_ms(size // BYTES_A_MS)


def contradicted(
    logs: Iterable[LogEnd], readings: Mapping[tuple[str, str, int], ReadTimes]
) -> dict[str, tuple[LogEnd, ReadTimes]]:
    """Return the log directories whose read times are wrong, each with the log that shows it.

    A log there has records from later than its read time, by more than two clocks differ.
    """
    out: dict[str, tuple[LogEnd, ReadTimes]] = {}
    for log in logs:
        read = readings.get((log.log_dir, *log.place))
        if read is not None and is_after(log.newest, read.done):
            out.setdefault(log.log_dir, (log, read))
    return out


def complete_until(
    logs: Sequence[LogEnd], copying: Mapping[str, int], before: Iterable[tuple[str, int]] = ()
) -> dict[str, int]:
    """Return by log directory the time (ms) until which each of its files is complete.

    That is its newest broker-written time less the time that copying it may have taken (``copying``, ms), or less if a
    file shows that it was copied earlier: ``before``, by :func:`copied_before` and :func:`outdated`.
    """
    newest: dict[str, int] = {}
    slack: dict[str, int] = {}
    for log in logs:
        newest[log.log_dir] = max(log.by_its_broker, newest.get(log.log_dir, -1))
        own = TEXT_MS if log.is_text else copying.get(log.log_dir, 0)
        slack[log.log_dir] = max(own, slack.get(log.log_dir, -1))
    until = {log_dir: time - slack[log_dir] for log_dir, time in newest.items() if time >= 0}
    for log_dir, time in before:
        if log_dir in until:
            until[log_dir] = min(at_least_ms(time, one_clock=True), until[log_dir])
    return until


def checkpointed(logs: Iterable[LogEnd], *, by_its_broker: bool = False) -> dict[str, int]:
    """Return by log directory the newest broker-written time (ms) below its high watermark checkpoint.

    The checkpoint was written no earlier than that, by the clock of the log's leader, or ``by_its_broker``.
    """
    times: dict[str, int] = {}
    for log in logs:
        if log.checkpoint is not None and log.newest >= 0 and log.log_end <= log.checkpoint:
            time = log.by_its_broker if by_its_broker else log.newest
            times[log.log_dir] = max(time, times.get(log.log_dir, -1))
    return times


def checkpoint_passes(logs: Iterable[LogEnd]) -> dict[Place, tuple[str, int]]:
    """Return the leader replicas that have all that was committed when their broker wrote its checkpoint.

    The value is the log directory of that checkpoint and its time. A broker reads the high watermarks of all its
    partitions one after another, within milliseconds, and writes them: so the files of one log directory show what was
    committed at one moment, whenever each was copied. That moment is not before the newest broker-written time (ms)
    below any of them; a second is subtracted, and more where another broker may have written that time. Only logs that
    reach their entry count, and that this broker led by the metadata: a follower's watermark lags, and so does that of
    a new leader until it reaches the start of its epoch. Where nothing shows the leader, as with ZooKeeper, it may be
    this broker. Source: ReplicaManager.checkpointHighWatermarks.
    """
    led = [
        log for log in logs if log.checkpoint is not None and not log.is_text and log.leader in (None, log.broker_id)
    ]
    times, out = checkpointed(led, by_its_broker=True), {}
    for log in led:
        time = at_least_ms(times.get(log.log_dir, -1), one_clock=True)
        if time >= 0 and log.checkpoint is not None and log.epoch_start <= log.checkpoint <= log.log_end:
            out[log.place] = (log.log_dir, time)
    return out


# Files that were copied before others of their log directory: they lack everything after a time.


def copied_before(
    logs: Iterable[LogEnd],
    read_until: Callable[[LogEnd], int],
    skipped: Callable[[LogEnd], bool],
) -> Iterator[tuple[str, int]]:
    """Yield log directories with a data log or metadata log that was copied before a time (ms), by what it lacks.

    A data log lacks *all* of the newest markers that coordinators decided and saw appended, two or more, and has
    nothing broker-written behind the first of them: one lost marker leaves others behind it. Not where ``read_until``
    (ms: its checkpoint, read times, or a clean shutdown) proves a later reading, nor where its partition was
    ``skipped`` (KAFKA-20734 skips the markers of all open transactions at once). A controller writes its metadata log
    twice a second.
    """
    for log in logs:
        if log.newest < 0 or log.is_cut:
            continue
        if log.topic == METADATA_TOPIC:
            yield log.log_dir, log.newest
            continue
        until = max(log.newest, read_until(log))
        if len(log.decided) > 1 and is_after(log.decided[1][0], until) and not skipped(log):
            yield log.log_dir, max(log.by_its_broker, read_until(log))


def lacking(
    history: CoordinatorHistory, markers: Mapping[int, Iterable[LastMarker]], is_open: Callable[[int], bool]
) -> set[int]:
    """Return the partitions of coordinators' logs that lack the decision of a transaction they have as open.

    ``markers``: by producer id; ``is_open``: whether a partition still has an open transaction of a producer. Only a
    coordinator writes COMMIT, or an epoch that it bumped. An ABORT of the same epoch may be written by hand in one of
    several partitions: it counts where nothing is open any more, or beside another one.
    """
    out, aborted = set(), dict[int, int]()
    for producer_id, of_producer in markers.items():
        entry = history.last_of_owner(producer_id)
        if entry is None or entry.state in PREPARED:
            continue
        newer = [m for m in of_producer if not m.has_decision and is_after(m.time, entry.time)]
        if any(m.commit for m in newer) or any(m.epoch > entry.producer_epoch for m in of_producer):
            out.add(entry.partition)
        elif newer:
            several = not is_open(producer_id) or any(is_after(m.before, entry.time) for m in newer)
            aborted[entry.partition] = aborted.get(entry.partition, 0) + 1 + several
    return out | {partition for partition, count in aborted.items() if count > 1}


def has_decision(named: NamedTransactions, marker: np.void, *, whole: bool) -> bool:
    """Whether the coordinator's log has the decision of a producer's newest marker, by order and not by clocks.

    ``named``: the transactions that name the log. A ``whole`` log with no more markers of the producer than there are
    decisions for it has none that is newer than these. Where older markers may be missing, the marker before this one
    must be older than the last decision.
    """
    windows = named.rows[named.of(int(marker["producer_id"]))]
    windows = windows[windows["decision"] != NONE]
    if named.left_out or not len(windows):
        return False
    last = windows[-1]
    epoch = last["epoch"] if last["has_prepare"] else last["decided_epoch"]
    if (last["decision"], epoch) != (marker["commit"], marker["epoch"]):
        return False
    if whole:
        return bool(marker["count"] <= len(windows))
    return is_after(int(last["decided_time"]), int(marker["before"]))


def outdated(
    history: CoordinatorHistory, logs: Iterable[LogEnd], undecided: np.ndarray, ends: Mapping[int, int]
) -> dict[int, int]:
    """When (ms) a marker was written whose decision the coordinator's replica lacks, by partition of its log.

    Either a COMMIT written after the replica ends (``ends``: its newest time), of a producer whose last transaction is
    complete there: no operator can have written it. Or a marker with a higher epoch than any in the replica, also from
    after its end. A marker whose decision is there shows only that its leader's clock is ahead.
    """
    oldest: dict[int, int] = {}
    for log in logs:
        rows = log.last_markers
        partitions = history.each_written_in(rows["producer_id"])
        committed = (rows["commit"] == 1) & ~np.isin(rows["producer_id"], undecided)
        bumped = rows["epoch"] > history.each_highest_epoch(rows["producer_id"])
        for partition in np.unique(partitions[(partitions >= 0) & (committed | bumped)]).tolist():
            newest, same = ends[partition], same_clock(log.broker_id, history.brokers.get(partition))
            later = rows["time"] > at_most_ms(newest, one_clock=same)
            lacks = ((committed & later) | (bumped & (rows["time"] > newest))) & (partitions == partition)
            lacks &= rows["time"] < oldest.get(partition, ALWAYS)
            named = history.named(log.name) if lacks.any() else NamedTransactions()
            for k in np.flatnonzero(lacks)[np.argsort(rows["time"][lacks], kind="stable")].tolist():
                if bumped[k] or not has_decision(named, rows[k], whole=log.whole):
                    oldest[partition] = int(rows["time"][k])
                    break
    return oldest


# The beginning of ``__transaction_state``.


def starts_late(history: CoordinatorHistory, logs: Iterable[LogEnd], spread_ms: int = 0) -> StartsLate | None:
    """The oldest marker of a producer id that no record names, if older than every record of the topic.

    A log that is complete from its first offset on may still be a re-created one. Each partition begins when its first
    id comes: the topic is re-created only if all of them are younger than the data.
    """
    if not history.complete_for_all():
        return None  # then its silence says nothing anyway
    begins = min(history.begins().values(), default=ALWAYS)
    markers: list[tuple[int, str, int]] = []
    for log in logs:
        unknown = log.first_markers[history.each_written_in(log.first_markers["producer_id"]) < 0]
        same = set(history.brokers.values()) == {log.broker_id}
        old = unknown[at_most_ms(unknown["time"] + (0 if same else spread_ms), one_clock=same) < begins]
        markers += [
            (time, log.name, pid) for pid, time in zip(old["producer_id"].tolist(), old["time"].tolist(), strict=True)
        ]
    if not markers:
        return None
    time, name, producer_id = min(markers)
    return StartsLate(name, producer_id, time, begins if begins < ALWAYS else -1, len({pid for *_, pid in markers}))


def lost_about(history: CoordinatorHistory, partition: int, time: int) -> bool:
    """Whether a partition lost its records of about a time (ms), by :class:`Restored`."""
    lost = history.restored.get(partition)
    return lost is not None and at_least_ms(lost.begin) <= time <= at_most_ms(lost.end)


def may_lack_since(history: CoordinatorHistory, partition: int, time: int) -> bool:
    """Whether a record written after a time (ms) may be in a batch with a CRC mismatch.

    The first record after such batches bounds their time.
    """
    log = history.logs.get(partition)
    if log is None or not (damaged := log.damaged.get(partition, ())):
        return False
    last = max(last for _, last in damaged)
    behind = [columns["record_time"][columns["offset"] > last] for columns in log.all_pieces()]
    first = min((int(times.min()) for times in behind if len(times)), default=ALWAYS)
    return time < 0 or not is_after(time, first)


def restored(
    history: CoordinatorHistory,
    changes: Mapping[int, Iterable[EpochChange]],
    logs: Sequence[LogEnd],
    spread_ms: int = 0,
) -> dict[int, Restored]:
    """Return the partitions of ``__transaction_state`` that lost their newest records, and then went on.

    As after a restore from an older backup. ``changes``: of leader epochs, by partition; ``spread_ms``: how far clocks
    differ beyond what is usual. Between two records that follow each other across one, COMMIT markers were written, two
    or more, and whole logs have more markers of their producers than the coordinator's log has decisions, from which
    nothing was cleaned: so no clock is ahead.
    """
    out: dict[int, Restored] = {}
    whole = (p for p in changes if history.whole_log.get(p))  # a cleaner removes decisions too
    for partition, change in ((p, change) for p in whole for change in changes[p]):
        begin, end = at_most_ms(change.begin) + spread_ms, at_least_ms(change.end) - spread_ms
        lost: dict[tuple[str, int], int] = {}
        for log in logs if begin < end else ():
            during = log.commits["producer_id"][(log.commits["time"] > begin) & (log.commits["time"] < end)]
            producers = np.unique(during[np.isin(history.each_written_in(during), (partition, -1))])
            if not len(producers) or not log.whole:
                continue
            named = history.named(log.name)
            for marker in log.last_markers[np.isin(log.last_markers["producer_id"], producers)]:
                producer_id = int(marker["producer_id"])
                decisions = int((named.rows["decision"][named.of(producer_id)] != NONE).sum())
                if not named.left_out and marker["count"] > decisions:
                    lost[log.name, producer_id] = int(marker["count"]) - decisions
        if sum(lost.values()) > 1:
            ids = tuple(sorted({producer_id for _, producer_id in lost}))
            out.setdefault(partition, Restored(*change, sum(lost.values()), ids, min(lost)[0]))
    return out


# What a cleaner may have removed from a log, and what it cannot have.


LEADERS_LOG = "the compacted part of the log of the leader at that time"


class Missing(StrEnum):
    """How certain it is that records were lost in an offset gap: a confidence of the findings.

    ``UNDECIDABLE``: another broker led there or later, or may have. A follower stores the gaps that its leader's
    cleaner left, and a former leader may have lost its replica and fetched it again.
    """

    PROVED = "proved"
    LIKELY = "likely"
    UNDECIDABLE = "undecidable"


def both_intact(log: LogFacts, e: Event) -> bool:
    """Whether no cleaner can have removed what an event misses between its batch and the producer's previous one.

    Both are in the uncleaned part, or only markers separate them.
    """
    return e["previous_last_offset"] >= log.intact_from() or adjoin(log, e)


def adjoin(log: LogFacts, e: Event) -> bool:
    """Whether each offset between the two is a marker's.

    A partly cleaned batch keeps its first and last offset, and the sequences with them (``MemoryRecords.filterTo``).
    """
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    if first >= end:
        return first == end
    low, high = np.searchsorted(_marker_offsets(log), [first, end])
    return bool(high - low == end - first)


@once
def _marker_offsets(log: LogFacts) -> np.ndarray:
    return np.unique(log.leader.transactions["marker_offset"])


class Cleaned(NamedTuple):
    """The end of the part of a log that may have been cleaned, and the newest time (ms) in it, -1 for none."""

    end: int
    time: int


def whole_from(log: LogFacts, replica: ReplicaFacts | None = None) -> int:
    """Return the first offset above everything cleaned by a log's own broker or a former leader."""
    return cleaned(log, replica or log.leader).end


@once
def cleaned(log: LogFacts, replica: ReplicaFacts) -> Cleaned:
    """Return the part of a log that may have been cleaned, up to its last gap that :func:`missing` cannot decide.

    A log that was fetched again has gaps: its broker's checkpoint only covers its own cleaner. Cached.
    """
    own = Cleaned(log.intact_from(replica), -1)
    holes = list(log.events(*HOLES, replica=replica))
    left = next((e for e in reversed(holes) if hole(log, replica, e) == Missing.UNDECIDABLE), None)
    if left is None:
        return own
    if any(replica.dropped_events.get(int(kind)) for kind in HOLES):
        return Cleaned(replica.log_end, max(replica.broker_time, replica.any_time))
    return Cleaned(max(own.end, hole_of(left)[1]), int(left["time"]))


def hole(log: LogFacts, replica: ReplicaFacts, e: Event) -> Missing:
    """Return what an offset gap before a batch, or among its records, proves."""
    return missing(log, replica, hole_of(e)[0])


@once
def _holes(log: LogFacts) -> list[tuple[int, int]]:
    return sorted(hole_of(e) for e in log.events(*HOLES))


def between(log: LogFacts, e: Event) -> Missing:
    """Return what a gap between an event's batch and the producer's previous one proves, above what was cleaned.

    Proved where the log has every offset between them.
    """
    first, end = int(e["previous_last_offset"]) + 1, int(e["base_offset"])
    holes = _holes(log)
    index = bisect_right(holes, first, key=lambda one: one[1])  # they do not overlap
    if adjoin(log, e) or (not log.leader.dropped_events and (index == len(holes) or holes[index][0] >= end)):
        return Missing.PROVED
    return missing(log, log.leader, first)


def missing(log: LogFacts, replica: ReplicaFacts, first: int) -> Missing:
    """Return what an offset gap at ``first`` proves, above everything known to be cleaned.

    In a topic that may be compacted only the active segment is certain, if this broker has led since: followers store
    their leader's gaps, and an aborted cleaner run leaves gaps without moving its checkpoint.
    """
    policy = _cleanup_policy(log, replica)
    compacted = _is_compacted(log, replica, policy)
    if policy is not None and not compacted:
        return Missing.PROVED
    if replica.broker_id is not None and _led_since(log, replica, first) == {replica.broker_id}:
        active = replica.segment_bases and first >= replica.segment_bases[-1]
        return Missing.PROVED if active else Missing.LIKELY
    return Missing.UNDECIDABLE if compacted else Missing.LIKELY


def is_compacted(topic: str, cleanup_policy: str | None, cleaner_offset: int | None) -> bool:
    """Whether a topic is compacted: by its setting, otherwise because the cleaner has a checkpoint of it."""
    if topic in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
        return True
    if cleanup_policy is not None:
        return "compact" in cleanup_policy
    return cleaner_offset is not None


def _is_compacted(log: LogFacts, replica: ReplicaFacts, policy: str | None) -> bool:
    # By its setting or a cleaner checkpoint of any replica; with an unknown setting also where batches lack single
    # records, which only a cleaner removes.
    if is_compacted(log.topic, policy, None):
        return True
    if policy is None and any(one.cleaner_offset is not None for one in log.replicas):
        return True
    return policy is None and all(any(True for _ in log.events(kind, replica=replica)) for kind in HOLES)


def _cleanup_policy(log: LogFacts, replica: ReplicaFacts) -> str | None:
    # Kafka's default only where everything that could set another value is in the input.
    cluster, name = log.cluster, "log.cleanup.policy"
    policy = cluster.setting(log.topic, "cleanup.policy") or cluster.broker_setting(replica.broker_id, name)
    if policy is not None or cluster.is_unknown(replica.broker_id, name):
        return policy
    return "delete" if cluster.has_metadata and str(replica.broker_id) in cluster.broker_configs else None


def _led_since(log: LogFacts, replica: ReplicaFacts, first: int) -> set[int | None]:
    # By the replica's own leader epochs and the metadata; None for an unknown leader.
    epochs = replica.leader_epochs
    ends = [*(start for _, start in epochs[1:]), replica.log_end + 1]
    since = tuple(epoch for (epoch, _), stop in zip(epochs, ends, strict=False) if stop > max(first - 1, 0))
    return _led_in(log, since)


@once
def _led_in(log: LogFacts, epochs: tuple[int, ...]) -> set[int | None]:
    return {log.cluster.led(log.topic, log.partition, epoch) for epoch in epochs}
