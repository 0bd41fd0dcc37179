"""Records of 250 bytes into columns, against DumpLogSegments --deep-iteration."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from bench import sides
from bench.inputs import Kind, Made, make, space
from bench.plan import Plan
from bench.table import Row, ratio
from connectors.inventory import discover
from connectors.pieces import plan as pieces
from connectors.rows import How, read_piece

TARGETS = {"none": ("64k", 40.0), "lz4": ("64k-lz4", 12.0), "zstd": ("64k-zstd", 8.0)}
RECORD_BYTES = {"64k": 250, "64k-lz4": 111, "64k-zstd": 66}  # stored bytes a record of each, about
WANTED = frozenset({"records"})


def into_columns(folder: Path) -> int:
    """Every record below a log directory as rows of the table ``records`` (Arrow); how many."""
    return sum(rows.num_rows for piece in pieces(discover([str(folder)]), WANTED) for _, rows in read_piece(
        piece, WANTED, How()))  # fmt: skip


def seconds(made: Made) -> float:
    """Seconds of :func:`into_columns` in a fresh process with its kernels loaded, on one core."""
    command = [sys.executable, "-m", "bench.records", str(made.folder)]
    found, took = subprocess.run(command, cwd=sides.ROOT, capture_output=True, text=True, check=True).stdout.split()
    if int(found) != made.records:
        raise RuntimeError(f"{made.records} records were written, {found} read")
    return float(took)


def measure(plan: Plan) -> list[Row]:
    """Two rows a codec: into columns on one core, and the whole command."""
    start = statistics.median(sides.audit([plan.tiny()], "--records").seconds for _ in range(plan.runs))
    return [row for codec in TARGETS for row in _codec(codec, plan, start)]


def _codec(codec: str, plan: Plan, start: float) -> list[Row]:
    name, target = TARGETS[codec]
    size = plan.records * RECORD_BYTES[name]
    with space(plan.root, size) as folder:
        made = make(folder, Kind(name), size)
        sides.warm([made])
        seen = sides.dumped(made.logs[:1], "--deep-iteration")
        if seen != made.counts[made.logs[0]]:
            raise RuntimeError(f"DumpLogSegments saw {seen} batches and records, not {made.counts[made.logs[0]]}")
        kept: dict[str, list[sides.Audited]] = {}
        t = sides.medians(
            sides.in_turn(
                {
                    "columns": lambda: seconds(made),
                    "audit": sides.auditing(kept, "audit", [made.folder], "--records"),
                    "dump": lambda: sides.dump(made.logs, "--deep-iteration"),
                },
                plan.runs,
            )
        )
    if any(run.summary["records"] != made.records for run in kept["audit"]):
        raise RuntimeError("the auditor did not see every record")
    rate = {name: made.records / (took - (start if name == "audit" else 0)) / 1e6 for name, took in t.items()}
    dump = f"DumpLogSegments --deep-iteration {rate['dump']:.2f}"
    private = max(run.private for run in kept["audit"]) >> 20
    return [
        ratio(f"records into columns (Arrow), one core, {codec}", target, rate["columns"] / rate["dump"],
              f"{rate['columns']:.1f} M records/s, {dump}"),
        Row(f"`auditor audit --records`, local[2], start aside, {codec}", "", f"**{rate['audit'] / rate['dump']:.1f} "
            f"times** ({rate['audit']:.1f} M records/s, {dump})", None, f"worker: {private} MiB private"),
    ]  # fmt: skip


def main(folder: Path, tiny: Path) -> None:
    """Prints records and seconds for :func:`seconds`; what ``tiny`` takes goes before, to load the kernels."""
    import time

    into_columns(tiny)
    began = time.perf_counter()
    found = into_columns(folder)
    print(found, time.perf_counter() - began)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Plan.tiny())
