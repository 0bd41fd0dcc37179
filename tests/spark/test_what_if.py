"""``auditor what-if`` on Spark, from the input to what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.outputs.publish import publish_what_if
from auditor.pipeline import what_if_plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.verdicts import VERDICTS
from auditor.pipeline.what_if_audit import WhatIfAudit
from tests import corpora


def what_if(options: AuditOptions, spark: Any) -> tuple[dict[str, Any], int]:
    with running.runner(options, spark) as runner:
        done = WhatIfAudit(options, runner, ("kip-360", "latest-batch-only"))
        running.write(done, publish_what_if)
        return done.result, done.exit_code()


def test_the_results_are_written_and_repeatable(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = AuditOptions((str(corpora.unpack("unknown-producer-23")),), tmp_path / "out", fail_on="never")
    result, status = what_if(options, spark)
    assert status == 0
    assert [(p["policy"], p["runs"]) for p in result["policies"]] == [
        ("kip-360", 1),
        ("latest-batch-only", 1),
        ("pre-kip-360", 0),
    ]
    written = {path: (options.out / path).read_bytes() for path in ("what-if.json", "findings.jsonl")}
    assert json.loads(written["what-if.json"]) == result
    findings = [json.loads(line) for line in written["findings.jsonl"].splitlines()]
    refused = ("what-if-rejection", "iot.events", 50)
    assert [(f["rule"], f["topic"], f["offset"]) for f in findings] == [
        ("producer-state-memory", None, None), refused, refused,
    ]  # fmt: skip
    table = pq.read_table(options.out / "tables" / "verdicts")
    assert table.schema.equals(VERDICTS)
    assert table.select(["policy", "error", "base_offset"]).to_pylist() == [
        {"policy": "kip-360", "error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "base_offset": 50},
        {"policy": "latest-batch-only", "error": "DUPLICATE_SEQUENCE_NUMBER", "base_offset": 50},
    ]
    monkeypatch.setattr(what_if_plan, "AHEAD_MS", -(1 << 60))  # as if every copy had a clock that runs ahead
    what_if(options, spark)
    assert {path: (options.out / path).read_bytes() for path in written} == written
