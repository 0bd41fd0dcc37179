"""Kafka Connect and Kafka Streams, killed after all that a transaction writes and before its commit: what audits say of
the open transaction, and the advice about it, carried out. Each numbered record counts once for read_committed
consumers."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.transactional_ids import COLUMNS
from tests.broker.as_printed import Operator, Row
from tests.broker.cluster import Cluster, Driver, Jvm, free_port
from tests.broker.jars import BUILD, HERE, classpath, compiled, missing_tools

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

RELEASE = "4.3.1"
NEVER_MS, SOON_MS = 600_000, 30_000  # time-outs of transactions: beyond the test, and within it
WAITS_S = 15  # longer than sessions of Connect's workers last, and than any start here
PATIENCE_S = 120
HOUR_MS = 3_600_000
HALTED = 137
FAST_SESSIONS = {f"group_streams_{least}session_timeout_ms": "6000" for least in ("", "min_")} | {
    f"group_streams_{least}heartbeat_interval_ms": "1000" for least in ("", "min_")
}
TOPIC, GROUP = "bank.numbers", "bank"
CONNECTOR = {"connector.class": "NumberSource", "tasks.max": "1", "topic": TOPIC}
TASK = ("Kafka Connect", GROUP, "task 0 of connector numbers")
LEADER = ("Kafka Connect", GROUP, "the worker that leads the group")
TASK_ID, LEADER_ID = f"{GROUP}-numbers-0", f"connect-cluster-{GROUP}"
FORCED = "at once by kafka-transactions.sh forceTerminateTransaction (Kafka 4.1 or newer)"


@dataclass
class Stage:
    """A broker, its clients, and the JVMs of frameworks beside it."""

    cluster: Cluster
    run: Driver
    operator: Operator
    folder: Path
    jvms: list[Jvm] = field(default_factory=list)

    def jvm(self, jars: str, main: str, *args: str) -> Jvm:
        """Start a JVM that ends with the test."""
        self.jvms.append(Jvm(jars, main, [*args], self.folder / f"{main}-{len(self.jvms)}.out", heap="256m"))
        return self.jvms[-1]

    def values(self, topic: str, isolation: str = "read_committed") -> list[str]:
        """The values that a consumer gets of partition 0."""
        return self.run(f"read {topic} 0 {isolation} show=values").split()

    def goes_on(self, topic: str, records: int = 20) -> float:
        """Wait until read_committed consumers get further records; how long it took, s."""
        begun, before = time.monotonic(), len(self.values(topic))
        until(lambda: len(self.values(topic)) >= before + records, f"nothing is committed to {topic}")
        return time.monotonic() - begun

    def audits(self, name: str, later_ms: int = 0) -> Iterator[tuple[list[Row], list[Row]]]:
        """What a copy and the running cluster show: blocked partitions, and findings above info."""
        copy, as_of = self.folder / f"{name}-copy", str(int(time.time() * 1000) + later_ms)
        self.cluster.copy_in_order(copy)
        for call in (["audit", str(copy)], ["live"]):
            out = self.folder / f"{name}-{call[0]}"
            options = ["--bootstrap-server", self.cluster.servers, "--as-of", as_of, "--master", "inline[1]", "--quiet"]
            assert cli.main([*call, "--out", str(out), *options]) in (0, 1)
            rows = map(json.loads, (out / "findings.jsonl").read_text(encoding="utf-8").splitlines())
            summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
            yield summary["blocked"], [row for row in rows if row["severity"] != "info"]

    def shows(self, whose: tuple[str, str, str], records: dict[str, int], *texts: str) -> None:
        """Within its time-out and after it, the transaction is proved to be ``whose``, with so many ``records`` of each
        topic, which an abort discards; its advice has ``texts``."""
        for later_ms, status in ((0, "open"), (HOUR_MS, "overdue")):
            for blocked, findings in self.audits(status, later_ms):
                assert {row["topic"]: row["records"] for row in blocked} == records
                assert {row["status"] for row in blocked} == {status}
                assert bool(findings) == (status == "overdue")
                named = [*blocked, *(row["evidence"] for row in findings)]
                assert {tuple(row[column] for column in COLUMNS[:4]) for row in named} == {(*whose, "proved")}
                for row in blocked:
                    assert status == "open" or f"an abort discards {row['records']} record" in row["remedy"]
                for row in (*blocked, *findings):
                    assert f"This is {whose[0]}: " in row["remedy"]
                    assert [text for text in texts if text not in row["remedy"]] == []

    def ends_well(self, topic: str, dropped: list[str], value: Callable[[int], str]) -> None:
        """Each value once for read_committed consumers; what was aborted was written twice; no finding above info."""
        committed, written = self.values(topic), Counter(self.values(topic, "read_uncommitted"))
        assert committed == [value(number) for number in range(len(committed))]
        assert {*dropped} <= {*committed}
        assert {each: count for each, count in written.items() if count > 1} == dict.fromkeys(dropped, 2)
        for blocked, findings in self.audits("after"):
            assert findings == []
            assert {row["status"] for row in blocked}.isdisjoint({"overdue", "hanging"})  # only of what works on

    def terminate(self, transactional_id: str) -> None:
        """Let its coordinator abort a transaction, by the command that advice names."""
        command = f"kafka-transactions.sh --bootstrap-server {self.cluster.servers} forceTerminateTransaction"
        self.operator.paste(f"{command} --transactionalId {transactional_id}")

    def open(self, *topics: str) -> list[str]:
        """The first offset of the transaction that is open in partition 0 of each topic."""
        return [self.run(f"open {topic} 0").partition(":")[2] for topic in topics]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Cluster(RELEASE, tmp_path / "cluster", 1, heap="256m", **FAST_SESSIONS) as cluster, Driver(cluster) as run:
        stage = Stage(cluster, run, Operator(cluster, run, tmp_path), tmp_path)
        try:
            yield stage
        finally:
            for jvm in stage.jvms:
                jvm.end(signal.SIGKILL)


def until(done: Callable[[], Any], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.3)


class Worker:
    """A distributed worker of Kafka Connect with exactly.once.source.support."""

    def __init__(self, stage: Stage, timeout_ms: int = NEVER_MS, **settings: str) -> None:
        self.stage, self.port, number = stage, free_port(), len(stage.jvms)
        self.halt = stage.folder / f"halt-{number}"
        own = {
            "bootstrap.servers": stage.cluster.servers,
            "group.id": GROUP,
            "listeners": f"http://127.0.0.1:{self.port}",
            "exactly.once.source.support": "enabled",
            "transaction.timeout.ms": str(timeout_ms),
            "interceptor.classes": "NumberSource$Halt",
            "halt.file": str(self.halt),
        }
        own |= {f"producer.{name}": own[name] for name in [*own][-3:]}  # of tasks
        for kind in ("config", "offset", "status"):
            own |= {f"{kind}.storage.topic": f"{GROUP}-{kind}s", f"{kind}.storage.replication.factor": "1"}
        own |= {"offset.storage.partitions": "1", "status.storage.partitions": "1"}
        own |= {f"{kind}.converter": "org.apache.kafka.connect.storage.StringConverter" for kind in ("key", "value")}
        own |= {name.replace("_", "."): value for name, value in settings.items()}
        file = stage.folder / f"worker-{number}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in own.items()), encoding="utf-8")
        jars = compiled(HERE / "NumberSource.java", BUILD / RELEASE, classpath(RELEASE, "connect-runtime"))
        self.jvm = stage.jvm(jars, "org.apache.kafka.connect.cli.ConnectDistributed", str(file))
        until(self._answers, f"no worker at {self.port}")

    def _answers(self) -> bool:
        assert self.jvm.process.poll() is None, Path(self.jvm.out.name).read_text(encoding="utf-8")[-3000:]
        with contextlib.suppress(OSError):
            self.asked("/connectors")
            return True
        return False

    def asked(self, path: str, body: dict[str, Any] | None = None, seconds: float = 30) -> Any:
        """What the REST interface answers; a body is posted."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.loads(answer.read())

    def create(self, **settings: str) -> None:
        """Create the connector that numbers records."""
        self.asked("/connectors", {"name": "numbers", "config": CONNECTOR | settings})

    def halted(self, topic: str) -> list[str]:
        """Wait until the worker ends at a record of ``topic`` that a broker has; the numbers of its transaction."""
        self.halt.write_text(topic, encoding="utf-8")
        assert self.jvm.process.wait(60) == HALTED
        written = self.stage.values(TOPIC, "read_uncommitted")
        return written[len(self.stage.values(TOPIC)) :]


def test_a_task_without_source_offsets_ends_when_its_worker_starts(stage: Stage) -> None:
    """Its transaction, of an interval of 10 s, has records alone: the next producer of its id aborts it."""
    stage.run(f"topic {TOPIC} 1 1")
    worker = Worker(stage)
    worker.create(**{"transaction.boundary": "interval", "transaction.boundary.interval.ms": "10000"})
    stage.goes_on(TOPIC)  # an interval begins
    dropped = worker.halted(TOPIC)
    assert dropped
    assert stage.open(f"{GROUP}-offsets") == [""]
    records = {TOPIC: len(dropped)}
    stage.shows(TASK, records, f"restart task 0 of connector numbers ({GROUP}): its next producer fences this one")
    Worker(stage)
    assert stage.goes_on(TOPIC) * 1000 < NEVER_MS
    stage.ends_well(TOPIC, dropped, str)


@pytest.mark.parametrize("timeout_ms", [NEVER_MS, SOON_MS])
def test_a_worker_that_starts_waits_for_a_task_with_source_offsets(timeout_ms: int, stage: Stage) -> None:
    """It reads the topic of source offsets to its end before it starts tasks: until the time-out, or until somebody has
    the coordinator abort the transaction."""
    stage.run(f"topic {TOPIC} 1 1")
    worker = Worker(stage, timeout_ms)
    worker.create()
    stage.goes_on(TOPIC)
    dropped = worker.halted(f"{GROUP}-offsets")
    killed, topics = time.monotonic(), (TOPIC, f"{GROUP}-offsets")
    begun = stage.open(*topics)
    assert len(dropped) == 7  # one poll of NumberSource
    assert all(begun)
    if timeout_ms == NEVER_MS:
        waits = "a starting worker waits until it ends, "
        stage.shows(TASK, dict(zip(topics, (len(dropped), 1), strict=True)), waits, FORCED)
    Worker(stage)
    if timeout_ms == NEVER_MS:
        time.sleep(WAITS_S)
        assert stage.open(*topics) == begun
        stage.terminate(TASK_ID)
    stage.goes_on(TOPIC)
    assert timeout_ms == NEVER_MS or (time.monotonic() - killed) * 1000 > timeout_ms - 2_000
    stage.ends_well(TOPIC, dropped, str)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_task_ends_when_it_starts_on_a_running_worker(hangs: bool, stage: Stage) -> None:
    """That has read the topic of source offsets before the transaction. A worker that hung meanwhile and goes on is
    fenced: what it still sends is refused."""
    stage.run(f"topic {TOPIC} 1 1")
    workers = [Worker(stage, scheduled_rebalance_max_delay_ms="1000") for _ in range(2)]
    interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "10000"}
    workers[0].create(**interval if hangs else {})
    stage.goes_on(TOPIC)
    (task,) = workers[0].asked("/connectors/numbers/status")["tasks"]
    worker = next(each for each in workers if task["worker_id"].endswith(f":{each.port}"))
    if hangs:
        time.sleep(2)  # into the next interval
        worker.jvm.process.send_signal(signal.SIGSTOP)
        time.sleep(2)  # a broker has written what was on its way
        dropped = stage.values(TOPIC, "read_uncommitted")[len(stage.values(TOPIC)) :]
    else:
        dropped = worker.halted(f"{GROUP}-offsets")
        assert all(stage.open(f"{GROUP}-offsets"))
    assert dropped
    assert stage.goes_on(TOPIC) * 1000 < NEVER_MS
    if hangs:
        worker.jvm.process.send_signal(signal.SIGCONT)
        stage.goes_on(TOPIC)
    stage.ends_well(TOPIC, dropped, str)


@pytest.mark.parametrize("others", [0, 1])
def test_a_leader_of_workers_ends_when_another_leads(others: int, stage: Stage) -> None:
    """Killed while it writes a connector's configuration: another running worker aborts the transaction, and one that
    starts waits. The configuration is lost."""
    stage.run(f"topic {TOPIC} 1 1")
    workers, configs = [Worker(stage) for _ in range(1 + others)], f"{GROUP}-configs"
    for worker in workers:
        worker.halt.write_text(configs, encoding="utf-8")
    with contextlib.suppress(OSError):
        workers[0].create()
    until(lambda: any(each.jvm.process.poll() is not None for each in workers), "no leader writes")
    for worker in workers:
        worker.halt.unlink()
    begun = stage.open(configs)
    assert all(begun)
    if not others:
        stage.shows(LEADER, {configs: 1}, "The configuration that the worker that leads the group was writing", FORCED)
        workers.append(Worker(stage))
        time.sleep(WAITS_S)
        assert stage.open(configs) == begun
        stage.terminate(LEADER_ID)
    until(lambda: stage.open(configs) == [""], "it stays open")
    (running,) = (each for each in workers if each.jvm.process.poll() is None)
    assert running.asked("/connectors", seconds=PATIENCE_S) == []
    until(lambda: _is_created(running), "no leader takes it")
    stage.goes_on(TOPIC)
    stage.ends_well(TOPIC, [], str)


def _is_created(worker: Worker) -> bool:
    # While workers elect their leader, it is refused.
    with contextlib.suppress(OSError):
        worker.create()
        return True
    return False


@pytest.mark.parametrize(("protocol", "ending"), [
    ("classic", "state kept"), ("streams", "state kept"), ("classic", "time-out"), ("streams", "terminated"),
])  # fmt: skip
def test_an_application_of_streams_ends_when_its_thread_starts(protocol: str, ending: str, stage: Stage) -> None:
    """Killed with its input's offsets sent: with its state directory it aborts the transaction when it starts again.
    Without, its tasks wait until the time-out, or until somebody has the coordinator abort it."""
    timeout_ms, application, topic = SOON_MS if ending == "time-out" else NEVER_MS, "count-numbers", "bank.counts"
    halt, state = stage.folder / "halt", stage.folder / "state"
    for name in ("bank.in", topic):
        stage.run(f"topic {name} 1 1")
    stage.run(f"load - bank.in {HOUR_MS} n=3 size=8 pause=100")
    jars = compiled(HERE / "CountingApp.java", BUILD / RELEASE, classpath(RELEASE, "kafka-streams"))

    def start(folder: Path) -> Jvm:
        places = (protocol, str(folder), "bank.in", topic, str(timeout_ms), str(halt))
        return stage.jvm(jars, "CountingApp", stage.cluster.servers, application, *places)

    app = start(state)
    stage.goes_on(topic)
    halt.touch()
    assert app.process.wait(60) == HALTED
    halt.unlink()
    killed, begun = time.monotonic(), stage.open(topic)
    dropped = stage.values(topic, "read_uncommitted")[len(stage.values(topic)) :]
    assert dropped
    process = json.loads((state / application / "kafka-streams-process-metadata").read_text())["processId"]
    if ending == "state kept":
        records = {topic: len(dropped), f"{application}-counts-changelog": len(dropped), "__consumer_offsets": 1}
        whose = ("Kafka Streams", application, f"thread 1 of process {process}")
        stage.shows(whose, records, f"restart {application} (thread 1 of process {process}): a thread or task", FORCED)
    start(state if ending == "state kept" else stage.folder / "another")
    if ending == "terminated":
        time.sleep(WAITS_S)
        assert stage.open(topic) == begun
        stage.terminate(f"{application}-{process}-1")
    stage.goes_on(topic)
    assert ending != "time-out" or (time.monotonic() - killed) * 1000 > timeout_ms - 2_000
    stage.ends_well(topic, dropped, lambda offset: f"{offset}:{offset + 1}")
