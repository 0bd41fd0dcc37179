"""Which records of a former leader's tail its producers sent again: against sets of single sequence numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.facts.packed import PackedColumns
from auditor.rules.lib.lost_batches import READ, sent_again
from tests import corpora
from tests.facts import judge, logs_below

LAST = 2**31 - 1
Batch = tuple[int, int, int, int]  # producer id, epoch, base sequence, records


def columns(batches: list[Batch], base: int) -> dict[str, np.ndarray]:
    """Batches one behind the other from an offset on."""
    rows = []
    for producer_id, epoch, sequence, records in batches:
        rows.append((base, base + records - 1, producer_id, epoch, sequence, 1, 2, base))
        base += records
    return {name: np.array([row[k] for row in rows], np.int64) for k, name in enumerate(READ)}


def records(batch: Batch) -> list[tuple[int, int, int]]:
    producer_id, epoch, sequence, count = batch
    return [(producer_id, epoch, (sequence + k) % (LAST + 1)) for k in range(count)]


SEQUENCES = st.integers(0, 12) | st.integers(LAST - 6, LAST)
BATCHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), SEQUENCES, st.integers(1, 5)), max_size=8)


@given(BATCHES, st.lists(BATCHES, max_size=3), st.integers(0, 9))
def test_what_was_sent_again_is_told_record_by_record(ours: list[Batch], theirs: list[list[Batch]], base: int) -> None:
    found = sent_again(columns(ours, base), [columns(piece, base + 100 * k) for k, piece in enumerate(theirs)])
    there = {record for piece in theirs for batch in piece for record in records(batch)}
    mine = [record for batch in ours for record in records(batch)]
    left = [base + k for k, record in enumerate(mine) if record not in there]
    assert [o for first, last in found.missing for o in range(first, last + 1)] == left
    assert all(b[0] > a[1] + 1 for a, b in zip(found.missing, found.missing[1:], strict=False))
    assert found.whole.tolist() == [set(records(batch)) <= there for batch in ours]
    assert (found.first >= 0) == (len(left) < len(mine))


@pytest.mark.parametrize(
    ("name", "value"),
    [("producer_id", -1), ("base_sequence", -1), ("magic", 1), ("crc_ok", 0)],
    ids=["no producer id", "no sequence", "old format", "damaged"],
)
@pytest.mark.parametrize("side", [0, 1])
def test_batches_without_a_sequence_prove_nothing(name: str, value: int, side: int) -> None:
    both = [columns([(7, 0, 4, 3)], 10), columns([(7, 0, 4, 3)], 50)]
    assert sent_again(both[0], both[1:]).missing == []
    both[side][name][:] = value
    assert sent_again(both[0], both[1:]).missing == [(10, 12)]


def test_the_same_bytes_without_a_producer_id_were_sent_again() -> None:
    """A client without numbers repeats its batch as it is; other bytes, or a damaged batch, are another one."""
    ours, theirs = columns([(-1, -1, -1, 3), (-1, -1, -1, 2)], 10), columns([(-1, -1, -1, 3), (-1, -1, -1, 2)], 50)
    assert sent_again(ours, [theirs]).missing == [(10, 14)]
    theirs["crc"] = ours["crc"]
    found = sent_again(ours, [theirs])
    assert (found.missing, found.first, found.whole.tolist()) == ([], 50, [True, True])
    theirs["crc_ok"][0] = 0
    assert sent_again(ours, [theirs]).missing == [(10, 12)]


def test_a_number_that_comes_again_behind_all_numbers_is_another_record() -> None:
    ours, theirs = columns([(7, 0, 4, 3)], 10), columns([(7, 0, 4, 3)], 10 + LAST + 1)
    assert sent_again(ours, [theirs]).missing == [(10, 12)]


def of_corpus(change: Any = None) -> dict[tuple[str | None, int | None], Any]:
    """The divergences of a cluster whose killed leader's last batch was sent again; ``change``: of its logs."""
    logs = logs_below(corpora.unpack("retried-elsewhere-44"))
    for log in logs:
        if change is not None:
            change(log)
    found = judge(logs, "replica-divergence", "unclean-election")
    return {(f.topic, f.partition): f for f in found if f.kind == "replica-divergence"}


def test_a_real_batch_that_was_sent_again_is_not_lost() -> None:
    """The manifest: in-1@1285 of broker 2 was never acknowledged, and is at 1362 of broker 1."""
    found = of_corpus()
    assert {place: f.severity for place, f in found.items()} == {("in", 1): "info", ("__transaction_state", 1): "info"}
    assert found["in", 1].evidence["lost"]["sent_again_from"] == 1362
    assert all("e-send" not in f.remedy for f in found.values())


def test_without_a_clean_election_a_coordinators_record_may_have_been_committed() -> None:
    """A batch that was sent again is there, whoever was elected; what a coordinator wrote may have been answered."""

    def unclean(log: Any) -> None:
        log.cluster.elections = {}

    found = of_corpus(unclean)
    assert found["in", 1].severity == "info"
    assert found["__transaction_state", 1].severity == "critical"


def test_group_coordinators_that_answer_early_have_promised_their_records() -> None:
    """Below 4.0 offsets.commit.required.acks may be 1. The log of the other coordinator stands for a group's."""
    found = {}
    for acks in (None, "-1", "1"):
        logs = logs_below(corpora.unpack("retried-elsewhere-44"))
        (log,) = (log for log in logs if log.name == "__transaction_state-1")
        log.topic = "__consumer_offsets"
        log.cluster.elections["__consumer_offsets", 1] = log.cluster.elections["__transaction_state", 1]
        log.cluster.broker_configs = {"": {"offsets.commit.required.acks": acks}} if acks else {}
        found[acks] = [f.severity for f in judge([log], "replica-divergence")]
    assert found == {None: ["info"], "-1": ["info"], "1": ["warning"]}


@pytest.mark.parametrize("topic", ["in", "__transaction_state"])
def test_what_was_not_sent_again_is_named(topic: str) -> None:
    """The same tail with one more batch, whose numbers the leader does not have: that one alone is to be produced."""
    (log,) = (log for log in logs_below(corpora.unpack("retried-elsewhere-44")) if log.name == f"{topic}-1")
    one = next(c for c in log.replicas if c is not log.leader)
    more = {name: column.copy() for name, column in one.digests.items()}
    last = int(more["last_offset"][-1])
    for name, column in more.items():
        more[name] = np.append(column, column[-1:])
    more["base_offset"][-1], more["last_offset"][-1] = last + 1, last + 2
    more["base_sequence"][-1] = 5_000_000 if topic == "in" else -1
    one.digests, one.log_end = PackedColumns(one.digests.dtypes), last + 3
    one.digests.add(np.array([*more.values()], np.int64))
    (f,) = judge([log], "replica-divergence")
    if topic == "in":
        assert f.severity == "warning"
        assert f.evidence["lost"]["not_sent_again"] == [[last + 1, last + 2]]
        assert f"Re-send the missing ones of 2 records at offsets {last + 1} to {last + 2}" in f.remedy
        assert "1 of 2 batches were re-sent" in f.message
    else:
        assert f.severity == "info"
