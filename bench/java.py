"""Kafka's own side: its jars from Maven Central, and the Java programs beside this file compiled against them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from auditor.base.errors import AuditInputError
from tests.broker.jars import BUILD, classpath

HERE = Path(__file__).parent
VERSION = "4.1.0"


def require() -> None:
    """Errors: :class:`AuditInputError` where Kafka's side cannot run."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise AuditInputError(f"no {', '.join(missing)} on the PATH: Kafka's own tools need a JDK and Maven")


@cache
def dump_command() -> list[str]:
    """What starts ``kafka.tools.DumpLogSegments``, with the JVM's own defaults."""
    return ["java", "-cp", classpath(VERSION), "kafka.tools.DumpLogSegments"]


@cache
def compiled(program: str, *options: str) -> list[str]:
    """What starts a program of this folder, compiled when its source is new."""
    source = HERE / f"{program}.java"
    classes = BUILD / VERSION / f"bench-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not (classes / f"{program}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-d", str(classes), "-cp", classpath(VERSION), str(source)]
        subprocess.run(command, check=True)
    return ["java", *options, "-cp", f"{classes}{os.pathsep}{classpath(VERSION)}", program]
