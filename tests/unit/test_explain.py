"""One finding by its fingerprint, from the results of an audit and from a history; the version; commands to paste."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from auditor import cli
from auditor.dashboards.answers import FINDING
from auditor.outputs import printing
from tests import corpora


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    call = ["audit", str(corpora.unpack("hanging-36")), "--out", str(folder / "out"), "--history", str(folder / "kept")]
    clock = ["--as-of", str(corpora.manifest("hanging-36")["copied_at"])]
    assert cli.main([*call, *clock, "--master", "inline[1]", "--quiet", "--bootstrap-server", "kafka:9092"]) == 1
    return folder


@pytest.mark.parametrize("where", ["--out", "--history"])
def test_a_finding_is_explained_by_its_fingerprint(
    out: Path, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from auditor.outputs import delivery

    monkeypatch.setenv("COLUMNS", "80")
    row = next(
        row for row in delivery.read(out / "out").findings if row["topic"] == "bank.ledger" and row["partition"] == 0
    )
    folder = out / ("out" if where == "--out" else "kept")
    assert cli.main(["explain", row["fingerprint"][:12], where, str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("critical hanging-transaction")
    command = "kafka-transactions.sh --bootstrap-server kafka:9092 abort --topic bank.ledger --partition 0"
    assert re.search(rf"^ +{re.escape(command)} --start-offset 71$", said, re.M)
    assert "  coordinator_state: CompleteAbort\n" in said
    name = row["fingerprint"][:12]
    page = (folder / "report.html").as_uri() if where == "--out" else next(iter(_run_pages(folder)))
    assert said.endswith(f"\n  {page}#{name}\n")
    prose = [line for line in said.splitlines() if not line.strip().startswith(("kafka-", "file:"))]
    assert max(map(len, prose)) <= 80


def _run_pages(history: Path) -> list[str]:
    from auditor.outputs import runs

    return [f"/report/{run.run_id}" for run in runs.committed(history)]


def test_what_the_cluster_did_stands_beside_a_finding_of_a_kept_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the run's own results and from the history alike, as the page has it; a run of the past says that it does
    not know, and so does one whose input has no metadata of KRaft."""
    from auditor.outputs import delivery

    call = ["audit", str(corpora.unpack("skipped-marker-43")), "--out", str(tmp_path / "out")]
    clock = ["--as-of", str(corpora.manifest("skipped-marker-43")["copied_at"]), "--history", str(tmp_path / "kept")]
    assert cli.main([*call, *clock, "--master", "inline[1]", "--quiet"]) == 1
    row = next(row for row in delivery.read(tmp_path / "out").findings if row["kind"] == "hanging-transaction")
    said = []
    for where in ("out", "kept"):
        capsys.readouterr()
        option = "--out" if where == "out" else "--history"
        assert cli.main(["explain", row["fingerprint"], option, str(tmp_path / where)]) == 0
        said.append(capsys.readouterr().out)
    assert said[0].split("\nIn the report")[0] == said[1].split("\nIn the report")[0]
    did = said[0].partition("Cluster events:\n")[2].partition("What to do:")[0]
    assert "leader" in did
    summary = tmp_path / "out" / "summary.json"
    content = json.loads(summary.read_text())
    events = content["cluster_events"]
    first = next(e for e in events if (e["topic"], e["partition"]) == (row["topic"], row["partition"]))["events"][0]
    assert first["says"].split()[0] in said[0]
    of_the_past = {name: value for name, value in content.items() if name != "cluster_events"}
    for changed, why in (
        (of_the_past, "not kept with this run"),
        (content | {"cluster_events": []}, "__cluster_metadata in the input has no record of this partition"),
    ):
        summary.write_text(json.dumps(changed))
        assert cli.main(["explain", row["fingerprint"], "--out", str(tmp_path / "out")]) == 0
        assert f"Cluster events:\n  {why}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", "ffffffffffffffffffff"])
def test_a_fingerprint_of_none_or_several_is_a_mistake(out: Path, name: str) -> None:
    assert cli.main(["explain", name, "--out", str(out / "out")]) == 2
    assert cli.main(["explain", "ab"]) == 2
    assert cli.main(["explain", "ab", "--out", str(out)]) == 2


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"auditor \S+\n", capsys.readouterr().out)


def test_related_findings_are_listed_once_each_in_words_and_raw_with_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = {"rule": "late-write-after-marker", "severity": "critical", "topic": "t", "partition": 0, "message": "late"}
    other = {**again, "message": "later"}
    row = {
        **dict.fromkeys(FINDING), "rule": "hanging-transaction", "kind": "hanging-transaction", "severity": "critical",
        "fingerprint": "f" * 64, "message": "open", "evidence": {"also": [again] * 28 + [other] * 28, "records": 3},
        "remedy": "", "topic": "t", "partition": 0,
    }  # fmt: skip
    said = printing.text(row, 120, ())
    assert said.count("critical late-write-after-marker: late (28 times)") == 1
    assert said.count("critical late-write-after-marker: later (28 times)") == 1
    assert "{" not in said

    folder = tmp_path / "out"
    assert cli.main(["audit", str(corpora.unpack("hanging-36")), "--out", str(folder), "--master", "inline[1]"]) == 1
    line = (folder / "findings.jsonl").read_text(encoding="utf-8").splitlines()[0]
    capsys.readouterr()
    assert cli.main(["explain", json.loads(line)["fingerprint"], "--out", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).items() >= json.loads(line).items()
