"""auditor.connectors.logdir.inventory: what is found below any mix of PATHs, and that every byte is accounted for."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.logdir.files import Inventory, LogDir, Replica
from auditor.connectors.logdir.inventory import discover
from tests import corpora

UID = "0123456789abcdef0123456789abcdef"


def bytes_below(path: Path) -> int:
    return sum(os.path.getsize(Path(at) / name) for at, _, files in os.walk(path) for name in files)


def make_log_dir(path: Path, *partitions: str, meta: str | None = "version=0\nbroker.id=4\n") -> Path:
    for partition in partitions:
        (path / partition).mkdir(parents=True)
        (path / partition / "00000000000000000000.log").write_bytes(b"")
    path.mkdir(parents=True, exist_ok=True)
    if meta is not None:
        (path / "meta.properties").write_text(meta)
    return path


def replica_of(log_dir: LogDir, topic: str, partition: int) -> Replica:
    return next(item for item in log_dir.replicas if (item.topic, item.partition) == (topic, partition))


def reason(found: Inventory, file: str) -> str:
    return next(item.reason for item in found.skipped if item.file == file)


@pytest.mark.parametrize("name", corpora.names())
def test_every_byte_of_a_corpus_is_accounted_for(name: str) -> None:
    root = corpora.unpack(name)
    found = discover([str(root)])
    assert found.bytes_found == bytes_below(root)
    assert found.errors == ()
    assert found == pickle.loads(pickle.dumps(found))
    assert [item.name for item in found.log_dirs] == sorted(path.name for path in root.glob("broker-*"))
    for log_dir in found.log_dirs:
        folders = {path.name for path in (root / log_dir.name).iterdir() if path.is_dir()}
        assert {replica.folder for replica in (*log_dir.replicas, *log_dir.aside)} == folders
        assert log_dir.broker_id == int(log_dir.name.removeprefix("broker-"))
        assert log_dir.broker_id_source == "meta.properties"
        assert log_dir.clean_shutdown == (root / log_dir.name / ".kafka_cleanshutdown").exists()


def test_a_corpus_in_detail() -> None:
    (log_dir,) = discover([str(corpora.unpack("healthy-41"))]).log_dirs
    assert log_dir.cluster_id == "Q0xVU1RFUi0tLS0tLS0tLQ"
    assert log_dir.join_key == "cluster Q0xVU1RFUi0tLS0tLS0tLQ"
    assert log_dir.configs["log.index.size.max.bytes"] == "65536"
    assert "listeners" not in log_dir.configs
    orders = replica_of(log_dir, "shop.orders", 0)
    assert [segment.base_offset for segment in orders.segments] == [0, 464]
    assert [snapshot.offset for snapshot in orders.snapshots] == [464, 488, 760]
    assert orders.segments[0].txnindex is not None
    assert orders.topic_id is not None
    metadata = replica_of(log_dir, "__cluster_metadata", 0)
    assert {item.kind for item in metadata.others} == {"checkpoint", "quorum-state"}
    assert log_dir.checkpoints["high-watermark"]["shop.orders", 0] == 760
    assert [item.kind for item in log_dir.aside] == ["deleted"]


def test_files_aside_are_skipped_with_a_reason() -> None:
    legacy = discover([str(corpora.unpack("legacy-0102"))])
    (log_dir,) = legacy.log_dirs
    assert [segment.base_offset for segment in replica_of(log_dir, "old.kv0", 0).segments] == [0, 127]
    assert reason(legacy, "old.kv0-0/00000000000000000000.log.deleted") == "deleted, to be removed by the broker"
    assert log_dir.cluster_id is None
    gone = [item for item in discover([str(corpora.unpack("healthy-28"))]).skipped if "web.gone" in item.file]
    assert len(gone) >= 4
    assert {item.reason for item in gone} == {"directory of a deleted partition"}


def test_a_copy_elsewhere_is_named_the_same(tmp_path: Path) -> None:
    first = corpora.copy("trimmed-28", tmp_path / "one")
    second = corpora.copy("trimmed-28", tmp_path / "deep" / "er" / "two")
    names = [[(d.name, [c.folder for c in d.replicas]) for d in discover([str(p)]).log_dirs] for p in (first, second)]
    assert names[0] == names[1]
    assert [d.name for d in discover([str(first), str(second)]).log_dirs] == ["deep/er/two/broker-1", "one/broker-1"]


def test_partition_folders_and_files_belong_to_their_log_directory() -> None:
    """As a shell's glob gives them: one log directory, with who it is and its checkpoints."""
    broker = corpora.unpack("healthy-41") / "broker-1"
    paths = [broker / "shop.orders-0", broker / "__transaction_state-1" / "00000000000000000000.log"]
    (log_dir,) = discover([str(path) for path in paths]).log_dirs
    assert (log_dir.name, log_dir.broker_id, log_dir.clean_shutdown) == ("broker-1", 1, True)
    assert log_dir.join_key.startswith("cluster ")
    assert "high-watermark" in log_dir.checkpoints
    assert [replica.folder for replica in log_dir.replicas] == ["__transaction_state-1", "shop.orders-0"]
    assert replica_of(log_dir, "__transaction_state", 1).snapshots == ()


def test_one_file_of_any_name(tmp_path: Path) -> None:
    source = corpora.unpack("healthy-41") / "broker-1" / "shop.orders-0" / "00000000000000000464.log"
    shutil.copy(source, tmp_path / "00000000000000000464.log")
    shutil.copy(source, tmp_path / "broken.log")
    for name, base in (("00000000000000000464.log", 464), ("broken.log", -1)):
        (log_dir,) = discover([str(tmp_path / name)]).log_dirs
        (replica,) = log_dir.replicas
        assert (replica.topic, replica.partition) == (None, None)
        assert [(s.name, s.base_offset, s.size) for s in replica.segments] == [(name, base, source.stat().st_size)]


def test_paths_inside_others_count_once() -> None:
    root = corpora.unpack("hanging-36")
    found = discover([str(root), str(root / "broker-1"), f"file://{root}", str(root / "broker-1" / "bank.audit-0")])
    assert found.bytes_found == bytes_below(root)
    assert len(found.log_dirs) == 1


def test_broker_id_by_folder_or_none_is_said(tmp_path: Path) -> None:
    for name in ("kafka-7", "plain"):
        make_log_dir(tmp_path / name, "t-0", meta=None)
    found = discover([str(tmp_path)])
    assert [(d.name, d.broker_id, d.broker_id_source) for d in found.log_dirs] == [
        ("kafka-7", 7, "folder name"),
        ("plain", None, "none"),
    ]
    assert [note.split(":")[0] for note in found.notes] == ["kafka-7", "plain"]
    assert len({d.join_key for d in found.log_dirs}) == 1


def test_without_a_cluster_id_only_one_path_joins(tmp_path: Path) -> None:
    paths = [str(make_log_dir(tmp_path / name, "t-0")) for name in ("a", "b")]
    assert len({d.join_key for d in discover([str(tmp_path)]).log_dirs}) == 1
    assert len({d.join_key for d in discover(paths).log_dirs}) == 2


def test_a_partition_in_two_directories_of_a_broker_is_noted(tmp_path: Path) -> None:
    for name in ("d1", "d2"):
        make_log_dir(tmp_path / name, "t-0", f"{name}-0", meta="version=1\nnode.id=4\ncluster.id=c\n")
    assert discover([str(tmp_path)]).notes == ("t-0 is live in d1 and d2 of broker 4",)


def test_odd_files_are_skipped_with_a_reason(tmp_path: Path) -> None:
    log_dir = make_log_dir(
        tmp_path / "b-1", "t-0", f"gone-1.{UID}-delete", f"moved-1.{UID}-future", f"odd-1.{UID}-stray"
    )
    (log_dir / "remote-log-index-cache").mkdir()
    odd = {
        ".lock": "lock file",
        "replication-offset-checkpoint.tmp": "not a Kafka file or known text dump",
        "remote-log-index-cache/5_AAAAAAAAAAAAAAAAAAAAAA.index": "index cache of tiered storage",
        "t-0/notes.txt": "not a Kafka file",
        f"moved-1.{UID}-future/00000000000000000000.log": "directory of a replica being moved here",
        f"odd-1.{UID}-stray/00000000000000000000.log": "directory of a stray partition",
        "dump.txt": "text dump inside a log directory: move it to its own directory",
    }
    for name in odd:
        (log_dir / name).write_text("Dumping t-0/0.log\n" if name == "dump.txt" else "x")
    found = discover([str(tmp_path)])
    for name, expected in odd.items():
        assert reason(found, name) == expected
    assert [replica.folder for replica in found.log_dirs[0].replicas] == ["t-0"]
    assert found.bytes_found == bytes_below(tmp_path)


def test_settings_go_to_their_broker_without_secrets(tmp_path: Path) -> None:
    make_log_dir(tmp_path / "x" / "data", "t-0")
    make_log_dir(tmp_path / "y" / "data", "t-0")
    (tmp_path / "x" / "server.properties").write_text(
        "broker.id=4\nlog.retention.ms=5\nssl.keystore.password=hunter2\nlistener.name.x.sasl.jaas.config=hunter2\n"
    )
    found = discover([str(tmp_path)])
    assert [d.configs for d in found.log_dirs] == [{"broker.id": "4", "log.retention.ms": "5"}, {}]
    assert "hunter2" not in repr(found)


def test_text_folders_are_log_directories() -> None:
    root = corpora.ROOT / "text-dumps" / "texts"
    found = discover([str(root)])
    assert [item.name for item in found.log_dirs] == sorted(path.name for path in root.iterdir())
    assert found.bytes_found == bytes_below(root)
    for log_dir in found.log_dirs:
        names = {path.name for path in (root / log_dir.name).iterdir()}
        assert {text.name for text in log_dir.texts if text.kind == "dump"} == {
            n for n in names if n.startswith("dump-")
        }
        assert "console-transaction-log.txt" in {text.name for text in log_dir.texts if text.kind == "console"}
    assert len({item.join_key for item in found.log_dirs}) == 3


def test_a_crashed_compaction_is_seen_as_the_broker_would(tmp_path: Path) -> None:
    root = corpora.copy("healthy-41", tmp_path / "in") / "broker-1" / "shop.orders-0"
    shutil.copy(root / "00000000000000000000.log", root / "00000000000000000000.log.swap")
    (log_dir,) = discover([str(tmp_path)]).log_dirs
    names = [segment.name.rpartition("/")[2] for segment in replica_of(log_dir, "shop.orders", 0).segments]
    assert names == ["00000000000000000000.log.swap", "00000000000000000464.log"]


@pytest.mark.parametrize("make", [lambda p: p / "absent", lambda p: p, lambda p: p / "empty"])
def test_nothing_to_audit_is_the_users_mistake(tmp_path: Path, make: object) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(AuditInputError, match=r"; (check|give)"):
        discover([str(make(tmp_path))])  # type: ignore[operator]
    with pytest.raises(AuditInputError):
        discover([])
