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
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """<dependency>
    <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>{classifier}
  </dependency>"""


def missing_tools() -> str | None:
    """Why no broker can be started here, None if one can."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{NOT_STARTED}: no {', '.join(missing)} on the PATH" if missing else None


def numbers(version: str) -> tuple[int, ...]:
    """``3.6.2`` as (3, 6, 2)."""
    return tuple(int(part) for part in version.split("."))


def classpath(version: str, *others: str) -> str:
    """The jars of a release, resolved by Maven once. ``others``: what of its parts besides the broker, and with
    ``:test`` the tests' jar of one."""
    project = BUILD / "-".join((version, *(other.replace(":", "-") for other in others)))
    jars = project / "jars"
    if not jars.exists():
        project.mkdir(parents=True, exist_ok=True)
        scala = "2.13" if numbers(version) >= (2, 4) else "2.12"
        pom = POM.format(
            version=version, dependencies="".join(_dependency(version, a) for a in (f"kafka_{scala}", *others))
        )
        (project / "pom.xml").write_text(pom, encoding="utf-8")
        found = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            pytest.skip(f"{NOT_STARTED}: Maven cannot get the jars of Kafka {version}:\n{found.stdout[-500:]}")
    return jars.read_text(encoding="utf-8")


def _dependency(version: str, part: str) -> str:
    artifact, _, kind = part.partition(":")
    classifier = f"<classifier>{kind}</classifier>" if kind else ""
    return DEPENDENCY.format(artifact=artifact, version=version, classifier=classifier)


def driver_classpath(version: str) -> str:
    """``Driver.java`` compiled against the clients of a release (2.8 or newer), with their jars."""
    return compiled("Driver", version)


def compiled(name: str, version: str, *others: str) -> str:
    """A class of this folder compiled against the parts of a release, with their jars."""
    source, jars = HERE / f"{name}.java", classpath(version, *others)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = BUILD / version / f"{name.lower()}-{digest}"
    if not (classes / f"{name}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", jars, str(source)]
        subprocess.run(command, capture_output=True, text=True, check=True)
    return f"{classes}{os.pathsep}{jars}"
