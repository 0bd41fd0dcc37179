"""What holding a conformance case by bytes comes to, whatever its model."""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """A case by bytes: what differs, a line each; or why no log can hold it, and then nothing was read."""

    differences: list[str]
    unheld: str = ""
