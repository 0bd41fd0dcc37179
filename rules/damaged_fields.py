"""The rule on fields of a batch's header that its checksum does not cover."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.errors import DamagedField, DecodeError
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules import commands, repairs
from auditor.rules.finding import Finding
from auditor.rules.integrity import FAMILY
from auditor.rules.registry import rule
from auditor.rules.view import LogView

EPOCH = "leader epoch"
BRIEFLY = 100  # findings of one replica; a broken disk has few


@rule(
    "damaged-field",
    family=FAMILY,
    severity="critical; error for a leader epoch",
    voids=True,
)
def damaged_field(log: LogView) -> Iterator[Finding]:
    """A field of a batch's header is damaged where no checksum covers it

    Checks: base offset, leader epoch, length and magic stand before the checksum of a batch. Offsets and leader epochs
    only rise in a log: one that contradicts the batches on both sides, which go on as if it did not, is damaged.
    Length and magic are, where the checksum is right with the value that fits. The expected value is taken for
    everything else that is said.
    Why it matters: nothing notices it before it is read. Consumers skip records, or stop there; followers refuse the
    batch, or take the wrong leader epoch over; a recovery may cut the log there.
    Can be wrong: that a field is damaged is sure; which value it had is likely only where cleaning has left holes, or
    at the end of a log, where no batch follows. A last batch whose wrong value contradicts nothing is not found.
    What to do: before any restart see whether another in-sync replica is sound; then stop the broker, move the folder
    away, start. With one replica only keep a copy of the folder.
    Source: KIP-98; DefaultRecordBatch, FileLogInputStream, ByteBufferLogInputStream
    """
    for replica in log.replicas:
        found = ((error, DamagedField.of(error)) for error in replica.errors)
        for _, (error, field) in zip(range(BRIEFLY), ((e, f) for e, f in found if f is not None), strict=False):
            yield _finding(log, replica, error, field)


def _finding(log: LogView, replica: ReplicaFacts, error: DecodeError, field: DamagedField) -> Finding:
    right = "" if field.sure else "most likely "
    return log.finding(
        "damaged-field",
        "error" if field.name == EPOCH else "critical",
        f"The {field.name} of a batch of {log.name} at byte {error.position} of {error.file} is {field.stored}, "
        f"{right}{field.expected} before it was damaged (its checksum is right, and does not cover it): "
        f"{_consequence(field)}",
        replica=replica,
        file=error.file,
        position=error.position,
        offset=error.first_offset,
        last_offset=error.last_offset,
        evidence={
            "field": field.name.replace(" ", "_"),
            "found": field.stored,
            "expected": field.expected,
            "bytes": error.length,
            "confidence": "proved" if field.sure else "likely",
        },
        remedy=f"Look first at {commands.dump(error.file, '--deep-iteration')} ; {repairs.refetch(log, replica)}",
    )


def _consequence(field: DamagedField) -> str:
    """What a broker or a consumer makes of it."""
    if field.name == "base offset":
        if field.stored < field.expected:
            return "consumers pass over its records, and followers refuse it"
        return "consumers go on behind these offsets, and followers refuse what follows"
    if field.name == EPOCH:
        return "followers and consumers that fetch it take the epoch over, and truncate by it"
    if field.name == "magic":
        return "consumers fail here" + (", and a recovery cuts the log here" if field.stored in (0, 1) else "")
    return "brokers find no batch behind it, consumers do not get past it, and a recovery cuts the log here"
