"""What ``auditor finish`` asks of a cluster beside what audits ask, and the one request that it may send.

Only :mod:`auditor.commands.finish` may use :class:`MarkerCluster`: everything else sends read-only requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from auditor.connectors.live.live_cluster import (
    LATEST,
    MALFORMED,
    READ_COMMITTED,
    ListedTransaction,
    LiveCluster,
    PartitionMetadata,
    without_nulls,
)

WRITE_TXN_MARKERS = 27  # API key
METADATA_VERSION = "metadata.version"
NOT_SAID = 31  # the only bit where a broker does not say what is allowed
ALTER, CLUSTER_ACTION = 7, 9  # AclOperation; each allows WriteTxnMarkers, the former since 3.8 (KIP-1037)


class BrokerLevels(NamedTuple):
    """What a broker supports at most by ApiVersions: ``metadata.version``, and the version of WriteTxnMarkers.

    -1 for none.
    """

    metadata_version: int
    write_markers: int


class MarkerRequest(NamedTuple):
    """A WriteTxnMarkers request for one COMMIT marker. ``transaction_version``: sent from version 2 on (KIP-1228)."""

    broker: int
    version: int
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int

    def message(self) -> WriteTxnMarkersRequest:
        """Return it as a message of kafka-python, which can be sent once."""
        of_marker = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [of_marker.WritableTxnMarkerTopic(name=self.topic, partition_indexes=[self.partition])]
        marker = of_marker(
            producer_id=self.producer_id, producer_epoch=self.producer_epoch, transaction_result=True, topics=topics,
            coordinator_epoch=self.coordinator_epoch, transaction_version=self.transaction_version,
        )  # fmt: skip
        return WriteTxnMarkersRequest(markers=[marker], version=self.version)


class MarkerCluster(LiveCluster):
    """A connection that can also write one COMMIT marker, by :meth:`send_once` alone."""

    def levels(self, node: int) -> BrokerLevels | None:
        """What a broker supports; None if it does not answer."""
        about = f"the API versions of broker {node}"
        make = partial(ApiVersionsRequest, client_software_name="auditor", client_software_version="1")
        answer = self._ask(make, node, about)
        if answer is None or self._bad(answer.error_code, None, about):
            return None
        features = {f.name: int(f.max_version) for f in answer.supported_features or ()}
        versions = {int(a.api_key): int(a.max_version) for a in answer.api_keys}
        return BrokerLevels(features.get(METADATA_VERSION, -1), versions.get(WRITE_TXN_MARKERS, -1))

    def stable_offset(self, log: PartitionMetadata) -> int | None:
        """The last stable offset at the leader; None unless that broker leads the log under that leader epoch."""
        offsets = self.offsets(log.leader, [log.name], LATEST, READ_COMMITTED, leader_epoch=log.leader_epoch)
        return offsets.get(log.name)

    def described_id(self, node: int, transactional_id: str) -> ListedTransaction | None:
        """A transactional id at its coordinator; None if that does not show it."""
        about = f"transactional id {transactional_id} on broker {node}"
        answer = self._ask(lambda: DescribeTransactionsRequest(transactional_ids=[transactional_id]), node, about)
        for t in answer.transaction_states if answer is not None else ():
            if not self._bad(t.error_code, None, about):
                return ListedTransaction(t.transaction_state, t.producer_id, t.producer_epoch)
        return None

    def ids_of(self, brokers: Iterable[int], producer_id: int) -> dict[str, str] | None:
        """The state of each transactional id with a producer id, at all brokers; None if one does not answer."""
        states: dict[str, str] = {}
        for node in brokers:
            about = f"transactions on broker {node}"
            answer = self._ask(lambda: ListTransactionsRequest(producer_id_filters=[producer_id]), node, about)
            if answer is None or self._bad(answer.error_code, None, about):
                return None
            states |= {t.transactional_id: t.transaction_state for t in answer.transaction_states}
        return states

    def may_write_markers(self, node: int) -> bool | None:
        """Whether this user may write markers; None if the broker does not say, for which Describe on the cluster is
        needed."""
        answer = self._ask(
            lambda: DescribeClusterRequest(include_cluster_authorized_operations=True), node, "rights on the cluster"
        )
        if answer is None or self._bad(answer.error_code, None, "rights on the cluster"):
            return None
        operations = set(answer.authorized_operations or ())
        return None if operations <= {NOT_SAID} else bool(operations & {CLUSTER_ACTION, ALTER})

    def send_once(self, request: MarkerRequest) -> str:
        """Send the request once; return the broker's answer in a word, ``NoError`` for success.

        Never repeated: of any other answer but a refusal, and of none, it is unknown whether the marker was written.
        """
        try:
            answer = without_nulls(self.manager.run(self._send, request.message(), request.broker))
        except (KafkaError, OSError) as error:
            return type(error).__name__
        except MALFORMED as error:
            return f"unreadable response ({type(error).__name__})"
        codes = [int(p.error_code) for m in answer.markers for t in m.topics for p in t.partitions]
        return "no result for the partition" if len(codes) != 1 else str(for_code(codes[0]).__name__)
