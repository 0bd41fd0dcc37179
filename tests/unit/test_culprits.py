"""KIP-467 whole: every record to blame is named by its position, and what would remain of its batch without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.outputs.publish import publish
from auditor.rules.seen.view import Finding
from tests.facts import opened
from tests.forge import TRANSACTIONAL, Batch, Forged, Lab

DAY_MS = 86_400_000
COMPACTED = ("altered-41", "bay.keyed-0")
PLAIN = ("altered-41", "bay.case-0")


def of_rule(found: list[Finding], rule: str, batch: Batch) -> dict[str, Any]:
    """What a finding says of the culprits of one batch."""
    mine = [f for f in found if f.kind == rule and f.offset == batch["base_offset"]]
    assert len(mine) == 1
    assert [row["base_offset"] for row in mine[0].evidence["culprits"]] == [batch["base_offset"]]
    row: dict[str, Any] = mine[0].evidence["culprits"][0]
    return row


def many(log: Forged) -> Batch:
    """A data batch of at least six records."""
    return next(b for b in log.data() if b["count"] >= 6 and b["magic"] == 2 and b["sequence"] >= 0)


def left(batch: Batch, culprits: int) -> dict[str, int]:
    records = batch["count"] - culprits
    return {"records": records, "last_offset_delta": records - 1, "base_sequence": batch["sequence"],
            "last_sequence": batch["sequence"] + records - 1}  # fmt: skip


def stamped(batch: Batch, by: dict[int, int]) -> None:
    """Moves the stamps of some records, by their positions, and the header's largest to fit."""
    records = batch.records()
    for index, ms in by.items():
        records[index]["time"] += ms
    batch.refill(*records)
    batch.set(max_time=batch["base_time"] + max(r["time"] for r in records))


def test_every_record_stamped_ahead_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, *PLAIN)
    log = lab.log(PLAIN[1])
    batch = many(log)
    stamped(batch, {1: DAY_MS, 4: 2 * DAY_MS})
    log.save()
    row = of_rule(lab.findings(), "timestamp-out-of-range", batch)
    assert row["error_records"] == [1, 4]
    assert row["remaining"] == left(batch, 2)


def test_every_record_stamped_before_all_times_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path, *PLAIN)
    log = lab.log(PLAIN[1])
    batch = many(log)
    stamped(batch, {2: -batch["base_time"] - 500 - batch.records()[2]["time"], 5: -batch["base_time"] - 2 * DAY_MS})
    log.save()
    row = of_rule(lab.findings(), "timestamp-out-of-range", batch)
    assert row["error_records"] == [2, 5]
    assert row["remaining"] == left(batch, 2)


@pytest.mark.parametrize("without", [{0, 3}, "all"])
def test_every_record_without_key_is_named(tmp_path: Path, without: Any) -> None:
    lab = Lab(tmp_path, *COMPACTED)
    log = lab.log(COMPACTED[1])
    log.cut(50)  # a batch without a key is there already
    batch = max(log.data(), key=lambda b: b["count"])
    wanted = set(range(batch["count"])) if without == "all" else without
    batch.refill(*({**r, "key": None} if k in wanted else r for k, r in enumerate(batch.records())))
    log.save()
    row = of_rule(lab.findings(), "null-key-in-compacted-topic", batch)
    assert row["error_records"] == sorted(wanted)
    assert row["records"] == batch["count"]
    assert row["remaining"]["records"] == batch["count"] - len(wanted)


def test_the_counters_of_the_kip(tmp_path: Path) -> None:
    """Two records without key, a batch whose checksum is wrong, one of which fewer records are there than declared."""
    lab = Lab(tmp_path / "in", *COMPACTED)
    log = lab.log(COMPACTED[1])
    log.cut(50)  # a batch without a key is there already
    first, second, third = sorted(log.data(), key=lambda b: -b["count"])[:3]
    first.refill(*({**r, "key": None} if k in (0, 3) else r for k, r in enumerate(first.records())))
    second.set(count=second["count"] + 1)
    third.set(crc=third["crc"] ^ 1)
    log.save()
    for records in (True, False):
        audit = opened(lab.root, records=records, as_of=lab.as_of)
        out = tmp_path / f"out-{records}"
        out.mkdir()
        publish(audit, out)
        assert json.loads((out / "summary.json").read_text())["validation_failures"] == {
            "NoKeyCompactedTopicRecordsPerSec": 2 if records else None,
            "InvalidMagicNumberRecordsPerSec": 0 if records else None,
            "InvalidMessageCrcRecordsPerSec": 1,
            "InvalidOffsetOrSequenceRecordsPerSec": 1,
        }
    families = text_string_to_metric_families((tmp_path / "out-True" / "metrics.prom").read_text())
    samples = [s for f in families for s in f.samples if s.name == "kafka_audit_validation_failures"]
    assert {s.labels["counter"]: s.value for s in samples} == {
        "NoKeyCompactedTopicRecordsPerSec": 2, "InvalidMagicNumberRecordsPerSec": 0,
        "InvalidMessageCrcRecordsPerSec": 1, "InvalidOffsetOrSequenceRecordsPerSec": 1,
    }  # fmt: skip


def test_findings_name_one_counter_for_a_refused_batch(tmp_path: Path) -> None:
    """LogValidator does not look at a transactional bit without producer id: what is refused is the null key."""
    lab = Lab(tmp_path, *COMPACTED)
    log = lab.log(COMPACTED[1])
    log.cut(50)  # a batch without a key is there already
    batch = max(log.data(), key=lambda b: b["count"])
    batch.refill(*({**r, "key": None} if k == 1 else r for k, r in enumerate(batch.records())))
    batch.set(producer_id=-1, epoch=-1, sequence=-1, attributes=batch["attributes"] | TRANSACTIONAL)
    log.save()
    here = [f for f in lab.findings() if f.offset == batch["base_offset"]]
    assert {"null-key-in-compacted-topic", "producer-fields-inconsistent"} <= {f.kind for f in here}
    metrics = {f.evidence["metric"].rpartition("=")[2] for f in here if f.evidence.get("metric")}
    assert metrics == {"NoKeyCompactedTopicRecordsPerSec"}
