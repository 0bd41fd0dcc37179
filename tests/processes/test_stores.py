"""Log directories that are not on this machine: an S3-compatible server, and file systems that only fsspec opens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from auditor.base.errors import AuditInputError, DecodeError, StoreTrouble
from auditor.cli import main
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import storage
from auditor.connectors.stores.results import ResultFolder, folder
from auditor.outputs import runs
from auditor.outputs.delivery import writable
from auditor.pipeline import summary
from auditor.rules.catalogue import registry
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
        with pytest.raises(AuditInputError, match="no such object or directory"):
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
    bare = {"AWS_EC2_METADATA_DISABLED": "true", "AUDITOR_STORE_PATIENCE": "1"}
    read = decode(f"s3://{user}@copies/{key}?{options}", bare)
    assert read.returncode == 0, read.stderr
    assert read.stdout == decode(str(file), bare).stdout
    uris = (
        f"s3://{user}@copies/nothing.log?{options}",
        f"s3://{user}@copies/nothing.log?{options}&nonsense=1",
        f"s3://{user}@copies/{key}?scheme=http&endpoint_override=127.0.0.1%3A1&region=x",  # which is asked for 20 s
        f"abc://{user}@copies/{key}",
    )
    with ThreadPoolExecutor() as pool:
        wrong = list(pool.map(lambda uri: decode(uri, bare), uris))
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


def findings(*names: str) -> pa.Table:
    """Findings of a kept run of which the fingerprints alone are known."""
    return pa.Table.from_pylist([{"fingerprint": name} for name in names], schema=summary.FINDINGS)


def test_runs_are_kept_in_a_bucket(s3: dict[str, str], chain: dict[str, str], tmp_path: Path) -> None:
    """What a folder of this machine has, by the same names; two publishers of a run leave one whole run."""
    store.upload(tmp_path, "audits", s3)
    there, here = "s3://audits/nightly/history", tmp_path / "history"
    one, two = findings("a", "b"), findings("b")
    for history in (there, here):
        runs.publish(history, "first", {"findings": one}, {"clusters": ["c"]})
        runs.publish(history, "first", {"findings": two}, {"clusters": ["c"]})
        again = partial(runs.publish, history, "x/y", {"findings": one, "logs": one})
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(again, [{"n": n} for n in range(4)]))
    assert [run.run_id for run in runs.committed(there)] == ["first", "x/y"]
    first, last = runs.committed(there)
    assert runs.read(there, first, "findings") == two.replace_schema_metadata()
    assert runs.read(there, last, "logs") == one.replace_schema_metadata()
    names = sorted(name.rpartition("/")[0] for name in folder(there).below())
    assert names == sorted(name.rpartition("/")[0] for name in folder(here).below())
    assert runs.files(there, first, "findings")[0].startswith(f"{there}/run_id=first/findings/")
    with pytest.raises(AuditInputError, match="s3://audits/nowhere is not a directory"):
        runs.committed("s3://audits/nowhere")
    with pytest.raises(AuditInputError, match="cannot write to s3://no-such-bucket/h: "):
        writable("s3://no-such-bucket/h", None, "--history")


def test_a_manifest_that_breaks_off_in_a_bucket_counts_for_nothing(
    s3: dict[str, str], chain: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.upload(tmp_path, "broken", s3)
    history, rows = "s3://broken/history", findings("a")
    kept = runs.publish(history, "r", {"findings": rows}, {})
    put = ResultFolder.put

    def breaks_off(where: ResultFolder, name: str, content: bytes, kind: str = "") -> None:
        cut = name.startswith("manifest")
        put(where, name, content[:-9] if cut else content)
        if cut:
            raise StoreTrouble("SlowDown")

    with monkeypatch.context() as patch:
        patch.setattr(ResultFolder, "put", breaks_off)
        for run_id in ("r", "new"):
            with pytest.raises(StoreTrouble):
                runs.publish(history, run_id, {"findings": rows.slice(0, 0)}, {})
    assert runs.content_of(history) == runs.HistoryContent([kept], [])
    assert runs.read(history, kept, "findings").num_rows == 1


def test_an_audit_keeps_its_run_in_a_bucket_and_the_commands_read_it(
    s3: dict[str, str], chain: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.upload(tmp_path, "results", s3)
    history = "s3://results/history"
    words = [
        "audit",
        "s3://copies",
        "--out",
        "s3://results/out",
        "--master",
        "inline[1]",
        "--quiet",
        "--fail-on",
        "never",
    ]
    words += ["--as-of", str(corpora.manifest(NAME)["copied_at"]), "--history", history]
    for night in ("night-1", "night-2"):
        assert main([*words, "--run-id", night]) == 0
    run = runs.committed(history)[1]
    listed = storage.read_file(storage.place("s3://results/out"), "findings.jsonl")
    assert isinstance(listed, bytes)
    found = runs.read(history, run, "findings")["fingerprint"].to_pylist()
    assert found == [json.loads(line)["fingerprint"] for line in listed.splitlines()]
    capsys.readouterr()
    assert main(["history", history, "--diff", "night-1", "night-2"]) == 0
    assert capsys.readouterr().out.endswith(f"0 new, 0 resolved, {len(found)} unchanged\n")
    assert main(["explain", found[0], "--history", history]) == 0
    capsys.readouterr()
    assert main(["dashboard", history, "--export", "s3://results/site"]) == 0
    assert capsys.readouterr().out == f"{3 + len(found)} pages written, 0 unchanged: s3://results/site/index.html\n"
    client = store.client_of(s3)
    pages = {name: client.get_object(Bucket="results", Key=f"site/{name}") for name in
             ("index.html", "report/night-2.html", *(f"finding/{name}.html" for name in found))}  # fmt: skip
    assert {page["ContentType"] for page in pages.values()} == {"text/html; charset=utf-8"}
    report = pages["report/night-2.html"]["Body"].read().decode()
    assert all(fingerprint[:12] in report for fingerprint in found)
    client.close()


def test_what_reads_results_reads_them_from_a_bucket(
    s3: dict[str, str], chain: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command says of the results in a bucket what it says of those in a folder."""
    store.upload(tmp_path, "left", s3)
    copy, as_of = str(corpora.unpack(NAME)), str(corpora.manifest(NAME)["copied_at"])
    outs = (str(tmp_path / "out"), "s3://left/out")
    common = ["--as-of", as_of, "--master", "inline[1]", "--quiet", "--fail-on", "never"]
    for out in outs:
        assert main(["audit", copy, "--out", out, *common]) == 0
    found = json.loads((tmp_path / "out" / "findings.jsonl").read_text().splitlines()[0])["fingerprint"]
    said = {}
    for number, out in enumerate(outs):
        accepted, ticket = (str(tmp_path / f"{name}-{number}") for name in ("accepted.json", "ticket"))
        calls = [
            ["explain", found, "--out", out],
            ["baseline", found, "--out", out, "--baseline", accepted, "--who", "ann", "--until", "never"],
            ["recheck", copy, "--out", out, "--as-of", as_of, "--format", "json"],
            ["copy", copy, "--around", found, "--run", out, "--out", ticket],
        ]
        capsys.readouterr()
        statuses = [main(call) for call in calls]
        text = capsys.readouterr().out
        for name, shown in ((accepted, "FILE"), (ticket, "TICKET"), (f"file://{tmp_path}/out", "OUT"), (out, "OUT")):
            text = text.replace(name, shown)
        text = re.sub(r"TICKET: [\d,]+ bytes", "TICKET", text)  # it has the time of copying in it
        said[out] = statuses, text.splitlines(), Path(accepted).read_bytes()
    assert said[outs[0]] == said[outs[1]]
    assert said[outs[0]][0][:2] == [0, 0]
    assert any("OUT/report.html" in line for line in said[outs[1]][1])
