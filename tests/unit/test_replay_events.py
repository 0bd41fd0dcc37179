"""Events: their columns are those that their kind declares, and their table is never too small for a batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from auditor.facts.events import EVENT, FIELDS, PLACE, Event, EventKind, blank_events, events_of
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.producers import kernel as replaying
from auditor.replay.producers import state as st
from auditor.replay.producers.state import new_event
from auditor.replay.task import BATCH
from tests.conftest import NIGHTLY
from tests.unit.batch_histories import facts_of, history

TABLES = (EVENT, BATCH, st.PARAMS, st.PROGRESS, st.LIVE, st.BORN, st.MARKED, st.BELOW, st.QUEUE, st.RUN, st.TRANSACTION)


def replay() -> st.Replay:
    none = np.empty(0, np.int64)
    return st.new_replay(np.zeros(1, st.PARAMS), none, none)


def raise_all(of: st.Replay, batch: np.record) -> list[int]:
    """The rows of an event of every kind about a batch."""
    of.progress["first_event"] = of.progress["events"]
    return [int(new_event(of.log, np.int64(kind), batch, np.int64(0), np.int64(0))) for kind in EventKind]


def test_each_kind_names_its_columns_and_the_table_has_no_others() -> None:
    assert set(FIELDS) == set(EventKind)
    assert set(PLACE) | {name for names in FIELDS.values() for name in names} == set(EVENT.names or ())
    assert tuple(Event.__annotations__) == EVENT.names


def test_no_column_is_hidden_by_what_numpy_records_have_of_their_own() -> None:
    """Machine code would not mind, but kernels as plain Python would read the other thing."""
    assert [name for table in TABLES for name in table.names or () if hasattr(np.record, name)] == []


def test_the_replay_fills_in_the_columns_of_an_events_kind_and_no_others() -> None:
    events = np.concatenate([facts_of(history(seed)).events for seed in range(20)])
    for kind in np.unique(events["kind"]):
        others = set(EVENT.names or ()) - {*PLACE, *FIELDS[EventKind(kind)]}
        mine = events[events["kind"] == kind]
        assert {name for name in others if np.any(mine[name] != -1)} == set()


def test_an_event_has_the_columns_of_its_kind_alone() -> None:
    table = blank_events(2)
    table["kind"], table["stored_crc"], table["first_missing_offset"] = (
        [EventKind.CRC, EventKind.OFFSET_HOLE],
        [7, -1],
        [-1, 5],
    )
    crc, hole = events_of(table, EventKind.OFFSET_HOLE, EventKind.CRC)
    assert (crc["stored_crc"], hole["first_missing_offset"]) == (7, 5)
    assert "stored_crc" not in hole
    assert list(events_of(table, EventKind.NULL_KEY)) == []


def test_a_batch_never_has_more_events_than_there_are_kinds() -> None:
    of, batches = replay(), np.zeros(2, BATCH)
    first = raise_all(of, batches[0])
    assert first == list(range(st.EVENTS_OF_A_BATCH))
    assert raise_all(of, batches[1]) == [row + len(first) for row in first]
    of.progress["first_event"] = 0
    of.progress["events"] = len(first)
    rows = [
        int(new_event(of.log, np.int64(kind), batches[0], np.int64(0), np.int64(0))) for kind in reversed(EventKind)
    ]
    assert rows == first[::-1]  # raised twice by one batch, a kind has its row anew
    assert of.progress["events"] == len(first)


def exact(value: object) -> object:
    """What tells a value from any other; of an array its bytes, since its text leaves out most of a long one."""
    return (value.dtype, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


@pytest.fixture(scope="module")
def with_room() -> list[ReplicaFacts]:
    """Facts of histories whose events have all the room they need."""
    return [facts_of(history(seed)) for seed in range(10 if NIGHTLY else 5)]


@pytest.mark.parametrize("room", [st.EVENTS_OF_A_BATCH, st.EVENTS_OF_A_BATCH + 1, 100])
def test_a_table_with_room_for_one_batch_gives_the_same_facts(
    monkeypatch: pytest.MonkeyPatch, room: int, with_room: list[ReplicaFacts]
) -> None:
    monkeypatch.setattr(st, "EVENTS_AT_ONCE", room)
    for seed, facts in enumerate(with_room):
        again = facts_of(history(seed))
        for field in dataclasses.fields(facts):
            assert exact(getattr(again, field.name)) == exact(getattr(facts, field.name)), field.name


def test_the_replay_stops_before_a_batch_that_may_find_no_room() -> None:
    of, batches = replay(), np.zeros(1, BATCH)
    of.progress["events"] = len(of.log.events) - st.EVENTS_OF_A_BATCH + 1
    assert replaying.replay_batches(of, batches, 0, 1) == 0
    st.take_rows(of)
    assert replaying.replay_batches(st.ensure_room(of, 1), batches, 0, 1) == 1


def test_rows_taken_leave_blank_rows_behind() -> None:
    of = replay()
    raise_all(of, np.zeros(1, BATCH)[0])
    events, _ = st.take_rows(of)
    assert events["kind"].tolist() == list(EventKind)
    assert of.progress["events"] == 0
    assert of.log.events.tobytes() == blank_events(len(of.log.events)).tobytes()
