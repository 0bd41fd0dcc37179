"""The DAG in a real Airflow, in an environment of its own (``make airflow-env``), with a real spark-submit."""

from __future__ import annotations

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
from tests import corpora, store

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
    return found


def findings(out: Path) -> bytes:
    return (out / "latest" / "findings.jsonl").read_bytes()


def test_the_dag_is_imported_without_the_auditors_libraries(env: dict[str, str]) -> None:
    found = json.loads(airflow(env, str(SCRIPT), "import").splitlines()[-1])
    assert found == {
        "outlets": {
            "clusters": [], "inventory": [], "audit": ["kafka_log_audit_results"], "judge": [],
            "publish": ["kafka_log_audit_report"], "dashboard": ["kafka_log_audit_dashboard"],
        },
        "below": {
            "clusters": ["inventory", "judge", "publish"], "inventory": ["audit"],
            "audit": ["dashboard", "judge", "publish"], "judge": [], "publish": [], "dashboard": [],
        },
        "catchup": False,
    }  # fmt: skip


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
    assert "4 partitions are blocked" in (tmp_path / "dashboard" / "index.html").read_text()


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
    assert "4 partitions are blocked" in (tmp_path / "dashboard" / "index.html").read_text()
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


def test_a_scheduler_runs_it(env: dict[str, str], tmp_path: Path) -> None:
    """The run is asked for at the API's side, planned by the scheduler, and run by its executor."""
    log = tmp_path / "standalone.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(AIRFLOW), "-m", "airflow", "standalone"], env=env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait(lambda: DAG in airflow(env, "-m", "airflow", "dags", "list", "-o", "plain"), log, 180)
        conf = {"paths": [str(corpora.unpack("hanging-36"))], "out": str(tmp_path / "out"), "severity": "never"}
        airflow(env, "-m", "airflow", "dags", "unpause", DAG)
        airflow(env, "-m", "airflow", "dags", "trigger", DAG, "--run-id", "by+hand", "--conf", json.dumps(conf))
        wait(lambda: state(env) in ("success", "failed"), log, 600)
        assert state(env) == "success", log.read_text(errors="replace")[-5000:]
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # SIGTERM, handed around among its parts, was seen to end this test too
        process.wait()
    assert b'"rule":"hanging-transaction"' in findings(tmp_path / "out")
    assert [run.run_id for run in runs.committed(tmp_path / "out" / "history")] == ["by+hand"]


def state(env: dict[str, str]) -> str:
    rows = json.loads(airflow(env, "-m", "airflow", "dags", "list-runs", DAG, "-o", "json").splitlines()[-1])
    return next((str(row["state"]) for row in rows if row["run_id"] == "by+hand"), "none")


def wait(done: Any, log: Path, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, log.read_text(errors="replace")[-5000:]
        time.sleep(5)
