"""A terminal's text read as an operator reads it: words in capitals filled in from the lines below them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

NAMES = ("TOPIC", "N", "ID", "PRODUCER", "EPOCH", "OFFSET", "RECORDS", "BROKER")
HEADS = re.compile(rf"    (?:{'|'.join(NAMES)})(?:  +(?:{'|'.join(NAMES)}))*")
PLACES = re.compile(r"    (TOPIC-N|TOPIC|N): ")


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """A text with a place's values in place of their names."""
    return re.sub(r"\b(?:" + "|".join(NAMES) + r")\b", lambda found: values.get(found[0], found[0]), text)


def expanded(text: str) -> str:
    """A terminal's text with each paragraph that has words in capitals once for each of its places."""
    return "\n\n".join(one for paragraph in text.split("\n\n") for one in _expanded(paragraph))


def _expanded(paragraph: str) -> Iterator[str]:
    lines = paragraph.split("\n")
    for at, line in enumerate(lines):
        if HEADS.fullmatch(line):
            body, heads = "\n".join(lines[:at]), line.split()
            for row in lines[at + 1 :]:
                yield filled_in(body, dict(zip(heads, row.split(), strict=True)))
            return
        if found := PLACES.match(line):
            body, named = "\n".join(lines[:at]), " ".join(part.strip() for part in lines[at:])
            for each in named.partition(": ")[2].split(", "):
                values = each.rpartition("-")[::2] if found[1] == "TOPIC-N" else (each,)
                yield filled_in(body, dict(zip(found[1].split("-"), values, strict=True)))
            return
    yield paragraph
