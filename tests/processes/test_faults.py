"""Whole runs that a file, or a signal, ends: the file is named and all else audited, nothing of half a run is left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published
from tests.conftest import ROOT

NAME = "hanging-36"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sound")
    as_of = corpora.manifest(NAME)["copied_at"]
    published(AuditOptions((str(corpora.unpack(NAME)),), out, records=True, as_of=as_of))
    return out


def _lines(out: Path) -> list[str]:
    return (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()


SITE = """
import os, signal, sys, time

def above(pid):
    with open(f"/proc/{{pid}}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])

asked = []

def ask(event, args):
    if event == "open" and str(args[0]).endswith({file!r}) and {module!r} in sys.modules and not asked:
        asked.append(args)
        {kill}

sys.addaudithook(ask)
"""
ITSELF = "os.kill(os.getpid(), signal.SIGSEGV)"
JAVA = "os.kill(above(os.getppid()), signal.SIGKILL)"  # by a worker of Spark's, whose parent is that of all workers
DRIVER = "os.kill(above(above(os.getppid())), signal.SIGINT); time.sleep(3)"  # Ctrl-C, and the query goes on


def in_every_python(
    out: Path, master: str, file: str, module: str, *options: str, kill: str = ITSELF
) -> subprocess.CompletedProcess[str]:
    """The console script, where every Python, the driver's too, dies as it opens ``file`` with ``module`` loaded, or
    kills another: :data:`JAVA` or the :data:`DRIVER`."""
    site = out.parent / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(file=file, module=module, kill=kill))
    words = ["audit", str(corpora.unpack(NAME)), "--out", str(out), "--master", master, "--records", *options]
    as_of = str(corpora.manifest(NAME)["copied_at"])
    command = [sys.executable, "-m", "auditor.cli", *words, "--as-of", as_of, "--quiet"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=out.parent)


def reported(out: Path) -> list[tuple[str, str]]:
    summary = json.loads((out / "summary.json").read_text())
    return [(e["file"], e["detail"]) for e in summary["unreadable"] if e["reason"] == "unreadable"]


def test_a_file_that_kills_who_reads_the_settings_is_named(sound: Path, tmp_path: Path) -> None:
    """``__cluster_metadata`` is read first of all, by the driver's own child; it takes no other log along. Without
    it the broker may be of any release, so that remedies say more."""
    out, name = tmp_path / "out", "__cluster_metadata-0/00000000000000000000.log"
    ran = in_every_python(out, "inline[1]", name, "os")
    assert ran.returncode == 3, ran.stderr
    assert reported(out) == [(name, "reading it ends the process: SIGSEGV")]
    found, whole = (
        [json.loads(line) | {"remedy": "", "advice": None} for line in _lines(each)] for each in (out, sound)
    )
    assert whole
    assert found == whole


@pytest.mark.spark
def test_a_file_that_kills_who_reads_it_for_a_table_is_named(sound: Path, tmp_path: Path) -> None:
    """The replay can read it, so that findings are whole; the tables are, but for this file."""
    logs = {p.relative_to(corpora.unpack(NAME) / "broker-1").as_posix(): p for p in corpora.unpack(NAME).rglob("*.log")}
    filled = {name for name, path in logs.items() if path.stat().st_size}
    victim = min(name for name in filled if not name.startswith("__"))
    out = tmp_path / "out"
    ran = in_every_python(out, "local[1]", victim, "auditor.connectors.tables.rows", "--tables")
    assert ran.returncode == 3, ran.stderr
    assert reported(out) == [(victim, "reading it ends the process: SIGSEGV")]
    assert _lines(out) == _lines(sound)
    for table in ("batches", "records"):
        assert set(pq.read_table(out / "tables" / table).column("file").to_pylist()) == filled - {victim}
    errors = pq.read_table(out / "tables" / "decode_errors").to_pylist()
    assert [(e["file"], e["bytes"]) for e in errors if e["reason"] == "unreadable"] == [
        (victim, logs[victim].stat().st_size)
    ]


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the parent's parent is found below /proc")
def test_where_java_ends_the_error_is_the_query_that_it_ended(tmp_path: Path) -> None:
    """Nothing that can no longer be done with Java, such as putting back its settings, stands before it."""
    out = tmp_path / "out"
    ran = in_every_python(out, "local[1]", ".log", "pyspark.worker", kill=JAVA)
    assert ran.returncode == 4, ran.stderr
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("auditor: "))
    assert "Spark's JVM has ended" in line
    trace = (out / "failure.log").read_text(encoding="utf-8")
    last = trace.rpartition("another exception occurred:")[2]
    assert ".toArrow()" in last, trace
    assert "auditor/spark/session.py" not in trace
    assert "unpersist" not in trace


@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the driver is found below /proc")
def test_ctrl_c_while_spark_reads_is_no_failure(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = in_every_python(out, "local[1]", ".log", "pyspark.worker", kill=DRIVER)
    assert ran.stderr.splitlines()[-1:] == ["auditor: interrupted"]
    assert ran.returncode == 130
    assert not (out / "failure.log").exists()


def test_a_killed_run_leaves_no_mark_and_the_next_one_is_clean(sound: Path, tmp_path: Path) -> None:
    """The driver dies between reading and judging; an earlier run's results lie in the same folder."""
    out = tmp_path / "out"
    shutil.copytree(sound, out)
    call = (
        "import os, sys; from pathlib import Path\n"
        "from auditor import running; from auditor.pipeline.options import AuditOptions\n"
        "options = AuditOptions((sys.argv[1],), Path(sys.argv[2]), records=True, master='inline[1]')\n"
        "running.audit(options, lambda step: os.kill(os.getpid(), 9) if step == 'judge' else None)"
    )
    command = [sys.executable, "-c", call, str(corpora.unpack(NAME)), str(out)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.returncode == -9
    assert not (out / "summary.json").exists()
    options = AuditOptions((str(corpora.unpack(NAME)),), out, records=True, as_of=corpora.manifest(NAME)["copied_at"])
    published(options)
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in sound.iterdir())
    assert _lines(out) == _lines(sound)
