"""Templates of all outputs, and what the cluster did to a partition."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from auditor.base.at_rest import Values
from auditor.base.code_cache import folder_for
from auditor.base.evidence_keys import OpenTransactionEvidence, read
from auditor.base.words import duration, plural
from auditor.dashboards import answers, timeline, wording
from auditor.dashboards.wording import log_name

if TYPE_CHECKING:
    from jinja2 import Environment, FileSystemBytecodeCache

# Events and findings of a partition by time.


MAX_FINDINGS = 20  # of a partition among its events
AROUND = 5  # events before and after a finding, as text


class TimelineEntry(NamedTuple):
    """An event at a time (ISO 8601; None: before the log start). ``severity``: of a finding, None for what the
    controller did."""

    time: str | None
    says: str
    severity: str | None = None


class PartitionTimeline(NamedTuple):
    """The events and findings of a partition in order; ``left_out``: the number of older events that are omitted."""

    name: str
    entries: list[TimelineEntry]
    left_out: int


def when(finding: Values) -> str | None:
    """Return the time of a finding by the brokers' clocks, if they contradict the producer's, which ``timestamp``
    may be of."""
    evidence = read(OpenTransactionEvidence, finding.get("evidence"))
    by_brokers = evidence.get("since") if evidence.get("since_by_producer") else None
    return str(by_brokers) if by_brokers else finding["timestamp"]


def stories(events: Iterable[Values], findings: Sequence[Values]) -> list[PartitionTimeline]:
    """Return one timeline per partition in the metadata, in the order given. ``events``: the summary's
    ``cluster_events``; findings without a time, and infos, are omitted."""
    timelines = []
    for row in events:
        name = log_name(row)
        own_findings = [f for f in findings if when(f) and f["severity"] != "info" and log_name(f) == name]
        entries = [TimelineEntry(e.get("time"), e["says"]) for e in row["events"] or ()]
        entries += [TimelineEntry(when(f), f["message"], f["severity"]) for f in own_findings[:MAX_FINDINGS]]
        timelines.append(PartitionTimeline(name, sorted(entries, key=lambda e: e.time or ""), row["left_out"] or 0))
    return timelines


def unknown(events: Sequence[Values] | None, finding: Values) -> str:
    """Return why there are no events beside a finding about a partition. ``events``: None for a run of a release
    without them."""
    if events is None:
        return "not kept with this run (earlier release)"
    if finding["severity"] == "info":
        return "not collected for info findings"
    if events and not any(log_name(row) == log_name(finding) for row in events):
        return "not in the metadata, or not collected because more severe findings name other partitions"
    return "__cluster_metadata in the input has no record of this partition"


def around(events: Iterable[Values], finding: Values) -> list[TimelineEntry]:
    """Return the events of a finding's partition right before and after its time; the newest if it has no time."""
    row = next((row for row in events if log_name(row) == log_name(finding)), None)
    entries = [TimelineEntry(e.get("time"), e["says"]) for e in (row or {}).get("events") or ()]
    time = when(finding)
    if time is None:
        return entries[-2 * AROUND :]
    before = [e for e in entries if (e.time or "") <= time]
    return before[-AROUND:] + entries[len(before) :][:AROUND]


# Templates. Hidden characters of every value are escaped; in pages HTML is, too, and in Markdown what is special there.
# Style and script are inline; the content security policy permits only them, by their hashes. The script sorts, filters
# and copies; it writes no markup.


# Marks of the layout of text, which no value can have: control characters in values are escaped.
_AS_IS = "\x01"  # before a line that is not wrapped
_CELL = "\t"  # between the cells of a row
_NO_INDENT = "\x02"  # before a value that begins with a space


def render(template: str, **content: object) -> str:
    """Render a whole page as text, to be written as UTF-8. A name that ``template`` uses and ``content`` lacks
    raises."""
    style, script = _asset("report.css"), _asset("report.js")
    return text(template, **content, style=style, script=script, policy=content_policy())


def text(template: str, **content: object) -> str:
    """Render a template of the kind that its name says: html, md or txt."""
    return _environment(template.split(".")[1]).get_template(template).render(content)


def lines(template: str, width: int | None = None, **content: object) -> list[str]:
    """Render a text template as lines.

    A line of the template is wrapped at ``width`` columns and keeps its indentation; an indented one without text is
    omitted. Rows of ``cells`` that follow each other are aligned. What is ``as_is`` is a line that is not wrapped;
    ``as_made`` are lines that this function returned, or another that escapes hidden characters.
    """
    made: list[str] = []
    all_lines = text(template, **content).removesuffix("\n").split("\n")
    for is_row, group in itertools.groupby(all_lines, lambda line: _CELL in line):
        if is_row:
            made += wording.aligned([row.split(_CELL) for row in group])
        else:
            made += [part for line in group for part in _wrapped(line, width)]
    return made


def _wrapped(line: str, width: int | None) -> list[str]:
    content = line.lstrip(" ")
    by, content = len(line) - len(content), content.replace(_NO_INDENT, "")
    if width is None or content.startswith(_AS_IS):
        parts = [content.removeprefix(_AS_IS)]
    else:
        parts = wording.wrap(content, width - by)
    return [" " * by + part for part in parts if part or not by]


@functools.cache
def _environment(kind: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only now: commands that print nothing start faster

    environment = Environment(
        loader=PackageLoader("auditor.dashboards"),
        autoescape=kind == "html",
        undefined=StrictUndefined,
        finalize=functools.partial(_finalize, {"html": wording.visible, "md": wording.escaped, "txt": _inside}[kind]),
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_kept_templates(),
    )
    names = (
        "number", "size", "instant", "value", "log_name", "offsets", "who", "pieces", "unsaid", "new_in", "clip",
        "outcome_of", "place", "fact", "advice_lines", "short_fingerprint",
    )  # fmt: skip
    environment.filters |= {name: getattr(wording, name) for name in names} | {"plural": plural, "duration": duration}
    environment.filters |= {
        "when": when,
        "baseline_said": wording.baseline,
        "advised": answers.advised,
        "are": wording.are,
        "severity_count": lambda count, name: wording.severity_count(name, count),
        "visible": lambda text: Markup(wording.visible(text)),
        "as_is": lambda line: Markup(_AS_IS + wording.visible(line)),
        "cells": _cells,
        "as_made": lambda lines: Markup("\n".join(_AS_IS + line for line in lines)),
    }
    environment.globals["in_words"] = timeline.in_words
    return environment


def _kept_templates() -> FileSystemBytecodeCache | None:
    # Compiling takes a third of a page's time. The key covers everything that templates are compiled from.
    folder = folder_for(__name__, __file__)
    if folder is None:
        return None
    import importlib.metadata
    import inspect

    from jinja2 import FileSystemBytecodeCache

    source = importlib.metadata.version("jinja2") + inspect.getsource(sys.modules[__name__])
    return FileSystemBytecodeCache(str(folder), f"page-{hashlib.sha256(source.encode()).hexdigest()[:16]}-%s.cache")


def _finalize(escape: Callable[[str], str], content: object) -> object:
    # Runs on every expression before it is escaped as HTML.
    if content is None:
        return "–"
    return escape(content) if isinstance(content, str) and not isinstance(content, Markup) else content


def _cells(row: Iterable[object]) -> Markup:
    return Markup(_CELL.join("–" if cell is None else wording.visible(str(cell)) for cell in row))


def _inside(content: str) -> str:
    return (_NO_INDENT if content.startswith(" ") else "") + wording.visible(content)


@functools.cache
def _asset(name: str) -> Markup:
    # Trusted: part of this program, without data.
    return Markup(files("auditor.dashboards").joinpath("static", name).read_text(encoding="utf-8"))


def content_policy() -> str:
    """Return the Content-Security-Policy of every page: its own style and script, and nothing from elsewhere."""
    style, script = _digest(_asset("report.css")), _digest(_asset("report.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
