"""Which finding wins: one cause, one finding (rules.md). Findings that another explains go into its evidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rules.finding import Finding, highest

UNDER_HANGING = {
    "long-open-transaction", "lso-stuck", "transaction-pinned-at-log-start", "late-write-after-marker",
    "partition-not-in-transaction",
}  # fmt: skip
UNDER_COORDINATOR = {"long-open-transaction", "lso-stuck", "missing-marker"}
OF_REPLICAS = {"replica-missing-range", "replica-abort-index-divergence", "replica-state-differs"}


def resolve(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that stay, in the contract's order."""
    kept = _under_crc(list(findings))
    kept = _absorb(kept, "hanging-transaction", UNDER_HANGING, _same_transaction)
    for rule in ("timeout-not-enforced", "stuck-prepare"):
        kept = _absorb(kept, rule, UNDER_COORDINATOR, _same_owner)
    kept = _absorb(
        kept, "batch-timestamp-mismatch", {"producer-timestamp-skew", "timestamp-out-of-range"}, _same_batches
    )
    kept = _absorb(kept, "timestamp-out-of-range", {"producer-timestamp-skew"}, _same_batches)
    kept = _absorb(kept, "illegal-transition", {"transition-invariant-broken", "state-epoch-regression"}, _same_record)
    kept = _absorb(kept, "sequence-reset-same-epoch", {"duplicate-sequence-range"}, _same_batches)
    kept = _absorb(kept, "replica-divergence", OF_REPLICAS, _same_copy_behind)
    kept = _absorb(kept, "replica-missing-range", {"sequence-gap"}, _inside)
    kept = _absorb(kept, "split-decision", {"marker-contradicts-decision", "marker-without-decision"}, _same_record)
    kept = _absorb(kept, "marker-contradicts-decision", {"marker-without-decision"}, _same_record)
    kept = _absorb(kept, "transaction-pinned-at-log-start", {"lso-stuck", "long-open-transaction"}, _same_transaction)
    kept = _absorb(kept, "late-write-after-marker", {"epoch-regression"}, _same_start)
    return sorted(kept, key=Finding.sort_key)


def _log(f: Finding) -> tuple[Any, ...]:
    return (f.topic, f.partition)


def _same_transaction(winner: Finding, other: Finding) -> bool:
    return _log(winner) == _log(other) and (winner.producer_id, winner.offset) == (other.producer_id, other.offset)


def _same_start(winner: Finding, other: Finding) -> bool:
    return _same_transaction(winner, other) and winner.severity != "info"


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


def _same_copy_behind(winner: Finding, other: Finding) -> bool:
    """The same copy of a log, from the first divergent offset on."""
    same = _log(winner) == _log(other) and winner.evidence.get("log_dir") == other.evidence.get("log_dir")
    return same and winner.offset is not None and other.offset is not None and other.offset >= winner.offset


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


def _absorb(findings: list[Finding], rule: str, taken: set[str], same: Any) -> list[Finding]:
    """Findings of the rules ``taken`` that one of ``rule`` explains become part of its evidence and severity."""
    winners = [f for f in findings if f.rule == rule]
    if not winners:
        return findings
    by_log = defaultdict(list)
    for winner in winners:
        by_log[_log(winner)].append(winner)
    kept: list[Finding] = []
    for f in findings:
        near = winners if rule in ("timeout-not-enforced", "stuck-prepare") else by_log[_log(f)]
        explains = next((w for w in near if w is not f and same(w, f)), None) if f.rule in taken else None
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
