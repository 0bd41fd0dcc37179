"""Random histories of one to three brokers, with extreme numbers under checksums that are right.

A history is its seed and number. Brokers of four ages write logs, decisions, offsets, metadata, snapshots, indexes and
checkpoints that fit each other, but for a share of numbers that are taken from the edges of their types and of what a
date can hold, before the checksum is made. At the end some files are cut, swapped or cloned. Written from the reference
alone: nothing of the product makes any byte.
"""

from __future__ import annotations

import base64
import random
import struct
from pathlib import Path
from typing import NamedTuple

from kafka.record.util import calc_crc32c

from tests import segments
from tests.bare_broker import BEGAN
from tests.controller_records import (
    BROKER_CHANGE,
    CONFIG,
    FEATURE_LEVEL,
    KRAFT_VERSION,
    LEADER_CHANGE,
    NOTHING,
    OF_TOPIC,
    PARTITION,
    REGISTER,
    TOPIC,
)  # fmt: skip
from tests.coordinator_records import STATES, _compact, _plain
from tests.forge import CONTROL, ENTRY, TRANSACTIONAL
from tests.fuzz.mutated_directories import Tree

YEAR_10000_MS, YEAR_0_MS = 253_402_300_800_000, -62_167_219_200_000
AROUND = (0, 1 << 7, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 10**15, 1 << 62, (1 << 63) - 1, -(1 << 63),
          YEAR_10000_MS, YEAR_0_MS, 4 * YEAR_10000_MS, 24 * 3_600_000, 365 * 24 * 3_600_000)  # fmt: skip
EDGES = sorted({sign * (edge + near) for edge in AROUND for near in (-2, -1, 0, 1, 2) for sign in (1, -1)})
SHARES = (0.0, 0.002, 0.01, 0.01, 0.05, 0.3)  # of the numbers that are extreme, one for each history
TOPICS = ("pay", "orders", "a.b_c", "kv")
IDS = ("tx-a", "tx-b", "tx-c")
SECOND, MINUTE = 1_000, 60_000


class Age(NamedTuple):
    """What brokers of one age write: newest magic, whether there are topic ids and KRaft, and the version of
    transactions."""

    magic: int
    topic_ids: bool
    kraft: bool
    transaction_version: int


AGES = (Age(1, False, False, 0), Age(2, False, False, 0), Age(2, True, True, 0), Age(2, True, True, 2))


class Producer:
    """A producer while it writes: its id, epoch and next sequence number."""

    def __init__(self, producer_id: int) -> None:
        self.id, self.epoch = producer_id, 0
        self.sequences: dict[str, int] = {}
        self.open: dict[str, int] = {}  # first offset of its transaction by partition


class PartitionFiles:
    """The files of one replica while they are written; ``batches``: (base offset, last offset, position, time)."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.logs: dict[int, bytearray] = {start: bytearray()}
        self.index: dict[int, list[tuple[int, int, int]]] = {start: []}  # last offset, position, time of each batch
        self.aborted: list[tuple[int, int, int]] = []
        self.snapshots: dict[int, bytes] = {}
        self.epochs: list[tuple[int, int]] = [(0, start)]

    @property
    def base(self) -> int:
        return max(self.logs)

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def add(self, data: bytes, count: int, time: int) -> int:
        """Append a batch that takes ``count`` offsets; return its first."""
        first, log = self.end, self.logs[self.base]
        self.end += count
        self.index[self.base].append((self.end - 1, len(log), time))
        log += data
        return first

    def roll(self) -> None:
        if self.logs[self.base]:
            self.logs[self.end], self.index[self.end] = bytearray(), []


class History:
    """History ``number``: :attr:`tree` has the files, each broker's below a folder of its own."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(seed << 40 | number)
        self.share = self.random.choice(SHARES)
        self.age = self.random.choice(AGES)
        self.brokers = self.random.choice((1, 1, 2, 3))
        self.time = BEGAN
        self.producers = [Producer(self.number(100 + k, 64)) for k in range(3)]
        self.logs: dict[str, PartitionFiles] = {}
        self.ids: dict[str, bytes] = {}
        self.tree: Tree = {}
        self._write()

    # Numbers

    def number(self, usual: int, bits: int) -> int:
        """A number, or (a share of them) one at the edge of something that fits into so many bits with a sign."""
        if self.random.random() >= self.share:
            return usual
        if self.random.random() < 0.2:
            chosen = usual + self.random.choice((-2, -1, 1, 2))
        else:
            chosen = self.random.choice(EDGES)
        half = 1 << bits - 1
        return (chosen + half) % (2 * half) - half

    def struct(self, form: str, *usual: int) -> bytes:
        """Packed numbers, some of which are extreme; ``form``: letters of :mod:`struct`."""
        widths = {"b": 8, "h": 16, "i": 32, "q": 64}
        values = (self.number(value, widths[letter]) for letter, value in zip(form, usual, strict=True))
        return struct.pack(">" + form, *values)

    def text(self, text: str) -> bytes:
        return struct.pack(">h", len(text)) + text.encode()

    # Batches

    def batch(self, log: PartitionFiles, records: list[bytes], **header: int) -> int:
        """Append a batch of magic 2 with a right checksum; return its first offset."""
        codec = header.pop("codec", 0)
        usual = {"base_offset": log.end, "leader_epoch": log.epoch, "attributes": 0, "delta": len(records) - 1,
                 "base_time": self.time, "max_time": self.time, "producer_id": -1, "epoch": -1, "sequence": -1,
                 "magic": 2} | header  # fmt: skip
        bits = {"leader_epoch": 32, "attributes": 16, "delta": 32, "epoch": 16, "sequence": 32, "magic": 8}
        usual["attributes"] |= codec
        fields = {name: self.number(value, bits.get(name, 64)) for name, value in usual.items()}
        body = segments.compress(codec, b"".join(records))
        return log.add(segments.batch(body, self.number(len(records), 32), **fields), len(records), self.time)

    def record(self, delta: int, key: bytes | None, value: bytes | None) -> bytes:
        return segments.record(self.number(delta, 32), key, value, self.number(0, 64))

    def data(self, name: str, producer: Producer | None, *, transactional: bool) -> None:
        log, count = self.logs[name], self.random.randrange(1, 4)
        codec = self.random.choice((0, 0, 0, 1, 2, 3, 4))
        if self.age.magic < 2:
            magic = self.random.choice((0, 1))
            inner = [segments.message(self.number(log.end + k, 64), b"k", b"v", magic, 0, self.number(self.time, 64))
                     for k in range(count)]  # fmt: skip
            if codec in (0, 4):
                for one in inner:
                    log.add(one, 1, self.time)
            else:
                log.add(segments.wrapper(self.number(log.end + count - 1, 64), inner, codec, magic,
                                         self.number(self.time, 64)), count, self.time)  # fmt: skip
            return
        records = [self.record(k, b"key %d" % k, b"value") for k in range(count)]
        header: dict[str, int] = {}
        if producer is not None:
            sequence = producer.sequences.get(name, 0)
            producer.sequences[name] = sequence + count
            header = {"producer_id": producer.id, "epoch": producer.epoch, "sequence": sequence}
        first = self.batch(log, records, codec=codec, attributes=TRANSACTIONAL if transactional else 0, **header)
        if transactional and producer is not None:
            producer.open.setdefault(name, first)

    def marker(self, name: str, producer: Producer, commit: bool) -> None:
        key, value = self.struct("hh", 0, int(commit)), self.struct("hi", 0, self.random.choice((0, 1)))
        log = self.logs[name]
        at = self.batch(log, [self.record(0, key, value)], attributes=TRANSACTIONAL | CONTROL,
                        producer_id=producer.id, epoch=producer.epoch)  # fmt: skip
        first = producer.open.pop(name, at)
        if not commit:
            log.aborted.append((producer.id, first, at))

    # Internal topics

    def decide(self, k: int, state: str, partitions: dict[str, list[int]] | None, began: int) -> None:
        """A value of ``__transaction_state``."""
        producer, flexible = self.producers[k], self.age.transaction_version == 2
        value = self.struct("h", int(flexible)) + self.struct("qhi", producer.id, producer.epoch, MINUTE)
        value += self.struct("b", STATES.index(state))
        value += (_compact if flexible else _plain)(partitions)
        value += self.struct("qq", self.time, began)
        value += struct.pack(">bbb", 1, 2, 2) + self.struct("h", 2) if flexible else b""
        key = self.struct("h", 0) + self.text(IDS[k])
        gone = None if self.random.random() < 0.02 else value
        self.batch(self.logs["__transaction_state-0"], [self.record(0, key, gone)])

    def commit_offset(self, name: str) -> None:
        """A value of ``__consumer_offsets``: of a committed offset, or of a group."""
        topic, _, partition = name.rpartition("-")
        log, version = self.logs["__consumer_offsets-0"], self.random.randrange(4)
        if self.random.random() < 0.2:
            key = self.struct("h", 2) + self.text("group")
            value = self.struct("h", 1) + self.text("consumer") + self.struct("i", 3) + self.text("range")
            value += self.text("m") + self.struct("i", 0)
        else:
            key = self.struct("h", 1) + self.text("group") + self.text(topic) + self.struct("i", int(partition))
            value = self.struct("hq", version, self.logs[name].end)
            value += self.struct("i", 0) if version == 3 else b""
            value += self.text("") + self.struct("q", self.time)
            value += self.struct("q", self.time + MINUTE) if version == 1 else b""
        k = self.random.randrange(len(self.producers))
        pending = self.random.random() < 0.3
        header = {"producer_id": self.producers[k].id, "epoch": self.producers[k].epoch} if pending else {}
        bits = TRANSACTIONAL if pending else 0
        at = self.batch(log, [self.record(0, key, value)], attributes=bits, **header)
        if pending:
            self.producers[k].open.setdefault("__consumer_offsets-0", at)

    def metadata(self) -> None:
        """What a controller writes of these brokers and topics."""
        log = self.logs["__cluster_metadata-0"]

        def write(key: int, body: bytes, version: int = 0) -> None:
            self.batch(log, [self.record(0, None, bytes([1, key, version]) + body)])

        def numbers(*listed: int) -> bytes:
            return bytes([len(listed) + 1]) + self.struct("i" * len(listed), *listed)

        def texts(*listed: str) -> bytes:
            return b"".join(bytes([len(text) + 1]) + text.encode() for text in listed)

        voters = b"\2" + self.struct("i", 1) + b"\0"
        self.batch(log, [self.record(0, struct.pack(">hh", 0, LEADER_CHANGE),
                                     self.struct("hi", 0, 1) + voters * 2 + b"\0")], attributes=CONTROL)  # fmt: skip
        self.batch(log, [self.record(0, struct.pack(">hh", 0, KRAFT_VERSION), self.struct("hh", 0, 0) + b"\0")],
                   attributes=CONTROL)  # fmt: skip
        write(FEATURE_LEVEL, texts("metadata.version") + self.struct("h", 20) + b"\0")
        write(FEATURE_LEVEL, texts("transaction.version") + self.struct("h", self.age.transaction_version) + b"\0")
        for broker in range(1, self.brokers + 1):
            body = self.struct("i", broker) + bytes([broker]) * 16 + self.struct("q", 100 + broker)
            write(REGISTER, body + b"\1\1\0\0\0")
        for topic in sorted({name.rpartition("-")[0] for name in self.logs} - {"__cluster_metadata"}):
            write(TOPIC, texts(topic) + self.ids[topic] + b"\0")
            for name in sorted(self.logs):
                if name.rpartition("-")[0] == topic:
                    everybody = numbers(*range(1, self.brokers + 1))
                    body = self.struct("i", int(name.rpartition("-")[2])) + self.ids[topic]
                    body += everybody * 2 + numbers() * 2 + self.struct("iii", 1, self.logs[name].epoch, 0)
                    write(PARTITION, body + b"\0")
            for setting in self.random.sample(("retention.ms", "max.message.bytes", "min.insync.replicas"), 1):
                write(CONFIG, bytes([OF_TOPIC]) + texts(topic, setting, str(self.number(2, 64))) + b"\0")
        if self.random.random() < 0.3:
            write(BROKER_CHANGE, self.struct("iq", self.brokers, 100 + self.brokers) + bytes([1, 0, 1, 1]))
        write(NOTHING, b"\0")

    # The whole

    def _write(self) -> None:
        user = [f"{topic}-{n}" for topic in self.random.sample(TOPICS, self.random.randrange(1, 4)) for n in range(2)]
        internal = ["__transaction_state-0", "__consumer_offsets-0"] if self.age.magic == 2 else []
        internal += ["__cluster_metadata-0"] if self.age.kraft else []
        for name in (*user, *internal):
            start = self.random.choice((0, 0, 0, 7)) if name in user else 0
            self.logs[name] = PartitionFiles(abs(self.number(start, 63)))
            self.ids[name.rpartition("-")[0]] = self.random.randbytes(16)
        for _ in range(self.random.choice((5, 20, 60))):
            self._step(user)
        if self.age.kraft:
            self.metadata()
        for broker in range(1, self.brokers + 1):
            self._replicas(broker)
        for _ in range(self.random.choice((0, 0, 1, 2, 4))):
            self._tamper()

    def _step(self, user: list[str]) -> None:
        """One of the things that happen to a cluster."""
        random_ = self.random
        self.time += random_.choice((1, SECOND, MINUTE, 3_600_000))
        name, k = random_.choice(user), random_.randrange(len(self.producers))
        producer, log = self.producers[k], self.logs[name]
        match random_.randrange(10):
            case 0:
                self.data(name, None, transactional=False)
            case 1:
                self.data(name, producer, transactional=False)
            case 2:
                log.roll()
                log.snapshots[log.end] = self._snapshot(name)
            case 3:
                log.epochs.append((log.epoch + 1, log.end))
            case 4 if self.age.magic == 2:
                self.commit_offset(name)
            case 5:
                producer.epoch = self.number(min(producer.epoch + 1, 32767), 16)
                producer.sequences.clear()
            case _ if self.age.magic == 2:
                self._transaction(k, random_.sample(user, min(2, len(user))))
            case _:
                self.data(name, None, transactional=False)

    def _transaction(self, k: int, names: list[str]) -> None:
        """A transaction of an id, which may stop anywhere."""
        random_, producer, began = self.random, self.producers[k], self.time
        partitions: dict[str, list[int]] = {}
        for name in names:
            topic, _, number = name.rpartition("-")
            partitions.setdefault(topic, []).append(self.number(int(number), 32))
        if self.age.transaction_version == 2:
            producer.epoch = min(producer.epoch + 1, 32767)
            producer.sequences.clear()
        commit = random_.random() < 0.6
        steps = random_.choice((1, 2, 4, 4, 4))
        self.decide(k, "Ongoing", partitions, began)
        for name in names:
            self.data(name, producer, transactional=True)
        if steps > 1:
            self.time += random_.choice((5, SECOND))
            self.decide(k, "PrepareCommit" if commit else "PrepareAbort", partitions, began)
        if steps > 2:
            for name in sorted({*names, *producer.open}):
                if random_.random() < 0.97:
                    self.marker(name, producer, commit)
            self.time += 5
            self.decide(k, "CompleteCommit" if commit else "CompleteAbort", None, began)

    def _snapshot(self, name: str) -> bytes:
        entries = [
            ENTRY.pack(self.number(p.id, 64), self.number(p.epoch, 16), self.number(p.sequences[name] - 1, 32),
                       self.number(self.logs[name].end - 1, 64), self.number(0, 32), self.number(self.time, 64),
                       self.number(0, 32), self.number(p.open.get(name, -1), 64))
            for p in self.producers if name in p.sequences
        ]  # fmt: skip
        body = self.struct("i", len(entries)) + b"".join(entries)
        return self.struct("h", 1) + struct.pack(">I", calc_crc32c(body)) + body

    def _replicas(self, broker: int) -> None:
        """The directory of one broker: what all have, but that it may end earlier."""
        top = f"{broker}/broker-{broker}"
        ends: dict[str, int] = {}
        for name, log in self.logs.items():
            kept = len(log.logs)
            if broker > 1 and name != "__cluster_metadata-0" and self.random.random() < 0.2:
                kept = self.random.randrange(1, kept + 1)
            ends[name] = self._partition(f"{top}/{name}", name, log, kept)
        listed = {name: end for name, end in ends.items() if name != "__cluster_metadata-0"}
        self.tree[f"{top}/replication-offset-checkpoint"] = self._checkpoint(listed)
        self.tree[f"{top}/recovery-point-offset-checkpoint"] = self._checkpoint(listed)
        starts = {name: self.logs[name].start for name in listed if self.logs[name].start}
        self.tree[f"{top}/log-start-offset-checkpoint"] = self._checkpoint(starts)
        self.tree[f"{top}/cleaner-offset-checkpoint"] = self._checkpoint({})
        node = "node.id" if self.age.kraft else "broker.id"
        meta = f"version={int(self.age.kraft)}\n{node}={broker}\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n"
        self.tree[f"{top}/meta.properties"] = meta.encode()
        if self.random.random() < 0.6:
            self.tree[f"{top}/.kafka_cleanshutdown"] = b'{"version":0,"brokerEpoch":"-1"}'
        settings = {"log.retention.ms": 7 * 24 * 60 * MINUTE, "transaction.max.timeout.ms": 15 * MINUTE,
                    "transactional.id.expiration.ms": 7 * 24 * 60 * MINUTE, "producer.id.expiration.ms": 24 * 60 * MINUTE,
                    "log.segment.bytes": 1 << 30, "message.max.bytes": 1 << 20}  # fmt: skip
        lines = [f"{node}={broker}", f"log.dirs=broker-{broker}", "transaction.state.log.num.partitions=1",
                 *(f"{key}={self.number(value, 64)}" for key, value in settings.items())]  # fmt: skip
        self.tree[f"{broker}/server-{broker}.properties"] = "\n".join([*lines, ""]).encode()

    def _partition(self, place: str, name: str, log: PartitionFiles, kept: int) -> int:
        """The first segments of a replica, and what follows from them; return its end."""
        bases = sorted(log.logs)[:kept]
        end = ([*sorted(log.logs), log.end])[kept]
        for base in bases:
            file = f"{place}/{abs(self.number(base, 63)):020}"
            entries = log.index[base]
            self.tree[f"{file}.log"] = bytes(log.logs[base])
            few = entries[:: self.random.choice((1, 2, 5))]
            self.tree[f"{file}.index"] = b"".join(self.struct("ii", (o - base) & 0x7FFFFFFF, at) for o, at, _ in few)
            self.tree[f"{file}.timeindex"] = b"".join(self.struct("qi", t, (o - base) & 0x7FFFFFFF) for o, _, t in few)
            aborted = [
                one for one in log.aborted if base <= one[2] < ([*sorted(log.logs), log.end + 1])[bases.index(base) + 1]
            ]
            if aborted:
                self.tree[f"{file}.txnindex"] = b"".join(
                    self.struct("hqqqq", 0, pid, first, last, last + 1) for pid, first, last in aborted
                )
        for at, stored in log.snapshots.items():
            if at <= end:
                self.tree[f"{place}/{at:020}.snapshot"] = stored
        if self.random.random() < 0.7 and self.age.magic == 2:
            self.tree[f"{place}/{end:020}.snapshot"] = self._snapshot(name)
        epochs = [(self.number(epoch, 32), self.number(at, 64)) for epoch, at in log.epochs if at <= end]
        lines = ["0", str(len(epochs)), *(f"{epoch} {at}" for epoch, at in epochs), ""]
        self.tree[f"{place}/leader-epoch-checkpoint"] = "\n".join(lines).encode()
        if self.age.topic_ids:
            number = base64.urlsafe_b64encode(self.ids[name.rpartition("-")[0]]).decode().rstrip("=")
            self.tree[f"{place}/partition.metadata"] = f"version: 0\ntopic_id: {number}".encode()
        return end

    def _checkpoint(self, offsets: dict[str, int]) -> bytes:
        lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {self.number(at, 64)}"
                 for name, at in offsets.items()]  # fmt: skip
        return "\n".join(["0", str(len(lines)), *lines, ""]).encode()

    def _tamper(self) -> None:
        """Cut a file, let two change places, clone a partition, take a file away, or append zeros."""
        random_, names = self.random, sorted(self.tree)
        name, other = random_.choice(names), random_.choice(names)
        place = Path(name).parent.as_posix()
        match random_.randrange(6):
            case 0:
                self.tree[name] = self.tree[name][: random_.randrange(len(self.tree[name]) + 1)]
            case 1:
                self.tree[name], self.tree[other] = self.tree[other], self.tree[name]
            case 2 if place.count("/") == 2:
                ending = random_.choice(("9", *(f".{'0a' * 16}-{kind}" for kind in ("delete", "stray", "future"))))
                for file in [file for file in names if file.startswith(f"{place}/")]:
                    self.tree[f"{place}{ending}/{Path(file).name}"] = self.tree[file]
            case 3:
                del self.tree[name]
            case 4:
                self.tree[name] += bytes(random_.choice((1, 61, 4096)))
            case _:
                suffix = Path(name).suffix
                if suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
                    self.tree[f"{place}/{random_.choice([e for e in EDGES if 0 <= e < 1 << 63]):020}{suffix}"] = (
                        self.tree[name]
                    )
