"""What an audit moves and keeps, by measurement: for a large cluster it is this, times its size (docs/scaling.md).

``python -m bench.scaling [--mib N]`` makes one partition of N MiB, of 400-byte and of 64 KiB batches, audits it whole
and in parts, alone and beside a replica, and reads from Spark's event log what each stage moved. Then it makes two
thousand small partitions and looks at what the driver keeps of them.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from auditor import running
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline import cluster_context, plan
from auditor.pipeline.cluster_context import brief
from auditor.pipeline.judge import judge_log
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.runner import read_task
from auditor.pipeline.whole_audit import Audit
from auditor.spark import session
from bench import inputs
from bench.anonymous import Anonymous
from bench.inputs import GIB, PROPERTIES, Kind, make, space

TIB = 1 << 40
KINDS = {"400-byte batches": Kind("400", partitions=1), "64 KiB batches": Kind("64k", partitions=1)}
NEVER = 1 << 62  # bytes from which a replica is read in parts
PARTITIONS = 2_000
SEGMENTS = 8
MOVED = {
    "shuffled": "internal.metrics.shuffle.write.bytesWritten",
    "rows": "internal.metrics.shuffle.write.recordsWritten",
    "spilled": "internal.metrics.diskBytesSpilled",
}


def stages(log: Path) -> list[dict[str, int]]:
    """What each stage of an event log moved (bytes, rows) and how long its tasks ran together, in ms."""
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            values = {a["Name"]: int(a["Value"]) for a in stage["Accumulables"] if a["Name"].startswith("internal.")}
            row = {name: values.get(metric, 0) for name, metric in MOVED.items()}
            ran = values.get("internal.metrics.executorRunTime", 0)
            found.append(row | {"ms": ran, "tasks": int(stage["Number of Tasks"])})
    return found


class Run(NamedTuple):
    """One audit with two slots: its stages, seconds without Spark's start, most private bytes of one Python worker."""

    stages: list[dict[str, int]]
    seconds: float
    private: int


def audited(paths: list[Path], out: Path, *, parts: bool) -> Run:
    """Audits these log directories, each of which holds one replica; ``parts``: in parts, whatever their sizes are."""
    plan.SPLIT_BYTES = 0 if parts else NEVER
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": out.as_uri(), "spark.eventLog.compress": "false",
           "spark.eventLog.rolling.enabled": "false"}  # fmt: skip
    out.mkdir()
    spark = session.start("local[2]", log)
    began, memory = time.perf_counter(), Anonymous(os.getpid())
    running.audit(AuditOptions(tuple(map(str, paths)), out / "results"), lambda _: None, spark)
    seconds = time.perf_counter() - began
    private = memory.end().get("worker", 0)
    spark.stop()
    return Run(stages(next(p for p in out.iterdir() if p.is_file())), seconds, private)


def moved(root: Path, size: int) -> None:
    """Prints a line for each kind, whole and in parts, alone and with a replica."""
    inputs.SEGMENT_BYTES = size // SEGMENTS
    for name, kind in KINDS.items():
        made = make(root / "one", kind, size)
        other = root / "other" / "disk-0"
        shutil.copytree(made.folder, other, copy_function=os.link)
        (other / "meta.properties").unlink()
        (other / "meta.properties").write_text(PROPERTIES.replace("node.id=1", "node.id=2"))
        for what, paths in (("alone", [made.folder]), ("with a replica", [made.folder, other])):
            for how in ("whole", "parts"):
                read = made.size * len(paths)
                run = audited(paths, root / f"{how}-{len(paths)}", parts=how == "parts")
                moving = [s for s in run.stages if s["shuffled"]]
                each = ", ".join(
                    f"{s['shuffled'] / read * TIB / 1e9:.3f} GB in {s['rows'] / read * TIB:.0f} rows" for s in moving
                )
                spilled, worker = sum(s["spilled"] for s in run.stages), run.private >> 20
                print(
                    f"{name}, {what}, {how}: {run.seconds:.1f} s for {read / GIB:.2f} GiB; a TiB: {each or 'nothing'}"
                )
                print(
                    f"  spilled {spilled / read * TIB / 1e9:.3f} GB a TiB; private memory of a worker {worker} MiB;",
                    "stages:",
                    ", ".join(f"{s['tasks']} tasks {s['ms'] / 1000:.1f} s" for s in run.stages),
                    flush=True,
                )
                shutil.rmtree(root / f"{how}-{len(paths)}")
        shutil.rmtree(root / "one")
        shutil.rmtree(root / "other")


def small_partitions(folder: Path) -> Path:
    """A log directory of many partitions of a batch each, with the files that a broker has beside it."""
    one = make(folder / "model", KINDS["400-byte batches"], 1)
    files = {p.name: p.read_bytes() for p in one.logs[0].parent.iterdir()}
    files |= {"leader-epoch-checkpoint": b"0\n1\n0 0\n", "partition.metadata": b"version: 0\ntopic_id: " + b"A" * 22}
    target = folder / "logs"
    target.mkdir()
    (target / "meta.properties").write_text(PROPERTIES)
    for number in range(PARTITIONS):
        partition = target / f"topic-{number}"
        partition.mkdir()
        for name, content in files.items():
            (partition / name).write_bytes(content)
    return target


def kept(root: Path) -> None:
    """Prints what the driver keeps of a partition, step by step: bytes of Python's objects."""
    path = small_partitions(root)
    options = AuditOptions((str(path),), root)

    def step(name: str, work: Callable[[], Any]) -> Any:
        tracemalloc.start()
        result = work()
        size = tracemalloc.get_traced_memory()[0] / PARTITIONS
        tracemalloc.stop()
        print(f"{name}: {size:.0f} bytes a partition", flush=True)
        return result

    def pickled(name: str, values: list[Any]) -> None:
        print(f"{name}: {sum(len(pickle.dumps(v, 5)) for v in values) / PARTITIONS:.0f} bytes a partition")

    inventory = step("inventory", lambda: discover([str(path)]))
    tasks = step("tasks", lambda: plan.replica_tasks(inventory, {}, options))
    pickled("tasks as broadcast", [list(plan.spread(tasks, 4))])
    facts = [read_task(task)[0] for task in tasks]
    pickled("facts as shuffled", facts)
    briefs = step("briefs", lambda: [pickle.loads(pickle.dumps(brief(f), 5)) for f in facts])
    clusters = step("clusters", lambda: cluster_context.build(briefs, {}, None, False))
    pickled("clusters as broadcast", [clusters])
    with running.runner(options) as runner:
        wanted = Audit(options, runner).rule_ids
    cluster, kinds = next(iter(clusters.values())), tuple(wanted)
    step("judged", lambda: [json.loads(json.dumps(row)) for f in facts for _, row in judge_log([f], cluster, kinds)])


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=int, default=2048, help="size of the partition in MiB")
    size = parser.parse_args().mib << 20
    root = os.environ.get("BENCH_DIR")
    with space(Path(root) if root else None, size) as folder:
        moved(folder, size)
        kept(folder)


if __name__ == "__main__":
    main()
