"""Until when each file of a log directory has all that was written: what absence in a copy can prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.names import METADATA_TOPIC
from auditor.model.transaction_states import PREPARED
from auditor.rules.seen.cluster_view import TRANSACTION_STATE, Cluster, Read
from auditor.rules.seen.coordinator_history import LEAST_MARGIN_MS, SKEW_MS
from auditor.rules.seen.view import iso
from auditor.rules.transactions.windows import SAME_CLOCK_MS

BYTES_A_MS = 20_000  # 20 MB/s, as slow as copies are


class ReadLog(NamedTuple):
    """A replica that was read: the newest broker-written time in it (ms, -1 for none), where it ends, its last leader
    epoch with the offset where that began, and what ``replication-offset-checkpoint`` has of it. ``text``: from dumps.
    """

    log_dir: str
    topic: str
    partition: int
    newest: int
    text: bool
    broker_id: int | None = None
    log_end: int = -1
    checkpoint: int | None = None
    leader_epoch: int = -1
    epoch_start: int = -1


def copying_ms(size: int) -> int:
    """How long, in ms, copying ``size`` bytes is taken to last where nothing shows that it took longer."""
    return min(LEAST_MARGIN_MS, SKEW_MS + size // BYTES_A_MS)


def read_at(inventory: Inventory) -> dict[tuple[str, str, int], Read]:
    """When each log was listed and then read, by the clock of its broker, as copies of running brokers say."""
    return {
        (log_dir.name, replica.topic or "", replica.partition or 0): Read(*log_dir.read_at[replica.folder], clock)
        for log_dir in inventory.log_dirs
        if log_dir.read_at and (clock := log_dir.machine or log_dir.name)
        for replica in log_dir.replicas
        if replica.folder in log_dir.read_at
    }


def contradicted(logs: Iterable[ReadLog], readings: Mapping[tuple[str, str, int], Read]) -> dict[str, str]:
    """Log directories whose readings nobody goes by, with what contradicts them: a log has what a broker wrote later
    than it says that it was read, by more than two clocks differ."""
    found: dict[str, str] = {}
    for log in logs:
        read = readings.get((log.log_dir, log.topic, log.partition))
        if read is not None and log.newest > read.done + SKEW_MS:
            what = f"{log.topic}-{log.partition} has what was written at {iso(log.newest)}"
            found.setdefault(log.log_dir, f"{what}, and was read until {iso(read.done)} as the copy says")
    return found


def settled(logs: list[ReadLog], cluster: Cluster, copying: int) -> dict[str, int]:
    """Of each log directory the time (ms) until which each of its files has all that was written there.

    That is its newest broker-written time less the time that copying took: ``copying``, or more where a file shows that
    it was copied earlier than that. Texts are made by hand, one after another: 15 minutes, whatever their size.
    """
    newest: dict[str, int] = {}
    slack: dict[str, int] = {}
    for log in logs:
        newest[log.log_dir] = max(log.newest, newest.get(log.log_dir, -1))
        slack[log.log_dir] = max(LEAST_MARGIN_MS if log.text else copying, slack.get(log.log_dir, -1))
    for log_dir, before in _copied_before(logs, cluster):
        slack[log_dir] = max(slack[log_dir], newest[log_dir] - before + SAME_CLOCK_MS)
    return {log_dir: time - slack[log_dir] for log_dir, time in newest.items() if time >= 0}


def _copied_before(logs: Iterable[ReadLog], cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Log directories with a time (ms) behind which a file of theirs has nothing, though there was something to write.

    A coordinator's log lacks the decision of a marker. The metadata log of a controller is written twice a second.
    """
    history = cluster.coordinator
    lacking = set() if history is None else set(history.outdated)
    for producer_id, markers in cluster.ended.items() if history is not None else ():
        entry = history.last_of_owner(producer_id) if history is not None else None
        if entry is None or entry.state in PREPARED:
            continue
        if any(time > entry.time + SKEW_MS or epoch > entry.producer_epoch for _, epoch, time, _ in markers):
            lacking.add(entry.partition)
    for log in logs:
        of_coordinator = log.topic == TRANSACTION_STATE and log.partition in lacking
        if log.newest >= 0 and (of_coordinator or log.topic == METADATA_TOPIC):
            yield log.log_dir, log.newest


def checkpointed(logs: Iterable[ReadLog]) -> dict[str, int]:
    """Of each log directory the newest broker-written time (ms) that its checkpoint of high watermarks has: that was
    written no earlier."""
    times: dict[str, int] = {}
    for log in logs:
        if log.checkpoint is not None and log.newest >= 0 and log.log_end <= log.checkpoint:
            times[log.log_dir] = max(log.newest, times.get(log.log_dir, -1))
    return times


def passes(logs: list[ReadLog], cluster: Cluster) -> dict[tuple[str, int], tuple[str, int]]:
    """The logs that have all that was committed when their broker wrote its checkpoint, with that pass and its time.

    A broker reads the high watermarks of all its partitions one after another, within milliseconds, and writes them: so
    the files of one log directory say what was committed at one moment, whenever each was copied. That moment is not
    before the newest broker-written time (ms) below any of them; a second is left. Only logs that reach their entry,
    and that this broker led by the metadata: a follower's watermark comes late, and so does that of a leader that has
    just become one, until it has come to where its epoch began. Where nothing tells who led, as with ZooKeeper, it is
    taken to be this one. Source: ReplicaManager.checkpointHighWatermarks.
    """
    led = [log for log in logs if log.checkpoint is not None and _leads(log, cluster)]
    times, out = checkpointed(led), {}
    for log in led:
        time = times.get(log.log_dir, -1) - SAME_CLOCK_MS
        if time >= 0 and log.checkpoint is not None and log.epoch_start <= log.checkpoint <= log.log_end:
            out[log.topic, log.partition] = (log.log_dir, time)
    return out


def _leads(log: ReadLog, cluster: Cluster) -> bool:
    leader = cluster.led(log.topic, log.partition, log.leader_epoch)
    return not log.text and (leader is None or leader == log.broker_id)
