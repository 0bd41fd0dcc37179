"""What Prometheus and Grafana are given: the metrics file, the alert rules and the dashboard's queries, by promtool."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from auditor.dashboards.answers import report_of
from auditor.dashboards.metrics import OTHERS, write_metrics
from auditor.outputs.publish import run_report
from tests import corpora
from tests.facts import opened
from tests.unit import report_samples as samples

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "dashboards" / "grafana"
SAMPLES = {"hanging": samples.hanging, "hostile": samples.hostile}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="NOT TESTED, no promtool (Debian: apt-get install prometheus)"
)


def promtool(*args: str, stdin: str | None = None) -> str:
    """What promtool says, which must be that all is well."""
    done = subprocess.run(["promtool", *args], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def metrics(folder: Path, name: str) -> str:
    findings, summary, _, _ = SAMPLES[name]()
    write_metrics(folder / "metrics.prom", report_of(findings, summary))
    return (folder / "metrics.prom").read_text(encoding="utf-8")


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "dashboard.json").read_text(encoding="utf-8"))
    return found


def queries() -> list[str]:
    return [
        target["expr"].replace("$instance", ".*").replace("$cluster", ".*")
        for panel in board()["panels"]
        for target in panel["targets"]
    ]


@needs_promtool
@pytest.mark.parametrize("name", SAMPLES)
def test_promtool_takes_the_metrics_file_without_a_word(tmp_path: Path, name: str) -> None:
    assert promtool("check", "metrics", stdin=metrics(tmp_path, name)) == ""


@needs_promtool
def test_the_alerts_say_what_their_worked_examples_say() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(ROOT / "tests" / "data" / "alerts_test.yml"))


@needs_promtool
def test_the_queries_of_the_dashboard_parse(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(queries())]
    path = tmp_path / "queries.yml"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_the_dashboard_is_what_grafanas_builders_make() -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="NOT TESTED, no grafana-foundation-sdk (group dev)")
    spec = importlib.util.spec_from_file_location("grafana_board", ROOT / "scripts" / "grafana.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.text() == (GRAFANA / "dashboard.json").read_text(encoding="utf-8")


def test_dashboard_and_alerts_ask_for_series_that_the_file_has(tmp_path: Path) -> None:
    audit = opened(corpora.unpack("hanging-36"), as_of=corpora.manifest("hanging-36")["copied_at"])
    write_metrics(
        tmp_path / "metrics.prom", report_of([f.to_dict() for f in audit.findings], run_report(audit).summary)
    )
    text = (tmp_path / "metrics.prom").read_text(encoding="utf-8")
    have = set(re.findall(r"^(kafka_audit_\w+)", text, re.MULTILINE))
    labels = set(re.findall(r'[{,](\w+)="', text)) | {"instance"}  # instance: Prometheus adds it
    values = set(re.findall(r'="([^"]*)"', text))
    alerts = (GRAFANA / "alerts.yml").read_text(encoding="utf-8")
    for asked in (*queries(), alerts):
        assert set(re.findall(r"\b(kafka_audit_\w+)", asked)) <= have
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', asked):
            assert label in labels
            assert label in ("instance", "cluster") or set(value.split("|")) <= values | {OTHERS}
    assert len(re.findall(r"kafka_audit_", alerts)) > 5


def test_every_alert_has_a_worked_example() -> None:
    named = re.findall(r"alert: (\w+)", (GRAFANA / "alerts.yml").read_text(encoding="utf-8"))
    tried = re.findall(r"alertname: (\w+)", (ROOT / "tests/data/alerts_test.yml").read_text(encoding="utf-8"))
    assert named
    assert set(named) == set(tried)


def test_panels_lie_on_the_grid_and_do_not_overlap() -> None:
    cells = [
        (x, y)
        for spot in (panel["gridPos"] for panel in board()["panels"])
        for x in range(spot["x"], spot["x"] + spot["w"])
        for y in range(spot["y"], spot["y"] + spot["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
