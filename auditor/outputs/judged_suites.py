"""``auditor audit --expectations``: the suites of :mod:`auditor.rules.expectations` over an audit's small tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.at_rest import Fields, Values
from auditor.connectors.tables import schema
from auditor.outputs import runs
from auditor.pipeline import summary as pipeline_summary
from auditor.pipeline.derived_tables import OF_FACTS
from auditor.pipeline.whole_audit import Audit

if TYPE_CHECKING:
    import pandas as pd

    from auditor.pipeline.table_tasks import Written

EXPECTATIONS = pa.schema(
    [(name, pa.string()) for name in ("suite", "expectation", "column", "says", "severity")]
    + [("success", pa.bool_()), ("rows", pa.int64()), ("broken", pa.int64())]
    + [("where", pa.string()), ("error", pa.string())]
)
SHOWN = ("severity", "suite", "says", "rows", "broken", "where", "error")
DRIFT_LEAST = 100  # counts below it say nothing of a drift
_SAME_LOG = ["cluster_id", "broker_id", "topic", "partition"]


def judge(audit: Audit, summary: Values, folder: Path, tables_written: Written | None) -> tuple[pa.Table, Fields]:
    """Runs the suites, writes ``tables/expectations`` into a folder; the results, and what the summary says of
    them: how many, how many failed, those first, and the others by name.

    Decoded and derived tables are judged when ``--tables`` wrote them, findings, logs and the run always.
    """
    from auditor.rules.expectations import suites
    from auditor.rules.expectations import suites as expectations_suites

    tables = {"findings": pipeline_summary.findings(audit).to_pandas(), "logs": logs(audit), "run": run(audit, summary)}
    judged = {name: (frame, suites.expectations(name)) for name, frame in tables.items()}
    judged |= {} if tables_written is None else _of_tables(audit, tables_written)
    rows = expectations_suites.run(judged)
    table = pa.Table.from_pylist(rows, schema=EXPECTATIONS)
    written(table, folder / "tables" / "expectations")
    failed = [row for row in rows if not row["success"]]
    return table, {
        "evaluated": len(rows),
        "failed": len(failed),
        "by_severity": dict(sorted(Counter(row["severity"] for row in failed).items())),
        "failing": [{name: row[name] for name in SHOWN} for row in failed],
        "passing": [f"{row['suite']}: {row['says']}" for row in rows if row["success"]],
    }


def _of_tables(audit: Audit, tables: Written) -> dict[str, tuple[pd.DataFrame, list[Any]]]:
    """The counts of every table that was written, with its suite."""
    from auditor.rules.expectations import measures, suites

    schemas = {**schema.DECODED, **OF_FACTS, "blocked": pipeline_summary.BLOCKED}
    out = {}
    for name in measures.MEASURES:
        if not tables.has(name) or name not in schemas:
            continue
        wanted = measures.columns_of(schemas[name])
        found = measures.columns_of(tables.columns(name))
        counted = audit.runner.count(tables, name)
        out[name] = measures.frame_of(counted, name, found), suites.expectations(name, wanted)
    return out


def logs(audit: Audit) -> pd.DataFrame:
    """The logs with how their counts compare with the run before: null where that is not known or was small."""
    frame: pd.DataFrame = pipeline_summary.logs(audit).to_pandas()
    options = audit.options
    before = None
    if options.history is not None:
        before = runs.before(options.history, options.run_id, audit.cluster_ids, options.asked)
    names = ["batches", "producers"]
    if before is None or options.history is None:
        return frame.assign(**{f"{name}_ratio": float("nan") for name in names})
    then = runs.read(options.history, before, "logs").to_pandas()[[*_SAME_LOG, *names]]
    then = then.drop_duplicates(_SAME_LOG)
    frame = frame.merge(then, how="left", on=_SAME_LOG, suffixes=("", "_before"))
    for name in names:
        known = frame[f"{name}_before"].where(frame[f"{name}_before"] >= DRIFT_LEAST)
        frame[f"{name}_ratio"] = frame[name] / known
    return frame


def run(audit: Audit, summary: Values) -> pd.DataFrame:
    """The run in one row: how old its input is, in ms, how many logs, and what share of the bytes is accounted for."""
    import pandas as pd

    size = summary["bytes"]
    known = [cluster.as_of - cluster.newest_time for cluster in audit.clusters.values() if cluster.newest_time >= 0]
    counted = size["decoded"] + size["skipped"] + size["unreadable"]
    row = {
        "age_ms": min(known, default=None),
        "logs": len(summary["logs"]),
        "bytes_unreadable": size["unreadable"],
        "covered": counted / size["total"] if size["total"] else 1.0,
    }
    return pd.DataFrame([row])


def written(table: pa.Table, folder: Path) -> None:
    """Writes a table into a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part-0.parquet")
