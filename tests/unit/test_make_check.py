"""What ``make check`` runs beside ruff and mypy: for each rule what breaks it and what does not."""

from __future__ import annotations

import ast
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.rules.catalogue import registry
from scripts import code_lines, commit_subjects, conventions, words

MODULE = '''"""A module
of two lines."""

# a comment
X = """no docstring,
as it has a name"""  # three


class A:
    """A class."""

    def f(self):
        """A method."""
        return (1,

                2)
'''


def project(folder: Path, limits: str = "", **files: str) -> Path:
    """A source tree without git; ``__`` in a name is a folder."""
    (folder / "pyproject.toml").write_text(limits)
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def parsed(**files: str) -> dict[str, ast.Module]:
    return {name.replace("__", "/") + ".py": ast.parse(text) for name, text in files.items()}


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    assert code_lines.code_lines(MODULE) == 2 + 1 + 1 + 2  # X, class, def, return
    assert code_lines.code_lines("") == 0


def test_a_package_is_two_folders_deep_below_auditor_alone() -> None:
    names = ("auditor/cli.py", "auditor/api/tables.py", "rules/seen/view.py")
    assert [code_lines.package(name) for name in names] == ["auditor", "auditor/api", "rules"]


def test_more_code_than_the_limit_fails_with_the_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = '[tool.code-lines]\n"rules" = 1\n"auditor/api" = 1\n'
    root = project(tmp_path, limits, rules__a="x = 1\ny = 2\n", auditor__api__b="x = 1\n", tests__c="x = 1\n")
    assert code_lines.main([], root) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines() == ["rules: 2 code lines, 1 above its limit of 1"]
    assert [line.split() for line in shown.out.splitlines()[1:]] == [
        ["auditor/api", "1", "1", "1", "-"], ["rules", "1", "2", "1", "-"], ["product", "2", "3", "2", "-"],
        ["tests", "1", "1", "-", "-"],
    ]  # fmt: skip


def test_a_package_without_a_limit_fails_and_what_toml_prints_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, rules__a="x = 1\n", dashboards__b="")
    assert code_lines.main([], root) == 1
    assert "rules: 1 code lines, no limit" in capsys.readouterr().err
    assert code_lines.main(["--toml"], root) == 0
    (root / "pyproject.toml").write_text(capsys.readouterr().out)
    assert code_lines.main([], root) == 0


def test_templates_and_links_are_no_code(tmp_path: Path) -> None:
    root = project(tmp_path, rules__a="x = 1\n")
    (root / "rules" / "page.html.j2").write_text("<p>\n\n</p>\n")
    (root / "auditor").mkdir()
    (root / "auditor" / "rules").symlink_to("../rules")
    modules, code, templates = code_lines.count(root, code_lines.listed(root))
    assert (dict(modules), dict(code), dict(templates)) == ({"rules": 1}, {"rules": 1}, {"rules": 2})


DOCUMENTED = ("auditor/api", "rules/view.py")


def test_a_module_and_a_public_name_without_a_docstring_are_seen() -> None:
    text = (
        '"""Some words."""\nclass View:\n    """A view."""\n    def m(self): pass\n    def _n(self): pass\n'
        'def f():\n    """F."""\n    def inner(): pass\n'
    )
    sources = parsed(rules__view=text, rules__other="def f(): pass\n", rules__viewer=text)
    assert list(conventions.missing_docstrings(sources, DOCUMENTED)) == [
        "rules/view.py:4: m has no docstring",
        "rules/other.py:1: module without a docstring",
    ]


@pytest.mark.parametrize(
    ("name", "text", "seen"),
    [
        ("_frame", "A frame.", True),
        ("_last_rows", "The last one.", True),
        ("count", "All of their counts.", True),
        ("_ProducerRow", "Rows of a producer.", True),
        ("_frame", "A frame of the page, as wide as its text.", False),
        ("_frame", "A frame.\n\nIt is as wide as its text.", False),
    ],
)
def test_a_docstring_that_repeats_the_name_is_seen(name: str, text: str, seen: bool) -> None:
    source = f'def {name}():\n    """{text}"""\n'
    assert bool(list(conventions.repeating_docstrings(parsed(rules__a=source), DOCUMENTED))) == seen
    public = not name.startswith("_")
    api = list(conventions.repeating_docstrings(parsed(auditor__api__a=source), DOCUMENTED))
    assert bool(api) == (seen and not public), "what users read may say its name"


@pytest.mark.parametrize(
    "source",
    [
        "def f(found): pass",
        "def f():\n    said = 1",
        "def f(*, at=0): pass",
        "def f():\n    for each in (): pass",
        "def f():\n    with g() as told: pass",
        "def f():\n    return [mine for mine in ()]",
        "def f():\n    return (found := 1)",
        "class A:\n    def f(self):\n        return lambda each: 1",
        "def f():\n    try: pass\n    except E as found: pass",
        "def f():\n    def found(): pass",
    ],
)
def test_a_vague_name_is_seen_once(source: str) -> None:
    assert len(list(conventions.vague_names(parsed(rules__a=source)))) == 1


def test_names_of_modules_and_attributes_are_not_local() -> None:
    source = (
        "found = 1\nclass A:\n    at = 2\n    def f(self):\n        self.said = found\n        return g(each=self.at)\n"
    )
    assert not list(conventions.vague_names(parsed(rules__a=source)))


def test_a_class_name_that_occurs_twice_is_seen() -> None:
    sources = parsed(
        rules__a="class A: pass", connectors__b="def f():\n    class A: pass", dashboards__c="class B: pass"
    )
    assert list(conventions.repeated_class_names(sources)) == [
        "connectors/b.py:2: class A is defined in rules/a.py:1 too"
    ]


def test_more_offenders_than_allowed_fail_and_fewer_are_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = "[tool.conventions]\nvague-names = 1\n"
    root = project(tmp_path, limits, rules__a='"""Some words."""\ndef f(found, said): pass\n')
    assert conventions.main([], root) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "vague-names: 2 offenders, 1 above the 1 allowed"
    project(root, limits, rules__a='"""Some words."""\n')
    assert conventions.main([], root) == 0
    assert capsys.readouterr().out == "vague-names: 0 offenders; lower the 1 in [tool.conventions]\n"


@pytest.mark.parametrize(
    "subject",
    [
        "Reports missing segment files", "Reported missing files", "Reporting missing files", "report missing files",
        "A test of totals", "Docs: times of reading", "Fixes it", "Copies files", "Report " + "x" * 54, "Report it.",
    ],
)  # fmt: skip
def test_a_subject_that_is_no_short_imperative_is_seen(subject: str) -> None:
    assert commit_subjects.flaw(subject)


@pytest.mark.parametrize(
    "subject",
    ["Report missing segment files as lost data", "Pass limits on", "Address a review", "Need less memory",
     "Bring back the clock", "Embed fonts", "Process logs apart", "Report " + "x" * 53],
)  # fmt: skip
def test_a_short_imperative_passes(subject: str) -> None:
    assert commit_subjects.flaw(subject) is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_subjects_since_the_base_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BASE", raising=False)
    assert commit_subjects.main(tmp_path) == 0
    assert "no git" in capsys.readouterr().out

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for subject in ("whatever was before", "Report files", "Reported files"):
        git("commit", "-q", "--allow-empty", "-m", subject)
    assert commit_subjects.main(tmp_path) == 0
    assert "nothing checked" in capsys.readouterr().out
    git("update-ref", "refs/remotes/origin/main", "HEAD~2")
    assert commit_subjects.main(tmp_path) == 1
    assert "2 checked, 1 break a rule" in capsys.readouterr().out
    monkeypatch.setenv("BASE", "HEAD~1")
    assert commit_subjects.main(tmp_path) == 1
    assert "1 checked, 1 break a rule" in capsys.readouterr().out
    monkeypatch.setenv("BASE", "nowhere")
    with pytest.raises(SystemExit, match="git knows no commit nowhere"):
        commit_subjects.main(tmp_path)


BANNED = "# a comment\n[phrases]\nas is normal -> as usual\n[terms]\nfolders? -> directory\n"


def flaws(content: str, whole: bool = True) -> list[str]:
    text = words.Text("area", "place", content, whole=whole, sentences=whole)
    return list(words.flaws(text, words.banned(BANNED)))


def test_banned_words_are_found_outside_code_and_options() -> None:
    assert flaws("Two Folders, as is\nnormal.") == [
        "place: 'as is normal'; write: as usual", "place: 'Folders'; write: directory",
    ]  # fmt: skip
    assert not flaws("`folder`, --folder, my_folder, [text](folder.md) and folderless")
    assert flaws("A folder, as is normal.", whole=False) == ["place: 'as is normal'; write: as usual"]


def test_a_sentence_may_have_thirty_words() -> None:
    assert not flaws("Short. " + "word " * 30 + ". Short.")
    assert flaws("word " * 31 + ".") == ["place: 31 words in a sentence: " + ("word " * 12) + "..."]


def test_blocks_of_a_page_leave_out_code() -> None:
    page = "# Head\n\nOne\ntwo.\n\n    indented folder\n\n- item **a** b\n  goes on\n\n  ```sh\n  folder\n  ```\n"
    page += "\n| a | b `x|y` |\n| --- | --- |\n"
    assert [(line, block.strip()) for line, block in words.blocks(page)] == [
        (1, "Head"), (3, "One two."), (8, "item **a** b goes on"), (15, "a"), (15, "b `code`"),
    ]  # fmt: skip


def test_literals_are_texts_and_no_docstrings() -> None:
    tree = ast.parse('"""A folder it is."""\nX = f"no {1} folder here"\nY = "word"\nZ = "SELECT a folder"\n')
    assert list(words.literals(tree)) == [(2, "no X folder here")]


def test_phrases_are_found_in_comments_and_docstrings() -> None:
    source = '"""First."""\n# one\n# two\nX = 1  # three\n'
    assert [text.strip() for _, text in words.remarks(source)] == ["First.", "", "one  two  three"]


def test_more_flaws_than_allowed_fail_and_fewer_are_a_hint() -> None:
    assert words.verdict({"a": ["x"], "b": ["y", "z"], "c": ["x"], "d": []}, {"b": 1, "c": 2}) == (
        ["x", "a: 1 flaws, 1 above the 0 allowed", "b: 2 flaws, 1 above the 1 allowed"],
        ["c: 1 flaws; lower the 2 in [tool.words]"],
    )


def test_long_pages_are_found_unless_they_are_reference(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, length in (("a.md", 1500), ("b.md", 1501), ("c.md", 1501)):
        (tmp_path / "docs" / name).write_text("word " * length)
    assert list(words.long_pages(tmp_path, ["c.md"])) == [("docs", "docs/b.md:1: 1501 words; split it (at most 1,500)")]


def test_a_rule_without_can_be_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(words.unexplained_rules())
    kind = next(iter(registry.kinds().values()))
    monkeypatch.setattr(registry, "kinds", lambda: {"x": replace(kind, id="x", sections={"Can be wrong": " ."})})
    assert list(words.unexplained_rules()) == [("rule pages", "x: no line says how it can be wrong")]
