"""What the API gives as objects, and what editors, notebooks and mypy see of its options."""

from __future__ import annotations

import argparse
import datetime
import inspect
import re
import subprocess
import sys
import typing
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import auditor
from auditor import cli
from auditor.api import objects
from auditor.connectors.schema import TYPES
from auditor.pipeline import summary
from tests import corpora
from tests.conftest import ROOT

NAME = "hanging-36"
MANIFEST = corpora.manifest(NAME)
HANGING = [e for e in MANIFEST["expect"] if e["finding"] == "hanging_transaction"]
OF_RESULTS = {  # options that say what is printed or written: findings.where and audit.write have them
    "alert", "alert_on", "format", "min_severity", "partition", "broker", "transactional_id", "group", "verbose",
    "quiet", "out", "tables", "expectations", "history", "history_format", "run_id", "plan", "help", "config",
    "dashboard_url",
}  # fmt: skip


@pytest.fixture(scope="module")
def audit() -> Iterator[auditor.OpenedAudit]:
    with auditor.open(corpora.unpack(NAME), as_of=MANIFEST["copied_at"], master="inline[1]") as opened:
        yield opened


def test_findings_are_filtered_as_the_command_line_does(audit: auditor.OpenedAudit) -> None:
    found = audit.findings
    first = HANGING[0]
    place = f"{first['topic']}-{first['partition']}"
    assert {f.severity for f in found.where(min_severity="error")} <= {"critical", "error"}
    assert len(found.where(min_severity="critical", rule="hanging-transaction")) == len(HANGING)
    (one,) = found.where(rule="hanging-transaction", partition=place)
    assert (one.topic, one.partition, one.offset) == (first["topic"], first["partition"], first["firstOffset"])
    there = found.where(topic=first["topic"], partition=first["partition"])
    assert {(f.topic, f.partition) for f in there} == {(first["topic"], first["partition"])}
    assert found.where(lambda f: f.fingerprint == one.fingerprint, broker=[one.broker_id])[0] == one
    assert not found.where(transactional_id="no-such-*")
    assert found.where(topic="bank.*").to_arrow().num_rows == sum((f.topic or "").startswith("bank.") for f in found)


def test_findings_are_grouped_in_their_order(audit: auditor.OpenedAudit) -> None:
    groups = audit.findings.group_by("severity")
    assert list(groups) == [s for s in ("critical", "error", "warning", "info") if s in groups]
    assert {name: len(found) for name, found in groups.items()} == Counter(f.severity for f in audit.findings)
    by_topic = audit.findings.where(rule="hanging-transaction").group_by("topic")
    assert {topic: len(found) for topic, found in by_topic.items()} == Counter(e["topic"] for e in HANGING)


def test_a_finding_has_its_time_and_fingerprint(audit: auditor.OpenedAudit) -> None:
    found = [f for f in audit.findings if f.timestamp is not None]
    newest = datetime.datetime.fromtimestamp(MANIFEST["copied_at"] / 1000, datetime.UTC)
    assert all(newest - datetime.timedelta(days=1) < f.timestamp <= newest for f in found if f.timestamp)
    assert all(len(f.fingerprint) == 64 for f in audit.findings)


def test_what_is_blocked_is_objects_the_worst_first(audit: auditor.OpenedAudit) -> None:
    assert {(b.topic, b.partition, b.producer_id, b.first_offset) for b in audit.blocked if b.is_blocked} == {
        (e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in HANGING
    }
    order = [(not b.is_blocked, -b.age_ms) for b in audit.blocked]
    assert order == sorted(order)
    worst = audit.blocked[0]
    assert worst.advice is not None
    assert worst.advice.verdict == "safe_to_abort"
    assert worst.began_at is not None
    assert worst.began_at.tzinfo is not None
    assert audit.blocked.to_arrow().equals(audit.table("blocked").to_arrow())
    assert len(audit.blocked[:2]) == 2
    assert worst.remedy in audit.blocked[:1].to_arrow().column("remedy").to_pylist()
    assert f"{len(HANGING)} blocked" in repr(audit.blocked)
    assert str(worst) in audit.blocked._repr_html_()


def test_the_object_has_the_tables_columns() -> None:
    hints = typing.get_type_hints(auditor.BlockedPartition)
    assert tuple(summary.BLOCKED.names) == objects.COLUMNS
    python = {"string": str, "long": int, "int": int, "bool": bool, "time": datetime.datetime, "strings": list[str]}
    of_arrow = {str(TYPES[name]): kind for name, kind in python.items()}
    for field, (name, hint) in zip(summary.BLOCKED, hints.items(), strict=True):
        kinds = set(typing.get_args(hint)) - {type(None)} if type(None) in typing.get_args(hint) else {hint}
        assert name == "advice" or kinds == {of_arrow[str(field.type)]}, name


def test_policies_are_objects(audit: auditor.OpenedAudit) -> None:
    compared = audit.what_if("kip-890-p2")
    assert "its policies" in compared._repr_html_()
    verdicts = compared.verdicts.to_dicts()
    outcome = compared.policies["kip-890-p2"]
    mine = [v for v in verdicts if v["policy"] == "kip-890-p2"]
    assert (outcome.runs, outcome.batches) == (len(mine), sum(v["batches"] for v in mine))
    assert sum(r.batches for r in outcome.refusals) == outcome.batches > 0
    assert {name for p in compared.policies.values() for name in p.now} == {s.log_dir for s in outcome.state}
    assert compared._repr_html_().count("<tr>") == 1 + len(compared.policies)


def test_a_cluster_has_its_name(tmp_path: Path) -> None:
    path, options = corpora.unpack(NAME), {"as_of": MANIFEST["copied_at"], "master": "inline[1]"}
    with auditor.open(path, cluster_name="prod-eu", **options) as audit:
        (id,) = audit.cluster_names
        assert audit.cluster_names[id].name == "prod-eu"
        _ = audit.findings
        assert "<b>prod-eu: 4 partitions blocked" in audit._repr_html_()
        assert "prod-eu" in audit.report().html
    file = tmp_path / "auditor.toml"
    file.write_text(f'[clusters]\n{id} = {{ name = "prod-us", owner = "payments" }}\n', encoding="utf-8")
    for clusters in (file, {id: {"name": "prod-us", "owner": "payments"}}):
        with auditor.open(path, clusters=clusters, **options) as audit:
            assert (audit.cluster_names[id].name, audit.cluster_names[id].owner) == ("prod-us", "payments")
            assert audit.summary["clusters"][0]["name"] == "prod-us"
    file.write_text("records = true\n", encoding="utf-8")
    with pytest.raises(auditor.AuditInputError, match=r"has no table \[clusters\]"):
        auditor.open(path, clusters=file)


def test_one_name_of_several_clusters_is_a_wrong_call(tmp_path: Path) -> None:
    other = corpora.copy(NAME, tmp_path / "other")
    for meta in other.rglob("meta.properties"):
        meta.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", meta.read_text()))
    both = [corpora.unpack(NAME), other]
    with (
        auditor.open(*both, cluster_name="prod", master="inline[1]", topic="bank.audit") as audit,
        pytest.raises(auditor.AuditInputError, match="names one cluster, the input has 2"),
    ):
        _ = audit.findings


def command_line() -> dict[str, argparse.Action]:
    """The options of ``auditor audit`` by the names that Python gives them."""
    return {a.dest: a for a in cli.parsers("audit")[1]["audit"]._actions if a.option_strings}


def test_the_options_are_those_of_the_command_line() -> None:
    """By name, repeatable ones as several, flags as bool, numbers as int; none is left out."""
    of_command = command_line()
    options = typing.get_type_hints(auditor.OpenOptions)
    assert of_command.keys() - OF_RESULTS - {"master", "bootstrap_server"} == options.keys() - {"clusters"}
    for name, hint in options.items():
        action = of_command.get(name)
        kinds = {typing.get_origin(kind) for kind in (hint, *typing.get_args(hint))}
        if isinstance(action, argparse._AppendAction):
            assert kinds & {list, Sequence}, name
        elif action is not None and action.nargs == 0:
            assert hint is bool, name
        elif action is not None and action.type is int:
            assert hint is int, name


def test_notebooks_see_each_option() -> None:
    seen = inspect.signature(auditor.open).parameters
    assert {*auditor.OpenOptions.__annotations__, "spark", "progress"} <= seen.keys()
    assert (seen["policy"].default, seen["fail_on"].default, seen["records"].default) == ("auto", "error", False)


def test_mypy_sees_a_wrong_option(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import auditor\n"
        'audit = auditor.open("x", records=True, topic=["a"], clusters={"id": "prod"})\n'
        'auditor.open("x", record=True)\n'
        'auditor.open("x", records="yes")\n'
        'auditor.open("x", fail_on="worst")\n'
        "reveal_type(audit.blocked[0].began_at)\n"
        "reveal_type(audit.findings[0].timestamp)\n"
        'reveal_type(audit.table("batches"))\n',
        encoding="utf-8",
    )
    call = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir",
            str(tmp_path / "cache"), str(program)]  # fmt: skip
    said = subprocess.run(call, capture_output=True, text=True, cwd=ROOT, check=False).stdout
    lines = [line.split(":", 3) for line in said.splitlines() if line.startswith(str(program))]
    assert [int(line[1]) for line in lines if line[2].strip() == "error"] == [3, 4, 5], said
    revealed = [line[3] for line in lines if "Revealed" in line[3]]
    wanted = ("datetime.datetime | None", "datetime.datetime | None", "auditor.api.objects.Table")
    assert all(want in line for want, line in zip(wanted, revealed, strict=True)), said


def test_progress_is_a_line_below_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython's display, as far as it is called: said, said again at the end as nothing."""
    shown: list[tuple[str, dict[str, str]]] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(("update", data))

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(("display", data))
        return Handle()

    ipython, of_display = type(sys)("IPython"), type(sys)("IPython.display")
    ipython.get_ipython = lambda: argparse.Namespace(kernel=None)  # type: ignore[attr-defined]
    of_display.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", of_display)
    with auditor.open(corpora.unpack(NAME), master="inline[1]", topic="bank.audit") as audit:
        _ = audit.findings
    assert shown[0][0] == "display"
    assert shown[0][1]["text/plain"].startswith("… ")
    assert shown[-1] == ("update", {"text/plain": "", "text/html": "<i></i>"})
    assert isinstance(objects.progress(None), objects.CellProgress)
    quiet: Any = objects.progress(False)
    assert quiet.silent


def test_duckdb_reads_the_history_as_it_lies(audit: auditor.OpenedAudit, tmp_path: Path) -> None:
    """Findings, logs and totals: each run's batches, summed over its logs, are those of its totals."""
    duckdb = pytest.importorskip("duckdb")
    for run_id in ("one", "two"):
        audit.write(tmp_path / run_id, history=tmp_path / "kept", run_id=run_id)
    rows = "read_parquet('{}/run_id=*/{}/*.parquet', hive_partitioning = true)"
    findings, logs, totals = (rows.format(tmp_path / "kept", table) for table in ("findings", "logs", "runs"))
    query = (
        f"SELECT run_id, critical, batches, (SELECT sum(batches) FROM {logs} l WHERE l.run_id = r.run_id) AS summed, "
        f"(SELECT count(*) FROM {findings} f WHERE f.run_id = r.run_id AND severity = 'critical') AS listed "
        f"FROM {totals} r ORDER BY run_id"
    )
    found = duckdb.execute(query).fetchall()
    assert [(run, critical, listed) for run, critical, *_, listed in found] == [
        (run, len(HANGING), len(HANGING)) for run in ("one", "two")
    ]
    assert all(batches == summed > 0 for _, _, batches, summed, _ in found)
