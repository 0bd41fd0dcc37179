"""One bad run is a row: whatever is damaged of it, the other runs and clusters are listed, compared and exported."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor import cli
from auditor.outputs import runs, site
from auditor.outputs.runs import Shelf
from auditor.pipeline import summary as pipeline_summary
from auditor.rules.resolution.resolve import fingerprint
from auditor.rules.seen.view import Finding

OWN, OTHER = "own-cluster", "other-cluster"
COUNTS = {"critical": 0, "error": 1, "warning": 0, "info": 0}
Damage = Callable[[Path], None]


def findings(cluster: str, *partitions: int) -> pa.Table:
    found = (Finding("sequence-gap", "error", topic="t", partition=n).to_dict() for n in partitions)
    rows = [row | {"fingerprint": fingerprint(row, cluster), "cluster_id": cluster, "evidence": "{}"} for row in found]
    return pa.Table.from_pylist(rows, schema=pipeline_summary.FINDINGS)


def publish(folder: Path, run_id: str, cluster: str, *partitions: int) -> None:
    facts = {"as_of": "2026-11-21T04:00:00.000Z", "counts": COUNTS, "batches": 7, "bytes": 9, "complete": True,
             "clusters": [cluster], "asked": "", "brokers": {"broker 1": 1}, "accepted": None, "all_logs": True,
             "named": {}, "held": {"blocked": 0, "since": None, "lost": 0},
             "verdict": {"tone": "bad", "headline": "1 error"}}  # fmt: skip
    summary = {"counts": {"by_severity": COUNTS}, "inputs": [], "logs": [], "cluster": cluster}
    runs.publish(folder, run_id, {"findings": findings(cluster, *partitions)}, facts, summary)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "history"
    publish(folder, "other-1", OTHER, 1)
    publish(folder, "own-1", OWN, 1)
    publish(folder, "bad", OWN, 1, 2)
    publish(folder, "own-2", OWN, 1, 3)
    publish(folder, "other-2", OTHER, 1, 2)
    return folder


def manifest(folder: Path) -> Path:
    (path,) = folder.glob("run_id=bad/manifest-*.json")
    return path


def parquet(folder: Path, table: str = "findings") -> Path:
    (path,) = folder.glob(f"run_id=bad/{table}/*.parquet")
    return path


def bytes_of(which: Callable[[Path], Path], change: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        path = which(folder)
        path.write_bytes(change(path.read_bytes()))

    return damage


def value(*keys: Any, to: Any) -> Damage:
    """A value of the manifest, by the keys that lead to it."""

    def damage(folder: Path) -> None:
        path = manifest(folder)
        content = inner = json.loads(path.read_text())
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        path.write_text(json.dumps(content))

    return damage


def without(*keys: str) -> Damage:
    def damage(folder: Path) -> None:
        path = manifest(folder)
        content = inner = json.loads(path.read_text())
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        path.write_text(json.dumps(content))

    return damage


def table_as(table: pa.Table, name: str = "findings") -> Damage:
    """Another Parquet file, which the manifest vouches for."""

    def damage(folder: Path) -> None:
        path = parquet(folder, name)
        pq.write_table(table, path)
        content, data = json.loads(manifest(folder).read_text()), path.read_bytes()
        (file,) = content["files"][name]
        file |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        manifest(folder).write_text(json.dumps(content))

    return damage


def as_folder(which: Callable[[Path], Path]) -> Damage:
    def damage(folder: Path) -> None:
        path = which(folder)
        path.unlink()
        path.mkdir()

    return damage


def of_other_run(pattern: str, which: Callable[[Path], Path]) -> Damage:
    def damage(folder: Path) -> None:
        (source,) = folder.glob(pattern)
        shutil.copyfile(source, which(folder))

    return damage


def summary(folder: Path) -> Path:
    (path,) = folder.glob("run_id=bad/summary-*.json")
    return path


def summary_as(content: bytes) -> Damage:
    """Another summary, which the manifest vouches for."""

    def damage(folder: Path) -> None:
        value("files", "summary", 0, "sha256", to=hashlib.sha256(content).hexdigest())(folder)
        value("files", "summary", 0, "bytes", to=len(content))(folder)
        summary(folder).write_bytes(content)

    return damage


half: Callable[[bytes], bytes] = lambda data: data[: len(data) // 2]  # noqa: E731
FIRST = ("files", "findings", 0)
DAMAGES: dict[str, Damage] = {
    "manifest cut": bytes_of(manifest, half),
    "manifest empty": bytes_of(manifest, lambda _: b""),
    "manifest of zeros": bytes_of(manifest, lambda data: bytes(len(data))),
    "manifest of noise": bytes_of(manifest, lambda data: b"\xff" * len(data)),
    "manifest a list": bytes_of(manifest, lambda _: b"[]"),
    "manifest a number": bytes_of(manifest, lambda _: b"7"),
    "manifest null": bytes_of(manifest, lambda _: b"null"),
    "manifest a text": bytes_of(manifest, lambda _: b'"run"'),
    "manifest without anything": bytes_of(manifest, lambda _: b"{}"),
    "manifest deep": bytes_of(manifest, lambda _: b"[" * 200_000),
    "manifest that explodes": bytes_of(manifest, lambda _: b"[" + b"[]," * 5_000_000 + b"0]"),
    "manifest a folder": as_folder(manifest),
    "manifest gone": lambda folder: manifest(folder).unlink(),
    "manifest of another run": of_other_run("run_id=own-1/manifest-*.json", manifest),
    "manifest of another cluster": of_other_run("run_id=other-1/manifest-*.json", manifest),
    "manifest with more keys": value("more", to=1),
    "schema version newer": value("schema_version", to=7),
    "schema version a text": value("schema_version", to="1"),
    "schema version null": value("schema_version", to=None),
    "schema version not a number": value("schema_version", to=float("nan")),
    "schema version huge": value("schema_version", to=10**30),
    "run id a number": value("run_id", to=5),
    "run id of another": value("run_id", to="own-1"),
    "created at nothing": value("created_at", to=None),
    "created at yesterday": value("created_at", to="yesterday"),
    "created at without a zone": value("created_at", to="2026-11-21T04:00:00"),
    "published at a number": value("published_at", to=1.5),
    "published at the end of time": value("published_at", to="9999-12-31T23:59:59+00:00"),
    "published at year 10000": value("published_at", to="10000-01-01T00:00:00+00:00"),
    "facts a list": value("facts", to=[]),
    "facts null": value("facts", to=None),
    "facts empty": value("facts", to={}),
    "counts a list": value("facts", "counts", to=[1]),
    "counts not a number": value("facts", "counts", "error", to=float("nan")),
    "counts infinite": value("facts", "counts", "error", to=float("inf")),
    "counts huge": value("facts", "counts", "error", to=10**400),
    "clusters a number": value("facts", "clusters", to=3),
    "clusters of lists": value("facts", "clusters", to=[[1]]),
    "named a text": value("facts", "named", to="x"),
    "brokers a list": value("facts", "brokers", to=["broker 1"]),
    "verdict a text": value("facts", "verdict", to="good"),
    "held a number": value("facts", "held", to=1),
    "as of a list": value("facts", "as_of", to=[1]),
    "files a list": value("files", to=[]),
    "files null": value("files", to=None),
    "files a text each": value(*FIRST, to="findings.parquet"),
    "path outside": value(*FIRST, "path", to="../../../../etc/hostname"),
    "path absolute": value(*FIRST, "path", to="/etc/hostname"),
    "path a number": value(*FIRST, "path", to=1),
    "path without a checksum": without(*FIRST, "sha256"),  # type: ignore[arg-type]
    "another checksum": value(*FIRST, "sha256", to="0" * 64),
    "no findings": without("files", "findings"),
    "no runs": without("files", "runs"),
    "findings cut": bytes_of(parquet, half),
    "findings empty": bytes_of(parquet, lambda _: b""),
    "findings of zeros": bytes_of(parquet, lambda data: bytes(len(data))),
    "findings with one bit flipped": bytes_of(parquet, lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]),
    "findings longer": bytes_of(parquet, lambda data: data + b"\0"),
    "findings a folder": as_folder(parquet),
    "findings gone": lambda folder: parquet(folder).unlink(),
    "findings of another run": of_other_run("run_id=own-2/findings/*.parquet", parquet),
    "findings of another program": table_as(pa.table({"a": [1, 2]})),
    "findings with other types": table_as(pa.table({name: [[1]] for name in pipeline_summary.FINDINGS.names})),
    "findings without a column": table_as(findings(OWN, 1).drop_columns(["fingerprint"])),
    "findings no Parquet": bytes_of(parquet, lambda _: b"PAR1" + bytes(100) + b"PAR1"),
    "runs cut": bytes_of(partial(parquet, table="runs"), half),
    "no summary": without("files", "summary"),
    "summary cut": bytes_of(summary, half),
    "summary gone": lambda folder: summary(folder).unlink(),
    "summary no JSON": summary_as(b"{"),
    "summary a number": summary_as(b"3"),
    "summary empty": summary_as(b""),
    "summary of no file": value("files", "summary", to=[]),
}  # fmt: skip


def test_there_are_enough() -> None:
    assert len(DAMAGES) >= 52


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_takes_nothing_else_down(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    DAMAGES[damage](history)
    codes = {cli.main(["history", str(history)])}  # of several clusters
    out = capsys.readouterr().out
    assert OWN in out
    assert OTHER in out
    for cluster, names in ((OWN, ("own-1", "own-2")), (OTHER, ("other-1", "other-2"))):
        codes.add(cli.main(["history", str(history), "--cluster", cluster]))
        listed = capsys.readouterr().out
        assert all(name in listed for name in names)
        codes.add(cli.main(["history", str(history), "--cluster", cluster, "--diff", *names]))
        assert "1 new, 0 resolved, 1 unchanged" in capsys.readouterr().out
        codes.add(cli.main(["history", str(history), "--cluster", cluster, "--format", "json"]))
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert {row["run_id"] for row in rows} >= set(names)
    exported = tmp_path / "pages"
    codes.add(cli.main(["dashboard", str(history), "--export", str(exported)]))
    assert codes <= {0, 3}
    pages = {path.name for path in exported.glob("*/*.html")}
    assert {f"{OWN}.html", f"{OTHER}.html", "other-2.html", "own-2.html"} <= pages
    front = (exported / "index.html").read_text()
    assert OWN in front
    assert OTHER in front
    shelf = Shelf(history)
    page = shelf.without_unreadable(lambda: site.Site(shelf).page("report/own-1.html"))
    assert page is not None


NAMED = ("another checksum", "findings cut", "findings with one bit flipped", "findings with other types",
         "schema version newer", "manifest a list", "manifest a folder", "counts huge", "path outside",
         "run id of another")  # fmt: skip


@pytest.mark.parametrize("damage", NAMED)
def test_a_damaged_run_is_named(history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    DAMAGES[damage](history)
    assert cli.main(["dashboard", str(history), "--export", str(tmp_path / "pages")]) == 3
    said = capsys.readouterr().err
    assert "bad" in said
    assert "unreadable run" in (tmp_path / "pages/index.html").read_text()
    assert cli.main(["history", str(history)]) == 3
    assert "bad" in capsys.readouterr().err


def test_the_newest_run_is_no_green_card_where_its_findings_are_damaged(history: Path) -> None:
    """Neither is what it lacks gone, nor does the run before it stand for it."""
    (path,) = history.glob("run_id=own-2/findings/*.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    shelf = Shelf(history)

    def standing() -> runs.ClusterStanding:
        entries = runs.standings(shelf, shelf.runs(), datetime.now(UTC))
        return next(entry for entry in entries if entry.name == OWN)

    entry = shelf.without_unreadable(standing)
    assert (entry.last.run_id, entry.worst, entry.gone) == ("own-2", "error", 0)
    assert "checksum differs" in entry.partly


def test_a_repaired_run_is_read_again(history: Path) -> None:
    path = parquet(history)
    whole = path.read_bytes()
    path.write_bytes(b"")
    shelf = Shelf(history)
    shelf.without_unreadable(lambda: [shelf.read(run, "findings") for run in shelf.runs()])
    assert list(shelf.unreadable) == ["bad"]
    path.write_bytes(whole)
    publish(history, "bad", OWN, 1)
    assert all(shelf.read(run, "findings").num_rows for run in shelf.runs())
    assert not shelf.unreadable


def test_a_run_of_a_newer_auditor_is_not_replaced(history: Path) -> None:
    DAMAGES["schema version newer"](history)
    with pytest.raises(runs.AuditInputError, match="upgrade"):
        publish(history, "bad", OWN, 1)
