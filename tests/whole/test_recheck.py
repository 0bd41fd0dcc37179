"""``auditor recheck``: what an earlier state of a directory left held is asked of the directory as it became."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from auditor import cli, running
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora, earlier_states
from tests.cluster_writers import batches_in, partitions
from tests.facts import here

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
                assert answer["answer"] in ("still held", "not decided"), answer
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
    assert "STILL HELD  a.b-c.audit-2 at offset 0" in capsys.readouterr().out


def test_an_older_copy_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late, early = earlier("lively-43", tmp_path / "late", 1), earlier("lively-43", tmp_path / "early", 0.3)
    status, told = rechecked(audited(late, tmp_path / "out"), early, capsys)
    assert (status, answers(told)) == (1, {"not decided"})
    why = {row["why"].split(": ")[-1] for row in told}
    assert why <= {
        "an older copy, or a log that was cut off",
        "the partition is not in the newer input, or of another cluster",
    }


def test_another_cluster_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, other = earlier("lively-43", tmp_path / "old", 0.5), corpora.copy("lively-43", tmp_path / "other")
    for mark in other.glob("*/meta.properties"):
        mark.write_text(re.sub(r"(?m)^cluster.id=.*$", "cluster.id=AnotherOneAltogether42", mark.read_text()))
    status, told = rechecked(audited(old, tmp_path / "out"), other, capsys)
    assert (status, answers(told)) == (1, {"not decided"})
    assert all("of another cluster" in row["why"] for row in told)


def test_a_topic_made_again_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, made = earlier("lively-43", tmp_path / "old", 1), corpora.copy("lively-43", tmp_path / "made")
    out = audited(old, tmp_path / "out")
    for file in made.glob("*/*/partition.metadata"):
        file.write_text("version: 0\ntopic_id: AAAAAAAAQAiAAAAAAAAAAA\n")
    _, told = rechecked(out, made, capsys)
    held = [row for row in told if row["fingerprint"] is None]
    assert answers(held) == {"not decided"}, held


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
    assert "nothing held and nothing undecided" in capsys.readouterr().out


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
