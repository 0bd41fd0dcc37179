"""The pages for people: each call of the auditor on them is one that its parsers take, and what is made is whole."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from auditor.cli import parsers
from auditor.rules.catalogue import registry
from scripts import site_pages
from tests.conftest import ROOT

WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = parsers()[1]


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
        first = registry.kinds()[rule].advice.then.split()
        assert " ".join(first[1:6]) in shown.replace("`", "")


def test_what_goes_into_the_navigation_is_made() -> None:
    import yaml

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    paths = set(re.findall(r"[\w/-]+\.md", str(nav)))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert paths <= there | site_pages.pages().keys()
