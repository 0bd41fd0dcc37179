"""What all replicas of internal topics leave together has a bound: each has a share, known before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.connectors.logdir.inventory import discover
from auditor.pipeline import cluster_context, plan
from auditor.pipeline.options import AuditOptions
from auditor.replay import internal_readers
from auditor.replay.internal_readers import OFFSET_DICTIONARIES, dictionary_room
from auditor.replay.task import ReplicaTask
from tests import corpora, segments
from tests.facts import opened

TOPIC = "__transaction_state"


def tasks_of(path: Path) -> list[ReplicaTask]:
    found = plan.replica_tasks(discover([str(path)]), {}, AuditOptions((str(path),), Path()))
    return [task for task in found if isinstance(task, ReplicaTask)]


def made(root: Path, sizes: list[int]) -> Path:
    """Partitions of ``__transaction_state`` of so many bytes, about."""
    for number, size in enumerate(sizes):
        folder = root / f"{TOPIC}-{number}"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(segments.simple(0, 1, value=bytes(size)))
    return root


@pytest.mark.parametrize("sizes", [[10], [10] * 50, [5_000_000, 10, 10]])
def test_shares_are_one_together_and_the_largest_has_the_most(tmp_path: Path, sizes: list[int]) -> None:
    shares = [task.share for task in tasks_of(made(tmp_path, sizes))]
    assert 0.5 <= sum(shares) <= 1
    assert min(shares) >= 0.25 / len(sizes)
    if max(sizes) > min(sizes):
        assert max(shares) >= 0.5
    rooms = [internal_readers.coordinator_room(share) for share in shares]
    assert sum(room.packed_bytes for room in rooms) <= internal_readers.PACKED_IN_ALL
    assert sum(room.records for room in rooms) <= internal_readers.RECORDS_IN_ALL
    assert sum(dictionary_room(share) for share in shares) <= OFFSET_DICTIONARIES


def test_a_file_that_grows_leaves_the_tasks_of_others_as_they_are(tmp_path: Path) -> None:
    """A watch reads again what changed."""
    before = tasks_of(made(tmp_path, [100_000] * 5))
    (tmp_path / f"{TOPIC}-0" / f"{0:020}.log").write_bytes(segments.simple(0, 1, value=bytes(101_000)))
    assert tasks_of(tmp_path)[1:] == before[1:]


def test_one_partition_alone_has_what_a_partition_may_have() -> None:
    assert internal_readers.Room() == internal_readers.ALONE


def test_what_all_leave_ends_at_the_bound_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction is called hanging for what the coordinators did not write once some of it is left out; those that
    hang are reported as open all the same."""
    as_of = corpora.manifest("hanging-36")["copied_at"]
    whole = opened(corpora.unpack("hanging-36"), as_of=as_of)
    hanging = {(f.topic, f.partition) for f in whole.findings if f.kind == "hanging-transaction"}
    monkeypatch.setattr(internal_readers, "RECORDS_IN_ALL", 12)
    audit = opened(corpora.unpack("hanging-36"), as_of=as_of)
    found = {f.kind: {(g.topic, g.partition) for g in audit.findings if g.kind == f.kind} for f in audit.findings}
    assert len(hanging) == 4
    assert "hanging-transaction" not in found
    assert hanging <= found["long-open-transaction"]
    assert sum(b.coordinator_log.count for b in audit.briefs if b.coordinator_log is not None) <= 12
    assert audit.exit_code() == 3
    limited = {error.file.partition("/")[0] for _, error in audit.unread() if error.reason == "limit"}
    assert limited
    assert limited <= {f"{TOPIC}-{number}" for number in range(3)}


def test_open_transactions_known_everywhere_are_the_oldest_of_each_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so many of a cluster."""
    monkeypatch.setattr(cluster_context, "MOST_OPEN", 1)
    monkeypatch.setattr(cluster_context, "MOST_OPEN_IN_ALL", 2)
    audit = opened(corpora.unpack("hanging-36"), as_of=corpora.manifest("hanging-36")["copied_at"])
    assert {len(b.open_here) for b in audit.briefs} == {0, 1}
    (cluster,) = audit.clusters.values()
    assert sum(len(places) for places in cluster.open_here.values()) == 2
