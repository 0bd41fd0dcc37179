"""The page's colours reach WCAG AA (4.5:1 for text, 3:1 for shapes), light and dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

PAIRS = [
    ("ink", "page", 4.5), ("ink", "card", 4.5), ("ink", "well", 4.5), ("soft", "card", 4.5), ("soft", "page", 4.5),
    ("soft", "well", 4.5), ("ink", "bad-bg", 4.5), ("ink", "warn-bg", 4.5),
    *((name, f"{name}-bg", 4.5) for name in ("bad", "error", "warn", "info", "good", "unsure")),
    ("open", "card", 4.5), ("link", "card", 4.5), ("card", "commit", 4.5),
    *((name, "card", 3.0) for name in ("abort", "commit", "active")),
]  # fmt: skip


def themes() -> dict[str, dict[str, str]]:
    css = files("auditor.dashboards").joinpath("static", "report.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in css.split(":root {")[1:3])
    return {"light": light, "dark": light | dark}


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_on_white_is_that_of_the_standard() -> None:
    assert round(contrast("#000000", "#ffffff"), 3) == 21


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground", "least"), PAIRS)
def test_contrast(theme: str, ink: str, ground: str, least: float) -> None:
    colours = themes()[theme]
    assert contrast(colours[ink], colours[ground]) >= least
