"""Tiered storage with its remote files: one log, as if it had never been tiered."""

from __future__ import annotations

import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.base.advice import Verdict
from auditor.base.errors import AuditInputError
from auditor.connectors import kafka_names
from auditor.connectors.logdir import tiered
from auditor.connectors.stores.storage import StorageLocation, open_file, read_file
from auditor.pipeline import plan
from auditor.pipeline.judge import accounting
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading import chunks, replica_reader
from auditor.replay.reading.chunks import FACTS_AT_REST, read_packed
from auditor.replay.reading.replica_reader import read_replica, read_sharing
from auditor.replay.task import ReplicaTask, SharingTask
from tests import corpora, tiering
from tests.facts import here, logs_of, opened
from tests.forge import TRANSACTIONAL, Forged

NAME = "tiered-43"
REMOTE = Path("remote") / "kafka-tiered-storage"
ENDS = {"plain-0": (90, 1080), "tx-0": (96, 1152), "cut-0": (90, 1080)}  # records of a segment; the first local one


def folder(path: Path, log: str) -> Path:
    """Where the remote segments of a partition lie."""
    (found,) = (path / REMOTE).glob(f"{log}-*")
    return found


def untiered(path: Path, target: Path) -> Path:
    """The same log directory with every remote segment where it was before it was tiered: names and nothing else."""
    shutil.copytree(path / "broker-1", target / "broker-1")
    for log, (size, local) in ENDS.items():
        for file in folder(path, log).iterdir():
            start, kind = int(file.name[:20]), file.suffix[1:]
            offset = start + size if kind == "snapshot" else start
            if kind != "leader_epoch_checkpoint" and start < local:
                shutil.copy(file, target / "broker-1" / log / f"{offset:020}.{kind}")
    return target


def tiered_again(untiered: Path, target: Path, layout: str) -> Path:
    """A log directory like :func:`untiered`'s with the same segments in remote storage, in a layout."""
    shutil.copytree(untiered / "broker-1", target / "broker-1")
    for log, (_size, local) in ENDS.items():
        was = folder(corpora.unpack(NAME), log)
        names_of = (kafka_names.remote_segment(file.name) for file in was.glob("*.log"))
        ids = {found[0]: found[1] for found in names_of if found is not None and found[0] < local}
        moved = tiering.Log(target / "broker-1" / log, target / "remote", was.name[-22:])
        tiering.tier(moved, ids, layout)
    return target


def said(path: Path, **options: object) -> list[tuple[object, ...]]:
    """The findings, but for the names of files and what a tiered log has no part in."""
    audit = opened(path, as_of=corpora.manifest(NAME)["copied_at"], **options)
    return sorted(
        (
            f.kind,
            f.severity,
            f.topic,
            f.partition,
            f.offset or 0,
            f.producer_id or 0,
            f.position or 0,
            re.sub(r"\S+/\S+[.#](?=\w+)", "", f.message),
        )
        for f in audit.findings
    )


def nothing(path: Path) -> None:
    """Leaves it as it is."""


def flipped(path: Path) -> None:
    """A byte of a record in a remote segment: its checksum does not fit."""
    (file,) = folder(path, "plain-0").glob(f"{270:020}-*.log")
    data = bytearray(file.read_bytes())
    data[100] ^= 0xFF
    file.write_bytes(data)


def zeroed(path: Path) -> None:
    """The transaction index of a remote segment says nothing."""
    for file in folder(path, "tx-0").glob(f"{384:020}-*.txnindex"):
        file.write_bytes(b"")


def too_high(path: Path) -> None:
    """The first entry of a remote transaction index ends the search of every fetch from its segment."""
    (file,) = folder(path, "tx-0").glob(f"{480:020}-*.txnindex")
    data = bytearray(file.read_bytes())
    struct.pack_into(">q", data, 26, 480 + ENDS["tx-0"][0])
    file.write_bytes(data)


def other_snapshot(path: Path) -> None:
    """A remote snapshot from another segment's end."""
    (one,) = folder(path, "plain-0").glob(f"{90:020}-*.snapshot")
    (other,) = folder(path, "plain-0").glob(f"{180:020}-*.snapshot")
    shutil.copy(other, one)


@pytest.mark.parametrize(
    ("alter", "rules"),
    [
        (nothing, set()),
        (flipped, {"batch-crc-mismatch"}),
        (zeroed, {"aborted-transaction-not-indexed"}),
        (too_high, {"aborted-records-exposed"}),
        (other_snapshot, {"snapshot-replay-mismatch"}),
    ],
)
def test_a_tiered_log_has_the_findings_of_the_same_log_untiered(
    tmp_path: Path, alter: Callable[[Path], None], rules: set[str]
) -> None:
    path = corpora.copy(NAME, tmp_path / "tiered")
    alter(path)
    ours = said(path)
    assert ours == said(untiered(path, tmp_path / "untiered"))
    assert rules <= {str(row[0]) for row in ours}


def test_no_broker_is_stopped_for_a_wrong_index_in_remote_storage(tmp_path: Path) -> None:
    path = corpora.copy(NAME, tmp_path)
    too_high(path)
    (f,) = (f for f in opened(path).findings if f.rule == "aborted-records-exposed")
    assert f.severity == "critical"
    assert f.evidence["in_remote_storage"]
    assert (f.offset, f.last_offset) == (570, 574)  # of the second of its two aborted transactions
    assert f.advice is not None
    assert (f.advice.verdict, f.advice.steps) == (Verdict.INVESTIGATE_FIRST, ())


def as_it_was(_broker: Path) -> None:
    """Nothing is wrong: 20 of 40 transactions of tx-0 were aborted."""


def hanging(broker: Path) -> None:
    """A batch of a producer is one of a transaction that nobody knows, and that producer lacks it."""
    log = Forged(broker, "plain-0")
    batch = next(b for b in log.data() if b["base_offset"] >= 200 and b["producer_id"] >= 0)
    batch.set(producer_id=7777, epoch=0, sequence=0, attributes=batch["attributes"] | TRANSACTIONAL)
    log.save()


def lost(broker: Path) -> None:
    """A batch is not there."""
    log = Forged(broker, "plain-0")
    log.drop(next(b for b in log.data() if b["base_offset"] >= 300))
    log.save()


def abort_not_indexed(broker: Path) -> None:
    """An aborted transaction is not in its segment's transaction index, so that consumers are given its records."""
    log = Forged(broker, "tx-0")
    path = next(p for p in sorted(log.folder.glob("*.txnindex")) if p.stat().st_size)
    path.write_bytes(path.read_bytes()[34:])


def without_marker(broker: Path) -> None:
    """The marker of an aborted transaction is not there."""
    log = Forged(broker, "tx-0")
    log.drop(next(b for b in log.markers() if b["base_offset"] >= 200))
    log.save()


@pytest.mark.parametrize("layout", tiering.LAYOUTS)
@pytest.mark.parametrize(
    ("alter", "rules"),
    [
        (as_it_was, set()),
        (hanging, {"hanging-transaction", "sequence-gap", "snapshot-replay-mismatch"}),
        (lost, {"offset-hole"}),
        (abort_not_indexed, {"aborted-transaction-not-indexed"}),
        (without_marker, {"missing-marker"}),
    ],
)
def test_what_lies_in_the_remote_part_is_found_as_if_it_were_local(
    tmp_path: Path, alter: Callable[[Path], None], rules: set[str], layout: str
) -> None:
    path = untiered(corpora.unpack(NAME), tmp_path / "untiered")
    alter(path / "broker-1")
    again = tiered_again(path, tmp_path / "tiered", layout)
    assert not list((again / "broker-1" / "plain-0").glob(f"{0:020}.*"))
    ours = said(again)
    assert ours == said(path)
    assert {str(row[0]) for row in ours} >= rules
    assert offsets_of(again) == offsets_of(path)


def offsets_of(path: Path) -> dict[str, object]:
    """What each offset of the logs is."""
    return {log.name: accounting(log.leader) for log in logs_of(opened(path)) if log.name in ENDS}


def test_every_offset_and_byte_is_accounted_for() -> None:
    audit = opened(corpora.unpack(NAME))
    logs = {log.name: log.leader for log in logs_of(audit)}
    for log in ENDS:
        offsets = accounting(logs[log])
        assert offsets["remote"] == offsets["missing"] == offsets["not_reached"] == 0
    assert logs["plain-0"].producers["first_sequence"].tolist() == [0, 0]  # as the manifest says
    files = corpora.manifest(NAME)["files"]
    inventory = audit.inventory
    assert inventory.bytes_found == files["bytes"]
    counted = sum(len(d.files()) for d in inventory.log_dirs) + len(inventory.skipped) + len(inventory.settings)
    assert counted == files["count"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Without the metadata: which segments are whole is what their files say."""
    path = corpora.copy(NAME, tmp_path)
    for metadata in (path / "broker-1").glob("__remote_log_metadata-*"):
        shutil.rmtree(metadata)
    return path


def test_without_metadata_the_files_tell(bare: Path) -> None:
    logs = {log.name: log.leader for log in logs_of(opened(bare))}
    assert {log: logs[log].segment_bases[0] for log in ENDS} == {"plain-0": 0, "tx-0": 0, "cut-0": 720}
    assert all(accounting(logs[log])["missing"] == 0 for log in ENDS)


def test_segments_of_different_leaders_overlap(bare: Path) -> None:
    """One that begins in the middle of another and goes on to the end of the next."""
    place = folder(bare, "plain-0")
    (first,), (second,) = place.glob(f"{0:020}-*.log"), place.glob(f"{90:020}-*.log")
    log = Forged(bare / "broker-1", "plain-0")
    forged = Forged.__new__(Forged)
    forged.segments = {0: _batches(first)}
    middle = next(b["base_offset"] for b in forged.all() if b["base_offset"] >= 40)
    kept = b"".join(bytes(b.data) for b in forged.all() if b["base_offset"] >= middle)
    (place / f"{middle:020}-{'A' * 22}.log").write_bytes(kept + second.read_bytes())
    audit = opened(bare)
    (found,) = (one for one in logs_of(audit) if one.name == "plain-0")
    assert found.leader.segment_bases[:3] == [0, middle, 180]
    offsets = accounting(found.leader)
    assert (offsets["data"], offsets["total"]) == (log.end, log.end)
    assert found.leader.sums["bytes_skipped"] >= first.stat().st_size - len(kept) > 0
    reasons = {s.file.rpartition("/")[2]: s.reason for s in audit.inventory.skipped}
    assert reasons[second.name] == tiered.NOT_NEEDED
    assert not [f for f in audit.findings if f.topic == "plain"]


def _batches(path: Path) -> list[object]:
    from tests.forge import _batches as read

    return list(read(path.read_bytes()))


def test_behind_a_hole_the_log_begins_anew(tmp_path: Path) -> None:
    """Where a remote segment was not given, what lies below it is said to be remote, not to be missing."""
    path = corpora.copy(NAME, tmp_path)
    for file in folder(path, "plain-0").glob(f"{270:020}-*"):
        file.unlink()
    audit = opened(path)
    (log,) = (one for one in logs_of(audit) if one.name == "plain-0")
    assert log.leader.segment_bases[0] == 360
    offsets = accounting(log.leader)
    assert (offsets["remote"], offsets["missing"]) == (360, 0)
    cut_off = {s.file.rpartition("/")[2][:20] for s in audit.inventory.skipped if s.reason == tiered.CUT_OFF}
    assert cut_off == {f"{offset:020}" for offset in (0, 90, 180)}


def test_remote_segments_are_named_apart(tmp_path: Path) -> None:
    """--remote: a folder elsewhere; the names of log directories stay as they are without it."""
    path = corpora.copy(NAME, tmp_path / "copies")
    shutil.move(path / "remote", tmp_path / "elsewhere")
    options = AuditOptions((str(path),), Path(), remote=(str(tmp_path / "elsewhere"),))
    audit = Audit(options, here())
    (log_dir,) = audit.inventory.log_dirs
    assert log_dir.name == Audit(AuditOptions((str(path),), Path()), here()).inventory.log_dirs[0].name
    (log,) = (one for one in logs_of(audit) if one.name == "plain-0")
    assert log.leader.segments[0].startswith(folder_name(tmp_path / "elsewhere"))
    text = "SELECT min(base_offset) AS a, sum(record_count) AS n FROM batches WHERE topic = 'plain'"
    rows = audit.query(text)
    assert rows.to_pylist() == [{"a": 0, "n": 1260}]
    with pytest.raises(AuditInputError, match="no remote segments"):
        _ = Audit(AuditOptions((str(path),), Path(), remote=(str(path / "broker-1"),)), here()).inventory


def folder_name(path: Path) -> str:
    (found,) = (path / "kafka-tiered-storage").glob("plain-0-*")
    return found.name


def replicas(path: Path, *, flipped_too: bool = False) -> Audit:
    """A second broker with the same logs, one segment of which retention has left to it."""
    shutil.copytree(path / "broker-1", path / "broker-2")
    meta = path / "broker-2" / "meta.properties"
    text = meta.read_text()
    meta.write_text(re.sub("^node.id=1", "node.id=2", re.sub("(?m)^directory.id=.*\n", "", text), flags=re.M))
    for kind in ("log", "index", "timeindex", "txnindex"):
        (path / "broker-2" / "plain-0" / f"{1080:020}.{kind}").unlink(missing_ok=True)
    last = max(folder(path, "plain-0").glob("*.log"))
    assert int(last.name[:20]) == 1080  # it is in remote storage too
    if flipped_too:
        flipped(path)
    return opened(path)


@pytest.mark.parametrize("flipped_too", [False, True])
def test_what_replicas_share_is_read_once_and_gives_each_what_it_would_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flipped_too: bool
) -> None:
    audit = replicas(corpora.copy(NAME, tmp_path), flipped_too=flipped_too)
    of_plain = [t for t in audit.tasks if isinstance(t, ReplicaTask) and t.replica.topic == "plain"]
    assert [t.replica.local_start for t in of_plain] == [1080, 1170]
    (shared,) = [t for t in plan.sharing(of_plain) if isinstance(t, SharingTask)]
    alone = [read_replica(task) for task in shared.tasks]
    opens: Counter[str] = Counter()

    def counted(place: StorageLocation, name: str = "") -> object:
        opens[name] += 1
        return open_file(place, name)

    def counted_small(place: StorageLocation, name: str, *, limit: int) -> object:
        small[name] += 1
        return read_file(place, name, limit=limit)

    small: Counter[str] = Counter()
    monkeypatch.setattr(chunks, "open_file", counted)
    monkeypatch.setattr(replica_reader, "read_file", counted_small)
    together = read_sharing(shared.tasks)
    assert FACTS_AT_REST.pack(together) == FACTS_AT_REST.pack(alone)
    remote = {name: count for name, count in opens.items() if name.startswith("plain-0-")}
    assert len(remote) == 13
    beside = {name: count for name, count in small.items() if name.startswith("plain-0-")}
    assert len(beside) > 3 * 12  # indexes and snapshots
    assert set(remote.values()) == set(beside.values()) == {1}


def test_segments_that_replicas_share_are_one_task(tmp_path: Path) -> None:
    """Where replicas are read in parts: the rows of a segment are given to all that have it."""
    audit = replicas(corpora.copy(NAME, tmp_path))
    of_plain = [t for t in audit.tasks if isinstance(t, ReplicaTask) and t.replica.topic == "plain"]
    found = plan.segment_tasks(of_plain)
    rows = [row[:2] for task in found for row in read_packed(task)]
    assert sorted(set(rows)) == [(k, n) for k, t in enumerate(of_plain) for n in range(len(t.replica.segments))]
    assert len(found) == sum(len(t.replica.segments) for t in of_plain) - 12  # segments 0 to 990


def test_remote_segments_without_a_replica_are_skipped_with_a_reason(tmp_path: Path) -> None:
    path = corpora.copy(NAME, tmp_path)
    shutil.rmtree(path / "broker-1" / "plain-0")
    skipped = [s for s in opened(path).inventory.skipped if s.file.startswith("plain-0-")]
    assert {s.reason for s in skipped} == {tiered.NO_REPLICA}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000090-BZBnhlqNQf2hJyOAEutuPQ.log", (90, "BZBnhlqNQf2hJyOAEutuPQ")),
        ("90_BZBnhlqNQf2hJyOAEutuPQ.index", (90, "BZBnhlqNQf2hJyOAEutuPQ")),
        ("00000000000000000090.log", None),
    ],
)
def test_names_of_remote_files(name: str, expected: tuple[int, str] | None) -> None:
    assert kafka_names.remote_segment(name) == expected
