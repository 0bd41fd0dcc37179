"""README: at most 600 words up to its documentation links, short sentences, and commands that print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from auditor.cli import main, parsers
from tests import corpora
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COPY = "/copies/broker-1"
SEGMENT = "broker-1/bank.audit-2/00000000000000000000.log"
MOST_WORDS = 600
LONGEST_SENTENCE = 30
OMITTED = "..."
# What needs a network, another program or a running cluster, by the test that runs it.
ELSEWHERE = {
    "uv tool install .": "tests/cluster/test_set_up.py",
    "pipx install .": "tests/cluster/test_set_up.py",
    "make demo": "tests/cluster/test_set_up.py",
    "make docs": "tests/cluster/test_set_up.py",
    "make test": ".ci/run",
    "auditor live --bootstrap-server HOST:PORT --out DIR": "tests/cluster/test_live.py",
    "auditor finish ID --out DIR --bootstrap-server HOST:PORT": "tests/broker/test_remedies.py",
}


def words(text: str) -> list[str]:
    """Words of prose, tables and code: whatever has a letter or a digit."""
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs, list items and cells; code blocks apart."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=[-|#])", prose):
        for cell in block.split("|"):
            yield from re.split(r"(?<=[.!?])\s", " ".join(cell.split()))


def shown() -> list[tuple[str, list[str]]]:
    """Commands of the quick start and the lines shown below each."""
    (block,) = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return [(command, lines.splitlines()) for command, lines in zip(parts[::2], parts[1::2], strict=True)]


def named() -> list[str]:
    """Commands within the text: those of the auditor with arguments, and those of other programs."""
    return [code for code in re.findall(r"`([^`\n]+)`", README) if re.match(r"(auditor|make|uv|pipx) \S", code)]


def matches(printed: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether lines are as expected; ``...`` stands for any number of lines."""
    if not expected:
        return not printed
    if expected[0] == OMITTED:
        return any(matches(printed[skipped:], expected[1:]) for skipped in range(len(printed) + 1))
    return bool(printed) and printed[0].rstrip() == expected[0] and matches(printed[1:], expected[1:])


def run(words: list[str]) -> int:
    known = {option for action in parsers()[1][words[0]]._actions for option in action.option_strings}
    return main([*words, *(["--master", "inline[1]"] if "--master" in known else [])])


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of a corpus with its history: DIR and HISTORY of the commands."""
    folder = tmp_path_factory.mktemp("readme")
    copy = str(corpora.unpack("hanging-36"))
    assert run(["audit", copy, "--quiet", "--out", str(folder / "out"), "--history", str(folder / "kept")]) == 1
    return folder


def test_it_is_short() -> None:
    head, _, links = README.partition("\n## Documentation\n")
    assert links
    assert len(words(head)) <= MOST_WORDS


def test_sentences_are_short() -> None:
    assert not [sentence for sentence in sentences(README) if len(words(sentence)) > LONGEST_SENTENCE]


def test_a_long_sentence_is_seen() -> None:
    long = " ".join(["word"] * (LONGEST_SENTENCE + 1))
    assert [s for s in sentences(f"Short.\n\n| a | {long} |\n") if len(words(s)) > LONGEST_SENTENCE] == [long]


def test_the_quick_start_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert len(shown()) == 3
    for command, lines in shown():
        program, *arguments = shlex.split(command.replace(COPY, str(corpora.unpack("hanging-36"))))
        assert program == "auditor"
        assert run(arguments) in (0, 1)
        printed = capsys.readouterr().out.splitlines()
        assert matches(printed, lines), "\n".join(printed)


@pytest.mark.parametrize("command", [code for code in named() if code not in ELSEWHERE])
def test_a_command_runs(command: str, audited: Path, tmp_path: Path) -> None:
    copy = str(corpora.unpack("hanging-36"))
    explained = command.replace("ID", "dfe6f71ca00b").replace("SELECT ...", "SELECT count(*) FROM batches")
    replaced = {"PATH": copy, "FILE": f"{copy}/{SEGMENT}", "HISTORY": str(audited / "kept"), "SITE": str(tmp_path)}
    replaced |= {"A": copy, "B": copy, "N": "1"}
    # Results go into an empty directory; who asks about an audit gets its own.
    out = tmp_path / "out" if command.startswith("auditor what-if") else audited / "out"
    arguments = [replaced.get(word, str(out) if word == "DIR" else word) for word in shlex.split(explained)[1:]]
    if arguments[0] == "audit":
        arguments += ["--out", str(tmp_path / "out")]
    assert run(arguments) == (1 if arguments[0] in ("audit", "recheck", "rehearse") else 0)


def test_other_commands_are_run_elsewhere() -> None:
    assert set(ELSEWHERE) <= set(named())
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


def test_lines_that_differ_are_seen() -> None:
    assert matches(["a", "b", "c"], ["a", OMITTED, "c"])
    assert matches(["a"], ["a", OMITTED])
    assert not matches(["a", "b"], ["a"])
    assert not matches(["a", "b"], [OMITTED, "c"])


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings as GitHub makes them, where README is read."""
    heads = re.findall(r"^#+ (.*)", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_into_pages_lead_to_a_heading() -> None:
    links = re.findall(r"\]\(([\w./-]+)#([^)]+)\)", README)
    assert links
    assert not [(path, at) for path, at in links if at not in anchors((ROOT / path).read_text(encoding="utf-8"))]
