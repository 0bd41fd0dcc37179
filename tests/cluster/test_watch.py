"""``auditor watch`` beside a real broker: a hang is reported while it lasts, and that it is over once it was closed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from auditor.outputs.journal import JOURNAL
from tests.broker.cluster import Cluster
from tests.broker.jars import missing_tools
from tests.cluster import live_story as story
from tests.conftest import ROOT, missing_java

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
