"""What all tests share: one Spark session, and a loud word when there is no Java for it."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from auditor.base.errors import FAILURES_RAISE
from auditor.spark import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from auditor.rules.seen.view import Finding

ROOT = Path(__file__).parents[1]

# For sessions that a test starts as others do, without what the auditor asks of the JVM: compile fast, not well.
SHORT_JVM = {
    "PYSPARK_SUBMIT_ARGS": "--driver-java-options "
    f"'{' '.join((*spark_session.SHORT, *spark_session.OPTIONS))}' pyspark-shell"
}
MOST_SHOWN_AT_ONCE = 2000  # characters of a failure's end; all of it stands at the end of the run
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"  # many more cases, wherever tests choose some

# No deadline: speed is measured in bench/, never asserted. The same cases every time, but for the nightly run.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=10_000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def severities_are_declared() -> Iterator[None]:
    """Whatever a check finds in any test, its severity is one that the rule's page says, and its evidence is typed."""
    from auditor.rules.catalogue.registry import Kind
    from tests.declared_evidence import faults

    completed = Kind.completed

    def checked(kind: Kind, found: Iterable[Finding]) -> Iterator[Finding]:
        for finding in completed(kind, found):
            undecided = finding.severity == "info" and finding.evidence.get("checksums") == "not verified"
            assert undecided or finding.severity in kind.severities, (kind.id, finding.severity, finding.message)
            assert not (wrong := faults(kind, finding.evidence)), wrong
            yield finding

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kind, "completed", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def priority_stays() -> Iterator[None]:
    """The command ``copy`` called in this process does not slow down all tests behind it: nobody can take that back."""
    from auditor.copying import throttling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(throttling, "lower_priority", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def decoding_here() -> Iterator[None]:
    """The command ``decode`` called in this process reads in it: seconds for each of a thousand files otherwise."""
    from auditor.commands import decode
    from tests.facts import Here

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "Pool", Here)
        yield


@functools.cache
def missing_java() -> str:
    """Why no Spark session can start here; empty when one can."""
    if os.environ.get("WITHOUT_JAVA"):
        return "WITHOUT_JAVA is set"
    done = subprocess.run(["sh", "-c", ". scripts/java.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: the garbage collector would walk all of it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 50, 100)  # tests make much and leave little: a twentieth of all their time


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what uses the Spark session, and skip it where there is no Java."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")
    if item.get_closest_marker("spark") and missing_java():
        item.add_marker(pytest.mark.skip(reason=f"NOT TESTED, no Java: {missing_java()}"))


# What takes longest begins first, so that no worker is left alone with it at the end.
FIRST = ("tests/spark/", "tests/fuzz/", "tests/processes/", "tests/whole/", "tests/differential/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who shares a worker (``-n``): a file's tests, which share what is made once, and all of tests/spark, which share
    one session. (Groups, ``--dist loadgroup``, have no effect with pytest 9.2 and xdist 3.8.)"""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(("tests/fuzz/", "tests/differential/")):  # minutes long, and nothing shared
                return nodeid
            file = nodeid.partition("::")[0]
            return "tests/spark" if file.startswith("tests/spark/") else file

    config.option.loadscopereorder = False  # not by the number of tests: as collected, see FIRST
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By folder as in :data:`FIRST`, all others behind them."""
    ranks = {folder: number for number, folder in enumerate(FIRST)}
    items.sort(key=lambda item: next((n for folder, n in ranks.items() if item.nodeid.startswith(folder)), len(FIRST)))


def pytest_configure(config: pytest.Config) -> None:
    """Name what fails when it fails: a run that is cut off before its end must have said it."""
    config.pluginmanager.register(_NamedAtOnce(config))
    os.environ[FAILURES_RAISE] = "1"  # a contained failure is one: tests of containment take this away
    if not hasattr(config, "workerinput"):  # workers have the environment of the one that starts them
        os.environ.setdefault("FUZZ_SEED", str(int(time.time() // 86_400)))
        _own_temporary_folder(config)


def _own_temporary_folder(config: pytest.Config) -> None:
    """What commands leave behind, as ``auditor-failure-*`` with a trace, goes with the run. Folders of ``tmp_path`` and
    unpacked corpora stay where they are looked for."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="auditor-tests-")
    tempfile.tempdir = None  # so that it is looked up again
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_report_header() -> str:
    """Which mutants this run draws: others on another day."""
    return f"mutants: FUZZ_SEED={os.environ['FUZZ_SEED']}, the day's number by default, makes these again"


class _NamedAtOnce:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown: Any = self.config.pluginmanager.getplugin("terminalreporter")
        if report.failed and shown is not None and not hasattr(self.config, "workerinput"):
            shown.ensure_newline()
            shown.write_line(f"FAILED {report.nodeid} ({report.when})")
            if report.longrepr is not None:
                shown.write_line(str(report.longrepr)[-MOST_SHOWN_AT_ONCE:])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end how much went untested for want of Java, so that a green run is not taken for a whole one."""
    skipped = [r for r in terminalreporter.stats.get("skipped", []) if "NOT TESTED, no Java" in str(r.longrepr)]
    if skipped:
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(f"{len(skipped)} tests need Spark and were skipped: {missing_java()}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole run, started as users have it (retries, a JVM for short runs, no UI): two
    threads, one shuffle partition, this very Python."""
    from auditor.spark.session import start

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    session = start("local[2]", {"spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()
