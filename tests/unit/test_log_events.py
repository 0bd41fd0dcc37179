"""A log's events by kind: those of each replica and kind, and of a kind that does not occur none."""

from __future__ import annotations

import numpy as np

from auditor.facts.events import EventKind, blank_events, events_of
from tests.facts import judge, log_of
from tests.made import facts


def events(*kinds: EventKind) -> np.ndarray:
    rows = blank_events(len(kinds))
    rows["kind"] = kinds
    rows["segment"] = 0
    rows["base_offset"] = rows["last_offset"] = np.arange(len(kinds))
    return rows


def test_each_replica_has_events_of_its_own() -> None:
    kinds = list(EventKind)
    first, second = (
        facts(events=events(*kinds[::2])),
        facts(log_dir="broker-2", broker_id=2, events=events(*kinds[1::2])),
    )
    log = log_of([first, second, facts(log_dir="broker-3", broker_id=3)])
    for replica in log.replicas:
        for asked in (*((kind,) for kind in kinds), (kinds[0], kinds[1]), (kinds[3], kinds[2], kinds[5])):
            assert list(log.events(*asked, replica=replica)) == list(events_of(replica.events, *asked))
    assert [len(list(log.events(kind, replica=first))) for kind in kinds] == [(n + 1) % 2 for n in range(len(kinds))]
    assert list(log.events(*kinds)) == list(events_of(log.leader.events, *kinds))


def test_an_event_is_found_where_no_producer_and_no_transaction_is_known() -> None:
    found = judge([log_of([facts(events=events(EventKind.EPOCH_RESERVED))])], "epoch-near-exhaustion")
    assert [(f.severity, f.offset) for f in found] == [("error", 0)]
