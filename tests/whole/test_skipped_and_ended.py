"""A transaction whose marker never came to a-0, and whose data another marker ended there; b-0 gets all of them.

As a 4.3.1 coordinator leaves it that takes a partition without a leader for a deleted one (KAFKA-20734) where the
application goes on: see the corpora skipped-then-goes-on-43 and remedied-43. Each incident has a silent twin.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests.audited import above_info, audit_folder
from tests.bare_broker import finish
from tests.whole.test_failed_appends import SECOND, Story

GONE, VISIBLE = "read_committed consumers miss committed records", "consumers see aborted records"


class Skipping(Story):
    """A story whose client has a transaction.version; under 2 each decision raises the epoch."""

    def __init__(self, root: Path, version: int) -> None:
        super().__init__(root)
        self.version = version
        self.client = version if version > 1 else 0

    def begin(self) -> None:
        self.say("Ongoing", start=True)
        self.write()

    def decide(self, commit: bool, *marked: str) -> None:
        """Decides, sends markers to ``marked`` alone, completes; a client of version 2 then has the next epoch."""
        end = "Commit" if commit else "Abort"
        if self.version > 1:
            data, self.producer = self.producer, (self.producer[0], self.producer[1] + 1)
        else:
            data = self.producer
        self.say(f"Prepare{end}")
        for name in marked:
            self.mark_of(data, commit, name, self.producer[1])
        self.say(f"Complete{end}")

    def mark_of(self, data: tuple[int, int], commit: bool, name: str, epoch: int) -> None:
        """One marker; an abort's index entry begins with all that is still open."""
        log, already = self.logs[name], len(self.logs[name].aborted)
        ends = [b for b in log.markers() if b["producer_id"] == data[0]]
        self.mark(commit, name, epoch=epoch)
        if not commit:
            after = ends[-1]["base_offset"] if ends else -1
            mine = [b["base_offset"] for b in log.data(data[0]) if b["base_offset"] > after]
            first, last = (mine[0], log.last["base_offset"]) if mine else (None, None)
            log.aborted[already:] = [] if first is None else [(data[0], first, last)]


def skipped_then(root: Path, version: int, first: bool, second: bool, *, skip: bool = True) -> list[Finding]:
    """Offsets 0 to 2 of a-0 are of a transaction whose marker is skipped, the next one's data and marker follow."""
    story = Skipping(root, version)
    story.begin()
    story.decide(first, *(("b-0",) if skip else ("a-0", "b-0")))
    story.now += 60 * SECOND
    story.begin()
    story.decide(second, "a-0", "b-0")
    return story.found()


def told(found: list[Finding]) -> list[tuple[str, str, int | None, int | None]]:
    return [(f.kind, f.severity, f.offset, f.last_offset) for f in above_info(found)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("commit", "fate"), [(True, GONE), (False, VISIBLE)])
def test_the_next_transaction_ended_it_otherwise(tmp_path: Path, version: int, commit: bool, fate: str) -> None:
    """Three records at 0 to 2, three of the next one at 3 to 5, whose marker is at 6."""
    found = skipped_then(tmp_path, version, commit, not commit)
    assert told(found) == [("split-decision", "critical", 0, 6)]
    (f,) = above_info(found)
    assert fate in f.message
    assert (f.topic, f.partition, f.transactional_id, f.producer_id) == ("a", 0, "tx", 100)
    decision = ("COMMIT", "ABORT") if commit else ("ABORT", "COMMIT")
    assert (f.evidence["expected"], f.evidence["marker"], f.evidence["marker_offset"]) == (*decision, 6)
    assert "nothing to abort" in f.remedy
    assert "abort --" not in f.remedy
    if version == 2:  # epochs tell which data is whose
        assert (f.evidence["data_offsets"], f.evidence["records"]) == ([0, 2], 3)
        assert (f.evidence["next_first_offset"], f.evidence["confidence"]) == (3, "proved")
    else:
        assert (f.evidence["transaction_first_offset"], f.evidence["confidence"]) == (0, "likely")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_with_all_markers_nothing_is_said(tmp_path: Path, version: int, first: bool, second: bool) -> None:
    found = skipped_then(tmp_path, version, first, second, skip=False)
    assert told(found) == []
    assert [f.kind for f in found if f.kind in ("missing-marker", "split-decision")] == []


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_transaction_ended_it_as_decided(tmp_path: Path, version: int, commit: bool) -> None:
    found = skipped_then(tmp_path, version, commit, commit)
    assert told(found) == []
    (f,) = (f for f in found if f.kind == "missing-marker")
    assert (f.severity, f.offset, f.evidence["marker_offset"]) == ("info", 0, 6)
    assert f.remedy.startswith("Nothing to do: the transaction is not open any more")


@pytest.mark.parametrize("version", [1, 2])
def test_while_the_application_does_not_go_on_it_hangs(tmp_path: Path, version: int) -> None:
    story = Skipping(tmp_path, version)
    story.begin()
    story.decide(True, "b-0")
    assert told(story.found()) == [("hanging-transaction", "critical", 0, 2)]


def test_two_that_were_skipped_end_with_the_third(tmp_path: Path) -> None:
    """COMMIT, then ABORT skipped; the third, COMMIT, shows the data of the second, and that of the first, late."""
    story = Skipping(tmp_path, 2)
    for commit, marked in ((True, ("b-0",)), (False, ("b-0",)), (True, ("a-0", "b-0"))):
        story.begin()
        story.decide(commit, *marked)
        story.now += 60 * SECOND
    found = story.found()
    assert told(found) == [("split-decision", "critical", 3, 9)]
    assert [(f.severity, f.offset, f.last_offset) for f in found if f.kind == "missing-marker"] == [("info", 0, 2)]


# By hand


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_written_by_hand_as_decided(tmp_path: Path, version: int, commit: bool) -> None:
    """WriteTxnMarkers with the decision's epoch, a minute later; nothing is left to say, also when it goes on."""
    story = Skipping(tmp_path, version)
    story.begin()
    story.decide(commit, "b-0")
    story.now += 60 * SECOND
    story.mark_of(story.producer, commit, "a-0", story.producer[1])
    story.begin()
    story.decide(True, "a-0", "b-0")
    found = story.found()
    assert told(found) == []
    assert [f.kind for f in found if f.kind == "marker-without-decision"] == []


@pytest.mark.parametrize("commit", [True, False])
def test_an_operators_abort_of_what_was_skipped(tmp_path: Path, commit: bool) -> None:
    """kafka-transactions.sh writes the data's epoch, one below the decision's. Over a COMMIT it tears it apart."""
    story = Skipping(tmp_path, 2)
    story.begin()
    data = story.producer
    story.decide(commit, "b-0")
    story.now += 60 * SECOND
    story.mark_of(data, False, "a-0", data[1])
    found = story.found()
    assert told(found) == ([("split-decision", "critical", 3, 3)] if commit else [])
    for f in above_info(found):
        assert GONE in f.message
        assert f.evidence["data_offsets"] == [0, 2]


# KIP-1228


def late(root: Path, first: bool, second: bool, *, behind: bool = False, more: bool = False) -> list[Finding]:
    """The first transaction's marker comes once more, within the second's data or right ``behind`` its own marker's;
    ``more`` data of the second follows."""
    story = Skipping(root, 2)
    story.begin()
    story.decide(first, "a-0", "b-0")
    if behind:
        story.mark_of(story.producer, first, "a-0", story.producer[1])
    story.now += 60 * SECOND
    story.begin()
    if not behind:
        story.mark_of(story.producer, first, "a-0", story.producer[1])
    if more:
        story.write()
    story.decide(second, "a-0", "b-0")
    return story.found()


@pytest.mark.parametrize(("commit", "fate"), [(True, VISIBLE), (False, GONE)])
def test_a_late_marker_of_the_transaction_before_splits_the_next(tmp_path: Path, commit: bool, fate: str) -> None:
    """Data 0 to 2, its marker at 3, data 4 to 6, and at 7 the marker of 3 once more."""
    (f,) = above_info(late(tmp_path, commit, not commit))
    assert (f.kind, f.severity, f.offset) == ("split-decision", "critical", 7)
    assert fate in f.message
    assert "late marker" in f.message
    assert ("an operator's abort" in f.message) is not commit
    assert (f.evidence["data_offsets"], f.evidence["records"]) == ([4, 6], 3)


@pytest.mark.parametrize(("commit", "severity"), [(True, "warning"), (False, "info")])
def test_a_late_marker_that_is_on_the_same_result(tmp_path: Path, commit: bool, severity: str) -> None:
    (f,) = (f for f in late(tmp_path, commit, commit) if f.kind == "marker-without-decision")
    assert (f.severity, f.offset, f.evidence["confidence"]) == (severity, 7, "likely")
    assert "KIP-1228" in f.message
    assert "offsets 4–6" in f.message


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_repeated_marker_where_nothing_is_open(tmp_path: Path, first: bool, second: bool) -> None:
    """As brokers since 4.2 append it."""
    assert told(late(tmp_path, first, second, behind=True)) == []


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_data_that_a_late_marker_ended_is_no_late_write(tmp_path: Path, first: bool, second: bool, more: bool) -> None:
    """Its own transaction allows it, whose marker comes behind."""
    assert "late-write-after-marker" not in {f.kind for f in late(tmp_path, first, second, more=more)}


def alone(story: Skipping) -> list[tuple[str, str, str | None, int | None]]:
    """What is told of a-0 without the coordinator's log, at the moment of the last marker."""
    finish(*story.logs.values(), story.states)
    shutil.rmtree(story.root / "broker-1" / "__transaction_state-0")
    found = audit_folder(story.root, story.now + SECOND)
    return [(f.kind, f.severity, f.if_true, f.offset) for f in found if f.topic == "a" and "marker" in f.rule]


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize(("second", "told"), [
    (False, ("split-decision", "error", None, 7)),
    (True, ("marker-without-decision", "info", "warning", 7)),
    (None, ("marker-without-decision", "info", "warning", 7)),
])  # fmt: skip
def test_a_late_commit_by_the_partition_alone(
    tmp_path: Path, second: bool | None, told: tuple[str, str, str | None, int], more: bool
) -> None:
    """A COMMIT raised the epoch, another one of that epoch ended data of it, the next marker raises it again. Unless
    that is an ABORT, it may be a transaction of version 1 between a downgrade and an upgrade."""
    story = Skipping(tmp_path, 2)
    story.begin()
    story.decide(True, "a-0", "b-0")
    story.begin()
    story.mark_of(story.producer, True, "a-0", story.producer[1])
    if more:
        story.write()
    if second is not None:
        story.decide(second, "a-0", "b-0")
    assert [one for one in alone(story) if one[0] != "marker-without-transaction"] == [told]


@pytest.mark.parametrize("results", [(True, True), (True, False), (False,)])
@pytest.mark.parametrize("up", [True, False])
def test_transactions_of_version_1_repeat_epoch_and_result(tmp_path: Path, results: tuple[bool, ...], up: bool) -> None:
    """After a downgrade, with an upgrade behind it or without."""
    story = Skipping(tmp_path, 2)
    for version, result in ((2, True), *((1, result) for result in results), *((2, True),) * up):
        story.version, story.client = version, version if version > 1 else 0
        story.begin()
        story.decide(result, "a-0", "b-0")
    assert alone(story) == []


def test_an_abort_by_the_partition_alone_may_be_an_operator_s(tmp_path: Path) -> None:
    story = Skipping(tmp_path, 2)
    story.begin()
    story.decide(False, "a-0", "b-0")
    story.begin()
    story.mark_of(story.producer, False, "a-0", story.producer[1])
    story.write()
    story.decide(True, "a-0", "b-0")
    assert alone(story) == []
