"""What an earlier run had for held, or could not decide, looked at again in a newer input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow.compute as pc

from auditor.base.values import Fields, Values
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.seen.finding import GRAVE, Finding

Place = tuple[str, int]  # topic and partition


class Answer(StrEnum):
    """What became of it."""

    OVER = "over"
    HELD = "still held"  # or, of a finding, still so
    OTHER = "held by another"
    UNDECIDED = "not decided"


@dataclass(frozen=True, slots=True)
class Question:
    """What the earlier run left: a partition that is held (``first_offset`` of its holder's transaction, None where the
    partition was not in the input), or a finding in doubt (``fingerprint``). ``log_end``: of its log then; -1: unknown.
    """

    topic: str
    partition: int
    cluster_id: str | None
    topic_id: str | None
    log_end: int
    producer_id: int | None
    transactional_id: str | None
    first_offset: int | None
    fingerprint: str | None = None
    rule: str | None = None

    @property
    def place(self) -> Place:
        """Where it is."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Told:
    """A question with its answer. ``blocked``: who holds the partition now, a row of ``summary.json``'s ``blocked``;
    ``finding``: what is found of it now."""

    question: Question
    answer: Answer
    why: str
    blocked: Values | None = None
    finding: Finding | None = None

    @property
    def fine(self) -> bool:
        """Whether there is nothing left to do: it is over, or waits as is normal."""
        if self.answer in (Answer.OVER, Answer.UNDECIDED):
            return self.answer is Answer.OVER
        severity = self.blocked["severity"] if self.blocked is not None else self.finding and self.finding.severity
        return severity not in GRAVE

    def row(self) -> Fields:
        """As JSON has it."""
        found = None if self.finding is None else self.finding.to_dict()
        return {
            **asdict(self.question),
            "answer": self.answer.value,
            "why": self.why,
            "blocked": self.blocked,
            "finding": found,
        }


def asked(summary: Values, findings: Iterable[Values]) -> list[Question]:
    """What a run left held, the worst first, and then its findings in doubt about a partition, but for those that speak
    of what is held."""
    clusters = {each["log_dir"]: each["cluster_id"] for each in summary["inputs"]}
    logs = {(log["log_dir"], log["topic"], log["partition"]): log for log in summary["logs"]}
    found = [_of_hold(row, clusters, logs) for row in summary["blocked"]]
    holding = {id for id, rule in registry.kinds().items() if rule.blocks is not None}
    for row in findings:
        in_doubt = row.get("if_true") is not None and row["partition"] is not None
        if in_doubt and not {row["rule"], row.get("kind")} & holding:
            found.append(_of_finding(row, clusters, logs))
    return list(dict.fromkeys(found))


def _of_hold(row: Values, clusters: Values, logs: Mapping[Any, Values]) -> Question:
    log = logs.get((row["log_dir"], row["topic"], row["partition"]), {})
    return Question(
        row["topic"],
        row["partition"],
        clusters.get(row["log_dir"]),
        log.get("topic_id"),
        log.get("log_end", -1),
        row["producer_id"],
        row["transactional_id"],
        row["first_offset"],
    )


def _of_finding(row: Values, clusters: Values, logs: Mapping[Any, Values]) -> Question:
    log_dir = row["evidence"].get("log_dir")
    log = logs.get((log_dir, row["topic"], row["partition"]), {})
    return Question(
        topic=row["topic"],
        partition=row["partition"],
        cluster_id=clusters.get(log_dir),
        topic_id=log.get("topic_id"),
        log_end=log.get("log_end", -1),
        producer_id=row["producer_id"],
        transactional_id=row["transactional_id"],
        first_offset=row["offset"],
        fingerprint=row["fingerprint"],
        rule=row["rule"],
    )


class Newer:
    """A newer input as it answers: ``audit`` has read at least the partitions that are asked for."""

    def __init__(self, audit: Audit) -> None:
        self._clusters = {each.name: each.cluster_id for each in audit.inventory.log_dirs}
        self._logs: dict[Place, list[Values]] = defaultdict(list)
        for row in audit.judged["log"]:
            if row["leader_copy"]:
                self._logs[row["topic"], row["partition"]].append(row)
        self._findings = {finding.fingerprint: finding for finding in audit.findings}
        self._blocked: dict[Place, list[Values]] = defaultdict(list)
        for row in audit.blocked:
            self._blocked[row["topic"], row["partition"]].append(row)
        self._ends = _ends(audit)

    def answers(self, questions: Iterable[Question]) -> Iterator[Told]:
        """Each question with its answer, in their order."""
        for question in questions:
            log, lacking = self._log_of(question)
            yield self._of_finding(question, lacking) if question.fingerprint else self._of_hold(question, log, lacking)

    def _log_of(self, question: Question) -> tuple[Values | None, str]:
        """The leader's replica in the newer input, and why it cannot answer; empty where it can."""
        mine = [log for log in self._logs[question.place] if _agree(question.cluster_id, self._cluster(log))]
        if not mine:
            return None, "the partition is not in the newer input, or of another cluster"
        if len(mine) > 1:
            return None, "several clusters in the newer input have the partition, and the run does not say which it was"
        (log,) = mine
        if not _agree(question.topic_id, log["topic_id"]):
            return log, "its topic was made again: the log that was asked about is gone"
        if log["log_end"] < question.log_end:
            return log, (
                f"its log ends at offset {log['log_end']}, where the run's ended at {question.log_end}: an older copy, "
                "or a log that was cut off"
            )
        return log, ""

    def _cluster(self, log: Values) -> str | None:
        return self._clusters.get(log["log_dir"])

    def _of_hold(self, question: Question, log: Values | None, lacking: str) -> Told:
        holders = [row for row in self._blocked[question.place] if _agree(question.cluster_id, self._cluster(row))]
        same = next((row for row in holders if _is_same(row, question)), None)
        if same is not None and not (log is not None and lacking):
            answer = Answer.UNDECIDED if same["standing"] == "unknown" else Answer.HELD
            return Told(question, answer, str(same["why"]), same)
        if lacking or log is None or question.first_offset is None:
            return Told(question, Answer.UNDECIDED, lacking or "the partition was not in the run's input")
        end = self._ends.get((log["log_dir"], *question.place, question.producer_id, question.first_offset))
        if end is None:
            return Told(question, Answer.UNDECIDED, self._unseen(question, log))
        outcome, at = end
        why = f"its {outcome} marker is at offset {at}"
        if holders:
            other = holders[0]
            by = other["transactional_id"] or f"producer {other['producer_id']}"
            return Told(
                question, Answer.OTHER, f"{why}; {by} holds the partition at offset {other['first_offset']}", other
            )
        return Told(question, Answer.OVER, why)

    @staticmethod
    def _unseen(question: Question, log: Values) -> str:
        if log["log_start"] > (question.first_offset or 0):
            return f"its log begins at offset {log['log_start']} now, behind it: how it ended is gone"
        return "its log does not have the transaction that began there: it was cut off, or is another one"

    def _of_finding(self, question: Question, lacking: str) -> Told:
        now = self._findings.get(question.fingerprint or "")
        if now is not None:
            unsure = now.if_true is not None
            said = f"in doubt still, {now.if_true} if true" if unsure else f"{now.severity}, no longer in doubt"
            return Told(question, Answer.UNDECIDED if unsure else Answer.HELD, said, finding=now)
        return (
            Told(question, Answer.UNDECIDED, lacking) if lacking else Told(question, Answer.OVER, "not found any more")
        )


def _ends(audit: Audit) -> dict[tuple[Any, ...], tuple[str, int]]:
    """Outcome and marker of each transaction that ended, by log directory, place, producer and first offset."""
    rows = audit.table("transactions")
    ended = rows.filter(pc.and_(pc.greater_equal(rows["marker_offset"], 0), pc.greater_equal(rows["first_offset"], 0)))
    wanted = ("log_dir", "topic", "partition", "producer_id", "first_offset", "outcome", "marker_offset")
    columns = (ended[name].to_pylist() for name in wanted)
    return {row[:5]: (row[5], row[6]) for row in zip(*columns, strict=True)}


def _agree(one: object | None, other: object | None) -> bool:
    return one is None or other is None or one == other


def _is_same(row: Values, question: Question) -> bool:
    if question.first_offset is None:
        return row["first_offset"] is None and row["transactional_id"] == question.transactional_id
    return (row["producer_id"], row["first_offset"]) == (question.producer_id, question.first_offset)
