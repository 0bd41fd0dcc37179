"""A live audit claims no decision that nobody made: whatever part of a log it reads, status and advice are the same.

Each transactional id commits three transactions in a topic of its own. Then either a late batch of it arrives (a hang),
or it opens a fourth transaction (healthy). `auditor audit` of the same broker's log directory, which sees every marker,
is the reference.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from auditor import cli
from auditor.connectors.live.live_cluster import LiveCluster
from tests.broker.cluster import Cluster, Driver
from tests.broker.jars import missing_tools
from tests.broker.left_open import UNVERIFIED
from tests.broker.raw_requests import Wire

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

TOPICS = ("java-hang", "java-open", "python-hang", "python-open")  # a transactional id in each, of that name
COMMITS, RECORDS, OLD_RECORDS = 3, 4, 10
FIRST = OLD_RECORDS + COMMITS * (RECORDS + 1)  # the offset of the data that is open
AN_HOUR_MS = 3_600_000
HELD = ("topic", "partition", "transactional_id", "producer_id", "producer_epoch", "standing", "class", "first_offset",
        "last_offset", "state", "why", "advice")  # fmt: skip
BUMPED = {("4.3.1", "java"): COMMITS}  # transaction.version 2: each commit bumps the epoch (KIP-890)


@pytest.fixture(scope="module", params=["3.6.2", "4.3.1"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker with a hang and a healthy open transaction of each client."""
    folder = tmp_path_factory.mktemp(f"brokers-{request.param}")
    with Cluster(request.param, folder, **UNVERIFIED) as cluster, Driver(cluster) as run, contextlib.ExitStack() as end:
        run("producer plain")
        for topic in TOPICS:
            run(f"topic {topic} 1 1")
            run(f"send plain {topic} 0 {OLD_RECORDS} at={int(time.time() * 1000) - AN_HOUR_MS}")
            transactions = _java(run, topic) if topic.startswith("java") else _python(cluster, topic)
            end.callback(transactions)
        for topic in TOPICS[::2]:
            _write_late(cluster, topic)
        time.sleep(1)
        run("topic others 1 1")
        for k in range(12):  # every coordinator goes on, which shows that its log was read later than the late data
            run(f"load other{k} others 1 n=1")
        run("wait")
        yield cluster


def _java(run: Driver, name: str) -> Callable[[], object]:
    run(f"producer {name} transactional.id={name} transaction.timeout.ms=600000")
    run(f"init {name}")
    for number in range(COMMITS + name.endswith("open")):
        run(f"begin {name}")
        run(f"send {name} {name} 0 {RECORDS}")
        if number < COMMITS:
            run(f"commit {name}")
    return lambda: run(f"kill {name}")


def _python(cluster: Cluster, name: str) -> Callable[[], object]:
    producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id=name, transaction_timeout_ms=600_000)
    producer.init_transactions()
    for number in range(COMMITS + name.endswith("open")):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.send(name, b"value", partition=0)
        producer.flush()
        if number < COMMITS:
            producer.commit_transaction()
    return lambda: producer.close(timeout=0)


def _write_late(cluster: Cluster, topic: str) -> None:
    """A batch of a producer whose transactions are over, as a network may deliver it."""
    with LiveCluster(cluster.servers, {}) as live:
        (state,) = (p for p in live.producers(1, [(topic, 0)])[topic, 0] if p.coordinator_epoch >= 0)
    with Wire(cluster.ports[0]) as wire:
        producer = state.producer_id, state.producer_epoch
        assert wire.produce(topic, 0, producer, state.last_sequence + 1, transactional_id=topic, age_ms=0) == (0, FIRST)


def judged(folder: Path, *call: str) -> dict[str, Any]:
    """The exit code, and of each topic its status with the advice, and what is found with the advice."""
    code = cli.main([*call, "--out", str(folder), "--as-of", "now", "--quiet", "--master", "inline"])
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    lines = (folder / "findings.jsonl").read_text(encoding="utf-8").splitlines()
    found = [row for row in map(json.loads, lines) if row["topic"] in TOPICS]
    return {
        "code": code,
        "held": {row["topic"]: {name: row[name] for name in HELD} for row in summary["blocked"]},
        "found": [[row[n] for n in ("kind", "severity", "topic", "offset", "advice")] for row in found],
    }


def live(cluster: Cluster, folder: Path, *words: str) -> dict[str, Any]:
    """The same of the running broker."""
    return judged(folder, "live", "--bootstrap-server", cluster.servers, *words)


def test_the_part_of_a_log_that_is_read_changes_neither_status_nor_advice(cluster: Cluster, tmp_path: Path) -> None:
    whole = judged(tmp_path / "audit", "audit", str(cluster.log_dir()), "--bootstrap-server", cluster.servers)
    assert whole["code"] == 1
    assert sorted(whole["held"]) == sorted(TOPICS)
    for topic, row in whole["held"].items():
        client, kind = topic.split("-")
        assert row["first_offset"] == FIRST
        assert row["producer_epoch"] == BUMPED.get((cluster.version, client), 0)
        assert (row["class"], row["advice"]["verdict"]) == (
            ("hanging", "safe_to_abort") if kind == "hang" else ("active", "wait")
        )
        commands = [step["command"] for step in row["advice"]["steps"] if step["command"]]
        assert [f"abort --topic {topic} --partition 0 --start-offset {FIRST}" in each for each in commands] == [
            True
        ] * (kind == "hang")
    for words in ((), ("--from", "start"), ("--since", "0"), ("--since", str(FIRST)), ("--only-broker", "1")):
        assert live(cluster, tmp_path / "-".join(("live", *words)), *words) == whole, words

    begins = {
        log["topic"]: (log["offsets"]["left_out"], log["log_start"])
        for log in json.loads((tmp_path / "live" / "summary.json").read_text(encoding="utf-8"))["logs"]
        if log["topic"] in TOPICS
    }
    assert begins == {topic: (OLD_RECORDS if topic.endswith("hang") else FIRST, 0) for topic in TOPICS}


def test_where_the_markers_are_not_read_nothing_is_to_be_written(cluster: Cluster, tmp_path: Path) -> None:
    """From an offset on that the user gave, which is kept."""
    for begin in (FIRST, FIRST + 1):
        undecided(cluster, live(cluster, tmp_path / str(begin), "--from", str(begin)))


def undecided(cluster: Cluster, found: dict[str, Any]) -> None:
    """Asserts that nothing is to be written; but where commits bump the epoch, the late batch's shows that it is of
    none."""
    assert sorted(found["held"]) == sorted(TOPICS)
    for topic, row in found["held"].items():
        client, kind = topic.split("-")
        of_none = (cluster.version, client) in BUMPED
        assert row["advice"]["verdict"] == (
            "wait" if kind == "open" else "safe_to_abort" if of_none else "investigate_first"
        ), topic
        assert row["advice"]["verdict"] != "commit_it"
    assert [row[2] for row in found["found"] if row[0] == "hanging-transaction"] == ["java-hang", "python-hang"]


def test_a_recheck_says_what_the_audit_said(cluster: Cluster, tmp_path: Path) -> None:
    first = live(cluster, tmp_path / "first")
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as said:
        cli.main(
            ["recheck", "--out", str(tmp_path / "first"), "--bootstrap-server", cluster.servers, "--format", "json"]
        )
    said.seek(0)
    answers = {row["topic"]: row for row in map(json.loads, said) if row["fingerprint"] is None}
    assert {topic: row["answer"] for topic, row in answers.items()} == dict.fromkeys(TOPICS, "still held")
    assert {topic: row["blocked"]["advice"] for topic, row in answers.items()} == {
        topic: row["advice"] for topic, row in first["held"].items()
    }


def test_where_the_markers_were_deleted_nothing_is_to_be_written(cluster: Cluster, tmp_path: Path) -> None:
    """As Kafka Streams deletes what it has read of a repartition topic. The last test: no other sees the whole logs."""
    with Driver(cluster) as run:
        for topic in TOPICS:
            run(f"delete-records {topic} 0 {FIRST}")
    for words in ((), ("--from", "start")):
        undecided(cluster, live(cluster, tmp_path / "-".join(("live", *words)), *words))
