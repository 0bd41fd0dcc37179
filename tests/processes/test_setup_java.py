"""The set-up finds the right Java, or says before any other work what to install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD, SEVENTEEN, TWENTY_ONE = 'java version "1.8.0_392"', 'openjdk version "17.0.15" 2025-04-15', 'openjdk version "21"'


def fake_java(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "java").write_text(f"#!/bin/sh\necho 'Picked up _JAVA_OPTIONS: -Xmx1g' >&2\necho '{says}' >&2\n")
    (folder / "java").chmod(0o755)
    return folder


def source(tmp_path: Path, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Source the script as ``sh -u`` with nothing on PATH but what it calls, and ``path``; print what it decided."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sed", "head", "uname", "id"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    search = f"{path}:{tools}" if path else str(tools)
    command = ["/bin/sh", "-uc", '. scripts/java.sh; echo "JAVA_HOME=${JAVA_HOME:-}"']
    return subprocess.run(command, cwd=ROOT, env={"PATH": search, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("says", [SEVENTEEN, TWENTY_ONE])
def test_java_home_comes_first(tmp_path: Path, says: str) -> None:
    home = fake_java(tmp_path / "home" / "bin", says).parent
    assert source(tmp_path, fake_java(tmp_path / "path", OLD), JAVA_HOME=str(home)).stdout == f"JAVA_HOME={home}\n"


def test_path_serves_where_java_home_does_not(tmp_path: Path) -> None:
    done = source(tmp_path, fake_java(tmp_path / "path", SEVENTEEN), JAVA_HOME=str(tmp_path / "gone"))
    assert (done.returncode, done.stdout) == (0, "JAVA_HOME=\n")


def test_an_old_java_is_named_and_refused(tmp_path: Path) -> None:
    done = source(tmp_path, fake_java(tmp_path / "path", OLD))
    assert (done.returncode, done.stdout) == (1, "")
    assert "PATH has Java 8" in done.stderr


@pytest.mark.parametrize(
    ("release", "hint"),
    [
        ("ID=debian\nVERSION_CODENAME=bookworm", "apt-get install -y openjdk-17-jre-headless"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble", "apt-get install -y openjdk-21-jre-headless"),
        ("ID=fedora", "dnf install -y java-21-openjdk-headless"),
        ("ID=rocky\nID_LIKE='rhel centos fedora'", "dnf install -y java-21-openjdk-headless"),
        ("ID=arch", "pacman -S --noconfirm jre21-openjdk-headless"),
        ("ID=other", "OpenJDK 21"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="Linux names its distribution in /etc/os-release")
def test_the_hint_is_the_command_of_the_platform(tmp_path: Path, release: str, hint: str) -> None:
    (tmp_path / "os-release").write_text(release)
    done = source(tmp_path, OS_RELEASE=str(tmp_path / "os-release"))
    assert done.returncode == 1
    assert hint in done.stderr.splitlines()[-1]


def test_where_java_is_optional_its_absence_is_a_note(tmp_path: Path) -> None:
    """As for ``make test``, which needs none."""
    done = source(tmp_path, fake_java(tmp_path / "path", OLD), JAVA_IS_OPTIONAL="1")
    assert (done.returncode, done.stdout) == (0, "JAVA_HOME=\n")
    assert "no Java 17 or 21" in done.stderr


def test_an_optional_java_is_used(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home" / "bin", SEVENTEEN).parent
    done = source(tmp_path, JAVA_HOME=str(home), JAVA_IS_OPTIONAL="1")
    assert (done.stdout, done.stderr) == (f"JAVA_HOME={home}\n", "")


def test_without_java_goes_on_and_says_so(tmp_path: Path) -> None:
    done = source(tmp_path, WITHOUT_JAVA="1")
    assert done.returncode == 0
    assert "will be skipped" in done.stderr
