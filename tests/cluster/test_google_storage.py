"""``gs://`` against an emulator of Google Cloud Storage, in an environment of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests import corpora
from tests.cluster.standalone import wait_for
from tests.conftest import ROOT
from tests.environments import python_with

pytestmark = pytest.mark.cluster

EMULATOR = "gcp-storage-emulator==2026.7.19"
NAME = "hanging-36"
SERVE = """
import sys
from gcp_storage_emulator.server import create_server

server = create_server("127.0.0.1", 0, True, "copies")
server.start()
print("port", server._api._httpd.server_address[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What a URI into the emulator ends with; its bucket ``copies`` holds the corpus below ``brokers``."""
    python = python_with("gcs", EMULATOR)
    log = tmp_path_factory.mktemp("gcs") / "log"
    with log.open("wb") as out, subprocess.Popen(
        [str(python), "-c", SERVE], stdin=subprocess.PIPE, stdout=out, stderr=out
    ) as server:  # fmt: skip
        try:
            port = re.compile(r"port (\d+)")
            wait_for("the emulator", lambda: port.search(log.read_text()) or server.poll() is not None)
            found = port.search(log.read_text())
            assert found is not None, log.read_text()
            address = f"scheme=http&endpoint_override=127.0.0.1%3A{found[1]}"
            files, _ = pafs.FileSystem.from_uri(f"gs://anonymous@copies?{address}")
            source = f"file://{corpora.unpack(NAME)}"
            pafs.copy_files(source, "copies/brokers", destination_filesystem=files)
            yield address
        finally:
            server.kill()


def auditor(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def audit(source: str, out: str) -> subprocess.CompletedProcess[str]:
    as_of = str(corpora.manifest(NAME)["copied_at"])
    return auditor("audit", source, "--as-of", as_of, "--master", "inline", "--out", out)


def test_a_bucket_gives_the_findings_of_the_local_copy_and_takes_results(options: str, tmp_path: Path) -> None:
    local = audit(str(corpora.unpack(NAME)), str(tmp_path))
    assert local.returncode == 1, local.stderr
    ran = audit(f"gs://anonymous@copies/brokers?{options}", f"gs://anonymous@copies/audits/tonight?{options}")
    assert ran.returncode == 1, ran.stderr
    assert "gs://copies/audits/tonight/report.html" in ran.stdout
    files, _ = pafs.FileSystem.from_uri(f"gs://anonymous@copies?{options}")
    with files.open_input_file("copies/audits/tonight/findings.jsonl") as stored:
        found = stored.read()
    assert found == (tmp_path / "findings.jsonl").read_bytes()
    assert b"hanging-transaction" in found


def test_a_copy_there_is_made_gone_on_with_and_audited(options: str, tmp_path: Path) -> None:
    source, out = corpora.copy(NAME, tmp_path / "source"), f"gs://anonymous@copies/nightly?{options}"
    for folder in source.glob("broker-1/__*"):
        shutil.move(folder, tmp_path / folder.name)
    assert auditor("copy", str(source), "--out", out).returncode == 0
    for folder in tmp_path.glob("__*"):
        shutil.move(folder, source / "broker-1" / folder.name)
    shutil.rmtree(next(source.glob("broker-1/bank.*-1")))
    again = auditor("copy", str(source), "--out", out)
    assert again.returncode == 0, again.stderr
    assert "(0 unchanged)" not in again.stdout
    assert audit(str(source), str(tmp_path / "directory")).returncode == 1
    found = audit(out, str(tmp_path / "copy"))
    assert found.returncode == 1, found.stderr
    of_copy, of_directory = ((tmp_path / name / "findings.jsonl").read_bytes() for name in ("copy", "directory"))
    assert of_copy == of_directory
    inside = auditor("copy", out, "--out", f"gs://anonymous@copies/nightly/inside?{options}")
    assert inside.returncode == 2
    assert "contain each other" in inside.stderr
