"""``auditor watch`` beside a real broker: a hang is reported while it lasts, and that it is over once it was closed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from auditor.outputs.printing import JOURNAL
from auditor.replay.reading import replica_reader
from auditor.replay.reading.replica_reader import read_replica
from tests.broker.cluster import Cluster
from tests.broker.jars import missing_tools
from tests.cluster import live_story as story
from tests.conftest import ROOT, missing_java
from tests.whole.test_resume_point import places_read, tasks_below
from tests.whole.test_split import same

WHY_NOT = missing_tools() or missing_java()
pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))]


def reported(out: Path) -> list[dict[str, Any]]:
    text = (out / JOURNAL).read_text(encoding="utf-8") if (out / JOURNAL).exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def await_line(watch: subprocess.Popen[bytes], out: Path, **wanted: Any) -> dict[str, Any]:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        assert watch.poll() is None
        for line in reported(out):
            if all(line.get(name) == value for name, value in wanted.items()):
                return line
        time.sleep(0.2)
    raise AssertionError(f"not reported: {wanted}, but {reported(out)}")


def test_a_hang_is_reported_and_then_that_it_is_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    settings = {"transaction.partition.verification.enable": "false"}
    with Cluster("3.6.2", tmp_path / "brokers", **settings) as cluster:
        access = story.Access()
        story.create_topic(cluster, access)
        producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id="story")
        producer.init_transactions()
        story.transactions(producer, 0, 6)
        call = [sys.executable, "-m", "auditor.cli", "watch", str(cluster.log_dir()), "--out", str(out), "--quiet"]
        with subprocess.Popen([*call, "--master", "local[1]"], cwd=ROOT) as watch:
            try:
                state = producer._transaction_manager.producer_id_and_epoch
                offset = story.write_late(cluster, access, state.producer_id, state.epoch, 6 * 3)
                time.sleep(1)  # the coordinator's log must show that it went on after the late data
                story.transactions(producer, 1, 3)
                about = {"rule": "hanging-transaction", "severity": "critical", "topic": story.TOPIC, "offset": offset}
                found = await_line(watch, out, event="found", **about)
                story.execute(found["remedy"], cluster, access)
                story.transactions(producer, 1, 3)
                over = await_line(watch, out, event="resolved", **about)
            finally:
                watch.kill()
        producer.close()
    assert found["key"] == over["key"]
    assert sum(line["key"] == found["key"] for line in reported(out)) == 2


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    """Transactions of all kinds in one partition and plain batches in the other, until the end."""
    ended = threading.Event()

    def transact() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id="load")
        producer.init_transactions()
        for number in range(1_000_000):
            if ended.is_set():
                break
            producer.begin_transaction()
            for _ in range(5):
                producer.send(story.TOPIC, b"x" * 200, partition=0)
            producer.flush()
            (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)()
        producer.close()

    def send() -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.servers, compression_type="gzip", linger_ms=5)
        while not ended.is_set():
            producer.send(story.TOPIC, json.dumps({"at": time.time()}).encode(), partition=1)
            time.sleep(0.0005)
        producer.close()

    threads = [threading.Thread(target=transact), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("version", ["2.8.2", "4.1.0"])
def test_looks_go_on_inside_the_segments_that_a_broker_writes(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition as it was copied at some moments of a load: what a look leaves is what a reading from the start
    does, and the later ones begin inside the active segment."""
    monkeypatch.setattr(replica_reader, "FROM_BYTES", 1)
    monkeypatch.setattr(replica_reader, "BYTES_A_PRODUCER", 0)
    points: dict[str, bytes] = {}
    inside: dict[str, int] = {}
    with Cluster(version, tmp_path / "brokers", **{"index.interval.bytes": "1024"}) as cluster:
        story.create_topic(cluster, story.Access())
        with load(cluster):
            for _ in range(8):
                time.sleep(3)
                shutil.rmtree(tmp_path / "copy", ignore_errors=True)
                cluster.copy(tmp_path / "copy")
                for one in tasks_below(tmp_path / "copy", least=1):
                    folder = one.replica.folder
                    task = replace(one, resume_point=points.get(folder, b""))
                    found, whole = read_replica(task), read_replica(one)
                    points[folder] = found.resume_point
                    found.resume_point = whole.resume_point = b""
                    assert same(found, whole), folder
                    inside[folder] = inside.get(folder, 0) + any(start > 0 for _, start in places_read(task))
    internal = [count for folder, count in inside.items() if folder.startswith("__transaction_state")]
    assert min(inside[f"{story.TOPIC}-0"], inside[f"{story.TOPIC}-1"], max(internal)) >= 6, inside
