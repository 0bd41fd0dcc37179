"""What Kafka's tools printed of the internal topics, for comparison: parsed apart from the product's text connector."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import corpora

RECORD = re.compile(
    r"\|? ?offset: (?P<offset>\d+) .*? key: (?P<key>\{\"type\".*?\}\}|\w+::.*?) payload: (?P<payload>.*)", re.ASCII
)


def partitions(topic: str) -> Iterator[tuple[str, Path, Path]]:
    """(corpus, partition folder, dump of its log) of an internal topic in every corpus where it was dumped."""
    for name in corpora.names():
        for text in sorted(corpora.oracle(name).glob(f"*.{topic}-*.log.txt")):
            broker, _, folder = text.name.removesuffix(".log.txt").partition(".")
            yield name, corpora.unpack(name) / broker / folder, text


def records(text: Path) -> Iterator[tuple[int, str, str]]:
    """(offset, key, payload) of each record a decoder of ``kafka-dump-log.sh`` printed. Long dumps are cut."""
    for line in text.read_text().splitlines():
        if (match := RECORD.match(line)) and not line.endswith("[cut here]"):
            yield int(match["offset"]), match["key"], match["payload"]


def json_stream(text: str) -> Iterator[dict[str, Any]]:
    """The objects that the formatters of 3.9 and later print without anything in between."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        value, end = decoder.raw_decode(text, at)
        yield value
        at = text.find("{", end)


def console(name: str, kind: str) -> str:
    """What the console consumer printed of a corpus; empty where it did not run."""
    path = corpora.oracle(name) / f"console-{kind}.txt"
    return path.read_text() if path.is_file() else ""
