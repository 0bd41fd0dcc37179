"""Alerts about findings: one sender of webhooks, to Slack, PagerDuty or a program of one's own. Nothing is sent unless
``--alert`` asks.

Addresses and keys are secrets. They come from the environment, or from a file that the variable of the same name with
``_FILE`` behind it names: ``AUDITOR_SLACK_WEBHOOK`` (the address of an incoming webhook), ``AUDITOR_PAGERDUTY_KEY``
(the routing key of an Events v2 integration) and, for other regions and for tests, ``AUDITOR_PAGERDUTY_URL``;
``AUDITOR_WEBHOOK`` (an address that gets JSON) and, where it asks for one, ``AUDITOR_WEBHOOK_TOKEN`` (a bearer token).
None of them is in any line of ours. ``AUDITOR_REPORT_URL`` is where people find the report, ``--dashboard-url`` where
the exported dashboard is, with a page a finding.
"""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.dashboards.answers import Open
from auditor.outputs import alert_messages as messages
from auditor.outputs import changes, runs
from auditor.outputs.alert_messages import News
from auditor.outputs.journal import FOUND, fingerprint_in
from auditor.outputs.shelf import Shelf
from auditor.pipeline import summary
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import SEVERITIES

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


class Asked(NamedTuple):
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


def check(asked: Asked) -> None:
    """Looks at every channel's configuration before the work, not after.

    Errors: :class:`AuditInputError`. Addresses are secrets: what is wrong with one is said, never the address.
    """
    for channel in asked.channels:
        needed, at = CHANNELS[channel]
        if not secret(needed):
            raise AuditInputError(
                f"--alert {channel} needs the environment variable {needed}, or {needed}_FILE with the name of a file; "
                "set it"
            )
        if wrong := wrong_address(address(channel)):
            raise AuditInputError(f"--alert {channel}: {at} {wrong}; set it to the address that the service gave")
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
        known = parts.port is None or parts.port > 0  # raises ValueError where it is no number of a port
    except ValueError:
        return "is no URL with a host and a port"
    if parts.scheme not in ("http", "https"):
        return "is no http or https URL"
    return "" if parts.hostname and known else "is no URL with a host and a port"


def news(audit: Audit, asked: Asked) -> News:
    """What an audit found at or above a severity, against the run before where a history is kept.

    What a baseline accepts counts in neither. Of what the audit did not look for nothing is said
    (:mod:`auditor.outputs.changes`). It must have been kept.
    """
    options = audit.options
    found = summary.findings(audit).filter(pa.array([entry is None for entry in audit.accepted.accepted], pa.bool_()))
    rows = [summary.unfolded(row) for row in found.to_pylist()]
    if options.history is None or options.run_id is None:
        return _news_of(rows, [], [], audit, asked)
    shelf = Shelf(options.history)
    known = shelf.runs()
    (run,) = (each for each in known if each.run_id == options.run_id)
    change = changes.of(shelf, runs.earlier(known, run.run_id, audit.cluster_ids, options.asked), run)
    new, still = ([row for row in rows if row["fingerprint"] in part] for part in (change.new, change.still))
    gone = [summary.unfolded(row) for row in changes.rows(shelf, change.gone)]
    return _news_of(new, gone, still, audit, asked)


def news_of_watch(lines: Sequence[Values], holding: Mapping[str, Values], audit: Audit, asked: Asked) -> News:
    """The same from what one look of a watch added to its journal, and all that hold then by their keys.

    A line that ends a finding has no fingerprint but in its key.
    """
    new = [line for line in lines if line["event"] == FOUND]
    gone = [{**line, "fingerprint": fingerprint_in(line["key"])} for line in lines if line["event"] != FOUND]
    known = {line["key"] for line in new}
    # The same at another severity is reported as new; it is not gone.
    there = {row["fingerprint"] for row in holding.values()}
    still = [row for key, row in holding.items() if key not in known]
    return _news_of(new, [row for row in gone if row["fingerprint"] not in there], still, audit, asked)


def _news_of(
    new: Sequence[Values], gone: Sequence[Values], still: Sequence[Values], audit: Audit, asked: Asked
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


def _holders(audit: Audit, found: Mapping[str, Values]) -> dict[str, Open]:
    """The open transactions that some of these findings are about, by fingerprint."""
    held = ((row["fingerprint"], row) for row in audit.blocked if row["fingerprint"] in found)
    return {name: Open(row, findings=[*registry.described([found[name]])]) for name, row in held}


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
                for event in messages.pagerduty(heard, key):
                    post(address(channel), event)
            elif news.new or news.gone:
                told = messages.slack(news) if channel == "slack" else messages.webhook(news)
                post(address(channel), told, secret("AUDITOR_WEBHOOK_TOKEN") if channel == "webhook" else "")
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
