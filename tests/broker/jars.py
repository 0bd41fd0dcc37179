"""Kafka releases from Maven Central: the class path of a broker, and the driver of the real clients compiled for it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "brokers"
CLASSPATH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
NOT_STARTED = "NO REAL BROKER STARTED"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>auditor.broker</groupId><artifactId>kafka</artifactId><version>{version}</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_{scala}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def missing_tools() -> str | None:
    """Why no broker can be started here, None if one can."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{NOT_STARTED}: no {', '.join(missing)} on the PATH" if missing else None


def numbers(version: str) -> tuple[int, ...]:
    """``3.6.2`` as (3, 6, 2)."""
    return tuple(int(part) for part in version.split("."))


def classpath(version: str) -> str:
    """The jars of a release, resolved by Maven once."""
    project = BUILD / version
    jars = project / "jars"
    if not jars.exists():
        project.mkdir(parents=True, exist_ok=True)
        scala = "2.13" if numbers(version) >= (2, 4) else "2.12"
        (project / "pom.xml").write_text(POM.format(version=version, scala=scala), encoding="utf-8")
        found = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            pytest.skip(f"{NOT_STARTED}: Maven cannot get the jars of Kafka {version}:\n{found.stdout[-500:]}")
    return jars.read_text(encoding="utf-8")


def driver_classpath(version: str) -> str:
    """``Driver.java`` compiled against the clients of a release (2.8 or newer), with their jars."""
    source = HERE / "Driver.java"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = BUILD / version / f"driver-{digest}"
    if not (classes / "Driver.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", classpath(version), str(source)]
        subprocess.run(command, capture_output=True, text=True, check=True)
    return f"{classes}{os.pathsep}{classpath(version)}"
