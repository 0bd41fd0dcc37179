"""The DAG in a real Airflow, in an environment of its own (``make airflow-env``), with a real spark-submit."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyarrow import fs

from auditor.outputs import runs
from tests import corpora, failing_store, small_tasks, store

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("in_airflow.py")
AIRFLOW = Path(os.environ.get("AIRFLOW_PYTHON", ROOT / ".venv-airflow" / "bin" / "python")).absolute()
DAG = "kafka_log_audit"

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark]


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An Airflow of its own: empty, on loopback, with a connection to a local Spark master."""
    home = tmp_path_factory.mktemp("airflow")
    spark_home = Path(pyspark.__file__).parent
    connection = {"conn_type": "spark", "host": "local[2,4]", "extra": {"spark-binary": "spark-submit"}}
    port = free_port()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW_", "SPARK_"))}
    made = kept | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "airflow_dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__FERNET_KEY": "",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": free_port(),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": free_port(),
        "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(AIRFLOW.parent), str(spark_home / "bin"), os.environ["PATH"]]),
    }
    airflow(made, "-m", "airflow", "db", "migrate")
    return made


def airflow(env: dict[str, str], *args: str) -> str:
    """Runs Airflow's Python; returns what it printed."""
    done = subprocess.run([str(AIRFLOW), *args], env=env, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def run_dag(env: dict[str, str], **conf: Any) -> dict[str, Any]:
    """What came of ``dag.test()``."""
    lines = airflow(env, str(SCRIPT), "test", json.dumps(conf)).splitlines()
    sys.stdout.writelines(f"{line}\n" for line in lines)  # pytest shows it where the test fails
    found: dict[str, Any] = json.loads(lines[-1])
    return found | {"printed": "\n".join(lines[:-1])}


def findings(out: Path) -> bytes:
    return (out / "latest" / "findings.jsonl").read_bytes()


def test_the_dag_is_imported_without_the_auditors_libraries(env: dict[str, str]) -> None:
    """Its id and the names of its assets are the installation's."""
    found = json.loads(airflow(env | {"KAFKA_AUDIT_NAME": "west"}, str(SCRIPT), "import").splitlines()[-1])
    assert found == {
        "id": "west",
        "outlets": {
            "clusters": [], "inventory": [], "audit": ["west_results"], "judge": [],
            "publish": ["west_report"], "dashboard": ["west_dashboard"],
        },
        "below": {
            "clusters": ["inventory", "judge", "publish"], "inventory": ["audit"],
            "audit": ["dashboard", "judge", "publish"], "judge": [], "publish": [], "dashboard": [],
        },
        "catchup": False,
    }  # fmt: skip


MISTAKEN = {
    "KAFKA_AUDIT_SCHEDULE": "every night",
    "KAFKA_AUDIT_CLUSTERS": '{"berlin": "/copies"}',
    "KAFKA_AUDIT_TIMEOUT": "-5",
    "KAFKA_AUDIT_NAME": "kafka audit",
}


def test_mistakes_in_variables_are_a_failed_task_that_names_each(env: dict[str, str], tmp_path: Path) -> None:
    found = run_dag(env | MISTAKEN, paths=[str(corpora.unpack("healthy-41"))], out=str(tmp_path))
    assert found["state"] == "failed"
    assert found["tasks"]["clusters"] == "failed"
    assert [name for name, text in MISTAKEN.items() if f"{name}={text!r}: " not in found["printed"]] == []


def test_options_reach_the_audit(env: dict[str, str], tmp_path: Path) -> None:
    """A baseline that accepts all, a name, one topic, tables, and an option that the DAG does not know."""
    copy, out = corpora.unpack("hanging-36"), tmp_path / "out"
    baseline, config = tmp_path / "accepted.json", tmp_path / "options.toml"
    words = ["audit", str(copy), "--out", str(tmp_path / "first"), "--master", "inline", "--fail-on", "never"]
    subprocess.run([sys.executable, "-m", "auditor.cli", *words, "--quiet"], check=True)
    words = ["baseline", "--out", str(tmp_path / "first"), "--baseline", str(baseline), "--reason", "known"]
    subprocess.run([sys.executable, "-m", "auditor.cli", *words], check=True)
    config.write_text("max-findings = 7\n")
    found = run_dag(
        env, paths=[str(copy)], out=str(out), severity="never", tables=True, baseline=str(baseline),
        config=str(config), cluster_name="Bergen", topic=["bank.*"], extra_args=["--whole"],
    )  # fmt: skip
    assert found["state"] == "success", found["printed"][-3000:]
    (folder,) = (out / "runs").iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["baseline"]["accepted"]
    assert [one["name"] for one in summary["clusters"]] == ["Bergen"]
    assert summary["scope"]["topics"] == ["bank.*"]
    assert summary["scope"]["whole"] is True
    assert {path.name for path in (folder / "tables").iterdir()} >= {"batches", "transactions"}
    assert list((out / "work").glob("*.arrow"))
    refused = run_dag(env, paths=[str(copy)], out=str(out), extra_args=["--out=/elsewhere"])
    assert refused["tasks"]["inventory"] == "failed"
    assert "which the DAG gives itself" in refused["printed"]


def test_an_audit_that_takes_too_long_ends_with_its_job(env: dict[str, str], tmp_path: Path) -> None:
    """The store never answers in time; no process of the job is left."""
    with failing_store.failing(copies=corpora.unpack("hanging-36")) as server:
        server.manner.latency_s = 20.0
        slow = env | server.environment() | {"KAFKA_AUDIT_TIMEOUT": "0.4"}
        found = run_dag(slow, paths=["s3://copies"], out=str(tmp_path), severity="critical")
    assert found["tasks"]["audit"] != "success"
    assert "AirflowTaskTimeout" in found["printed"]
    end = time.monotonic() + 60
    while (left := processes_with(str(tmp_path))) and time.monotonic() < end:
        time.sleep(1)
    assert not left


def processes_with(text: str) -> dict[int, str]:
    """Processes whose command line has a text."""
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in words:
                lines[int(path.parent.name)] = words
    return lines


def test_findings_fail_the_judge_and_not_the_audit(env: dict[str, str], tmp_path: Path) -> None:
    paths = [str(corpora.unpack("hanging-36"))]
    found = run_dag(env, paths=paths, out=str(tmp_path), severity="critical", records=True)
    good = dict.fromkeys(("clusters", "inventory", "audit", "publish", "dashboard"), "success")
    assert found["tasks"] == {**good, "judge": "failed"}
    assert found["state"] == "failed"
    assert b'"rule":"hanging-transaction"' in findings(tmp_path)
    assert (tmp_path / "latest" / "report.html").read_text().startswith("<!")
    (kept,) = runs.committed(tmp_path / "history")
    assert kept.run_id == found["run_id"]
    rows = [json.loads(line) for line in findings(tmp_path).splitlines()]
    assert kept.files["findings"][0]["rows"] == len(rows)
    pages = {path.stem for path in (tmp_path / "dashboard" / "finding").iterdir()}
    assert pages == {row["fingerprint"] for row in rows}
    assert "4 partitions blocked" in (tmp_path / "dashboard" / "index.html").read_text()


def test_input_and_results_may_be_in_buckets(env: dict[str, str], tmp_path: Path) -> None:
    """Airflow's own tasks read and write there by its object storage, the job by the auditor's drivers."""
    with store.serving() as credentials:
        store.upload(corpora.unpack("hanging-36"), "copies", credentials)
        store.upload(tmp_path, "audits", credentials)
        there = env | credentials
        found = run_dag(there, paths=["s3://copies"], out="s3://audits/nightly", severity="critical", records=True)
        assert found["tasks"]["judge"] == "failed"
        assert found["tasks"]["publish"] == "success"
        files = fs.S3FileSystem(
            access_key=store.KEY, secret_key=store.SECRET, endpoint_override=credentials["AWS_ENDPOINT_URL"],
            region="us-east-1",
        )  # fmt: skip
        fs.copy_files("audits/nightly", str(tmp_path), source_filesystem=files)
        (folder,) = (tmp_path / "runs").iterdir()
        context = {"args": ["--out", f"s3://audits/nightly/runs/{folder.name}", "--", "path"]}
        again = json.loads(airflow(there, str(SCRIPT), "retry", json.dumps(context)).splitlines()[-1])
    assert again == {"submitted": False}
    assert b'"rule":"hanging-transaction"' in findings(tmp_path)
    assert {path.name for path in (tmp_path / "latest").iterdir()} >= {"report.html", "summary.json", "metrics.prom"}
    assert (folder / "findings.jsonl").read_bytes() == findings(tmp_path)
    assert "4 partitions blocked" in (tmp_path / "dashboard" / "index.html").read_text()
    (kept,) = runs.committed(tmp_path / "history")
    assert kept.run_id == found["run_id"]


def test_the_input_may_be_a_copy_in_a_bucket(env: dict[str, str], tmp_path: Path) -> None:
    """What ``auditor copy`` leaves there of a broker every night."""
    with store.serving() as credentials:
        store.upload(tmp_path, "copies", credentials)
        words = ["copy", str(corpora.unpack("hanging-36")), "--out", "s3://copies/cluster", "--quiet"]
        call = [sys.executable, "-m", "auditor.cli", *words]
        subprocess.run(call, env=store.clean_environment(credentials), check=True)
        paths = ["s3://copies/cluster"]
        found = run_dag(env | credentials, paths=paths, out=str(tmp_path), severity="critical")
    assert found["tasks"]["judge"] == "failed"
    assert found["tasks"]["publish"] == "success"
    hanging = [line for line in findings(tmp_path).splitlines() if b'"rule":"hanging-transaction"' in line]
    assert len(hanging) == 4
    assert all(b'"severity":"critical"' in line for line in hanging)
    assert "is a copy without payload" in (tmp_path / "latest" / "summary.json").read_text()


def test_a_healthy_directory_is_judged_healthy(env: dict[str, str], tmp_path: Path) -> None:
    paths = [str(corpora.unpack("healthy-41"))]
    found = run_dag(env, paths=paths, out=str(tmp_path), severity="warning")
    assert set(found["tasks"].values()) == {"success"}
    assert found["state"] == "success"


@pytest.mark.parametrize(("complete", "submitted"), [(True, False), (False, True), (None, True)])
def test_a_retry_submits_only_what_is_not_done(
    env: dict[str, str], tmp_path: Path, complete: bool | None, submitted: bool
) -> None:
    """``complete``: what the summary that an earlier try left says; None where it left none."""
    folder = tmp_path / "runs" / "by%2Bhand"
    folder.mkdir(parents=True)
    if complete is not None:
        (folder / "summary.json").write_text(json.dumps({"complete": complete}))
    context = {"args": ["--out", str(folder), "--", "path"]}
    found = json.loads(airflow(env, str(SCRIPT), "retry", json.dumps(context)).splitlines()[-1])
    assert found == {"submitted": submitted}


def test_every_cluster_is_audited_by_itself_and_one_that_fails_stands_alone(
    env: dict[str, str], tmp_path: Path
) -> None:
    clusters = {"berlin": [str(corpora.unpack("healthy-41"))], "oslo": [str(tmp_path / "gone")]}
    found = run_dag(env, clusters=clusters, out=str(tmp_path), severity="warning")
    assert found["state"] == "failed"
    assert {found["tasks"][f"{name}[0]"] for name in ("inventory", "audit", "judge", "publish")} == {"success"}
    assert found["tasks"]["inventory[1]"] == "failed"
    assert found["tasks"]["publish[1]"] == "failed"
    assert (found["tasks"]["dashboard[-1]"], found["state"]) == ("success", "failed")
    assert (tmp_path / "latest" / "berlin" / "report.html").is_file()
    (kept,) = runs.committed(tmp_path / "history")
    assert kept.run_id == f"{found['run_id']} berlin"


def test_a_path_that_is_not_there_ends_in_the_inventory(env: dict[str, str], tmp_path: Path) -> None:
    found = run_dag(env, paths=[str(tmp_path / "gone")], out=str(tmp_path))
    assert found["tasks"]["inventory"] == "failed"
    assert found["state"] == "failed"
    assert not (tmp_path / "history").exists()


def test_a_scheduler_runs_it_and_a_retry_reads_nothing_twice(env: dict[str, str], tmp_path: Path) -> None:
    """The run is asked for at the API's side, planned by the scheduler, and run by its executor. The first driver is
    killed once it has kept a part of what it read."""
    with failing_store.failing(copies=corpora.unpack("hanging-36")) as server:
        server.manner.latency_s = 0.2
        path = small_tasks.python_path(tmp_path, 1000)
        _scheduled(env | server.environment() | {"PYTHONPATH": path}, tmp_path, server)


def _scheduled(env: dict[str, str], tmp_path: Path, server: failing_store.FailingStore) -> None:
    log, out = tmp_path / "standalone.log", tmp_path / "out"
    with log.open("wb") as standalone:
        process = subprocess.Popen(
            [str(AIRFLOW), "-m", "airflow", "standalone"], env=env, stdout=standalone, stderr=standalone,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait(lambda: DAG in airflow(env, "-m", "airflow", "dags", "list", "-o", "plain"), log, 180)
        conf = {"paths": ["s3://copies"], "out": str(out), "severity": "never"}
        airflow(env, "-m", "airflow", "dags", "unpause", DAG)
        airflow(env, "-m", "airflow", "dags", "trigger", DAG, "--run-id", "by+hand", "--conf", json.dumps(conf))
        wait(lambda: list((out / "work").glob("*.arrow")), log, 300, pause_s=0.01)
        for pid in processes_with(f"--out {out}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(2)  # what the killed ones asked last
        before = {request.key for request in server.log if is_segment(request)}
        kept, since = len(list((out / "work").glob("*.arrow"))), len(server.log)
        wait(lambda: state(env) in ("success", "failed"), log, 600)
        assert state(env) == "success", log.read_text(errors="replace")[-5000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # SIGTERM, handed around among its parts, was seen to end this test too
        process.wait()
    assert b'"rule":"hanging-transaction"' in findings(out)
    assert [run.run_id for run in runs.committed(out / "history")] == ["by+hand"]
    after = [request.key for request in server.log[since:] if is_segment(request)]
    copy = corpora.unpack("hanging-36")
    every = {p.relative_to(copy).as_posix() for p in copy.rglob("*.log") if p.stat().st_size}
    assert before | set(after) == every
    assert kept
    assert len(set(after)) <= len(every) - kept, "a task a partition, each of whose facts are kept in a file"


def is_segment(request: failing_store.Request) -> bool:
    return request.method == "GET" and request.key.endswith(".log")


def state(env: dict[str, str]) -> str:
    rows = json.loads(airflow(env, "-m", "airflow", "dags", "list-runs", DAG, "-o", "json").splitlines()[-1])
    return next((str(row["state"]) for row in rows if row["run_id"] == "by+hand"), "none")


def wait(done: Any, log: Path, timeout_s: float, pause_s: float = 5) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, log.read_text(errors="replace")[-5000:]
        time.sleep(pause_s)
