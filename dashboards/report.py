"""report.html: one self-contained page that opens offline and begins with the answers.

The page is rendered whole on this side; nothing is hidden from a reader without script. Same input, same bytes: no
clock, no random order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from auditor.base import words
from auditor.base.at_rest import Values
from auditor.base.words import GLOSSARY, FirstRows
from auditor.dashboards import (
    answers,
    besides,
    causes,
    finding_groups,
    happened,
    page,
    remedies,
    report_shapes,
    report_table,
    timeline,
    verdict,
    wording,
)

MAX_TIMELINES, MAX_OPEN, MAX_ALIKE, MAX_OPEN_ROWS = 40, 300, 50, 25


# A timeline, its picture, and that of the whole log where the first one shows a part of it.
Drawn = tuple[Values, timeline.Picture, timeline.Picture | None]


def render_report(
    findings: Sequence[Values],
    summary: Values,
    transactions: Sequence[Values],
    timelines: Sequence[Values],
    tables: tuple[FirstRows, FirstRows] | None = None,
) -> str:
    """The whole page as text, to be written as UTF-8.

    ``findings`` have the contract's fields, in the contract's order, and under ``declared`` what their rule declares
    for pages (``blocks``: null, readers or group; ``decided``), and ``fingerprint`` where they are those of a run;
    those with an entry of a baseline under ``accepted`` are counted and not listed.
    ``summary`` is what summary.json holds; ``transactions`` are the open ones with class, offsets, ``since`` (ISO 8601)
    and ``age_ms``; ``timelines`` one a partition to be drawn; ``tables`` what there is to show of the summary's logs
    where that is known, so that they need not be read. Long input is cut (see
    :mod:`auditor.dashboards.finding_groups` and the limits here) and the page says by how much. The shapes are those of
    :mod:`auditor.dashboards.report_shapes`; a key that is missing counts as null.
    Cost: linear in the input; the page stays below 20 MB.
    """
    findings, summary = report_shapes.whole(findings, report_shapes.FINDING), report_shapes.summary(summary)
    opened = report_shapes.whole(transactions, report_shapes.TRANSACTION)
    everything = answers.open_transactions(opened, findings, summary)
    counts = answers.tally(findings, summary)
    decided = verdict.decide(answers.blocked(everything, findings, summary), findings, counts, summary)
    findings = answers.unaccepted(findings)
    grouped = finding_groups.group(findings, summary.get("counts"))
    anchors = {row.anchor for entry in grouped for row in entry.rows if row.anchor}
    asked = remedies.remedies(findings, decided.held)
    chained, counted = tables or _tables(summary["logs"])
    return page.render(
        "report.html.j2",
        summary=summary,
        glossary=GLOSSARY,
        held=decided.held,
        holders=causes.holders(decided.held),
        named=decided.named,
        remedies=asked,
        lost=decided.lost,
        calm="unsure" if decided.open or decided.tone == "unsure" else "good",
        grave=decided.open,
        anchors=anchors,
        about={rule: f"do-about-{n}" for n, one in enumerate(asked[: remedies.SHOWN], 1) for rule in one.rules},
        open=everything,
        table=report_table.table(decided, everything, asked[: remedies.SHOWN], anchors),
        counts=counts,
        verdict=(decided.tone, decided.headline),
        clock=verdict.clock(summary),
        stands=verdict.stands,
        chained=chained,
        counted=counted,
        groups=grouped,
        unshown=finding_groups.unshown(grouped),
        undecided=answers.undecided(findings),
        missing=answers.missing(findings),
        settings=summary["prevention"],
        pictures=_pictures(timelines, everything),
        more_timelines=max(0, len(timelines) - MAX_TIMELINES),
        stories=happened.stories(summary["cluster_events"], findings),
        max_stories=happened.MAX_STORIES,
        asides=besides.cards(summary["asides"]),
        classes=answers.KINDS,
        max_open=MAX_OPEN,
        max_alike=MAX_ALIKE,
        max_open_rows=MAX_OPEN_ROWS,
        max_table=words.MOST,
    )


def render_timelines(
    findings: Sequence[Values],
    summary: Values,
    transactions: Sequence[Values],
    timelines: Sequence[Values],
) -> str:
    """The timelines alone as a whole page; everything else as of :func:`render_report`."""
    findings, summary = report_shapes.whole(findings, report_shapes.FINDING), report_shapes.summary(summary)
    opened = report_shapes.whole(transactions, report_shapes.TRANSACTION)
    everything = answers.open_transactions(opened, findings, summary)
    return page.render(
        "timeline_page.html.j2",
        pictures=_pictures(timelines, everything),
        more_timelines=max(0, len(timelines) - MAX_TIMELINES),
    )


def _pictures(timelines: Sequence[Values], everything: Sequence[answers.Open]) -> list[Drawn]:
    """The timelines that are drawn, those with a blocking transaction first, and how they are laid out.

    Several clusters may have a log of one name, so logs are told apart by where they lie; of runs that were kept before
    timelines said that, by name alone.
    """
    known: dict[tuple[str | None, str], dict[tuple[int, int], Values]] = {}
    blocking = set()
    for entry in everything:
        key = entry.row["producer_id"], entry.row["first_offset"]
        said = {**entry.row, "kind": entry.kind, "blocks": entry.blocks, "standing": entry.standing}
        for place in ((entry.row.get("log_dir"), entry.name), (None, entry.name)):
            known.setdefault(place, {})[key] = said
            if entry.blocks:
                blocking.add(place)

    def place_of(row: Values) -> tuple[str | None, str]:
        return row.get("log_dir"), wording.log_name(row)

    first = heapq.nsmallest(MAX_TIMELINES, timelines, key=lambda row: place_of(row) not in blocking)
    return [_drawn(row, known.get(place_of(row), {})) for row in map(report_shapes.timeline, first)]


def _drawn(row: Values, known: Mapping[tuple[int, int], Values]) -> Drawn:
    part, whole = timeline.focus(row), timeline.draw(row, known)
    return (row, whole, None) if part is None else (row, timeline.draw(row, known, part), whole)


def _tables(logs: Iterable[Values]) -> tuple[FirstRows, FirstRows]:
    """What the tables of chains and of offsets show."""
    chained, counted = FirstRows("chain", "broken", "snapshots"), FirstRows("offsets", "missing")
    for place, row in enumerate(map(report_shapes.log, logs)):
        chained.add(place, row)
        counted.add(place, row)
    return chained, counted
