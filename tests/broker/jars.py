"""Releases from Maven Central: the class path of a broker, and the driver of the real clients compiled for it."""

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
  <groupId>auditor.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """<dependency>
    <groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}
  </dependency>"""


def missing_tools() -> str | None:
    """Why no broker can be started here, None if one can."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"{NOT_STARTED}: no {', '.join(missing)} on the PATH" if missing else None


def numbers(version: str) -> tuple[int, ...]:
    """``3.6.2`` as (3, 6, 2)."""
    return tuple(int(part) for part in version.split("."))


def classpath(version: str, *others: str) -> str:
    """The jars of a release of Kafka. ``others``: what of its parts besides the broker, and with ``:test`` the tests'
    jar of one."""
    scala = "2.13" if numbers(version) >= (2, 4) else "2.12"
    name = "-".join((version, *(other.replace(":", "-") for other in others)))
    parts = (part.partition(":") for part in (f"kafka_{scala}", *others))
    return resolved(name, *(f"org.apache.kafka:{part}:{version}:{kind}" for part, _, kind in parts))


def resolved(name: str, *coordinates: str) -> str:
    """The class path of each ``GROUP:ARTIFACT:VERSION:CLASSIFIER`` (the last may be left out) and all that they need.
    Maven finds it once, for that ``name``."""
    project = BUILD / name
    jars = project / "jars"
    if not jars.exists():
        project.mkdir(parents=True, exist_ok=True)
        pom = POM.format(dependencies="".join(map(_dependency, coordinates)))
        (project / "pom.xml").write_text(pom, encoding="utf-8")
        found = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            pytest.skip(f"{NOT_STARTED}: Maven cannot get {', '.join(coordinates)}:\n{found.stdout[-500:]}")
    return jars.read_text(encoding="utf-8")


def _dependency(coordinate: str) -> str:
    group, artifact, version, kind = f"{coordinate}:".split(":")[:4]
    return DEPENDENCY.format(group, artifact, version, f"<classifier>{kind}</classifier>" if kind else "")


def driver_classpath(version: str) -> str:
    """``Driver.java`` compiled against the clients of a release (2.8 or newer), with their jars."""
    return compiled(HERE / "Driver.java", BUILD / version, classpath(version))


def compiled(source: Path, project: Path, jars: str) -> str:
    """The class path ``jars`` and before it the one class of a source, compiled below ``project`` once."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = project / f"{source.stem.lower()}-{digest}"
    if not (classes / f"{source.stem}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", jars, str(source)]
        subprocess.run(command, capture_output=True, text=True, check=True)
    return f"{classes}{os.pathsep}{jars}"


def clock_library() -> Path:
    """``clock_ahead.c``, compiled once."""
    source = HERE / "clock_ahead.c"
    library = BUILD / f"clock_ahead-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if shutil.which("cc") is None:
        pytest.skip(f"{NOT_STARTED}: no cc on the PATH")
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library
