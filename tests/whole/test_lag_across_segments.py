"""Lag where open and aborted transactions cross the ends of segments."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from auditor.pipeline import lag_table
from auditor.pipeline.lag_table import stable_end
from auditor.replay.reading.lag_counts import CLASSES, MARKER, SEEN, Counts, Outcomes, count
from auditor.replay.task import ReplicaTask
from tests import corpora, segments
from tests.conftest import NIGHTLY
from tests.facts import logs_of, opened

CORPUS = "lag-rolls-43"
NOBODY, CROSSING = -1, 9  # producer ids: of plain data, and of the transaction that crosses the ends of segments
OPEN, COMMIT, ABORT = "open", "commit", "abort"


class Step(NamedTuple):
    """One batch of a history, or the end of a segment: ``kind`` is data, end or roll."""

    kind: str
    producer: int = NOBODY
    records: int = 0
    outcome: str = OPEN


class Kept(NamedTuple):
    """A record, or a marker, of the log that a history makes; ``transaction`` -1: none."""

    offset: int
    transaction: int
    marker: bool


STEP = st.one_of(
    st.builds(Step, st.just("data"), st.sampled_from((NOBODY, 7, 8)), st.integers(1, 4)),
    st.builds(Step, st.just("end"), st.sampled_from((7, 8)), st.just(0), st.sampled_from((COMMIT, ABORT))),
    st.just(Step("roll")),
)
SOME = st.lists(STEP, max_size=6)


@st.composite
def histories(draw: st.DrawFn, spans: int) -> list[Step]:
    """Steps of two producers and of nobody around a transaction with data in so many segments."""
    steps = draw(SOME)
    for number in range(spans):
        steps += [Step("roll")] if number else []
        steps += [*draw(SOME), Step("data", CROSSING, draw(st.integers(1, 4))), *draw(SOME)]
    outcome = draw(st.sampled_from((OPEN, COMMIT, ABORT)))
    steps += [Step("end", CROSSING, 0, outcome)] if outcome != OPEN else []
    event(outcome)
    return [*steps, *draw(SOME), Step("data", NOBODY, 1)]


class Written:
    """A history as segment files of one partition, and what it holds, record by record."""

    def __init__(self, steps: list[Step]) -> None:
        self.files: dict[int, bytes] = {0: b""}
        self.kept: list[Kept] = []
        self.outcomes: dict[int, str] = {}  # by transaction
        self.end = 0
        begun: dict[int, int] = {}
        sequences: dict[int, int] = {}
        for step in steps:
            base = max(self.files)
            if step.kind == "roll" and self.files[base]:
                self.files[self.end] = b""
            elif step.kind == "data":
                number = begun.setdefault(step.producer, len(self.outcomes)) if step.producer != NOBODY else -1
                if number >= 0:
                    self.outcomes.setdefault(number, OPEN)
                self._data(base, step, number, sequences)
            elif step.kind == "end" and step.producer in begun:
                number = begun.pop(step.producer)
                self.outcomes[number] = step.outcome
                self._marker(base, step, number)

    def _data(self, base: int, step: Step, number: int, sequences: dict[int, int]) -> None:
        header = {}
        if number >= 0:
            sequence = sequences.get(step.producer, 0)
            sequences[step.producer] = sequence + step.records
            header = {"producer_id": step.producer, "epoch": 0, "sequence": sequence, "attributes": 0x10}
        self.files[base] += segments.simple(self.end, step.records, **header)
        self.kept += [Kept(self.end + k, number, False) for k in range(step.records)]
        self.end += step.records

    def _marker(self, base: int, step: Step, number: int) -> None:
        body = segments.record(0, struct.pack(">hh", 0, step.outcome == COMMIT), struct.pack(">hi", 0, 0))
        header = {"producer_id": step.producer, "epoch": 0, "attributes": 0x30}
        self.files[base] += segments.batch(body, 1, base_offset=self.end, **header)
        self.kept.append(Kept(self.end, number, True))
        self.end += 1

    @property
    def stable(self) -> int:
        """The last stable offset: where the first open transaction begins, by its definition."""
        still = (k.offset for k in self.kept if self.outcomes.get(k.transaction) == OPEN)
        return min(still, default=self.end)

    def ahead(self, offset: int) -> tuple[int, int]:
        """The records that a read_committed consumer gets from an offset on at present, and a read_uncommitted one."""
        data = [k for k in self.kept if not k.marker and k.offset >= offset]
        committed = [k for k in data if k.offset < self.stable and self.outcomes.get(k.transaction, COMMIT) == COMMIT]
        return len(committed), len(data)


@pytest.mark.parametrize("spans", range(1, 6))
@settings(max_examples=500 if NIGHTLY else 30)
@given(data=st.data())
def test_no_transaction_is_counted_twice(spans: int, data: st.DataObject) -> None:
    """From each offset alone, so that all segments behind may go by their sums: exact counts, and within bounds."""
    written = Written(data.draw(histories(spans)))
    with tempfile.TemporaryDirectory() as folder:
        for base, content in written.files.items():
            path = Path(folder) / "t-0" / f"{base:020}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        audit = opened(Path(folder))
        (task,), (log,) = audit.tasks, logs_of(audit)
        assert isinstance(task, ReplicaTask)
        facts, end = log.leader, log.readable_end
        stable = stable_end(facts, end)
        assert (stable, end) == (written.stable, written.end)
        for offset in range(end):
            counts = Counts([offset], Outcomes(facts.transactions, end), stable, end)
            assert count(counts, task, facts.scans) is None
            found = counts.ahead(offset)
            assert (np.zeros(CLASSES) <= found.least).all()
            assert (found.least <= found.most).all()
            assert found.most.sum() <= end - offset
            assert (found.least[SEEN], found.least[:MARKER].sum()) == written.ahead(offset)
            assert found.least.tolist() == found.most.tolist()


@pytest.mark.parametrize("kept", [0, 10])
def test_an_offset_that_its_segment_lost_counts_what_follows(kept: int, tmp_path: Path) -> None:
    """Of offsets 0 to 25 all, or 10 to 25, are lost."""
    (tmp_path / "t-0").mkdir()
    for base, content in ((0, segments.simple(0, kept) if kept else b""), (26, segments.simple(26, 9))):
        (tmp_path / "t-0" / f"{base:020}.log").write_bytes(content)
    audit = opened(tmp_path)
    (task,), (log,) = audit.tasks, logs_of(audit)
    assert isinstance(task, ReplicaTask)
    counts = Counts([23, 26], Outcomes(log.leader.transactions, 35), 35, 35)
    assert count(counts, task, log.leader.scans) is None
    assert [counts.ahead(offset).least[SEEN] for offset in (23, 26)] == [9, 9]


def test_lag_is_what_a_real_consumer_was_counted_to_get() -> None:
    rows = {(r["group_id"], r["topic"], r["partition"]): r for r in _rows()}
    counted = corpora.manifest(CORPUS)["lag"]
    assert len(counted) == len(rows)
    for case in counted:
        row = rows[case["group"], case["topic"], case["partition"]]
        assert row["undecided"] is None
        assert row["committed_offset"] == case["committed_offset"]
        assert row["committed_records"] == row["committed_most_records"] == case["committed_records"]
        assert row["uncommitted_records"] == row["uncommitted_most_records"] == case["uncommitted_records"]


@pytest.mark.parametrize("records", [-10_000, 10_000])
def test_counts_that_contradict_each_other_are_undecided(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many or too few records of an aborted transaction: no number is shown, and nothing is raised."""
    right = Outcomes.begun
    monkeypatch.setattr(Outcomes, "begun", lambda *given: (right(*given)[0], right(*given)[1] + records))
    rows = _rows()
    wrong = [row for row in rows if row["undecided"] == lag_table.CONTRADICTORY]
    assert wrong
    for row in rows:
        if row in wrong:
            assert [row[name] for name in ("offsets", *lag_table.LEFT)] == [None] * (1 + len(lag_table.LEFT))
        else:
            assert 0 <= row["committed_records"] <= row["committed_most_records"] <= row["offsets"]
            assert 0 <= row["uncommitted_records"] <= row["uncommitted_most_records"] <= row["offsets"]


def _rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = opened(corpora.unpack(CORPUS)).table("lag").to_pylist()
    return rows
