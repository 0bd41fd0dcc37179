"""Records of ``__transaction_state`` written from the reference, to let a coordinator's log say something else."""

from __future__ import annotations

import struct
from pathlib import Path

from tests import segments
from tests.forge import Batch, Forged

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
          "PrepareEpochFence")  # fmt: skip


class Coordinator:
    """The log of one coordinator, to be written on. A record's time is its own update time, in ms."""

    def __init__(self, broker: Path, partition: int) -> None:
        self.log = Forged(broker, f"__transaction_state-{partition}")

    def append(self, key: bytes | None, value: bytes | None, time: int) -> Batch:
        """A record behind all others."""
        empty = not self.log.all()
        return self.log.append(
            Batch(
                segments.batch(
                    segments.record(0, key, value), 1, base_offset=0 if empty else self.log.end, base_time=time,
                    max_time=time, leader_epoch=0 if empty else self.log.last["leader_epoch"],
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
    ) -> Batch:
        """A value of version 0: ``producer`` is id and epoch, ``partitions`` as ``topic-partition``."""
        name = transactional_id.encode()
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topic, _, number = partition.rpartition("-")
            topics.setdefault(topic, []).append(int(number))
        value = struct.pack(">hqhib", version, *producer, timeout, STATES.index(state))
        value += struct.pack(">i", len(topics) if topics or state not in ("Empty", "Dead") else -1)
        for topic, numbers in topics.items():
            value += struct.pack(">h", len(topic)) + topic.encode()
            value += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        value += struct.pack(">qq", time, start)
        return self.append(struct.pack(">hh", 0, len(name)) + name, value, time)

    def forget(self, transactional_id: str, time: int) -> Batch:
        """A tombstone."""
        name = transactional_id.encode()
        return self.append(struct.pack(">hh", 0, len(name)) + name, None, time)

    def save(self) -> None:
        self.log.save()
