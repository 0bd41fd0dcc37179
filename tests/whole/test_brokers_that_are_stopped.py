"""A remedy has a broker stopped only where nobody who lacks what it has can be elected meanwhile.

By what the metadata says of *any* partition of that broker, not of the one alone that the finding is about.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.advice import Advice
from auditor.base.advice import text as advice_text
from tests.controller_records import Controller
from tests.forge import Lab, Producer

Spoil = Callable[[Lab], str]
OTHER, ABOUT = "bank.ledger-2", "bank.audit-1"
ENTRY = struct.Struct(">hqqqq")  # of a .txnindex: version, producer id, first and last offset, last stable offset

TOPIC, MINIMUM = OTHER.rpartition("-")[0], "min.insync.replicas"


def other(
    isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3), eligible: tuple[int, ...] = (), up: bool = True
) -> Callable[[Controller], None]:
    """Another partition of the broker: its replicas, those in sync, and those eligible to lead; ``up``: the others."""

    def tell(controller: Controller) -> None:
        for broker in (2, 3) if up else ():
            controller.register(broker)
        controller.partition(OTHER, isr=isr, replicas=replicas, leader=isr[0], eligible=eligible)

    return tell


def config(name: str, value: str) -> Callable[[Controller], None]:
    return lambda controller: controller.topic_setting(TOPIC, name, value)


def voters(*numbers: int) -> Callable[[Controller], None]:
    return lambda controller: controller.voters(*numbers)


# What the controller says, and what the advice comes to: whether broker 1 may be stopped, and what it has to say.
UNCLEAN = config("unclean.leader.election.enable", "true")
CLEAN = config("unclean.leader.election.enable", "false")
ASK = "investigate_first"
STATES = {
    "no other replica": ([other((1,), (1,))], "act", ""),
    "another in sync": ([other((1, 2))], "act", ""),
    "others, none in sync": ([other((1,))], ASK, "no replica that lacks records can be elected"),
    "others, none in sync, unclean": ([other((1,)), UNCLEAN], ASK, "enable=true for bank.ledger-2"),
    "others, none in sync, clean": ([other((1,)), CLEAN], ASK, "no replica that lacks records can be elected"),
    "another leads alone": ([other((2,))], "act", ""),
    "another is eligible": ([other((1,), eligible=(2,))], "act", ""),
    "another is eligible and down": ([other((1,), eligible=(2,), up=False)], ASK, "to lead (bank.ledger-2)"),
    "too few for acks=all": (
        [other((1, 2)), config(MINIMUM, "2")], "act", "writes with acks=all to bank.ledger-2 fail",
    ),
    "enough for acks=all": ([other((1, 2, 3)), config(MINIMUM, "2")], "act", ""),
    "the only voter": ([voters(1)], "act", ""),
    "one of three voters": ([voters(1, 2, 3)], "act", "a majority of the voters 2, 3 has a Lag near 0"),
    "one of two voters": ([voters(1, 2)], ASK, "Ruled out: a majority of the quorum's voters remains"),
    "no voter": ([voters(4, 5)], "act", ""),
}  # fmt: skip


def spoiled_index(lab: Lab) -> str:
    """An entry of an aborted transaction that the log does not have; the rule that says so."""
    log = lab.log(ABOUT)
    log.file(min(log.segments), "txnindex").write_bytes(ENTRY.pack(0, 1, 0, 1, 2))
    return "aborted-index-extra-entry"


def spoiled_snapshot(lab: Lab) -> str:
    """The newest of two snapshots has a transaction open that was ended; the rule that says so."""
    log = lab.log(ABOUT)
    ((offset, known),) = log.snapshots.items()
    middle = log.all()[len(log.all()) // 2]["base_offset"]
    log.snapshots = {middle: [], offset: [_other(known[0]), *known[1:]]}
    log.save()
    return "snapshot-replay-mismatch"


def _other(known: Producer) -> Producer:
    return known._replace(txn_first_offset=known.offset)


def advice(lab: Lab, rule: str) -> Advice:
    found = [f.advice for f in lab.findings() if f.kind == rule and f.advice is not None]
    assert found
    return found[-1]


@pytest.mark.parametrize("spoil", [spoiled_index, spoiled_snapshot])
@pytest.mark.parametrize("state", STATES)
def test_a_broker_is_stopped_only_where_nothing_can_be_lost(tmp_path: Path, state: str, spoil: Spoil) -> None:
    steps, verdict, says = STATES[state]
    lab = Lab(tmp_path, "hanging-36", ABOUT, OTHER)
    controller = Controller(lab.broker(), lab.as_of)
    for step in steps:
        step(controller)
    controller.save()
    said = advice(lab, spoil(lab))
    text = advice_text(said.row())
    assert said.verdict == verdict
    assert [step.do for step in said.steps if step.do.startswith("stop broker 1")]
    assert said.acts == (verdict == "act")
    later = text.partition("Take these steps only after all conditions are confirmed. ")[2]
    assert ("Stop broker 1, move" in later) == (verdict != "act")
    assert ("KAFKA-20734" in text) == ("without another in-sync replica have no leader" in text)
    alone = "no partition of broker 1 is without another in-sync replica" in text
    assert alone != ("without another in-sync replica have no leader" in text)
    assert any("--under-replicated-partitions" in look.command for look in said.checks)
    assert says in text
    assert ("acks=all to" in text) == ("acks=all to" in says)
    assert ("quorum" in text) == ("voters" in says)


@pytest.mark.parametrize("spoil", [spoiled_index, spoiled_snapshot])
def test_without_the_metadata_nobody_knows(tmp_path: Path, spoil: Spoil) -> None:
    """What would be done stands behind the condition, in words."""
    lab = Lab(tmp_path, "hanging-36", ABOUT)
    lab.without_metadata()
    said = advice(lab, spoil(lab))
    assert not said.acts
    assert said.verdict == ASK
    assert [c.holds for c in said.conditions if "every replicated partition of broker 1" in c.what] == [None]
    assert any("stop broker 1, move" in step.do for step in said.steps)
    assert "the input does not show the partitions of broker 1 without another in-sync replica" in said.side_effects
    assert "KAFKA-20734" in said.steps[0].do


@pytest.mark.parametrize("byte", [25, 50, 70, -1])
def test_damaged_metadata_shows_of_nobody_that_he_is_in_sync(tmp_path: Path, byte: int) -> None:
    """What its damaged batch said may have changed who is in sync: what was to be done stands behind the condition."""
    lab = Lab(tmp_path, "hanging-36", ABOUT, OTHER)
    controller = Controller(lab.broker(), lab.as_of)
    other((1, 2))(controller)
    controller.save()
    rule = spoiled_index(lab)
    assert advice(lab, rule).acts
    metadata = lab.log("__cluster_metadata-0")
    last = metadata.last
    name, position = metadata.place(last)
    path = lab.broker() / name
    data = bytearray(path.read_bytes())
    data[position + byte % len(last.data)] ^= 1
    path.write_bytes(data)
    said = advice(lab, rule)
    assert (said.verdict, said.acts) == (ASK, False)
