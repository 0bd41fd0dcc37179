"""metrics.prom: what Prometheus reads back from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.dashboards.metrics import write_metrics
from tests import corpora
from tests.unit import report_samples as samples

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(path: Path) -> Series:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


@pytest.fixture
def series(tmp_path: Path) -> Series:
    findings, summary, _, _ = samples.hanging()
    write_metrics(tmp_path / "metrics.prom", findings, summary)
    return read(tmp_path / "metrics.prom")


def test_values(series: Series) -> None:
    truth = corpora.manifest("hanging-36")
    rule = (("rule", "hanging-transaction"), ("severity", "critical"))
    assert series["kafka_audit_findings", rule] == len(truth["expect"])
    assert series["kafka_audit_findings_by_severity", (("severity", "error"),)] == 0
    assert series["kafka_audit_open_transactions", (("class", "hanging"),)] == 4
    assert series["kafka_audit_open_transactions", (("class", "orphan"),)] == 0
    assert sum(v for (name, _), v in series.items() if name == "kafka_audit_bytes") == truth["files"]["bytes"]
    assert series["kafka_audit_last_run_timestamp_seconds", ()] == truth["copied_at"] / 1000
    assert series["kafka_audit_info", (("policy", "kip-890"), ("version", "0.1.0"))] == 1


def test_labels_are_bounded(tmp_path: Path) -> None:
    findings = [
        samples.finding(rule="sequence-gap", topic=f"t{n}", partition=0, producer_id=n, transactional_id=f"x{n}")
        for n in range(1000)
    ]
    write_metrics(tmp_path / "m.prom", findings, samples.empty_summary())
    found = read(tmp_path / "m.prom")
    assert len(found) < 35
    assert found["kafka_audit_findings", (("rule", "sequence-gap"), ("severity", "error"))] == 1000
    assert {label for _, labels in found for label, _ in labels} == {
        "rule", "severity", "class", "standing", "state", "version", "policy",
    }  # fmt: skip


def test_classes_of_the_summary_go_first(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m.prom", [], samples.empty_summary(open_transactions={"active": 3}))
    assert read(tmp_path / "m.prom")["kafka_audit_open_transactions", (("class", "active"),)] == 3


def test_same_input_same_bytes_and_nothing_left_beside_it(tmp_path: Path) -> None:
    for name in ("a.prom", "b.prom"):
        write_metrics(tmp_path / name, *samples.hostile()[:2])
    assert (tmp_path / "a.prom").read_bytes() == (tmp_path / "b.prom").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.prom", "b.prom"]
    assert read(tmp_path / "a.prom")


def test_a_run_without_a_time_has_no_time(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m.prom", [], samples.empty_summary(as_of=None))
    assert "last_run" not in (tmp_path / "m.prom").read_text(encoding="utf-8")
