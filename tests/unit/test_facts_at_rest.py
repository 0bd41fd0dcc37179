"""Facts at rest are the facts, whatever is as by default, and replays with used tables leave what new ones leave."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from auditor.connectors.logdir.inventory import discover
from auditor.facts.events import EVENT, blank_events
from auditor.facts.replica_facts import ReplicaFacts, SegmentScan, at_rest
from auditor.pipeline import plan
from auditor.pipeline.cluster_context import brief
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import kept, read_task
from auditor.replay.producers import state
from tests import corpora
from tests.whole.test_split import same

CORPORA = ("lively-33", "hanging-36", "trimmed-28", "unknown-producer-41", "replicas-41")


def facts_of(name: str) -> Iterator[ReplicaFacts]:
    path = str(corpora.unpack(name))
    for task in plan.replica_tasks(discover([path]), {}, AuditOptions((path,), None)):
        yield from read_task(task)


@pytest.mark.parametrize("name", CORPORA)
def test_facts_and_briefs_are_the_same_after_their_rest(name: str) -> None:
    for facts in facts_of(name):
        assert same(pickle.loads(at_rest(facts)), facts)
        assert same(pickle.loads(at_rest(brief(facts))), brief(facts))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", 0), ("log_start", False), ("log_start", np.int64(0)), ("log_end", 0.0), ("indexed_segments", []),
        ("segments", ()), ("sums", None), ("ahead", ()), ("resume_point", b"x"), ("resume_point", ""),
        ("events", np.empty(0, np.int64)), ("events", []), ("events", blank_events(1)),
        ("producers", np.empty(0, EVENT)), ("digests", {}), ("coordinator_log", 0),
    ],
)  # fmt: skip
def test_what_only_looks_like_the_default_is_kept_as_it_is(name: str, value: Any) -> None:
    facts = ReplicaFacts(None, None, "d", "t", 0)
    setattr(facts, name, value)
    found = getattr(pickle.loads(at_rest(facts)), name)
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.tolist() == value.tolist()
    elif not isinstance(value, dict):
        assert found == value


def test_what_is_as_by_default_takes_no_room() -> None:
    assert (
        len(at_rest(ReplicaFacts(None, None, "d", "t", 0)))
        < len(pickle.dumps(ReplicaFacts(None, None, "d", "t", 0))) / 5
    )
    scan = SegmentScan(5, 7, True, 9, cut=-1, fatal=[])
    assert pickle.loads(at_rest(scan)) == scan
    empty, other = (pickle.loads(at_rest(ReplicaFacts(None, None, "d", "t", 0))) for _ in range(2))
    assert empty.segments is not other.segments


@pytest.mark.parametrize("name", CORPORA)
def test_nothing_of_a_replay_gets_into_the_next_one_with_its_tables(name: str) -> None:
    """Whatever a replay wrote into its tables: here they are full of nonsense."""
    new = []
    for facts in _each(name):
        new.append(kept(facts))
        state._spare.clear()
    used = []
    for facts in _each(name):
        used.append(kept(facts))
        for replay in state._spare:
            events = replay.log.events
            assert events.tobytes() == blank_events(len(events)).tobytes()
            for table in (*replay.producers, replay.log.progress, replay.log.track, *replay[2:]):
                table.view(np.uint8).fill(0x55)
            replay.producers.meta[:] = (0, 1, 1)
    assert used == new


def _each(name: str) -> Iterator[ReplicaFacts]:
    state._spare.clear()
    return facts_of(name)


def test_tables_that_have_become_large_are_not_kept() -> None:
    state._spare.clear()
    params, none = np.zeros(1, state.PARAMS), np.empty(0, np.int64)
    replay = state.new_replay(params, none, none)
    state.release_tables(state.ensure_room(replay, 1 << 16))
    assert not state._spare
    state.release_tables(replay)
    assert state.new_replay(params, none, none).live is replay.live
    assert state.new_replay(params, none, none).live is not replay.live
