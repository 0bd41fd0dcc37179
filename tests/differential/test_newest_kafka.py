"""The newest Kafka on Maven Central against what is read here, so that the next release's records are noticed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import corpora, formats
from tests.differential.broker import CLASSPATH, HERE, NOT_COMPARED, needs_kafka

pytestmark = needs_kafka
SOURCE = HERE / "newest" / "Schemas.java"
ARTIFACTS = (
    "metadata",
    "group-coordinator",
    "share-coordinator",
    "transaction-coordinator",
    "storage",
    "storage-api",
    "server",
    "server-common",
    "clients",
    "raft",
)
LOGGING = ("org.slf4j", "slf4j-api", "1.7.36")  # without which some of their classes do not load
KNOWN = "4.4.0"


def pom(version: str) -> str:
    """The modules whose messages are stored, without what they depend on: a release may lack a jar of another."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = [("org.apache.kafka", f"kafka-{name}", version) for name in ARTIFACTS] + [LOGGING]
    jars = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{of}</version>{alone}</dependency>"
        for group, name, of in wanted
    )
    return (
        "<project xmlns='http://maven.apache.org/POM/4.0.0'><modelVersion>4.0.0</modelVersion>"
        "<groupId>auditor.differential</groupId><artifactId>newest</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{jars}</dependencies></project>"
    )


def schemas(version: str, folder: Path) -> tuple[str, str]:
    """What Schemas prints of a version's jars (``RELEASE``: the newest one), and their class path."""
    (folder / "pom.xml").write_text(pom(version), encoding="utf-8")
    jars = folder / "jars"
    command = ["mvn", "-q", "-B", "-U", "-f", str(folder / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"{NOT_COMPARED}: Maven cannot get the jars of Kafka {version}:\n{found.stdout[-500:]}")
    path = jars.read_text(encoding="utf-8")
    subprocess.run(["javac", "-nowarn", "-d", str(folder), "-cp", path, str(SOURCE)], check=True)
    run = ["java", "-cp", f"{folder}{os.pathsep}{path}", "Schemas"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout, path


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="a release of Kafka breaks no push, only make nightly"
)
def test_the_newest_release_writes_nothing_that_is_unknown_here(tmp_path: Path) -> None:
    printed, path = schemas("RELEASE", tmp_path)
    release = Path(path.split(os.pathsep)[0]).parent.name
    kafkas = json.loads(printed)
    assert formats.news(formats.by_name(kafkas["messages"])) + formats.others(kafkas) == [], f"Kafka {release}"


def test_the_schemas_at_hand_are_those_of_the_jars(tmp_path: Path) -> None:
    printed, _ = schemas(KNOWN, tmp_path)
    assert json.loads(printed) == json.loads((corpora.FORMATS / formats.SCHEMAS).read_text(encoding="utf-8"))
