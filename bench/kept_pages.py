"""The dashboard's front page over many kept runs: how long a browser waits for it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyarrow as pa

from auditor.outputs import runs
from bench import sides
from bench.inputs import space
from bench.sizes import Plan
from bench.table import Row, at_most
from tests import corpora

CLUSTERS, RUNS = 20, {False: 15, True: 300}  # of each, by whether it is the full size
MOST_S = 1.0  # by issue 37
RUN_BYTES = 150_000


def measure(plan: Plan) -> list[Row]:
    """A row for a server that was just started, and one for a page that was asked for before."""
    count = RUNS[plan.full] * CLUSTERS
    with space(plan.root, count * RUN_BYTES) as folder:
        made(folder, RUNS[plan.full])
        again: list[float] = []
        first = sides.medians(sides.in_turn({"front page": lambda: opened(folder, again)}, plan.runs))["front page"]
    what = f"dashboard over {count:,} runs of {CLUSTERS} clusters: its front page"
    return [
        at_most(f"{what}, of a server that was just started", MOST_S, first, " s"),
        at_most(f"{what}, asked for again", MOST_S, sides.medians({"": again})[""], " s"),
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


def opened(history: Path, again: list[float]) -> float:
    """Seconds that a new server takes for its first answer; those of the second go to ``again``."""
    command = [sys.executable, "-m", "auditor.cli", "dashboard", str(history), "--port", "0"]
    with subprocess.Popen(command, cwd=sides.ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[0]
            times = [time.perf_counter()]
            for _ in range(2):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    if b"cluster-19" not in answer.read():
                        raise RuntimeError("the front page lacks a cluster")
                times.append(time.perf_counter())
        finally:
            server.terminate()
    again.append(times[2] - times[1])
    return times[1] - times[0]
