"""Inputs that are large, or that few bytes make large: each a log directory, in any size.

A generator takes a folder, which it fills, and how many times the size that it is known by is wanted. All are in
:data:`INPUTS`, by the name that ``python -m bench.hostile`` gives them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from auditor.connectors.codec.primitives import crc32c
from bench import coordinator_topics
from tests.segments import batch, compress, record, simple

NOW = 1_795_000_000_000  # ms
MIB = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
PARTITIONS = 249_000  # a record's value of just below a MiB
RECORDS = 15  # of such a batch: 15 MiB, below what any batch may become
NAMELESS = 1_123_475  # records with neither key nor value, in one batch
Make = Callable[[Path, float], None]


class Input(NamedTuple):
    """How an input is made, the exit statuses that an audit of it may have, and words that name it in the results.

    ``named`` is looked for in the summary's unreadable files and in the findings' topics; none where nothing is wrong.
    """

    make: Make
    statuses: tuple[int, ...]
    named: str | None = None


def _folder(root: Path, name: str) -> Path:
    path = root / name
    path.mkdir(parents=True)
    return path


def _log(root: Path, partition: str, data: bytes) -> Path:
    """A partition of one segment; its folder."""
    folder = _folder(root, partition)
    (folder / f"{0:020}.log").write_bytes(data)
    return folder


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _transaction(name: bytes, topics: bytes, topic_count: int) -> tuple[bytes, bytes]:
    """Key and value of an Ongoing record; ``topics``: the encoded array behind its count."""
    value = struct.pack(">hqhib", 0, 7, 0, 60_000, 1) + struct.pack(">i", topic_count) + topics
    return b"\0\0" + _text(name), value + struct.pack(">qq", NOW, NOW)


def _named(first: int, count: int) -> bytes:
    """One topic with so many partitions, whose numbers begin with ``first`` and go on with zeros."""
    return _text(b"orders") + struct.pack(">ii", count, first) + bytes(4 * (count - 1))


def transactions(root: Path, times: float) -> None:
    """A sound ``__transaction_state`` partition of 400 000 records."""
    coordinator_topics.transactions(root, round(400_000 * times))


def transactions_spread(root: Path, times: float) -> None:
    """The same records over 50 partitions."""
    coordinator_topics.transactions(root, round(400_000 * times), partitions=50)


def transactions_of_one_id(root: Path, times: float) -> None:
    """A million records of one id."""
    coordinator_topics.transactions(root, round(1_000_000 * times), ids=1)


def transactions_many_ids(root: Path, times: float) -> None:
    """400 000 records of as many ids as transactions."""
    coordinator_topics.transactions(root, round(400_000 * times), ids=round(130_000 * times))


def commits(root: Path, times: float) -> None:
    """A sound ``__consumer_offsets`` partition of three million commits."""
    coordinator_topics.commits(root, round(3_000_000 * times))


def commits_spread(root: Path, times: float) -> None:
    """The same over 50 partitions."""
    coordinator_topics.commits(root, round(3_000_000 * times), partitions=50)


def commits_many_groups(root: Path, times: float) -> None:
    """A million commits of 100 000 groups."""
    coordinator_topics.commits(root, round(1_000_000 * times), groups=round(100_000 * times))


def partitions_bomb(codec: str, *, distinct: bool = False, spread: int = 1) -> Make:
    """16 batches of 15 MiB plain in ``__transaction_state``: 15 records, each with a list of 249 000 partitions.

    ``distinct``: no two lists are equal. ``spread``: in so many partitions.
    """

    def make(root: Path, times: float) -> None:
        number = 0
        for partition in range(spread):
            stored = []
            for at in range(max(1, round(16 * times / spread))):
                bodies = []
                for k in range(RECORDS):
                    number += distinct
                    key, value = _transaction(b"id-%d" % (at * RECORDS + k), _named(number, PARTITIONS), 1)
                    bodies.append(record(k, key, value))
                stored.append(batch(compress(CODECS[codec], b"".join(bodies)), RECORDS, base_offset=at * RECORDS,
                                    attributes=CODECS[codec], base_time=NOW, max_time=NOW))  # fmt: skip
            _log(root, f"__transaction_state-{partition}", b"".join(stored))

    return make


def many_ids_and_partitions(root: Path, times: float) -> None:
    """20 000 ids, each with two records that name 200 partitions of its own: four million names."""
    folder = _folder(root, "__transaction_state-0")
    with (folder / f"{0:020}.log").open("wb") as f:
        for at in range(round(20_000 * times)):
            numbers = np.arange(200 * at, 200 * at + 200, dtype=">i4").tobytes()
            topics = _text(b"orders-%d" % (at % 50)) + struct.pack(">i", 200) + numbers
            key, value = _transaction(b"id-%d" % at, topics, 1)
            body = record(0, key, value) + record(1, key, value)
            f.write(batch(body, 2, base_offset=2 * at, base_time=NOW, max_time=NOW))


def nameless(topic: str, *, numbered: bool = True, spread: int = 1) -> Make:
    """One zstd batch with 1 123 475 records that have neither key nor value; with one number for all (not
    ``numbered``) it takes a thousand bytes."""

    def make(root: Path, times: float) -> None:
        count = round(NAMELESS * times / spread)
        plain = b"".join(record(delta if numbered else 0, None, b"") for delta in range(count))
        stored = batch(compress(ZSTD, plain), count, attributes=ZSTD, base_time=NOW, max_time=NOW)
        for partition in range(spread):
            _log(root, f"{topic}-{partition}", stored)

    return make


def equal_records(topic: str, key: bytes, value: bytes, codec: str = "zstd") -> Make:
    """Batches of 15 MiB plain of one record again and again, 240 MiB in all."""

    def make(root: Path, times: float) -> None:
        one = len(record(0, key, value)) + 3
        count = 15 * MIB // one
        plain = b"".join(record(delta, key, value) for delta in range(count))
        body, stored = compress(CODECS[codec], plain), []
        for at in range(max(1, round(16 * times))):
            stored.append(batch(body, count, base_offset=at * count, attributes=CODECS[codec], base_time=NOW,
                                max_time=NOW))  # fmt: skip
        _log(root, f"{topic}-0", b"".join(stored))

    return make


def setting(value: str) -> Make:
    """``producer.id.expiration.ms`` beyond all numbers, beside a sound partition."""

    def make(root: Path, times: float) -> None:
        _log(root / "broker", "payments-0", simple(0))
        (root / "server.properties").write_text(f"log.dirs=broker\nproducer.id.expiration.ms={value}\n")

    return make


def epochs(root: Path, times: float) -> None:
    """A leader-epoch checkpoint of 12 MB."""
    folder = _log(root, "payments-0", simple(0))
    count = round(800_000 * times)
    lines = "".join(f"{k} {3 * k}\n" for k in range(count))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{count}\n{lines}")


def high_watermarks(root: Path, times: float) -> None:
    """The checkpoints of a log directory with 800 000 lines each."""
    _log(root, "payments-0", simple(0))
    count = round(800_000 * times)
    lines = "".join(f"topic-{k} 0 {k}\n" for k in range(count))
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (root / name).write_text(f"0\n{count}\n{lines}")


def index(root: Path, times: float) -> None:
    """Indexes of 64 MiB, of one entry again and again, so that all are out of order."""
    folder = _log(root, "payments-0", simple(0))
    count = round(64 * MIB * times)
    (folder / f"{0:020}.index").write_bytes(struct.pack(">ii", 1, 1) * (count // 8))
    (folder / f"{0:020}.timeindex").write_bytes(struct.pack(">qi", NOW, 1) * (count // 12))


def txnindex(root: Path, times: float) -> None:
    """A transaction index of 200 MiB."""
    folder = _log(root, "payments-0", simple(0))
    entries = np.zeros(round(6_000_000 * times), np.dtype([("version", ">i2"), ("numbers", ">i8", 4)]))
    entries["numbers"] = np.arange(len(entries))[:, None]
    (folder / f"{0:020}.txnindex").write_bytes(entries.tobytes())


def snapshot(root: Path, times: float) -> None:
    """A producer snapshot of 200 MiB."""
    folder = _log(root, "payments-0", simple(0))
    kind = np.dtype([("producer", ">i8"), ("epoch", ">i2"), ("sequence", ">i4"), ("offset", ">i8"), ("delta", ">i4"),
                     ("time", ">i8"), ("coordinator", ">i4"), ("first", ">i8")])  # fmt: skip
    entries = np.zeros(round(4_500_000 * times), kind)
    entries["producer"], entries["time"], entries["first"] = np.arange(len(entries)), NOW, -1
    body = struct.pack(">i", len(entries)) + entries.tobytes()
    checksum = int(crc32c(np.frombuffer(body, np.uint8), 0, len(body)))
    (folder / f"{3:020}.snapshot").write_bytes(struct.pack(">hI", 1, checksum) + body)


COMMIT = (b"\0\1" + _text(b"group") + _text(b"orders") + struct.pack(">i", 0),
          struct.pack(">hqihq", 3, 7, -1, 0, NOW))  # fmt: skip
# What the issue was opened with, then other sizes and shapes of it.
INPUTS: dict[str, Input] = {
    "transactions": Input(transactions, (0, 1)),
    "million transactions": Input(lambda root, times: transactions(root, 2.5 * times), (0, 1)),
    "commits": Input(commits, (0, 1)),
    "partitions zstd": Input(partitions_bomb("zstd"), (0, 1)),
    "nameless": Input(nameless("__transaction_state", numbered=False), (3,), "__transaction_state"),
    "setting of 20 digits": Input(setting("9" * 20), (3,), "server.properties"),
    "setting of 5000 digits": Input(setting("7" * 5000), (3,), "server.properties"),
    "transactions over 50": Input(transactions_spread, (0, 1)),
    "transactions of one id": Input(transactions_of_one_id, (0, 1)),
    "transactions of many ids": Input(transactions_many_ids, (0, 1)),
    "commits over 50": Input(commits_spread, (0, 1)),
    "commits of many groups": Input(commits_many_groups, (0, 1)),
    "ids with partitions": Input(many_ids_and_partitions, (0, 1)),
    "partitions lz4": Input(partitions_bomb("lz4"), (0, 1)),
    "partitions snappy": Input(partitions_bomb("snappy"), (0, 1)),
    "partitions gzip": Input(partitions_bomb("gzip"), (0, 1)),
    "distinct lists": Input(partitions_bomb("zstd", distinct=True), (3,), "__transaction_state"),
    "distinct lists over 50": Input(partitions_bomb("zstd", distinct=True, spread=50), (3,), "__transaction_state"),
    "nameless numbered": Input(nameless("__transaction_state"), (3,), "__transaction_state"),
    # each of these is within the limits: read, and damaged
    "nameless over 50": Input(nameless("__transaction_state", spread=50), (0, 1), "__transaction_state"),
    "nameless offsets": Input(nameless("__consumer_offsets"), (3,), "__consumer_offsets"),
    "nameless metadata": Input(nameless("__cluster_metadata"), (3,), "__cluster_metadata"),
    "nameless data": Input(nameless("payments"), (0, 1)),
    "equal commits": Input(equal_records("__consumer_offsets", *COMMIT), (0, 1)),
    "equal data": Input(equal_records("payments", b"", b""), (0, 1)),
    "epochs": Input(epochs, (3,), "leader-epoch-checkpoint"),
    "high watermarks": Input(high_watermarks, (3,), "offset-checkpoint"),
    "index": Input(index, (3,), ".index"),
    "txnindex": Input(txnindex, (3,), ".txnindex"),
    "snapshot": Input(snapshot, (3,), ".snapshot"),
}  # fmt: skip
WHY = (*INPUTS,)[:7]  # in one run all together, too


def made(name: str, root: Path, times: float) -> int:
    """Makes an input in a new folder; bytes of all its files."""
    root.mkdir(parents=True)
    INPUTS[name].make(root, times)
    log_dir = next(path.parent.parent for path in root.rglob("*.log"))
    number = 1000 + list(INPUTS).index(name)
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id=hostile-{number:014}\n")
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
