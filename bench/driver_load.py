"""What a driver takes for a million replicas: seconds and memory of plan, briefs, judge and publish, facts made up
(:mod:`bench.made_up`).

Each run is a process of its own: ``python -m bench.driver_load --count N --master M`` prints what it took as JSON. The
group ``driver`` of ``make bench`` makes rows of them, and the picture of docs/memory.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from auditor import running
from auditor.inline import FactsHere
from auditor.outputs import publish
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import Replicas, Runner
from auditor.processes.isolation import read_apart
from bench import pictures
from bench.anonymous import below, ticks
from bench.made_up import SIZES, MadeUp, making_up, read_once
from bench.pictures import Point
from bench.sides import ROOT
from bench.sizes import Plan
from bench.table import Row

MADE_UP = ("inventory", "facts")  # which an audit would list and read
CONNECT = "connect"
MASTERS = ("inline", "local[2]")
COUNTS = (100_000, 300_000, 1_000_000)  # the last in full sizes


class Phase(NamedTuple):
    """What a phase took: seconds, processor seconds of the driver's Python and of all together, and the most MiB that
    the driver's Python and the JVM had in memory meanwhile (RSS)."""

    seconds: float
    driver: float
    all: float
    python: int
    jvm: int


class Watch:
    """Takes the time and the memory of phases."""

    def __init__(self) -> None:
        self.phases: dict[str, Phase] = {}
        self._driver, self._all = _own(), _everything()

    def of(self, name: str, work: Callable[[], Any]) -> Any:
        """What ``work`` gives, as the phase of that name."""
        java = _java()
        for pid in ("self", *java):
            with contextlib.suppress(OSError):  # what Java starts ends meanwhile
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # from here on VmHWM is the most of this phase
        began, driver, everything = time.monotonic(), _own(), _everything()
        found = work()
        self.phases[name] = Phase(
            round(time.monotonic() - began, 3), round(_own() - driver, 3), round(_everything() - everything, 3),
            _most("self"), max(map(_most, _java()), default=0),
        )  # fmt: skip
        return found


def _own() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _everything() -> float:
    """Processor seconds of this process and all that it started and that still run: nothing here ends in between."""
    return _own() + sum(map(ticks, below(os.getpid()))) / os.sysconf("SC_CLK_TCK")


def _java() -> list[str]:
    return [str(pid) for pid in below(os.getpid()) if _program(pid) == "java"]


def _program(pid: int) -> str:
    """The name of what a process runs, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


def _most(pid: str) -> int:
    """The most MiB that a process had since it was told to forget, 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0) >> 10


def run(count: int, master: str) -> dict[str, Phase]:
    """One audit of so many replicas, phase after phase."""
    (facts,) = read_apart([0], read_once)  # compilers and readers are no load of a driver's
    with (
        tempfile.TemporaryDirectory(prefix="bench-driver-") as out,
        contextlib.closing(_runner(master)) as runner,
    ):
        runner.input_bytes = count * sum(SIZES.values())  # by which the JVM's heap is chosen
        audit = MadeUp(AuditOptions(("/nowhere",), Path(out)), making_up(runner, facts), count)
        runner.ready()
        runner.pool.start()
        watch = Watch()
        watch.of("inventory", lambda: audit.inventory)
        watch.of("plan", lambda: audit.tasks)
        watch.of("facts", lambda: _made(audit.replicas))
        watch.of("briefs", lambda: audit.briefs)
        watch.of("context", lambda: audit.clusters)
        watch.of("judge", lambda: audit.judged)
        watch.of("publish", lambda: publish.publish(audit, Path(out)))
        if (found := len(audit.judged["log"])) != count or audit.findings:
            raise RuntimeError(f"{found} of {count} logs were judged, with {len(audit.findings)} findings")
        return watch.phases


def _runner(master: str) -> Runner:
    """The way to run of a master; :data:`CONNECT`: a session of Spark Connect, whose server starts here."""
    if master != CONNECT:
        return running.runner_for(master)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server's workers
    return running.runner_for(None, SparkSession.builder.remote("local[2]").getOrCreate())


def _made(replicas: Replicas) -> None:
    """Has the facts made up, where the runner keeps them."""
    if isinstance(replicas.held, FactsHere):
        replicas.held.packed()
    else:
        replicas.held.frame.count()  # type: ignore[attr-defined]


def apart(count: int, master: str) -> dict[str, Phase]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "bench.driver_load", "--count", str(count), "--master", master]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return {name: Phase(*row) for name, row in json.loads(done.stdout.splitlines()[-1]).items()}


def measure(plan: Plan) -> list[Row]:
    """A row for each number of replicas and way to run, and the picture."""
    rows, points = [], []
    for count in COUNTS if plan.full else COUNTS[:-1]:
        for master in MASTERS:
            phases = apart(count, master)
            print(line(count, master, phases), flush=True)
            rows.append(_row(count, master, phases))
            points.append(_point(count, master, phases))
    pictures.draw("driver", "replicas", points)
    return rows


def _row(count: int, master: str, phases: Mapping[str, Phase]) -> Row:
    of_audit = {name: phase for name, phase in phases.items() if name not in MADE_UP}
    seconds = sum(phase.seconds for phase in of_audit.values())
    note = "; ".join(
        f"{name} {p.seconds:.1f} s ({p.driver:.1f}, {p.all:.1f}), {p.python} MiB" + (f", {p.jvm}" if p.jvm else "")
        for name, p in phases.items()
    )
    what = f"{count:,} replicas, facts made up, {master}: plan, briefs, context, judge, publish"
    most = max(phase.python for phase in phases.values())
    return Row(what, "", f"**{seconds:.1f} s**, driver {most} MiB", None, f"{note} (processor time of driver, of all)")


def _point(count: int, master: str, phases: Mapping[str, Phase]) -> Point:
    of_audit = [phase for name, phase in phases.items() if name not in MADE_UP]
    most = {"driver": max(p.python for p in phases.values()), "JVM": max(p.jvm for p in phases.values())}
    return Point("replicas", count, master, sum(p.seconds for p in of_audit), sum(p.driver for p in of_audit), most)


def line(count: int, master: str, phases: Mapping[str, Phase]) -> str:
    """For the terminal."""
    said = (
        f"  {name}: {p.seconds:.1f} s ({p.driver:.1f} of the driver's CPU, {p.all:.1f} of all), Python {p.python} MiB"
        + (f", JVM {p.jvm} MiB" if p.jvm else "")
        for name, p in phases.items()
    )
    return "\n".join((f"{count:,} replicas, {master}", *said))


def main() -> int:
    """One run, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.driver_load", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--master", default="inline", help=f"inline, local[2], or {CONNECT}: Spark Connect here")
    args = parser.parse_args()
    phases = run(args.count, args.master)
    print(line(args.count, args.master, phases), file=sys.stderr)
    print(json.dumps(phases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
