"""A live audit of what real brokers stored, without a broker: from any offset status and advice are the same."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from auditor.base.at_rest import Fields
from auditor.base.user_input import since_of
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.live.live_cluster import (
    EARLIEST,
    LATEST,
    TOPIC,
    Budget,
    FetchedBatches,
    ListedTransaction,
    LiveCluster,
    Name,
    PartitionMetadata,
    Producer,
)
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.transaction_states import PREPARED
from auditor.pipeline.live_audit import ClusterReading, LiveAudit
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.rules.seen.view import LogView
from tests import corpora
from tests.facts import here, logs_of, opened

SAME = ("topic", "partition", "transactional_id", "class", "standing", "first_offset", "state", "advice")


class StoredLog:
    """A log of a broker that runs no more, as the broker would hand it out."""

    def __init__(self, folder: Path, log: LogView) -> None:
        facts = log.leader
        self.data = b"".join((folder / name).read_bytes() for name in facts.segments)
        self.facts, self.stable = facts, min(_open_from(facts), facts.log_end)
        chunks = read_segment(io.BytesIO(self.data), len(self.data), file="")
        rows = [chunk.batches for chunk in chunks]
        self.position, self.last_offset, self.max_timestamp = (
            np.concatenate([getattr(batches, name) for batches in rows] or [np.empty(0, np.int64)])
            for name in ("position", "last_offset", "max_timestamp")
        )

    def from_offset(self, offset: int) -> bytes:
        """Its batches from the one that holds an offset on."""
        at = int(np.searchsorted(self.last_offset, offset))
        return self.data[int(self.position[at]) :] if at < len(self.position) else b""

    def at_time(self, time_ms: int) -> int:
        """As ListOffsets: the first offset of the first batch that has so young a record."""
        found = np.flatnonzero(self.max_timestamp >= time_ms)
        return int(np.append(self.facts.log_start, self.last_offset + 1)[found[0]]) if len(found) else -1


def _open_from(facts: ReplicaFacts) -> int:
    rows = facts.transactions
    return int(rows["first_offset"][(rows["marker_offset"] < 0) & (rows["first_offset"] >= 0)].min(initial=1 << 62))


class Stored:
    """What is asked of a running cluster, answered from the leader replicas of a corpus."""

    failures = ()

    def __init__(self, name: str, audit: Audit) -> None:
        logs = [log for log in logs_of(audit) if log.leader.segments and log.topic != "__cluster_metadata"]
        folder = corpora.unpack(name)
        self.logs = {(log.topic, log.partition): StoredLog(folder / log.leader.log_dir, log) for log in logs}
        self.history = logs[0].cluster.coordinator

    def metadata(self) -> tuple[str, list[int], list[PartitionMetadata]]:
        leaders = {name: self.logs[name].facts.broker_id or 0 for name in sorted(self.logs)}
        return (
            "c",
            sorted(set(leaders.values())),
            [PartitionMetadata(*name, b, 0, (b,), (b,)) for name, b in leaders.items()],
        )

    def configs(self, kind: int, names: list[str], _node: int | None = None) -> dict[str, dict[str, str]]:
        """Of topics their policy, of the broker how many partitions the coordinators' log has."""
        count = sum(topic == "__transaction_state" for topic, _ in self.logs)
        of_broker = {"transaction.state.log.num.partitions": str(count)}
        policies = ({"cleanup.policy": "compact" if name.startswith("__") else "delete"} for name in names)
        return dict(zip(names, policies, strict=True)) if kind == TOPIC else dict.fromkeys(names, of_broker)

    def offsets(self, _node: int, names: Iterable[Name], spec: int, *isolation: int, **_: int) -> dict[Name, int]:
        def of(log: StoredLog) -> int:
            if spec == EARLIEST:
                return log.facts.log_start
            if spec == LATEST:
                return log.stable if isolation else log.facts.log_end
            return log.at_time(spec)

        return {name: of(self.logs[name]) for name in names}

    def producers(self, _node: int, names: Iterable[Name]) -> dict[Name, list[Producer]]:
        columns = ("producer_id", "producer_epoch", "last_sequence", "last_timestamp", "coordinator_epoch",
                   "txn_first_offset")  # fmt: skip
        rows = {name: self.logs[name].facts.producers for name in names}
        return {name: [Producer(*(int(row[c]) for c in columns)) for row in of] for name, of in rows.items()}

    def transactions(self, *_: object) -> dict[str, ListedTransaction]:
        found: dict[str, ListedTransaction] = {}
        for log, counts in self.history.sources if self.history is not None else ():
            for number in np.flatnonzero(counts).tolist():
                if (e := log.last(number)).state is not None:
                    going = e.state in ("Ongoing", *PREPARED)
                    more = (e.producer_epoch, e.partitions) if going else ()
                    found[e.transactional_id] = ListedTransaction(e.state, e.producer_id, *more)
        return found

    def fetch(self, log: PartitionMetadata, offset: int, _most: int) -> FetchedBatches:
        stored = self.logs[log.name]
        return FetchedBatches(stored.from_offset(offset), stored.facts.log_end, stored.stable)


def held(audit: Audit) -> list[Fields]:
    """Status and advice of what holds each partition."""
    rows = [{name: row[name] for name in SAME} for row in audit.blocked]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["first_offset"]))


def live(stored: Stored, as_of: int, begin: str, **options: Any) -> LiveAudit:
    """A live audit that reads from somewhere on."""
    asked = AuditOptions((), Path(), as_of=as_of, **options)
    return LiveAudit(ClusterReading(cast(LiveCluster, stored), asked, Budget(1 << 40, 1 << 50), begin), here())


@pytest.mark.parametrize("name", ["hanging-36", "hanging-43-killed", "open-41-killed", "skipped-marker-43"])
def test_where_reading_begins_changes_neither_status_nor_advice(name: str) -> None:
    """Or, where the user says from which offset on, the advice writes nothing."""
    as_of = corpora.manifest(name)["copied_at"]
    audit = opened(corpora.unpack(name), as_of=as_of)
    stored, files = Stored(name, audit), held(audit)
    whole = held(live(stored, as_of, "start"))
    assert whole
    if name.startswith("hanging"):  # of the others the copy is older than what their coordinator would have done
        assert whole == files
    for options in ({}, {"since": since_of("0")}, {"since": since_of(str(1 << 40))}):
        assert held(live(stored, as_of, "lso", **options)) == whole, options
    for begin in (1, 20, 40):
        found = {(row["topic"], row["partition"]): row for row in held(live(stored, as_of, str(begin)))}
        for row in (row for row in whole if stored.logs[row["topic"], row["partition"]].stable >= begin):
            now = found[row["topic"], row["partition"]]
            assert now["class"] == row["class"]
            assert now["advice"] == row["advice"] or writes_nothing(now["advice"]), (begin, now)
        assert all(writes_nothing(row["advice"]) or row in whole for row in found.values())


def writes_nothing(advice: Fields) -> bool:
    """Whether an advice has neither an abort nor a COMMIT by hand in it."""
    return advice["verdict"] not in ("act", "safe_to_abort", "commit_it")


def test_a_transaction_that_began_before_the_reading_has_not_ended() -> None:
    """The leader names its first offset, which is below the one that the user gave."""
    name = "hanging-36"
    as_of = corpora.manifest(name)["copied_at"]
    stored = Stored(name, opened(corpora.unpack(name), as_of=as_of))
    hangs = {
        (f.topic, f.partition): f for f in live(stored, as_of, "start").findings if f.kind == "hanging-transaction"
    }
    long = [f for f in hangs.values() if f.last_offset and f.offset is not None and f.last_offset > f.offset]
    assert long
    for one in long:
        log = stored.logs[one.topic or "", one.partition or 0]
        inside = int(log.last_offset[np.searchsorted(log.last_offset, one.offset)]) + 1
        if inside > (one.last_offset or 0):
            continue  # of one batch
        found = live(stored, as_of, str(inside)).findings
        assert (one.topic, one.partition) in {(f.topic, f.partition) for f in found if f.kind == one.kind}
