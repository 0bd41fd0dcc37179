"""Rows of the table in ``docs/lab-book.md``, and the page around them."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.java import VERSION
from bench.sides import ROOT

PAGE = ROOT / "docs" / "lab-book.md"


class Row(NamedTuple):
    """One line: what was timed, what must be reached, what was, and a note. ``reached`` None: nothing was asked for."""

    what: str
    target: str
    measured: str
    reached: bool | None = None
    note: str = ""

    def line(self) -> str:
        """As Markdown."""
        reached = {True: "yes", False: "**no**", None: ""}[self.reached]
        return f"| {self.what} | {self.target} | {self.measured} | {reached} | {self.note} |"


def ratio(what: str, target: float, measured: float, figures: str, note: str = "") -> Row:
    """A row of "at least so many times faster"; ``figures`` are what it was computed from.

    What is not above nothing drowned in noise: a small input took longer than a large one.
    """
    shown = f"**{measured:.1f} times** ({figures})" if measured > 0 else "not measured: less than a start varies by"
    return Row(what, f"{target:g} times", shown, measured >= target, note)


def at_most(what: str, target: float, measured: float, unit: str, note: str = "") -> Row:
    """A row of "no more than"; what is not above nothing drowned in noise and counts as missed."""
    return Row(what, f"at most {target:g}{unit}", f"**{measured:.3g}{unit}**", 0 < measured <= target, note)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    head = "| what | at least | measured | reached | |\n| --- | --- | --- | --- | --- |\n"
    return head + "\n".join(row.line() for row in rows) + "\n"


def machine() -> str:
    """What it was measured on, in one paragraph."""
    cpu = re.search(r"model name\s*: (.*)", _text("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _text("/proc/meminfo"))
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.UTC)
    return (
        f"{cpu[1] if cpu else platform.processor()}, {os.cpu_count()} cores, "
        f"{int(memory[1]) / 2**20 if memory else 0:.0f} GiB of memory, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {java}, Kafka {VERSION}. {now:%Y-%m-%d %H:%M} UTC; "
        f"load of the last 1, 5 and 15 minutes when it ended: {load}."
    )


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""


def write(name: str, text: str, page: Path = PAGE) -> None:
    """Replaces what stands between the markers of a section of the page."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    found = page.read_text(encoding="utf-8")
    before, rest = found.split(begin)
    page.write_text(before + begin + text.rstrip() + "\n" + end + rest.split(end)[1], encoding="utf-8")
