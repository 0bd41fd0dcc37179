"""The first lines on a terminal: the headline, who holds which partition as a table, and what to do, each text once."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards import answers, held_table, verdict
from auditor.dashboards.alike import Alike, alike, names, values_in_lines
from auditor.dashboards.selection import ALL, Selection
from auditor.dashboards.text_columns import indented, wrap
from auditor.dashboards.wording import Finding, short_fingerprint, told, visible, who

SHOWN, NAMED, NUMBERS = 5, 10, 20
COMPARED = 1000  # partitions of which those that are spoken of in the same words are looked for
LINES = 51  # of all that is said of partitions that are held: with what stands around it sixty
VALUES = 20  # partitions whose values are listed


@dataclass(slots=True)
class Answer:
    """The first lines, the findings that they speak of, and of each text that says what to do whose it is."""

    lines: list[str]
    findings: list[Finding]
    said: dict[tuple[tuple[str, str], ...], str]


def top(decided: verdict.Verdict, summary: Values, width: int, now: datetime.datetime | None) -> list[str]:
    """The headline and the clock."""
    headline = decided.headline.upper() if decided.tone == "bad" else decided.headline
    lines = [*wrap(headline, width), *wrap(visible(verdict.clock(summary, now)), width)]
    for each in summary["clusters"]:
        owner = f", of {each['owner']}" if each["owner"] else ""
        lines += wrap(visible(f"Cluster {each['name']}{owner}{': ' if each['link'] else ''}{each['link']}"), width)
    return lines


def answer(
    decided: verdict.Verdict, summary: Values, width: int, shown: Selection = ALL, every: bool = False
) -> Answer:
    """Of every partition that is held how it stands, and what to do. ``width`` in columns.

    What is said of several in the same words is said once; ``every``: of each by itself, with whole commands, and of
    those that are held as is normal too. ``shown``: which partitions.
    """
    held, named, accepted = (
        [row for row in rows if shown.holds(dict(row.holder.row))]
        for rows in (decided.held, decided.named, decided.accepted)
    )
    as_of = summary["as_of"]
    lines = ["", *held_table.lines(held, as_of, width, every)] if held else []
    lines += _what_to_do(held, width, every, LINES - len(lines))
    if hidden := len(decided.held) - len(held):
        lines += ["", *wrap(f"Not printed: {plural(hidden, 'more partition')} that {_are(hidden)} blocked", width)]
    unsure = [row for row in named if every or row.holder.standing != "waiting" or row.holder.left_out]
    lines += _not_known(unsure, as_of, width, every)
    if named and not unsure:
        lines += ["", *wrap(f"Held, as is normal: {_places(named)}", width)]
    if accepted:
        lines += ["", *wrap("Blocked, which the baseline accepts:", width)]
        lines += [line for row in accepted[:NAMED] for line in indented(_brief(row), width, 2)]
        lines += _more(accepted[NAMED:], width)
    about = [f for row in held for f in (*row.holder.findings, *row.behind[: held_table.BEHIND]) if _blocks(f)]
    said = {tuple(row.holder.told): row.holder.name for row in held}
    for row in held:
        same = (f for f in row.holder.findings if _blocks(f) and f["advice"])
        texts = (tuple(told(f["advice"], "")) for f in same)
        said |= {text: row.holder.name for text in texts if text[0] == row.holder.told[0]}
    return Answer(lines, about, said)


def _blocks(finding: Finding) -> bool:
    """Whether it says no more than the row of what holds a partition does."""
    return (finding.get("declared") or {}).get("blocks") is not None


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _more(rows: Sequence[answers.Blocked], width: int) -> list[str]:
    return wrap(f"… {plural(len(rows), 'more partition')}: see summary.json", width) if rows else []


def _not_known(rows: Sequence[answers.Blocked], as_of: str | None, width: int, every: bool) -> list[str]:
    """Partitions that are held, by why it is not known whether for longer than is normal."""
    by_reason: dict[str, list[answers.Blocked]] = {}
    for row in rows:
        by_reason.setdefault(verdict.stands(row.holder), []).append(row)
    lines = []
    for reason, mine in by_reason.items():
        said = f"Held, but not known to be blocked for longer than is normal: {reason}"
        lines += ["", *wrap(said, width), *held_table.lines(mine, as_of, width, every)]
    return lines


def _what_to_do(rows: Sequence[answers.Blocked], width: int, every: bool, room: int) -> list[str]:
    """A paragraph for each text: all of them with ``every``, else the first, and those that ``room`` lines take."""
    groups = [Alike([at], row.holder.told) for at, row in enumerate(rows)] if every else _alike(rows[:COMPARED])
    lines: list[str] = []
    left: list[answers.Blocked] = []
    for group in groups:
        mine = [rows[at] for at in group.members]
        paragraph = ["", *_paragraph(group, mine, width, None if every else max(3, room - len(lines)))]
        if lines and not every and (left or len(lines) + len(paragraph) > room):
            left += mine
        else:
            lines += paragraph
    left += [] if every else rows[COMPARED:]
    if left:
        said = f"What to do about {_places(left)}: auditor explain, with the digits under FINDING"
        lines += ["", *wrap(said, width)]
    return lines


def _alike(rows: Sequence[answers.Blocked]) -> list[Alike]:
    """Those that stand alike and of which the same is said."""
    return alike([(names(row.holder.row), [("", verdict.stands(row.holder)), *row.holder.told]) for row in rows])


def _paragraph(group: Alike, rows: Sequence[answers.Blocked], width: int, room: int | None) -> list[str]:
    """Who it is about, what to do with each command on a line of its own, and the values of each partition."""
    parts = [part for part in group.parts if part[0]]
    lines = _one(rows[0], width) if len(rows) == 1 else _several(group, rows, width)
    for name, said in (
        ("cannot start", _all(row.groups for row in rows)),
        ("read this", _all(row.holder.row.get("readers") or () for row in rows)),
    ):
        lines += indented(f"groups that {name}: {said}", width, 2) if said else []
    for part, text in parts:
        lines += [f"    {visible(text)}"] if part == "command" else indented(text, width, 2)
    return lines + values_in_lines(group, width, VALUES if room is None else min(VALUES, room - len(lines) - 1))


def _one(row: answers.Blocked, width: int) -> list[str]:
    """Which partition, by whom it is held and for how long, and where its readers stop."""
    holder = row.holder
    by = who(holder.row) or "an unknown producer"
    stop = "" if holder.lso is None else f"; read_committed consumers stop at offset {holder.lso}"
    text = f"{holder.name}: held by {by} {verdict.held_for(holder.row)}, {verdict.stands(holder)}{stop}"
    also = "Its readers go on only once the others above have ended too: auditor explain." if row.behind else ""
    return [*wrap(visible(text), width), *indented(also, width, 2)]


def _several(group: Alike, rows: Sequence[answers.Blocked], width: int) -> list[str]:
    stands = verdict.stands(rows[0].holder)
    if not group.columns:
        return wrap(f"{_places(rows)}, each: {stands}", width)
    return wrap(f"{plural(len(rows), 'partition')}, each: {stands}. Capitals stand for the values below.", width)


def _all(names: Iterable[Iterable[str]]) -> str:
    found = list(dict.fromkeys(name for several in names for name in several))
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _places(rows: Sequence[answers.Blocked]) -> str:
    """The partitions, by topic."""
    by_topic: dict[str, list[int]] = {}
    for row in rows:
        by_topic.setdefault(str(row.holder.row["topic"]), []).append(row.holder.row["partition"])
    places = [
        f"{topic}-{numbers[0]}" if len(numbers) == 1 else f"{topic} (partitions {_numbers(sorted(numbers))})"
        for topic, numbers in by_topic.items()
    ]
    more = f" and {plural(len(places) - SHOWN, 'more topic')}" if len(places) > SHOWN else ""
    return visible("; ".join(places[:SHOWN]) + more)


def _numbers(partitions: Sequence[int]) -> str:
    more = f" and {len(partitions) - NUMBERS:,} more" if len(partitions) > NUMBERS else ""
    return f"{', '.join(map(str, partitions[:NUMBERS]))}{more}"


def _brief(row: answers.Blocked) -> str:
    holder = row.holder
    at = "" if holder.lso is None else f" at offset {holder.lso}"
    by = who(holder.row) or "an unknown producer"
    digits = next((f" · {name}" for f in holder.findings if (name := short_fingerprint(f))), "")
    return f"{holder.name}{at}, by {by}, {verdict.held_for(holder.row)}: {verdict.stands(holder)}{digits}"
