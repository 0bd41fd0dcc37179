"""Findings of the release before rules were merged: what each is of, and the fingerprint that it had.

``tests/data/fingerprints.jsonl`` was written by that release: a made-up finding of each of its rules (``corpus`` null,
in a cluster ``a-cluster``), and what it found in each corpus.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "fingerprints.jsonl"


@functools.cache
def findings() -> tuple[dict[str, Any], ...]:
    """All of them, as rows."""
    return tuple(json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines())
