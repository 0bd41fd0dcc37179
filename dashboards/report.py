"""report.html: one self-contained page that opens offline and begins with the answers.

The page is rendered whole on this side (Jinja2, everything escaped by default); its only script sorts, filters and
copies, and nothing is hidden from a reader without it. Its style and script stand in the page and are the only ones
that its content security policy lets run, by their hashes. Same input, same bytes: no clock, no random order.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dashboards import answers, groups, prevention, shapes, text, timeline

MAX_TIMELINES, MAX_OPEN, MAX_TABLE = 40, 300, 400


def render_report(
    findings: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    transactions: Sequence[Mapping[str, Any]],
    timelines: Sequence[Mapping[str, Any]],
) -> str:
    """The whole page as text, to be written as UTF-8.

    ``findings`` have the contract's fields, in the contract's order; ``summary`` is what summary.json holds;
    ``transactions`` are the open ones with class, offsets, ``since`` (ISO 8601) and ``age_ms``; ``timelines`` one a
    partition to be drawn. Long input is cut (see :mod:`dashboards.groups` and the limits here) and the page says by how
    much. The shapes are those of :mod:`dashboards.shapes`; a key that is missing counts as null.
    Cost: linear in the input; the page stays below 20 MB.
    """
    findings, summary = shapes.whole(findings, shapes.FINDING), shapes.summary(summary)
    everything = answers.open_transactions(shapes.whole(transactions, shapes.TRANSACTION), findings, summary)
    held = answers.blocked(everything, findings, summary)
    counts = answers.tally(findings, summary)
    grouped = groups.group(findings, summary.get("counts"))
    return _environment().get_template("report.html.j2").render(
        summary=summary,
        held=held,
        open=everything,
        counts=counts,
        verdict=_verdict(held, counts, summary),
        groups=grouped,
        undecided=answers.undecided(findings),
        missing=answers.missing(findings),
        settings=prevention.prevent(
            {g.rule: g.count for g in grouped}, {g.rule: g.severity for g in grouped}
        ),
        pictures=_pictures(shapes.timelines(timelines), everything),
        more_timelines=max(0, len(timelines) - MAX_TIMELINES),
        classes=answers.CLASSES,
        style=_asset("report.css"),
        script=_asset("report.js"),
        policy=_content_policy(),
        max_open=MAX_OPEN,
        max_table=MAX_TABLE,
    )  # fmt: skip


def _verdict(held: Sequence[answers.Blocked], counts: Mapping[str, int], summary: Mapping[str, Any]) -> tuple[str, str]:
    """The tone of the page (bad, warn, unsure, good) and its headline."""
    bad = {name: count for name, count in counts.items() if count and name in ("critical", "error")}
    grave = " and ".join(text.plural(count, f"{name} finding") for name, count in bad.items())
    if held:
        return "bad", f"{text.plural(len(held), 'partition')} {'is' if len(held) == 1 else 'are'} blocked"
    if bad:
        return "bad" if "critical" in bad else "warn", f"Nothing is blocked, but there {_are(bad)} {grave}"
    if summary["unreadable"] or summary["bytes"]["unreadable"]:
        return "unsure", "Nothing is blocked in what could be read; part of the input could not be read"
    if counts.get("warning"):
        return "warn", f"Nothing is blocked; {text.plural(counts['warning'], 'warning')}"
    return "good", "Nothing is blocked, and nothing is wrong in what was read"


def _are(bad: Mapping[str, int]) -> str:
    return "is" if next(iter(bad.values())) == 1 else "are"


def _pictures(
    timelines: Sequence[Mapping[str, Any]], everything: Sequence[answers.Open]
) -> list[tuple[Mapping[str, Any], timeline.Picture]]:
    """The timelines that are drawn, those with a blocking transaction first, and how they are laid out."""
    known: dict[str, dict[tuple[int, int], Mapping[str, Any]]] = {}
    blocking = set()
    for entry in everything:
        key = entry.row["producer_id"], entry.row["first_offset"]
        known.setdefault(entry.name, {})[key] = {**entry.row, "blocks": entry.blocks}
        if entry.blocks:
            blocking.add(entry.name)
    order = sorted(timelines, key=lambda row: text.log_name(row) not in blocking)[:MAX_TIMELINES]
    return [(row, timeline.draw(row, known.get(text.log_name(row), {}))) for row in order]


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "size", "duration", "instant", "value", "plural", "log_name", "offsets", "who", "pieces", "clip")
    environment.filters |= {name: getattr(text, name) for name in names}
    environment.globals |= {"in_words": timeline.in_words, "advise": answers.advise}
    return environment


def _finalize(content: object) -> object:
    """What every expression of a template passes through before it is escaped: hidden characters become visible."""
    if content is None:
        return "–"
    return text.visible(content) if isinstance(content, str) and not isinstance(content, Markup) else content


@functools.cache
def _asset(name: str) -> Markup:
    """A style sheet or script of the package, trusted: it is part of this program and holds no data."""
    return Markup(files("dashboards").joinpath("static", name).read_text(encoding="utf-8"))


def _content_policy() -> str:
    """Nothing may be loaded, and only the page's own style and script may run."""
    style, script = (_digest(_asset(name)) for name in ("report.css", "report.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
