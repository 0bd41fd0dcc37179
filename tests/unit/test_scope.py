"""What a scope means: which replicas are read, and with which segment a log begins."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.base.user_input import EVERYTHING, Scope, Since, check, since_of, was_read
from auditor.connectors.logdir.files import DataFile, Replica, SegmentFile
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables import input_splits as logdir_scope
from tests import corpora

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        (EVERYTHING, {"a-0", "a-1", "b.c-10", "__consumer_offsets-3"}),
        (Scope(partitions=("a-1",)), {"a-1", "__consumer_offsets-3"}),
        (Scope(partitions=("1",)), {"a-1", "__consumer_offsets-3"}),
        (Scope(partitions=("1*",)), {"__consumer_offsets-3"}),  # a number is no glob
        (Scope(partitions=("b.*",)), {"b.c-10", "__consumer_offsets-3"}),
        (Scope(topics=("a",), partitions=("0", "b.c-10")), {"a-0", "__consumer_offsets-3"}),
        (Scope(brokers=(2,)), {"__consumer_offsets-3"}),  # all of them are on broker 1
        (Scope(brokers=(1, 2), topics=("b*",)), {"b.c-10", "__consumer_offsets-3"}),
    ],
)
def test_internal_topics_are_always_read_and_others_where_every_kind_fits(scope: Scope, wanted: set[str]) -> None:
    names = ("a-0", "a-1", "b.c-10", "__consumer_offsets-3")
    logs = [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names)]
    assert {f"{topic}-{number}" for topic, number in logs if scope.wants(topic, number, 1)} == wanted


@pytest.mark.parametrize(
    ("scope", "hint"),
    [
        (Scope(topics=("c",)), "--topic c matches no topic"),
        (Scope(partitions=("a-7",)), "--only-partition a-7 matches no partition"),
        (Scope(partitions=("a-0", "7")), "--only-partition 7 matches no partition"),
        (Scope(brokers=(4,)), r"--only-broker 4 matches no broker of the input; give one of \[1, 2\]"),
        (Scope(partitions=("a-0",), brokers=(2,)), "together match no replica"),
    ],
)
def test_what_matches_nothing_is_said(scope: Scope, hint: str) -> None:
    seen = [("a", 0, 1), ("b", 1, 2), ("__consumer_offsets", 3, 1), (None, None, None)]
    with pytest.raises(AuditInputError, match=hint):
        check(scope, seen)
    check(EVERYTHING, seen)
    check(Scope(partitions=("__consumer_offsets-3",)), seen)


def test_since_is_an_offset_or_a_time() -> None:
    assert since_of("4711") == Since("4711", 4711, None)
    assert since_of("1970-01-01T01:00:00Z") == Since("1970-01-01T01:00:00Z", None, HOUR)
    for wrong in ("", "-1", "now", "1.5", "yesterday"):
        with pytest.raises(AuditInputError, match="invalid --since"):
            since_of(wrong)


def test_a_scope_in_words() -> None:
    assert was_read((), (), (), None) == ""
    assert was_read(["a*"], (), [1, 2], None) == "only topics that match a* and replicas of broker 1, 2 were scanned"
    assert was_read((), (), (), "offset 7") == "logs were scanned from offset 7 on"


def replica(snapshots: tuple[int, ...], times: tuple[int | None, ...] = (None,) * 5) -> Replica:
    """Five segments of a thousand offsets each, and the largest time (ms) of each."""
    segments = tuple(
        SegmentFile(f"a-0/{n}.log", n * 1000, 10, timeindex=None if time is None else DataFile(str(time), 12, "", 0))
        for n, time in enumerate(times)
    )
    files = tuple(DataFile(f"a-0/{at}.snapshot", 5, "snapshot", at) for at in snapshots)
    return Replica("b", "a", 0, "a-0", segments=segments, snapshots=files)


def newest(segment: SegmentFile) -> int | None:
    return None if segment.timeindex is None else int(segment.timeindex.name)


@pytest.mark.parametrize(
    ("offset", "snapshots", "begins"),
    [
        (2500, (1000, 2000, 3000), 2),
        (2500, (1000, 3000), 1),  # the newest snapshot at or below it
        (2500, (2400, 3000), 2),  # none at the beginning of a segment at or below: the segment itself
        (2500, (), 2),
        (2000, (2000,), 2),
        (1999, (2000,), 1),
        (0, (0, 1000), 0),
        (10**9, (1000, 4000, 4321), 4),
    ],
)
def test_an_offset_begins_with_a_segment_whose_state_is_known(
    offset: int, snapshots: tuple[int, ...], begins: int
) -> None:
    assert logdir_scope.first_read(replica(snapshots), Since("", offset, None), newest) == begins


@pytest.mark.parametrize(
    ("time", "times", "begins"),
    [
        (30, (10, 20, 30, 40, 50), 2),
        (31, (10, 20, 30, 40, 50), 3),
        (15, (10, 99, 30, 40, 50), 1),  # one record from the future keeps its segment
        (35, (10, 99, 30, 40, 50), 1),
        (31, (10, None, 30, 40, 50), 1),  # without a time index it may hold anything
        (60, (10, 20, 30, 40, 50), 4),  # the newest segment is always read
        (60, (10, 20, 30, 40, None), 4),
    ],
)
def test_a_time_begins_with_the_first_segment_that_reaches_it(
    time: int, times: tuple[int | None, ...], begins: int
) -> None:
    found = replica((1000, 2000, 3000, 4000), times)
    assert logdir_scope.first_read(found, Since("", None, time), newest) == begins


def test_the_last_entry_of_a_time_index_is_the_time_of_its_segment(tmp_path: Path) -> None:
    folder = tmp_path / "broker-1" / "a-0"
    folder.mkdir(parents=True)
    (tmp_path / "broker-1" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for n, entries in enumerate([[(5, 1), (10, 9)], [(20, 3)], [(30, 1), (0, 0)], []]):
        index = b"".join(struct.pack(">qi", *entry) for entry in entries)
        (folder / f"{n * 1000:020}.log").write_bytes(b"x" * (n + 1))
        (folder / f"{n * 1000:020}.timeindex").write_bytes(index)
        (folder / f"{n * 1000:020}.snapshot").write_bytes(b"y")
    whole = discover([str(tmp_path)])
    for time, begins in ((10, 0), (11, 1), (20, 1), (21, 2), (10**9, 2)):  # zeros say nothing: it is read
        read = logdir_scope.narrowed(whole, Scope(since=Since("", None, time)))
        (found,) = (c for d in read.log_dirs for c in d.replicas)
        assert found.segments[0].base_offset == begins * 1000
        assert [s.offset for s in found.snapshots] == [n * 1000 for n in range(begins, 4)]
        assert (found.first_offset, found.local_start) == (0, 0)
        left = logdir_scope.left_out(whole, read)
        assert left.bytes == whole.log_dirs[0].size - read.log_dirs[0].size
        assert (left.copies, left.begun, left.without_state) == (0, int(begins > 0), 0)


def test_what_is_left_out_is_counted() -> None:
    whole = discover([str(corpora.unpack("replicas-41"))])
    one = next(c for d in whole.log_dirs for c in d.replicas if not (c.topic or "").startswith("__"))
    read = logdir_scope.narrowed(whole, Scope(partitions=(one.folder,), brokers=(1,)))
    others = [c for d in whole.log_dirs for c in d.replicas if not (c.topic or "").startswith("__")]
    left = logdir_scope.left_out(whole, read)
    assert left.copies == len(others) - 1
    assert left.bytes == sum(c.size for c in others) - sum(c.size for d in read.log_dirs for c in d.replicas) + sum(
        c.size for d in whole.log_dirs for c in d.replicas if (c.topic or "").startswith("__")
    )


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "--only-partition", "nowhere-1", "--plan"],
        ["audit", "--only-broker", "77", "--plan"],
        ["audit", "--since", "soon", "--plan"],
    ],
)
def test_a_scope_that_matches_nothing_is_one_line_and_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([words[0], str(corpora.unpack("healthy-41")), *words[1:]]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "give" in said or "expected" in said
