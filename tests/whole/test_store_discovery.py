"""What is below a PATH in a store: listed and looked into by many requests at once, and by no more than needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from auditor.connectors.logdir import inventory
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import remote_files, storage
from auditor.connectors.stores.storage import StorageLocation
from tests import failing_store
from tests.failing_store import FailingStore

BROKERS, PARTITIONS = 70, 2
METADATA = b"version: 0\ntopic_id: v5HzUXNOSymlK4fSJuwxjA\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of many brokers below two folders, in each disk two partitions, and a broker with many partitions."""
    found = tmp_path_factory.mktemp("bucket")
    for broker in range(BROKERS):
        disk = found / "copies" / "cluster" / f"broker-{broker}" / "disk"
        for number in range(PARTITIONS):
            _partition(disk / f"t-{number}", broker)
        (disk / "meta.properties").write_text(f"version=1\nbroker.id={broker}\ncluster.id=v5HzUXNOSymlK4fSJuwxjQ\n")
    for number in range(storage._SIDE_BY_SIDE + 1):
        _partition(found / "alone" / f"t-{number}", number)
    return found


def _partition(path: Path, size: int) -> None:
    path.mkdir(parents=True)
    (path / "partition.metadata").write_bytes(METADATA)
    (path / "00000000000000000000.log").write_bytes(b"\0" * size)


@pytest.fixture
def s3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    with failing_store.failing(bucket=folder) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        remote_files.filesystem.cache_clear()
        yield server
    remote_files.filesystem.cache_clear()


def test_brokers_are_listed_at_once_and_their_small_files_read_at_once(s3: FailingStore, folder: Path) -> None:
    s3.manner.latency_s = 0.3
    found = discover(["s3://bucket/copies"])
    here = discover([str(folder / "copies")])
    assert [log_dir.replicas for log_dir in found.log_dirs] == [log_dir.replicas for log_dir in here.log_dirs]
    assert len(found.log_dirs) == BROKERS
    assert not found.errors
    assert 30 < s3.most <= 64  # pyarrow's client has 25 connections unless it is told otherwise
    listed = {request.key for request in s3.log if request.method == "LIST"}  # a busy machine asks some twice
    assert listed == {"copies/", "copies/cluster/", *(f"copies/cluster/broker-{n}/" for n in range(BROKERS))}


def test_the_partitions_of_a_broker_are_one_list(s3: FailingStore) -> None:
    """A thousand objects a request, where a request for each folder would give a few."""
    found = discover(["s3://bucket/alone"])
    assert len(found.log_dirs[0].replicas) == storage._SIDE_BY_SIDE + 1
    listed = {request.key for request in s3.log if request.method == "LIST"}
    assert listed == {"alone/", "alone/t-0/"}  # of one partition, to see what folders these are


class OfGoogle:
    """As pyarrow's driver of Google's storage: a folder without an object of its own is in no list of one level."""

    type_name = "gcs"

    def get_file_info(self, of: fs.FileSelector) -> list[fs.FileInfo]:
        found = fs.LocalFileSystem().get_file_info(of)
        return found if of.recursive else [info for info in found if info.is_file]


def test_folders_that_no_list_names_are_looked_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "filesystem", lambda uri: (OfGoogle(), uri))
    found = storage.listing(StorageLocation("gs://bucket", str(folder / "copies")))
    assert found == storage.listing(StorageLocation("", str(folder / "copies")))
    assert len(found.files) == BROKERS * (2 * PARTITIONS + 1)


def test_several_paths_are_looked_into_at_once(s3: FailingStore, folder: Path) -> None:
    """Each by four requests, one after the other."""
    s3.manner.latency_s = 0.3
    names = [f"copies/cluster/broker-{number}" for number in range(20)]
    found = storage.place("s3://bucket/copies")
    s3.most = 0
    sorted_in = inventory.drafts([f"s3://bucket/{name}" for name in names])
    assert s3.most > 10
    assert len(sorted_in.found) == len(names)
    assert all(place.uri == found.uri for place in sorted_in.found)
