"""A running cluster through kafka-python: read-only requests, each bounded in time."""

from __future__ import annotations

import logging
import struct
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

from kafka.errors import (
    KafkaError,
    NoError,
    SaslAuthenticationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    for_code,
)
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.admin.cluster import DescribeQuorumRequest
from kafka.protocol.admin.groups import ListGroupsRequest
from kafka.protocol.admin.topics import DescribeTopicPartitionsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import FetchRequest, IsolationLevel, ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError

Name = tuple[str, int]  # topic, partition
Failure = tuple[Name | None, str]  # the subject of a request, and why it failed

EARLIEST, LATEST = int(OffsetSpec.EARLIEST), int(OffsetSpec.LATEST)
READ_UNCOMMITTED, READ_COMMITTED = int(IsolationLevel.READ_UNCOMMITTED), int(IsolationLevel.READ_COMMITTED)
CONSUMER, DEBUGGER = (
    -1,
    -2,
)  # replica ids: the latter reads up to the end of any replica
FETCH_BY_NAME = 12  # from version 13 on topics are identified by id
TOPIC, BROKER = 2, 4  # types of configuration resources
VOTER_GONE_MS = 10_000
QUORUM = ("__cluster_metadata", 0)
PARTITIONS_AT_ONCE = 2_000
ATTEMPTS = 3
PAUSE_S = 0.5
MOST_ANSWER_BYTES = 1 << 28  # size that an answer may state; a larger one ends the connection
LOGIN_REFUSED = (SaslAuthenticationFailedError, UnsupportedSaslMechanismError)
MOST_QUOTED = 200  # characters of a broker's message
# What kafka-python may raise, beside its own errors, for an answer that is not a Kafka broker's.
MALFORMED = (struct.error, ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError)


class PartitionMetadata(NamedTuple):
    """A partition in the cluster's metadata; brokers by id, ``leader`` -1 for none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def name(self) -> Name:
        """Topic and partition."""
        return (self.topic, self.partition)


class Producer(NamedTuple):
    """A producer in a broker's memory (DescribeProducers, KIP-664); -1 means absent, times are ms."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class ListedTransaction(NamedTuple):
    """A transactional id in its coordinator's memory; -1 and empty if not described further."""

    state: str
    producer_id: int
    producer_epoch: int = -1
    partitions: frozenset[str] = frozenset()


class ControllerQuorum(NamedTuple):
    """The controllers of a KRaft cluster (DescribeQuorum): the active one (-1: none), the voters, and those that did
    not fetch from it within :data:`VOTER_GONE_MS`."""

    leader: int
    voters: tuple[int, ...]
    gone: tuple[int, ...]


class BrokerFeatures(NamedTuple):
    """Levels of features: those in force, and the highest that a broker supports."""

    finalized: dict[str, int]
    supported: dict[str, int]


class FetchedBatches(NamedTuple):
    """Stored batches, the last of them perhaps incomplete, and the log's offsets at that time."""

    data: bytes
    high_watermark: int
    last_stable_offset: int


class _Connections(KafkaConnectionManager):
    """kafka-python's connections, except that a refused login is never tried again, at no broker of the cluster.

    Behind LDAP, Kerberos or a hosted service some wrong attempts lock the account.
    """

    refused: KafkaError | None = None

    def get_connection(self, *args: object, **kwargs: object) -> Any:
        """A connection, perhaps not yet established. Errors: the refusal, after one."""
        if self.refused is not None:
            raise self.refused
        connection = super().get_connection(*args, **kwargs)
        connection.init_future.add_errback(self._ended)
        return connection

    def _ended(self, error: BaseException) -> None:
        if isinstance(error, LOGIN_REFUSED):
            self.refused = error


class LiveCluster:
    """A connection to a cluster, which sends only read-only requests of :mod:`kafka.protocol`.

    ``config`` has kafka-python's names. Errors: :class:`AuditInputError` if no broker can be reached. Refusals of
    brokers are not raised but collected in ``failures``.
    """

    def __init__(self, bootstrap: str, config: Fields, sleep: Callable[[float], None] = time.sleep) -> None:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its debug lines contain the configuration with secrets
        settings = {"receive_message_max_bytes": MOST_ANSWER_BYTES, "request_timeout_ms": 30_000, **config}
        self.failures: list[Failure] = []
        self.sleep = sleep
        self.net = NetworkSelector(**settings)
        try:
            self.manager = _Connections(self.net, bootstrap_servers=bootstrap.split(","), **settings)
            self.net.start()
            self.manager.bootstrap(settings["request_timeout_ms"])
        except (KafkaError, OSError, *MALFORMED) as error:
            self.net.stop()
            if isinstance(error, LOGIN_REFUSED):
                raise AuditInputError(_login(bootstrap, error, settings)) from None
            raise AuditInputError(
                f"cannot reach a cluster at {bootstrap} ({type(error).__name__}); check the address, "
                "that a Kafka broker listens there, and the security, SASL and TLS options"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.manager.close()
        self.net.stop()

    def _ask(self, request: Any, node: int | None, about: str, *, newer: bool = False) -> Any:
        # None after some attempts, with a failure. A request object can be sent once. newer: older brokers lack it.
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self.sleep(PAUSE_S * attempt)
            try:
                return without_nulls(self.manager.run(self._send, request(), node))
            except (KafkaError, OSError) as error:
                problem = type(error).__name__
                if newer and isinstance(error, UnsupportedVersionError):
                    return None
                if not getattr(error, "retriable", True):
                    break
            except MALFORMED as error:
                problem = f"unreadable response ({type(error).__name__})"
                break
        self.failures.append((None, f"{about}: {problem}"))
        return None

    async def _send(self, request: object, node: int | None) -> Any:
        return await self.manager.send(request, node_id=node)

    def _bad(self, code: int, name: Name | None, about: str) -> bool:
        # Whether an answer is an error, which is then collected.
        error = for_code(code)
        if error is NoError:
            return False
        self.failures.append((name, f"{about}: {error.__name__}"))
        return True

    def metadata(self) -> tuple[str | None, list[int], list[PartitionMetadata]]:
        """Cluster id, broker ids, and every partition that this user may see."""
        answer = self._ask(
            lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False), None, "the cluster's metadata"
        )
        if answer is None:
            return None, [], []
        logs = [
            PartitionMetadata(
                t.name,
                p.partition_index,
                p.leader_id,
                _number(p.leader_epoch),
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
            )
            for t in answer.topics
            if not self._bad(t.error_code, None, f"the metadata of topic {t.name}")
            for p in t.partitions
        ]
        return answer.cluster_id, sorted(b.node_id for b in answer.brokers), sorted(logs)

    def racks(self) -> tuple[dict[int, str | None], int]:
        """The racks of the brokers that are up, and the controller by the metadata: the active one with ZooKeeper."""
        answer = self._ask(lambda: MetadataRequest(topics=[], allow_auto_topic_creation=False), None, "the brokers")
        if answer is None:
            return {}, -1
        return {b.node_id: getattr(b, "rack", None) for b in answer.brokers}, answer.controller_id

    def quorum(self) -> ControllerQuorum | None:
        """The controllers; None with ZooKeeper, or where no broker tells."""
        topic, number = QUORUM
        part = DescribeQuorumRequest.TopicData.PartitionData(partition_index=number)
        topics = [DescribeQuorumRequest.TopicData(topic_name=topic, partitions=[part])]
        answer = self._ask(lambda: DescribeQuorumRequest(topics=topics), None, "the quorum", newer=True)
        if answer is None or self._bad(answer.error_code, None, "the quorum"):
            return None
        (quorum,) = answer.topics[0].partitions
        if self._bad(quorum.error_code, None, "the quorum"):
            return None
        fetched = {v.replica_id: _number(getattr(v, "last_fetch_timestamp", -1)) for v in quorum.current_voters}
        now = fetched.get(quorum.leader_id, -1)
        gone = tuple(v for v, time in fetched.items() if v != quorum.leader_id and now - time > VOTER_GONE_MS)
        return ControllerQuorum(quorum.leader_id, tuple(sorted(fetched)), gone if now >= 0 else ())

    def eligible(self, topics: Iterable[str]) -> dict[Name, tuple[tuple[int, ...], tuple[int, ...]]] | None:
        """By partition the eligible leader replicas and the last known ones (KIP-966); None before 3.8."""
        make, eligible = DescribeTopicPartitionsRequest.TopicRequest, dict[Name, Any]()
        asked, cursor, about = [make(name=name) for name in sorted(topics)], None, "eligible leader replicas"
        while asked:
            of = {"topics": asked, "response_partition_limit": PARTITIONS_AT_ONCE, "cursor": cursor}
            answer = self._ask(partial(DescribeTopicPartitionsRequest, **of), None, about, newer=True)
            if answer is None:
                return None
            for t in answer.topics:
                if self._bad(t.error_code, None, f"{about} of topic {t.name}"):
                    continue
                for p in t.partitions:
                    lists = (p.eligible_leader_replicas, p.last_known_elr)
                    eligible[t.name, p.partition_index] = tuple(tuple(some or ()) for some in lists)
            if (after := answer.next_cursor) is None:
                break
            place = {"topic_name": after.topic_name, "partition_index": after.partition_index}
            cursor = DescribeTopicPartitionsRequest.Cursor(**place)
            asked = [make(name=topic.name) for topic in asked if topic.name >= after.topic_name]
        return eligible

    def groups(self, brokers: Iterable[int]) -> list[str] | None:
        """The groups of all coordinators; None if one does not answer."""
        groups: set[str] = set()
        for node in brokers:
            answer = self._ask(ListGroupsRequest, node, f"groups on broker {node}")
            if answer is None or self._bad(answer.error_code, None, f"groups on broker {node}"):
                return None
            groups.update(g.group_id for g in answer.groups)
        return sorted(groups)

    def features(self, node: int) -> BrokerFeatures:
        """The levels of features that a broker knows, empty where it does not answer (3.3 and newer)."""
        request = partial(
            ApiVersionsRequest, client_software_name="auditor", client_software_version="1", min_version=3
        )
        answer = self._ask(request, node, f"features of broker {node}", newer=True)
        if answer is None:
            return BrokerFeatures({}, {})
        finalized = {f.name: f.max_version_level for f in answer.finalized_features or ()}
        return BrokerFeatures(finalized, {f.name: f.max_version for f in answer.supported_features or ()})

    def offsets(
        self, node: int, names: Iterable[Name], spec: int, isolation: int = READ_UNCOMMITTED, replica: int = CONSUMER,
        leader_epoch: int = -1,
    ) -> dict[Name, int]:  # fmt: skip
        """The start (EARLIEST) or end (LATEST) of logs on one broker; READ_COMMITTED: the last stable offset.

        ``leader_epoch``: a failure for a log that the broker does not lead under it; -1: any.
        """
        make_topic, least = ListOffsetsRequest.ListOffsetsTopic, 2 if leader_epoch < 0 else 4
        make_partition = partial(_OffsetsPartition, current_leader_epoch=leader_epoch)
        topics = [
            make_topic(name=topic, partitions=[make_partition(partition_index=p, timestamp=spec) for p in numbers])
            for topic, numbers in _by_topic(names)
        ]
        answer = self._ask(
            lambda: ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=topics, min_version=least),
            node,
            f"the offsets on broker {node}",
        )
        offsets = {}
        for t in answer.topics if answer is not None else ():
            for p in t.partitions:
                name = (t.name, p.partition_index)
                if not self._bad(p.error_code, name, f"offsets on broker {node}"):
                    offsets[name] = int(p.offset)
        return offsets

    def producers(self, node: int, names: Iterable[Name]) -> dict[Name, list[Producer]]:
        """The producers in a broker's memory (2.8 and newer)."""
        topics = [
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in _by_topic(names)
        ]
        answer = self._ask(lambda: DescribeProducersRequest(topics=topics), node, f"producers on broker {node}")
        producers = {}
        for t in answer.topics if answer is not None else ():
            for p in t.partitions:
                name = (t.name, p.partition_index)
                if not self._bad(p.error_code, name, f"producers on broker {node}"):
                    producers[name] = [
                        Producer(
                            a.producer_id,
                            a.producer_epoch,
                            a.last_sequence,
                            a.last_timestamp,
                            a.coordinator_epoch,
                            a.current_txn_start_offset,
                        )
                        for a in p.active_producers
                    ]
        return producers

    def transactions(self, brokers: Iterable[int], most: int) -> dict[str, ListedTransaction] | None:
        """The transactional ids in the coordinators' memory (3.0 and newer), at most ``most`` open ones per coordinator
        in full.

        None if one does not answer, or does not show all of them to this user.
        """
        transactions: dict[str, ListedTransaction] = {}
        node = None
        for node in brokers:
            answer = self._ask(ListTransactionsRequest, node, f"transactions on broker {node}")
            if answer is None or self._bad(answer.error_code, None, f"transactions on broker {node}"):
                return None
            listed = {
                t.transactional_id: ListedTransaction(t.transaction_state, t.producer_id)
                for t in answer.transaction_states
            }
            going = [
                tid for tid, t in sorted(listed.items()) if t.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
            ]
            transactions |= listed | self._described(node, going[:most])
        return transactions if self._sees_every_id(node) else None

    def _sees_every_id(self, node: int | None) -> bool:
        # ListTransactions silently omits ids that the user may not see; these would be taken for expired. A broker
        # checks the right to an id before its existence. A right denied for some ids, besides one to all, stays
        # undetected.
        none = str(uuid.uuid4())  # random, so that no right to an application's ids covers it
        answer = self._ask(lambda: DescribeTransactionsRequest(transactional_ids=[none]), node, "transactional ids")
        if answer is None:
            return False
        codes = {t.error_code for t in answer.transaction_states}
        refused = TransactionalIdAuthorizationFailedError.errno
        return refused not in codes or not self._bad(refused, None, "transactional ids")

    def _described(self, node: int, ids: list[str]) -> dict[str, ListedTransaction]:
        if not ids:
            return {}
        answer = self._ask(lambda: DescribeTransactionsRequest(transactional_ids=ids), node, f"broker {node}'s ids")
        return {
            t.transactional_id: ListedTransaction(
                t.transaction_state,
                t.producer_id,
                t.producer_epoch,
                frozenset(f"{topic.topic}-{p}" for topic in t.topics for p in topic.partitions),
            )
            for t in (answer.transaction_states if answer is not None else ())
            if for_code(t.error_code) is NoError
        }

    def configs(self, kind: int, names: Iterable[str], node: int | None = None) -> dict[str, dict[str, str]]:
        """Settings of topics or of a broker by name, without sensitive ones."""
        resources = [
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        if not resources:
            return {}
        answer = self._ask(lambda: DescribeConfigsRequest(resources=resources), node, "settings")
        return {
            r.resource_name: {c.name: c.value for c in r.configs if c.value is not None and not c.is_sensitive}
            for r in (answer.results if answer is not None else ())
            if not self._bad(r.error_code, None, f"settings of {r.resource_name}")
        }

    def fetch(self, log: PartitionMetadata, offset: int, most: int, wait_ms: int = 500) -> FetchedBatches | None:
        """Stored batches from the one with ``offset`` on, about ``most`` bytes, at least one batch if there is one.

        None if the leader does not answer.
        """
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=log.partition, fetch_offset=offset, partition_max_bytes=most
        )
        topics = [FetchRequest.FetchTopic(topic=log.topic, partitions=[part])]
        answer = self._ask(
            lambda: FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=most,
                isolation_level=READ_UNCOMMITTED,
                topics=topics,
                forgotten_topics_data=[],
                rack_id="",
                min_version=4,
                max_version=FETCH_BY_NAME,
            ),
            log.leader,
            f"{log.topic}-{log.partition} from broker {log.leader}",
        )
        for t in answer.responses if answer is not None else ():
            for p in t.partitions:
                if not self._bad(p.error_code, log.name, "batches"):
                    return FetchedBatches(bytes(p.records or b""), p.high_watermark, p.last_stable_offset)
        return None


_OffsetsPartition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition


def _by_topic(names: Iterable[Name]) -> Iterator[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(names):
        grouped[topic].append(partition)
    yield from grouped.items()


def without_nulls(answer: Any) -> Any:
    """Return an answer, or a part of one, that has no null text or list where Kafka's schema has none.

    Errors: ValueError for one that has. A topic's name is null only where it was asked for by its id.
    """
    for name, field in answer.fields.items():
        value = getattr(answer, name)
        if value is None and field.for_version_q(answer.version):
            needed = name == "name" or not field.nullable_for_version_q(answer.version)
            if needed and (field.type_str == "string" or field.is_array() or field.is_struct_array()):
                raise ValueError(f"{name} is null")
        for part in value or () if field.is_struct_array() else ():
            without_nulls(part)
    return answer


def _number(value: int | None) -> int:
    return -1 if value is None else value


class Budget:
    """A limit for reading: ``most`` bytes in total, ``rate`` bytes per second."""

    def __init__(
        self,
        most: int,
        rate: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.left = most
        self.rate = rate
        self.clock, self.sleep = clock, sleep
        self.began = clock()
        self.used = 0

    def take(self, size: int) -> None:
        """Count bytes that were read, and wait until they are within the rate."""
        self.left -= size
        self.used += size
        ahead = self.used / self.rate - (self.clock() - self.began)
        if ahead > 0:
            self.sleep(ahead)

    @property
    def spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.left <= 0


def _login(bootstrap: str, error: KafkaError, config: Fields) -> str:
    # With the broker's message, and without the password.
    reason = "".join(c for c in " ".join(map(str, error.args)) if c.isprintable())[:MOST_QUOTED]
    if secret := config.get("sasl_plain_password"):
        reason = reason.replace(str(secret), "***")
    return (
        f"the cluster at {bootstrap} rejected the login with {config.get('sasl_mechanism')} (not "
        f"retried: {reason}); check user name, password and mechanism"
    )
