"""``auditor what-if`` from the input to what it writes, on Spark as in processes of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from auditor import running
from auditor.outputs.publish import publish_what_if
from auditor.pipeline import what_if_audit
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.what_if_verdicts import VERDICTS
from tests import corpora

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def what_if(out: Path, spark: SparkSession | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The result, and the files that say it."""
    path = (str(corpora.unpack("unknown-producer-23")),)
    options = AuditOptions(path, out, fail_on="never", master="inline[1]")
    with running.runner(options, spark) as runner:
        done = WhatIfAudit(options, runner, ("kip-360", "latest-batch-only"))
        running.write_by(done, publish_what_if)
        assert done.exit_code() == 0
        return done.result, {name: (out / name).read_bytes() for name in ("what-if.json", "findings.jsonl")}


def test_the_results_are_written(tmp_path: Path) -> None:
    result, written = what_if(tmp_path)
    assert [(p["policy"], p["runs"]) for p in result["policies"]] == [
        ("kip-360", 1),
        ("latest-batch-only", 1),
        ("pre-kip-360", 0),
    ]
    assert json.loads(written["what-if.json"]) == result
    findings = [json.loads(line) for line in written["findings.jsonl"].splitlines()]
    refused = ("what-if-rejection", "iot.events", 50)
    assert [(f["kind"], f["topic"], f["offset"]) for f in findings] == [
        ("producer-state-memory", None, None), refused, refused,
    ]  # fmt: skip
    table = pq.read_table(tmp_path / "tables" / "verdicts")
    assert table.schema.equals(VERDICTS)
    assert table.select(["policy", "error", "base_offset"]).to_pylist() == [
        {"policy": "kip-360", "error": "OUT_OF_ORDER_SEQUENCE_NUMBER", "base_offset": 50},
        {"policy": "latest-batch-only", "error": "DUPLICATE_SEQUENCE_NUMBER", "base_offset": 50},
    ]


def test_spark_writes_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where replicas have to be read once more, since their clocks run ahead."""
    _, written = what_if(tmp_path / "inline")
    monkeypatch.setattr(what_if_audit, "AHEAD_MS", -(1 << 60))  # as if every clock did
    assert what_if(tmp_path / "spark", spark)[1] == written
    verdicts = [pq.read_table(tmp_path / name / "tables" / "verdicts").to_pylist() for name in ("spark", "inline")]
    assert sorted(verdicts[0], key=repr) == sorted(verdicts[1], key=repr)
