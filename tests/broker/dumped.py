"""What Kafka's own DumpLogSegments prints of segments: records, those of ``__transaction_state``, markers."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.broker.jars import classpath, numbers

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
TOMBSTONE = "Tombstone"
RECORD = re.compile(r"^\| offset: (\d+) .* key: (\{.*?\}\}) payload: (.*)$", re.M)
MARKER = re.compile(
    r"^baseOffset: \d+ .* producerId: (\d+) producerEpoch: (\d+) .* isControl: true .*\n.* endTxnMarker: (\w+) ", re.M
)

FILE = re.compile(r"^Dumping (.*)$")
BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) .* producerId: (-?\d+) producerEpoch: (-?\d+) .*"
    r"isTransactional: (\w+) isControl: (\w+)"
)
DATA = re.compile(r"^\| offset: (\d+) .* sequence: (-?\d+) .*payload: (\S+)$")


@dataclass(frozen=True)
class StateRecord:
    """A record of ``__transaction_state``; of a tombstone only the first three fields tell anything."""

    offset: int
    transactional_id: str
    state: str
    producer_id: int = -1
    epoch: int = -1
    start_ms: int = -1
    partitions: tuple[str, ...] = ()


def state_records(version: str, folder: Path) -> list[StateRecord]:
    """All records of a partition of ``__transaction_state``."""
    found = []
    for offset, key, value in RECORD.findall(_printed(version, _segments(folder), "--transaction-log-decoder")):
        name = json.loads(key)["data"]["transactionalId"]
        if not value.startswith("{"):
            found.append(StateRecord(int(offset), name, TOMBSTONE))
            continue
        v = json.loads(value)["data"]
        partitions = (f"{t['topic']}-{p}" for t in v["transactionPartitions"] or () for p in t["partitionIds"])
        found.append(
            StateRecord(
                int(offset), name, STATES[v["transactionStatus"]], v["producerId"], v["producerEpoch"],
                v["transactionStartTimestampMs"], tuple(partitions),
            )
        )  # fmt: skip
    return found


def markers(version: str, folder: Path) -> Counter[tuple[int, int, str]]:
    """How many markers a partition has of each producer id, epoch and result (``COMMIT``, ``ABORT``)."""
    printed = _printed(version, _segments(folder), "--deep-iteration")
    return Counter((int(producer), int(epoch), result) for producer, epoch, result in MARKER.findall(printed))


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
    printed = _printed(version, files, "--print-data-log")
    found: Stored = {}
    at, batch, control = ("", 0), (-1, -1), False
    for line in printed.splitlines():
        if (named := FILE.match(line)) is not None:
            topic, _, partition = Path(named[1]).parent.name.rpartition("-")
            at = topic, int(partition)
            found.setdefault(at, [])
        elif (head := BATCH.match(line)) is not None:
            batch, control = (int(head[3]), int(head[4])), head[6] == "true"
        elif not control and (one := DATA.match(line)) is not None:
            found[at].append(StoredRecord(int(one[1]), *batch, int(one[2]), one[3]))
    return found


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def _printed(version: str, files: list[Path], how: str) -> str:
    main = f"{'org.apache.kafka' if numbers(version) >= (4, 3) else 'kafka'}.tools.DumpLogSegments"
    named = ",".join(map(str, files))
    command = ["java", "-Xmx256m", "-cp", classpath(version, "kafka-tools"), main, how, "--files", named]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
