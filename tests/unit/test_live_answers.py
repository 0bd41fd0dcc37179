"""Whoever listens at the address of a live audit: claims are bounded, and what is no answer of Kafka's is said."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.live_cluster import ATTEMPTS, LiveCluster

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
    assert why == f"the cluster's metadata: its answer cannot be read ({type(error).__name__})"
    assert cluster.manager.asked == 1 < ATTEMPTS
