"""Kafka's own classes as a subprocess: built from the Maven project of a version and the harness beside it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "differential"
NOT_COMPARED = "NOT COMPARED WITH KAFKA'S OWN CLASSES"
TOOLS = ("java", "javac", "mvn")
HISTORIES = int(os.environ.get("DIFFERENTIAL_HISTORIES", "2000"))
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


class Broker:
    """One JVM with the classes of a version. Its files go below ``scratch``."""

    def __init__(self, version: str, scratch: Path) -> None:
        main = f"differential.Main{version.replace('.', '')}"
        options = ["-Xmx1g", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}"]
        self.errors = (scratch / "stderr").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            ["java", *options, "-cp", build(version), main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, case: dict[str, Any]) -> list[dict[str, Any]]:
        """The result of every step of a case in the schema of the conformance cases: outcome, error, returns, state."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(case, separators=(",", ":")) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            raise RuntimeError(f"the broker's JVM ended:\n{self.errors.read()}")
        return json.loads(answer)

    def close(self) -> None:
        """End the JVM."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
