"""A run on a terminal: the answer first, then the findings by cause, then what was not read; legible without colour.

Names from the input cannot move the cursor or repaint the screen: whatever is not plainly visible shows as an escape.
"""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Mapping, Sequence, Set
from typing import Any, TextIO

from auditor.base.words import plural
from auditor.dashboards import answers, causes, first_lines, report_shapes, verdict
from auditor.dashboards.selection import ALL, LEAST, Selection
from auditor.dashboards.text_columns import cells, pad, wrap
from auditor.dashboards.wording import (
    FINGERPRINT_SHOWN,
    SEVERITIES,
    Finding,
    clip,
    number,
    place,
    short_fingerprint,
    size,
    visible,
    who,
)

TOP, PLACES = 20, 3
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
    verbose: bool = False,
    now: datetime.datetime | None = None,
    shown: Selection = ALL,
) -> None:
    """Write the answer, the findings by cause and the closing lines to ``out``.

    ``findings`` in the contract's order, with what their rules declare, as :func:`rules.registry.described` gives them;
    ``width`` is the terminal's in columns; ``color`` paints the severity, unless the environment has ``NO_COLOR``;
    ``report`` is where the report was written, to be said at the end. Infos are counted, not printed, unless
    ``shown`` asks for them, or ``verbose``, which prints every finding in place of causes:
    below 100 columns each takes lines of its own in place of a table. ``now``: the clock on the wall, to say how old
    the copy is. ``shown``: which findings; what a baseline accepts is not printed. Cost: that of what is shown, and one
    pass over all.
    """
    painted = color and not os.environ.get("NO_COLOR")
    full, width = report_shapes.summary(summary), max(width, 30)
    whole = report_shapes.whole(findings, report_shapes.FINDING)
    listed = [finding for finding in answers.unaccepted(whole) if shown.shows(finding)]
    notes = [] if verbose or shown.infos else [finding for finding in listed if finding["severity"] == LEAST]
    listed = [finding for finding in listed if finding["severity"] != LEAST] if notes else listed
    answer = first_lines.answer(whole, full, width, now, shown, verbose)
    lines = [*answer.lines, ""]
    if verbose:
        lines += _table(listed, width, painted) if width >= _NARROW else _blocks(listed, width, painted)
    else:
        above = {id(finding) for finding in answer.findings}
        found = causes.causes(listed)
        lines += ["Findings by cause:"] if found else []
        for cause in found[:TOP]:
            lines += _cause(cause, width, painted, above)
        if len(found) > TOP:
            lines += wrap(f"… {plural(len(found) - TOP, 'more cause')}: --verbose prints every finding", width)
    lines += [""] if listed else []
    lines += [f"{plural(len(notes), 'note')}: --verbose"] if notes else []
    lines += _closing(listed, whole, full, width, shown, report)
    _write([*lines, f"Report: {visible(report)}"] if report else lines, out)


def print_verdict(
    findings: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], out: TextIO, width: int,
    report: str | None, now: datetime.datetime | None, shown: Selection,
) -> None:  # fmt: skip
    """Write the headline, the clock and the closing lines alone; arguments as of :func:`print_findings`."""
    full, width = report_shapes.summary(summary), max(width, 30)
    whole = report_shapes.whole(findings, report_shapes.FINDING)
    listed = [finding for finding in answers.unaccepted(whole) if shown.shows(finding)]
    lines = first_lines.top(verdict.of_run(whole, full), full, width, now)
    lines += _closing(listed, whole, full, width, shown, report)
    _write([*lines, f"Report: {visible(report)}"] if report else lines, out)


def _write(lines: Sequence[str], out: TextIO) -> None:
    encoding = getattr(out, "encoding", None) or "utf-8"
    for line in lines:
        out.write(_encodable(line, encoding) + "\n")


def _cause(cause: causes.Cause, width: int, painted: bool, above: Set[int]) -> list[str]:
    """A cause: how severe, which rule, how often; whose it is and where; what the first of its findings says, unless
    the first lines (``above``: the identities of findings) said so."""
    first = cause.findings[0]
    often = "" if len(cause.findings) == 1 else f" · {plural(len(cause.findings), 'finding')}"
    lines = wrap(f"{first['severity']} {first['rule']}{often}{_short(first)}", width)
    lines[0] = _paint(lines[0], first["severity"], len(first["severity"]), painted)
    places = list(dict.fromkeys(_where(f) for f in cause.findings))
    more = f" and {plural(len(places) - PLACES, 'more place')}" if len(places) > PLACES else ""
    for text in (visible(cause.who), ", ".join(places[:PLACES]) + more):
        lines += [f"  {line}" for line in wrap(text, width - 2) if line]
    return lines if id(first) in above else lines + [f"  {line}" for line in _message(first, width - 2)]


def _table(findings: Sequence[Finding], width: int, painted: bool) -> list[str]:
    """Severity, rule, where and who in columns; the message in what is left, wrapped under itself."""
    if not findings:
        return []
    rows = [
        (f["severity"], _short(f).strip(" ·") or "-", f["rule"], _where(f), visible(who(f)) or "-") for f in findings
    ]
    heads = ("SEVERITY", "FINGERPRINT", "RULE", "WHERE", "WHO")
    limits = (8, FINGERPRINT_SHOWN, _RULE_WIDTH, width // 5, width // 5)
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
        head = f"{finding['severity']} {finding['rule']}{_short(finding)}"
        lines.append(_paint(head, finding["severity"], len(finding["severity"]), painted))
        for text in (_where(finding), visible(who(finding))):
            lines += [f"  {line}" for line in wrap(text, width - 2) if line]
        lines += [f"  {line}" for line in _message(finding, width - 2)]
    return lines


def _closing(
    listed: Sequence[Finding], findings: Sequence[Finding], summary: Mapping[str, Any], width: int,
    shown: Selection, report: str | None,
) -> list[str]:  # fmt: skip
    """How many of each severity, which are not printed, what was read and what was not, and where to read on."""
    counts = answers.tally(findings, summary)
    lines = ["Findings: " + (", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none")]
    if shown.narrow:
        lines.append(f"Printed: {len(listed):,} of them ({visible(shown.said())}); results and exit status are of all")
    if summary["baseline"]:
        lines.append(f"Baseline: {visible(verdict.baseline(summary['baseline']))}")
    volume = summary["bytes"]
    if volume["total"]:
        read = f"Read: {size(volume['decoded'])} decoded, {size(volume['skipped'])} skipped with a reason"
        batches = "" if summary["batches"] is None else f", {number(summary['batches'])} batches"
        lines.append(f"{read}, {size(volume['unreadable'])} unreadable, of {size(volume['total'])}{batches}")
    for row in summary["unreadable"][:5]:
        place = visible("/".join(filter(None, (row["log_dir"], row["file"]))))
        at = "" if row["position"] is None else f" at byte {row['position']}"
        lines.append(f"Not read: {place}{at}: {visible(str(row['detail'] or row['reason']))}")
    if len(summary["unreadable"]) > 5:
        lines.append(f"Not read: {plural(len(summary['unreadable']) - 5, 'more place')}, see summary.json")
    unsure = len(answers.undecided(findings))
    if unsure:
        lines.append(f"Not decided: {plural(unsure, 'finding')}, whose evidence says what is missing")
    lines += [f"Note: {visible(str(note))}" for note in summary["notes"][:5]]
    if len(summary["notes"]) > 5:
        lines.append(f"Note: {len(summary['notes']) - 5:,} more, see summary.json")
    first = next((name for f in listed if (name := short_fingerprint(f))), "")
    if first:
        folder = "DIR" if report is None else visible(shlex.quote(os.path.dirname(report)))
        lines.append(f"One finding with its evidence: auditor explain {first} --out {folder}")
    return [part for line in lines for part in wrap(line, width)]


def _message(finding: Finding, width: int) -> list[str]:
    return wrap(clip(visible(finding["message"] or ""), _MESSAGE), width)


def _where(finding: Finding) -> str:
    return visible(place(finding)) or "-"


def _short(finding: Finding) -> str:
    """As much of its fingerprint as 'auditor explain' needs, to be added to a line; nothing where it has none."""
    return f" · {short_fingerprint(finding)}" if finding.get("fingerprint") else ""


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
