"""``auditor compare`` over two real clusters with MirrorMaker 2 between them, and over a backup.

Losses are made on the way; what each side has is asked of a consumer of another implementation (kafka-python). What the
comparison says has to be the difference of these two, to the record, and nothing for what was mirrored well."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from auditor.pipeline.comparison import Comparison
from tests.broker.cluster import Cluster, Driver, Jvm, segment_bytes
from tests.broker.jars import classpath, missing_tools
from tests.compared import compared

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

RELEASE = "4.3.1"
PATIENCE_S = 240
HEALTHY = [f"shop.plain{n}" for n in range(12)] + ["shop.zip", "shop.tiny", "shop.parts", "shop.stamped", "shop.kept"]
COMMITTED = [f"bank.commit{n}" for n in range(4)]
ABORTED = [f"bank.abort{n}" for n in range(4)]
KILLED = [f"kill.t{n}" for n in range(4)]
OVERTAKEN = [f"late.t{n}" for n in range(4)]
AGAIN = [f"again.t{n}" for n in range(4)]
BACKED_UP = [f"backup.t{n}" for n in range(4)]
ALL = [*HEALTHY, *COMMITTED, *ABORTED, *KILLED, *OVERTAKEN, *AGAIN, *BACKED_UP]


class Got(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    content: tuple[Any, ...]


@dataclass
class Mirrored:
    """Two clusters, and MirrorMaker between them."""

    a: Cluster
    b: Cluster
    folder: Path
    starts: int = 0
    jvm: Jvm | None = None
    early: Path = field(default_factory=Path)

    def start(self) -> None:
        """Start MirrorMaker; it commits its positions when it is stopped."""
        once = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")
        lines = {f"{name}.replication.factor": "1" for name in (*once, "config.storage")} | {
            "clusters": "A, B", "replication.factor": "1", "offset.flush.interval.ms": "600000", "tasks.max": "2",
            "A.bootstrap.servers": self.a.servers, "B.bootstrap.servers": self.b.servers, "A->B.enabled": "true",
            "B->A.enabled": "false", "A->B.topics": ".*", "A->B.groups": "shop.*", "emit.heartbeats.enabled": "false",
            "refresh.topics.interval.seconds": "5", "refresh.groups.interval.seconds": "5",
            "emit.checkpoints.interval.seconds": "3", "sync.group.offsets.enabled": "true", "offset.lag.max": "10",
            "sync.group.offsets.interval.seconds": "3", "dedicated.mode.enable.internal.rest": "false",
        }  # fmt: skip
        file = self.folder / "mm2.properties"
        file.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
        self.starts += 1
        jars = classpath(RELEASE, "connect-mirror")
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        self.jvm = Jvm(jars, main, [str(file)], self.folder / f"mirror-{self.starts}.out", "320m")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        assert self.jvm is not None
        self.jvm.end(how)

    def await_records(self, topics: list[str], least: dict[str, int]) -> None:
        """Wait until B has so many offsets of each topic, and for no more for two seconds."""
        consumer = KafkaConsumer(bootstrap_servers=self.b.servers)
        end, before = time.monotonic() + PATIENCE_S, -1
        while True:
            ends = {t: ends_of(consumer, f"A.{t}") for t in topics}
            if all(ends[t] >= least[t] for t in topics) and sum(ends.values()) == before:
                break
            before = sum(ends.values())
            short = {t: (n, least[t]) for t, n in ends.items() if n < least[t]}
            assert time.monotonic() < end, f"not mirrored: {short}"
            assert self.jvm is None or self.jvm.process.poll() is None, "MirrorMaker has ended"
            time.sleep(2)
        consumer.close()


def ends_of(consumer: KafkaConsumer, topic: str) -> int:
    """The sum of a topic's end offsets; -1 for no such topic."""
    partitions = consumer.partitions_for_topic(topic)
    if not partitions:
        consumer.topics()
        return -1
    return int(sum(consumer.end_offsets([TopicPartition(topic, p) for p in partitions]).values()))


def got(cluster: Cluster, topic: str, partition: int = 0, *, timed: bool = True) -> list[Got]:
    """What a read_committed consumer gets of a partition."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.servers, isolation_level="read_committed")
    where = TopicPartition(topic, partition)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    end, records = consumer.end_offsets([where])[where], []
    until = time.monotonic() + 60
    while consumer.position(where) < end:
        assert time.monotonic() < until
        for some in consumer.poll(500).values():
            records += [Got(r.offset, (r.key, r.value, r.timestamp if timed else 0)) for r in some]
    consumer.close()
    return records


def sends(cluster: Cluster, topics: dict[str, range], parts: int = 1, **how: Any) -> None:
    """Records that differ from each other."""
    producer = KafkaProducer(bootstrap_servers=cluster.servers, linger_ms=5, **how)
    for topic, numbers in topics.items():
        for n in numbers:
            producer.send(topic, b"%s value %d" % (topic.encode(), n) * 3, b"key-%d" % (n % 50), partition=n % parts)
            if n % 40 == 0:
                producer.flush()
    producer.flush()
    producer.close()


def transactions(run: Driver, topic: str, ends: str) -> None:
    """Transactions of 11 records that are committed (c) or aborted (a), with plain records between."""
    run(f"producer {topic} transactional.id={topic}")
    run(f"init {topic}")
    for n, end in enumerate(ends):
        run(f"begin {topic}")
        run(f"send {topic} {topic} 0 {11 + n} size=20")
        run(f"{'commit' if end == 'c' else 'abort'} {topic}")


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    folder = tmp_path_factory.mktemp("mirrored")
    with (
        Cluster(RELEASE, folder / "a", heap="300m") as a, Cluster(RELEASE, folder / "b", heap="300m") as b,
        Driver(a) as run, Driver(b) as there,
    ):  # fmt: skip
        both = Mirrored(a, b, folder)
        try:
            _make(both, run, there)
            yield both
        finally:
            if both.jvm is not None:
                both.jvm.end(signal.SIGKILL)


def _make(both: Mirrored, run: Driver, there: Driver) -> None:
    """All topics, and what happens to them."""
    a = both.a
    small = segment_bytes(RELEASE, 20000)  # above the size of a batch of the mirror
    for topic in ALL:
        parts, more = (3, "") if topic == "shop.parts" else (1, "")
        more = "message.timestamp.type=LogAppendTime" if topic == "shop.stamped" else more
        more = small if topic in BACKED_UP else more
        run(f"topic {topic} {parts} 1 {more}")
    plain = [t for t in ALL if not t.startswith("bank.") and t not in ("shop.parts", "shop.zip")]
    sends(a, dict.fromkeys(plain, range(400)))
    sends(a, dict.fromkeys(BACKED_UP, range(400, 1500)))
    sends(a, {"shop.parts": range(400)}, 3)
    sends(a, {"shop.zip": range(400)}, compression_type="gzip")
    for topic in COMMITTED:
        transactions(run, topic, "cccccc")
    for n, topic in enumerate(ABORTED):
        transactions(run, topic, ("cac", "aca", "ccaac", "a")[n])
    for n, topic in enumerate(HEALTHY[:6]):
        run(f"stop-group shop.g{n} {topic} 0 {50 * (n + 1)}")
    both.start()
    counts = {t: len(got(a, t)) if t != "shop.parts" else 400 for t in ALL}
    both.await_records(ALL, counts)
    time.sleep(8)  # checkpoints
    both.stop()
    # While it is down: retention deletes what it has not copied, topics are made again.
    sends(a, dict.fromkeys(OVERTAKEN, range(400, 700)))
    both.early = both.folder / "early"
    a.copy(both.early)
    for n, topic in enumerate(OVERTAKEN):
        run(f"delete-records {topic} 0 {450 + 60 * n}")
    for topic in AGAIN:
        run(f"delete-topic {topic}")
    time.sleep(3)
    again = {topic: range(1000, 1000 + (100, 250, 500, 600)[n]) for n, topic in enumerate(AGAIN)}
    for topic in AGAIN:
        run(f"topic {topic} 1 1")
    sends(a, again)
    both.start()
    both.await_records(OVERTAKEN, {t: 400 + 700 - (450 + 60 * n) for n, t in enumerate(OVERTAKEN)})
    both.await_records(AGAIN, dict.fromkeys(AGAIN, 500))
    both.stop()
    both.start()
    sends(a, dict.fromkeys(KILLED, range(400, 520)))
    both.await_records(KILLED, dict.fromkeys(KILLED, 520))
    both.stop(signal.SIGKILL)
    both.start()
    both.await_records(KILLED, dict.fromkeys(KILLED, 640))
    both.stop()
    for n, topic in enumerate(COMMITTED):  # offsets that somebody translated
        run(f"commit-offset moved.g{n} {topic} 0 12")
        there(f"commit-offset moved.g{n} A.{topic} 0 {11 + n}")


def expected(ours: list[Got], theirs: list[Got]) -> tuple[set[int], dict[int, str]]:
    """By what consumers got: the offsets in A of what B lacks, and those in B of what only B has, with its kind."""
    left, known = Counter(r.content for r in theirs), {r.content for r in ours}
    lacking = set()
    for r in ours:
        left[r.content] -= 1
        if left[r.content] < 0:
            lacking.add(r.offset)
    beyond, seen = dict[int, str](), Counter(r.content for r in ours)
    for r in theirs:
        seen[r.content] -= 1
        if seen[r.content] < 0:
            beyond[r.offset] = "duplicated" if r.content in known else "extra"
    return lacking, beyond


def agrees(done: Comparison, ours: list[Got], theirs: list[Got], topic: str) -> tuple[int, int]:
    """Check the rows of a topic of one partition; the numbers of records that B lacks, and has beyond."""
    lacking, beyond = expected(ours, theirs)
    rows = [row for row in done.rows if row["topic"] == topic and row["group_id"] is None and row["differs"]]
    said = {r.offset for r in ours for row in rows if row["kind"] in ("missing", "behind", "changed")
            and row["first_offset"] <= r.offset <= row["last_offset"]}  # fmt: skip
    more = {r.offset: row["kind"] for r in theirs for row in rows if row["kind"] in ("duplicated", "extra")
            and row["other_first_offset"] <= r.offset <= row["other_last_offset"]}  # fmt: skip
    assert (said, more) == (lacking, beyond), topic
    assert sum(row["records"] for row in rows) == len(lacking) + len(beyond)
    return len(lacking), len(beyond)


def test_each_loss_is_found_to_the_record(mirrored: Mirrored) -> None:
    done = compared(mirrored.a.log_dir(), mirrored.b.log_dir())
    assert done.partitions == len(ALL) + 2
    sums = {}
    for topic in [*HEALTHY, *COMMITTED]:
        rows = [row for row in done.rows if row["topic"] == topic and row["differs"]]
        assert [row for row in rows if not row["kind"].startswith("group")] == [], topic
    for topic in [*ABORTED, *KILLED, *AGAIN, *COMMITTED, "shop.kept"]:
        sums[topic] = agrees(done, got(mirrored.a, topic), got(mirrored.b, f"A.{topic}"), topic)
    assert {sums[t][1] for t in ABORTED} == {12, 11 + 13, 13 + 14, 11}  # aborted on A, and copied all the same
    assert all(sums[t][1] >= 120 and sums[t][0] == 0 for t in KILLED)
    assert all(sums[t][1] == 400 for t in AGAIN)
    assert any(sums[t][0] > 0 for t in AGAIN)  # the mirror's old position is in the middle of the new topic
    assert (done.differs, done.incomplete) == (True, False)


def test_what_retention_deleted_before_the_mirror_came(mirrored: Mirrored) -> None:
    """A copy of A from before has the records."""
    done = compared(mirrored.early / "broker-1", mirrored.b.log_dir(), ["late.*"])
    for n, topic in enumerate(OVERTAKEN):
        theirs = got(mirrored.b, f"A.{topic}")
        rows = [row for row in done.rows if row["topic"] == topic and row["group_id"] is None and row["differs"]]
        assert [(row["kind"], row["first_offset"], row["last_offset"], row["records"]) for row in rows] == [
            ("missing", 400, 449 + 60 * n, 50 + 60 * n)
        ]
        assert len(theirs) == 700 - (50 + 60 * n)


def test_translated_offsets(mirrored: Mirrored) -> None:
    """Group shop.gN has read 50 (N + 1) records of healthy topics, where offsets are equal on both sides."""
    done = compared(mirrored.a.log_dir(), mirrored.b.log_dir())
    rows = {row["group_id"]: row for row in done.rows if row["group_id"]}
    translated = [n for n in range(6) if f"shop.g{n}" in rows]  # not one that is older than its offset syncs
    assert len(translated) >= 2
    for n in translated:
        row = rows[f"shop.g{n}"]
        early = row["first_offset"] - row["other_first_offset"]
        kind = "group_early" if early else "group_right"
        assert (row["first_offset"], row["kind"], row["records"]) == (50 * (n + 1), kind, early)
        assert early >= 0
    # Offset 12 of A is behind 11 records and a marker: record 11 in B is the next one.
    kinds = [(rows[f"moved.g{n}"]["kind"], rows[f"moved.g{n}"]["records"]) for n in range(4)]
    assert kinds == [("group_right", 0), ("group_late", 1), ("group_late", 2), ("group_late", 3)]


def test_a_restored_backup_without_a_segment(mirrored: Mirrored, tmp_path: Path) -> None:
    """The records of the removed file, and no others."""
    backup = tmp_path / "backup"
    shutil.copytree(mirrored.a.log_dir(), backup, ignore=shutil.ignore_patterns(".lock"))
    gone = {}
    for n, topic in enumerate(BACKED_UP):
        files = sorted((backup / f"{topic}-0").glob("*.log"))
        assert len(files) > 3
        bases = [int(f.stem) for f in files]
        gone[topic] = (bases[n % 2 + 1], bases[n % 2 + 2] - 1)
        files[n % 2 + 1].unlink()
    done = compared(mirrored.a.log_dir(), backup, ["backup.*", "shop.*"])
    rows = [(row["topic"], row["kind"], row["first_offset"], row["last_offset"]) for row in done.rows if row["differs"]]
    assert sorted(rows) == [(topic, "missing", *span) for topic, span in sorted(gone.items())]
