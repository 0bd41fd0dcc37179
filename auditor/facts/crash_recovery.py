"""Predict how a broker starts from a log directory after a crash."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right

from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.facts.events import EventKind, events_of
from auditor.facts.replica_facts import ReplicaFacts

MAX_SHOWN = 100  # fatal batches of one log
PLAIN = "a plain batch inside an open transaction of the same producer"
UNKNOWN_TYPE = "a marker of unknown control type"
REFUSED = "an offset that the rebuilt index refuses, in a segment without .index"
TWICE = "a folder in two log directories of one broker"
ALWAYS_SCANNED = "__cluster_metadata"  # KafkaMetadataLog opens it as if after a crash, from offset 0


def dry_run(replica: ReplicaFacts, recovery_point: int = 0) -> Fields | None:
    """Predict a start of one replica that scans from ``recovery_point`` on; None for text, which has no bytes.

    ``log_end_after`` and ``last_stable_offset_after``: offsets, the latter once the high watermark is at the log end.
    ``truncates``: each cut with file, byte, offset and loss; ``deletes``: segments renamed ``.deleted``, with their
    indexes; ``poison``: what makes the start fail; ``undecided``: what is unknown; ``says``: a summary sentence.
    """
    if replica.text or not replica.scans:
        return None
    first = _first_scanned(replica, recovery_point)
    end, truncates, segments_left = _cuts(replica, first)
    fatal = _fatal(replica, first, segments_left)
    deletes = [replica.segments[k] for k in range(segments_left, len(replica.scans))]
    if end < replica.log_start:  # LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd
        deletes, end = replica.segments[_first_local(replica) :], replica.log_start
    result = {
        "topic": replica.topic,
        "partition": replica.partition,
        "starts": not fatal,
        "log_end": replica.log_end,
        "log_end_after": end,
        "last_stable_offset_after": _last_stable_offset(replica, end, everything=first == _first_local(replica)),
        "truncates": truncates,
        "deletes": deletes,
        "poison": fatal,
        "undecided": [
            f"{replica.segments[k]}: {s.undecided}"
            for k, s in enumerate(replica.scans)
            if s.undecided and _scanned(replica, k, first)
        ]
        + _unread(replica, recovery_point),
    }
    return result | {"says": _says(result)}


def both_runs(replica: ReplicaFacts, twin: str | None = None) -> Fields | None:
    """Return the dry run that scans everything, with the one from the recovery point if it differs.

    ``from_recovery_point``: that run, otherwise None. ``twin``: another log directory of its broker with the same
    partition, which makes every start fail.
    """
    full = dry_run(replica)
    if full is None:
        return None
    point = 0 if replica.topic == ALWAYS_SCANNED else replica.recovery_point or 0
    plain = full if _first_scanned(replica, point) == _first_scanned(replica, 0) else dry_run(replica, point)
    if twin is not None:
        full, plain = (_failed_start(replica, run, twin) for run in (full, plain or full))
    return full | {"recovery_point": point, "from_recovery_point": None if plain == full else plain}


def _failed_start(replica: ReplicaFacts, run: Fields, twin: str) -> Fields:
    # The start fails whatever else it does to the log.
    fatal = _poison(replica, replica.folder, None, None, -1, f"{TWICE} (the other: {twin}),")
    run = run | {"starts": False, "poison": [fatal, *run["poison"]]}
    return run | {"says": _says(run)}


def directory(log_dir: str, runs: list[Fields], clean_shutdown: bool) -> Fields:
    """Combine the dry runs of a log directory's logs (:func:`both_runs`)."""
    full = _together(runs)
    plain = _together([run["from_recovery_point"] or run for run in runs])
    says = f"After a crash, if every segment is scanned, a current broker {_outcome(full)}"
    if plain != full:
        says += f"; if the recovery points stand as they are, it {_outcome(plain)}"
    if clean_shutdown:
        says += "; it was stopped cleanly, so a start now scans nothing"
        says += " and ends all the same" if any(p["offset"] is None for p in full["poison"]) else ""
    return {"log_dir": log_dir, **full, "from_recovery_points": plain, "clean_shutdown": clean_shutdown, "says": says}


def _together(runs: list[Fields]) -> Fields:
    joined = {name: [item for run in runs for item in run[name]] for name in ("truncates", "poison", "undecided")}
    return {"starts": not joined["poison"], **joined}


def _outcome(runs: Fields) -> str:
    cuts, fatal = runs["truncates"], runs["poison"]
    words = "would start" if runs["starts"] else f"would not start: {_fatal_words(fatal)}"
    if cuts:
        records = sum(t["records"] for t in cuts)
        words += " and" if runs["starts"] else "; it would"
        words += f" cut {plural(len(cuts), 'log')} and lose {plural(records, 'readable record')}"
    return words + (" (not all could be decided)" if runs["undecided"] else "")


def _fatal_words(fatal: list[Fields]) -> str:
    p = fatal[0]
    more = f", and {len(fatal) - 1} more" if len(fatal) > 1 else ""
    where = "" if p["offset"] is None else f" at offset {p['offset']}"
    return f"{p['why']} in {p['topic']}-{p['partition']}{where}{more}"


def _says(run: Fields) -> str:
    parts = []
    if run["poison"]:
        parts.append(f"keeps a current broker from starting: {_fatal_words(run['poison'])}")
    for cut in run["truncates"]:
        parts.append(
            f"is cut at offset {cut['offset']} (byte {cut['position']} of {cut['file']}, {cut['reason']}): "
            f"{plural(cut['bytes'], 'byte')} and {plural(cut['records'], 'readable record')} lost"
        )
    if run["deletes"]:
        parts.append(f"{plural(len(run['deletes']), 'segment')} renamed .deleted")
    return f"{run['topic']}-{run['partition']}: " + ("; ".join(parts) or "nothing is cut")


def _scanned(replica: ReplicaFacts, number: int, first: int) -> bool:
    # A segment without .index is recovered whatever the recovery point; one in remote storage never.
    return number >= first or (number >= _first_local(replica) and not replica.scans[number].indexed)


def _first_local(replica: ReplicaFacts) -> int:
    return bisect_left(replica.segment_bases, replica.local_start) if replica.local_start >= 0 else 0


def _first_scanned(replica: ReplicaFacts, recovery_point: int) -> int:
    return max(_first_local(replica), bisect_right(replica.segment_bases, recovery_point) - 1)


def _unread(replica: ReplicaFacts, recovery_point: int) -> list[str]:
    if replica.unread_from < 0 or recovery_point >= replica.log_start:
        return []
    return [f"{replica.topic}-{replica.partition}: the segments below offset {replica.log_start} were not read"]


def _cuts(replica: ReplicaFacts, first: int) -> tuple[int, list[Fields], int]:
    cuts, end = [], 0
    for number, scan in enumerate(replica.scans):
        end = scan.next_offset
        if scan.cut < 0 or not _scanned(replica, number, first):
            continue
        # A missing .index has the segment recovered before recoverLog looks, which then finds nothing to cut there.
        behind = replica.scans[number + 1 :] if scan.indexed else []
        end = scan.cut_offset
        cuts.append(
            {
                "topic": replica.topic,
                "partition": replica.partition,
                "file": replica.segments[number],
                "position": scan.cut,
                "offset": end,
                "reason": scan.cut_reason,
                "bytes": scan.size - scan.cut + sum(s.size for s in behind),
                "records": scan.records - scan.cut_records + sum(s.records for s in behind),
                "deletes": replica.segments[number + 1 :] if scan.indexed else [],
            }
        )
        if scan.indexed:
            return end, cuts, number + 1
    return end, cuts, len(replica.scans)


def _fatal(replica: ReplicaFacts, first: int, segments_left: int) -> list[Fields]:
    # Batches whose exception nothing catches, among those that are scanned or replayed.
    replayed_from = _state_base(replica, first)
    batches = []

    def add(number: int, position: int, offset: int, producer: int, why: str) -> None:
        reached = _scanned(replica, number, first) or (number >= _first_local(replica) and offset >= replayed_from)
        if number < segments_left and reached:
            batches.append(_poison(replica, replica.segments[number], position, offset, producer, why))

    for number, scan in enumerate(replica.scans):
        for position, offset, producer, kind in scan.fatal:
            add(number, position, offset, producer, f"{UNKNOWN_TYPE} {kind}")
        if scan.cut_reason == "offsets_not_increasing" and not scan.indexed:
            add(number, 0, scan.base_offset, -1, REFUSED)
    for e in itertools.islice(events_of(replica.events, EventKind.PLAIN_IN_TRANSACTION), MAX_SHOWN):
        if not 0 <= replica.scans[e["segment"]].cut <= e["position"]:
            add(e["segment"], e["position"], e["base_offset"], e["producer_id"], PLAIN)
    return sorted(batches, key=lambda p: (p["file"], p["position"]))[:MAX_SHOWN]


def _poison(
    replica: ReplicaFacts, file: str, position: int | None, offset: int | None, producer_id: int, why: str
) -> Fields:
    where = {"topic": replica.topic, "partition": replica.partition, "file": file}
    return where | {"position": position, "offset": offset, "producer_id": producer_id, "why": why}


def _state_base(replica: ReplicaFacts, first: int) -> int:
    # The newest snapshot below the first scanned segment, or the log start.
    below = [
        s.offset
        for s in replica.snapshots
        if s.readable and replica.log_start < s.offset <= replica.segment_bases[first]
    ]
    return max(below, default=replica.log_start)


def _last_stable_offset(replica: ReplicaFacts, end: int, *, everything: bool) -> int:
    # A full scan drops the snapshots, and so the state, of segments before the one with the log start.
    t = replica.transactions
    if not len(t):
        return end
    is_open = (t["first_offset"] >= 0) & (t["first_offset"] < end)
    is_open &= (t["marker_offset"] < 0) | (t["marker_offset"] >= end)
    if everything and replica.unread_from < 0:
        known_from = replica.segment_bases[_first_scanned(replica, replica.log_start)]
        is_open &= (t["from_snapshot"] == 0) & (t["last_offset"] >= known_from)
    firsts = t["first_offset"][is_open]
    return min(end, max(int(firsts.min()), replica.own_start)) if len(firsts) else end
