"""Stretches in which every producer goes on leave what their batches leave one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from auditor.connectors.codec.batch import rows_of
from auditor.connectors.codec.snapshot import ProducerEntries
from auditor.facts.copy_facts import CopyFacts
from auditor.facts.events import Kind
from auditor.model import producers as model
from auditor.replay import audit_replay
from auditor.replay.copy_reader import CopyReader
from auditor.replay.plain_stretch import MIN_PRODUCERS, TAIL, Stretch, summed_up, take_stretch
from auditor.replay.snapshot_chain import Stored
from auditor.replay.state import Replay
from tests.made import APPEND_TIME, batches, data
from tests.unit.batch_histories import LAST, History, facts_of, history
from tests.whole.test_split import same

NOW = 1_700_000_000_000
BORN_ALWAYS = ["zero", "below", "later"]  # others mean nothing at first
LATER_ALWAYS = ["zero_epoch", "epoch_window_count", "old_run", "idle_count"]


class Stretches:
    """Replays chunks as stretches where that goes, and keeps the state at the end."""

    def __init__(self, summed: bool) -> None:
        self.summed = summed
        self.counts: Counter[str] = Counter()
        self.states: list[Any] = []

    def __call__(self, reader: CopyReader, rows: np.ndarray, /) -> None:
        """All of them, in their order."""
        stretch = summed_up(rows) if self.summed else None
        if stretch is None:
            self.counts["no stretch"] += 1
            reader.audit.take_each(rows)
        elif reader.audit.take_stretch(stretch):
            self.counts["taken"] += 1
        else:
            self.counts["refused"] += 1
            reader.audit.take_each(rows)
        self.states.append(state(reader.audit.replay))


def state(replay: Replay) -> Any:
    """All that a replay knows, but for memory that is not in use."""
    used, p, progress = int(replay.producers.meta[0]), replay.producers, replay.progress
    kept = ("producer_id", "epoch", "coordinator_epoch", "last_timestamp", "txn_first_offset", "cached", "newest")
    rings = [
        [(column[row, at], p.timestamp[row]) for column in (p.last_sequence, p.last_offset, p.offset_delta)]
        for row in range(used)
        for at in (model.cached_slot(p, row, age) for age in range(p.cached[row]))
    ]
    return (
        progress.tolist(), [getattr(p, name)[:used].tolist() for name in kept], rings, replay.live[:used].tolist(),
        replay.runs[: progress["runs"]].tolist(), replay.below[: progress["below"]].tolist(),
        replay.born[BORN_ALWAYS][:used].tolist(), replay.later[LATER_ALWAYS][: progress["later"]].tolist(),
    )  # fmt: skip


def compared(made: History, chunk: int = 7, *, checkpoint: bool = True) -> tuple[CopyFacts, Counter[str]]:
    """The facts of a history, which are the same both ways after each chunk, and how many stretches there were."""
    each, summed = Stretches(False), Stretches(True)
    facts = facts_of(made, replay=each, chunk=chunk, checkpoint=checkpoint)
    assert same(facts_of(made, replay=summed, chunk=chunk, checkpoint=checkpoint), facts)
    assert summed.states == each.states
    return facts, summed.counts


@pytest.mark.parametrize("seed", range(40))
def test_stretches_leave_what_their_batches_leave(seed: int) -> None:
    made = history(seed, 500, 1 + seed % 4, (0, 0.002, 0.02)[seed % 3], transactional=0.2 * (seed % 2))
    compared(made, 1 + seed % 11, checkpoint=seed % 3 == 0)


def test_enough_stretches_are_taken_and_refused_to_mean_something() -> None:
    counts = Counter[str]()
    for seed in range(30):
        counts += compared(history(seed, 300, 2, 0.01, transactional=0), 3, checkpoint=False)[1]
    assert min(counts["taken"], counts["refused"], counts["no stretch"]) > 100


def plain(count: int = 40, **given: Any) -> list[dict[str, Any]]:
    """Batches of one producer, of three records each, a second apart."""
    return [
        data(3 * n, 3 * n, 3, max_timestamp=NOW + 1000 * n, position=100 * n, **given) for n in range(count)
    ]  # fmt: skip


def test_a_log_of_one_producer_is_stretches_but_for_its_first_chunk() -> None:
    facts, counts = compared(History(plain(200)), 10)
    assert counts == {"no stretch": 1, "taken": 19}
    (producer,) = facts.producers
    assert (producer["batches"], producer["records"], producer["last_sequence"]) == (200, 600, 599)
    assert (facts.sums["batches"], facts.sums["records"], facts.sums["data_offsets"]) == (200, 600, 600)
    assert (facts.log_end, facts.sums["cached_batches"], len(facts.events)) == (600, TAIL, 0)


@pytest.mark.parametrize("base", [1 << 62, (1 << 62) - 300, 1 << 61])
def test_offsets_that_no_broker_reaches(base: int) -> None:
    """Where no snapshot waits, none is ever reached."""
    rows = [
        row | {"base_offset": base + row["base_offset"], "last_offset": base + row["last_offset"]} for row in plain(200)
    ]
    facts, _ = compared(History(rows), 10)
    assert (facts.sums["batches"], facts.log_end) == (200, base + 600)


ODD = {
    "another leader epoch": {"partition_leader_epoch": 1}, "an epoch before": {"producer_epoch": -1},
    "a gap": {"base_sequence": 77}, "sequence 0": {"base_sequence": 0},
    "the broker's time": {"attributes": APPEND_TIME},
    "magic 1": {"magic": 1}, "no time": {"max_timestamp": -1}, "a flaw": {"flaws": 1},
    "another offset": {"base_offset": 76}, "transactional": {"attributes": 0x10},
    "too late": {"max_timestamp": 1 << 60},
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_batch_makes_it_no_stretch(odd: str) -> None:
    rows = plain()
    rows[25] |= ODD[odd]
    assert summed_up(rows_of(batches(*rows[20:25]))) is not None
    assert summed_up(rows_of(batches(*rows[20:30]))) is None
    compared(History(rows), 10)


def test_sequences_that_begin_anew_are_replayed_one_by_one() -> None:
    """2147483647 is followed by 0 (KIP-98), within a batch and between two."""
    for first in (LAST - 29, LAST - 28):
        rows = [data(3 * n, (first + 3 * n) % (LAST + 1), 3, max_timestamp=NOW, position=100 * n) for n in range(40)]
        facts, counts = compared(History(rows), 5)
        assert counts["taken"] > 3
        assert [int(e["kind"]) for e in facts.events] == [int(facts.events["kind"][0])]  # its first sequence is not 0


def test_more_producers_than_a_stretch_holds() -> None:
    count = MIN_PRODUCERS + 1
    rows = [
        data(n, n // count, pid=n % count, max_timestamp=NOW, position=100 * n) for n in range(10 * count)
    ]  # fmt: skip
    assert summed_up(rows_of(batches(*rows[count : 2 * count]))) is None
    assert summed_up(rows_of(batches(*rows[count : 2 * count - 1]))) is not None
    compared(History(rows), count)


@pytest.mark.parametrize(("idle_ms", "taken"), [(69_120_000, True), (69_120_001, False), (86_400_000, False)])
def test_idle_times_near_the_expiration_are_looked_at(idle_ms: int, taken: bool) -> None:
    """A day's expiration; four fifths of it count."""
    rows = plain()
    for row in rows[25:]:
        row["max_timestamp"] += idle_ms - 1000
    facts, counts = compared(History(rows), 10)
    assert (counts["refused"] == 0) is taken
    assert facts.producers["max_idle_ms"].tolist() == [idle_ms]


DAY_MS = 86_400_000


def of_an_older_epoch() -> list[dict[str, Any]]:
    """A producer's epoch 1, and behind it batches of epoch 0, whose sequences follow from the second five on."""
    rows = plain()
    rows[10] |= {"base_sequence": 0, "producer_epoch": 1}
    for n, row in enumerate(rows[15:]):
        row["base_sequence"] = 3 + 3 * n
    return rows


def behind_the_broker() -> list[dict[str, Any]]:
    """Producer times that are more than a day before what a broker stamped."""
    rows = plain()
    rows[5] |= {"attributes": APPEND_TIME, "max_timestamp": NOW + 3 * DAY_MS}
    return rows


def beyond_the_segment() -> list[dict[str, Any]]:
    """The second of two segments (:func:`facts_of`) begins at offset 30, which the first one is beyond."""
    rows = plain()
    rows[20] |= {"base_offset": 30, "last_offset": 32}
    return rows


REFUSED = {
    of_an_older_epoch: Kind.EPOCH_REGRESSION, behind_the_broker: Kind.TIMESTAMP_BEHIND,
    beyond_the_segment: Kind.OUTSIDE_SEGMENT,
}  # fmt: skip


@pytest.mark.parametrize("made", REFUSED)
def test_stretches_that_are_odd_where_they_stand_are_refused(made: Callable[[], list[dict[str, Any]]]) -> None:
    facts, counts = compared(History(made()), 5, checkpoint=False)
    assert (facts.events["kind"] == REFUSED[made]).sum() >= 9
    assert counts["refused"] >= 1


def test_stretches_that_the_checkpoint_of_leader_epochs_contradicts_are_refused() -> None:
    """It has epoch 1 from offset 1500 on."""
    for chunk in (7, 10):
        facts, counts = compared(History(plain(600)), chunk)
        assert (facts.events["kind"] == Kind.LEADER_EPOCH_CHECKPOINT).sum() == 100
        assert counts["refused"] >= 10


def snapshot(offset: int) -> Stored:
    """What a broker writes at a multiple of 3 in a log of :func:`plain`."""
    values = (1, 0, offset - 1, offset - 1, 2, NOW + 1000 * (offset // 3 - 1), -1, -1)
    columns = dict(zip(ENTRY, values, strict=True))
    entries = ProducerEntries(*(np.array([columns[n]], ENTRY[n]) for n in ProducerEntries._fields))
    return Stored(f"{offset:020d}.snapshot", offset, entries, True)


ENTRY = {
    "producer_id": "i8", "producer_epoch": "i2", "last_sequence": "i4", "last_offset": "i8", "offset_delta": "i4",
    "last_timestamp": "i8", "coordinator_epoch": "i4", "current_txn_first_offset": "i8",
}  # fmt: skip


def test_a_snapshot_before_a_stretch_is_compared_and_dated_one_within_it_asks_for_each_batch() -> None:
    """A broker writes one where a segment begins."""
    made = History(plain(200), [snapshot(3 * 50), snapshot(3 * 75)])
    facts, counts = compared(made, 10, checkpoint=False)
    assert counts == {"no stretch": 1, "refused": 1, "taken": 18}
    assert [(link.offset, link.comparable, link.differences) for link in facts.snapshots] == [
        (150, True, []), (225, True, []),
    ]  # fmt: skip
    assert [(link.next_time, link.time) for link in facts.snapshots] == [
        (NOW + 50_000, -1), (NOW + 75_000, -1),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_the_replay_itself_takes_stretches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = history(seed, 400, 2, 0.01, transactional=0)
    each = facts_of(made, replay=lambda reader, rows: reader.audit.take_each(rows), chunk=5)
    monkeypatch.setattr(audit_replay, "ENOUGH", 1)
    assert same(facts_of(made, chunk=5), each)


@pytest.mark.parametrize(("enough", "taken"), [(10, 19), (11, 0)])
def test_few_batches_are_replayed_one_by_one(enough: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    took: list[bool] = []

    def take(replay: Replay, stretch: Stretch) -> bool:
        took.append(bool(take_stretch(replay, stretch)))
        return took[-1]

    monkeypatch.setattr(audit_replay, "ENOUGH", enough)
    monkeypatch.setattr(audit_replay, "take_stretch", take)
    assert facts_of(History(plain(200)), chunk=10).sums["batches"] == 200
    assert took == [True] * taken


def test_no_rows_are_no_stretch() -> None:
    assert summed_up(rows_of(batches())) is None
