"""Text dumps of real brokers: what their tools print is enough to find what hangs, and raises no false alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published

TRUTH = corpora.manifest("text-dumps")["truth"]


@pytest.mark.parametrize("as_of", [0, None], ids=["no clock", "newest time"])
@pytest.mark.parametrize("source", sorted(TRUTH))
def test_text_gives_the_expected_findings_and_no_other(source: str, as_of: int | None, tmp_path: Path) -> None:
    folder = corpora.ROOT / "text-dumps" / "texts" / source
    done = published(AuditOptions((str(folder),), tmp_path, records=True, as_of=as_of))
    found = {
        (f.kind, f.topic, f.partition, f.producer_id, f.offset, f.last_offset, f.transactional_id)
        for f in done.findings
        if f.severity != "info"
    }
    expected = {
        ("hanging-transaction", e["topic"], e["partition"], e["producerId"], e["firstOffset"], e["lastOffset"],
         e["transactionalId"])
        for e in TRUTH[source]["expect"]
    }  # fmt: skip
    assert found == expected
    entries = sum(log.count for c in done.clusters.values() if c.coordinator for log in c.coordinator.logs.values())
    assert entries == TRUTH[source]["values_in_transaction_state"]


def test_what_text_cannot_show_is_said(tmp_path: Path) -> None:
    folder = corpora.ROOT / "text-dumps" / "texts" / "healthy-28"
    done = published(AuditOptions((str(folder),), tmp_path))
    notes = " ".join(note for row in done.judged["log"] for note in row["notes"])
    assert "failed with an exception" in notes
    assert "base_timestamp" in notes
