"""The results of a run on a terminal."""

from __future__ import annotations

import datetime
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

from auditor.base.advice import WORDS, Verdict, whole
from auditor.base.at_rest import Values
from auditor.base.evidence_keys import Evidence, read
from auditor.base.words import plural
from auditor.dashboards import answers, finding_groups, page
from auditor.dashboards.finding_groups import ALL, LEAST, SHOWN, Selection
from auditor.dashboards.wording import (
    GRAVE,
    SEVERITIES,
    Alike,
    Finding,
    Names,
    advice_lines,
    alike,
    cells,
    clip,
    indented,
    kind,
    moment,
    names,
    number,
    outcome_of,
    pad,
    place,
    severity_count,
    short_fingerprint,
    shortened,
    values_in_lines,
    visible,
    wrap,
)

AdviceText = tuple[tuple[str, str], ...]

# Blocked partitions as a table: one row per partition and one per further open transaction.


ROWS = 20  # with more partitions, a row stands for all that one producer blocks
BEHIND = 5  # further transactions of a partition
HEADS = ("PARTITION", "SINCE", "TRANSACTION", "LSO LAG", "WHAT TO DO", "FINDING")
_LEAST = 20  # columns for partition and transaction; with less space, rows become paragraphs


class TableCells(NamedTuple):
    """The cells of a row, in the order of :data:`HEADS`; ``more``: how many further partitions it stands for."""

    partition: str
    since: str
    holder: str
    waiting: str
    do: str
    finding: str
    more: int = 0


def blocked_table_lines(
    rows: Sequence[answers.BlockedSummary], as_of: str | None, width: int, every: bool
) -> list[str]:
    """Return the table, at most ``width`` columns wide; long names lose their middle.

    ``every``: one row per partition, however many; ``as_of``: the evaluation time, whose day is not repeated.
    """
    if not rows:
        return []
    parts = (
        [finding_groups.ProducerPartitions([row]) for row in rows]
        if every or len(rows) <= ROWS
        else finding_groups.holders(rows)
    )
    shown = parts if every else parts[:ROWS]
    made = [row for part in shown for row in _rows(part, as_of or "")]
    rest = sum(len(part.rows) for part in parts[len(shown) :])
    more = wrap(f"… {rest:,} more (use --verbose to list)", width) if rest else []
    return [*_laid_out(made, width), *more]


def _rows(group: finding_groups.ProducerPartitions, as_of: str) -> list[TableCells]:
    first, holder = group.rows[0], group.first
    rows = [
        TableCells(
            visible(holder.name),
            _since(holder.row, as_of),
            _holder(holder.row),
            number(group.waiting),
            holder.word,
            holder.finding_id,
            len(group.rows) - 1,
        )
    ]
    if len(group.rows) > 1:
        return rows
    rows += [_behind(finding, as_of) for finding in first.behind[:BEHIND]]
    unnamed = first.others - len(first.behind[:BEHIND])
    return [*rows, TableCells(f"  and {unnamed:,} more", "", "", "", "", "")] if unnamed > 0 else rows


def _since(row: Values, as_of: str) -> str:
    # A question mark: only the producer's clock shows it.
    if not row.get("since"):
        return "unknown"
    by_brokers = row.get("since_by_producer") or row.get("since_not_before")
    return moment(row["since"], as_of) + ("" if by_brokers else "?")


def _behind(finding: Finding, as_of: str) -> TableCells:
    advice = whole(finding.get("advice"))
    word = WORDS[Verdict(advice["verdict"])] if advice else ""
    since = moment(finding["timestamp"], as_of) if finding["timestamp"] else "unknown"
    return TableCells(f"  @{finding['offset']}", since, _holder(finding), "", word, short_fingerprint(finding))


def _holder(row: Finding) -> str:
    name, producer = row.get("transactional_id"), row.get("producer_id")
    return visible(str(name) if name is not None else "unknown" if producer is None else f"producer id {producer}")


def _laid_out(rows: Sequence[TableCells], width: int) -> list[str]:
    wides = [max(cells(text) for text in column) for column in zip(HEADS, *(row[:6] for row in rows), strict=True)]
    wides[0] = max(wides[0], *(cells(row.partition) + len(_more_rows(row)) for row in rows))
    room = width - sum(wides[n] for n in (1, 3, 4, 5)) - 2 * (len(HEADS) - 1)
    if room < _LEAST:
        return [line for row in rows for line in wrap(" · ".join(filter(None, _named(row))), width)]
    wides[0], wides[2] = _shared(wides[0], wides[2], room)
    right = ("LSO LAG",)
    out = []
    for row in [TableCells(*HEADS), *rows]:
        place = shortened(row.partition, wides[0] - len(_more_rows(row))) + _more_rows(row)
        texts = [place, row.since, shortened(row.holder, wides[2]), row.waiting, row.do, row.finding]
        padded = [
            " " * (wide - cells(text)) + text if head in right else pad(text, wide)
            for text, wide, head in zip(texts, wides, HEADS, strict=True)
        ]
        out.append("  ".join(padded).rstrip())
    return out


def _named(row: TableCells) -> list[str]:
    return [
        row.partition + _more_rows(row),
        row.since,
        row.holder,
        row.waiting and f"LSO lag {row.waiting}",
        row.do,
        row.finding,
    ]


def _more_rows(row: TableCells) -> str:
    return f" +{row.more:,}" if row.more else ""


def _shared(left: int, right: int, room: int) -> tuple[int, int]:
    # Each column as wide as needed, or half of the room.
    if left + right <= room:
        return left, right
    half = room // 2
    if right <= half:
        return room - right, right
    return (left, room - left) if left <= half else (room - half, half)


# What to do about blocked partitions, each text once.


BLOCKED_SHOWN, NUMBERS = 5, 20
COMPARED = 1000  # partitions whose texts are compared
LINES = 52  # about blocked partitions; 62 with the lines around them
BLOCKED_VALUES = 20  # partitions whose values are listed


def _blocks(finding: Finding) -> bool:
    # Such a finding says no more than the row of its partition.
    return (finding.get("declared") or {}).get("blocks") is not None


def _advice_for(rows: Sequence[answers.BlockedSummary]) -> dict[AdviceText, str]:
    # For each advice about blocked partitions, the partition that it is printed for.
    partition_of = {tuple(row.holder.steps): row.holder.name for row in rows}
    for row in rows:
        same = (f for f in row.holder.findings if _blocks(f) and f["advice"])
        texts = (tuple(advice_lines(f["advice"], "")) for f in same)
        partition_of |= {text: row.holder.name for text in texts if text[0] == row.holder.steps[0]}
    return partition_of


def _advice_of_blocked(rows: Sequence[answers.BlockedSummary], width: int, every: bool, room: int) -> list[str]:
    # All texts with ``every``, else the first one and those that fit into ``room`` lines.
    groups = [Alike([n], row.holder.steps) for n, row in enumerate(rows)] if every else _alike(rows[:COMPARED])
    lines: list[str] = []
    left: list[answers.BlockedSummary] = []
    for group in groups:
        members = [rows[n] for n in group.members]
        paragraph = ["", *_paragraph(group, members, width, None if every else max(3, room - len(lines)))]
        if lines and not every and (left or len(lines) + len(paragraph) > room):
            left += members
        else:
            lines += paragraph
    left += [] if every else rows[COMPARED:]
    if left:
        hint = f"For {_places(left)} run: auditor explain ID (ID: column FINDING)"
        lines += ["", *wrap(hint, width)]
    return lines


def _alike(rows: Sequence[answers.BlockedSummary]) -> list[Alike]:
    return alike([(names(row.holder.row), [("", row.holder.status), *row.holder.steps]) for row in rows])


def _paragraph(group: Alike, rows: Sequence[answers.BlockedSummary], width: int, room: int | None) -> list[str]:
    starting, reading = _all(row.groups for row in rows), _all(row.holder.readers for row in rows)
    lines = page.lines(
        "blocked.txt.j2", width, rows=rows, group=group, places=_places, starting=starting, reading=reading
    )
    return lines + values_in_lines(
        group, width, BLOCKED_VALUES if room is None else min(BLOCKED_VALUES, room - len(lines) - 1)
    )


def _all(names: Iterable[Iterable[str]]) -> str:
    distinct = list(dict.fromkeys(name for several in names for name in several))
    more = f" and {len(distinct) - BLOCKED_SHOWN:,} more" if len(distinct) > BLOCKED_SHOWN else ""
    return ", ".join(distinct[:BLOCKED_SHOWN]) + more


def _places(rows: Sequence[answers.BlockedSummary]) -> str:
    by_topic: dict[str, list[int]] = {}
    for row in rows:
        by_topic.setdefault(str(row.holder.row["topic"]), []).append(row.holder.row["partition"])
    places = [
        f"{topic}-{numbers[0]}" if len(numbers) == 1 else f"{topic} (partitions {_numbers(sorted(numbers))})"
        for topic, numbers in by_topic.items()
    ]
    more = f" and {plural(len(places) - BLOCKED_SHOWN, 'more topic')}" if len(places) > BLOCKED_SHOWN else ""
    return visible("; ".join(places[:BLOCKED_SHOWN]) + more)


def _numbers(partitions: Sequence[int]) -> str:
    more = f" and {len(partitions) - NUMBERS:,} more" if len(partitions) > NUMBERS else ""
    return f"{', '.join(map(str, partitions[:NUMBERS]))}{more}"


# Other findings: a few lines per cause and what to do, each text once.


PLACES = 3
CAUSE_VALUES = 10  # places of a cause whose values are listed
_COLOURS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}
_MESSAGE = 1000


@dataclass(slots=True)
class PrintedAdvice:
    """What was printed already: ``by`` text, the place that it was for. ``most``: how many texts are printed;
    ``omitted``: whether any was not."""

    most: int | None = SHOWN
    by: dict[AdviceText, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    omitted: bool = False


def painter(color: bool) -> Callable[[str, str], str]:
    """Return a function that colours the severity at the start of a line; without colour if ``NO_COLOR`` is set."""

    def paint(line: str, severity: str) -> str:
        if severity not in SEVERITIES or not line.startswith(severity):
            return line
        return f"\x1b[{_COLOURS[severity]}m{severity}\x1b[0m{line[len(severity) :]}"

    return paint if color and not os.environ.get("NO_COLOR") else lambda line, _: line


def cause_lines(cause: finding_groups.Cause, width: int, printed: PrintedAdvice) -> list[str]:
    """Return the lines of a cause: severity, rule, number, places, owner, the message of its first finding, and what
    to do unless that was printed above."""
    first = cause.findings[0]
    places = list(dict.fromkeys(filter(None, (visible(place(f)) for f in cause.findings))))
    more = f" and {plural(len(places) - PLACES, 'more place')}" if len(places) > PLACES else ""
    head = [
        f"{first['severity']} {_name(first)}",
        outcome_of(first),
        plural(len(cause.findings), "finding") if len(cause.findings) > 1 else "",
        ", ".join(places[:PLACES]) + more,
        visible(cause.who),
    ]
    begun, *rest = wrap(" · ".join(filter(None, head)), width)
    message = clip(first["message"] or "", _MESSAGE)
    lines = [begun, *(line for part in rest for line in indented(part, width, 2)), *indented(message, width, 2)]
    return lines + _advice_of_cause(cause, width, printed) if first["severity"] in GRAVE else lines


def _advice_of_cause(cause: finding_groups.Cause, width: int, printed: PrintedAdvice) -> list[str]:
    first = cause.findings[0]
    text = _told(first)
    if not text:
        return []
    if text in printed.by:
        return (
            indented(f"What to do: same as for {printed.by[text]}", width, 2) if cause.kind not in printed.kinds else []
        )
    if printed.most is not None and (len(printed.kinds) >= printed.most or cause.kind in printed.kinds):
        printed.omitted = True
        stop = first["advice"] and first["advice"]["verdict"] in (Verdict.COMMIT_IT, Verdict.DO_NOT_ABORT)
        return indented(text[0][1], width, 2) if stop else []
    printed.kinds.add(cause.kind)
    advices = [(_names(finding), _told(finding)) for finding in cause.findings[:COMPARED]]
    group = alike(advices)[0]
    for member in group.members:
        printed.by.setdefault(advices[member][1], _name(first))
    lines = page.lines("steps.txt.j2", width, parts=group.parts) + values_in_lines(group, width, CAUSE_VALUES)
    if others := len(cause.findings) - len(group.members):
        lines += indented(
            f"{others:,} more {'needs' if others == 1 else 'need'} different steps: auditor explain ID", width, 2
        )
    return lines


def _name(finding: Finding) -> str:
    question = kind(finding)
    asked = "" if question == finding["rule"] else f" ({question})"
    return f"{finding['rule']}{asked} {short_fingerprint(finding)}".rstrip()


def _names(finding: Finding) -> Names:
    return names({**finding, "first_offset": finding["offset"]})


def _told(finding: Finding) -> AdviceText:
    return tuple(advice_lines(finding.get("advice"), finding["remedy"] or ""))


# The output as a whole, legible without colour. Names from the input cannot move the cursor: hidden characters are
# escaped.


TOP = 20
_ASCII = str.maketrans({"–": "-", "·": "|", "…": "..."})


class TerminalAnswer(NamedTuple):
    """What is printed between the headline and the number of findings. Lines: ``lost``: causes with lost records,
    ``table`` of blocked partitions, ``advice`` about them, ``others``: the other causes.

    ``hidden``: how many blocked partitions the selection excludes; ``unsure``: tables of partitions of unknown status
    by what is unknown; ``calm``: names of partitions within their timeout; ``accepted``: blocked ones that the baseline
    suppresses; ``more_causes``: how many are not printed; ``omitted``: whether any advice is not printed.
    """

    lost: Sequence[str]
    table: Sequence[str]
    advice: Sequence[str]
    hidden: int
    unsure: Sequence[tuple[str, Sequence[str]]]
    calm: str
    accepted: Sequence[answers.Open]
    others: Sequence[str]
    more_causes: int
    omitted: bool


def print_findings(
    run: answers.RunReport,
    out: TextIO,
    width: int = 120,
    color: bool = False,
    report: str | None = None,
    verbose: bool = False,
    now: datetime.datetime | None = None,
    shown: Selection = ALL,
    brief: bool = False,
) -> None:
    """Write the answer, the findings by cause and the closing lines to ``out``.

    The run's findings are in the contract's order, with what their rules declare;
    ``width``: of the terminal in columns; ``color``: colour severities, unless ``NO_COLOR`` is set; ``report``: where
    the report was written; ``verbose``: print every finding and partition by itself; ``now``: the system time, for the
    age of the copy; ``shown``: which findings; ``brief``: the headline, the clock and the closing lines alone. Infos
    are only counted unless ``shown`` or ``verbose`` asks for them; suppressed findings are not printed. Cost: what is
    shown, and one pass over all.
    """
    width = max(width, 30)
    listed, notes = _listed(run.findings, shown, verbose or brief)
    named = [f for row in run.verdict.named if shown.holds(dict(row.holder.row)) for f in row.holder.findings]
    lines = page.lines(
        "terminal.txt.j2",
        width,
        run=run,
        clock=answers.clock(run.full, now),
        answer=None if brief else _answer(run, listed, width, shown, verbose, painter(color)),
        counted=_counted(run.counts, notes),
        shown=shown,
        listed=listed,
        undecided=len(answers.undecided(run.findings)),
        hints=_hints(listed if brief else (*listed, *named), run, report),
        fits=lambda *words: cells(" ".join(words)) <= width,
        report=report,
    )
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.writelines(f"{_encodable(line, encoding)}\n" for line in lines)


def _answer(
    run: answers.RunReport,
    listed: Sequence[Finding],
    width: int,
    shown: Selection,
    every: bool,
    paint: Callable[[str, str], str],
) -> TerminalAnswer:
    # ``every``: each finding and partition by itself, with whole commands, also partitions within their timeout.
    decided, as_of = run.verdict, run.full["as_of"]
    held, named, accepted = (
        [row for row in rows if shown.holds(dict(row.holder.row))]
        for rows in (decided.held, decided.named, decided.accepted)
    )
    table = blocked_table_lines(held, as_of, width, every)
    unsure: dict[str, list[answers.BlockedSummary]] = {}
    for row in named:
        if every or row.holder.standing != "waiting" or row.holder.left_out:
            unsure.setdefault(row.holder.status, []).append(row)
    about = [f for row in held for f in (*row.holder.findings, *row.behind[:BEHIND]) if _blocks(f)]
    answered = set() if every else {id(finding) for finding in about}
    lost, others = _causes([f for f in listed if id(f) not in answered], decided.lost, every)
    printed = PrintedAdvice(None if every else SHOWN, _advice_for(held))
    return TerminalAnswer(
        _of_causes(lost, width, printed, paint),
        table,
        _advice_of_blocked(held, width, every, LINES - len(table) - 1),
        len(decided.held) - len(held),
        [(why, blocked_table_lines(rows, as_of, width, every)) for why, rows in unsure.items()],
        _places(named) if named and not unsure else "",
        [row.holder for row in accepted],
        _of_causes(others if every else others[:TOP], width, printed, paint),
        0 if every else max(0, len(others) - TOP),
        printed.omitted,
    )


def _listed(findings: Sequence[Finding], shown: Selection, infos: bool) -> tuple[list[Finding], int]:
    # And the number of infos that are only counted.
    listed = [finding for finding in answers.unaccepted(findings) if shown.shows(finding)]
    if infos or shown.infos:
        return listed, 0
    above_info = [finding for finding in listed if finding["severity"] != LEAST]
    return above_info, len(listed) - len(above_info)


def _causes(
    findings: Sequence[Finding], lost: Sequence[Finding], every: bool
) -> tuple[list[finding_groups.Cause], list[finding_groups.Cause]]:
    marked = {id(finding) for finding in lost}
    causes = [finding_groups.alone(finding) for finding in findings] if every else finding_groups.causes(findings)
    parts: tuple[list[finding_groups.Cause], list[finding_groups.Cause]] = ([], [])
    for cause in causes:
        parts[not any(id(finding) in marked for finding in cause.findings)].append(cause)
    return parts


def _of_causes(
    causes: Sequence[finding_groups.Cause], width: int, printed: PrintedAdvice, paint: Callable[[str, str], str]
) -> list[str]:
    lines = []
    for cause in causes:
        begun, *rest = cause_lines(cause, width, printed)
        lines += ["", paint(begun, cause.severity), *rest]
    return lines


def _hints(listed: Sequence[Finding], run: answers.RunReport, report: str | None) -> dict[str, str]:
    # Commands by what they print.
    folder = "DIR" if report is None else shlex.quote(os.path.dirname(report))
    first = next((name for f in listed if (name := short_fingerprint(f))), "")
    hints = {"Details:": f"auditor explain {first} --out {folder}"} if first else {}
    unknown = any(row["standing"] == "unknown" for row in run.full["blocked"] or ())
    if unknown or any(f.get("if_true") for f in run.findings):
        hints["Re-check with a newer copy:"] = f"auditor recheck --out {folder} NEWER-COPY"
    return hints


def _counted(counts: Mapping[str, int], notes: int) -> str:
    parts = [severity_count(name, count) for name, count in counts.items() if count]
    return (", ".join(parts) or "No findings") + (" (use --verbose to list)" if notes else "")


def _encodable(line: str, encoding: str) -> str:
    # Our own characters become ASCII, others escapes.
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return line.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return line


# One finding.


def explained(row: Values, rule: Mapping[str, str], width: int, events: Sequence[Values] | None) -> list[str]:
    """Return the lines of one finding with its evidence.

    ``row``: the contract's fields and ``fingerprint``; ``rule``: title and sections of its rule, empty if it no longer
    exists; ``width``: in columns; ``events``: the summary's ``cluster_events``, None if it has none.
    """
    also = Counter((f["severity"], f["rule"], f["message"]) for f in read(Evidence, row["evidence"]).get("also", ()))
    did, unknown = page.around(events or (), row), page.unknown(events, row)
    return page.lines("finding.txt.j2", width, row=row, page=rule, also=also, did=did, unknown=unknown)
