"""How values look to people, the same on every surface: names made harmless, sizes, durations, instants, remedies.

Names come from untrusted input. :func:`visible` makes control, direction-changing and invisible characters show as
escapes, so that a name can neither move a terminal's cursor nor pass for another one. HTML escaping is the template
engine's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from auditor.base import advice
from auditor.base.at_rest import Values
from auditor.base.words import duration

Finding = Values

SEVERITIES = ("critical", "error", "warning", "info")
GRAVE = ("critical", "error")
# As of auditor.rules.seen.view.
OUTCOMES = (
    "blocked", "lost", "hidden", "exposed", "duplicated", "reordered", "unreadable", "refused", "at_risk", "none",
)  # fmt: skip

# C0, C1, soft hyphen, marks and overrides of writing direction, zero-width characters, line separators, tags,
# non-characters and lone surrogates (which UTF-8 cannot even encode).
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_CODE = re.compile(
    r"`([^`\n]+)`"
    r"|(\bkafka-[a-z-]+\.sh(?: (?:--[\w.-]+(?: (?:'[^'\n]*'|[^-\s'][^\s']*))?|[a-z][a-z-]*(?= --)|list(?= ;|\.|$)))*)"
)
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def visible(text: str) -> str:
    """``text`` with every control, direction-changing or invisible character as ``\\xNN`` or ``\\uNNNN``."""
    return _HIDDEN.sub(_escape, text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of columns as wide as their widest cell, two spaces between; hidden characters become visible first."""
    shown = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def clip(text: str, limit: int) -> str:
    """Some ``limit`` characters of ``text``; says how many were left out, if they are longer than saying so twice."""
    cut = f"… ({len(text) - limit:,} more characters)"
    return text if len(text) <= limit + 2 * len(cut) else text[:limit] + cut


def number(value: float | None) -> str:
    """A count with its thousands set apart; an en dash for none."""
    return "–" if value is None else f"{value:,}"


def size(count: int | None) -> str:
    """A number of bytes in binary units, three digits at most: ``1.53 MiB``."""
    if count is None:
        return "–"
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} {'byte' if count == 1 else 'bytes'}" if unit == 0 else f"{value:.3g} {_SIZES[unit]}"


def instant(iso: str | None) -> str:
    """``2026-11-21T04:00:00.123Z`` as ``2026-11-21 04:00:00 UTC``; what is not of that form as it is."""
    match = re.fullmatch(r"(\d{4,}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)", iso or "")
    return f"{match[1]} {match[2]} UTC" if match else (iso or "–")


def moment(iso: str, as_of: str) -> str:
    """A time for a column, in UTC: the time of day alone on the day of ``as_of``, else the day and the minute."""
    match = re.fullmatch(r"(\d{4,})-(\d\d-\d\d)T(\d\d:\d\d)(:\d\d)(?:\.\d+)?(?:Z|\+00:00)", iso)
    if match is None:
        return visible(clip(iso, 20))
    year, day, minute, second = match.groups()
    if as_of.startswith(f"{year}-{day}T"):
        return minute + second
    return f"{day} {minute}" if as_of.startswith(f"{year}-") else f"{year}-{day}"


def fact(name: str, content: object) -> str:
    """A fact of the evidence by its name: :func:`value`, and what ends in ``_ms`` as a duration too."""
    if name.endswith("_ms") and isinstance(content, int) and not isinstance(content, bool) and abs(content) >= 1000:
        return f"{content} ({duration(content)})"
    return value(content)


def value(content: object) -> str:
    """A fact of the evidence on one line: words as they are, structures as compact JSON with sorted keys."""
    if content is None:
        return "–"
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, str | int | float):
        return str(content)
    if isinstance(content, list | tuple) and all(isinstance(item, str | int) for item in content):
        return ", ".join(str(item) for item in content) or "none"
    return json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)


def log_name(row: Values) -> str:
    """``topic-partition`` of a finding, transaction, timeline or log; empty where there is no topic."""
    topic, partition = row.get("topic"), row.get("partition")
    if topic is None:
        return ""
    return str(topic) if partition is None else f"{topic}-{partition}"


def offsets(first: int | None, last: int | None) -> str:
    """``71–117``, or one offset where first and last are the same or one is missing; empty for none."""
    if first is None or last is None or first == last:
        return "" if first is None and last is None else str(last if first is None else first)
    return f"{first}–{last}"


def kind(finding: Values) -> str:
    """Which of its rule's questions it answers; in a run of the past its rule is its kind."""
    return str(finding.get("kind") or finding["rule"])


def place(row: Values) -> str:
    """``topic-partition@offsets``, or the file where there is no topic, and the broker where it is known."""
    log = log_name(row) or (row.get("file") or "")
    span = offsets(row.get("offset"), row.get("last_offset"))
    broker = "" if row.get("broker_id") is None else f" broker {row['broker_id']}"
    return f"{log}{'@' if span else ''}{span}{broker}".strip()


def who(row: Values) -> str:
    """The producer, transactional id and group that a row names, in words; empty for none."""
    parts = []
    if row.get("transactional_id") is not None:
        parts.append(clip(str(row["transactional_id"]), 200))
    if row.get("producer_id") is not None:
        epoch = "" if row.get("producer_epoch") is None else f" epoch {row['producer_epoch']}"
        parts.append(f"producer {row['producer_id']}{epoch}")
    if row.get("group_id") is not None:
        parts.append(f"group {clip(str(row['group_id']), 200)}")
    return " · ".join(parts)


FINGERPRINT_SHOWN = 12  # hex digits, enough to ask 'auditor explain' for one


def short_fingerprint(finding: Finding) -> str:
    """As much of its fingerprint as 'auditor explain' needs to find it; empty where it has none."""
    return str(finding.get("fingerprint") or "")[:FINGERPRINT_SHOWN]


def unsaid(remedy: str, verdict: str) -> str:
    """A remedy that stands behind its verdict ("Wait", "Do not abort"), without saying that again."""
    said = re.match(rf"{re.escape(verdict)}(?:, [^:.]*)?: +", remedy)
    rest = remedy[said.end() :] if said else remedy
    return rest[:1].upper() + rest[1:] if said and rest.split(" ")[0].isalpha() else rest


def new_in(remedy: str, before: str) -> str:
    """A remedy without its last sentence where that of the remedy above it is the same."""
    rest, _, last = remedy.rpartition(". ")
    return rest if rest and before.endswith(f". {last}") else remedy


def pieces(remedy: str) -> list[tuple[str, str]]:
    """A remedy as ``(kind, text)`` in reading order: kind is ``text``, ``code`` (a name) or ``command`` (to be copied).

    What stands in backticks is code; a ``kafka-*.sh`` call with arguments is a command, with or without backticks.
    """
    found: list[tuple[str, str]] = []
    end = 0
    for match in _CODE.finditer(remedy):
        code = match[1] or match[2].rstrip(" .,;:)")
        stop = match.end() if match[1] else match.start() + len(code)
        found += [("text", remedy[end : match.start()]), ("command" if _is_command(code) else "code", code)]
        end = stop
    found.append(("text", remedy[end:]))
    # A command stands on a line of its own: the punctuation that followed it in the sentence would hang in the air.
    after = ["", *(kind for kind, _ in found)]
    tidy = [
        (kind, _begun(text.lstrip(" .;,")) if before == "command" and kind == "text" else text)
        for before, (kind, text) in zip(after, found, strict=False)
    ]
    return [(kind, text) for kind, text in tidy if text.strip()]


def sentences(remedy: str) -> list[tuple[str, str]]:
    """A remedy as ``(kind, text)`` for who prints lines: ``command``, or ``text``, which names stay a part of."""
    found: list[tuple[str, str]] = []
    for kind, text in pieces(remedy):
        if kind != "command" and found and found[-1][0] == "text":
            found[-1] = ("text", found[-1][1] + text)
        else:
            found.append((kind if kind == "command" else "text", text))
    tidy = [(kind, text if kind == "command" else text.strip(" ;:")) for kind, text in found]
    return [(kind, text) for kind, text in tidy if text]


def told(given: Values | None, remedy: str) -> list[tuple[str, str]]:
    """An advice for who prints lines, as :func:`sentences` gives them; ``remedy``: the text that a run of the past has
    in its place."""
    if given is None or "tone" in given:
        return sentences(remedy)
    found: list[tuple[str, str]] = []
    for kind, text in advice.pieces(given):
        found += [(kind, text)] if kind == "command" else sentences(text)
    return found


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def _is_command(code: str) -> bool:
    return bool(re.match(r"(?:bin/)?kafka-[a-z-]+(?:\.sh)? ", code))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
