"""Which finding wins: one cause, one finding (rules.md). Findings that another explains go into its evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Any

from auditor.rules.coordinator_history import SKEW_MS
from auditor.rules.finding import Finding, highest

UNDER_HANGING = {
    "long-open-transaction", "lso-stuck", "transaction-pinned-at-log-start", "late-write-after-marker",
    "partition-not-in-transaction", "missing-marker",
}  # fmt: skip
UNDER_COORDINATOR = {"long-open-transaction", "lso-stuck", "missing-marker"}
OF_SEQUENCES = {
    "sequence-gap", "duplicate-sequence-range", "committed-transaction-hole", "first-batch-after-bump-nonzero",
    "unknown-producer-first-sequence", "sequence-reset-same-epoch", "snapshot-replay-mismatch",
}  # fmt: skip
BEHIND_DAMAGE = OF_SEQUENCES | {"offset-hole", "offsets-not-increasing", "index-mismatch"}
CLOCK = {"producer-timestamp-skew", "producer-expired-while-active"}
OF_ABORT_INDEX = {"aborted-transaction-not-indexed", "aborted-index-extra-entry"}
OF_REPLICAS = {"replica-missing-range", "replica-abort-index-divergence", "replica-state-differs"}


def resolve(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stay, in the contract's order."""
    kept = _under_crc(list(findings))
    for rule in ("batch-crc-mismatch", "torn-tail", "record-structure-invalid", "offsets-not-increasing"):
        kept = _absorb(kept, rule, {"checkpoint-beyond-log-end"}, _at_the_end)
    for rule in ("record-structure-invalid", "offsets-not-increasing"):
        kept = _absorb(kept, rule, BEHIND_DAMAGE, _behind_another_end)
    kept = _absorb(kept, "offset-hole", {"snapshot-replay-mismatch"}, _remembers_the_missing)
    kept = _absorb(kept, "producer-fields-inconsistent", OF_SEQUENCES, _behind)
    kept = _absorb(kept, "late-write-after-marker", {"epoch-regression"}, _same_start)
    kept = _absorb(kept, "hanging-transaction", UNDER_HANGING, _same_transaction)
    for rule in ("timeout-not-enforced", "stuck-prepare"):
        kept = _absorb(kept, rule, UNDER_COORDINATOR, _same_owner)
    kept = _absorb(kept, "batch-timestamp-mismatch", {"timestamp-out-of-range", *CLOCK}, _same_batches)
    kept = _absorb(kept, "timestamp-out-of-range", CLOCK, _same_batches)
    kept = _absorb(kept, "producer-timestamp-skew", {"producer-expired-while-active"}, _same_batches)
    kept = _absorb(kept, "illegal-transition", {"transition-invariant-broken", "state-epoch-regression"}, _same_record)
    kept = _absorb(kept, "unreadable-transaction-record", {"null-key-in-compacted-topic"}, _same_record)
    kept = _absorb(kept, "sequence-reset-same-epoch", {"duplicate-sequence-range"}, _same_batches)
    kept = _absorb(kept, "replica-divergence", OF_REPLICAS, _same_copy_behind)
    kept = _absorb(kept, "record-structure-invalid", {"replica-missing-range"}, _of_unread_bytes)
    kept = _absorb(kept, "replica-missing-range", {"sequence-gap"}, _inside)
    kept = _absorb(kept, "split-decision", {"marker-contradicts-decision", "marker-without-decision"}, _same_record)
    kept = _absorb(kept, "marker-contradicts-decision", {"marker-without-decision"}, _same_record)
    for rule in ("split-decision", "marker-contradicts-decision"):
        kept = _absorb(kept, rule, {"missing-marker", *OF_ABORT_INDEX}, _same_decision)
    for rule in ("epoch-regression", "marker-without-decision"):
        kept = _absorb(kept, rule, {"marker-without-decision"}, _same_record)
        kept = _absorb(kept, rule, {"missing-marker", "snapshot-replay-mismatch"}, _instead_of_the_right_one)
    for rule in ("unknown-coordinator-epoch", "coordinator-epoch-regression"):
        kept = _absorb(kept, rule, {"snapshot-replay-mismatch"}, _of_this_coordinator)
    kept = _absorb(kept, "transaction-pinned-at-log-start", {"lso-stuck", "long-open-transaction"}, _same_transaction)
    kept = _absorb(kept, "long-open-transaction", {"lso-stuck"}, _same_transaction)
    return sorted(kept, key=Finding.sort_key)


def _log(f: Finding) -> tuple[Any, ...]:
    return (f.topic, f.partition)


def _same_transaction(winner: Finding, other: Finding) -> bool:
    return _log(winner) == _log(other) and (winner.producer_id, winner.offset) == (other.producer_id, other.offset)


def _same_start(winner: Finding, other: Finding) -> bool:
    return _same_transaction(winner, other) and winner.severity != "info"


def _same_copy(winner: Finding, other: Finding) -> bool:
    return _log(winner) == _log(other) and winner.evidence.get("log_dir") == other.evidence.get("log_dir")


def _at_the_end(winner: Finding, other: Finding) -> bool:
    """A checkpoint beyond the end of a log whose last bytes are what the winner is about."""
    if not _same_copy(winner, other) or other.offset is None:
        return False
    last = winner.offset if winner.rule == "torn-tail" else winner.last_offset
    return bool(winner.evidence.get("at_log_end")) or (last is not None and last + 1 >= other.offset)


def _behind(winner: Finding, other: Finding) -> bool:
    """What is odd only because a batch's fields are wrong: its neighbours' sequences, a snapshot that is right."""
    if not _same_copy(winner, other) or winner.offset is None or winner.last_offset is None or other.offset is None:
        return False
    if other.rule == "snapshot-replay-mismatch":
        return _about_one(other, winner.offset, winner.last_offset)
    before = other.evidence.get("previous_last_offset")
    if before is not None and before <= winner.last_offset and winner.offset < other.offset:
        return True
    return winner.offset <= other.offset <= winner.last_offset


def _about_one(mismatch: Finding, first: int, last: int) -> bool:
    """Whether all that a snapshot has otherwise is one producer's last batch, which lies in [first, last]."""
    found = mismatch.evidence["differences"]
    offsets = [d[side] for d in found if d["field"] == "last_offset" for side in ("stored", "replayed")]
    return len({d["producer_id"] for d in found}) == 1 and any(first <= offset <= last for offset in offsets)


def _remembers_the_missing(hole: Finding, mismatch: Finding) -> bool:
    """Whether a snapshot only knows of batches that the log has lost."""
    if not _same_copy(hole, mismatch):
        return False
    first, last = hole.evidence["missing_range"]
    found = mismatch.evidence["differences"]
    known = {d["producer_id"] for d in found if d["field"] == "last_offset" and first <= d["stored"] <= last}
    return {d["producer_id"] for d in found} == known


def _behind_another_end(winner: Finding, other: Finding) -> bool:
    """What is odd only because a batch does not lie where it should, or does not end at the offset that it states."""
    in_doubt = winner.rule == "offsets-not-increasing" or winner.evidence.get("span_in_doubt")
    if not in_doubt or winner is other or not _same_copy(winner, other) or winner.last_offset is None:
        return False
    if other.rule == "offset-hole":
        return bool(other.evidence["missing_range"][0] == winner.last_offset + 1)
    if other.rule == "offsets-not-increasing":
        return bool(other.offset == winner.offset or other.evidence["expected"] == winner.last_offset + 1)
    if other.rule == "index-mismatch":
        stem = str(winner.file).removesuffix(".log")
        return other.file == f"{stem}.index" and other.evidence.get("segment_position", -1) == winner.position
    return _behind(winner, other)


def _same_owner(winner: Finding, other: Finding) -> bool:
    """A finding in a partition of the transaction that the coordinator's finding is about."""
    name = f"{other.topic}-{other.partition}"
    same = winner.producer_id == other.producer_id and winner.transactional_id == other.transactional_id
    return same and name in winner.evidence.get("partitions", ())


def _same_batches(winner: Finding, other: Finding) -> bool:
    if _log(winner) != _log(other) or winner.offset is None or other.offset is None:
        return False
    return winner.offset <= other.offset <= (winner.last_offset if winner.last_offset is not None else winner.offset)


def _same_record(winner: Finding, other: Finding) -> bool:
    return _log(winner) == _log(other) and winner.offset == other.offset


def _same_decision(marker: Finding, other: Finding) -> bool:
    """What follows from a marker that says the opposite of the decision: the right one is missing, an index differs."""
    if _log(marker) != _log(other) or marker.producer_id != other.producer_id:
        return False
    if other.rule == "missing-marker":
        return marker.evidence["prepare_offset"] == other.evidence["prepare_offset"]
    return marker.offset == other.last_offset


def _instead_of_the_right_one(marker: Finding, other: Finding) -> bool:
    """What follows from a marker of a wrong epoch: the right one is missing, a snapshot still knows of it."""
    if "marker" not in marker.evidence or _log(marker) != _log(other) or marker.producer_id != other.producer_id:
        return False
    if other.rule == "missing-marker":
        both = (marker.timestamp, other.timestamp)
        times = [datetime.fromisoformat(t).timestamp() for t in both if t is not None]
        return len(times) == 2 and abs(times[0] - times[1]) * 1000 <= SKEW_MS
    found = other.evidence["differences"]
    epochs = [d["replayed"] for d in found if d["field"] == "producer_epoch"]
    return epochs == [marker.producer_epoch] and {d["producer_id"] for d in found} == {marker.producer_id}


def _of_this_coordinator(marker: Finding, mismatch: Finding) -> bool:
    """Whether a snapshot only has another coordinator epoch than the marker gave the producer."""
    found = {(d["producer_id"], d["field"], d["replayed"]) for d in mismatch.evidence["differences"]}
    return _log(marker) == _log(mismatch) and found == {
        (marker.producer_id, "coordinator_epoch", marker.evidence["found"])
    }


def _same_copy_behind(winner: Finding, other: Finding) -> bool:
    """The same copy of a log, from the first divergent offset on."""
    same = _log(winner) == _log(other) and winner.evidence.get("log_dir") == other.evidence.get("log_dir")
    return same and winner.offset is not None and other.offset is not None and other.offset >= winner.offset


def _of_unread_bytes(winner: Finding, other: Finding) -> bool:
    """A range that a replica lacks because its bytes there are no batch."""
    unread = winner.evidence.get("unread_offsets")
    if unread is None or other.offset is None or other.last_offset is None or _log(winner) != _log(other):
        return False
    return bool(unread[0] <= other.offset and other.last_offset <= unread[1])


def _inside(winner: Finding, other: Finding) -> bool:
    """A sequence gap right behind a range that the leader lacks."""
    if not winner.evidence.get("missing_in", {}).get("leader_copy"):
        return False
    if _log(winner) != _log(other) or winner.last_offset is None or other.offset is None or winner.offset is None:
        return False
    return winner.offset <= other.offset <= winner.last_offset + 1


def _under_crc(findings: list[Finding]) -> list[Finding]:
    """Nothing may rest on the bytes of a batch that does not match its checksum."""
    damaged = {(f.evidence.get("log_dir"), f.file, f.position) for f in findings if f.rule == "batch-crc-mismatch"}
    return [
        f
        for f in findings
        if f.rule == "batch-crc-mismatch" or (f.evidence.get("log_dir"), f.file, f.position) not in damaged
        or f.position is None
    ]  # fmt: skip


# What two findings of a relation have in common at least: explanations are looked up by it, among thousands of them.
LOG = attrgetter("topic", "partition")
IN_COMMON: dict[Callable[[Finding, Finding], bool], attrgetter[Any]] = {
    _same_transaction: attrgetter("topic", "partition", "producer_id", "offset"),
    _same_start: attrgetter("topic", "partition", "producer_id", "offset"),
    _same_record: attrgetter("topic", "partition", "offset"),
    _same_decision: attrgetter("topic", "partition", "producer_id"),
    _instead_of_the_right_one: attrgetter("topic", "partition", "producer_id"),
    _same_owner: attrgetter("producer_id", "transactional_id"),
}


def _absorb(
    findings: list[Finding], rule: str, taken: set[str], same: Callable[[Finding, Finding], bool]
) -> list[Finding]:
    """Findings of the rules ``taken`` that one of ``rule`` explains become part of its evidence and severity."""
    winners = [f for f in findings if f.rule == rule]
    if not winners:
        return findings
    common = IN_COMMON.get(same, LOG)
    alike = defaultdict(list)
    for winner in winners:
        alike[common(winner)].append(winner)
    kept: list[Finding] = []
    for f in findings:
        near = alike[common(f)] if f.rule in taken else ()
        explains = next((w for w in near if w is not f and same(w, f)), None)
        if explains is None:
            kept.append(f)
            continue
        winner = explains
        if winner.severity != "info" or not winner.evidence.get("in_flight"):
            winner.severity = highest(winner.severity, f.severity)
        also = {
            "rule": f.rule,
            "severity": f.severity,
            "topic": f.topic,
            "partition": f.partition,
            "message": f.message,
        }
        winner.evidence.setdefault("also", []).append(also)
    for winner in winners:
        if "also" in winner.evidence:
            winner.evidence["also"].sort(key=lambda a: (a["rule"], a["topic"] or "", a["partition"] or 0, a["message"]))
    return kept
