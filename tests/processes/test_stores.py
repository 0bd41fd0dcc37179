"""Log directories that are not on this machine: an S3-compatible server, and file systems that only fsspec opens."""

from __future__ import annotations

import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from auditor.base.errors import AuditInputError, DecodeError
from auditor.connectors import storage
from auditor.connectors.inventory import discover
from auditor.rules import registry
from tests import corpora, store
from tests.facts import judge, logs_below

ROOT = Path(__file__).parents[2]
NAME = "replicas-41"


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with store.serving() as environment:
        store.upload(corpora.unpack(NAME), "copies", environment)
        yield environment


@pytest.fixture
def chain(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """This process finds the server as any user's would: by the standard variables."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    storage.filesystem.cache_clear()
    yield s3
    storage.filesystem.cache_clear()


def audited(path: str) -> tuple[list[str], list[str]]:
    """Findings as lines and what was found, without Spark."""
    catalogue = [r.id for r in registry.kinds().values() if not r.what_if]
    logs = logs_below(path, records=True, as_of=corpora.manifest(NAME)["copied_at"])  # type: ignore[arg-type]
    return [f.to_json() for f in judge(logs, *catalogue)], [d.name for d in discover([path]).log_dirs]


def test_a_corpus_in_a_bucket_gives_the_findings_of_the_local_copy(chain: dict[str, str]) -> None:
    local = audited(str(corpora.unpack(NAME)))
    assert local[0]
    assert audited("s3://copies") == local
    assert discover(["s3://copies"]).bytes_found == discover([str(corpora.unpack(NAME))]).bytes_found


def test_any_uri_that_fsspec_opens() -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(corpora.unpack(NAME)), "/copies", recursive=True)
    try:
        assert audited("memory://copies") == audited(str(corpora.unpack(NAME)))
    finally:
        memory.rm("/copies", recursive=True)


def test_what_is_gone_from_a_bucket_is_said(chain: dict[str, str]) -> None:
    where = storage.place("s3://copies")
    gone = storage.open_file(where, "broker-1/gone.log")
    assert isinstance(gone, DecodeError)
    assert gone.reason == "vanished"
    for missing in ("s3://copies/nothing", "s3://no-such-bucket/x"):
        with pytest.raises(AuditInputError, match="no such object or folder"):
            storage.place(missing)


def decode(uri: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "auditor.cli", "decode", uri]
    env = store.clean_environment(environment) | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_credentials_in_a_uri_are_shown_nowhere(s3: dict[str, str]) -> None:
    """Nobody should write them there; where somebody does, neither output nor error shows them."""
    file = next(p for p in sorted(corpora.unpack(NAME).rglob("*.snapshot")) if p.stat().st_size > 6)
    key = file.relative_to(corpora.unpack(NAME)).as_posix()
    endpoint = urllib.parse.quote(s3["AWS_ENDPOINT_URL"].removeprefix("http://"), safe="")
    user = f"{store.KEY}:{urllib.parse.quote(store.SECRET, safe='')}"
    options = f"scheme=http&endpoint_override={endpoint}&region=us-east-1"
    bare = {"AWS_EC2_METADATA_DISABLED": "true"}
    read = decode(f"s3://{user}@copies/{key}?{options}", bare)
    assert read.returncode == 0, read.stderr
    assert read.stdout == decode(str(file), bare).stdout
    wrong = [
        decode(f"s3://{user}@copies/nothing.log?{options}", bare),
        decode(f"s3://{user}@copies/nothing.log?{options}&nonsense=1", bare),
        decode(f"s3://{user}@copies/{key}?scheme=http&endpoint_override=127.0.0.1%3A1&region=x", bare),
        decode(f"abc://{user}@copies/{key}", bare),
    ]
    assert [run.returncode for run in wrong] == [2] * len(wrong)
    for run in (read, *wrong):
        shown = run.stdout + run.stderr
        assert not [s for s in (store.KEY, store.SECRET, urllib.parse.quote(store.SECRET, safe="")) if s in shown]
        assert len(run.stderr.splitlines()) <= 1


def test_a_name_in_a_bucket_cannot_lead_out_of_it(chain: dict[str, str], tmp_path: Path) -> None:
    """Objects may be named as no file can be: those are named, and not opened."""
    odd = ["../meta.properties", "t-0/../../../etc/passwd", "t-0/./x.log", "t-0//00000000000000000000.log"]
    store.upload(tmp_path, "names", chain)
    client = store.boto3.client("s3", endpoint_url=chain["AWS_ENDPOINT_URL"])
    for key in (*odd, "t-0/00000000000000000000.log"):
        client.put_object(Bucket="names", Key=key, Body=b"inside")
    client.close()
    found = storage.listing(storage.place("s3://names"))
    assert [entry.name for entry in found.files] == ["t-0/00000000000000000000.log"]
    assert {(item.name, item.reason) for item in found.unused} == {(key, storage.NO_PATH) for key in odd}
    for key in odd:
        assert isinstance(storage.read_file(storage.place("s3://names"), key), DecodeError)
