"""Facts on the driver: whatever the order in which replicas are read, each log is whole, in order, and in one list."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from auditor.base.at_rest import SORTED_TOGETHER
from auditor.inline import LARGE, LIST_BYTES, KeptReplicas, lists
from auditor.pipeline.runner import KeptFacts


def kept(topic: str, partition: int, log_dir: str, size: int = 10) -> KeptFacts:
    facts = f"{topic}-{partition}@{log_dir}".encode().ljust(size)
    return KeptFacts("cluster", topic, partition, log_dir, b"", facts, b"")


@pytest.mark.parametrize("partitions", [1, 5, 70, SORTED_TOGETHER + 1])
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("processes", [1, 2])
def test_logs_are_whole_and_in_order(partitions: int, replicas: int, processes: int) -> None:
    rows = [kept("t", p, f"broker-{b}", 4200) for p in range(partitions) for b in range(replicas)]
    held = KeptReplicas(lambda: random.Random(1).sample(rows, len(rows)))
    expected = [("cluster", [row.facts for row in rows[at : at + replicas]]) for at in range(0, len(rows), replicas)]
    shared = lists(held, processes)
    assert [log for some in shared for log in some] == expected
    assert list(held.logs()) == expected
    assert held.rows() == rows
    assert 1 <= len(shared) <= 4 * processes
    if partitions > 1000:
        assert len(shared) == 4 * processes


def test_large_logs_are_alone_in_a_list() -> None:
    """Though they stand side by side among many small ones."""
    small = [kept("a", p, "broker-1") for p in range(200)] + [kept("z", p, "broker-1") for p in range(200)]
    large = [KeptFacts("cluster", "m", p, "broker-1", b"", os.urandom(max(LARGE, LIST_BYTES)), b"") for p in range(8)]
    shared = lists(KeptReplicas(lambda: [*small, *large]), 2)
    weights = [sum(len(facts[0]) >= LARGE for _, facts in some) for some in shared]
    assert sum(weights) == 8
    assert max(weights) == 1


def test_newer_facts_take_the_place_of_older_ones() -> None:
    rows = [kept("t", p, "broker-1") for p in range(100)]
    newer = rows[7]._replace(facts=b"newer")
    assert KeptReplicas(lambda: rows).replaced(KeptReplicas(lambda: [newer])).rows() == [*rows[:7], newer, *rows[8:]]


def test_who_interrupts_the_reading_may_ask_again() -> None:
    """As somebody does in a notebook: what had been read before must not pass for all there is, nor nothing."""
    rows = [kept("t", p, "broker-1") for p in range(100)]
    stops = [50, 0]

    def read() -> Iterator[KeptFacts]:
        stop = stops.pop()
        yield from rows[:stop] if stop else rows
        if stop:
            raise KeyboardInterrupt

    stops.reverse()
    held = KeptReplicas(read)
    with pytest.raises(KeyboardInterrupt):
        held.briefs()
    assert held.rows() == rows
    assert held.rows() == rows, "and is then known"
    assert stops == []


def test_resume_points_are_not_packed() -> None:
    """A watch asks for the rows once, and large ones are compressed where they were made."""
    row = kept("t", 0, "broker-1")._replace(resume_point=os.urandom(LARGE))
    (bunch,) = KeptReplicas(lambda: [row]).bunches()
    assert bunch.content == [row]
