"""Count the code lines of each package against its limit in pyproject: ``python scripts/code_lines.py [--toml]``.

Code lines are counted by the tokenizer over what git lists: without blank lines, comments and docstrings. Templates,
styles and scripts of pages are listed apart. ``--toml`` prints the table of limits, ready to paste into pyproject.toml.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("auditor", "connectors", "rules", "dashboards", "airflow_dags")
OTHERS = ("tests", "bench", "scripts")  # counted, without a limit
TEMPLATES = frozenset({".html", ".j2", ".css", ".js", ".jinja", ".svg"})
LIMITS = "code-lines"  # the table [tool.code-lines]
NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


def code_lines(source: str) -> int:
    """Lines with code in a module's source."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines -= docstring_lines(node.body)
    return len(lines)


def docstring_lines(body: list[ast.stmt]) -> set[int]:
    """The lines of the docstring that a body begins with, none where it has none."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())) as docstring, *_]:
            return set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return set()


def listed(root: Path) -> list[str]:
    """Names of the files that git lists; without git (an unpacked archive) of all, but for hidden and cache folders."""
    if (root / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
        paths = [root / name for name in names.decode().split("\0") if name]
    else:
        paths = [path for path in root.rglob("*") if not hidden(path.relative_to(root).parts)]
    # Links lead to packages that are counted by their own names.
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_file() and not linked(path, root))


def hidden(parts: Iterable[str]) -> bool:
    """Whether a path leads through a hidden folder or a cache."""
    return any(part.startswith(".") or part == "__pycache__" for part in parts)


def linked(path: Path, root: Path) -> bool:
    """Whether a path, or a folder above it below ``root``, is a symbolic link."""
    return any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(root) and part != root)


def package(name: str) -> str:
    """The package of a file: the first folder, the first two below ``auditor``."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "auditor" and len(parts) > 2 else parts[0]


def count(root: Path, names: Iterable[str]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Modules and code lines of each package, and lines of its templates that are not blank."""
    modules, code, templates = Counter[str](), Counter[str](), Counter[str]()
    for name in names:
        path = root / name
        if name.split("/")[0] not in (*PRODUCT, *OTHERS) or name.startswith("tests/data/"):
            continue
        if path.suffix == ".py":
            modules[package(name)] += 1
            code[package(name)] += code_lines(path.read_text(encoding="utf-8"))
        elif path.suffix in TEMPLATES:
            text = path.read_text(encoding="utf-8")
            templates[package(name)] += sum(bool(line.strip()) for line in text.splitlines())
    return modules, code, templates


def limited(name: str) -> bool:
    """Whether a package has a limit: those of the product do."""
    return name.split("/")[0] in PRODUCT


def exceeded(code: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """A line per package of the product with more code than its limit, or without a limit."""
    lines = []
    for name in sorted(filter(limited, code)):
        if name not in limits:
            lines.append(f"{name}: {code[name]:,} code lines, no limit in [tool.{LIMITS}]")
        elif code[name] > limits[name]:
            above = code[name] - limits[name]
            lines.append(f"{name}: {code[name]:,} code lines, {above:,} above its limit of {limits[name]:,}")
    return lines


def table(
    modules: Mapping[str, int], code: Mapping[str, int], templates: Mapping[str, int], limits: Mapping[str, int]
) -> list[str]:
    """What is printed: a row per package, the product's first, then its sum."""
    lines = [f"{'package':24}{'modules':>8}{'code lines':>12}{'limit':>9}{'templates':>11}"]
    for group in (sorted(filter(limited, code)), sorted(name for name in code if not limited(name))):
        lines += [row(name, modules[name], code[name], limits.get(name), templates.get(name, 0)) for name in group]
        if group and limited(group[0]):
            sums = [sum(counts.get(name, 0) for name in group) for counts in (modules, code, limits, templates)]
            lines.append(row("product", *sums))
    return lines


def row(name: str, modules: int, code: int, limit: int | None, templates: int) -> str:
    """A row of the table; an absent number is a dash."""
    cells = (f"{modules:>8,}", f"{code:>12,}", f"{limit:>9,}" if limit else f"{'-':>9}")
    return f"{name:24}{''.join(cells)}" + (f"{templates:>11,}" if templates else f"{'-':>11}")


def toml(code: Mapping[str, int]) -> list[str]:
    """The limits as they would be set today."""
    return [f"[tool.{LIMITS}]", *(f'"{name}" = {code[name]}' for name in sorted(filter(limited, code)))]


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the table, or the limits; exit code 1 where a package exceeds its limit."""
    modules, code, templates = count(root, listed(root))
    if "--toml" in arguments:
        print("\n".join(toml(code)))
        return 0
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    limits = project.get("tool", {}).get(LIMITS, {})
    print("\n".join(table(modules, code, templates, limits)))
    lines = exceeded(code, limits)
    sys.stderr.writelines(f"{line}\n" for line in lines)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
