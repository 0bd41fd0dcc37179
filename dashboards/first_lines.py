"""The first lines on a terminal: who is blocked, by whom, since when, what to do; and one finding in full."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.base.words import plural
from auditor.dashboards import answers, causes, happened, remedies, verdict
from auditor.dashboards.selection import ALL, Selection
from auditor.dashboards.text_columns import wrap
from auditor.dashboards.wording import (
    Finding,
    clip,
    fact,
    instant,
    log_name,
    offsets,
    pieces,
    short_fingerprint,
    visible,
    who,
)

SHOWN, NAMED, NUMBERS = 5, 10, 20


@dataclass(slots=True)
class Answer:
    """The first lines, and the findings that are in them in full."""

    lines: list[str]
    findings: list[Finding]


def answer(
    findings: Sequence[Finding], summary: Mapping[str, Any], width: int, now: datetime.datetime | None,
    shown: Selection = ALL, every: bool = False,
) -> Answer:  # fmt: skip
    """The headline, the clock, and of every partition that is held how it stands. ``width`` in columns.

    Partitions that one producer holds alike are one part, with the names of the others; ``every``: each by itself.
    ``shown``: which partitions; the headline is that of the run.
    """
    decided = verdict.of_run(findings, summary)
    lines = top(decided, summary, width, now)
    for finding in [f for f in decided.lost if shown.holds(f)][:SHOWN]:
        lines += ["", *_indented(f"{log_name(finding)}: {clip(finding['message'] or '', 400)}", width, 2)]
    held, named = ([row for row in rows if shown.holds(dict(row.holder.row))] for rows in (decided.held, decided.named))
    holders = [causes.Held([row]) for row in held] if every else causes.holders(held)
    parts = holders if every else holders[:SHOWN]
    for alike in parts:
        lines += ["", *_held(alike.rows[0], width), *_alike(alike.rows[1:], width)]
    rest = [row for alike in holders[len(parts) :] for row in alike.rows]
    lines += ["", *wrap(f"And {len(rest):,} more {_are(len(rest))} blocked:", width)] if rest else []
    for row in rest[:NAMED]:
        lines += _indented(_brief(row), width, 2)
    lines += _grave(remedies.remedies([f for f in findings if shown.shows(f)], decided.held), width)
    if named:
        lines += ["", *wrap("Held, but not known to be blocked for longer than is normal:", width)]
    for row in named[:NAMED]:
        lines += _indented(_brief(row), width, 2)
    accepted = [row for row in decided.accepted if shown.holds(dict(row.holder.row))]
    if accepted:
        lines += ["", *wrap("Blocked, which the baseline accepts:", width)]
    for row in accepted[:NAMED]:
        lines += _indented(_brief(row), width, 2)
    unseen = max(0, len(accepted) - NAMED) + max(0, len(rest) - NAMED) + max(0, len(named) - NAMED)
    lines += wrap(f"… {plural(unseen, 'more partition')}: see summary.json", width) if unseen else []
    if hidden := len(decided.held) - len(held):
        lines += ["", *wrap(f"Not printed: {plural(hidden, 'partition')} more that {_are(hidden)} blocked", width)]
    return Answer(lines, [f for alike in parts for f in alike.first.findings[:1]])


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def top(decided: verdict.Verdict, summary: Mapping[str, Any], width: int, now: datetime.datetime | None) -> list[str]:
    """The headline and the clock."""
    headline = decided.headline.upper() if decided.tone == "bad" else decided.headline
    return [*wrap(headline, width), *wrap(visible(verdict.clock(summary, now)), width)]


def _alike(rows: Sequence[answers.Blocked], width: int) -> list[str]:
    """The other partitions that are held by the same."""
    if not rows:
        return []
    by_topic: dict[str, list[int]] = {}
    for row in rows:
        by_topic.setdefault(str(row.holder.row["topic"]), []).append(row.holder.row["partition"])
    places = [
        f"{topic}-{numbers[0]}" if len(numbers) == 1 else f"{topic} (partitions {_numbers(sorted(numbers))})"
        for topic, numbers in sorted(by_topic.items())
    ]
    more = f" and {plural(len(places) - SHOWN, 'more topic')}" if len(places) > SHOWN else ""
    said = f"the same in {plural(len(rows), 'more partition')}: {'; '.join(places[:SHOWN])}{more}"
    said += " (--verbose: the commands for each)"
    return _indented(said, width, 4)


def _grave(found: Sequence[remedies.Remedy], width: int) -> list[str]:
    """What to do about what holds no partition, the gravest first."""
    lines = ["", "What to do:"] if found else []
    for one in found[: remedies.SHOWN]:
        place = log_name(one.first) or one.first["file"] or "the cluster"
        more = f" and {plural(one.count - 1, 'more finding')}" if one.count > 1 else ""
        lines += _indented(f"{' and '.join(one.rules)}: {place}{more}", width, 2)
        lines += _remedy(one.text, width)
        if one.others:
            lines += _indented(f"What to do about {one.others:,} more is not the same: auditor explain", width, 4)
    if rest := found[remedies.SHOWN :]:
        rules = ", ".join(f"{' and '.join(one.rules)} ({short_fingerprint(one.first)})" for one in rest)
        lines += _indented(f"auditor explain says what to do about {rules}", width, 2)
    return lines


def _remedy(text: str, width: int) -> list[str]:
    """A remedy, each command on one line of its own, however narrow the terminal, so that it can be pasted."""
    lines = []
    for kind, said in pieces(text):
        lines += [f"      {visible(said)}"] if kind == "command" else _indented(said.strip(" ;:"), width, 4)
    return lines


def _numbers(partitions: Sequence[int]) -> str:
    more = f" and {len(partitions) - NUMBERS:,} more" if len(partitions) > NUMBERS else ""
    return f"{', '.join(map(str, partitions[:NUMBERS]))}{more}"


def explained(
    row: Mapping[str, Any], page: Mapping[str, str], width: int, events: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """One finding with its evidence: ``row`` has the contract's fields and ``fingerprint``; ``page`` its rule's title
    and sections, empty for a rule of the past; ``width`` in columns; ``events``: the summary's ``cluster_events``, null
    where the summary has none."""
    lines = wrap(visible(f"{row['severity']} {row['rule']} · {row['fingerprint']}"), width)
    span = offsets(row["offset"], row["last_offset"])
    broker = "" if row["broker_id"] is None else f" on broker {row['broker_id']}"
    place = f"{log_name(row) or 'the cluster'}{f' at offsets {span}' if span else ''}{broker}"
    file = "" if row["file"] is None else f"{row['file']}" + (f" at byte {row['position']}" if row["position"] else "")
    for name, text in (("Where", place), ("File", file), ("Who", who(row)), ("When", row["timestamp"] or ""),
                       ("What", row["message"])):  # fmt: skip
        lines += [f"{name}:", *_indented(text, width, 2)] if text else []
    lines.append("Evidence:")
    for name, content in sorted((row["evidence"] or {}).items()):
        lines += _indented(f"{name}: {fact(name, content)}", width, 2) if content is not None else []
    if did := happened.around(events or (), row):
        lines.append("What the cluster did:")
        for entry in did:
            lines += _indented(f"{instant(entry.time) if entry.time else 'before'}: {entry.says}", width, 2)
    elif row["partition"] is not None:
        lines += ["What the cluster did:", *_indented(f"not known: {happened.unknown(events, row)}", width, 2)]
    lines.append("What to do:")
    for kind, text in pieces(row["remedy"] or ""):
        lines += [f"    {visible(text)}"] if kind == "command" else _indented(text.strip(" ;:"), width, 2)
    for name in ("Title", "Checks", "Why it matters", "Can be wrong", "Source"):
        lines += (
            [f"{'The rule' if name == 'Title' else name}:", *_indented(page[name], width, 2)] if name in page else []
        )
    return lines


def _held(row: answers.Blocked, width: int) -> list[str]:
    """Who blocks whom, where, since when, and what to do, with the commands on lines of their own."""
    holder = row.holder
    waiting = "" if holder.waiting is None else f", {plural(holder.waiting, 'offset')} before its end"
    stop = "" if holder.lso is None else f": read_committed consumers stop at offset {holder.lso}{waiting}"
    others = f", and {plural(row.others, 'more producer')}" if row.others > 0 else ""
    lines = _indented(f"{holder.name}{stop}", width, 2)
    lines += _indented(f"by {who(holder.row) or 'an unknown producer'}{others}", width, 4)
    since = f" (since {verdict.begun(holder.row)})" if holder.row.get("since") else ""
    lines += _indented(f"{verdict.held_for(holder.row)}{since}: {verdict.stands(holder)}", width, 4)
    if readers := holder.row.get("readers"):
        more = f" and {len(readers) - SHOWN} more" if len(readers) > SHOWN else ""
        lines += _indented(f"groups that read this topic: {', '.join(readers[:SHOWN])}{more}", width, 4)
    if row.groups:
        lines += _indented(f"groups that cannot start: {', '.join(row.groups[:SHOWN])}", width, 4)
    lines += _indented(holder.lead, width, 4)
    return [*lines, *_remedy(holder.remedy, width), *_behind(row, width)]


def _behind(row: answers.Blocked, width: int) -> list[str]:
    """The others that hold it, which need an answer each."""
    if not row.behind:
        return []
    these = "these are" if len(row.behind) > 1 else "this is"
    lines = _indented(f"Its readers go on only once {these} ended too (auditor explain says how):", width, 4)
    for finding in row.behind[:SHOWN]:
        said = f"at offset {finding['offset']}, {who(finding)} · {short_fingerprint(finding)}".rstrip(" ·")
        lines += _indented(said, width, 6)
    more = len(row.behind) - SHOWN
    return lines + (_indented(f"and {more:,} more", width, 6) if more > 0 else [])


def _brief(row: answers.Blocked) -> str:
    holder = row.holder
    at = "" if holder.lso is None else f" at offset {holder.lso}"
    by = who(holder.row) or "an unknown producer"
    return f"{holder.name}{at}, by {by}, {verdict.held_for(holder.row)}: {verdict.stands(holder)}"


def _indented(text: str, width: int, by: int) -> list[str]:
    return [" " * by + line for line in wrap(visible(text), width - by) if line]
