"""Histories in which work or data changes hands: pools of producers whose group commits by whichever is free, a zombie
beside them, Streams brought to another guarantee, and replicas of compacted topics that are fetched anew."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from tests.broker.cluster import Cluster, Driver, Jvm, Made, segment_bytes
from tests.broker.jars import BUILD, HERE, classpath, compiled, numbers
from tests.broker.newer_kafka import PATIENT, until_written, working

MEMBER = "session.timeout.ms=6000 heartbeat.interval.ms=1000"


def pooled(version: str, scratch: Path, target: Path, *, zombie: bool = False) -> Made:
    """Groups of both protocols whose members have three producers each, as Spring-Kafka's cache gives them out; a
    second member comes and goes, transactions are aborted and their input is read again by the next free producer.

    ``zombie``: the first member stalls in a transaction until another one has its partitions, and commits then,
    without the group's metadata that would have fenced it.
    """
    with Cluster(version, scratch) as cluster, Driver(cluster) as run:
        run("topic pool.in 2 1")
        run("topic pool.out 1 1")
        run("load t1 pool.in 26000 parts=2 n=2 size=8 pause=40")
        modern = numbers(version) >= (4, 0)
        for protocol in ("classic", "consumer") if modern else ("classic",):
            how = f"producers=3 abort=11 {_protocol(protocol) if modern else MEMBER}"
            group = f"pool-{protocol}"
            late = "unnamed=1 stall=20 nap=9000 max.poll.interval.ms=3000 abort=1000000" if zombie else ""
            run(f"copy {group} pool.in pool.out 26000 id={group}-a {how} {late}")
        time.sleep(6)
        for protocol in ("classic", "consumer") if modern else ("classic",):
            how = f"producers=3 abort=11 {_protocol(protocol) if modern else MEMBER}"
            run(f"copy pool-{protocol} pool.in pool.out 10000 id=pool-{protocol}-b {how}")
        run("wait")
        expect = [_zombie(*said.split()) for said in run("answers").split("; ") if said]
        assert bool(expect) == zombie
        cluster.stop()
        return Made(cluster.copy(target), expect)


def _zombie(name: str, topic: str, partition: str, offset: str) -> dict[str, Any]:
    return {"finding": "zombie_offset_commit", "topic": topic, "partition": int(partition), "transactionalId": name,
            "baseOffset": int(offset)}  # fmt: skip


def _protocol(name: str) -> str:
    return f"group.protocol={name}" if name == "consumer" else f"group.protocol={name} {MEMBER}"


def upgraded(version: str, scratch: Path, target: Path) -> Made:
    """Streams with two instances goes from exactly_once to exactly_once_v2, one instance after the other (KIP-447)."""
    jars = compiled(HERE / "StreamsApp.java", BUILD / version, classpath(version, "kafka-streams"))
    with Cluster(version, scratch, **PATIENT) as cluster, Driver(cluster) as run, contextlib.ExitStack() as stack:
        run("topic words.in 4 1")
        run("topic words.out 4 1")
        working(run, "words.in")
        run("load w1 words.in 400000 parts=4 n=3 size=6 pause=120 abort=9")

        def started(number: int, guarantee: str) -> Jvm:
            state = scratch / f"state-{number}"
            args = [cluster.servers, "app", "classic", str(state), "words.in", "words.out", guarantee]
            app = Jvm(jars, "StreamsApp", args, scratch / f"app-{number}.out", heap="128m")
            stack.callback(app.end)
            until_written(run, "words.out")
            return app

        apps = [started(number, "exactly_once") for number in (1, 2)]
        until_written(run, "words.out", 150)
        for number, app in enumerate(apps, 1):
            app.end()
            started(number, "exactly_once_v2")
            until_written(run, "words.out", 150)
        stack.close()
        run("stop")
        cluster.stop()
        return Made(cluster.copy(target), [])


def fetched_anew(version: str, scratch: Path, target: Path) -> Made:
    """Three healthy brokers. Two compacted topics, and those of the coordinators, cleaned by the first broker, move to
    the others and in part back: who gets a partition fetches it with its holes, leads, and has not cleaned it itself.
    One of either then lies in one segment, where nobody ever cleans."""
    with Cluster(version, scratch, 3, log_cleaner_backoff_ms="200") as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            cleaned = f"min.cleanable.dirty.ratio=0.01 {segment_bytes(version, 4096)} delete.retention.ms=500"
            for topic in FETCHED:
                run(f"topic {topic} 3 1 on=1 cleanup.policy=compact {cleaned}")
            run("topic move.out 1 1")
            working(run, FETCHED[0])
            for topic in COORDINATORS:
                run(f"config topic {topic} {cleaned}")
                _reassigned(run, topic, ("1", "1", "1"))
            _written(run, 9000)
            for topic in (*FETCHED, *COORDINATORS):
                run(f"config topic {topic} min.compaction.lag.ms=3600000")
            for topic in (FETCHED[1], COORDINATORS[0]):
                run(f"config topic {topic} {segment_bytes(version, 1 << 20)}")
            for brokers in (("2", "2,3", "3"), ("2,1", "3", "1")):
                for topic in (*FETCHED, *COORDINATORS):
                    _reassigned(run, topic, brokers)
                _written(run, 3000)
        cluster.stop()
        return Made(cluster.copy(target), [])


FETCHED = ("move.kv", "move.one")
COORDINATORS = ("__transaction_state", "__consumer_offsets")


def _reassigned(run: Driver, topic: str, brokers: tuple[str, ...]) -> None:
    for partition, those in enumerate(brokers):
        run(f"reassign {topic} {partition} {those}")


def _written(run: Driver, ms: int) -> None:
    for topic in FETCHED:
        run(f"load {topic}1 {topic} {ms} parts=3 n=3 size=8 keys=9 pause=30 abort=6 dead=2")
        run(f"load {topic}2 {topic} {ms} parts=3 n=2 size=8 keys=5 pause=45 abort=7")
        run(f"load - {topic} {ms} parts=3 n=3 size=8 keys=5 pause=60 dead=3")
    run(f"copy copier {FETCHED[0]} move.out {ms}")
    run("wait")
    time.sleep(3)  # until it is cleaned, or fetched
