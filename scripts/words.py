"""Check the words of every text: ``python scripts/words.py [--count | --list [AREA ...]]``.

Three rules hold in the texts of an area, which is a folder of pages, a page, a package or the output of ``--help``:

- no phrase and no term of ``scripts/banned.txt``;
- no sentence above 30 words in pages, ``--help``, messages and pages of rules (the changelog has lines, not sentences);
- each page of a rule says how it can be wrong, and no page of docs/ has more than 1,500 words, except ``reference``.

[tool.words] in pyproject.toml has the number of offenders that an area still may have, which may only be lowered.
Comments and docstrings are searched for phrases alone.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PRODUCT = ("auditor", "connectors", "rules", "dashboards", "airflow_dags")
OTHERS = ("tests", "bench", "scripts")  # their comments and docstrings
PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
MOST_WORDS_OF_A_SENTENCE = 30
MOST_WORDS_OF_A_PAGE = 1500
SQL = re.compile(r"\s*(SELECT|WITH|CREATE|INSERT|FROM|JOIN)\b")
DECLARED = re.compile(r"^\s*\w+:\w+ ", re.MULTILINE)  # name and type of a table's column
LISTED = re.compile(r"\s*([-*+]|\d+\.)\s")


class Text(NamedTuple):
    """A text of an area. ``whole``: held to all rules, and not to the phrases alone; ``sentences``: to their length."""

    area: str
    place: str
    words: str
    whole: bool = True
    sentences: bool = True


class Banned(NamedTuple):
    """What is not written, and what is instead."""

    pattern: re.Pattern[str]
    instead: str
    is_phrase: bool


def banned(text: str) -> list[Banned]:
    """The entries of banned.txt."""
    entries, section = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line[1 : line.index("]")]
        elif line and not line.startswith("#"):
            pattern, _, instead = line.partition(" -> ")
            found = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
            entries.append(Banned(found, instead, is_phrase=section == "phrases"))
    return entries


def prose(text: str) -> str:
    """A text in one line without markup; a code span, an option or a name with an underscore is one word."""
    text = re.sub(r"(`+).+?\1", "CODE", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?<!\w)--?[a-zA-Z][\w-]*|\b\w*_\w+(\.\w+)*|https?://\S+", "CODE", text)
    return " ".join(text.replace("*", "").split())


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text that :func:`prose` made."""
    yield from re.split(r"(?<=[.!?])[\"')]*\s+|(?<=[.!?][\"')])\s+", text)


def size(text: str) -> int:
    """Words of a text: whatever has a letter or a digit."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def flaws(text: Text, entries: Iterable[Banned]) -> Iterator[str]:
    """What is to be written otherwise in a text, a line each."""
    plain = prose(text.words)
    for entry in entries:
        if text.whole or entry.is_phrase:
            for match in entry.pattern.finditer(plain):
                yield f"{text.place}: {match[0]!r}; write: {entry.instead}"
    if text.sentences:
        for sentence in sentences(plain):
            if (length := size(sentence)) > MOST_WORDS_OF_A_SENTENCE:
                yield f"{text.place}: {length} words in a sentence: {sentence[:60]}..."


def blocks(page: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items, headings and cells of a page, each with its line; code is passed over."""
    number, block, fence, in_list, blank = 0, list[str](), "", False, True
    for at, line in enumerate(re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL).splitlines(), 1):
        bare = line.strip()
        if fence or bare.startswith(("```", "~~~")):
            fence = "" if fence and bare == fence else fence or re.match(r"[`~]+", bare)[0]  # type: ignore[index]
            bare = ""
        elif line.startswith("    ") and blank and not in_list:
            bare = ""
        ends = not bare or bare.startswith(("|", "#")) or bool(LISTED.match(line))
        if ends and block:
            yield number, " ".join(block)
            block = []
        blank = not bare
        if bare.startswith("|"):
            cells = re.sub(r"(`+).+?\1", "`code`", bare).split("|")
            yield from ((at, cell) for cell in cells if cell.strip(" -:"))
        elif bare:
            in_list = bool(LISTED.match(line)) or (in_list and line.startswith(" "))
            number = number if block else at
            block.append(LISTED.sub("", line, count=1).strip(" #") if LISTED.match(line) else bare.strip(" #"))
    if block:
        yield number, " ".join(block)


def area_of_page(name: str) -> str:
    """A page of its own that is made or measured, else its folder."""
    own = name in {*PAGES, "docs/tables.md", "docs/lab-book.md", "docs/licenses.md"}
    return name if own else name.rpartition("/")[0]


def pages(root: Path) -> Iterator[Text]:
    """The texts of all pages that are written by hand, and of those of them that are made and committed."""
    names = [name for name in PAGES if (root / name).is_file()]
    names += [path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md"))]
    for name in names:
        page = (root / name).read_text(encoding="utf-8")
        for line, block in blocks(page):
            yield Text(area_of_page(name), f"{name}:{line}", block, sentences=name != "CHANGELOG.md")


def long_pages(root: Path, reference: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pages of docs/ that are no reference and too long, by area."""
    apart = {f"docs/{name}" for name in reference}
    for path in sorted((root / "docs").rglob("*.md")):
        name, length = path.relative_to(root).as_posix(), len(path.read_text(encoding="utf-8").split())
        if name not in apart and length > MOST_WORDS_OF_A_PAGE:
            yield area_of_page(name), f"{name}:1: {length} words; split it (at most {MOST_WORDS_OF_A_PAGE:,})"


def package(name: str) -> str:
    """The package of a module; ``auditor`` has packages of its own."""
    parts = name.split("/")
    return "/".join(parts[: 2 if parts[0] == "auditor" and len(parts) > 2 else 1])


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String literals of a module that read as text, docstrings apart; a value within an f-string is one word."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            text = "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            text = node.value
        else:
            continue
        if text.count(" ") > 1 and not SQL.match(text):
            yield node.lineno, text


def remarks(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module; lines of comments below each other are one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
    number, comment = -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != number + 1:
                yield max(number, 1), comment
                comment = ""
            number, comment = token.start[0], f"{comment} {token.string.lstrip('#:')}"
    yield max(number, 1), comment


def code(root: Path) -> Iterator[Text]:
    """Messages, comments and docstrings of the product; comments and docstrings of what is beside it."""
    for folder in (*PRODUCT, *OTHERS):
        for path in sorted((root / folder).rglob("*.py")):
            name, source = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
            area = package(name)
            for line, text in remarks(source):
                yield Text(area, f"{name}:{line}", text, whole=False, sentences=False)
            if folder in PRODUCT:
                for line, text in literals(ast.parse(source)):
                    parts = DECLARED.sub("CODE ", text).split("\n")
                    yield from (Text(area, f"{name}:{line}", part) for part in parts)


def templates(root: Path) -> Iterator[Text]:
    """The texts of templates, without what Jinja and HTML take out of them."""
    for path in sorted((root / "dashboards" / "templates").glob("*.j2")):
        text = re.sub(r"\{#.*?#\}|<(script|style)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        text = re.sub(r"\{\{.*?\}\}", "X", text, flags=re.DOTALL)
        text = re.sub(r"\{%.*?%\}", "\n", text, flags=re.DOTALL)
        text = re.sub(r"</?(?:b|i|em|strong|a|span|code)\b[^>]*>", "", text)
        for part in re.sub(r"<[^>]*>", "\n", text).split("\n"):
            yield Text("dashboards/templates", f"dashboards/templates/{path.name}", part)


def help_texts() -> Iterator[Text]:
    """What ``--help`` of every command prints."""
    from auditor.cli import parsers

    top, commands = parsers()
    for parser in (top, *commands.values()):
        texts = [parser.description, *(action.help for action in parser._actions)]
        texts += [group.title for group in parser._action_groups]
        yield from (Text("--help", parser.prog, text) for text in texts if text and text != argparse.SUPPRESS)


def rule_pages() -> Iterator[Text]:
    """The pages of rules, by kind of finding."""
    from auditor.rules.catalogue import registry

    for kind in registry.kinds().values():
        yield Text("rule pages", kind.id, kind.title)
        yield from (Text("rule pages", kind.id, text) for name, text in kind.sections.items() if name != "Source")


def unexplained_rules() -> Iterator[tuple[str, str]]:
    """Rules whose page does not say how they can be wrong, by area."""
    from auditor.rules.catalogue import registry

    for kind in registry.kinds().values():
        if not kind.sections.get("Can be wrong", "").strip(" ."):
            yield "rule pages", f"{kind.id}: no line says how it can be wrong"


def offenders(texts: Iterable[Text], entries: list[Banned]) -> dict[str, list[str]]:
    """The flaws of each area; an area without any is listed, too."""
    by_area: dict[str, list[str]] = {}
    for text in texts:
        by_area.setdefault(text.area, []).extend(flaws(text, entries))
    return by_area


def verdict(by_area: Mapping[str, list[str]], allowed: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """What fails, and hints: an area with fewer flaws than it may have is to have fewer."""
    failures, hints = [], []
    for area, lines in by_area.items():
        limit = allowed.get(area, 0)
        if len(lines) > limit:
            shown = lines if limit == 0 else []
            failures += [*shown, f"{area}: {len(lines)} flaws, {len(lines) - limit} above the {limit} allowed"]
        elif len(lines) < limit:
            hints.append(f"{area}: {len(lines)} flaws; lower the {limit} in [tool.words]")
    return failures, hints


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print flaws beyond those allowed; with ``--count`` the table for pyproject.toml, with ``--list`` all flaws."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {}).get("words", {})
    entries = banned((ROOT / "scripts" / "banned.txt").read_text(encoding="utf-8"))
    texts = [*pages(root), *code(root), *templates(root)]
    apart = list(long_pages(root, settings.get("reference", ())))
    if root == ROOT:
        texts += [*help_texts(), *rule_pages()]
        apart += unexplained_rules()
    by_area = offenders(texts, entries)
    for area, flaw in apart:
        by_area.setdefault(area, []).append(flaw)
    if "--count" in arguments:
        print("\n".join(f'"{area}" = {len(lines)}' for area, lines in sorted(by_area.items()) if lines))
        return 0
    if "--list" in arguments:
        wanted = set(arguments) - {"--list"}
        print("\n".join(line for area, lines in by_area.items() if not wanted or area in wanted for line in lines))
        return 0
    failures, hints = verdict(by_area, settings.get("allowed", {}))
    print("\n".join([*failures, *hints] or ["words: every text passes"]))
    return int(bool(failures))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
