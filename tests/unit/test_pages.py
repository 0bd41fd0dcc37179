"""The pages for people: each call of the auditor on them is one that its parsers take, each file that they name exists,
and what is made is whole."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Set
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from auditor.cli import parsers
from auditor.rules.catalogue import registry
from scripts import site_pages
from tests.conftest import ROOT

WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ALL = [*sorted(ROOT.glob("*.md")), *WRITTEN[1:]]
COMMANDS = parsers()[1]
FOLDERS = ("auditor", "connectors", "rules", "dashboards", "tests", "scripts", "bench", "airflow_dags", "docs")
OTHERS = {"contract_verification.py", "ibis/expr/types/core.py"}  # of other projects


def calls(text: str) -> Iterator[list[str]]:
    """Every call of the auditor in a page, as words: lines of code blocks and code within lines."""
    blocks = re.findall(r"^\s*```(?:sh|text)?\n(.*?)^\s*```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    for line in lines:
        for found in re.finditer(r"(?:^|[\s/(])auditor ([a-z-]+)(.*)", line.partition("  #")[0]):
            if found[1] in COMMANDS:
                try:
                    yield [found[1], *shlex.split(found[2])]
                except ValueError:  # a quote that is another program's
                    yield [found[1], *found[2].split()]


def unknown_options(text: str) -> list[str]:
    found = []
    for name, *words in calls(text):
        known = {option for action in COMMANDS[name]._actions for option in action.option_strings}
        options = [word.partition("=")[0].rstrip("])") for word in words if word.startswith("--")]
        found += [f"auditor {name} {option}" for option in options if option not in known]
    return found


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_options_on_a_page_exist(page: object) -> None:
    assert not unknown_options(page.read_text(encoding="utf-8"))  # type: ignore[attr-defined]


def test_an_option_that_is_none_is_seen() -> None:
    text = "`auditor audit PATH --what`\n```sh\nauditor live --bootstrap-server a:1 \\\n  --topics x\n```\n"
    assert sorted(unknown_options(text)) == ["auditor audit --what", "auditor live --topics"]


def test_pages_have_calls() -> None:
    assert sum(len(list(calls(page.read_text(encoding="utf-8")))) for page in WRITTEN) > 30


def test_every_command_and_every_rule_has_its_page() -> None:
    made = site_pages.pages()
    assert {f"commands/{name}.md" for name in COMMANDS} <= made.keys()
    assert {f"rules/{name}.md" for name in [*registry.load(), *registry.kinds()]} <= made.keys()
    for name, parser in COMMANDS.items():
        text = made[f"commands/{name}.md"]
        assert not [a for a in parser._actions for option in a.option_strings if f"`{option}" not in text]
    assert all("None" not in text.split("## Examples")[0] for text in made.values() if text.startswith("# auditor"))


def test_runbooks_say_what_the_rules_say() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    shown = site_pages.on_page_markdown(text)
    named = re.findall(r"<!-- rule: ([\w-]+) -->", text)
    assert len(named) >= 10
    for rule in named:
        first = registry.kinds()[rule].advice.afterwards.split()
        assert " ".join(first[1:6]) in shown.replace("`", "")


def test_what_goes_into_the_navigation_is_made() -> None:
    import yaml

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    paths = set(re.findall(r"[\w/-]+\.md", str(nav)))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert paths <= there | site_pages.pages().keys()


@cache
def files() -> frozenset[str]:
    """Every file that git keeps and every folder of them; without git, what is there."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        names = {Path(name) for name in listed.stdout.decode().splitlines()}
    else:
        names = {path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*")}
    return frozenset(path.as_posix() for name in names for path in (name, *name.parents))


def paths_of(text: str) -> Iterator[str]:
    """Files and folders of ours in code within lines: Python files, and what begins with one of our folders."""
    of_ours = rf"(?:{'|'.join(FOLDERS)})/[\w/.*-]*"
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        for path in re.findall(rf"(?<![\w/.<>$-])((?:[\w-]+/)*[\w-]+\.py|{of_ours})", code):
            yield path.rstrip("/.")


def is_there(path: str, known: Set[str]) -> bool:
    """A path from the root, one with ``*``, or the end of one."""
    return path in known or any(fnmatch(name, path) or name.endswith(f"/{path}") for name in known)


@pytest.mark.parametrize("page", [page for page in ALL if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_on_a_page_exist(page: Path) -> None:
    named = {*paths_of(page.read_text(encoding="utf-8"))} - OTHERS
    assert not [path for path in sorted(named) if not is_there(path, files())]


def test_a_file_that_is_none_is_seen() -> None:
    named = [
        *paths_of("`rules/no_such.py`, `tests/unit/`, `registry.py`, `docs/gone/`, `requests/x.py::f` and rules/no.py")
    ]
    assert named == ["rules/no_such.py", "tests/unit", "registry.py", "docs/gone", "requests/x.py"]
    assert [path for path in named if is_there(path, files())] == ["tests/unit", "registry.py"]


def test_contributing_is_two_pages() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split()) <= 950


IMPORTS = re.compile(r"from (auditor(?:\.\w+)*|tests(?:\.\w+)+) import (\w+(?: as \w+)?(?:, \w+(?: as \w+)?)*)")
MADE_BY_TESTS = {"auditor.constants", "auditor.kernels"}  # tests/processes/test_compiled.py


def lacking(text: str, known: Set[str]) -> list[str]:
    """Imports of modules or names that do not exist, also in code that a text gives to another Python."""
    found = []
    for module, names in IMPORTS.findall(text):
        if module in MADE_BY_TESTS:
            continue
        folder = re.sub(r"^auditor/(connectors|rules|dashboards)\b", r"\1", module.replace(".", "/"))
        own = next((ROOT / path for path in (f"{folder}.py", f"{folder}/__init__.py") if path in known), None)
        source = "" if own is None else own.read_text(encoding="utf-8")
        for name in (name.partition(" as ")[0] for name in names.split(", ")):
            is_module = f"{folder}/{name}.py" in known or f"{folder}/{name}/__init__.py" in known
            if not is_module and not re.search(rf"\b{name}\b", source):
                found.append(f"{module}.{name}")
    return found


@pytest.mark.parametrize("folder", ["tests", "bench", "scripts", "docs"])
def test_code_for_another_python_imports_what_exists(folder: str) -> None:
    """Imports in strings, which no linter reads."""
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".sh") and path.is_file()]
    texts = {path: path.read_text(encoding="utf-8") for path in paths if "data" not in path.parts}
    gone = {path.name: lacking(text, files()) for path, text in texts.items()}
    assert not {name: names for name, names in gone.items() if names and name not in ("test_pages.py", "test_tidy.py")}


def test_an_import_that_leads_nowhere_is_seen() -> None:
    text = (
        '"from auditor.spark import gone; from auditor.spark import session, jobs as j; from auditor.cli import lost"'
    )
    assert lacking(text, files()) == ["auditor.spark.gone", "auditor.cli.lost"]
