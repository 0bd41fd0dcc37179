"""A Spark Connect server that is not there is waited for, said, and given up; one that is there is not mentioned."""

from __future__ import annotations

import socket
import time
from concurrent import futures

import pytest

from auditor.base.errors import AuditInputError
from auditor.spark import session

grpc = pytest.importorskip("grpc")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SILENT_S", 0.3)
    monkeypatch.setattr(session, "WAIT_S", 1)


def test_nobody_listens() -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(AuditInputError, match=rf"no Spark Connect server responds at 127.0.0.1:{port} within 1 s"):
        session.start(f"sc://127.0.0.1:{port}", say=said.append)
    assert 1 <= time.monotonic() - started < 20
    assert said == [f"waiting for Spark at 127.0.0.1:{port}, 1 s at most"]


def test_somebody_listens_who_speaks_no_grpc() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"sc://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(AuditInputError, match="no Spark Connect server responds"):
            session.wait_for(url, lambda _: None)


def test_a_server_that_is_there_is_not_mentioned() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    said: list[str] = []
    session.wait_for(f"sc://127.0.0.1:{port}", said.append)
    server.stop(None)
    assert said == []


def test_a_url_that_is_none_is_one_line_without_its_token() -> None:
    with pytest.raises(AuditInputError) as raised:
        session.wait_for("sc://host:port/;token=secret", lambda _: None)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
