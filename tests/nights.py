"""A history of many clusters and nights, small and of known content, with a publish that is killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditor.outputs import runs
from auditor.pipeline import summary as pipeline_summary

CLUSTERS, NIGHTS = 10, 30
FIRST = datetime(2026, 11, 1, 4, tzinfo=UTC)
# The publish of a run that ends itself as it is about to write or move its file number STOP.
KILLED = """
import os, signal, sys
from pathlib import Path
from auditor.connectors.stores.results import ResultFolder
from tests import nights

history, cluster, night, stop = Path(sys.argv[1]), *map(int, sys.argv[2:])
seen = []
for name in ("put", "place"):
    def steps(where, *given, of=getattr(ResultFolder, name)):
        seen.append(given)
        if len(seen) > stop:
            os.kill(os.getpid(), signal.SIGKILL)
        return of(where, *given)
    setattr(ResultFolder, name, steps)
nights.publish(history, cluster, night)
"""


def of_night(cluster: int, night: int) -> dict[str, int]:
    """What a cluster has in a night: errors, committed and aborted transactions, lag."""
    return {
        "errors": (cluster + night) % 4,
        "committed": 100 * cluster + night,
        "aborted": night % (cluster + 1),
        "lag": cluster * night,
    }


def all_nights() -> Iterator[tuple[int, int]]:
    return ((cluster, night) for night in range(NIGHTS) for cluster in range(CLUSTERS))


def run_id(cluster: int, night: int) -> str:
    return f"night {night:02d} of 'c{cluster}'"


def publish(history: Path, cluster: int, night: int) -> runs.Run:
    has, id, as_of = of_night(cluster, night), f"id-{cluster}", FIRST + timedelta(days=night)
    findings = [
        {"cluster_id": id, "rule": "sequence-gap", "kind": "sequence-gap", "severity": "error", "partition": n,
         "topic": "t", "fingerprint": f"{cluster}-{n}", "evidence": "{}"} for n in range(has["errors"])
    ]  # fmt: skip
    totals = [
        {"cluster_id": id, "topic": "t", "outcome": outcome, "decided_by": "client", "transactions": has[name],
         "records": 0, "bytes": 0} for name, outcome in (("committed", "COMMIT"), ("aborted", "ABORT"))
    ]  # fmt: skip
    lag = [{"cluster_id": id, "group_id": "g", "kind": "consumer", "topic": "t", "partitions": 1,
            "offsets": has["lag"], "unknown": 0}]  # fmt: skip
    counts = {"critical": 0, "error": has["errors"], "warning": 0, "info": 0}
    facts: dict[str, Any] = {
        "as_of": as_of.strftime("%Y-%m-%dT%H:%M:%S.000Z"), "clusters": [id], "named": {id: {"name": f"c{cluster}"}},
        "counts": counts, "complete": True, "batches": night, "bytes": 9, "accepted": None,
        "verdict": {"tone": "bad", "headline": f"{has['errors']} errors", "outcome": "lost"},
    }  # fmt: skip
    tables = {
        "findings": pa.Table.from_pylist(findings, pipeline_summary.FINDINGS),
        "transaction_totals": pa.Table.from_pylist(totals, pipeline_summary.TRANSACTION_TOTALS),
        "lag_totals": pa.Table.from_pylist(lag, pipeline_summary.LAG_TOTALS),
    }
    return runs.publish(history, run_id(cluster, night), tables, facts, {"clusters": [id]})


def kill(history: Path, cluster: int, night: int, stop: int) -> None:
    """Publish a run in a process that SIGKILL ends before its file number ``stop`` is in place."""
    words = [sys.executable, "-c", KILLED, str(history), str(cluster), str(night), str(stop)]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()


def make(history: Path, killed: tuple[int, int]) -> None:
    """All nights but one, whose publish is killed."""
    for cluster, night in all_nights():
        if (cluster, night) == killed:
            kill(history, cluster, night, 2)
        else:
            publish(history, cluster, night)


# By cluster: name, runs, errors by ``runs``, errors by ``findings``, transactions, lag, last evaluation.
BY_CLUSTER = """
WITH r AS (SELECT cluster_id, max(cluster_name) AS name, count(*) AS runs, sum(error) AS errors, max(as_of) AS last
           FROM runs GROUP BY cluster_id),
     f AS (SELECT cluster_id, count(*) AS findings FROM findings GROUP BY cluster_id),
     t AS (SELECT cluster_id, sum(CASE WHEN outcome = 'ABORT' THEN transactions END) AS aborted,
                  sum(transactions) AS ended FROM transaction_totals GROUP BY cluster_id),
     l AS (SELECT cluster_id, sum(offsets) AS lag FROM lag_totals GROUP BY cluster_id)
SELECT cluster_id, name, runs, errors, findings, aborted, ended, lag, last
FROM r JOIN f USING (cluster_id) JOIN t USING (cluster_id) JOIN l USING (cluster_id) ORDER BY cluster_id
"""
TABLES = ("runs", "findings", "transaction_totals", "lag_totals")


def expected(killed: tuple[int, int] | None) -> list[tuple[Any, ...]]:
    """The answer of :data:`BY_CLUSTER`, by arithmetic."""
    rows = []
    for cluster in range(CLUSTERS):
        has = {night: of_night(cluster, night) for night in range(NIGHTS) if (cluster, night) != killed}
        sums = {name: sum(each[name] for each in has.values()) for name in ("errors", "committed", "aborted", "lag")}
        errors, aborted, ended = sums["errors"], sums["aborted"], sums["committed"] + sums["aborted"]
        last = FIRST + timedelta(days=max(has))
        rows.append((f"id-{cluster}", f"c{cluster}", len(has), errors, errors, aborted, ended, sums["lag"], last))
    return rows


def in_parquet(history: Path, table: str) -> str:
    """The files of a table, as people name them in DuckDB."""
    return f"read_parquet('{history}/run_id=*/{table}/*.parquet', hive_partitioning = true)"


def as_earlier_release(history: Path, id: str, found: pa.Table, facts: dict[str, Any], summary: dict[str, Any]) -> None:
    """A run as the releases before schema version 2 kept it: the summary in a cell, times as texts."""
    import hashlib
    import io

    import pyarrow.parquet as pq

    counts = facts["counts"]
    total = pa.table({"as_of": [facts["as_of"]], "tool_version": ["0.0.9"], "summary": [json.dumps(summary)],
                      **{name: [count] for name, count in counts.items()}, "bytes": [9], "bytes_unreadable": [2],
                      "batches": [7], "records": [11]})  # fmt: skip
    files = {}
    for name, table in {"findings": found, "runs": total}.items():
        path, content = f"{name}/{'0' * 32}.parquet", io.BytesIO()
        pq.write_table(table, content)
        target = history / runs.name_of(id) / path
        target.parent.mkdir(parents=True)
        target.write_bytes(content.getvalue())
        files[name] = [{"path": path, "rows": len(table), "bytes": len(content.getvalue()),
                        "sha256": hashlib.sha256(content.getvalue()).hexdigest()}]  # fmt: skip
    time = "2026-11-21T04:00:00.000000+00:00"
    manifest = {"schema_version": 1, "run_id": id, "created_at": time, "published_at": time, "facts": facts,
                "files": files}  # fmt: skip
    (history / runs.name_of(id) / f"manifest-{'0' * 32}.json").write_text(json.dumps(manifest))
