"""What alerts say, to each service in its own form: the cluster, what is blocked since when, by whom, what is safe.

Only what findings.jsonl holds is said: never a record's key or value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from auditor.base.at_rest import Fields, Values
from auditor.base.user_input import Named
from auditor.base.words import plural
from auditor.dashboards import addresses, for_owner
from auditor.dashboards.answers import Open
from auditor.dashboards.verdict import aged
from auditor.dashboards.wording import instant, log_name, short_fingerprint, told, visible, who

SHOWN = 10  # findings in a Slack message
MAX_EVENTS = 100  # PagerDuty events of one run; what is beyond is told by one more
MAX_TEXT = 1000
MAX_PART = 2900  # a section of Slack's holds 3000 characters
MAX_HEAD, MAX_SUMMARY = 150, 1024  # of Slack's header, of PagerDuty's summary
DETAILS = (
    "broker_id",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "group_id",
    "message",
    "remedy",
    "source",
)
# What a webhook gets of a finding, beside those.
OF_FINDING = (
    "fingerprint",
    "rule",
    "kind",
    "severity",
    "outcome",
    "cluster_id",
    "topic",
    "partition",
    "offset",
    "last_offset",
    "timestamp",
    "advice",
)


@dataclass(frozen=True, slots=True)
class News:
    """What there is to report: new findings of the wanted severity, and those that are gone.

    Rows have the contract's fields, ``fingerprint`` and ``cluster_id``. Without a run before, all findings are new.
    ``names`` of the clusters, by id; ``holders``: the open transactions that findings are about, by fingerprint;
    ``pages``: the address of the exported dashboard, where the findings' pages are; empty where nobody said.
    """

    new: Sequence[Values]
    gone: Sequence[Values]
    still: Sequence[Values]
    as_of: str | None
    names: Mapping[str, Named] = field(default_factory=dict)
    holders: Mapping[str, Open] = field(default_factory=dict)
    pages: str = ""

    def cluster(self, row: Values) -> Named:
        """The cluster of a finding; its id where nobody gave it a name."""
        id = row.get("cluster_id") or ""
        return self.names.get(id, Named(id))

    def link(self, row: Values) -> str:
        """Where a finding can be read: its page, else its place in the report; empty where nobody said where."""
        if self.pages:
            return f"{self.pages.rstrip('/')}/{addresses.finding(row['fingerprint'])}"
        report = os.environ.get("AUDITOR_REPORT_URL")
        return f"{report}#{short_fingerprint(row)}" if report else ""

    def owner(self, row: Values) -> str:
        """The message for whoever runs the producer that a finding names; empty where none is."""
        return for_owner.message(row, self.holders.get(row["fingerprint"]), self.cluster(row).name, self.link(row))


def where(row: Values) -> str:
    """The log and offset a finding is about, in words."""
    log = "the cluster" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    return log if row["offset"] is None else f"{log} at offset {row['offset']}"


def blocked(holder: Open) -> str:
    """What is blocked, for how long and since when, by whom, and how many offsets wait."""
    since = f", since {instant(holder.row['since'])}" if holder.row.get("since") else ""
    waiting = f"; {plural(holder.waiting, 'offset')} wait" if holder.waiting else ""
    by = who(holder.row) or "an unknown producer"
    return f"{log_name(holder.row)} is blocked for {aged(holder.row)}{since}, by {by}{waiting}"


def slack(news: News) -> Fields:
    """A message of Slack's blocks: how many, the first findings, which are gone, and where the report is."""
    of = f" of {', '.join(named.name for named in news.names.values())}" if news.names else ""
    head = clip_to(
        f"Kafka audit{of}: {len(news.new)} new, {len(news.gone)} gone, {len(news.still)} still there", MAX_HEAD
    )
    blocks: list[Fields] = [{"type": "header", "text": {"type": "plain_text", "text": head}}]
    for row in news.new[:SHOWN]:
        blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in _sections(row, news)]
    if news.gone:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": _gone(news)}})
    more = len(news.new) - SHOWN
    report = os.environ.get("AUDITOR_REPORT_URL")
    words = [f"{more} more"] if more > 0 else []
    words += [f"as of {news.as_of}", *([f"<{news.pages}|dashboard>"] if news.pages else [])]
    words += [f"<{report}|report>"] if report else []
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(words)}]})
    return {"text": _escaped(head), "blocks": blocks}


def _sections(row: Values, news: News) -> list[str]:
    """A finding as Slack's texts: what it is, what to do, what to tell the owner."""
    text = f"*{row['severity']}* {_named(row, news, news.link(row))}\n{_escaped(row['message'])}"
    if holder := news.holders.get(row["fingerprint"]):
        text += f"\n{_escaped(visible(blocked(holder)))}. *{holder.word}*"
    found = [clip_to(text, MAX_PART)]
    if row["remedy"]:
        found.append(_remedy(row))
    if said := news.owner(row):
        found.append(f"For its owner:\n```{clip_to(_safe(said), MAX_PART)}```")
    return found


def _named(row: Values, news: News, at: str) -> str:
    """A finding's rule and place, with a link to an address, if there is one."""
    link = f" · <{at}|{'finding' if news.pages else 'report'}>" if at else ""
    of = f" in {_escaped(news.cluster(row).name)}" if news.cluster(row).name else ""
    return f"`{row['rule']}` {_escaped(where(row))}{of}{link}"


def _gone(news: News) -> str:
    """The findings that are gone, as many as Slack takes. They have a page, but are in no report."""
    said = "Gone:"
    for row in news.gone:
        line = f"\n{_named(row, news, news.link(row) if news.pages else '')}"
        if len(said) + len(line) > MAX_PART:
            return f"{said}\n…"
        said += line
    return said


def _remedy(row: Values) -> str:
    """What to do, each command whole on a line of its own; what is beyond Slack's limit is named, never cut."""
    said = ""
    for kind, text in told(row.get("advice"), row["remedy"]):
        safe = _safe(visible(text))
        gap = " " if said and not said.endswith("\n") else ""
        part = f"\n```{safe}```\n" if kind == "command" else f"{gap}{safe}"
        if len(said) + len(part) > MAX_PART:
            return f"{said} … more by `auditor explain {row['fingerprint']}`"
        said += part
    return said


def _safe(text: str) -> str:
    """Without Slack's three characters, and without what would end a block of code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def _escaped(text: str) -> str:
    """Slack's three characters; topics and ids are others' words and must not make links or mentions."""
    return clip_to(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), MAX_TEXT)


def clip_to(text: str, most: int) -> str:
    """At most so many characters of a text, with the sign of omission where that is not all."""
    return text if len(text) <= most else text[: most - 1] + "…"


def pagerduty(news: News, key: str) -> list[Fields]:
    """Events v2: one alert a finding, the same again while it is there, resolved once it is gone.

    What is beyond :data:`MAX_EVENTS` is told by the alert of the first of these, which ends with that finding; the next
    run has room for others.
    """
    open_now = [*news.new, *news.still]
    events = [_trigger(row, key, news) for row in open_now[: MAX_EVENTS + 1]]
    if (more := len(open_now) - MAX_EVENTS) > 1:
        first = events[-1]["payload"]
        first["summary"] = clip_to(f"{more} more findings, the first: {first['summary']}", MAX_SUMMARY)
    return events + [
        {"routing_key": key, "event_action": "resolve", "dedup_key": row["fingerprint"]} for row in news.gone
    ]


def _trigger(row: Values, key: str, news: News) -> Fields:
    named, holder = news.cluster(row), news.holders.get(row["fingerprint"])
    details = {name: row[name] for name in DETAILS if row[name] is not None}
    details |= {f"cluster_{name}": said for name, said in named.row().items() if said}
    if holder is not None:
        details |= {"blocked": visible(blocked(holder)), "verdict": holder.lead}
    if said := news.owner(row):
        details["for_owner"] = said
    what = f"{blocked(holder)}: {holder.word}" if holder is not None else f"{row['rule']}: {row['message']}"
    payload = {
        "summary": clip_to(visible(f"{f'{named.name}: ' if named.name else ''}{what}"), MAX_SUMMARY),
        "source": f"{named.name or 'cluster without id'}/{where(row)}",
        "severity": row["severity"],  # PagerDuty's four are ours
        "component": where(row),
        "class": row["rule"],
        "custom_details": details,
    } | ({"timestamp": news.as_of} if news.as_of else {})
    event = {"routing_key": key, "event_action": "trigger", "dedup_key": row["fingerprint"], "payload": payload}
    text = "finding" if news.pages else "report"
    return event | ({"links": [{"href": at, "text": text}]} if (at := news.link(row)) else {})


def webhook(news: News) -> Fields:
    """All that changed, as data for a program of one's own: each new finding once, and each that is gone."""
    return {
        "version": 1,
        "as_of": news.as_of,
        "still": len(news.still),
        "new": [_plain(row, news) for row in news.new],
        "gone": [
            {
                "fingerprint": row["fingerprint"],
                "severity": row["severity"],
                "where": where(row),
                "cluster": news.cluster(row).row(),
                "link": news.link(row) or None,
            }
            for row in news.gone
        ],
    }


def _plain(row: Values, news: News) -> Fields:
    holder = news.holders.get(row["fingerprint"])
    return {
        **{name: row.get(name) for name in (*OF_FINDING, *DETAILS)},
        "where": where(row),
        "cluster": news.cluster(row).row(),
        "link": news.link(row) or None,
        "for_owner": news.owner(row) or None,
        "blocked": None
        if holder is None
        else {
            "since": holder.row.get("since"),
            "age_ms": holder.row.get("age_ms"),
            "at_least": holder.row.get("at_least"),
            "by": who(holder.row) or None,
            "waiting": holder.waiting,
            "verdict": holder.advice["verdict"],
            "says": holder.lead,
        },
    }
