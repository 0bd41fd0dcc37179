"""Check docstrings and identifiers of the product: ``python scripts/conventions.py [--count]``.

The rules, each with the number of offenders that [tool.conventions] in pyproject.toml still allows (none where
it has no number, which may only be lowered):

- ``missing-docstrings``: a module, or a public class, function or method of what ``documented`` lists, has none.
- ``repeating-docstrings``: a docstring of one line outside of these, or of a private name, repeats the name.
- ``vague-names``: an argument or a local name of a function is one of :data:`VAGUE`.
- ``repeated-class-names``: a class has the name of another one.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("auditor", "connectors", "rules", "dashboards", "airflow_dags")
VAGUE = frozenset({"found", "said", "told", "mine", "each", "at"})
# Words of a docstring that say nothing beside a name.
EMPTY = (
    "a an the this that these those its their his her it they them of for to in on at by with from as and or is are be "
    "all one each every some what which who here there"
)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Sources = Mapping[str, ast.Module]


def parsed(root: Path) -> dict[str, ast.Module]:
    """Every module of the product by its name below ``root``."""
    paths = (path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py")))
    return {path.relative_to(root).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def definitions(
    tree: ast.AST, within: tuple[Definition, ...] = ()
) -> Iterator[tuple[Definition, tuple[Definition, ...]]]:
    """Classes and functions of a module, each with those around it, the outermost first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield node, within
            yield from definitions(node, (*within, node))
        else:
            yield from definitions(node, within)


def is_public(chain: Iterable[Definition]) -> bool:
    """Whether a module's users may use a definition: no private name and no function around it."""
    *around, last = chain
    private = any(node.name.startswith("_") for node in (*around, last))
    return not private and not any(isinstance(node, Function) for node in around)


def is_documented(name: str, documented: Iterable[str]) -> bool:
    """Whether a module is, or is below, one of those that users read."""
    return any(name == place or name.startswith(place.rstrip("/") + "/") for place in documented)


def missing_docstrings(sources: Sources, documented: Iterable[str]) -> Iterator[str]:
    """Modules without a docstring, and public definitions of ``documented`` ones."""
    places = tuple(documented)
    for name, tree in sources.items():
        if not ast.get_docstring(tree):
            yield f"{name}:1: module without a docstring"
        if is_documented(name, places):
            for node, around in definitions(tree):
                overload = any("overload" in ast.unparse(d) for d in node.decorator_list)
                if is_public((*around, node)) and not ast.get_docstring(node) and not overload:
                    yield f"{name}:{node.lineno}: {node.name} has no docstring"


def stems(text: str) -> set[str]:
    """The words of a name or a sentence without their endings."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", text)
    return {
        re.sub(r"(?<=\w{3})(?:ing|ed|es|s|e)$", "", word.lower()) for word in words if word.lower() not in EMPTY.split()
    }


def repeating_docstrings(sources: Sources, documented: Iterable[str]) -> Iterator[str]:
    """One-line docstrings with no word beside those of the name and of the class around it."""
    places = tuple(documented)
    for name, tree in sources.items():
        for node, around in definitions(tree):
            text = ast.get_docstring(node) or ""
            if not text or "\n" in text or (is_documented(name, places) and is_public((*around, node))):
                continue
            if stems(text) <= stems(" ".join(n.name for n in (*around, node))):
                yield f"{name}:{node.lineno}: the docstring of {node.name} repeats its name: {text}"


def bound(function: Function) -> Iterator[tuple[str, int]]:
    """Arguments and local names of a function, but for those of functions within, with the lines that bind them."""
    for node in inside(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | Function) and node is not function:
            yield node.name or "", node.lineno


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it, functions and classes within by their name alone."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield child
        else:
            yield from inside(child)


def vague_names(sources: Sources) -> Iterator[str]:
    """Arguments and local names of functions that say nothing, a line per function and name."""
    for name, tree in sources.items():
        for node, _ in definitions(tree):
            if isinstance(node, Function):
                first: dict[str, int] = {}
                for local, line in bound(node):
                    if local in VAGUE:
                        first.setdefault(local, line)
                yield from (f"{name}:{line}: {node.name} names something {local!r}" for local, line in first.items())


def repeated_class_names(sources: Sources) -> Iterator[str]:
    """Classes with the name of one before, wherever they are defined."""
    first: dict[str, str] = {}
    for name, tree in sources.items():
        for node, _ in definitions(tree):
            if isinstance(node, ast.ClassDef):
                place = f"{name}:{node.lineno}"
                if node.name in first:
                    yield f"{place}: class {node.name} is defined in {first[node.name]} too"
                first.setdefault(node.name, place)


def offenders(sources: Sources, documented: Iterable[str]) -> dict[str, list[str]]:
    """What breaks each rule."""
    places = tuple(documented)
    return {
        "missing-docstrings": list(missing_docstrings(sources, places)),
        "repeating-docstrings": list(repeating_docstrings(sources, places)),
        "vague-names": list(vague_names(sources)),
        "repeated-class-names": list(repeated_class_names(sources)),
    }


def verdict(broken: Mapping[str, list[str]], allowed: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """What fails, and hints: a rule with fewer offenders than it allows is to allow fewer."""
    failures, hints = [], []
    for rule, lines in broken.items():
        limit = allowed.get(rule, 0)
        if len(lines) > limit:
            failures += [*lines, f"{rule}: {len(lines)} offenders, {len(lines) - limit} above the {limit} allowed"]
        elif len(lines) < limit:
            hints.append(f"{rule}: {len(lines)} offenders; lower the {limit} in [tool.conventions]")
    return failures, hints


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print offenders beyond those allowed, or with ``--count`` all of them and their numbers; exit code 1 for any."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project.get("tool", {}).get("conventions", {})
    broken = offenders(parsed(root), settings.get("documented", ()))
    if "--count" in arguments:
        print("\n".join(line for lines in broken.values() for line in lines))
        print("\n".join(f"{rule} = {len(lines)}" for rule, lines in broken.items()))
        return 0
    failures, hints = verdict(broken, settings)
    print("\n".join([*failures, *hints] or ["conventions: docstrings and identifiers pass"]))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
