"""Records of a batch with a CRC mismatch decide nothing, whatever the batch says.

One bit of what a checksum covers is flipped, in each kind of batch that an audit takes evidence from. The audit must
find what it finds where the whole content of that batch is unreadable, so that no verdict rests on the damaged records.
"""

from __future__ import annotations

import dataclasses
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from auditor.copying.run import copy_logs
from tests import corpora
from tests.bare_broker import BEGAN, broker, data, end, finish
from tests.conftest import NIGHTLY
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Batch, Forged

COVERED, HEADER = 21, 61  # the first byte of a batch that its checksum covers, and that of its records
HOUR = 3_600_000
ABORT = re.compile(r"kafka-transactions\.sh (--bootstrap-server \S+ )?abort\b")
FLIPS = 40 if NIGHTLY else 3  # a kind


class Kind(NamedTuple):
    """A kind of batch: where such are, and whether a batch there is of it."""

    corpus: str
    folder: str
    control: bool = False


KINDS = {
    "coordinator's state": Kind("hanging-36", "broker-1/__transaction_state-*"),
    "coordinator's state under transaction.version 2": Kind("skipped-then-goes-on-43", "*/__transaction_state-*"),
    "marker": Kind("hanging-36", "broker-1/*-0", control=True),
    "marker in committed offsets": Kind("healthy-28", "broker-1/__consumer_offsets-*", control=True),
    "committed offset": Kind("healthy-28", "broker-1/__consumer_offsets-*"),
    "records of a group": Kind("groups-43", "broker-1/__consumer_offsets-*"),
    "share group's state": Kind("groups-43", "broker-1/__share_group_state-*"),
    "cluster metadata": Kind("unclean-43", "*/__cluster_metadata-0"),
    "metadata of remote segments": Kind("tiered-43", "*/__remote_log_metadata-*"),
    "data": Kind("hanging-36", "broker-1/*-0"),
}


def batches(root: Path, kind: Kind) -> Iterator[tuple[Path, int, Batch]]:
    """The batches of a kind, each with its file and position."""
    for folder in sorted(root.glob(kind.folder)):
        if not list(folder.glob("*.log")) or (folder.name[:2] == "__") != ("/__" in kind.folder):
            continue
        log = Forged(folder.parent, folder.name)
        for batch in log.all():
            name, position = log.place(batch)
            if batch.control == kind.control and batch["magic"] == 2:
                yield folder.parent / name, position, batch


def said(root: Path, as_of: int | None) -> list[dict[str, Any]]:
    """What an audit finds, but for what only the damaged bytes themselves show."""
    out = []
    for f in opened(root, as_of=as_of).findings:
        row = dataclasses.asdict(f)
        if f.rule == "batch-crc-mismatch":
            row |= {"last_offset": None, "evidence": {k: v for k, v in f.evidence.items() if k in ("batches", "also")}}
        out.append(row)
    return out


def as_copied(root: Path, copy: Path, as_of: int | None) -> list[str]:
    """What an audit of a copy without payload finds."""
    shutil.rmtree(copy, ignore_errors=True)
    copy_logs([str(root)], copy)
    return [f.to_json() for f in opened(copy, as_of=as_of).findings]


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_batch_says_nothing(name: str, tmp_path: Path) -> None:
    kind, dice = KINDS[name], random.Random(name)
    root = corpora.copy(kind.corpus, tmp_path / "source")
    as_of = corpora.manifest(kind.corpus).get("copied_at")
    places = list(batches(root, kind))
    assert places
    for file, position, batch in dice.sample(places, min(FLIPS, len(places))):
        stored = file.read_bytes()
        size = len(batch.data)
        bit = dice.randrange(8 * (dice.choice([HEADER, size]) - COVERED))
        flipped, unreadable = bytearray(stored), bytearray(stored)
        flipped[position + COVERED + bit // 8] ^= 1 << bit % 8
        for at in range(position + COVERED, position + size):
            unreadable[at] ^= 0xFF
        file.write_bytes(unreadable)
        expected = said(root, as_of)
        file.write_bytes(flipped)
        found = said(root, as_of)
        assert as_copied(root, tmp_path / "copy", as_of) == [f.to_json() for f in opened(root, as_of=as_of).findings]
        file.write_bytes(stored)
        assert any(row["rule"] == "batch-crc-mismatch" for row in found), (file, position, bit)
        assert found == expected, (file, position, bit)


def committed(root: Path) -> tuple[Path, list[tuple[int, int]]]:
    """A directory in which a transaction was decided COMMIT and completed, and its marker never came; where in the
    coordinator's log each record is."""
    path = broker(root, "t-0")
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    began = BEGAN
    held = data(log, 4, 0, began + 10, transactional=True)
    coordinator.state("app", "Empty", (4, 0), began - 10)
    coordinator.state("app", "Ongoing", (4, 0), began, "t-0", start=began)
    coordinator.state("app", "PrepareCommit", (4, 0), began + 100, "t-0", start=began)
    coordinator.state("app", "CompleteCommit", (4, 0), began + 200, start=began)
    coordinator.state("other", "Empty", (5, 0), began + 2 * HOUR)
    other = data(log, 5, 0, began + 2 * HOUR, transactional=True, epoch=0)
    end(log, other, True, began + 2 * HOUR + 5)
    finish(log, coordinator)
    assert held["base_offset"] == 0
    file, places = "", []
    for batch in coordinator.log.all():
        file, position = coordinator.log.place(batch)
        places.append((position, len(batch.data)))
    return path / file, places


def remedies(root: Path) -> list[str]:
    audit = opened(root, as_of=BEGAN + 3 * HOUR)
    said = [str(f.remedy) for f in audit.findings if f.topic == "t" or f.transactional_id == "app"]
    return said + [str(row["advice"]) for row in audit.blocked]


def test_no_flipped_bit_makes_an_abort_safe(tmp_path: Path) -> None:
    """Each bit of the coordinator's records about a transaction that was committed: an abort would lose its data."""
    file, places = committed(tmp_path)
    stored = file.read_bytes()
    assert not any(ABORT.search(each) for each in remedies(tmp_path))
    for position, size in places[2:4]:
        for bit in range(8 * COVERED, 8 * size, 1 if NIGHTLY else 7):
            flipped = bytearray(stored)
            flipped[position + bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            assert not any(ABORT.search(each) for each in remedies(tmp_path)), (position, bit)


@pytest.mark.parametrize("name", ["app", "sink-0-7"])
def test_a_damaged_decision_restarts_no_client(name: str, tmp_path: Path) -> None:
    """The last readable record of an id is Ongoing, and a COMMIT may be in the damaged batch behind it: nothing is sent
    again, no client is restarted, and no broker loads the damaged records."""
    path = broker(tmp_path, "t-0")
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    data(log, 4, 0, BEGAN + 10, transactional=True)
    coordinator.state(name, "Ongoing", (4, 0), BEGAN, "t-0", start=BEGAN)
    decided = coordinator.state(name, "PrepareCommit", (4, 0), BEGAN + 100, "t-0", start=BEGAN)
    finish(log, coordinator)
    file, position = coordinator.log.place(decided)
    content = bytearray((path / file).read_bytes())
    content[position + 80] ^= 1
    (path / file).write_bytes(content)
    audit = opened(tmp_path, as_of=BEGAN + 3 * HOUR)
    found = [f.advice for f in audit.findings if f.advice is not None and f.transactional_id == name]
    assert found
    for advice in found:
        assert advice.verdict.value == "do_not_abort"
        assert not re.search(r"sent again|restart|abort --topic|preferred", str(advice)), advice


@pytest.mark.parametrize("damaged", [(1,), (2,), (1, 2)], ids=str)
def test_a_decided_transaction_is_not_loaded_from_a_damaged_log(damaged: tuple[int, ...], tmp_path: Path) -> None:
    """PrepareCommit is whole, and the batch behind it is damaged on some broker, whichever replica the audit goes by: a
    coordinator that loads both goes by both."""
    for number in (1, 2):
        path = broker(tmp_path, "t-0", number=number)
        log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
        data(log, 4, 0, BEGAN + 10, transactional=True)
        coordinator.state("app", "Ongoing", (4, 0), BEGAN, "t-0", start=BEGAN)
        coordinator.state("app", "PrepareCommit", (4, 0), BEGAN + 100, "t-0", start=BEGAN)
        last = coordinator.state("other", "Empty", (5, 0), BEGAN + 200)
        finish(log, coordinator)
        if number in damaged:
            file, position = coordinator.log.place(last)
            content = bytearray((path / file).read_bytes())
            content[position + 80] ^= 1
            (path / file).write_bytes(content)
    found = [str(f.advice) for f in opened(tmp_path, as_of=BEGAN + 3 * HOUR).findings if f.transactional_id == "app"]
    assert found
    assert all("without a CRC mismatch" in each and "type preferred" not in each for each in found)


@pytest.mark.parametrize("damaged", [1, 2], ids=["PrepareCommit", "CompleteCommit"])
def test_an_open_transaction_behind_a_damaged_decision_is_not_harmless(damaged: int, tmp_path: Path) -> None:
    """The marker of a COMMIT never came, its decision is damaged, and the id has a transaction open: that may end in
    ABORT, and the data of both with it."""
    path, began = broker(tmp_path, "t-0"), BEGAN + 1000
    log, coordinator = Forged(path, "t-0"), Coordinator(path, 0)
    data(log, 4, 0, BEGAN + 10, transactional=True)
    states = [
        coordinator.state("app", "Ongoing", (4, 0), BEGAN, "t-0", start=BEGAN),
        coordinator.state("app", "PrepareCommit", (4, 0), BEGAN + 100, "t-0", start=BEGAN),
        coordinator.state("app", "CompleteCommit", (4, 0), BEGAN + 200, start=BEGAN),
    ]
    coordinator.state("app", "Ongoing", (4, 0), began, "t-0", start=began)
    data(log, 4, 3, began + 10, transactional=True)
    finish(log, coordinator)
    file, position = coordinator.log.place(states[damaged])
    content = bytearray((path / file).read_bytes())
    content[position + 80] ^= 1
    (path / file).write_bytes(content)
    (row,) = opened(tmp_path, as_of=began + 20_000).blocked
    assert row["advice"]["verdict"] == "do_not_abort"
    assert "nothing is lost" not in str(row["advice"])


def test_both_decisions_damaged_are_no_decision(tmp_path: Path) -> None:
    """The state bytes of PrepareCommit and CompleteCommit say ABORT: nobody may abort by them, or write a COMMIT."""
    file, places = committed(tmp_path)
    flipped = bytearray(file.read_bytes())
    for (position, size), state in zip(places[2:4], (2, 4), strict=True):
        at = flipped.index(bytes([0, 0, 0xEA, 0x60, state]), position, position + size) + 4  # behind the timeout
        flipped[at] ^= 1
    file.write_bytes(flipped)
    found = remedies(tmp_path)
    assert found
    assert not any(ABORT.search(each) or "WriteTxnMarkers" in each for each in found)
    audit = opened(tmp_path, as_of=BEGAN + 3 * HOUR)
    (damage,) = (f for f in audit.findings if f.rule == "batch-crc-mismatch")
    assert [batch["records"] for batch in damage.evidence["one_flipped_bit"]] == [
        [
            {
                "offset": offset,
                "transactional_id": "app",
                "as_stored": {"state": f"{state}Abort", "status": status + 1},
                "inverted": {"state": f"{state}Commit", "status": status},
            }
        ]
        for offset, state, status in ((2, "Prepare", 2), (3, "Complete", 4))
    ]
    (row,) = audit.blocked
    assert (row["transactional_id"], row["advice"]["verdict"], row["severity"]) == ("app", "do_not_abort", "critical")


@pytest.mark.parametrize(
    ("byte", "field", "stored", "inverted"),
    [
        (69, "marker", "ABORT", "COMMIT"),
        (50, "producer id", 4 ^ 1, 4),
        (52, "producer epoch", 1, 0),
        (76, "coordinator epoch", 1, 0),
        (20, "checksum", None, None),
    ],
)
def test_both_readings_of_a_marker(byte: int, field: str, stored: object, inverted: object, tmp_path: Path) -> None:
    path = broker(tmp_path, "t-0")
    log = Forged(path, "t-0")
    end(log, data(log, 4, 0, BEGAN, transactional=True), True, BEGAN + 5)
    finish(log)
    name, position = log.place(log.last)
    content = bytearray((path / name).read_bytes())
    content[position + byte] ^= 1
    (path / name).write_bytes(content)
    (damage,) = (f for f in opened(tmp_path).findings if f.rule == "batch-crc-mismatch")
    (reading,) = damage.evidence["one_flipped_bit"]
    assert (reading["base_offset"], reading["byte"], reading["bit"], reading["field"]) == (3, byte, 0, field)
    if stored is not None:
        assert (reading["as_stored"], reading["inverted"]) == (stored, inverted)


@pytest.mark.parametrize("coordinator", [True, False])
def test_a_damaged_marker_makes_no_abort_safe(coordinator: bool, tmp_path: Path) -> None:
    """Its producer id is another one: a broker that loaded it has the transaction open, which was committed."""
    path = broker(tmp_path, "t-0")
    log, state = Forged(path, "t-0"), Coordinator(path, 0)
    end(log, data(log, 4, 0, BEGAN, transactional=True), True, BEGAN + 5)
    data(log, -1, -1, BEGAN + 9, epoch=-1)
    if coordinator:  # cleaned but for the last record of the id
        state.state("app", "CompleteCommit", (4, 0), BEGAN + 6, start=BEGAN)
        state.log.all()[0].set(base_offset=3)
    finish(log, *([state] if coordinator else []))
    if not coordinator:
        shutil.rmtree(path / "__transaction_state-0")
    name, position = log.place(log.markers()[0])
    content = bytearray((path / name).read_bytes())
    content[position + 50] ^= 1
    (path / name).write_bytes(content)
    (row,) = opened(tmp_path, as_of=BEGAN + 3 * HOUR).blocked
    assert (row["topic"], row["advice"]["verdict"]) == ("t", "do_not_abort")
    assert not [each for each in row["advice"]["conditions"] if each["command"]]


@pytest.mark.parametrize("last", ["CompleteCommit", "CompleteAbort", "Empty"])
@pytest.mark.parametrize("damaged", ["marker", "marker and data"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole history", "cleaned history"])
def test_a_damaged_marker_inside_open_data_decides_nothing(
    last: str, damaged: str, whole: bool, tmp_path: Path
) -> None:
    """A transaction was committed, its marker is damaged, and a late write of its producer follows. An ABORT by hand
    may drop the first, and a COMMIT would commit the second."""
    path = broker(tmp_path, "t-0")
    log, state = Forged(path, "t-0"), Coordinator(path, 0)
    first = data(log, 4, 0, BEGAN + 10, transactional=True)
    marker = end(log, first, True, BEGAN + 110)
    data(log, 4, 3, BEGAN + 300, transactional=True)
    if whole:
        for name, decided in (("Ongoing", 0), ("PrepareCommit", 100), ("CompleteCommit", 120)):
            state.state("app", name, (4, 0), BEGAN + decided, "t-0", start=BEGAN)
    state.state("app", last, (4, int(last == "Empty")), BEGAN + 120, start=BEGAN)
    if not whole:
        state.log.all()[0].set(base_offset=7)
    finish(log, state)
    for batch in (marker, first) if damaged != "marker" else (marker,):
        file, position = log.place(batch)
        content = bytearray((path / file).read_bytes())
        content[position + 50] ^= 1
        (path / file).write_bytes(content)
    audit = opened(tmp_path, as_of=BEGAN + 3 * HOUR)
    found = remedies(tmp_path)
    assert audit.blocked
    assert not any("WriteTxnMarkers" in each for each in found)
    if damaged == "marker" and not whole:
        assert not any(ABORT.search(each) for each in found)


def test_a_dump_that_shows_a_crc_mismatch_says_nothing_of_its_records(tmp_path: Path) -> None:
    """What kafka-dump-log.sh prints of ``__transaction_state``, with one batch that is not valid."""
    name = "broker-1.__transaction_state-1.log.txt"
    lines = (corpora.ROOT / "hanging-36" / "oracle" / name).read_text().splitlines()
    wrong = [n for n, line in enumerate(lines) if line.startswith("baseOffset: 2 ")]
    for n in wrong:
        lines[n] = lines[n].replace("isvalid: true", "isvalid: false")
    assert wrong
    assert 2 in offsets_of(tmp_path / "sound", name, (corpora.ROOT / "hanging-36" / "oracle" / name).read_text())
    found = offsets_of(tmp_path / "damaged", name, "\n".join(lines))
    assert found
    assert 2 not in found


def offsets_of(folder: Path, name: str, text: str) -> list[int]:
    """The records of the coordinator that an audit of a dump goes by."""
    folder.mkdir()
    (folder / name).write_text(text)
    audit = opened(folder)
    history = next(iter(audit.clusters.values())).coordinator
    assert history is not None
    return [
        e.offset for found in history.logs.values() for code in range(found.id_count) for e in found.entries_of(code)
    ]
