"""The code of docs/expectations.md run from an empty project, and its results beside the audit's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.conftest import ROOT


def blocks() -> list[str]:
    """The page's Python, in its order: DuckDB, the history, Spark."""
    page = (ROOT / "docs" / "expectations.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)


def placed(code: str, folder: Path) -> str:
    """The code with the folders of a test, all below one."""
    for name in ("EXPORT", "OUT", "PROJECT", "HISTORY"):
        code = re.sub(rf'"{name}(?=["/])', f'"{folder}/{name}', code)
    return code


def said(results: dict[str, Any]) -> dict[tuple[str, str], tuple[bool, int | None]]:
    """By suite and what an expectation says: whether it is met, and how many rows break it."""
    out = {}
    for name, result in results.items():
        for validation in result.run_results.values():
            for each in validation.results:
                key = name, each.expectation_config.description
                out[key] = bool(each.success), each.result.get("unexpected_count")
    return out


def of_the_audit(out: Path) -> dict[tuple[str, str], tuple[bool, int | None]]:
    """The same of ``tables/expectations``."""
    rows = pq.read_table(out / "tables" / "expectations").to_pylist()
    return {(row["suite"], row["says"]): (row["success"], row["broken"]) for row in rows}
