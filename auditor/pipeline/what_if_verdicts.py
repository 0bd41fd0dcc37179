"""Verdicts of each policy, and their totals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.errors import SEQUENCES
from auditor.base.evidence_keys import Evidence, read
from auditor.connectors.schema import LOG_KEY, declared
from auditor.facts.replica_facts import (
    LEAST_MS,
    SHOWN,
    VERDICT,
    PolicyOutcomes,
    ReplicaFacts,
    ReplicaPolicyOutcome,
    log_of,
)
from auditor.model.policies import (
    DRAFT,
    DRAFT_WINDOW,
    DUPLICATE_SEQUENCE_NUMBER,
    ERRORS,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    POLICIES,
)
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import Unverified
from auditor.rules.resolution.finding_limits import judge_bounded
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView, iso, viewed

# Judge step of a what-if: the verdicts of each log.


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


def judge_log(
    replicas: list[ReplicaFacts], cluster: Cluster, logs: Container[tuple[str, str, int]] = (), again: bool = False
) -> Iterator[tuple[str, Fields]]:
    """Yield the policies' effect on one log: verdicts and findings by its leader replica, sizes by every replica.

    ``logs`` are those that were read ``again``: nothing of the others then, and else nothing of these.
    """
    if (log_of(replicas[0]) in logs) is not again:
        return
    log, failures = viewed(replicas, cluster)
    if log is None:
        yield "errors", {"log_dir": replicas[0].log_dir, "errors": [e._asdict() for e in failures]}
        return
    try:
        yield from _of_policies(log)
    except Exception as error:  # noqa: BLE001
        log.fail(error, "the comparison of policies")
    log.leader.errors += log.failures
    for facts in log.copies:
        yield "errors", {"log_dir": facts.log_dir, "errors": [e._asdict() for e in facts.errors]}


def _of_policies(log: LogView) -> Iterator[tuple[str, Fields]]:
    for facts in log.replicas:
        if facts.outcomes is not None:
            yield "replica", _replica_row(facts, facts.outcomes, facts is log.leader)
    if log.leader.outcomes is None or log.is_gone or not log.cluster.is_judged:
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
    for finding in judge_bounded(log, (kind for kind in catalogue.values() if kind.what_if)):
        yield "finding", finding.carried()


def _replica_row(facts: ReplicaFacts, outcomes: PolicyOutcomes, leader: bool) -> Fields:
    """Numbers of a replica, as :func:`numbers` adds them up."""
    row = {name: getattr(facts, name) for name in ("join_key", "log_dir", "broker_id", "topic", "partition")}
    row |= {name: value for name, value in asdict(outcomes).items() if name not in ("by_policy", "hours")}
    row["leader_copy"] = leader
    row["hours"] = [[hour, *numbers] for hour, numbers in sorted(outcomes.hours.items())]
    row["policies"] = {name: _sizes(outcome) for name, outcome in outcomes.by_policy.items()}
    return row


def _sizes(outcome: ReplicaPolicyOutcome) -> dict[str, int]:
    sizes = {name: value for name, value in asdict(outcome).items() if name != "verdicts"}
    return sizes | {"verdicts": len(outcome.verdicts)}


def _stored(facts: ReplicaFacts, outcomes: PolicyOutcomes) -> Iterator[Fields]:
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
    """Transactional data that verification would have refused (KIP-890).

    The rules prove that it has no transaction.

    Transaction version 2 bumps the epoch with every marker, so that a late write has an old epoch there.
    """
    catalogue = registry.kinds()
    reported: set[tuple[int | None, int | None]] = set()
    rows = log.leader.transactions
    for f in registry.judge(log, (kind for kind in catalogue.values() if kind.unverified)):
        if (f.producer_id, f.offset) in reported or read(Evidence, f.evidence).get("in_flight"):
            continue
        reported.add((f.producer_id, f.offset))
        transactions = rows[(rows["producer_id"] == f.producer_id) & (rows["first_offset"] == f.offset)]
        if not len(transactions):
            continue
        for policy in (name for name in policies if POLICIES[name].verifies):
            late = POLICIES[policy].bumps_each_transaction and catalogue[f.kind].unverified is Unverified.ENDED
            yield _refused(log, transactions[0], policy, INVALID_PRODUCER_EPOCH if late else INVALID_TXN_STATE)


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


# Totals of a what-if: policies, memory of brokers, producer ids, epochs, effect of the draft.
#
# Bytes are estimates for a 64-bit JVM (:mod:`auditor.facts.replica_facts`); rates refer to the time in which each
# producer wrote.


LAST_CLIENT_EPOCH = 32_766
HOUR_MS = 3_600_000
YEAR_HOURS = 8_766
PLACE = ("topic", "partition", "base_offset", "producer_id", "error")
ANSWERED = (*PLACE, "run_last_offset", "producer_epoch", "transactional_id", "batches", "records")
FALSE_OR_NOT = ERRORS[DUPLICATE_SEQUENCE_NUMBER]


def numbers(
    replicas: list[Fields],
    verdicts: list[Fields],
    policies: tuple[str, ...],
    now: dict[str, str],
    duplicate_window: int = DRAFT_WINDOW,
) -> Fields:
    """Return all totals. ``now``: the policy of each log directory; ``duplicate_window``: that of the draft."""
    leading = [c for c in replicas if c["leader_copy"]]
    drafted = [v for v in verdicts if v["policy"] == DRAFT]
    return {
        "policies": [_policy(name, leading, [v for v in verdicts if v["policy"] == name]) for name in policies],
        "brokers": _brokers(replicas, policies, now),
        "producer_ids": [_ids(key, [c for c in leading if c["join_key"] == key]) for key in _keys(leading)],
        "epochs": _epochs(leading),
        "answered": _answered(verdicts),
        "draft": _draft(leading, drafted, duplicate_window) if DRAFT in policies else None,
    }


def _answered(verdicts: list[Fields]) -> list[Fields]:
    """Runs that would have been answered differently, a row per run and answer, with the policies that agree on it.

    The first :data:`SHOWN` by place; the table ``verdicts`` has all.
    """
    runs: dict[tuple[Any, ...], Fields] = {}
    for v in verdicts:
        run = {name: v[name] for name in ANSWERED}
        runs.setdefault(tuple(run.values()), run | {"policies": []})["policies"].append(v["policy"])
    return sorted(runs.values(), key=lambda r: [r[name] for name in PLACE])[:SHOWN]


def _keys(replicas: Iterable[Fields]) -> list[str]:
    return sorted({c["join_key"] for c in replicas})


def _policy(name: str, leading: list[Fields], verdicts: list[Fields]) -> Fields:
    groups: dict[tuple[str, str], list[Fields]] = defaultdict(list)
    for v in verdicts:
        groups[v["error"], v["topic"]].append(v)
    return {
        "policy": name,
        "cached_batches": POLICIES[name].cached_batches,
        "runs": len(verdicts),
        "runs_not_kept": sum(c["policies"][name]["dropped"] for c in leading),
        "batches": sum(v["batches"] for v in verdicts),
        "producers": len({v["producer_id"] for v in verdicts}),
        "errors": [
            {
                "error": error,
                "topic": topic,
                "runs": len(rows),
                "batches": sum(v["batches"] for v in rows),
                "producers": len({v["producer_id"] for v in rows}),
            }
            for (error, topic), rows in sorted(groups.items())
        ],
        "writes_to_a_forgotten_producer": sum(c["policies"][name]["forgotten"] for c in leading),
    }


def _brokers(replicas: list[Fields], policies: tuple[str, ...], now: dict[str, str]) -> list[Fields]:
    """Producer state of each log directory: the sum of its partitions' peaks, an upper bound for the broker's."""
    by_dir: dict[str, list[Fields]] = defaultdict(list)
    for c in replicas:
        by_dir[c["log_dir"]].append(c)
    fields = ("producers_peak", "bytes_peak", "producers_end", "bytes_end")
    return [
        {
            "log_dir": log_dir,
            "broker_id": group[0]["broker_id"],
            "policy_now": now.get(log_dir),
            "policies": {name: {f: sum(c["policies"][name][f] for c in group) for f in fields} for name in policies},
        }
        for log_dir, group in sorted(by_dir.items())
    ]


def _ids(join_key: str, replicas: list[Fields]) -> Fields:
    """Rate at which producer ids are allocated, by the largest in each hour, and how many wrote a single batch."""
    largest: dict[int, int] = {}
    began: Counter[int] = Counter()
    for c in replicas:
        for hour, count, newest in c["hours"]:
            largest[hour] = max(largest.get(hour, -1), newest)
            began[hour] += count
    hours: list[Fields] = []
    top = -1
    for hour in sorted(largest):
        grown = max(0, largest[hour] - top) if top >= 0 else None
        top = max(top, largest[hour])
        hours.append({"hour": iso(hour * HOUR_MS), "largest": top, "new_ids": grown, "began": began[hour]})
    grown_in = [h["new_ids"] for h in hours if h["new_ids"] is not None]
    span = max(largest) - min(largest) if largest else 0
    return {
        "cluster": join_key,
        "new_ids_per_hour": round(sum(grown_in) / span, 2) if span else None,
        "most_new_ids_in_an_hour": max(grown_in, default=None),
        "producers_by_partition": sum(c["producers_seen"] for c in replicas),
        "one_batch_by_partition": sum(c["one_batch"] for c in replicas),
        "hours": hours[-24 * 7 :],
    }


def _producers(replicas: list[Fields]) -> Iterable[Fields]:
    """The fastest producers with their partition, and the hours in which each wrote."""
    for c in replicas:
        for p in c["fastest"]:
            if p["last_time"] - p["first_time"] >= LEAST_MS:
                place = {"topic": c["topic"], "partition": c["partition"], "producer_id": p["producer_id"]}
                yield p | {"place": place, "elapsed": (p["last_time"] - p["first_time"]) / HOUR_MS}


def _epochs(replicas: list[Fields]) -> list[Fields]:
    """The producers that exhaust their epochs first at their pace so far; a coordinator then allocates a new id."""
    rows = []
    for p in _producers(replicas):
        bumps = p["last_epoch"] - p["first_epoch"]
        if bumps > 0:
            left = (LAST_CLIENT_EPOCH - p["last_epoch"]) * p["elapsed"] / bumps
            rows.append(
                p["place"]
                | {
                    "epoch": p["last_epoch"],
                    "epochs_per_hour": round(bumps / p["elapsed"], 3),
                    "hours_left": round(left, 2),
                }
            )
    return sorted(rows, key=lambda r: (r["hours_left"], r["topic"], r["partition"], r["producer_id"]))[:SHOWN]


def _draft(replicas: list[Fields], verdicts: list[Fields], threshold: int) -> Fields:
    """Effect of keeping only the latest batch on this history (the draft's own open questions)."""
    wraps = []
    for p in _producers(replicas):
        rate = p["records"] / p["elapsed"]
        wraps.append(
            p["place"]
            | {"records_per_hour": round(rate, 1), "hours_to_wraparound": round(SEQUENCES / rate, 2) if rate else None}
        )
    wraps = [w for w in wraps if w["hours_to_wraparound"] is not None]
    duplicates = [v for v in verdicts if v["error"] == FALSE_OR_NOT]
    span = max((c["span"] for c in replicas), default=0)
    plain, transactional = (sum(c["rates"][k] for c in replicas) * YEAR_HOURS / SEQUENCES for k in (0, 1))
    return {
        "threshold": threshold,
        "in_flight_span": span,
        "in_flight_share_of_threshold": round(span / threshold, 6),
        "duplicates_without_offset": sum(v["batches"] for v in duplicates),
        "false_duplicates": sum(v["batches"] for v in duplicates if not v["stored_before"]),
        "soonest_wraparounds": sorted(
            wraps, key=lambda r: (r["hours_to_wraparound"], r["topic"], r["partition"], r["producer_id"])
        )[:SHOWN],
        "wraparounds_seen": sum(sum(c["wraps"]) for c in replicas),
        # Had wraparound been solved by a new epoch instead: each costs a bump, and cuts a transaction if one is open.
        "epoch_bumps_seen_for_wraparound": sum(sum(c["wraps"]) for c in replicas),
        "aborts_seen_for_wraparound": sum(c["wraps"][1] for c in replicas),
        "epoch_bumps_a_year_for_wraparound": round(plain + transactional, 4),
        "aborts_a_year_for_wraparound": round(transactional, 4),
    }
