"""Runs kept under a folder: committed whole or not at all, replaced whole, compared by fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.connectors.stores.results import ResultFolder
from auditor.outputs import runs
from auditor.outputs.runs import Shelf
from auditor.outputs.site import Site
from auditor.pipeline import summary as pipeline_summary
from auditor.rules.resolution.resolve import fingerprint
from auditor.rules.seen.view import Finding

FACTS = {"as_of": "2026-11-21T04:00:00.000Z", "counts": dict.fromkeys(("critical", "error", "warning", "info"), 0),
         "batches": 7, "bytes": 9, "complete": True}  # fmt: skip


def finding(**fields: Any) -> dict[str, Any]:
    return Finding("sequence-gap", "error", topic="t", **fields).to_dict()


def table(*found: dict[str, Any]) -> pa.Table:
    rows = [row | {"fingerprint": fingerprint(row, "c"), "cluster_id": "c", "evidence": "{}"} for row in found]
    return pa.Table.from_pylist(rows, schema=pipeline_summary.FINDINGS)


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("findings/*.parquet"))


def test_a_fingerprint_is_the_hash_of_what_the_finding_is_about() -> None:
    row = finding(partition=3, offset=7, producer_id=5, producer_epoch=0, broker_id=1)
    about = b'["sequence-gap","c","t",3,7,5,0,null,null,null]'
    assert fingerprint(row, "c") == hashlib.sha256(about).hexdigest()


@pytest.mark.parametrize(
    "other",
    [{"topic": "u"}, {"partition": 1}, {"offset": 1}, {"producer_id": 1}, {"producer_epoch": 1},
     {"transactional_id": "x"}, {"group_id": "g"}, {"kind": "epoch-regression"}],
)  # fmt: skip
def test_a_fingerprint_distinguishes_findings(other: dict[str, Any]) -> None:
    row = finding(partition=0, offset=0, producer_id=0, producer_epoch=0)
    assert fingerprint(row | other, "c") != fingerprint(row, "c") != fingerprint(row, "another")


@pytest.mark.parametrize(("rule", "counts"), [("sequence-gap", False), ("batch-crc-mismatch", True),
                                              ("replica-divergence", True)])  # fmt: skip
def test_the_broker_counts_for_findings_about_one_replica_alone(rule: str, counts: bool) -> None:
    one, two = (finding(broker_id=broker) | {"kind": rule} for broker in (1, 2))
    assert (fingerprint(one, "c") != fingerprint(two, "c")) is counts


def test_wording_severity_and_times_do_not_count() -> None:
    row = finding(partition=0)
    other = row | {"message": "m", "severity": "info", "timestamp": "t", "evidence": {"a": 1}, "remedy": "r"}
    assert fingerprint(row, None) == fingerprint(other, None)


def test_a_run_is_read_back(tmp_path: Path) -> None:
    found = table(finding(partition=1), finding(partition=2))
    run = runs.publish(tmp_path, "manual__2026-11-21T04:00:00+00:00", {"findings": found}, FACTS)
    assert runs.committed(tmp_path) == [run]
    assert runs.read(tmp_path, run, "findings").equals(found)
    assert run.files["findings"][0]["rows"] == 2
    content = Path(runs.files(tmp_path, run, "findings")[0]).read_bytes()
    assert run.files["findings"][0]["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_rerun_replaces_the_run_and_keeps_its_place(tmp_path: Path) -> None:
    first = runs.publish(tmp_path, "a", {"findings": table(finding(partition=1)), "logs": table()}, FACTS)
    runs.publish(tmp_path, "b", {"findings": table()}, FACTS)
    again = runs.publish(tmp_path, "a", {"findings": table(finding(partition=2))}, FACTS)
    assert [run.run_id for run in runs.committed(tmp_path)] == ["a", "b"]
    assert again.created_at == first.created_at < again.published_at
    assert runs.read(tmp_path, again, "findings")["partition"].to_pylist() == [2]
    assert len(kept(tmp_path)) == 2


@pytest.mark.parametrize("rerun", [False, True])
def test_a_run_killed_before_its_manifest_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rerun: bool
) -> None:
    before = [runs.publish(tmp_path, "a", {"findings": table(finding(partition=1))}, FACTS)] if rerun else []
    put = ResultFolder.put

    def killed(where: ResultFolder, name: str, content: bytes) -> None:
        if name.startswith("manifest"):
            put(where, name, content[: len(content) // 2])
            raise KeyboardInterrupt
        put(where, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(ResultFolder, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    assert runs.content_of(tmp_path) == runs.HistoryContent(before, [])
    assert [runs.read(tmp_path, run, "findings").num_rows for run in before] == [1] * len(before)
    runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    assert len(kept(tmp_path)) == 2, "somebody may be writing it just now"
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    assert len(kept(tmp_path)) == 1, "what the killed one left is gone"
    assert not [path for path in tmp_path.rglob("_unfinished/*/*") if path.is_file()]
    assert len(list(tmp_path.glob("run_id=a/manifest*"))) == 1


def test_two_publishers_of_a_run_at_a_time_leave_one_whole_run(tmp_path: Path) -> None:
    found = [table(*(finding(partition=n) for n in range(count))) for count in range(1, 9)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: runs.publish(tmp_path, "a", {"findings": one, "logs": one}, FACTS), found))
    (run,) = runs.committed(tmp_path)
    both = [runs.read(tmp_path, run, name) for name in ("findings", "logs")]
    assert both[0].equals(both[1])
    assert both[0].num_rows == run.files["findings"][0]["rows"]


def test_a_run_of_an_earlier_release_is_read_and_replaced(tmp_path: Path) -> None:
    run = runs.publish(tmp_path, "a", {"findings": table(finding(partition=1))}, FACTS)
    (manifest,) = tmp_path.glob("run_id=a/manifest-*.json")
    manifest.rename(manifest.with_name("manifest.json"))
    assert runs.committed(tmp_path) == [run]
    again = runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    assert runs.committed(tmp_path) == [again]
    assert len(kept(tmp_path)) == 1


def test_a_run_follows_the_one_made_before_it(tmp_path: Path) -> None:
    assert runs.before(tmp_path / "none", "a") is None
    for name in ("b", "a"):
        runs.publish(tmp_path, name, {}, FACTS)
    assert [getattr(runs.before(tmp_path, name), "run_id", None) for name in ("b", "a", "new", None)] == [
        None, "b", "a", "a",
    ]  # fmt: skip


def test_a_newer_schema_and_a_broken_manifest_are_refused(tmp_path: Path) -> None:
    run = runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    (path,) = tmp_path.glob("run_id=a/manifest-*.json")
    text = path.read_text()
    path.write_text(text.replace('"schema_version": 2', '"schema_version": 3'))
    assert not runs.committed(tmp_path)
    assert "upgrade" in runs.content_of(tmp_path).unreadable["a"]
    with pytest.raises(AuditInputError, match="upgrade"):
        runs.publish(tmp_path, "a", {}, FACTS)
    path.write_text("[]")
    assert "not a manifest" in runs.content_of(tmp_path).unreadable["a"]
    path.write_text(text)
    Path(runs.files(tmp_path, run, "findings")[0]).unlink()
    with pytest.raises(AuditInputError, match="is unreadable"):
        runs.read(tmp_path, run, "findings")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
def test_names_that_are_no_run_ids(tmp_path: Path, name: str) -> None:
    with pytest.raises(AuditInputError, match="invalid run id"):
        runs.publish(tmp_path, name, {}, FACTS)


def test_no_run_id_leads_out_of_its_folder(tmp_path: Path) -> None:
    runs.publish(tmp_path, "../../a/b", {}, FACTS)
    assert [path.parent for path in tmp_path.rglob("manifest-*.json")] == [tmp_path / "run_id=..%2F..%2Fa%2Fb"]


def test_a_diff_says_what_is_new_gone_and_still_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.publish(tmp_path, "a", {"findings": table(finding(partition=1), finding(partition=2))}, FACTS)
    runs.publish(tmp_path, "b", {"findings": table(finding(partition=2), finding(partition=3))}, FACTS)
    assert cli.main(["history", str(tmp_path), "--diff", "previous", "latest", "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["change"], row["partition"]) for row in rows] == [("new", 3), ("gone", 1), ("still", 2)]
    assert cli.main(["history", str(tmp_path), "--diff", "b", "a"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 new, 1 resolved, 1 unchanged"
    assert cli.main(["history", str(tmp_path), "--diff", "c", "a"]) == 2


def test_what_a_baseline_accepts_is_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gone when it is accepted, new when it comes back; the page's numbers are of the others."""
    found = table(finding(partition=1), finding(partition=2))
    summary = {"baseline": {"accepted": found["fingerprint"].to_pylist()[:1]}}
    runs.publish(tmp_path, "a", {"findings": found}, FACTS)
    accepted = FACTS | {"counts": {"error": 1}, "accepted": {"critical": 0, "error": 1}}
    runs.publish(tmp_path, "b", {"findings": found}, accepted, summary)
    runs.publish(tmp_path, "c", {"findings": found}, FACTS | {"accepted": None})
    says = {("a", "b"): "0 new, 1 resolved, 1 unchanged, 1 suppressed", ("b", "c"): "1 new, 0 resolved, 1 unchanged"}
    for two, said in says.items():
        assert cli.main(["history", str(tmp_path), "--diff", *two]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == said
    assert cli.main(["history", str(tmp_path)]) == 0
    assert [", 1 suppressed " in line for line in capsys.readouterr().out.splitlines()] == [False, True, False]
    page = Site(Shelf(tmp_path)).page("run/b.html")
    assert page is not None
    assert "and 1 suppressed by the baseline" in page
    assert "0 new findings, 1 resolved, 1 unchanged" in page
    assert Shelf(tmp_path).who(runs.committed(tmp_path)[1], accepted=False)["partition"].to_pylist() == [2]


def test_runs_and_files_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.publish(tmp_path, "a", {"findings": table()}, FACTS)
    (tmp_path / "run_id=half" / "findings").mkdir(parents=True)
    (tmp_path / "run_id=half" / "findings" / "0.parquet").touch()
    assert cli.main(["history", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("a  evaluated at 2026-11-21T04:00:00.000Z  0 critical")
    assert second == "half  never committed"
    assert cli.main(["history", str(tmp_path), "--files", "findings"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed == [str(path) for path in tmp_path.glob("run_id=a/findings/*.parquet")]
    assert cli.main(["history", str(tmp_path / "none")]) == 2


def test_duckdb_reads_the_runs(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    runs.publish(tmp_path, "a b", {"findings": table(finding(partition=1), finding(partition=2))}, FACTS)
    runs.publish(tmp_path, "c", {"findings": table(finding(partition=2))}, FACTS)
    query = "SELECT run_id, count(*) FROM read_parquet(?, hive_partitioning = true) GROUP BY 1 ORDER BY 1"
    assert duckdb.execute(query, [f"{tmp_path}/run_id=*/findings/*.parquet"]).fetchall() == [("a b", 2), ("c", 1)]
