"""Alerts about findings."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.base.user_input import ClusterName
from auditor.base.words import plural
from auditor.dashboards import finding_groups, overview
from auditor.dashboards.answers import Open, aged
from auditor.dashboards.wording import advice_lines, instant, log_name, short_fingerprint, visible, who
from auditor.outputs import runs
from auditor.outputs.printing import FOUND, fingerprint_in
from auditor.outputs.runs import Shelf
from auditor.pipeline import summary
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import SEVERITIES

# What alerts say, to each service in its own form: the cluster, what is blocked since when, by whom, what is safe.
#
# Only what findings.jsonl holds is said: never a record's key or value.


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
    names: Mapping[str, ClusterName] = field(default_factory=dict)
    holders: Mapping[str, Open] = field(default_factory=dict)
    pages: str = ""

    def cluster(self, row: Values) -> ClusterName:
        """The cluster of a finding; its id where nobody gave it a name."""
        id = row.get("cluster_id") or ""
        return self.names.get(id, ClusterName(id))

    def link(self, row: Values) -> str:
        """Where a finding can be read: its page, else its place in the report; empty where nobody said where."""
        if self.pages:
            return f"{self.pages.rstrip('/')}/{overview.finding(row['fingerprint'])}"
        report = os.environ.get("AUDITOR_REPORT_URL")
        return f"{report}#{short_fingerprint(row)}" if report else ""

    def owner(self, row: Values) -> str:
        """The message for whoever runs the producer that a finding names; empty where none is."""
        return finding_groups.message(row, self.holders.get(row["fingerprint"]), self.cluster(row).name, self.link(row))


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
    sections = [clip_to(text, MAX_PART)]
    if row["remedy"]:
        sections.append(_remedy(row))
    if message := news.owner(row):
        sections.append(f"For its owner:\n```{clip_to(_safe(message), MAX_PART)}```")
    return sections


def _named(row: Values, news: News, url: str) -> str:
    """A finding's rule and place, with a link to an address, if there is one."""
    link = f" · <{url}|{'finding' if news.pages else 'report'}>" if url else ""
    of = f" in {_escaped(news.cluster(row).name)}" if news.cluster(row).name else ""
    return f"`{row['rule']}` {_escaped(where(row))}{of}{link}"


def _gone(news: News) -> str:
    """The findings that are gone, as many as Slack takes. They have a page, but are in no report."""
    text = "Gone:"
    for row in news.gone:
        line = f"\n{_named(row, news, news.link(row) if news.pages else '')}"
        if len(text) + len(line) > MAX_PART:
            return f"{text}\n…"
        text += line
    return text


def _remedy(row: Values) -> str:
    """What to do, each command whole on a line of its own; what is beyond Slack's limit is named, never cut."""
    message = ""
    for kind, text in advice_lines(row.get("advice"), row["remedy"]):
        safe = _safe(visible(text))
        gap = " " if message and not message.endswith("\n") else ""
        part = f"\n```{safe}```\n" if kind == "command" else f"{gap}{safe}"
        if len(message) + len(part) > MAX_PART:
            return f"{message} … more by `auditor explain {row['fingerprint']}`"
        message += part
    return message


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
    details |= {f"cluster_{name}": value for name, value in named.row().items() if value}
    if holder is not None:
        details |= {"blocked": visible(blocked(holder)), "verdict": holder.lead}
    if value := news.owner(row):
        details["for_owner"] = value
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
    return event | ({"links": [{"href": url, "text": text}]} if (url := news.link(row)) else {})


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


# Alerts about findings: one sender of webhooks, to Slack, PagerDuty or a program of one's own. Nothing is sent unless
# ``--alert`` asks.
#
# Addresses and keys are secrets. They come from the environment, or from a file that the variable of the same name with
# ``_FILE`` behind it names: ``AUDITOR_SLACK_WEBHOOK`` (the address of an incoming webhook), ``AUDITOR_PAGERDUTY_KEY``
# (the routing key of an Events v2 integration) and, for other regions and for tests, ``AUDITOR_PAGERDUTY_URL``;
# ``AUDITOR_WEBHOOK`` (an address that gets JSON) and, where it asks for one, ``AUDITOR_WEBHOOK_TOKEN`` (a bearer
# token).
# None of them is in any line of ours. ``AUDITOR_REPORT_URL`` is where people find the report, ``--dashboard-url`` where
# the exported dashboard is, with a page a finding.


PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
# The channels: the secret that each needs, and the one that has its address.
CHANNELS = {
    "slack": ("AUDITOR_SLACK_WEBHOOK", "AUDITOR_SLACK_WEBHOOK"),
    "pagerduty": ("AUDITOR_PAGERDUTY_KEY", "AUDITOR_PAGERDUTY_URL"),
    "webhook": ("AUDITOR_WEBHOOK", "AUDITOR_WEBHOOK"),
}
MAX_SECRET = 4096  # characters
TIMEOUT_S, ATTEMPTS, PAUSE_S, MAX_PAUSE_S = 10, 3, 2.0, 30.0
_PAUSED = frozenset({408, 429, 500, 502, 503, 504})  # answers after which a second attempt may do


class AlertOptions(NamedTuple):
    """What a call asks for: the channels, the severity from which on they hear, and where the exported dashboard is."""

    channels: Sequence[str] = ()
    least: str = "error"
    pages: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves a redirection as the failure that it is: what follows it is a GET, which posts nothing, and has the token
    of the first address."""

    def redirect_request(self, *_: object) -> None:
        """No other request."""


class WrongAddress(ValueError):
    """An address that nothing can be posted to; its text says why, without the address."""


def check(asked: AlertOptions) -> None:
    """Looks at every channel's configuration before the work, not after.

    Errors: :class:`AuditInputError`. Addresses are secrets: what is wrong with one is said, never the address.
    """
    for channel in asked.channels:
        needed, variable = CHANNELS[channel]
        if not secret(needed):
            raise AuditInputError(
                f"--alert {channel} needs the environment variable {needed}, or {needed}_FILE with the name of a file; "
                "set it"
            )
        if wrong := wrong_address(address(channel)):
            raise AuditInputError(f"--alert {channel}: {variable} {wrong}; set it to the address that the service gave")
        if channel == "webhook":
            secret("AUDITOR_WEBHOOK_TOKEN")
    if asked.pages and (wrong := wrong_address(asked.pages)):
        raise AuditInputError(f"--dashboard-url {wrong}; give the address of the folder that was exported to")


def secret(name: str) -> str:
    """A secret of the environment, or of the file that ``NAME_FILE`` names; empty where there is none.

    Errors: :class:`AuditInputError` for a file that cannot be read or is no secret, in words without its content.
    """
    if given := os.environ.get(name):
        return given
    if not (file := os.environ.get(f"{name}_FILE")):
        return ""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(MAX_SECRET + 1).strip()
    except UnicodeDecodeError:
        raise AuditInputError(f"the file that {name}_FILE names is no text; write the secret alone into it") from None
    except OSError as error:
        raise AuditInputError(f"the file that {name}_FILE names cannot be read: {error.strerror}; check it") from None
    if not text or len(text) > MAX_SECRET or not text.isprintable():
        raise AuditInputError(f"the file that {name}_FILE names is not one line; write the secret alone into it")
    return text


def address(channel: str) -> str:
    """Where a channel's events go."""
    return secret(CHANNELS[channel][1]) or PAGERDUTY_URL


def wrong_address(url: str) -> str:
    """What keeps an address from being posted to, in words without the address; empty where nothing does."""
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "has a space or a character that no URL has"
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0  # raises ValueError where it is no number of a port
    except ValueError:
        return "is no URL with a host and a port"
    if parts.scheme not in ("http", "https"):
        return "is no http or https URL"
    return "" if parts.hostname and has_port else "is no URL with a host and a port"


def news(audit: Audit, asked: AlertOptions) -> News:
    """What an audit found at or above a severity, against the run before where a history is kept.

    What a baseline accepts counts in neither. Of what the audit did not look for nothing is said
    (:mod:`auditor.outputs.runs`). It must have been kept.
    """
    options = audit.options
    table = summary.findings(audit).filter(pa.array([entry is None for entry in audit.accepted.accepted], pa.bool_()))
    rows = [summary.unfolded(row) for row in table.to_pylist()]
    if options.history is None or options.run_id is None:
        return _news_of(rows, [], [], audit, asked)
    shelf = Shelf(options.history)
    committed = shelf.runs()
    (run,) = (candidate for candidate in committed if candidate.run_id == options.run_id)
    change = runs.changes_of(shelf, runs.earlier(committed, run.run_id, audit.cluster_ids, options.asked), run)
    new, still = ([row for row in rows if row["fingerprint"] in part] for part in (change.new, change.still))
    gone = [summary.unfolded(row) for row in runs.rows(shelf, change.gone)]
    return _news_of(new, gone, still, audit, asked)


def news_of_watch(lines: Sequence[Values], holding: Mapping[str, Values], audit: Audit, asked: AlertOptions) -> News:
    """The same from what one look of a watch added to its journal, and all that hold then by their keys.

    A line that ends a finding has no fingerprint but in its key.
    """
    new = [line for line in lines if line["event"] == FOUND]
    gone = [{**line, "fingerprint": fingerprint_in(line["key"])} for line in lines if line["event"] != FOUND]
    reported = {line["key"] for line in new}
    # The same at another severity is reported as new; it is not gone.
    fingerprints = {row["fingerprint"] for row in holding.values()}
    still = [row for key, row in holding.items() if key not in reported]
    return _news_of(new, [row for row in gone if row["fingerprint"] not in fingerprints], still, audit, asked)


def _news_of(
    new: Sequence[Values], gone: Sequence[Values], still: Sequence[Values], audit: Audit, asked: AlertOptions
) -> News:
    wanted = SEVERITIES[: SEVERITIES.index(asked.least) + 1]
    shown = [[row for row in rows if row["severity"] in wanted] for rows in (new, gone, still)]
    return News(
        shown[0],
        shown[1],
        shown[2],
        audit.as_of_text,
        summary.cluster_names(audit),
        _holders(audit, {row["fingerprint"]: row for rows in (shown[0], shown[2]) for row in rows}),
        asked.pages,
    )


def _holders(audit: Audit, findings: Mapping[str, Values]) -> dict[str, Open]:
    """The open transactions that some of these findings are about, by fingerprint."""
    holders = ((row["fingerprint"], row) for row in audit.blocked if row["fingerprint"] in findings)
    return {name: Open(row, findings=[*registry.described([findings[name]])]) for name, row in holders}


def send(news: News, channels: Sequence[str], *, again: bool = True) -> list[str]:
    """Alerts each channel; returns a line for each that failed. Nothing is sent when nothing changed.

    ``again``: PagerDuty hears once more of what is still there, so that an alert somebody closed opens again. Whatever
    one address or server does, the next channel is tried, and no line has an address in it.
    """
    failed = []
    for channel in channels:
        try:
            if channel == "pagerduty":
                heard, key = news if again else replace(news, still=()), secret("AUDITOR_PAGERDUTY_KEY")
                for event in pagerduty(heard, key):
                    post(address(channel), event)
            elif news.new or news.gone:
                payload = slack(news) if channel == "slack" else webhook(news)
                post(address(channel), payload, secret("AUDITOR_WEBHOOK_TOKEN") if channel == "webhook" else "")
        except AuditInputError as error:  # of a file with a secret, which was there before the work
            failed.append(f"{channel} got no alert: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            failed.append(f"{channel} got no alert: {why(error)}")
    return failed


def why(error: Exception) -> str:
    """A failed request in words that come from here: texts of the libraries may have the address in them."""
    if isinstance(error, WrongAddress):
        return str(error)
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, http.client.HTTPException):
        return "its answer is not HTTP"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return f"its server could not be reached ({type(cause).__name__})"


def post(url: str, payload: Values, token: str = "") -> None:
    """Posts JSON, with a bearer token where there is one; waits and tries again when the other side is busy, for as
    long as it asks for, :data:`MAX_PAUSE_S` at most.

    Errors: OSError, :class:`WrongAddress`, ``http.client.HTTPException`` for an answer that is not HTTP.
    """
    if wrong := wrong_address(url):
        raise WrongAddress(f"its address {wrong}")
    body = json.dumps(payload).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, body, headers, method="POST")
    for attempt in range(1, ATTEMPTS + 1):
        pause = PAUSE_S * attempt
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            error.close()
            asked = error.headers.get("Retry-After", "")
            pause = max(pause, min(MAX_PAUSE_S, float(asked) if asked.isascii() and asked.isdigit() else 0.0))
            if error.code not in _PAUSED or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException):  # while the answer is read, a broken connection is no URLError
            if attempt == ATTEMPTS:
                raise
        time.sleep(pause)
