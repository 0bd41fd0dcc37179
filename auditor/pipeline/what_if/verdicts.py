"""The judge step of a what-if: the verdicts of each log, of the facts that the read step left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.connectors.tables.schema import LOG_KEY, declared
from auditor.facts.replica_facts import VERDICT, PolicyOutcome, PolicyOutcomes, ReplicaFacts
from auditor.model.policies import ERRORS, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, POLICIES
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import Unverified
from auditor.rules.resolution.finding_limits import judge_bounded
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView

DUPLICATE_NAME = "DUPLICATE"  # no error: success with the offsets of a batch that the broker remembered

# One row a run of stored batches, or a marker, that another policy would have answered with ``error``.
VERDICTS = declared(
    "verdicts",
    LOG_KEY,
    """
    file:string
    position:long byte in `file` where the first batch of the run begins
    policy:string the broker policy that is asked
    error:string Kafka's error that it would have answered with; DUPLICATE: success, without appending it again
    base_offset:long first offset of the run's first batch
    last_offset:long last offset of that batch
    run_last_offset:long last offset of the run
    producer_id:long
    producer_epoch:int
    transactional_id:string the id that last had this producer id, where the coordinators' logs tell
    base_sequence:int sequence number that the batch begins with; -1: none
    last_sequence:int sequence number that it ends with; -1: none
    known_epoch:int producer epoch that this broker would have known then; -1: none
    known_last_sequence:int last sequence number that it would have known then; -1: none
    max_timestamp:time largest timestamp of the batch
    is_transactional:bool whether the batch belongs to a transaction
    is_control:bool whether it is a marker
    batches:long batches of the run
    records:long records of the run
    stored_before:bool whether it repeats sequence numbers that the producer had stored before in this epoch
""",
)


def judge_log(replicas: list[ReplicaFacts], cluster: Cluster) -> Iterator[tuple[str, Fields]]:
    """What the policies make of one log: verdicts and findings by its leader replica, sizes by every replica."""
    log = LogView(replicas, cluster)
    for facts in log.copies:
        yield "errors", {"log_dir": facts.log_dir, "errors": [e._asdict() for e in facts.errors]}
    for facts in log.replicas:
        if facts.outcomes is not None:
            yield "replica", _replica_row(facts, facts.outcomes, facts is log.leader)
    if log.leader.outcomes is None or log.is_gone:
        return
    verdicts = [*_stored(log.leader, log.leader.outcomes), *_unverified(log, tuple(log.leader.outcomes.by_policy))]
    verdicts.sort(key=lambda v: (v["policy"], v["base_offset"], v["producer_id"]))
    key = {name: getattr(log.leader, name) for name in ("cluster_id", "broker_id", "log_dir", "topic", "partition")}
    history = log.cluster.coordinator
    rows = [
        key | {"transactional_id": None if history is None else history.owner(v["producer_id"])} | v for v in verdicts
    ]
    for row in rows:
        yield "verdict", row
    log.leader.tables["verdicts"] = pa.Table.from_pylist(rows, VERDICTS)
    catalogue = registry.kinds()
    for finding in judge_bounded(log, (each for each in catalogue.values() if each.what_if)):
        yield "finding", finding.carried()


def _replica_row(facts: ReplicaFacts, outcomes: PolicyOutcomes, leader: bool) -> Fields:
    """A replica's numbers, as :mod:`auditor.pipeline.what_if.what_if_numbers` adds them up."""
    row = {name: getattr(facts, name) for name in ("join_key", "log_dir", "broker_id", "topic", "partition")}
    row |= {name: value for name, value in asdict(outcomes).items() if name not in ("by_policy", "hours")}
    row["leader_copy"] = leader
    row["hours"] = [[hour, *numbers] for hour, numbers in sorted(outcomes.hours.items())]
    row["policies"] = {name: _sizes(outcome) for name, outcome in outcomes.by_policy.items()}
    return row


def _sizes(outcome: PolicyOutcome) -> dict[str, int]:
    sizes = {name: value for name, value in asdict(outcome).items() if name != "verdicts"}
    return sizes | {"verdicts": len(outcome.verdicts)}


def _stored(facts: ReplicaFacts, outcomes: PolicyOutcomes) -> Iterator[Fields]:
    """The verdicts of the replays, as rows of the table."""
    plain = [name for name in VERDICT.names or () if name not in ("error", "segment", "transactional", "control")]
    for policy, outcome in outcomes.by_policy.items():
        for v in outcome.verdicts:
            row: Fields = {name: v[name].item() for name in plain}
            row |= {
                "policy": policy,
                "error": ERRORS.get(int(v["error"]), DUPLICATE_NAME),
                "file": facts.file(int(v["segment"])),
                "is_transactional": bool(v["transactional"]),
                "is_control": bool(v["control"]),
                "stored_before": bool(v["stored_before"]),
                "max_timestamp": row["max_timestamp"] if row["max_timestamp"] >= 0 else None,
            }
            yield row


def _unverified(log: LogView, policies: tuple[str, ...]) -> Iterator[Fields]:
    """Transactional data that verification would have refused (KIP-890): what the rules prove to be no one's.

    Version 2 raises the epoch with every marker, so that a late write is of an old epoch there.
    """
    catalogue = registry.kinds()
    reported: set[tuple[int | None, int | None]] = set()
    rows = log.leader.transactions
    for f in registry.judge(log, (each for each in catalogue.values() if each.unverified)):
        if (f.producer_id, f.offset) in reported or f.evidence.get("in_flight"):
            continue
        reported.add((f.producer_id, f.offset))
        found = rows[(rows["producer_id"] == f.producer_id) & (rows["first_offset"] == f.offset)]
        if not len(found):
            continue
        for policy in (name for name in policies if POLICIES[name].verifies):
            late = POLICIES[policy].bumps_each_transaction and catalogue[f.kind].unverified is Unverified.ENDED
            yield _refused(log, found[0], policy, INVALID_PRODUCER_EPOCH if late else INVALID_TXN_STATE)


def _refused(log: LogView, t: np.void, policy: str, error: int) -> Fields:
    stamp = int(t["first_timestamp"])
    return {
        "policy": policy,
        "error": ERRORS[error],
        "file": log.leader.file(int(t["segment"])),
        "position": int(t["position"]),
        "base_offset": int(t["first_offset"]),
        "last_offset": int(t["first_offset"]),
        "run_last_offset": int(t["last_offset"]),
        "producer_id": int(t["producer_id"]),
        "producer_epoch": int(t["producer_epoch"]),
        **dict.fromkeys(("base_sequence", "last_sequence", "known_epoch", "known_last_sequence"), -1),
        "max_timestamp": stamp if stamp >= 0 else None,
        "is_transactional": True,
        "is_control": False,
        "batches": int(t["batches"]),
        "records": int(t["records"]),
        "stored_before": False,
    }
