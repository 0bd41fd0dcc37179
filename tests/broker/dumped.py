"""What Kafka's own DumpLogSegments prints of segments: records of ``__transaction_state``, markers of transactions."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.broker.jars import classpath, numbers

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
TOMBSTONE = "Tombstone"
RECORD = re.compile(r"^\| offset: (\d+) .* key: (\{.*?\}\}) payload: (.*)$", re.M)
MARKER = re.compile(
    r"^baseOffset: \d+ .* producerId: (\d+) producerEpoch: (\d+) .* isControl: true .*\n.* endTxnMarker: (\w+) ", re.M
)


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
    for offset, key, value in RECORD.findall(_printed(version, folder, "--transaction-log-decoder")):
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
    printed = _printed(version, folder, "--deep-iteration")
    return Counter((int(producer), int(epoch), result) for producer, epoch, result in MARKER.findall(printed))


def _printed(version: str, folder: Path, how: str) -> str:
    files = ",".join(map(str, sorted(folder.glob("*.log"))))
    main = f"{'org.apache.kafka' if numbers(version) >= (4, 3) else 'kafka'}.tools.DumpLogSegments"
    command = ["java", "-Xmx128m", "-cp", classpath(version, "kafka-tools"), main, how, "--files", files]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
