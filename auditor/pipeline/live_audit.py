"""Audits of running clusters."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import MIB, AuditInputError, DecodeError
from auditor.base.user_input import Since, check
from auditor.base.words import plural
from auditor.connectors import schema
from auditor.connectors.codec.records import decode_records
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.live import live_cluster
from auditor.connectors.live.live_cluster import (
    Budget,
    FetchedBatches,
    ListedTransaction,
    LiveCluster,
    Name,
    PartitionMetadata,
    Producer,
)
from auditor.connectors.logdir import internal_rows
from auditor.connectors.logdir.files import Inventory, LogDir, Replica, SegmentFile
from auditor.connectors.logdir.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE, internal_records
from auditor.connectors.schema import Key, from_errors, with_leader_copy
from auditor.connectors.tables.input_splits import LeftOut
from auditor.connectors.tables.rows import batch_rows, record_rows
from auditor.evidence.cluster_clocks import at_least_ms
from auditor.evidence.horizons import is_compacted
from auditor.facts.coordinator_history import NONE, CoordinatorHistory, join
from auditor.facts.coordinator_log import StateRecord, pack
from auditor.facts.replica_facts import CoordinatorMemory, ProducerMemory, ReplicaFacts, log_of
from auditor.model.policies import ReleaseEvidence
from auditor.model.rehearsal import ClusterState
from auditor.model.transaction_states import PREPARED, partition_for
from auditor.pipeline.cluster_settings import ClusterSettings, timestamp_limit
from auditor.pipeline.live_rehearsal import state_by_cluster
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import pair_of
from auditor.pipeline.table_tasks import ParquetFile
from auditor.pipeline.whole_audit import NOTHING_READABLE, NOTHING_VISIBLE, Audit, EmptyInput, Say, nobody
from auditor.replay.reading.other_replicas import NOWHERE, LiveReader, LiveTask
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    from auditor.pipeline.runner import Replicas, Runner


# Tables of a running cluster (contract section 4), written while batches and records are read.


INTERNAL = ("transaction_log", "offset_commits", "group_metadata")
PASSING = ("batches", *INTERNAL, "records")
PART = "part-0.parquet"


class Tables:
    """Writes batches, and records if they are read, below ``folder``; does nothing without one."""

    def __init__(self, options: AuditOptions, folder: Path | None) -> None:
        self.options = options
        self.folder = folder
        self.writers: dict[str, ParquetFile] = {}

    def __enter__(self) -> Self:
        if self.folder is not None:
            for name in PASSING if self.options.records else PASSING[:-1]:
                columns = schema.TABLES[name].schema(self.options.include_payload)
                (self.folder / name).mkdir(parents=True)
                self.writers[name] = ParquetFile(self.folder / name / PART, columns)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers.values():
            writer.close()

    def watch(self, task: LiveTask) -> Callable[[Chunk], None] | None:
        """Return the callback that gets the chunks of a log, None if no tables are written."""
        if self.folder is None:
            return None
        key: Key = (task.cluster_id, task.broker_id, task.log_dir, task.topic, task.partition)

        decoded = internal_records(task.topic, task.limits) if task.topic in internal_rows.TABLES else None

        def show(chunk: Chunk) -> None:
            if decoded is not None and chunk.raw is not None:
                decoded.add(task.file, chunk)  # what could not be read is reported by the audit
                decoded.unreadable.clear()
                decoded.unknown.clear()
                for name, batch in decoded.drain(key):
                    self._write(name, batch)
            self._write("batches", batch_rows(key, task.file, chunk.batches, damaged=chunk.damaged_fields()))
            if "records" in self.writers and chunk.raw is not None:
                payload = self.options.include_payload
                runs = decode_records(chunk.raw, chunk.batches, limits=task.limits, payload=payload)
                for rows in record_rows(key, task.file, chunk.batches, runs, schema.TABLES["records"].made(payload)):
                    self._write("records", rows)

        return show

    def _write(self, name: str, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self.writers[name].add(with_leader_copy(name, rows, {}))


def from_facts(replicas: list[ReplicaFacts], table: str) -> pa.Table | None:
    """Return a decoded table from facts, empty where a cluster has no such data; None for derived tables."""
    if table not in schema.DECODED:
        return None
    rows = [batch for f in replicas if table in f.tables for batch in f.tables[table].to_batches()]
    if table == "decode_errors":
        rows = [from_errors(f.table_key, f.errors) for f in replicas if f.errors]
    return pa.Table.from_batches([with_leader_copy(table, batch, {}) for batch in rows], schema.TABLES[table].schema())


# Offset below the LSO to read from: that of the markers before open data that no coordinator will end.
#
# Only the markers of its transactional id show whether such data belongs to a committed transaction. Open data that
# its coordinator will end needs none of them, so that a healthy log is not read further back.


DECISIONS = 2  # of each id: the marker of the one before shows whether that of the last one is missing
MOST_BACK = 1 << 20  # offsets below the last stable offset


def history_of(coordinators: Iterable[ReplicaFacts]) -> CoordinatorHistory | None:
    """Return the coordinators' history, None if a partition of ``__transaction_state`` was not read to its end."""
    read = sorted(coordinators, key=lambda facts: facts.partition)
    if not read or any(facts.breaks_off for facts in read):
        return None
    return join(len(read), {f.partition: pack(()) if f.coordinator_log is None else f.coordinator_log for f in read})


def earliest_times(history: CoordinatorHistory, name: str, producers: Iterable[Producer]) -> list[int]:
    """Return times (ms) before which no marker is needed, the latest first; empty if none is needed.

    ``name``: ``topic-N``; ``producers``: those in memory of the log's leader. For each with an open transaction that
    its coordinator will not end, the markers of the last :data:`DECISIONS` decisions about the log are needed.
    """
    last, before = [], []
    for producer in producers:
        entry = history.last_of_owner(producer.producer_id)
        if producer.txn_first_offset < 0 or entry is None or _will_end(entry, name, producer):
            continue
        named = history.named(name)
        rows = named.rows[named.of(producer.producer_id)]
        decided = np.sort(rows["decided_time"][rows["decision"] != NONE])[-DECISIONS:].tolist()
        if not decided and entry.state in ("CompleteCommit", "CompleteAbort"):  # a cleaner took what named the log
            decided = [entry.start if entry.start >= 0 else entry.time]
        last += decided[-1:]
        before += decided[:1]
    return [at_least_ms(min(times)) for times in (last, before) if times]


def _will_end(entry: StateRecord, name: str, producer: Producer) -> bool:
    """Whether the coordinator has the transaction open or decided, with this partition."""
    if entry.producer_id != producer.producer_id or name not in entry.partitions:
        return False
    ahead = entry.producer_epoch - producer.producer_epoch
    return ahead <= 0 if entry.state == "Ongoing" else entry.state in PREPARED and ahead <= 2


# Reading of a cluster: which logs, from where to where, in which order, and what was excluded.
#
# Brokers are asked for their producer state before and after the logs are read; only what did not change is compared.


PIECE = MIB  # of a log, asked for at a time
EMPTY_ANSWERS = 10  # of half a second each, until what was appended is taken for never to be replicated
DESCRIBED = 1000  # open transactional ids of one broker that are asked for in full
LISTS_TRANSACTIONS = ReleaseEvidence((3, 0))  # KIP-664
Watch = Callable[[LiveTask], Callable[[Chunk], None] | None]


@dataclass
class LogEnds:
    """Offsets by log at its leader when reading began: log start, LSO, log end, and the first since a given time."""

    start: dict[Name, int] = field(default_factory=dict)
    stable: dict[Name, int] = field(default_factory=dict)
    end: dict[Name, int] = field(default_factory=dict)
    since: dict[Name, int] = field(default_factory=dict)
    replicas: dict[Name, dict[int, tuple[int, int]]] = field(default_factory=dict)


@dataclass
class Memory:
    """What brokers have in memory: the producers of each log, and all transactional ids (None: one did not answer)."""

    producers: dict[Name, dict[int, Producer]] = field(default_factory=dict)
    transactions: dict[str, ListedTransaction] | None = None


class Abandoned:
    """Which open transactions, unchanged in a partition, no coordinator knows: they are not merely in flight.

    A coordinator adds a partition before any data is written to it, and forgets it only after its marker is. So a
    transaction that is open before and after the coordinator was asked, and that it does not have, is abandoned.
    """

    def __init__(self, before: dict[str, ListedTransaction] | None, after: dict[str, ListedTransaction] | None) -> None:
        self.asked_twice = before is not None and after is not None
        before, after = before or {}, after or {}
        self.known = {t.producer_id for t in (*before.values(), *after.values())}
        self.still = {t.producer_id: t for tid, t in after.items() if before.get(tid) == t}

    def __call__(self, producer_id: int, log: Name) -> bool:
        """Whether that producer's transaction in a log, itself unchanged, is abandoned."""
        if not self.asked_twice or producer_id not in self.known:
            return self.asked_twice
        listing = self.still.get(producer_id)
        if listing is None:
            return False
        if listing.state in ("Empty", "CompleteCommit", "CompleteAbort"):
            return True
        described = listing.producer_epoch >= 0
        return listing.state == "Ongoing" and described and f"{log[0]}-{log[1]}" not in listing.partitions


@dataclass
class ClusterReading:
    """One reading of a cluster, and its results.

    ``begin``: "lso", "start" or an offset; with ``--since`` reading begins there, or at the LSO if that is lower.
    ``begins_at``: offsets that some logs are read from instead. ``left_out``: logs that the options exclude.
    ``before``: what brokers had in memory when reading began.
    """

    cluster: LiveCluster
    options: AuditOptions
    budget: Budget
    begin: str
    begins_at: Mapping[Name, int] = field(default_factory=dict)
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    cluster_id: str | None = None
    brokers: list[int] = field(default_factory=list)
    logs: list[PartitionMetadata] = field(default_factory=list)
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    ends: LogEnds = field(default_factory=LogEnds)
    facts: list[ReplicaFacts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asked_at: int = -1
    left_out: int = 0
    before: Memory = field(default_factory=Memory)

    @property
    def join_key(self) -> str:
        """Name of the cluster."""
        return self.cluster_id or "live"

    def run(self, watch: Watch) -> None:
        """Read everything; ``watch`` returns for each log the callback for its chunks."""
        self.cluster_id, self.brokers, partitions = self.cluster.metadata()
        scope = self.options.scope
        if partitions:  # where nothing is visible, no filter is wrong
            check(scope, ((log.topic, log.partition, log.leader) for log in partitions))
        self.logs = [log for log in partitions if scope.wants(log.topic, log.partition, log.leader)]
        self.left_out = len(partitions) - len(self.logs)
        self._settings()
        self.asked_at = self.clock()
        self.before = self._memory()
        if self.before.transactions is not None:  # every broker answers ListTransactions
            self.settings.releases |= dict.fromkeys(self.brokers, LISTS_TRANSACTIONS)
        self.ends = self._ends()
        for log in sorted((log for log in self.logs if log.name in self.ends.end), key=self._order):
            self.facts.append(self._read(log, watch))
        self._compare(self.before, self._memory())
        self._report_unread([log for log in self.logs if log.name not in self.ends.end])

    def _settings(self) -> None:
        topics = sorted({log.topic for log in self.logs})
        self.settings.topic_configs = self.cluster.configs(live_cluster.TOPIC, topics)
        for broker in self.brokers:
            self.settings.broker_configs |= self.cluster.configs(live_cluster.BROKER, [str(broker)], broker)

    def _memory(self) -> Memory:
        memory = Memory(transactions=self.cluster.transactions(self.brokers, DESCRIBED))
        for leader, logs in self._by_leader().items():
            for name, producers in self.cluster.producers(leader, [log.name for log in logs]).items():
                memory.producers[name] = {p.producer_id: p for p in producers}
        return memory

    def _by_leader(self) -> dict[int, list[PartitionMetadata]]:
        grouped: dict[int, list[PartitionMetadata]] = defaultdict(list)
        for log in self.logs:
            if log.leader >= 0:
                grouped[log.leader].append(log)
        return grouped

    def _ends(self) -> LogEnds:
        ends, ask = LogEnds(), self.cluster.offsets
        for leader, logs in self._by_leader().items():
            names = [log.name for log in logs]
            ends.start |= ask(leader, names, live_cluster.EARLIEST)
            ends.stable |= ask(leader, names, live_cluster.LATEST, live_cluster.READ_COMMITTED)
            ends.end |= ask(leader, names, live_cluster.LATEST, replica=live_cluster.DEBUGGER)
            if (since := self.options.since) is not None and since.time_ms is not None:
                ends.since |= ask(leader, names, since.time_ms)
        for broker in self.brokers:
            names = [log.name for log in self.logs if broker in log.replicas and log.leader >= 0]
            starts = ask(broker, names, live_cluster.EARLIEST, replica=live_cluster.DEBUGGER) if names else {}
            stops = ask(broker, names, live_cluster.LATEST, replica=live_cluster.DEBUGGER) if names else {}
            for name in starts.keys() & stops.keys():
                ends.replicas.setdefault(name, {})[broker] = (starts[name], stops[name])
        return ends

    def _order(self, log: PartitionMetadata) -> tuple[Any, ...]:
        """Order logs so that a spent budget hurts least: coordinators first, then the most blocked, offsets last."""
        blocked = self.ends.end[log.name] - self.ends.stable.get(log.name, self.ends.end[log.name])
        return (log.topic != TRANSACTION_STATE, log.topic == CONSUMER_OFFSETS, -blocked, log.name)

    def first(self, log: PartitionMetadata) -> int:
        """Return the offset to read a log from; internal topics are read whole."""
        start, end = self.ends.start.get(log.name, 0), self.ends.end[log.name]
        if log.topic.startswith("__") or self.begin == "start":
            return start
        wanted = self.ends.stable.get(log.name, start) if self.begin == "lso" else int(self.begin)
        wanted = self.begins_at.get(log.name, wanted)
        if (since := self.options.since) is not None:
            wanted = min(self._since(log, since, end), wanted)
        return min(max(wanted, start), end)

    def _since(self, log: PartitionMetadata, since: Since, end: int) -> int:
        """The given offset, or that of the first record not older than the given time."""
        if since.offset is not None:
            return since.offset
        first = self.ends.since.get(log.name, 0)
        return end if first < 0 else first

    def _start(self, log: PartitionMetadata) -> int:
        """The offset to read a log from: :meth:`first`, or lower if open data needs earlier markers.

        An offset that the user gave is kept. Cost: up to two requests for a log with data that no coordinator will end.
        """
        first, producers = self.first(log), self.before.producers.get(log.name, {})
        if log.topic.startswith("__") or self.begin != "lso" or self._history is None:
            return first
        stable = self.ends.stable.get(log.name, first)
        for time_ms in earliest_times(self._history, f"{log.topic}-{log.partition}", producers.values()):
            offset = self.cluster.offsets(log.leader, [log.name], time_ms).get(log.name, -1)
            if offset >= 0 and stable - offset <= MOST_BACK:
                first = min(first, max(offset, self.ends.start.get(log.name, 0)))
        return first

    @cached_property
    def _history(self) -> CoordinatorHistory | None:
        """The coordinators' history, once their logs were read, which come first."""
        read = [facts for facts in self.facts if facts.topic == TRANSACTION_STATE]
        count = sum(log.topic == TRANSACTION_STATE for log in self.logs)
        return history_of(read) if len(read) == count else None

    def begins(self, facts: ReplicaFacts) -> int:
        """Return the log start offset by the leader."""
        return self.ends.start.get((facts.topic, facts.partition), facts.log_start)

    def _read(self, log: PartitionMetadata, watch: Watch) -> ReplicaFacts:
        policy = self.settings.topic_setting(log.topic, "cleanup.policy", log.leader)
        task = LiveTask(
            topic=log.topic,
            partition=log.partition,
            broker_id=log.leader,
            log_dir=f"broker-{log.leader}",
            cluster_id=self.cluster_id,
            join_key=self.join_key,
            start=self._start(log),
            end=self.ends.end[log.name],
            compacted=is_compacted(log.topic, policy, None),
            expiration_ms=self.settings.expiration_ms(log.leader),
            before_ms=timestamp_limit(self.settings, "before", log.topic, log.leader),
            records=self.options.records,
            raw=self.options.tables and self.options.records,
            limits=self.options.limits,
            cleaning_unknown=policy is None,
            log_start=self.ends.start.get(log.name, -1),
            last_stable=self.ends.stable.get(log.name, -1),
        )
        reader = LiveReader(task, watch(task))
        last, why = self._pieces(log, reader)
        high_watermark = last.high_watermark if last is not None else task.end
        # The ends were asked for later, by our clock.
        return reader.done(at_least_ms(self.asked_at), high_watermark, why)

    def _pieces(self, log: PartitionMetadata, reader: LiveReader) -> tuple[FetchedBatches | None, str | None]:
        """Fetch piece by piece; return the last answer, and why reading stopped early."""
        last, most, empty = None, PIECE, 0
        while reader.next_offset < reader.live.end:
            if self.budget.spent:
                return last, "read limit reached (--max-bytes)"
            answer = self.cluster.fetch(log, reader.next_offset, most)
            if answer is None:
                return last, "the broker does not respond"
            last = answer
            self.budget.take(len(answer.data))
            if not answer.data:
                empty += 1
                if empty == EMPTY_ANSWERS:
                    return last, "it is not replicated, or was compacted away"
            elif not reader.take(answer.data):
                if most >= self.options.limits.max_batch_bytes:
                    return last, "its batches cannot be read on from there"
                most *= 16
        return last, None

    def _compare(self, before: Memory, after: Memory) -> None:
        """Add to the facts what brokers had in memory both before and after the reading."""
        count = sum(log.topic == TRANSACTION_STATE for log in self.logs)
        ids: dict[int, dict[str, Fields]] = defaultdict(dict)
        for tid, listing in (after.transactions or {}).items():
            if count and (before.transactions or {}).get(tid) == listing:
                ids[partition_for(tid, count)][tid] = listing._asdict() | {"partitions": sorted(listing.partitions)}
        abandoned = Abandoned(before.transactions, after.transactions)
        for facts in self.facts:
            name = (facts.topic, facts.partition)
            if name in before.producers and name in after.producers:
                old, new = before.producers[name], after.producers[name]
                still = [p for pid, p in sorted(new.items()) if old.get(pid) == p]
                opened = [p for p in still if p.txn_first_offset >= 0 and abandoned(p.producer_id, name)]
                facts.producer_memory = ProducerMemory(
                    [p._asdict() for p in still],
                    sorted(old.keys() | new.keys()),
                    [(p.producer_id, p.txn_first_offset) for p in opened],
                )
            if facts.topic == TRANSACTION_STATE:
                facts.coordinator_memory = CoordinatorMemory(ids[facts.partition], self.asked_at)

    def _report_unread(self, unread: Iterable[PartitionMetadata]) -> None:
        for log in unread:
            why = "has no leader" if log.leader < 0 else f"broker {log.leader} does not show its offsets"
            self.notes.append(f"unreadable: {log.topic}-{log.partition}: {why}")
        option = "since" if self.options.since else "from"
        for facts in self.facts:
            start = self.begins(facts)
            if facts.log_start > start:
                name = f"{facts.topic}-{facts.partition}"
                self.notes.append(f"{name}: offsets {start} to {facts.log_start - 1} were not scanned (--{option})")
        for (about, why), times in Counter(self.cluster.failures).items():
            where = "" if about is None else f"{about[0]}-{about[1]}: "
            self.notes.append(f"not answered: {where}{why}" + (f" ({times} times)" if times > 1 else ""))
        self.notes.append(
            "a running cluster shows no segments, indexes, snapshots and checkpoints: they are not checked"
        )


# Audit of a reading.
#
# Findings name offsets, never files. Findings that may only have been seen in motion are checked once more.


class LiveAudit(Audit):
    """An audit of one reading of a cluster, which must stay open while findings are computed."""

    def __init__(self, reading: ClusterReading, runner: Runner, say: Say = nobody) -> None:
        super().__init__(reading.options, runner, say)
        self._reading = reading
        self.folder: Path | None = None
        self._ended: set[tuple[str | None, int | None, int | None, int | None]] = set()

    @cached_property
    def reading(self) -> ClusterReading:
        """The reading, once it is done."""
        with self.step("read the cluster"), Tables(self.options, self.folder) as tables:
            self._reading.run(tables.watch)
        if not self._reading.brokers:
            raise AuditInputError("the cluster does not list its topics; check the Describe permissions of this user")
        return self._reading

    @cached_property
    def inventory(self) -> Inventory:
        """What was read, with each broker as a log directory."""
        return inventory_of(self.reading)

    @property
    def scoped(self) -> Inventory:
        """The whole inventory: nothing else was fetched."""
        return self.inventory

    @property
    def empty_input(self) -> EmptyInput | None:
        """Why there was nothing to judge: no visible partition, or no readable one."""
        reading = self.reading
        if not reading.logs:
            return None if reading.left_out else NOTHING_VISIBLE
        return None if reading.facts else NOTHING_READABLE

    @property
    def left_out(self) -> LeftOut:
        """Number of excluded logs, and of logs whose beginning was excluded."""
        begun = sum(f.log_start > self.reading.begins(f) for f in self.reading.facts) if self.options.since else 0
        return LeftOut(self.reading.left_out, begun)

    @cached_property
    def _opened(self) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
        return {self.reading.join_key: self.reading.settings}, []

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of the reading, wherever the runner has them."""
        reading = self.reading
        self.ready()
        return self.runner.keep(lambda: map(pair_of, sorted(reading.facts, key=log_of)))

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """Clusters whose logs begin where brokers say, not where reading began: offsets are judged by that."""
        clusters = super().clusters
        ends = self.reading.ends
        if (cluster := clusters.get(self.reading.join_key)) is not None:
            for name, bounds in cluster.bounds.items():
                start, end = ends.start.get(name, bounds.log_start), ends.end.get(name, bounds.log_end)
                cluster.bounds[name] = bounds._replace(log_start=start, log_end=max(end, bounds.log_end))
            cluster.leaders = {log.name: log.leader for log in self.reading.logs if log.leader >= 0}
            cluster.replicas = {log.name: len(log.replicas) for log in self.reading.logs}
            cluster.configs_by = "the brokers"
        return clusters

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings that still hold when the leaders are asked again."""
        findings = super().findings
        ended = [finding for finding in findings if self._has_ended(finding)]
        for finding in findings:
            finding.file = finding.position = None
        self._ended = {(f.topic, f.partition, f.producer_id, f.offset) for f in ended}
        if ended:
            note = f"completed while the cluster was scanned: {plural(len(ended), 'transaction')}"
            self.inventory = dataclasses.replace(self.inventory, notes=(*self.inventory.notes, note))
        return [finding for finding in findings if finding not in ended]

    @cached_property
    def states(self) -> dict[str | None, ClusterState]:
        """The state of the cluster for a rehearsal, by its id. Cost: further requests, which send no data."""
        return dict([state_by_cluster(self.reading.cluster, int(time.time() * 1000))])

    @property
    def blocked(self) -> list[Fields]:
        """Blocked partitions without those whose transaction has ended since."""
        _ = self.findings
        names = ("topic", "partition", "producer_id", "first_offset")
        return [row for row in super().blocked if tuple(row[name] for name in names) not in self._ended]

    @cached_property
    def _begun_inside(self) -> set[tuple[str | None, int | None]]:
        """Topic and partition of the logs that were not read from their start."""
        return {(f.topic, f.partition) for f in self.reading.facts if f.log_start > self.reading.begins(f)}

    def _has_ended(self, finding: Finding) -> bool:
        """Whether the leader says that the transaction, which a finding calls open, has ended."""
        if not registry.kinds()[finding.kind].moving or finding.offset is None or finding.producer_id is None:
            return False
        assert finding.topic is not None
        assert finding.partition is not None
        name = (finding.topic, finding.partition)
        leaders = {log.name: log.leader for log in self.reading.logs}
        producers = self.reading.cluster.producers(leaders[name], [name]).get(name)
        if producers is None:
            return False
        begun = next((p.txn_first_offset for p in producers if p.producer_id == finding.producer_id), -1)
        return begun != finding.offset and not 0 <= begun < self._read_from[name]

    @cached_property
    def _read_from(self) -> dict[tuple[str, int], int]:
        """The offset that each log was read from: a transaction may have begun before it."""
        return {(facts.topic, facts.partition): facts.log_start for facts in self.reading.facts}

    def spared(self) -> Inventory | None:
        """Return None: brokers are read, not their directories."""
        return None

    def staged(self, folder: Path) -> None:
        """Set where tables are written while their rows pass by."""
        self.folder = folder / "tables" if self.options.tables else None

    def held(self, table: str) -> pa.Table | None:
        """Return tables that were written while reading or are part of the facts."""

        if table in ("findings", "blocked", "impact", "rehearsal"):
            return super().held(table)
        return from_facts(self.reading.facts, table)

    def written_tables(self) -> list[str]:
        """Return the tables that were not written while reading."""

        return [name for name in super().written_tables() if name not in PASSING]

    def of_summary(self) -> Fields:
        """Return what only a running cluster shows, under ``live``."""
        reading = self.reading
        ends = reading.ends
        logs = [
            {
                "topic": log.topic,
                "partition": log.partition,
                "leader": log.leader,
                "leader_epoch": log.leader_epoch,
                "isr": list(log.isr),
                "log_start": ends.start.get(log.name),
                "last_stable_offset": ends.stable.get(log.name),
                "log_end": ends.end.get(log.name),
                "replicas": {str(b): list(bounds) for b, bounds in sorted(ends.replicas.get(log.name, {}).items())},
            }
            for log in reading.logs
        ]
        about = {"cluster_id": reading.cluster_id, "brokers": reading.brokers, "bytes_read": reading.budget.used}
        return {"live": {**about, "from": reading.begin, "logs": logs}}


def inventory_of(reading: ClusterReading) -> Inventory:
    """Return what was read as an inventory, with each broker as a log directory."""
    dirs = []
    for broker in reading.brokers:
        facts = [f for f in reading.facts if f.broker_id == broker]
        replicas = tuple(
            Replica(
                f.log_dir,
                f.topic,
                f.partition,
                f.folder,
                segments=(SegmentFile(f.segments[0], f.segment_bases[0], f.sums["bytes_total"]),),
            )
            for f in facts
        )
        name = f"broker-{broker}"
        dirs.append(
            LogDir(name, NOWHERE, reading.join_key, reading.cluster_id, broker, "the cluster", replicas=replicas)
        )
    return Inventory(tuple(dirs), (), (), (), tuple(reading.notes))
