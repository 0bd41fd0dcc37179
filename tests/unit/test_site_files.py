"""The dashboard as static files: whole in itself, lasting, and written only where something changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pyarrow as pa
import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.dashboards import overview
from auditor.outputs import runs
from auditor.outputs import site as outputs_site
from auditor.pipeline import summary
from tests.unit import report_samples as samples
from tests.unit.html_page import Page
from tests.unit.test_clusters import publish
from tests.unit.test_dashboard import publish as publish_findings


def files(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in site.rglob("*.html")}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Two clusters: one with an error that stays (5), one that comes (7) and one that goes (6); one that is well."""
    folder = tmp_path / "history"
    publish(folder, "ill", 20, 5, 6)
    publish(folder, "ill", 21, 5, 7)
    publish(folder, samples.HOSTILE, 21)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def test_every_link_leads_to_a_file_and_every_file_is_led_to(history: Path, site: Path) -> None:
    done = outputs_site.export(history, site)
    found = files(site)
    assert done == outputs_site.ExportResult(len(found), 0, 0)
    assert {path for path in found if "~" not in path} == {
        "index.html", "cluster/ill.html", "report/ill-21.html", *(f"finding/ill{n}.html" for n in (5, 6, 7)),
    }  # fmt: skip
    linked = {"index.html"}
    for path in found:
        page = Page((site / path).read_text())
        assert page.faults == [], path
        links = {urljoin(f"/{path}", a["href"] or "").partition("#")[0][1:] for a in page.all("a")}
        assert links <= found, path
        linked |= links
    assert linked == found


def test_only_what_changed_is_written_and_nothing_goes(history: Path, site: Path) -> None:
    outputs_site.export(history, site)
    before = {path: (site / path).read_bytes() for path in files(site)}
    assert outputs_site.export(history, site).pages == 1, "the front, which says who is overdue"
    publish(history, "ill", 22, 7)
    done = outputs_site.export(history, site)
    assert before.keys() < files(site)
    changed = {path for path in before if (site / path).read_bytes() != before[path]}
    assert changed == {"index.html", "cluster/ill.html", "finding/ill5.html", "finding/ill7.html"}
    assert done.pages == len(changed) + len(files(site) - before.keys()) == 5
    said = Page((site / "finding/ill5.html").read_text()).text
    assert "first seen ill-20 evaluated at 2026-11-20 04:00:00 UTC" in said
    assert "last seen ill-21" in said
    assert "runs present in 2 of 3 runs since then resolved in ill-22" in said


def test_a_baseline_s_note_and_owner_are_on_the_page(tmp_path: Path, site: Path) -> None:
    history, finding = tmp_path / "history", samples.hanging()[0][0]
    publish_findings(history, "a", [finding])
    (run,) = runs.committed(history)
    (row,) = runs.read(history, run, "findings").to_pylist()
    entry = {"fingerprint": row["fingerprint"], "severity": "critical", "reason": "OPS-17", "who": "Ada", "rule": "r",
             "where": "w"}  # fmt: skip
    states = {
        None: "state suppressed reason OPS-17 owner Ada until no expiry",
        "accepted until 2026-11-20": "state no longer suppressed: accepted until 2026-11-20",
    }
    whole = runs.summary_of(history, run)
    given = {name: runs.read(history, run, name) for name in run.files if name != "summary"}
    for over, said in states.items():
        kept = pa.Table.from_pylist([entry | {"until": None, "over": over}], schema=summary.BASELINE)
        facts = run.facts | {"accepted": {"critical": int(over is None)}, "counts": {"critical": int(over is not None)}}
        runs.publish(history, "a", given | {"baseline": kept}, facts, whole)
        outputs_site.export(history, site)
        assert said in Page((site / overview.finding(row["fingerprint"])).read_text()).text


def test_findings_beyond_the_limit_are_said(
    history: Path, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outputs_site, "MOST_FINDINGS", 2)
    assert cli.main(["dashboard", str(history), "--export", str(site)]) == 0
    assert capsys.readouterr().out == (
        f"7 pages written, 0 unchanged; 1 older finding without a page: {site}/index.html\n"
    )
    assert {path for path in files(site) if path.startswith("finding/")} == {"finding/ill5.html", "finding/ill7.html"}
    assert "finding/ill6" not in (site / "cluster/ill.html").read_text()


@pytest.mark.parametrize("left", [b"", b"[]", b'{"pages": 3}', b"{"])
def test_a_list_that_is_none_is_made_anew(history: Path, site: Path, left: bytes) -> None:
    site.mkdir()
    (site / "pages.json").write_bytes(left)
    assert outputs_site.export(history, site).unchanged == 0
    assert set(json.loads((site / "pages.json").read_text())["pages"]) == files(site)


def test_a_place_that_cannot_be_written_is_said(history: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditInputError, match="choose another --export"):
        outputs_site.export(history, tmp_path / "file")


def test_what_a_page_is_called_is_a_file_s_name_anywhere() -> None:
    made: list[Callable[[str], str]] = [overview.cluster, overview.run, overview.report, overview.finding]
    odd: list[Any] = ["", "..", "../x", "a/b", "a b", "x" * 300, "\ud800", samples.HOSTILE, "ü", ".hidden"]
    for path in {make(name) for make in made for name in odd}:
        room, _, file = path.partition("/")
        assert room in ("cluster", "run", "report", "finding")
        assert file.removesuffix(".html").isascii()
        assert "/" not in file
        assert not file.startswith(".")
        assert len(file) < 120
    assert len({overview.run(name) for name in odd}) == len(odd)


def test_a_run_that_looked_at_a_part_does_not_tell_a_finding_s_story(tmp_path: Path, site: Path) -> None:
    """It has the same finding, and was followed by one like it that has not; to the runs over all it is there still."""
    folder = tmp_path / "history"
    publish(folder, "ill", 21, 5)
    publish(folder, "ill", 20, 5, asked="--topic a")
    publish(folder, "ill", 22, asked="--topic a")
    outputs_site.export(folder, site)
    said = Page((site / "finding/ill5.html").read_text()).text
    assert "last seen ill-21" in said
    assert "gone" not in said
    assert "--topic" not in (site / "index.html").read_text()
