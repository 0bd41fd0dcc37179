"""Whoever listens at the address of a live audit: claims are bounded, and what is no answer of Kafka's is said."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from auditor.base.errors import AuditInputError
from auditor.connectors.live.live_cluster import ATTEMPTS, LiveCluster, PartitionMetadata

CLAIMS = {
    "2 GiB": b"\x7f\xff\xff\xff" + b"x" * 100,
    "less than nothing": b"\xff\xff\xff\xff",
    "a web server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a list of 2 Gi elements": struct.pack(">iihi", 10, 1, 0, (1 << 31) - 1),
}


@pytest.fixture
def listener(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where everything that is sent is answered with the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(connection: socket.socket) -> None:
            try:
                while connection.recv(1 << 16):
                    connection.sendall(request.param)
            except OSError:
                pass

        def accept() -> None:
            try:
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
            except OSError:
                pass

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("listener", CLAIMS.values(), ids=CLAIMS.keys(), indirect=True)
def test_what_claims_more_than_there_can_be_is_no_broker(listener: int) -> None:
    with pytest.raises(AuditInputError, match="cannot reach a cluster") as said:
        LiveCluster(f"127.0.0.1:{listener}", {"request_timeout_ms": 500})
    assert "that a Kafka broker listens there" in str(said.value)
    assert "\n" not in str(said.value)


@pytest.fixture
def refusing() -> Iterator[tuple[int, list[bytes]]]:
    """A port whose broker takes no login, and the tokens that were tried there."""
    tried: list[bytes] = []
    keys = struct.pack(">i" + 4 * "hhh", 4, 18, 0, 0, 17, 0, 1, 36, 0, 0, 3, 0, 1)
    why = b"Authentication failed: Invalid username or wrong-secret"

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), connection.makefile("rb") as requests:
            while True:
                (size,) = struct.unpack(">i", requests.read(4))
                request = requests.read(size)
                key, version, number = struct.unpack_from(">hhi", request)
                if key == 18:
                    body = struct.pack(">h", 35 if version else 0) + keys
                elif key == 17:
                    body = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
                else:
                    tried.append(request)
                    body = struct.pack(">hh", 58, len(why)) + why + struct.pack(">i", 0)
                connection.sendall(struct.pack(">ii", len(body) + 4, number) + body)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], tried


def test_a_login_that_is_refused_is_tried_once(refusing: tuple[int, list[bytes]]) -> None:
    """Some wrong tries lock an account; the broker's words are quoted, the password is not."""
    port, tried = refusing
    config = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "request_timeout_ms": 5_000,
              "sasl_plain_username": "auditor", "sasl_plain_password": "wrong-secret"}  # fmt: skip
    with pytest.raises(AuditInputError, match=r"rejected the login with PLAIN.*Invalid username or \*\*\*") as said:
        LiveCluster(f"127.0.0.1:{port}", config)
    assert "wrong-secret" not in str(said.value)
    assert "\n" not in str(said.value)
    assert len(tried) == 1


@pytest.mark.parametrize("error", [struct.error("x"), IndexError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")])
def test_an_answer_that_cannot_be_read_is_a_failure_of_that_request(error: Exception) -> None:
    """Which the audit reports as a part that was not read: exit status 3."""
    cluster = LiveCluster.__new__(LiveCluster)
    cluster.failures, cluster.sleep = [], lambda _: None

    class Answers:
        asked = 0

        def run(self, *_: object) -> None:
            self.asked += 1
            raise error

    cluster.manager = Answers()
    assert cluster.metadata() == (None, [], [])
    ((_, why),) = cluster.failures
    assert why == f"the cluster's metadata: unreadable response ({type(error).__name__})"
    assert cluster.manager.asked == 1 < ATTEMPTS


def _metadata(**fields: object) -> MetadataResponse:
    """An answer with one topic of one partition, but for these fields, each of whatever has it."""
    part = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {"error_code": 0, "name": "t", "partitions": [part(version=8, **(partition | _of(partition, fields)))]}
    topics = [MetadataResponse.MetadataResponseTopic(version=8, **(topic | _of(topic, fields)))]
    return MetadataResponse(
        version=8,
        **(
            {"brokers": [], "cluster_id": "c", "topics": topics}
            | _of({"topics": 0, "brokers": 0, "cluster_id": 0}, fields)
        ),
    )


def _of(names: dict[str, Any], fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name in names}


@pytest.mark.parametrize("name", ["topics", "brokers", "partitions", "name", "replica_nodes", "isr_nodes"])
def test_a_null_where_none_can_be_is_one_sentence(name: str) -> None:
    cluster = _answering(_metadata(**{name: None}))
    assert cluster.metadata() == (None, [], [])
    assert cluster.failures == [(None, "the cluster's metadata: unreadable response (ValueError)")]


def test_a_null_that_may_be_is_read() -> None:
    cluster = _answering(_metadata(cluster_id=None))
    assert cluster.metadata() == (None, [], [PartitionMetadata("t", 0, 1, -1, (1,), (1,))])
    assert cluster.failures == []


def _answering(answer: object) -> LiveCluster:
    cluster = LiveCluster.__new__(LiveCluster)
    cluster.failures, cluster.sleep = [], lambda _: None
    cluster.manager = SimpleNamespace(run=lambda *_: answer)
    return cluster
