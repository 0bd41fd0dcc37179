"""A copy of what one finding rests on: an audit of it gives that finding again, and nothing else went along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auditor import cli, running
from auditor.connectors.logdir.copy_format import LIST
from auditor.copying.folders import Folders
from auditor.copying.run import copy_logs, folder_choices, log_of, names_in
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.audited import published
from tests.copies import finds
from tests.facts import corpus_audit, here, opened

NAMES = (*corpora.judged(), *corpora.campaigns())


def results(source: Path, out: Path, as_of: int | None = None) -> list[dict[str, Any]]:
    """The findings of an audit, as its results have them."""
    published(AuditOptions((str(source),), out, as_of=as_of))
    return [json.loads(line) for line in (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_every_critical_finding_is_found_again_in_what_is_taken_first(name: str, tmp_path: Path) -> None:
    source, audit = corpora.unpack(name), corpus_audit(name)
    rows = [json.loads(finding.to_json()) for finding in audit.findings]
    taken: dict[frozenset[str], set[str]] = {}
    for row in (row for row in rows if row["severity"] == "critical"):
        taken.setdefault(frozenset(next(folder_choices(row, [str(source)]))), set()).add(row["fingerprint"])
    for number, (folders, fingerprints) in enumerate(taken.items()):
        copy_logs([str(source)], tmp_path / f"copy-{number}", only=folders)
        again = {finding.fingerprint for finding in opened(tmp_path / f"copy-{number}", as_of=audit.as_of).findings}
        assert fingerprints - again == set()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, dict[str, Any]]:
    """A corpus, the results of its audit, and a critical finding of one partition."""
    monkeypatch.setattr(running, "runner_for", lambda *_: here())
    source = corpora.unpack("hanging-43-killed")
    row = next(r for r in results(source, tmp_path / "run") if r["transactional_id"] == "a.b-c-abort")
    return source, tmp_path / "run", row


def test_the_command_says_which_names_go_along(
    run: tuple[Path, Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, results_of, row = run
    out = tmp_path / "ticket"
    call = ["copy", "--around", row["fingerprint"][:8], "--run", str(results_of), str(source), "--out", str(out)]
    assert cli.main(call) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "The copy contains these names:"
    said = {line.strip().partition(" (")[0]: line.partition("): ")[2].split(", ") for line in lines if "): " in line}
    assert said["hosts"] == ["127.0.0.1"]  # the seed's brokers listen there
    assert row["transactional_id"] in said["transactional ids"]
    assert any("reproduces the finding" in line for line in lines)
    folders = {path.parent.name for path in out.rglob(LIST)} - {"ticket", "broker-1"}
    assert {f for f in folders if not f.startswith("__")} == {f"{row['topic']}-{row['partition']}"}
    assert "__cluster_metadata-0" in folders
    for name in said["transactional ids"]:
        assert finds(out, name.encode())
    assert cli.main(call) == 2  # it is not empty any more
    assert "not empty" in capsys.readouterr().err


def test_every_name_that_can_be_found_in_it_is_said(tmp_path: Path) -> None:
    """The broker's own names, as other corpora's manifests and folders have them, that are in the bytes of a copy."""
    source = corpora.unpack("groups-43")
    copy_logs([str(source)], tmp_path / "copy")
    named = names_in(opened(tmp_path / "copy"))
    topics = {log[0] for f in Folders([str(source)], AuditOptions((), "").limits).found.values() if (log := log_of(f))}
    assert topics <= named.topics
    assert named.groups
    assert all(finds(tmp_path / "copy", name.encode()) for name in named.groups | named.hosts)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--around", "beef", "--run", "RUN"], "no finding has an ID that starts with 'beef'"),
        (["--around", "beef"], "need each other"),
        (["--run", "RUN"], "need each other"),
        (["--around", "beef", "--run", "SOURCE"], "has no audit results"),
    ],
)
def test_wrong_calls(
    words: list[str], says: str, run: tuple[Path, Path, dict[str, Any]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    source, results_of, _ = run
    given = [{"RUN": str(results_of), "SOURCE": str(source)}.get(word, word) for word in words]
    assert cli.main(["copy", *given, str(source), "--out", str(tmp_path / "ticket")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "ticket").exists()


def test_paths_without_its_partition(
    run: tuple[Path, Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, results_of, row = run
    other = corpora.unpack("healthy-41")
    call = ["copy", "--around", row["fingerprint"], "--run", str(results_of), str(other), "--out"]
    assert cli.main([*call, str(tmp_path / "ticket")]) == 2
    assert f"no directory of {row['topic']}-{row['partition']}" in capsys.readouterr().err
