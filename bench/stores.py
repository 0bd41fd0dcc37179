"""A slot that reads from a store: one process, against a server that keeps it waiting and limits each connection."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.inputs import MIB, Kind, Made, make, space
from bench.sizes import Plan
from bench.table import Row

LATENCY_MS, MB_PER_S = 20, 100
LEAST = 0.8  # of what one connection gives
READ = """
import sys, time
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import remote_files
from auditor.pipeline import plan
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import read_task

for path in sys.argv[1:]:  # the first is small: what is compiled and loaded is there for the second
    tasks = plan.replica_tasks(discover([path]), {}, AuditOptions((path,), None))
    began = time.perf_counter()
    with remote_files.coming(remote_files.of_work(tasks)):
        facts = [found for task in tasks for found in read_task(task)]
    took = time.perf_counter() - began
    assert not any(found.errors for found in facts), facts[0].errors[:3]
print(took)
"""


def measure(plan: Plan) -> list[Row]:
    """Batches of both sizes: how fast one process reads and replays them, and by how many requests."""
    rows = []
    for name, kind in (("64 KiB batches", Kind("64k")), ("400-byte batches", Kind("400"))):
        with space(plan.root, plan.dump_bytes) as folder:
            kind = kind._replace(partitions=1)
            made = make(folder, kind, plan.dump_bytes, segment=plan.dump_bytes)
            make(folder / "small", kind, 2 * MIB)
            runs = [_run(folder, made) for _ in range(plan.runs)]
        seconds = statistics.median(took for took, _ in runs)
        speed, requests = made.size / seconds / 1e6, runs[0][1]
        what = (
            f"{plan.dump_bytes >> 20} MiB of {name} in one segment, one slot, a store with {LATENCY_MS} ms to the "
            f"first byte and {MB_PER_S} MB/s a connection"
        )
        target = f"at least {LEAST * MB_PER_S:.0f} MB/s"
        rows.append(
            Row(what, target, f"**{speed:.0f} MB/s** ({seconds:.2f} s)", speed >= LEAST * MB_PER_S, _said(requests))
        )
    return rows


def _said(requests: dict[str, int]) -> str:
    return "requests of both inputs: " + ", ".join(f"{count} {method}" for method, count in sorted(requests.items()))


def _run(folder: Path, made: Made) -> tuple[float, dict[str, int]]:
    with serving(folder) as (environment, requests):
        paths = ["s3://copies/small/disk-0", f"s3://copies/{made.folder.name}"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | environment
        ran = subprocess.run([sys.executable, "-c", READ, *paths], env=env, check=True, capture_output=True, text=True)
    return float(ran.stdout), requests


@contextmanager
def serving(folder: Path) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """The server in a process of its own; the variables that name it, and, at the end, its requests by method."""
    command = [sys.executable, "-m", "tests.failing_store", str(folder), str(LATENCY_MS), str(MB_PER_S)]
    requests: dict[str, int] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        environment = {
            "AWS_ENDPOINT_URL": server.stdout.readline().strip(),
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            yield environment, requests
        finally:
            requests.update(json.loads(server.communicate()[0]))
