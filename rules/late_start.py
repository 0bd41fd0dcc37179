"""The rule on a coordinators' log that begins after the data: its silence says nothing of what is older."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.words import plural
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.registry import rule
from auditor.rules.seen.cluster_view import TRANSACTION_STATE
from auditor.rules.seen.finding import Finding, iso
from auditor.rules.seen.view import LogView


@rule("coordinator-log-starts-late", family="coordinator", severities={"warning": ""}, needs=(Need.TRANSACTION_STATE,))
def coordinator_log_starts_late(log: LogView) -> Iterator[Finding]:
    """The coordinators' log begins after the data

    Checks: markers of producer ids that no record of __transaction_state names, older than the first record of one of
    its partitions, though these are there from offset 0 on and were never cleaned.
    Why it matters: the topic was made again, or restored or moved without what it had: who had a transaction open then
    cannot end it, and ids begin anew. What is older is not judged by the silence of that log: this audit cannot tell a
    marker that nobody decided from one whose decision is gone.
    Can be wrong: markers that another cluster's coordinator wrote, as in files that were mirrored.
    What to do: look for transactions that are open since before (kafka-transactions.sh find-hanging), whose coordinator
    does not know them any more: they hang, and each client has to be known to be gone before it is aborted.
    Source: KIP-98, TransactionStateManager
    """
    history = log.cluster.coordinator
    if history is None or history.starts_late is None or log.topic != TRANSACTION_STATE:
        return
    if log.partition != min(history.whole_log):
        return
    late = history.starts_late
    yield log.finding(
        "coordinator-log-starts-late",
        "warning",
        f"{TRANSACTION_STATE} begins at {iso(late.begins)}, after markers of {plural(late.producers, 'producer id')} "
        f"that it never names, the first in {late.name} at {iso(late.oldest)}: what is older is not judged by it",
        producer_id=late.producer_id,
        time_ms=late.oldest,
        evidence={
            "begins": iso(late.begins),
            "oldest_marker": iso(late.oldest),
            "partition": late.name,
            "producers": late.producers,
        },
    )
