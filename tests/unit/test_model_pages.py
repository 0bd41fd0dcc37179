"""The pages of docs/model name tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_a_page_names_exists() -> None:
    named = [
        (page.name, path, name)
        for page in sorted((ROOT / "docs" / "model").glob("*.md"))
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    ]
    assert len(named) >= 40
    missing = [one for one in named if f"def {one[2]}(" not in (ROOT / one[1]).read_text(encoding="utf-8")]
    assert missing == []
