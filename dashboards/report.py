"""report.html: its content and how it is rendered."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from auditor.base import advice, words
from auditor.base.at_rest import Values
from auditor.base.words import GLOSSARY, NO_TIMEOUT_MS, FirstRows
from auditor.dashboards import answers, finding_groups, page, table_lines, timeline, wording
from auditor.dashboards.answers import BlockedSummary, Open
from auditor.dashboards.finding_groups import Remedy
from auditor.dashboards.wording import STATUSES, short_fingerprint

# The report's first table: all open transactions.


ADVISED, UNSURE = 8, 4  # printed advices for blocked and possibly blocked partitions


@dataclass(slots=True)
class BlockedRow:
    """Partitions blocked by one producer. ``note``: the status, if the class does not say it; ``anchor``: of the
    advice on the page, ``finding``: of the finding about the first partition; empty without one."""

    held: finding_groups.ProducerPartitions
    note: str = ""
    anchor: str = ""
    finding: str = ""

    @property
    def first(self) -> Open:
        """The open transaction of the first partition."""
        return self.held.first

    @property
    def calm(self) -> bool:
        """Whether it is within its timeout, so that nothing has to be done now."""
        return self.first.standing == "waiting" and not self.first.blocks


@dataclass(slots=True)
class BlockedTable:
    """The table. ``rows``: in the order of the page; ``advised``: blocked rows, ``unsure_advised``: possibly blocked
    rows, both with advice on the page; ``unsure``: all possibly blocked rows; ``unadvised``: the number of blocked
    partitions without advice of their own."""

    rows: list[BlockedRow]
    advised: list[BlockedRow]
    unsure: list[BlockedRow]
    unsure_advised: list[BlockedRow]
    unadvised: int

    @property
    def kinds(self) -> set[str]:
        """The kinds of the rows, for the legend, except where a note replaces them."""
        return {row.first.kind for row in self.rows if not _endless(row.first)}


def table(
    decided: answers.RunVerdict, everything: Iterable[Open], remedies: Sequence[Remedy], anchors: Collection[str]
) -> BlockedTable:
    """Return the rows: blocked, possibly blocked, within timeout, suppressed, and other open transactions.

    ``remedies``: those that the page prints, which no advice repeats; ``anchors``: of the findings on the page. Cost:
    linear.
    """
    blocked = [BlockedRow(group, _note(group.first)) for group in finding_groups.holders(decided.held)]
    named = [BlockedRow(group, _note(group.first)) for group in finding_groups.holders(decided.named)]
    accepted = [BlockedRow(group, "suppressed by the baseline") for group in finding_groups.holders(decided.accepted)]
    listed = {_key(row.holder) for row in (*decided.held, *decided.named, *decided.accepted)}
    behind = [
        BlockedRow(finding_groups.ProducerPartitions([BlockedSummary(entry)]), "starts after the blocking transaction")
        for entry in everything
        if _key(entry) not in listed
    ]
    unsure, waiting = ([row for row in named if (row.first.standing == "waiting") is so] for so in (False, True))
    rows = [*blocked, *unsure, *waiting, *accepted, *behind]
    advised = blocked[:ADVISED]
    anchor_of = {one.text: f"do-about-{n}" for n, one in enumerate(remedies, 1)}
    for row in unsure:
        row.anchor = anchor_of.get(advice.text(row.first.advice), "")
    own = [row for row in unsure if not row.anchor][:UNSURE]
    for n, row in enumerate((*advised, *own), 1):
        row.anchor = f"do-{n}"
    for row in rows:
        row.finding = next((a for f in row.first.findings if (a := short_fingerprint(f)) in anchors), "")
        row.anchor = row.anchor or row.finding
    unadvised = sum(len(row.held.rows) for row in blocked[ADVISED:])
    return BlockedTable(rows, advised, unsure, own, unadvised)


def _note(holder: Open) -> str:
    if holder.left_out:
        return "reported only by an excluded rule"
    return holder.status if _endless(holder) or holder.standing == "unknown" else ""


def _endless(holder: Open) -> bool:
    return bool(holder.row.get("timeout_ms") == NO_TIMEOUT_MS)


def _key(entry: Open) -> tuple[object, ...]:
    return (entry.cluster, *(entry.row[name] for name in ("topic", "partition", "producer_id", "first_offset")))


# The page: self-contained, complete without script, and reproducible (no clock, no random order).


MAX_TIMELINES, MAX_OPEN = 40, 300


# A timeline, its picture, and a picture of the whole log if the first shows a part of it.
Drawn = tuple[Values, timeline.Picture, timeline.Picture | None]


def render_report(
    run: answers.RunReport,
    transactions: Sequence[Values],
    timelines: Sequence[Values],
    tables: tuple[FirstRows, FirstRows] | None = None,
) -> str:
    """Return the whole page as text, to be written as UTF-8.

    The run's findings are in the contract's order, with under ``declared`` what their rule declares for
    pages (``blocks``: null, readers or group; ``decided``), and ``fingerprint`` if they are of a run; suppressed ones,
    with an entry of a baseline under ``accepted``, are counted and not listed.
    ``transactions``: the open ones with class, offsets, ``since`` (ISO 8601) and ``age_ms``;
    ``timelines``: one per partition; ``tables``: the first rows of the tables of logs, if they are known, so that the
    logs need not be read. Long input is shortened (limits are here and in :mod:`auditor.dashboards.finding_groups`) and
    the page says by how much. Missing keys count as null (:mod:`auditor.dashboards.answers`). Cost: linear; the page
    stays below 20 MB.
    """
    findings, summary = run.findings, run.full
    opened = answers.with_all_keys(transactions, answers.TRANSACTION)
    everything = answers.open_transactions(opened, findings, summary)
    counts = run.counts
    decided = answers.decide(answers.blocked(everything, findings, summary), findings, counts, summary)
    findings = answers.unaccepted(findings)
    grouped = finding_groups.group(findings, summary.get("counts"))
    anchors = {row.anchor for entry in grouped for row in entry.rows if row.anchor}
    asked = finding_groups.remedies(findings, decided.held)
    chained, counted = tables or _tables(summary["logs"])
    return page.render(
        "report.html.j2",
        summary=summary,
        glossary=GLOSSARY,
        holders=finding_groups.holders(decided.held),
        remedies=asked,
        calm="unsure" if summary["unchecked"] else decided.calm,
        anchors=anchors,
        about={rule: f"do-about-{n}" for n, one in enumerate(asked[: finding_groups.SHOWN], 1) for rule in one.rules},
        open=everything,
        table=table(decided, everything, asked[: finding_groups.SHOWN], anchors),
        counts=counts,
        decided=decided,
        clock=answers.clock(summary),
        chained=chained,
        counted=counted,
        groups=grouped,
        unshown=finding_groups.unshown(grouped),
        undecided=answers.undecided(findings),
        missing=answers.missing(findings),
        pictures=_pictures(timelines, everything),
        more_timelines=max(0, len(timelines) - MAX_TIMELINES),
        stories=page.stories(summary["cluster_events"], findings),
        asides=table_lines.cards(summary["asides"]),
        impact=table_lines.impact_card(summary["impact"]),
        rehearsal=table_lines.rehearsal_card(summary["rehearsal"]),
        classes=answers.KINDS,
        statuses=STATUSES,
        max_open=MAX_OPEN,
        max_table=words.MOST,
    )


def render_timelines(
    run: answers.RunReport,
    transactions: Sequence[Values],
    timelines: Sequence[Values],
) -> str:
    """Return a page with the timelines alone; arguments as for :func:`render_report`."""
    findings, summary = run.findings, run.full
    opened = answers.with_all_keys(transactions, answers.TRANSACTION)
    everything = answers.open_transactions(opened, findings, summary)
    return page.render(
        "timeline_page.html.j2",
        pictures=_pictures(timelines, everything),
        more_timelines=max(0, len(timelines) - MAX_TIMELINES),
    )


def _pictures(timelines: Sequence[Values], everything: Sequence[answers.Open]) -> list[Drawn]:
    # Timelines with a blocking transaction first. Several clusters may have logs of one name, so logs are matched by
    # log directory, too, except in runs of earlier releases.
    open_by_log: dict[tuple[str | None, str], dict[tuple[int, int], Values]] = {}
    blocking = set()
    for entry in everything:
        key = entry.row["producer_id"], entry.row["first_offset"]
        transaction = {**entry.row, "kind": entry.kind, "blocks": entry.blocks, "standing": entry.standing}
        for place in ((entry.row.get("log_dir"), entry.name), (None, entry.name)):
            open_by_log.setdefault(place, {})[key] = transaction
            if entry.blocks:
                blocking.add(place)

    def place_of(row: Values) -> tuple[str | None, str]:
        return row.get("log_dir"), wording.log_name(row)

    first = heapq.nsmallest(MAX_TIMELINES, timelines, key=lambda row: place_of(row) not in blocking)
    return [_drawn(row, open_by_log.get(place_of(row), {})) for row in map(answers.timeline, first)]


def _drawn(row: Values, open_transactions: Mapping[tuple[int, int], Values]) -> Drawn:
    part, whole = timeline.focus(row), timeline.draw_timeline(row, open_transactions)
    return (row, whole, None) if part is None else (row, timeline.draw_timeline(row, open_transactions, part), whole)


def _tables(logs: Iterable[Values]) -> tuple[FirstRows, FirstRows]:
    chained, counted = FirstRows("chain", "broken", "snapshots"), FirstRows("offsets", "missing")
    for place, row in enumerate(map(answers.log, logs)):
        chained.add(place, row)
        counted.add(place, row)
    return chained, counted
