"""docs/tables.md is what the code says, and every question in SQL on the pages has an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import auditor
from auditor.pipeline.derived_tables import NAMES
from scripts.tables_page import page
from tests import corpora
from tests.conftest import ROOT

OTHERS = ("tables.md", "cookbook.md")  # whose questions have tests of their own
PAGE = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def audit() -> Iterator[auditor.OpenedAudit]:
    with auditor.open(corpora.unpack("hanging-36"), master="inline[1]") as opened:
        yield opened


def test_the_page_is_the_codes() -> None:
    assert page() == PAGE, "python scripts/tables_page.py docs/tables.md makes it again"


@pytest.mark.parametrize("name", NAMES)
def test_the_question_is_answered(audit: auditor.OpenedAudit, name: str) -> None:
    (text,) = re.findall(rf"^## {name}\n.*?```sql\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    assert re.search(rf"\b{name}\b", text)
    assert audit.sql(text).columns


def test_questions_of_other_pages_are_answered(audit: auditor.OpenedAudit, tmp_path: Path) -> None:
    """Those over kept runs, whose folder the pages call DIR."""
    audit.write(tmp_path / "out", history=tmp_path / "kept", run_id="first")
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md") if path.name not in OTHERS]
    found = [text for page in pages for text in re.findall(r"```sql\n(.*?)\n```", page, re.DOTALL)]
    assert found
    for text in found:
        assert audit.sql(text.replace("'DIR/", f"'{tmp_path / 'kept'}/")).num_rows
