"""A log directory as it was earlier: every log cut behind the last batch that was written by a moment, and what goes
with the logs."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cluster_writers import Writers, batches_in, partitions, topic_id
from tests.forge import Batch, Forged, Producer
from tests.whole.test_copied_one_by_one import cleaned_until, write_entries, write_epochs

NEVER = 1 << 62
LATE_MS = 1_000  # a client's stamp is older than the write of its data, but by less
MARK = ".kafka_cleanshutdown"
REMOTE = "__remote_log_metadata-"


def moments(directory: Path, count: int) -> list[int]:
    """Moments (ms) in the life of a directory, each in a pause: all files that there are now can have been there."""
    writers = Writers(directory.parent)
    logs = {path: list(written(path, writers)) for path in partitions(directory)}
    floor = max((_floor(path, log) for path, log in logs.items()), default=0)
    if any(log and log[0][0]["base_offset"] for path, log in logs.items() if not path.name.startswith(REMOTE)):
        moved = (at for path, log in logs.items() if path.name.startswith(REMOTE) for _, at in log if at < NEVER)
        floor = max([floor, *moved])  # what lies in remote storage alone was there before it went here
    times = sorted({at for log in logs.values() for _, at in log if floor <= at < NEVER})
    pauses = [(later - time, time) for time, later in itertools.pairwise(times)]
    part = len(pauses) // count
    return [max(pauses[k * part : (k + 1) * part])[1] for k in range(count)] if part else []


def _floor(partition: Path, log: list[tuple[Batch, int]]) -> int:
    """Since when the log begins where it does and was cleaned as it is, as far as batches tell: a hole that its own
    cleaner's checkpoint does not have came when the replica was fetched anew, as late as its end perhaps."""
    cleaned = cleaned_until(partition)
    if any(b["base_offset"] > a.last + 1 >= cleaned for (a, _), (b, _) in itertools.pairwise(log)):
        return max(at for _, at in log if at < NEVER)
    held = [at for number, (b, at) in enumerate(log) if b["base_offset"] < cleaned or (number == 0 < b["base_offset"])]
    return max(held, default=0)


def written(partition: Path, writers: Writers) -> Iterator[tuple[Batch, int]]:
    """Each batch and when it was written, by broker's times; by a client's as far as the ones around it allow that."""
    log = [b for file in sorted(partition.glob("*.log")) for b in batches_in(file.read_bytes())]
    behind, ends = NEVER, []
    for batch in reversed(log):
        ends.append(behind)
        behind = batch["max_time"] if writers.of(partition, batch) is not None else behind
    before = 0
    for batch, end in zip(log, reversed(ends), strict=True):
        time = batch["max_time"]
        if writers.of(partition, batch) is None and not before <= time <= end:
            time = end
        elif writers.of(partition, batch) is None and batch.transactional:
            time = min(time + LATE_MS, end)  # its coordinator has its transaction first, and that may take some time
        before = max(before, min(time, NEVER - 1))
        yield batch, time


def cut(directory: Path, moment: int, *, clean: bool) -> None:
    """The directory as it was at a moment (ms). ``clean``: of a broker that was shut down there, else of one that ran
    or was killed."""
    writers = Writers(directory.parent)
    made = [(c.timestamp or 0, c.partition.topic_id) for c in writers.changes if c.partition and not c.before]
    younger = {topic for time, topic in made if time > moment}
    for path in partitions(directory):
        if topic_id(path) in younger:
            shutil.rmtree(path)
            write_entries(path, 0)
            continue
        kept = [b for b, at in written(path, writers) if at <= moment]
        _cut_log(Forged(directory, path.name), kept[-1].last + 1 if kept else 0, clean)
    if not clean:
        (directory / MARK).unlink(missing_ok=True)


def _cut_log(log: Forged, end: int, clean: bool) -> None:
    if not log.all() or log.end == end:
        return
    end = max(end, min(log.segments))
    log.drop(*(b for b in log.all() if b["base_offset"] >= end))
    for base in [base for base in log.segments if base >= end and base != min(log.segments)]:
        del log.segments[base], log.tails[base]
        for path in log.folder.glob(f"{base:020}.*"):
            path.unlink()
    log.snapshots = {offset: known for offset, known in log.snapshots.items() if offset <= end}
    if clean and end > min(log.segments):
        log.snapshots[end] = producers_at(log, end)
    log.save()
    write_entries(log.folder, end)
    write_epochs(log.folder, end)


def producers_at(log: Forged, end: int) -> list[Producer]:
    """What a snapshot at an offset holds: what the one before it has, and what the batches between them add."""
    start = max((offset for offset in log.snapshots if offset < end), default=-1)
    known = {p.producer_id: p for p in log.snapshots.get(start, ())}
    for batch in log.all():
        if start <= batch["base_offset"] < end and batch["producer_id"] >= 0:
            known[batch["producer_id"]] = _after(known.get(batch["producer_id"]), batch)
    return list(known.values())


def _after(p: Producer | None, batch: Batch) -> Producer:
    """A producer's entry behind a batch (ProducerStateEntry, ProducerAppendInfo)."""
    p = p or Producer(batch["producer_id"], batch["epoch"], -1, -1, 0, -1, -1, -1)
    if batch.control:
        if p.epoch != batch["epoch"]:
            p = p._replace(epoch=batch["epoch"], sequence=-1, offset=-1, delta=0)
        (record,) = batch.records()
        coordinator = int.from_bytes(record["value"][2:6], "big")
        return p._replace(timestamp=batch["max_time"], coordinator_epoch=coordinator, txn_first_offset=-1)
    sequence = (batch["sequence"] + batch["delta"]) & 0x7FFFFFFF
    opened = batch["base_offset"] if batch.transactional and p.txn_first_offset < 0 else p.txn_first_offset
    return p._replace(
        epoch=batch["epoch"], sequence=sequence, offset=batch.last, delta=batch["delta"], timestamp=batch["max_time"],
        txn_first_offset=opened,
    )  # fmt: skip


def own(directory: Path) -> None:
    """Files of its own, that may be written to, in place of second names of a corpus's."""
    shutil.move(directory, directory.with_name("linked"))
    shutil.copytree(directory.with_name("linked"), directory)
    shutil.rmtree(directory.with_name("linked"))
