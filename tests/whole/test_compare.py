"""``auditor compare`` over directories made different by a test, which knows each record on both sides."""

from __future__ import annotations

import datetime
import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import auditor
from auditor import cli
from auditor.dashboards.comparison_page import comparison_page
from auditor.dashboards.table_lines import comparison_counts, comparison_lines
from auditor.pipeline import compared_records, comparison
from auditor.replay.reading import record_sums
from tests import bare_broker, corpora, segments
from tests.bare_broker import BEGAN
from tests.compared import LOG_APPEND_TIME, Directory, Sent, compared, places, sent
from tests.facts import opened
from tests.forge import TRANSACTIONAL, Batch

ALL = range(90)


def one(root: Path, *records: list[Sent], start: int = 0, **header: int) -> Path:
    """A directory with one topic of one partition."""
    made = Directory(root, "t-0", start=start)
    for some in records:
        made.write("t-0", some, **header)
    return made.save()


@pytest.mark.parametrize("name", ["healthy-41", "healthy-28", "replicas-41", "tiered-43", "skipped-marker-43"])
def test_an_input_is_equal_to_itself(name: str) -> None:
    done = compared(corpora.unpack(name), corpora.unpack(name))
    assert [row for row in done.rows if row["kind"] != "group_right"] == []
    assert done.records[0] == done.records[1] > 0


@pytest.mark.parametrize("name", ["lag-rolls-43", "tiered-43"])
def test_a_task_for_each_segment_makes_no_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(corpora.unpack(name), corpora.unpack(name))
    monkeypatch.setattr(compared_records, "MOST_BYTES", 1)
    apart = compared(corpora.unpack(name), corpora.unpack(name))
    assert apart == whole


def test_a_segment_that_a_backup_lacks_is_found(tmp_path: Path) -> None:
    """Of each partition with several: its records are missing, and nothing of any other partition."""
    backup = tmp_path / "backup"
    shutil.copytree(corpora.unpack("lag-rolls-43"), backup)
    logs = {path.parent for path in backup.rglob("*.log") if not path.parent.name.startswith("__")}
    cut = next(log for log in sorted(logs) if len([*log.glob("*.log")]) > 2)
    second = sorted(cut.glob("*.log"))[1]
    for file in cut.glob(f"{second.stem}.*"):
        file.unlink()
    done = compared(corpora.unpack("lag-rolls-43"), backup)
    assert {f"{row['topic']}-{row['partition']}" for row in done.rows if not row["group_id"]} == {cut.name}
    assert min(row["first_offset"] for row in done.rows if row["kind"] == "missing") == int(second.stem)


def test_other_batches_and_offsets_make_no_difference(tmp_path: Path) -> None:
    """As a mirror writes them: in larger batches, and from another offset on."""
    a = one(tmp_path / "a", sent(*ALL))
    b = Directory(tmp_path / "c", "t-0", start=1000)
    b.write("t-0", sent(*ALL), 45)
    done = compared(a, b.save())
    assert (done.rows, done.records) == ([], (90, 90))


def test_missing_records_are_named_on_both_sides(tmp_path: Path) -> None:
    """Three ranges; around each, B has the records at the offsets that arithmetic gives."""
    lost = {*range(10, 15), 30, *range(60, 70)}
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*(n for n in ALL if n not in lost)))
    done = compared(a, b)
    assert places(done) == [
        ("missing", 0, 10, 14, 9, 10, 5),
        ("missing", 0, 30, 30, 24, 25, 1),
        ("missing", 0, 60, 69, 53, 54, 10),
    ]
    assert done.differs
    assert [(row["first_at"], row["last_at"]) for row in done.rows][2] == (BEGAN + 600, BEGAN + 690)


def test_the_end_that_b_lacks_is_behind(tmp_path: Path) -> None:
    done = compared(one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*range(80))))
    assert places(done) == [("behind", 0, 80, 89, 79, None, 10)]
    assert done.differs


def test_records_sent_again_are_duplicated(tmp_path: Path) -> None:
    """A mirror that was killed goes on some records earlier; later it repeats others."""
    b = one(tmp_path / "b", sent(*range(50)), sent(*range(40, 90)), sent(5, 6))
    done = compared(one(tmp_path / "a", sent(*ALL)), b)
    assert places(done) == [("duplicated", 0, 5, 6, 100, 101, 2), ("duplicated", 0, 40, 49, 50, 59, 10)]


def test_records_in_another_order(tmp_path: Path) -> None:
    b = one(tmp_path / "b", sent(*range(20)), sent(*range(25, 60)), sent(*range(20, 25)), sent(*range(60, 90)))
    done = compared(one(tmp_path / "a", sent(*ALL)), b)
    assert places(done) == [("out_of_order", 0, 20, 24, 55, 59, 5)]


def test_values_that_changed_by_key_time_and_by_place(tmp_path: Path) -> None:
    records = sent(*ALL)
    records[10] = records[10]._replace(value=b"other")
    records[50] = Sent(b"other key", b"other value", 3)
    done = compared(one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", records))
    assert places(done) == [("changed", 0, 10, 10, 10, 10, 1), ("changed", 0, 50, 50, 50, 50, 1)]


def test_records_that_only_b_has(tmp_path: Path) -> None:
    b = one(tmp_path / "b", sent(*range(30)), sent(1000, 1001), sent(*range(30, 90)))
    done = compared(one(tmp_path / "a", sent(*ALL)), b)
    assert places(done) == [("extra", 0, 29, 30, 30, 31, 2)]


def test_null_and_empty_differ(tmp_path: Path) -> None:
    a = one(tmp_path / "a", [Sent(b"k", None, BEGAN), Sent(None, b"v", BEGAN + 1), Sent(b"", b"", BEGAN + 2)])
    b = one(tmp_path / "b", [Sent(b"k", b"", BEGAN), Sent(b"", b"v", BEGAN + 1), Sent(b"", b"", BEGAN + 2)])
    assert [row["kind"] for row in compared(a, b).rows] == ["missing", "changed", "extra"]
    assert compared(a, a).rows == []


def test_aborted_and_open_transactions_are_no_part_of_it(tmp_path: Path) -> None:
    """What read_committed consumers get of A is what a mirror should have."""
    a = Directory(tmp_path / "a", "t-0")
    a.transaction("t-0", sent(1, 2, 3), commit=True)
    a.transaction("t-0", sent(4, 5, 6), commit=False)
    a.write("t-0", sent(7, 8))
    a.write("t-0", sent(9, 10), 2, producer_id=8, epoch=0, sequence=0, attributes=0x10)  # open
    a.write("t-0", sent(11))  # above the last stable offset
    path = a.save()
    assert compared(path, one(tmp_path / "b", sent(1, 2, 3, 7, 8))).rows == []
    done = compared(path, one(tmp_path / "c", sent(*range(1, 9))))
    assert places(done) == [("extra", 0, 2, 8, 3, 5, 3)]


def interleaved(root: Path, seed: int) -> tuple[Path, list[Sent]]:
    """A log of three producers' transactions and of plain batches; the records that read_committed consumers get."""
    draw, made = random.Random(seed), Directory(root, "t-0")
    begun: dict[int, list[tuple[Batch, list[Sent], int]]] = {}
    seen: list[tuple[int, list[Sent]]] = []
    for n in range(0, 3 * 40, 3):
        some, producer = sent(*range(n, n + draw.randint(1, 3))), draw.choice([-1, 7, 8, 9])
        if producer >= 0 and producer in begun and draw.random() < 0.4:
            commit, data = draw.random() < 0.6, begun.pop(producer)
            bare_broker.end(made.logs["t-0"], data[0][0], commit, some[0].time)
            seen += [(offset, of) for _, of, offset in data if commit]
        elif producer >= 0:
            sequence = sum(len(of) for _, of, _ in begun.get(producer, ()))
            header = {"producer_id": producer, "epoch": 0, "sequence": sequence, "attributes": TRANSACTIONAL}
            (batch,) = made.write("t-0", some, **header)
            begun.setdefault(producer, []).append((batch, some, batch.last - len(some) + 1))
        else:
            (batch,) = made.write("t-0", some)
            seen.append((batch.last - len(some) + 1, some))
    stable = min((data[0][2] for data in begun.values()), default=1 << 60)
    return made.save(), [record for offset, of in sorted(seen) if offset < stable for record in of]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_equal_is_read_once_whatever_its_transactions(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audits have summed it. With too many transactions for that it is read again, and is equal too."""
    path, records = interleaved(tmp_path / "a", seed)
    copy, lacks = one(tmp_path / "b", records), one(tmp_path / "c", [*records[:5], *records[6:]])
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "sum_rows", None)
        assert compared(path, copy).rows == []
    monkeypatch.setattr(record_sums, "MOST_RUNS", 2)
    done = compared(path, copy)
    assert (done.rows, done.records) == ([], (len(records), len(records)))
    assert [(row["kind"], row["records"]) for row in compared(path, lacks).rows] == [("missing", 1)]


def test_records_behind_later_offsets_are_not_passed_over(tmp_path: Path) -> None:
    """Damage: a batch at or above the last stable offset, and behind it one below. Consumers get the records below."""
    path = tmp_path / "a"
    a = Directory(path, "t-0")
    a.write("t-0", sent(*range(10)), 10)
    a.write("t-0", sent(20, 21), 2, producer_id=8, epoch=0, sequence=0, attributes=TRANSACTIONAL)  # open
    a.write("t-0", sent(22, 23), 2)
    a.write("t-0", sent(10, 11), 2, base_offset=8)
    saved = a.save()
    sums = compared(saved, saved)
    again = compared(saved, one(tmp_path / "b", sent(*range(10), 10, 11)))
    assert (sums.records[0], again.rows, again.records) == (12, [], (12, 12))


def test_times_that_the_broker_sets_are_explained(tmp_path: Path) -> None:
    """With LogAppendTime records count by key and value alone, and may be equal to each other."""
    records = [Sent(None, b"alike", BEGAN)] * 20 + sent(*range(10))
    later = [record._replace(time=record.time + 5000) for record in records]
    a = one(tmp_path / "a", records)
    done = compared(a, one(tmp_path / "b", later, attributes=LOG_APPEND_TIME))
    assert ([row["kind"] for row in done.rows], done.differs) == (["timestamps"], False)
    assert done.rows[0]["records"] == 30
    done = compared(a, one(tmp_path / "c", later[1:], attributes=LOG_APPEND_TIME))
    assert [(row["kind"], row["records"]) for row in done.rows if row["differs"]] == [("missing", 1)]


def test_times_that_a_tool_rewrote_are_explained(tmp_path: Path) -> None:
    later = [record._replace(time=record.time + 5000) for record in sent(*ALL) if record.time != BEGAN + 70]
    done = compared(one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", later))
    assert places(done, "missing") == [("missing", 0, 7, 7, 6, 7, 1)]
    assert [row["kind"] for row in done.rows] == ["missing", "timestamps"]


def test_headers_of_a_tool_are_explained_and_others_differ(tmp_path: Path) -> None:
    more = [record._replace(headers=((b"source", b"a"),)) for record in sent(*ALL)]
    a = one(tmp_path / "a", sent(*ALL))
    done = compared(a, one(tmp_path / "b", more))
    assert ([(row["kind"], row["records"]) for row in done.rows], done.differs) == ([("tool_headers", 90)], False)
    done = compared(a, one(tmp_path / "c", sent(*range(80)) + more[80:]))
    assert ([(row["kind"], row["records"]) for row in done.rows], done.differs) == ([("headers", 10)], True)


def test_headers_are_counted_once_and_of_matching_records_alone(tmp_path: Path) -> None:
    """Records are shifted on one side, equal to their neighbours but for headers, and others have other headers."""
    traced = [Sent(b"x", b"x", BEGAN + 5, ((b"trace", bytes([n])),)) for n in range(2)]
    first = Sent(b"e", b"e", BEGAN)
    rest = sent(*range(10, 40))
    changed = [record._replace(headers=((b"h", b"1"),)) if n in (3, 4, 20) else record for n, record in enumerate(rest)]
    a = one(tmp_path / "a", [first, *traced, *rest])
    assert [row["kind"] for row in compared(a, one(tmp_path / "b", [*traced, *rest])).rows] == ["missing"]
    done = compared(a, one(tmp_path / "c", [first, *traced, *changed[:9], *changed[10:]]))
    assert [(row["kind"], row["records"]) for row in done.rows] == [("missing", 1), ("headers", 3)]
    assert all(type(row["records"]) is int for row in done.rows)


def test_what_retention_deleted_first_is_explained(tmp_path: Path) -> None:
    """Records before the log start of the other side may have been deleted there."""
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*range(30, 90)), start=30)
    assert places(compared(a, b)) == [("expired", 0, 0, 29, None, 30, 30)]
    assert not compared(a, b).differs
    assert places(compared(b, a)) == [("expired", 0, None, 30, 0, 29, 30)]
    late = one(tmp_path / "c", sent(*range(30, 90)))
    assert places(compared(a, late)) == [("missing", 0, 0, 29, None, 0, 30)]


def test_different_numbers_of_partitions_by_key(tmp_path: Path) -> None:
    """Records of a key are in one partition on each side; order counts by key."""
    records = [Sent(b"key-%d" % (n % 6), b"value-%d" % n, BEGAN + n) for n in ALL]
    a = Directory(tmp_path / "a", "t-0")
    a.only_partition("t")
    a.write("t-0", records)
    b = Directory(tmp_path / "b", "t-0", "t-1")
    for partition in (0, 1):
        b.write(f"t-{partition}", [r for n, r in enumerate(records) if n % 2 == partition and n not in (8, 20)])
    done = compared(a.save(), b.save())
    assert [(row["kind"], row["partition"], row["first_offset"]) for row in done.rows] == [
        ("missing", 0, 8),
        ("missing", 0, 20),
    ]


def test_order_by_key_across_partitions(tmp_path: Path) -> None:
    records = [Sent(b"key-%d" % (n % 6), b"value-%d" % n, BEGAN + n) for n in ALL]
    a = Directory(tmp_path / "a", "t-0")
    a.only_partition("t")
    a.write("t-0", records)
    b = Directory(tmp_path / "b", "t-0", "t-1")
    for partition in (0, 1):
        some = [r for n, r in enumerate(records) if n % 2 == partition]
        if partition == 0:
            some[0], some[3] = some[3], some[0]  # numbers 0 and 6, of one key
        b.write(f"t-{partition}", some)
    done = compared(a.save(), b.save())
    assert [(row["kind"], row["first_offset"], row["other_first_offset"]) for row in done.rows] == [
        ("out_of_order", 6, 0)
    ]


def test_a_topic_that_a_mirror_renamed(tmp_path: Path) -> None:
    a = one(tmp_path / "a", sent(*ALL))
    b = Directory(tmp_path / "b", "west.t-0", "unrelated-0")
    b.write("west.t-0", sent(*ALL))
    assert compared(a, b.save()).rows == []
    done = compared(a, b.path, topic_map={"t": "unrelated"})
    assert [(row["kind"], row["records"]) for row in done.rows] == [("missing", 90)]


def test_copies_without_payload_that_were_prepared(tmp_path: Path) -> None:
    """Copies with sums under one key compare as their directories do; others are unread."""
    lost = [n for n in ALL if not 40 <= n < 45]
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*lost))
    copies = {}
    for name, path in (("a", a), ("b", b)):
        for number in (1, 2):
            key = tmp_path / f"key-{number}"
            key.write_bytes(bytes([number]) * 32)
            copies[name, number] = tmp_path / f"copy-{name}-{number}"
            for _ in range(2):  # a second run changes nothing
                words = ["copy", str(path), "--out", str(copies[name, number]), "--records", "--sum-key", str(key)]
                assert cli.main([*words, "--quiet"]) == 0
    rows = compared(a, b).rows
    assert places(compared(a, b)) == [("missing", 0, 40, 44, 39, 40, 5)]
    for ours, theirs in ((copies["a", 1], copies["b", 1]), (copies["a", 1], b), (a, copies["b", 1])):
        done = compared(ours, theirs, key=bytes([1]) * 32)
        assert (done.rows, done.incomplete) == (rows, False)
    other = compared(copies["a", 1], copies["b", 2], key=bytes([1]) * 32)
    assert (other.incomplete, {row["kind"] for row in other.rows}) == (True, {"missing", "unread"})
    assert not other.differs
    plain = tmp_path / "plain"
    assert cli.main(["copy", str(a), "--out", str(plain), "--quiet"]) == 0
    assert compared(plain, b).incomplete
    stored = b"".join(f.read_bytes() for f in copies["a", 1].rglob("*") if f.is_file())
    assert b"value-7" not in stored
    assert b"key-7" not in stored
    found = [published_findings(path) for path in (a, copies["a", 1], plain)]
    assert found[0] == found[1] == found[2]
    assert opened(copies["a", 1], include_payload=True).table("records").num_rows == 0


def published_findings(path: Path) -> list[tuple[str, str]]:
    return [(f.rule, f.message) for f in opened(path).findings]


@pytest.mark.parametrize("seed", range(12))
def test_random_differences_add_up(seed: int, tmp_path: Path) -> None:
    """Ranges are removed, repeated and moved; a third of the records are alike. Counts are arithmetic."""
    draw = random.Random(seed)
    records = [Sent(b"k", b"v%d" % (n % 40), BEGAN) if n % 3 == 0 else sent(n)[0] for n in range(240)]
    theirs = list(records)
    for _ in range(draw.randrange(5)):
        begin = draw.randrange(len(theirs))
        some = theirs[begin : begin + draw.randrange(1, 12)]
        what = draw.choice(("remove", "repeat", "move"))
        if what != "repeat":
            del theirs[begin : begin + len(some)]
        if what != "remove":
            to = draw.randrange(len(theirs))
            theirs[to:to] = some
    done = compared(one(tmp_path / "a", records), one(tmp_path / "b", theirs))
    ours, other = Counter(records), Counter(theirs)
    sums = Counter[str]()
    for row in done.rows:
        sums[row["kind"]] += row["records"]
    assert sums["missing"] + sums["behind"] == (ours - other).total()
    assert sums["duplicated"] == (other - ours).total()
    assert sums["extra"] == sums["changed"] == 0
    assert done.differs == (records != theirs) or ours == other


def test_a_compacted_topic_explains_what_later_records_replace(tmp_path: Path) -> None:
    """Key 1 has a later record and key 3 is deleted; key 2 has no later one."""
    settings = "log.cleanup.policy=compact\n"
    records = [Sent(b"1", b"old", 10), Sent(b"2", b"only", 20), Sent(b"3", None, 30), Sent(b"1", b"new", 40)]
    records = [record._replace(time=BEGAN + record.time) for record in [*records, Sent(b"4", b"end", 50)]]
    paths = []
    for name, some in (("a", records), ("b", [records[3], records[4]])):
        made = Directory(tmp_path / name, "t-0", settings=settings)
        (made.path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        made.write("t-0", some, 1)
        paths.append(made.save())
    done = compared(*paths)
    assert sorted(row["kind"] for row in done.rows) == ["compacted", "compacted", "missing"]
    assert places(done, "missing") == [("missing", 0, 1, 1, None, 0, 1)]


def cleaned(records: list[Sent], draw: random.Random) -> list[Sent]:
    """What a cleaner leaves that went to some record: the last ones of each key, and some tombstones."""
    end = draw.randrange(len(records) + 1)
    last = {record.key: n for n, record in enumerate(records[:end])}
    return [
        r for n, r in enumerate(records)
        if n >= end or (last[r.key] == n and (r.value is not None or draw.random() < 0.5))
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_cleaners_that_ran_at_different_moments_are_explained_and_losses_are_not(tmp_path: Path, seed: int) -> None:
    """A record that is the last of its key in the log is never removed by a cleaner, unless it is a tombstone; nor is a
    tombstone of a key of which an older record is left."""
    draw = random.Random(seed)
    whole = [Sent(b"%d" % draw.randrange(12), None if draw.random() < 0.3 else b"%d" % n, BEGAN + n) for n in range(60)]
    kept = cleaned(whole, draw)

    def written(name: str, records: list[Sent]) -> Path:
        made = Directory(tmp_path / name, "t-0", settings="log.cleanup.policy=compact\n")
        (made.path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        made.write("t-0", records, 1)
        return made.save()

    a, b = written("a", whole), written("b", kept)
    for one, other in ((a, b), (b, a), (b, written("c", cleaned(whole, draw)))):
        assert {row["kind"] for row in compared(one, other).rows} <= {"compacted"}
    last = {record.key: n for n, record in enumerate(whole)}
    for number, (key, n) in enumerate(draw.sample(sorted(last.items()), 4)):
        stale = [r for r in kept if r != whole[n] and (r.key != key or whole[n].value is None)]
        if whole[n] not in kept or (whole[n].value is None and all(r.key != key for r in stale)):
            continue
        done = compared(a, written(f"lost-{number}", stale))
        assert done.differs
        assert whole[n].time in [row["last_at"] for row in done.rows if row["differs"]]


def test_a_late_part_of_a_partition_that_consumers_do_not_get_yet_is_not_called_lost(tmp_path: Path) -> None:
    a, b = Directory(tmp_path / "a", "t-0"), Directory(tmp_path / "b", "t-0")
    for side in (a, b):
        side.write("t-0", sent(*range(30)))
    a.transaction("t-0", sent(*range(30, 40)), commit=True)
    header = {"producer_id": 7, "epoch": 0, "sequence": 0, "attributes": 0x10}
    b.write("t-0", sent(*range(30, 40)), 10, **header)
    (row,) = compared(a.save(), b.save()).rows
    assert (row["kind"], row["first_offset"], row["records"]) == ("behind", 30, 10)
    assert "from offset 30 on" in row["note"]


def test_a_batch_whose_length_is_damaged_is_no_all_clear(tmp_path: Path) -> None:
    """No consumer gets past it, though its records and those behind can be read here."""
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*ALL))
    file = next((b / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    data[size + 9] ^= 0x20  # of the second batch, of offsets 3 to 5
    file.write_bytes(data)
    done = compared(a, b)
    assert (done.incomplete, done.differs) == (True, False)
    (row,) = done.rows
    assert (row["kind"], row["other_first_offset"], row["other_last_offset"]) == ("unread", 3, 89)


@pytest.mark.parametrize("has_times", [True, False])
@pytest.mark.parametrize(("retention_ms", "kind"), [(60_000, "expired"), (-1, "missing"), (7 * 86_400_000, "missing")])
def test_retention_explains_only_what_it_can_delete(
    tmp_path: Path, retention_ms: int, kind: str, has_times: bool
) -> None:
    """The records are older than a minute, and younger than a week. Without times, they are of any age."""
    kind = "expired" if retention_ms > 0 and not has_times else kind
    settings = f"log.retention.ms={retention_ms}\n"
    made = []
    for name, numbers, start in (("a", ALL, 0), ("b", range(30, 90), 30)):
        side = Directory(tmp_path / name, "t-0", start=start, settings=settings)
        for log in side.logs.values():
            (log.folder.parent / "log-start-offset-checkpoint").write_text("0\n0\n")
        side.only_partition("t")
        records = sent(*numbers)
        side.write("t-0", records if has_times else [record._replace(time=-1) for record in records])
        side.controller.go_on(BEGAN + 3_600_000)
        made.append(side.save().parent)  # with the broker's file of settings
    (row,) = compared(*made).rows
    assert (row["kind"], row["records"], row["differs"]) == (kind, 30, kind == "missing")


def test_a_topic_of_a_without_segment_files_is_inconclusive(tmp_path: Path) -> None:
    """Whether its directories are there without them, or the metadata alone names it."""
    a, b = Directory(tmp_path / "a", "t-0", "u-0"), Directory(tmp_path / "b", "t-0", "u-0")
    a.only_partition("u")
    for side in (a, b):
        for folder in ("t-0", "u-0"):
            side.write(folder, sent(*ALL))
    path, other = a.save(), b.save()
    assert compared(path, other).rows == []
    next((path / "u-0").glob("*.log")).unlink()
    for _ in range(2):
        for against in (other, path):
            done = compared(path, against)
            assert (done.incomplete, done.records[0]) == (True, 90)
            assert ("unread", "u") in {(row["kind"], row["topic"]) for row in done.rows}
        shutil.rmtree(path / "u-0", ignore_errors=True)


def test_records_of_old_formats_equal_themselves() -> None:
    done = compared(corpora.unpack("legacy-0102"), corpora.unpack("legacy-0102"))
    assert ({row["kind"] for row in done.rows}, done.incomplete) == ({"group_right"}, False)


def test_unreadable_records_are_inconclusive(tmp_path: Path) -> None:
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*ALL))
    file = next((b / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[data.index(b"value-45")] ^= 0xFF
    file.write_bytes(data)
    done = compared(a, b)
    assert (done.incomplete, done.differs) == (True, False)
    assert {row["kind"] for row in done.rows} == {"unread", "missing"}
    assert sum(row["records"] or 0 for row in done.rows) == 3


def test_records_that_cannot_be_decompressed_are_inconclusive(tmp_path: Path) -> None:
    """The checksum is right: the producer, or the limit of decompression, is to blame."""
    b = Directory(tmp_path / "b", "t-0")
    b.write("t-0", sent(*ALL[:45]))
    log = b.logs["t-0"]
    log.append(Batch(segments.batch(b"no gzip", 3, base_offset=log.end, attributes=1)))
    b.write("t-0", sent(*ALL[48:]))
    done = compared(one(tmp_path / "a", sent(*ALL)), b.save())
    assert (done.incomplete, done.differs) == (True, False)
    assert [(row["kind"], row["records"]) for row in done.rows] == [("missing", 3), ("unread", None)]


def test_damaged_metadata_is_inconclusive(tmp_path: Path) -> None:
    """It may have said that a topic has more partitions, or is compacted."""
    a, b = (Directory(tmp_path / name, "t-0") for name in ("a", "b"))
    for side in (a, b):
        side.write("t-0", sent(*ALL))
        side.only_partition("t")
    paths = a.save(), b.save()
    assert compared(*paths).rows == []
    file = next((paths[1] / "__cluster_metadata-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[-5] ^= 0xFF
    file.write_bytes(data)
    done = compared(*paths)
    assert (done.incomplete, done.differs) == (True, False)
    assert ("unread", "__cluster_metadata") in {(row["kind"], row["other_topic"]) for row in done.rows}


def test_sums_of_a_kind_do_not_mix_what_is_proved_with_what_is_not(tmp_path: Path) -> None:
    """B lacks records of partition 1, and the directory of partition 0."""
    a, b = Directory(tmp_path / "a", "t-0", "t-1"), Directory(tmp_path / "b", "t-1")
    a.write("t-0", sent(*range(30, 60)))
    a.write("t-1", sent(*range(30)))
    b.write("t-1", sent(*range(10), *range(12, 30)))
    done = compared(a.save(), b.save())
    counts = {key: count["records"] for key, count in comparison_counts(done.rows).items()}
    assert counts == {("missing", ""): 2, ("missing", "inconclusive"): 30, ("unread", "inconclusive"): None}
    text = "".join(comparison_lines(done.shown, done.partitions, done.records, done.incomplete))
    assert "\nA and B differ; part of the input was not read.\nmissing: 2 records in 1 range\n" in text


def test_files_that_change_while_they_are_read_are_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that a partition has when it is summed, and no more when it is read again."""
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*ALL[:30], *ALL[33:]))
    file = next((b / "t-0").glob("*.log"))
    take = comparison._Comparing._take

    def cut(*given: Any) -> Any:
        with file.open("r+b") as f:
            f.truncate(file.stat().st_size // 2)
        return take(*given)

    monkeypatch.setattr(comparison._Comparing, "_take", cut)
    done = compared(a, b)
    assert (done.incomplete, done.differs) == (True, False)
    assert comparison.CHANGED in {row["note"] for row in done.rows}


def test_the_end_that_checkpoints_promise_is_unread(tmp_path: Path) -> None:
    """Of A: its records are not known, so they are not called extra in B. Of both: they are not called equal."""
    whole, paths = one(tmp_path / "whole", sent(*ALL)), []
    for name in ("a", "b"):
        path = one(tmp_path / name, sent(*ALL))
        log = next((path / "t-0").glob("*.log"))
        log.write_bytes(log.read_bytes()[: log.stat().st_size - 10])  # the last batch, of records 87 to 89
        paths.append(path)
    for b, kinds in ((whole, ["extra", "unread"]), (paths[1], ["unread", "unread"])):
        done = compared(paths[0], b)
        assert ([row["kind"] for row in done.rows], done.incomplete, done.differs) == (kinds, True, False)
        assert {(row["first_offset"], row["last_offset"]) for row in done.rows if row["first_offset"]} >= {(87, 89)}


def test_a_loss_beside_what_was_not_read_is_proved(tmp_path: Path) -> None:
    """B lacks records between two that match, and elsewhere it is damaged or its end is missing."""
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*range(30), *range(36, 90)))
    file = next((b / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[data.index(b"value-60")] ^= 0xFF
    file.write_bytes(data[:-10])
    done = compared(a, b)
    kinds = [(row["kind"], row["first_offset"], row["records"]) for row in done.rows if row["kind"] != "unread"]
    assert kinds == [("missing", 30, 6), ("missing", 60, 3), ("behind", 87, 3)]
    assert ([row["differs"] for row in done.rows], done.incomplete) == ([True, False, False, False, False], True)


def test_which_of_equal_records_is_lacking_is_not_known(tmp_path: Path) -> None:
    """One is in a batch of B that is damaged, another one further on matches: what B lacks behind is all it lacks."""
    alike = sent(3)
    records = [*sent(*range(30)), *alike, *sent(*range(30, 60)), *alike, *sent(*range(60, 90))]
    a, b = (
        one(tmp_path / "a", records),
        one(tmp_path / "b", [record for record in records if record.value != b"value-80"]),
    )
    file = next((b / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[data.index(b"value-3", data.index(b"value-29"))] ^= 0xFF
    file.write_bytes(data)
    proved = [(row["kind"], row["first_offset"], row["records"]) for row in compared(a, b).rows if row["differs"]]
    assert proved == [("missing", 82, 1)]


def test_segments_in_remote_storage_that_are_not_in_the_input_are_unread(tmp_path: Path) -> None:
    """Whichever side they are of; with them, every record is there."""
    whole, local = corpora.unpack("tiered-43"), tmp_path / "local"
    shutil.copytree(whole / "broker-1", local / "broker-1")
    for a, b in ((local, local), (local, whole), (whole, local)):
        done = compared(a, b)
        assert (done.incomplete, done.differs) == (True, False)
        lost = sum(row["records"] or 0 for row in done.rows if row["kind"] in ("missing", "extra"))
        assert lost == abs(done.records[0] - done.records[1])


def test_a_segment_that_the_source_lacks_is_unread(tmp_path: Path) -> None:
    """A backup without it is equal to its source, which is no answer to whether the backup has everything."""
    for name in ("a", "b"):
        side = Directory(tmp_path / name, "t-0")
        log = side.logs["t-0"]
        for first in (0, 30, 60):
            log.segments.setdefault(first, [])
            log.tails.setdefault(first, b"")
            side.write("t-0", sent(*range(first, first + 30)))
        side.save()
        (log.folder / f"{30:020}.log").unlink()
    done = compared(tmp_path / "a", tmp_path / "b")
    assert [(row["kind"], row["first_offset"], row["last_offset"]) for row in done.rows] == [("unread", 30, 59)]


@pytest.mark.parametrize("name", ["__mine", "my.heartbeats"])
def test_topics_with_the_names_of_others_are_compared(tmp_path: Path, name: str) -> None:
    """Only Kafka's own topics are skipped, and MirrorMaker's where nobody names them."""
    a, b = (Directory(tmp_path / side, f"{name}-0") for side in ("a", "b"))
    a.write(f"{name}-0", sent(*range(30)))
    b.write(f"{name}-0", sent(*range(10)))
    assert [(row["kind"], row["records"]) for row in compared(a.save(), b.save(), [name]).rows] == [("behind", 20)]


def test_an_empty_partition_is_read(tmp_path: Path) -> None:
    """Without metadata too."""
    a, b = one(tmp_path / "a", sent(*ALL)), Directory(tmp_path / "b", "t-0")
    (b.path / "t-0" / f"{0:020}.log").touch()
    done = compared(a, b.path)
    assert ([row["kind"] for row in done.rows], done.incomplete) == (["missing"], False)


@pytest.mark.parametrize(("start", "kind"), [(30, "expired"), (27, "missing"), (29, "missing")])
def test_retention_does_not_explain_what_follows_the_log_start(tmp_path: Path, start: int, kind: str) -> None:
    """Both have the same offsets, and B lacks those from 30 to below 30, 27 or 29."""
    a, b = one(tmp_path / "a", sent(*ALL)), Directory(tmp_path / "b", "t-0", start=start)
    b.write("t-0", sent(*range(30, 90)), 60, base_offset=30)
    (row,) = compared(a, b.save()).rows
    assert (row["kind"], row["records"], row["differs"]) == (kind, 30, kind == "missing")


def test_a_topic_that_is_only_compacted_never_expires(tmp_path: Path) -> None:
    made = []
    for name, numbers, start in (("a", ALL, 0), ("b", range(30, 90), 30)):
        side = Directory(tmp_path / name, "t-0", start=start, settings="log.cleanup.policy=compact\n")
        side.only_partition("t")
        side.write("t-0", sent(*numbers))
        side.controller.go_on(BEGAN + 30 * 86_400_000)
        made.append(side.save().parent)
    assert [(row["kind"], row["records"]) for row in compared(*made).rows] == [("missing", 30)]


def test_an_aborted_batch_says_nothing_about_timestamps(tmp_path: Path) -> None:
    """A broker set those of the aborted records alone."""
    a = Directory(tmp_path / "a", "t-0")
    (batch,) = a.write("t-0", sent(1, 2), 2, producer_id=7, epoch=0, sequence=0,
                       attributes=TRANSACTIONAL | LOG_APPEND_TIME)  # fmt: skip
    bare_broker.end(a.logs["t-0"], batch, False, BEGAN + 30)
    a.write("t-0", sent(*range(4, 30)))
    later = [record._replace(time=record.time + 1) for record in sent(7, 8)]
    b = one(tmp_path / "b", sent(4, 5, 6), later, sent(*range(9, 30)))
    assert [(row["kind"], row["records"]) for row in compared(a.save(), b).rows] == [("changed", 2)]


def test_partitions_that_are_not_in_the_input_are_inconclusive(tmp_path: Path) -> None:
    """B's directory has partition 1 and no partition 0: another broker may have it."""
    a, b = Directory(tmp_path / "a", "t-0", "t-1"), Directory(tmp_path / "b", "t-1")
    a.write("t-0", sent(*range(30)))
    for side in (a, b):
        side.write("t-1", sent(*range(30, 60)))
    done = compared(a.save(), b.save())
    assert (done.incomplete, done.differs) == (True, False)
    assert [(row["kind"], row["records"], row["other_partition"]) for row in done.rows] == [
        ("missing", 30, 0),
        ("unread", None, 0),
    ]
    about = done.shown, done.partitions, done.records, done.incomplete
    for text in ("".join(comparison_lines(*about)), comparison_page(*about, ("a", "b"))):
        assert "Inconclusive: part of the input was not read" in text
        assert "(inconclusive)" in text
        assert not re.search("No (unexplained )?differences|explained", text)


@pytest.mark.parametrize("named", [True, False])
def test_last_partitions_that_nothing_names_are_inconclusive(tmp_path: Path, named: bool) -> None:
    """Without metadata, the directory of another broker may have them; with it, the topic has no more."""
    a, b = Directory(tmp_path / "a", "t-0", "t-1"), Directory(tmp_path / "b", "t-0")
    for folder, numbers in (("t-0", range(30)), ("t-1", range(30, 60))):
        a.write(folder, sent(*numbers))
    b.write("t-0", sent(*range(30)))
    if named:
        b.only_partition("t")
    done = compared(a.save(), b.save())
    assert (done.incomplete, done.differs) == (not named, named)
    kinds = [(row["kind"], row["records"], row["other_partition"]) for row in done.rows if row["kind"] == "unread"]
    assert kinds == [] if named else [("unread", None, None)]
    assert sum(row["records"] for row in done.rows if row["kind"] == "missing") == 30


@pytest.mark.parametrize("named", [True, False])
def test_a_topic_that_nothing_names_is_inconclusive(tmp_path: Path, named: bool) -> None:
    a, b = Directory(tmp_path / "a", "t-0", "u-0"), Directory(tmp_path / "b", "t-0")
    for side, folders in ((a, ("t-0", "u-0")), (b, ("t-0",))):
        for folder in folders:
            side.write(folder, sent(*ALL))
    if named:
        b.only_partition("t")
    done = compared(a.save(), b.save())
    assert (done.incomplete, done.differs) == (not named, named)
    assert [(row["kind"], row["topic"]) for row in done.rows] == [("no_topic" if named else "unread", "u")]


def test_no_rows_of_an_input_that_was_not_read_whole_are_no_all_clear() -> None:
    about: tuple[list[dict[str, Any]], int, tuple[int, int], bool] = ([], 1, (5, 5), True)
    for text in ("".join(comparison_lines(*about)), comparison_page(*about, ("a", "b"))):
        assert "Inconclusive" in text
        assert "ifferences" not in text
        assert "All records" not in text


@pytest.mark.parametrize("name", ["broker-1", "broker-2", "broker-3"])
def test_one_broker_of_a_cluster_is_no_difference(name: str) -> None:
    """A broker leads and follows some partitions, and the metadata that it has names all."""
    cluster = corpora.unpack("unclean-43")
    done = compared(cluster, cluster / f"{name}a")
    assert (done.incomplete, done.differs) == (True, False)


def test_committed_offsets_of_groups(tmp_path: Path) -> None:
    """A corpus against itself: each group continues with the same record."""
    path = corpora.unpack("healthy-41")
    rows = [row for row in compared(path, path).rows if row["group_id"]]
    assert {row["kind"] for row in rows} == {"group_right"}
    assert rows


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit codes, formats, the page and the API."""
    a, b = one(tmp_path / "a", sent(*ALL)), one(tmp_path / "b", sent(*range(3, 90)))
    words = ["compare", str(a), str(b), "--master", "inline[1]"]
    assert cli.main(["compare", str(a), str(a), "--master", "inline[1]"]) == 0
    assert "No differences." in capsys.readouterr().out
    assert cli.main([*words, "--html", str(tmp_path / "page.html")]) == 1
    assert "missing  t-0  0 to 2" in capsys.readouterr().out
    assert "missing: 3 records" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert cli.main([*words, "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert "none/page.html: No such file or directory; give another FILE" in capsys.readouterr().err
    assert cli.main(["compare", str(a), str(a), "--master", "inline[1]", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("kind,differs,records,topic,")
    assert cli.main([*words, "--format", "json"]) == 1
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    first = datetime.datetime.fromisoformat(row["first_at"])
    assert (row["kind"], first.timestamp() * 1000) == ("missing", BEGAN)
    assert cli.main([*words, "--format", "csv"]) == 1
    assert capsys.readouterr().out.startswith("kind,differs,records,")
    assert cli.main([*words, "--sum-key", str(tmp_path / "none")]) == 2
    assert cli.main([*words, "--topic-map", "t"]) == 2
    result = auditor.compare(a, b, master="inline[1]")
    assert (result.differs, result.incomplete, result.records_a, result.records_b) == (True, False, 90, 87)
    assert result.table.to_arrow().column("records").to_pylist() == [3]
