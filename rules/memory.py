"""Rules on what running brokers hold in memory, where the audit could ask them (``auditor live``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auditor.base.advice import Advice, Look, Verdict
from auditor.base.at_rest import Fields
from auditor.model.transaction_states import LOGGED, TransactionValue
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.lib import commands, stops
from auditor.rules.markers import FAMILY
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.named import SKEW_MS
from auditor.rules.seen.view import LogView
from auditor.rules.transactions.state_steps import may_be_held


@rule(
    "broker-memory-differs",
    family=FAMILY,
    severities={"warning": "", "info": "where an append of the coordinator may have failed"},
    needs=(Need.MEMORY,),
)
def broker_memory_differs(log: LogView) -> Iterator[Finding]:
    """A running broker's memory is not what its log says

    Checks: of producers and transactional ids that did not change while the log was read: epoch, last sequence,
    coordinator epoch and open transaction as the leader has them in memory (DescribeProducers), and state, producer id,
    epoch and partitions as the coordinator has them (ListTransactions, DescribeTransactions), against the replay of the
    log. Only auditor live can ask. Info where the coordinator has what it had before its last record, or the last few:
    their append has failed (coordinator-append-failed), and it goes on from there.
    Why it matters: brokers decide by their memory, and rebuild it from the log when they start: such a broker accepts
    or refuses other batches than it will after its next start.
    Can be wrong: memory that was rebuilt from a snapshot which knows more than the log still holds.
    What to do: compare with kafka-transactions.sh describe-producers; restart the broker or move the leader, which
    rebuilds the memory; keep both outputs for a report. Before the restart, see to the broker's partitions without
    another in-sync replica, as the finding says.
    Source: KIP-664
    """
    if (memory := log.leader.producer_memory) is not None:
        for producer in memory.unchanged:
            yield from _producer(log, producer)
        yield from _unknown_to_the_broker(log, memory.ids)
    if (coordinator := log.leader.coordinator_memory) is not None:
        for transactional_id, listing in sorted(coordinator.transactions.items()):
            yield from _transactional_id(log, transactional_id, listing, coordinator.asked_at)


def _producer(log: LogView, held: dict[str, int]) -> Iterator[Finding]:
    rows = log.leader.producers
    mine = rows[rows["producer_id"] == held["producer_id"]]
    started = held["txn_first_offset"]
    if not len(mine):
        if started >= log.leader.log_start:
            yield _differs(log, held, {"txn_first_offset": started}, {"txn_first_offset": None})
        return
    row = mine[0]
    names = ["txn_first_offset"] if started < 0 or started >= log.leader.log_start else []
    if row["batches"] or row["markers"]:
        names.append("producer_epoch")
    if row["batches"] and row["data_epoch"] == row["producer_epoch"] and log.has_sequences:
        names.append("last_sequence")
    if row["markers"]:
        names.append("coordinator_epoch")
    other = [name for name in names if held[name] != int(row[name])]
    if other:
        yield _differs(log, held, {n: held[n] for n in other}, {n: int(row[n]) for n in other})


def _unknown_to_the_broker(log: LogView, known: list[int]) -> Iterator[Finding]:
    """Transactions that are open in the log and that the broker, asked before and after, knows nothing of."""
    rows = log.leader.transactions
    for row in rows[(rows["marker_offset"] < 0) & ~np.isin(rows["producer_id"], known)]:
        if row["first_offset"] >= log.leader.log_start:
            held = {"producer_id": int(row["producer_id"]), "producer_epoch": int(row["producer_epoch"])}
            first = int(row["first_offset"])
            yield _differs(log, held, {"txn_first_offset": None}, {"txn_first_offset": first}, offset=first)


def _differs(
    log: LogView, held: dict[str, int], memory: Fields, replayed: Fields, offset: int | None = None
) -> Finding:
    words = ", ".join(f"{name} {memory[name]} in memory, {replayed[name]} by the log" for name in memory)
    return log.finding(
        "broker-memory-differs",
        "warning",
        f"The leader of {log.name} remembers producer {held['producer_id']} otherwise than the log says: {words}",
        offset=offset,
        producer_id=held["producer_id"],
        producer_epoch=held["producer_epoch"],
        transactional_id=log.owner(held["producer_id"]),
        evidence={"found": memory, "expected": replayed},
        advice=_what_to_do(log),
    )


def _transactional_id(log: LogView, transactional_id: str, held: Fields, asked_at: int) -> Iterator[Finding]:
    history = log.cluster.coordinator
    entry = history.last(transactional_id) if history is not None else None
    if held["state"] not in LOGGED or log.leader.ends_early:
        return
    if entry is not None and entry.record_time > asked_at - SKEW_MS:
        return  # it is at work: that it was asked twice in the same state says nothing
    memory: Fields = {"state": held["state"], "producer_id": held["producer_id"]}
    logged: Fields = {"state": entry and entry.state, "producer_id": entry and entry.producer_id}
    if entry is not None and held["producer_epoch"] >= 0:
        memory |= {"producer_epoch": held["producer_epoch"], "partitions": sorted(held["partitions"])}
        logged |= {"producer_epoch": entry.producer_epoch, "partitions": sorted(entry.partitions)}
    other = [name for name in memory if memory[name] != logged[name]]
    if other:
        words = ", ".join(f"{name} {memory[name]} in memory, {logged[name]} by the log" for name in other)
        failed = history is not None and any(
            memory.items() <= _as_listed(value).items() for value in may_be_held(history, transactional_id)
        )
        yield log.finding(
            "broker-memory-differs",
            "info" if failed else "warning",
            f"The coordinator remembers {transactional_id} otherwise than {log.name} says: {words}"
            + (": the append of its last record failed" if failed else ""),
            offset=None if entry is None else entry.offset,
            producer_id=held["producer_id"],
            transactional_id=transactional_id,
            evidence={"found": {n: memory[n] for n in other}, "expected": {n: logged[n] for n in other}},
            advice=_what_to_do(log),
        )


def _what_to_do(log: LogView) -> Advice:
    advice = Advice(
        Verdict.LOOK,
        look=(Look(commands.describe_producers(log.topic, log.partition), "it still differs from what the log gives"),),
        then="a restart of the broker, or a move of the leader, rebuilds its memory from the log: do it before the "
        "difference does harm, and keep both outputs for a report to Kafka",
    )
    return stops.at_risk(log.cluster, log.cluster.last_leader(log.topic, log.partition), advice)


def _as_listed(value: TransactionValue) -> Fields:
    """A value as the coordinator is asked for it."""
    return {
        "state": value.state.value,
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "partitions": sorted(value.partitions),
    }
