"""Logs of a running cluster that were copied one after another: what one has as open, another shows as ended.

Every combination of the beginnings of the logs of a sound cluster is one that somebody might copy, as far as they are
of moments that lie no farther apart than copying takes.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests import corpora
from tests.audited import above_info, audit_folder
from tests.changing_directory import live_copy
from tests.conftest import NIGHTLY
from tests.forge import Lab
from tests.whole.test_incidents_transactions import BUSY, BUSY_PRODUCER, BUSY_SINCE, BUSY_TIMEOUT, Bank

CLUSTERS = ("groups-43", "live-copy-39", "lively-33", "failover-36", "replicas-41")
SEEDS = range(40 if NIGHTLY else 3)
SPREAD_MS = 29_000  # copies of so few bytes are taken to be made within 30 s
ENDED = struct.Struct(">hqqqq")  # of a transaction index


def copied_until(partition: Path, moment: int) -> None:
    """The partition as it was at a moment (ms), but for what a cleaner has touched and for the broker's checkpoints."""
    log = batches_of(partition)
    cleaned = cleaned_until(partition)
    number = behind(log, moment)
    while number < len(log) and log[number][2] <= cleaned:
        number += 1
    if number >= len(log):
        return
    file, at, end, _ = log[number]
    file.write_bytes(file.read_bytes()[:at])
    for gone in [p for p in partition.glob("*.log") if int(p.stem) > int(file.stem) or (at == 0 and p == file)]:
        for other in partition.glob(f"{gone.stem}.*"):
            other.unlink()
    for newer in [p for p in partition.glob("*.snapshot") if int(p.stem) > end]:
        newer.unlink()
    for index in partition.glob("*.txnindex"):
        entries = [e for e in ENDED.iter_unpack(index.read_bytes()) if e[3] < end]
        index.write_bytes(b"".join(ENDED.pack(*e) for e in entries))
    write_epochs(partition, end)


def checkpointed_at(partition: Path, moment: int) -> None:
    """The broker's checkpoints are of a moment (ms), as far as they have this partition."""
    log = batches_of(partition)
    if (number := behind(log, moment)) < len(log):
        write_entries(partition, log[number][2])


def batches_of(partition: Path) -> list[tuple[Path, int, int, int]]:
    """Each batch of a partition: its file, and what :func:`batches` says."""
    return [(file, *batch) for file in sorted(partition.glob("*.log")) for batch in batches(file)]


def behind(log: list[tuple[Path, int, int, int]], moment: int) -> int:
    """The number of the first batch that is newer than a moment (ms)."""
    return next((number for number, batch in enumerate(log) if batch[3] > moment), len(log))


def batches(file: Path) -> list[tuple[int, int, int]]:
    """Position, base offset and newest time of each batch."""
    data, at, found = file.read_bytes(), 0, []
    while at + 43 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        found.append((at, base, *struct.unpack_from(">q", data, at + 35)))
        at += 12 + length
    return found


def cleaned_until(partition: Path) -> int:
    """Where the segment begins that no cleaner touches, -1 where none is at work."""
    checkpoint = partition.parent / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    topic, _, number = partition.name.rpartition("-")
    cleans = any(line.split()[:2] == [topic, number] for line in lines)
    return max(int(p.stem) for p in partition.glob("*.log")) if cleans else -1


def write_entries(partition: Path, end: int) -> None:
    """No checkpoint has more of the partition than this."""
    topic, _, number = partition.name.rpartition("-")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        file = partition.parent / name
        if not file.exists():
            continue
        lines = [line.split() for line in file.read_text().splitlines()]
        for line in lines:
            if line[:2] == [topic, number]:
                line[2] = str(min(int(line[2]), end))
        file.write_text("".join(" ".join(line) + "\n" for line in lines))


def write_epochs(partition: Path, end: int) -> None:
    """No leader epoch begins behind the end."""
    epochs = partition / "leader-epoch-checkpoint"
    if not epochs.exists():  # releases before 0.11 have none
        return
    kept = [line for line in epochs.read_text().splitlines()[2:] if int(line.split()[1]) < end]
    epochs.write_text("\n".join(["0", str(len(kept)), *kept]) + "\n")


@pytest.mark.parametrize("which", ["*", "__transaction_state-*", "[!_]*"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_nothing_is_wrong_with_logs_that_were_copied_at_different_times(name: str, which: str, tmp_path: Path) -> None:
    copied_at = int(corpora.manifest(name)["copied_at"])
    before = {(f.kind, f.topic, f.partition) for f in above_info(audit_folder(corpora.unpack(name), copied_at))}
    newest = newest_time(corpora.unpack(name))
    for seed in SEEDS:
        chosen = random.Random(f"{which} {seed}")
        folder = live_copy(name, tmp_path / str(seed))
        for partition in sorted(folder.glob("*/*-[0-9]*")) if seed % 2 else ():  # checkpoints copied before all else
            checkpointed_at(partition, newest - SPREAD_MS)
        for partition in sorted(folder.glob(f"*/{which}-[0-9]*")):
            if not partition.name.startswith("__cluster_metadata"):
                copied_until(partition, newest - chosen.randint(0, SPREAD_MS))
        found = above_info(audit_folder(folder, copied_at if seed % 2 else None, records=False))
        assert {(f.kind, f.topic, f.partition) for f in found} <= before, (seed, [f.message for f in found])


def newest_time(folder: Path) -> int:
    """The newest time that a broker wrote, ms."""
    internal = [file for file in folder.glob("*/__*/*.log") if batches(file)]
    return max(time for file in internal for *_, time in batches(file))


class Overdue:
    """An id that has a transaction open for two minutes longer than it may, as its coordinator has it."""

    due = BUSY_SINCE + BUSY_TIMEOUT

    def __init__(self, root: Path) -> None:
        self.bank = Bank(root, "bank.audit-1")
        self.data = self.bank.lab.log("bank.audit-1")

    def severity(self) -> str:
        """Of the one finding that there may be; the cluster was copied while it ran."""
        self.data.save()
        self.bank.log.save()
        self.bank.lab.is_live()
        self.bank.lab.without_metadata()
        found = [f for f in self.bank.lab.findings(self.due + 120_000) if f.kind == "timeout-not-enforced"]
        assert [f.transactional_id for f in found] == [BUSY]
        return found[0].severity

    def goes_on(self, log: str, time: int) -> None:
        """Another producer's marker, which closes nothing, in a log."""
        forged = self.data if log == "data" else self.bank.log
        like = (self.data.data() if log == "data" else self.bank.log.data())[-1]
        forged.decide(like, False, time=time, producer_id=9, epoch=0)

    def end(self, time: int) -> None:
        self.data.decide(self.data.data(BUSY_PRODUCER[0])[-1], False, time=time, epoch=BUSY_PRODUCER[1] + 1)


def test_a_time_out_that_passed_is_an_error_where_nothing_is_newer(tmp_path: Path) -> None:
    assert Overdue(tmp_path).severity() == "error"


def test_a_time_out_that_passed_is_an_error_where_the_data_goes_on_and_no_marker_came(tmp_path: Path) -> None:
    overdue = Overdue(tmp_path)
    overdue.goes_on("data", overdue.due + 110_000)
    overdue.goes_on("other", overdue.due + 110_000)
    assert overdue.severity() == "error"


@pytest.mark.parametrize(("later", "severity"), [(45_000, "info"), (110_000, "error")])
def test_a_time_out_that_passed_after_the_coordinators_log_was_copied(
    later: int, severity: str, tmp_path: Path
) -> None:
    """Another log is newer than this one and than the data: they may have been copied first, but not so long before."""
    overdue = Overdue(tmp_path)
    overdue.goes_on("other", overdue.due + later)
    assert overdue.severity() == severity


def test_a_marker_shows_that_the_coordinators_log_was_copied_before_it(tmp_path: Path) -> None:
    overdue = Overdue(tmp_path)
    overdue.end(overdue.due + 5_000)
    assert overdue.severity() == "info"


@pytest.mark.parametrize(("later", "severity"), [(False, "critical"), (True, "info")])
def test_a_decision_that_may_have_been_completed_since(later: bool, severity: str, tmp_path: Path) -> None:
    """Two markers behind a decision are of two transactions; none, where the data goes on, is one that is missing."""
    bank = Bank(tmp_path, "bank.audit-1")
    data, decided = bank.lab.log("bank.audit-1"), BUSY_SINCE + 5_000
    state = ("PrepareCommit", BUSY_PRODUCER, decided, "bank.audit-1")
    bank.coordinator.state(BUSY, *state, start=BUSY_SINCE, timeout=BUSY_TIMEOUT)
    like = data.data(BUSY_PRODUCER[0])[-1]
    if later:
        data.decide(like, True, time=decided + 10)
        data.next(
            like, base_time=decided + 40_000, max_time=decided + 40_000, sequence=like["sequence"] + like["count"]
        )
        data.decide(like, True, time=decided + 60_000)
    else:
        data.decide(like, False, time=decided + 20 * 60_000, producer_id=9, epoch=0)
    data.save()
    bank.coordinator.save()
    bank.lab.is_live()
    found = [f for f in bank.lab.findings(decided + 21 * 60_000) if f.kind == "stuck-prepare"]
    assert [f.severity for f in found] == [severity], [f.message for f in found]


def test_a_lab_is_sound_before_it_is_altered(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "hanging-36", "bank.ledger-4", "bank.audit-1")
    lab.is_live()
    assert above_info(lab.findings(BUSY_SINCE + BUSY_TIMEOUT)) == []
