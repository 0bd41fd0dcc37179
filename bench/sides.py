"""Running what is compared, and taking its time: the auditor, Kafka's tool and ``cat``, each as a process."""

from __future__ import annotations

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import quiet
from bench.anonymous import Anonymous
from bench.inputs import GIB, Made
from bench.java import dump_command

ROOT = Path(__file__).parents[1]
WARM = 0.01  # of the input's bytes may come from the disk before a run counts as not warm
DISK = "from disk"
Times = dict[str, list[float]]


class Audited(NamedTuple):
    """One run of ``auditor audit``: seconds, those of processor time (the driver's alone), its summary,
    the most anonymous bytes of one process of each kind, seconds of processor time of all that it started but Java."""

    seconds: float
    cpu: float
    summary: dict[str, Any]
    memory: Mapping[str, int]
    tables: dict[str, int]  # rows, with --tables
    workers: float

    @property
    def private(self) -> int:
        """The most bytes that one Python worker had."""
        return self.memory.get("worker", 0)

    @property
    def work(self) -> float:
        """Seconds of its two jobs, without Spark's start before them."""
        timings: dict[str, float] = self.summary["timings"]
        return timings["read and replay"] + timings["judge"]


def audit(
    paths: Sequence[Path],
    *options: str,
    master: str = "local[2]",
    env: dict[str, str] | None = None,
    statuses: Collection[int] = (0,),
) -> Audited:
    """The whole command as a user would run it. Raises where it ends with another status: it failed, or found anything
    worse than info."""
    with tempfile.TemporaryDirectory(prefix="bench-out-") as out:
        command = [sys.executable, "-m", "auditor.cli", "audit", *map(str, paths), "--out", out, "--master", master]
        began = time.perf_counter()
        process = subprocess.Popen(
            [*command, "--quiet", *options], cwd=ROOT, env=os.environ | (env or {}), stdout=subprocess.PIPE
        )
        memory = Anonymous(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        most = memory.end()
        process.returncode = os.waitstatus_to_exitcode(status)
        process.communicate()  # until the JVM has ended too, which must not disturb what runs next
        if process.returncode not in statuses:
            raise RuntimeError(f"auditor audit ended with {process.returncode}")
        summary = json.loads(Path(out, "summary.json").read_text())
        tables = _rows(Path(out, "tables")) if "--tables" in options else {}
        return Audited(seconds, used.ru_utime + used.ru_stime, summary, most, tables, memory.of_workers())


def auditing(
    kept: dict[str, list[Audited]], name: str, paths: Sequence[Path], *options: str, master: str = "local[2]"
) -> Callable[[], float]:
    """A side that audits, and keeps what came of it under its name."""

    def run() -> float:
        kept.setdefault(name, []).append(audit(paths, *options, master=master))
        return kept[name][-1].seconds

    return run


def _rows(folder: Path) -> dict[str, int]:
    import pyarrow.parquet as pq

    return {
        table.name: sum(pq.read_metadata(part).num_rows for part in table.glob("*.parquet"))
        for table in folder.iterdir()
    }


def dump(logs: Sequence[Path], *options: str, processes: int = 1, nowhere: bool = False) -> float:
    """Seconds of ``kafka.tools.DumpLogSegments`` over segments, its output piped into ``grep`` as users do.

    ``nowhere``: to /dev/null instead, which no user has anything of.
    """
    shares = [logs[number::processes] for number in range(processes)]
    end = "" if nowhere else " | grep -c isvalid"
    dumps = [shlex.join([*dump_command(), *options, "--files", ",".join(map(str, share))]) for share in shares]
    return _together([["sh", "-c", f"{command} 2>/dev/null{end}"] for command in dumps])


def cat(logs: Sequence[Path], processes: int = 1) -> float:
    """Seconds of ``cat`` over segments."""
    shares = [logs[number::processes] for number in range(processes)]
    return _together([["cat", *map(str, share)] for share in shares])


def _together(commands: list[list[str]]) -> float:
    with open(os.devnull, "wb") as nothing:
        began = time.perf_counter()
        running = [subprocess.Popen(c, stdout=nothing, stderr=subprocess.DEVNULL) for c in commands]
        ended = [process.wait() for process in running]
        seconds = time.perf_counter() - began
    if any(ended):
        raise RuntimeError(f"{commands[0][:1]} ended with {ended}")
    return seconds


def dumped(logs: Sequence[Path], *options: str) -> tuple[int, int]:
    """How many batches and records Kafka's tool prints, not timed. Raises where one is not valid."""
    command = [*dump_command(), *options, "--files", ",".join(map(str, logs))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    found, records = 0, 0
    for line in process.stdout:
        if line.startswith(b"baseOffset:"):
            found += 1
            if b"isvalid: true" not in line:
                raise RuntimeError(f"DumpLogSegments: {line!r}")
        records += line.startswith(b"| offset:")
    if process.wait():
        raise RuntimeError("DumpLogSegments failed")
    return found, records


def in_turn(sides: dict[str, Callable[[], float]], runs: int, files: Sequence[Path] = ()) -> Times:
    """Seconds of each side, one run of each after the other on a quiet machine (:mod:`bench.quiet`), ``files`` read
    before each so that they are in memory.

    With files, ``from disk`` has the bytes that the machine read from its disks during each run all the same.
    """
    times: Times = {name: [] for name in (*sides, *([DISK] if files else []))}
    for _ in range(runs):
        for name, side in sides.items():
            seconds, read = quiet.undisturbed(name, lambda side=side: _once(side, files))  # type: ignore[misc]
            times[name].append(seconds)
            if files:
                times[DISK].append(read)
    return times


def _once(side: Callable[[], float], files: Sequence[Path]) -> tuple[float, int]:
    """Seconds of a side, and bytes that came from the disks meanwhile."""
    if files:
        cat(files)
    before = from_disk()
    seconds = side()
    return seconds, from_disk() - before


def medians(times: Times) -> dict[str, float]:
    """The median of each side."""
    return {name: statistics.median(values) for name, values in times.items()}


def from_disk() -> int:
    """Bytes that the machine has read from its disks so far."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("pgpgin "))


def warm(made: Sequence[Made]) -> None:
    """Waits until files are on the disk and reads them once: what comes after finds them in an idle page cache."""
    os.sync()
    cat([path for one in made for path in one.logs])


def fits(size: int) -> bool:
    """Whether files of ``size`` bytes stay in the page cache beside what runs."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return size + 3 * GIB < available


def slope(small: float, large: float, sizes: tuple[int, int]) -> float:
    """Seconds per further GiB."""
    return (large - small) / ((sizes[1] - sizes[0]) / GIB)


def spark_conf(folder: Path, events: Path) -> dict[str, str]:
    """Environment of an audit that writes Spark's event log to ``events``."""
    folder.mkdir()
    settings = {"enabled": "true", "dir": events.as_uri(), "rolling.enabled": "false", "compress": "false"}
    text = "".join(f"spark.eventLog.{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text(text)
    return {"SPARK_CONF_DIR": str(folder)}
