"""metrics.prom: what Prometheus reads back from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from auditor.dashboards.answers import report_of
from auditor.dashboards.metrics import WORST, write_metrics
from auditor.outputs.publish import run_report
from tests import corpora
from tests.facts import opened
from tests.unit import report_samples as samples

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(path: Path) -> Series:
    families = text_string_to_metric_families(path.read_text(encoding="utf-8"))
    named = [(s.name, {k: v for k, v in s.labels.items() if k != "cluster"}, s) for f in families for s in f.samples]
    assert all("cluster" in s.labels for *_, s in named)
    return {(name, tuple(sorted(labels.items()))): s.value for name, labels, s in named}


@pytest.fixture
def series(tmp_path: Path) -> Series:
    findings, summary, _, _ = samples.hanging()
    write_metrics(tmp_path / "metrics.prom", report_of(findings, summary))
    return read(tmp_path / "metrics.prom")


def test_values(series: Series) -> None:
    truth = corpora.manifest("hanging-36")
    rule = (("kind", "hanging-transaction"), ("rule", "hanging-transaction"), ("severity", "critical"))
    assert series["kafka_audit_findings", rule] == len(truth["expect"])
    assert series["kafka_audit_findings_by_severity", (("severity", "error"),)] == 0
    assert series["kafka_audit_open_transactions", (("class", "hanging"),)] == 4
    assert series["kafka_audit_open_transactions", (("class", "orphan"),)] == 0
    assert sum(v for (name, _), v in series.items() if name == "kafka_audit_bytes") == truth["files"]["bytes"]
    assert series["kafka_audit_as_of_timestamp_seconds", ()] == truth["copied_at"] / 1000
    assert series["kafka_audit_info", (("policy", "kip-890"), ("version", "0.1.0"))] == 1


def test_labels_are_bounded(tmp_path: Path) -> None:
    findings = [
        samples.finding(rule="sequence-gap", topic=f"t{n}", partition=0, producer_id=n, transactional_id=f"x{n}")
        for n in range(1000)
    ]
    write_metrics(tmp_path / "m.prom", report_of(findings, samples.empty_summary()))
    found = read(tmp_path / "m.prom")
    assert len(found) < 45
    assert (
        found["kafka_audit_findings", (("kind", "sequence-gap"), ("rule", "sequence-gap"), ("severity", "error"))]
        == 1000
    )
    assert {label for _, labels in found for label, _ in labels} == {
        "rule", "kind", "severity", "outcome", "class", "standing", "state", "version", "policy",
    }  # fmt: skip


def test_the_lag_of_each_held_partition_is_the_brokers(tmp_path: Path) -> None:
    truth = corpora.manifest("hanging-36")
    audit = opened(corpora.unpack("hanging-36"), as_of=truth["copied_at"])
    write_metrics(tmp_path / "m.prom", report_of([f.to_dict() for f in audit.findings], run_report(audit).summary))
    series = read(tmp_path / "m.prom")
    for row in truth["expect"]:
        live = truth["live"][f"{row['topic']}-{row['partition']}"]
        place = {"topic": row["topic"], "partition": str(row["partition"]), "broker": "1", "standing": "stuck"}
        lag = series["kafka_audit_lso_lag_offsets", tuple(sorted(place.items()))]
        assert lag == live["highWatermark"] - live["lastStableOffset"]


def test_the_worst_partitions_have_a_series_each_and_the_others_are_summed(tmp_path: Path) -> None:
    blocked = [
        {"topic": "t", "partition": n, "broker_id": 1, "log_dir": "b1", "producer_id": 7, "producer_epoch": 0,
         "first_offset": 10, "last_offset": 19, "last_stable_offset": 10, "high_watermark": 110, "class": "hanging",
         "standing": "stuck", "others": 0, "age_ms": 1000 * n, "advice": None}
        for n in range(1000)
    ]  # fmt: skip
    inputs = [{"log_dir": "b1", "cluster_id": "c1"}]
    write_metrics(tmp_path / "m.prom", report_of([], samples.empty_summary(blocked=blocked, inputs=inputs)))
    found = read(tmp_path / "m.prom")
    lags = {labels: value for (name, labels), value in found.items() if name == "kafka_audit_lso_lag_offsets"}
    assert len(lags) == WORST + 1
    others = (("broker", ""), ("partition", ""), ("standing", "stuck"), ("topic", "(others)"))
    assert lags[others] == (1000 - WORST) * 100
    assert sum(lags.values()) == 1000 * 100
    assert found["kafka_audit_holder_age_seconds", others] == 1000 - WORST - 1
    oldest = (("broker", "1"), ("partition", "999"), ("standing", "stuck"), ("topic", "t"))
    assert found["kafka_audit_holder_age_seconds", oldest] == 999
    assert 'cluster="c1"' in (tmp_path / "m.prom").read_text(encoding="utf-8")


def test_the_runs_own_time_is_not_the_time_it_judges_by(tmp_path: Path) -> None:
    ran = {"began": "1970-01-01T01:00:00.000Z", "seconds": 12.5}
    write_metrics(tmp_path / "m.prom", report_of([], samples.empty_summary(as_of="1970-01-01T00:00:07.000Z", ran=ran)))
    found = read(tmp_path / "m.prom")
    assert found["kafka_audit_as_of_timestamp_seconds", ()] == 7
    assert found["kafka_audit_run_timestamp_seconds", ()] == 3600
    assert found["kafka_audit_run_duration_seconds", ()] == 12.5


def test_classes_of_the_summary_go_first(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m.prom", report_of([], samples.empty_summary(open_transactions={"active": 3})))
    assert read(tmp_path / "m.prom")["kafka_audit_open_transactions", (("class", "active"),)] == 3


def test_same_input_same_bytes_and_nothing_left_beside_it(tmp_path: Path) -> None:
    for name in ("a.prom", "b.prom"):
        write_metrics(tmp_path / name, report_of(*samples.hostile()[:2]))
    assert (tmp_path / "a.prom").read_bytes() == (tmp_path / "b.prom").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.prom", "b.prom"]
    assert read(tmp_path / "a.prom")


def test_a_run_without_a_time_has_no_time(tmp_path: Path) -> None:
    write_metrics(tmp_path / "m.prom", report_of([], samples.empty_summary(as_of=None)))
    found = read(tmp_path / "m.prom")
    assert not [name for name, _ in found if name.endswith("_seconds")]
