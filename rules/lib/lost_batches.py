"""What a replica has that its log's leader has not: records that were lost with an election, or will be, and which of
them their producers sent again."""

from __future__ import annotations

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.base.at_rest import Fields
from auditor.base.numbers import setting_number
from auditor.base.words import few, plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib import repairs
from auditor.rules.lib.headers_again import Columns
from auditor.rules.lib.pairs import Pair, batches_of
from auditor.rules.lib.replica_batches import joined
from auditor.rules.lib.sent_again import READ, sent_again
from auditor.rules.seen.finding import iso
from auditor.rules.seen.view import LogView

CONTROL = 0x20  # of a batch's attributes
TOP = 20  # transactions or producers of one finding shown in its evidence
COORDINATORS = ("__consumer_offsets", "__share_group_state", "__transaction_state")
ACKS = "offsets.commit.required.acks"  # below 4.0: with another value than -1 groups were told before others had it
END_OF_LOG = ("truncated", "zero_filled")  # a batch that breaks off was never appended


def lost_of(log: LogView, pair: Pair) -> Fields | None:
    """What a replica has beside the leader's lineage: offsets, batches, times, producers and their transactions, and
    what of it was not sent again (``not_sent_again``). None where it had to be read again and cannot."""
    names = (*READ, "attributes", "max_timestamp")
    ours = joined([*batches_of(log, pair.replica).above(pair.forked_at, pair.until, names)] or [_none(names)])
    if not len(ours["base_offset"]):
        return None
    open_or_ended = pair.replica.transactions
    theirs = open_or_ended[open_or_ended["last_offset"] >= pair.forked_at]
    times, last = ours["max_timestamp"], int(ours["last_offset"].max())
    return {
        "first_offset": pair.forked_at,
        "last_offset": last,
        "offsets": last - pair.forked_at + 1,
        "batches": len(times),
        "leader_epoch": pair.lost_epoch,
        "from": iso(int(times.min())),
        "to": iso(int(times.max())),
        "producers": [int(p) for p in np.unique(ours["producer_id"]) if p >= 0][:TOP],
        "transactions": [
            {
                "producer_id": t["producer_id"],
                "first_offset": t["first_offset"],
                "last_offset": t["last_offset"],
                "transactional_id": log.owner(t["producer_id"]),
            }
            for t in theirs[:TOP]
        ],
        "lies_on": {
            "broker_id": pair.replica.broker_id,
            "log_dir": pair.replica.log_dir,
            "folder": pair.replica.folder,
        },
        **_sent_again(log, pair, ours),
    }


def _none(names: tuple[str, ...]) -> Columns:
    return {name: np.empty(0, np.int64) for name in names}


def _sent_again(log: LogView, pair: Pair, ours: Columns) -> Fields:
    """How many of these batches were sent again, where the first one is, and the offsets of the records that were not.

    A marker is no record: coordinators send those again that were not appended everywhere.
    """
    markers = ours["attributes"] & CONTROL != 0
    left_markers = ours["base_offset"][markers & ~_markers_sent_again(pair, ours)]
    theirs = batches_of(log, pair.leader).above(pair.forked_at, None, READ) if log.has_sequences else ()
    again = sent_again({name: column[~markers] for name, column in ours.items()}, theirs)
    all_seen = pair.until is None and not pair.undecided and not batches_of(log, pair.replica).errors
    return {
        "sent_again": int(again.whole.sum()) + int(markers.sum()) - len(left_markers),
        "sent_again_from": again.first if again.first >= 0 else None,
        "not_sent_again": [list(span) for span in again.missing[:TOP]],
        "records_not_sent_again": sum(last - first + 1 for first, last in again.missing),
        "markers_not_sent_again": left_markers[:TOP].tolist(),
        "all_sent_again": bool(
            all_seen and again.whole.all() and not len(left_markers) and not _has_other_bytes(pair.replica)
        ),
    }


def _has_other_bytes(replica: ReplicaFacts) -> bool:
    """Whether a replica has bytes that may be batches, and could not be read as such."""
    return any(e.file in replica.segments and e.reason not in END_OF_LOG for e in replica.errors)


def _markers_sent_again(pair: Pair, ours: Columns) -> np.ndarray:
    """Which batches are markers that the leader has too, further on: of the same producer, epoch and result."""
    names = ["producer_id", "marker_epoch", "commit"]
    mine, theirs = (
        rows[rows["marker_offset"] >= pair.forked_at] for rows in (pair.replica.transactions, pair.leader.transactions)
    )
    sent = set(theirs[names].tolist())
    at = [int(row["marker_offset"]) for row in mine if row[names].item() in sent]
    return np.isin(ours["base_offset"], np.array(at, np.int64))


def never_visible(log: LogView) -> bool:
    """Whether nobody was told of what only a leader of this log had: coordinators wait for all replicas in sync before
    they answer, and show nothing above the high watermark."""
    if log.topic not in COORDINATORS:
        return False
    values = {log.cluster.broker_setting(broker, ACKS) for broker in (*log.cluster.releases, None)}
    return log.topic != COORDINATORS[0] or all(setting_number(v) in (None, -1) for v in values)


def left(lost: Fields) -> str:
    """What was not sent again, in words, where the rest was; empty where nothing was."""
    if not lost["sent_again"]:
        return ""
    spans = [f"{first} to {last}" if first < last else f"{first}" for first, last in lost["not_sent_again"]]
    records, markers = lost["records_not_sent_again"], lost["markers_not_sent_again"]
    parts = [f"{plural(records, 'record')} at offset{'s' * (records > 1)} {few(spans)}"] if records else []
    parts += [f"the marker at offset {few(markers)}"] if markers else []
    return " and ".join(parts)


def why_not_lost(lost: Fields) -> str:
    """Why nothing of it has to be sent again, in words."""
    if not lost["all_sent_again"]:
        return "they are a coordinator's records that were never committed, so no client was told of them"
    at = "" if lost["sent_again_from"] is None else f" (offset {lost['sent_again_from']} of the leader's log)"
    return f"their producers sent them again{at}"


def saved(log: LogView, replica: ReplicaFacts, lost: Fields, *, lossless: bool = False) -> Advice:
    """What to do about a tail that only a former leader has: to keep it, and to produce again what its producers have
    not sent again; nothing where that is all, or where the caller knows that nothing is lost."""
    if lossless or lost["all_sent_again"]:
        return Advice(
            Verdict.WAIT,
            f"nothing is lost: {why_not_lost(lost)}",
            then=f"broker {replica.broker_id} truncates these offsets when it follows the leader",
        )
    if not lost["sent_again"]:
        return repairs.rescue(log, replica, lost["first_offset"])
    amends = f"{repairs.PRODUCE_AGAIN} of {left(lost)}" if lost["records_not_sent_again"] else "produce nothing again"
    return repairs.rescue(
        log, replica, lost["first_offset"], f"{amends}: the other batches were sent again by their producers"
    )
