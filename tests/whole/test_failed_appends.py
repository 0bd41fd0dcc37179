"""Coordinators' records whose append failed after they were written: no incident, and what contradicts them is one.

Each log is what TransactionStateManager.appendTransactionToLog leaves when the log answers
NOT_ENOUGH_REPLICAS_AFTER_APPEND or REQUEST_TIMED_OUT; the first one is what 4.3.1 wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import bare_broker
from tests.audited import above_info, audit_folder
from tests.bare_broker import BEGAN, data, finish
from tests.coordinator_records import Coordinator
from tests.forge import Forged, marker

SECOND, HOUR = 1_000, 3_600_000
BOTH = ("a-0", "b-0")
RULE = "coordinator-append-failed"


class Story:
    """One coordinator and some partitions of a broker; each thing happens a second after the one before."""

    def __init__(self, root: Path, *partitions: str) -> None:
        self.root, self.names = root, partitions or BOTH
        path = bare_broker.broker(root, *self.names)
        self.states = Coordinator(path, 0)
        self.logs = {name: Forged(path, name) for name in self.names}
        self.now = self.start = BEGAN
        self.tid, self.producer, self.client = "tx", (100, 0), 0
        self.sequences: dict[tuple[str, int, int], int] = {}
        self.say("Empty")

    def say(self, *states: str, epoch: int | None = None, to: tuple[str, ...] = (), start: bool = False) -> int:
        """Records of the id, of which an Ongoing one with ``start`` begins a transaction; returns the last's offset."""
        offset = -1
        for state in states:
            self.now += SECOND
            self.start = self.now if start else self.start
            mine = () if state.startswith("Complete") or state == "Empty" else to or self.names
            producer = (self.producer[0], self.producer[1] if epoch is None else epoch)
            client = self.client if state not in ("Empty", "Ongoing") else 0
            offset = self.states.state(
                self.tid, state, producer, self.now, *mine, start=-1 if state == "Empty" else self.start, client=client
            )["base_offset"]
        return offset

    def forget(self) -> None:
        self.now += SECOND
        self.states.forget(self.tid, self.now)

    def write(self, *names: str) -> None:
        """Data of the transaction."""
        for name in names or self.names:
            key = (name, *self.producer)
            sequence = self.sequences.get(key, 0)
            self.sequences[key] = sequence + 3
            data(self.logs[name], self.producer[0], sequence, self.now + 5, transactional=True, epoch=self.producer[1])

    def mark(self, commit: bool, *names: str, epoch: int | None = None) -> None:
        """Markers of the decision."""
        for name in names or self.names:
            log = self.logs[name]
            of = next(b for b in reversed(log.data(self.producer[0])))
            epoch = self.producer[1] if epoch is None else epoch
            last = marker(of, commit, base_offset=log.end, time=self.now + 20, epoch=epoch)
            if not commit:
                log.aborted.append((self.producer[0], of["base_offset"], last["base_offset"]))
            log.append(last)

    def found(self, after: int = HOUR) -> list[Finding]:
        """All findings, ``after`` so many ms."""
        finish(*self.logs.values(), self.states)
        return audit_folder(self.root, self.now + after)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def rules(found: list[Finding]) -> list[tuple[str, str]]:
    return sorted({(f.kind, f.severity) for f in above_info(found)})


def told(found: list[Finding]) -> dict[str, int]:
    """How many records of each state failed, by the one finding that says so, if nothing else is above info."""
    assert rules(found) == []
    (f,) = (f for f in found if f.kind == RULE)
    assert f.evidence["records"] == sum(f.evidence["states"].values())
    return f.evidence["states"]


def as_43_wrote_it(story: Story) -> None:
    """A follower of __transaction_state was stopped across a commit, and across the next begin."""
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit", "PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    story.say("Ongoing", start=True)
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")


@pytest.mark.parametrize("ended", [True, False])
def test_the_log_that_4_3_wrote(story: Story, ended: bool) -> None:
    as_43_wrote_it(story)
    if ended:
        story.mark(True)
        story.say("CompleteCommit")
    found = story.found(5 * SECOND)
    assert told(found) == {"Ongoing": 1, "PrepareCommit": 1}
    (f,) = (f for f in found if f.kind == RULE)
    assert (f.severity, f.transactional_id, f.topic, f.partition) == ("info", "tx", "__transaction_state", 0)
    assert (f.offset, f.last_offset, f.evidence["transactional_ids"]) == (2, 5, 1)
    assert "NOT_ENOUGH_REPLICAS_AFTER_APPEND" in f.evidence["likely_cause"]
    assert "--describe" in f.remedy


def test_markers_that_are_missing_all_the_same(story: Story) -> None:
    """The transaction has one decision: each partition misses one marker of it."""
    as_43_wrote_it(story)
    story.say("PrepareCommit")
    story.mark(True, "a-0")
    story.say("CompleteCommit")
    (f,) = above_info(story.found())
    assert (f.kind, f.severity, f.topic, f.partition) == ("hanging-transaction", "critical", "b", 0)
    assert sorted(also["rule"] for also in f.evidence["also"]) == ["lso-stuck", "missing-marker"]


def test_two_hundred_ids_and_ten_partitions(tmp_path: Path) -> None:
    story = Story(tmp_path, *(f"t-{number}" for number in range(10)))
    for number in range(200):
        story.tid, story.producer = f"tx-{number}", (1_000 + number, 0)
        story.say("Empty")
        as_43_wrote_it(story)
        story.mark(True)
        story.say("CompleteCommit")
    assert told(story.found()) == {"Ongoing": 200, "PrepareCommit": 200}


@pytest.mark.parametrize(("wait", "cause"), [(59, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"), (60, "REQUEST_TIMED_OUT")])
def test_the_likely_cause(story: Story, wait: int, cause: str) -> None:
    """An append waits for as long as the transaction's time-out, a minute here."""
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.now += (wait - 1) * SECOND
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    (f,) = (f for f in story.found() if f.kind == RULE)
    assert f.evidence["likely_cause"].startswith(cause)


def test_stretches_of_time_are_told_apart(story: Story) -> None:
    for _ in range(3):
        as_43_wrote_it(story)
        story.mark(True)
        story.say("CompleteCommit")
        story.now += HOUR
    found = [f for f in story.found() if f.kind == RULE]
    assert [(f.evidence["records"], f.offset) for f in found] == [(2, 2), (2, 10), (2, 18)]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("lately", [True, False])
def test_a_decision_that_another_one_follows(story: Story, commit: bool, lately: bool) -> None:
    """The client aborted what it could not commit, or the reverse. The last decision counts, in every partition."""
    names = ("PrepareAbort", "PrepareCommit") if commit else ("PrepareCommit", "PrepareAbort")
    story.say("Ongoing", start=True)
    story.write()
    story.say(names[0])
    story.now += HOUR if lately else 0
    story.say(names[1])
    story.mark(commit)
    story.say(f"Complete{'Commit' if commit else 'Abort'}")
    assert told(story.found()) == {names[0]: 1}


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_of_the_decision_before_shows_that_it_had_not_failed(story: Story, commit: bool) -> None:
    names = ("PrepareAbort", "PrepareCommit") if commit else ("PrepareCommit", "PrepareAbort")
    story.say("Ongoing", start=True)
    story.write()
    story.say(names[0])
    story.mark(not commit, "a-0")
    story.say(names[1])
    story.mark(commit, "b-0")
    story.say(f"Complete{'Commit' if commit else 'Abort'}")
    found = above_info(story.found())
    assert [(f.kind, f.severity, f.topic) for f in found] == [("split-decision", "critical", "a")]


def test_a_transaction_that_failed_to_begin_with_more_partitions(story: Story) -> None:
    """b-0 was in the record that failed alone, so no marker comes there."""
    story.say("Ongoing", start=True)
    story.say("Ongoing", to=("a-0",), start=True)
    story.write("a-0")
    story.say("PrepareCommit", to=("a-0",))
    story.mark(True, "a-0")
    story.say("CompleteCommit")
    assert told(story.found()) == {"Ongoing": 1}


def test_a_partition_that_failed_to_be_added(story: Story) -> None:
    """4.3.1: the client tried twice, then the coordinator aborted what it had."""
    story.say("Ongoing", to=("a-0",), start=True)
    story.write("a-0")
    story.say("Ongoing", "Ongoing")
    story.say("PrepareAbort", "PrepareAbort", epoch=1, to=("a-0",))
    story.mark(False, "a-0", epoch=1)
    story.say("CompleteAbort", epoch=1)
    assert told(story.found()) == {"Ongoing": 2, "PrepareAbort": 1}


def test_one_that_goes_on_after_its_decision_failed(story: Story) -> None:
    story.say("Ongoing", to=("a-0",), start=True)
    story.say("PrepareCommit", to=("a-0",))
    story.say("Ongoing")
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    assert told(story.found()) == {"PrepareCommit": 1}


def test_a_completion_that_is_written_again(story: Story) -> None:
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit", "CompleteCommit", "CompleteCommit")
    assert told(story.found()) == {"CompleteCommit": 2}


@pytest.mark.parametrize("first", ["PrepareCommit", "PrepareAbort"])
def test_a_fence_that_failed(story: Story, first: str) -> None:
    """The epoch is raised before the append: from then on only this abort may come."""
    story.say("Ongoing", start=True)
    story.write()
    story.say(first)
    story.say("PrepareAbort", "PrepareAbort", epoch=1)
    story.mark(False, epoch=1)
    story.say("CompleteAbort", epoch=1)
    assert told(story.found()) in ({first: 2}, {first: 1, "PrepareAbort": 1})


@pytest.mark.parametrize(("state", "epoch"), [("PrepareCommit", 0), ("PrepareAbort", 0), ("PrepareCommit", 1)])
def test_nothing_of_the_fenced_epoch_comes_behind_it(story: Story, state: str, epoch: int) -> None:
    story.say("Ongoing", start=True)
    story.say("PrepareAbort", epoch=1)
    story.say(state, epoch=epoch)
    assert ("illegal-transition", "critical") in rules(story.found(SECOND))


def test_an_epoch_that_was_not_given_out(story: Story) -> None:
    """InitProducerId failed, so the producer of the epoch before goes on; or it failed to begin, and is renewed."""
    story.say("Empty", epoch=1)
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    story.say("Ongoing", start=True)
    story.say("Empty", epoch=1)
    assert told(story.found()) == {"Empty": 1, "Ongoing": 1}


def test_a_producer_id_that_was_not_given_out(story: Story) -> None:
    """Its epochs were used up, and the producer goes on with the last one."""
    story.tid, story.producer = "used-up", (200, 32_766)
    story.say("Empty")
    story.producer = (201, 0)
    story.say("Empty")
    story.producer = (200, 32_766)
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    found = story.found()
    assert rules(found) == [("epoch-near-exhaustion", "warning")]
    assert [f.evidence["states"] for f in found if f.kind == RULE] == [{"Empty": 1}]


def test_an_id_that_was_not_forgotten(story: Story) -> None:
    story.forget()
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    assert told(story.found()) == {"tombstone": 1}


@pytest.mark.parametrize("commit", [True, False])
def test_version_2(story: Story, commit: bool) -> None:
    """Each end raises the epoch in its record; one that failed has not raised it in memory."""
    story.client = 2
    state = "Commit" if commit else "Abort"
    for _ in range(2):
        story.say("Ongoing", start=True)
        story.write()
        after = story.producer[1] + 1
        story.say("PrepareCommit", f"Prepare{state}", f"Prepare{state}", epoch=after)
        story.mark(commit, epoch=after)
        story.say(f"Complete{state}", f"Complete{state}", epoch=after)
        story.producer = (100, after)
    told_of = told(story.found())
    assert sum(told_of.values()) == 2 * 3


def test_version_2_fences_twice_alike(story: Story) -> None:
    """Before 4.0 the fence took one epoch and the abort another."""
    story.client = 2
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareAbort", "PrepareAbort", epoch=2)
    story.mark(False, epoch=2)
    story.say("CompleteAbort", epoch=2)
    assert told(story.found()) == {"PrepareAbort": 1}


@pytest.mark.parametrize(("states", "expected"), [
    (("PrepareCommit", None, "PrepareCommit"), "illegal-transition"),
    (("PrepareCommit", None, "PrepareAbort"), "illegal-transition"),
    (("PrepareCommit", "CompleteCommit", None, "CompleteCommit"), "illegal-transition"),
    (("PrepareCommit", "CompleteCommit", "PrepareCommit"), "illegal-transition"),
    (("PrepareCommit", "CompleteCommit", "PrepareAbort"), "illegal-transition"),
    (("PrepareCommit", "CompleteAbort"), "illegal-transition"),
    (("PrepareCommit", "Empty"), "illegal-transition"),
])  # fmt: skip
def test_what_no_append_that_failed_explains(story: Story, states: tuple[str | None, ...], expected: str) -> None:
    """None: another coordinator has loaded the log, and has its last record."""
    story.say("Ongoing", start=True)
    for state in states:
        if state is None:
            story.states.load()
        else:
            story.say(state)
    found = story.found(SECOND)
    assert (expected, "critical") in rules(found)
    assert not [f for f in found if f.kind == RULE]


def test_a_coordinator_that_loads_a_decision_which_had_failed_carries_it_out(story: Story) -> None:
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit", "PrepareCommit")
    story.states.load()
    story.mark(True)
    story.say("CompleteCommit")
    assert told(story.found()) == {"PrepareCommit": 1}


@pytest.mark.parametrize("begun", [True, False])
def test_a_transaction_that_may_never_have_begun(story: Story, begun: bool) -> None:
    """Its client gave up. Where it had written, the record was there, and the coordinator should have ended it."""
    story.say("Ongoing", start=True)
    if begun:
        story.write("a-0")
    found = story.found()
    assert [f.severity for f in found if f.kind == "timeout-not-enforced"] == ["error" if begun else "info"]
    assert bool(rules(found)) == begun


def refused(story: Story, how: str) -> None:
    """A transition that TransactionMetadata refuses while a transaction is open, a minute after the last record."""
    story.now += 60 * SECOND
    if how == "tombstone":
        story.forget()
    else:
        story.producer = (200, 0)  # prepareProducerIdRotation throws while a transaction is pending
        story.say("Empty")


REFUSED = ["tombstone", "rotation"]


@pytest.mark.parametrize("how", REFUSED)
@pytest.mark.parametrize(("earlier", "client"), [(0, 0), (2, 0), (0, 2), (2, 2)])
def test_data_shows_that_the_append_of_ongoing_had_not_failed(
    story: Story, how: str, earlier: int, client: int
) -> None:
    story.client = client
    for _ in range(earlier):
        after = story.producer[1] + (client == 2)
        story.say("Ongoing", start=True)
        story.write()
        story.say("PrepareCommit", epoch=after)
        story.mark(True, epoch=after)
        story.say("CompleteCommit", epoch=after)
        story.producer = (100, after)
    story.say("Ongoing", start=True)
    story.write("a-0")
    refused(story, how)
    found = story.found()
    (f,) = (f for f in found if f.kind == "illegal-transition")
    assert (f.severity, f.transactional_id) == ("critical", "tx")
    assert not [f for f in found if f.kind == RULE]


@pytest.mark.parametrize("how", REFUSED)
def test_data_behind_a_second_attempt_to_begin(story: Story, how: str) -> None:
    story.say("Ongoing", start=True)
    story.say("Ongoing", start=True)
    story.write("a-0")
    refused(story, how)
    assert ("illegal-transition", "critical") in rules(story.found())


def test_without_data_the_append_of_ongoing_may_have_failed(story: Story) -> None:
    story.say("Ongoing", start=True)
    refused(story, "tombstone")
    assert told(story.found()) == {"Ongoing": 1}


@pytest.mark.parametrize("start", [True, False])
def test_a_producer_id_is_not_rotated_while_it_has_epochs(story: Story, start: bool) -> None:
    """From Ongoing never, and from any other state only at the last epoch (prepareInitProducerIdTransit)."""
    if start:
        story.say("Ongoing", start=True)
    refused(story, "rotation")
    assert rules(story.found()) == [("illegal-transition" if start else "state-epoch-regression", "critical")]


def test_data_that_may_have_come_late_shows_nothing(story: Story) -> None:
    """Without verification a request of the transaction that its client aborted may come behind the marker."""
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareAbort")
    story.mark(False)
    story.say("CompleteAbort")
    story.say("Ongoing", start=True)
    story.write("a-0")
    refused(story, "tombstone")
    assert [f.severity for f in story.found() if f.kind in (RULE, "illegal-transition")] == ["info"]


@pytest.mark.parametrize("epoch", [1, 0])
@pytest.mark.parametrize("kept", [True, False])
def test_a_start_in_empty_is_that_of_the_transaction_before(story: Story, epoch: int, kept: bool) -> None:
    """Coordinators keep it in memory; nobody reads it there."""
    story.say("Ongoing", start=True)
    story.write()
    story.say("PrepareCommit")
    story.mark(True)
    story.say("CompleteCommit")
    story.now += SECOND
    story.states.state("tx", "Empty", (100, epoch), story.now, start=story.start if kept else story.start + 1)
    assert rules(story.found()) == ([] if kept else [("transition-invariant-broken", "error")])
