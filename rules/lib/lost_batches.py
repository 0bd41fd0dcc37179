"""Batches that a leader lacks, and those of them that were re-sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from auditor.base.advice import Advice, Verdict
from auditor.base.at_rest import Fields
from auditor.base.errors import SEQUENCES, setting_number
from auditor.base.words import few, plural
from auditor.facts.batch_headers import Columns, joined
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib import repairs
from auditor.rules.lib.replica_pairs import Pair, batches_of
from auditor.rules.seen.view import LogView, iso

# Batches of one replica that another one has too, further on: their producers sent them again.
#
# A producer id, an epoch and a sequence number identify a record of a partition. A client without sequence numbers
# repeats the same bytes, and so the same checksum with the same times: that finds its batch again. A batch without
# either that is not found proves nothing. Source: KIP-98, ProducerStateManager; Sender.reenqueueBatch.


READ = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "crc_ok", "magic", "crc")
MOST_READ = 500_000  # batches of the other replica that are searched: retries come within minutes


class SentAgain(NamedTuple):
    """The batches that were re-sent.

    ``whole``: per batch, whether all its records were; ``missing``: offsets of records that were not, as ascending
    (first, last); ``first``: the first offset in the other replica (-1: none).
    """

    whole: np.ndarray
    missing: list[tuple[int, int]]
    first: int = -1


class _Runs(NamedTuple):
    """Contiguous sequence numbers as (first, last) codes, ascending."""

    first: np.ndarray
    last: np.ndarray


def sent_again(ours: Columns, theirs: Iterable[Columns]) -> SentAgain:
    """Find which records of data batches (columns :data:`READ`) the other replica has too, by number or same bytes.

    ``theirs``: its batches from where both diverge, in pieces, read only as far as needed. Cost: sorting the batches of
    the same producers.
    """
    numbered = _numbered(ours)
    groups = np.unique(_pairs(ours)[numbered])
    spans = _spans(ours, np.flatnonzero(numbered), groups)
    begins = int(ours["base_offset"].min()) if len(numbered) else 0
    plain, same = _unnumbered(ours), np.zeros(len(numbered), bool)
    runs, first, read = _Runs(*(np.empty(0, np.int64),) * 2), -1, 0
    for rows in theirs:
        if not (len(groups) or plain.any()) or read > MOST_READ:
            break
        read += len(rows["base_offset"])
        there = _unnumbered(rows)
        new = plain & ~same & np.isin(_bytes_of(ours), _bytes_of(rows)[there])
        if first < 0 and new.any():
            first = int(rows["base_offset"][there & np.isin(_bytes_of(rows), _bytes_of(ours)[new])].min())
        same |= new
        near = rows["base_offset"] < begins + SEQUENCES  # further on the same number is another record's
        selected = np.flatnonzero(near & _numbered(rows) & np.isin(_pairs(rows), groups))
        if not len(selected):
            continue
        their_spans = _spans(rows, selected, groups)
        touched = _touches(their_spans[1], their_spans[2], _runs(spans[1], spans[2]))
        if touched.any():
            numbered_from = int(rows["base_offset"][their_spans[0][touched]].min())
            first = numbered_from if first < 0 else min(first, numbered_from)
        runs = _runs(np.append(runs.first, their_spans[1]), np.append(runs.last, their_spans[2]))
        if same[plain].all() and _within(spans[1], spans[2], runs).all():
            break
    whole = numbered | same
    whole[spans[0][~_within(spans[1], spans[2], runs)]] = False
    return SentAgain(whole, joined_spans(_missing(ours, whole, spans, runs)), first)


def _numbered(rows: Columns) -> np.ndarray:
    # Only batches with a valid checksum are what was written.
    numbered = (rows["producer_id"] >= 0) & (rows["base_sequence"] >= 0) & (rows["magic"] == 2)
    return numbered & (rows["crc_ok"] != 0)


def _unnumbered(rows: Columns) -> np.ndarray:
    return (rows["producer_id"] < 0) & (rows["magic"] == 2) & (rows["crc_ok"] != 0)


def _bytes_of(rows: Columns) -> np.ndarray:
    # The checksum covers all but offset and leader epoch; the count of offsets makes it longer.
    return rows["crc"].astype(np.int64) << 31 | (rows["last_offset"] - rows["base_offset"]).astype(np.int64)


def _pairs(rows: Columns) -> np.ndarray:
    out = np.empty(len(rows["producer_id"]), [("producer_id", "i8"), ("producer_epoch", "i8")])
    out["producer_id"], out["producer_epoch"] = rows["producer_id"], rows["producer_epoch"]
    return out


def _spans(rows: Columns, selected: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Row, first and last code of each run of sequence numbers; one that wraps to 0 is two runs. A code has the place of
    # producer id and epoch among ``groups`` in its upper, and the sequence number in its lower 32 bits.
    group = np.searchsorted(groups, _pairs(rows)[selected]).astype(np.int64) << 32
    begin = rows["base_sequence"][selected].astype(np.int64)
    end = begin + (rows["last_offset"][selected] - rows["base_offset"][selected]).astype(np.int64)
    over = end >= SEQUENCES
    return (
        np.append(selected, selected[over]),
        np.append(group + begin, group[over]),
        np.append(group + np.minimum(end, SEQUENCES - 1), group[over] + end[over] - SEQUENCES),
    )


def _runs(first: np.ndarray, last: np.ndarray) -> _Runs:
    # Merge spans that touch.
    order = np.argsort(first, kind="stable")
    first, reach = first[order], np.maximum.accumulate(last[order]) if len(last) else last
    new = np.append(np.ones(min(1, len(first)), bool), first[1:] > reach[:-1] + 1)
    ends = np.append(np.flatnonzero(new)[1:] - 1, np.full(min(1, len(first)), len(first) - 1))
    return _Runs(first[new], reach[ends])


def _touches(first: np.ndarray, last: np.ndarray, runs: _Runs) -> np.ndarray:
    index = np.searchsorted(runs.first, last, side="right") - 1
    return (index >= 0) & (np.append(runs.last, -1)[index] >= first)


def _within(first: np.ndarray, last: np.ndarray, runs: _Runs) -> np.ndarray:
    index = np.searchsorted(runs.first, first, side="right") - 1
    return (index >= 0) & (np.append(runs.last, -1)[index] >= last)


def _missing(
    ours: Columns, whole: np.ndarray, spans: tuple[np.ndarray, np.ndarray, np.ndarray], runs: _Runs
) -> list[tuple[int, int]]:
    # Whole batches, or the missing part of those that were sent again in part.
    rows, first, last = spans
    some = np.zeros(len(whole), bool)
    some[rows[_touches(first, last, runs)]] = True
    lone = ~whole & ~some
    out = list(zip(ours["base_offset"][lone].tolist(), ours["last_offset"][lone].tolist(), strict=True))
    for row in np.flatnonzero(some & ~whole).tolist():
        base, begin = int(ours["base_offset"][row]), int(ours["base_sequence"][row])
        for k in np.flatnonzero(rows == row).tolist():
            shift = (int(first[k]) - begin) % SEQUENCES  # of the part behind the last number, too
            out += [(base + shift + a, base + shift + b) for a, b in _holes(int(first[k]), int(last[k]), runs)]
    return out


def _holes(first: int, last: int, runs: _Runs) -> list[tuple[int, int]]:
    # Relative to ``first``.
    out, position = [], first
    low = max(0, int(np.searchsorted(runs.first, first, side="right")) - 1)
    for k in range(low, int(np.searchsorted(runs.first, last, side="right"))):
        begin, end = int(runs.first[k]), int(runs.last[k])
        if begin > position:
            out.append((position - first, begin - 1 - first))
        position = max(position, end + 1)
    return [*out, (position - first, last - first)] if position <= last else out


def joined_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges and merge adjacent ones."""
    out: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], last)
        else:
            out.append((first, last))
    return out


# Records that a replica has and its log's leader lacks: lost with an election, or about to be, unless sent again.


CONTROL = 0x20  # of a batch's attributes
TOP = 20  # transactions or producers of one finding shown in its evidence
COORDINATORS = ("__consumer_offsets", "__share_group_state", "__transaction_state")
ACKS = "offsets.commit.required.acks"  # below 4.0: with another value than -1 groups were told before others had it
END_OF_LOG = ("truncated", "zero_filled")  # a batch that breaks off was never appended


def lost_of(log: LogView, pair: Pair) -> Fields | None:
    """Describe a replica's records outside the leader's lineage, and the part that was not re-sent.

    Offsets, batches, times, producers and their transactions, and ``not_sent_again``; of these without a producer id
    ``unnumbered``, as ranges of a finding. None where batches have to be read again and cannot.
    """
    names = (*READ, "attributes", "max_timestamp")
    none = {name: np.empty(0, np.int64) for name in names}
    ours = joined([*batches_of(log, pair.replica).above(pair.forked_at, pair.until, names)] or [none])
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
            {name: t[name] for name in ("producer_id", "first_offset", "last_offset")}
            | {"transactional_id": log.owner(t["producer_id"])}
            for t in theirs[:TOP]
        ],
        "lies_on": {name: getattr(pair.replica, name) for name in ("broker_id", "log_dir", "folder")},
        **_sent_again(log, pair, ours),
    }


def _sent_again(log: LogView, pair: Pair, ours: Columns) -> Fields:
    # A marker is no record: coordinators re-send those that were not appended everywhere.
    markers = ours["attributes"] & CONTROL != 0
    left_markers = ours["base_offset"][markers & ~_markers_sent_again(pair, ours)]
    theirs = batches_of(log, pair.leader).above(pair.forked_at, None, READ) if log.has_sequences else ()
    data = {name: column[~markers] for name, column in ours.items()}
    again = sent_again(data, theirs)
    plain = ~again.whole & (data["producer_id"] < 0)
    without = joined_spans(list(zip(*(data[n][plain].tolist() for n in ("base_offset", "last_offset")), strict=True)))
    all_seen = pair.until is None and not pair.undecided and not batches_of(log, pair.replica).errors
    return {
        "sent_again": int(again.whole.sum()) + int(markers.sum()) - len(left_markers),
        "sent_again_from": again.first if again.first >= 0 else None,
        "not_sent_again": [list(span) for span in again.missing[:TOP]],
        "ranges": [list(span) for span in again.missing],
        "unnumbered": [[first, last, -1] for first, last in without],
        "records_not_sent_again": sum(last - first + 1 for first, last in again.missing),
        "markers_not_sent_again": left_markers[:TOP].tolist(),
        "all_sent_again": bool(
            all_seen and again.whole.all() and not len(left_markers) and not _has_other_bytes(pair.replica)
        ),
    }


def _has_other_bytes(replica: ReplicaFacts) -> bool:
    # Bytes that may be batches and could not be decoded.
    return any(e.file in replica.segments and e.reason not in END_OF_LOG for e in replica.errors)


def _markers_sent_again(pair: Pair, ours: Columns) -> np.ndarray:
    # Same producer, epoch and result in the leader's log.
    names = ["producer_id", "marker_epoch", "commit"]
    markers, theirs = (
        rows[rows["marker_offset"] >= pair.forked_at] for rows in (pair.replica.transactions, pair.leader.transactions)
    )
    sent = set(theirs[names].tolist())
    offsets = [int(row["marker_offset"]) for row in markers if row[names].item() in sent]
    return np.isin(ours["base_offset"], np.array(offsets, np.int64))


def never_visible(log: LogView) -> bool:
    """Whether records that only a leader of this log had were never acknowledged.

    Coordinators wait for all in-sync replicas before they answer, and expose nothing above the high watermark.
    """
    if log.topic not in COORDINATORS:
        return False
    values = {log.cluster.broker_setting(broker, ACKS) for broker in (*log.cluster.releases, None)}
    return log.topic != COORDINATORS[0] or all(setting_number(v) in (None, -1) for v in values)


def unsent(lost: Fields) -> str:
    """Name the records that were not re-sent if others were; empty if none were."""
    if not lost["sent_again"]:
        return ""
    spans = [f"{first} to {last}" if first < last else f"{first}" for first, last in lost["not_sent_again"]]
    records, markers = lost["records_not_sent_again"], lost["markers_not_sent_again"]
    parts = [f"{plural(records, 'record')} at offset{'s' * (records > 1)} {few(spans)}"] if records else []
    parts += [f"the marker at offset {few(markers)}"] if markers else []
    return " and ".join(parts)


def why_not_lost(lost: Fields) -> str:
    """Explain why no record has to be re-sent."""
    if not lost["all_sent_again"]:
        return "they are uncommitted records of a coordinator, which no client relies on"
    where = "" if lost["sent_again_from"] is None else f" (offset {lost['sent_again_from']} of the leader's log)"
    return f"their producers re-sent them{where}"


def tail_advice(log: LogView, replica: ReplicaFacts, lost: Fields, *, lossless: bool = False) -> Advice:
    """Advise on a tail that only a former leader has: keep it, and re-send what its producers did not.

    No step if all of it was re-sent, or the caller knows that no record is lost (``lossless``).
    """
    if lossless or lost["all_sent_again"]:
        return Advice(
            Verdict.WAIT,
            f"no records are lost: {why_not_lost(lost)}",
            afterwards=f"Broker {replica.broker_id} truncates these offsets when it follows the leader",
        )
    if not lost["sent_again"]:
        return repairs.rescue(log, replica, lost["first_offset"])
    amends = f"Re-send the missing ones of {unsent(lost)}" if lost["records_not_sent_again"] else "Re-send no record"
    return repairs.rescue(
        log, replica, lost["first_offset"], f"{amends}: producers have already re-sent the other batches"
    )
