"""Reading a running cluster for ``auditor live``: which logs, from where to where, in which order, what was left out.

What brokers remember is asked before and after the logs are read; only what was the same both times is compared.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from auditor.base.at_rest import Fields
from auditor.base.errors import MIB
from auditor.base.user_input import Since, check
from auditor.connectors.codec.segment import Chunk
from auditor.connectors.live.live_cluster import (
    BROKER,
    DEBUGGER,
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    TOPIC,
    Budget,
    Fetched,
    Listing,
    LiveCluster,
    Log,
    Name,
    Producer,
)
from auditor.connectors.tables.internal_rows import CONSUMER_OFFSETS, TRANSACTION_STATE
from auditor.facts.replica_facts import CoordinatorMemory, ProducerMemory, ReplicaFacts
from auditor.model.policies import Shown
from auditor.model.transaction_states import partition_for
from auditor.pipeline.cluster.cluster_settings import ClusterSettings, timestamp_limit
from auditor.pipeline.live.markers_before import MOST_BACK, earliest_times, history_of
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading.other_replicas import LiveReader, LiveTask
from auditor.rules.seen.coordinator_history import SKEW_MS, CoordinatorHistory
from auditor.rules.seen.view import is_compacted

PIECE = MIB  # of a log, asked for at a time
EMPTY_ANSWERS = 10  # of half a second each, until what was appended is taken for never to be replicated
DESCRIBED = 1000  # open transactional ids of one broker that are asked for in full
LISTS_TRANSACTIONS = Shown((3, 0))  # KIP-664
Watch = Callable[[LiveTask], Callable[[Chunk], None] | None]


@dataclass
class Ends:
    """Offsets by log: where it begins, its last stable offset, and its end, at the leader when reading began; and the
    first one since a time that was asked for."""

    start: dict[Name, int] = field(default_factory=dict)
    stable: dict[Name, int] = field(default_factory=dict)
    end: dict[Name, int] = field(default_factory=dict)
    since: dict[Name, int] = field(default_factory=dict)
    replicas: dict[Name, dict[int, tuple[int, int]]] = field(default_factory=dict)


@dataclass
class Memory:
    """What brokers remember: of each log its producers, of the coordinators all ids (None: one did not answer)."""

    producers: dict[Name, dict[int, Producer]] = field(default_factory=dict)
    transactions: dict[str, Listing] | None = None


class Abandoned:
    """Which open transactions, the same in a partition before and after, no coordinator has: nothing is in flight.

    A coordinator has a transaction before any of its data is written, and forgets it only once its markers are. So what
    was open in a partition before a coordinator was asked, and is open after, is none of those that it does not have.
    """

    def __init__(self, before: dict[str, Listing] | None, after: dict[str, Listing] | None) -> None:
        self.asked_twice = before is not None and after is not None
        before, after = before or {}, after or {}
        self.known = {t.producer_id for t in (*before.values(), *after.values())}
        self.still = {t.producer_id: t for tid, t in after.items() if before.get(tid) == t}

    def __call__(self, producer_id: int, log: Name) -> bool:
        """Whether that producer's transaction in a log, itself the same before and after, is abandoned."""
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
class Reading:
    """One reading of a cluster, and all that came of it. ``begin``: "lso", "start" or an offset; where the options say
    since when, that, and the last stable offset where it is lower; ``begins_at``: offsets that some logs are read from
    instead. ``left_out``: logs that the options leave out. ``before``: what brokers had in memory when reading began.
    """

    cluster: LiveCluster
    options: AuditOptions
    budget: Budget
    begin: str
    begins_at: Mapping[Name, int] = field(default_factory=dict)
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    cluster_id: str | None = None
    brokers: list[int] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    ends: Ends = field(default_factory=Ends)
    facts: list[ReplicaFacts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    asked_at: int = -1
    left_out: int = 0
    before: Memory = field(default_factory=Memory)

    @property
    def join_key(self) -> str:
        """What names the cluster."""
        return self.cluster_id or "live"

    def run(self, watch: Watch) -> None:
        """Reads everything; ``watch`` gives for each log who is shown its chunks."""
        self.cluster_id, self.brokers, known = self.cluster.metadata()
        scope = self.options.scope
        if known:  # where nothing is visible, no filter is wrong
            check(scope, ((log.topic, log.partition, log.leader) for log in known))
        self.logs = [log for log in known if scope.wants(log.topic, log.partition, log.leader)]
        self.left_out = len(known) - len(self.logs)
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
        self.settings.topic_configs = self.cluster.configs(TOPIC, topics)
        for broker in self.brokers:
            self.settings.broker_configs |= self.cluster.configs(BROKER, [str(broker)], broker)

    def _memory(self) -> Memory:
        memory = Memory(transactions=self.cluster.transactions(self.brokers, DESCRIBED))
        for leader, logs in self._by_leader().items():
            for name, producers in self.cluster.producers(leader, [log.name for log in logs]).items():
                memory.producers[name] = {p.producer_id: p for p in producers}
        return memory

    def _by_leader(self) -> dict[int, list[Log]]:
        grouped: dict[int, list[Log]] = defaultdict(list)
        for log in self.logs:
            if log.leader >= 0:
                grouped[log.leader].append(log)
        return grouped

    def _ends(self) -> Ends:
        ends, ask = Ends(), self.cluster.offsets
        for leader, logs in self._by_leader().items():
            names = [log.name for log in logs]
            ends.start |= ask(leader, names, EARLIEST)
            ends.stable |= ask(leader, names, LATEST, READ_COMMITTED)
            ends.end |= ask(leader, names, LATEST, replica=DEBUGGER)
            if (since := self.options.since) is not None and since.time_ms is not None:
                ends.since |= ask(leader, names, since.time_ms)
        for broker in self.brokers:
            names = [log.name for log in self.logs if broker in log.replicas and log.leader >= 0]
            starts = ask(broker, names, EARLIEST, replica=DEBUGGER) if names else {}
            stops = ask(broker, names, LATEST, replica=DEBUGGER) if names else {}
            for name in starts.keys() & stops.keys():
                ends.replicas.setdefault(name, {})[broker] = (starts[name], stops[name])
        return ends

    def _order(self, log: Log) -> tuple[Any, ...]:
        """The coordinators' log first, then what is held back most, the groups' offsets last: a budget may end."""
        held = self.ends.end[log.name] - self.ends.stable.get(log.name, self.ends.end[log.name])
        return (log.topic != TRANSACTION_STATE, log.topic == CONSUMER_OFFSETS, -held, log.name)

    def first(self, log: Log) -> int:
        """The offset to read a log from; internal topics are read whole."""
        start, end = self.ends.start.get(log.name, 0), self.ends.end[log.name]
        if log.topic.startswith("__") or self.begin == "start":
            return start
        wanted = self.ends.stable.get(log.name, start) if self.begin == "lso" else int(self.begin)
        wanted = self.begins_at.get(log.name, wanted)
        if (since := self.options.since) is not None:
            wanted = min(self._since(log, since, end), wanted)
        return min(max(wanted, start), end)

    def _since(self, log: Log, since: Since, end: int) -> int:
        """The offset that was asked for; of a time, of the first record as young as that."""
        if since.offset is not None:
            return since.offset
        found = self.ends.since.get(log.name, 0)
        return end if found < 0 else found

    def _start(self, log: Log) -> int:
        """The offset to read a log from: :meth:`first`, or below it where the markers are that open data needs.

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
        """What the coordinators wrote, once their logs were read, which are the first."""
        read = [facts for facts in self.facts if facts.topic == TRANSACTION_STATE]
        count = sum(log.topic == TRANSACTION_STATE for log in self.logs)
        return history_of(read) if len(read) == count else None

    def begins(self, facts: ReplicaFacts) -> int:
        """Where the log of these facts begins, as its leader says."""
        return self.ends.start.get((facts.topic, facts.partition), facts.log_start)

    def _read(self, log: Log, watch: Watch) -> ReplicaFacts:
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
        return reader.done(self.asked_at - SKEW_MS, high_watermark, why)  # the ends were asked for later, by our clock

    def _pieces(self, log: Log, reader: LiveReader) -> tuple[Fetched | None, str | None]:
        """Fetches piece after piece; the last answer, and what was in the way of reading to the end."""
        last, most, empty = None, PIECE, 0
        while reader.next_offset < reader.live.end:
            if self.budget.spent:
                return last, "the byte budget is spent (--max-bytes)"
            answer = self.cluster.fetch(log, reader.next_offset, most)
            if answer is None:
                return last, "the broker does not answer"
            last = answer
            self.budget.take(len(answer.data))
            if not answer.data:
                empty += 1
                if empty == EMPTY_ANSWERS:
                    return last, "it is not replicated, or was cleaned away"
            elif not reader.take(answer.data):
                if most >= self.options.limits.max_batch_bytes:
                    return last, "its batches cannot be read on from there"
                most *= 16
        return last, None

    def _compare(self, before: Memory, after: Memory) -> None:
        """Hands the facts what was remembered alike before and after the reading."""
        count = sum(log.topic == TRANSACTION_STATE for log in self.logs)
        ids: dict[int, dict[str, Fields]] = defaultdict(dict)
        for tid, listing in (after.transactions or {}).items():
            if count and (before.transactions or {}).get(tid) == listing:
                ids[partition_for(tid, count)][tid] = listing._asdict()
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

    def _report_unread(self, unread: Iterable[Log]) -> None:
        """Says what was not read."""
        for log in unread:
            why = "has no leader" if log.leader < 0 else f"broker {log.leader} does not show its offsets"
            self.notes.append(f"not read: {log.topic}-{log.partition}: {why}")
        option = "since" if self.options.since else "from"
        for facts in self.facts:
            start = self.begins(facts)
            if facts.log_start > start:
                name = f"{facts.topic}-{facts.partition}"
                self.notes.append(f"{name}: offsets {start} to {facts.log_start - 1} were not read (--{option})")
        for (about, why), times in Counter(self.cluster.failures).items():
            where = "" if about is None else f"{about[0]}-{about[1]}: "
            self.notes.append(f"not answered: {where}{why}" + (f" ({times} times)" if times > 1 else ""))
        self.notes.append("a cluster shows no segments, indexes, snapshots and checkpoints: nothing is said of them")
