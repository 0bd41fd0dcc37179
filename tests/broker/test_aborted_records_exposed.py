"""A follower that catches up writes last stable offsets that are too high, and consumers with small fetches then get
aborted records from it: reproduced on real brokers, counted with a real consumer, and held against the audit.

docs/aborted-records-exposed.md has the same steps in words.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.audited import audit_folder
from tests.broker.cluster import Cluster, Driver, segment_bytes
from tests.broker.jars import missing_tools
from tests.facts import opened

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

RULE = "aborted-records-exposed"
TOPICS = ("whole", "rolled")  # in one segment, and in several
AT_ONCE = {"leader_imbalance_check_interval_seconds": "1", "leader_imbalance_per_broker_percentage": "0"}
RECORDS = "size=1500 per=1 keys=0"  # a batch each, so that some follow an entry of the offset index
FETCHES = (1, 16_384, 1_048_576)  # max.partition.fetch.bytes


def _until(done: Callable[[], bool], what: str, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.3)


class Story:
    """Two brokers, two producers, and consumers of whichever broker leads."""

    def __init__(self, cluster: Cluster, run: Driver) -> None:
        self.cluster, self.run = cluster, run

    def begin(self) -> None:
        """Topics that broker 1 leads and broker 2 has in sync."""
        small = segment_bytes(self.cluster.version, 16_384)
        for topic in TOPICS:
            self.run(f"topic {topic} 1 2 {small if topic == 'rolled' else ''}")
        self.lead(1)
        for name in ("aborts", "commits"):
            self.run(f"producer {name} transactional.id={name}")
            self.run(f"init {name}")
            for topic in TOPICS:
                self._transaction(name, topic, "commit")

    def write(self) -> None:
        """Aborted transactions of one producer, and then a transaction of another one that begins behind them."""
        for topic in TOPICS:
            for _ in range(3):
                for _ in range(4):
                    self._transaction("aborts", topic, "abort")
                self.run("begin commits")
                self.run(f"send commits {topic} 0 3 {RECORDS}")
                for _ in range(2):
                    self._transaction("aborts", topic, "abort")
                self.run("commit commits")
            self._transaction("commits", topic, "commit")

    def _transaction(self, name: str, topic: str, end: str) -> None:
        self.run(f"begin {name}")
        self.run(f"send {name} {topic} 0 3 {RECORDS}")
        self.run(f"{end} {name}")

    def start(self, broker: int = 2) -> None:
        """Starts a broker and waits until it has all in sync."""
        self.cluster.start(broker)
        self.cluster.await_port(broker)
        time.sleep(4)

    def lead(self, broker: int) -> None:
        """Makes a broker the leader of both topics."""
        for topic in TOPICS:
            self.run(f"reassign {topic} 0 {broker},{3 - broker}")
        for topic in TOPICS:
            _until(lambda topic=topic: self.run(f"leader {topic} 0") == str(broker), f"broker {broker} leads {topic}")

    def read(self, topic: str, fetch: int) -> set[int]:
        """The offsets that a read_committed consumer gets with fetches of so many bytes."""
        return {*map(int, self.run(f"read {topic} 0 read_committed max.partition.fetch.bytes={fetch}").split())}

    def restart_without(self, *suffixes: str) -> None:
        """Restarts broker 2 while broker 1 leads, these files of both topics moved away."""
        self.lead(1)
        self.cluster.stop_one(2)
        for topic in TOPICS:
            for file in (self.cluster.log_dir(2) / f"{topic}-0").iterdir():
                if file.suffix in suffixes:
                    file.unlink()
        self.start()
        self.lead(2)


def _said(folder: Path) -> dict[str, dict[str, Any]]:
    """The findings of the rule by topic; there are none about another broker than 2."""
    found = [f.to_dict() for f in audit_folder(folder, int(time.time() * 1000)) if f.rule == RULE]
    assert {f["broker_id"] for f in found} <= {2}
    by_topic = {f["topic"]: f for f in found}
    assert len(by_topic) == len(found)
    return by_topic


@pytest.mark.parametrize("version", ["3.9.1", "4.3.1"])
def test_what_a_consumer_gets_is_what_the_audit_says(version: str, tmp_path: Path) -> None:
    with (
        Cluster(version, tmp_path / "cluster", 2, voters=1, heap="256m", **AT_ONCE) as cluster,
        Driver(cluster) as run,
    ):
        story = Story(cluster, run)
        time.sleep(3)
        story.begin()
        cluster.stop_one(2)
        story.write()
        story.start()
        committed = {topic: story.read(topic, FETCHES[0]) for topic in TOPICS}
        assert all(story.read(topic, FETCHES[-1]) == committed[topic] for topic in TOPICS)
        story.lead(2)
        got = {topic: [story.read(topic, fetch) for fetch in FETCHES] for topic in TOPICS}
        for topic in TOPICS:
            run(f"commit-offset group-{topic} {topic} 0 0")
        cluster.copy(tmp_path / "exposed")

        said = _said(tmp_path / "exposed")
        assert {*said} == {*TOPICS}
        for topic, finding in said.items():
            extra = [offsets - committed[topic] for offsets in got[topic]]
            exposed = {o for _, first, last, _, _ in finding["evidence"]["exposed"] for o in range(first, last + 1)}
            assert finding["severity"] == "critical"
            assert extra[0] == exposed, topic
            assert len(exposed) == finding["evidence"]["records"] > 0
            assert extra[2] <= extra[1] <= extra[0]
        _lag(tmp_path / "exposed", committed, got)
        _remedy(story, said["whole"], committed, tmp_path)


def _lag(folder: Path, committed: dict[str, set[int]], got: dict[str, list[set[int]]]) -> None:
    """What a group has left, with and without these records."""
    rows = {row["topic"]: row for row in opened(folder).table("lag").to_pylist()}
    least, most = rows["whole"]["committed_records"], rows["whole"]["committed_most_records"]
    assert (least, most) == (len(committed["whole"]), len(got["whole"][0]))
    assert RULE in rows["whole"]["undecided"]


def _remedy(story: Story, finding: dict[str, Any], committed: dict[str, set[int]], folder: Path) -> None:
    """The files that the finding names, moved away with the broker stopped, are rebuilt right; the .txnindex alone
    is not."""
    *_, act = finding["advice"]["steps"]
    name = f"whole-0/{0:020}"
    assert re.search(f"stop broker 2, move {name}.index and {name}.txnindex away and keep them, start it", act["do"])
    story.restart_without(".index", ".txnindex")
    for topic in TOPICS:
        assert story.read(topic, FETCHES[0]) == committed[topic]
    story.cluster.copy(folder / "rebuilt")
    assert _said(folder / "rebuilt") == {}
    story.restart_without(".txnindex")
    shutil.rmtree(folder / "rebuilt")
    for topic in TOPICS:
        everything = {*map(int, story.run(f"read {topic} 0 read_uncommitted").split())}
        assert story.read(topic, FETCHES[-1]) == everything > committed[topic]
