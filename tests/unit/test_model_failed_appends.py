"""The account of an id against the reference coordinator: whatever it writes, with appends that fail, may follow.

Random requests to the coordinator of the conformance cases, whose log answers at random as Kafka's does. Each record
that came into the log, acknowledged or not, is given to the account, and so is what the coordinator has in memory.
"""

from __future__ import annotations

import random

from auditor.model.transaction_states import PREPARED, IdAccount, TransactionState
from tests.proof.failing_coordinator import Requests
from tests.seeded_tests import seeded


@seeded(120)
def test_what_a_coordinator_writes_may_follow(seed: int) -> None:
    requests = Requests(random.Random(seed))
    for _ in range(150):
        requests.any_one()
    (first, epoch, _), *log = requests.store.log
    account = IdAccount(first, epoch, known=False)
    told = [(number, account.take(value, epoch)) for number, (value, epoch, _) in enumerate(log, 1)]
    assert [(number, judged.problems) for number, judged in told if judged.problems] == []
    for number, judged in told:  # what the account says has failed has, but for a fence, which nobody is told of
        before = requests.store.log[number - judged.failed : number]
        assert not any(acknowledged for _, _, acknowledged in before)


def test_there_are_failures_of_every_kind() -> None:
    """What the histories above bring up."""
    seen = set()
    for seed in range(40):
        requests = Requests(random.Random(seed))
        for _ in range(150):
            requests.any_one()
        seen |= {(value.state if value else None, value is not None and value.client_tv) for value, _, ok in
                 requests.store.log if not ok}  # fmt: skip
    states = {state for state, _ in seen}
    assert states == {None, *TransactionState} - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
    assert {(state, 2) for state in PREPARED} <= seen
