"""Records of 250 bytes into columns, against DumpLogSegments --deep-iteration."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan as pieces
from auditor.connectors.tables.rows import How, read_piece
from bench import sides
from bench.inputs import Kind, Made, make, space
from bench.sizes import Plan
from bench.table import Row, ratio

TARGETS = {"none": ("64k", 30.0), "lz4": ("64k-lz4", 12.0), "zstd": ("64k-zstd", 8.0)}
RECORD_BYTES = {"64k": 250, "64k-lz4": 111, "64k-zstd": 66}  # stored bytes a record of each, about
WANTED = frozenset({"records"})


def into_columns(folder: Path, tables: frozenset[str]) -> int:
    """Every record below a log directory as rows of tables (Arrow); how many."""
    return sum(rows.num_rows for piece in pieces(discover([str(folder)]), tables) for _, rows in read_piece(
        piece, tables, How()))  # fmt: skip


def seconds(made: Made, first: list[float], tables: frozenset[str] = WANTED) -> float:
    """Seconds of :func:`into_columns` in a process that did it once before, on one core; those of that go to ``first``.

    The first time a process also gets its memory from the system, which in a virtual machine takes as long again.
    """
    command = [sys.executable, "-m", "bench.record_decoding", str(made.folder), *sorted(tables)]
    counted = subprocess.run(command, cwd=sides.ROOT, capture_output=True, text=True, check=True).stdout.split()
    if int(counted[0]) != made.records:
        raise RuntimeError(f"{made.records} records were written, {counted[0]} read")
    first.append(float(counted[1]))
    return float(counted[2])


def measure(plan: Plan) -> list[Row]:
    """A row a codec."""
    return [_codec(codec, plan) for codec in TARGETS]


def _codec(codec: str, plan: Plan) -> Row:
    name, target = TARGETS[codec]
    size = plan.records * RECORD_BYTES[name]
    with space(plan.root, size) as folder:
        made = make(folder, Kind(name), size)
        sides.warm([made])
        if (seen := sides.dumped(made.logs, "--deep-iteration")) != (made.batches, made.records):
            raise RuntimeError(f"DumpLogSegments saw {seen} batches and records, not {made.batches, made.records}")
        fresh: list[float] = []
        t = sides.medians(
            sides.in_turn(
                {
                    "columns": lambda: seconds(made, fresh),
                    "dump": lambda: sides.dump(made.logs, "--deep-iteration"),
                },
                plan.runs,
            )
        )
    columns, dump, first = (made.records / took / 1e6 for took in (t["columns"], t["dump"], statistics.median(fresh)))
    return ratio(
        f"records into columns (Arrow), one core, {codec}", target, columns / dump,
        f"{columns:.1f} M records/s, DumpLogSegments --deep-iteration {dump:.2f}",
        f"the first time in a process {first:.1f} M records/s",
    )  # fmt: skip


def main(folder: Path, tables: frozenset[str], tiny: Path) -> None:
    """Prints records, and seconds of two times, for :func:`seconds`; ``tiny`` is decoded first, to load the kernels."""
    import time

    into_columns(tiny, tables)
    times = [time.perf_counter()]
    for _ in range(2):
        found = into_columns(folder, tables)
        times.append(time.perf_counter())
    print(found, times[1] - times[0], times[2] - times[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), frozenset(sys.argv[2:]), Plan.tiny())
