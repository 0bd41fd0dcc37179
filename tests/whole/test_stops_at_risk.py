"""A real cluster whose remedy once made a transaction hang: the stopped broker had partitions of one replica."""

from __future__ import annotations

from pathlib import Path

from auditor.base.advice import text
from tests import corpora
from tests.facts import opened

CORPUS = "mended-then-hangs-43"


def test_the_remedy_names_what_its_stop_puts_at_risk(tmp_path: Path) -> None:
    """A batch of two-0 is damaged again on broker 1. By the manifest re-c had data in leg-1, which is on broker 1 alone
    (hang-0 is, too), and it hung there, since it ended while broker 1 was stopped."""
    root = corpora.copy(CORPUS, tmp_path / "copy")
    log = root / "broker-1" / "two-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    audit = opened(root, as_of=corpora.manifest(CORPUS)["copied_at"])
    (found,) = (f for f in audit.findings if f.kind == "batch-crc-mismatch")
    assert found.advice is not None
    said = text(found.advice.row())
    assert "2 partitions without another in-sync replica have no leader: " in said
    assert {"leg-1", "hang-0"} == {*said.partition("have no leader: ")[2].partition(";")[0].split(", ")}
    first, second, *rest = [step.do or step.command for step in found.advice.steps]
    ids = first.partition("end the transactions of ")[2].partition(", then stop")[0].split(", ")
    assert {"re-c", "h-a"} <= {*ids} <= {*corpora.manifest(CORPUS)["transaction_state_last_values"]}
    assert ", then stop their producers. " in first
    assert second.endswith("only when these commands show each id as Empty, CompleteCommit or CompleteAbort")
    assert f"kafka-transactions.sh --bootstrap-server B describe --transactional-id {ids[0]}" in rest
    assert rest[-1].startswith("stop broker 1, move two-0 away")
    assert found.advice.afterwards.startswith("Audit again after the start in any case")
