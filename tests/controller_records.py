"""Records of ``__cluster_metadata`` written from the reference, to let the controller say something else of a replica
set: who is in sync, who leads, which broker is fenced."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

from tests import segments
from tests.forge import CONTROL, Batch, Forged

REGISTER, TOPIC, PARTITION, CONFIG, PARTITION_CHANGE, FEATURE_LEVEL, BROKER_CHANGE, NOTHING = (
    0, 2, 3, 4, 5, 12, 17, 20,
)  # keys of the messages  # fmt: skip
LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION = 2, 3, 4, 5  # types of control records
ISR, LEADER, REPLICAS, ELIGIBLE, FENCED = 0, 1, 2, 6, 0  # their tags
OF_TOPIC = 2  # ConfigResource.Type


class Controller:
    """The metadata log as one broker has it, to be written on. ``time``: of the next record, in ms."""

    def __init__(self, broker: Path, time: int) -> None:
        self.broker, self.time = broker, time
        self.log = Forged(broker, "__cluster_metadata-0")

    def _append(self, key: int, body: bytes, version: int = 0) -> None:
        self._add(segments.record(0, None, bytes([1, key, version]) + body))

    def _add(self, record: bytes, attributes: int = 0) -> None:
        before = self.log.last if self.log.all() else None
        self.log.append(
            Batch(
                segments.batch(
                    record, 1, base_offset=before.last + 1 if before else 0, base_time=self.time, max_time=self.time,
                    leader_epoch=before["leader_epoch"] if before else 0, attributes=attributes,
                )
            )
        )  # fmt: skip

    def register(self, broker: int) -> None:
        """A broker that is up (RegisterBrokerRecord, version 0)."""
        body = struct.pack(">i16sq", broker, bytes([broker]) * 16, 100 + broker)
        self._append(REGISTER, body + b"\1\1\0\0\0")  # no endpoint, no feature, no rack, not fenced, no tag

    def go_on(self, time: int) -> None:
        """What an active controller writes twice a second where there is nothing else (NoOpRecord)."""
        self.time = time
        self._append(NOTHING, b"\0")

    def fence(self, broker: int, epoch: int) -> None:
        """A broker that the controller does not hear of any more; ``epoch``: of its registration."""
        self._append(BROKER_CHANGE, struct.pack(">iq", broker, epoch) + bytes([1, FENCED, 1, 1]))

    def partition(
        self, name: str, *, isr: tuple[int, ...], replicas: tuple[int, ...], leader: int | None = None,
        eligible: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """Other replicas of a partition; ``leader``: None lets the one before go on; ``eligible``: to lead (ELR)."""
        text = (self.broker / name / "partition.metadata").read_text()
        topic_id = base64.urlsafe_b64decode(text.rpartition("topic_id: ")[2].strip() + "==")
        tags = {ISR: _array(isr), LEADER: None if leader is None else struct.pack(">i", leader),
                REPLICAS: _array(replicas), ELIGIBLE: _array(eligible) if eligible else None}  # fmt: skip
        given = [bytes([tag, len(value)]) + value for tag, value in tags.items() if value is not None]
        body = struct.pack(">i16s", int(name.rpartition("-")[2]), topic_id) + bytes([len(given)]) + b"".join(given)
        self._append(PARTITION_CHANGE, body, 2 if eligible else 0)

    def create(self, topic: str, topic_id: str, broker: int) -> None:
        """A topic with one partition, on one broker (TopicRecord and PartitionRecord, version 0)."""
        number = base64.urlsafe_b64decode(topic_id + "==")
        self._append(TOPIC, bytes([len(topic) + 1]) + topic.encode() + number + b"\0")
        replicas = _array((broker,)) * 2 + _array(()) * 2  # and in sync, removing, adding
        self._append(PARTITION, struct.pack(">i", 0) + number + replicas + struct.pack(">iii", broker, 0, 0) + b"\0")

    def topic_setting(self, topic: str, name: str, value: str) -> None:
        """A topic's own setting (ConfigRecord, version 0)."""
        texts = b"".join(bytes([len(text) + 1]) + text.encode() for text in (topic, name, value))
        self._append(CONFIG, bytes([OF_TOPIC]) + texts + b"\0")

    def voters(self, *numbers: int) -> None:
        """The voters, as the first of them names them when it leads (LeaderChangeMessage, version 0)."""
        listed = bytes([len(numbers) + 1]) + b"".join(struct.pack(">ib", number, 0) for number in numbers)
        value = struct.pack(">hi", 0, numbers[0]) + listed + listed + b"\0"
        self._add(segments.record(0, struct.pack(">hh", 0, LEADER_CHANGE), value), CONTROL)

    def feature(self, name: str, level: int) -> None:
        """Another level of a feature (FeatureLevelRecord, version 0)."""
        self._append(FEATURE_LEVEL, bytes([len(name) + 1]) + name.encode() + struct.pack(">h", level) + b"\0")

    def vendors(self, key: int, body: bytes) -> None:
        """A record of a type that Kafka does not have."""
        varint = bytes([key & 0x7F | 0x80, key >> 7 & 0x7F | 0x80, key >> 14])
        self._add(segments.record(0, None, bytes([1]) + varint + b"\0" + body))

    def kraft_version(self, level: int) -> None:
        """Another kraft.version, in a control batch (KRaftVersionRecord, version 0)."""
        self._add(segments.record(0, struct.pack(">hh", 0, KRAFT_VERSION), struct.pack(">hhb", 0, level, 0)), CONTROL)

    def snapshot(self, end: int, epoch: int) -> None:
        """A complete snapshot of nothing that ends at an offset, beside the log."""
        header = segments.record(0, struct.pack(">hh", 0, SNAPSHOT_HEADER), struct.pack(">hqb", 0, self.time, 0))
        footer = segments.record(0, struct.pack(">hh", 0, SNAPSHOT_FOOTER), struct.pack(">hb", 0, 0))
        batches = [
            segments.batch(body, 1, base_offset=k, attributes=CONTROL) for k, body in enumerate((header, footer))
        ]
        (self.log.folder / f"{end:020}-{epoch:010}.checkpoint").write_bytes(b"".join(batches))

    def save(self) -> None:
        self.log.save()


def _array(numbers: tuple[int, ...]) -> bytes:
    return bytes([len(numbers) + 1]) + struct.pack(f">{len(numbers)}i", *numbers)
