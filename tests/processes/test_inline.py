"""Without Spark: the same bytes in one process and in two, a file that kills is named, and no pyspark is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auditor import cli, running
from auditor.base.errors import AuditInputError
from auditor.base.user_input import processes_of
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.spark import session, worker_daemon
from tests import corpora
from tests.conftest import ROOT

NAME = "hanging-36"
ENV = os.environ | {"PYTHONPATH": str(ROOT)}


def options(name: str, out: Path, master: str, **more: Any) -> AuditOptions:
    as_of = corpora.manifest(name)["copied_at"]
    return AuditOptions((str(corpora.unpack(name)),), out, records=True, as_of=as_of, master=master, **more)


def lines(out: Path) -> list[str]:
    return (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sound")
    running.audit(options(NAME, out, "inline[1]"))
    return out


def test_two_processes_say_what_one_says(sound: Path, tmp_path: Path) -> None:
    done = running.audit(options(NAME, tmp_path, "inline[2]"))
    assert (tmp_path / "findings.jsonl").read_bytes() == (sound / "findings.jsonl").read_bytes()
    assert len([f for f in done.findings if f.severity == "critical"]) == 4
    assert done.exit_code() == 1


def with_crashing(out: Path, file: str, how: str, master: str) -> subprocess.CompletedProcess[str]:
    call = "import sys; from tests import crashing_files; sys.exit(crashing_files.main(*sys.argv[1:]))"
    command = [sys.executable, "-c", call, NAME, str(out), file, how, "", master]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=out.parent)


@pytest.mark.parametrize(("how", "ending"), [("exit", "exit code 7"), ("segfault", "SIGSEGV")])
def test_a_file_that_kills_is_named_and_all_else_is_audited(how: str, ending: str, sound: Path, tmp_path: Path) -> None:
    logs = json.loads((sound / "summary.json").read_text())["logs"]
    log = next(row for row in logs if row["topic"][0] != "_")
    name = f"{log['topic']}-{log['partition']}"
    victim = next(p for p in sorted(corpora.unpack(NAME).rglob("*.log")) if p.parent.name == name)
    ran = with_crashing(tmp_path / "out", f"{name}/{victim.name}", how, "inline[2]")
    assert ran.returncode == 3, ran.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    reported = [(e["file"], e["detail"]) for e in summary["unreadable"] if e["reason"] == "unreadable"]
    assert reported == [(f"{name}/{victim.name}", f"reading it ends the process: {ending}")]
    others = [line for line in lines(sound) if json.loads(line)["topic"] != log["topic"]]
    assert others
    assert [line for line in lines(tmp_path / "out") if json.loads(line)["topic"] != log["topic"]] == others


@pytest.mark.parametrize("command", ["demo", "what-if"])
def test_neither_spark_nor_a_compiler_is_loaded(command: str, tmp_path: Path) -> None:
    call = (
        "import sys; from auditor.cli import main; status = main(sys.argv[1:]);"
        "loaded = {name.split('.')[0] for name in sys.modules};"
        "print(sorted(loaded & {'pyspark', 'py4j', 'pandas', 'kafka', 'numba'}), status)"
    )
    paths = [str(corpora.unpack(NAME))] if command == "what-if" else []
    words = [command, *paths, "--master", "inline[1]", "--out", str(tmp_path / "out"), "--quiet"]
    ran = subprocess.run(
        [sys.executable, "-c", call, *words], capture_output=True, text=True, env=ENV,
        check=True, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stdout.split("\n")[0] == "[] 0"


def test_what_workers_need_is_loaded_before_they_are_forked() -> None:
    """Else each worker loads numba, or what it unpickles its work with, for itself: a fifth of a small audit's time."""
    call = (
        "import importlib, sys; from auditor.processes import isolation;"
        "[importlib.import_module(name) for name in isolation.LOADED]; loaded = set(sys.modules);"
        "from auditor import inline;"
        "print('numba' in loaded, {c.__module__ in loaded for c in (inline.listed, inline.read_list)})"
    )
    ran = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, env=ENV, check=True)
    assert ran.stdout == "True {True}\n"
    assert "auditor.base.machine_code" in worker_daemon.LOADED  # the same of Spark's workers


def test_where_java_is_missing_it_is_said_to_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The findings are the same: nobody has to hear of Spark who asked for none."""
    monkeypatch.setattr(session, "find_java", lambda: None)
    call = ["audit", str(corpora.unpack("remedied-43")), "--out", str(tmp_path / "out")]
    assert cli.main(call) == 0
    assert "Spark" not in "".join(capsys.readouterr())
    assert cli.main([*call, "--verbose"]) == 0
    said = capsys.readouterr().err
    assert said.endswith("auditor: Java is not installed: ran without Spark (as with --master inline)\n")


@pytest.mark.parametrize("master", ["inline[0]", "inline[x]", "inlined"])
def test_a_wrong_master_is_a_mistake(master: str) -> None:
    with pytest.raises(AuditInputError, match="inline"):
        processes_of(master)


@pytest.mark.parametrize(
    "master", ["yarnn", "local[0]", "local[x]", "inline[0]", "spark:/h:7077", "sc:", "mesos://h:1"]
)
@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_a_wrong_master_is_one_line(
    master: str, plan: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["audit", str(corpora.unpack("remedied-43")), "--out", str(tmp_path / "out"), "--master", master, *plan]
    assert cli.main(call) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"auditor: invalid --master {master!r}: expected inline")


@pytest.mark.parametrize("more", [[], ["--master", "yarnn"], ["--as-of", "yesterday"], ["--format", "table", "--plan"]])
def test_a_path_that_does_not_exist_comes_first(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "/not/there", *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "auditor: /not/there: no such file or directory; check the path"


def test_sql_by_duckdb() -> None:
    pytest.importorskip("duckdb")

    def ask(text: str) -> list[dict[str, Any]]:
        wanted = options(NAME, Path(), "inline[2]")
        with running.runner(wanted) as runner:
            rows: list[dict[str, Any]] = Audit(wanted, runner).query(text).to_pylist()
            return rows

    found = ask(
        "select topic, partition, producer_id, first_offset from transaction_partitions where class = 'hanging'"
    )
    expected = [e for e in corpora.manifest(NAME)["expect"] if e["finding"] == "hanging_transaction"]
    assert {tuple(row.values()) for row in found} == {
        (e["topic"], e["partition"], e["producerId"], e["firstOffset"]) for e in expected
    }
    rows = ask("select rule, count(*) n from findings where severity = 'critical' group by 1")
    assert rows == [{"rule": "hanging-transaction", "n": 4}]
    with pytest.raises(AuditInputError, match="Candidate bindings: ") as raised:
        ask("select nothing from batches")
    assert "\n" not in str(raised.value)
