"""The rule on checkpoints that promise more log than there is."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from auditor.base.words import plural
from auditor.facts.replica_facts import ReplicaFacts
from auditor.rules.catalogue.registry import rule
from auditor.rules.catalogue.relations import By, at_the_log_end, end_that_another_has
from auditor.rules.catalogue.safeguards import CLEAN_ELECTION
from auditor.rules.integrity import FAMILY
from auditor.rules.lib import repairs
from auditor.rules.seen.finding import Finding
from auditor.rules.seen.view import LogView
from auditor.rules.settled.together import by_cause

OF_DIFFERENT_TIMES = " (files of a live directory may be of different times)"


def _of_one_directory(f: Finding) -> Hashable:
    return f.evidence["log_dir"] if f.evidence.get("in_flight") else None


def _all_beyond(found: Sequence[Finding]) -> str:
    return f"Checkpoints of {plural(len(found), 'partition')} lie beyond their log ends{OF_DIFFERENT_TIMES}"


@rule(
    "checkpoint-beyond-log-end",
    family=FAMILY,
    severities={"error": "", "critical": "for the high watermark", "info": "in a live directory"},
    outcomes={"at_risk": ""},
    absorbed_by=(
        By(("batch-crc-mismatch", "torn-tail", "record-structure-invalid", "offsets-not-increasing"), at_the_log_end),
        By("replica-missing-range", end_that_another_has),
    ),
    prevented_by=(CLEAN_ELECTION,),
    together=by_cause(_of_one_directory, _all_beyond),
)
def checkpoint_beyond_log_end(log: LogView) -> Iterator[Finding]:
    """A checkpoint promises more log than there is

    Checks: the recovery point, the high watermark or the cleaner checkpoint lies beyond the log end, or the log start
    beyond the high watermark.
    Why it matters: this replica lost its tail; when it becomes leader, acknowledged records are gone.
    Can be wrong: the checkpoint was copied after the log (live directory: then the finding says so: in flight).
    What to do: compare with the other replicas before this one becomes leader.
    Source: UnifiedLog, LogManager (checkpoints)
    """
    for replica in log.replicas:
        if not replica.segments or _end_unknown(replica):
            continue
        hw = replica.high_watermark
        checks = [
            ("high watermark", hw, replica.log_end, "critical"),
            ("recovery point", replica.recovery_point, replica.log_end, "error"),
            ("cleaner checkpoint", replica.cleaner_offset, replica.log_end, "error"),
            ("log start", replica.own_start if hw is not None else None, hw, "error"),
        ]
        beyond = [
            (name, value, limit, sev)
            for name, value, limit, sev in checks
            if value is not None and value > (limit or 0)
        ]
        if beyond:
            yield _beyond(log, replica, beyond)


def _end_unknown(replica: ReplicaFacts) -> bool:
    """Whether the newest segment could not be read to its end: then nobody knows where the log ends."""
    lost = ("unreadable", "vanished", "limit", "batch_limit")
    return any(e.file == replica.segments[-1] and e.reason in lost for e in replica.errors)


def _beyond(log: LogView, replica: ReplicaFacts, beyond: list[tuple[str, int, int | None, str]]) -> Finding:
    name, value, limit, severity = beyond[0]
    live = not replica.clean_shutdown
    what = "high watermark" if name == "log start" else "log end"
    return log.finding(
        "checkpoint-beyond-log-end",
        severity,
        f"The {name} of {log.name} is {value}, beyond its {what} {limit}"
        + (OF_DIFFERENT_TIMES if live else _lost_tail(name, replica)),
        replica=replica,
        offset=limit,
        last_offset=value,
        evidence={
            "checkpoints": {n: v for n, v, _, _ in beyond},
            "log_end": replica.log_end,
            "high_watermark": replica.high_watermark,
            **_perhaps_not_copied(replica),
        },
        doubt=live and not replica.unreadable,
        advice=repairs.compared(log, replica, limit or 0),
    )


def _lost_tail(name: str, replica: ReplicaFacts) -> str:
    if name == "log start":
        return ": brokers delete nothing beyond it"
    return ": the tail of this replica is lost" + (", or was not copied" if _perhaps_not_copied(replica) else "")


def _perhaps_not_copied(replica: ReplicaFacts) -> dict[str, str]:
    """For the evidence of a lost tail: where the log ends like a segment that has another one behind it."""
    if replica.log_end not in {link.offset for link in replica.snapshots}:
        return {}
    return {
        "confidence": "undecidable",
        "missing": f"perhaps the segment file {replica.log_end:020}.log, if not copied",
    }
