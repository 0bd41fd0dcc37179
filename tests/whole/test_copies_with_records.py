"""A copy taken with ``--records`` is found, with ``--records``, what its directory is found; one without says so."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import cli
from auditor.copying import run
from auditor.copying.run import copy_logs
from auditor.outputs.publish import run_report
from tests import corpora
from tests.copies import LIST, finds, listed, rewritten
from tests.facts import opened
from tests.segments import TIME, batch, compress, message, record, wrapper

NAME = f"{0:020}.log"
HOUR = 3_600_000
KEYS = (b"k", b"k", None)
# What findings with records may say, each of which some of the made logs must bring out.
RULES = {
    "null-key-in-compacted-topic", "timestamp-out-of-range", "batch-timestamp-mismatch", "legacy-inner-record-invalid",
    "record-structure-invalid",
}  # fmt: skip


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are a test's own, and all have just been written."""
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


def odd_batch(r: random.Random, first: int) -> tuple[bytes, int]:
    """A batch whose checksum is right, mostly with something odd in its records; its bytes, and how many offsets."""
    count, codec = r.choice((1, 2, 3, 3, 9, 40)), r.choice((0, 0, 1, 2, 3, 4))
    times = [r.choice((0, 0, 1, 1, n, -5 * HOUR, 40 * HOUR, -TIME - 7)) for n in range(count)]
    if r.random() < 0.2:
        return old_batch(r, first, count, times)
    deltas = list(range(count))
    if r.random() < 0.1:
        r.shuffle(deltas)
    keys = [None] * count if r.random() < 0.2 else r.choices(KEYS, k=count)
    headers = [(b"h", None)] * r.choice((0, 0, 1))
    made = [record(d, k, b"v" * r.randrange(9), t, headers) for d, k, t in zip(deltas, keys, times, strict=True)]
    if r.random() < 0.1:
        made[r.randrange(count)] = r.randbytes(6)
    body = b"".join(made) + (b"\0" * 3 if r.random() < 0.1 else b"")
    stored = compress(codec, body)
    if codec and r.random() < 0.15:
        stored = stored[: len(stored) // 2] + r.randbytes(5)
    declared = count + r.choice((0,) * 12 + (1, -1))
    latest = TIME + r.choice((max(times), max(times), 3))
    attributes = codec | r.choice((0, 0, 0, 8))
    return batch(stored, declared, base_offset=first, delta=count - 1, attributes=attributes, max_time=latest), count


def old_batch(r: random.Random, first: int, count: int, times: list[int]) -> tuple[bytes, int]:
    """The same of the old formats: a wrapper of messages, or one."""
    magic = r.choice((0, 1, 1))
    inner = []
    for n, (key, time) in enumerate(zip(r.choices(KEYS, k=count), times, strict=True)):
        offset = n if magic else first + n
        other = r.random() < 0.05
        said = message(offset, key, b"v", magic ^ other, r.choice((0,) * 15 + (1,)), max(TIME + time, -9))
        inner.append(said[:-1] + bytes([said[-1] ^ (r.random() < 0.05)]))
    if r.random() < 0.3:
        return message(first, r.choice(KEYS), b"v", magic, 0, TIME), 1
    return wrapper(first + count - 1, inner, r.choice((1, 2, 3)), magic, TIME + max(times), r.choice((0, 8))), count


def made(root: Path, seed: int) -> Path:
    """A broker with a compacted log and one that is not, of odd batches; now and then a broker tells its time."""
    r = random.Random(seed)
    for broker, policy in ((1, "compact"), (2, "delete")):
        folder = root / f"broker-{broker}" / "t-0"
        folder.mkdir(parents=True)
        (folder.parent / "meta.properties").write_text(f"version=1\nnode.id={broker}\ncluster.id=c{broker}\n")
        (root / f"server-{broker}.properties").write_text(
            f"node.id={broker}\nlog.cleanup.policy={policy}\nlog.message.timestamp.before.max.ms={HOUR}\n"
            f"log.message.timestamp.after.max.ms={HOUR}\n"
        )
        data, offset = b"", 0
        for number in range(60):
            if number % 7 == 3:
                one = batch(record(0, b"k", b"v"), 1, base_offset=offset, attributes=8, max_time=TIME + number)
                data, offset = data + one, offset + 1
            one, offsets = odd_batch(r, offset)
            data, offset = data + one, offset + offsets
        (folder / NAME).write_bytes(data)
    return root


def found(path: Path, *, records: bool = True) -> list[str]:
    return [f.to_json() for f in opened(path, records=records).findings]


def test_odd_records_are_found_in_a_copy_as_they_were(tmp_path: Path) -> None:
    said, blamed = set[str](), 0
    for seed in range(40):
        source, copy = made(tmp_path / f"{seed}", seed), tmp_path / f"{seed}-copy"
        copy_logs([str(source)], copy, records=True)
        was, now = opened(source, records=True), opened(copy, records=True)
        assert [f.to_json() for f in now.findings] == [f.to_json() for f in was.findings], seed
        assert run_report(now).summary["validation_failures"] == run_report(was).summary["validation_failures"]
        assert found(copy, records=False) == found(source, records=False), seed
        said |= {f.kind for f in was.findings}
        blamed += sum(bool(f.evidence.get("culprits")) for f in was.findings)
    assert said >= RULES
    assert blamed > 100


def test_a_copy_of_a_copy_has_what_that_one_has(tmp_path: Path) -> None:
    source = made(tmp_path / "source", 1)
    for records in (True, False):
        one, two = tmp_path / f"one-{records}", tmp_path / f"two-{records}"
        copy_logs([str(source)], one, records=records)
        copy_logs([str(one)], two, records=True)
        assert found(two) == found(one)
    assert found(tmp_path / "two-True") == found(source)


def test_a_copy_without_them_says_what_was_not_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a clean pass nor a count of nothing."""
    source, copy = corpora.unpack("healthy-41"), tmp_path / "copy"
    assert cli.main(["copy", str(source), "--out", str(copy), "--quiet"]) == 0
    words = ["audit", str(copy), "--records", "--master", "inline[1]", "--as-of", str(TIME), "--out"]
    assert cli.main([*words, str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not checked (copied without --records)" in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["verdict"]["tone"] == "unsure"
    assert summary["records_decoded"] is False
    assert None in summary["validation_failures"].values()
    assert [n for n in summary["notes"] if "auditor copy --records" in n]
    assert cli.main([*words, str(tmp_path / "out-2"), "--fail-on-unsure"]) == 1
    capsys.readouterr()
    assert cli.main(["copy", str(source), "--out", str(copy), "--records", "--quiet"]) == 0  # taken anew, with them
    assert cli.main([*words, str(tmp_path / "out-3"), "--fail-on-unsure"]) == 0
    summary = json.loads((tmp_path / "out-3" / "summary.json").read_text())
    assert (summary["verdict"]["tone"], summary["records_decoded"]) == ("good", True)
    assert not [n for n in summary["notes"] if "auditor copy --records" in n]


def test_what_was_taken_with_records_keeps_them(tmp_path: Path) -> None:
    """Whether or not a later copy asks for them: of what is as it was, of what grew, and of what is taken anew."""
    source, copy = made(tmp_path / "source", 7), tmp_path / "copy"
    copy_logs([str(source)], copy)
    assert found(copy) != found(source)
    assert copy_logs([str(source)], copy, records=True).kept == 0
    assert found(copy) == found(source)
    again = copy_logs([str(source)], copy)
    assert again.kept == again.segments == 2
    file = source / "broker-1" / "t-0" / NAME
    r, data, offset = random.Random(3), b"", 10_000
    for _ in range(30):
        one, count = odd_batch(r, offset)
        data, offset = data + one, offset + count
    with file.open("ab") as f:
        f.write(data)
    assert copy_logs([str(source)], copy).kept == 1
    assert found(copy) == found(source)
    (file.parent / f"{offset:020}.log").write_bytes(odd_batch(r, offset)[0])
    copy_logs([str(source)], copy, records=True)
    assert found(copy) == found(source)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    copy_logs([str(source)], copy)
    assert found(copy) == found(source)


def test_compressed_secrets_are_not_in_it(tmp_path: Path) -> None:
    secret = b"S3cret-0f-Somebody"
    folder = tmp_path / "in" / "broker-1" / "t-0"
    folder.mkdir(parents=True)
    data = b"".join(
        batch(
            compress(codec, b"".join(record(n, secret, secret, n, [(secret, secret)]) for n in range(3))), 3,
            base_offset=3 * codec, attributes=codec,
        )
        for codec in range(5)
    )  # fmt: skip
    (folder / NAME).write_bytes(data + batch(secret * 4, 3, base_offset=15))
    copy_logs([str(tmp_path / "in")], tmp_path / "copy", records=True)
    assert not finds(tmp_path / "copy", secret)
    assert finds(tmp_path / "copy", str(TIME + 2).encode())


HOSTILE: dict[str, Any] = {
    "too many": {"present": 2_000_000_000}, "negative": {"present": -1}, "cut": {"details": b"\1"},
    "long": {"details": b"\1\0" + bytes(99)}, "wide": {"details": b"\x10\0"}, "bits": {"details": b"\0\x08"},
    "closed": {"flaws": 4},
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_records_can_come_to_is_an_error_of_the_segment(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "in" / "broker-1" / "t-0"
    folder.mkdir(parents=True)
    (folder.parent.parent / "server.properties").write_text("node.id=1\nlog.cleanup.policy=compact\n")
    data = [batch(record(0, None, b"v") + record(1, b"k", b"v", 5), 2, base_offset=2 * n) for n in range(5)]
    (folder / NAME).write_bytes(b"".join(data))
    copy_logs([str(tmp_path / "in")], tmp_path / "copy", records=True)
    file = tmp_path / "copy" / "broker-1" / "t-0" / LIST
    table, change, said = pq.read_table(file), HOSTILE[what], listed(file.parent)
    names = {"present": "records_present", "flaws": "record_flaws", "details": "record_details"}
    for name, value in change.items():
        at = table.schema.get_field_index(names[name])
        table = table.set_column(at, table.schema.field(at), pa.array([value] * 5, table.schema.field(at).type))
    rewritten(file.parent, table, said)
    for records, errors in ((True, ["unreadable"]), (False, [])):
        (log,) = opened(tmp_path / "copy", records=records).judged["log"]
        assert [error["reason"] for error in log["errors"]] == errors
