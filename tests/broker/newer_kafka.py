"""Healthy histories of what Kafka has had in its newest releases: replicas moved between disks and brokers under groups
of every kind, tiered topics, Streams and Connect that write exactly once, more partitions than anybody looks at."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
import urllib.request
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Jvm, Made, free_port, segment_bytes
from tests.broker.jars import BUILD, HERE, classpath, compiled

PARTITIONS = 1307
PATIENT = {  # a machine that has much else to do makes no broker dead
    "broker.session.timeout.ms": "90000", "initial.broker.registration.timeout.ms": "300000",
    "controller.quorum.election.timeout.ms": "8000", "controller.quorum.fetch.timeout.ms": "15000",
    "controller.quorum.request.timeout.ms": "15000", "controller.quorum.election.backoff.max.ms": "4000",
}  # fmt: skip


def until_written(run: Driver, topic: str, records: int = 60, seconds: float = 400) -> None:
    """Wait until a topic has so many offsets more, however busy the machine is."""
    until, enough = time.monotonic() + seconds, int(run(f"end {topic}")) + records
    while int(run(f"end {topic}")) < enough:
        if time.monotonic() > until:
            raise RuntimeError(f"{topic}: nobody writes")
        time.sleep(0.5)


def working(run: Driver, topic: str) -> None:
    """Clients of each kind once, so that the coordinators' topics are there."""
    for first in (f"load first {topic} 1 n=1", f"consume first {topic} 1000"):
        run(first)
        run("wait")


def moved(version: str, scratch: Path, target: Path) -> Made:
    """Three healthy brokers of two disks each: groups of every kind at work while replicas move from disk to disk and
    from broker to broker, and the brokers are restarted one after the other."""
    few = {"share.coordinator.state.topic.num.partitions": "3"} | PATIENT
    with Cluster(version, scratch, 3, disks=2, **few) as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            run(f"topic fleet.log 3 2 {segment_bytes(version, 16384)}")
            run("topic fleet.out 1 3")
            working(run, "fleet.log")
            run("share sharers fleet.log 2000")
            run("wait")
            ms = 1_200_000  # at most: all is over when it has been seen under every change
            run(f"load t1 fleet.log {ms} parts=3 n=2 size=8 pause=1000 abort=6")
            run(f"load - fleet.log {ms} parts=3 n=2 size=8 pause=700")
            run(f"copy copier fleet.log fleet.out {ms}")
            run(f"consume classic fleet.log {ms} auto.commit.interval.ms=1000")
            run(f"consume modern fleet.log {ms} group.protocol=consumer auto.commit.interval.ms=1000")
            run(f"share sharers fleet.log {ms}")
            until_written(run, "fleet.out")
            for broker in (1, 2, 3):
                for number in (1, 2):  # one of them is where a replica lies already
                    run(f"move fleet.out 0 {broker} {cluster.disk(broker, number)}", may_fail=True)
            for partition, brokers in enumerate(("2,3", "3,1", "1,2")):
                run(f"reassign fleet.log {partition} {brokers}")
            until_written(run, "fleet.out")
            for broker in (1, 2, 3):
                cluster.restart(broker)
                until_written(run, "fleet.log", 20)
            run("stop")
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def regrouped(version: str, scratch: Path, target: Path) -> Made:
    """Groups that turn into another kind and back, end, are deleted, or lose what they read."""
    quick = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000",
             "share.coordinator.state.topic.num.partitions": "3", "share.coordinator.state.topic.min.isr": "1",
             "share.coordinator.state.topic.replication.factor": "1"} | PATIENT  # fmt: skip
    with Cluster(version, scratch, **quick) as cluster, Driver(cluster) as run:
        for topic in ("house.in 3 1", "house.gone 2 1", "house.kept 1 1"):
            run(f"topic {topic}")
        working(run, "house.in")
        run("share first house.in 2000")
        run("wait")
        _members_of_every_kind(run)
        for topic in ("house.in", "house.gone"):
            until_written(run, topic)
        run("stop")
        run("delete-topic house.gone")
        for kind, group in (
            ("Consumer", "deleted-classic"),
            ("Consumer", "deleted-modern"),
            ("Share", "deleted-share"),
        ):
            run(f"delete-group {kind} {group}")
        run("commit-offset from-outside house.in 0 5")
        run("commit-offset from-outside house.kept 0 0")
        run("delete-group Consumer from-outside")
        run("commit-offset from-outside house.in 1 2")
        _turned(run)
        _streams_groups(cluster, run, scratch)
        time.sleep(20)  # until the offsets of groups that ended first have expired
        cluster.stop()
        return Made(cluster.copy(target), [])


def _members_of_every_kind(run: Driver, ms: int = 1_200_000) -> None:
    run(f"load t1 house.in {ms} parts=3 n=2 size=8 pause=300 abort=6")
    run(f"load - house.gone {ms} parts=2 n=2 size=8 pause=300")
    run(f"copy copier house.in house.kept {ms}")
    for name in ("gone", "deleted", "expired"):
        topic = "house.gone" if name == "gone" else "house.in"
        run(f"consume {name}-classic {topic} {ms} auto.commit.interval.ms=1000")
        run(f"consume {name}-modern {topic} {ms} group.protocol=consumer auto.commit.interval.ms=1000")
        run(f"share {name}-share {topic} {ms}")


def _turned(run: Driver, ms: int = 1_200_000, nap: float = 15) -> None:
    """A classic group taken over by a member of the new protocol while it works (KIP-848), and given back."""
    run(f"load - house.in {ms} parts=3 n=2 size=8 pause=500 as=load")
    for protocol, name in (("classic", "first"), ("consumer", "second"), ("classic", "third")):
        run(f"consume turned house.in {ms} group.protocol={protocol} auto.commit.interval.ms=1000 as={name}")
        time.sleep(nap)  # until it is a member
        before = {"second": "first", "third": "second"}.get(name)
        if before:
            run(f"stop {before}")
            time.sleep(nap)
    run("stop")


def _streams_groups(cluster: Cluster, run: Driver, scratch: Path) -> None:
    """Two groups of Streams (KIP-1071) that end; one is deleted then."""
    version = cluster.version
    jars = compiled(HERE / "StreamsApp.java", BUILD / version, classpath(version, "kafka-streams"))
    run("load - house.in 1200000 parts=3 n=2 size=8 pause=300")
    for name in ("emptied", "deleted"):
        run(f"topic house.{name} 1 1")
        args = [cluster.servers, f"{name}-streams", "streams", str(scratch / f"state-{name}")]
        app = Jvm(jars, "StreamsApp", [*args, "house.in", f"house.{name}"], scratch / f"{name}.out", heap="128m")
        try:
            until_written(run, f"house.{name}", 5)
        finally:
            app.end()
    run("stop")
    time.sleep(10)
    run("delete-group Streams deleted-streams")


def tiered_settings(remote: Path) -> dict[str, str]:
    """Brokers that keep their remote segments as Kafka's LocalTieredStorage does, below ``remote``."""
    return PATIENT | {
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


def tiered_moved(version: str, scratch: Path, target: Path, meanwhile: Path | None = None) -> Made:
    """Tiered topics of two brokers: every partition moved to the other broker, which builds its state of what lies in
    remote storage from that alone, and written on. The remote part is in ``target/remote``.

    ``meanwhile``: for two further copies, with the same records: ``before`` anything was taken from the local logs, and
    ``after``, when that was done and every partition moved.
    """
    remote = target / "remote"
    remote.mkdir(parents=True)
    with Cluster(version, scratch, 2, others=("kafka-storage:test",), **tiered_settings(remote)) as cluster:
        time.sleep(6)  # until a controller leads
        with Driver(cluster) as run:
            tiered = f"{segment_bytes(version, 5000)} remote.storage.enable=true local.retention.ms=-2"
            run(f"topic fleet.tiered 3 1 {tiered} index.interval.bytes=500")
            for producer in ("producer t transactional.id=one-t", "producer plain", "init t"):
                run(producer)
            run("consume readers fleet.tiered 4000")
            _load(run, 8)
            run("wait")
            until_tiered(remote)
            if meanwhile is not None:
                cluster.copy(meanwhile / "before")
            run("config topic fleet.tiered local.retention.bytes=1")
            time.sleep(8)
            for partition in range(3):
                run(f"reassign fleet.tiered {partition} {3 - int(run(f'leader fleet.tiered {partition}'))}")
            time.sleep(8)
            if meanwhile is not None:
                cluster.copy(meanwhile / "after")
                shutil.copytree(remote, meanwhile / "remote")
            _load(run, 4)
            cluster.restart(2)
            _load(run, 2)
            until_tiered(remote)
        cluster.stop()
        at = cluster.copy(target)
    return Made(at, [])


def _load(run: Driver, rounds: int) -> None:
    """Transactions over all partitions, every fourth of them aborted, and records without: so many, however long it
    takes, since what is tiered goes by bytes."""
    for k in range(rounds):
        run("begin t")
        for partition in range(3):
            run(f"send t fleet.tiered {partition} 40 size=40 per=40")
        run(f"{'abort' if k % 4 == 3 else 'commit'} t")
        run(f"send plain fleet.tiered {k % 3} 40 size=40 per=40")


def until_tiered(remote: Path) -> None:
    """Wait until nothing more is copied to remote storage."""
    before = -1
    while (now := len(list(remote.rglob("*.log")))) > before:
        before = now
        time.sleep(6)


def streams(version: str, scratch: Path, target: Path, moment: str = "stopped") -> Made:
    """Two Streams applications with stores, exactly once, one by each protocol, killed and restarted; copied after the
    broker's end (``stopped``), or right after another ``kill -9`` (``killed``)."""
    with Cluster(version, scratch, **PATIENT) as cluster, Driver(cluster) as run:
        run("topic words.in 3 1")
        working(run, "words.in")
        jars = compiled(HERE / "StreamsApp.java", BUILD / version, classpath(version, "kafka-streams"))
        apps: dict[str, Jvm] = {}

        def start(protocol: str) -> None:
            run(f"topic words.{protocol} 3 1", may_fail=True)  # it is there already
            args = [cluster.servers, f"app-{protocol}", protocol, str(scratch / f"state-{protocol}")]
            out = scratch / f"app-{protocol}.out"
            apps[protocol] = Jvm(jars, "StreamsApp", [*args, "words.in", f"words.{protocol}"], out, heap="128m")

        try:
            run("load w1 words.in 300000 parts=3 n=3 size=6 pause=120 abort=6")
            run("load - words.in 300000 parts=3 n=2 size=6 pause=200")
            for protocol in ("classic", "streams"):
                start(protocol)
            for protocol, signalled in (("classic", signal.SIGKILL), ("streams", signal.SIGKILL),
                                        ("streams", signal.SIGTERM), ("classic", signal.SIGKILL)):  # fmt: skip
                until_written(run, f"words.{protocol}")
                apps[protocol].end(signalled)
                start(protocol)
            for protocol in apps:
                until_written(run, f"words.{protocol}")
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
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(version, scratch, **PATIENT))
        lines.write_text("first\n", encoding="utf-8")
        (scratch / "connect.properties").write_text(
            "".join(f"{k}={v}\n" for k, v in _worker(cluster, port).items()), encoding="utf-8"
        )
        run = stack.enter_context(Driver(cluster))
        run("topic file.out 1 1")
        for kill in (True, True, False):
            main = "org.apache.kafka.connect.cli.ConnectDistributed"
            worker = Jvm(
                classpath(version, "connect-runtime", "connect-file"), main,
                [str(scratch / "connect.properties")], scratch / "connect.out", heap="192m",
            )  # fmt: skip
            try:
                _configured(port, lines)
                with lines.open("a", encoding="utf-8") as f:
                    f.writelines(f"line {n}\n" for n in range(2000))
                until_written(run, "file.out", 100)
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
    small = {"log.index.size.max.bytes": "4096"} | PATIENT
    with Cluster(version, scratch, heap="640m", **small) as cluster, Driver(cluster) as run:
        names = [f"wide.{k:02}" for k in range(26)]
        for name in names[:-1]:
            run(f"topic {name} 50 1")
        run(f"topic {names[-1]} {PARTITIONS - 50 * len(names[:-1])} 1")
        working(run, names[0])
        _until_there(cluster.log_dir())
        ms = 60_000
        for k, name in enumerate(names[:8]):
            run(f"load t{k} {name} {ms} parts=50 n=1 size=8 pause=150 abort=6")
        for name in names[8:16]:
            run(f"load - {name} {ms} parts=50 n=1 size=8 pause=200")
        run(f"copy copier {names[0]} {names[20]} {ms}")
        run(f"consume reader {names[1]} {ms} group.protocol=consumer")
        until_written(run, names[7], 100)
        at = cluster.copy(target)
        run("wait")
        return Made(at, [])


def _until_there(folder: Path, seconds: float = 400) -> None:
    """Wait until a broker has made the folders of all partitions."""
    until = time.monotonic() + seconds
    while len(list(folder.glob("wide.*"))) < PARTITIONS:
        if time.monotonic() > until:
            raise RuntimeError("partitions are missing")
        time.sleep(1)
