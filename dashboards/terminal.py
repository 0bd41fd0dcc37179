"""Findings on a terminal: a table that reads without colour, and closing lines that say what was not read.

Names from the input cannot move the cursor or repaint the screen: whatever is not plainly visible shows as an escape.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from auditor.base.words import plural
from auditor.dashboards import answers, shapes
from auditor.dashboards.wording import (
    SEVERITIES,
    Finding,
    clip,
    instant,
    log_name,
    number,
    offsets,
    size,
    visible,
    who,
)

TOP = 40
_COLOURS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}
_ASCII = str.maketrans({"–": "-", "·": "|", "…": "..."})
_RULE_WIDTH, _NARROW, _MESSAGE = 36, 100, 1000


def print_findings(
    findings: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    out: TextIO,
    width: int = 120,
    color: bool = False,
    report: str | None = None,
    top: int = TOP,
) -> None:
    """Write the first ``top`` findings and the closing lines to ``out``.

    ``findings`` in the contract's order; ``width`` is the terminal's in columns: below 100 each finding takes lines of
    its own in place of a table; ``color`` paints the severity, unless the environment has ``NO_COLOR``; ``report`` is
    where the report was written, to be said at the end. Cost: that of what is shown, and one pass to count.
    """
    painted = color and not os.environ.get("NO_COLOR")
    full = shapes.summary(summary)
    shown = shapes.whole(findings[:top], shapes.FINDING)
    lines = _table(shown, width, painted) if width >= _NARROW else _blocks(shown, max(width, 30), painted)
    if len(findings) > top:
        lines.append(f"… {plural(len(findings) - top, 'more finding')}: see findings.jsonl")
    lines += [""] if lines else []
    lines += _closing(findings, full, report, painted)
    encoding = getattr(out, "encoding", None) or "utf-8"
    for line in lines:
        out.write(_encodable(line, encoding) + "\n")


def _table(findings: Sequence[Finding], width: int, painted: bool) -> list[str]:
    """Severity, rule, where and who in columns; the message in what is left, wrapped under itself."""
    if not findings:
        return []
    rows = [(f["severity"], f["rule"], _where(f), visible(who(f)) or "-") for f in findings]
    heads = ("SEVERITY", "RULE", "WHERE", "WHO")
    limits = (8, _RULE_WIDTH, width // 4, width // 4)
    widths = [
        min(limit, max(cells(head), *(cells(row[at]) for row in rows)))
        for at, (head, limit) in enumerate(zip(heads, limits, strict=True))
    ]
    room = width - sum(widths) - 2 * len(widths)
    if room < 24:
        return _blocks(findings, width, painted)
    lines = ["  ".join(pad(head, wide) for head, wide in zip(heads, widths, strict=True)) + "  WHAT"]
    for row, finding in zip(rows, findings, strict=True):
        columns = [wrap(text, wide) for text, wide in zip(row, widths, strict=True)] + [_message(finding, room)]
        for at in range(max(len(column) for column in columns)):
            parts = [column[at] if at < len(column) else "" for column in columns]
            line = "  ".join(pad(part, wide) for part, wide in zip(parts, [*widths, 0], strict=True)).rstrip()
            lines.append(_paint(line, row[0], len(row[0]), painted and at == 0))
    return lines


def _blocks(findings: Sequence[Finding], width: int, painted: bool) -> list[str]:
    """One finding on lines of its own, for narrow terminals."""
    lines = []
    for finding in findings:
        head = f"{finding['severity']} {finding['rule']}"
        lines.append(_paint(head, finding["severity"], len(finding["severity"]), painted))
        for text in (_where(finding), visible(who(finding))):
            lines += [f"  {line}" for line in wrap(text, width - 2) if line]
        lines += [f"  {line}" for line in _message(finding, width - 2)]
    return lines


def _closing(findings: Sequence[Finding], summary: Mapping[str, Any], report: str | None, painted: bool) -> list[str]:
    """How many of each severity, what was read and what was not, and where to read on."""
    counts = answers.tally(findings, summary)
    counted = [
        _paint(f"{count:,} {name}", name, len(f"{count:,} {name}"), painted) for name, count in counts.items() if count
    ]
    lines = ["Findings: " + (", ".join(counted) or "none")]
    volume = summary["bytes"]
    if volume["total"]:
        read = f"Read: {size(volume['decoded'])} decoded, {size(volume['skipped'])} skipped with a reason"
        batches = "" if summary["batches"] is None else f", {number(summary['batches'])} batches"
        lines.append(f"{read}, {size(volume['unreadable'])} unreadable, of {size(volume['total'])}{batches}")
    for row in summary["unreadable"][:5]:
        place = visible(f"{row['log_dir']}/{row['file']}")
        at = "" if row["position"] is None else f" at byte {row['position']}"
        lines.append(f"Not read: {place}{at}: {visible(str(row['detail'] or row['reason']))}")
    if len(summary["unreadable"]) > 5:
        lines.append(f"Not read: {len(summary['unreadable']) - 5:,} more places, see summary.json")
    unsure = len(answers.undecided(findings))
    if unsure:
        lines.append(f"Not decided: {plural(unsure, 'finding')}, whose evidence says what is missing")
    lines += [f"Note: {visible(str(note))}" for note in summary["notes"][:5]]
    if len(summary["notes"]) > 5:
        lines.append(f"Note: {len(summary['notes']) - 5:,} more, see summary.json")
    lines.append(f"As of {visible(instant(summary['as_of']))}")
    return [*lines, f"Report: {visible(report)}"] if report else lines


def _message(finding: Finding, width: int) -> list[str]:
    return wrap(clip(visible(finding["message"] or ""), _MESSAGE), width)


def _where(finding: Finding) -> str:
    """``topic-partition@offsets``, or the file where there is no offset; the broker where it is known."""
    place = log_name(finding) or (finding["file"] or "")
    span = offsets(finding["offset"], finding["last_offset"])
    broker = "" if finding["broker_id"] is None else f" broker {finding['broker_id']}"
    return visible(f"{place}{'@' if span else ''}{span}{broker}".strip()) or "-"


def cells(text: str) -> int:
    """How many columns of a terminal ``text`` takes: wide characters two, combining ones none."""
    return sum(_cell(sign) for sign in text)


def pad(text: str, width: int) -> str:
    """``text`` with spaces up to ``width`` columns."""
    return text + " " * max(0, width - cells(text))


def wrap(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns, broken between words where it can be. One empty line for none."""
    lines, line, room = [], "", width
    for word in text.split(" "):
        for part in _split(word, width):
            need = cells(part) + (1 if line else 0)
            if need > room and line:
                lines.append(line)
                line, room, need = "", width, cells(part)
            line, room = f"{line} {part}" if line else part, room - need
    return [*lines, line]


def _split(word: str, width: int) -> list[str]:
    """A word in parts of at most ``width`` columns."""
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


def _paint(line: str, severity: str, length: int, painted: bool) -> str:
    """The first ``length`` characters in the severity's colour."""
    if not painted or severity not in SEVERITIES:
        return line
    return f"\x1b[{_COLOURS[severity]}m{line[:length]}\x1b[0m{line[length:]}"


def _encodable(line: str, encoding: str) -> str:
    """The line as a terminal of that encoding can show it: our own signs in ASCII, of names what it has."""
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return line
