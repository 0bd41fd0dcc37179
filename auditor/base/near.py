"""What somebody may have meant by a word that nothing has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKE = 0.6  # how alike two words have to be, of 1
MOST_NAMES = 100_000  # that are looked at: there may be a million partitions


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'audit'?)``, or with two names; empty where nothing is like it. Cost: linear in the names."""
    names = sorted({name for name, _ in zip(known, range(MOST_NAMES), strict=False)})
    lower = {name.lower(): name for name in reversed(names)}
    found = [lower[near] for near in difflib.get_close_matches(word.lower(), lower, 2, LIKE)]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""
