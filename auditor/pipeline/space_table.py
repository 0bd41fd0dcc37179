"""The tables space and cleaner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import DecodeError, setting_number
from auditor.connectors.schema import MadeOf, declared, from_dicts, makes
from auditor.evidence.cluster_clocks import at_most_ms
from auditor.facts.batch_sums import touches
from auditor.facts.events import EventKind, events_of
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.model import log_maintenance
from auditor.model.log_maintenance import (
    CleanerState,
    CleaningSettings,
    LogSegment,
    RetentionSettings,
    RetentionVerdict,
)
from auditor.pipeline.lag_table import holder, readable_end, stable_end
from auditor.rules.seen.cluster_view import DAY_MS, HOUR_MS, Cluster
from auditor.rules.seen.view import LogView

# Retention and cleaning settings with their source: the topic, its broker, or Kafka's default.


MINUTE_MS = 60_000
WEEK_MS = 7 * DAY_MS
FOREVER = (1 << 63) - 1
LOWEST = -(1 << 63)


class TopicSettingName(NamedTuple):
    """A topic setting: its broker-level names, each with its unit in ms or bytes, and its default."""

    at_broker: tuple[tuple[str, int], ...]
    default: str


# Source: LogConfig, ServerLogConfigs and ServerTopicConfigSynonyms; the first one of a broker that is set counts.
SETTINGS = {
    "cleanup.policy": TopicSettingName((("log.cleanup.policy", 1),), "delete"),
    "retention.ms": TopicSettingName(
        (("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
        str(WEEK_MS),
    ),
    "retention.bytes": TopicSettingName((("log.retention.bytes", 1),), "-1"),
    "local.retention.ms": TopicSettingName((("log.local.retention.ms", 1),), "-2"),
    "local.retention.bytes": TopicSettingName((("log.local.retention.bytes", 1),), "-2"),
    "segment.ms": TopicSettingName((("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)), str(WEEK_MS)),
    "remote.storage.enable": TopicSettingName((), "false"),
    "remote.log.copy.disable": TopicSettingName((), "false"),
    "min.cleanable.dirty.ratio": TopicSettingName((("log.cleaner.min.cleanable.ratio", 1),), "0.5"),
    "min.compaction.lag.ms": TopicSettingName((("log.cleaner.min.compaction.lag.ms", 1),), "0"),
    "max.compaction.lag.ms": TopicSettingName((("log.cleaner.max.compaction.lag.ms", 1),), str(FOREVER)),
    "delete.retention.ms": TopicSettingName((("log.cleaner.delete.retention.ms", 1),), str(DAY_MS)),
}
COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")  # brokers make them so
OF_INTERNAL = {"__share_group_state": "compact,delete"}  # that are more than compacted


class TopicSetting(NamedTuple):
    """A value, its source, and whether it is certain: topic settings and broker file are in the input."""

    value: str
    by: str
    sure: bool

    @property
    def number(self) -> int:
        """The value as a number; :data:`LOWEST` for an invalid one, for which the default applies."""
        number = setting_number(self.value, least=LOWEST)
        return LOWEST if number is None else number


def setting(cluster: Cluster, broker_id: int | None, topic: str, name: str) -> TopicSetting:
    """Return a topic's setting as its replica's broker applies it."""
    own = cluster.setting(topic, name)
    if own is not None:
        return TopicSetting(own, f"topic {name}", True)
    if name == "cleanup.policy" and topic in COMPACTED:
        return TopicSetting(OF_INTERNAL.get(topic, "compact"), "internal topic", cluster.has_metadata)
    names = SETTINGS[name].at_broker
    sure = cluster.has_metadata and not cluster.is_unknown(broker_id, *(broker_name for broker_name, _ in names))
    for broker_name, unit in names:
        value = cluster.broker_setting(broker_id, broker_name)
        if value is None:
            continue
        number = None if unit == 1 else setting_number(value, least=LOWEST)
        return TopicSetting(value if number is None else str(number * unit), f"broker {broker_name}", sure)
    sure = sure and (not names or broker_id in cluster.of_files)
    return TopicSetting(SETTINGS[name].default, "default", sure)


# Table ``space``: what keeps each segment on its broker's disk, by which setting, and until when.


SPACE = declared(
    "space",
    """
    a segment on a broker's own disk, and what keeps it there; see [disk space](space.md)
    SELECT kept_by, goes, count(*) AS segments, sum(bytes) AS bytes FROM space WHERE leader_copy GROUP BY ALL
    file:string
    base_offset:long its first offset
    bytes:long bytes of the segment file, without its indexes
    active:bool whether it is the one that is written
    goes:string why it goes at the next check: log_start_offset, retention_bytes or retention_ms; null where it stays
    kept_by:string what keeps it (see three questions); null where it goes
    kept_by_file:string of older_segment, the segment in front of it that does not go; else null
    goes_at:time when time lets it go, if nothing more is written; null where time does not
    setting:string the setting that decides it, with its value; else null
    setting_by:string who sets that: topic, broker or default; else null
    largest_timestamp:time the largest timestamp of its batches, which brokers go by; else null
    largest_offset:long the offset of the batch that has it; -1: none
    producer_id:long of that batch; -1: none
    transactional_id:string
    aborted_bytes:long bytes of aborted transactions that begin in it: no read_committed consumer gets them
    held_offset:long of not_in_remote_storage, the last stable offset, where one is open: nothing is copied beyond it; \
else null
    undecided:string why this may be wrong; null where nothing speaks against it
""",
    of=MadeOf.LOG,
)
REMOTE_METADATA, METADATA = "__remote_log_metadata", "__cluster_metadata"  # which goes by metadata.* of its own
BY_FILE = "a broker that has KAFKA-20609 goes by the file's time of change where a tiered segment is stamped ahead"


@makes("space")
def space_rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield a row per local segment of every replica."""
    for replica in () if log.is_gone else log.replicas:
        if segments := segments_of(log, replica):
            yield from_dicts(SPACE, replica.table_key, segments)


def ahead_ms(cluster: Cluster) -> int:
    """Return how far a timestamp may exceed the evaluation time without being in the future.

    Without a given time that is only the newest time in the input, and clocks of producers and brokers differ.
    """
    return at_most_ms(0) if cluster.clock_given else HOUR_MS


def segments_of(log: LogView, replica: ReplicaFacts) -> list[Fields]:
    """Return a row per local segment of one replica, times in ms."""
    local = [(k, s) for k, s in enumerate(replica.scans) if not replica.is_remote(k)]
    if log.topic == METADATA or replica.text or replica.live or not local:
        return []
    return _ReplicaSpace(log, replica, local).rows()


class _ReplicaSpace:
    """The local segments of one replica, with its retention settings."""

    def __init__(self, log: LogView, replica: ReplicaFacts, local: list[tuple[int, SegmentScan]]) -> None:
        self.log, self.replica, self.local = log, replica, local
        names = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.log.copy.disable")
        self.settings = {name: setting(log.cluster, replica.broker_id, log.topic, name) for name in names}
        self.policy = self.settings["cleanup.policy"]
        self.tiered = log.cluster.is_tiered(log.topic) and self.settings["remote.log.copy.disable"].value != "true"
        if self.tiered:
            for name in ("retention.ms", "retention.bytes"):
                own = setting(log.cluster, replica.broker_id, log.topic, f"local.{name}")
                if own.number != -2:  # -2: as retention.* says
                    self.settings[name] = own
        self.end = readable_end(log, replica)
        self.stable = stable_end(replica, self.end)
        remote = log.remote
        copied = -1 if remote is None else remote.highest(replica.leader_epochs, replica.log_end)
        self.rules = RetentionSettings(
            "delete" in self.policy.value,
            self.settings["retention.ms"].number,
            self.settings["retention.bytes"].number,
            copied if self.tiered else None,
            ahead_ms(log.cluster),
        )

    def rows(self) -> list[Fields]:
        """Return a row per segment."""
        segments = [LogSegment(scan.base_offset, scan.size, scan.largest_time) for _, scan in self.local]
        start, now = max(self.replica.local_start, self.replica.log_start), self.log.cluster.as_of
        verdicts = log_maintenance.retention_verdicts(segments, start, self.replica.log_end, self.end, self.rules, now)
        doubt, aborted = self._doubt(), self._aborted()
        by_file = self.tiered and any(verdict.by == log_maintenance.FUTURE for verdict in verdicts)
        return [
            self._row(k, scan, verdict, aborted)
            | {
                "active": k == self.local[-1][0],
                "undecided": doubt
                or (BY_FILE if by_file and verdict.by in (log_maintenance.FUTURE, log_maintenance.OLDER) else None),
            }
            for (k, scan), verdict in zip(self.local, verdicts, strict=True)
        ]

    def _row(self, k: int, scan: SegmentScan, verdict: RetentionVerdict, aborted: dict[int, int]) -> Fields:
        decides = self._decides(verdict)
        front = None if verdict.at < 0 else self.replica.segments[self.local[verdict.at][0]]
        return {
            "file": self.replica.segments[k],
            "base_offset": scan.base_offset,
            "bytes": scan.size,
            "goes": verdict.goes or None,
            "kept_by": verdict.by or None,
            "kept_by_file": front,
            "goes_at": verdict.until if verdict.until >= 0 else None,
            "setting": None if decides is None else f"{decides[0]}={decides[1].value}",
            "setting_by": None if decides is None else decides[1].by.partition(" ")[0],
            "largest_timestamp": scan.largest_time,
            "largest_offset": scan.largest_offset,
            "producer_id": scan.largest_producer,
            "transactional_id": self.log.owner(scan.largest_producer) if scan.largest_producer >= 0 else None,
            "aborted_bytes": aborted.get(k, 0),
            "held_offset": self.stable if verdict.by == log_maintenance.NOT_REMOTE and self.stable < self.end else None,
        }

    def _decides(self, verdict: RetentionVerdict) -> tuple[str, TopicSetting] | None:
        """The setting that decides about a segment, by its name."""
        local = "local." if self.tiered else ""
        if log_maintenance.COMPACTION in (verdict.by, verdict.goes):
            return "cleanup.policy", self.policy
        if verdict.goes == log_maintenance.SIZE or verdict.by == log_maintenance.BELOW:
            return self._named("retention.bytes", local)
        if verdict.goes == log_maintenance.TIME or verdict.by in (
            log_maintenance.YOUNG,
            log_maintenance.FUTURE,
            log_maintenance.OLDER,
            log_maintenance.OFF,
            log_maintenance.UNDATED,
        ):
            return self._named("retention.ms", local)
        return None

    def _named(self, name: str, local: str) -> tuple[str, TopicSetting]:
        topic_setting = self.settings[name]
        return (f"{local}{name}" if topic_setting.by.startswith("topic local.") else name), topic_setting

    def _aborted(self) -> dict[int, int]:
        """Bytes of aborted transactions by the number of the segment that they begin in."""
        transactions = self.replica.transactions
        if not len(transactions):
            return {}
        transactions = transactions[
            (transactions["commit"] == 0) & (transactions["marker_offset"] >= 0) & (transactions["segment"] >= 0)
        ]
        numbers, index = np.unique(transactions["segment"], return_inverse=True)
        sums = np.bincount(index, weights=transactions["bytes"].astype(np.float64), minlength=len(numbers))
        return dict(zip(numbers.tolist(), sums.astype(np.int64).tolist(), strict=True))

    def _doubt(self) -> str | None:
        replica = self.replica
        if replica.cut_short or replica.breaks_off:
            return "the end of the log is not in the input"
        if replica.unread_from >= 0 or not replica.log_start_known:
            return "where the log starts is not known"
        if replica.unreadable:
            return "bytes that could not be read may hold a larger timestamp"
        if not all(item.sure for item in self.settings.values()):
            return "not all settings are in the input: defaults stand in for them"
        remote = self.log.cluster.remote.partitions or (REMOTE_METADATA, 0) in self.log.cluster.bounds
        if self.tiered and not remote:
            return "what is in remote storage is not known"
        return None


# Table ``cleaner``: state of the log cleaner in each compacted log, and what holds it back.


CLEANER = declared(
    "cleaner",
    """
    a replica of a compacted log, and where its broker's log cleaner stands in it; see [log \
cleaner](cleaner.md)
    SELECT topic, partition, stands, dirty_ratio, held_by FROM cleaner WHERE stands <> 'clean' AND leader_copy
    stands:string held (segments wait), faulty (it may stop), due (at the next pass), below_ratio, clean or off
    checkpoint:long up to where it has cleaned, by `cleaner-offset-checkpoint`; null where that does not say
    first_dirty_offset:long where cleaning would begin: the checkpoint, or the log start where that is none or outside
    first_uncleanable_offset:long the base offset of the first segment that it would leave alone
    held_by:string what ends it there: active_segment, last_stable_offset or min_compaction_lag
    held_until_at:time of min_compaction_lag, when that segment is old enough; null else
    held_by_transaction:string of last_stable_offset, the transactional id that is open there; null where not known
    held_producer_id:long its producer id; else null
    held_offset:long of last_stable_offset, that offset; of min_compaction_lag, where that segment begins; null else
    held_began_at:time of last_stable_offset, when the transaction began there; null where not known
    held_bytes:long bytes behind the cleanable part that wait: without the active segment; 0 where nothing holds them
    dirty_offsets:long offsets from the first dirty one to the end of the log
    clean_bytes:long bytes of the segments below the first dirty offset
    cleanable_bytes:long bytes of the segments that it would clean
    uncleanable_bytes:long bytes of the segments behind, the active one among them
    dirty_ratio:double cleanable bytes of the clean and the cleanable ones, as the broker counts
    min_dirty_ratio:double above this ratio it is cleaned
    ratio_by:string who sets that: topic, broker or default
    due_because:string dirty_ratio or max_compaction_lag; null where it is not due
    horizons:long batches whose tombstones or markers wait for their delete horizon (KIP-534)
    first_horizon_at:time the earliest of these: what is cleaned then loses them; else null
    fault:string what is wrong with a batch that the cleaner has to read; where it is `faulty`, it may stop there; \
else null
    fault_offset:long where that is; -1 where no offset can be read; else null
    fault_file:string segment that has it; else null
    fault_position:long byte in it; else null
    undecided:string why this may be wrong; null where nothing speaks against it
""",
    of=MadeOf.LOG,
)
THROWS = ("bad_size", "bad_magic", "truncated", "zero_filled")  # bytes at which it does
OURS = ("unreadable", "vanished", "limit", "batch_limit")  # what only this program did not look at
OVERFLOW = "offsets overflow the segment"
SPLIT = f"{OVERFLOW}, which the cleaner first splits"
OLDER = "the broker's release is not known: before 2.0 the cleaner stops where offsets overflow a segment"


@makes("cleaner")
def cleaner_rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield a row per replica of a compacted log."""
    for replica in () if log.is_gone else log.replicas:
        if (row := row_of(log, replica)) is not None:
            yield from_dicts(CLEANER, replica.table_key, [row])


def row_of(log: LogView, replica: ReplicaFacts) -> Fields | None:
    """Return the row of one replica, times in ms; None where its log is not compacted."""
    policy = setting(log.cluster, replica.broker_id, log.topic, "cleanup.policy")
    certain = policy.sure or replica.cleaner_offset is None
    if ("compact" not in policy.value and certain) or not replica.scans or replica.text or replica.live:
        return None
    named = {
        name: setting(log.cluster, replica.broker_id, log.topic, name)
        for name in ("min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms")
    }
    ratio = named["min.cleanable.dirty.ratio"]
    segments = [LogSegment(s.base_offset, s.size, s.largest_time, s.first_time) for s in replica.scans]
    rules = CleaningSettings(
        _ratio(ratio.value), named["min.compaction.lag.ms"].number, named["max.compaction.lag.ms"].number
    )
    end = readable_end(log, replica)
    stable = stable_end(replica, end)
    state = log_maintenance.cleaner_state(
        segments, replica.own_start, replica.log_end, stable, replica.cleaner_offset, rules, log.cluster.as_of
    )
    splits = log_maintenance.splits(log.cluster.release(replica.broker_id))
    fault = _fault(replica, state.first_uncleanable, splits)
    off = log.cluster.broker_setting(replica.broker_id, "log.cleaner.enable") == "false"
    behind = sum(s.size for s in segments if s.base >= state.first_uncleanable)
    held = 0 if state.because == log_maintenance.ACTIVE else behind - segments[-1].size
    return {
        "stands": "off" if off else "faulty" if fault and fault.stops else _stands(state, held),
        "checkpoint": replica.cleaner_offset,
        "first_dirty_offset": state.first_dirty,
        "first_uncleanable_offset": state.first_uncleanable,
        "held_by": state.because,
        "held_until_at": segments[state.held_segment].largest_time + rules.min_lag_ms
        if state.because == log_maintenance.LAG
        else None,
        **_holder(log, replica, state, end, stable),
        "held_bytes": held,
        "dirty_offsets": replica.log_end - state.first_dirty,
        "clean_bytes": state.clean_bytes,
        "cleanable_bytes": state.cleanable_bytes,
        "uncleanable_bytes": behind,
        "dirty_ratio": state.ratio,
        "min_dirty_ratio": rules.min_ratio,
        "ratio_by": ratio.by,
        "due_because": state.due or None,
        "horizons": sum(s.horizons for s in replica.scans),
        "first_horizon_at": min((s.first_horizon for s in replica.scans if s.horizons), default=None),
        "undecided": _doubt(replica, all(s.sure for s in (policy, *named.values())), state.first_uncleanable)
        or (OLDER if fault and not fault.stops and splits is None else None),
        **(
            {}
            if fault is None
            else {
                "fault": fault.why,
                "fault_offset": fault.offset,
                "fault_file": replica.segments[fault.segment],
                "fault_position": fault.position,
            }
        ),
    }


def _ratio(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.5


def _stands(state: CleanerState, held: int) -> str:
    if state.due:
        return "due"
    return "below_ratio" if state.cleanable_bytes else "held" if held > 0 else "clean"


def _holder(log: LogView, replica: ReplicaFacts, state: CleanerState, end: int, stable: int) -> Fields:
    # The producer whose transaction holds back the cleaner, if one does, and since when.
    nobody: Fields = dict.fromkeys(("held_offset", "held_began_at", "held_by_transaction", "held_producer_id"))
    if state.because != log_maintenance.STABLE:
        return nobody | ({"held_offset": state.first_uncleanable} if state.because == log_maintenance.LAG else {})
    producer = holder(replica, end)
    rows = replica.transactions
    open_rows = (
        rows[(rows["producer_id"] == producer) & (rows["marker_offset"] < 0)] if producer is not None else rows[:0]
    )
    begun = log.time(int(open_rows["first_time"][np.argmin(open_rows["first_offset"])])) if len(open_rows) else -1
    return {
        "held_offset": stable,
        "held_began_at": begun if begun >= 0 else None,
        "held_by_transaction": None if producer is None else log.owner(producer),
        "held_producer_id": producer,
    }


class Fault(NamedTuple):
    """A batch that is not valid: whether the cleaner may stop at it, where it is, and what is wrong."""

    stops: bool
    segment: int
    position: int
    offset: int
    why: str


def _fault(replica: ReplicaFacts, until: int, splits: bool | None) -> Fault | None:
    """The first invalid batch below an offset, since the cleaner reads the log up to there; stopping ones first.

    ``splits``: whether the cleaner splits a segment whose offsets overflow.
    """
    faults = [
        Fault(True, int(e["segment"]), int(e["position"]), int(e["base_offset"]), "the checksum of a batch is wrong")
        for e in events_of(replica.events, EventKind.CRC)
    ]
    faults += [Fault(True, k, e.position, -1, f"bytes are no batch: {e.reason}") for k, e in _errors(replica, THROWS)]
    faults += [
        Fault(splits is False, k, *scan.overflow, SPLIT if splits else OVERFLOW)
        for k, scan in enumerate(replica.scans)
        if scan.overflow[0] >= 0
    ]
    below = (f for f in faults if replica.segment_bases[f.segment] < until)
    return min(below, key=lambda f: (not f.stops, f.segment, f.position), default=None)


def _errors(replica: ReplicaFacts, reasons: tuple[str, ...]) -> list[tuple[int, DecodeError]]:
    """Read errors of the replica's segments for some reasons, with the segment's number."""
    by_name = {name: number for number, name in enumerate(replica.segments)}
    return [(by_name[e.file], e) for e in replica.errors if e.file in by_name and e.reason in reasons]


def _doubt(replica: ReplicaFacts, sure: bool, until: int) -> str | None:
    if replica.cut_short or replica.breaks_off:
        return "the end of the log is not in the input"
    if replica.unread_from >= 0:
        return "the log was not read from its start"
    if replica.absent:
        return "a segment is not in the input"
    if not sure:
        return "not all settings are in the input: defaults stand in for them"
    if any(replica.segment_bases[k] < until for k, _ in _errors(replica, OURS)):
        return "not all bytes that the cleaner has to read could be looked at"
    if until > replica.own_start and touches(replica.unverified, replica.own_start, until - 1):
        return "checksums of batches that the cleaner has to read were not verified when the log was copied"
    return None
