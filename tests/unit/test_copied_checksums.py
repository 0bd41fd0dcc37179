"""Checksums that a copy has not verified: of large batches headers alone are read, and what rests on them is likely."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pytest

from auditor import cli
from auditor.base.errors import DEFAULT_LIMITS
from auditor.connectors.codec import batches as walking
from auditor.connectors.codec.batches import UNVERIFIED
from auditor.connectors.codec.segment import HeaderHop, read_segment
from auditor.connectors.logdir.copy_format import LIST
from auditor.copying import run
from auditor.copying.run import copy_logs, referenced_segments
from auditor.rules.seen.view import Finding
from tests import segments
from tests.facts import opened
from tests.seeded_tests import seeded
from tests.unit.test_copies_again import rows_of

SIZE = 40_000  # of a body
COUNT = 40
NAME = f"{0:020}.log"


def batch(number: int, **header: int) -> bytes:
    given = {"base_offset": number, "producer_id": 7, "epoch": 0, "sequence": number, "leader_epoch": 3} | header
    return segments.batch(segments.record(0, b"k", bytes([number % 251]) * SIZE), 1, **given)


def segment(first: int = 0, count: int = COUNT) -> bytes:
    return b"".join(batch(n) for n in range(first, first + count))


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "broker-1" / "t-0"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(segment())
    (folder.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    return folder.parent


def flipped(source: Path, at: int) -> None:
    data = bytearray((source / "t-0" / NAME).read_bytes())
    data[at] ^= 1
    (source / "t-0" / NAME).write_bytes(data)


def known(copy: Path) -> list[bool | None]:
    return [row["crc_ok"] for row in rows_of(copy)["batches"]]


def test_of_large_batches_headers_alone_are_read(source: Path, tmp_path: Path) -> None:
    done = copy_logs([str(source)], tmp_path / "copy", checksums="none")
    whole = (source / "t-0" / NAME).stat().st_size
    assert (done.batches, done.unverified) == (COUNT, 1)
    assert done.bytes_read == COUNT * 128 + whole // COUNT  # and the last batch as a whole
    assert known(tmp_path / "copy") == [None] * (COUNT - 1) + [True]
    was, now = rows_of(source)["batches"], rows_of(tmp_path / "copy")["batches"]
    assert [row | {"crc_ok": None} for row in now] == [row | {"crc_ok": None} for row in was]


def test_a_later_run_goes_on_by_segment(source: Path, tmp_path: Path) -> None:
    for number in range(1, 4):
        (source / "t-0" / f"{number * COUNT:020}.log").write_bytes(segment(number * COUNT))
    size = (source / "t-0" / NAME).stat().st_size
    copy = tmp_path / "copy"
    left = [copy_logs([str(source)], copy, checksums="budget", budget=2 * size).unverified for _ in range(3)]
    assert left == [2, 0, 0]
    assert all(known(copy))
    assert [path.name for path in (copy / "broker-1" / "t-0").iterdir()] == [LIST]


def test_damage_to_a_body_is_neither_seen_nor_denied(source: Path, tmp_path: Path) -> None:
    flipped(source, 500)
    copy = tmp_path / "copy"
    assert copy_logs([str(source)], copy, checksums="none").unverified == 1
    assert [f.rule for f in opened(source).findings if f.severity == "critical"] == ["batch-crc-mismatch"]
    assert not [f for f in opened(copy).findings if f.rule == "batch-crc-mismatch"]
    written = tmp_path / "audit"
    assert cli.main(["audit", str(copy), "--out", str(written), "--master", "inline[1]", "--quiet"]) == 0
    summary = json.loads((written / "summary.json").read_text())
    assert any("checksums of 39 batches" in note for note in summary["notes"])
    assert "not all could be decided" in json.dumps(summary)
    copy_logs([str(source)], copy, checksums="all")
    assert known(copy).count(False) == 1
    assert [f.to_json() for f in opened(copy).findings] == [f.to_json() for f in opened(source).findings]


def test_an_unverified_checksum_lowers_no_severity(source: Path, tmp_path: Path) -> None:
    """A sequence that leaps: of a sound batch it is a gap, of a damaged one it is nothing of its producer's."""
    data = segment(0, 20) + b"".join(batch(n, sequence=n + 5) for n in range(20, COUNT))
    (source / "t-0" / NAME).write_bytes(data)
    copy = tmp_path / "copy"
    copy_logs([str(source)], copy, checksums="none")
    was, now = ([f for f in opened(path).findings if f.severity != "info"] for path in (source, copy))
    assert was
    assert [(f.rule, f.offset, f.severity) for f in now] == [(f.rule, f.offset, f.severity) for f in was]
    for f in now:
        assert (f.evidence["confidence"], f.evidence["checksums"]) == ("likely", "not verified")
        assert any(first <= f.offset <= last for first, last in f.evidence["unverified_offsets"])
        assert f.if_true is None
        assert not f.advice.acts
    for extra in ([], ["--fail-on-unsure"]):
        arguments = ["audit", str(copy), "--out", str(tmp_path / "audit"), "--master", "inline[1]", "--quiet", *extra]
        assert cli.main(arguments) == 1
    assert copy_logs([str(source)], copy, segments=referenced_segments(opened(copy))).unverified == 0
    assert [f.to_json() for f in opened(copy).findings] == [f.to_json() for f in opened(source).findings]


@pytest.mark.parametrize("at", range(21, 61))
def test_a_copy_proves_nothing_by_an_unverified_batch(at: int, source: Path, tmp_path: Path) -> None:
    """A bit of the first batch's header flipped (byte 50 is of its producer id): the directory shows a CRC mismatch,
    and what a copy makes of that batch is proved by nothing."""
    flipped(source, at)
    copy = tmp_path / "copy"
    copy_logs([str(source)], copy, checksums="none")
    was, now = ({(f.rule, f.offset) for f in opened(path).findings if _proved(f)} for path in (source, copy))
    assert ("batch-crc-mismatch", 0) in was
    assert now <= was


def _proved(f: Finding) -> bool:
    return bool(f.evidence["confidence"] == "proved")


@pytest.mark.parametrize("at", [0, 5, 8, 10, 12, 14, 16, 17, 21, 26, 43, 50, 53, 57, 61, 30_000])
@pytest.mark.parametrize("number", [0, 1, 20, COUNT - 2, COUNT - 1])
def test_damage_to_a_header_is_seen_as_by_reading_all(number: int, at: int, tmp_path: Path) -> None:
    """Each byte of a header that its neighbours do not bear out ends the hop, and all behind is read."""
    data = bytearray(segment())
    data[number * (len(data) // COUNT) + at] ^= 0x11
    path = tmp_path / NAME
    path.write_bytes(data)
    with path.open("rb", buffering=0) as f:
        hop = HeaderHop(f, len(data), DEFAULT_LIMITS, 0, (0, 1 << 31))
        rows = [row for chunk in hop.chunks() for row in chunk.tolist()]
        for chunk in read_segment(f, len(data), file=NAME, start=hop.end, offsets=(hop.next_offset, 1 << 31)):
            rows += chunk.rows.tolist()
        whole = [
            row for chunk in read_segment(f, len(data), file=NAME, offsets=(0, 1 << 31)) for row in chunk.rows.tolist()
        ]
    told = [row for row in rows if not row[walking.FLAWS] & UNVERIFIED]
    assert all(row in whole for row in told)
    assert [row[: walking.FLAWS] for row in rows] == [row[: walking.FLAWS] for row in whole]


@seeded(8, nightly=200)
def test_no_damage_is_a_false_alarm_while_checksums_are_open(seed: int, tmp_path: Path) -> None:
    """Bits that flip anywhere, in headers too: what an audit of the copy says for sure, one of the directory says."""
    dice, folder = random.Random(seed), Path(tempfile.mkdtemp(dir=tmp_path))
    broker, copy = folder / "in" / "broker-1", folder / "copy"
    (broker / "t-0").mkdir(parents=True)
    data = bytearray(segment())
    length = len(data) // COUNT
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(COUNT) * length + dice.choice([dice.randrange(61), dice.randrange(length)])
        data[at] ^= 1 << dice.randrange(8)
    (broker / "t-0" / NAME).write_bytes(data)
    copy_logs([str(broker.parent)], copy, checksums="none")
    was, now = (
        {(f.rule, f.offset, f.severity) for f in opened(path).findings if f.severity != "info" and _proved(f)}
        for path in (broker.parent, copy)
    )
    # Of damaged batches that follow each other, which are one finding, some may be open.
    wrong = {
        ("batch-crc-mismatch", row["base_offset"], "critical")
        for row in rows_of(broker.parent)["batches"]
        if not row["crc_ok"]
    }
    assert now <= was | wrong
    copy_logs([str(broker.parent)], copy, checksums="all")
    rest = [[f.to_json() for f in opened(path).findings] for path in (broker.parent, copy)]
    assert rest[0] == rest[1]


def test_small_batches_are_read_whole(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "t-0"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(b"".join(segments.simple(3 * n, 3) for n in range(200)))
    done = copy_logs([str(folder)], tmp_path / "copy", checksums="none")
    assert (done.unverified, all(known(tmp_path / "copy"))) == (0, True)
