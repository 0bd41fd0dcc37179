"""The Data Docs of great-expectations show names from the data as text, which it does not do by itself.

``tests/browser/test_data_docs.py`` opens them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from auditor.rules.expectations import gx_run, suites
from tests.unit import report_samples as samples
from tests.unit.test_expectations import FINDING


def write(folder: Path) -> list[Path]:
    """The pages about a finding that breaks expectations by names which are markup."""
    name = samples.HOSTILE
    row = FINDING | {"fingerprint": "f", "cluster_id": name, "topic": name, "timestamp": name, "rule": name}
    gx_run.run({"findings": (pd.DataFrame([row]), suites.expectations("findings", ""))}, folder)
    return sorted(folder.rglob("*.html"))


def test_names_from_the_data_are_escaped(tmp_path: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in write(tmp_path))
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert(1)" not in text
    assert samples.HOSTILE not in text
