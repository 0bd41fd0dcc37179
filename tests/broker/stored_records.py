"""Records of a broker's partitions as Kafka's own DumpLogSegments prints them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.broker.jars import classpath, numbers

FILE = re.compile(r"^Dumping (.*)$")
BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) .* producerId: (-?\d+) producerEpoch: (-?\d+) .*"
    r"isTransactional: (\w+) isControl: (\w+)"
)
RECORD = re.compile(r"^\| offset: (\d+) .* sequence: (-?\d+) .*payload: (\S+)$")


class StoredRecord(NamedTuple):
    """A data record of a log."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    value: str


Stored = dict[tuple[str, int], list[StoredRecord]]  # records in log order, by topic and partition


def stored(version: str, log_dir: Path) -> Stored:
    """The data records of each partition of a log directory that is not internal."""
    files = [file for file in sorted(log_dir.glob("*/*.log")) if not file.parent.name.startswith("__")]
    if not files:
        return {}
    main = f"{'org.apache.kafka' if numbers(version) >= (4, 0) else 'kafka'}.tools.DumpLogSegments"
    command = ["java", "-Xmx256m", "-cp", classpath(version, "kafka-tools"), main, "--print-data-log", "--files"]
    printed = subprocess.run([*command, ",".join(map(str, files))], capture_output=True, text=True, check=True).stdout
    found: Stored = {}
    at, batch, control = ("", 0), (-1, -1), False
    for line in printed.splitlines():
        if (named := FILE.match(line)) is not None:
            topic, _, partition = Path(named[1]).parent.name.rpartition("-")
            at = topic, int(partition)
            found.setdefault(at, [])
        elif (head := BATCH.match(line)) is not None:
            batch, control = (int(head[3]), int(head[4])), head[6] == "true"
        elif not control and (one := RECORD.match(line)) is not None:
            found[at].append(StoredRecord(int(one[1]), *batch, int(one[2]), one[3]))
    return found
