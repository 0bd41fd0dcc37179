"""What a log has none of costs its judgement nothing, and such a short way says what the long one would: a log without
events, transactions, producers or index entries is judged as one with a row of each that means nothing."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from auditor.facts.events import blank_events
from auditor.facts.replica_facts import ABORTED, ReplicaFacts, log_of
from auditor.pipeline.judge import judge_log
from auditor.replay.reading.chunks import logs_of
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster
from tests import corpora, made
from tests.facts import opened


def blank_entry() -> np.ndarray:
    row = np.empty(1, ABORTED)
    for name in ABORTED.names or ():
        row[name] = -1
    return row


# Of no kind; neither data nor a marker; of a producer without a batch; below every log.
BLANK = {
    "events": blank_events(1),
    "transactions": made.transactions({}),
    "producers": made.producers({"producer_id": 1 << 50}),
    "aborted": blank_entry(),
}
# Each of them, and all: what is left has to be judged.
WITHOUT = [*((table,) for table in BLANK), tuple(BLANK)]


def judged(facts: Iterable[bytes], cluster: Cluster, without: tuple[str, ...], *, blank: bool) -> list[Any]:
    """All rows about a log whose replicas are without these tables, or have a row in each that means nothing."""
    replicas: list[ReplicaFacts] = [pickle.loads(one) for one in facts]
    for replica in replicas:
        for table in without:
            setattr(replica, table, BLANK[table] if blank else BLANK[table][:0])
    rule_ids = tuple(each.id for each in registry.kinds().values() if not each.what_if)
    return [json.loads(json.dumps(row)) for row in judge_log(replicas, cluster, rule_ids)]


@pytest.mark.parametrize("name", ["altered-41", "hanging-36", "tiered-43"])
def test_what_is_not_there_is_judged_like_what_means_nothing(name: str) -> None:
    audit = opened(corpora.unpack(name))
    for replicas in logs_of(some.facts for some in audit.replicas.held.packed()):
        packed, cluster = [pickle.dumps(one) for one in replicas], audit.clusters[replicas[0].join_key]
        for without in WITHOUT:
            shortly, at_length = (judged(packed, cluster, without, blank=blank) for blank in (False, True))
            assert shortly == at_length, (log_of(replicas[0]), without)
