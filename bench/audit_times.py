"""The whole audit: seconds per further GiB against Kafka's tool and ``cat``, one core and two, the rules' share."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from bench import sides
from bench.inputs import GIB, MIB, Kind, Made, make, space
from bench.sizes import Plan
from bench.table import Row, at_most, ratio

DISKS = 4  # the small input is one of them
PROCESSES = 2


class Target(NamedTuple):
    """What is asked for: times faster than the dump and than one core; whether as fast as ``cat``; with start."""

    dump: float
    cores: float
    cat: bool = False
    command: float | None = None


class Inputs(NamedTuple):
    """What is read: by the auditor and ``cat`` one disk or all; by Kafka's tool these or, where it is slow, less.

    What an audit of ``tiny`` takes is its start.
    """

    small: list[Made]
    large: list[Made]
    dump_small: list[Path]
    dump_large: list[Path]
    tiny: Made

    def gib(self) -> tuple[int, int]:
        """Bytes of both for the auditor."""
        return sum(m.size for m in self.small), sum(m.size for m in self.large)

    def dump_gib(self) -> tuple[int, int]:
        """Bytes of both for Kafka's tool."""
        return _bytes(self.dump_small), _bytes(self.dump_large)


def _bytes(logs: list[Path]) -> int:
    return sum(path.stat().st_size for path in logs)


def measure(name: str, kind: Kind, target: Target, plan: Plan, *, slow_dump: bool = False) -> list[Row]:
    """All rows of one kind of batches. ``slow_dump``: Kafka's tool reads an input of its own, smaller and alike."""
    disk, own = plan.disk_bytes(DISKS), plan.dump_bytes if slow_dump else 0
    with space(plan.root, DISKS * disk + own) as folder:
        made = [make(folder, kind, disk, number) for number in range(DISKS)]
        theirs = make(folder / "dump", kind._replace(partitions=PROCESSES), own) if own else made[0]
        every = theirs.logs if own else [path for one in made for path in one.logs]
        inputs = Inputs(
            made[:1], made, theirs.logs[:1] if own else theirs.logs, every, make(folder / "tiny", kind, MIB)
        )
        sides.warm([*made, theirs])
        if (seen := sides.dumped(theirs.logs[:1])[0]) != (wanted := theirs.counts[theirs.logs[0]][0]):
            raise RuntimeError(f"DumpLogSegments saw {seen} batches of {wanted}")
        runs, times = _times(inputs, plan)
        cold = max(times.pop(sides.DISK)) / inputs.gib()[1]
        _same_batches(inputs, runs)
        return _rows(name, target, inputs, sides.medians(times), runs, cold)


def _times(inputs: Inputs, plan: Plan) -> tuple[dict[str, list[sides.Audited]], sides.Times]:
    """Every side in turn, as often as asked for; the audits' results, and the seconds of all."""
    small, large = ([m.folder for m in made] for made in (inputs.small, inputs.large))
    kept: dict[str, list[sides.Audited]] = {}
    every = [path for one in inputs.large for path in one.logs]
    times = sides.in_turn(
        {
            "cat": lambda: sides.cat(inputs.small[0].logs),
            "cat all": lambda: sides.cat(every),
            "audit": sides.auditing(kept, "audit", small),
            "audit all": sides.auditing(kept, "audit all", large),
            "one core": sides.auditing(kept, "one core", small, master="local[1]"),
            "one core all": sides.auditing(kept, "one core all", large, master="local[1]"),
            "dump": lambda: sides.dump(inputs.dump_small),
            "dump all": lambda: sides.dump(inputs.dump_large),
            "dump nowhere": lambda: sides.dump(inputs.dump_small, nowhere=True),
            "dump nowhere all": lambda: sides.dump(inputs.dump_large, nowhere=True),
            "dumps": lambda: sides.dump(inputs.dump_large, processes=PROCESSES),
            "start": sides.auditing(kept, "start", [inputs.tiny.folder]),
        },
        plan.runs,
        every,
    )
    return kept, times


def _same_batches(inputs: Inputs, runs: dict[str, list[sides.Audited]]) -> None:
    """Raises unless the auditor saw every batch that was made."""
    for name in runs.keys() - {"start"}:
        wanted = sum(one.batches for one in (inputs.large if name.endswith("all") else inputs.small))
        if any(run.summary["batches"] != wanted for run in runs[name]):
            raise RuntimeError(f"{name}: {wanted} batches were made, {[r.summary['batches'] for r in runs[name]]} seen")


def _rows(
    name: str, target: Target, inputs: Inputs, t: dict[str, float], runs: dict[str, list[sides.Audited]],
    cold: float,
) -> list[Row]:  # fmt: skip
    sizes, dump_sizes = inputs.gib(), inputs.dump_gib()
    steps = {run: statistics.median(one.work for one in kept) for run, kept in runs.items()}
    command, work = (sides.slope(by["audit"], by["audit all"], sizes) for by in (t, steps))
    one = sides.slope(steps["one core"], steps["one core all"], sizes)
    ours = max(command, work)  # a start varies by more than some GiB take, and must not make the slope look better
    cat = sides.slope(t["cat"], t["cat all"], sizes)
    theirs = sides.slope(t["dump"], t["dump all"], dump_sizes)
    nowhere = sides.slope(t["dump nowhere"], t["dump nowhere all"], dump_sizes)
    gib = [size / GIB for size in sizes]
    each = [(steps[run] - steps["start"]) / size for run, size in zip(("audit", "audit all"), gib, strict=True)]
    timings = [run.summary["timings"] for run in runs["audit all"]]
    rules = statistics.median(x["judge"] / x["read and replay"] for x in timings)
    private = max(run.private for kept in runs.values() for run in kept) >> 20
    warm = "" if cold < sides.WARM else f"; {cold:.0%} of the bytes came from the disk, not from the page cache"
    return [
        ratio(
            f"{name}: whole audit, local[2], seconds per further GiB between {gib[0]:.2g} and {gib[1]:.2g} GiB, "
            f"against DumpLogSegments", target.dump, theirs / ours, f"{ours:.3f} against {theirs:.2f} s/GiB",
            f"by the whole command {command:.3f}, by its two jobs {work:.3f}: the larger counts. "
            f"DumpLogSegments between {dump_sizes[0] / GIB:.2g} and {dump_sizes[1] / GIB:.2g} GiB; into /dev/null "
            f"{nowhere:.2f} s/GiB, {nowhere / ours:.1f} times{warm}",
        ),
        Row(f"{name}: the same against `cat`", "as fast" if target.cat else "", f"**{ours / cat:.2f} of its time** "
            f"({ours:.3f} against {cat:.3f} s/GiB)", ours <= cat if target.cat else None),
        ratio(f"{name}: local[2] against local[1]", target.cores, one / work, f"{work:.3f} against {one:.3f} s/GiB"),
        at_most(f"{name}: seconds per GiB at {gib[1]:.2g} GiB against {gib[0]:.2g}, start aside", 1.1,
                each[1] / each[0], "", f"{each[1]:.3f} against {each[0]:.3f}; {steps['start']:.1f} s of start"),
        _command(name, target, t, ours, theirs, dump_sizes, gib[1]),
        at_most(f"{name}: rules against reading and replay, {gib[1]:.2g} GiB", 0.5, rules, ""),
        at_most(f"{name}: private memory of a Python worker", 256, private, " MiB"),
    ]  # fmt: skip


def _command(
    name: str, target: Target, t: dict[str, float], ours: float, theirs: float, dump_sizes: tuple[int, int], gib: float
) -> Row:
    """The whole command with its start against Kafka's tool, one process a core: times, or the size where they meet."""
    faster = (t["dump all"] - 0.5) / max(t["dumps"] - 0.5, 0.01)  # by how much two processes beat one
    start = max(0.0, t["dump all"] - theirs * dump_sizes[1] / GIB)
    both = theirs / faster
    meet = max(0.0, (t["start"] - start) / (both - ours)) if both > ours else float("inf")
    dump = start + both * gib
    figures = f"{t['audit all']:.1f} against {dump:.1f} s, faster from {meet:.2g} GiB on"
    what = f"{name}: whole command with its start, {gib:.2g} GiB, against DumpLogSegments with one process a core"
    if target.command is None:
        return Row(what, "say from which size", f"**{dump / t['audit all']:.1f} times** ({figures})")
    note = f"DumpLogSegments by its {both:.1f} s/GiB, measured on {dump_sizes[1] / GIB:.2g} GiB: it is linear"
    return ratio(what, target.command, dump / t["audit all"], figures, note)
