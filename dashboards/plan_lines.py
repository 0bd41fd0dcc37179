"""What an audit will read, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.base.at_rest import Values
from auditor.base.words import duration, plural
from auditor.dashboards.wording import aligned, number, size, visible

MOST_DIRS = 20


def plan_lines(plan: Values) -> Iterator[str]:
    """Whole lines of the plan that ``auditor.pipeline.plan`` gives."""
    dirs = plan["log_dirs"]
    rows = [("log directory", "broker", "partitions", "segments", "files", "size")]
    rows += [
        (
            d["log_dir"],
            "–" if d["broker_id"] is None else str(d["broker_id"]),
            number(d["partitions"]),
            number(d["segments"]),
            number(d["files"]),
            size(d["bytes"]),
        )
        for d in dirs[:MOST_DIRS]
    ]
    yield from aligned(rows)
    if len(dirs) > MOST_DIRS:
        yield f"and {plural(len(dirs) - MOST_DIRS, 'more log directory')}; --format json lists all\n"
    topics = [("topics", "partitions", "segments", "size")]
    topics += [(t["kind"], number(t["partitions"]), number(t["segments"]), size(t["bytes"])) for t in plan["topics"]]
    yield "\n"
    yield from aligned(topics)
    yield "\n"
    sentences = (*_beside(plan), _tasks(plan["tasks"]), *_estimate(plan["estimate"]))
    yield from (f"{line}\n" for line in sentences)
    yield from (f"note: {visible(note)}\n" for note in plan["notes"])


def _beside(plan: Values) -> Iterator[str]:
    if plan["remote"]["files"]:
        yield f"beside these {plural(plan['remote']['files'], 'remote file')}, {size(plan['remote']['bytes'])}"
    if plan["not_read"]["files"]:
        left = plan["not_read"]
        yield f"not read: {plural(left['files'], 'file')}, {size(left['bytes'])}"
    if (left := plan["left_out"])["files"]:
        begun = f", {plural(left['begun'], 'copy')} from a later segment on" if left["begun"] else ""
        yield f"left out by the scope: {plural(left['files'], 'file')}, {size(left['bytes'])}{begun}"
    if plan["unreadable"]:
        yield f"cannot be read: {plural(plan['unreadable'], 'file')} (the audit will end with status 3)"


def _tasks(tasks: Values) -> str:
    if tasks["count"] is None:
        how = "shared out when the cluster says how many tasks run at a time"
    else:
        how = f"in {plural(tasks['count'], 'task')}, {tasks['slots']} at a time ({tasks['way']})"
    parts = f", {number(tasks['in_parts'])} of them in parts" if tasks["in_parts"] else ""
    largest = tasks["largest"]
    last = f"; the largest is {visible(largest['name'])}, {size(largest['bytes'])}" if largest else ""
    return f"{plural(tasks['replicas'], 'partition copy')} {how}{parts}{last}"


def _span(values: list[float]) -> str:
    """Seconds from and to, once where both are said alike."""
    least, most = (duration(max(1, round(value)) * 1000) for value in values)
    return least if least == most else f"{least} to {most}"


def _estimate(found: Values) -> Iterator[str]:
    large, small = (size(value) for value in found["batches_of_bytes"])
    yield f"Estimates, from batches of {large} to batches of {small}; they depend on the machine:"
    if found["seconds"] is None:
        yield f"  time: {_span(found['cpu_seconds'])} of one core; divide by the cores of the cluster"
    else:
        yield f"  time: {_span(found['seconds'])} ({_span(found['cpu_seconds'])} of one core)"
    yield f"  a disk of 500 MiB/s gives these bytes in {_span([found['disk_seconds']] * 2)}"
    memory = found["memory_bytes"]
    yield f"  memory: driver {size(memory['driver'])}, each worker {size(memory['worker'])}"
    if memory["comparing"]:
        least, most = map(size, memory["comparing"])
        yield f"  the worker that compares the replicas of the largest partition: {least} to {most}"
