"""Remedies carried out as they are printed: commands pasted into a shell, steps by hand done as they are said.

The jars of Kafka hold no shell scripts: stand-ins of the same names start the same tools.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auditor import cli
from auditor.dashboards.wording import pieces
from tests.broker.cluster import Cluster, Driver
from tests.broker.jars import classpath

TOOLS = {
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-dump-log.sh": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
STAND_IN = '#!/bin/sh\nexec java -Xmx128m -XX:TieredStopAtLevel=1 -cp "{}" {} "$@"\n'
MOVED = re.compile(r"[Ss]top broker (\d+), move (\S+)(?: and (\S+))? away and keep (?:it|them), start the broker")
STARTED = re.compile(r"start broker (\d+)")
PATIENCE_S = 240
DONE = ("Empty", "CompleteCommit", "CompleteAbort")  # states in which an id has nothing open

Row = dict[str, Any]  # a finding as findings.jsonl has it


class Operator:
    """Who audits a cluster and does what the findings say. ``folder``: where copies, results and what is moved away
    are kept."""

    def __init__(self, cluster: Cluster, run: Driver, folder: Path) -> None:
        self.cluster, self.run, self.folder = cluster, run, folder
        self.scripts, self.kept = folder / "bin", folder / "kept"
        for made in (self.scripts, self.kept):
            made.mkdir(parents=True)
        for script, main in TOOLS.items():
            file = self.scripts / script
            file.write_text(STAND_IN.format(classpath(cluster.version, "kafka-tools"), main), encoding="utf-8")
            file.chmod(0o755)

    def audit(self, name: str, *brokers: int) -> list[Row]:
        """A copy in the order of docs/copying.md, audited, of all brokers or some: what is graver than info."""
        copy, out = self.folder / f"{name}-copy", self.folder / name
        self.cluster.copy_in_order(copy)
        paths = [str(copy / f"broker-{broker}") for broker in brokers] or [str(copy)]
        options = ["--out", str(out), "--bootstrap-server", self.cluster.servers, "--master", "inline[1]", "--quiet"]
        assert cli.main(["audit", *paths, *options]) in (0, 1)
        rows = map(json.loads, (out / "findings.jsonl").read_text(encoding="utf-8").splitlines())
        return [row for row in rows if row["severity"] != "info"]

    def paste(self, command: str, where: Path | None = None) -> str:
        """What a command prints, pasted into a shell that stands in a folder; it has to succeed."""
        path = os.pathsep.join((str(self.scripts), os.environ["PATH"]))
        done = subprocess.run(
            ["sh", "-c", command], cwd=where or self.folder, env=os.environ | {"PATH": path}, capture_output=True,
            text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def paste_until(self, command: str, shown: Callable[[str], bool]) -> str:
        """The same again and again until it shows what is waited for."""
        until = time.monotonic() + PATIENCE_S
        while not shown(said := self.paste(command)):
            assert time.monotonic() < until, f"{command}\n{said}"
            time.sleep(1)
        return said

    def move_away(self, row: Row) -> int:
        """Stops the broker that a remedy names, moves away what it names and keeps it, and starts the broker again;
        which one."""
        (said,) = MOVED.findall(row["remedy"])
        broker = int(said[0])
        folder = self.cluster.log_dir(broker)
        self.cluster.stop_one(broker)
        for number, name in enumerate(filter(None, said[1:])):
            assert (folder / name).exists(), name
            shutil.move(folder / name, self.kept / f"{len(list(self.kept.iterdir()))}-{number}")
        self.cluster.start(broker)
        self.cluster.await_port(broker)
        return broker

    def state(self, command: str) -> str:
        """The state of a transactional id, as a command that describes it shows."""
        _, shown = self.paste(command).strip().splitlines()
        return next(word for word in shown.split() if word in (*DONE, "Ongoing") or word.startswith("Prepare"))

    def alone(self, command: str, broker: int) -> set[str]:
        """The partitions of which a broker has the only replica in sync, by what a command shows."""
        found = re.findall(r"Topic: (\S+)\tPartition: (\d+)\t.*Isr: ([\d,]*)", self.paste(command))
        return {f"{topic}-{partition}" for topic, partition, isr in found if isr == str(broker)}

    def reads(self, topic: str, partition: int, isolation: str = "read_committed", *how: str) -> list[int]:
        """The offsets that a consumer of Kafka's gets; with ``show=values`` the values, which are numbers."""
        return [int(o) for o in self.run(" ".join(("read", topic, str(partition), isolation, *how))).split()]


def commands(row: Row, script: str = "") -> list[str]:
    """The commands of a finding in the order in which they are printed; of one script alone."""
    return [text for kind, text in pieces(row["remedy"]) if kind == "command" and text.startswith(script)]


def named_alone(row: Row) -> set[str]:
    """The partitions without another in-sync replica that an advice names, where it names all of them."""
    said = " for no other partition than "
    named = [look["expect"].partition(said)[2] for look in row["advice"]["conditions"] if said in look["expect"]]
    return set(named[0].split(", ")) if named else set()


def of(rows: list[Row], rule: str, topic: str, partition: int) -> Row:
    """The first finding of a rule about a partition; if there are more, they all have the same remedy."""
    first, *others = (r for r in rows if (r["kind"], r["topic"], r["partition"]) == (rule, topic, partition))
    assert all(other["remedy"] == first["remedy"] for other in others)
    return first
