"""What DumpLogSegments printed of a partition's segments, of every release in the corpora. For tests only.

Shares nothing with the product's reader of dumps, so that one cannot hide the other's mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import corpora

FIELD = re.compile(r"(\w+): (\[[^\]]*\]|OptionalLong\[\d+\]|\S+)")
CONTENT = re.compile(r" (?:key|payload): .*")  # what decoders print; may hold anything
TIMES = ("createtime", "logappendtime", "notimestamptype")


class Line(NamedTuple):
    """A line of a dump: ``fields`` in lower case; ``file`` is the segment's name, "" behind a cut."""

    file: str
    is_record: bool
    fields: dict[str, str]

    def number(self, name: str) -> int:
        return int(self.fields[name])

    @property
    def timestamp(self) -> int:
        return next(int(self.fields[name]) for name in TIMES if name in self.fields)


class Dump(NamedTuple):
    """A partition's dump, and whether all of it is there."""

    lines: list[Line]
    is_whole: bool


def logs() -> Iterator[tuple[str, Path, Path]]:
    """Corpus, dump and partition folder of each dump of segments."""
    for name in corpora.names():
        for dump in sorted(corpora.oracle(name).glob("*.log.txt")):
            broker, _dot, partition = dump.name.removesuffix(".log.txt").partition(".")
            yield name, dump, Path(broker) / partition


def read_dump(path: Path) -> Dump:
    """The lines of a dump. A line right before a cut is left out, as it may be cut itself."""
    text = path.read_text(encoding="utf-8", errors="replace").split("\n[stderr]")[0]
    parts = text.split("[cut here]")
    lines: list[Line] = []
    file = ""
    for number, part in enumerate(parts):
        file = "" if number else file
        rows = part.splitlines()
        for row in rows if number == len(parts) - 1 else rows[:-1]:
            if row.startswith("Dumping "):
                file = row.rsplit("/", 1)[1]
            elif re.match(r"(\| offset|offset|baseOffset): -?\d", row):
                fields = dict(FIELD.findall(CONTENT.sub("", row)))
                lines.append(Line(file, row.startswith("|"), {k.lower(): v for k, v in fields.items()}))
    return Dump(lines, len(parts) == 1 and "[stderr]" not in path.read_text(encoding="utf-8", errors="replace"))
