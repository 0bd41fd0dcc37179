"""The map of the program: every module by its folder, its lines, and what it is by the first line of its docstring."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGES = ("auditor", "connectors", "rules", "dashboards", "airflow_dags", "tests", "bench", "scripts")


def first_line(path: Path) -> tuple[str, int]:
    """What a module says of itself, and its lines."""
    source = path.read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0], source.count("\n")


def main() -> None:
    """Tests are excluded: they are named for their subjects. Links lead to packages that are listed by themselves."""
    for folder in sorted({path.parent for package in PACKAGES for path in Path(package).rglob("*.py")}):
        if folder.is_relative_to("tests/data"):
            continue
        known = {p.name: first_line(p) for p in sorted(folder.glob("*.py")) if not p.name.startswith("test_")}
        said, _ = known.pop("__init__.py", ("", 0))
        if known:
            print(f"\n{folder.as_posix()}/  {said}")
        for name, (line, lines) in known.items():
            print(f"  {name:28} {lines:4}  {line}")


if __name__ == "__main__":
    main()
