"""What is said of many places in the same words, as one text with words in capitals, and a line of values a place.

Two texts are alike only where each word that differs is a value that both places are known by (a topic, a partition, a
producer): put back, the values give each text again, word for word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from auditor.base.at_rest import Values
from auditor.dashboards.text_columns import aligned_cells, indented

Piece = tuple[str, str]  # "text" or "command", and what it says
Names = Mapping[str, str]  # by the word that stands for it, in the order of columns, what a place is known by

TOPIC, NUMBER, PLACE = "TOPIC", "N", "TOPIC-N"
PLURAL = {"record": "records", "stays": "stay"}  # one text may speak of one record, the next of several
_WORD = re.compile(r"(\(*)(.*?)([.,;:)]*)")
# The word before a value says which of several equal ones it is.
_BEFORE = {
    "--partition": NUMBER,
    "--start-offset": "OFFSET",
    "CurrentTransactionStartOffset": "OFFSET",
    "producer": "PRODUCER",
    "--producer-id": "PRODUCER",
    "producerId": "PRODUCER",
    "--producer-epoch": "EPOCH",
    "producerEpoch": "EPOCH",
    "broker": "BROKER",
    "--topic": TOPIC,
}
_BEHIND = {"records": "RECORDS", "record": "RECORDS"}


@dataclass(slots=True)
class Alike:
    """Places, by their numbers in what was given, of which the same is said: ``parts`` with the words of ``columns`` in
    place of what differs, and of each place a value a column."""

    members: list[int]
    parts: list[Piece] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    values: list[list[str]] = field(default_factory=list)


@dataclass(slots=True)
class _Slot:
    """A word of the text: the same in all (``word``), or one of ``names`` in each."""

    word: str
    fixed: bool
    names: frozenset[str]


def alike(told: Sequence[tuple[Names, Sequence[Piece]]]) -> list[Alike]:
    """The places that share a text, in the order of the first of each. Cost: places times texts that differ."""
    found: list[tuple[Alike, list[_Slot]]] = []
    for number, (names, parts) in enumerate(told):
        for at, (group, slots) in enumerate(found):
            first = told[group.members[0]][1]
            if _shape(first) == _shape(parts) and (both := _both(slots, _words(parts), names)) is not None:
                group.members.append(number)
                found[at] = group, both
                break
        else:
            found.append((Alike([number]), [_Slot(word, True, _known(word, names)) for word in _words(parts)]))
    for group, slots in found:
        _finish(group, slots, told)
    return [group for group, _ in found]


def names(row: Values) -> Names:
    """What may stand in what is said of a partition or a finding, by the word in its place."""
    place = None if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    values = {
        PLACE: place,
        TOPIC: row["topic"],
        NUMBER: row["partition"],
        "ID": row.get("transactional_id"),
        "PRODUCER": row.get("producer_id"),
        "EPOCH": row.get("producer_epoch"),
        "OFFSET": row.get("first_offset"),
        "RECORDS": row.get("records"),
        "BROKER": row.get("broker_id"),
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def values_in_lines(group: Alike, width: int, most: int) -> list[str]:
    """What the words in capitals stand for: a line a place, of ``most`` at least 3; partitions alone on one line."""
    if not group.columns:
        return []
    table, most = [group.columns, *group.values], max(3, most)
    if not {*group.columns} <= {TOPIC, NUMBER}:
        fits = most + 1 if len(group.values) > most + 1 else len(table)
        lines = [f"    {line}" for line in aligned_cells(table[:fits], width - 4)]
        rest = len(table) - fits
        return lines + (indented(f"… {rest:,} more: --verbose", width, 4) if rest else [])
    shown = ", ".join("-".join(row) for row in group.values[: 2 * most])
    more = f" and {len(group.values) - 2 * most:,} more (--verbose)" if len(group.values) > 2 * most else ""
    return indented(f"{'-'.join(group.columns)}: {shown}{more}", width, 4)


def _shape(parts: Iterable[Piece]) -> list[tuple[str, int]]:
    return [(kind, len(text.split(" "))) for kind, text in parts]


def _words(parts: Iterable[Piece]) -> list[str]:
    return [word for _, text in parts for word in text.split(" ")]


def _known(word: str, names: Names) -> frozenset[str]:
    """The names that a word, without the signs around it, is the value of."""
    core = _core(word)[1]
    return frozenset(name for name, value in names.items() if value == core)


def _core(word: str) -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    return (match[1], match[2], match[3]) if match else ("", word, "")


def _both(slots: Sequence[_Slot], words: Sequence[str], names: Names) -> list[_Slot] | None:
    """What is common to a text and one more; None where a word differs that is nobody's value."""
    found = []
    for slot, word in zip(slots, words, strict=True):
        said = PLURAL.get(word, word)
        fixed = slot.fixed and said == PLURAL.get(slot.word, slot.word)
        around = _core(slot.word)[::2] == _core(word)[::2]
        common = slot.names & _known(word, names) if around else frozenset()
        if not fixed and not common:
            return None
        found.append(_Slot(slot.word if slot.word == word else said if fixed else slot.word, fixed, common))
    return found


def _finish(group: Alike, slots: Sequence[_Slot], told: Sequence[tuple[Names, Sequence[Piece]]]) -> None:
    names, parts = told[group.members[0]]
    if len(group.members) == 1:
        group.parts = list(parts)
        return
    mine = [told[number][0] for number in group.members]
    differ = {name for name in names if len({each.get(name) for each in mine}) > 1}
    place = "-".join(name if name in differ else str(names.get(name)) for name in (TOPIC, NUMBER))
    used = {TOPIC, NUMBER}
    at = 0
    for kind, text in parts:
        words = []
        for _ in text.split(" "):
            slot, before, behind = slots[at], *(slots[n].word if 0 <= n < len(slots) else "" for n in (at - 1, at + 1))
            name = "" if slot.fixed else _chosen(slot.names, before, behind, names)
            used.add(name)
            start, _, end = _core(slot.word)
            words.append(f"{start}{place if name == PLACE else name}{end}" if name else slot.word)
            at += 1
        group.parts.append((kind, " ".join(words)))
    group.columns = [name for name in names if name in used & differ and name != PLACE]
    group.values = [[each.get(name, "-") for name in group.columns] for each in mine] if group.columns else []


def _chosen(names: frozenset[str], before: str, behind: str, order: Names) -> str:
    hint = _BEFORE.get(before) or _BEHIND.get(behind)
    return hint if hint in names else next(name for name in order if name in names)
