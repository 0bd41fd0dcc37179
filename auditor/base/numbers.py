"""Numbers read from text, and the ranges of producer sequences and epochs."""

from __future__ import annotations

import re

# Numbers that the input gives as text: bounded before they are made, for no text is worth the time of a long one.


_INT = re.compile(r"([+-]?)(\d+)\Z")
_MOST_DIGITS = 19  # that a number of 64 bits has
_BLANK = "".join(map(chr, range(33)))  # what String.trim takes away


def parse_int(text: str, bits: int = 64) -> int | None:
    """A decimal as Java parses it into so many bits, or None. Leading zeros do not count, however many there are."""
    found = _INT.match(text)
    if found is None or len(digits := found[2].lstrip("0") or "0") > _MOST_DIGITS:
        return None
    value = int(found[1] + digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def setting_number(text: str | None, least: int = 0, bits: int = 64) -> int | None:
    """The value of a setting as a number of so many bits, at least ``least``; None for no value and for any other.

    Blanks around it do not count, as in Kafka's ConfigDef.
    """
    value = None if text is None else parse_int(text.strip(_BLANK), bits)
    return None if value is None or value < least else value


# How far a producer's numbers go: sequences are a ring, epochs end.
#
# Sources: DefaultRecordBatch.incrementSequence, KIP-98; the last epoch is reserved for fencing (KIP-890).


LAST_SEQUENCE = 2**31 - 1  # a mask, too: behind it comes 0
SEQUENCES = 2**31
LAST_EPOCH = 32_767  # fences an exhausted producer, or ends its last transaction
