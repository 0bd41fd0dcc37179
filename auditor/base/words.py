"""Counts in words, the same in findings and on pages."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``3 batches``, ``1,000 entries``."""
    return f"{count:,} {noun if count == 1 else _plural_of(noun)}"


def _plural_of(noun: str) -> str:
    if noun.endswith(("ch", "sh", "s", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
