"""Compare the findings of an earlier run with a newer input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import pyarrow.compute as pc

from auditor.base.at_rest import Fields, Values
from auditor.base.evidence_keys import Evidence, PartitionsEvidence, read
from auditor.base.words import plural
from auditor.outputs import runs
from auditor.outputs.publish import brokers_of, facts_of
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.options import LEVELS
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import OF_ONE_REPLICA, cluster_of
from auditor.rules.seen.view import GRAVE, SEVERITIES, Finding, iso

DEFAULT_LEVEL = "error"


class RecheckAnswer(StrEnum):
    """What became of a blocked partition or a finding."""

    OVER = "over"
    HELD = "still held"
    OTHER = "held by another"
    UNDECIDED = "not decided"
    GONE = "gone"  # a finding
    THERE = "still there"
    NEW = "new"  # a finding that the run did not have
    NOT_LOOKED = "not looked at"


@dataclass(frozen=True, slots=True)
class Question:
    """What to compare: a blocked partition (``first_offset`` of the open transaction, None if the partition was not in
    the input) or a finding (``fingerprint``).

    ``log_end``: the log end in the earlier run, -1 if unknown; for a finding about one replica that of ``broker_id``,
    else that of the leader. ``partitions``: of a finding about several.
    """

    topic: str | None
    partition: int | None
    cluster_id: str | None
    topic_id: str | None
    log_end: int
    producer_id: int | None
    transactional_id: str | None
    first_offset: int | None
    fingerprint: str | None = None
    rule: str | None = None
    kind: str | None = None
    severity: str | None = None
    last_offset: int | None = None
    group_id: str | None = None
    broker_id: int | None = None
    partitions: tuple[str, ...] | None = None

    @property
    def place(self) -> tuple[str | None, int | None]:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def waits(self) -> bool:
        """Whether it is about blocked readers, which a running cluster shows."""
        return self.kind is None or self.kind not in registry.kinds() or registry.kinds()[self.kind].blocks is not None


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with its answer. ``blocked``: the row of ``blocked`` in ``summary.json`` now; ``finding``: the
    finding now; ``fails``: whether that is at or above the run's ``--fail-on``."""

    question: Question
    answer: RecheckAnswer
    why: str
    blocked: Values | None = None
    finding: Finding | None = None
    fails: bool = False

    @property
    def fine(self) -> bool:
        """Whether nothing is left to do: it is over, or within its timeout."""
        if self.answer in (RecheckAnswer.HELD, RecheckAnswer.OTHER):
            return self.blocked is None or self.blocked["severity"] not in GRAVE
        return self.answer in (RecheckAnswer.OVER, RecheckAnswer.GONE) or (
            self.answer is RecheckAnswer.THERE and not self.fails
        )

    def row(self) -> Fields:
        """Return it as a JSON object."""
        finding = None if self.finding is None else self.finding.to_dict()
        return {
            **asdict(self.question),
            "answer": self.answer.value,
            "why": self.why,
            "blocked": self.blocked,
            "finding": finding,
        }


def level_of(summary: Values) -> str:
    """Return the ``--fail-on`` of a run; :data:`DEFAULT_LEVEL` for ``never`` or unknown."""
    level = str((summary.get("verdict") or {}).get("fail_on") or DEFAULT_LEVEL)
    return level if level in LEVELS and level != "never" else DEFAULT_LEVEL


def failing(summary: Values) -> tuple[str, ...]:
    """Return the severities at or above :func:`level_of`."""
    return SEVERITIES[: SEVERITIES.index(level_of(summary)) + 1]


def questions_of(summary: Values, findings: Iterable[Values]) -> list[Question]:
    """Return what to compare: blocked partitions, the worst first; findings at or above ``--fail-on`` that no
    baseline suppresses; inconclusive findings about a partition, except those about blocked readers."""
    clusters = {log_dir["log_dir"]: log_dir["cluster_id"] for log_dir in summary["inputs"]}
    logs = {(log["log_dir"], log["topic"], log["partition"]): log for log in summary["logs"]}
    questions = [_of_hold(row, clusters, logs) for row in summary["blocked"]]
    holding = {id for id, rule in registry.kinds().items() if rule.blocks is not None}
    accepted, grave = suppressed(summary), failing(summary)
    for row in findings:
        in_doubt = row.get("if_true") is not None and row["partition"] is not None
        in_doubt = in_doubt and not {row["rule"], row.get("kind")} & holding
        if (row["severity"] in grave and row["fingerprint"] not in accepted) or in_doubt:
            questions.append(_of_finding(row, clusters, logs))
    return list(dict.fromkeys(questions))


def uncompared(summary: Values, findings: Iterable[Values]) -> list[str]:
    """Return which findings are not compared, as lines."""
    accepted, grave = suppressed(summary), failing(summary)
    rows = [row for row in findings if row.get("if_true") is None or row["partition"] is None]
    below = sum(row["severity"] not in grave for row in rows)
    accepted_count = sum(row["severity"] in grave and row["fingerprint"] in accepted for row in rows)
    lines = [f"{plural(below, 'finding')} below {level_of(summary)}"] if below else []
    return lines + ([f"{plural(accepted_count, 'finding')} suppressed by the baseline"] if accepted_count else [])


def suppressed(summary: Values) -> Collection[str]:
    """Return the fingerprints of the findings that the run's baseline suppresses."""
    return frozenset((summary.get("baseline") or {}).get("accepted") or ())


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
    log_dir, kind = read(Evidence, row["evidence"]).get("log_dir"), row.get("kind") or row["rule"]
    log = logs.get((log_dir, row["topic"], row["partition"]), {})
    return Question(
        topic=row["topic"],
        partition=row["partition"],
        cluster_id=cluster_of(row, clusters),
        topic_id=log.get("topic_id"),
        log_end=log.get("log_end", -1),
        producer_id=row["producer_id"],
        transactional_id=row["transactional_id"],
        first_offset=row["offset"],
        fingerprint=row["fingerprint"],
        rule=registry.current_id(row["rule"]),
        kind=kind,
        severity=row["severity"],
        last_offset=row["last_offset"],
        group_id=row["group_id"],
        broker_id=row["broker_id"] if _of_one_replica(kind) else None,
        partitions=_partitions(row["evidence"]),
    )


def _of_one_replica(kind: str) -> bool:
    return kind in registry.kinds() and registry.kinds()[kind].family in OF_ONE_REPLICA


def _partitions(evidence: Values) -> tuple[str, ...] | None:
    # None if the evidence does not list all of them.
    several = read(PartitionsEvidence, evidence)
    named = several.get("partitions")
    whole = isinstance(named, list) and several.get("partitions_in_all") == len(named)
    return tuple(map(str, named)) if whole and isinstance(named, list) else None


def exit_code(answers: Iterable[AnsweredQuestion], unread: bool) -> int:
    """Return 1 if something is still there, inconclusive or new; else 3 if something could not be looked at or part
    of the newer input was ``unread``; else 0."""
    left = {answer.answer for answer in answers if not answer.fine}
    return 1 if left - {RecheckAnswer.NOT_LOOKED} else 3 if left or unread else 0


class Newer:
    """A newer input, compared with ``earlier``, a run's summary. ``audit`` has read at least the partitions asked
    about; ``live``: it is of a running cluster, whose files cannot be seen."""

    def __init__(self, audit: Audit, earlier: Values, live: bool = False) -> None:
        self._clusters = {log_dir.name: log_dir.cluster_id for log_dir in audit.inventory.log_dirs}
        self._live, self._grave = live, failing(earlier)
        self._copies: dict[Any, list[Values]] = defaultdict(list)
        for row in audit.judged["log"]:
            self._copies[row["topic"], row["partition"]].append(row)
        self._findings = audit.findings
        self._causes: dict[Any, list[Finding]] = defaultdict(list)  # of what findings explain, by kind and place
        for finding in audit.findings:
            for also in read(Evidence, finding.evidence).get("also", ()) if finding.severity in self._grave else ():
                self._causes[also["rule"], also["topic"], also["partition"]].append(finding)
        self._blocked: dict[Any, list[Values]] = defaultdict(list)
        for row in audit.blocked:
            self._blocked[row["topic"], row["partition"]].append(row)
        self._ends = _ends(audit)
        self._sight = _Sight(audit, earlier, live)

    def answers(
        self, questions: Sequence[Question], suppressed_ids: Collection[str] = ()
    ) -> Iterator[AnsweredQuestion]:
        """Yield each question with its answer, in order; then, for a copy, the new findings at or above ``--fail-on``.

        ``suppressed_ids``: fingerprints that are not new. A running cluster is read only from the questions' offsets
        on, which is not enough to find new ones.
        """
        asked: dict[Question | str, Question] = {q: q for q in questions if q.fingerprint}
        older, suppressed = self._sight.older(), frozenset(suppressed_ids)
        changes = runs.compared(asked, self._found(asked.values()), self._why_unseen)
        for question in questions:
            if not question.fingerprint:
                yield self._of_hold(question, *self._log_of(question))
            elif older:
                yield AnsweredQuestion(question, RecheckAnswer.NOT_LOOKED, older)
            elif (now := changes.still.get(question)) is not None:
                yield self._of_finding(question, now)
            else:
                yield self._of_missing(question, question in changes.unseen)
        for finding in () if self._live or older else changes.new.values():
            if finding.severity in self._grave and finding.fingerprint not in suppressed:
                new_question = self._sight.dated(_of_finding(finding.to_dict(), self._clusters, {}))
                if not self._log_of(new_question)[1]:
                    yield AnsweredQuestion(
                        new_question, RecheckAnswer.NEW, finding.message, finding=finding, fails=True
                    )

    def _found(self, questions: Iterable[Question]) -> dict[Question | str, Finding]:
        # By the questions that ask for them; by fingerprint those that none asks for.
        asked: dict[Any, list[Question]] = defaultdict(list)  # by rule and topic
        for question in questions:
            asked[question.fingerprint].append(question)
            asked[question.rule, question.topic].append(question)
            asked[question.rule,].append(question)
        known = {finding.fingerprint for finding in self._findings}
        present: dict[Question | str, Finding] = {}
        for finding in self._findings:
            exact = asked.get(finding.fingerprint, [])
            present |= dict.fromkeys(exact, finding)
            rule, topic = finding.rule, finding.topic
            places = ((rule,),) if topic is None else ((rule, topic), (rule, None))
            near = (question for place in places for question in asked.get(place, ()))
            wanted = [q for q in near if (not exact or q.fingerprint not in known) and self._is_it(q, finding)]
            keys: list[Question | str] = [*wanted, *exact]
            for key in keys or [finding.fingerprint]:
                present.setdefault(key, finding)
        return present

    def _log_of(self, question: Question) -> tuple[Values | None, str]:
        # The replica to compare with, and why it cannot answer; empty if it can.
        if question.partition is None:
            return None, ""
        copies = [log for log in self._copies[question.place] if _agree(question.cluster_id, self._cluster(log))]
        if not copies:
            return None, "the partition is missing from the newer input, or belongs to another cluster"
        if len({self._cluster(log) for log in copies}) > 1:
            return None, "several clusters have this partition, and the earlier run does not name its cluster"
        if question.broker_id is None or self._live:
            copies = [log for log in copies if log["leader_copy"]]
        else:
            copies = [log for log in copies if log["broker_id"] == question.broker_id]
        if not copies:
            return None, f"broker {question.broker_id} has no replica of the partition in the newer input"
        log = max(copies, key=lambda log: log["log_end"])
        if not _agree(question.topic_id, log["topic_id"]):
            return log, "its topic was re-created: the earlier log was deleted"
        if log["log_end"] < question.log_end:
            return log, (
                f"log end offset {log['log_end']} is below the earlier {question.log_end}: older copy or truncated log"
            )
        return log, ""

    def _cluster(self, log: Values) -> str | None:
        return self._clusters.get(log["log_dir"])

    def _of_hold(self, question: Question, log: Values | None, lacking: str) -> AnsweredQuestion:
        holders = [row for row in self._blocked[question.place] if _agree(question.cluster_id, self._cluster(row))]
        same = next((row for row in holders if _is_same(row, question)), None)
        if same is not None and not (log is not None and lacking):
            answer = RecheckAnswer.UNDECIDED if same["certainty"] == "inconclusive" else RecheckAnswer.HELD
            return AnsweredQuestion(question, answer, str(same["why"]), same)
        if lacking or log is None or question.first_offset is None:
            return AnsweredQuestion(
                question, RecheckAnswer.NOT_LOOKED, lacking or "the partition was not in the input of the earlier run"
            )
        end = self._ends.get((log["log_dir"], *question.place, question.producer_id, question.first_offset))
        if end is None:
            return AnsweredQuestion(question, RecheckAnswer.NOT_LOOKED, self._unseen(question, log))
        outcome, marker_offset = end
        why = f"its {outcome} marker is at offset {marker_offset}"
        if holders:
            other = holders[0]
            by = other["transactional_id"] or f"producer id {other['producer_id']}"
            return AnsweredQuestion(
                question,
                RecheckAnswer.OTHER,
                f"{why}; {by} now blocks the partition at offset {other['first_offset']}",
                other,
            )
        return AnsweredQuestion(question, RecheckAnswer.OVER, why)

    @staticmethod
    def _unseen(question: Question, log: Values) -> str:
        if log["log_start"] > (question.first_offset or 0):
            return f"the log now starts at offset {log['log_start']}, above it: its end was deleted"
        return "the log has no transaction at that offset: truncated, or another log"

    def _of_finding(self, question: Question, now: Finding) -> AnsweredQuestion:
        if now.if_true is not None:
            return AnsweredQuestion(
                question, RecheckAnswer.UNDECIDED, f"{now.if_true} if confirmed: {now.message}", finding=now
            )
        fails = now.severity in self._grave
        if not fails and question.severity in self._grave:
            return AnsweredQuestion(question, RecheckAnswer.GONE, f"{now.severity} now: {now.message}", finding=now)
        return AnsweredQuestion(question, RecheckAnswer.THERE, f"{now.severity}: {now.message}", None, now, fails)

    def _of_missing(self, question: Question, unseen: bool) -> AnsweredQuestion:
        if (cause := self._explained(question)) is not None:
            fails = cause.severity in self._grave
            return AnsweredQuestion(
                question, RecheckAnswer.THERE, f"part of {cause.rule} now: {cause.message}", None, cause, fails
            )
        if unseen:
            return AnsweredQuestion(question, RecheckAnswer.NOT_LOOKED, self._why_unseen(question))
        return AnsweredQuestion(question, RecheckAnswer.GONE, "not found")

    def _why_unseen(self, question: Question) -> str:
        return self._log_of(question)[1] or self._unseen_live(question) or self._sight.lacks(question)

    def _is_it(self, question: Question, finding: Finding) -> bool:
        if question.fingerprint == finding.fingerprint:
            return True
        row = finding.to_dict()
        if question.rule != finding.rule or not _agree(question.cluster_id, cluster_of(row, self._clusters)):
            return False
        if question.broker_id is not None and question.broker_id != finding.broker_id:
            return False
        names = ("producer_id", "transactional_id", "group_id")
        return (
            all(_agree(getattr(question, name), row[name]) for name in names)
            and _share(_places(question), _places(_of_finding(row, self._clusters, {})))
            and _overlap(question, finding)
        )

    def _explained(self, question: Question) -> Finding | None:
        # It may be one of the findings that another one explains.
        for finding in self._causes[question.kind, *question.place]:
            if _agree(question.cluster_id, cluster_of(finding.to_dict(), self._clusters)):
                return finding
        return None

    def _unseen_live(self, question: Question) -> str:
        if not self._live:
            return ""
        if not question.waits:
            return (
                "a running cluster shows no files and, unless all of it is read, no earlier records: give a newer copy "
                "as PATH"
            )
        log, _ = self._log_of(question)
        if log is None or question.first_offset is None or log["log_start"] <= question.first_offset:
            return ""
        return f"the log starts, or was read, from offset {log['log_start']}, above it"


class _Sight:
    # Whether the newer audit could see what the earlier run saw, by the rules for kept runs.
    def __init__(self, audit: Audit, earlier: Values, live: bool) -> None:
        self._live = live
        of_dir = {row["log_dir"]: row["cluster_id"] for row in earlier["inputs"]}
        logs = pipeline_summary.logs(audit)
        self._then_logs: dict[tuple[Any, ...], int] = {}  # and where each ended
        for row in earlier["logs"]:
            log = of_dir.get(row["log_dir"]), row["topic"], row["partition"]
            self._then_logs[log] = max(self._then_logs.get(log, -1), row["log_end"] if row["leader_copy"] else -1)
        self._now_logs = set(zip(*(logs[name].to_pylist() for name in runs.LOG), strict=True))
        self._then = {"brokers": brokers_of((row["cluster_id"], row["broker_id"]) for row in earlier["inputs"])}
        self._now = facts_of(audit, logs)
        self._newest = earlier.get("newest"), iso(max((c.newest_time for c in audit.clusters.values()), default=-1))

    def lacks(self, question: Question) -> str:
        log = (question.cluster_id, *question.place)
        lacking = self._then_logs.keys() - self._now_logs
        if self._live:  # every broker of a running cluster answers for its leaders, and it has its internal topics
            return runs.why_unseen_by_facts({}, self._now | {"all_logs": False}, log, lambda: lacking & {log})
        return runs.why_unseen_by_facts(self._then, self._now, log, lambda: lacking)

    def older(self) -> str:
        before, now = self._newest
        if self._live or before is None or (now is not None and now >= before):
            return ""
        return f"its newest broker timestamp is {now or 'unknown'}; that of the earlier run is {before}"

    def dated(self, question: Question) -> Question:
        return replace(question, log_end=self._then_logs.get((question.cluster_id, *question.place), -1))


def _places(question: Question) -> frozenset[str]:
    # Empty: the finding names no partition, so it may be about any.
    own = () if question.partition is None else (f"{question.topic}-{question.partition}",)
    return frozenset(question.partitions or own)


def _share(one: frozenset[str], other: frozenset[str]) -> bool:
    return not one or not other or bool(one & other)


def _overlap(question: Question, finding: Finding) -> bool:
    # Also if one of them has no offset.
    if question.first_offset is None or finding.offset is None:
        return True
    until = question.first_offset if question.last_offset is None else question.last_offset
    ending = finding.offset if finding.last_offset is None else finding.last_offset
    return question.first_offset <= ending and finding.offset <= until


def _ends(audit: Audit) -> dict[tuple[Any, ...], tuple[str, int]]:
    # Outcome and marker of each complete transaction, by log directory, place, producer and first offset.
    rows = audit.table("transaction_partitions")
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
