"""Remote segments as Aiven's RemoteStorageManager keeps them: what it wrote on a 4.3.1 broker, and bad bytes."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.connectors import kafka_names
from auditor.connectors.codec.remote_log_metadata import Manifest, decode_manifest
from auditor.connectors.logdir import tiered
from auditor.connectors.logdir.files import Replica
from auditor.connectors.logdir.tiered import Chunked, ObjectRange
from auditor.connectors.stores.storage import StorageLocation, open_file, read_file, read_head
from auditor.pipeline.judge import accounting
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import logs_of, opened
from tests.tiering import packed

NAME = "aiven-43"
LOGS = ("shop.packed-0", "shop.mixed-0")  # those that can be read
SEALED = "shop.sealed-0"
MAGIC = bytes.fromhex("28b52ffd")  # of a zstd frame


def replicas(audit: Audit) -> dict[str, Replica]:
    (log_dir,) = audit.inventory.log_dirs
    return {replica.folder: replica for replica in log_dir.replicas}


def test_every_file_is_as_its_broker_had_it() -> None:
    """What retention took away is still in the local folder, renamed: the same segments before they were tiered."""
    compared = 0
    for log in LOGS:
        replica, local = replicas(opened(corpora.unpack(NAME)))[log], corpora.unpack(NAME) / "broker-1" / log
        for file in replica.files():
            if file.place is not None:
                was = local / f"{file.offset:020}.{file.kind}.deleted"
                assert read_file(file.place, file.name) == was.read_bytes()
                assert file.size == was.stat().st_size
                compared += 1
    assert compared == sum(len(list((corpora.unpack(NAME) / "broker-1" / log).glob("*.deleted"))) for log in LOGS)


def untiered(path: Path, target: Path) -> Path:
    """The log directory before retention; of the log that is encrypted too."""
    shutil.copytree(path / "broker-1", target / "broker-1")
    for file in (target / "broker-1").rglob("*.deleted"):
        file.rename(file.with_suffix(""))
    return target


def test_logs_are_as_they_were_before_they_were_tiered(tmp_path: Path) -> None:
    tiered_logs, was = opened(corpora.unpack(NAME)), opened(untiered(corpora.unpack(NAME), tmp_path))
    before = {log.name: log.leader for log in logs_of(was)}
    for log in logs_of(tiered_logs):
        if log.name in LOGS:
            assert accounting(log.leader) == accounting(before[log.name])
            assert len(log.leader.snapshots) == len(before[log.name].snapshots)
            assert len(log.leader.aborted) == len(before[log.name].aborted) > 0


def test_what_is_encrypted_is_named_and_not_missing() -> None:
    audit = opened(corpora.unpack(NAME))
    (log,) = (log for log in logs_of(audit) if log.name == SEALED)
    offsets = accounting(log.leader)
    assert (offsets["remote"], offsets["missing"]) == (log.leader.local_start, 0)
    assert log.leader.local_start > 0
    (error,) = (e for _, e in audit.unread())
    assert error.reason == "encrypted"
    assert "key-1" in error.detail
    assert audit.incomplete()
    sizes = [f.stat().st_size for f in corpora.unpack(NAME).glob("remote/*/shop.sealed-*/0/*")]
    assert error.length == audit.inventory.unread_bytes == sum(sizes)
    assert not [f for f in audit.findings if f.topic == "shop.sealed"]


def folder(path: Path, log: str) -> Path:
    (found,) = path.glob(f"remote/*/{log[:-2]}-*/0")
    return found


def no_manifest(first: Path) -> None:
    """The metadata says that the copy was finished: then a manifest is missing."""
    first.unlink()


def broken_json(first: Path) -> None:
    first.write_bytes(first.read_bytes()[:40])


def deep_json(first: Path) -> None:
    first.write_bytes(b"[" * 900_000)


def large_json(first: Path) -> None:
    with first.open("ab") as f:
        f.write(b" " * (1 << 20))


def other_version(first: Path) -> None:
    first.write_text(first.read_text().replace('"version":"1"', '"version":"2"'))


def shorter_log(first: Path) -> None:
    log = first.with_suffix(".log")
    log.write_bytes(log.read_bytes()[:-1])


def shorter_indexes(first: Path) -> None:
    indexes = first.with_suffix(".indexes")
    indexes.write_bytes(indexes.read_bytes()[:-1])


@pytest.mark.parametrize(
    "alter", [no_manifest, broken_json, deep_json, large_json, other_version, shorter_log, shorter_indexes]
)
def test_a_segment_that_cannot_be_put_together_is_a_row(tmp_path: Path, alter: Callable[[Path], None]) -> None:
    path = corpora.copy(NAME, tmp_path)
    first = min(folder(path, "shop.packed-0").glob("*.rsm-manifest"))
    alter(first)
    audit = opened(path)
    (log,) = (log for log in logs_of(audit) if log.name == "shop.packed-0")
    assert {e.reason for _, e in audit.unread()} == {"limit" if alter is large_json else "bad_manifest", "encrypted"}
    assert audit.incomplete()
    offsets = accounting(log.leader)
    assert (offsets["remote"], offsets["missing"]) == (79, 0)  # where the second segment begins
    assert not [f for f in audit.findings if f.severity != "info" and f.topic == "shop.packed"]


def test_a_copy_that_was_not_finished_is_no_error(tmp_path: Path) -> None:
    """Of a segment nobody recorded there are objects without the manifest, which is stored last."""
    path = corpora.copy(NAME, tmp_path)
    first = min(folder(path, "shop.packed-0").glob("*.rsm-manifest"))
    for kind in ("log", "indexes"):
        shutil.copy(first.with_suffix(f".{kind}"), first.parent / f"{240:020}-{'A' * 22}.{kind}")
    audit = opened(path)
    assert {e.reason for _, e in audit.unread()} == {"encrypted"}
    left_out = {s.file.rpartition("/")[2]: s.reason for s in audit.inventory.skipped}
    assert left_out[f"{240:020}-{'A' * 22}.log"] == tiered.NOT_FINISHED


def test_a_chunk_that_is_damaged_ends_its_segment(tmp_path: Path) -> None:
    path = corpora.copy(NAME, tmp_path)
    log = min(folder(path, "shop.packed-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[data.index(MAGIC, 4)] ^= 0xFF
    log.write_bytes(data)
    audit = opened(path)
    (found,) = (one for one in logs_of(audit) if one.name == "shop.packed-0")
    wrong = [e for e in found.leader.errors if e.file.endswith(log.name)]
    assert [e.reason for e in wrong] == ["unreadable"]
    assert "chunk 1 at byte" in wrong[0].detail
    assert found.leader.sums["bytes_error"] > 0


def test_the_tables_have_what_is_in_chunks() -> None:
    rows = opened(corpora.unpack(NAME)).query(
        "SELECT topic, min(base_offset) AS a, sum(record_count) AS n FROM batches WHERE topic LIKE 'shop.%' "
        "GROUP BY topic ORDER BY topic"
    )
    assert [(row["topic"], row["a"]) for row in rows.to_pylist()] == [
        ("shop.mixed", 0), ("shop.packed", 0), ("shop.sealed", 79),
    ]  # fmt: skip


# the manifest


def manifest(size: int = 10, chunk: int = 4, **other: Any) -> bytes:
    index = {"type": "variable", "originalChunkSize": chunk, "originalFileSize": size}
    index |= {"transformedChunks": packed([7] * -(-size // chunk))}
    index |= other.pop("chunkIndex", {})
    return json.dumps({"version": "1", "chunkIndex": index, "segmentIndexes": {}, "compression": True} | other).encode()


@given(st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=40))
def test_sizes_of_chunks_in_as_few_bytes_as_they_need(sizes: list[int]) -> None:
    says = decode_manifest(manifest(len(sizes), 1, chunkIndex={"transformedChunks": packed(sizes)}))
    assert isinstance(says, Manifest)
    assert says.chunks.tolist() == sizes


def test_the_sizes_that_the_plugin_wrote() -> None:
    """From the second segment of shop.packed: 1 293 bytes in three chunks, of which the zstd frames begin there."""
    path = sorted(folder(corpora.unpack(NAME), "shop.packed-0").glob("*.rsm-manifest"))[1]
    says = decode_manifest(path.read_bytes())
    assert isinstance(says, Manifest)
    stored, at = path.with_suffix(".log").read_bytes(), 0
    for size in says.chunks.tolist():
        assert stored[at : at + 4] == MAGIC
        at += size
    assert at == len(stored)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"{}", "no sound version"),
        (b"[]", "no sound version"),
        (b"\xff", "not JSON"),
        (manifest(chunkIndex={"originalChunkSize": 0}), "originalChunkSize of 0 bytes"),
        (manifest(chunkIndex={"originalFileSize": 1 << 31}), "originalFileSize of 2147483648 bytes"),
        (manifest(chunkIndex={"originalFileSize": True}), "no sound originalFileSize"),
        (manifest(chunkIndex={"originalFileSize": 13}), "3 chunks where 13 bytes in chunks of 4 make 4"),
        (manifest(chunkIndex={"transformedChunks": "?"}), "not base64"),
        (manifest(chunkIndex={"transformedChunks": "AAAA"}), "sizes of chunks"),
        (manifest(chunkIndex={"type": "other"}), "unknown type"),
        (manifest(chunkIndex={"originalFileSize": (1 << 31) - 1, "originalChunkSize": 1}), "limit"),
        (manifest(segmentIndexes={"offset": {"position": -1, "size": 1}}), "position of -1"),
        (
            manifest(segmentIndexes={"offset": {"position": 0, "size": 9}, "timestamp": {"position": 8, "size": 1}}),
            "overlap",
        ),
        (manifest(compression=False), "not compressed"),
    ],
)
def test_a_manifest_that_contradicts_itself(data: bytes, detail: str) -> None:
    error = decode_manifest(data, "m")
    assert isinstance(error, DecodeError)
    assert error.reason == "bad_manifest"
    assert detail in error.detail


def test_a_list_of_sizes_cannot_explode() -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(1 << 24)))
    index = {"transformedChunks": base64.b64encode(bomb).decode()}
    error = decode_manifest(manifest(chunkIndex=index), limits=Limits(max_index_entries=1000))
    assert isinstance(error, DecodeError)
    assert "after decompression" in error.detail


# chunks


def stored(tmp_path: Path, plain: bytes, chunk: int, says: bytes | None = None) -> StorageLocation:
    """A segment in chunks; its manifest may lie."""
    chunks = [bytes(cramjam.zstd.compress(plain[at : at + chunk])) for at in range(0, len(plain), chunk)]
    index = {"transformedChunks": packed([len(c) for c in chunks])}
    (tmp_path / "a.log").write_bytes(b"".join(chunks))
    (tmp_path / "a.rsm-manifest").write_bytes(says or manifest(len(plain), chunk, chunkIndex=index))
    return StorageLocation("", str(tmp_path), Chunked("a.rsm-manifest"))


@pytest.mark.parametrize(("start", "count"), [(0, 100), (0, 10_000), (33, 1), (95, 10), (999, 5), (1000, 5), (2000, 5)])
def test_any_stretch_of_a_segment_in_chunks(tmp_path: Path, start: int, count: int) -> None:
    plain = bytes(k % 251 for k in range(1000))
    assert read_head(stored(tmp_path, plain, 96), "a.log", count, start=start) == plain[start : start + count]


def test_chunks_do_not_become_more_than_the_manifest_says(tmp_path: Path) -> None:
    """A frame of 64 MiB of zeros where 4 bytes are to come, and one of 4 bytes where 2 GiB are to come."""
    big = bytes(cramjam.zstd.compress(bytes(64 << 20)))
    for size, chunk, body in ((4, 4, big), ((1 << 31) - 1, (1 << 31) - 1, bytes(cramjam.zstd.compress(b"zero")))):
        place = stored(tmp_path, b"", 1, manifest(size, chunk, chunkIndex={"transformedChunks": packed([len(body)])}))
        (tmp_path / "a.log").write_bytes(body)
        error = read_head(place, "a.log", 100)
        assert isinstance(error, DecodeError)
        assert error.reason == "unreadable"
        assert "chunk 0 at byte 0" in error.detail


def test_what_is_cut_out_ends_where_it_ends(tmp_path: Path) -> None:
    (tmp_path / "a.indexes").write_bytes(bytes(range(100)))
    place = StorageLocation("", str(tmp_path), ObjectRange("a.indexes", 10, 20))
    assert read_file(place, "a.indexes#index", limit=DEFAULT_LIMITS.max_index_bytes) == bytes(range(10, 30))
    beyond = StorageLocation("", str(tmp_path), ObjectRange("a.indexes", 95, 20))
    assert read_file(beyond, "a.indexes#index") == bytes(range(95, 100))
    gone = open_file(StorageLocation("", str(tmp_path), ObjectRange("b.indexes", 0, 1)), "b.indexes#index")
    assert isinstance(gone, DecodeError)
    assert gone.reason == "vanished"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/r/plain-0-BZBnhlqNQf2hJyOAEutuPQ", ("plain", 0, 1)),
        ("/r/plain-BZBnhlqNQf2hJyOAEutuPQ/12", ("plain", 12, 2)),
        ("some prefix-plain-BZBnhlqNQf2hJyOAEutuPQ/0", ("some prefix-plain", 0, 2)),
        ("/r/plain-BZBnhlqNQf2hJyOAEutuPQ/012", None),
        ("/r/plain-BZBnhlqNQf2hJyOAEutuPQ/9999999999", None),
        ("/r/plain-BZBnhlqNQf2hJyOAEutuPQ", None),
        ("/r/plain/0", None),
    ],
)
def test_paths_of_remote_folders(path: str, expected: tuple[str, int, int] | None) -> None:
    found = kafka_names.remote_folder(path)
    assert (found and (found.topic, found.partition, found.depth)) == expected
