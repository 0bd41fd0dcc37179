"""Consumer groups that commit in transactions (KIP-447), as brokers store it: records of a coordinator and of a group.

A rebalance gives a partition to another member, and the one before commits once more; with twins that do no harm.
"""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest

from auditor.rules.seen.view import Finding
from tests import segments
from tests.audited import above_info
from tests.coordinator_records import Coordinator
from tests.forge import CONTROL, TRANSACTIONAL, Batch, Lab, marker

CORPUS, COUNT = "healthy-41", 3  # partitions of both internal topics
GROUP, TOPIC = "pay-group", "shop.orders"
TASK, THREAD = "app-0_1", "app-3b0f4a52-9c1e-4f6b-8a7d-2f1e0c9b8a76-1"
SECOND = 1_000
START = 1795232900000  # behind all that the corpus holds


def owner(name: str) -> int:
    """The partition of an internal topic that a name belongs to: Utils.abs(name.hashCode()) % partitions."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return min(code, (1 << 32) - code) % COUNT


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


def sized(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


class Group:
    """A group's partition of ``__consumer_offsets`` and the coordinators of those who commit to it."""

    def __init__(self, root: Path) -> None:
        self.lab = Lab(root, CORPUS)
        self.log = self.lab.log(f"__consumer_offsets-{owner(GROUP)}")
        self.coordinators: dict[int, Coordinator] = {}
        self.sequences: dict[int, int] = {}

    def write(self, time: int, key: bytes, value: bytes | None, **header: int) -> Batch:
        fields = {"leader_epoch": self.log.last["leader_epoch"], "base_time": time, "max_time": time} | header
        return self.log.append(
            Batch(segments.batch(segments.record(0, key, value), 1, base_offset=self.log.end, **fields))
        )

    def generation(self, number: int, time: int, member: str, instance: str | None = None) -> None:
        """One whose only member has partition 0 of the topic."""
        assigned = struct.pack(">hi", 0, 1) + text(TOPIC) + struct.pack(">iii", 1, 0, -1)
        said = text(member) + text(instance) + text("client") + text("/127.0.0.1")
        said += struct.pack(">ii", 300_000, 45_000) + sized(b"") + sized(assigned)
        value = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", number) + text("range") + text(member)
        value += struct.pack(">qi", time, 1) + said
        self.write(time, struct.pack(">h", 2) + text(GROUP), value)

    def epoch(self, number: int, time: int) -> None:
        """A new epoch of the group, which is one of KIP-848."""
        value = struct.pack(">hi", 0, number) + b"\0"
        self.write(time, struct.pack(">h", 3) + text(GROUP), value)

    def assigned(
        self, member: str, epoch: int, time: int, mine: list[int], to_revoke: list[int], topic: int = 7
    ) -> None:
        """What a member has of the topic, and what it has still to give up (ConsumerGroupCurrentMemberAssignment)."""
        value = struct.pack(">hiib", 0, epoch, epoch - 1, 1 if to_revoke else 0)
        for partitions in (mine, to_revoke):
            value += bytes([2 if partitions else 1])  # compact array: length + 1
            if partitions:
                value += uuid.UUID(int=topic).bytes + bytes([len(partitions) + 1])
                value += struct.pack(f">{len(partitions)}i", *partitions) + b"\0"
        self.write(time, struct.pack(">h", 8) + text(GROUP) + text(member), value + b"\0")

    def leaves(self, member: str, time: int) -> None:
        """A member is gone, and with it what it had."""
        self.write(time, struct.pack(">h", 8) + text(GROUP) + text(member), None)

    def commits(self, name: str, producer: int, offset: int, begun: int, time: int, *, commit: bool = True) -> Batch:
        """One transaction of an id that commits an offset of partition 0."""
        at = owner(name)
        states = self.coordinators.setdefault(at, Coordinator(self.lab.broker(), at))
        here = f"__consumer_offsets-{owner(GROUP)}"
        states.state(name, "Ongoing", (producer, 0), begun, here, start=begun)
        key = struct.pack(">h", 1) + text(GROUP) + text(TOPIC) + struct.pack(">i", 0)
        value = struct.pack(">hqi", 3, offset, -1) + text("") + struct.pack(">q", time)
        number = self.sequences.get(producer, 0)
        self.sequences[producer] = number + 1
        header = {"producer_id": producer, "epoch": 0, "sequence": number, "attributes": TRANSACTIONAL}
        batch = self.write(time, key, value, **header)
        end = "Commit" if commit else "Abort"
        states.state(name, f"Prepare{end}", (producer, 0), time + 5, here, start=begun)
        self.log.append(marker(batch, commit, base_offset=self.log.end, time=time + 6))
        if not commit:
            self.log.aborted.append((producer, batch["base_offset"], self.log.end - 1))
        states.state(name, f"Complete{end}", (producer, 0), time + 7, start=begun)
        return batch

    def findings(self) -> list[Finding]:
        self.log.save()
        for coordinator in self.coordinators.values():
            coordinator.save()
        return above_info(self.lab.findings(START + 3_600 * SECOND))


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def at(seconds: int) -> int:
    return START + seconds * SECOND


def five_steps(group: Group, *, old: str | None, new: str | None, late: int, commit: bool = True) -> Batch:
    """The old member's transaction began before the rebalance at 200 s, and ends after the new one's commit."""
    group.generation(1, at(50), "old-member", old)
    group.commits("tx-old", 901, 10, at(90), at(100))
    group.generation(2, at(200), "new-member", new)
    group.commits("tx-new", 902, 30, at(205), at(210))
    return group.commits("tx-old", 901, 20, at(150), at(late), commit=commit)


@pytest.mark.parametrize(("old", "new"), [(None, None), ("x", "y"), ("x", "x")])
def test_the_five_steps(group: Group, old: str | None, new: str | None) -> None:
    zombie = five_steps(group, old=old, new=new, late=300)
    (f,) = group.findings()
    assert (f.kind, f.severity, f.producer_id, f.group_id) == ("zombie-offset-commit", "error", 901, GROUP)
    assert f.evidence["rival_producer_id"] == 902
    assert [step[0] for step in f.evidence["steps"]] == list("12345")
    assert zombie["base_offset"] == f.evidence["record_offset"]
    names = {("x", "y"): "static members: x, y", ("x", "x"): "two processes use the group.instance.id x"}
    assert old is None or f.message.endswith(names[old, str(new)])


def kip_848(group: Group, *, given_up: bool, pool: bool = False, back: bool = False, late: int = 20) -> None:
    """The partition goes from one member to another, who commits 30 for it; then the first one's producer commits.

    Epochs go on between: what counts is who holds the partition (KIP-848, reconciliation).
    """
    group.epoch(1, at(50))
    group.assigned("m-old", 1, at(51), [0], [])
    group.commits("tx-old", 901, 10, at(90), at(100))
    if pool:  # the other producer has worked for the first member, too
        group.commits("tx-new", 902, 15, at(110), at(120))
    group.epoch(2, at(200))
    group.assigned("m-old", 1, at(201), [], [0])
    if given_up:
        group.assigned("m-old", 2, at(202), [], [])
        group.assigned("m-new", 2, at(203), [0], [])
    group.commits("tx-new", 902, 30, at(205), at(210))
    group.epoch(3, at(250))
    if back:
        group.leaves("m-new", at(260))
        group.assigned("m-old", 3, at(261), [0], [])
    group.commits("tx-old", 901, late, at(290), at(300))


@pytest.mark.parametrize("late", [20, 40])
def test_a_member_of_kip_848_commits_what_it_has_given_up(group: Group, late: int) -> None:
    kip_848(group, given_up=True, late=late)
    (f,) = group.findings()
    assert (f.kind, f.severity, f.producer_id, f.group_id) == ("zombie-offset-commit", "error", 901, GROUP)
    assert (f.evidence["owner_before"]["member_id"], f.evidence["owner"]["member_id"]) == ("m-old", "m-new")
    assert f.evidence["rival_producer_id"] == 902


def test_what_a_member_has_still_to_give_up_is_its_own(group: Group) -> None:
    """Another producer of the same member is one of its pool."""
    kip_848(group, given_up=False, late=40)
    assert group.findings() == []


def test_producers_of_a_pool_that_has_moved_to_another_member(group: Group) -> None:
    """Both had worked for the first member: an application takes any free one."""
    kip_848(group, given_up=True, pool=True, late=40)
    assert group.findings() == []


def test_a_partition_that_comes_back_is_its_members_again(group: Group) -> None:
    kip_848(group, given_up=True, back=True, late=40)
    assert group.findings() == []


def test_a_group_with_two_topics_is_not_judged_by_ids(group: Group) -> None:
    """Which of the two ids a commit's name has, its records do not say."""
    group.assigned("m-third", 1, at(40), [0], [], topic=8)
    kip_848(group, given_up=True, late=40)
    assert group.findings() == []


def test_a_zombie_that_was_aborted_is_harmless(group: Group) -> None:
    five_steps(group, old=None, new=None, late=300, commit=False)
    assert group.findings() == []


def test_a_rebalance_with_commits_in_turn_is_healthy(group: Group) -> None:
    group.generation(1, at(50), "old-member")
    group.commits("tx-old", 901, 10, at(90), at(100))
    group.commits("tx-old", 901, 20, at(150), at(160))
    group.generation(2, at(200), "new-member")
    group.commits("tx-new", 902, 30, at(205), at(210))
    assert group.findings() == []


@pytest.mark.parametrize(("other", "found"), [(THREAD, ["mixed-processing-guarantees"]), ("app-0_2", [])])
def test_both_kinds_of_exactly_once_ids(group: Group, other: str, found: list[str]) -> None:
    """An id of a task beside one of a thread, and beside one of another task; an upgrade is each kind in its time."""
    group.commits(TASK, 901, 10, at(90), at(100))
    group.commits(other, 902, 20, at(190), at(200))
    assert group.findings() == []
    group.commits(TASK, 901, 30, at(290), at(300))
    assert [f.kind for f in group.findings()] == found


def test_the_control_flag_is_the_markers_alone(group: Group) -> None:
    """The forged log is what brokers write: data and marker in turn."""
    group.commits(TASK, 901, 10, at(90), at(100))
    assert [bool(b["attributes"] & CONTROL) for b in group.log.all()[-2:]] == [False, True]
