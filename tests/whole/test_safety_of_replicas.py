"""What is said of an open transaction whose partition has three replicas: who is in sync, who has the marker, who lags.

Every surface is read for what would lose records if it were followed. Who is in sync stands in ``__cluster_metadata``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.blocked_states import (
    COMMANDS,
    COMMIT,
    FIND,
    KEEP,
    MARKER,
    MINUTE,
    PARTITION,
    PRODUCER,
    SAFE,
    SAYS,
    STATES,
    Replicas,
    forged,
    surfaces,
    verdict_of,
)
from tests.conftest import NIGHTLY
from tests.controller_records import Controller
from tests.facts import opened
from tests.forge import Forged, Lab, marker

LOOK, NO_LEADER = "kafka-topics.sh --bootstrap-server B --describe", "restore a leader of bank.audit-1: start broker"
LEAD = "Make broker 2 the leader: put it first among the replicas of bank.audit-1"
ELECT = "kafka-leader-election.sh --bootstrap-server B --election-type"
# Nothing that is printed may elect a replica that is not in sync, write offsets, or take a folder away where no other
# replica is known to have the data.
MOVE = "top broker 1, move bank.audit-1 away"
NEVER = (f"{ELECT} unclean", "--execute", "kafka-delete-records.sh")
SOME = ("Ongoing, late", "PrepareCommit", "PrepareAbort", "CompleteCommit of version 2", "CompleteAbort", "id unknown",
        "log absent")  # fmt: skip
CELLS = [(state, False) for state in STATES if NIGHTLY or state in SOME]
CELLS += [(state, True) for state in STATES if NIGHTLY or state in ("Ongoing, late", "CompleteCommit")]
cells = pytest.mark.parametrize(("state", "below"), CELLS, ids=lambda v: {True: "below", False: "in"}.get(v, v))


def three(isr: tuple[int, ...], leader: int = 1, fenced: bool = False) -> Replicas:
    """Two more brokers with the same directories; ``fenced``: the controller does not hear of broker 1 any more."""

    def write(lab: Lab, time: int, _: bool) -> None:
        controller = Controller(lab.broker(), time)
        for broker in (1, 2, 3):
            controller.register(broker)
        if fenced:
            controller.fence(1, 101)
        controller.partition(PARTITION, isr=(1, 2, 3), replicas=(1, 2, 3), leader=1)
        controller.partition(PARTITION, isr=isr, replicas=(1, 2, 3), leader=leader)
        controller.save()
        for broker in (2, 3):
            shutil.copytree(lab.broker(), lab.broker(broker))
            properties = lab.broker(broker) / "meta.properties"
            properties.write_text(properties.read_text().replace("node.id=1", f"node.id={broker}"))

    return write


def ends(log: Forged) -> None:
    log.checkpoint("replication-offset-checkpoint", log.end)
    log.checkpoint("recovery-point-offset-checkpoint", log.end)
    log.save()


def lagging(*brokers: int, isr: tuple[int, ...]) -> Replicas:
    """Brokers that have not fetched the last batch."""

    def write(lab: Lab, time: int, commit: bool) -> None:
        three(isr)(lab, time, commit)
        for broker in brokers:
            log = lab.log(PARTITION, broker)
            log.drop(log.last)
            ends(log)

    return write


def with_marker(lab: Lab, time: int, commit: bool) -> None:
    """Broker 2 has the marker, where the others have a hole."""
    three((1, 2, 3))(lab, time, commit)
    for broker in (1, 2, 3):
        log = lab.log(PARTITION, broker)
        data, last = log.all()
        at = last["base_offset"]
        last.move(1)
        if broker == 2:
            log.drop(last)
            log.append(marker(data, commit, base_offset=at), last)
        ends(log)


def of_another_lineage(lab: Lab, time: int, commit: bool) -> None:
    """Broker 2 has the marker, where the others have what a later leader wrote."""
    three((1, 3))(lab, time, commit)
    for broker in (1, 2, 3):
        log = lab.log(PARTITION, broker)
        data, last = log.all()
        at = last["base_offset"]
        if broker == 2:
            log.drop(last)
            log.append(marker(data, commit, base_offset=at))
        else:
            last.set(leader_epoch=1)
        ends(log)
        if broker != 2:
            (log.folder / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {at}\n")


def read(root: Path, state: str, below: bool, replicas: Replicas) -> tuple[tuple[str, str], str, dict[str, str]]:
    """The verdict, the remedy, and every text; asserts what holds in all cases."""
    audit = forged(root, state, below, replicas)
    (row,) = [row for row in audit.blocked if row["broker_id"] is not None]
    texts = surfaces(audit, root) | {f.kind: f.remedy for f in audit.findings}
    for name, text in texts.items():
        assert not [phrase for phrase in NEVER if phrase in text], name
        assert MOVE not in text or LEAD in text, name
        assert not [phrase for phrase in SAYS[verdict_of(row)][1] if phrase in text], name
    if row["standing"] not in ("waiting", "unknown"):
        assert audit.exit_code() == 1
        for name in COMMANDS:
            missing = [phrase for phrase in SAYS[verdict_of(row)][0] if phrase not in texts[name]]
            assert not missing, (name, missing)
    return verdict_of(row), row["remedy"], texts


@cells
@pytest.mark.parametrize(
    "replicas",
    [three((1, 2, 3)), lagging(2, 3, isr=(1,)), lagging(3, isr=(1, 2))],
    ids=["all in sync", "in sync is only this one", "another lags"],
)
def test_replicas_without_the_marker_change_nothing(
    tmp_path: Path, state: str, below: bool, replicas: Replicas
) -> None:
    verdict, remedy, texts = read(tmp_path, state, below, replicas)
    assert verdict == STATES[state][3 if below else 2]
    assert NO_LEADER not in remedy
    assert LEAD not in "".join(texts.values())


@cells
@pytest.mark.parametrize("leader", [1, -1], ids=["fenced", "none"])
def test_without_a_leader_one_is_brought_back_first(tmp_path: Path, state: str, below: bool, leader: int) -> None:
    isr = (1,) if leader < 0 else (2, 3)
    verdict, remedy, texts = read(tmp_path, state, below, three(isr, leader, fenced=True))
    expected = STATES[state][3 if below else 2]
    waits = {SAFE: ("investigate_first", SAFE[1]), COMMIT: KEEP}
    assert verdict == waits.get(expected, expected)  # nobody takes a marker, nor can be asked
    assert "a broker leads bank.audit-1 (__cluster_metadata)" in remedy or state.startswith("Prepare")
    assert f"irst {NO_LEADER} {' or '.join(map(str, isr))}, in the ISR by the metadata" in remedy
    assert "Do not use an unclean election" in remedy
    at = remedy.index(NO_LEADER)
    assert all(remedy.find(then) < 0 or remedy.index(then) > at for then in (" abort --topic", "elect", MARKER))
    decided = state.startswith("Prepare")  # then nothing about it is normal
    assert ("ends by itself" in texts["page"]) == (STATES[state][4] == "waiting" and not decided)
    assert all(NO_LEADER in texts[name] for name in ("terminal", "page", "markdown") if STATES[state][4] != "waiting")


@cells
def test_a_marker_of_another_replica_is_led_by_it(tmp_path: Path, state: str, below: bool) -> None:
    verdict, remedy, _ = read(tmp_path, state, below, with_marker)
    expected = STATES[state][3 if below else 2]
    if below or "Abort" in state or "ABORT" in state or expected == FIND or state.startswith("PrepareCommit"):
        assert verdict == expected
        return
    assert verdict == ("act", KEEP[1])
    assert MARKER not in remedy
    assert LOOK in remedy
    assert LEAD in remedy
    assert remedy.index(LOOK) < remedy.index(LEAD)
    assert f"{ELECT} preferred --topic bank.audit --partition 1" in remedy


@cells
def test_a_marker_of_another_lineage_makes_no_leader(tmp_path: Path, state: str, below: bool) -> None:
    verdict, remedy, texts = read(tmp_path, state, below, of_another_lineage)
    assert LEAD not in "".join(texts.values())
    if verdict == COMMIT and "stuck" in STATES[state]:
        assert "broker 2 has the marker, but must not lead: its log diverges from offset 6 on" in remedy
        assert MARKER in remedy
    if state == "id unknown" and not below:
        assert verdict == COMMIT
        assert f"producerId 900, producerEpoch {PRODUCER[1]}, " in remedy
    if verdict == SAFE:
        assert below or "Abort" in state or "ABORT" in state


def test_a_replica_that_fell_behind_is_not_said_to_lack_its_marker(tmp_path: Path) -> None:
    """Stopped cleanly, out of sync since, and the leader is not in the input: what came later is not here."""

    def fell_behind(lab: Lab, time: int, commit: bool) -> None:
        three((2, 3), leader=2)(lab, time, commit)
        for broker in (2, 3):
            shutil.rmtree(lab.broker(broker) / PARTITION)
        log = lab.log(PARTITION)
        log.drop(log.last)
        ends(log)

    audit = forged(tmp_path, "CompleteCommit", False, fell_behind)
    (row,) = audit.blocked
    assert (row["standing"], verdict_of(row)) == ("unknown", KEEP)
    assert MARKER not in row["remedy"]
    grave = {f.kind for f in audit.findings if f.severity in ("critical", "error")}
    assert grave <= {"partition-offline"}  # of the other partitions, which the forged controller gives no leader


def test_a_leader_that_lacks_records_is_replaced_only_by_one_in_sync(tmp_path: Path) -> None:
    forged(tmp_path, "CompleteAbort", False, with_marker)
    lab_time = opened(tmp_path).as_of
    for isr, says in (
        ((1, 2, 3), LEAD),
        ((1, 3), "broker 2 has them, but must not lead: it is not in the ISR (1 or 3)"),
    ):
        controller = Controller(tmp_path / "broker-1", lab_time)
        controller.partition(PARTITION, isr=isr, replicas=(1, 2, 3))
        controller.save()
        findings = opened(tmp_path, as_of=lab_time + MINUTE).findings
        (found,) = [f for f in findings if f.kind == "replica-missing-range" and f.topic == "bank.audit"]
        assert says in found.remedy
        assert "opy the directory bank.audit-1 of broker 2 to a safe place" in found.remedy
        assert (MOVE in found.remedy) == (says == LEAD)
