"""Run by Airflow's own Python, which knows neither pytest nor the auditor: import | test CONF | retry CONTEXT

Prints one JSON object on its last line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

ABSENT = ("pyspark", "great_expectations", "pyarrow", "numba")
DAGS = Path(__file__).resolve().parents[2] / "airflow_dags"


def load() -> Any:
    """The DAG, through Airflow's own loader, with what its environment must not need made absent."""
    for name in ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(DAGS))
    if bag.import_errors or len(bag.dags) != 1:
        raise SystemExit(f"{bag.import_errors} {sorted(bag.dags)}")
    return next(iter(bag.dags.values()))


def submits(dag: Any, context: dict[str, Any]) -> bool:
    """Whether the audit's task goes as far as submitting a job."""
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    audit = dag.get_task("audit")
    audit.application_args = context["args"]
    with mock.patch.object(SparkSubmitOperator, "execute") as submit:
        audit.execute(context)
    return bool(submit.called)


def main() -> None:
    """Does what the first argument says."""
    dag = load()
    if sys.argv[1] == "import":
        outlets = {t.task_id: [outlet.name for outlet in t.outlets] for t in dag.tasks}
        below = {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks}
        print("\n" + json.dumps({"id": dag.dag_id, "outlets": outlets, "below": below, "catchup": dag.catchup}))
        return
    for name in ABSENT:
        del sys.modules[name]
    if sys.argv[1] == "retry":
        print("\n" + json.dumps({"submitted": submits(dag, json.loads(sys.argv[2]))}))
        return
    for each in dag.tasks:
        each.retries = 0  # behind a minute each; the scheduler's test has some
    run = dag.test(run_conf=json.loads(sys.argv[2]))
    found = run.get_task_instances()
    many = max(instance.map_index for instance in found) > 0
    names = {id(each): f"{each.task_id}[{each.map_index}]" if many else each.task_id for each in found}
    states = {names[id(each)]: str(each.state) for each in found}
    print("\n" + json.dumps({"run_id": run.run_id, "state": str(run.state), "tasks": states}))


if __name__ == "__main__":
    main()
