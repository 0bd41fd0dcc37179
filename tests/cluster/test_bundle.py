"""``make bundle``: the archive alone, in a folder of its own, without network, copies and audits."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from auditor.base.code_cache import CARRIED
from tests import corpora
from tests.conftest import ROOT

pytestmark = pytest.mark.cluster

NAME = "hanging-43-killed"
VERSION = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bundle")
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bundle.py", str(out), VERSION], capture_output=True, text=True, check=True
    )
    (found,) = out.glob("*.tar.gz")
    assert str(found) in made.stdout
    return found


def test_nothing_in_it_tells_where_it_was_made(packed: Path) -> None:
    with tarfile.open(packed) as tar:
        for member in tar:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            data = tar.extractfile(member)
            assert data is not None
            assert str(ROOT).encode() not in data.read(), member.name


def offline() -> list[str]:
    """What a command is begun with so that it has no network; the test is skipped where that cannot be."""
    words = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("NOT TESTED: nobody may take the network away here")
    return words


def test_it_copies_and_audits_without_network(packed: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(packed, tmp_path, filter="data")
    (program,) = tmp_path.glob("*/auditor")
    source = corpora.unpack(NAME)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    python = str(Path(sys.base_prefix) / "bin")
    env = {"PATH": f"{python}:/usr/bin:/bin", "HOME": str(elsewhere), "PYTHONPATH": "/nothing"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*offline(), str(program), *words], cwd=elsewhere, env=env, capture_output=True, text=True, check=False
        )

    copied = run("copy", str(source), "--out", str(tmp_path / "copy"))
    assert (copied.returncode, copied.stderr) == (0, "")
    for path, out in ((source, "a"), (tmp_path / "copy", "b")):
        assert run("audit", str(path), "--out", str(tmp_path / out), "--quiet").returncode == 1
    of_source, of_copy = ((tmp_path / out / "findings.jsonl").read_bytes() for out in "ab")
    assert of_copy == of_source
    assert b"hanging-transaction" in of_source
    assert [*tmp_path.rglob(f"lib/{CARRIED}/*/*.nbi")]
    assert not [*tmp_path.rglob("__pycache__/*.nbi")], "a kernel was compiled, though all of them are packed"


def test_without_the_python_that_it_is_for_it_says_which(packed: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(packed, tmp_path, filter="data")
    (program,) = tmp_path.glob("*/auditor")
    done = subprocess.run(
        ["/bin/sh", str(program), "copy"], env={"PATH": "/nothing"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"needs Python {VERSION}" in done.stderr
