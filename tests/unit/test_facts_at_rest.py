"""Facts at rest are the facts, whatever is as by default, and replays with used tables leave what new ones leave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from auditor.connectors.logdir.inventory import discover
from auditor.facts.events import blank_events
from auditor.facts.replica_facts import ReplicaFacts
from auditor.pipeline import plan
from auditor.pipeline.cluster_context import brief
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import BRIEFS_AT_REST, ListBriefs, briefs_of, pack, pair_of, read_task
from auditor.replay.producers import state
from auditor.replay.reading.chunks import FACTS_AT_REST
from tests import corpora
from tests.whole.test_split import same

CORPORA = ("lively-33", "hanging-36", "trimmed-28", "unknown-producer-41", "replicas-41")


def facts_of(name: str) -> Iterator[ReplicaFacts]:
    path = str(corpora.unpack(name))
    for task in plan.replica_tasks(discover([path]), {}, AuditOptions((path,), None)):
        yield from read_task(task)


@pytest.mark.parametrize("name", CORPORA)
def test_facts_and_briefs_are_the_same_after_their_rest(name: str) -> None:
    replicas = list(facts_of(name))
    briefs = list(map(brief, replicas))
    assert same(FACTS_AT_REST.unpack(FACTS_AT_REST.pack(replicas)), replicas)
    assert same(briefs_of(BRIEFS_AT_REST.pack([ListBriefs(briefs, ["a"])])), ListBriefs(briefs, ["a"]))


@pytest.mark.parametrize("name", CORPORA)
def test_nothing_of_a_replay_gets_into_the_next_one_with_its_tables(name: str) -> None:
    """Whatever a replay wrote into its tables: here they are full of nonsense."""
    new = []
    for facts in _each(name):
        new.append(pack([pair_of(facts)]))
        state._spare.clear()
    used = []
    for facts in _each(name):
        used.append(pack([pair_of(facts)]))
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
