"""Replicas that are compared by sums and headers read again, as long ones are, give what their headers alone give."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from auditor.facts.batch_headers import FOR_EVIDENCE, Allowance
from auditor.facts.batch_sums import BatchSums
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading import segment_checks
from auditor.rules.lib import replica_pairs
from tests import corpora, segments
from tests.facts import corpus_audit, here, opened

NAMES = [*corpora.names(), *corpora.campaigns()]
COUNT, RECORDS, IN_SEGMENT = 240, 3, 100  # of a log: batches, records of each, batches of a segment
END = COUNT * RECORDS
Log = list[bytes]


def findings(audit: Audit) -> list[str]:
    return [finding.to_json() for finding in audit.findings]


def summed(monkeypatch: pytest.MonkeyPatch, most_kept: int = -1) -> None:
    """From here on every replica is a long one, with sums of ranges of 16 offsets, so that a small log has many."""
    monkeypatch.setattr(segment_checks, "MOST_KEPT", most_kept)
    monkeypatch.setattr(BatchSums.__init__, "__defaults__", (4,))


@pytest.mark.parametrize("name", NAMES)
def test_of_every_corpus_the_findings_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_headers = corpus_audit(name)
    logs = {(b.join_key, b.topic, b.partition) for b in with_headers.briefs}
    if len(logs) == len(with_headers.briefs):
        pytest.skip("no replicas")
    summed(monkeypatch)
    assert findings(opened(corpora.unpack(name))) == findings(with_headers)


def batch(number: int, **header: int) -> bytes:
    fields = {"leader_epoch": 0, "producer_id": 7, "epoch": 0, "sequence": number * RECORDS} | header
    return segments.simple(number * RECORDS, RECORDS, **fields)


def sound() -> Log:
    return [batch(number) for number in range(COUNT)]


def with_field(name: str, number: int = 150) -> Log:
    log = sound()
    log[number] = batch(number, **{name: 5})
    return log


def other_records(number: int) -> Log:
    log = sound()
    log[number] = segments.simple(number * RECORDS, RECORDS, value=b"other", producer_id=7, epoch=0,
                                  sequence=number * RECORDS, leader_epoch=0)  # fmt: skip
    return log


def shorter_batch() -> Log:
    log = sound()
    log[150] = segments.simple(450, 2, leader_epoch=0, producer_id=7, epoch=0, sequence=450)
    return log


def without(*numbers: int) -> Log:
    return [one for number, one in enumerate(sound()) if number not in numbers]


def forked(at: int) -> Log:
    return [*sound()[:at], *(batch(number, leader_epoch=2, sequence=9) for number in range(at, COUNT - 20))]


def damaged(number: int) -> Log:
    log = sound()
    log[number] = log[number][:-3] + b"???"
    return log


def garbled(number: int) -> Log:
    log = sound()
    log[number] = random.Random(1).randbytes(len(log[number]))
    return log


def with_an_old_block(number: int) -> Log:
    """Three batches that cannot be read, but for an older one that lies where the second was: a disk gave old bytes."""
    log, size = sound(), len(batch(number))
    noise = random.Random(3).randbytes
    log[number : number + 3] = [log[number][:8] + noise(size - 8), log[number - 2], noise(size)]
    log[number - 1] = other_records(number - 1)[number - 1]
    return log


def twice(number: int) -> Log:
    log = sound()
    return [*log[: number + 9], log[number], *log[number + 9 :]]


def torn() -> Log:
    log = sound()
    return [*log[:-1], log[-1][:50]]


def legacy(time: int) -> Log:
    return [segments.message(number, b"k", b"v", time=time + number) for number in range(COUNT * RECORDS)]


SECOND: dict[str, Callable[[], Log]] = {
    "the same": sound,
    **{f"{name} differs": functools.partial(with_field, name)
       for name in ("leader_epoch", "producer_id", "epoch", "sequence")},
    "records differ": lambda: other_records(150),
    "the first differs": lambda: other_records(0),
    "the last differs": lambda: other_records(COUNT - 1),
    "one at a range's edge differs": lambda: other_records(16),  # offsets 48 to 50
    "a last offset differs": shorter_batch,
    "a range is missing": lambda: without(*range(60, 130)),
    "a batch is missing": lambda: without(150),
    "edges are missing": lambda: without(5, 16, 21, 32),
    "the end is missing": lambda: sound()[:170],
    "the beginning is missing": lambda: sound()[70:],
    "nothing is there": list,
    "another lineage": lambda: forked(180),
    "another lineage from the first batch on": lambda: forked(0),
    "a wrong checksum": lambda: damaged(150),
    "bytes that are no batch": lambda: garbled(150),
    "an old block at a segment's head": lambda: with_an_old_block(IN_SEGMENT),
    "a torn end": torn,
    "out of order": lambda: twice(150),
    "all differ": lambda: [batch(number, producer_id=8) for number in range(COUNT)],
}  # fmt: skip


def write(root: Path, number: int, log: Log, *, high: int = END, **checkpoints: int) -> Path:
    """The directory of a broker with this log of topic t, in segments."""
    path = root / f"broker-{number}"
    folder = path / "t-0"
    folder.mkdir(parents=True)
    for at in range(0, max(1, len(log)), IN_SEGMENT):
        some = log[at : at + IN_SEGMENT]
        base = int.from_bytes(some[0][:8], "big") if some else 0
        (folder / f"{base:020}.log").write_bytes(b"".join(some))
    (path / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    (path / "cleaner-offset-checkpoint").write_text("0\n0\n")  # nothing is cleaned
    for name, offset in {"replication_offset": high, "log_start_offset": 0, **checkpoints}.items():
        (path / f"{name.replace('_', '-')}-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    (path / ".kafka_cleanshutdown").touch()
    return path


def both_ways(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The findings below a folder, which are the same by headers and by sums from the first batch or from 100 on."""
    expected = findings(opened(root))
    for most_kept in (-1, 100):
        summed(monkeypatch, most_kept)
        assert findings(opened(root)) == expected
    return expected


@pytest.mark.parametrize("high", [END, 300])
@pytest.mark.parametrize("what", SECOND)
def test_of_forged_differences_the_findings_are_the_same(
    what: str, high: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, sound(), high=high)
    write(tmp_path, 2, SECOND[what](), high=high)
    write(tmp_path, 3, sound()[:200], high=high)
    rules = {json.loads(text)["rule"] for text in both_ways(tmp_path, monkeypatch)}
    if what not in ("the same", "a torn end", "nothing is there"):
        assert rules


@pytest.mark.parametrize("start", [0, 90, 450])
def test_other_log_starts_and_what_was_cleaned_are_as_by_headers(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, sound(), log_start_offset=start, cleaner_offset=300)
    write(tmp_path, 2, without(10, 11, 50, 97, 98, 99, 105, 151), cleaner_offset=330)
    found = both_ways(tmp_path, monkeypatch)
    said = [json.loads(text) for text in found]
    gaps = [f for f in said if f["kind"] == "replica-missing-range"]
    assert all(gap["offset"] >= max(start, 300) for gap in gaps)
    # Nothing tells whether broker 2 led when it lost them, or has its leader's holes: in doubt, and said.
    assert gaps or [f["if_true"] for f in said if f["kind"] == "offset-hole"] == ["error"]


def test_messages_of_magic_1_are_as_by_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their replicas need not share checksums."""
    write(tmp_path, 1, legacy(segments.TIME))
    write(tmp_path, 2, legacy(segments.TIME + 1))
    assert not [text for text in both_ways(tmp_path, monkeypatch) if '"replica-' in text]


def gone(file: Path) -> None:
    file.unlink()


def other_bytes(file: Path) -> None:
    file.write_bytes(random.Random(2).randbytes(file.stat().st_size))


def shortened(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 4])


def rewritten(file: Path) -> None:
    """As a cleaner leaves it: some batches gone."""
    first = IN_SEGMENT if int(file.stem) else 0
    file.write_bytes(b"".join(sound()[first : first + IN_SEGMENT : 2]))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("happens", [gone, other_bytes, shortened, rewritten, emptied])
@pytest.mark.parametrize("broker", [1, 2])
def test_a_file_that_is_no_longer_as_it_was_read_proves_nothing(
    happens: Callable[[Path], None], broker: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading pass and the comparison: what lies there is undecided, the rest is compared."""
    write(tmp_path, 1, sound())
    other = other_records(150)
    other[20] = other_records(20)[20]
    write(tmp_path, 2, other)
    summed(monkeypatch)
    audit = opened(tmp_path)
    assert audit.briefs
    happens(tmp_path / f"broker-{broker}" / "t-0" / f"{IN_SEGMENT * RECORDS:020}.log")
    (found,) = [f for f in audit.findings if f.kind == "replica-divergence"]
    assert (found.offset, found.evidence["batches"]) == (60, 1)
    ((log_dir, error),) = [(name, e) for name, e in audit.unread() if "replicas" in e.detail]
    assert (log_dir, error.file, error.reason) == (f"broker-{broker}", f"t-0/{300:020}.log", "vanished")
    assert not audit.incomplete()  # as of any file that goes while it is read


def test_a_limit_is_named_and_the_audit_incomplete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, sound())
    write(tmp_path, 2, SECOND["all differ"]())
    summed(monkeypatch)
    monkeypatch.setattr(replica_pairs, "Allowance", functools.partial(Allowance, FOR_EVIDENCE + 10_000))
    audit = opened(tmp_path)
    assert not [f for f in audit.findings if f.kind == "replica-divergence"]
    (error,) = [e for _, e in audit.unread() if "replicas" in e.detail]
    assert error.reason == "limit"
    assert audit.exit_code() == 3


def test_of_a_store_headers_are_read_again_as_of_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1, sound())
    write(tmp_path, 2, other_records(150))
    expected = findings(opened(tmp_path))
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path), "/long-replicas", recursive=True)
    summed(monkeypatch)
    try:
        audit = Audit(AuditOptions(("memory://long-replicas",), Path()), here())
        assert findings(audit) == expected
    finally:
        store.rm("/long-replicas", recursive=True)
