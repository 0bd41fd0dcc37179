"""How the work of an audit grows with bytes: parts of one input, whose files are the same ones.

What is compared is the processor time of the processes that read. A further GiB of large batches takes less than two
starts of Spark differ by, and parts that share their files find each other's in the page cache, which two inputs of
many GiB do not: read from the disk, the larger one would take several times as long.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bench import inputs, pictures, quiet, sides
from bench.inputs import GIB, MIB, Kind, Made
from bench.pictures import Point
from bench.sides import Audited
from bench.sizes import Plan
from bench.table import Row, at_most

KINDS = {"MiB of 400-byte batches": Kind("400"), "MiB of 64 KiB batches": Kind("64k")}
MASTERS = ("inline", "local[1]", "local[2]")  # a start of Spark varies by more than some GiB take
QUICK, FULL = GIB, 8 * GIB  # bytes; of 16 GiB that were read twice, a quarter was not in 24 GiB of memory any more
PARTS = 16  # segments of each partition; a part of the input are the first ones of all partitions
MEASURED = (1, 8, 16)  # of them
STEADY = 1.3  # times the processor time that a GiB of the second half may take
TELLS = 4  # times what runs of one size differ by, which the first half must take


class Ran(NamedTuple):
    """One audit of a part, and the share of its bytes that came from the disk meanwhile."""

    audited: Audited
    cold: float


def measure(plan: Plan) -> list[Row]:
    """A row for each kind of batch and way to run, and the picture."""
    size = FULL if plan.full else QUICK
    rows: list[Row] = []
    points: list[Point] = []
    for name, kind in KINDS.items():
        for master, ran in _runs(name, kind, size, plan).items():
            rows.append(row(f"{size // MIB:,} {name}, {master}", size, ran))
            points += [_point(name, size * part // PARTS // MIB, master, runs) for part, runs in ran.items()]
    pictures.draw("bytes", "MiB of log", points)
    return rows


def _runs(name: str, kind: Kind, size: int, plan: Plan) -> dict[str, dict[int, list[Ran]]]:
    """The runs of each part, by the way to run: one of each in turn."""
    found: dict[str, dict[int, list[Ran]]] = {master: {part: [] for part in MEASURED} for master in MASTERS}
    with inputs.space(plan.root, size) as folder:
        whole = inputs.make(folder, kind, size, segment=size // kind.partitions // PARTS)
        sides.warm([whole])
        parts = {part: inputs.part_of(whole, part, folder / f"part-{part}") for part in MEASURED}
        for _ in range(plan.runs):
            for master, runs in found.items():
                for part, made in parts.items():
                    said = f"{made.size // MIB:,} {name}, {master}"
                    runs[part].append(quiet.undisturbed(said, partial(_once, made, master)))
                    print(_point(name, made.size // MIB, master, runs[part][-1:]).line(), flush=True)
    return found


def _once(made: Made, master: str) -> Ran:
    """An audit of a part that was just read."""
    sides.cat(made.logs)
    before = sides.from_disk()
    audited = sides.audit([made.folder], master=master)
    return Ran(audited, (sides.from_disk() - before) / made.size)


def row(what: str, size: int, runs: Mapping[int, Sequence[Ran]]) -> Row:
    """The processor time of a GiB of the second half against that of the first, by medians of the runs of each part."""
    least, half, full = MEASURED
    took = {part: [ran.audited.workers for ran in of_part] for part, of_part in runs.items()}
    medians = {part: statistics.median(seconds) for part, seconds in took.items()}
    differ = max(max(seconds) - min(seconds) for seconds in took.values())
    first, second = (
        sides.slope(medians[a], medians[b], (size * a // PARTS, size * b // PARTS))
        for a, b in ((least, half), (half, full))
    )
    wall = {part: statistics.median(ran.audited.seconds for ran in of_part) for part, of_part in runs.items()}
    memory = (f"{name} {most // MIB} MiB" for name, most in runs[full][-1].audited.memory.items() if name != "all")
    note = (
        f"{second:.3f} against {first:.3f} s a GiB, runs of one size differ by {differ:.2f} s; whole command "
        f"{wall[full]:.1f}, of half {wall[half]:.1f} s; {', '.join(memory)}"
    )
    label = f"{what}: processor time of a GiB in the second half against the first"
    target = f"at most {STEADY:g} times"
    if (cold := max(ran.cold for of_part in runs.values() for ran in of_part)) > sides.WARM:
        return Row(label, target, f"not measured: {cold:.0%} of a part's bytes came from the disk", None, note)
    if medians[half] - medians[least] < TELLS * differ:
        return Row(label, target, "not measured: runs of one size differ by too much", None, note)
    return at_most(label, STEADY, second / first, " times", note)


def _point(name: str, mib: int, master: str, runs: Sequence[Ran]) -> Point:
    seconds, cpu = (statistics.median(getattr(ran.audited, field) for ran in runs) for field in ("seconds", "cpu"))
    memory = runs[-1].audited.memory
    return Point(name, mib, master, seconds, cpu, {process: most // MIB for process, most in memory.items()})
