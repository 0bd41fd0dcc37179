"""Schemes by which frameworks name transactional ids, and what an advice says about a framework's transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import NamedTuple, TypeGuard

from auditor.base.advice import Advice, Step
from auditor.base.at_rest import Fields, Values

# The catalogue. A pattern is what the named class of the framework builds; each was read in that class's source.


class Framework(StrEnum):
    """Who names transactional ids by a scheme."""

    FLINK = "Flink"
    CONNECT = "Kafka Connect"
    MIRROR_MAKER = "MirrorMaker"
    DEBEZIUM = "Debezium"
    STREAMS = "Kafka Streams"
    KSQLDB = "ksqlDB"
    SPRING = "Spring Kafka"


class Sign(Enum):
    """What else in a cluster can show whose an id is."""

    CHECKPOINTS = auto()  # ids of the same subtask whose numbers and transactions rise together, each used once
    POOL = auto()  # ids with the same prefix that are numbered from 0
    CONNECT = auto()  # a group of protocol type connect, or the id of its leader
    STREAMS = auto()  # a group of the application's threads, or its internal topics
    TOPIC = auto()  # the topic and the partition that the id names


class Scheme(NamedTuple):
    """How a class of a framework names its ids.

    ``pattern``: of the whole id, with the group ``application`` and those that ``part`` names; ``source``: the class,
    with the ``releases`` that have it; ``alone``: whether the pattern makes the framework likely without ``sign``.
    """

    framework: Framework
    pattern: str
    part: str
    source: str
    releases: str
    sign: Sign
    alone: bool = True


OF_A_POOL = "of its pool"
_TASK = r"-(?P<task>[0-9]+)"
_PROCESS = r"-(?P<process>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-(?P<thread>[0-9]+)"
_STREAMS_TASK = r"-(?P<task>(?:[^-]+__)?[0-9]+_[0-9]+)"
_KSQL = "(?P<application>_confluent-ksql-.*(?:query|transient)_.+)"
_OF_CONNECTOR, _OF_TASK = "task {task} of connector {connector}", "task {task}"
_THREAD = "thread {thread} of process {process}"
KEPT = "kept"  # besides the statuses: one that is open, which nobody may abort
LEADING = "the worker that leads the group"
_WORKER, _V1, _V2 = "Worker.taskTransactionalId", "StreamsProducer", "StreamsProducer or ActiveTaskCreator"

# The first that is proved counts, otherwise the first that is likely. In brackets: the releases that were read.
SCHEMES = (
    Scheme(
        Framework.KSQLDB, _KSQL + _PROCESS, _THREAD, "QueryApplicationId and " + _V2,
        "exactly_once_v2 (read: confluentinc/ksql master)", Sign.STREAMS,
    ),
    Scheme(
        Framework.KSQLDB, _KSQL + _STREAMS_TASK, _OF_TASK, "QueryApplicationId and " + _V1,
        "exactly_once (read: confluentinc/ksql master)", Sign.STREAMS,
    ),
    Scheme(
        Framework.STREAMS, "(?P<application>.+)" + _PROCESS, _THREAD, _V2,
        "Kafka 2.6 on (read: 2.8.2, 4.1.0; run: 4.3.1)", Sign.STREAMS,
    ),
    Scheme(
        Framework.STREAMS, "(?P<application>.+)" + _STREAMS_TASK, _OF_TASK, _V1,
        "Kafka 0.11 to 3.9 (read: 2.8.2)", Sign.STREAMS,
    ),
    Scheme(
        Framework.MIRROR_MAKER,
        "(?P<application>.+)-(?P<connector>Mirror(?:Source|Checkpoint|Heartbeat)Connector)" + _TASK,
        _OF_CONNECTOR, "MirrorMakerConfig and " + _WORKER, "Kafka 3.5 on (read: 4.1.0)", Sign.CONNECT,
    ),
    Scheme(  # a connector that is named so; Debezium itself names no transactional id (read: 3.0.0)
        Framework.DEBEZIUM, "(?P<application>.+?)-(?P<connector>(?i:[^-]*debezium.*))" + _TASK,
        _OF_CONNECTOR, _WORKER, "Kafka 3.3 on (read: 4.1.0)", Sign.CONNECT,
    ),
    Scheme(  # the group of the connect-distributed.properties that Kafka ships
        Framework.CONNECT, "(?P<application>connect-cluster)-(?P<connector>.+)" + _TASK,
        _OF_CONNECTOR, _WORKER, "Kafka 3.3 on (read: 4.1.0; run: 4.3.1)", Sign.CONNECT,
    ),
    Scheme(
        Framework.CONNECT, "connect-cluster-(?P<application>.+)", LEADING,
        "DistributedConfig.transactionalProducerId", "Kafka 3.3 on (read: 4.1.0; run: 4.3.1)", Sign.CONNECT,
    ),
    Scheme(
        Framework.CONNECT, "(?P<application>.+?)-(?P<connector>.+)" + _TASK,
        _OF_CONNECTOR, _WORKER, "Kafka 3.3 on (read: 4.1.0; run: 4.3.1)", Sign.CONNECT, alone=False,
    ),
    Scheme(
        Framework.FLINK, "(?P<application>.+)-(?P<subtask>0|[1-9][0-9]{0,9})-(?P<number>0|[1-9][0-9]{0,18})",
        "subtask {subtask}, {numbered}", "KafkaSink's TransactionalIdFactory (a pool counts in its place)",
        "Flink 1.14 on (read: flink-connector-kafka 3.4.0, 4.0.1; run: both)", Sign.CHECKPOINTS,
    ),
    Scheme(
        Framework.FLINK, "(?P<prefix>(?P<application>.+-[0-9a-f]{32})-)(?P<number>0|[1-9][0-9]{0,18})",
        "producer {number} " + OF_A_POOL, "FlinkKafkaProducer's TransactionalIdsGenerator",
        "until flink-connector-kafka 3 (read: 1.14.6)", Sign.POOL,
    ),
    Scheme(
        Framework.SPRING, r"(?P<application>.+)\.(?P<topic>[\w.-]+)\.(?P<partition>[0-9]+)",
        "the consumer of {topic}-{partition}", "KafkaMessageListenerContainer in EOS mode V1",
        "spring-kafka 1.3.7 to 2.9 (read: 2.9.13)", Sign.TOPIC, alone=False,
    ),
    Scheme(
        Framework.SPRING, "(?P<prefix>(?P<application>.*?[^0-9-])-?)(?P<number>0|[1-9][0-9]{0,8})",
        "producer {number} " + OF_A_POOL, "DefaultKafkaProducerFactory (or another numbered pool)",
        "spring-kafka 1.3 on (read: 2.9.13, 3.3.4)", Sign.POOL, alone=False,
    ),
)  # fmt: skip
LONGEST = 1_200  # characters; FlinkKafkaProducer cuts the names of tasks at 1,000
_COMPILED = tuple((scheme, re.compile(scheme.pattern, re.DOTALL)) for scheme in SCHEMES)


@dataclass(frozen=True, slots=True)
class IdOrigin:
    """Whose a transactional id is: framework, application, and the part of it that uses the id.

    ``certain``: a second sign beside the scheme shows it; ``why``: scheme and sign in words.
    """

    framework: Framework
    application: str
    part: str
    certain: bool
    why: str

    def row(self) -> Fields:
        """The columns and keys of evidence of the same names."""
        values = (str(self.framework), self.application, self.part, "proved" if self.certain else "likely", self.why)
        return dict(zip(COLUMNS, values, strict=True))

    @classmethod
    def of(cls, row: Values) -> IdOrigin | None:
        """Restore the origin of a row's id; in a run of a release that stored none, by its scheme alone."""
        framework, application, part, certainty, why = (str(row.get(name) or "") for name in COLUMNS)
        if framework not in tuple(Framework):
            return by_scheme(row.get("transactional_id"))
        return cls(Framework(framework), application, part, certainty == "proved", why)


COLUMNS = ("framework", "application", "application_part", "framework_certainty", "framework_why")


def schemes_of(transactional_id: str) -> Iterator[tuple[Scheme, dict[str, str]]]:
    """Yield the schemes that an id fits, in the order of the catalogue, each with the groups of its pattern."""
    for scheme, pattern in _COMPILED if len(transactional_id) <= LONGEST else ():
        if match := pattern.fullmatch(transactional_id):
            yield scheme, match.groupdict()


def origin(scheme: Scheme, groups: dict[str, str], sign: str = "", *, certain: bool = False) -> IdOrigin:
    """Make the origin of an id that fits a scheme; ``sign``: what else shows it, in words."""
    why = f"named as by {scheme.source}" + (f"; {sign}" if sign else "")
    part = scheme.part.format(**{"numbered": f"checkpoint {groups.get('number')}"} | groups)
    return IdOrigin(scheme.framework, groups["application"], part, certain, why)


def by_scheme(transactional_id: str | None) -> IdOrigin | None:
    """Return the origin of an id by its form alone, which is likely at best; None where the form shows none."""
    if transactional_id is None:
        return None
    return next((origin(*of) for of in schemes_of(transactional_id) if of[0].alone), None)


# What an advice says about a transaction of a framework, by the status of the transaction.
#
# A Flink sink pre-commits a transaction with a checkpoint and commits it once the checkpoint is complete, also after a
# restart: its data is committed by restoring the job, not by writing it again. Source: KafkaCommitter,
# ExactlyOnceKafkaWriter; FLINK-23854, FLINK-39218. Connect's tasks and Streams' threads and tasks read again from the
# offsets that they committed in their transactions. Source: ExactlyOnceWorkerSourceTask, Worker.fenceZombies (KIP-618);
# StreamsProducer, StateDirectory.initializeProcessId.


_RESTORED = (
    "restore the job of {application} ({part}) from the checkpoint or savepoint: this commits its transactions and "
    "aborts the others. A manual abort, {timeout}or a cancel without a restore loses records that the checkpoint "
    "counts as written"
)
_DECIDED = (
    "restoring the job of {application} ({part}) changes nothing before its markers are written. A manual abort loses "
    "records that the checkpoint counts as written"
)
_MISSING = (
    "restoring the job of {application} ({part}) commits the transactions of the checkpoint or savepoint, but not this "
    "one, since its coordinator has no open transaction of its id. These records count as written in the checkpoint, "
    "but are lost"
)
BY_ITSELF = "at its timeout, or "  # not for a transaction past its timeout
_SOONER = "at once by kafka-transactions.sh forceTerminateTransaction (Kafka 4.1 or newer), an abort by its coordinator"
_FENCED_TASK = (
    "restart {part} ({application}): its next producer fences this one and aborts the transaction. A task then reads "
    "again from its last committed source offsets. Restart it on a running worker: if the transaction has source "
    f"offsets, a starting worker waits until it ends, {BY_ITSELF}{_SOONER}"
)
_FENCED_LEADER = (
    "make another running worker the leader of {application}: it fences this producer and aborts the transaction. A "
    f"starting worker waits until it ends, {BY_ITSELF}{_SOONER}. Then send the configuration that "
    "{part} was writing to Connect again"
)
_FENCED_THREAD = (
    "restart {application} ({part}): a thread or task that starts with this id aborts the transaction, and its input "
    "is read again. A thread's id contains the process id of its state directory. Without that directory, the "
    f"transaction ends {BY_ITSELF}{_SOONER}, and tasks whose offsets it has wait until then"
)
_WAITS = "restarting {part} ({application}) changes nothing before its markers are written: its next producer waits"
_HANGS = "restarting {part} ({application}) does not end it: its coordinator has no open transaction to abort"
_KEPT = "do not restart {part} ({application}) for it: its next producer aborts the open transaction of its id"


def _by_restart(fenced: str) -> dict[str, str]:
    sooner, over = f"to end it earlier, {fenced}", fenced.replace(BY_ITSELF, "")
    return {"open": sooner, "overdue": over, KEPT: _KEPT, "prepared": _WAITS, "hanging": _HANGS}


OF_LEADER = _by_restart(_FENCED_LEADER)
TEXTS = {
    Framework.FLINK: dict.fromkeys(("open", "overdue", KEPT), _RESTORED) | {"prepared": _DECIDED, "hanging": _MISSING},
    **dict.fromkeys((Framework.CONNECT, Framework.MIRROR_MAKER, Framework.DEBEZIUM), _by_restart(_FENCED_TASK)),
    **dict.fromkeys((Framework.STREAMS, Framework.KSQLDB), _by_restart(_FENCED_THREAD)),
}
EARLIER = (
    "the checkpoint that counts {data} as written never writes them again. Restoring the job from an earlier one does, "
    "together with everything it has committed since"
)
STOPPED_FIRST = "stop the job with a savepoint, which commits them"
LONGER_THAN_DOWN = (
    "keep transaction.timeout.ms above the checkpoint interval plus the longest downtime of the job. A transaction "
    "that times out before the job is restored loses records that the checkpoint counts as written"
)


def is_flinks(whose: IdOrigin | None) -> TypeGuard[IdOrigin]:
    """Whether an id is, or may be, Flink's: its data is committed by restoring the job."""
    return whose is not None and whose.framework is Framework.FLINK


def is_pools_of_flink(whose: IdOrigin | None) -> bool:
    """Whether an id is, or may be, of a pool of Flink's, whose producers initialise before each transaction."""
    return is_flinks(whose) and whose.part.endswith(OF_A_POOL)


def in_case(whose: IdOrigin, text: str) -> str:
    """Put the framework before a text: as a condition where it is only likely."""
    return f"{'this' if whose.certain else 'if this'} is {whose.framework}: {text}"


def guidance(whose: IdOrigin | None, status: str, timeout: str = "its timeout, ") -> str:
    """Return what to know about a transaction of this status, in a sentence; empty where it is as any producer's.

    ``status``: a status, or ``KEPT``; ``timeout``: when its coordinator aborts it, in words.
    """
    if whose is None:
        return ""
    text = (OF_LEADER if whose.part == LEADING else TEXTS.get(whose.framework, {})).get(status, "")
    if not text:
        return ""
    sentence = in_case(whose, text.format(application=whose.application, part=whose.part, timeout=timeout))
    return sentence[:1].upper() + sentence[1:]


def adapted(advice: Advice, text: str) -> Advice:
    """Put a :func:`guidance` before what an advice says to do."""
    if not text or text in advice.afterwards or Step(text) in advice.steps:
        return advice
    if advice.steps:
        return replace(advice, steps=(Step(text), *advice.steps))
    rest = f". {advice.afterwards[:1].upper()}{advice.afterwards[1:]}" if advice.afterwards else ""
    return replace(advice, afterwards=f"{text}{rest}")


def sent_again(whose: IdOrigin | None, data: str) -> str:
    """How to compensate for committed records that no consumer gets, in words. ``data``: their offsets in words."""
    if is_flinks(whose):
        return in_case(whose, EARLIER.format(data=data))
    return f"Re-send {data}"
