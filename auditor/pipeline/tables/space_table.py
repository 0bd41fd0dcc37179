"""The table ``space``: of each segment what keeps it on its broker's disk, by which setting, and when it goes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.connectors.tables.schema import LOG_KEY, declared, from_dicts
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan
from auditor.model import log_maintenance
from auditor.model.log_maintenance import Kept, RetainedSegment, RetentionSettings, kept
from auditor.pipeline.tables.stable_end import readable_end, stable_end
from auditor.rules.lib.log_bounds import Setting, setting
from auditor.rules.seen.cluster_view import HOUR_MS, Cluster
from auditor.rules.seen.coordinator_history import SKEW_MS
from auditor.rules.seen.view import LogView

SPACE = declared(
    "space",
    LOG_KEY,
    """
    file:string
    base_offset:long its first offset
    size:long bytes of the segment file, without its indexes
    active:bool whether it is the one that is written
    goes:string why it goes at the next check: log_start_offset, retention_bytes or retention_ms; null where it stays
    kept_by:string what keeps it (see three questions); null where it goes
    kept_by_file:string of older_segment, the segment in front of it that does not go
    goes_at:time when time lets it go, if nothing more is written; null where time does not
    setting:string the setting that decides it, with its value
    setting_by:string who sets that: topic, broker or default
    largest_timestamp:time the largest timestamp of its batches, which brokers go by
    largest_offset:long the offset of the batch that has it
    producer_id:long of that batch; -1: none
    transactional_id:string
    aborted_bytes:long bytes of aborted transactions that begin in it: nobody who reads read_committed gets them
    held_from:long of not_in_remote_storage, the last stable offset, where one is open: nothing is copied beyond it
    undecided:string why this may be wrong; null where nothing speaks against it
""",
)
REMOTE_METADATA, METADATA = "__remote_log_metadata", "__cluster_metadata"  # which goes by metadata.* of its own
BY_FILE = "a broker that has KAFKA-20609 goes by the file's time of change where a tiered segment is stamped ahead"


def rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """A row a segment on a broker's own disk, of every replica."""
    for replica in () if log.is_gone else log.replicas:
        if found := segments_of(log, replica):
            yield from_dicts(SPACE, replica.table_key, found)


def ahead_ms(cluster: Cluster) -> int:
    """How far a timestamp may lie behind the audit's clock: that is only the newest time in the input if none was
    given, and producers' clocks differ from brokers'."""
    return SKEW_MS if cluster.clock_given else HOUR_MS


def segments_of(log: LogView, replica: ReplicaFacts) -> list[Fields]:
    """A row a segment of one replica on its broker's own disk, times in ms."""
    local = [(k, s) for k, s in enumerate(replica.scans) if not replica.is_remote(k)]
    if log.topic == METADATA or replica.text or replica.live or not local:
        return []
    return _Replica(log, replica, local).rows()


class _Replica:
    """The segments of one replica, with the settings that it is kept by."""

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
        """A row a segment."""
        segments = [RetainedSegment(scan.base_offset, scan.size, scan.largest_time) for _, scan in self.local]
        start, now = max(self.replica.local_start, self.replica.log_start), self.log.cluster.as_of
        found = kept(segments, start, self.replica.log_end, self.end, self.rules, now)
        doubt, aborted = self._doubt(), self._aborted()
        by_file = self.tiered and any(said.by == log_maintenance.FUTURE for said in found)
        return [
            self._row(k, scan, said, aborted)
            | {
                "active": k == self.local[-1][0],
                "undecided": doubt
                or (BY_FILE if by_file and said.by in (log_maintenance.FUTURE, log_maintenance.OLDER) else None),
            }
            for (k, scan), said in zip(self.local, found, strict=True)
        ]

    def _row(self, k: int, scan: SegmentScan, said: Kept, aborted: dict[int, int]) -> Fields:
        decides = self._decides(said)
        front = None if said.at < 0 else self.replica.segments[self.local[said.at][0]]
        return {
            "file": self.replica.segments[k],
            "base_offset": scan.base_offset,
            "size": scan.size,
            "goes": said.goes or None,
            "kept_by": said.by or None,
            "kept_by_file": front,
            "goes_at": said.until if said.until >= 0 else None,
            "setting": None if decides is None else f"{decides[0]}={decides[1].value}",
            "setting_by": None if decides is None else decides[1].by.partition(" ")[0],
            "largest_timestamp": scan.largest_time,
            "largest_offset": scan.largest_offset,
            "producer_id": scan.largest_producer,
            "transactional_id": self.log.owner(scan.largest_producer) if scan.largest_producer >= 0 else None,
            "aborted_bytes": aborted.get(k, 0),
            "held_from": self.stable if said.by == log_maintenance.NOT_REMOTE and self.stable < self.end else None,
        }

    def _decides(self, said: Kept) -> tuple[str, Setting] | None:
        """The setting that decides about a segment, by its name."""
        local = "local." if self.tiered else ""
        if log_maintenance.COMPACTION in (said.by, said.goes):
            return "cleanup.policy", self.policy
        if said.goes == log_maintenance.SIZE or said.by == log_maintenance.BELOW:
            return self._named("retention.bytes", local)
        if said.goes == log_maintenance.TIME or said.by in (
            log_maintenance.YOUNG,
            log_maintenance.FUTURE,
            log_maintenance.OLDER,
            log_maintenance.OFF,
            log_maintenance.UNDATED,
        ):
            return self._named("retention.ms", local)
        return None

    def _named(self, name: str, local: str) -> tuple[str, Setting]:
        found = self.settings[name]
        return (f"{local}{name}" if found.by.startswith("topic local.") else name), found

    def _aborted(self) -> dict[int, int]:
        """Bytes of aborted transactions by the number of the segment that they begin in."""
        found = self.replica.transactions
        if not len(found):
            return {}
        found = found[(found["commit"] == 0) & (found["marker_offset"] >= 0) & (found["segment"] >= 0)]
        numbers, at = np.unique(found["segment"], return_inverse=True)
        sums = np.bincount(at, weights=found["bytes"].astype(np.float64), minlength=len(numbers))
        return dict(zip(numbers.tolist(), sums.astype(np.int64).tolist(), strict=True))

    def _doubt(self) -> str | None:
        replica = self.replica
        if replica.cut_short or replica.breaks_off:
            return "the end of the log is not in the input"
        if replica.unread_from >= 0 or not replica.log_start_known:
            return "where the log starts is not known"
        if replica.unreadable:
            return "bytes that could not be read may hold a larger timestamp"
        if not all(said.sure for said in self.settings.values()):
            return "not all settings are in the input: defaults stand in for them"
        remote = self.log.cluster.remote.partitions or (REMOTE_METADATA, 0) in self.log.cluster.bounds
        if self.tiered and not remote:
            return "what is in remote storage is not known"
        return None
