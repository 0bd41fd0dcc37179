"""What else was found, on a terminal: a few lines a cause, and what to do about it, each text once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from auditor.base.advice import Verdict
from auditor.base.words import plural
from auditor.dashboards import causes
from auditor.dashboards.alike import Names, alike, names, values_in_lines
from auditor.dashboards.remedies import SHOWN
from auditor.dashboards.text_columns import indented, wrap
from auditor.dashboards.wording import GRAVE, SEVERITIES, Finding, clip, kind, place, short_fingerprint, told, visible

PLACES = 3
VALUES = 10  # places of a cause whose values are listed
COMPARED = 1000  # findings of a cause among which those are looked for of which the same is said
_COLOURS = {"critical": "1;31", "error": "31", "warning": "33", "info": "36"}
_MESSAGE = 1000
Told = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Said:
    """What was said already: by each text what to do, whose it was. ``most`` texts are said; ``unsaid``: whether some
    were not."""

    most: int | None = SHOWN
    by: dict[Told, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    unsaid: bool = False


def painter(color: bool) -> Callable[[str, str], str]:
    """What paints the severity that a line begins with; nothing where the environment has ``NO_COLOR``."""

    def paint(line: str, severity: str) -> str:
        if severity not in SEVERITIES or not line.startswith(severity):
            return line
        return f"\x1b[{_COLOURS[severity]}m{severity}\x1b[0m{line[len(severity) :]}"

    return paint if color and not os.environ.get("NO_COLOR") else lambda line, _: line


def lines(cause: causes.Cause, width: int, said: Said) -> list[str]:
    """A cause: how grave, which rule, how often, where and whose; what the first of its findings says; and what to do
    about it, unless that was said above."""
    first = cause.findings[0]
    places = list(dict.fromkeys(filter(None, (visible(place(f)) for f in cause.findings))))
    more = f" and {plural(len(places) - PLACES, 'more place')}" if len(places) > PLACES else ""
    head = [
        f"{first['severity']} {_name(first)}",
        plural(len(cause.findings), "finding") if len(cause.findings) > 1 else "",
        ", ".join(places[:PLACES]) + more,
        visible(cause.who),
    ]
    begun, *rest = wrap(" · ".join(filter(None, head)), width)
    message = clip(first["message"] or "", _MESSAGE)
    lines = [begun, *(line for part in rest for line in indented(part, width, 2)), *indented(message, width, 2)]
    return lines + _what_to_do(cause, width, said) if first["severity"] in GRAVE else lines


def _what_to_do(cause: causes.Cause, width: int, said: Said) -> list[str]:
    first = cause.findings[0]
    text = _told(first)
    if not text:
        return []
    if text in said.by:
        return indented(f"What to do: as for {said.by[text]}", width, 2) if cause.kind not in said.kinds else []
    if said.most is not None and (len(said.kinds) >= said.most or cause.kind in said.kinds):
        said.unsaid = True
        stop = first["advice"] and first["advice"]["verdict"] in (Verdict.DO_NOT_ACT, Verdict.DO_NOT_ABORT)
        return indented(text[0][1], width, 2) if stop else []
    said.kinds.add(cause.kind)
    told = [(_names(finding), _told(finding)) for finding in cause.findings[:COMPARED]]
    group = alike(told)[0]
    for member in group.members:
        said.by.setdefault(told[member][1], _name(first))
    lines = []
    for what, part in group.parts:
        lines += [f"    {visible(part)}"] if what == "command" else indented(part, width, 2)
    lines += values_in_lines(group, width, VALUES)
    if others := len(cause.findings) - len(group.members):
        lines += indented(f"What to do about {others:,} more of these is not the same: auditor explain", width, 2)
    return lines


def _name(finding: Finding) -> str:
    """Its rule, which of the rule's questions it answers where that is another, and its digits."""
    question = kind(finding)
    asked = "" if question == finding["rule"] else f" ({question})"
    return f"{finding['rule']}{asked} {short_fingerprint(finding)}".rstrip()


def _names(finding: Finding) -> Names:
    return names({**finding, "first_offset": finding["offset"]})


def _told(finding: Finding) -> Told:
    return tuple(told(finding.get("advice"), finding["remedy"] or ""))
