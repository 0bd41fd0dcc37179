"""Starting Spark the way the auditor needs it: our interpreter in the workers, retries as on a cluster."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from auditor.base.errors import AuditInputError
from auditor.spark import connect_server, jvm, jvm_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
LOCAL_ATTEMPTS = re.compile(r"local(?:\[(?:\*|\d+)(?:,(\d+))?\])?")
ATTEMPTS_OF = "spark.task.maxFailures"
TASK_FAILURES = 4  # attempts of a task; a worker that dies once must not end the audit
SUBMITTED = "SPARK_SUBMIT_MODE"  # set by auditor/job.py
DAEMON = "spark.python.daemon.module"  # the parent of all workers, here one that has loaded what they need
SAFE_PATH = "PYTHONSAFEPATH"  # where it is set, python -m leaves the working directory out of sys.path
WORKERS_SAFE_PATH = f"spark.executorEnv.{SAFE_PATH}"
IMPORTS_FROM_DIRECTORY = (
    f"Python workers of this Spark session import modules from their working directory; start it with {SAFE_PATH}=1 in "
    f"the driver's environment and {WORKERS_SAFE_PATH}=1 (docs/running.md)"
)
DRIVER_MEMORY = "SPARK_DRIVER_MEMORY"  # Spark's own way to set the driver's heap from outside
GIB = 1 << 30


def local_with_retries(master: str) -> str:
    """``local[N]`` as ``local[N,4]``, so that local runs retry tasks as clusters do; other masters as they are."""
    found = LOCAL.fullmatch(master)
    return f"local[{found[1] or '1'},{TASK_FAILURES}]" if found else master


def find_java() -> str | None:
    """The ``java`` that Spark will start: below JAVA_HOME, else on PATH; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return str(java)
    return shutil.which("java")


def java_version(java: str) -> int:
    """The feature release of a ``java`` (17, 21, ...), 0 when it does not say."""
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(found[1]) if found else 0


def require_java() -> None:
    """Fails with a hint when there is no Java that Spark 4 runs on."""
    java = find_java()
    if java is None:
        raise AuditInputError("no Java found; install Java 17 or 21, or point JAVA_HOME at it ('make setup' says how)")
    if (version := java_version(java)) < 17:
        raise AuditInputError(
            f"Spark needs Java 17 or 21, but {java} is Java {version}; point JAVA_HOME at a newer one"
        )


def machine_bytes() -> int:
    """The memory of this machine, or of the container around this process where it has less; 0 where nobody says."""
    known = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup versions 2 and 1
        with contextlib.suppress(OSError, ValueError):
            known.append(int(Path("/sys/fs/cgroup", file).read_text(encoding="ascii")))
    return min((size for size in known if size > 0), default=0)


def heap_bytes(machine: int, input_bytes: int) -> int:
    """The most that the driver's heap may grow to, in bytes of the machine's memory and of the input.

    A GiB is Java's own where nothing is said, and enough for most; facts of large replicas pass through the heap, three
    times. Beyond 31 GiB Java's references double. Python's workers and the page cache need the rest of the machine.
    """
    return max(GIB, min(GIB + 4 * input_bytes, machine // 4, 31 * GIB))


def start(
    master: str | None,
    conf: dict[str, str] | None = None,
    input_bytes: int = 0,
    say: Callable[[str], None] | None = None,
) -> SparkSession:
    """The running session, or a new one. ``master`` None: whatever spark-submit or the environment says.
    ``say`` hears that a Connect server is waited for, and that the workers of a session that others started import
    from their working directory.

    Workers get this interpreter, so that they see the same packages, and import nothing from the working directory,
    which may hold the input; Arrow is on; the UI is off unless asked for. Under spark-submit its master and settings
    count, ``master`` does not, and only what results depend on and what keeps the input from being run is set.
    """
    from pyspark.sql import SparkSession

    say = say or (lambda _: None)
    if master is not None and master.startswith("sc://"):
        connect_server.wait_for(master, say)
        session = _settled(SparkSession.builder.remote(master).getOrCreate())
        return _checked(session, say)
    submitted = bool(os.environ.get(SUBMITTED))
    if submitted:
        master = None
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_CONF_DIR", str(jvm.KEPT / "no-settings"))  # and no such folder
    builder = SparkSession.builder.appName("kafka-log-auditor")
    if master is not None:
        builder = builder.master(local_with_retries(master))
        if LOCAL.match(master):
            require_java()
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    local = LOCAL.match(master or "") is not None
    ours: dict[str, str] = {}
    if not submitted:
        of_java = {"spark.driver.extraJavaOptions": jvm.options(find_java(), short=local)}
        ours = SETTINGS | of_java | (OF_ONE_MACHINE if local else {})
    if not submitted and LOCAL.fullmatch(master or "") and os.environ["PYSPARK_PYTHON"] == sys.executable:
        ours[DAEMON] = "auditor.spark.worker_daemon"
    if not submitted and DRIVER_MEMORY not in os.environ:
        ours |= {"spark.driver.memory": f"{heap_bytes(machine_bytes(), input_bytes) >> 20}m"}
    for key, value in (NEEDED | {WORKERS_SAFE_PATH: "1"} | ours | (conf or {})).items():
        builder = builder.config(key, value)
    with contextlib.ExitStack() as around:
        if not submitted:
            around.enter_context(jvm_words.filtered())
            around.enter_context(_environment(SPARK_HOME=jvm.spark_home(), PYTHONSAFEPATH="1"))
        session = _checked(builder.getOrCreate(), say)
    session.sparkContext.setLogLevel("ERROR")
    _ours.add(session)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # a wrong column is one line, which is ours
    return session


def imports_from_directory(session: SparkSession) -> bool:
    """Whether Python workers of a session, classic or Connect, may import modules from their working directory."""
    if "connect" in type(session).__module__:
        return not session.conf.get(WORKERS_SAFE_PATH, None)
    return not session.sparkContext.environment.get(SAFE_PATH)


def _checked(session: SparkSession, say: Callable[[str], None]) -> SparkSession:
    if imports_from_directory(session):
        say(IMPORTS_FROM_DIRECTORY)
    return session


@contextlib.contextmanager
def _environment(**variables: str | None) -> Iterator[None]:
    """Variables that a JVM which starts within gets, and what it starts; those that are set stay as they are."""
    ours = {name: value for name, value in variables.items() if value and not os.environ.get(name)}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def hushed(session: SparkSession) -> Iterator[None]:
    """Around a question of somebody's: a mistake in it is said once, not with a trace of Java's for each attempt of a
    task. Sessions that others started say what they say."""
    if session not in _ours:
        yield
        return
    session.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Java is gone: then what ended it is the error to show
            session.sparkContext.setLogLevel("ERROR")


@contextlib.contextmanager
def tuned(session: SparkSession) -> Iterator[None]:
    """Around a query whose few rows take Python long: Spark interprets its plan, where it would write Java for it and
    compile that for half a second, and shares out rows that it would have taken for one task's.

    Several threads may be in such queries of one session: the last one leaves it as the first one found it. What goes
    wrong in a query is raised as it is, also where Java is gone and no setting can be put back.
    """
    with _tuning:
        inside, before = _tuned.setdefault(session, (0, {}))
        if not inside:
            before = {key: session.conf.get(key, None) for key in TUNED if session.conf.isModifiable(key)}
            for key in before:
                session.conf.set(key, TUNED[key])
        _tuned[session] = (inside + 1, before)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            _leave(session)
        raise
    _leave(session)


def _leave(session: SparkSession) -> None:
    with _tuning:
        inside, before = _tuned.pop(session)
        if inside > 1:
            _tuned[session] = (inside - 1, before)
            return
        for key, value in before.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)


def _settled(session: SparkSession) -> SparkSession:
    """A session of another's server (Spark Connect), with what can be set and results depend on."""
    for key, value in NEEDED.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


# What results depend on, what reports a worker's death, what bounds the memory of workers that get large rows, and what
# lets conditions on partitions keep files closed (connectors/tables/sources.py).
NEEDED = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.driver.maxResultSize": "0",  # what bounds rows of judged logs is the driver's memory
}
TUNED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "64k",
}
_tuning = threading.Lock()
_ours: WeakSet[SparkSession] = WeakSet()  # those that were started here
_tuned: dict[SparkSession, tuple[int, dict[str, str | None]]] = {}  # how many queries run, and how it was before
SETTINGS = {"spark.ui.showConsoleProgress": "false"}
OF_ONE_MACHINE = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}  # clusters keep their own
