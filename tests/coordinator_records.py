"""Records of ``__transaction_state`` written from the reference, to let a coordinator's log say something else."""

from __future__ import annotations

import struct
from pathlib import Path

from tests import segments
from tests.forge import Batch, Forged

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
          "PrepareEpochFence")  # fmt: skip


class Coordinator:
    """The log of one coordinator, to be written on. A record's time is its own update time, in ms, but for a record
    that is ``written`` later; another coordinator has another ``epoch``, the leader epoch of the partition."""

    def __init__(self, broker: Path, partition: int) -> None:
        self.log = Forged(broker, f"__transaction_state-{partition}")
        self.epoch = self.log.last["leader_epoch"] if self.log.all() else 0

    def load(self) -> None:
        """Another coordinator leads the partition from here on."""
        self.epoch += 1
        path = self.log.folder / "leader-epoch-checkpoint"
        lines = [*path.read_text().split("\n")[2:], f"{self.epoch} {self.log.end}"]
        path.write_text("\n".join(["0", str(len(lines)), *[line for line in lines if line], ""]))

    def append(self, key: bytes | None, value: bytes | None, time: int) -> Batch:
        """A record behind all others."""
        empty = not self.log.all()
        return self.log.append(
            Batch(
                segments.batch(
                    segments.record(0, key, value), 1, base_offset=0 if empty else self.log.end, base_time=time,
                    max_time=time, leader_epoch=self.epoch,
                )
            )
        )  # fmt: skip

    def state(
        self,
        transactional_id: str,
        state: str,
        producer: tuple[int, int],
        time: int,
        *partitions: str,
        start: int = -1,
        timeout: int = 60_000,
        version: int = 0,
        client: int = 0,
        written: int = -1,
    ) -> Batch:
        """A value of version 0: ``producer`` is id and epoch, ``partitions`` as ``topic-partition``; of version 1 where
        a ``client`` has a transaction.version."""
        name = transactional_id.encode()
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topic, _, number = partition.rpartition("-")
            topics.setdefault(topic, []).append(int(number))
        none = not topics and state in ("Empty", "Dead")
        value = struct.pack(">hqhib", 1 if client else version, *producer, timeout, STATES.index(state))
        value += (_compact if client else _plain)(None if none else topics)
        value += struct.pack(">qq", time, start)
        value += struct.pack(">bbbh", 1, 2, 2, client) if client else b""  # one tagged field: number 2, of 2 bytes
        return self.append(struct.pack(">hh", 0, len(name)) + name, value, max(time, written))

    def forget(self, transactional_id: str, time: int) -> Batch:
        """A tombstone."""
        name = transactional_id.encode()
        return self.append(struct.pack(">hh", 0, len(name)) + name, None, time)

    def save(self) -> None:
        self.log.save()


def _plain(topics: dict[str, list[int]] | None) -> bytes:
    """A list of partitions in a value of version 0."""
    if topics is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(topics)) + b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for topic, numbers in topics.items()
    )


def _compact(topics: dict[str, list[int]] | None) -> bytes:
    """One in a value of version 1, in which lengths are a byte, one too high, and each topic ends with no tags."""
    if topics is None:
        return b"\0"
    return bytes([len(topics) + 1]) + b"".join(
        bytes([len(topic) + 1]) + topic.encode() + struct.pack(f">b{len(numbers)}i", len(numbers) + 1, *numbers) + b"\0"
        for topic, numbers in topics.items()
    )
