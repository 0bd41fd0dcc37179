"""Real brokers on the loopback, one JVM each, and the real clients beside them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.broker.jars import classpath, clock_library, driver_classpath, numbers

CLUSTER_ID = "c2NlbmFyaW8tY2x1c3Rlcg"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.io.buffer.size": "1048576",
    "transaction.state.log.segment.bytes": "1048576",
    "offsets.topic.segment.bytes": "1048576",
    "num.network.threads": "2",
    # Who asks for a producer id holds a thread while the broker asks its controller, itself, for more (KAFKA-14694).
    "num.io.threads": "16",
}


def free_port() -> int:
    """A port of the loopback that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Made:
    """A copy of log directories: when it was made (ms), and what an audit of it must say."""

    at: int
    expect: list[dict[str, Any]]
    more: dict[str, Any] = field(default_factory=dict)  # what else its manifest says


def segment_bytes(version: str, size: int) -> str:
    """The topic setting for segments below 1 MB."""
    return f"{'internal.' if numbers(version) >= (4, 1) else ''}segment.bytes={size}"


class Jvm:
    """One JVM, its output in a file; ended by its own process id only. ``ahead``: by how many ms its clock is."""

    def __init__(self, jars: str, main: str, args: list[str], out: Path, heap: str = "320m", ahead: int = 0) -> None:
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
        options.append("-Dzookeeper.jmx.log4j.disable=true")  # which log4j's successor does not have
        clock = {"LD_PRELOAD": str(clock_library()), "CLOCK_AHEAD_MS": str(ahead)} if ahead else {}
        self.out = out.open("ab")
        self.process = subprocess.Popen(
            ["java", *options, "-cp", jars, main, *args],
            stdout=self.out, stderr=subprocess.STDOUT, env=os.environ | clock,
        )  # fmt: skip

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(timeout=90)
        self.out.close()


class Cluster:
    """Brokers 1..n of one release below ``folder``: KRaft from 3.3 on, with a ZooKeeper before.

    ``disks``: how many log directories each has; of several, they are folders of their own below one. ``others``:
    what else of the release is on its class path. ``listeners``: names of further ones, of KRaft brokers, with a port
    each in ``more_ports``. ``format_words``: what else ``kafka-storage.sh format`` is given. ``voters``: how many of
    them, the first ones, are controllers too; all if not given. ``ahead``: by how many ms some brokers' clocks are.
    """

    def __init__(
        self, version: str, folder: Path, brokers: int = 1, disks: int = 1, *,
        others: tuple[str, ...] = (), heap: str = "320m", listeners: tuple[str, ...] = (),
        format_words: tuple[str, ...] = (), voters: int | None = None, ahead: dict[int, int] | None = None,
        **settings: str,
    ) -> None:  # fmt: skip
        self.version, self.folder, self.count, self.disks, self.heap = version, folder, brokers, disks, heap
        self.jars = classpath(version, *others)
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.kraft = numbers(version) >= (3, 3)
        folder.mkdir(parents=True, exist_ok=True)
        self.ports = [free_port() for _ in range(brokers)]
        self.controllers = [free_port() for _ in range(brokers if voters is None else voters)]
        self.more_ports = [{name: free_port() for name in listeners} for _ in range(brokers)]
        self.format_words, self.ahead = format_words, ahead or {}
        self.jvms: dict[int, Jvm] = {}
        self.zookeeper: Jvm | None = None
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    def _start_all(self) -> None:
        if not self.kraft:
            self._start_zookeeper()
        for broker in range(1, self.count + 1):
            self._configure(broker)
            if self.kraft:
                self._format(broker)
            self.start(broker)
        for broker in range(1, self.count + 1):
            self.await_port(broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def servers(self) -> str:
        """bootstrap.servers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def log_dir(self, broker: int = 1) -> Path:
        """The log directory of a broker."""
        return self.folder / f"broker-{broker}"

    def disk(self, broker: int, number: int) -> Path:
        """One of several log directories of a broker, counted from 1."""
        return self.log_dir(broker) / f"disk-{number}"

    def _start_zookeeper(self) -> None:
        port = free_port()
        file = self.folder / "zookeeper.properties"
        data = self.folder / "zookeeper"
        ticks = "tickTime=500\nmaxSessionTimeout=3000\n"  # a broker that was killed may soon come back
        file.write_text(f"dataDir={data}\nclientPort={port}\nadmin.enableServer=false\nmaxClientCnxns=0\n{ticks}")
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self.zookeeper = Jvm(classpath(self.version), main, [str(file)], self.folder / "zookeeper.out", heap="128m")
        self.settings["zookeeper.connect"] = f"127.0.0.1:{port}"
        self.settings["zookeeper.connection.timeout.ms"] = "30000"
        self.settings["zookeeper.session.timeout.ms"] = "3000"

    def _configure(self, broker: int) -> None:
        replicas = str(self.count)
        dirs = [self.disk(broker, k + 1) for k in range(self.disks)] if self.disks > 1 else [self.log_dir(broker)]
        p = {
            **SETTINGS,
            "log.dirs": ",".join(map(str, dirs)),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "1",
        }
        plain = f"PLAINTEXT://127.0.0.1:{self.ports[broker - 1]}"
        if self.kraft:
            more = self.more_ports[broker - 1].items()
            plain = ",".join((plain, *(f"{name}://127.0.0.1:{port}" for name, port in more)))
            voters = ",".join(f"{k + 1}@127.0.0.1:{port}" for k, port in enumerate(self.controllers))
            votes = broker <= len(self.controllers)
            controller = f",CONTROLLER://127.0.0.1:{self.controllers[broker - 1]}" if votes else ""
            p |= {
                "process.roles": "broker,controller" if votes else "broker",
                "node.id": str(broker),
                "controller.quorum.voters": voters,
                "listeners": f"{plain}{controller}",
                "advertised.listeners": plain,
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            }
        else:
            p |= {"broker.id": str(broker), "listeners": plain}
        p |= self.settings
        self._file(broker).write_text("".join(f"{k}={v}\n" for k, v in p.items()))

    def _file(self, broker: int) -> Path:
        return self.folder / f"server-{broker}.properties"

    def _format(self, broker: int) -> None:
        command = ["java", "-cp", classpath(self.version), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
        command += ["-c", str(self._file(broker)), *self.format_words]
        subprocess.run(command, capture_output=True, check=True)

    def start(self, broker: int = 1) -> None:
        """Start a broker, for the first time or again."""
        out = self.folder / f"broker-{broker}.out"
        ahead = self.ahead.get(broker, 0)
        self.jvms[broker] = Jvm(self.jars, "kafka.Kafka", [str(self._file(broker))], out, self.heap, ahead)

    def await_port(self, broker: int = 1, seconds: float = 180) -> None:
        """Wait until a broker listens."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.ports[broker - 1])) == 0:
                    return
            if self.jvms[broker].process.poll() is not None:
                break
            time.sleep(0.2)
        raise RuntimeError((self.folder / f"broker-{broker}.out").read_text()[-3000:])

    def stop(self) -> None:
        """A clean shutdown of every broker that runs, all at once: the last of a KRaft quorum cannot stop alone."""
        for jvm in self.jvms.values():
            jvm.process.terminate()
        for broker in list(self.jvms):
            self.jvms.pop(broker).end()

    def stop_one(self, broker: int = 1) -> None:
        """A clean shutdown of one broker; the others of its quorum have to run."""
        self.jvms.pop(broker).end()

    def restart(self, broker: int = 1) -> None:
        """:meth:`stop_one`, and its start."""
        self.stop_one(broker)
        self.start(broker)
        self.await_port(broker)

    def kill(self, broker: int = 1) -> None:
        """The end by ``kill -9``."""
        self.jvms.pop(broker).end(signal.SIGKILL)

    def signal(self, how: signal.Signals, broker: int = 1) -> None:
        """SIGSTOP and SIGCONT: a broker that hangs, and goes on."""
        self.jvms[broker].process.send_signal(how)

    def copy(self, target: Path, *brokers: int, pause: float = 0) -> int:
        """Copy log directories as an operator would, file by file, with a pause (s) before each folder, as large ones
        take their time; the time after it in ms."""
        for broker in brokers or range(1, self.count + 1):
            _copy_tree(self.log_dir(broker), target / f"broker-{broker}", pause)
            self._copy_settings(broker, target)
        return int(time.time() * 1000)

    def copy_in_order(self, target: Path, pause: float = 0) -> int:
        """The same in the order of docs/copying.md: a log later than what it explains."""
        for turn in range(4):
            for broker in range(1, self.count + 1):
                time.sleep(pause)
                for entry in sorted(p for p in self.log_dir(broker).iterdir() if _turn(p) == turn):
                    if entry.is_dir():
                        _copy_tree(entry, target / f"broker-{broker}" / entry.name, pause)
                    else:
                        _copy_file(entry, target / f"broker-{broker}")
        for broker in range(1, self.count + 1):
            self._copy_settings(broker, target)
        return int(time.time() * 1000)

    def _copy_settings(self, broker: int, target: Path) -> None:
        properties = self._file(broker).read_text().replace(f"{self.folder}/", "")
        (target / f"server-{broker}.properties").write_text(properties)

    def close(self) -> None:
        """End every JVM that is left."""
        for broker in list(self.jvms):
            self.kill(broker)
        if self.zookeeper is not None:
            self.zookeeper.end()


def _copy_tree(source: Path, target: Path, pause: float) -> None:
    """Like ``cp -r``: what vanishes meanwhile is not copied."""
    target.mkdir(parents=True, exist_ok=True)
    time.sleep(pause)
    for entry in sorted(source.iterdir()):
        try:
            if entry.is_dir():
                _copy_tree(entry, target / entry.name, pause)
            else:
                _copy_file(entry, target)
        except FileNotFoundError:
            continue


def _copy_file(file: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    if file.name != ".lock":
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(file, target / file.name)


def _turn(entry: Path) -> int:
    """When a file or folder of a log directory is copied, by docs/copying.md."""
    if entry.is_file() or entry.name.startswith("__consumer_offsets-"):
        return 0
    return {"__transaction_state": 2, "__cluster_metadata": 3}.get(entry.name.rpartition("-")[0], 1)


class Driver:
    """The real clients of a release; see ``Driver.java`` for its commands."""

    def __init__(self, cluster: Cluster, version: str | None = None) -> None:
        jars = driver_classpath(version or cluster.version)
        self.errors = (cluster.folder / "driver.err").open("ab")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self.process = subprocess.Popen(
            ["java", *options, "-cp", jars, "Driver", cluster.servers],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def __call__(self, line: str, *, may_fail: bool = False) -> str:
        """One command's answer without its ``ok``; an error raises unless ``may_fail``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        while answer and answer.split(" ")[0] not in ("ok", "error"):  # what logging says on stdout
            answer = self.process.stdout.readline().strip()
        if not answer.startswith("ok") and not may_fail:
            raise RuntimeError(f"{line}: {answer}")
        return answer.removeprefix("ok").strip()
