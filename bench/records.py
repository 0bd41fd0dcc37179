"""Records of 250 bytes into columns, against DumpLogSegments --deep-iteration."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from bench import sides
from bench.inputs import Kind, make, space
from bench.plan import Plan
from bench.table import Row, ratio
from connectors.inventory import discover
from connectors.pieces import plan as pieces
from connectors.rows import How, read_piece

TARGETS = {"none": ("64k", 40.0), "lz4": ("64k-lz4", 12.0), "zstd": ("64k-zstd", 8.0)}
RECORD_BYTES = {"64k": 250, "64k-lz4": 111, "64k-zstd": 66}  # stored bytes a record of each, about
WANTED = frozenset({"records"})
PARTITIONS = 4


def into_columns(folder: Path) -> int:
    """Every record below a log directory as rows of the table ``records`` (Arrow); how many."""
    return sum(rows.num_rows for piece in pieces(discover([str(folder)]), WANTED) for _, rows in read_piece(
        piece, WANTED, How()))  # fmt: skip


def seconds(partition: Path, records: int, first: list[float]) -> float:
    """Seconds of :func:`into_columns` in a process that did it once before, on one core; those of that go to ``first``.

    The first time a process also gets its memory from the system, which in a virtual machine takes as long again.
    """
    command = [sys.executable, "-m", "bench.records", str(partition)]
    told = subprocess.run(command, cwd=sides.ROOT, capture_output=True, text=True, check=True).stdout.split()
    if int(told[0]) != records:
        raise RuntimeError(f"{records} records were written, {told[0]} read")
    first.append(float(told[1]))
    return float(told[2])


def measure(plan: Plan) -> list[Row]:
    """Two rows a codec: one partition into columns on one core; the whole command, by what two more partitions take."""
    return [row for codec in TARGETS for row in _codec(codec, plan)]


def _codec(codec: str, plan: Plan) -> list[Row]:
    name, target = TARGETS[codec]
    size = PARTITIONS * plan.records * RECORD_BYTES[name]
    with space(plan.root, size) as folder:
        made = make(folder, Kind(name, PARTITIONS), size)
        sides.warm([made])
        partitions = sorted({log.parent for log in made.logs})
        first = [log for log in made.logs if log.parent == partitions[0]]
        batches, records = (sum(made.counts[log][k] for log in first) for k in range(2))
        if (seen := sides.dumped(first, "--deep-iteration")) != (batches, records):
            raise RuntimeError(f"DumpLogSegments saw {seen} batches and records, not {batches, records}")
        kept: dict[str, list[sides.Audited]] = {}
        fresh: list[float] = []
        t = sides.medians(
            sides.in_turn(
                {
                    "columns": lambda: seconds(partitions[0], records, fresh),
                    "half": sides.auditing(kept, "half", partitions[: PARTITIONS // 2], "--records"),
                    "all": sides.auditing(kept, "all", partitions, "--records"),
                    "dump": lambda: sides.dump(first, "--deep-iteration"),
                },
                plan.runs,
            )
        )
    if any(run.summary["records"] != made.records for run in kept["all"]):
        raise RuntimeError("the auditor did not see every record")
    columns, dump = records / t["columns"] / 1e6, records / t["dump"] / 1e6
    half, whole = (statistics.median(run.work for run in kept[name]) for name in ("half", "all"))
    more = made.records - kept["half"][0].summary["records"]
    longer = max(whole - half, t["all"] - t["half"])  # a start varies, and must not make it look better
    audit = more / longer / 1e6 if longer > 0 else float("inf")
    private = max(run.private for run in kept["all"]) >> 20
    theirs = f"DumpLogSegments --deep-iteration {dump:.2f}"
    figures = f"{audit:.1f} M records/s, {theirs}"
    return [
        ratio(f"records into columns (Arrow), one core, {codec}", target, columns / dump,
              f"{columns:.1f} M records/s, {theirs}",
              f"the first time in a process {records / statistics.median(fresh) / 1e6:.1f} M records/s"),
        Row(f"`auditor audit --records`, local[2], by what {more / 1e6:.0f} M more records take, {codec}", "",
            f"**{audit / dump:.1f} times** ({figures})", None, f"worker: {private} MiB private"),
    ]  # fmt: skip


def main(folder: Path, tiny: Path) -> None:
    """Prints records, and seconds of two times, for :func:`seconds`; ``tiny`` goes before, to load the kernels."""
    import time

    into_columns(tiny)
    times = [time.perf_counter()]
    for _ in range(2):
        found = into_columns(folder)
        times.append(time.perf_counter())
    print(found, times[1] - times[0], times[2] - times[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Plan.tiny())
