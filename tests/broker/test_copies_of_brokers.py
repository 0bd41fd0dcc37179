"""``auditor copy`` at a real broker: again and again while it works, and no broker starts on what comes of it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from auditor.copying.folders import now_ms
from auditor.copying.run import copy_logs, reread_open_logs
from auditor.pipeline.whole_audit import Audit
from tests.audited import above_info
from tests.broker.cluster import Cluster, Driver, Jvm, segment_bytes
from tests.broker.jars import missing_tools
from tests.broker.left_open import late, stray
from tests.broker.raw_requests import Wire
from tests.conftest import NIGHTLY
from tests.copies import copy_of, finds, listed
from tests.facts import opened, opened_all

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]
COPIES = 20 if NIGHTLY else 5
SEEDS = range(4 if NIGHTLY else 1)
QUICK = {  # retention and the cleaner at work all the time, and nothing in the way of data that comes too late
    "auto_create_topics_enable": "false",
    "log_retention_check_interval_ms": "1000",
    "log_segment_delete_delay_ms": "500",
    "log_cleaner_backoff_ms": "500",
    "transaction_partition_verification_enable": "false",
}
TOPICS = {  # with their partitions
    "shop.orders": (3, "retention.ms=10000"),
    "shop.state": (3, "cleanup.policy=compact min.cleanable.dirty.ratio=0.01 max.compaction.lag.ms=2000"),
    "shop.out": (2, "cleanup.policy=compact,delete retention.ms=10000 min.cleanable.dirty.ratio=0.01"),
    "bank.ledger": (4, "retention.ms=600000"),
}


def taken(source: Path, copy: Path) -> Audit:
    """An audit of a copy as the command makes it."""
    begun = now_ms()
    done = copy_of(source, copy)
    reread_open_logs(copy, begun, done, opened_all, lambda only: copy_logs([str(source)], copy, only=only))
    return opened(copy)


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_a_broker_that_works_is_copied_and_nothing_starts_on_the_copy(version: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with (
        Cluster(version, tmp_path / "cluster", heap="256m", **{"auto_create_topics_enable": "false"}) as cluster,
        Driver(cluster) as run,
    ):
        run(f"topic shop.orders 3 1 {segment_bytes(version, 40_000)}")
        run("load t1 shop.orders 60000 parts=3 n=2 size=100 pause=20")
        run("load t2 shop.orders 60000 parts=3 n=2 size=100 pause=35")
        for _ in range(COPIES):
            audit = taken(cluster.log_dir(), copy)
            assert not above_info(audit.findings)
            assert {row["standing"] for row in audit.blocked} <= {"waiting"}
            said = listed(copy / "broker-1")["readings"]
            assert said
            assert all(live for *_, live in said)
        run("stop")
        time.sleep(3)  # until what was written is old enough to be known again
        copy_of(cluster.log_dir(), copy)
        again = copy_of(cluster.log_dir(), copy)
        assert again.kept > again.segments // 2
        was, now = opened(cluster.log_dir()).findings, opened(copy).findings
        assert [f.to_json() for f in now] == [f.to_json() for f in was]
        cluster.stop()
        settings = (cluster.folder / "server-1.properties").read_text()
        files = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        on_copy = tmp_path / "on-copy.properties"
        on_copy.write_text(settings.replace(str(cluster.log_dir()), str(copy / "broker-1")))
        broker = Jvm(cluster.jars, "kafka.Kafka", [str(on_copy)], tmp_path / "on-copy.out")
        try:
            assert broker.process.wait(timeout=120) != 0
        finally:
            broker.end()
    assert {path: path.read_bytes() for path in files} == files
    assert not finds(copy, b"x" * 60)


def start_load(run: Driver, seed: int) -> None:
    """Many short transactions everywhere, always some that are fresh."""
    some = random.Random(seed)
    for topic, (parts, _) in TOPICS.items():
        for number in range(3):
            pause = some.choice((0, 1, 3, 10, 40, 150))
            spread = some.randint(1, parts)
            run(f"load {topic}-{number} {topic} 900000 parts={spread} n={some.randint(1, 4)} size=100 pause={pause}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_a_busy_broker_has_nothing_undecided_and_what_hangs_is_found(version: str, seed: int, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with Cluster(version, tmp_path / "cluster", heap="300m", **QUICK) as cluster, Driver(cluster) as run:
        for topic, (parts, settings) in TOPICS.items():
            run(f"topic {topic} {parts} 1 {segment_bytes(version, 40_000)} {settings}")
        start_load(run, seed)
        time.sleep(15)  # until retention and the cleaner have something to do
        there = {f"{topic}-{number}" for topic, (parts, _) in TOPICS.items() for number in range(parts)}
        for number in range(COPIES):
            into = copy if number % 3 else tmp_path / f"copy-{number}"
            audit = taken(cluster.log_dir(), into)
            assert not above_info(audit.findings), number
            assert [row for row in audit.blocked if row["standing"] != "waiting"] == [], number
            assert {r.folder for log_dir in audit.inventory.log_dirs for r in log_dir.replicas} >= there, number
        assert any(min(s.base_offset for s in r.segments) for d in audit.inventory.log_dirs for r in d.replicas)
        with Wire(cluster.ports[0]) as wire:  # only now: brokers close a connection that nobody used for ten minutes
            hanging = [
                late(wire, "bank-abort", 0, commit=False), late(wire, "bank-commit", 1, commit=True), stray(wire)
            ]  # fmt: skip
        audit = taken(cluster.log_dir(), copy)
        found = above_info(audit.findings)
        assert {(f.rule, f.severity) for f in found} == {("hanging-transaction", "critical")}
        at = lambda f: (f.topic, f.partition, f.producer_id, f.offset)  # noqa: E731
        assert {at(f) for f in found} == {
            (h["topic"], h["partition"], h["producerId"], h["firstOffset"]) for h in hanging
        }
        stuck = {row["partition"] for row in audit.blocked if row["standing"] == "stuck"}
        assert stuck == {h["partition"] for h in hanging}
        run("stop")
