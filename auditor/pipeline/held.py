"""Partitions that are held, as a run sees them: whether a baseline accepts them, a rule that was left out would report
them, and they make it fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from auditor.base.at_rest import Fields, Values
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import HOUR_MS, TRANSACTION_STATE
from auditor.rules.seen.view import GRAVE, Finding
from auditor.rules.transactions.blocking import LATE_MS
from auditor.rules.transactions.open_transactions import DEFAULT_TIMEOUT_MS


class About(NamedTuple):
    """A finding about a transaction that readers wait for, and whether a baseline accepts it."""

    finding: Finding
    accepted: bool


def by_producer(findings: Sequence[Finding], accepted: Sequence[object | None]) -> dict[int | None, list[About]]:
    """The findings of blocking rules by producer id; ``accepted``: beside each finding what accepts it."""
    catalogue, found = registry.kinds(), defaultdict(list)
    for finding, entry in zip(findings, accepted, strict=True):
        if catalogue[finding.kind].blocks is not None:
            found[finding.producer_id].append(About(finding, entry is not None))
    return dict(found)


def settled(row: Values, about: Mapping[int | None, Sequence[About]], asked: Collection[str]) -> Fields:
    """What a run adds to a row of ``rules.blocking.blocked``: ``accepted``, where a baseline accepts all that was found
    about its holder; ``left_out``, where nothing was, and its kind was not ``asked``; ``fingerprint``, of the gravest
    finding about it."""
    mine = [each for each in about.get(row["producer_id"], ()) if _is_about(each.finding, row)]
    found = any(each.finding.severity in GRAVE for each in mine)
    return {
        "accepted": bool(mine) and all(each.accepted for each in mine),
        "left_out": row["rule"] not in asked and not found,
        "fingerprint": next((each.finding.fingerprint for each in mine), None),
    }


def _is_about(finding: Finding, row: Values) -> bool:
    if finding.topic == TRANSACTION_STATE and row["topic"] != TRANSACTION_STATE:
        return finding.transactional_id == row["transactional_id"]
    if (finding.topic, finding.partition) != (row["topic"], row["partition"]):
        return False
    last = finding.offset if finding.last_offset is None else finding.last_offset
    return last is None or row["first_offset"] is None or last >= row["first_offset"]


def fails(row: Values, severities: Collection[str], unsure: bool) -> bool:
    """Whether a partition that is held makes the run fail at these severities; ``unsure``: also where it is not known
    whether it is held still, has been for longer than is normal, and would count if so."""
    if row["accepted"] or row["left_out"]:
        return False
    if row["severity"] in severities:
        return True
    allowed = DEFAULT_TIMEOUT_MS if row["timeout_ms"] is None else row["timeout_ms"]
    return unsure and row["if_true"] in severities and row["age_ms"] > min(allowed + LATE_MS, HOUR_MS)
