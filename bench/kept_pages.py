"""The dashboard's front page over many kept runs: how long a browser waits for it."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from auditor.outputs import runs
from bench import quiet, sides
from bench.inputs import space
from bench.sizes import Plan
from bench.table import Row, at_most
from tests import corpora

CLUSTERS, RUNS = 20, {False: 15, True: 300}  # of each, by whether it is the full size
MOST_S = 1.0  # by issue 37
RUN_BYTES = 150_000


class Taken(NamedTuple):
    """Seconds by the clock, and of the server's processor time, of its first answer and its second."""

    first: float
    first_cpu: float
    again: float
    again_cpu: float


def measure(plan: Plan) -> list[Row]:
    """A row for a server that was just started, and one for a page that was asked for before."""
    count, kept = RUNS[plan.full] * CLUSTERS, list[Taken]()
    with space(plan.root, count * RUN_BYTES) as folder:
        made(folder, RUNS[plan.full])
        sides.in_turn({"front page": lambda: opened(folder, kept)}, plan.runs)
    t = Taken(*map(statistics.median, zip(*kept, strict=True)))
    what, cpu = f"dashboard over {count:,} runs of {CLUSTERS} clusters: its front page", "{:.2f} s of processor time"
    return [
        at_most(f"{what}, of a server that was just started", MOST_S, t.first, " s", cpu.format(t.first_cpu)),
        at_most(f"{what}, asked for again", MOST_S, t.again, " s", cpu.format(t.again_cpu)),
    ]


def made(history: Path, count: int) -> None:
    """Keeps runs of many clusters in turn: a real incident's, of whose findings a fifth comes and goes each time."""
    sides.audit([corpora.unpack("hanging-36")], "--history", str(history), master="inline[1]", statuses=(1,))
    (real,) = runs.committed(history)
    tables = {name: runs.read(history, real, name) for name in real.files}
    found = tables["findings"].to_pylist()
    for night in range(count):
        for n in range(CLUSTERS):
            id = f"cluster-{n}"
            rows = [row | {"cluster_id": id, "fingerprint": f"{n:02x}{row['fingerprint'][2:]}"}
                    for at, row in enumerate(found) if (at + night) % 5]  # fmt: skip
            tables["findings"] = pa.Table.from_pylist(rows, schema=tables["findings"].schema)
            runs.publish(history, f"{id}-{night:03}", tables, real.facts | {"clusters": [id]})


def opened(history: Path, kept: list[Taken]) -> float:
    """Seconds that a new server takes for its first answer; what both answers took goes to ``kept``."""
    command = [sys.executable, "-m", "auditor.cli", "dashboard", str(history), "--port", "0"]
    with subprocess.Popen(command, cwd=sides.ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[0]
            looks = [(time.perf_counter(), _cpu(server.pid))]
            for _ in range(2):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    if b"cluster-19" not in answer.read():
                        raise RuntimeError("the front page lacks a cluster")
                looks.append((time.perf_counter(), _cpu(server.pid)))
        finally:
            server.terminate()
    steps = [late[of] - early[of] for early, late in itertools.pairwise(looks) for of in (0, 1)]
    kept.append(Taken(*steps))
    return steps[0]


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[quiet.UTIME]) + int(fields[quiet.STIME])) / os.sysconf("SC_CLK_TCK")
