"""No replica is fetched again that another finding's remedy fetches from, whichever findings come together."""

from __future__ import annotations

import itertools
from dataclasses import replace

from auditor.base.advice import Advice, Moves, Verdict
from auditor.base.errors import DamagedField
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib import repairs
from auditor.rules.resolution import resolve
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding, LogView
from tests.facts import log_of
from tests.made import facts


def log(*brokers: int) -> LogView:
    made = [facts(broker_id=broker, log_dir=f"broker-{broker}", folder="t-0") for broker in brokers]
    return log_of(made, Cluster(as_of=0, newest_time=0, has_metadata=True, in_sync={("t", 0): brokers}))


def of(view: LogView, broker: int) -> ReplicaFacts:
    return next(replica for replica in view.replicas if replica.broker_id == broker)


def about(advice: Advice, partition: int = 0) -> Finding:
    return Finding("offset-hole", "error", 1, "t", partition, message="", evidence={}, advice=advice)


def moves_of(found: list[Finding]) -> list[Moves]:
    return [f.advice.moves for f in found if f.advice is not None]


def moved_and_sources(found: list[Finding]) -> tuple[set[int], set[int]]:
    """Whose folder is moved away, and who is read from; the sentences have to say the same."""
    moves = moves_of(found)
    for f, m in zip(found, moves, strict=True):
        assert ("away and keep it" in f.remedy) == (m.away is not None)
        assert all(f"broker {b} " in f.remedy for b in m.sources)
    away = {m.away for m in moves if m.away is not None}
    return away, {b for m in moves for b in (*m.sources, *([] if m.leads is None else [m.leads]))}


def test_one_remedy_alone_stays_as_it_is() -> None:
    view = log(1, 2, 3)
    remedy = repairs.refetch(view, of(view, 1))
    assert moved_and_sources([about(remedy)]) == ({1}, {2, 3})
    assert [f.advice for f in resolve.without_conflicts([about(remedy)])] == [remedy]


def test_a_source_that_is_moved_itself_is_left_out() -> None:
    view = log(1, 2, 3)
    found = resolve.without_conflicts([about(repairs.refetch(view, of(view, broker))) for broker in (1, 2)])
    assert moved_and_sources(found) == ({1, 2}, {3})


def test_where_no_source_is_left_nothing_is_moved() -> None:
    view = log(1, 2, 3)
    found = resolve.without_conflicts([about(repairs.refetch(view, of(view, broker))) for broker in (1, 2, 3)])
    assert moved_and_sources(found) == (set(), set())
    assert all(f.remedy.startswith("Investigate first") and "has an intact replica of t-0" in f.remedy for f in found)


def test_nobody_is_made_leader_that_is_moved() -> None:
    view = log(1, 2, 3)
    again = repairs.refetch(view, of(view, 1), of(view, 2))
    leads = replace(again, steps=(*repairs.lead(view, of(view, 2)), *again.steps), moves=replace(again.moves, leads=2))
    alone = resolve.without_conflicts([about(leads)])
    assert [f.advice for f in alone] == [leads]
    for order in itertools.permutations([leads, repairs.refetch(view, of(view, 2), of(view, 3))]):
        moved, sources = moved_and_sources(resolve.without_conflicts([about(remedy) for remedy in order]))
        assert not moved & sources
        assert moved == {2}


def test_other_partitions_are_none_of_its_business() -> None:
    view = log(1, 2)
    given = [about(repairs.refetch(view, of(view, 1))), about(repairs.refetch(view, of(view, 2)), 1)]
    before = [f.remedy for f in given]
    assert [f.remedy for f in resolve.without_conflicts(given)] == before


def test_nothing_is_fetched_from_a_replica_that_is_damaged() -> None:
    view = log(1, 2, 3)
    wrong = DamagedField("base offset", 9, 8, sure=True).error("0.log", 0, 61, 8, 8)
    of(view, 2).errors.append(wrong)
    assert moved_and_sources([about(repairs.refetch(view, of(view, 1)))]) == ({1}, {3})
    assert repairs.keeps_out(view, of(view, 2)) is not None
    of(view, 3).errors.append(wrong)
    assert repairs.refetch(view, of(view, 1)).verdict is Verdict.INVESTIGATE_FIRST
