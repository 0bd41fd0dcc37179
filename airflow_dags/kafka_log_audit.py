"""The audit as an Airflow 3 DAG: inventory, audit (spark-submit), judge, publish, dashboard (spark-submit).

Put this file, or a one-line module that imports ``dag`` from it, into a DAG bundle. It needs Airflow 3.3 and its Spark
provider alone: the auditor, pyspark and great-expectations live where spark-submit finds them, never in Airflow's
environment. What belongs to the installation comes from the environment of Airflow's workers:

    KAFKA_AUDIT_JOB       path of auditor/job.py (default: beside this file's folder)
    KAFKA_AUDIT_SCHEDULE  a cron expression; without it, runs are started by hand, by assets or through the API
    KAFKA_AUDIT_PATHS     what to audit, split by spaces, as default of the parameter
    KAFKA_AUDIT_CLUSTERS  many clusters, as JSON: {"name": ["path", ...], ...}, as default of the parameter
    KAFKA_AUDIT_OUT       folder of the results, which the worker and the Spark driver share, or a URI such as
                          s3://bucket/audits; default of the parameter
    KAFKA_AUDIT_WORK      folder or URI for what was read, which Spark's workers share (default: OUT/work)
    KAFKA_AUDIT_CONN      the connection by which Airflow's own tasks open a URI; without it as its provider does
    KAFKA_AUDIT_NAME      the DAG's id, with which the names of its assets begin (default: kafka_log_audit)
    KAFKA_AUDIT_POOL      the Airflow pool of the tasks that submit jobs (default: default_pool)
    KAFKA_AUDIT_TIMEOUT   minutes until such a task is stopped with its job and fails (default: 720)
    KAFKA_AUDIT_PY_FILES, KAFKA_AUDIT_ARCHIVES   the project's zip and the packed environment, for bare executors
    AIRFLOW_CONN_SPARK_DEFAULT                   the Spark master

A variable with a mistake fails the task ``clusters``, which says what is wrong; the DAG stays. With a mistake in
KAFKA_AUDIT_SCHEDULE it starts daily, so that somebody sees it.

A URI is opened by Airflow's object storage, which needs the provider of its scheme (for ``s3://``
``apache-airflow-providers-amazon[s3fs]``); the job opens it by the auditor's own drivers, with the credentials that
Spark's driver and executors have.

Each run writes to ``OUT/runs/<run id>`` and keeps its results in the history under ``OUT/history``. With many clusters
every task is there once a cluster, by its name: one that fails stands as failed, and the others go on; results lie in
``OUT/runs/<run id>/<name>`` and ``OUT/latest/<name>``. When all clusters were audited, the pages of ``auditor
dashboard`` over the history are written to ``OUT/dashboard``, for any web server or bucket; they say which is overdue.
Findings never fail the audit, but the judge. A retry of the audit submits nothing when the results of its run are
whole already, and on YARN, Kubernetes and standalone masters in cluster mode finds the job that it left running;
clear ``inventory`` too to audit again. What an earlier try has read of each partition is in ``KAFKA_AUDIT_WORK``, and
is not read twice.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Asset, ObjectStoragePath, Param, TriggerRule, dag, get_current_context, task, task_group
from airflow.sdk.exceptions import AirflowFailException

JOB = os.environ.get("KAFKA_AUDIT_JOB", str(Path(__file__).resolve().parents[1] / "auditor" / "job.py"))
SEVERITIES = ("critical", "error", "warning", "info")
POLICIES = ("auto", "pre-kip-360", "kip-360", "kip-890", "latest-batch-only")
PUBLISHED = ("report.html", "findings.jsonl", "metrics.prom", "summary.json")
SUMMARY = "summary.json"  # written last: where it is, all results are
SHOWN = 10  # findings in the judge's message

CHANNELS = ("slack", "pagerduty", "webhook")
OF_THE_DAG = ("--out", "--history", "--run-id", "--fail-on", "--work", "--as-of", "--format", "--plan")
MISTAKES: list[str] = []  # in the variables of the installation


def setting(name: str, parse: Callable[[str], Any], default: Any) -> Any:
    """Return a variable's value as ``parse`` gives it, or the default; a mistake is added to ``MISTAKES``."""
    text = os.environ.get(name)
    if not text:
        return default
    try:
        return parse(text)
    except Exception as error:  # noqa: BLE001 - else the DAG would vanish from the list of DAGs
        MISTAKES.append(f"{name}={text!r}: {error}")
        return default


def paths_by_cluster(text: str) -> dict[str, list[str]]:
    """Parse KAFKA_AUDIT_CLUSTERS. Errors: ValueError."""
    given = json.loads(text)
    lists = given.values() if isinstance(given, dict) else [None]
    if not all(isinstance(paths, list) and all(isinstance(path, str) for path in paths) for paths in lists):
        raise ValueError('give JSON such as {"name": ["path", ...]}')
    return dict(given)


def schedule(text: str) -> str:
    """Return a cron expression or preset. Errors: Airflow's for an invalid one."""
    DAG("schedule", schedule=text).timetable.validate()
    return text


def dag_name(text: str) -> str:
    """Return the DAG's id. Errors: Airflow's for an invalid one."""
    return str(DAG(text).dag_id)


def minutes(text: str) -> timedelta:
    """Parse a time of more than no minutes. Errors: ValueError."""
    if (duration := timedelta(minutes=float(text))) <= timedelta():
        raise ValueError("give minutes above 0")
    return duration


NAME = setting("KAFKA_AUDIT_NAME", dag_name, "kafka_log_audit")
SCHEDULE = setting("KAFKA_AUDIT_SCHEDULE", schedule, None)
if MISTAKES and SCHEDULE is None and os.environ.get("KAFKA_AUDIT_SCHEDULE"):
    SCHEDULE = "@daily"
RESULTS = Asset(f"{NAME}_results")  # the history of runs
REPORT = Asset(f"{NAME}_report")  # the newest report, and the metrics for a node exporter
DASHBOARD = Asset(f"{NAME}_dashboard")  # the pages over all runs
SUBMITTING = {  # arguments of both tasks that submit a job
    "application": JOB,
    "py_files": os.environ.get("KAFKA_AUDIT_PY_FILES"),
    "archives": os.environ.get("KAFKA_AUDIT_ARCHIVES"),
    "execution_timeout": setting("KAFKA_AUDIT_TIMEOUT", minutes, timedelta(hours=12)),
    "pool": os.environ.get("KAFKA_AUDIT_POOL") or "default_pool",
}


def texts(description: str, **more: Any) -> Param:
    """Return a parameter that is a list of texts, empty by default."""
    return Param([], type="array", items={"type": "string", "minLength": 1} | more, description=description)


PARAMS = {
    "paths": Param(
        os.environ.get("KAFKA_AUDIT_PATHS", "").split(),
        type="array",
        items={"type": "string"},
        description="Log directories, directories with several of them, or URIs; as the worker and Spark see them",
    ),
    "clusters": Param(
        setting("KAFKA_AUDIT_CLUSTERS", paths_by_cluster, {}),
        type="object",
        additionalProperties={"type": "array", "items": {"type": "string"}},
        description="Instead of paths: the paths of each cluster by its name, one audit per cluster",
    ),
    "out": Param(os.environ.get("KAFKA_AUDIT_OUT", ""), type="string", description="Directory or URI of the results"),
    "policy": Param("auto", enum=list(POLICIES), description="Which brokers' rules the log was written under"),
    "severity": Param("error", enum=[*SEVERITIES, "never"], description="The judge fails at this severity or above"),
    "as_of": Param(
        "newest",
        enum=["newest", "run_after"],
        description="Evaluation time: the newest broker timestamp (for copies), or the time of the run",
    ),
    "records": Param(False, type="boolean", description="Decode every record too (KIP-467)"),
    "expectations": Param(False, type="boolean", description="Run the great-expectations suites over the results"),
    "tables": Param(False, type="boolean", description="Also write the decoded and derived tables as Parquet"),
    "work": Param(
        os.environ.get("KAFKA_AUDIT_WORK", ""),
        type="string",
        description="Directory or URI for --work, shared by Spark's workers (default: work in 'out')",
    ),
    "baseline": Param("", type="string", description="Baseline: file of suppressed findings, as the job sees it"),
    "config": Param("", type="string", description="File of options, as the job sees it"),
    "cluster_name": Param("", type="string", description="Name of the cluster, if 'paths' has only one"),
    "alert": texts("Where alerts go; secrets are in the job's environment", enum=list(CHANNELS)),
    "remote": texts("Remote parts of tiered topics"),
    "topic": texts("Read only these topics (globs)"),
    "extra_args": texts("Further arguments of 'auditor audit', one word per item, such as --max-findings, 100"),
}


def results_of(params: dict[str, Any], run_id: str, cluster: str) -> str:
    """Return the directory of a run's results about one cluster; ``cluster`` is empty if it has no name."""
    return below(params["out"], "runs", quote(run_id, safe=""), *([named(cluster)] if cluster else []))


def below(folder: str, *names: str) -> str:
    """Return a directory or URI below another one. In a URI ``=`` replaces ``%``, which some drivers decode."""
    return "/".join([folder.rstrip("/"), *(name.replace("%", "=") if "://" in folder else name for name in names)])


def opened(folder: str) -> Any:
    """Return a local directory, or one in Airflow's object storage, as a ``pathlib`` path."""
    if "://" not in folder:
        return Path(folder)
    return ObjectStoragePath(folder, conn_id=os.environ.get("KAFKA_AUDIT_CONN"))


def named(cluster: str) -> str:
    """Return a cluster's name as a directory name."""
    return quote(cluster, safe="").replace(".", "%2E")


def summary_of(folder: str) -> dict[str, Any] | None:
    """Return the summary of a complete run; None if the results are incomplete."""
    try:
        summary: dict[str, Any] = json.loads((opened(folder) / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return summary


class AuditOperator(SparkSubmitOperator):
    """Submits the audit, unless an earlier try of the same run left complete results."""

    def execute(self, context: Any) -> Any:
        """Run the job. Errors: those of the submission, and of a job that could not read all of its input."""
        args = list(self.application_args)
        summary = summary_of(args[args.index("--out") + 1])
        if summary is not None and summary["complete"]:
            self.log.info("the results of this run are whole; nothing to do")
            return None
        return super().execute(context)


@task
def clusters() -> list[dict[str, Any]]:
    """What is to be audited: a name and paths a cluster, one without a name where there is no list of them."""
    if MISTAKES:
        raise AirflowFailException("; ".join(MISTAKES))
    params = get_current_context()["params"]
    return [{"name": name, "paths": paths} for name, paths in sorted(params["clusters"].items())] or [
        {"name": "", "paths": params["paths"]}
    ]


@task
def inventory(cluster: dict[str, Any]) -> list[str]:
    """Looks for what is to be audited, and gives the job's arguments. Cheap: no file is opened.

    Errors: AirflowFailException, which no retry helps, for missing parameters and for local paths that are not there.
    """
    context = get_current_context()
    params, run_id = context["params"], context["run_id"]
    name, paths = cluster["name"], cluster["paths"]
    if not paths or not params["out"]:
        raise AirflowFailException("give the parameters 'paths' and 'out', or KAFKA_AUDIT_PATHS and KAFKA_AUDIT_OUT")
    missing = [path for path in paths if "://" not in path and not Path(path).exists()]
    if missing:
        raise AirflowFailException(f"not there: {', '.join(missing)}")
    if refused := [word for word in params["extra_args"] if word.partition("=")[0] in (*OF_THE_DAG, "--")]:
        raise AirflowFailException(f"extra_args has {', '.join(refused)}, which the DAG gives itself")
    folder = results_of(params, run_id, name)
    with contextlib.suppress(FileNotFoundError):
        (opened(folder) / SUMMARY).unlink()  # from here on, results are those of this run
    args = ["--out", folder, "--policy", params["policy"], "--fail-on", "never", "--quiet"]
    args += ["--history", below(params["out"], "history"), "--run-id", f"{run_id} {name}".rstrip()]
    if params["as_of"] == "run_after":  # not the logical date, which runs started by hand or by assets lack
        args += ["--as-of", context["dag_run"].run_after.isoformat()]
    work = below(params["work"] or below(params["out"], "work"), *([named(name)] if name else []))
    given = {"--work": work, "--cluster-name": name or params["cluster_name"]}
    given |= {f"--{one}": params[one] for one in ("baseline", "config")}
    args += [word for option, value in given.items() if value for word in (option, value)]
    args += [f"--{one}" for one in ("records", "expectations", "tables") if params[one]]
    args += [word for one in ("alert", "remote", "topic") for value in params[one] for word in (f"--{one}", value)]
    return [*args, *params["extra_args"], "--", *paths]


@task(trigger_rule=TriggerRule.ALL_DONE)
def judge(cluster: dict[str, Any]) -> dict[str, int]:
    """Fails when there are findings of the wanted severity, or when the audit could not read all of its input.

    Gives the number of findings by severity.
    """
    context = get_current_context()
    folder = results_of(context["params"], context["run_id"], cluster["name"])
    summary = summary_of(folder)
    if summary is None:
        raise AirflowFailException("there are no results to judge: see the log of the task 'audit'")
    counts: dict[str, int] = summary["counts"]["by_severity"]
    level = context["params"]["severity"]
    failing = [] if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
    if any(counts[name] for name in failing):
        with (opened(folder) / "findings.jsonl").open(encoding="utf-8") as lines:  # the most severe come first
            shown = [json.loads(line) for _, line in zip(range(SHOWN), lines, strict=False)]
        messages = "\n".join(f"{row['severity']}: {row['message']}" for row in shown if row["severity"] in failing)
        raise AirflowFailException(f"{', '.join(f'{counts[name]} {name}' for name in failing)}\n{messages}")
    if not summary["complete"]:
        why = summary.get("empty_input") or f"part of the input could not be read: {summary['unreadable'][:SHOWN]}"
        raise AirflowFailException(why)
    return counts


@task(outlets=[REPORT], trigger_rule=TriggerRule.ALL_DONE)
def publish(cluster: dict[str, Any], *, outlet_events: Any = None) -> str:
    """Puts the newest report and metrics in ``OUT/latest``, or in a cluster's folder there, each file whole.

    Also when the judge says no.
    """
    context = get_current_context()
    folder = results_of(context["params"], context["run_id"], cluster["name"])
    summary = summary_of(folder)
    if summary is None:
        raise AirflowFailException("there are no results to publish: see the log of the task 'audit'")
    latest = below(context["params"]["out"], "latest", *([named(cluster["name"])] if cluster["name"] else []))
    for name in PUBLISHED:
        put(opened(latest), name, (opened(folder) / name).read_bytes())
    extra = {"run_id": context["run_id"], "cluster": cluster["name"]}
    outlet_events[REPORT].extra = extra | {"counts": summary["counts"]["by_severity"]}
    return below(latest, "report.html")


def put(folder: Any, name: str, content: bytes) -> None:
    """Write a file atomically; a store shows an object only when it is complete."""
    if not isinstance(folder, Path):
        (folder / name).write_bytes(content)
        return
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{name}.part"
    part.write_bytes(content)
    os.replace(part, folder / name)


def dashboard() -> SparkSubmitOperator:
    """Render the pages of the history in one task after all audits: each run is compared with those before it.

    The task depends on the audits alone: Airflow takes a run's state from the last tasks, which must be judge and
    publish.
    """
    out = "{{ params.out.rstrip('/') }}"
    return SparkSubmitOperator(
        **SUBMITTING,
        task_id="dashboard",
        application_args=["dashboard", f"{out}/history", "--export", f"{out}/dashboard"],
        name="kafka-log-audit-dashboard",
        trigger_rule=TriggerRule.ALL_DONE,
        outlets=[DASHBOARD],
    )


@task_group(prefix_group_id=False)
def of_cluster(cluster: dict[str, Any]) -> None:
    """Inventory, then the audit, then its judgement and the publishing side by side."""
    audit = AuditOperator(
        **SUBMITTING,
        task_id="audit",
        application_args=inventory(cluster),
        name="kafka-log-audit",
        outlets=[RESULTS],
    )
    audit >> [judge(cluster), publish(cluster)]


@dag(
    dag_id=NAME,
    schedule=SCHEDULE,
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["kafka", "audit"],
    doc_md=__doc__,
)
def kafka_log_audit() -> None:
    """The same for each cluster, and the pages over all once each was audited."""
    of_cluster.expand(cluster=clusters())
    pages = dashboard()
    pages.dag.get_task("audit") >> pages  # of every cluster: it lies outside of their group


kafka_log_audit()
