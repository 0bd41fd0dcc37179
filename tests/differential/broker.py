"""Kafka's own classes as a subprocess: built from the Maven project of a version and the harness beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "differential"
NOT_COMPARED = "NOT COMPARED WITH KAFKA'S OWN CLASSES"
TOOLS = ("java", "javac", "mvn")
HISTORIES = int(os.environ.get("DIFFERENTIAL_HISTORIES", "2000"))
FIRST = int(os.environ.get("DIFFERENTIAL_FROM", "0"))
AHEAD = 64  # cases that a JVM may have before it: so neither side waits for the other
MEMORY = Path("/dev/shm")
CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


def missing_tools() -> str | None:
    """Why the brokers cannot be built here, None if they can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{NOT_COMPARED}: no {', '.join(missing)} on the PATH" if missing else None


needs_kafka = [
    pytest.mark.differential,
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]


def build(version: str) -> str:
    """Resolve the jars of ``kafka-<version>`` with Maven and compile the harness, once per sources; the class path."""
    project = HERE / f"kafka-{version}"
    sources = sorted([*(HERE / "common").glob("*.java"), *(project / "src").glob("*.java")])
    parts = [file.read_bytes() for file in (*sources, project / "pom.xml")]
    made = BUILD / f"{version}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"
    if not (made / "classpath").exists():
        classes, jars = made / "classes", made / "jars"
        classes.mkdir(parents=True, exist_ok=True)
        resolved = _run(["mvn", "-q", "-B", "-f", str(project / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"])
        if resolved.returncode:
            pytest.skip(f"{NOT_COMPARED}: Maven cannot get the jars of Kafka {version}:\n{resolved.stdout[-500:]}")
        compiled = _run(["javac", "-nowarn", "-d", str(classes), "-cp", jars.read_text(), *map(str, sources)])
        if compiled.returncode:
            raise RuntimeError(f"javac failed:\n{compiled.stderr}")
        (made / "classpath").write_text(f"{classes}{os.pathsep}{jars.read_text()}", encoding="utf-8")
    return (made / "classpath").read_text(encoding="utf-8")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def seeds(share: float = 1.0) -> range:
    """The seeds of a test that takes a share of the histories: so one run goes on where another ended."""
    return range(int(FIRST * share), int((FIRST + HISTORIES) * share))


class Asked(Protocol):
    """Something that begins with a case."""

    case: dict[str, Any]


AnyAsked = TypeVar("AnyAsked", bound=Asked)


class Broker:
    """One JVM with the classes of a version. Its files lie in memory where there is such a folder, else in ``scratch``.

    In memory a file costs nothing when it is forced to the disk, as Kafka does with each snapshot.
    """

    def __init__(self, version: str, scratch: Path) -> None:
        main = f"differential.Main{version.replace('.', '')}"
        inside = MEMORY if os.access(MEMORY, os.W_OK) else scratch
        self.files = tempfile.TemporaryDirectory(prefix="differential", dir=inside, ignore_cleanup_errors=True)
        options = ["-Xmx1g", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={self.files.name}"]
        self.errors = (scratch / "stderr").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            ["java", *options, "-cp", build(version), main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )
        self.answers: SimpleQueue[str] = SimpleQueue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self) -> None:
        """Take in what the JVM answers, so that it never waits for a reader; an empty line at the end."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def run(self, asked: Iterable[AnyAsked]) -> Iterator[tuple[AnyAsked, list[dict[str, Any]]]]:
        """Each with the result of every step of its case in the schema of the conformance cases.

        A result is outcome, error, returns, state. The JVM works while the next ones are made.
        """
        waiting: deque[AnyAsked] = deque()
        for one in asked:
            self._ask(one.case)
            waiting.append(one)
            if len(waiting) > AHEAD:
                yield waiting.popleft(), self._answer()
        while waiting:
            yield waiting.popleft(), self._answer()

    def _ask(self, case: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(case, separators=(",", ":")) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._ended()

    def _answer(self) -> list[dict[str, Any]]:
        """The next case's results; of a state the JVM writes what has changed since the step before."""
        answer = self.answers.get()
        if not answer:
            self._ended()
        results, state = json.loads(answer), {}
        for result in results:
            result["state"] = state = changed(state, result["state"])
        return results

    def _ended(self) -> NoReturn:
        self.errors.seek(0)
        raise RuntimeError(f"the broker's JVM ended:\n{self.errors.read()}")

    def close(self) -> None:
        """End the JVM."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.listener.join(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        self.files.cleanup()


def changed(before: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
    """The state after a step: ``news`` has the parts that are not as before; of objects their parts, null if gone."""
    state = before | news
    for name in news.keys() & before.keys():
        if isinstance(news[name], dict):
            state[name] = {key: part for key, part in (before[name] | news[name]).items() if part is not None}
    return state
