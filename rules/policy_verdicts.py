"""Rules on what another policy would have said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from auditor.base.at_rest import Fields
from auditor.base.words import plural
from auditor.model.policies import DUPLICATE_SEQUENCE_NUMBER, ERRORS, POLICIES
from auditor.rules.capacity import FAMILY, SHOWN
from auditor.rules.catalogue.registry import rule
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView


def _verdicts(log: LogView) -> list[Fields]:
    """The rows of table ``verdicts`` of the leader replica, ``max_timestamp`` in ms; a plain audit has none."""
    table = log.leader.tables.get("verdicts")
    if table is None:
        return []
    times = table["max_timestamp"].cast(pa.int64())  # a client may write years that Python's dates do not hold
    rows: list[Fields] = table.drop_columns(["max_timestamp"]).append_column("max_timestamp", times).to_pylist()
    return rows


@rule("what-if-rejection", family=FAMILY, severities={"info": ""}, what_if=True)
def what_if_rejection(log: LogView) -> Iterator[Finding]:
    """Another policy would have refused what is in the log

    Checks: the verdicts of 'auditor what-if': stored batches and markers that a broker under the named policy would
    have refused or answered otherwise; the first of each run of a producer, together by policy and error.
    Why it matters: it shows what an upgrade or a downgrade of the brokers would have changed for this very history.
    Can be wrong: only accepted batches are stored, so retries and real refusals are not seen; retention and restarts
    are simulated.
    What to do: read the table of policies in what-if.json before you decide on an upgrade.
    Source: KIP-360, KIP-890, KIP draft on keeping only the latest batch
    """
    groups: dict[tuple[str, str], list[Fields]] = {}
    for v in _verdicts(log):
        groups.setdefault((v["policy"], v["error"]), []).append(v)
    for (policy, error), rows in sorted(groups.items()):
        first = rows[0]
        yield _verdict(
            log,
            "what-if-rejection",
            "info",
            f"{policy} would have answered {plural(len(rows), 'run')} of stored batches of {log.name} with {error}, "
            f"first that of producer {first['producer_id']} at offset {first['base_offset']}",
            first,
            evidence={
                "policy": policy,
                "error": error,
                "runs": len(rows),
                "batches": sum(v["batches"] for v in rows),
                "producers": len({v["producer_id"] for v in rows}),
                "base_sequence": first["base_sequence"],
                "known_last_sequence": first["known_last_sequence"],
                "offsets": [v["base_offset"] for v in rows[:SHOWN]],
                "confidence": "likely",
            },
        )


@rule("draft-false-duplicate", family=FAMILY, severities={"warning": ""}, what_if=True)
def draft_false_duplicate(log: LogView) -> Iterator[Finding]:
    """The latest-batch draft would lose records by calling them duplicates

    Checks: the verdicts of 'auditor what-if' under latest-batch-only: a stored batch that would be answered
    DUPLICATE_SEQUENCE_NUMBER although no record with its sequences was stored before in that epoch.
    Why it matters: a client takes that answer for success. The records would be lost, and nobody would know.
    Can be wrong: the range was stored before, and retention or cleaning has removed it.
    What to do: compare these cases with the first phase of the draft, which changes brokers alone.
    Source: KIP draft on keeping only the latest batch
    """
    for v in _verdicts(log):
        duplicate = POLICIES[v["policy"]].is_draft and v["error"] == ERRORS[DUPLICATE_SEQUENCE_NUMBER]
        if duplicate and not v["stored_before"]:
            yield _verdict(
                log,
                "draft-false-duplicate",
                "warning",
                f"Under {v['policy']}, the batch of producer {v['producer_id']} (epoch {v['producer_epoch']}) at "
                f"offset {v['base_offset']} with sequence {v['base_sequence']} would be called a duplicate, and its "
                "records lost: nothing with these sequences is stored before it",
                v,
                evidence={
                    "base_sequence": v["base_sequence"],
                    "last_sequence": v["last_sequence"],
                    "known_last_sequence": v["known_last_sequence"],
                    "batches": v["batches"],
                    "confidence": "likely",
                },
            )


def _verdict(log: LogView, rule_id: str, severity: str, message: str, v: Fields, **more: Any) -> Finding:
    return log.finding(
        rule_id,
        severity,
        message,
        offset=v["base_offset"],
        last_offset=v["last_offset"],
        producer_id=v["producer_id"],
        producer_epoch=v["producer_epoch"],
        transactional_id=log.owner(v["producer_id"]),
        file=v["file"],
        position=v["position"],
        time_ms=v["max_timestamp"],
        **more,
    )
