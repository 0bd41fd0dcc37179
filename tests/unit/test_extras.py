"""Install hints: requirements for the running Python, and no package that we do not own."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib

import pytest

from auditor.base import errors
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = re.compile(r"kafka[-_.]log[-_.]auditor", re.IGNORECASE)
# Packages that pages name besides those of the locks. Each is somebody's on the public index.
KNOWN = {"fsspec", "hdfs-native", "atheris", "apache-airflow-providers-amazon"}
INSTALLS = re.compile(
    r"\b(?:pip3?|pipx|uv|uvx|conda|poetry|pdm)\b[ \w=-]*?\b(?:install|add|run|download)\b(?P<given>[^`\n|)]*)"
)
FOLDERS = (
    "auditor",
    "connectors",
    "rules",
    "dashboards",
    "airflow_dags",
    "docs",
    "scripts",
    "bench",
    "tests",
    ".ci",
    ".github",
)
TEXTS = (".py", ".md", ".sh", ".toml", ".yml", ".yaml", ".j2", ".json", ".txt", "")


def texts() -> dict[str, str]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS]
    files += [path for path in ROOT.iterdir() if path.suffix in TEXTS]
    found = {}
    for path in files:
        name = str(path.relative_to(ROOT))
        if (
            path.is_file()
            and path.name != "test_extras.py"
            and not name.startswith("tests/data/corpora/")
            and path.stat().st_size < 5 << 20
        ):
            found[name] = path.read_bytes().decode("utf-8", "replace")
    return found


def to_install(text: str) -> list[str]:
    """The words behind each command of a package manager, quotes taken away."""
    return [re.sub(r"""['"\\,;]""", " ", match["given"]) for match in INSTALLS.finditer(text)]


def test_requirements_are_those_of_the_project() -> None:
    declared = {extra: tuple(names) for extra, names in PROJECT["optional-dependencies"].items() if extra != "all"}
    assert declared == errors.REQUIREMENTS
    everything = {name for names in declared.values() for name in names} - {"pyspark>=4.0,<5"}  # connect has it
    assert set(PROJECT["optional-dependencies"]["all"]) == everything
    assert errors.SHTAB in PROJECT["dependencies"]


@pytest.mark.parametrize("module", errors.EXTRAS)
def test_the_command_is_for_this_python(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/a path/bin/python3")
    error = errors.absent(f"{module}.inner")
    assert error is not None
    said, _, command = str(error).partition("; run: ")
    assert said.endswith("which is not installed")
    words = shlex.split(command)
    assert words[:4] == ["/a path/bin/python3", "-m", "pip", "install"]
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["all"], "pyspark>=4.0,<5"]
    assert words[4:]
    assert set(words[4:]) <= set(declared)


def test_no_text_names_our_own_package_to_a_package_manager() -> None:
    """Nobody has registered it: whoever does runs code where the command is copied."""
    named = {
        name: line.strip()
        for name, text in texts().items()
        if OURS.search(text)
        for line in text.splitlines()
        if any(OURS.search(given) for given in to_install(line))
        or re.search(rf"(?:{OURS.pattern})(?:\[|\s*[=~<>]=)|install\s+['\"`]?(?:{OURS.pattern})\b(?!-)", line, re.I)
    }
    assert named == {}


def test_each_package_that_a_text_installs_is_known() -> None:
    pinned = {
        pin.lower()
        for lock in ROOT.glob("requirements*.lock")
        for pin in re.findall(r"^([\w.-]+)==", lock.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = {
        (name, package.lower())
        for name, text in texts().items()
        if name.endswith(".md") or name.startswith(("auditor/", "connectors/", "airflow_dags/"))
        for given in re.findall(r"pip3? install([^`\n|)]*)", text)
        for package in re.findall(r"(?<![\w./-])[A-Za-z][\w-]*(?![\w./])", re.sub(r"\[[\w, -]*\]", "", given))
    }
    assert {package for _, package in named} & {"fsspec", "duckdb"}
    assert {one for one in named if one[1] not in pinned | KNOWN} == set()


@pytest.mark.parametrize(
    "text",
    [
        "pip install 'kafka-log-auditor[live]'",
        "python -m pip install --upgrade kafka-log-auditor",
        "pipx install kafka_log_auditor",
        "uv add kafka-log-auditor",
        "conda install -c forge kafka-log-auditor",
    ],
)
def test_such_a_text_is_seen(text: str) -> None:
    assert any(OURS.search(given) for given in to_install(text))
