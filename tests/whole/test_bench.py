"""What `make bench` measures on is sound, and its arithmetic is that of its table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatch

from auditor.base.errors import AuditInputError
from auditor.pipeline.options import AuditOptions
from bench import __main__ as command
from bench import bytes_growth, growth, inputs, made_up, pictures, quiet, sides, table
from bench.anonymous import SAMPLED_EVERY, Anonymous
from bench.freeze import batches
from bench.inputs import Kind, make, space
from bench.pictures import Point
from bench.sizes import Plan
from tests.facts import here, logs_of, opened

OTHERS = quiet.others


@pytest.mark.parametrize(
    "kind", [Kind("64k", 2), Kind("400", 2, 700), Kind("64k-lz4", 1), Kind("64k-zstd", 1)], ids=str
)
def test_inputs_are_sound_logs(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments a log; kafka-python takes every batch, and no rule finds anything."""
    monkeypatch.setattr(inputs, "SEGMENT_BYTES", 600_000)
    made = make(tmp_path, kind, 1_000_000 * kind.partitions)
    assert len(made.logs) == 2 * kind.partitions
    read = [DefaultRecordBatch(data) for path in made.logs for data in batches(path.read_bytes())]
    assert all(batch.validate_crc() for batch in read[:: 1 + len(read) // 20])
    assert len(read) == made.batches
    assert sum(batch.records_count for batch in read) == made.records
    assert {path: len(batches(path.read_bytes())) for path in made.logs} == {p: b for p, (b, _) in made.counts.items()}
    assert made.size == sum(path.stat().st_size for path in made.logs)

    audited = opened(made.folder, records=True)
    replicas = [replica for log in logs_of(audited) for replica in log.replicas]
    assert len(replicas) == kind.partitions
    assert {len(c.producers) for c in replicas} == {min(kind.producers, made.batches // kind.partitions)}
    assert audited.findings == []


def test_too_little_room_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(AuditInputError, match=r"\d GiB free .* set BENCH_DIR"), space(tmp_path, 1 << 60):
        pass


def test_room_is_given_back(tmp_path: Path) -> None:
    with space(tmp_path, 1) as folder:
        (folder / "file").write_text("x")
    assert not list(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def _waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "PATIENCE", 0.0)
    monkeypatch.setattr(quiet, "others", dict)


def _process(proc: Path, pid: int, parent: int, seconds: int, environ: str = "") -> None:
    """As /proc shows one: half of its time in the kernel; the name has all that names may have."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    ticks = seconds * os.sysconf("SC_CLK_TCK") // 2
    fields = ["S", str(parent), *["0"] * 9, str(ticks), str(ticks), "7000", "7000"]
    (folder / "stat").write_text(f"{pid} (a) b (c) {' '.join(fields)}\n")
    (folder / "environ").write_bytes(environ.encode())


def test_what_others_take_is_all_but_the_bench_itself_and_the_kernel(tmp_path: Path) -> None:
    stolen = 3 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text(f"cpu  9 9 9 9 9 9 9 {stolen} 0 0\ncpu0 1 1\n")
    _process(tmp_path, 1, 0, 10)
    _process(tmp_path, 40, 1, 20, "HOME=/\0BENCH_OF=12345678")  # of another bench
    _process(tmp_path, 41, 1, 400, f"A=b\0{quiet.MARK}={os.environ[quiet.MARK]}\0C=d")
    _process(tmp_path, os.getpid() + 100_000_000, os.getpid(), 0)
    _process(tmp_path, os.getpid(), 1, 800)
    _process(tmp_path, quiet.KTHREADD, 0, 1600)
    _process(tmp_path, 77, quiet.KTHREADD, 3200)
    found = OTHERS(tmp_path)
    assert {pid: seconds for pid, seconds in found.items() if seconds} == {1: 10, 40: 20, quiet.HOST: 3}


def test_a_process_that_ends_takes_nothing_from_what_others_had() -> None:
    assert quiet.taken({1: 10.0, 7: 500.0}, {1: 12.0, 8: 3.0}) == 2 + 3


def test_what_the_bench_starts_is_its_own(tmp_path: Path) -> None:
    shown = subprocess.run(["cat", "/proc/self/environ"], capture_output=True, check=True).stdout
    assert f"{quiet.MARK}={os.environ[quiet.MARK]}".encode() in shown.split(b"\0")


@pytest.mark.parametrize(
    ("taken", "result", "marked"),
    [
        ([0.0], 1, []),
        ([5.0, 0.0], 2, []),
        ([5.0, 3.0, 4.0], 2, ["side (others took 3.0 of a core)"]),
    ],
)
def test_a_disturbed_side_is_run_again_and_marked(
    taken: list[float], result: int, marked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ran = [0.0], list[int]()
    monkeypatch.setattr(quiet, "others", lambda: {7: clock[0]})

    def side() -> int:
        clock[0] += taken[len(ran)]  # within a second, the least that counts
        ran.append(len(ran) + 1)
        return ran[-1]

    assert quiet.undisturbed("side", side) == result
    assert len(ran) == len(taken)
    assert quiet.marks() == marked
    assert quiet.marks() == []


def test_sides_run_in_turn() -> None:
    order: list[str] = []

    def side(name: str, seconds: float) -> float:
        order.append(name)
        return seconds + len(order)

    times = sides.in_turn({"a": lambda: side("a", 10), "b": lambda: side("b", 20)}, 3)
    assert order == ["a", "b"] * 3
    assert {name: sides.medians(times)[name] for name in "ab"} == {"a": 13, "b": 24}


def test_a_slope_leaves_the_start_aside() -> None:
    assert sides.slope(6.0 + 4 * 0.5, 6.0 + 16 * 0.5, (4 << 30, 16 << 30)) == pytest.approx(0.5)


def test_a_target_that_is_missed_is_said_to_be() -> None:
    assert "| **no** |" in table.ratio("x", 4, 3.99, "").line()
    assert "| yes |" in table.ratio("x", 4, 4.0, "").line()
    assert "| **no** |" in table.at_most("x", 1.1, 1.11, "").line()


def test_growth_leaves_the_start_aside() -> None:
    """5 s for half, 9 for all, of which 1 is the start: twice. Where half takes little more than the start: nothing."""
    points = [
        Point("groups", count, "inline", seconds, 77, {"driver": 7}) for count, seconds in ((1, 1), (50, 5), (100, 9))
    ]
    assert "**2 times** | yes |" in growth._row(points).line()
    early = [points[0], points[1]._replace(seconds=1.2), points[2]]
    assert "not measured" in growth._row(early).line()


def test_parts_of_an_input_are_sound_logs_of_its_own_files(tmp_path: Path) -> None:
    """Half of it has half of its batches, takes no room, and no rule finds anything."""
    whole = make(tmp_path / "whole", Kind("400", 2), 3_200_000, segment=100_000)
    assert len(whole.logs) == 2 * bytes_growth.PARTS
    half = inputs.part_of(whole, 8, tmp_path / "half")
    assert {path.stat().st_ino for path in half.logs} < {path.stat().st_ino for path in whole.logs}
    assert half.batches / whole.batches == pytest.approx(0.5, rel=0.01)
    assert half.size / whole.size == pytest.approx(0.5, rel=0.01)
    audited = opened(half.folder, records=True)
    assert sum(replica.sums["batches"] for log in logs_of(audited) for replica in log.replicas) == half.batches
    assert audited.findings == []


def ran(took: float, cold: float = 0.0) -> bytes_growth.Ran:
    return bytes_growth.Ran(sides.Audited(9.0, 1.0, {}, {"worker": 1 << 20}, {}, took), cold)


@pytest.mark.parametrize(
    ("least", "half", "full", "cold", "measured"),
    [
        ((2.0, 2.1, 2.0), (9.0, 9.0, 9.1), (17.0, 17.1, 17.0), 0.0, "**1 times** | yes |"),  # 7 and 8 parts, 1 s each
        ((2.0, 2.1, 2.0), (9.0, 9.0, 9.1), (29.0, 29.1, 29.0), 0.0, "**2.5 times** | **no** |"),
        ((2.0, 4.0, 2.0), (9.0, 9.0, 9.1), (17.0, 17.1, 17.0), 0.0, "not measured: runs of one size differ"),
        ((2.0, 2.1, 2.0), (9.0, 9.0, 9.1), (29.0, 29.1, 29.0), 0.2, "not measured: 20% of a part's bytes came"),
    ],
)
def test_growth_over_bytes_is_that_of_the_second_half(
    least: tuple[float, ...], half: tuple[float, ...], full: tuple[float, ...], cold: float, measured: str
) -> None:
    runs = {1: [ran(s) for s in least], 8: [ran(s) for s in half], 16: [ran(s, cold) for s in full]}
    assert measured in bytes_growth.row("x", 16 << 30, runs).line()


def test_the_processor_time_of_what_a_driver_starts_is_counted() -> None:
    call = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    driver = ["sh", "-c", f'"$0" -c "{call}"; true', sys.executable]
    with subprocess.Popen(driver, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        watched = Anonymous(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(10 * SAMPLED_EVERY)
        watched.end()
        process.communicate(b"\n")
    assert 0.45 < watched.of_workers() < 2  # a tick is 0.01


def test_a_picture_is_the_same_bytes_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="only make bench installs it")
    points = [
        Point("groups", count, "inline", 1, count / 9, {"driver": 7, "worker": count}) for count in (10, 100, 1000)
    ]
    first = pictures.draw("many", "groups", points, tmp_path).read_bytes()
    assert pictures.draw("many", "groups", points, tmp_path).read_bytes() == first
    assert b"groups, inline" in first


def test_groups_run_to_the_end_where_nothing_was_built_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a clean clone: the folder for the rows is made; a later run of one group keeps the other's."""
    pages: list[tuple[str, str]] = []
    monkeypatch.setattr(table, "machine", lambda: "A machine.")
    monkeypatch.setattr(table, "write", lambda name, text: pages.append((name, text)))
    for group in ("start", "64k"):
        rows = partial(lambda name, plan: [table.Row(name, "", f"{plan.runs} runs")], group)
        monkeypatch.setitem(command.GROUPS, group, rows)
    monkeypatch.setitem(command.SECTIONS, "where", lambda plan: "layers")
    plan, kept = Plan(None, full=False, runs=1), tmp_path / "build" / "bench.json"

    command.run(["start", "64k", "where"], plan, kept)
    command.run(["64k"], plan._replace(runs=3), kept)
    assert [name for name, _ in pages] == ["figures", "figures", "where", "figures"]
    last = pages[-1][1]
    assert "| start |  | 1 runs |" in last
    assert "| 64k |  | 3 runs |" in last


def test_only_its_section_of_the_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n")
    table.write("x", "new\n", page)
    assert page.read_text() == (
        "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n"
    )


def test_made_up_replicas_are_as_many_logs_with_nothing_to_find(tmp_path: Path) -> None:
    runner = made_up.making_up(here(), made_up.read_once())
    audit = made_up.MadeUp(AuditOptions(("/nowhere",), tmp_path), runner, 250)
    assert len(audit.inventory.log_dirs) == 1
    logs = audit.judged["log"]
    assert {(row["topic"], row["partition"]) for row in logs} == {(f"topic-{n // 100}", n % 100) for n in range(250)}
    assert all(row["sums"]["batches"] == 1 and row["hw"] == row["log_end"] == 3 for row in logs)
    assert audit.findings == []
