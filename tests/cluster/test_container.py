"""The Containerfile: linted, and its steps run in a root directory made by debootstrap. The image is not built."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import corpora
from tests.conftest import ROOT

pytestmark = pytest.mark.cluster

FILE = ROOT / "Containerfile"
NAME = "hanging-43-killed"
CARRIED_OVER = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")  # what a container engine gives a build


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Containerfile with its arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def values(word: str) -> list[str]:
    return [rest for each, rest in instructions() if each == word]


def needed(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"NOT TESTED: {program} is not installed")
    return path


def test_lint() -> None:
    done = subprocess.run(
        [needed("npx"), "--yes", "dockerfilelint@1.8.0", str(FILE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def archive(out: Path) -> Path:
    """The archive of ``make bundle`` for the Python of the image, with the file name that the Containerfile adds."""
    (pattern,) = [source for source, _ in (rest.split() for rest in values("ADD"))]
    version = re.search(r"python([\d.]+)\.tar", pattern)
    assert version is not None
    subprocess.run([sys.executable, ROOT / "scripts" / "bundle.py", str(out), version[1]], check=True)
    (argument,) = values("ARG")
    name, _, default = argument.partition("=")
    (found,) = out.glob(Path(pattern.replace(f"${{{name}}}", default)).name)
    return found


def test_steps_make_a_root_in_which_the_auditor_runs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: debootstrap and chroot need root")
    (base,) = values("FROM")
    suite = re.search(r"debian:(\w+)-slim$", base)
    assert suite is not None
    root = tmp_path / "root"
    subprocess.run([needed("debootstrap"), "--variant=minbase", suite[1], str(root)], check=True, capture_output=True)
    for path in CARRIED_OVER:
        if Path(path).exists():
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path[1:])

    def inside(*words: str, user: str = "0", cwd: str = "/") -> subprocess.CompletedProcess[str]:
        moved = f"cd {shlex.quote(cwd)} && exec {shlex.join(words)}"
        command = ["chroot", f"--userspec={user}:{user}", str(root), "/bin/sh", "-c", moved]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    user, directory = "0", "/"
    for word, rest in instructions():
        if word == "ADD":
            _, target = rest.split()
            shutil.unpack_archive(archive(tmp_path), root / target.strip("/"), filter="data")
        elif word == "RUN":
            done = inside("/bin/sh", "-c", rest, user=user, cwd=directory)
            assert done.returncode == 0, done.stderr
        elif word == "USER":
            user = rest
        elif word == "WORKDIR":
            directory = rest
        else:
            assert word in ("FROM", "ARG", "ENTRYPOINT", "CMD"), word
    shutil.copytree(corpora.unpack(NAME), root / "logs")
    for path in (root / "logs", *(root / "logs").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o444)
    (entry,) = values("ENTRYPOINT")
    (arguments,) = values("CMD")
    shown = inside(*json.loads(entry), *json.loads(arguments), user=user, cwd=directory)
    assert (shown.returncode, "audit" in shown.stdout) == (0, True), shown.stderr
    done = inside(*json.loads(entry), "audit", "/logs", "--out", "/out/audit", "--quiet", user=user, cwd=directory)
    assert done.returncode == 1, done.stderr
    assert "hanging-transaction" in (root / "out" / "audit" / "findings.jsonl").read_text(encoding="utf-8")
