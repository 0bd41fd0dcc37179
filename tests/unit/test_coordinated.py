"""Who decided a transaction, as the records of its coordinator tell. Epochs as Kafka raises them: by each end under
transaction.version 2, and once more where the coordinator fences the producer first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from auditor.facts.coordinator_history import build_history, transactions
from auditor.facts.coordinator_log import StateRecord, pack
from auditor.pipeline import derived_tables
from auditor.pipeline.derived_tables import BRANCH, SHARES_AT_REST, Share, begun, decided_by, summed
from auditor.rules.partition_transactions import decisions
from auditor.rules.seen.cluster_view import Cluster

START, TIMEOUT = 1_000_000, 60_000
Step = tuple[str, int, int, int]  # state, epoch, ms since the beginning, transaction.version of the client


def entries(
    steps: Sequence[Step], *, timeouts: dict[int, int] | None = None, producer_id: int = 7
) -> list[StateRecord]:
    """Records of one id; ``timeouts``: of some of them, by number."""
    out = []
    for number, (state, epoch, after, version) in enumerate(steps):
        going = state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        out.append(
            StateRecord(
                3, number, START + after + 2, 0, "payments-7", state, producer_id, epoch,
                (timeouts or {}).get(number, TIMEOUT),
                frozenset({"a-0", "b-1"}) if going else frozenset(), not going, START + after,
                -1 if state == "Empty" else START, version, "f", 0, 0,
            )
        )  # fmt: skip
    return out


CASES: dict[str, tuple[list[Step], dict[int, int], str | None]] = {
    "committed": ([("Ongoing", 4, 0, 0), ("PrepareCommit", 4, 90, 0), ("CompleteCommit", 4, 95, 0)], {}, "client"),
    "aborted by the client": ([("Ongoing", 4, 0, 0), ("PrepareAbort", 4, 90, 0)], {}, "client"),
    "aborted by a client of version 2": ([("Ongoing", 4, 0, 2), ("PrepareAbort", 5, 90, 2)], {}, "client"),
    "timed out": ([("Ongoing", 4, 0, 0), ("PrepareAbort", 5, TIMEOUT + 900, 0)], {}, "timeout"),
    "timed out under version 2": ([("Ongoing", 4, 0, 2), ("PrepareAbort", 6, TIMEOUT + 900, 2)], {}, "timeout"),
    "fenced": ([("Ongoing", 4, 0, 0), ("PrepareAbort", 5, 9_000, 0), ("CompleteAbort", 5, 9_005, 0),
                ("Empty", 6, 9_100, 0)], {}, "fenced"),
    "fenced by a tool": ([("Ongoing", 4, 0, 0), ("PrepareAbort", 5, 9_000, 0), ("CompleteAbort", 5, 9_005, 0),
                          ("Empty", 6, 9_100, 0)], {3: 1}, "operator"),
    "open": ([("Ongoing", 4, 0, 0)], {}, None),
    "cleaned but for the end": ([("CompleteAbort", 4, 95, 0)], {}, None),
    "cleaned but for the decision": ([("PrepareAbort", 5, 95, 0), ("CompleteAbort", 5, 99, 0)], {}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_who_decided_is_told_as_far_as_the_log_shows(case: str) -> None:
    steps, timeouts, who = CASES[case]
    log = pack(entries(steps, timeouts=timeouts))
    (columns,) = log.all_pieces()
    mine = transactions(columns)
    assert decided_by(columns, mine, begun(columns, mine)) == [who]
    decided, aborted, forced = (int(counted[0]) for counted in decisions(log))
    has_decision = any(state.startswith("Prepare") for state, *_ in steps)
    assert (decided, aborted) == (has_decision, (has_decision and who is not None and case != "committed") or
                                  case == "cleaned but for the decision")  # fmt: skip
    assert forced == (who in ("timeout", "fenced", "operator"))


def test_shares_of_several_logs_are_one_row() -> None:
    """Two partitions hold 3 and 4 records; the third log is the coordinators' own, which says where it is."""
    steps = [("Ongoing", 4, 0, 0), ("PrepareCommit", 4, 90, 0), ("CompleteCommit", 4, 95, 0)]
    cluster = Cluster(as_of=START, newest_time=START, coordinator=build_history(50, entries(steps)))
    branches = [(7, 0, 1, 1, 3, 300), (7, 0, 1, 2, 4, 400), (8, 0, 1, 9, 9, 900)]
    shares = [Share(None, np.array([row], BRANCH), {(7, 0): [f"g{n}"]}) for n, row in enumerate(branches[:2])]
    shares += [Share(None, np.array(branches[2:], BRANCH), {}), Share(("c", 1, "d"), np.empty(0, BRANCH), {})]
    (rows,) = derived_tables.coordinated_rows(
        cluster, 3, [SHARES_AT_REST.pack(shares[:3]), SHARES_AT_REST.pack(shares[3:])]
    )
    (row,) = rows.to_pylist()
    names = ("cluster_id", "log_dir", "topic", "partition", "partitions_seen", "batches", "records", "bytes", "groups")
    assert [row[name] for name in names] == ["c", "d", "__transaction_state", 3, 2, 3, 7, 700, ["g0", "g1"]]
    assert (row["duration_least_ms"], row["duration_ms"], row["duration_most_ms"]) == (95, 97, 97)
    assert row["partitions"] == ["a-0", "b-1"]
    assert row["transaction_key"] == "7:0"


def test_without_the_log_of_coordinators_there_is_no_row() -> None:
    cluster = Cluster(as_of=0, newest_time=0)
    assert list(derived_tables.coordinated_rows(cluster, 3, [])) == []


def test_sums_are_by_producer_and_first_record() -> None:
    rows = [(p, b, 1, 1, n, 10 * n) for n, (p, b) in enumerate(itertools.product((2, 1, 2), (5, 4)))]
    found = summed(np.array(rows, BRANCH))
    wanted: dict[tuple[int, int], list[int]] = {}
    for producer, began, *values in rows:
        at = wanted.setdefault((producer, began), [0] * 4)
        wanted[producer, began] = [a + b for a, b in zip(at, values, strict=True)]
    assert [tuple(row) for row in found.tolist()] == [(*key, *wanted[key]) for key in sorted(wanted)]
