"""A remedy has a broker stopped only where nobody who lacks what it has can be elected meanwhile.

By what the metadata says of *any* partition of that broker, not of the one alone that the finding is about.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.advice import Advice
from tests.controller_records import Controller
from tests.forge import Lab, Producer

Spoil = Callable[[Lab], str]
OTHER, ABOUT = "bank.ledger-2", "bank.audit-1"
ENTRY = struct.Struct(">hqqqq")  # of a .txnindex: version, producer id, first and last offset, last stable offset

# Replicas and those in sync of another partition of the broker, and whether it may be stopped.
STATES = {
    "no other replica": ((1,), (1,), True),
    "another in sync": ((1, 2), (1, 2), True),
    "others, none in sync": ((1, 2), (1,), False),
    "another leads alone": ((1, 2), (2,), True),
}


def spoiled_index(lab: Lab) -> str:
    """An entry of an aborted transaction that the log does not have; the rule that says so."""
    log = lab.log(ABOUT)
    log.file(min(log.segments), "txnindex").write_bytes(ENTRY.pack(0, 1, 0, 1, 2))
    return "aborted-index-extra-entry"


def spoiled_snapshot(lab: Lab) -> str:
    """The newest of two snapshots remembers another sequence."""
    log = lab.log(ABOUT)
    ((offset, known),) = log.snapshots.items()
    middle = log.all()[len(log.all()) // 2]["base_offset"]
    log.snapshots = {middle: [], offset: [_other(known[0]), *known[1:]]}
    log.save()
    return "snapshot-replay-mismatch"


def _other(known: Producer) -> Producer:
    return known._replace(sequence=known.sequence + 7)


def advice(lab: Lab, rule: str) -> Advice:
    found = [f.advice for f in lab.findings() if f.kind == rule and f.advice is not None]
    assert found
    return found[-1]


@pytest.mark.parametrize("spoil", [spoiled_index, spoiled_snapshot])
@pytest.mark.parametrize("state", STATES)
def test_a_broker_is_stopped_only_where_nothing_can_be_lost(tmp_path: Path, state: str, spoil: Spoil) -> None:
    replicas, in_sync, may = STATES[state]
    lab = Lab(tmp_path, "hanging-36", ABOUT, OTHER)
    controller = Controller(lab.broker(), lab.as_of)
    controller.partition(OTHER, isr=in_sync, replicas=replicas, leader=in_sync[0])
    controller.save()
    said = advice(lab, spoil(lab))
    stops = [act.command for act in said.act if act.command.startswith("stop broker 1")]
    assert bool(stops) == may
    assert said.verdict == ("act" if may else "look")
    assert any("--under-replicated-partitions" in look.command for look in said.look)
    (asked,) = [c for c in said.conditions if c.what.startswith("where broker 1 has a partition in sync")]
    assert asked.holds == may
    assert (OTHER in asked.by) == (not may)


@pytest.mark.parametrize("spoil", [spoiled_index, spoiled_snapshot])
def test_without_the_metadata_nobody_knows(tmp_path: Path, spoil: Spoil) -> None:
    """What would be done stands behind the condition, in words."""
    lab = Lab(tmp_path, "hanging-36", ABOUT)
    lab.without_metadata()
    said = advice(lab, spoil(lab))
    assert not said.act
    assert said.verdict == "look"
    assert [c.holds for c in said.conditions if c.what.startswith("where broker 1")] == [None]
    assert said.then.startswith("only once that is so: stop broker 1")
