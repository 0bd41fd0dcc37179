"""The README as a package index shows it: no link that leads nowhere."""

from __future__ import annotations

import re

import pytest

from hatch_build import page
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SAMPLE = "See [it](docs/a.md) and [that](https://x.example/b), [here](#more).\n\n![A picture](docs/p.png)\n\nEnd.\n"


def test_with_an_address_everything_is_absolute() -> None:
    assert page(SAMPLE, "https://x.example/raw/") == (
        "See [it](https://x.example/raw/docs/a.md) and [that](https://x.example/b), [here](#more).\n\n"
        "![A picture](https://x.example/raw/docs/p.png)\n\nEnd.\n"
    )


def test_without_one_nothing_leads_nowhere() -> None:
    assert page(SAMPLE, "") == "See it and [that](https://x.example/b), [here](#more).\n\nEnd.\n"


@pytest.mark.parametrize("address", ["", "https://x.example/raw"])
def test_the_readme_is_such_a_page(address: str) -> None:
    shown = page(README, address)
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert all(target.startswith("https://") for target in targets)
    assert bool(re.findall(r"!\[", shown)) is bool(address)
    assert "docs/report.png" in README
