"""Kept runs as Delta tables (``--history-format delta``)."""

from __future__ import annotations

import contextlib

import pyarrow as pa

from auditor.base.errors import AuditInputError
from auditor.connectors.schema import TIME, texts
from auditor.connectors.stores.results import folder, why
from auditor.outputs import runs
from auditor.outputs.runs import RUNS, SUMMARY, History
from auditor.pipeline.summary import ms_of

# Below ``DIR/delta`` each table of the history is a Delta table with the column ``run_id`` in front. They are made of
# committed runs alone, so nothing of a killed run is ever in them; ``runs`` is written last, and a run that it lacks is
# written again by the next call.


NO_ROWS = pa.table({"run_id": texts([])})
ATTEMPTS, AT_ONCE = 5, 50  # conflicts with other writers; runs in memory


def write(history: History) -> None:
    """Bring the Delta tables up to the committed runs: add new ones, replace those that were run again, remove others.

    Errors: :class:`AuditInputError` if they cannot be written; the runs themselves are kept.
    """
    from deltalake.exceptions import DeltaError

    for left in reversed(range(ATTEMPTS)):
        try:
            return _write(history)
        except (DeltaError, OSError) as error:
            if not left:
                where = f"{folder(history).shown}/delta: {why(error)}; the run is kept, the next one writes its rows"
                raise AuditInputError(f"cannot write Delta tables to {where}") from error
    return None


def _write(history: History) -> None:
    from deltalake import DeltaTable, write_deltalake

    where, there = folder(history) / "delta", dict[str, int]()
    present = where.folders()
    if RUNS in present:  # before the runs are listed: what is there then, was committed
        rows = DeltaTable(where.address(RUNS)).to_pyarrow_table(columns=["run_id", "published_at"])
        times = rows["published_at"].cast(TIME).cast(pa.int64())
        there = dict(zip(rows["run_id"].to_pylist(), times.to_pylist(), strict=True))
    content = runs.content_of(history)
    due = [run for run in content.runs if there.get(run.run_id) != ms_of(run.published_at)]
    gone = sorted(there.keys() - {run.run_id for run in content.runs} - content.unreadable.keys())
    for start in range(0, max(len(due), len(gone)), AT_ONCE):
        ids, tables = gone[start : start + AT_ONCE], {name: [NO_ROWS] for name in present}
        for run in due[start : start + AT_ONCE]:
            with contextlib.suppress(runs.UnreadableRun):  # all who list the runs name it
                own = {name: runs.read(history, run, name) for name in run.files if name != SUMMARY}
                ids.append(run.run_id)
                for name, rows in own.items():
                    of_run = rows.add_column(0, "run_id", texts([run.run_id] * len(rows)))
                    tables.setdefault(name, []).append(of_run)
        which = " OR ".join("run_id = '" + id.replace("'", "''") + "'" for id in ids) or "false"
        for name in sorted(tables, key=lambda name: name == RUNS):
            rows, to = pa.concat_tables(tables[name], promote_options="default"), where.address(name)
            how = {"predicate": which, "schema_mode": "merge", "partition_by": ["run_id"]}
            write_deltalake(to, rows, mode="overwrite", **how)
