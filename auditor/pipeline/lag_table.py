"""The table lag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.connectors.codec import batches as walking
from auditor.connectors.schema import MadeOf, declared, from_dicts, makes
from auditor.facts.batch_sums import touches
from auditor.facts.offsets import SHARE, Position
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading import lag_counts
from auditor.replay.reading.lag_counts import Counts, Outcomes, RecordsAhead
from auditor.replay.task import ReplicaTask
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView, once
from auditor.rules.transactions.making import around, open_transactions
from auditor.transactions.record import Transaction

# Ends for readers of a replica.


def readable_end(log: LogView, replica: ReplicaFacts) -> int:
    """Return the high watermark after a clean shutdown, else the LEO: a running broker's checkpoint is stale."""
    if replica is log.leader:
        return log.readable_end
    hw = replica.high_watermark
    return min(hw, replica.log_end) if replica.clean_shutdown and hw is not None else replica.log_end


def stable_end(replica: ReplicaFacts, end: int) -> int:
    """Return the last stable offset of a replica that is readable up to ``end``."""
    return min(max(Outcomes(replica.transactions, end).first_open, replica.own_start), end)


def holder(replica: ReplicaFacts, end: int) -> int | None:
    """Return the producer whose open transaction holds back the LSO; None without one."""
    return Outcomes(replica.transactions, end).holder


# Cluster contexts with readers.


Log = tuple[str, int]  # topic and partition


@dataclass(slots=True)
class ReadCluster(Cluster):
    """A cluster with its readers.

    ``positions``: those of groups by log; ``elsewhere``: those in logs outside of the input, by the coordinator's log
    that has them; ``tasks``: by log directory, topic and partition, to read headers again.
    """

    positions: dict[Log, list[Position]] = field(default_factory=dict)
    elsewhere: dict[Log, list[Position]] = field(default_factory=dict)
    tasks: dict[tuple[str, str, int], ReplicaTask] = field(default_factory=dict)


# Table ``lag``: what each group has left to read of each partition, counted by batches, not by offsets.
#
# It is made of facts, and of the headers of a log from the lowest position on, which are read once more.


LAG = declared(
    "lag",
    """
    a group's position in a partition, and what it has left to read from there on: records, not offsets; see \
[consumer lag](lag.md)
    SELECT group_id, topic, partition, offsets, committed_records FROM lag WHERE offsets > 0
    group_id:string
    kind:string consumer (a committed offset, whatever the protocol) or share (the start offset of a share group)
    committed_offset:long the position that its coordinator has; null where it has none that counts yet
    committed_at:time time of the record that says so
    pending_offset:long what a transaction that is not decided would commit; null: none does
    stands:string points at: record, marker, gap, batch (a cleaned one: record or gap), end, before_start, \
beyond_end; null without its log
    log_start:long first offset of the log; null without its log
    last_stable_offset:long where a read_committed reader is held at present; the end where nothing is open; null \
without its log
    end_offset:long where reading ends at present; null without its log
    offsets:long offsets from the position, or the log start behind it, to the end: what is usually called lag; null \
without its log
    committed_records:long records that a read_committed reader gets from there on at present, at least; null without \
its log
    committed_most_records:long at most: more in a cleaned batch (`--records` decodes it), or by \
`aborted-records-exposed`; null without its log
    uncommitted_records:long records that a read_uncommitted reader gets, at least; null without its log
    uncommitted_most_records:long the same, at most; null without its log
    waiting_records:long decided records behind the last stable offset, which read_committed readers get later; null \
without its log
    open_records:long records of transactions that are open; null without its log
    aborted_records:long records of aborted transactions, which read_committed readers never get; null without its log
    marker_offsets:long offsets that markers have, which no reader gets; null without its log
    missing_offsets:long offsets without a record any more: compacted away; null without its log
    settled_records:long of a share group, records that are acknowledged or archived; in no other column; else null
    committed_bytes:long bytes of the batches that a read_committed reader fetches, aborted ones too; null without \
its log
    uncommitted_bytes:long bytes of the batches that a read_uncommitted reader fetches; null without its log
    first_offset:long where the first record for a read_committed reader lies, or its cleaned batch begins; null: none
    readable_earliest_at:time when that could be read first, by brokers' clocks: no earlier; null where it is not known
    readable_latest_at:time the same, no later; null where it is not known
    held_by:string transactional id of the first open transaction, which holds the partition; null where not known
    held_producer_id:long its producer id; else null
    held_class:string what it is, as in `transactions`; else null
    held_began_at:time when it began; else null
    undecided:string why the numbers may be wrong; null where they are exact
""",
    of=MadeOf.LOG,
)
STANDS = {
    lag_counts.RECORD: "record",
    lag_counts.IN_BATCH: "batch",
    lag_counts.AT_MARKER: "marker",
    lag_counts.GAP: "gap",
    lag_counts.NOWHERE: "end",
}
LEFT = (
    "committed_records",
    "committed_most_records",
    "uncommitted_records",
    "uncommitted_most_records",
    "waiting_records",
    "open_records",
    "aborted_records",
    "marker_offsets",
    "missing_offsets",
    "settled_records",
    "committed_bytes",
    "uncommitted_bytes",
)
CONTRADICTORY = "the counts contradict each other: record counts or transactions of this log are wrong"


@makes("lag")
def rows(log: LogView) -> Iterator[pa.RecordBatch]:
    """Yield the rows about one log; of a coordinator's log also its groups' positions in logs outside of the input."""
    cluster = log.cluster
    if log.is_gone or not isinstance(cluster, ReadCluster):
        return
    key = log.leader.table_key
    if table_rows := rows_of(log, cluster):
        yield from_dicts(LAG, key, table_rows)
    for p in cluster.elsewhere.get((log.topic, log.partition), ()):
        row = _position(p) | {"undecided": "the partition is not in the input"}
        yield from_dicts(LAG, (*key[:3], p.topic, p.partition), [row])


def rows_of(log: LogView, cluster: ReadCluster) -> list[Fields]:
    """Return a row per position in one log, by name, times in ms."""
    asked = cluster.positions.get((log.topic, log.partition))
    return _LagReading(log, cluster, asked).rows() if asked else []


def lag_offsets(log: LogView, cluster: ReadCluster) -> Iterator[tuple[Position, int | None]]:
    """Yield the positions in one log with their ``offsets`` of ``lag``, None if unknown, without reading batches.

    Of a coordinator's log also the positions in logs outside of the input.
    """
    start, end = log.leader.own_start, log.readable_end
    for p in cluster.positions.get((log.topic, log.partition), ()):
        yield p, end - min(max(p.offset, start), end) if 0 <= p.offset <= end else None
    yield from ((p, None) for p in cluster.elsewhere.get((log.topic, log.partition), ()))


def _position(p: Position) -> Fields:
    return {
        "group_id": p.group_id,
        "kind": p.kind,
        "committed_offset": p.offset if p.offset >= 0 else None,
        "committed_at": p.time,
        "pending_offset": p.pending if p.pending >= 0 else None,
    }


@dataclass(slots=True)
class _LagStart:
    """Where counting for a position begins; ``settled``: ranges inside the log that a share group has settled."""

    position: Position
    begin: int
    settled: list[tuple[int, int]]


class _LagReading:
    """One log, read from the lowest of its groups' positions on."""

    def __init__(self, log: LogView, cluster: ReadCluster, asked: list[Position]) -> None:
        self.log, self.cluster = log, cluster
        self.leader = log.leader
        self.start, self.end = self.leader.own_start, log.readable_end
        outcomes = Outcomes(self.leader.transactions, self.end)
        self.stable = stable_end(self.leader, self.end)
        self.exposed = _exposed(log, self.stable)
        self.held = next((t for t in open_transactions(log) if t.first_offset < self.end), None)
        self.stretches = [self._stretch(p) for p in asked]
        wanted = [edge for s in self.stretches for edge in (s.begin, *(e for a, b in s.settled for e in (a, b + 1)))]
        self.counts = Counts(wanted, outcomes, self.stable, self.end)
        self.failed = ""

    def _stretch(self, p: Position) -> _LagStart:
        begin = min(max(p.offset, self.start), self.end) if p.offset >= 0 else self.end
        settled_ranges = [(max(a, begin), min(b, self.end - 1)) for a, b in p.settled if b >= begin and a < self.end]
        return _LagStart(p, begin, settled_ranges)

    def rows(self) -> list[Fields]:
        """Return a row per position."""
        self._read()
        return [self._row(s) for s in self.stretches]

    def _read(self) -> None:
        low = min(s.begin for s in self.stretches)
        task = self.cluster.tasks.get((self.leader.log_dir, self.leader.topic, self.leader.partition))
        if task is None:
            self.failed = "batches of this input cannot be read a second time"
            return
        if low >= self.end:
            return
        if (error := lag_counts.count(self.counts, task, self.leader.scans)) is not None:
            self.failed = f"{error.file}: {error.detail}"
            return
        if self.counts.next_offset < min(self.end, self.leader.settled_end):
            self.failed = "the log changed while it was read"
        if task.records:
            for offset, segment, position in self.counts.unsure():
                offsets = lag_counts.offsets_in(task, segment, position)
                if offsets is not None:
                    self.counts.looked_into(offset, offsets)

    def _row(self, s: _LagStart) -> Fields:
        p = s.position
        row = _position(p) | {
            "log_start": self.start,
            "last_stable_offset": self.stable,
            "end_offset": self.end,
            "undecided": self._doubt(s),
        }
        row |= self._holder()
        if p.offset < 0 or self.failed:
            return row
        ahead = self.counts.ahead(s.begin)
        row |= {"stands": self._stands(p, ahead)}
        if p.offset <= self.end:
            left = self._left(s, ahead)
            row |= {"undecided": row["undecided"] or CONTRADICTORY} if left is None else left | self._first(s, ahead)
        return row

    def _stands(self, p: Position, ahead: RecordsAhead) -> str:
        if p.offset < self.start:
            return "before_start"
        if p.offset > self.end:
            return "beyond_end"
        return STANDS[ahead.stands]

    def _left(self, s: _LagStart, ahead: RecordsAhead) -> Fields | None:
        """Counts of a position; None if they break ``0 <= least <= most <= offsets``, which holds for every log."""
        least, most = ahead.least.copy(), ahead.most.copy()
        offsets = self.end - s.begin
        if (least < 0).any() or int(most.sum()) > offsets:
            return None
        done = 0
        for first, last in s.settled:
            fewest, highest = self.counts.between(first, last + 1)
            least -= highest
            most -= fewest
            done += int(fewest[: lag_counts.MARKER].sum())
        least = np.maximum(least, 0)
        if (least > most).any():
            return None
        numbers = (
            least[lag_counts.SEEN],
            most[lag_counts.SEEN] + min(self._exposed_from(s.begin), int(most[lag_counts.ABORTED])),
            least[: lag_counts.MARKER].sum(),
            most[: lag_counts.MARKER].sum(),
            least[lag_counts.WAITING],
            least[lag_counts.OPEN],
            least[lag_counts.ABORTED],
            least[lag_counts.MARKER],
            offsets - int(ahead.most.sum()),
            done,
            ahead.fetched_stable,
            ahead.fetched,
        )
        shown = dict(zip(LEFT, map(int, numbers), strict=True)) | {"offsets": offsets}
        if s.position.kind != SHARE:
            shown["settled_records"] = None  # type: ignore[assignment]
        return shown

    def _exposed_from(self, begin: int) -> int:
        """Upper bound of the aborted records that read_committed consumers may get from there on."""
        return int(self.exposed["records"][self.exposed["last_offset"] >= begin].sum())

    def _first(self, s: _LagStart, ahead: RecordsAhead) -> Fields:
        """The first record that a read_committed consumer gets, and since when."""
        if ahead.first is None or s.settled:
            return {}
        row = ahead.first
        offset = max(int(row[walking.BASE_OFFSET]), s.begin)
        if row[walking.MAGIC] >= 1 and row[walking.ATTRIBUTES] & walking.LOG_APPEND_TIME:
            earliest = latest = int(row[walking.MAX_TIMESTAMP])
        else:
            earliest, latest = around(self.log, int(row[walking.PRODUCER_ID]), offset)
        if (let_on := self._let_on(offset)) >= 0:
            earliest = latest = let_on
        return {"first_offset": offset, "readable_earliest_at": earliest, "readable_latest_at": latest}

    def _let_on(self, offset: int) -> int:
        """When (ms) the LSO passed an offset, -1 if it was never held back there.

        That is the marker after it of the last transaction to end of those that had begun before it.
        """
        firsts, ends, markers = _let_on(self.log)
        index = int(np.searchsorted(firsts, offset, "right")) - 1
        if index < 0 or ends[index] <= offset:
            return -1
        return int(markers["marker_timestamp"][np.searchsorted(markers["marker_offset"], ends[index])])

    def _holder(self) -> Fields:
        t: Transaction | None = self.held
        if t is None or self.stable >= self.end:
            return {}
        return {
            "held_by": t.transactional_id,
            "held_producer_id": t.producer_id,
            "held_class": str(t.klass),
            "held_began_at": t.since,
        }

    def _doubt(self, s: _LagStart) -> str | None:
        """Why the numbers may be wrong; None if nothing suggests it."""
        p, leader = s.position, self.leader
        if p.offset < 0:
            return "the group has committed nothing yet" if p.kind != SHARE else "the group has not begun here"
        if not p.sure:
            return "not all that the group's coordinator wrote could be read"
        if self.failed:
            return self.failed
        if p.offset > self.end:
            other = p.broker_id is None or p.broker_id != leader.broker_id
            late = self.cluster.lacks(leader.topic, leader.partition, p.time, other_clock=other)
            return "the log may have been copied before the offset was committed" if late else None
        if s.begin < leader.log_start:
            return "a part of the log from there on is remote or excluded, and not in the input"
        if max(leader.lost_at, *(until for _, until in leader.absent), -1) > s.begin:
            return "bytes that could not be read, or a segment that is not there, lie behind the position"
        if leader.ends_early:
            return "the end of the log is not in the input"
        if leader.open_unknown or leader.cannot_show:
            return "which transactions are open is not known"
        if touches(leader.unverified, s.begin, lag_counts.FAR):
            return "checksums of batches behind the position were not verified when the log was copied"
        if self._exposed_from(s.begin):
            return "read_committed consumers may get aborted records too, counted in the most (aborted-records-exposed)"
        return None


def _exposed(log: LogView, stable: int) -> np.ndarray:
    """Aborted records below the LSO that consumers may get (EXPOSED): the leader's, and with KIP-392 the followers'."""
    cluster = log.cluster
    by_followers = any(cluster.broker_setting(c.broker_id, "replica.selector.class") for c in log.replicas)
    rows = np.concatenate([c.exposed for c in log.replicas if by_followers or c is log.leader])
    return rows[rows["first_offset"] < stable]


@once
def _let_on(log: LogView) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First offsets of ended transactions in order; the last marker up to each; all markers in order."""
    transactions = log.leader.transactions
    transactions = transactions[(transactions["first_offset"] >= 0) & (transactions["marker_offset"] >= 0)]
    transactions = transactions[np.argsort(transactions["first_offset"], kind="stable")]
    in_order = np.sort(transactions[["marker_offset", "marker_timestamp"]], order="marker_offset")
    return transactions["first_offset"], np.maximum.accumulate(transactions["marker_offset"]), in_order
