"""Parse numbers from text; the value ranges of producer sequences and epochs."""

from __future__ import annotations

import re

# The length of a number is checked before it is parsed: parsing a very long one takes quadratic time.
_INT = re.compile(r"([+-]?)(\d+)\Z")
_MOST_DIGITS = 19  # of a number of 64 bits
_BLANK = "".join(map(chr, range(33)))  # what String.trim removes


def parse_int(text: str, bits: int = 64) -> int | None:
    """Parse a decimal as Java does; return None if it does not fit ``bits``. Leading zeros are ignored."""
    match = _INT.match(text)
    if match is None or len(digits := match[2].lstrip("0") or "0") > _MOST_DIGITS:
        return None
    value = int(match[1] + digits)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def setting_number(text: str | None, least: int = 0, bits: int = 64) -> int | None:
    """Parse the value of a setting; None for no value, one below ``least``, or one beyond ``bits``.

    Surrounding blanks are ignored, as in Kafka's ConfigDef.
    """
    value = None if text is None else parse_int(text.strip(_BLANK), bits)
    return None if value is None or value < least else value


# Sequences wrap around (DefaultRecordBatch.incrementSequence, KIP-98); the last epoch is reserved for fencing
# (KIP-890).
LAST_SEQUENCE = 2**31 - 1  # also a bit mask: the next sequence is 0
SEQUENCES = 2**31
LAST_EPOCH = 32_767  # fences an exhausted producer, or ends its last transaction
