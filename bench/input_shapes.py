"""Other shapes: many partitions, many producers, large batches, the tables; and what a start takes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from bench import sides
from bench.inputs import MIB, Kind, Made, make, space
from bench.sizes import Plan
from bench.table import Row, at_most, ratio

SHAPES = {
    "4 partitions": Kind("400"),
    "1 000 000 producer ids in each of 2 partitions": Kind("400", 2, 1_000_000),
    "10 000 partitions": Kind("400", 10_000),
}
SMALL_CASE = "4 partitions"
MEMORY = {"1 000 000 producer ids in each of 2 partitions": 512}
LARGE = 16 << 20  # bytes of a large batch


def shapes(plan: Plan) -> list[Row]:
    """Time per batch, start aside, of each shape against the small case, and a worker's memory."""
    with space(plan.root, len(SHAPES) * plan.part_bytes) as folder:
        made = {name: make(folder / str(k), kind, plan.part_bytes) for k, (name, kind) in enumerate(SHAPES.items())}
        sides.warm(list(made.values()))
        logs = [path for one in made.values() for path in one.logs]
        kept: dict[str, list[sides.Audited]] = {}
        cases = {name: sides.auditing(kept, name, [one.folder]) for name, one in made.items()}
        cases["start"] = sides.auditing(kept, "start", [make(folder / "start", SHAPES[SMALL_CASE], MIB).folder])
        t = sides.medians(sides.in_turn(cases, plan.runs, logs))
    each = {name: (t[name] - t["start"]) / one.batches * 1e6 for name, one in made.items()}
    return [row for name, one in made.items() for row in _shape(name, one, each, kept[name])]


def _shape(name: str, made: Made, each: dict[str, float], runs: list[sides.Audited]) -> list[Row]:
    """Rows of one shape; ``each`` is the microseconds a batch of all of them."""
    if any(run.summary["batches"] != made.batches for run in runs):
        raise RuntimeError(f"{name}: not every batch was seen")
    private = max(run.private for run in runs) >> 20
    memory = at_most(f"{name}: private memory of a worker", MEMORY.get(name, 256), private, " MiB")
    if name == SMALL_CASE:
        return [memory]
    steps = runs[-1].summary["timings"]
    note = (
        f"{each[name]:.3f} against {each[SMALL_CASE]:.3f} µs a batch, {made.batches / 1e6:.1f} M batches; "
        f"read and replay {steps['read and replay']:.1f} s, judge {steps['judge']:.1f} s"
    )
    what = f"{name}: time per batch against {SMALL_CASE}"
    return [at_most(what, 2, each[name] / each[SMALL_CASE], " times", note), memory]


def large_batches(plan: Plan) -> list[Row]:
    """A worker's memory where batches have 16 MiB."""
    size = plan.part_bytes // 2
    with space(plan.root, size) as folder:
        made = make(folder, Kind("16m"), size)
        plain = sides.audit([made.folder])
        deep = sides.audit([made.folder], "--records")
    if (plain.summary["batches"], deep.summary["records"]) != (made.batches, made.records):
        raise RuntimeError("not every batch was seen")
    return [
        at_most("batches of 16 MiB: private memory of a worker", 256, plain.private >> 20, " MiB"),
        at_most("the same with `--records`", 512, deep.private >> 20, " MiB", "256 and the decompression cap of 256"),
    ]  # fmt: skip


def tables(plan: Plan) -> list[Row]:
    """``--tables``: seconds per further GiB against Kafka's tool on the same small batches."""
    size = plan.dump_bytes // 2
    with space(plan.root, 4 * size) as folder:
        made = make(folder, Kind("400"), size)
        sides.warm([made])
        half = sorted({log.parent for log in made.logs})[:2]
        logs = [log for log in made.logs if log.parent in half]
        kept: dict[str, list[sides.Audited]] = {}
        t = sides.medians(
            sides.in_turn(
                {
                    "half": sides.auditing(kept, "half", half, "--tables"),
                    "all": sides.auditing(kept, "all", [made.folder], "--tables"),
                    "dump half": lambda: sides.dump(logs),
                    "dump": lambda: sides.dump(made.logs),
                },
                plan.runs,
            )
        )
        sizes = sum(path.stat().st_size for path in logs), made.size
    if any(run.tables["batches"] != made.batches for run in kept["all"]):
        raise RuntimeError("the table of batches has not every batch")
    ours, theirs = sides.slope(t["half"], t["all"], sizes), sides.slope(t["dump half"], t["dump"], sizes)
    what = "tables path (`--tables`: audit, and every table as Parquet), 400-byte batches, local[2], slope"
    return [ratio(what, 6, theirs / ours, f"{ours:.2f} against {theirs:.2f} s/GiB")]


def start(plan: Plan) -> list[Row]:
    """A few MB, and the first line of ``auditor decode``."""
    with space(plan.root, 1 << 30) as folder:
        made = make(folder, Kind("64k", 1), 1 << 29)
        sides.warm([made])
        t = sides.in_turn(
            {"audit": lambda: sides.audit([plan.tiny()]).seconds, "decode": lambda: first_line(made)}, 2 * plan.runs
        )
        small = make(folder, Kind("400"), 50 * MIB, disk=1)
        runs = {master: sides.audit([small.folder], master=master).seconds for master in ("inline", "local[2]")}
    with_spark = f"{runs['local[2]']:.2f} s with Spark, local[2], one run each"
    demo = statistics.median(inline_demo() for _ in range(2 * plan.runs))
    size = sum(path.stat().st_size for path in plan.tiny().rglob("*") if path.is_file()) / 1e6
    return [
        at_most(f"whole command on {size:.1f} MB, rules and report included", 10, statistics.median(t["audit"]), " s"),
        at_most("`auditor demo --master inline`", 2, demo, " s", "1.6 wanted"),
        Row("50 MiB of 400-byte batches, `--master inline`", "", f"**{runs['inline']:.2f} s**", None, with_spark),
        at_most("`auditor decode` of a segment of 512 MiB: first line", 1, statistics.median(t["decode"]), " s"),
    ]  # fmt: skip


def inline_demo() -> float:
    """Seconds of the demo without Spark, from the call to its end."""
    with tempfile.TemporaryDirectory(prefix="bench-demo-") as out:
        began = time.perf_counter()
        command = [sys.executable, "-m", "auditor.cli", "demo", "--master", "inline", "--quiet", "--out", out]
        subprocess.run(command, cwd=sides.ROOT, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began


def first_line(made: Made) -> float:
    """Seconds until ``auditor decode`` prints its first line."""
    command = [sys.executable, "-m", "auditor.cli", "decode", str(made.logs[0])]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=sides.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
        process.kill()
    if b'"base_offset": 0' not in line and b'"base_offset":0' not in line:
        raise RuntimeError(f"auditor decode printed {line[:200]!r}")
    return took
