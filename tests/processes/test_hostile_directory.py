"""Each command, started within an unpacked ticket that holds modules, settings and a Spark of its own: none is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT, SHORT_JVM

NAME = "hanging-36"
AUDITOR = [sys.executable, "-P", "-m", "auditor.cli"]  # as the console script: without the working directory
OTHERS = (
    "auditor", "connectors", "rules", "dashboards", "sitecustomize", "usercustomize", "numpy", "numba", "llvmlite",
    "pyarrow", "pandas", "pyspark", "py4j", "cramjam", "xxhash", "jinja2", "markupsafe", "prometheus_client", "shtab",
    "kafka", "cryptography", "duckdb", "great_expectations", "grpc", "google", "yaml", "fsspec", "typing_extensions",
    "cloudpickle", "zstandard", "setuptools", "pip", "tests",
)  # fmt: skip
MODULE = "open({mark!r}, 'a').write({name!r} + '\\n')\nraise ImportError({name!r})\n"
SPARK = "#!/bin/sh\necho spark-submit >> '{mark}'\nexit 1\n"


@pytest.fixture(scope="module")
def ticket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory: a broker's directory beside files that Python, numba, Spark and others look for."""
    above = tmp_path_factory.mktemp("ticket")
    mark, inside = above / "mark", above / "in"
    shutil.copytree(corpora.unpack(NAME), inside)
    for name in (*sys.stdlib_module_names, *OTHERS):
        (inside / f"{name}.py").write_text(MODULE.format(mark=str(mark), name=name))
    (inside / ".numba_config.yaml").write_text("disable_jit: 1\n")
    (inside / "auditor.toml").write_text('master = "spark://127.0.0.1:9"\n[audit]\nout = "elsewhere"\n')
    (inside / "spark-defaults.conf").write_text("spark.master spark://127.0.0.1:9\n")
    (inside / "great_expectations.yml").write_text("config_version: x\n")
    (inside / ".env").write_text("PYTHONPATH=.\n")
    for home in (above, inside):  # pyspark looks in the directory above the working directory first
        (home / "jars").mkdir()
        (home / "bin").mkdir()
        (home / "bin" / "spark-submit").write_text(SPARK.format(mark=mark))
        (home / "bin" / "spark-submit").chmod(0o755)
    return inside


def run(ticket: Path, *words: str, codes: tuple[int, ...] = (0, 1), module: list[str] = AUDITOR) -> str:
    """What a command printed on standard error, which ran and used nothing of the ticket."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONSAFEPATH", "SPARK_HOME")}
    ran = subprocess.run(
        [*module, *words],
        cwd=ticket,
        env=environment | {"PYTHONPATH": str(ROOT)} | SHORT_JVM,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    mark = ticket.parent / "mark"
    used = mark.read_text() if mark.exists() else ""
    mark.unlink(missing_ok=True)
    assert used == "", (words, ran.stderr)
    assert ran.returncode in codes, ran.stderr
    return ran.stderr


INLINE = ("--master", "inline", "--quiet")
COMMANDS = [
    ("demo", *INLINE, "--out", "OUT/demo"),
    ("audit", ".", *INLINE, "--records", "--out", "OUT/run", "--history", "OUT/history", "--format", "json"),
    ("audit", ".", *INLINE, "--tables", "--expectations", "--out", "OUT/tables", "--work", "OUT/work"),
    ("what-if", ".", *INLINE, "--out", "OUT/what-if"),
    ("lag", ".", "--master", "inline"),
    ("space", ".", "--master", "inline"),
    ("cleaner", ".", "--master", "inline"),
    ("impact", ".", "--master", "inline"),
    ("rehearse", ".", "--stop", "1", "--master", "inline"),
    ("sql", "SELECT count(*) FROM batches", ".", "--master", "inline"),
    ("decode", "LOG"),
    ("copy", ".", "--out", "OUT/copy"),
    ("recheck", ".", "--out", "OUT/run"),
    ("history", "OUT/history"),
    ("dashboard", "OUT/history", "--export", "OUT/site"),
    ("baseline", "--out", "OUT/run", "--baseline", "OUT/baseline.json", "--reason", "known"),
    ("expectations", "--export", "OUT/suites"),
    ("rules",),
    ("completion", "bash"),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.mark.parametrize("words", COMMANDS, ids=[" ".join(words[:1]) for words in COMMANDS])
def test_no_command_imports_from_the_working_directory(words: tuple[str, ...], ticket: Path, out: Path) -> None:
    log = str(next(ticket.rglob("0*.log")))
    given = [word.replace("OUT", str(out)).replace("LOG", log) for word in words]
    run(ticket, *given)


def test_live_and_watch_import_nothing_either(ticket: Path, out: Path) -> None:
    """A cluster that nobody serves, and a watch that ends when it has looked once."""
    said = run(ticket, "live", "--bootstrap-server", "127.0.0.1:9", "--out", str(out / "live"), codes=(2, 3, 4))
    assert "needs kafka-python" not in said
    run(ticket, "watch", ".", "--out", str(out / "watch"), "--master", "inline", "--until-idle", "1", codes=(0, 1))


@pytest.mark.spark
@pytest.mark.parametrize("python", ["ours", "another"])
def test_no_worker_of_spark_imports_from_the_working_directory(
    python: str, ticket: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By our daemon, and by pyspark's, where the workers' Python was chosen."""
    if python == "another":
        chosen = out / "python"
        chosen.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        chosen.chmod(0o755)
        monkeypatch.setenv("PYSPARK_PYTHON", str(chosen))
    spark = ("--master", "local[1]", "--quiet", "--out", str(out / f"spark-{python}"))
    run(ticket, "audit", ".", "--tables", *(["--expectations"] if python == "ours" else []), *spark)
    run(ticket, "sql", "SELECT count(*) FROM kafka_log_batches.`.`", ".", "--master", "local[1]", codes=(0, 2))
