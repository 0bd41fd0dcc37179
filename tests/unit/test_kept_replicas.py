"""Facts on the driver: whatever the lists in which replicas are read, each log is whole, and in one task."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from auditor.facts.replica_facts import ReplicaFacts, log_of
from auditor.inline import FACTS_BYTES, FactsHere
from auditor.pipeline.runner import PackedFacts, Pair, Replicas, pack, pack_logs, pair_of, pairs_of


def replica(topic: str, partition: int, log_dir: str) -> Pair:
    return pair_of(ReplicaFacts("cluster", None, log_dir, topic, partition, join_key="cluster"))


def names_of(pairs: Iterable[Pair]) -> list[tuple[Any, ...]]:
    return [(*log_of(one), one.log_dir) for pair in pairs for one in pair]


@pytest.mark.parametrize("partitions", [1, 5, 70, 500])
@pytest.mark.parametrize("replicas", [1, 3])
def test_logs_are_whole_and_in_order(partitions: int, replicas: int) -> None:
    pairs = [replica("t", p, f"broker-{b}") for p in range(partitions) for b in range(replicas)]
    packed = list(pack_logs(pairs))
    assert names_of(pair for some in packed for pair in pairs_of(some)) == names_of(pairs)
    logs = [{log_of(facts) for _, facts in pairs_of(some)} for some in packed]
    assert sum(map(len, logs)) == partitions
    assert max(map(len, logs)) < 100


def test_packed_facts_are_in_the_order_of_their_logs_and_directories() -> None:
    pairs = [replica("t", p, f"broker-{b}") for p in range(3) for b in range(3)]
    assert names_of(pairs_of(pack(reversed(pairs)))) == names_of(pairs)


@pytest.mark.parametrize("processes", [1, 2])
def test_tasks_over_facts_have_similar_sizes_and_the_order_of_the_facts(processes: int) -> None:
    packed = [PackedFacts(b"", os.urandom(FACTS_BYTES // 2)) for _ in range(40)]
    shared = FactsHere(lambda: packed).shared(processes)
    assert [facts for some in shared for facts in some] == [some.facts for some in packed]
    assert len(shared) == 4 * processes
    assert {len(some) for some in shared} == {40 // (4 * processes)}


def test_little_is_one_task_and_what_is_large_has_its_own() -> None:
    small = [PackedFacts(b"", b"%d" % n) for n in range(100)]
    assert FactsHere(lambda: small).shared(2) == [[some.facts for some in small]]
    large = [PackedFacts(b"", os.urandom(10 * FACTS_BYTES)) for _ in range(8)]
    shared = FactsHere(lambda: [*small, *large, *small]).shared(2)
    assert [sum(len(facts) > FACTS_BYTES for facts in some) for some in shared] == [1] * 8
    assert FactsHere(list).shared(2) == []


def test_who_interrupts_the_reading_may_ask_again() -> None:
    """As somebody does in a notebook: what had been read before must not pass for all there is, nor nothing."""
    packed = [pack([replica("t", p, "broker-1")]) for p in range(100)]
    stops = [50, 0]

    def read() -> Iterator[PackedFacts]:
        stop = stops.pop(0)
        yield from packed[:stop] if stop else packed
        if stop:
            raise KeyboardInterrupt

    held = FactsHere(read)
    with pytest.raises(KeyboardInterrupt):
        Replicas(held).briefs()
    assert held.packed() == packed
    assert held.packed() == packed, "and is then known"
    assert stops == []
