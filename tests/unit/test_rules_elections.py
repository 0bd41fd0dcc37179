"""Elections and what they lost: a real cluster's metadata and replicas, and replicas given another leader epoch."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from kafka.record.util import calc_crc32c

from auditor.connectors.codec.cluster_metadata import Change, MetadataRecord, PartitionState
from auditor.pipeline.cluster_settings import note_election
from auditor.rules.resolution.resolve import resolve
from auditor.rules.seen.cluster_view import RECOVERING, Election, Elections
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import corpus_logs, judge, logs_below

RULES = ("unclean-election", "replica-divergence", "replica-missing-range")
TOPIC, LOG, METADATA = "trio.log", "trio.log-0", "__cluster_metadata-0"
SEGMENT, FORK = f"{250:020}.log", 276


def test_the_elections_of_a_real_cluster() -> None:
    """Kafka's own tool printed the records at metadata offsets 572 and 613; 161 completes a reassignment."""
    known = corpus_logs("unclean-43")[0].cluster.elections
    unclean = {at: [e for e in some if not e.clean] for at, some in known.items()}
    assert {at for at, some in unclean.items() if some} == {("un", 0)}
    (one,) = unclean["un", 0]
    assert (one.offset, one.last_leader, one.leader, one.leader_epoch) == (613, 1, 2, 3)
    assert (one.isr_before, one.isr, one.recovering) == ((1,), (2,), True)
    assert any(e.offset == 161 and e.reassigned for e in known["mv", 0])


@pytest.fixture
def trio(tmp_path: Path) -> Path:
    """Three brokers with one partition: since the fork 1 and 3 have a later leader epoch, 2 stayed with the old one,
    under which it has other records (:func:`others`)."""
    path = forked(tmp_path)
    others(path / "broker-2" / LOG / SEGMENT)
    return path


def others(path: Path) -> None:
    """Gives the data batches from the fork on sequence numbers that no other replica has."""
    data, at = bytearray(path.read_bytes()), 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        (sequence,) = struct.unpack_from(">i", data, at + 53)
        if base >= FORK and sequence >= 0:
            struct.pack_into(">i", data, at + 53, sequence + 1_000_000)
            struct.pack_into(">I", data, at + 17, calc_crc32c(bytes(data[at + 21 : at + 12 + length])))
        at += 12 + length
    path.write_bytes(data)


def forked(tmp_path: Path) -> Path:
    """The same with the same batches on all three: their producers sent them again. No high-watermark checkpoint
    reaches the fork. The leader epoch is outside the checksum."""
    for broker in (1, 2, 3):
        source, target = corpora.unpack("replicas-41") / f"broker-{broker}", tmp_path / f"broker-{broker}"
        shutil.copytree(source / LOG, target / LOG)
        for path in (p for p in source.iterdir() if p.is_file()):
            shutil.copy(path, target)
        (target / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {FORK}\n")
        if broker != 2:
            path = target / LOG / SEGMENT
            data, at = bytearray(path.read_bytes()), 0
            while at < len(data):
                base, length = struct.unpack_from(">qi", data, at)
                if base >= FORK:
                    struct.pack_into(">i", data, at + 12, 7)
                at += 12 + length
            path.write_bytes(data)
            epochs = target / LOG / "leader-epoch-checkpoint"
            kept = epochs.read_text().splitlines()[2:]
            epochs.write_text("\n".join(["0", str(len(kept) + 1), *kept, f"7 {FORK}"]) + "\n")
    return tmp_path


def elections(*isr_before: int) -> Elections:
    """The election of broker 1 for epoch 7, after broker 2 had led, with these replicas in sync."""
    one = Election("", 1, 7, 2, (1, 3), isr_before, (), (), False, False, 100, 1_000)
    return {(TOPIC, 0): [one]}


def reported(path: Path, known: Elections) -> list[Finding]:
    logs = logs_below(path)
    for log in logs:
        log.cluster.elections = known
    return [f for f in judge(logs, *RULES) if f.severity != "info"]


def test_two_leader_epochs_at_one_offset_are_two_truths_whatever_the_checkpoints_say(trio: Path) -> None:
    (f,) = reported(trio, {})
    assert (f.kind, f.severity, f.broker_id, f.offset) == ("replica-divergence", "critical", 2, FORK)
    assert f.evidence["same_as_leader_copy"] == [3]


@pytest.mark.parametrize("isr", [(), (2,), (1, 2, 3)], ids=["not known", "unclean", "clean"])
def test_batches_that_were_sent_again_are_not_lost_whoever_was_elected(tmp_path: Path, isr: tuple[int, ...]) -> None:
    logs = logs_below(forked(tmp_path))
    for log in logs:
        log.cluster.elections = elections(*isr) if isr else {}
    found = {f.kind: f for f in judge(logs, *RULES)}
    assert found["replica-divergence"].severity == "info"
    assert found["replica-divergence"].advice is not None
    assert found["replica-divergence"].advice.verdict == "wait"
    assert ("unclean-election" in found) == (isr == (2,))
    for f in found.values():
        assert f.severity in ("info", "warning")
        assert "Re-send" not in f.remedy


def test_after_a_clean_election_it_is_the_tail_of_a_crashed_leader(trio: Path) -> None:
    (f,) = reported(trio, elections(1, 2, 3))
    assert (f.kind, f.severity) == ("replica-divergence", "warning")


def test_after_an_unclean_election_both_are_said(trio: Path) -> None:
    found = reported(trio, elections(2))
    assert sorted((f.kind, f.severity) for f in found) == [
        ("replica-divergence", "critical"), ("unclean-election", "critical")]  # fmt: skip


def test_a_replica_that_ends_below_the_new_epoch_shows_that_nothing_was_lost(trio: Path) -> None:
    path = trio / "broker-2" / LOG / SEGMENT
    data, at = path.read_bytes(), 0
    while struct.unpack_from(">q", data, at)[0] < FORK:
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    path.write_bytes(data[:at])
    (trio / "broker-2" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    found = [f for f in reported(trio, elections(2)) if f.kind == "unclean-election"]
    assert [f.severity for f in found] == ["warning"]


@pytest.mark.parametrize("knew", [False, True], ids=["stopped before", "ran on"])
def test_a_leader_that_was_in_sync_as_long_as_the_last_one_ran_lacks_nothing_committed(
    tmp_path: Path, knew: bool
) -> None:
    """In replicas-39-unclean broker 1 was killed while 2 was in sync; three seconds later the controller, not broker 1,
    took 2 out of the in-sync sets (metadata offsets 130 to 132, printed by Kafka's tool). Had broker 1 lived to read
    that, what it appended alone could be committed."""
    root = corpora.copy("replicas-39-unclean", tmp_path)
    if knew:
        shutil.rmtree(root / "broker-1" / METADATA)
        shutil.copytree(root / "broker-2" / METADATA, root / "broker-1" / METADATA)
    found = judge(logs_below(root), *RULES)
    assert {(f.partition, f.evidence["left_sync_at_metadata_offset"], f.severity)
            for f in found if f.kind == "unclean-election"} == {
        (0, 130, "critical" if knew else "info"), (1, 131, "warning" if knew else "info"),
        (2, 132, "warning" if knew else "info")}  # fmt: skip
    assert [(f.partition, f.severity) for f in found if f.kind == "replica-divergence"] == [(0, "critical")]


@pytest.mark.parametrize(("replicas", "found"), [(1, []), (3, ["warning"])])
def test_what_a_metadata_checkpoint_has_was_not_seen_happening(tmp_path: Path, replicas: int, found: list[str]) -> None:
    """A partition of one replica stays recovering for ever after an election by its last known leader (KIP-966)."""
    logs = logs_below(forked(tmp_path))
    for log in logs:
        state = Election("", 1, 7, 1, (1,), (), (), (), True, False, None, None)
        log.cluster.elections = {("trio.log", 0): [state]}
        log.cluster.replicas["trio.log", 0] = replicas
    judged = [f for f in judge(logs, *RULES) if f.kind == "unclean-election"]
    assert [f.severity for f in judged] == found
    assert all("checkpoint" in f.message for f in judged)


STATE = PartitionState("t", 0, "id", (1, 2, 3), (1,), 1, 5, 9)


@pytest.mark.parametrize(
    ("before", "changed", "clean"),
    [
        (STATE, {"leader": 2, "isr": (2,)}, False),
        (STATE, {"leader": 2, "isr": (2,), "recovery_state": RECOVERING}, False),
        (STATE._replace(isr=(1, 2)), {"leader": 2, "isr": (2,)}, True),
        (STATE._replace(elr=(2,)), {"leader": 2, "isr": (2,)}, True),
        (STATE._replace(isr=(1, 2), adding=(3,)), {"leader": 3, "isr": (2, 3), "adding": ()}, True),
        (STATE._replace(leader=-1), {"leader": 1}, True),
        # recovering since before: this election is by itself a clean one
        (STATE._replace(elr=(2,), recovery_state=RECOVERING), {"leader": 2, "isr": (2,)}, True),
    ],
)
def test_what_makes_an_election_unclean(before: PartitionState, changed: dict[str, object], clean: bool) -> None:
    state = before._replace(leader_epoch=before.leader_epoch + 1, **changed)  # type: ignore[arg-type]
    found: Elections = {}
    record = MetadataRecord("PartitionChangeRecord", 0, {})
    note_election(Change(7, 1_000, record, topic="t", partition=state, before=before), found, {})
    ((one,),) = found.values()
    assert one.clean is clean


def test_the_only_replica_can_only_have_lost_its_own_tail() -> None:
    assert Election("", 1, 2, 1, (1,), (), (), (1,), True, False, 129, 0).only_its_own_tail
    assert not Election("", 2, 3, 1, (2,), (1,), (), (), True, False, 613, 0).only_its_own_tail


def test_what_a_divergence_explains_goes_into_its_evidence() -> None:
    """The new leader had never seen the producer whose batches it lost: its next one begins in the middle."""
    lost = Finding("replica-divergence", "critical", 1, "t", 0, 20, 39, message="", evidence={"log_dir": "broker-1"})
    first = Finding(
        "unknown-producer-first-sequence", "warning", 2, "t", 0, 30, 39, message="", evidence={"log_dir": "broker-2"}
    )
    later = Finding(
        "unknown-producer-first-sequence", "warning", 2, "t", 0, 60, 69, message="", evidence={"log_dir": "broker-2"}
    )
    assert [(f.kind, f.offset) for f in resolve([first, later, lost])] == [
        ("replica-divergence", 20), ("unknown-producer-first-sequence", 60)]  # fmt: skip
