"""The shapes that the report is made from, with every key there: what the maker left out is null.

The report must open on the worst day, so a key that a run could not fill is never a reason to fail. The templates, in
turn, are strict: a name that is not listed here is a mistake of ours and raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from auditor.base.at_rest import Fields, Values

FINDING = (
    "rule", "kind", "fingerprint", "if_true", "severity", "outcome", "broker_id", "topic", "partition", "offset",
    "last_offset", "producer_id", "producer_epoch", "transactional_id", "group_id", "timestamp", "file", "position",
    "message", "evidence", "remedy", "advice", "source",
)  # fmt: skip
TRANSACTION = (
    "log_dir", "broker_id", "topic", "partition", "producer_id", "producer_epoch", "transactional_id", "class",
    "first_offset", "last_offset", "since", "since_by_producer", "since_not_before", "since_not_after", "age_ms",
    "state", "batches", "records", "bytes", "standing", "at_least", "advice", "readers",
)  # fmt: skip
TIMELINE = ("log_dir", "topic", "partition", "broker_id", "log_start", "log_end", "lso", "truncated")
BAR = (
    "producer_id",
    "producer_epoch",
    "first_offset",
    "last_offset",
    "marker_offset",
    "outcome",
    "start",
    "end",
    "class",
)
LOG = ("log_dir", "topic", "partition", "broker_id", "log_start", "log_end", "hw", "lso", "offsets", "chain")
_LISTS = {
    "policy": ("log_dir", "policy", "why"),
    "clusters": ("cluster_id", "name", "owner", "link", "labels"),
    "inputs": ("log_dir", "cluster_id", "broker_id", "files", "bytes"),
    "skipped": ("reason", "files", "bytes", "example"),
    "unreadable": ("log_dir", "file", "position", "length", "reason", "detail"),
    "blocked": (
        "log_dir",
        "broker_id",
        "topic",
        "partition",
        "last_stable_offset",
        "high_watermark",
        "log_end",
        "readable_end",
        "producer_id",
        "producer_epoch",
        "transactional_id",
        "first_offset",
        "last_offset",
        "since",
        "since_by_producer",
        "since_not_before",
        "since_not_after",
        "age_ms",
        "at_least",
        "timeout_ms",
        "beyond_timeout",
        "class",
        "state",
        "why",
        "standing",
        "severity",
        "if_true",
        "rule",
        "fingerprint",
        "accepted",
        "left_out",
        "others",
        "batches",
        "records",
        "bytes",
        "advice",
        "remedy",
        "readers",
    ),
    "recovery": ("log_dir", "starts", "truncates", "poison", "says"),
    "cluster_events": ("topic", "partition", "events", "left_out"),
    "asides": (
        "about",
        "topic",
        "partition",
        "broker_id",
        "bytes",
        "says",
        "group_id",
        "committed_records",
        "committed_most",
        "waiting_records",
        "open_records",
        "offsets",
        "undecided",
    ),
}
_OFFSETS = ("data", "marker", "aborted", "compacted", "remote", "missing", "total")


def whole(rows: Iterable[Values], keys: Iterable[str]) -> list[Fields]:
    """Each row with at least ``keys``, null where it had none."""
    empty = dict.fromkeys(keys)
    return [{**empty, **row} for row in rows]


def summary(given: Values) -> Fields:
    """A run's summary with every key that the report shows; what is not there is null, or empty for lists.

    Of the logs, of which there may be a million, the rows stay where they are: :func:`log` makes one whole.
    """
    full: Fields = dict.fromkeys(
        (
            "as_of",
            "as_of_given",
            "newest",
            "baseline",
            "batches",
            "records",
            "empty_input",
            "capacity",
            "expectations",
            "ran",
            "scope",
            "prevention",
        )
    )
    full |= given
    full["counts"] = dict(given.get("counts") or {})
    for key, keys in _LISTS.items():
        full[key] = whole(given.get(key) or (), keys)
    full["logs"] = given.get("logs") or ()
    full["blocked"] = full["blocked"] if "blocked" in given else None  # a run of the past does not say
    if full["expectations"]:
        full["expectations"] = _expectations(full["expectations"])
    full["tool"] = {"name": "auditor", "version": "", **(given.get("tool") or {})}
    full["bytes"] = {"total": 0, "decoded": 0, "skipped": 0, "unreadable": 0, **(given.get("bytes") or {})}
    full["notes"], full["timings"] = list(given.get("notes") or ()), dict(given.get("timings") or {})
    return full


def log(given: Values) -> Fields:
    """A row of the summary's logs with every key that the report shows."""
    row = {**dict.fromkeys(LOG), **given}
    if row["offsets"]:
        row["offsets"] = {**dict.fromkeys(_OFFSETS, 0), **row["offsets"]}
    if row["chain"]:
        row["chain"] = {"snapshots": None, "proved": None, "fraction": None, "broken": [], **row["chain"]}
    return row


def _expectations(given: Values) -> Fields:
    """Of a run of the past, too, whose failed ones were sentences."""
    failing = [row if isinstance(row, Mapping) else {"says": row} for row in given.get("failing") or ()]
    keys = {"severity": "error", **dict.fromkeys(("suite", "says", "rows", "broken", "where", "error"))}
    return {"evaluated": 0, "failed": 0, "passing": [], **given, "failing": [{**keys, **row} for row in failing]}


def timeline(given: Values) -> Fields:
    """A timeline with whole rows of transactions."""
    row = {**dict.fromkeys(TIMELINE), **given}
    row["transactions"] = whole(row.get("transactions") or (), BAR)
    return row
