"""Spark sessions: starting one, and using an existing one."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from auditor.base.errors import AuditInputError, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Start of the driver's JVM, and a class-data archive that halves its start time (JEP 350).
#
# Spark loads and verifies some ten thousand classes from 280 jars at each start; with an archive the JVM maps them.
# :mod:`auditor.spark.warm` makes it once, in the environment of Spark. It fits one Java and Spark only: its name has
# both, and the JVM checks every jar. Without it everything works, four seconds later.


HERE = Path(__file__).parent
KEPT = Path(sys.prefix, "share", "kafka-log-auditor")
ARCHIVE = (
    "AUDITOR_ARCHIVE_CLASSES_AT_EXIT"  # the file that a session's JVM is to write, set by auditor.spark.warm alone
)
# Short runs: compile fast rather than well, and collect with one thread.
SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CONF_DIR, NO_SETTINGS = "SPARK_CONF_DIR", str(KEPT / "no-settings")  # and no such directory
OPTIONS = ("-Xshare:auto", "-Xlog:disable")  # what the archive's check says is no news


def archive(java: str) -> Path:
    """Return the path of the class archive for this Java and Spark. Cost: a stat of the ``java`` file."""
    from pyspark import __version__  # not the installation's: a Spark that was unpacked says nothing there

    resolved = Path(java).resolve()
    depends_on = f"{resolved} {resolved.stat().st_mtime_ns} {__version__}"
    name = f"spark-{hashlib.sha256(depends_on.encode()).hexdigest()[:16]}.jsa"
    return KEPT / name


def spark_home() -> str | None:
    """Return the Spark of pyspark's installation; None if pyspark has to look for it.

    pyspark looks first into the directory above the working directory, and would start a ``bin/spark-submit`` there
    (``pyspark.find_spark_home``), which may come with the input.
    """
    import pyspark

    package = Path(pyspark.__file__).resolve().parent
    for home in (package / "spark-distribution", package, package.parents[1]):
        if (home / "bin" / "spark-submit").is_file() and (home / "jars").is_dir():
            return str(home)
    return None


def options(java: str | None, *, short: bool = True) -> str:
    """Return ``spark.driver.extraJavaOptions``; ``short``: of a driver without a cluster.

    Logging is configured by path, unless the user's SPARK_CONF_DIR does it: with an archive no directory on the class
    path may have files, where Spark puts its configuration directory.
    """
    chosen = [*(SHORT + OPTIONS if short else OPTIONS)]
    if not any(Path(os.environ.get(CONF_DIR, NO_SETTINGS)).glob("log4j2*")):
        chosen.append(f'"-Dlog4j2.configurationFile={(HERE / "log4j2.properties").as_uri()}"')
    if made := os.environ.get(ARCHIVE):
        chosen.append(f'"-XX:ArchiveClassesAtExit={made}"')
    elif java is not None and (class_archive := archive(java)).is_file():
        chosen.append(f'"-XX:SharedArchiveFile={class_archive}"')
    return " ".join(chosen)


def make_archive(java: str, arguments: Sequence[str]) -> Path | None:
    """Run Python with ``arguments``, which starts a session, and archive its classes; None where that fails.

    Cost: half a minute and 160 MB of disk, once.
    """
    target = archive(java)
    if target.is_file():
        return target
    part = target.with_suffix(f".{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    # The JVM outlives the Python that started it; its end is that of its output.
    subprocess.run(
        [sys.executable, *arguments], env=os.environ | {ARCHIVE: str(part)}, capture_output=True, check=False
    )
    if not part.is_file():
        return None
    part.replace(target)
    return target


# Filter for the JVM's stderr, which drops the one line that Spark causes at every start.
#
# Spark's launcher always adds the module jdk.incubator.vector, and Java (ModuleBootstrap) has no option against the
# warning about incubating modules.


DROPPED = b"WARNING: Using incubator modules: jdk.incubator.vector"
EXIT_S = 1.0  # that the last words of a JVM that did not start are waited for


@contextlib.contextmanager
def filtered() -> Iterator[None]:
    """Pipe the stderr of processes started within through a thread, for as long as they live.

    Nothing changes without stderr.
    """
    try:
        ours = os.dup(2)
    except OSError:
        yield
        return
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    passing = threading.Thread(target=_pass_on, args=(reading, ours), name="words of the JVM", daemon=True)
    passing.start()
    started = False
    try:
        yield
        started = True
    finally:
        os.dup2(ours, 2)
        if not started:
            passing.join(EXIT_S)


def _pass_on(reading: int, writing: int) -> None:
    """Pass on everything but the dropped line; only what may become that line waits for its end."""
    partial_line, at_start = b"", True
    with contextlib.suppress(OSError):
        while data := os.read(reading, 1 << 16):
            *lines, partial_line = (partial_line + data).split(b"\n")
            for line in lines:
                if not (at_start and line.rstrip() == DROPPED):
                    os.write(writing, line + b"\n")
                at_start = True
            if partial_line and not (at_start and DROPPED.startswith(partial_line)):
                os.write(writing, partial_line)
                partial_line, at_start = b"", False
        os.write(writing, partial_line)
    os.close(reading)
    os.close(writing)


# Availability of a Spark Connect server. pyspark's own client retries for some 100 s without a message.


SILENT_S, WAIT_S = 2, 30  # seconds until a message that it waits for a server, and until it stops waiting


def wait_for(url: str, say: Callable[[str], None]) -> None:
    """Wait until the server of an ``sc://`` URL accepts connections, with TLS where the URL asks for it.

    Missing packages for Connect are left to pyspark to report. Errors: :class:`AuditInputError` for an invalid URL, and
    without an answer.
    """
    if importlib.util.find_spec("grpc") is None:
        return
    import grpc  # type: ignore[import-untyped]  # its types are a package of their own
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(url)
    except ValueError:  # PySparkValueError is one, too; both may quote a token
        raise AuditInputError(
            f"{url.partition(';')[0]} is not a Spark Connect server: expected sc://HOST:PORT"
        ) from None
    channel = builder.toChannel()
    ready = grpc.channel_ready_future(channel)
    try:
        if not _within(ready, SILENT_S):
            say(f"waiting for Spark at {builder.endpoint}, {WAIT_S} s at most")
            if not _within(ready, WAIT_S - SILENT_S):
                raise AuditInputError(
                    f"no Spark Connect server responds at {builder.endpoint} within {WAIT_S} s; start one, or "
                    "use another --master"
                )
    finally:
        ready.cancel()
        channel.close()


def _within(ready: object, seconds: float) -> bool:
    import grpc

    try:
        ready.result(timeout=seconds)  # type: ignore[attr-defined]  # grpc comes without types
    except grpc.FutureTimeoutError:
        return False
    return True


# Sessions: our interpreter in the workers, retries as on a cluster.


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
    f"the driver's environment and {WORKERS_SAFE_PATH}=1 (docs/deployment.md)"
)
DESCRIPTION = "spark.job.description"  # a property of the thread
MAX_RESULT = "spark.driver.maxResultSize"
SETTING = re.compile(r"^[ \t]*([^\s#!=:]+)", re.MULTILINE)  # a key of a file of properties
DRIVER_MEMORY = "SPARK_DRIVER_MEMORY"  # Spark's own way to set the driver's heap from outside
GIB = 1 << 30


def local_with_retries(master: str) -> str:
    """Return ``local[N]`` as ``local[N,4]``, so that local runs retry tasks as clusters do; others unchanged."""
    matched = LOCAL.fullmatch(master)
    return f"local[{matched[1] or '1'},{TASK_FAILURES}]" if matched else master


def is_local(session: SparkSession) -> bool:
    """Whether the master of a session is one machine."""
    return LOCAL_ATTEMPTS.fullmatch(session.conf.get("spark.master", "") or "") is not None


def find_java() -> str | None:
    """Return the ``java`` that Spark will start: below JAVA_HOME, else on PATH; None without one."""
    home = os.environ.get("JAVA_HOME")
    if home and (java := Path(home, "bin", "java")).exists():
        return str(java)
    return shutil.which("java")


def java_version(java: str) -> int:
    """Return the feature release of a ``java`` (17, 21, ...), 0 if it does not say."""
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    matched = re.search(r'version "(?:1\.)?(\d+)', ran.stderr)
    return int(matched[1]) if matched else 0


def require_java() -> None:
    """Raise :class:`AuditInputError` with a hint if there is no Java that Spark 4 runs on."""
    java = find_java()
    if java is None:
        raise AuditInputError("Java not found: install Java 17 or 21, or set JAVA_HOME (see 'make setup')")
    if (version := java_version(java)) < 17:
        raise AuditInputError(f"Spark needs Java 17 or 21, but {java} is Java {version}; set JAVA_HOME to a newer one")


def machine_bytes() -> int:
    """Return the memory of this machine, or of the container if it has less; 0 if unknown."""
    sizes = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup versions 2 and 1
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(Path("/sys/fs/cgroup", file).read_text(encoding="ascii")))
    return min((size for size in sizes if size > 0), default=0)


def heap_bytes(machine: int, input_bytes: int) -> int:
    """Return the driver's maximum heap, by the machine's memory and the input, in bytes.

    A GiB is Java's default, and enough for most; facts of large replicas pass through the heap three times. Beyond 31
    GiB Java's references double. Python's workers and the page cache need the rest of the machine.
    """
    return max(GIB, min(GIB + 4 * input_bytes, machine // 4, 31 * GIB))


def start(
    master: str | None,
    conf: dict[str, str] | None = None,
    input_bytes: int = 0,
    say: Callable[[str], None] | None = None,
) -> SparkSession:
    """Return the running session, or a new one. ``master`` None: whatever spark-submit or the environment says.

    ``say`` is called while a Connect server is waited for, and if the workers of an existing session import from their
    working directory. Workers get this interpreter, so that they have the same packages, and import nothing from the
    working directory, which may be the input; Arrow is on; the UI is off unless asked for. A session that somebody else
    started in this process is used as it is. Under spark-submit its master and settings count, ``master`` does not, and
    only what results depend on and what keeps the input from being run is set. Settings in files of the user's
    SPARK_CONF_DIR count, too.
    """
    from pyspark.sql import SparkSession

    say = say or (lambda _: None)
    if master is not None and master.startswith("sc://"):
        wait_for(master, say)
        theirs = SparkSession.getActiveSession()
        session = SparkSession.builder.remote(master).getOrCreate()
        return _checked(session if session is theirs else _configured(session), say)
    if (running := _of_others()) is not None:
        return _checked(adopt(running), say)
    submitted = bool(os.environ.get(SUBMITTED))
    if submitted:
        master = None
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault(CONF_DIR, NO_SETTINGS)
    builder = SparkSession.builder.appName("kafka-log-auditor")
    if master is not None:
        builder = builder.master(local_with_retries(master))
        if LOCAL.match(master):
            require_java()
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    local = LOCAL.match(master or "") is not None
    ours: dict[str, str] = {}
    if not submitted:
        of_java = {"spark.driver.extraJavaOptions": options(find_java(), short=local)}
        ours = SETTINGS | of_java | (OF_ONE_MACHINE if local else {})
    if not submitted and LOCAL.fullmatch(master or "") and os.environ["PYSPARK_PYTHON"] == sys.executable:
        ours[DAEMON] = "auditor.spark.worker_daemon"
    if not submitted and DRIVER_MEMORY not in os.environ:
        ours |= {"spark.driver.memory": f"{heap_bytes(machine_bytes(), input_bytes) >> 20}m"}
    of_user = set_by_user()
    ours = {key: value for key, value in ours.items() if key not in of_user}
    for key, value in (ours | NEEDED | {WORKERS_SAFE_PATH: "1"} | (conf or {})).items():
        builder = builder.config(key, value)
    with contextlib.ExitStack() as around:
        if not submitted:
            around.enter_context(filtered())
            around.enter_context(_environment(SPARK_HOME=spark_home(), PYTHONSAFEPATH="1"))
        session = _checked(builder.getOrCreate(), say)
    _started.add(session)
    if submitted or os.environ[CONF_DIR] != NO_SETTINGS:
        return session
    session.sparkContext.setLogLevel("ERROR")
    _quiet.add(session)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # a wrong column is one line, which is ours
    return session


def _of_others() -> SparkSession | None:
    """The running session of this process if somebody else started it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    if context is None or any(one.sparkContext is context for one in _started):
        return None
    return SparkSession.builder.getOrCreate()


def set_by_user() -> set[str]:
    """Return the names of the settings in the ``spark-defaults.conf`` of the user's SPARK_CONF_DIR."""
    file = Path(os.environ.get(CONF_DIR, NO_SETTINGS), "spark-defaults.conf")
    try:
        return set(SETTING.findall(file.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return set()


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
    """Set variables for a JVM that starts within; those that are set already stay as they are."""
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
def quiet_errors(session: SparkSession) -> Iterator[None]:
    """Log a mistake in a user's query once, without Java's trace for each attempt of a task.

    Sessions whose log level somebody else chose are left as they are.
    """
    if session not in _quiet:
        yield
        return
    session.sparkContext.setLogLevel("OFF")
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Java is gone: then what ended it is the error to show
            session.sparkContext.setLogLevel("ERROR")


@contextlib.contextmanager
def tuned(session: SparkSession, settings: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a query with other ``settings``, by default :data:`TUNED`.

    Several threads may be in such queries of one session: the last one leaves it as the first one found it. Errors of a
    query are raised as they are, also where Java is gone and no setting can be restored.
    """
    settings = TUNED if settings is None else settings
    key = (session, *settings)
    with _tuning:
        inside, before = _tuned.setdefault(key, (0, {}))
        if not inside:
            before = {name: session.conf.get(name, None) for name in settings if session.conf.isModifiable(name)}
            for name in before:
                session.conf.set(name, settings[name])
        _tuned[key] = (inside + 1, before)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            _restore_settings(session, key)
        raise
    _restore_settings(session, key)


def _restore_settings(session: SparkSession, key: tuple[Any, ...]) -> None:
    with _tuning:
        inside, before = _tuned.pop(key)
        if inside > 1:
            _tuned[key] = (inside - 1, before)
            return
        for name, value in before.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)


@contextlib.contextmanager
def described(session: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs of a query for Spark's UI and REST API, and restore the caller's description.

    Nothing on Spark Connect, whose server describes jobs itself.
    """
    context = None if "connect" in type(session).__module__ else session.sparkContext
    if context is None:
        yield
        return
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, text)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # Java is gone: then what ended it is the error to show
            context.setLocalProperty(DESCRIPTION, before)


def _configured(session: SparkSession) -> SparkSession:
    """A session of a Connect server, with the settings that results depend on."""
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
}
# For queries whose few rows take Python long: no generated code, which is compiled for half a second, and small
# partitions, since the rows would go to one task.
TUNED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "64k",
}
# For rows of the driver that are a task's work each: Spark makes at most so many tasks of them, without an exchange.
# Its default is the number of slots. It counts when a frame is persisted, or else when it is run.
A_TASK_EACH = {"spark.sql.leafNodeDefaultParallelism": "10000"}
_tuning = threading.Lock()
_started: WeakSet[SparkSession] = WeakSet()  # here
_quiet: WeakSet[SparkSession] = WeakSet()  # those of them whose log level was set here
_tuned: dict[tuple[Any, ...], tuple[int, dict[str, str | None]]] = {}  # how many queries run, and how it was before
# Of sessions that are started here; of maxResultSize: what bounds rows of judged logs is the driver's memory.
SETTINGS = {"spark.ui.showConsoleProgress": "false", MAX_RESULT: "0"}
OF_ONE_MACHINE = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}  # clusters keep their own


# Registers our data sources in an existing Spark session and ships the package to its workers.


_WARNED: WeakSet[SparkSession] = WeakSet()
LACKS = re.compile(r"(?:No module named '|has no package )(auditor|numpy|numba|pyarrow|cramjam|xxhash)\b")


def register(spark: SparkSession) -> None:
    """Register the data sources ``kafka_log_batches`` and so on in a session, classic or Connect.

    A local session whose workers were not given a Python gets this one: the default, ``python3`` on the PATH, need not
    have this package.
    """
    require("pyspark")
    from auditor.connectors.tables.sources import register_all

    adopt(spark)
    register_all(spark)


def register_running() -> None:
    """Register in the running session, if there is one. An old or closed session is left as it is."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with contextlib.suppress(PySparkException, AttributeError):
        if (session := SparkSession.getActiveSession()) is not None:
            register(session)


def adopt(spark: SparkSession) -> SparkSession:
    """Return the session, whose workers on this machine use this Python unless another was chosen."""
    _say_once(spark)
    context = None if "connect" in type(spark).__module__ else spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or (context and context.getConf().get("spark.pyspark.python"))
    if context is not None and context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    return spark


def _say_once(spark: SparkSession) -> None:
    """Log once per session that its workers import from the working directory, beside the input."""

    if spark not in _WARNED and imports_from_directory(spark):
        logging.getLogger("auditor").warning(IMPORTS_FROM_DIRECTORY)
    _WARNED.add(spark)


def lacking(error: BaseException) -> str | None:
    """Return the message for Spark workers without this package or its libraries; None for any other error."""
    from auditor.connectors.tables.sources import NO_PACKAGE

    matched = LACKS.search(str(error))
    return None if matched is None else NO_PACKAGE.format(matched[1])


# Progress of Spark's running jobs.


PAUSE_S = 0.5


@contextlib.contextmanager
def watched(spark: SparkSession, heard: Callable[[float], None] | None) -> Iterator[None]:
    """Report repeatedly which part of the running jobs' tasks is done.

    Silent on Spark Connect, which has no such status, and without ``heard``.
    """
    tracker = None
    if heard is not None:
        with contextlib.suppress(Exception):  # of Connect, in the words of many versions
            tracker = spark.sparkContext.statusTracker()
    if tracker is None or heard is None:
        yield
        return
    over = threading.Event()

    def ask() -> None:
        while not over.wait(PAUSE_S):
            stages = [
                tracker.getStageInfo(stage)
                for job in tracker.getActiveJobsIds()
                for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
            ]
            running = [stage for stage in stages if stage is not None]
            tasks = sum(stage.numTasks for stage in running)
            if tasks and not over.is_set():
                heard(sum(stage.numCompletedTasks for stage in running) / tasks)

    asking = threading.Thread(target=ask, name="progress of Spark", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join(2 * PAUSE_S)
