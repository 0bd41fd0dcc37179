"""Alerts about findings, to Slack, PagerDuty and webhooks."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError
from auditor.base.user_input import ClusterName
from auditor.base.words import SEVERITIES, plural
from auditor.dashboards import overview
from auditor.dashboards.answers import Open
from auditor.dashboards.wording import advice_lines, are, outcome_of, short_fingerprint, visible, who
from auditor.outputs import runs
from auditor.outputs.printing import FOUND, fingerprint_in
from auditor.outputs.runs import Shelf
from auditor.pipeline import summary
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry

# The content of alerts, which is in findings.jsonl, too: never a record's key or value.


SHOWN = 10  # findings in a Slack message
MAX_EVENTS = 100  # PagerDuty events per run; one more counts the rest
MAX_TEXT = 1000
MAX_PART = 2900  # Slack's limit of a section is 3000 characters
MAX_HEAD, MAX_SUMMARY = 150, 1024  # limits of Slack's header and PagerDuty's summary
DETAILS = (
    "outcome", "broker_id", "producer_id", "producer_epoch", "transactional_id", "group_id", "message", "remedy",
    "source",
)  # fmt: skip
# Keys of a finding that webhooks get besides these.
OF_FINDING = (
    "fingerprint", "rule", "kind", "severity", "outcome", "cluster_id", "topic", "partition", "offset", "last_offset",
    "timestamp", "advice",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class News:
    """The content of an alert: findings at or above the wanted severity that are new, resolved, or still there.

    Rows have the contract's fields, ``fingerprint`` and ``cluster_id``. Without an earlier run all findings are new.
    ``names``: of clusters by id; ``holders``: open transactions by the fingerprint of their finding; ``pages``: the
    address of the exported dashboard, empty if unknown.
    """

    new: Sequence[Values]
    gone: Sequence[Values]
    still: Sequence[Values]
    as_of: str | None
    names: Mapping[str, ClusterName] = field(default_factory=dict)
    holders: Mapping[str, Open] = field(default_factory=dict)
    pages: str = ""

    def cluster(self, row: Values) -> ClusterName:
        """Return the cluster of a finding; its name is the id if no other is given."""
        id = row.get("cluster_id") or ""
        return self.names.get(id, ClusterName(id))

    def link(self, row: Values) -> str:
        """Return the address of a finding's page, else of its place in the report; empty if neither is known."""
        if self.pages:
            return f"{self.pages.rstrip('/')}/{overview.finding(row['fingerprint'])}"
        report = os.environ.get("AUDITOR_REPORT_URL")
        return f"{report}#{short_fingerprint(row)}" if report else ""

    def owner(self, row: Values) -> str:
        """Return the message for the owner of the producer that a finding names; empty if it names none."""
        return overview.message(row, self.holders.get(row["fingerprint"]), self.cluster(row).name, self.link(row))


def where(row: Values) -> str:
    """Return the log and offset of a finding in words."""
    log = "the cluster" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
    return log if row["offset"] is None else f"{log} at offset {row['offset']}"


def blocked(holder: Open) -> str:
    """Return the blocked partition, its duration, the blocking transaction and the LSO lag as text."""
    since = f", since {holder.began}" if holder.began else ""
    waiting = f"; LSO lag {plural(holder.waiting, 'offset')}" if holder.waiting else ""
    more = holder.row.get("more_partitions")
    further = f"; {plural(more, 'more partition')} {are(more)} blocked by it" if more else ""
    return f"{holder.name} has been blocked for {holder.age}{since}, by {holder.by}{waiting}{further}"


def slack(news: News) -> Fields:
    """Return a Slack message: the numbers, the first findings, the resolved ones, links."""
    of = f" of {', '.join(named.name for named in news.names.values())}" if news.names else ""
    changed = f"{plural(len(news.new), 'new finding')}, {len(news.gone)} resolved, {len(news.still)} unchanged"
    head = clip_to(f"Kafka audit{of}: {changed}", MAX_HEAD)
    blocks: list[Fields] = [{"type": "header", "text": {"type": "plain_text", "text": head}}]
    for row in news.new[:SHOWN]:
        blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in _sections(row, news)]
    if news.gone:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": _gone(news)}})
    more = len(news.new) - SHOWN
    report = os.environ.get("AUDITOR_REPORT_URL")
    words = [f"{more} more"] if more > 0 else []
    words += [f"evaluated at {news.as_of}", *([f"<{news.pages}|dashboard>"] if news.pages else [])]
    words += [f"<{report}|report>"] if report else []
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": " · ".join(words)}]})
    return {"text": _escaped(head), "blocks": blocks}


def _sections(row: Values, news: News) -> list[str]:
    meant = f" {outcome_of(row)}" if outcome_of(row) else ""
    text = f"*{row['severity']}*{meant} {_named(row, news, news.link(row))}\n{_escaped(row['message'])}"
    if holder := news.holders.get(row["fingerprint"]):
        text += f"\n{_escaped(visible(blocked(holder)))}. *{holder.word}*"
    sections = [clip_to(text, MAX_PART)]
    if row["remedy"]:
        sections.append(_remedy(row))
    if message := news.owner(row):
        sections.append(f"Message for the owner:\n```{clip_to(_safe(message), MAX_PART)}```")
    return sections


def _named(row: Values, news: News, url: str) -> str:
    link = f" · <{url}|{'finding' if news.pages else 'report'}>" if url else ""
    of = f" in {_escaped(news.cluster(row).name)}" if news.cluster(row).name else ""
    return f"`{row['rule']}` {_escaped(where(row))}{of}{link}"


def _gone(news: News) -> str:
    # Resolved findings have a page, but are in no report.
    text = "Resolved:"
    for row in news.gone:
        line = f"\n{_named(row, news, news.link(row) if news.pages else '')}"
        if len(text) + len(line) > MAX_PART:
            return f"{text}\n…"
        text += line
    return text


def _remedy(row: Values) -> str:
    # Commands are never cut: what exceeds Slack's limit is left to auditor explain.
    message = ""
    for kind, text in advice_lines(row.get("advice"), row["remedy"]):
        safe = _safe(visible(text))
        gap = " " if message and not message.endswith("\n") else ""
        part = f"\n```{safe}```\n" if kind == "command" else f"{gap}{safe}"
        if len(message) + len(part) > MAX_PART:
            return f"{message} … more: `auditor explain {row['fingerprint']}`"
        message += part
    return message


def _safe(text: str) -> str:
    # Backticks would end a block of code.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")


def _escaped(text: str) -> str:
    # Topics and ids come from the input: they must not make links or mentions.
    return clip_to(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), MAX_TEXT)


def clip_to(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text, with an ellipsis if it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def pagerduty(news: News, key: str) -> list[Fields]:
    """Return PagerDuty's Events v2: one alert per finding, triggered again while it is there, resolved when it is gone.

    Findings beyond :data:`MAX_EVENTS` are counted in the alert of the first of them.
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
    """Return all changes as data for other programs."""
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


# Sending, only if ``--alert`` is given.
#
# Addresses and keys are secrets and never printed. They come from the environment, or from the file that the variable
# of the same name with ``_FILE`` names: ``AUDITOR_SLACK_WEBHOOK`` (the address of an incoming webhook),
# ``AUDITOR_PAGERDUTY_KEY`` (the routing key of an Events v2 integration) and, for other regions and for tests,
# ``AUDITOR_PAGERDUTY_URL``; ``AUDITOR_WEBHOOK`` (an address that gets JSON) and, if it needs one,
# ``AUDITOR_WEBHOOK_TOKEN`` (a bearer token). ``AUDITOR_REPORT_URL`` is the address of the report, ``--dashboard-url``
# that of the exported dashboard.


PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
# By channel: the secret that it needs, and the one with its address.
CHANNELS = {
    "slack": ("AUDITOR_SLACK_WEBHOOK", "AUDITOR_SLACK_WEBHOOK"),
    "pagerduty": ("AUDITOR_PAGERDUTY_KEY", "AUDITOR_PAGERDUTY_URL"),
    "webhook": ("AUDITOR_WEBHOOK", "AUDITOR_WEBHOOK"),
}
MAX_SECRET = 4096  # characters
TIMEOUT_S, ATTEMPTS, PAUSE_S, MAX_PAUSE_S = 10, 3, 2.0, 30.0
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})  # HTTP status codes


class AlertOptions(NamedTuple):
    """The channels, the least severity that is sent to them, and the address of the exported dashboard."""

    channels: Sequence[str] = ()
    least: str = "error"
    pages: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    # A redirected POST becomes a GET, which sends nothing, but has the token of the first address.
    def redirect_request(self, *_: object) -> None:
        """Follow no redirection."""


class WrongAddress(ValueError):
    """An address that cannot be posted to; the text has the reason, without the address."""


def check(asked: AlertOptions) -> None:
    """Check the configuration of every channel before the audit starts.

    Errors: :class:`AuditInputError`, without the address, which is a secret.
    """
    for channel in asked.channels:
        needed, variable = CHANNELS[channel]
        if not secret(needed):
            raise AuditInputError(
                f"--alert {channel}: {needed} is not set; set this variable, or {needed}_FILE to a file name"
            )
        if wrong := wrong_address(address(channel)):
            raise AuditInputError(f"--alert {channel}: {variable} {wrong}; set it to the URL from the service")
        if channel == "webhook":
            secret("AUDITOR_WEBHOOK_TOKEN")
    if asked.pages and (wrong := wrong_address(asked.pages)):
        raise AuditInputError(f"--dashboard-url {wrong}; give the URL of the exported directory")


def secret(name: str) -> str:
    """Return a secret from the environment, or from the file that ``NAME_FILE`` names; empty if neither is set.

    Errors: :class:`AuditInputError` for a file that cannot be read or is no secret, without its content.
    """
    if given := os.environ.get(name):
        return given
    if not (file := os.environ.get(f"{name}_FILE")):
        return ""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(MAX_SECRET + 1).strip()
    except UnicodeDecodeError:
        raise AuditInputError(f"{name}_FILE: the file is not text; it must contain only the secret") from None
    except OSError as error:
        raise AuditInputError(
            f"{name}_FILE: cannot read the file: {error.strerror}; check its name and permissions"
        ) from None
    if not text or len(text) > MAX_SECRET or not text.isprintable():
        raise AuditInputError(f"{name}_FILE: the file is not one line; it must contain only the secret")
    return text


def address(channel: str) -> str:
    """Return the address of a channel."""
    return secret(CHANNELS[channel][1]) or PAGERDUTY_URL


def wrong_address(url: str) -> str:
    """Return why an address cannot be posted to, without the address; empty if it can."""
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "has a space or an invalid character"
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0  # raises ValueError where it is no number of a port
    except ValueError:
        return "is not a URL with a host and a port"
    if parts.scheme not in ("http", "https"):
        return "is not an http or https URL"
    return "" if parts.hostname and has_port else "is not a URL with a host and a port"


def news(audit: Audit, asked: AlertOptions) -> News:
    """Return the changes of an audit, at or above a severity, against the run before if there is a history.

    Findings that a baseline suppresses do not count, nor those that the audit did not look for
    (:mod:`auditor.outputs.runs`). The audit must be in the history.
    """
    options = audit.options
    table = summary.findings(audit).filter(pa.array([entry is None for entry in audit.accepted.accepted], pa.bool_()))
    rows = [summary.unfolded(row) for row in table.to_pylist()]
    if options.history is None or options.run_id is None:
        return _news_of(rows, [], [], audit, asked)
    shelf = Shelf(options.history)

    def changes() -> runs.Changes:
        committed = shelf.runs()
        (run,) = (candidate for candidate in committed if candidate.run_id == options.run_id)
        earlier = runs.earlier(committed, run.run_id, audit.cluster_ids, options.asked)
        return runs.changes_of(shelf, earlier, run)

    change = shelf.without_unreadable(changes)
    new, still = ([row for row in rows if row["fingerprint"] in part] for part in (change.new, change.still))
    gone = [summary.unfolded(row) for row in runs.rows(shelf, change.gone)]
    return _news_of(new, gone, still, audit, asked)


def news_of_watch(lines: Sequence[Values], holding: Mapping[str, Values], audit: Audit, asked: AlertOptions) -> News:
    """Return the changes of a watch round: the lines added to its journal, and all open findings by key.

    The line of a resolved finding has its fingerprint only in the key.
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
    # The first partition of each, as all pages list them.
    rows = [row for row in audit.blocked if row["fingerprint"] in findings]
    count = Counter(row["fingerprint"] for row in rows)
    return {
        (name := row["fingerprint"]): Open(
            row | {"more_partitions": count[name] - 1}, findings=[*registry.described([findings[name]])]
        )
        for row in reversed(rows)
    }


def send(news: News, channels: Sequence[str], *, again: bool = True) -> list[str]:
    """Send the alerts of each channel; return one line per failure. Nothing is sent if nothing changed.

    ``again``: trigger PagerDuty's alerts of findings that are still there, which reopens alerts closed by hand. A
    failing channel does not stop the next one, and no line contains an address.
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
            failed.append(f"alert to {channel} failed: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            failed.append(f"alert to {channel} failed: {why(error)}")
    return failed


def why(error: Exception) -> str:
    """Return why a request failed. Texts of libraries are not used: they may contain the address."""
    if isinstance(error, WrongAddress):
        return str(error)
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "timed out"
    if isinstance(cause, http.client.HTTPException):
        return "invalid HTTP response"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return f"server unreachable ({type(cause).__name__})"


def post(url: str, payload: Values, token: str = "") -> None:
    """Post JSON, with a bearer token unless empty. Retries if the receiver is busy, honouring Retry-After up to
    :data:`MAX_PAUSE_S`.

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
            if error.code not in _RETRIED or attempt == ATTEMPTS:
                raise
        except (OSError, http.client.HTTPException):  # while the answer is read, a broken connection is no URLError
            if attempt == ATTEMPTS:
                raise
        time.sleep(pause)
