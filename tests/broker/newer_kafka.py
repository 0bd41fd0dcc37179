"""Healthy histories of what Kafka has had in its newest releases: replicas moved between disks and brokers under groups
of every kind, tiered topics, Streams and Connect that write exactly once, more partitions than anybody looks at."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Jvm, Made, free_port, segment_bytes
from tests.broker.jars import classpath, compiled

PARTITIONS = 1307


def moved(version: str, scratch: Path, target: Path) -> Made:
    """Three healthy brokers of two disks each: groups of every kind at work while replicas move from disk to disk and
    from broker to broker, and the brokers are restarted one after the other."""
    few = {"share_coordinator_state_topic_num_partitions": "3"}
    with Cluster(version, scratch, 3, disks=2, **few) as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic fleet.log 3 2 {segment_bytes(version, 16384)}")
            run("topic fleet.out 1 3")
            ms = 45_000
            run(f"load t1 fleet.log {ms} parts=3 n=2 size=8 pause=200 abort=6")
            run(f"load - fleet.log {ms} parts=3 n=2 size=8 pause=300")
            run(f"copy copier fleet.log fleet.out {ms}")
            run(f"consume classic fleet.log {ms}")
            run(f"consume modern fleet.log {ms} group.protocol=consumer")
            run(f"share sharers fleet.log {ms}")
            time.sleep(5)
            for broker in (1, 2, 3):
                for number in (1, 2):  # one of them is where a replica lies already
                    run(f"move fleet.out 0 {broker} {cluster.disk(broker, number)}", may_fail=True)
            for partition, brokers in enumerate(("2,3", "3,1", "1,2")):
                run(f"reassign fleet.log {partition} {brokers}")
            time.sleep(6)
            for broker in (1, 2, 3):
                cluster.restart(broker)
                time.sleep(4)
            run("wait")
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def tiered_settings(remote: Path) -> dict[str, str]:
    """Brokers that keep their remote segments as Kafka's LocalTieredStorage does, below ``remote``."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(remote),
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }


def tiered_moved(version: str, scratch: Path, target: Path, before: Path | None = None) -> Made:
    """Tiered topics of three brokers: every partition moved to other brokers, which build what lies in remote storage
    from that alone, and then written on. The remote part is in ``target/remote``.

    ``before``: for a second copy, of when nothing was written any more and nothing taken from the local logs yet.
    """
    remote = target / "remote"
    remote.mkdir(parents=True)
    with Cluster(version, scratch, 3, others=("kafka-storage:test",), **tiered_settings(remote)) as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            tiered = f"{segment_bytes(version, 5000)} remote.storage.enable=true local.retention.ms=-2"
            run(f"topic fleet.tiered 3 2 {tiered} index.interval.bytes=500")
            run("topic fleet.out 1 2")
            for ms in (14_000, 12_000):
                run(f"load t1 fleet.tiered {ms} parts=3 n=3 size=20 pause=60 abort=6")
                run(f"load t2 fleet.tiered {ms} parts=3 n=2 size=20 pause=100 restart=20")
                run(f"load - fleet.tiered {ms} parts=3 n=3 size=20 pause=90")
                run(f"copy copier fleet.tiered fleet.out {ms}")
                time.sleep(ms / 2000)
                if before is not None and ms == 14_000:
                    cluster.restart(2)
                if before is None or ms == 14_000:
                    _to_others(run, "2,3", "3,1", "1,2")
                run("wait")
                time.sleep(4)  # until what may be copied is
                if before is not None and ms == 14_000:
                    cluster.copy(before)
                    run("config topic fleet.tiered local.retention.bytes=1")
                    time.sleep(5)
                    _to_others(run, "3,1", "1,2", "2,3")
                    time.sleep(6)
                    break
                run("config topic fleet.tiered local.retention.bytes=6000")
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def _to_others(run: Driver, *brokers: str) -> None:
    for partition, chosen in enumerate(brokers):
        run(f"reassign fleet.tiered {partition} {chosen}")


def streams(version: str, scratch: Path, target: Path, moment: str = "stopped") -> Made:
    """Two Streams applications with stores, exactly once, one by each protocol, killed and restarted; copied after the
    broker's end (``stopped``), or right after another ``kill -9`` (``killed``)."""
    with Cluster(version, scratch, **{"transaction_max_timeout_ms": "60000"}) as cluster, Driver(cluster) as run:
        run("topic words.in 3 1")
        jars = compiled("StreamsApp", version, "kafka-streams")
        apps: dict[str, Jvm] = {}

        def start(protocol: str) -> None:
            run(f"topic words.{protocol} 3 1", may_fail=True)  # it is there already
            args = [cluster.servers, f"app-{protocol}", protocol, str(scratch / f"state-{protocol}")]
            out = scratch / f"app-{protocol}.out"
            apps[protocol] = Jvm(jars, "StreamsApp", [*args, "words.in", f"words.{protocol}"], out, heap="128m")

        try:
            run("load w1 words.in 50000 parts=3 n=3 size=6 pause=120 abort=6")
            run("load - words.in 50000 parts=3 n=2 size=6 pause=200")
            for protocol in ("classic", "streams"):
                start(protocol)
            for protocol, signalled in (("classic", signal.SIGKILL), ("streams", signal.SIGKILL),
                                        ("streams", signal.SIGTERM), ("classic", signal.SIGKILL)):  # fmt: skip
                time.sleep(9)
                apps[protocol].end(signalled)
                start(protocol)
            run("wait")
            time.sleep(5)
            if moment == "killed":
                for app in apps.values():
                    app.end(signal.SIGKILL)
                return Made(cluster.copy(target), [])
        finally:
            for app in apps.values():
                app.end()
        cluster.stop()
        return Made(cluster.copy(target), [])


def connect(version: str, scratch: Path, target: Path) -> Made:
    """Connect's source of lines of a file, exactly once, its worker killed twice in its work."""
    lines, port = scratch / "lines.txt", free_port()
    with Cluster(version, scratch) as cluster:
        lines.write_text("first\n", encoding="utf-8")
        (scratch / "connect.properties").write_text(
            "".join(f"{k}={v}\n" for k, v in _worker(cluster, port).items()), encoding="utf-8"
        )
        with Driver(cluster) as run:
            run("topic file.out 1 1")
        for kill in (True, True, False):
            main = "org.apache.kafka.connect.cli.ConnectDistributed"
            worker = Jvm(
                classpath(version, "connect-runtime", "connect-file"), main,
                [str(scratch / "connect.properties")], scratch / "connect.out", heap="192m",
            )  # fmt: skip
            try:
                _configured(port, lines)
                for n in range(100):
                    with lines.open("a", encoding="utf-8") as f:
                        f.writelines(f"line {n} of {kill}\n" for _ in range(5))
                    time.sleep(0.12)
            finally:
                worker.end(signal.SIGKILL if kill else signal.SIGTERM)
        cluster.stop()
        return Made(cluster.copy(target), [])


def _worker(cluster: Cluster, port: int) -> dict[str, str]:
    topics = {kind: f"connect-{kind}" for kind in ("config", "offset", "status")}
    return {
        "bootstrap.servers": cluster.servers,
        "group.id": "workers",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "scheduled.rebalance.max.delay.ms": "1000",
        "session.timeout.ms": "8000",
        "heartbeat.interval.ms": "1000",
        "offset.flush.interval.ms": "500",
        **{f"{kind}.storage.topic": name for kind, name in topics.items()},
        **{f"{kind}.storage.replication.factor": "1" for kind in topics},
    }


def _configured(port: int, file: Path, seconds: float = 120) -> None:
    """Give the worker its connector, as soon as it answers; where it is there already, that changes nothing."""
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1",
        "file": str(file), "topic": "file.out", "exactly.once.support": "required", "transaction.boundary": "poll",
    }  # fmt: skip
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/lines/config", json.dumps(settings).encode(),
        {"Content-Type": "application/json"}, method="PUT",
    )  # fmt: skip
    until = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except OSError:  # it does not listen yet, or joins its group
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return


def many(version: str, scratch: Path, target: Path) -> Made:
    """A healthy broker with :data:`PARTITIONS` partitions of topics that are written in transactions, copied while it
    works."""
    small = {"log_index_size_max_bytes": "4096", "num_recovery_threads_per_data_dir": "2"}
    with Cluster(version, scratch, heap="640m", **small) as cluster, Driver(cluster) as run:
        names = [f"wide.{k:02}" for k in range(26)]
        for name in names[:-1]:
            run(f"topic {name} 50 1")
        run(f"topic {names[-1]} {PARTITIONS - 50 * len(names[:-1])} 1")
        for k, name in enumerate(names[:8]):
            run(f"load t{k} {name} 30000 parts=50 n=1 size=8 pause=150 abort=6")
        for name in names[8:16]:
            run(f"load - {name} 30000 parts=50 n=1 size=8 pause=200")
        run("copy copier wide.00 wide.20 30000")
        run("consume reader wide.01 30000 group.protocol=consumer")
        time.sleep(25)
        at = cluster.copy(target)
        run("wait")
        return Made(at, [])
