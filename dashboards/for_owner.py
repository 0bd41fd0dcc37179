"""The message for whoever runs the producer that a finding names, ready to be pasted: what we saw, what was done."""

from __future__ import annotations

from auditor.base.advice import IF_FLINK, Verdict, lead, may_be_flinks, whole
from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards.answers import Open
from auditor.dashboards.verdict import begun
from auditor.dashboards.wording import Finding, log_name, offsets, visible

BLANK = "____"  # for the time of the abort, which only who did it knows
# A sentence per verdict on its transaction; {cost} is that of the advice.
_DONE = {
    Verdict.ACT: f"It was aborted by us at {BLANK} (UTC): read_committed consumers will never get its records. "
    "{again}.",
    Verdict.DO_NOT_ACT: "It was not aborted by us. {cost}",
    Verdict.DO_NOT_ABORT: "It was not aborted by us: it may hold records that were committed. When will its client end "
    "its open transaction?",
    Verdict.WAIT: "It was not aborted by us: it is within its time-out. Is its client still at work?",
    Verdict.LOOK: "It was not aborted by us so far. Is its client still at work?",
}


def message(finding: Finding, holder: Open | None, cluster: str, link: str = "") -> str:
    """The message on one line, empty where no id is named; ``holder``: the open transaction that the finding is about,
    where it is about one; ``cluster``: as people call it; ``link``: of the finding's page."""
    name, group, producer = (finding.get(key) for key in ("transactional_id", "group_id", "producer_id"))
    if name is None and group is None and (holder is None or producer is None):
        return ""
    owned = f"transactional id {name}" if name is not None else f"group {group}" if group is not None else "client"
    known = "" if producer is None else f" (producer {producer}{_epoch(finding)})"
    at = f" in cluster {cluster}" if cluster else ""
    if holder is None:
        said = f"about your {owned}{known}{at}: {finding['message']}"
    else:
        said = f"your {owned}{known} left {_left(holder.row)}{at}.{_waited(holder)} {_done(holder.advice, name)}"
    said = said[:1].upper() + said[1:]
    return visible(f"{said}{'' if said.endswith(('.', '?')) else '.'}{f' More: {link}' if link else ''}")


def _epoch(row: Values) -> str:
    return "" if row.get("producer_epoch") is None else f", epoch {row['producer_epoch']}"


def _left(row: Values) -> str:
    """What its transaction is, where, and since when."""
    records = "" if row.get("records") is None else f"{plural(row['records'], 'record')} of "
    span = offsets(row.get("first_offset"), row.get("last_offset"))
    since = f" since {begun(row)}" if begun(row) else ""
    return f"{records}an open transaction in {log_name(row)}{f' at offsets {span}' if span else ''}{since}"


def _waited(holder: Open) -> str:
    if not holder.waiting or holder.lso is None:
        return ""
    many = plural(holder.waiting, "offset")
    return f" Behind it read_committed consumers stand at offset {holder.lso}; {many} wait."


def _done(advice: Values, transactional_id: str | None) -> str:
    given = whole(advice) or {"verdict": Verdict.LOOK, "cost": ""}
    return _DONE[Verdict(given["verdict"])].format(
        cost=lead(given).partition(": ")[2],
        again=IF_FLINK if may_be_flinks(transactional_id) else "If they matter, send them again",
    )
