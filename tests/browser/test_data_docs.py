"""The Data Docs that great-expectations writes: names from the data do nothing in them either.

Unlike the report they ask for style sheets and fonts of other sites, which get no answer here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.conftest import Opened
from tests.unit.test_data_docs import write


def test_hostile_names_do_nothing(visit: Callable[..., Opened], tmp_path: Path) -> None:
    pages = write(tmp_path)
    assert pages
    for path in pages:
        opened = visit(path, offline=True)
        assert not [fault for fault in opened.faults if fault.startswith("dialog")]
