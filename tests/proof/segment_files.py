"""A partition's log from the words of the conformance cases: real segments and snapshots, and the reader's facts."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import POLICIES
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import PolicySettings, ReplicaTask
from tests import segments
from tests.forge import CONTROL, TRANSACTIONAL
from tests.proof.stored_history import Stored


@functools.cache
def _records(count: int, content: int) -> bytes:
    return b"".join(segments.record(delta, None, b"%d" % content) for delta in range(count))


def batch(item: dict[str, Any], content: int = 0) -> bytes:
    """The bytes of a batch, a marker, an empty control batch or records of no producer."""
    first = first_offset(item)
    stamp = item.get("timestamp", segments.TIME)
    header = {"base_offset": first, "base_time": stamp, "max_time": stamp}
    if item["kind"] != "plain":
        header |= {"producer_id": item["pid"], "epoch": item["epoch"]}
    if item["kind"] == "marker":
        kind = struct.pack(">hh", 0, int(item["type"] == "COMMIT"))
        body = segments.record(0, kind, struct.pack(">hi", 0, item["coordinator_epoch"]))
        return segments.batch(body, 1, attributes=TRANSACTIONAL | CONTROL, **header)
    if item["kind"] == "empty_control":
        return segments.batch(b"", 0, attributes=TRANSACTIONAL | CONTROL, delta=0, **header)
    if item["kind"] == "batch":
        bits = TRANSACTIONAL if item["transactional"] else 0
        header |= {"sequence": item["first_seq"], "attributes": bits}
    count = item["last_offset"] - first + 1
    return segments.batch(_records(count, content), count, **header)


def first_offset(item: dict[str, Any]) -> int:
    """The first offset of a batch in the words of the cases."""
    return int(item["offset"] if "offset" in item else item["first_offset"])


def write(folder: Path, log: Sequence[Stored], rolls: Sequence[int] = ()) -> list[SegmentFile]:
    """The batches as segments of which one begins at the first batch, others at the offsets ``rolls``."""
    for old in folder.iterdir():
        old.unlink()
    first = first_offset(log[0].item)
    bases = sorted({first, *(at for at in rolls if at > first)})
    written = []
    for number, base in enumerate(bases):
        end = bases[number + 1] if number + 1 < len(bases) else 1 << 62
        mine = (s for s in log if base <= first_offset(s.item) < end)
        data = b"".join(batch(s.item, s.content) for s in mine)
        name = f"{base:020}.log"
        (folder / name).write_bytes(data)
        written.append(SegmentFile(name, base, len(data)))
    return written


def read(
    folder: Path,
    log: Sequence[Stored],
    policy: str,
    *,
    rolls: Sequence[int] = (),
    snapshots: dict[int, bytes] | None = None,
    log_start: int | None = None,
) -> ReplicaFacts:
    """The facts of a log as an audit under a policy, with a what-if of all, reads it; ``snapshots`` by offset."""
    written = write(folder, log, rolls)
    files = []
    for offset, data in sorted((snapshots or {}).items()):
        files.append(DataFile(f"{offset:020}.snapshot", len(data), "snapshot", offset))
        (folder / files[-1].name).write_bytes(data)
    replica = Replica("broker-1", "topic", 0, "", segments=tuple(written), snapshots=tuple(files))
    asked = tuple(PolicySettings(name, chosen, retention_ms=-1) for name, chosen in POLICIES.items())
    task = ReplicaTask(
        StorageLocation("", str(folder)),
        replica,
        None,
        1,
        "",
        clean_shutdown=True,
        log_start=log_start,
        policy=POLICIES[policy],
        policies=asked,
    )
    facts = read_replica(task)
    assert not facts.errors, facts.errors
    return facts
