"""Numbers that the input gives as text: bounded before they are made, for no text is worth the time of a long one."""

from __future__ import annotations

import re

_INT = re.compile(r"[+-]?[0-9]{1,19}\Z")
_BLANK = " \t\n\v\f\r"


def parse_int(text: str, bits: int = 64) -> int | None:
    """A decimal as Java parses it into so many bits, or None."""
    if not _INT.match(text):
        return None
    value = int(text)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def setting_number(text: str | None, least: int = 0, bits: int = 64) -> int | None:
    """The value of a setting as a number of so many bits, at least ``least``; None for no value and for any other.

    Blanks around it do not count, as in Kafka's ConfigDef.
    """
    value = None if text is None else parse_int(text.strip(_BLANK), bits)
    return None if value is None or value < least else value
