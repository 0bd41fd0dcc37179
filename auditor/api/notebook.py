"""How findings, explanations and timelines look in a notebook. What comes from the data is escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from auditor.base.words import plural
from auditor.dashboards.wording import visible
from auditor.rules.finding import SEVERITIES, Finding

MAX_ROWS = 200
MAX_HELD = 20  # partitions that are shown beside the headline
COLORS = {"critical": "#b3261e", "error": "#c2410c", "warning": "#8a6100", "info": "#4b5563"}
CELL = "text-align:left;vertical-align:top;padding:2px 10px"


@dataclass(frozen=True)
class Text:
    """Lines of text that a notebook shows as they are."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(Markup("<pre>{}</pre>").format(self.text))


@dataclass(frozen=True)
class Page:
    """A whole HTML page, which a notebook shows in a frame of its own: its style stays within, its script is dead."""

    html: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {len(self.html)} characters: a notebook shows it, .html has it>"

    def _repr_html_(self) -> str:
        frame = '<iframe sandbox style="width:100%;height:{}px;border:0" srcdoc="{}"></iframe>'
        return str(Markup(frame).format(self.height, self.html))


def as_text(found: Sequence[Finding]) -> str:
    """How many there are of each severity."""
    counts = Counter(finding.severity for finding in found)
    of_each = ", ".join(f"{counts[name]} {name}" for name in SEVERITIES if counts[name])
    return f"<{plural(len(found), 'finding')}{': ' + of_each if of_each else ''}>"


def findings_html(found: Sequence[Finding]) -> str:
    """A table of the first findings, in their order."""
    head = Markup("").join(
        Markup('<th style="{}">{}</th>').format(CELL, name)
        for name in ("severity", "rule", "where", "what", "fingerprint")
    )
    rows = Markup("").join(map(_row, found[:MAX_ROWS]))
    more = len(found) - MAX_ROWS
    below = Markup("<p>{}</p>").format(f"{plural(more, 'more finding')} not shown") if more > 0 else ""
    table = Markup("<p><b>{}</b></p><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")
    return str(table.format(as_text(found).strip("<>"), head, rows, below))


def unread_html(what: str) -> str:
    """An audit of which nothing was read yet, or that is closed."""
    return str(Markup("<p>{}</p><p>{}</p>").format(what, "audit.findings reads the input, once, and judges it"))


def audit_html(headline: str, blocked: Sequence[Mapping[str, Any]], found: Sequence[Finding]) -> str:
    """Who is blocked and what to do, rows of the table ``blocked`` in their order; below it how much was found."""
    names = ("partition", "how", "since", "held by", "what to do")
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(CELL, name) for name in names)
    rows = Markup("").join(map(_held, blocked[:MAX_HELD]))
    more = len(blocked) - MAX_HELD
    below = Markup("<p>{}</p>").format(f"{plural(more, 'more row')} in audit.table('blocked')") if more > 0 else ""
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}").format(head, rows, below)
    said = Markup("<p><b>{}</b></p>{}<p>{}</p>")
    return str(said.format(visible(headline), table if blocked else "", as_text(found).strip("<>")))


def _held(row: Mapping[str, Any]) -> Markup:
    holder = row["transactional_id"] or f"producer {row['producer_id']}"
    since = "" if row["since"] is None else f"{row['since']:%Y-%m-%d %H:%M:%S}Z"
    cells = (f"{row['topic']}-{row['partition']}", row["standing"], since, holder, row["remedy"] or "")
    return Markup("<tr>{}</tr>").format(
        Markup("").join(Markup('<td style="{}">{}</td>').format(CELL, visible(text)) for text in cells)
    )


def _row(finding: Finding) -> Markup:
    place = "" if finding.topic is None else finding.topic
    place += "" if finding.partition is None else f"-{finding.partition}"
    place += "" if finding.offset is None else f" @ {finding.offset}"
    cells = (finding.rule, place, finding.message, finding.fingerprint[:12])
    first = Markup('<td style="{};color:{}"><b>{}</b></td>').format(CELL, COLORS[finding.severity], finding.severity)
    rest = (Markup('<td style="{}">{}</td>').format(CELL, visible(text)) for text in cells)
    return Markup("<tr>{}{}</tr>").format(first, Markup("").join(rest))
