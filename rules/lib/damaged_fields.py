"""Findings about fields of a batch's header that its checksum does not cover: base offset, length, leader epoch and
magic. What is said of them else goes by the values that fit."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.at_rest import Fields
from auditor.base.errors import DamagedField, DecodeError
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.lib import repairs
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView

OFFSET, EPOCH, LENGTH, MAGIC = "base offset", "leader epoch", "length", "magic"


def damaged_fields(log: LogView, rule: str, severity: str, *names: str, **evidence: object) -> Iterator[Finding]:
    """The findings of a rule about the fields that it speaks of, one each."""
    for replica in log.replicas:
        for error in replica.errors:
            field = DamagedField.of(error)
            if field is not None and field.name in names and error.last_offset >= replica.log_start:
                yield _finding(log, rule, severity, replica, error, field, evidence)


def _finding(
    log: LogView,
    rule: str,
    severity: str,
    replica: ReplicaFacts,
    error: DecodeError,
    field: DamagedField,
    evidence: Fields,
) -> Finding:
    likely = "" if field.sure else "most likely "
    moved = field.stored - field.expected if field.name == OFFSET else 0
    return log.finding(
        rule,
        severity,
        f"A batch of {log.name} at byte {error.position} of {error.file} has the {field.name} {field.stored}, which "
        f"was {likely}{field.expected} before it was damaged (its checksum is right, and does not cover it): "
        f"{_consequence(field)}",
        replica=replica,
        file=error.file,
        position=error.position,
        offset=error.first_offset + moved,
        last_offset=None if field.name == MAGIC else error.last_offset + moved,
        **_producer(log, field),
        evidence={
            "field": field.name.replace(" ", "_"),
            "found": field.stored,
            "expected": field.expected,
            "batches": 1,
            "bytes": error.length,
            "confidence": "proved" if field.sure else "likely",
            **evidence,
        },
        advice=repairs.refetch(log, replica),
    )


def _producer(log: LogView, field: DamagedField) -> Fields:
    """Whose batch it is, where a finding of its rule says so of others."""
    if field.producer_id < 0 or field.name in (LENGTH, MAGIC):
        return {}
    owner = log.owner(field.producer_id)
    return {"producer_id": field.producer_id, "producer_epoch": field.producer_epoch, "transactional_id": owner}


def _consequence(field: DamagedField) -> str:
    """What brokers and consumers make of it (FileLogInputStream, ByteBufferLogInputStream, LogSegment.recover)."""
    if field.name == OFFSET:
        if field.stored < field.expected:
            return "consumers pass over its records, and followers refuse it"
        return "consumers go on behind these offsets, and followers refuse what follows"
    if field.name == EPOCH:
        return "followers and consumers that fetch it take the epoch over, and truncate by it"
    if field.name == MAGIC:
        return "consumers fail here" + (", and a recovery cuts the log here" if field.stored in (0, 1) else "")
    return "brokers find no batch behind it, consumers do not get past it, and a recovery cuts the log here"
