"""Values, names and remedies as text, and text in columns."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor.base import advice
from auditor.base.at_rest import Values
from auditor.base.evidence_keys import Evidence, read
from auditor.base.words import duration, plural

# Values as text, the same in all outputs.
#
# Names come from untrusted input. :func:`visible` escapes control, bidirectional and invisible characters, so that a
# name cannot move a terminal's cursor or look like another one. HTML is escaped by the template engine.


Finding = Values

SEVERITIES = ("critical", "error", "warning", "info")
GRAVE = ("critical", "error")
TIMES = ("last_timestamp_ms", "begins_ms")  # of the evidence, since the epoch: all others in ms are durations
YEAR_10000_MS = 253_402_300_800_000
# The values of auditor.rules.seen.view.
OUTCOMES = (
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
)  # fmt: skip

# C0, C1, soft hyphen, marks and overrides of writing direction, zero-width characters, line separators, tags,
# non-characters and lone surrogates (which UTF-8 cannot even encode).
# The status of a transaction by its class (:data:`auditor.dashboards.answers.KINDS`).
STATUSES = {
    "undeliverable": "prepared", "hanging": "hanging", "orphan": "hanging", "ghost": "hanging", "late": "overdue",
    "undecidable": "unknown", "active": "open",
}  # fmt: skip
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_CODE = re.compile(
    r"`([^`\n]+)`"
    r"|(\bkafka-[a-z-]+\.sh(?: (?:--[\w.-]+(?: (?:'[^'\n]*'|[^-\s'][^\s']*))?|[a-z][a-z-]*(?= --)|list(?= ;|\.|$)))*)"
)
_SIGNS = re.compile(r"([\\`*_\[\]<>|~#])")
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def visible(text: str) -> str:
    r"""Return ``text`` with control, bidirectional and invisible characters escaped as ``\xNN`` or ``\uNNNN``."""
    return _HIDDEN.sub(_escape, text)


def escaped(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    return _SIGNS.sub(r"\\\1", visible(text))


def clip(text: str, limit: int) -> str:
    """Return about ``limit`` characters of ``text`` and how many are omitted; all of it if the note would not be
    shorter."""
    cut = f"… ({len(text) - limit:,} more characters)"
    return text if len(text) <= limit + 2 * len(cut) else text[:limit] + cut


def number(value: float | None) -> str:
    """Return a count with thousands separators; an en dash for None."""
    return "–" if value is None else f"{value:,}"


def size(count: int | None) -> str:
    """Return a number of bytes in binary units with at most three digits: ``1.53 MiB``."""
    if count is None:
        return "–"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} {'byte' if count == 1 else 'bytes'}" if unit == 0 else f"{value:.3g} {_SIZES[unit]}"


def instant(iso: str | None) -> str:
    """Return ``2026-11-21T04:00:00.123Z`` as ``2026-11-21 04:00:00 UTC``; any other text unchanged."""
    match = re.fullmatch(r"(\d{4,}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", iso or "")
    return f"{match[1]} {match[2]} UTC" if match else (iso or "–")


def moment(iso: str, as_of: str) -> str:
    """Return a time for a column, in UTC: the time on the day of ``as_of``, else the day with the minute."""
    match = re.fullmatch(r"(\d{4,})-(\d\d-\d\d)T(\d\d:\d\d)(:\d\d)(?:\.\d+)?(?:Z|\+00:00)", iso)
    if match is None:
        return visible(clip(iso, 20))
    year, day, minute, second = match.groups()
    if as_of.startswith(f"{year}-{day}T"):
        return minute + second
    return f"{day} {minute}" if as_of.startswith(f"{year}-") else f"{year}-{day}"


def fact(name: str, content: object) -> str:
    """Return a fact of the evidence on one line, structures in words; names that end in ``_ms`` also as a duration, or
    as the time that they are."""
    if name in TIMES and isinstance(content, int) and 0 <= content < YEAR_10000_MS:
        time = datetime.datetime.fromtimestamp(content // 1000, datetime.UTC)
        return f"{content} ({instant(time.isoformat())})"
    if name.endswith("_ms") and isinstance(content, int) and not isinstance(content, bool) and abs(content) >= 1000:
        return f"{content} ({duration(content)})"
    text = value(content)
    return _said(name, content, 0) if text.startswith(("{", "[")) and not isinstance(content, str) else text


def outcome_of(finding: Finding) -> str:
    """Return the outcome of a finding in words; empty for none."""
    return str(finding.get("outcome") or "none").replace("_", " ").removesuffix("none")


def value(content: object) -> str:
    """Return a fact of the evidence on one line; structures as compact JSON with sorted keys."""
    if content is None:
        return "–"
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, str | int | float):
        return str(content)
    if isinstance(content, list | tuple) and all(isinstance(item, str | int) for item in content):
        return ", ".join(str(item) for item in content) or "none"
    return json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)


def parsed_time(iso: object) -> datetime.datetime | None:
    """Return an ISO 8601 time; None for anything else."""
    try:
        return datetime.datetime.fromisoformat(str(iso))
    except ValueError:
        return None


def are(count: int) -> str:
    """Return the verb for a count: ``is`` or ``are``."""
    return "is" if count == 1 else "are"


def severity_count(severity: str, count: int) -> str:
    """Return ``2 critical``, ``1 error``, ``6 warnings``, ``4 info``."""
    return plural(count, severity) if severity in ("error", "warning") else f"{count:,} {severity}"


def log_name(row: Values) -> str:
    """Return ``topic-partition`` of a row; empty without a topic."""
    topic, partition = row.get("topic"), row.get("partition")
    if topic is None:
        return ""
    return str(topic) if partition is None else f"{topic}-{partition}"


def offsets(first: int | None, last: int | None) -> str:
    """Return ``71–117``, or one offset if both are the same or one is missing; empty for none."""
    if first is None or last is None or first == last:
        return "" if first is None and last is None else str(last if first is None else first)
    return f"{first}–{last}"


def kind(finding: Values) -> str:
    """Return the kind of a finding; in a run of an earlier release its rule."""
    return str(finding.get("kind") or finding["rule"])


def place(row: Values) -> str:
    """Return ``topic-partition@offsets``, or the file without a topic, and the broker if known."""
    log = log_name(row) or (row.get("file") or "")
    span = offsets(row.get("offset"), row.get("last_offset"))
    broker = "" if row.get("broker_id") is None else f" broker {row['broker_id']}"
    return f"{log}{'@' if span else ''}{span}{broker}".strip()


def who(row: Values) -> str:
    """Return the producer, transactional id with its framework, and group of a row in words; empty for none."""
    parts, whose = [], row if row.get("framework") else read(Evidence, row.get("evidence"))
    if row.get("transactional_id") is not None:
        parts.append(clip(str(row["transactional_id"]), 200))
    if row.get("producer_id") is not None:
        epoch = "" if row.get("producer_epoch") is None else f", epoch {row['producer_epoch']}"
        producer = f"producer id {row['producer_id']}{epoch}"
        parts = [f"{parts[0]} ({producer})"] if parts else [producer]
    if whose.get("framework"):
        likely = "" if whose["framework_certainty"] == "proved" else " (likely)"
        named = clip(f"{whose['application']}, {whose['application_part']}", 200)
        parts.append(f"{whose['framework']}{likely}: {named}")
    if row.get("group_id") is not None:
        parts.append(f"group {clip(str(row['group_id']), 200)}")
    return " · ".join(parts)


def ageless(row: Values) -> bool:
    """Whether the age of an open transaction is unknown: at least 0 is no age, since the newest time is its own."""
    return row.get("age_ms") is None or (row["age_ms"] == 0 and bool(row.get("at_least")))


def aged(row: Values) -> str:
    """Return the age of an open transaction in words."""
    if ageless(row):
        return "an unknown time"
    if row.get("since_by_producer") and row.get("since") == row.get("since_not_before"):  # it may have begun later
        least = "about " if row.get("at_least") else "at most "
    else:
        least = "at least " if row.get("at_least") else ""
    return f"{least}{duration(row['age_ms'])}"


def begun(row: Values) -> str:
    """Return since when a transaction is open, in words; empty if unknown. Where the producer's clock contradicts
    the brokers' times around it, both are given."""
    if not row.get("since"):
        return ""
    if not row.get("since_by_producer"):
        return instant(row["since"]) + ("" if row.get("since_not_before") else " by its records' timestamps")
    text, least, most = (
        instant(row[name]) if row.get(name) else "" for name in ("since", "since_not_before", "since_not_after")
    )
    bounds = [f"no earlier than {least}"] if least and least != text else []
    bounds += [f"no later than {most}"] if most and most != text else []
    text += " at the earliest" if text == least else " at the latest" if text == most else ""
    by = f" (broker time{', ' + ', '.join(bounds) if bounds else ''}"
    return f"{text}{by}; producer clock: {instant(row['since_by_producer'])})"


FINGERPRINT_SHOWN = 12  # hex digits, enough to ask 'auditor explain' for one


def short_fingerprint(finding: Finding) -> str:
    """Return the finding ID: the first digits of the fingerprint; empty without one."""
    return str(finding.get("fingerprint") or "")[:FINGERPRINT_SHOWN]


def unsaid(remedy: str, verdict: str) -> str:
    """Return a remedy without the verdict ("Wait", "Do not abort") at its start."""
    match = re.match(rf"{re.escape(verdict)}(?:, [^:.]*)?: +", remedy)
    rest = remedy[match.end() :] if match else remedy
    return rest[:1].upper() + rest[1:] if match and rest.split(" ")[0].isalpha() else rest


def new_in(remedy: str, before: str) -> str:
    """Return a remedy without its last sentence if the remedy ``before`` ends with the same."""
    rest, _, last = remedy.rpartition(". ")
    return rest if rest and before.endswith(f". {last}") else remedy


def pieces(remedy: str) -> list[tuple[str, str]]:
    """Split a remedy into ``(kind, text)``: ``text``, ``code`` (a name) or ``command`` (to be copied).

    Text in backticks is code; a ``kafka-*.sh`` call with arguments is a command, also without backticks.
    """
    parts: list[tuple[str, str]] = []
    end = 0
    for match in _CODE.finditer(remedy):
        code = match[1] or match[2].rstrip(" .,;:)")
        stop = match.end() if match[1] else match.start() + len(code)
        parts += [("text", remedy[end : match.start()]), ("command" if _is_command(code) else "code", code)]
        end = stop
    parts.append(("text", remedy[end:]))
    # A command stands on a line of its own: the punctuation that followed it in the sentence would hang in the air.
    after = ["", *(kind for kind, _ in parts)]
    tidy = [
        (kind, _begun(text.lstrip(" .;,")) if before == "command" and kind == "text" else text)
        for before, (kind, text) in zip(after, parts, strict=False)
    ]
    return [(kind, text) for kind, text in tidy if text.strip()]


def sentences(remedy: str) -> list[tuple[str, str]]:
    """Split a remedy into ``(kind, text)`` for line output: ``command``, or ``text`` including names."""
    parts: list[tuple[str, str]] = []
    for kind, text in pieces(remedy):
        if kind != "command" and parts and parts[-1][0] == "text":
            parts[-1] = ("text", parts[-1][1] + text)
        else:
            parts.append((kind if kind == "command" else "text", text))
    tidy = [(kind, text if kind == "command" else text.strip(" ;")) for kind, text in parts]
    return [(kind, text) for kind, text in tidy if text]


def advice_lines(given: Values | None, remedy: str) -> list[tuple[str, str]]:
    """Split an advice as :func:`sentences` does; ``remedy``: its text in a run of an earlier release."""
    if given is None or "tone" in given:
        return sentences(remedy)
    parts: list[tuple[str, str]] = []
    for kind, text in advice.pieces(given):
        parts += [(kind, text)] if kind == "command" else sentences(text)
    return parts


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def _is_command(code: str) -> bool:
    return bool(re.match(r"(?:bin/)?kafka-[a-z-]+(?:\.sh)? ", code))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Text in columns of a terminal.


def cells(text: str) -> int:
    """Return the width of ``text`` on a terminal: wide characters take two columns, combining ones none."""
    return len(text) if text.isascii() else sum(_cell(sign) for sign in text)


def pad(text: str, width: int) -> str:
    """Fill ``text`` with spaces up to ``width`` columns."""
    return text + " " * max(0, width - cells(text))


def shortened(text: str, width: int) -> str:
    """Shorten ``text`` to ``width`` columns by cutting its middle: names differ at their ends."""
    if cells(text) <= width:
        return text
    head, tail = "", ""
    for n in range(len(text)):
        grown = (head + text[len(head)], tail) if n % 2 else (head, text[len(text) - len(tail) - 1] + tail)
        if cells(grown[0] + grown[1]) + 1 > width:
            break
        head, tail = grown
    return f"{head}…{tail}"


def wrap(text: str, width: int) -> list[str]:
    """Wrap ``text`` at ``width`` columns, between words if possible. One empty line for an empty text."""
    lines, line, room = [], "", width
    for word in text.split(" "):
        for part in _split(word, width):
            need = cells(part) + (1 if line else 0)
            if need > room and line:
                lines.append(line)
                line, room, need = "", width, cells(part)
            line, room = f"{line} {part}" if line else part, room - need
    return [*lines, line]


def indented(text: str, width: int, by: int) -> list[str]:
    """Wrap ``text`` at ``width`` columns, indented ``by`` spaces; hidden characters are escaped."""
    return [" " * by + line for line in wrap(visible(text), width - by) if line]


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Align rows in columns, separated by two spaces; rows wider than ``width`` are wrapped. Hidden characters are
    escaped."""
    shown = [[visible(cell) for cell in row] for row in rows]
    wides = [max(map(cells, column)) for column in zip(*shown, strict=True)]
    lines = ["  ".join(map(pad, row, wides)).rstrip() for row in shown]
    return [part for line in lines for part in ([line] if width is None or cells(line) <= width else wrap(line, width))]


def _split(word: str, width: int) -> list[str]:
    if cells(word) <= width:
        return [word]
    parts, part, room = [], "", width
    for sign in word:
        if _cell(sign) > room and part:
            parts.append(part)
            part, room = "", width
        part, room = part + sign, room - _cell(sign)
    return [*parts, part]


def _cell(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


# Texts about many places as one text with placeholders (TOPIC, N), and a table of their values.
#
# Two texts are grouped only if each differing word is a value of both places (topic, partition, producer): with the
# values put back, the group gives each text again, word for word.


Piece = tuple[str, str]  # "text" or "command", and the text
Names = Mapping[str, str]  # the values of a place by the word that replaces them, in the order of columns

TOPIC, NUMBER, PLACE = "TOPIC", "N", "TOPIC-N"
PLURAL = {"record": "records", "stays": "stay"}  # one text may speak of one record, the next of several
_WORD = re.compile(r"(\(*)(.*?)([.,;:)]*)")
# The word before (or after) a value tells equal values apart.
_BEFORE = {
    "--partition": NUMBER,
    "--start-offset": "OFFSET",
    "CurrentTransactionStartOffset": "OFFSET",
    "id": "PRODUCER",
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
    """Places, by index, with the same text: ``parts`` with the words of ``columns`` in place of what differs, and
    for each place its ``values``."""

    members: list[int]
    parts: list[Piece] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    values: list[list[str]] = field(default_factory=list)


@dataclass(slots=True)
class _Slot:
    # A word: the same in all texts (``word``), or the value of one of ``names`` in each.
    word: str
    fixed: bool
    names: frozenset[str]


def alike(texts: Sequence[tuple[Names, Sequence[Piece]]]) -> list[Alike]:
    """Group places by text, in the order of their first. Cost: places times different texts."""
    groups: list[tuple[Alike, list[_Slot]]] = []
    for number, (names, parts) in enumerate(texts):
        for position, (group, slots) in enumerate(groups):
            first = texts[group.members[0]][1]
            if _shape(first) == _shape(parts) and (both := _both(slots, _words(parts), names)) is not None:
                group.members.append(number)
                groups[position] = group, both
                break
        else:
            groups.append((Alike([number]), [_Slot(word, True, _known(word, names)) for word in _words(parts)]))
    for group, slots in groups:
        _finish(group, slots, texts)
    return [group for group, _ in groups]


def names(row: Values) -> Names:
    """Return what may be replaced in a text about a partition or finding, by the replacing word."""
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
    """Return the values of the replaced words: one line per place, at least 3 of ``most``; partitions alone on one
    line."""
    if not group.columns:
        return []
    table, most = [group.columns, *group.values], max(3, most)
    if not {*group.columns} <= {TOPIC, NUMBER}:
        fits = most + 1 if len(group.values) > most + 1 else len(table)
        lines = [f"    {line}" for line in aligned(table[:fits], width - 4)]
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
    core = _core(word)[1]
    return frozenset(name for name, value in names.items() if value == core)


def _core(word: str) -> tuple[str, str, str]:
    match = _WORD.fullmatch(word)
    return (match[1], match[2], match[3]) if match else ("", word, "")


def _both(slots: Sequence[_Slot], words: Sequence[str], names: Names) -> list[_Slot] | None:
    # None if a word differs that is no value of the place.
    joined = []
    for slot, word in zip(slots, words, strict=True):
        form = PLURAL.get(word, word)
        fixed = slot.fixed and form == PLURAL.get(slot.word, slot.word)
        around = _core(slot.word)[::2] == _core(word)[::2]
        common = slot.names & _known(word, names) if around else frozenset()
        if not fixed and not common:
            return None
        joined.append(_Slot(slot.word if slot.word == word else form if fixed else slot.word, fixed, common))
    return joined


def _finish(group: Alike, slots: Sequence[_Slot], texts: Sequence[tuple[Names, Sequence[Piece]]]) -> None:
    names, parts = texts[group.members[0]]
    if len(group.members) == 1:
        group.parts = list(parts)
        return
    rows = [texts[number][0] for number in group.members]
    differ = {name for name in names if len({row.get(name) for row in rows}) > 1}
    place = "-".join(name if name in differ else str(names.get(name)) for name in (TOPIC, NUMBER))
    used = {TOPIC, NUMBER}
    all_words = ["", *(slot.word for slot in slots), ""]
    neighbours = zip(slots, all_words, all_words[2:], strict=False)  # each slot, the word before it and behind it
    for kind, text in parts:
        words = []
        for slot, before, behind in itertools.islice(neighbours, len(text.split(" "))):
            name = "" if slot.fixed else _chosen(slot.names, before, behind, names)
            used.add(name)
            start, _, end = _core(slot.word)
            words.append(f"{start}{place if name == PLACE else name}{end}" if name else slot.word)
        group.parts.append((kind, " ".join(words)))
    group.columns = [name for name in names if name in used & differ and name != PLACE]
    group.values = [[row.get(name, "-") for name in group.columns] for row in rows] if group.columns else []


def _chosen(names: frozenset[str], before: str, behind: str, order: Names) -> str:
    hint = _BEFORE.get(before) or _BEHIND.get(behind)
    return hint if hint in names else next(name for name in order if name in names)


# Evidence in words. Exact values are in ``findings.jsonl``, and collapsed on the page.


# Names that are unclear without underscores.
_NAMES = {
    "also": "related findings",
    "at_least": "at least that",
    "bytes": "size",
    "class": "transaction class",
    "differs": "what differs",
    "held_at_least_ms": "open for at least (by later broker times in its log)",
    "in_flight": "may be in flight",
    "isr": "ISR",
    "isr_before": "ISR before",
    "log_dir": "log directory",
    "missing": "missing evidence",
    "over_ms": "past its timeout by",
    "repeats": "repeated",
    "since": "open since",
    "since_by_producer": "open since (producer clock)",
    "since_not_after": "open no later than",
    "since_not_before": "open no earlier than",
    "step_ms": "explained by a clock change of",
    "timeout_ms": "timeout",
    "why": "because",
}
_FIRST = ("expected", "found", "why", "class", "confidence", "missing")  # in this order, before the others by name
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_DEEPEST = 3


def in_words(evidence: Values) -> list[tuple[str, str]]:
    """Return each known fact as its name and its text, the expected and found ones first. Cost: linear."""
    facts = [str(name) for name in evidence if evidence[name] is not None]
    order = sorted(facts, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return [(clip(_name(name), 80), _said(name, evidence[name], 0)) for name in order]


def _name(name: str) -> str:
    return _NAMES.get(name) or name.removesuffix("_ms").replace("_", " ")


def _said(name: str, fact: object, depth: int) -> str:
    # ``name`` gives the unit of a number; ``depth`` is the nesting.
    if isinstance(fact, bool) or fact is None or depth > _DEEPEST:
        return value(fact)
    if isinstance(fact, int):
        return duration(fact) if name.endswith("_ms") else size(fact) if _counts_bytes(name, fact) else str(fact)
    if isinstance(fact, str):
        return instant(fact) if _TIME.fullmatch(fact) else fact
    if isinstance(fact, Mapping):
        return _pairs(fact, depth)
    if isinstance(fact, Sequence):
        return _listed(name, fact, depth)
    return value(fact)


def _counts_bytes(name: str, count: int) -> bool:
    return count >= 0 and (name == "bytes" or name.endswith("_bytes"))


def _pairs(fact: Values, depth: int) -> str:
    if isinstance(fact.get("message"), str):
        kind = " ".join(str(fact[name]) for name in ("severity", "rule") if fact.get(name))
        return f"{kind}: {fact['message']}" if kind else str(fact["message"])
    own = [f"{_name(str(name))} {_said(str(name), item, depth + 1)}" for name, item in fact.items() if item is not None]
    deep = any(isinstance(item, Mapping) for item in fact.values())
    return ("; " if deep else ", ").join(own) or "nothing"


def _listed(name: str, fact: Sequence[Any], depth: int) -> str:
    texts = [_said(name, item, depth + 1) for item in fact]
    if any(isinstance(item, Mapping) for item in fact):
        return "; ".join(texts)
    nested = [f"({text})" if isinstance(item, list | tuple) else text for item, text in zip(fact, texts, strict=True)]
    return ", ".join(nested) or "none"


# What a baseline suppresses.


BACK = 3  # entries of a baseline that are named


def baseline(row: Values) -> str:
    """Return in words what a baseline suppresses; ``row``: the summary's."""
    counts = {name: count for name, count in row["counts"]["by_severity"].items() if count}
    text = f"{counted(counts)} suppressed by {row['file']} (listed in findings.jsonl only)"
    back = [f"{entry['rule']} in {entry['where']} ({entry['why']})" for entry in row["back"]]
    more = f" and {len(back) - BACK} more" if len(back) > BACK else ""
    text += f"; no longer suppressed: {'; '.join(back[:BACK])}{more}" if back else ""
    gone = len(row["gone"])
    text += f"; {plural(gone, 'entry')} no longer {'matches' if gone == 1 else 'match'} a finding" if gone else ""
    return text


def counted(by_severity: Mapping[str, int]) -> str:
    """Return the number of findings, in all and by severity, in words."""
    kinds = ", ".join(severity_count(name, count) for name, count in by_severity.items() if count)
    return plural(sum(by_severity.values()), "finding") + (f" ({kinds})" if kinds else "")
