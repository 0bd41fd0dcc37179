"""Alerts about findings: one sender of webhooks, to Slack or PagerDuty. Nothing is sent unless ``--alert`` asks.

Addresses and keys are secrets and come from the environment: ``AUDITOR_SLACK_WEBHOOK`` (the address of an incoming
webhook), ``AUDITOR_PAGERDUTY_KEY`` (the routing key of an Events v2 integration) and, for other regions and for tests,
``AUDITOR_PAGERDUTY_URL``. ``AUDITOR_REPORT_URL`` is where people find the report. Only what findings.jsonl holds is
sent: never a record's key or value.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from auditor.base.cluster_names import Named
from auditor.base.errors import AuditInputError
from auditor.dashboards.wording import short_fingerprint, told, visible
from auditor.outputs import runs
from auditor.outputs.journal import FOUND, fingerprint_in
from auditor.pipeline import results
from auditor.pipeline.whole_audit import Audit
from auditor.rules.seen.finding import SEVERITIES, iso

Row = Mapping[str, Any]
CHANNELS = ("slack", "pagerduty")
PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
SHOWN = 10  # findings in a Slack message
MAX_EVENTS = 100  # PagerDuty events of one run; what is beyond is reported in one more
MAX_TEXT = 1000
MAX_REMEDY = 2900  # a section of Slack's holds 3000 characters
TIMEOUT_S, ATTEMPTS, PAUSE_S = 10, 3, 2.0
DETAILS = (
    "broker_id", "producer_id", "producer_epoch", "transactional_id", "group_id", "message", "remedy", "source",
)  # fmt: skip
_PAUSED = frozenset({408, 429, 500, 502, 503, 504})  # answers after which a second attempt may do


@dataclass(frozen=True, slots=True)
class News:
    """What there is to report: new findings of the wanted severity, and those that are gone.

    Rows have the contract's fields, ``fingerprint`` and ``cluster_id``. Without a run before, all findings are new.
    """

    new: Sequence[Row]
    gone: Sequence[Row]
    still: Sequence[Row]
    as_of: str | None
    names: Mapping[str, Named] = field(default_factory=dict)  # of the clusters, by id


class WrongAddress(ValueError):
    """An address that nothing can be posted to; its text says why, without the address."""


def check(channels: Sequence[str]) -> None:
    """Looks at every channel's configuration before the work, not after. Errors: :class:`AuditInputError`.

    Addresses are secrets: what is wrong with one is said, never the address.
    """
    for name, variable in (("slack", "AUDITOR_SLACK_WEBHOOK"), ("pagerduty", "AUDITOR_PAGERDUTY_KEY")):
        if name in channels and not os.environ.get(variable):
            raise AuditInputError(f"--alert {name} needs the environment variable {variable}; set it")
    for channel in channels:
        if wrong := wrong_address(address(channel)):
            variable = "AUDITOR_SLACK_WEBHOOK" if channel == "slack" else "AUDITOR_PAGERDUTY_URL"
            raise AuditInputError(f"--alert {channel}: {variable} {wrong}; set it to the address that the service gave")


def address(channel: str) -> str:
    """Where a channel's events go."""
    if channel == "slack":
        return os.environ["AUDITOR_SLACK_WEBHOOK"]
    return os.environ.get("AUDITOR_PAGERDUTY_URL", PAGERDUTY_URL)


def wrong_address(url: str) -> str:
    """What keeps an address from being posted to, in words without the address; empty where nothing does."""
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "has a space or a character that no URL has"
    try:
        parts = urlsplit(url)
        known = parts.port is None or parts.port > 0  # raises ValueError where it is no number of a port
    except ValueError:
        return "is no URL with a host and a port"
    if parts.scheme not in ("http", "https"):
        return "is no http or https URL"
    return "" if parts.hostname and known else "is no URL with a host and a port"


def news(audit: Audit, least: str) -> News:
    """What an audit found at or above a severity, against the run before where a history is kept.

    What a baseline accepts counts in neither: it is gone when it is accepted, and new when it comes back.
    """
    options = audit.options
    found = results.findings(audit).filter(pa.array([entry is None for entry in audit.accepted.accepted], pa.bool_()))
    before = None
    if options.history is not None and options.run_id is not None:
        before = runs.before(options.history, options.run_id, results.cluster_ids(audit))
    old = runs.open_findings(options.history, before) if before and options.history else found.slice(0, 0)
    change = runs.diff(old, found)
    new, gone, still = ([results.unfolded(row) for row in part] for part in (change.new, change.gone, change.still))
    return _news_of(new, gone, still, audit, least)


def news_of_watch(lines: Sequence[Row], holding: Mapping[str, Row], audit: Audit, least: str) -> News:
    """The same from what one look of a watch added to its journal, and all that hold then by their keys.

    A line that ends a finding has no fingerprint but in its key.
    """
    new = [line for line in lines if line["event"] == FOUND]
    gone = [{**line, "fingerprint": fingerprint_in(line["key"])} for line in lines if line["event"] != FOUND]
    known = {line["key"] for line in new}
    # The same at another severity is reported as new; it is not gone.
    there = {row["fingerprint"] for row in holding.values()}
    still = [row for key, row in holding.items() if key not in known]
    return _news_of(new, [row for row in gone if row["fingerprint"] not in there], still, audit, least)


def _news_of(new: Sequence[Row], gone: Sequence[Row], still: Sequence[Row], audit: Audit, least: str) -> News:
    wanted = SEVERITIES[: SEVERITIES.index(least) + 1]
    shown = [[row for row in rows if row["severity"] in wanted] for rows in (new, gone, still)]
    clocks = [cluster.as_of for cluster in audit.clusters.values()]
    return News(shown[0], shown[1], shown[2], iso(max(clocks, default=-1)), results.cluster_names(audit))


def send(news: News, channels: Sequence[str], *, again: bool = True) -> list[str]:
    """Alerts each channel; returns a line for each that failed. Nothing is sent when nothing changed.

    ``again``: PagerDuty hears once more of what is still there, so that an alert somebody closed opens again. Whatever
    one address or server does, the next channel is tried, and no line has an address in it.
    """
    failed = []
    for channel in channels:
        try:
            if channel == "slack" and (news.new or news.gone):
                post(address(channel), slack(news))
            if channel == "pagerduty":
                heard = news if again else replace(news, still=())
                for event in pagerduty(heard, os.environ["AUDITOR_PAGERDUTY_KEY"]):
                    post(address(channel), event)
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


def post(url: str, payload: Row) -> None:
    """Posts JSON; waits and tries again when the other side is busy.

    Errors: OSError, :class:`WrongAddress`, ``http.client.HTTPException`` for an answer that is not HTTP.
    """
    if wrong := wrong_address(url):
        raise WrongAddress(f"its address {wrong}")
    body = json.dumps(payload).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _PAUSED or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException):  # while the answer is read, a broken connection is no URLError
            if attempt == ATTEMPTS:
                raise
        time.sleep(PAUSE_S * attempt)


def where(row: Row) -> str:
    """The log and offset a finding is about, in words."""
    log = "the cluster" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    return log if row["offset"] is None else f"{log} at offset {row['offset']}"


def slack(news: News) -> dict[str, Any]:
    """A message of Slack's blocks: how many, the first findings, and where the report is."""
    of = f" of {', '.join(named.name for named in news.names.values())}" if news.names else ""
    head = f"Kafka audit{of}: {len(news.new)} new, {len(news.gone)} gone, {len(news.still)} still there"
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": head}}]
    for row in news.new[:SHOWN]:
        link = f" · <{at}|report>" if (at := _in_report(row)) else ""
        text = f"*{row['severity']}* `{row['rule']}` {_escaped(where(row))}{link}\n{_escaped(row['message'])}"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
        if row["remedy"]:
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": _remedy(row)}})
    more = len(news.new) - SHOWN
    report = os.environ.get("AUDITOR_REPORT_URL")
    words = [f"{more} more"] if more > 0 else []
    words += [f"as of {news.as_of}", *([f"<{report}|report>"] if report else [])]
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(words)}]})
    return {"text": head, "blocks": blocks}


def _remedy(row: Row) -> str:
    """What to do, each command whole on a line of its own; what is beyond Slack's limit is named, never cut."""
    said = ""
    for kind, text in told(row.get("advice"), row["remedy"]):
        safe = _safe(visible(text))
        gap = " " if said and not said.endswith("\n") else ""
        part = f"\n```{safe}```\n" if kind == "command" else f"{gap}{safe}"
        if len(said) + len(part) > MAX_REMEDY:
            return f"{said} … more by `auditor explain {row['fingerprint']}`"
        said += part
    return said


def _safe(text: str) -> str:
    """Without Slack's three characters, and without what would end a block of code."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def _escaped(text: str) -> str:
    """Slack's three characters; topics and ids are others' words and must not make links or mentions."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe if len(safe) <= MAX_TEXT else safe[:MAX_TEXT] + "…"


def pagerduty(news: News, key: str) -> list[dict[str, Any]]:
    """Events v2: one alert a finding, the same again while it is there, resolved once it is gone."""
    open_now = [*news.new, *news.still]
    events = [_trigger(row, key, news) for row in open_now[:MAX_EVENTS]]
    if len(open_now) > MAX_EVENTS:
        payload = {"summary": f"Kafka audit: {len(open_now) - MAX_EVENTS} more findings", "severity": "warning"}
        more = {"payload": payload | {"source": "kafka-log-auditor"}, "dedup_key": "kafka-log-auditor-more"}
        events.append({"routing_key": key, "event_action": "trigger", **more})
    return events + [
        {"routing_key": key, "event_action": "resolve", "dedup_key": row["fingerprint"]} for row in news.gone
    ]


def _trigger(row: Row, key: str, news: News) -> dict[str, Any]:
    as_of, named = news.as_of, news.names.get(row["cluster_id"] or "", Named(row["cluster_id"] or ""))
    details = {name: row[name] for name in DETAILS if row[name] is not None}
    details |= {f"cluster_{name}": said for name, said in named.row().items() if said and name != "name"}
    payload = {
        "summary": f"{row['rule']}: {row['message']}"[:1024],
        "source": f"{named.name or 'cluster without id'}/{where(row)}",
        "severity": row["severity"],  # PagerDuty's four are ours
        "component": where(row),
        "class": row["rule"],
        "custom_details": details,
    } | ({"timestamp": as_of} if as_of else {})
    event = {"routing_key": key, "event_action": "trigger", "dedup_key": row["fingerprint"], "payload": payload}
    return event | ({"links": [{"href": at, "text": "report"}]} if (at := _in_report(row)) else {})


def _in_report(row: Row) -> str:
    """Where a finding stands in the report; empty where nobody said where that is."""
    report = os.environ.get("AUDITOR_REPORT_URL")
    return f"{report}#{short_fingerprint(row)}" if report else ""
