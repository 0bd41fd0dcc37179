"""Counts and durations in words, the same in findings and on pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

NAMED = 60  # numbers in a sentence, more than an internal topic has partitions by default
NO_TIMEOUT_MS = 2**31 - 1  # what a coordinator stores as the time-out of a client of two-phase commit (KIP-939)
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def plural(count: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``3 batches``, ``1,000 entries``."""
    return f"{count:,} {noun if count == 1 else _plural_of(noun)}"


def _plural_of(noun: str) -> str:
    if noun.endswith(("ch", "sh", "s", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def duration(ms: int | None) -> str:
    """Milliseconds as the two largest units that are not zero: ``2 h 1 min``; below a second in ``ms``."""
    if ms is None:
        return "–"
    parts: list[str] = []
    rest = abs(int(ms))
    for unit, length in _DURATIONS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count:,} {unit}" if count else "")
        if len(parts) == 2:
            break
    said = " ".join(part for part in parts if part) or f"{rest} ms"
    return f"−{said}" if ms < 0 else said


def few(numbers: Iterable[object]) -> str:
    """Numbers or names for a sentence, NAMED of them at most: the name of a folder may say two thousand million."""
    first = list(itertools.islice(numbers, NAMED + 1))
    return ", ".join(map(str, first[:NAMED])) + (" and more" if len(first) > NAMED else "")
