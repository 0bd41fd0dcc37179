"""Advice on an open transaction where the markers before it were not read, or its id has a transaction open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from auditor.base.advice import Advice, Verdict, text
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.rules.seen.cluster_view import Cluster, LeaderBounds
from auditor.rules.seen.view import LogView
from auditor.rules.transactions import blocking
from auditor.rules.transactions.making import open_transactions
from tests import made

PID, BEGAN, HERE, ELSEWHERE = 7, 1_000_000, frozenset({"t-0"}), frozenset({"u-0"})
COORDINATOR = ("__transaction_state", 0)
COMMIT_BY_HAND = "transactionResult true"
UNTIL_IT_ENDS = "Do not abort: wait until the open transaction of"


@dataclass(frozen=True)
class Ended:
    """A transaction of the id in t-0 that its coordinator completed; ``marked``: whether its marker came."""

    commit: bool
    marked: bool


@dataclass(frozen=True)
class Story:
    """Those of one id, in order, and what came then: a late batch, or a transaction that is ongoing here or elsewhere.

    ``version`` is transaction.version: under 2 the data of transaction k has epoch k and its marker epoch k + 1, below
    all have epoch 0. ``apart``: ms from one transaction to the next. ``whole``: __transaction_state was never cleaned.
    In t-0 the data of transaction k is at offset 2k, its marker behind it.
    """

    ended: tuple[Ended, ...]
    then: str
    version: int = 0
    apart: int = 100_000
    whole: bool = True

    def epoch(self, number: int) -> int:
        """That of the data of a transaction."""
        return number if self.version == 2 else 0

    @property
    def left_open(self) -> tuple[Ended, ...]:
        """The transactions whose data no marker in t-0 ended."""
        last = max((k for k, one in enumerate(self.ended) if one.marked), default=-1)
        return self.ended[last + 1 :]

    @property
    def is_ongoing(self) -> bool:
        """Whether the id has a transaction open."""
        return self.then in ("here", "elsewhere")

    def entries(self) -> list[StateRecord]:
        """The records of its coordinator."""
        out: list[StateRecord] = []

        def add(state: str, time: int, epoch: int, begun: int, partitions: frozenset[str]) -> None:
            out.append(
                StateRecord(
                    0,
                    len(out),
                    time,
                    0,
                    "app",
                    state,
                    PID,
                    epoch,
                    60_000_000,
                    partitions,
                    False,
                    time,
                    begun,
                    self.version,
                    "0.log",
                    0,
                    0,
                )
            )

        for k, one in enumerate(self.ended):
            begun, result, bump = BEGAN + k * self.apart, "Commit" if one.commit else "Abort", int(self.version == 2)
            add("Ongoing", begun, self.epoch(k), begun, HERE)
            add(f"Prepare{result}", begun + 10, self.epoch(k) + bump, begun, HERE)
            add(f"Complete{result}", begun + 20, self.epoch(k) + bump, begun, frozenset())
        if self.is_ongoing:
            number = len(self.ended)
            begun = BEGAN + number * self.apart
            add("Ongoing", begun, self.epoch(number), begun, HERE if self.then == "here" else ELSEWHERE)
        return out

    def rows(self, start: int) -> list[dict[str, Any]]:
        """What is replayed of t-0 from an offset on."""
        rows: list[dict[str, Any]] = []
        row: dict[str, Any] = {}
        before: dict[str, Any] = {}
        for k in range(len(self.ended) + (self.then in ("here", "late"))):
            data, time = 2 * k, BEGAN + k * self.apart + 5
            if data >= start:
                row = row or {"producer_id": PID, "producer_epoch": self.epoch(k), "first_offset": data,
                              "first_time": time, "first_leader_epoch": 0} | before  # fmt: skip
                row |= {
                    "last_epoch": self.epoch(k),
                    "last_offset": data,
                    "last_time": time,
                    "records": k + 1,
                    "bytes": 9,
                }
            if k < len(self.ended) and self.ended[k].marked and data + 1 >= start:
                epoch, stamp = self.epoch(k) + int(self.version == 2), time + 10
                marker = {"marker_offset": data + 1, "marker_epoch": epoch, "marker_timestamp": stamp,
                          "commit": int(self.ended[k].commit)}  # fmt: skip
                rows.append({"producer_id": PID, **row, **marker})
                before = {"prev_marker_offset": data + 1, "prev_marker_epoch": epoch, "prev_marker_time": stamp,
                          "prev_marker_commit": int(self.ended[k].commit)}  # fmt: skip
                row = {}
        return [*rows, row] if row else rows

    def advice(self, start: int = 0, *, deleted: bool = False) -> Advice | None:
        """The advice where t-0 was read from ``start`` on, or begins there; None where nothing is open."""
        history = build_history(1, self.entries())
        history.whole_log[0], history.complete_from[0], history.brokers[0] = self.whole, 0, 1
        end, now = 2 * len(self.ended) + 2, BEGAN + 10 * self.apart + 100_000
        replica = made.facts(
            transactions=made.transactions(*self.rows(start)), clean_shutdown=True, log_start=start, log_end=end,
            high_watermark=end, first_time=BEGAN, unread_from=0 if start and not deleted else -1,
            begins_below_lso=bool(start),
        )  # fmt: skip
        bounds = LeaderBounds(0, 99, 99, now, True, None, 1)
        cluster = Cluster(now, now, coordinator=history, bounds={COORDINATOR: bounds, ("t", 0): bounds}, at_once=True)
        log = LogView([replica], cluster)
        found = open_transactions(log)
        return blocking.advise(log, found[0]) if found else None


ENDED = st.builds(Ended, st.booleans(), st.booleans())
STORIES = st.builds(
    Story,
    st.lists(ENDED, max_size=4).map(tuple),
    st.sampled_from(["nothing", "late", "here", "elsewhere"]),
    st.sampled_from([0, 2]),
    st.sampled_from([100_000, 100]),
    st.booleans(),
)
COMMITS = (Ended(True, True),) * 3
SKIPPED = (*COMMITS[:2], Ended(True, False))


def by_hand(advice: Advice) -> bool:
    """Whether an advice is to write a COMMIT marker."""
    return COMMIT_BY_HAND in text(advice.row())


def writes_nothing(advice: Advice) -> bool:
    """Whether an advice has neither an abort nor a COMMIT by hand in it."""
    return not advice.acts


@given(STORIES)
@example(Story(COMMITS, "late"))
@example(Story(COMMITS, "here"))
@example(Story(SKIPPED, "nothing"))
@example(Story(SKIPPED, "nothing", 2))
@example(Story(SKIPPED, "elsewhere"))
@example(Story(SKIPPED, "here"))
@example(Story(SKIPPED, "here", 2))
def test_no_advice_ends_data_otherwise_than_its_coordinator_decided(story: Story) -> None:
    """Wherever reading begins at or below the data that is open."""
    committed = any(one.commit for one in story.left_open)
    whole = story.advice()
    for start in range(2 * (len(story.ended) - len(story.left_open)) + 1):
        for advice in (story.advice(start), story.advice(start, deleted=True)):
            if advice is None:
                assert whole is None
                continue
            assert whole is not None
            if advice.acts and not by_hand(advice):
                assert not committed
                assert story.then != "here"
            if by_hand(advice):
                assert committed
                assert not story.is_ongoing or (story.version == 2 and story.then == "elsewhere")
            assert advice == whole or writes_nothing(advice), start


def test_while_the_id_has_the_epoch_open_nothing_is_written() -> None:
    """The COMMIT marker of the third transaction is missing, and a fourth one is open."""
    for then in ("here", "elsewhere"):
        advice = Story(SKIPPED, then).advice()
        assert advice is not None
        assert text(advice.row()).startswith(UNTIL_IT_ENDS)
        assert writes_nothing(advice)
        assert advice.verdict is Verdict.DO_NOT_ABORT


def test_under_transaction_version_2_the_next_transaction_has_the_next_epoch() -> None:
    """Its data is the open transaction's too only where that has written here."""
    elsewhere, here = (Story(SKIPPED, then, 2).advice() for then in ("elsewhere", "here"))
    assert elsewhere is not None
    assert by_hand(elsewhere)
    assert "producerEpoch 3," in text(elsewhere.row())
    assert here is not None
    assert text(here.row()).startswith(UNTIL_IT_ENDS)


def test_a_missing_marker_is_known_to_be_missing_only_behind_one_that_was_read() -> None:
    """The COMMIT marker of the third transaction is missing."""
    known = [Story(SKIPPED, "nothing").advice(start) for start in range(5)]
    assert [advice is not None and by_hand(advice) for advice in known] == [True] * 4 + [False]
    assert known[4] is not None
    assert known[4].verdict is Verdict.INVESTIGATE_FIRST


def test_a_late_batch_is_known_to_be_late_only_behind_the_last_marker() -> None:
    known = [Story(COMMITS, "late", apart=100).advice(start) for start in range(7)]
    assert [advice is not None and advice.verdict for advice in known] == [Verdict.SAFE_TO_ABORT] * 6 + [
        Verdict.INVESTIGATE_FIRST
    ]
