"""A run on a terminal: who holds what as a table, what to do, what else was found, and what was not read.

Legible without colour. Names from the input cannot move the cursor or repaint the screen: whatever is not plainly
visible shows as an escape.
"""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards import answers, cause_lines, causes, first_lines, report_shapes, verdict
from auditor.dashboards.selection import ALL, LEAST, Selection
from auditor.dashboards.text_columns import cells, wrap
from auditor.dashboards.wording import Finding, short_fingerprint, size, visible

TOP, NOTES = 20, 3
_ASCII = str.maketrans({"–": "-", "·": "|", "…": "..."})


def print_findings(
    findings: Sequence[Values],
    summary: Values,
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
    ``report`` is where the report was written, to be said at the end. Infos are counted, not printed, unless ``shown``
    asks for them, or ``verbose``, which prints every finding and every partition for itself. ``now``: the clock on the
    wall, to say how old the copy is. ``shown``: which findings; what a baseline accepts is not printed. Cost: that of
    what is shown, and one pass over all.
    """
    full, width = report_shapes.summary(summary), max(width, 30)
    whole = report_shapes.whole(findings, report_shapes.FINDING)
    decided = verdict.of_run(whole, full)
    listed, notes = _listed(whole, shown, verbose)
    answer = first_lines.answer(decided, full, width, shown, verbose)
    told = set() if verbose else {id(finding) for finding in answer.findings}
    lost, others = _causes([f for f in listed if id(f) not in told], decided.lost, verbose)
    said = cause_lines.Said(None if verbose else cause_lines.SHOWN, dict(answer.said))
    paint = cause_lines.painter(color)
    lines = first_lines.top(decided, full, width, now)
    lines += _of_causes(lost, width, said, paint)
    lines += answer.lines
    lines += _of_causes(others if verbose else others[:TOP], width, said, paint)
    if len(others) > TOP and not verbose:
        lines += wrap(f"… {plural(len(others) - TOP, 'more cause')}: --verbose prints every finding", width)
    if said.unsaid:
        lines += ["", *wrap("What to do about the others: auditor explain, with the digits behind the rule", width)]
    named = [f for row in decided.named if shown.holds(dict(row.holder.row)) for f in row.holder.findings]
    lines += ["", *_closing(listed, whole, full, width, shown, report, notes, named)]
    _write([*lines, f"Report: {visible(report)}"] if report else lines, out)


def print_verdict(
    findings: Sequence[Values],
    summary: Values,
    out: TextIO,
    width: int,
    report: str | None,
    now: datetime.datetime | None,
    shown: Selection,
) -> None:
    """Write the headline, the clock and the closing lines alone; arguments as of :func:`print_findings`."""
    full, width = report_shapes.summary(summary), max(width, 30)
    whole = report_shapes.whole(findings, report_shapes.FINDING)
    listed, _ = _listed(whole, shown, True)
    lines = first_lines.top(verdict.of_run(whole, full), full, width, now)
    lines += _closing(listed, whole, full, width, shown, report, 0)
    _write([*lines, f"Report: {visible(report)}"] if report else lines, out)


def _write(lines: Sequence[str], out: TextIO) -> None:
    encoding = getattr(out, "encoding", None) or "utf-8"
    for line in lines:
        out.write(_encodable(line, encoding) + "\n")


def _listed(findings: Sequence[Finding], shown: Selection, infos: bool) -> tuple[list[Finding], int]:
    """The findings that are printed, and how many infos besides would be, had anybody asked for them."""
    listed = [finding for finding in answers.unaccepted(findings) if shown.shows(finding)]
    if infos or shown.infos:
        return listed, 0
    kept = [finding for finding in listed if finding["severity"] != LEAST]
    return kept, len(listed) - len(kept)


def _causes(
    findings: Sequence[Finding], lost: Sequence[Finding], each: bool
) -> tuple[list[causes.Cause], list[causes.Cause]]:
    """The causes of findings, with ``each`` one a finding: of what is lost, and all others."""
    marked = {id(finding) for finding in lost}
    found = [causes.alone(finding) for finding in findings] if each else causes.causes(findings)
    parts: tuple[list[causes.Cause], list[causes.Cause]] = ([], [])
    for cause in found:
        parts[not any(id(finding) in marked for finding in cause.findings)].append(cause)
    return parts


def _of_causes(
    found: Sequence[causes.Cause], width: int, said: cause_lines.Said, paint: Callable[[str, str], str]
) -> list[str]:
    lines = []
    for cause in found:
        begun, *rest = cause_lines.lines(cause, width, said)
        lines += ["", paint(begun, cause.severity), *rest]
    return lines


def _closing(
    listed: Sequence[Finding],
    findings: Sequence[Finding],
    summary: Values,
    width: int,
    shown: Selection,
    report: str | None,
    notes: int,
    named: Sequence[Finding] = (),
) -> list[str]:
    """How many of each severity, which are not printed, what was read and what was not, and where to read on.
    ``notes``: how many infos are not printed; ``named``: findings whose digits are printed all the same."""
    lines = [_counted(answers.tally(findings, summary), notes)]
    if shown.narrow:
        lines.append(f"Printed: {len(listed):,} of them ({visible(shown.said())}); results and exit status are of all")
    if summary["baseline"]:
        lines.append(f"Baseline: {visible(verdict.baseline(summary['baseline']))}")
    lines += _read(summary)
    unsure = len(answers.undecided(findings))
    if unsure:
        lines.append(f"Not decided: {plural(unsure, 'finding')}, whose evidence says what is missing")
    lines += [f"Note: {visible(str(note))}" for note in summary["notes"][:NOTES]]
    if len(summary["notes"]) > NOTES:
        lines.append(f"Note: {len(summary['notes']) - NOTES:,} more, see summary.json")
    wrapped = [part for line in lines for part in wrap(line, width)]
    return wrapped + _hints((*listed, *named), findings, summary, width, report)


def _hints(
    listed: Sequence[Finding], findings: Sequence[Finding], summary: Values, width: int, report: str | None
) -> list[str]:
    """Commands that say more, each on one line, however long, so that it can be pasted."""
    folder = "DIR" if report is None else visible(shlex.quote(os.path.dirname(report)))
    first = next((name for f in listed if (name := short_fingerprint(f))), "")
    hints = {"One finding with its evidence:": f"auditor explain {first} --out {folder}"} if first else {}
    if any(row["standing"] == "unknown" for row in summary["blocked"] or ()) or any(f.get("if_true") for f in findings):
        hints["What a newer copy shows of it:"] = f"auditor recheck --out {folder} NEWER-COPY"
    lines = []
    for lead, command in hints.items():
        fits = cells(f"{lead} {command}") <= width
        lines += [f"{lead} {command}"] if fits else [*wrap(lead, width), f"    {command}"]
    return lines


def _counted(counts: Mapping[str, int], notes: int) -> str:
    """How many of each severity; infos that are not printed as notes, with what prints them."""
    told = [
        f"{count - notes:,} {name}" if name == LEAST else f"{count:,} {name}"
        for name, count in counts.items()
        if count - (notes if name == LEAST else 0) > 0
    ]
    more = f"{plural(notes, 'note')}: --verbose" if notes else ""
    return f"Findings: {'; '.join(filter(None, (', '.join(told), more))) or 'none'}"


def _read(summary: Values) -> list[str]:
    """How much was read, and what was not."""
    lines, volume = [], summary["bytes"]
    if volume["total"]:
        batches = "" if summary["batches"] is None else f" in {plural(summary['batches'], 'batch')}"
        parts = [f"Read: {size(volume['decoded'])}{batches}"]
        parts += [f"{size(volume['skipped'])} skipped with a reason"] if volume["skipped"] else []
        parts += [f"{size(volume['unreadable'])} unreadable"] if volume["unreadable"] else []
        lines.append(f"{'; '.join(parts)}, of {size(volume['total'])}" if len(parts) > 1 else parts[0])
    for row in summary["unreadable"][:5]:
        place = visible("/".join(filter(None, (row["log_dir"], row["file"]))))
        at = "" if row["position"] is None else f" at byte {row['position']}"
        lines.append(f"Not read: {place}{at}: {visible(str(row['detail'] or row['reason']))}")
    if len(summary["unreadable"]) > 5:
        lines.append(f"Not read: {plural(len(summary['unreadable']) - 5, 'more place')}, see summary.json")
    return lines


def _encodable(line: str, encoding: str) -> str:
    """The line as a terminal of that encoding can show it: our own signs in ASCII, of names what it has."""
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return line
