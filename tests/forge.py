"""A careful forger: alters a real partition in one way and lets checksums, indexes, snapshots and offsets fit again.

Written from the reference and from kafka-python alone. A batch is its bytes; :meth:`Forged.save` writes what follows
from them: positions in indexes, the names of files, offsets that moved.
"""

from __future__ import annotations

import gzip
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cramjam
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

from auditor.rules.seen.view import Finding
from tests import corpora, segments
from tests.audited import audit_folder

HEADER = {
    "base_offset": (0, ">q"), "length": (8, ">i"), "leader_epoch": (12, ">i"), "magic": (16, ">b"), "crc": (17, ">I"),
    "attributes": (21, ">h"), "delta": (23, ">i"), "base_time": (27, ">q"), "max_time": (35, ">q"),
    "producer_id": (43, ">q"), "epoch": (51, ">h"), "sequence": (53, ">i"), "count": (57, ">i"),
}  # fmt: skip
TRANSACTIONAL, CONTROL = 0x10, 0x20
ENTRY = struct.Struct(">qhiqiqiq")  # one producer of a snapshot


class Producer(NamedTuple):
    """One entry of a producer snapshot."""

    producer_id: int
    epoch: int
    sequence: int
    offset: int
    delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int


class Batch:
    """One batch of magic 2. ``was`` is the position it had in its file, None for a new one; ``old_base`` its offset."""

    def __init__(self, data: bytes, was: int | None = None) -> None:
        self.data = bytearray(data)
        self.was = was
        self.old_base: int = self["base_offset"]
        self.old_last: int = self.last

    def __getitem__(self, name: str) -> int:
        at, form = HEADER[name]
        value: int = struct.unpack_from(form, self.data, at)[0]
        return value

    def set(self, **fields: int) -> Batch:
        """Other header fields, and the checksum that fits."""
        for name, value in fields.items():
            at, form = HEADER[name]
            struct.pack_into(form, self.data, at, value)
        return self if "crc" in fields else self.seal()

    def seal(self) -> Batch:
        """Length and checksum that fit the bytes."""
        struct.pack_into(">i", self.data, 8, len(self.data) - 12)
        struct.pack_into(">I", self.data, 17, calc_crc32c(bytes(self.data[21:])))
        return self

    @property
    def last(self) -> int:
        return self["base_offset"] + self["delta"]

    @property
    def control(self) -> bool:
        return bool(self["attributes"] & CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self["attributes"] & TRANSACTIONAL)

    @property
    def codec(self) -> int:
        return self["attributes"] & 7

    def move(self, by: int) -> Batch:
        """The same batch at other offsets, which no checksum covers."""
        return self.set(base_offset=self["base_offset"] + by)

    def copy(self) -> Batch:
        return Batch(bytes(self.data))

    def records(self) -> list[dict[str, Any]]:
        """Its records, read by kafka-python, as arguments of ``segments.record``."""
        base, time = self["base_offset"], self["base_time"]
        opened = Batch(bytes(self.data[:61]) + plain(self.codec, bytes(self.data[61:])))
        opened.set(attributes=self["attributes"] & ~7)
        return [
            {"delta": r.offset - base, "key": r.key, "value": r.value, "time": r.timestamp - time,
             "headers": [(name.encode(), content) for name, content in r.headers]}
            for r in DefaultRecordBatch(bytes(opened.data))
        ]  # fmt: skip

    def refill(self, *records: dict[str, Any], alter: Callable[[bytes], bytes] = bytes) -> Batch:
        """Other records under the same header; ``alter`` may change their bytes before they are compressed."""
        body = alter(b"".join(segments.record(**r) for r in records))
        self.data[61:] = segments.compress(self.codec, body)
        return self.seal()


def plain(codec: int, stored: bytes) -> bytes:
    """A batch's records before compression."""
    if codec == 2:
        out, at = b"", len(segments.XERIAL)
        while at < len(stored):
            size = struct.unpack_from(">i", stored, at)[0]
            out += bytes(cramjam.snappy.decompress_raw(stored[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    if codec == 1:
        return gzip.decompress(stored)
    return bytes({0: bytes, 3: cramjam.lz4.decompress, 4: cramjam.zstd.decompress}[codec](stored))


def marker(like: Batch, commit: bool, **header: int) -> Batch:
    """An end marker of ``like``'s producer right behind it; ``coordinator`` and ``kind`` are its record's."""
    coordinator, kind = header.pop("coordinator", 0), header.pop("kind", int(commit))
    body = segments.record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator))
    time = header.pop("time", like["max_time"] + 1)
    fields = {
        "base_offset": like.last + 1, "attributes": TRANSACTIONAL | CONTROL, "base_time": time, "max_time": time,
        "producer_id": like["producer_id"], "epoch": like["epoch"], "leader_epoch": like["leader_epoch"],
    }  # fmt: skip
    return Batch(segments.batch(body, 1, **(fields | header)))


class Forged:
    """One partition's folder with its batches at hand. Nothing is written before :meth:`save`."""

    def __init__(self, broker: Path, name: str) -> None:
        self.broker, self.folder = broker, broker / name
        self.topic, _, number = name.rpartition("-")
        self.partition = int(number)
        self.segments = {int(p.stem): _batches(p.read_bytes()) for p in sorted(self.folder.glob("*.log"))}
        self.tails = dict.fromkeys(self.segments, b"")
        self.aborted: list[tuple[int, int, int]] = []  # to index: producer id, first offset, marker's offset
        self.snapshots = {int(p.stem): producers(p.read_bytes()) for p in sorted(self.folder.glob("*.snapshot"))}

    def all(self) -> list[Batch]:
        return [b for batches in self.segments.values() for b in batches]

    def data(self, producer_id: int | None = None, epoch: int | None = None) -> list[Batch]:
        """Data batches, of one producer (-1: of none) and epoch where named."""
        return [
            b for b in self.all()
            if not b.control and producer_id in (None, b["producer_id"]) and epoch in (None, b["epoch"])
        ]  # fmt: skip

    def markers(self) -> list[Batch]:
        return [b for b in self.all() if b.control]

    def find(self, offset: int) -> Batch:
        return next(b for b in self.all() if b["base_offset"] <= offset <= b.last)

    @property
    def end(self) -> int:
        return max(b.last for b in self.all()) + 1

    def segment_of(self, batch: Batch) -> int:
        return next(base for base, batches in self.segments.items() if any(b is batch for b in batches))

    def place(self, batch: Batch) -> tuple[str, int]:
        """File and position that a finding about the batch has to name, while the files have their names."""
        base = self.segment_of(batch)
        batches = self.segments[base]
        before = next(k for k, b in enumerate(batches) if b is batch)
        return f"{self.folder.name}/{base:020}.log", sum(len(b.data) for b in batches[:before])

    def append(self, *batches: Batch) -> Batch:
        """Batches behind the last one, at the offsets they have; returns the last of them."""
        self.segments[max(self.segments)] += batches
        return batches[-1]

    @property
    def last(self) -> Batch:
        return self.all()[-1]

    def next(self, like: Batch, **header: int) -> Batch:
        """Appends a copy of a batch at the end of the log."""
        return self.append(
            like.copy().set(**({"base_offset": self.end, "leader_epoch": self.last["leader_epoch"]} | header))
        )

    def decide(self, like: Batch, commit: bool, **header: int) -> Batch:
        """Appends an end marker of a batch's producer."""
        return self.append(
            marker(like, commit, **({"base_offset": self.end, "leader_epoch": self.last["leader_epoch"]} | header))
        )

    def drop(self, *batches: Batch) -> None:
        for base in self.segments:
            self.segments[base] = [b for b in self.segments[base] if not any(b is gone for gone in batches)]

    def insert(self, after: Batch, new: Batch) -> Batch:
        """A batch behind another one; everything behind it moves up, with the files' names."""
        base, size = self.segment_of(after), new["delta"] + 1
        for b in self.all():
            if b["base_offset"] > after.last:
                b.move(size)
        new.set(base_offset=after.last + 1)
        batches = self.segments[base]
        batches.insert(next(k for k, b in enumerate(batches) if b is after) + 1, new)
        return new

    def cut(self, end: int) -> None:
        """The log as it was when it ended at an offset, with the checkpoints of that time."""
        self.drop(*(b for b in self.all() if b["base_offset"] >= end))
        for base in [base for base in self.segments if base >= end and base != min(self.segments)]:
            del self.segments[base], self.tails[base]
            for path in self.folder.glob(f"{base:020}.*"):
                path.unlink()
        self.snapshots = {offset: known for offset, known in self.snapshots.items() if offset <= end}
        self.checkpoint("replication-offset-checkpoint", end)
        self.checkpoint("recovery-point-offset-checkpoint", end)

    def checkpoint(self, file: str, offset: int) -> None:
        """Another offset of this partition in one of the broker's checkpoints."""
        path = self.broker / file
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        others = [line for line in lines if line.rpartition(" ")[0] != f"{self.topic} {self.partition}"]
        lines = [*others, f"{self.topic} {self.partition} {offset}"]
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    def file(self, base: int, suffix: str) -> Path:
        return self.folder / f"{base:020}.{suffix}"

    def resequence(self, producer_id: int, epoch: int, start: int, by: int) -> None:
        """Moves the producer's sequences from offset ``start`` on, in the snapshots too."""
        for b in self.data(producer_id, epoch):
            if b["base_offset"] >= start:
                b.set(sequence=b["sequence"] + by)
        for offset, known in self.snapshots.items():
            self.snapshots[offset] = [
                p._replace(sequence=p.sequence + by)
                if (p.producer_id, p.epoch) == (producer_id, epoch) and p.offset >= start and p.sequence >= 0 else p
                for p in known
            ]  # fmt: skip

    def moved(self, offset: int) -> int:
        """Where an offset of the files as they were has come to lie."""
        by = 0
        for b in self.all():
            if b.was is not None and b.old_base <= offset:
                by = b["base_offset"] - b.old_base
        return offset + by

    def save(self) -> None:
        """Writes the partition's files."""
        names = {base: self._name(base) for base in self.segments}
        indexes = {base: self._indexes(base, names[base]) for base in self.segments}
        for path in [p for base in self.segments for p in self.folder.glob(f"{base:020}.*")]:
            path.unlink()
        for path in self.folder.glob("*.snapshot"):
            path.unlink()
        for base, batches in self.segments.items():
            self.file(names[base], "log").write_bytes(b"".join(bytes(b.data) for b in batches) + self.tails[base])
            for suffix, content in indexes[base].items():
                self.file(names[base], suffix).write_bytes(content)
        for offset, known in self.snapshots.items():
            self.file(self._moved_end(offset), "snapshot").write_bytes(snapshot([self._follow(p) for p in known]))
        path = self.folder / "leader-epoch-checkpoint"
        lines = [line.split() for line in path.read_text().splitlines()]
        starts = [f"{epoch} {self.moved(int(at))}" for epoch, at in lines[2:]]
        path.write_text("\n".join(["0", str(len(starts)), *starts, ""]))

    def _name(self, base: int) -> int:
        first = next((b for b in self.segments[base] if b.was is not None), None)
        return base if first is None else base + first["base_offset"] - first.old_base

    def _moved_end(self, offset: int) -> int:
        return self.moved(offset - 1) + 1 if offset else 0

    def _follow(self, p: Producer) -> Producer:
        first = self.moved(p.txn_first_offset) if p.txn_first_offset >= 0 else -1
        return p._replace(offset=self.moved(p.offset) if p.offset >= 0 else -1, txn_first_offset=first)

    def _indexes(self, base: int, name: int) -> dict[str, bytes]:
        files = {s: self.file(base, s).read_bytes() for s in ("index", "timeindex", "txnindex")
                 if self.file(base, s).exists()}  # fmt: skip
        batches = self.segments[base]
        positions = {b.was: sum(len(x.data) for x in batches[:k]) for k, b in enumerate(batches) if b.was is not None}
        out = {}
        if "index" in files:
            entries = (e for e in struct.iter_unpack(">ii", files["index"]) if e[1] in positions)
            out["index"] = b"".join(
                struct.pack(">ii", self.moved(base + e[0]) - name, positions[e[1]]) for e in entries
            )
        if "timeindex" in files:
            held = [(b.old_base, b.old_last) for b in batches if b.was is not None]
            times = (e for e in struct.iter_unpack(">qi", files["timeindex"]))
            out["timeindex"] = b"".join(
                struct.pack(">qi", t, self.moved(base + at) - name)
                for t, at in times if any(low <= base + at <= high for low, high in held)
            )  # fmt: skip
        if "txnindex" in files or (self.aborted and base == max(self.segments)):
            stored = files.get("txnindex", b"")
            aborted = (e for e in struct.iter_unpack(">hqqqq", stored) if self._held(e[3]))
            out["txnindex"] = b"".join(
                struct.pack(">hqqqq", v, pid, self.moved(first), self.moved(last), self.moved(stable))
                for v, pid, first, last, stable in aborted
            )
            if base == max(self.segments):
                new = (struct.pack(">hqqqq", 0, pid, first, last, last + 1) for pid, first, last in self.aborted)
                out["txnindex"] += b"".join(new)
        return out

    def _held(self, offset: int) -> bool:
        return any(b.was is not None and b.old_base <= offset <= b.old_last for b in self.all())


def snapshot(entries: list[Producer]) -> bytes:
    """A producer snapshot of version 1."""
    body = struct.pack(">i", len(entries)) + b"".join(ENTRY.pack(*p) for p in entries)
    return struct.pack(">hI", 1, calc_crc32c(body)) + body


def _batches(data: bytes) -> list[Batch]:
    found, at = [], 0
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        found.append(Batch(data[at : at + size], at))
        at += size
    return found


def producers(data: bytes) -> list[Producer]:
    """The entries of a producer snapshot of version 1."""
    return [Producer(*row) for row in ENTRY.iter_unpack(data[10:])]


class Lab:
    """Log directories of a corpus copied as far as an audit of some partitions needs them, to be altered."""

    def __init__(self, root: Path, corpus: str, *folders: str, brokers: tuple[int, ...] = (1,)) -> None:
        self.root, self.as_of = root, int(corpora.manifest(corpus)["copied_at"])
        for number in brokers:
            source, target = corpora.unpack(corpus) / f"broker-{number}", root / f"broker-{number}"
            target.mkdir(parents=True)
            shutil.copy(source.parent / f"server-{number}.properties", root)
            for path in source.iterdir():
                if path.is_file():
                    shutil.copy(path, target)
                elif path.name in folders or path.name.startswith("__"):
                    shutil.copytree(path, target / path.name)

    def broker(self, number: int = 1) -> Path:
        return self.root / f"broker-{number}"

    def log(self, name: str, broker: int = 1) -> Forged:
        return Forged(self.broker(broker), name)

    def is_live(self) -> None:
        """The directories as of brokers that were running, or had crashed."""
        for path in self.root.glob("broker-*/.kafka_cleanshutdown"):
            path.unlink()

    def without_metadata(self) -> None:
        """As of a cluster with ZooKeeper: a metadata log that ends shows when it was copied."""
        for path in self.root.glob("broker-*/__cluster_metadata-0"):
            shutil.rmtree(path)

    def findings(self, as_of: int | None = None, *, records: bool = True) -> list[Finding]:
        return audit_folder(self.root, self.as_of if as_of is None else as_of, records=records)


def reported(found: list[Finding]) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Rule, severity and offsets of what is above info."""
    for f in found:
        if f.severity != "info":
            yield f.kind, f.severity, f.offset, f.last_offset
