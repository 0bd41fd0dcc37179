"""The wheel: one import name, and nothing of a project beside it gets in its way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import auditor
from auditor.base.errors import REQUIREMENTS
from tests import corpora
from tests.conftest import ROOT

LINKED = ("connectors", "dashboards", "rules")
SOURCES = ("auditor", *LINKED, "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", ".gitignore")


def build(target: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def contents(wheel: Path) -> dict[str, int]:
    """The CRC of each file by its name."""
    return {info.filename: info.CRC for info in zipfile.ZipFile(wheel).infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture
def without_links(tmp_path: Path) -> Path:
    """A checkout as a zip download leaves it: each link is a file with the path that it led to."""
    copy = tmp_path / "download"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    for name in LINKED:
        link = copy / "auditor" / name
        path = str(link.readlink())
        link.unlink()
        link.write_text(path, encoding="utf-8")
    return copy


def test_the_sdist_has_no_links_and_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(sdist) as tar:
        assert all(member.isfile() or member.isdir() for member in tar)
        tar.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert contents(build("wheel", source, tmp_path / "again")) == contents(wheel)


def test_a_zip_download_without_links_builds_the_same_wheel(wheel: Path, without_links: Path, tmp_path: Path) -> None:
    assert contents(build("wheel", without_links, tmp_path / "built")) == contents(wheel)


def test_a_zip_download_without_links_says_how_to_install(without_links: Path) -> None:
    shutil.copytree(ROOT / "scripts", without_links / "scripts")
    done = subprocess.run(["sh", "scripts/setup.sh"], cwd=without_links, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pipx install ." in done.stderr
    assert not (without_links / ".venv").exists()
    started = subprocess.run(
        [sys.executable, "-m", "auditor.cli"], cwd=without_links, capture_output=True, text=True, check=False
    )
    assert started.returncode == 2
    assert started.stderr.count("\n") == 1
    assert "pipx install ." in started.stderr


def test_the_wheel_owns_one_name(wheel: Path) -> None:
    """The same file, named .zip, is what --py-files takes."""
    names = zipfile.ZipFile(wheel).namelist()
    info = f"kafka_log_auditor-{auditor.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"auditor", info}
    assert {"auditor/py.typed", "auditor/rules/partition_transactions.py", "auditor/connectors/codec/batches.py",
            "auditor/dashboards/templates/report.html.j2"} <= set(names)  # fmt: skip
    metadata = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    assert "Name: kafka-log-auditor\n" in metadata
    extras = {line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Provides-Extra: ")}
    assert {*REQUIREMENTS, "all"} == extras
    assert not re.search(r"\]\((?!https?:)", metadata), "a link that leads nowhere on an index"
    base = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert not [line for line in base if any(name in line for name in ("pyspark", "great", "kafka-python", "pandas"))]
    assert not [line for line in base if "==" in line]


def test_it_works_beside_a_project_with_the_same_names(wheel: Path, tmp_path: Path) -> None:
    """Installed into an environment of its own, where rules.py and connectors/ are somebody else's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, str(wheel)], check=True)
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    project = tmp_path / "project"
    (project / "connectors").mkdir(parents=True)
    for file in ("rules.py", "connectors/__init__.py", "dashboards.py"):
        (project / file).write_text("MINE = True\n", encoding="utf-8")
    script = project / "script.py"
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert '"/copies/broker-1"' in example
    script.write_text(
        "import rules, connectors, dashboards\n"
        "assert rules.MINE and connectors.MINE and dashboards.MINE\n"
        + example.replace('"/copies/broker-1"', repr(str(corpora.unpack("hanging-36"))))
        + "print(auditor.__file__)\nprint(audit.findings[0].rule)\n",
        encoding="utf-8",
    )
    ran = subprocess.run([str(python), str(script)], capture_output=True, text=True, check=False, cwd=project, env={})
    assert ran.returncode == 0, ran.stderr
    message, transactions, place, rule = ran.stdout.splitlines()
    assert message.startswith("Hanging transaction of producer id 5")
    assert int(transactions) > 0
    assert Path(place).is_relative_to(site)
    assert rule == "hanging-transaction"
