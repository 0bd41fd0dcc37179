"""What people call a cluster: on the command line and in auditor.toml, and on each surface."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.base.user_input import ClusterName, of_table
from auditor.outputs import alerts, runs
from auditor.outputs.alerts import News
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from tests import corpora
from tests.unit.html_page import Page

NAME = "hanging-36"
WORDS = ["--master", "inline[1]", "--fail-on", "never", "--as-of", str(corpora.manifest(NAME)["copied_at"])]


@pytest.fixture(scope="module")
def cluster_id(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As the brokers wrote it."""
    (meta, *_) = corpora.unpack(NAME).rglob("meta.properties")
    return next(line for line in meta.read_text().splitlines() if line.startswith("cluster.id=")).partition("=")[2]


@pytest.fixture
def other(cluster_id: str, tmp_path: Path) -> str:
    """The log directory of another cluster."""
    folder = corpora.copy("healthy-41", tmp_path / "other")
    for meta in folder.rglob("meta.properties"):
        meta.write_text(meta.read_text().replace(cluster_id, "b3RoZXItLS0tLS0tLS0tLQ"))
    return str(folder)


def test_a_name_on_the_command_line_is_on_every_surface(
    cluster_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, history = tmp_path / "out", tmp_path / "history"
    call = ["audit", str(corpora.unpack(NAME)), "--out", str(out), "--history", str(history), "--run-id", "r", *WORDS]
    assert cli.main([*call, "--cluster-name", "prod-eu"]) == 0
    assert "Cluster prod-eu" in capsys.readouterr().out
    summary = json.loads((out / "summary.json").read_text())
    named = {"cluster_id": cluster_id, "name": "prod-eu", "owner": "", "link": "", "labels": {}}
    assert summary["clusters"] == [named]
    assert "cluster <b>prod-eu</b>" in (out / "report.html").read_text()
    info = f'kafka_audit_cluster_info{{cluster="{cluster_id}",name="prod-eu",owner=""}} 1.0'
    assert info in (out / "metrics.prom").read_text().splitlines()
    (run,) = runs.committed(history)
    assert (runs.cluster(run), runs.shown(run)) == (cluster_id, "prod-eu")
    assert cli.main(["history", str(history), "--cluster", "prod-eu"]) == 0
    unnamed = tmp_path / "unnamed"
    assert cli.main([*call[:2], "--out", str(unnamed), *WORDS]) == 0
    assert (unnamed / "findings.jsonl").read_bytes() == (out / "findings.jsonl").read_bytes()


def test_clusters_are_named_in_the_file_of_options(
    cluster_id: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all that is known of one; others of the file are none of the run's. The dashboard tells clusters by name."""
    monkeypatch.chdir(tmp_path)
    Path("auditor.toml").write_text(
        f'[clusters]\nother = "test"\n[clusters."{cluster_id}"]\nname = "prod-eu"\nowner = "payments"\n'
        'link = "https://wiki.example/prod-eu"\nlabels = { stage = "prod" }\n'
    )
    history = tmp_path / "history"
    for number, path in enumerate((str(corpora.unpack(NAME)), other)):
        call = ["audit", path, "--out", f"out-{number}", "--history", str(history), *WORDS]
        assert cli.main(call) == 0
    assert "Cluster prod-eu, owner: payments, https://wiki.example/prod-eu" in capsys.readouterr().out
    page = Path("out-0/report.html").read_text()
    assert '<a href="https://wiki.example/prod-eu">prod-eu</a></b>, owner payments · stage prod' in page
    assert 'name="prod-eu",owner="payments"} 1.0' in Path("out-0/metrics.prom").read_text()
    assert json.loads(Path("out-1/summary.json").read_text())["clusters"] == []
    shown = Page(Site(Shelf(history)).front())
    assert "prod-eu owner payments stage prod link" in shown.text
    assert "https://wiki.example/prod-eu" in [a["href"] for a in shown.all("a")]


def test_one_name_for_several_clusters_is_a_wrong_call(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(corpora.unpack(NAME)), other]
    assert cli.main(["audit", *both, "--out", str(tmp_path / "out"), *WORDS, "--cluster-name", "x"]) == 2
    said = capsys.readouterr().err
    assert "--cluster-name names one cluster, the input has 2: " in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out" / "summary.json").exists()


def test_alerts_say_the_cluster() -> None:
    row = {
        "severity": "error", "rule": "r", "topic": None, "offset": None, "cluster_id": "i",
        "fingerprint": "f", "advice": None, **dict.fromkeys(alerts.DETAILS, None),
    } | {"message": "m", "remedy": ""}  # fmt: skip
    named = ClusterName("prod-eu", "payments", "https://wiki.example/prod-eu", (("stage", "prod"),))
    news = News([row], [], [], None, {"i": named})
    assert alerts.slack(news)["text"] == "Kafka audit of prod-eu: 1 new finding, 0 resolved, 0 unchanged"
    (event,) = alerts.pagerduty(news, "key")
    assert event["payload"]["source"] == "prod-eu/the cluster"
    details = event["payload"]["custom_details"]
    assert (details["cluster_owner"], details["cluster_labels"]) == ("payments", {"stage": "prod"})


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (3, "expected a name, or a table"),
        ({"owner": "x"}, "expected a name, or a table"),
        ({"name": "x", "nonsense": "y"}, "expected a name, or a table"),
        ({"name": ""}, "empty name"),
        ({"name": "x" * 201}, "at most 200"),
        ({"name": "x", "link": "javascript:alert(1)"}, "expected https"),
        ({"name": "x", "labels": {"a": 1}}, "at most 200 printable"),
        ({"name": "x", "labels": "prod"}, "labels: expected a table"),
    ],
)
def test_what_a_file_cannot_say(says: object, why: str) -> None:
    with pytest.raises(AuditInputError, match=rf"auditor.toml: \[clusters\] id.*{why}"):
        of_table({"id": says}, "auditor.toml: [clusters]")
