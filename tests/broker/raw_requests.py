"""Requests that no well-behaved client sends, straight to a broker: late data, markers by hand, unnamed partitions."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Self

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

TWO_HOURS_MS = 7_200_000


class Wire:
    """One connection to a broker of 2.1 or newer. Every method answers with the error code, 0 for none."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _send(self, request: Any, version: int) -> None:
        self.correlation += 1
        request.API_VERSION = version
        request.with_header(self.correlation, "wire")
        self.socket.sendall(request.encode(header=True, framed=True))

    def _ask(self, request: Any, response: Any, version: int) -> Any:
        self._send(request, version)
        (size,) = struct.unpack(">i", self._read(4))
        return response.decode(self._read(size), version=version, header=True)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def create(self, topic: str, partitions: int, replicas: int) -> None:
        """CreateTopics to a controller that cannot commit it: no answer is waited for."""
        one = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
        )
        self._send(CreateTopicsRequest(topics=[one], timeout_ms=60_000, validate_only=False), 5)

    def init(self, transactional_id: str | None, timeout_ms: int = 60_000) -> tuple[int, int]:
        """InitProducerId until a coordinator answers: producer id and epoch."""
        for _ in range(100):
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            answer = self._ask(request, InitProducerIdResponse, 1)
            if answer.error_code == 0:
                return int(answer.producer_id), int(answer.producer_epoch)
            time.sleep(0.2)
        raise RuntimeError(f"InitProducerId of {transactional_id}: error {answer.error_code}")

    def add(self, transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int) -> int:
        """AddPartitionsToTxn as clients before 3.6 send it."""
        named = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[named],
        )
        answer = self._ask(request, AddPartitionsToTxnResponse, 1)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def produce(
        self, topic: str, partition: int, producer: tuple[int, int], sequence: int, records: int = 3, *,
        transactional_id: str | None = None, age_ms: int = TWO_HOURS_MS,
    ) -> tuple[int, int]:  # fmt: skip
        """One batch of records, stamped ``age_ms`` before now: error code and base offset."""
        batch = DefaultRecordBatchBuilder(2, 0, transactional_id is not None, *producer, sequence, 1 << 20)
        stamp = int(time.time() * 1000) - age_ms
        for k in range(records):
            batch.append(k, stamp, b"late", b"x" * 40, [])
        data = ProduceRequest.TopicProduceData
        parts = [data.PartitionProduceData(index=partition, records=bytes(batch.build()))]
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=10_000,
            topic_data=[data(name=topic, partition_data=parts)],
        )  # fmt: skip
        answer = self._ask(request, ProduceResponse, 7).responses[0].partition_responses[0]
        return int(answer.error_code), int(answer.base_offset)

    def end(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> int:
        """EndTxn as clients before transaction.version 2 send it."""
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        return int(self._ask(request, EndTxnResponse, 1).error_code)

    def mark(self, topic: str, partition: int, producer: tuple[int, int], coordinator_epoch: int, commit: bool) -> int:
        """WriteTxnMarkers to the partition's leader, as kafka-transactions.sh abort does."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topics = [marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])]
        one = marker(
            producer_id=producer[0], producer_epoch=producer[1], transaction_result=commit, topics=topics,
            coordinator_epoch=coordinator_epoch,
        )  # fmt: skip
        answer = self._ask(WriteTxnMarkersRequest(markers=[one]), WriteTxnMarkersResponse, 1)
        return int(answer.markers[0].topics[0].partitions[0].error_code)
