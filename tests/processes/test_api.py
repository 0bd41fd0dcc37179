"""The Python API without Spark: objects, tables, what is written, what a notebook shows, mistakes in a sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import auditor
from auditor import cli
from auditor.base.evidence_keys import COMMON
from auditor.pipeline.derived_tables import all_columns
from tests import corpora
from tests.conftest import ROOT

NAME = "hanging-36"
AS_OF = corpora.manifest(NAME)["copied_at"]
HANGING = [e for e in corpora.manifest(NAME)["expect"] if e["finding"] == "hanging_transaction"]


@pytest.fixture(scope="module")
def audit() -> Iterator[auditor.OpenedAudit]:
    with auditor.open(corpora.unpack(NAME), as_of=AS_OF, master="inline[1]") as opened:
        yield opened


def test_findings_are_objects_that_point_at_what_the_broker_did(audit: auditor.OpenedAudit) -> None:
    critical = audit.findings.where(lambda f: f.severity == "critical")
    assert {(f.topic, f.partition, f.producer_id, f.offset) for f in critical} == {
        (e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in HANGING
    }
    assert critical[0].evidence["confidence"] == "proved"
    assert len(critical[:2]) == 2
    assert critical[:2].fingerprints == critical.fingerprints[:2]


def test_findings_as_a_table_have_a_time_and_what_to_join_by(audit: auditor.OpenedAudit) -> None:
    table = audit.findings.to_arrow()
    assert table.schema == all_columns()["findings"]
    for row, finding, name in zip(table.to_pylist(), audit.findings, audit.findings.fingerprints, strict=True):
        at = row.pop("timestamp")
        assert at == finding.timestamp
        said = dict(row.pop("evidence"))
        assert not said.keys() & COMMON.keys()
        said |= {key: value for key in COMMON if (value := row.pop(key)) is not None or key in finding.evidence}
        assert said.keys() == finding.evidence.keys()
        assert all(value == said[key] or value == json.loads(said[key]) for key, value in finding.evidence.items())
        assert row.pop("cluster_id") == next(iter(audit.summary["inputs"]))["cluster_id"]
        assert (row.pop("run_id"), row["fingerprint"], finding.fingerprint) == (None, name, name)
        told = finding.to_dict()
        assert row.pop("advice") == json.loads(json.dumps(told["advice"]))
        assert told["timestamp"] == (at and at.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
        assert row == {n: v for n, v in told.items() if n not in ("timestamp", "evidence", "advice")}
    assert str(audit.findings.to_pandas()["timestamp"].dtype) == "datetime64[ms, UTC]"


@pytest.mark.parametrize("name", all_columns())
def test_every_table_has_its_columns(audit: auditor.OpenedAudit, name: str) -> None:
    assert name in audit.tables
    table = audit.table(name)
    assert table.columns == tuple(all_columns()[name].names)
    shown = table._repr_html_()
    assert all(f">{column}<" in shown for column in table.columns)  # with what it holds: nothing was read
    assert table.to_arrow().schema == table.schema == all_columns()[name]
    assert table.num_rows == len(table.to_dicts()) == len(table.to_pandas()) == pa.table(table).num_rows


def test_tables_hold_what_the_log_holds(audit: auditor.OpenedAudit) -> None:
    hanging = [row for row in audit.table("transaction_partitions").to_dicts() if row["class"] == "hanging"]
    assert {(r["topic"], r["partition"], r["first_offset"]) for r in hanging} == {
        (e["topic"], e["partition"], e["firstOffset"]) for e in HANGING
    }


def test_what_is_written_is_what_the_command_writes(audit: auditor.OpenedAudit, tmp_path: Path) -> None:
    audit.write(tmp_path / "api", history=tmp_path / "kept", run_id="one")
    call = ["audit", str(corpora.unpack(NAME)), "--as-of", str(AS_OF), "--master", "inline[1]", "--quiet"]
    assert cli.main([*call, "--out", str(tmp_path / "command")]) == 1 == audit.exit_status
    for file in ("findings.jsonl", "report.html"):
        assert (tmp_path / "api" / file).exists()
    lines = [(tmp_path / each / "findings.jsonl").read_bytes() for each in ("api", "command")]
    assert lines[0] == lines[1]
    rows = pq.read_table(tmp_path / "api" / "findings").to_pylist()
    assert {row["run_id"] for row in rows} == {"one"}
    assert [row["fingerprint"] for row in rows] == audit.findings.fingerprints
    assert audit.table("producer_states").num_rows  # what was given back is read again


def test_what_was_read_is_kept_for_the_next(audit: auditor.OpenedAudit, tmp_path: Path) -> None:
    """Nor is evidence written to; what the folder holds besides is said."""
    path, work = corpora.unpack(NAME), tmp_path / "work"
    with pytest.raises(auditor.AuditInputError, match="nothing to resume"):
        auditor.open(path, as_of=AS_OF, work=work, resume=True).findings  # noqa: B018
    with auditor.open(path, as_of=AS_OF, work=work) as first:
        assert first.findings.to_dicts() == audit.findings.to_dicts()
        assert not [note for note in first.summary["notes"] if "--work" in note]
    (work / "mine.txt").write_text("mine")
    kept = {path.name: path.stat().st_mtime_ns for path in work.glob("*.arrow")}
    with auditor.open(path, as_of=AS_OF, work=str(work), resume=True) as again:
        assert again.findings.to_dicts() == audit.findings.to_dicts()
        (note,) = [note for note in again.summary["notes"] if "--work" in note]
        assert note.startswith("--work has 1 file left alone, not of an audit: mine.txt")
    assert kept
    assert {path.name: path.stat().st_mtime_ns for path in work.glob("*.arrow")} == kept, "what is read is kept"
    inside = corpora.copy(NAME, tmp_path / "in") / "broker-1"
    with pytest.raises(auditor.AuditInputError, match="is in the log directory"):
        auditor.open(inside, work=inside / "work").findings  # noqa: B018
    assert not (inside / "work").exists()


def test_what_if_gives_verdicts(audit: auditor.OpenedAudit, tmp_path: Path) -> None:
    compared = audit.what_if("kip-890-p2")
    assert {row["policy"] for row in compared.verdicts.to_dicts()} >= {"kip-890-p2"}
    assert "kip-890-p2" in {row["policy"] for row in compared.result["policies"]}
    assert (compared.write(tmp_path) / "what-if.json").exists()
    assert all(f.severity in ("warning", "info") for f in compared.findings)


def test_a_finding_is_explained(audit: auditor.OpenedAudit) -> None:
    text = str(audit.explain(audit.findings.fingerprints[0][:12]))
    assert text.startswith("critical hanging-transaction")
    assert "<pre>" in audit.explain(audit.findings.fingerprints[0])._repr_html_()


def test_a_notebook_shows_findings_and_timelines(audit: auditor.OpenedAudit) -> None:
    shown = audit.findings._repr_html_()
    assert shown.count("<tr>") == 1 + len(audit.findings)
    assert all(name[:12] in shown for name in audit.findings.fingerprints)
    page = audit.timeline("bank.*")
    assert {f"{e['topic']}-{e['partition']}" for e in HANGING} <= {
        word for word in page.html.replace("<", " ").replace(">", " ").split() if word.startswith("bank.")
    }
    assert len(repr(page)) < 100
    frame = page._repr_html_()
    assert frame.startswith("<iframe sandbox ")
    assert "<svg" not in frame  # escaped, within the frame's attribute


def test_a_notebook_shows_who_is_blocked_and_what_to_do(audit: auditor.OpenedAudit) -> None:
    _ = audit.findings
    shown = audit._repr_html_()
    assert "4 partitions blocked" in shown
    assert {f"{e['topic']}-{e['partition']}" for e in HANGING} <= set(re.findall(r">(bank[.\w-]+)<", shown))
    assert str(audit.blocked[0]) in shown
    assert "kafka-transactions.sh --bootstrap-server B abort --topic bank.ledger" in shown


def test_a_look_in_a_notebook_reads_nothing(tmp_path: Path) -> None:
    with auditor.open(tmp_path, master="inline[1]") as opened:  # which has nothing that could be read
        assert "audit.findings read the input" in opened._repr_html_()
    assert "closed audit" in opened._repr_html_()


def test_names_from_the_data_are_inert_in_a_notebook() -> None:
    from auditor.api.objects import audit_html, findings_html, table_html

    hostile = auditor.Finding("x", "critical", topic="<script>alert(1)</script>", message="<img src=x onerror=y>")
    held = {"topic": "<script>", "partition": 0, "standing": "stuck", "began_at": None, "producer_id": 1,
            "remedy": "<img x>", "transactional_id": "<script>"}  # fmt: skip
    blocked = audit_html("<script>", [held] * 30, [hostile])
    assert "10 more rows" in blocked
    for shown in (findings_html([hostile]), blocked, table_html("<img>", ["<script>"], [["<img x>", None]])):
        assert "<script" not in shown
        assert "<img" not in shown


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda a: a.table("nothing"), "no table named 'nothing'; one of batches"),
        (lambda a: a.sql("select nothing from batches"), '"nothing" not found'),
        (lambda a: a.sql("select clas from transaction_partitions"), 'Candidate bindings: "class"'),
        (lambda a: a.sql("select * from transaction"), "there are batches, records"),
        (lambda a: a.sql("select max(offset) from checkpoints"), 'write "offset" in double quotes'),
        (lambda a: a.sql("create table t as select 1"), "expected SELECT"),
        (lambda a: a.sql("copy (select 1) to 'written.csv'"), "expected SELECT"),
        (lambda a: a.sql("select 1; select 2"), "expected SELECT"),
        (lambda a: a.explain("zz"), "no finding has an ID that starts with"),
        (lambda a: a.what_if("none"), "no policy named 'none'"),
        (lambda a: a.write(corpora.unpack(NAME) / "broker-1" / "out"), "is in the log directory"),
        (lambda _: auditor.open("/not/there"), "check the path"),
        (lambda _: auditor.open(corpora.unpack(NAME), remote="/not/there"), "check the path"),
        (lambda _: auditor.open("x", clusters={"a": {"owner": "b"}}), "invalid clusters a: expected a name, or a"),
        (lambda _: auditor.open("x", clusters="/not/there.toml"), "cannot read /not/there.toml"),
        (lambda _: auditor.open("x", resume=True), "--resume needs --work DIR"),
        (lambda a: a.findings.where(rule="hanging"), "no rule named 'hanging'"),
        (lambda a: a.findings.where(min_severity="worst"), "no severity named 'worst'"),
        (lambda a: a.findings.group_by("evidence"), "not grouped by 'evidence'"),
        (lambda a: a.blocked.to_spark(), "runs without Spark"),
        (lambda a: a.table("lag").to_spark(), "runs without Spark"),
        (lambda _: auditor.open("x", policy="y"), "invalid --policy 'y'"),
        (lambda _: auditor.open("x", nothing=1), "no option named 'nothing'"),
        (lambda _: auditor.open("x", as_of="soon"), "invalid --as-of"),
        (lambda _: auditor.open("x", max_batch_ratio=0), "at least 1"),
        (lambda _: auditor.open(), "needs a path"),
        (lambda _: auditor.open(["x", "y"]), "not a list"),
        (lambda _: auditor.open("x", spark="local[2]"), "not a str"),
        (lambda _: auditor.open(bootstrap_server="127.0.0.1:1", client_config={"request_timeout_ms": 1}), "127.0.0.1"),
    ],
)
def test_a_mistake_is_one_sentence(audit: auditor.OpenedAudit, wrong: Any, says: str) -> None:
    with pytest.raises(auditor.AuditInputError, match=says) as raised:
        wrong(audit)
    assert "\n" not in str(raised.value)


def test_a_closed_audit_says_so_and_what_it_gave_stays() -> None:
    with auditor.open(corpora.unpack(NAME), master="inline[1]", topic="bank.audit") as opened:
        table, late = opened.table("checkpoints"), opened.table("batches")
        assert table.num_rows
        said = repr(opened)
    assert table.to_dicts()
    assert repr(opened) == said.replace("<", "<closed ")
    with pytest.raises(auditor.AuditInputError, match="is closed"):
        opened.table("batches")
    with pytest.raises(auditor.AuditInputError, match="is closed"):
        late.to_arrow()
    opened.close()


def test_a_notebook_shows_a_mistake_as_its_sentence() -> None:
    """IPython asks an exception for it in place of the trace of all calls."""
    assert auditor.AuditInputError("no such file")._render_traceback_() == ["AuditInputError: no such file"]
    assert auditor.AuditFailure("full")._render_traceback_() == ["AuditFailure: full"]


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_lines_of_the_pages_run(page: str) -> None:
    block = (ROOT / page).read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len(block.strip().splitlines()) <= 5
    assert "bank-zombie" in in_a_process(block.replace("/copies/broker-1", str(corpora.unpack(NAME))))


def in_a_process(call: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, env=env, check=True).stdout


def test_importing_loads_nothing_heavy() -> None:
    heavy = "{'pyspark', 'pandas', 'numpy', 'pyarrow', 'numba', 'kafka', 'great_expectations'}"
    assert in_a_process(f"import sys, auditor; print({heavy} & {{n.split('.')[0] for n in sys.modules}})") == "set()\n"
    assert auditor.__version__
    assert set(auditor.__all__) <= set(dir(auditor))
    assert all(getattr(auditor, name) for name in auditor.__all__)


@pytest.mark.parametrize(
    ("module", "ask", "says"),
    [
        ("pyspark", "auditor.register(None)", "'pyspark>=4.0,<5' 'pandas>=2.2'"),
        ("pandas", "a.findings.to_pandas()", "'pandas>=2.2'"),
        ("duckdb", "a.sql('select 1')", "'duckdb>=1.3'"),
        ("great_expectations", "a.write(out, expectations=True)", "'great-expectations>=1.24,<2' 'pandas>=2.2'"),
        ("kafka", "auditor.open(bootstrap_server='x:1')", "'kafka-python>=3.0,<3.1' 'cryptography>=42'"),
    ],
)
def test_what_is_not_installed_is_said_with_the_command(module: str, ask: str, says: str, tmp_path: Path) -> None:
    call = f"""
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {module!r} else real(name, *more)
import auditor
a = auditor.open({str(corpora.unpack(NAME))!r}, master="inline[1]")
out = {str(tmp_path / "out")!r}
try:
    {ask}
except auditor.AuditInputError as error:
    print(error)
"""
    said = in_a_process(call)
    assert says in said
    assert said.count("\n") == 1
