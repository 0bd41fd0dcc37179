"""How findings, explanations and timelines look in a notebook. What comes from the data is escaped."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from auditor import running
from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.wording import visible
from auditor.rules.seen.view import SEVERITIES, Finding

MAX_ROWS = 200
MAX_HELD = 20  # partitions that are shown beside the headline
COLORS = {"critical": "#b3261e", "error": "#c2410c", "warning": "#8a6100", "info": "#4b5563"}
PAUSE = 0.2  # seconds between two lines about what is being done
CELL = "text-align:left;vertical-align:top;padding:2px 10px"


TABLE = Markup("<p><b>{}</b></p><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")


class CellProgress:
    """What is being done, on a line below a notebook's cell that is wiped at the end."""

    silent = False

    def __init__(self) -> None:
        self.handle: Any = None
        self.said_at = 0.0

    def say(self, text: str) -> None:
        """Shows what is being done now, unless something was shown a moment ago."""
        if self.handle is not None and time.monotonic() - self.said_at < PAUSE:
            return
        self.said_at = time.monotonic()
        self._show(f"… {text}")

    def done(self) -> None:
        """Wipes the line."""
        if self.handle is not None:
            self._show("")
            self.handle = None

    def _show(self, text: str) -> None:
        data = {"text/plain": text, "text/html": str(Markup("<i>{}</i>").format(visible(text)))}
        if self.handle is None:
            from IPython.display import display

            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


Shown = CellProgress | running.Progress


def progress(wanted: bool | None) -> Shown:
    """Where a line says what is being done: below a notebook's cell, if ``wanted`` on standard error, or nowhere.
    None: in notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if wanted is not False and hasattr(shell, "kernel"):
        return CellProgress()
    return running.Progress(silent=not wanted)


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
    return str(TABLE.format(as_text(found).strip("<>"), head, rows, below))


def unread_html(what: str, reads: str) -> str:
    """Something of which nothing was read yet, or that is closed; ``reads``: what to ask for."""
    return str(Markup("<p>{}</p><p>{}</p>").format(what, f"{reads} read the input, once, and judge it"))


def table_html(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """Rows under their names, and how many are not shown."""
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(CELL, name) for name in names)
    shown = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup('<td style="{}">{}</td>').format(CELL, "" if value is None else visible(str(value)))
                for value in row
            )
        )
        for row in rows
    )
    below = Markup("<p>{}</p>").format(f"{plural(more, 'more row')} not shown") if more > 0 else ""
    return str(TABLE.format(title, head, shown, below))


def audit_html(headline: str, blocked: Sequence[Values], found: Sequence[Finding]) -> str:
    """Who is blocked and what to do, rows of the table ``blocked`` in their order; below it how much was found."""
    held = Markup(blocked_html(headline, blocked)) if blocked else Markup("<p><b>{}</b></p>").format(visible(headline))
    return str(Markup("{}<p>{}</p>").format(held, as_text(found).strip("<>")))


def blocked_html(title: str, blocked: Sequence[Values]) -> str:
    """The first partitions that are held: how, since when, by whom, and what to do."""
    names = ("partition", "how", "since", "held by", "what to do")
    more = len(blocked) - MAX_HELD
    return table_html(visible(title), names, map(_held, blocked[:MAX_HELD]), more)


def _held(row: Values) -> tuple[str, ...]:
    holder = row["transactional_id"] or f"producer {row['producer_id']}"
    since = "" if row["since"] is None else f"{row['since']:%Y-%m-%d %H:%M:%S}Z"
    return f"{row['topic']}-{row['partition']}", row["standing"], since, holder, row["remedy"] or ""


def _row(finding: Finding) -> Markup:
    place = "" if finding.topic is None else finding.topic
    place += "" if finding.partition is None else f"-{finding.partition}"
    place += "" if finding.offset is None else f" @ {finding.offset}"
    cells = (finding.rule, place, finding.message, finding.fingerprint[:12])
    first = Markup('<td style="{};color:{}"><b>{}</b></td>').format(CELL, COLORS[finding.severity], finding.severity)
    rest = (Markup('<td style="{}">{}</td>').format(CELL, visible(text)) for text in cells)
    return Markup("<tr>{}{}</tr>").format(first, Markup("").join(rest))
