"""Which producers a replica that was built from remote storage may lack, and which it must have known."""

from __future__ import annotations

import pytest

from auditor.facts.replica_facts import Difference, SnapshotLink
from auditor.rules.producer_memory import built_without
from tests.made import facts


@pytest.mark.parametrize(
    ("local_start", "epochs", "snapshot", "last_offset", "lacks"),
    [
        (100, 2, 250, 80, True),  # it wrote before the replica was built
        (100, 2, 250, 240, False),  # the replica has appended that itself
        (100, 2, 50, 40, True),  # a snapshot of a leader that may have been built so
        (100, 1, 50, 40, False),  # the first leader was built from nothing
        (0, 2, 250, 80, False),  # nothing of it is remote
    ],
)
def test_a_replica_lacks_only_producers_from_before_it_was_built(
    local_start: int, epochs: int, snapshot: int, last_offset: int, lacks: bool
) -> None:
    replica = facts(segment_bases=[0, 100, 200], local_start=local_start, leader_epochs=[(0, 0), (1, 50)][:epochs])
    link = SnapshotLink("0.snapshot", snapshot, 0, 1, readable=True, comparable=True)
    assert built_without(replica, link, Difference(7, "missing", -1, 3, last_offset)) == lacks
