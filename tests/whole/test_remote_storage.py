"""Tiered storage without its remote files: what the metadata says, on a real 4.3.1 broker's directory and altered."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.errors import DEFAULT_LIMITS
from auditor.base.remote_segments import RemoteSegment, RemoteSegmentState, holes
from auditor.connectors.logdir import tiered
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline.judge import accounting
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import corpus_logs, judge, logs_below
from tests.forge import Forged

NAME, HOUR = "tiered-43", 3_600_000
RULES = ("remote-log-gap", "remote-segment-leftover", "remote-copy-behind", "committed-offset-out-of-range")
# Offsets in __remote_log_metadata of the records that say that the copy is finished, as Kafka's tool printed them
FINISHED = {("plain", 0): 2, ("plain", 270): 15}
_PRINTED = re.compile(
    r"topicIdPartition=\S+:(\S+)-(\d+), id=([\w-]{22})\}(?:, startOffset=(\d+), endOffset=(\d+))?.* state=(\w+)"
)


def printed() -> dict[str, list[tuple[int, int, str]]]:
    """Segments of each partition that were not deleted for good: first and last offset, state, by Kafka's own tool."""
    found: dict[str, dict[str, tuple[int, int, str]]] = {}
    for text in sorted((corpora.FORMATS / NAME / "oracle").glob("*__remote_log_metadata-*")):
        for topic, number, segment, start, end, state in _PRINTED.findall(text.read_text(encoding="utf-8")):
            known = found.setdefault(f"{topic}-{number}", {})
            known[segment] = (int(start), int(end), state) if start else (*known[segment][:2], state)
    return {at: sorted(s for s in known.values() if s[2] != "DELETE_SEGMENT_FINISHED") for at, known in found.items()}


def test_the_segments_are_those_that_kafkas_tool_prints() -> None:
    (logs,) = tiered.read_all(tiered.tasks(discover([str(corpora.unpack(NAME))]), DEFAULT_LIMITS)).values()
    ours = {
        f"{p.topic}-{p.partition}": [
            (s.start_offset, s.end_offset, RemoteSegmentState(s.state).name) for s in p.segments.values()
        ]
        for p in logs.partitions.values()
    }
    assert {at: sorted(segments) for at, segments in ours.items()} == printed()
    assert all(p.whole and p.clean for p in logs.partitions.values())


# By log-start-offset-checkpoint and the names of the local segments
@pytest.mark.parametrize(("topic", "start", "local"), [("plain", 0, 1080), ("tx", 0, 1152), ("cut", 720, 1080)])
def test_the_accounting_says_which_offsets_are_remote(topic: str, start: int, local: int) -> None:
    logs = logs_below(corpora.unpack(NAME) / "broker-1")
    log = next(log for log in logs if (log.topic, log.partition) == (topic, 0))
    replica, offsets = log.leader, accounting(log.leader)
    assert (replica.own_start, replica.log_start, replica.local_start) == (start, local, local)
    assert offsets["remote"] == local - start
    assert offsets["total"] == replica.log_end - start == sum(n for kind, n in offsets.items() if kind != "total")


def test_a_healthy_tiered_cluster_has_no_finding() -> None:
    assert judge(corpus_logs(NAME), *RULES) == []
    assert judge(logs_below(corpora.unpack(NAME) / "broker-1"), *RULES) == []


def local_part(tmp_path: Path) -> Path:
    """The corpus without its remote files."""
    path = corpora.copy(NAME, tmp_path)
    shutil.rmtree(path / "remote")
    return path


def told(path: Path, *, later_ms: int = 0) -> list[Finding]:
    """What the rules say, with the clocks so much later."""
    logs = logs_below(path)
    for cluster in {id(log.cluster): log.cluster for log in logs}.values():
        cluster.as_of += later_ms
        cluster.newest_time += later_ms
    return judge(logs, *RULES)


def change(path: Path, offset: int, alter: Callable[[bytes], bytes], partition: int = 1) -> None:
    """The value of one record of ``__remote_log_metadata`` altered."""
    forged = Forged(path / "broker-1", f"__remote_log_metadata-{partition}")
    batch = forged.find(offset)
    records = batch.records()
    at = offset - batch["base_offset"]
    records[at]["value"] = alter(records[at]["value"])
    batch.refill(*records)
    forged.save()


def state(number: int) -> Callable[[bytes], bytes]:
    """Another state of a RemoteLogSegmentMetadataUpdateRecord: the byte before its (no) tagged fields."""
    return lambda value: value[:-2] + bytes([number]) + value[-1:]


def test_a_segment_that_was_never_copied_is_a_gap_and_later_a_leftover(tmp_path: Path) -> None:
    path = local_part(tmp_path)
    change(path, FINISHED["plain", 270], state(RemoteSegmentState.COPY_SEGMENT_STARTED))
    (gap,) = told(path)
    assert (gap.kind, gap.severity, gap.topic) == ("remote-log-gap", "error", "plain")
    assert (gap.offset, gap.last_offset) == (270, 359)
    (there,) = gap.evidence["segments_there"]
    assert (there["offsets"], there["state"]) == ([270, 359], "COPY_SEGMENT_STARTED")
    later = [f for f in told(path, later_ms=2 * HOUR) if f.kind == "remote-segment-leftover"]
    assert [(f.severity, f.offset, f.last_offset) for f in later] == [("info", 270, 359)]


def test_the_gap_below_the_local_segments_of_a_running_broker_may_be_in_flight(tmp_path: Path) -> None:
    path = local_part(tmp_path)
    last = max(offset for offset, start in plain_records(path).items() if start == 990)
    change(path, last, state(RemoteSegmentState.COPY_SEGMENT_STARTED))
    (gap,) = told(path)
    assert (gap.severity, gap.offset, gap.last_offset) == ("error", 990, 1079)
    (path / "broker-1" / ".kafka_cleanshutdown").unlink()
    (gap,) = told(path)
    assert (gap.severity, gap.evidence["confidence"]) == ("info", "undecidable")


def plain_records(path: Path) -> dict[int, int]:
    """Offsets of the update records of plain-0, each with the first offset of its segment, by what the tool printed."""
    text = (corpora.FORMATS / NAME / "oracle" / "broker-1.__remote_log_metadata-1.log.txt").read_text(encoding="utf-8")
    starts, found = {}, {}
    for line in text.splitlines():
        match, offset = _PRINTED.search(line), re.match(r"\| offset: (\d+)", line)
        if match and offset and match[1] == "plain":
            if match[4]:
                starts[match[3]] = int(match[4])
            else:
                found[int(offset[1])] = starts[match[3]]
    return found


def test_segments_deleted_from_the_start_are_no_gap(tmp_path: Path) -> None:
    """The log start that a broker noted may be older than the deletion."""
    path = local_part(tmp_path)
    change(path, FINISHED["plain", 0], state(RemoteSegmentState.DELETE_SEGMENT_STARTED))
    assert told(path) == []
    log = next(log for log in logs_below(path) if log.topic == "plain")
    assert log.leader.own_start == 90


def test_a_segment_of_other_leader_epochs_is_not_of_the_log(tmp_path: Path) -> None:
    path = local_part(tmp_path)
    (path / "broker-1" / "plain-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 1000\n")
    (gap,) = [f for f in told(path) if f.kind == "remote-log-gap"]
    assert (gap.severity, gap.offset, gap.last_offset) == ("error", 990, 1079)
    kinds = {f.evidence["kind"] for f in told(path, later_ms=2 * HOUR) if f.kind == "remote-segment-leftover"}
    assert kinds == {"segments of other leader epochs"}


def test_without_all_of_the_metadata_nothing_is_called_a_gap(tmp_path: Path) -> None:
    path = local_part(tmp_path)
    change(path, FINISHED["plain", 270], state(RemoteSegmentState.COPY_SEGMENT_STARTED))
    folder = path / "broker-1" / "__remote_log_metadata-1"
    forged = Forged(path / "broker-1", folder.name)
    forged.drop(forged.find(0))
    forged.save()
    for file in folder.glob(f"{0:020}.*"):
        file.rename(folder / file.name.replace(f"{0:020}", f"{1:020}"))
    assert [f for f in told(path) if f.kind == "remote-log-gap"] == []


def test_closed_segments_that_wait_for_an_hour(tmp_path: Path) -> None:
    """tx-0 has markers behind its segment from 1152 on: a broker's clock tells. tx-1 waits for a transaction."""
    path = local_part(tmp_path)
    text = (corpora.FORMATS / NAME / "oracle" / "broker-1.__remote_log_metadata-0.log.txt").read_text(encoding="utf-8")
    last = max(int(n) for n in re.findall(r"\| offset: (\d+) .*:tx-0, .*state=COPY_SEGMENT_FINISHED", text))
    change(path, last, state(RemoteSegmentState.COPY_SEGMENT_STARTED), partition=0)
    assert told(path) == []
    found = [f for f in told(path, later_ms=2 * HOUR) if f.kind == "remote-copy-behind"]
    assert [(f.severity, f.topic, f.partition, f.offset, f.last_offset) for f in found] == [
        ("warning", "tx", 0, 1152, 1247)
    ]


@pytest.mark.parametrize(
    ("settings", "held"),
    [
        ({"local.retention.bytes": "1"}, True),
        ({"local.retention.bytes": "-1", "local.retention.ms": "60000"}, True),
        ({"local.retention.bytes": "-2", "local.retention.ms": "-2", "retention.ms": "60000"}, True),
        ({}, False),  # 20000 bytes, which the local segments that may go do not exceed
        ({"local.retention.bytes": "-1", "local.retention.ms": "86400000"}, False),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "1"}, False),
    ],
)
def test_a_copy_that_never_finishes_holds_back_local_retention(
    tmp_path: Path, settings: dict[str, str], held: bool
) -> None:
    """The first local segment of plain-0 (1080) was begun to be copied, which its broker's record of that dates."""
    path = local_part(tmp_path)
    change(path, plain_records(path).popitem()[0], state(RemoteSegmentState.COPY_SEGMENT_STARTED))
    files = sorted((path / "broker-1" / "plain-0").glob("*.log"))
    starts = [int(file.stem) for file in files]
    first = max(start for start in plain_records(path).values())
    for later_ms in (0, 2 * HOUR):
        logs = logs_below(path)
        cluster = logs[0].cluster
        cluster.topic_configs["plain"] |= settings
        cluster.as_of += later_ms
        cluster.newest_time += later_ms
        found = [f for f in judge(logs, "remote-copy-behind") if f.severity != "info"]
        expected = sum(f.stat().st_size for f, start in zip(files[:-1], starts, strict=False) if start >= first)
        assert [(f.topic, f.offset, f.evidence["held_bytes"]) for f in found] == (
            [("plain", first, expected)] if held and later_ms else []
        )
        assert not found or f"and {expected:,} bytes remain on broker 1 beyond local retention" in found[0].message


def segment(start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        "s", start, end, epochs or ((0, start),), 1, RemoteSegmentState.COPY_SEGMENT_FINISHED, 1, 0, start
    )


def test_segments_may_overlap_after_a_change_of_leader() -> None:
    """The next leader begins with its own segment that holds the next offset. Source: RemoteLogManager."""
    assert list(holes([segment(0, 99), segment(50, 149, (0, 50), (1, 100))], 0, 150)) == []
    assert list(holes([segment(10, 19), segment(30, 39)], 0, 50)) == [(0, 10), (20, 30), (40, 50)]
    assert list(holes([segment(0, 99)], 100, 120)) == [(100, 120)]


@pytest.mark.parametrize(
    ("one", "epochs", "expected"),
    [
        (segment(0, 99, (0, 0)), [(0, 0)], True),
        (segment(0, 99, (0, 0), (1, 60)), [(0, 0), (1, 60)], True),
        (segment(0, 99, (0, 0), (1, 60)), [(0, 0), (1, 70)], False),  # cut and written anew
        (segment(0, 99, (0, 0)), [(0, 0), (2, 80)], False),  # goes on where another leader wrote
        (segment(0, 99, (0, 0), (1, 60)), [(0, 0), (2, 60)], False),
        (segment(0, 99, (0, 0), (1, 60)), [(1, 60), (2, 100)], True),  # the log start moved on
        (segment(0, 99, (0, 0), (1, 60)), [(1, 80)], True),  # within the first epoch that is left
        (segment(0, 99, (3, 0)), [], True),
    ],
)
def test_leader_epochs_say_whether_a_segment_is_of_the_log(
    one: RemoteSegment, epochs: list[tuple[int, int]], expected: bool
) -> None:
    """As Kafka's RemoteLogManager.isRemoteSegmentWithinLeaderEpochs decides."""
    assert one.is_of(epochs) is expected
