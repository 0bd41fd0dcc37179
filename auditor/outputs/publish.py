"""Everything an audit leaves behind: findings, summary, report, metrics, tables (contract section 3)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.errors import RECORD_AT, AuditInputError
from auditor.connectors.files import Inventory
from auditor.connectors.names import METADATA_TOPIC
from auditor.dashboards.metrics import write_metrics
from auditor.dashboards.report import render_report
from auditor.rules import crash_recovery
from auditor.rules.finding import FIELDS, SEVERITIES, Finding, iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from auditor.pipeline.audit import Audit

SUMMARY = "summary.json"
INTEGERS = {"broker_id": pa.int32(), "partition": pa.int32(), "producer_epoch": pa.int32()}
INTEGERS |= {name: pa.int64() for name in ("offset", "last_offset", "producer_id", "position")}
FINDINGS_SCHEMA = pa.schema([pa.field(name, INTEGERS.get(name, pa.string())) for name in FIELDS])


def publish(audit: Audit, spark: SparkSession, facts: DataFrame) -> None:
    """Writes the results under ``--out``; whole files appear at once, ``summary.json`` last: where it is, all is."""
    out = audit.options.out
    if audit.options.tables:
        from auditor.spark import tables

        tables.write(spark, audit, facts, out / "tables")
    summary = summarise(audit)
    rows = [f.to_dict() for f in audit.findings]
    if audit.options.expectations:
        from auditor.outputs import expectations

        summary["expectations"] = expectations.judge(audit, summary, spark)
    with writing(out):
        write_whole(out / "findings.jsonl", "".join(f.to_json() + "\n" for f in audit.findings))
        write_findings(out / "findings", audit.findings)
        page = render_report(rows, summary, audit.judged["open"], audit.judged["timeline"])
        write_whole(out / "report.html", page)
        write_metrics(out / "metrics.prom", rows, summary)
    if audit.options.history is not None:
        from auditor.commands import history

        history.keep(audit, summary)
    with writing(out):
        write_whole(out / SUMMARY, json.dumps(summary, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Around whatever writes under ``--out``: a full or closed disk is told in one line. Errors: AuditInputError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise AuditInputError(f"cannot write to {out}: {reason}; make room there or choose another --out") from error


def claim(out: Path, inventory: Inventory) -> None:
    """Makes ``--out`` before the long work begins, and takes away the mark of an earlier run: its results go now.

    Errors: :class:`AuditInputError` where it cannot be written, or is in a broker's log directory: evidence is only
    read, and a broker does not start beside folders that it does not know.
    """
    for log_dir in inventory.log_dirs:
        if log_dir.meta is not None and not log_dir.place.uri and out.resolve().is_relative_to(log_dir.place.path):
            raise AuditInputError(f"{out} is in the log directory {log_dir.place.shown}; choose an --out outside of it")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / SUMMARY).unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Writes a text file in one step: a reader sees the old one or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", errors="replace")
    os.replace(part, path)


def write_findings(folder: Path, findings: list[Finding]) -> None:
    """``findings/`` as Parquet: the contract's fields, ``evidence`` as JSON text."""
    folder.mkdir(exist_ok=True)
    rows = [f.to_dict() | {"evidence": json.dumps(f.evidence, sort_keys=True, ensure_ascii=False)} for f in findings]
    table = pa.Table.from_pylist(rows, schema=FINDINGS_SCHEMA)
    part = folder / "part-0.parquet.part"
    pq.write_table(table, part)
    os.replace(part, folder / "part-0.parquet")


def summarise(audit: Audit) -> dict[str, Any]:
    """``summary.json``: counts, inputs, every input byte, what was not read, policy and why, and each log."""
    severities, rules = Counter(f.severity for f in audit.findings), Counter(f.rule for f in audit.findings)
    logs = audit.judged["log"]
    clocks = [c.as_of for c in audit.clusters.values()]
    return {
        "tool": {"name": "auditor", "version": version("kafka-log-auditor")},
        "versions": {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "numba")}
        | {"python": sys.version.split()[0]},
        "as_of": iso(max(clocks, default=0)),
        "complete": not audit.incomplete(),
        "policy": [c._asdict() for c in audit.choices],
        "counts": {
            "by_severity": {s: severities.get(s, 0) for s in SEVERITIES},
            "by_rule": dict(sorted(rules.items())),
        },
        "inputs": _inputs(audit),
        "bytes": _bytes(audit),
        "batches": sum(row["sums"]["batches"] for row in logs),
        "records": sum(row["sums"]["records"] for row in logs),
        "records_decoded": audit.options.records,
        "skipped": _skipped(audit),
        "unreadable": [{"log_dir": log_dir, **error._asdict()} for log_dir, error in audit.unread()],
        "notes": [*audit.inventory.notes, *_notes(audit)],
        "logs": [{k: v for k, v in row.items() if k not in ("errors", "sums", "notes")} for row in logs],
        "open_transactions": dict(sorted(Counter(row["class"] for row in audit.judged["open"]).items())),
        "recovery": _recovery(audit),
        "timings": audit.timings,
    }


def version(package: str) -> str:
    """The installed version of a package, "unknown" when it runs from a plain folder or a zip."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _inputs(audit: Audit) -> list[dict[str, Any]]:
    out = []
    for d in audit.inventory.log_dirs:
        files = d.files()
        out.append({
            "log_dir": d.name, "cluster_id": d.cluster_id, "broker_id": d.broker_id,
            "broker_id_from": d.broker_id_source,
            "clean_shutdown": d.clean_shutdown, "copies": len(d.copies), "files": len(files),
            "bytes": sum(f.size for f in files),
        })  # fmt: skip
    return out


def _bytes(audit: Audit) -> dict[str, int]:
    """Every byte found is decoded, skipped with a reason, or in error."""
    total: dict[str, int] = defaultdict(int)
    for row in audit.judged["log"]:
        for name in ("total", "decoded", "skipped", "error"):
            total[name] += row["sums"][f"bytes_{name}"]
    for (_log_dir, file, _position), size in _metadata_not_understood(audit).items():
        total["skipped" if file.endswith(".checkpoint") else "decoded"] -= size  # as which they were booked
        total["error"] += size
    small = sum(f.size for d in audit.inventory.log_dirs for f in d.small_files)
    small += sum(s.size for s in audit.inventory.settings)
    skipped = sum(s.size for s in audit.inventory.skipped)
    return {
        "total": total["total"] + small + skipped,
        "decoded": total["decoded"] + small,
        "skipped": total["skipped"] + skipped,
        "unreadable": total["error"],
    }


def _metadata_not_understood(audit: Audit) -> dict[tuple[str, str, int], int]:
    """The batches of ``__cluster_metadata`` with records that were not understood, by place, and their bytes."""
    found = [(log_dir, error) for log_dir, error in audit.outside if error.detail.startswith(RECORD_AT)]
    read = {(row["log_dir"], row["topic"]) for row in audit.judged["log"]}
    return {
        (log_dir, error.file, error.position): error.length
        for log_dir, error in found
        if (log_dir, METADATA_TOPIC) in read
    }


def _skipped(audit: Audit) -> list[dict[str, Any]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for item in audit.inventory.skipped:
        groups[item.reason].append(item)
    out = [
        {"reason": reason, "files": len(items), "bytes": sum(i.size for i in items),
         "example": "/".join(filter(None, (items[0].log_dir, items[0].file)))}
        for reason, items in sorted(groups.items())
    ]  # fmt: skip
    padded = [row for row in audit.judged["log"] if row["sums"]["bytes_skipped"]]
    if padded:
        out.append({
            "reason": "zeros that indexes are preallocated with, and files of __cluster_metadata read apart",
            "files": len(padded), "bytes": sum(row["sums"]["bytes_skipped"] for row in padded),
            "example": f"{padded[0]['log_dir']}/{padded[0]['topic']}-{padded[0]['partition']}",
        })  # fmt: skip
    return out


def _notes(audit: Audit) -> list[str]:
    notes = []
    for row in audit.judged["log"]:
        if row["dropped_events"]:
            n = sum(row["dropped_events"].values())
            notes.append(f"{row['topic']}-{row['partition']} in {row['log_dir']}: {n} more events than are kept")
    notes += [note for row in audit.judged["log"] for note in row["notes"]]
    for cluster in audit.clusters.values():
        if cluster.coordinator is None:
            notes.append("no __transaction_state in the input: open transactions can only be judged by their age")
        elif not cluster.coordinator.covered():
            missing = [
                p for p in range(cluster.coordinator.partition_count) if p not in cluster.coordinator.complete_from
            ]
            notes.append(
                f"__transaction_state is not whole in the input: partitions {missing} are missing or unreadable"
                if missing or cluster.coordinator.count_known
                else "neither metadata nor settings say how many partitions __transaction_state has: some may lack"
            )
    return sorted(set(notes))


def _recovery(audit: Audit) -> list[dict[str, Any]]:
    """The dry run of each log directory from those of its logs."""
    by_dir: dict[str, list[Any]] = defaultdict(list)
    for row in audit.judged["log"]:
        if row.get("recovery") is not None:
            by_dir[row["log_dir"]].append(row["recovery"])
    clean = {d.name: d.clean_shutdown for d in audit.inventory.log_dirs}
    return [crash_recovery.directory(name, runs, clean.get(name, False)) for name, runs in sorted(by_dir.items())]
