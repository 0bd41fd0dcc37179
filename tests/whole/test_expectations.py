"""The whole of ``--expectations`` on real directories, what is counted by DuckDB; tests/spark has it by Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.outputs import runs
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.audited import published


def failing(result: Audit) -> set[tuple[str, str]]:
    judged = pq.read_table(result.options.out / "tables" / "expectations").to_pylist()
    return {(row["suite"], row["column"]) for row in judged if not row["success"]}


def test_a_healthy_directory_meets_every_expectation_and_an_altered_one_does_not(tmp_path: Path) -> None:
    found = {}
    for name in ("healthy-41", "altered-41"):
        options = AuditOptions(
            (str(corpora.unpack(name)),), tmp_path / name, records=True, tables=name == "healthy-41",
            expectations=True, as_of=corpora.manifest(name)["copied_at"], history=tmp_path / "history", run_id=name,
        )  # fmt: skip
        found[name] = published(options)
        said = json.loads((tmp_path / name / "summary.json").read_text())["expectations"]
        judged = pq.read_table(tmp_path / name / "tables" / "expectations")
        assert said["failed"] == sum(not row["success"] for row in judged.to_pylist())
        assert not (tmp_path / name / "data_docs").exists()
        assert judged.num_rows == said["evaluated"]
        (run,) = [run for run in runs.committed(tmp_path / "history") if run.run_id == name]
        assert runs.read(tmp_path / "history", run, "expectations") == judged
    assert failing(found["healthy-41"]) == set()
    assert {("findings", "severity"), ("logs_judged", "bytes_error")} <= failing(found["altered-41"])


def test_drift_is_judged_against_the_run_before(tmp_path: Path) -> None:
    options = AuditOptions(
        (str(corpora.unpack("healthy-28")),), tmp_path / "out", expectations=True, history=tmp_path / "history"
    )
    first = published(options)
    assert ("logs_judged", "batches_ratio") not in failing(first)
    (kept,) = runs.committed(tmp_path / "history")
    then = runs.read(tmp_path / "history", kept, "logs")
    at = then.schema.get_field_index("batches")
    thrice = pa.array([3 * max(100, n) for n in then["batches"].to_pylist()], pa.int64())
    runs.publish(tmp_path / "history", kept.run_id, {"logs": then.set_column(at, "batches", thrice)}, kept.facts)
    assert ("logs_judged", "batches_ratio") in failing(published(options))


def test_dumps_of_a_healthy_cluster_meet_every_expectation(tmp_path: Path) -> None:
    """Kafka's tools print less than the files hold, so that the tables of dumps do not add up."""
    folder = corpora.ROOT / "text-dumps" / "texts" / "healthy-41"
    assert not failing(published(AuditOptions((str(folder),), tmp_path, tables=True, expectations=True)))
