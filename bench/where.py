"""Where the time goes: layer by layer over one replica, step by step of the command, and what Spark's event log
shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from auditor.connectors.codec.segment import BUFFER, read_segment
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan as pieces
from auditor.connectors.tables.rows import How, read_piece
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import replica_tasks
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from bench import sides
from bench.inputs import GIB, Kind, Made, make, space
from bench.sizes import Plan

BATCHES = frozenset({"batches"})
KERNELS = "from auditor.spark.warm import warm; from auditor.commands.demo import DEMO; warm(DEMO / 'logs')"


def measure(plan: Plan) -> str:
    """The section as Markdown."""
    size = plan.dump_bytes
    with space(plan.root, 2 * size) as folder:
        kinds = {"64 KiB": make(folder / "64k", Kind("64k"), size), "400 byte": make(folder / "400", Kind("400"), size)}
        sides.warm(list(kinds.values()))
        layers = {name: _layers(made, plan.runs) for name, made in kinds.items()}
        steps = {"a few MB": _steps([plan.tiny()], plan.runs)} | {
            f"{made.size / GIB:.2g} GiB of {name} batches": _steps([made.folder], plan.runs)
            for name, made in kinds.items()
        }
        events = {name: _events(made, folder / "events") for name, made in kinds.items()}
    parts = [
        "Layer by layer on one core, seconds per GiB, each with all that stands above it:\n",
        _table(layers, "{:.3f}"),
        "\nThe command, local[2], in seconds:\n",
        _table(steps, "{:.2f}"),
        "\nSpark's own event log of the audits above, seconds summed over tasks:\n",
        _table(events, "{:g}"),
        f"\nStarts: {_starts()}",
    ]
    return "\n".join(parts)


def _table(columns: dict[str, dict[str, float]], form: str) -> str:
    names = list(next(iter(columns.values())))
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " ---: |" * len(columns)]
    lines += [f"| {name} | {' | '.join(form.format(c[name]) for c in columns.values())} |" for name in names]
    return "\n".join(lines)


def _layers(made: Made, runs: int) -> dict[str, float]:
    options = AuditOptions((str(made.folder),), made.folder)
    tasks = [t for t in replica_tasks(discover([str(made.folder)]), {}, options) if isinstance(t, ReplicaTask)]
    layers: dict[str, Callable[[], float]] = {
        "reading into a buffer": lambda: _took(lambda: [_read(path) for path in made.logs]),
        "and walking headers": lambda: _took(lambda: [_walk(path, crc=False) for path in made.logs]),
        "and checksums": lambda: _took(lambda: [_walk(path, crc=True) for path in made.logs]),
        "and replay, indexes, facts (a whole copy)": lambda: _took(lambda: [read_replica(task) for task in tasks]),
        "walking, checksums, table `batches` (Arrow)": lambda: _took(lambda: _rows(made.folder)),
    }
    for layer in layers.values():
        layer()  # compiles or loads
    return {n: s / (made.size / GIB) for n, s in sides.medians(sides.in_turn(layers, runs)).items()}


def _took(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _read(path: Path) -> int:
    buffer, size = memoryview(bytearray(BUFFER)), 0
    with path.open("rb", buffering=0) as f:
        while got := f.readinto(buffer):
            size += got
    return size


def _walk(path: Path, *, crc: bool) -> int:
    with path.open("rb", buffering=0) as f:
        return sum(len(c.rows) for c in read_segment(f, path.stat().st_size, file=path.name, crc=crc))


def _rows(folder: Path) -> int:
    found = (read_piece(piece, BATCHES, How()) for piece in pieces(discover([str(folder)]), BATCHES))
    return sum(rows.num_rows for one in found for _, rows in one)


def _steps(paths: list[Path], runs: int) -> dict[str, float]:
    audits = [sides.audit(paths) for _ in range(runs)]
    each = [a.summary["timings"] | {"whole": a.seconds} for a in audits]
    steps: dict[str, list[float]] = {name: [one[name] for one in each] for name in each[0]}
    t = sides.medians(steps)
    rest = t["whole"] - sum(v for name, v in t.items() if name != "whole")
    return {
        "listing and cluster metadata (planning)": t["open"],
        "Spark's start (JVM)": t["start Spark"],
        "first job: workers, kernels loaded, reading, replay": t["read and replay"],
        "second job: shuffle, rules": t["judge"],
        "interpreter, imports, report, end": rest,
        "all": t["whole"],
    }


def _events(made: Made, folder: Path) -> dict[str, float]:
    """Sums over the tasks of one audit."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as conf:
        sides.audit([made.folder], env=sides.spark_conf(Path(conf, "conf"), folder))
    (log,) = folder.iterdir()
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    log.unlink()
    ends = [
        line["Task Metrics"] for line in lines if line["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in line
    ]

    def total(*path: str) -> float:
        values: list[Any] = ends
        for key in path:
            values = [value[key] for value in values]
        return float(sum(values))

    return {
        "tasks": len(ends),
        "run time of tasks": total("Executor Run Time") / 1e3,
        "their CPU time in the JVM": round(total("Executor CPU Time") / 1e9, 3),
        "garbage collection": total("JVM GC Time") / 1e3,
        "shuffle, KiB written": round(total("Shuffle Write Metrics", "Shuffle Bytes Written") / 1024, 1),
        "shuffle, rows": total("Shuffle Write Metrics", "Shuffle Records Written"),
        "results to the driver, KiB": round(total("Result Size") / 1024, 1),
    }


def _starts() -> str:
    """What a fresh machine pays once, and each process."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_CACHE_DIR": folder}
        compiled, loaded = (_took(lambda: _python(KERNELS, env)) for _ in range(2))
    nothing, imported = (
        _took(lambda: _python("pass")),
        _took(lambda: _python("import auditor.replay.reading.replica_reader")),
    )
    java = _took(lambda: subprocess.run(["java", "-Xshare:auto", "-version"], capture_output=True, check=True))
    return (
        f"all kernels compiled and the demo read {compiled:.1f} s (once, at set-up), loaded and read {loaded:.1f} s; "
        f"Python {nothing:.2f} s, with what a worker imports {imported:.2f} s; an empty JVM {java:.2f} s."
    )


def _python(code: str, env: dict[str, str] | None = None) -> None:
    subprocess.run([sys.executable, "-c", code], env=env, cwd=sides.ROOT, check=True)
