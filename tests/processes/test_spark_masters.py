"""Spark started as users start it: the command on one core, and a session of Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.pipeline.options import AuditOptions
from tests import corpora, every_corpus
from tests.audited import published
from tests.conftest import ROOT, SHORT_JVM
from tests.written_tables import tables_of

pytestmark = pytest.mark.spark
ENV = os.environ | {"PYTHONPATH": str(ROOT)}


def findings(out: Path) -> bytes:
    return (out / "findings.jsonl").read_bytes()


def test_the_command_finds_the_same_on_one_core(tmp_path: Path) -> None:
    """In a third of the corpora by day: tests/spark has all of them, on two."""
    paths = every_corpus.paths(tmp_path / "corpora", every_corpus.BY_DAY)
    here = published(every_corpus.options(paths, tmp_path / "here"))
    words = ["--records", "--as-of", str(every_corpus.AS_OF), "--out", str(tmp_path / "spark"), "--format", "json"]
    command = [sys.executable, "-m", "auditor.cli", "audit", *paths, *words, "--master", "local[1]"]
    ran = subprocess.run([*command, "--split-size", "65536"], capture_output=True, env=ENV, check=False, cwd=tmp_path)
    assert ran.returncode == here.exit_code(), ran.stderr.decode()
    assert every_corpus.results(tmp_path / "spark") == every_corpus.results(tmp_path / "here")
    assert ran.stdout == findings(tmp_path / "here")  # --format json prints the same lines and nothing else
    assert ran.stdout.count(b"\n") > 100


def test_connect_says_the_same(tmp_path: Path) -> None:
    path, as_of = str(corpora.unpack("hanging-36")), corpora.manifest("hanging-36")["copied_at"]
    published(AuditOptions((path,), tmp_path / "here", records=True, tables=True, as_of=as_of))
    command = [sys.executable, "-m", "tests.processes.connect_audit", path, str(as_of), str(tmp_path / "connect")]
    env = ENV | SHORT_JVM
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert findings(tmp_path / "connect") == findings(tmp_path / "here")
    assert tables_of(tmp_path / "connect") == tables_of(tmp_path / "here")
