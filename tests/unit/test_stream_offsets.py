"""What is new in logs that grow: every batch once, whatever brokers do to the files between two looks."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError, DecodeError
from auditor.connectors.logdir.files import Replica
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables import input_splits, source_options
from auditor.connectors.tables.rows import How
from auditor.connectors.tables.sources import GrowingTable
from tests import growing, segments

Told = tuple[str, int, int]  # folder, first and last offset of a batch


def of_batches(replica: Replica) -> bool:
    return input_splits.in_segments("batches", replica.topic)


class Stream:
    """A query as Spark runs it: ends as JSON, and after a restart nothing but the last of them."""

    def __init__(self, path: Path, *, fails: bool = True) -> None:
        self.path, self.fails = path, fails
        self.start: dict[str, Any] = {}
        self.known: dict[str, Any] = {}
        self.read_bytes = 0

    def look(self) -> list[Told]:
        inventory = discover([str(self.path)])
        end = source_options.ends(inventory, self.known, of_batches, DEFAULT_LIMITS)
        self.known = end = json.loads(json.dumps(end))
        found = list(source_options.lots(inventory, self.start, end, of_batches, self.fails))
        self.read_bytes = sum((lot.piece.stop or lot.piece.file.size) - lot.piece.start for lot in found)
        self.start = end
        return [
            (row["file"].partition("/")[0], row["base_offset"], row["last_offset"])
            for lot in found
            for batch in source_options.rows(lot, "batches", How())
            for row in batch.to_pylist()
        ]

    def restart(self) -> None:
        self.known = dict(self.start)


def in_folder(told: Sequence[Told], folder: str) -> list[tuple[int, int]]:
    return sorted(pair for name, *pair in ((t[0], t[1], t[2]) for t in told) if name == folder)


def spans(first: int, count: int) -> list[list[int]]:
    """Those of :func:`tests.growing.batches`."""
    return [[3 * n, 3 * n + 2] for n in range(first, first + count)]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_appended_and_rolled_is_told_once(tmp_path: Path, restarts: bool) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    told = stream.look()
    assert in_folder(told, "t-0") == spans(0, 5)
    assert in_folder(told, "t-1") == spans(0, 2)
    assert len(in_folder(told, "__consumer_offsets-0")) == 5
    for change, expected in (
        (lambda: None, []),
        (lambda: growing.appended(broker), spans(5, 3)),
        (lambda: (broker / "t-0" / f"{24:020}.log").write_bytes(growing.batches(8, 2)), spans(8, 2)),
        (lambda: None, []),
        (lambda: append(broker / "t-0" / f"{24:020}.log", growing.batches(10, 2)), spans(10, 2)),
    ):
        if restarts:
            stream.restart()
        change()
        assert in_folder(stream.look(), "t-0") == expected


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as f:
        f.write(data)


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    append(broker / "t-0" / growing.NAME, growing.batches(5, 3))
    stream.look()
    assert stream.read_bytes == len(growing.batches(5, 3))


def test_a_batch_that_is_being_written_is_told_when_it_is_whole(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    more = growing.batches(5, 3)
    append(broker / "t-0" / growing.NAME, more[:-10])
    assert in_folder(stream.look(), "t-0") == spans(5, 2)
    append(broker / "t-0" / growing.NAME, more[-10:-4] + bytes(4))  # its size is there before its last bytes are
    assert in_folder(stream.look(), "t-0") == []
    with (broker / "t-0" / growing.NAME).open("r+b") as f:
        f.seek(-4, 2)
        f.write(more[-4:])
    assert in_folder(stream.look(), "t-0") == spans(7, 1)


def test_zeros_that_were_allocated_ahead_are_nothing(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    whole = (broker / "t-0" / growing.NAME).read_bytes()
    (broker / "t-0" / growing.NAME).write_bytes(whole + bytes(4096))
    assert in_folder(stream.look(), "t-0") == []
    (broker / "t-0" / growing.NAME).write_bytes(whole + growing.batches(5, 1) + bytes(4096))
    assert in_folder(stream.look(), "t-0") == spans(5, 1)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cleaned_segment_tells_nothing_again(tmp_path: Path, restarts: bool) -> None:
    """The cleaner leaves fewer batches under the old name; the segment behind goes on."""
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    if restarts:
        stream.restart()
    growing.cleaned(broker)
    assert in_folder(stream.look(), "t-0") == spans(5, 1)
    append(broker / "t-0" / growing.NAME, growing.batches(6, 1))
    assert in_folder(stream.look(), "t-0") == spans(6, 1)


def test_what_was_deleted_after_it_was_read_is_no_loss(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    growing.trimmed(broker)
    assert in_folder(stream.look(), "t-0") == spans(5, 2)
    growing.deleted(broker)
    assert stream.look() == []


def test_what_was_deleted_before_it_was_read_is_said(tmp_path: Path) -> None:
    broker = growing.broker(tmp_path / "broker-1")
    strict, lax = Stream(tmp_path / "broker-1"), Stream(tmp_path / "broker-1", fails=False)
    strict.look()
    lax.look()
    (broker / "t-0" / f"{21:020}.log").write_bytes(growing.batches(7, 2))  # two batches came and went
    (broker / "t-0" / growing.NAME).unlink()
    with pytest.raises(AuditInputError, match=r"t-0.*offsets 15 to 20 were deleted before they were read"):
        strict.look()
    assert in_folder(lax.look(), "t-0") == spans(7, 2)


def test_a_topic_made_anew_is_another_log(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    growing.made_anew(broker)
    assert in_folder(stream.look(), "t-1") == spans(0, 2)


def test_a_folder_that_is_not_listed_for_once_is_not_told_again(tmp_path: Path) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    stream.look()
    (broker / "t-1").rename(tmp_path / "aside")
    assert stream.look() == []
    (tmp_path / "aside").rename(broker / "t-1")
    assert stream.look() == []


def test_a_file_that_is_gone_when_it_is_read_is_an_error(tmp_path: Path) -> None:
    broker = growing.broker(tmp_path / "broker-1")
    inventory = discover([str(broker)])
    end = source_options.ends(inventory, {}, of_batches, DEFAULT_LIMITS)
    found = list(source_options.lots(inventory, {}, end, of_batches))
    (broker / "t-0" / growing.NAME).unlink()
    (gone,) = (lot for lot in found if lot.piece.file.name.startswith("t-0/"))
    with pytest.raises(AuditInputError, match="gone"):
        list(source_options.rows(gone, "batches", How()))


def test_records_of_internal_topics_are_told_once(tmp_path: Path) -> None:
    broker = growing.broker(tmp_path / "broker-1")

    def wanted(replica: Replica) -> bool:
        return input_splits.in_segments("offset_commits", replica.topic)

    told, start = [], dict[str, Any]()
    for change in (lambda: None, lambda: growing.appended(broker)):
        change()
        inventory = discover([str(broker)])
        end = source_options.ends(inventory, start, wanted, DEFAULT_LIMITS)
        assert all("__consumer_offsets-0" in key for key in end)
        for lot in source_options.lots(inventory, start, end, wanted):
            told += [row["offset"] for b in source_options.rows(lot, "offset_commits", How()) for row in b.to_pylist()]
        start = end
    assert told == list(range(8))


def test_large_batches_are_hopped_over(tmp_path: Path) -> None:
    """Whose bodies are not read to find the end."""
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    large = b"".join(segments.simple(15 + 3 * n, 3, value=b"x" * 20_000) for n in range(40))
    stream.look()
    append(broker / "t-0" / growing.NAME, large)
    assert in_folder(stream.look(), "t-0") == spans(5, 40)


def test_a_log_that_cannot_be_opened_after_a_restart_is_not_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark before 4.2 gives ``latestOffset`` no start: what it asks first is partitions of the checkpoint's offset, as
    tests/spark/test_streams.py sees it do."""
    broker = growing.broker(tmp_path / "broker-1")
    told = GrowingTable("batches", {"path": str(broker)})
    end = told.latestOffset()
    assert len(told.partitions({}, end)) > 0
    again, opened = GrowingTable("batches", {"path": str(broker)}), source_options.open_file
    assert again.partitions(end, end) == []
    refused = DecodeError("x", 0, -1, "unreadable", "Input/output error")
    monkeypatch.setattr(source_options, "open_file", lambda place, name: refused)
    assert again.latestOffset() == end
    monkeypatch.setattr(source_options, "open_file", opened)
    growing.appended(broker)
    then = again.latestOffset()
    shares = [pickle.loads(share.value) for share in again.partitions(end, then)]
    assert sorted((lot.first, lot.behind) for share in shares for lot in share) == [(5, 8), (15, 24)]


@pytest.mark.parametrize("known", [False, True])
def test_a_log_whose_topic_id_cannot_be_read_now_is_told_once(tmp_path: Path, known: bool) -> None:
    broker, stream = growing.broker(tmp_path / "broker-1"), Stream(tmp_path / "broker-1")
    says = broker / "t-0" / "partition.metadata"
    if known:
        assert in_folder(stream.look(), "t-0") == spans(0, 5)
    text = says.read_bytes()
    says.unlink()
    says.symlink_to(says)  # nobody can open that
    growing.appended(broker)
    assert in_folder(stream.look(), "t-0") == []
    says.unlink()
    says.write_bytes(text)
    assert in_folder(stream.look(), "t-0") == (spans(5, 3) if known else spans(0, 8))
    assert in_folder(stream.look(), "t-0") == []


def test_a_topic_id_that_cannot_be_read_is_no_lost_data(tmp_path: Path) -> None:
    broker = growing.broker(tmp_path / "broker-1")
    end = source_options.ends(discover([str(broker)]), {}, of_batches, DEFAULT_LIMITS)
    says = broker / "t-0" / "partition.metadata"
    says.unlink()
    says.symlink_to(says)
    with pytest.raises(AuditInputError, match=r"partition\.metadata.*start the query again"):
        list(source_options.lots(discover([str(broker)]), {}, end, of_batches, fail_on_loss=False))
