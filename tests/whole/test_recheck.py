"""``auditor recheck``: what an earlier state of a directory left held is asked of the directory as it became."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor import cli, running
from auditor.outputs import recheck, runs
from auditor.outputs.publish import run_report
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora, earlier_states
from tests.cluster_writers import batches_in, partitions
from tests.facts import corpus_audit, here, opened

GROWN = ("lively-43", "lively-39", "lively-25", "healthy-28")


def audited(path: Path, out: Path) -> Path:
    running.write(Audit(AuditOptions((str(path),), out, master="inline"), here()))
    return out


def blocked(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "summary.json").read_text())["blocked"]


def rechecked(out: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    status = cli.main(["recheck", "--out", str(out), str(path), "--format", "json"])
    said = capsys.readouterr().out
    return status, [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def marker_behind(path: Path, row: dict[str, Any]) -> int | None:
    """The offset of the producer's first marker behind the first offset of its transaction, by the bytes of whichever
    replica is longest."""
    folder = f"{row['topic']}-{row['partition']}"
    logs = [
        sorted(p.glob("*.log"))
        for d in sorted(path.glob("*/meta.properties"))
        for p in partitions(d.parent)
        if p.name == folder
    ]
    found = [[b for file in log for b in batches_in(file.read_bytes())] for log in logs]
    longest = max(found, key=lambda log: log[-1].last if log else -1)
    ends = (b["base_offset"] for b in longest if b.control and b["producer_id"] == row["producer_id"])
    return next((offset for offset in ends if offset > row["first_offset"]), None)


def ends(path: Path) -> list[int]:
    """When markers of data were written, by the brokers that wrote them, in ms."""
    folders = [p for d in path.glob("*/meta.properties") for p in partitions(d.parent) if not p.name.startswith("__")]
    logs = (b for folder in folders for file in folder.glob("*.log") for b in batches_in(file.read_bytes()))
    return sorted(b["max_time"] for b in logs if b.control)


def earlier(name: str, target: Path, part: float) -> Path:
    """A corpus with all its directories as they were right before one of its transactions ended."""
    old = corpora.copy(name, target)
    times = ends(old)
    for mark in old.glob("*/meta.properties"):
        earlier_states.cut(mark.parent, times[int(part * (len(times) - 1))] - 1, clean=False)
    return old


@pytest.mark.parametrize("name", GROWN)
def test_what_was_open_is_over_where_its_marker_lies(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, seen = corpora.unpack(name), 0
    for number in range(3):
        old = earlier(name, tmp_path / f"old-{number}", number / 2)
        out = audited(old, tmp_path / f"out-{number}")
        held = [
            row for row in json.loads((out / "summary.json").read_text())["blocked"] if row["first_offset"] is not None
        ]
        told = {(r["topic"], r["partition"]): r for r in rechecked(out, now, capsys)[1] if r["fingerprint"] is None}
        for row in held:
            answer, at = told[row["topic"], row["partition"]], marker_behind(now, row)
            if at is not None:
                assert answer["answer"] in ("over", "held by another"), answer
                assert f"marker is at offset {at}" in answer["why"]
                seen += 1
            else:
                assert answer["answer"] in ("still held", "not decided", "not looked at"), answer
    assert seen, "no transaction was open at any of the moments"


def answers(rows: list[dict[str, Any]]) -> set[str]:
    return {row["answer"] for row in rows}


def test_what_hangs_is_still_held_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("hanging-43-killed")
    out = audited(path, tmp_path / "out")
    before = {row["topic"]: row for row in blocked(out) if row["severity"]}
    status, told = rechecked(out, path, capsys)
    held = {row["topic"]: row for row in told if row["answer"] == "still held" and row["fingerprint"] is None}
    assert status == 1
    assert held.keys() == before.keys()
    assert all(held[topic]["blocked"]["advice"] == row["advice"] for topic, row in before.items())
    assert cli.main(["recheck", "--out", str(out), str(path)]) == 1
    assert "STILL BLOCKED  a.b-c.audit-2 at offset 0" in capsys.readouterr().out


def test_an_older_copy_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late, early = earlier("lively-43", tmp_path / "late", 1), earlier("lively-43", tmp_path / "early", 0.3)
    status, told = rechecked(audited(late, tmp_path / "out"), early, capsys)
    assert (status, answers(told)) == (3, {"not looked at"})
    why = {row["why"].split(": ")[-1] for row in told if "newest broker timestamp" not in row["why"]}
    assert why <= {
        "older copy or truncated log",
        "the partition is missing from the newer input, or belongs to another cluster",
    }


def test_another_cluster_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, other = earlier("lively-43", tmp_path / "old", 0.5), corpora.copy("lively-43", tmp_path / "other")
    for mark in other.glob("*/meta.properties"):
        mark.write_text(re.sub(r"(?m)^cluster.id=.*$", "cluster.id=AnotherOneAltogether42", mark.read_text()))
    status, told = rechecked(audited(old, tmp_path / "out"), other, capsys)
    assert (status, answers(told)) == (3, {"not looked at"})
    assert all("belongs to another cluster" in row["why"] for row in told)


def test_a_topic_made_again_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, made = earlier("lively-43", tmp_path / "old", 1), corpora.copy("lively-43", tmp_path / "made")
    out = audited(old, tmp_path / "out")
    for file in made.glob("*/*/partition.metadata"):
        file.write_text("version: 0\ntopic_id: AAAAAAAAQAiAAAAAAAAAAA\n")
    _, told = rechecked(out, made, capsys)
    held = [row for row in told if row["fingerprint"] is None]
    assert answers(held) == {"not looked at"}, held


def test_a_wrong_call_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("healthy-41")
    (tmp_path / "none").mkdir()
    for words in (
        ["recheck", "--out", str(tmp_path / "none"), str(path)],
        ["recheck", "--out", str(tmp_path / "none")],
    ):
        assert cli.main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    out = audited(path, tmp_path / "out")
    assert cli.main(["recheck", "--out", str(out), str(path)]) == 0
    assert "nothing was compared, and the newer input was not scanned" in capsys.readouterr().out


def test_a_run_that_left_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Suppressed findings are counted, and a run that could not judge its input is none without findings."""
    path, out, entries = corpora.unpack("altered-41"), tmp_path / "out", tmp_path / "baseline.json"
    grave = findings(audited(path, out))
    assert cli.main(["baseline", "--out", str(out), "--baseline", str(entries), *grave]) == 0
    words = ["audit", str(path), "--out", str(out), "--baseline", str(entries), "--master", "inline[1]", "--quiet"]
    assert cli.main(words) == 0
    capsys.readouterr()
    assert cli.main(["recheck", "--out", str(out), str(path)]) == 0
    said = capsys.readouterr().out
    assert "no finding at or above error that is not suppressed: nothing was compared" in said
    assert f"Not compared: {len(grave)} findings suppressed by the baseline.\n" in said
    (tmp_path / "disk").mkdir()
    shutil.copy(path / "broker-1" / "meta.properties", tmp_path / "disk")
    for form, lines in (("table", 2), ("json", 0)):
        out = audited(tmp_path / "disk", tmp_path / "empty")
        assert cli.main(["recheck", "--out", str(out), str(path), "--format", form]) == 3
        captured = capsys.readouterr()
        assert "The earlier run had read errors" in captured.out + captured.err.replace(": the", ": The")
        assert captured.out.count("\n") == lines


def test_the_terminal_says_how_to_look_again_where_it_could_not_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = set()
    for name in ("skipped-marker-43", "retention-in-transaction-43", "live-copy-39"):
        out = tmp_path / name
        cli.main(["audit", str(corpora.unpack(name)), "--out", str(out), "--master", "inline[1]"])
        unsure = any(row["standing"] == "unknown" for row in blocked(out))
        unsure |= any(json.loads(line)["if_true"] for line in (out / "findings.jsonl").read_text().splitlines())
        assert (f"auditor recheck --out {out} NEWER-COPY" in capsys.readouterr().out) == unsure
        said.add(unsure)
    assert said == {True, False}


# What is compared of each finding at or above --fail-on.

GRAVE = ("critical", "error")
HEADER = 61  # bytes of a batch before its records
BINARY = [*corpora.judged(), *corpora.campaigns()]


def findings(out: Path, severities: tuple[str, ...] = GRAVE) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["fingerprint"]: row for row in rows if row["severity"] in severities}


def of_findings(told: list[dict[str, Any]]) -> dict[str, str]:
    return {row["fingerprint"]: row["answer"] for row in told if row["fingerprint"] is not None}


def again(then: Audit, now: Audit, live: bool = False) -> tuple[int, list[dict[str, Any]]]:
    """The same as the command, of two audits that are there already."""
    summary = json.loads(json.dumps(run_report(then).summary, default=list))
    asked = recheck.questions_of(summary, (json.loads(f.to_json()) for f in then.findings))
    told = list(recheck.Newer(now, summary, live).answers(asked))
    return recheck.exit_code(told, now.incomplete()), [each.row() for each in told]


@pytest.mark.parametrize("name", BINARY)
def test_in_the_same_copy_every_finding_is_still_there(name: str) -> None:
    audit = corpus_audit(name)
    status, told = again(audit, audit)
    grave = [f.fingerprint for f in audit.findings if f.severity in GRAVE]
    assert {at: said for at, said in of_findings(told).items() if at in grave} == dict.fromkeys(grave, "still there")
    assert not answers(told) & {"new", "gone", "over"}
    assert (status == 1) == (bool(grave) or "not decided" in answers(told))


def damaged(name: str, target: Path) -> tuple[Path, Path]:
    """A corpus with a bit flipped in the body of one batch, in the middle of its longest log; and that file."""
    path = corpora.copy(name, target)
    files = [f for f in path.glob("*/*/*.log") if not f.parent.name.startswith("__")]
    file = max(files, key=lambda f: (f.stat().st_size, str(f)))
    content = bytearray(file.read_bytes())
    places = [batch.was for batch in batches_in(bytes(content))]
    content[places[len(places) // 2] + HEADER + 3] ^= 1
    file.write_bytes(content)
    return path, file


def test_a_repaired_copy_has_it_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = damaged("healthy-41", tmp_path / "damaged")
    out = audited(path, tmp_path / "out")
    (finding,) = findings(out).values()
    assert finding["kind"] == "batch-crc-mismatch"
    status, told = rechecked(out, path, capsys)
    assert (status, of_findings(told)[finding["fingerprint"]]) == (1, "still there")
    status, told = rechecked(out, corpora.unpack("healthy-41"), capsys)
    assert (status, of_findings(told)[finding["fingerprint"]]) == (0, "gone")


def test_what_the_newer_copy_lacks_is_not_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The partition, the broker, a log directory, a file that cannot be read; each is said, and ends in 3."""
    path, file = damaged("replicas-41", tmp_path / "damaged")
    out = audited(path, tmp_path / "out")
    (finding,) = (row for row in findings(out).values() if row["kind"] == "batch-crc-mismatch")
    brokers = sorted(mark.parent for mark in path.glob("*/meta.properties"))
    other = next(each for each in brokers if each not in file.parents)
    for number, gone in enumerate((file.parent, file.parents[1], other)):
        newer = corpora.copy("replicas-41", tmp_path / f"newer-{number}")
        shutil.rmtree(newer / gone.relative_to(path))
        status, told = rechecked(out, newer, capsys)
        row = next(row for row in told if row["fingerprint"] == finding["fingerprint"])
        assert (status, row["answer"]) == (3, "not looked at"), row
        assert row["why"]
    assert cli.main(["recheck", "--out", str(out), str(newer)]) == 3
    assert "NOT CHECKED  critical batch-crc-mismatch" in capsys.readouterr().out


def test_what_is_over_is_no_all_clear_beside_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hold that is over where a full audit of the newer input ends in 1."""
    out = audited(earlier("lively-43", tmp_path / "old", 0.5), tmp_path / "out")
    newer, _ = damaged("lively-43", tmp_path / "newer")
    audited(newer, tmp_path / "new")
    (finding,) = (row for row in findings(tmp_path / "new").values() if row["kind"] == "batch-crc-mismatch")
    status, told = rechecked(out, newer, capsys)
    assert status == 1
    assert of_findings(told)[finding["fingerprint"]] == "new"


def test_a_finding_is_the_same_by_its_rule_and_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One more batch is damaged right before: the finding begins elsewhere, and is still there."""
    path, file = damaged("healthy-41", tmp_path / "damaged")
    out = audited(path, tmp_path / "out")
    (finding,) = findings(out).values()
    content = bytearray(file.read_bytes())
    before = max(b.was for b in batches_in(bytes(content)) if b.was < finding["position"])
    content[before + HEADER + 3] ^= 1
    file.write_bytes(content)
    (now,) = findings(audited(path, tmp_path / "now")).values()
    assert now["fingerprint"] != finding["fingerprint"]
    status, told = rechecked(out, path, capsys)
    assert (status, of_findings(told)) == (1, {finding["fingerprint"]: "still there"})


@pytest.mark.parametrize(
    ("level", "compared"),
    [("critical", ("critical",)), ("error", GRAVE), ("never", GRAVE), ("warning", (*GRAVE, "warning"))],
)
def test_findings_from_the_severity_on_that_the_run_failed_at_are_compared(
    level: str, compared: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = corpora.unpack("altered-41")
    out = tmp_path / "out"
    options = AuditOptions((str(path),), out, master="inline", fail_on=level)
    running.write(Audit(options, here()))
    _, told = rechecked(out, path, capsys)
    assert of_findings(told).keys() >= findings(out, compared).keys()
    below = findings(out, ("critical", "error", "warning", "info")).keys() - findings(out, compared).keys()
    doubt = {at for at, row in findings(out, ("info",)).items() if row["if_true"]}
    assert not of_findings(told).keys() & (below - doubt)


def test_suppressed_findings_are_not_compared_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = damaged("healthy-41", tmp_path / "damaged")
    audited(path, tmp_path / "open")
    baseline = tmp_path / "baseline.json"
    words = ["--out", str(tmp_path / "open"), "--baseline", str(baseline), "--until", "never"]
    assert cli.main(["baseline", *findings(tmp_path / "open"), *words]) == 0
    more = ["--baseline", str(baseline), "--fail-on", "info", "--master", "inline"]
    cli.main(["audit", str(path), "--out", str(tmp_path / "out"), *more])
    capsys.readouterr()
    cli.main(["recheck", "--out", str(tmp_path / "out"), str(path)])
    said = capsys.readouterr().out
    assert "Not compared: 1 finding suppressed by the baseline." in said
    assert "batch-crc-mismatch" not in said


def test_a_running_cluster_does_not_show_damaged_bytes(tmp_path: Path) -> None:
    """It hands out records, and what it no longer hands out is not looked at: CRCs, segments, indexes."""
    path, _ = damaged("healthy-41", tmp_path / "damaged")
    then, sound = opened(path), opened(corpora.unpack("healthy-41"))
    status, told = again(then, sound, live=True)
    assert (status, answers(told)) == (3, {"not looked at"})
    assert all("give a newer copy as PATH" in row["why"] for row in told)
    assert again(then, sound)[0] == 0


@pytest.mark.parametrize("unread", [False, True])
def test_what_is_still_there_goes_before_what_was_not_looked_at(unread: bool) -> None:
    question = recheck.Question("t", 0, None, None, -1, None, None, None, "f")
    gone, left, not_looked = (
        recheck.AnsweredQuestion(question, answer, "", fails=True)
        for answer in (recheck.RecheckAnswer.GONE, recheck.RecheckAnswer.THERE, recheck.RecheckAnswer.NOT_LOOKED)
    )
    assert recheck.exit_code([gone, left, not_looked], unread) == 1
    assert recheck.exit_code([gone, not_looked], unread) == 3
    assert recheck.exit_code([gone], unread) == (3 if unread else 0)


def test_what_a_recheck_reads_is_kept_in_its_work_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second one takes it from there, and says the same."""
    path = corpora.unpack("hanging-43-killed")
    out, work = audited(path, tmp_path / "out"), tmp_path / "work"
    call = ["recheck", "--out", str(out), str(path), "--format", "json", "--work", str(work)]
    capsys.readouterr()
    without = cli.main(call[:-2]), capsys.readouterr().out
    first = cli.main(call), capsys.readouterr().out
    kept = {file.name: file.stat().st_mtime_ns for file in work.iterdir()}
    assert any(name.endswith(".arrow") for name in kept)
    assert (cli.main(call), capsys.readouterr().out) == first == without
    assert {file.name: file.stat().st_mtime_ns for file in work.iterdir()} == kept


def test_a_running_cluster_has_no_files_to_keep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["recheck", "--out", str(tmp_path), "--bootstrap-server", "localhost:1", "--work", str(tmp_path / "work")]
    assert cli.main(call) == 2
    assert "--work" in capsys.readouterr().err


def test_one_comparison_sorts_findings_of_two_runs() -> None:
    before, present = {"a": 1, "b": 2, "c": 3}, {"b": 20, "d": 40}
    changes = runs.compared(before, present, lambda was: "not read" if was == 3 else "")
    assert changes == ({"d": 40}, {"a": 1}, {"b": 20}, {"c": 3})
