"""Counts, durations, suggestions and Kafka's terms as text for people."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from auditor.base.at_rest import Values

HISTORY_FORMATS = ("parquet", "delta")  # of kept runs
SEVERITIES = ("critical", "error", "warning", "info")  # of findings, the most severe first
NAMED = 60  # numbers in a sentence, more than an internal topic has partitions by default
NO_TIMEOUT_MS = 2**31 - 1  # the timeout that a coordinator stores for a two-phase commit (KIP-939)
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
    """Milliseconds in the two largest units that are not zero: ``2 h 1 min``; in ``ms`` below a second."""
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
    text = " ".join(part for part in parts if part) or f"{rest} ms"
    return f"−{text}" if ms < 0 else text


def few(numbers: Iterable[object]) -> str:
    """Numbers or names for a sentence, at most NAMED of them: a directory name may contain thousands."""
    first = list(itertools.islice(numbers, NAMED + 1))
    return ", ".join(map(str, first[:NAMED])) + (" and more" if len(first) > NAMED else "")


# The first of very many rows.


MOST = 200  # rows that are shown


class FirstRows:
    """Count the rows of logs that have a value under a name, and keep the first ones to show, odd ones first.

    ``odd``: the key in that value that makes a row odd; ``needed``: the key without which there is nothing to show of
    it; ``empty`` counts rows without it. Memory: twice what is shown.
    """

    def __init__(self, name: str, odd: str, needed: str | None = None) -> None:
        self.name = name
        self.odd = odd
        self.needed = needed
        self.count = self.empty = self.odd_ones = 0
        self._kept: tuple[list[tuple[Any, Values]], ...] = ([], [])  # the odd ones are the second

    def add(self, place: object, row: Values) -> None:
        """Add a row; ``place`` is its sort key, higher than those before it."""
        value = row[self.name]
        if not value:
            return
        odd = bool(value[self.odd])
        if self.needed is not None and not value[self.needed] and not odd:
            self.empty += 1
            return
        self.count += 1
        self.odd_ones += odd
        if len(self._kept[odd]) < MOST:
            self._kept[odd].append((place, row))

    def join(self, other: FirstRows) -> None:
        """Add the rows of another, which may lie between its own."""
        self.count += other.count
        self.empty += other.empty
        self.odd_ones += other.odd_ones
        for own, theirs in zip(self._kept, other._kept, strict=True):
            own += theirs
            own.sort(key=itemgetter(0))
            del own[MOST:]

    def shown(self) -> list[Values]:
        """The rows to show."""
        return [row for _, row in (*self._kept[True], *self._kept[False])][:MOST]


# Suggestions for unknown words.


LIKE = 0.6  # similarity of two words, 1 for equal
MOST_NAMES = 100_000  # to compare: there may be a million partitions


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`` (did you mean 'audit'?)``, or two names; empty if no name is similar. Cost: linear in the names."""
    names = sorted({name for name, _ in zip(words, range(MOST_NAMES), strict=False)})
    lower = {name.lower(): name for name in reversed(names)}
    matches = [lower[near] for near in difflib.get_close_matches(word.lower(), lower, 2, LIKE)]
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


# Kafka's terms: ``auditor rules ID`` and the report explain those that they use.


GLOSSARY = {
    "aborted transaction": "Its records stay in the log; read_committed consumers skip them.",
    "coordinator": (
        "The broker that stores the state of a transactional id or a group, in a partition of __transaction_state or "
        "__consumer_offsets."
    ),
    "epoch": (
        "A number that is bumped when a producer, coordinator or leader is replaced. Requests with a lower one are "
        "refused."
    ),
    "fenced": (
        "Refused because a newer epoch exists: a fenced producer cannot write, and a fenced broker cannot lead."
    ),
    "high watermark": (
        "The offset up to which all in-sync replicas have a partition's records; consumers read no further."
    ),
    "in flight": (
        "Possibly missing only because the files were copied at different times, or were being written. A newer copy "
        "shows it."
    ),
    "in-sync replicas": "The replicas with all records of the leader (ISR). One of them may become leader.",
    "last stable offset": (
        "The offset of the first record whose transaction is still open, at most the high watermark (LSO). "
        "read_committed consumers read no further."
    ),
    "log end": "The offset of the next record (log end offset, LEO).",
    "log start": "The first offset that a partition still has; records below it are deleted.",
    "margin": (
        "The time allowed past a transaction's timeout before its partition counts as blocked: 30 s. An unknown "
        "timeout counts as 15 minutes."
    ),
    "marker": "A control record that ends a transaction in a partition: COMMIT or ABORT. Its coordinator sends it.",
    "producer id": (
        "The number of a producer, allocated by the brokers. With epoch and sequence it shows repeated writes."
    ),
    "producer snapshot": (
        "A file next to a log with the state of each producer, so that the broker need not read the log again."
    ),
    "read_committed": "The isolation level of consumers that see only committed transactions.",
    "sequence": (
        "The number of a producer's record in a partition, increased by one. A gap means loss, a repetition a "
        "duplicate."
    ),
    "timeout": "transaction.timeout.ms: the time that a transaction may stay open before its coordinator aborts it.",
    "transaction.version": "A feature level of the cluster: from 2 on each transaction has its own epoch (KIP-890).",
    "transactional id": (
        "The name that a producer keeps over restarts; a new producer with this name fences the old one."
    ),
}
_OTHER = {
    "last stable offset": ("LSO",),
    "in-sync replicas": ("in-sync", "ISR"),
    "coordinator": ("coordinators",),
    "epoch": ("epochs",),
    "marker": ("markers",),
    "sequence": ("sequences",),
    "producer id": ("producer ids",),
    "producer snapshot": ("producer snapshots", "snapshots"),
    "timeout": ("time-out", "timeouts"),
    "aborted transaction": ("aborted transactions",),
    "transactional id": ("transactional ids",),
    "fenced": ("fences",),
    "log end": ("end of the log", "log end offset"),
}


def words_in(texts: Iterable[str]) -> dict[str, str]:
    """The glossary's terms that occur in some texts, with their meanings, by name. Cost: linear."""
    whole = "\n".join(texts)
    meanings = {}
    for name, meaning in GLOSSARY.items():
        forms = "|".join(re.escape(form) for form in (name, *_OTHER.get(name, ())))
        if re.search(rf"(?<![\w.])(?i:{forms})(?!\w)", whole):
            meanings[name] = meaning
    return meanings
