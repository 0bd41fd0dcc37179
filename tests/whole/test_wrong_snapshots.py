"""A producer snapshot that is not what the log gives: what is done about it goes by who leads and who is in sync."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.base.advice import Advice
from tests.forge import Lab
from tests.whole.test_safety_of_replicas import PARTITION, three

ALL, ALONE = (1, 2, 3), (1,)
SEQUENCE, OPEN = "sequence", "txn_first_offset"


def wrong(root: Path, isr: tuple[int, ...], leader: int, field: str, *, newer: bool = False) -> Advice:
    """Broker 1's newest snapshot of a partition remembers another value, or the one before it (``newer``)."""
    lab = Lab(root, "hanging-36", PARTITION)
    log = lab.log(PARTITION)
    ((end, known),) = log.snapshots.items()
    middle = log.all()[len(log.all()) // 2]["base_offset"]
    log.snapshots = {middle: [], end: known}
    if newer:
        log.next(log.last.copy(), producer_id=-1, epoch=-1, sequence=-1, attributes=0)
        log.snapshots[log.end] = known
    log.save()
    three(isr, leader)(lab, lab.as_of, False)
    log = lab.log(PARTITION)
    other = known[0]._replace(**{field: known[0].sequence + 7 if field == SEQUENCE else known[0].offset})
    log.snapshots[end] = [other, *known[1:]]
    log.save()
    found = [f for f in lab.findings() if f.kind == "snapshot-replay-mismatch" and f.severity != "info"]
    assert {f.broker_id for f in found} == {1}
    assert found[0].advice is not None
    return found[0].advice


@pytest.mark.parametrize(("isr", "leader", "field", "verdict", "says"), [
    (ALL, 1, SEQUENCE, "act", "make broker 2 the leader"),
    (ALL, 1, OPEN, "act", "make broker 2 the leader"),
    (ALONE, 1, SEQUENCE, "none", "continues with a new epoch"),
    (ALONE, 1, OPEN, "investigate_first", "if brokers run 4.3.0"),  # others wait to be elected
    (ALL, 2, SEQUENCE, "wait", "Do not make it the leader"),
    (ALL, 2, OPEN, "act", "stop broker 1, move"),
])  # fmt: skip
def test_who_leads_and_who_is_in_sync_decides(
    tmp_path: Path, isr: tuple[int, ...], leader: int, field: str, verdict: str, says: str
) -> None:
    advice = wrong(tmp_path, isr, leader, field)
    words = " ".join((advice.why, *(step.do or step.command for step in advice.steps), advice.afterwards))
    assert advice.verdict == verdict
    assert says in words
    assert ("stop broker 1" in words) == ((field == OPEN and leader != 1) or verdict == "investigate_first")
    assert ".kafka_cleanshutdown" not in words
    stops = advice.acts and any("stop broker" in step.do for step in advice.steps)
    assert stops == (verdict == "act" and field == OPEN and leader != 1)


def test_one_that_no_start_reads_is_left_alone(tmp_path: Path) -> None:
    advice = wrong(tmp_path, ALL, 1, SEQUENCE, newer=True)
    assert (advice.verdict, advice.steps) == ("wait", ())
    assert "which is newer" in advice.why
