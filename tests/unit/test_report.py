"""The report: a well-formed page on its own, inert whatever the data says, that begins with the right answers."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from jinja2 import Environment

from auditor.dashboards import finding_groups, page
from auditor.dashboards.answers import report_of
from auditor.dashboards.report import MAX_TIMELINES, render_report
from tests import corpora
from tests.unit import report_samples as samples
from tests.unit.html_page import Page

CASES = {"hanging": samples.hanging, "hostile": samples.hostile, "empty": lambda: ([], samples.empty_summary(), [], [])}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {name: samples.rendered(*make()) for name, make in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_page_is_well_formed(sources: dict[str, str], name: str) -> None:
    page = Page(sources[name])
    assert page.faults == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {a["href"][1:] for a in page.all("a") if (a.get("href") or "").startswith("#")}
    assert anchors <= set(ids)


def test_parser_sees_faults() -> None:
    assert Page("<p><b></p>").faults
    assert Page("<p>").faults
    assert Page('<p id="a" id="b"></p>').faults


@pytest.mark.parametrize("name", CASES)
def test_page_asks_for_nothing_and_runs_only_its_own(sources: dict[str, str], name: str) -> None:
    page = Page(sources[name])
    policy = next(m["content"] or "" for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("style", "script"):
        digest = hashlib.sha256("".join(page.raw[kind]).encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    for tag, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "style"], tag
        for key in ("src", "href", "action", "xlink:href", "srcset", "data"):
            assert attributes.get(key) in (None, "data:,") or (attributes[key] or "").startswith("#"), tag
    assert not re.search(r"https?://|url\((?!#)|@import", sources[name])


def test_answers_name_what_the_broker_said(sources: dict[str, str]) -> None:
    text = Page(sources["hanging"]).text
    truth = corpora.manifest("hanging-36")
    assert "4 partitions blocked" in text
    for row in truth["expect"]:
        live = truth["live"][f"{row['topic']}-{row['partition']}"]
        waiting = live["highWatermark"] - row["lastStableOffset_stuck_at"]
        assert f"{row['topic']}-{row['partition']} broker 1" in text
        assert f"offset {row['lastStableOffset_stuck_at']} LSO lag {waiting} offset" in text
        assert (
            f"abort --topic {row['topic']} --partition {row['partition']} --start-offset {row['firstOffset']}" in text
        )
    told = text[text.index("Blocked partitions") : text.index("3 Coverage")]
    table, below = told.split("2 What to do")
    assert table.index("bank-stray") < table.index("open coordinator: Ongoing") < table.index("bank-busy")
    assert "bank-busy" not in below
    assert "transaction.partition.verification.enable=true" in text


@pytest.mark.parametrize("finding", samples.hanging()[0], ids=lambda f: f["transactional_id"])
def test_every_finding_stands_there_with_its_witness(sources: dict[str, str], finding: dict) -> None:
    text = Page(sources["hanging"]).text
    assert finding["message"] in text
    assert finding["evidence"]["found"] in text
    assert finding["source"] in text


def test_hostile_names_are_inert_everywhere(sources: dict[str, str]) -> None:
    hostile, calm = Page(sources["hostile"]), Page(sources["hanging"])
    assert len(hostile.all("script")) == len(calm.all("script")) == 1
    assert "alert(1)" not in "".join(hostile.raw["script"] + hostile.raw["style"])
    assert hostile.text.count(samples.HOSTILE) > 40
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", sources["hostile"])
    assert "\\x1b[31m\\u202e" in hostile.text
    titles = [attributes.get("aria-label") for attributes in hostile.all("svg") if attributes.get("aria-label")]
    assert any(samples.HOSTILE in (title or "") for title in titles)
    sources["hostile"].encode("utf-8")


def test_a_normal_transaction_is_drawn_and_described_calmly() -> None:
    findings, summary, transactions, timelines = samples.hanging()
    calm = [row for row in transactions if row["class"] == "active"]
    bar = {key: calm[0][key] for key in ("producer_id", "producer_epoch", "first_offset", "last_offset", "class")}
    place = {key: calm[0][key] for key in ("topic", "partition")}
    picture = {**timelines[0], **place, "log_start": 0, "log_end": 10, "lso": 0, "transactions": [bar]}
    page = Page(render_report(report_of([], {**summary, "counts": {}}), calm, [picture]))
    assert page.faults == []
    assert "No problems found" in page.text
    assert "1 open transaction: status" in page.text
    drawn = [(a.get("class") or "").split() for tag, a in page.elements if tag in ("rect", "line")]
    assert ["bar-active"] in drawn
    assert ["lso", "active"] in drawn
    hatches = 2  # the ground and the line of the pattern that open ones would have
    assert sum("open" in names or "bar-open" in names for names in drawn) == hatches
    alarmed = Page(render_report(report_of(findings, summary), transactions, timelines))
    assert any(a.get("class") == "blockzone open" for a in alarmed.all("rect"))


def test_lone_surrogates_can_be_written() -> None:
    findings = [samples.finding(rule="torn-tail", topic="a\ud800b", partition=0, message="\udfff")]
    assert (
        "a\\ud800b-0"
        in Page(render_report(report_of(findings, samples.empty_summary()), [], []).encode().decode()).text
    )


def test_templates_are_kept_and_give_the_same_page(
    sources: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "folder_for", lambda *_: tmp_path)
    name = next(iter(CASES))
    for _ in "compiled", "kept":
        page._environment.cache_clear()
        assert samples.rendered(*CASES[name]()) == sources[name]
    kept = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr(Environment, "_compile", lambda *_: pytest.fail("a kept template is compiled again"))
    page._environment.cache_clear()
    assert samples.rendered(*CASES[name]()) == sources[name]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == kept
    page._environment.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_same_input_same_bytes(sources: dict[str, str], name: str) -> None:
    assert samples.rendered(*CASES[name]()) == sources[name]


def test_nothing_found_is_not_all_clear_when_part_was_unreadable() -> None:
    calm = render_report(report_of([], samples.empty_summary()), [], [])
    lost = [{"log_dir": "b1", "file": "t-0/0.log", "position": 9, "length": 4, "reason": "unreadable", "detail": "EIO"}]
    torn = render_report(report_of([], samples.empty_summary(unreadable=lost)), [], [])
    assert 'class="tone-good"' in calm
    assert 'class="tone-good"' not in torn
    assert "b1/t-0/0.log at byte 9: EIO" in Page(torn).text


def test_hundred_thousand_findings_fit_and_nothing_is_hidden_silently() -> None:
    rules = {"sequence-gap": 99_998, "batch-crc-mismatch": 1, "torn-tail": 1}
    findings = []
    for rule, count in rules.items():
        row = samples.finding(rule=rule, evidence={"log_dir": "b1"}, remedy="Compare replicas " * 10)
        for n in range(count):
            about = {"topic": f"t{n % 50}", "partition": n % 7, "offset": n, "producer_id": n}
            findings.append({**row, **about, "message": f"{rule} number {n}", "fingerprint": f"{n:064x}"})
    source = render_report(report_of(findings, samples.empty_summary(counts={"by_rule": rules})), [], [])
    assert len(source.encode()) < 20_000_000
    text = Page(source).text
    assert f"{99_998 - finding_groups.MAX_ROWS_PER_RULE:,} more not shown: see findings.jsonl" in text
    assert "batch-crc-mismatch number 0" in text
    assert "torn-tail number 0" in text
    # Those without a row have a line for the search: where, offset, and what 'auditor explain' asks for.
    assert "\nt47-2\t99997\tproducer id 99997\t000000000000" in source


def test_oversized_evidence_cannot_swell_the_page() -> None:
    evidence = {f"fact {n}": '"' * 10_000 for n in range(200)}
    findings = [
        samples.finding(rule=f"rule-{n % 70}", message="<" * 100_000, remedy="&" * 100_000, evidence=evidence)
        for n in range(4000)
    ]
    source = render_report(report_of(findings, samples.empty_summary()), [], [])
    assert len(source.encode()) < 20_000_000
    assert "more characters)" in source
    assert "176 more facts in findings.jsonl" in source


def test_logs_of_one_name_in_two_clusters_are_drawn_each_with_its_own() -> None:
    """The same producer id at the same offset of the same partition: in one cluster it hangs, in the other not."""
    _, summary, transactions, timelines = samples.hanging()
    hung = next(row for row in transactions if row["class"] == "hanging") | {"log_dir": "a"}
    same = {key: hung[key] for key in ("topic", "partition", "producer_id", "producer_epoch", "first_offset")}
    calm = next(row for row in transactions if row["class"] == "active") | same | {"log_dir": "b"}
    inputs = [{"log_dir": name, "cluster_id": name.upper(), "broker_id": 1} for name in ("a", "b")]
    pictures = []
    for row in (calm, hung):
        bar = {key: row[key] for key in ("producer_id", "producer_epoch", "first_offset", "last_offset", "class")}
        place = {key: row[key] for key in ("log_dir", "topic", "partition")}
        pictures.append(timelines[0] | place | {"transactions": [bar]})
    page = Page(render_report(report_of([], {**summary, "inputs": inputs, "counts": {}}), [hung, calm], pictures))
    drawn = [(a.get("class") or "").split() for tag, a in page.elements if tag == "line"]
    each = [names[1] for names in drawn if "lso" in names]  # a part of the log, then the whole
    assert each == ["open", "open", "active", "active"], "what blocks goes first"


def test_long_lists_say_how_many_more() -> None:
    findings, summary, transactions, timelines = samples.hanging()
    many = [{**transactions[0], "partition": n, "producer_id": n} for n in range(500)]
    pictures = [{**timelines[0], "partition": n} for n in range(MAX_TIMELINES + 3)]
    page = Page(render_report(report_of(findings, summary), many, pictures))
    assert page.faults == []
    # The finding on bank.audit-2 has none of these transactions and makes a row of its own.
    assert "501 partitions blocked" in page.text
    assert "and 499 more partitions" in page.text
    assert "3 more not shown" in page.text


def test_keys_that_a_run_could_not_fill_are_no_reason_to_fail() -> None:
    row = {
        "topic": "t",
        "partition": 0,
        "producer_id": 1,
        "producer_epoch": 0,
        "class": "undecidable",
        "first_offset": 3,
    }
    picture = {"topic": "t", "partition": 0, "log_start": 0, "log_end": 9, "transactions": [row]}
    page = Page(
        render_report(report_of([{"rule": "x", "severity": "info", "message": "m"}], {"logs": [row]}), [row], [picture])
    )
    assert page.faults == []
    assert "unknown" in page.text


def test_every_finding_has_an_anchor_once() -> None:
    """So that an alert leads to it; two findings of one fingerprint share the first one's."""
    prints = ["98a4cf72be27" + "0" * 52, "1" * 64, "1" * 64]
    findings = [
        samples.finding(rule="sequence-gap", topic="t", partition=n, message="gap", fingerprint=name)
        for n, name in enumerate(prints)
    ]
    page = render_report(report_of(findings, samples.empty_summary()), [], [])
    assert page.count('<tr id="98a4cf72be27"') == page.count(f'<tr id="{"1" * 12}"') == 1
    assert '<a href="#98a4cf72be27">98a4cf72be27</a>' in page


def test_paper_is_not_a_small_screen() -> None:
    """A sheet is narrower than a telephone's layout begins at: that is for screens, printed it took 39 sheets."""
    page = render_report(report_of([], samples.empty_summary()), [], [])
    assert "@media screen and (max-width: 52rem)" in page
    assert "@media (max-width" not in page


def test_the_headline_leads_to_what_to_do() -> None:
    """To the advice on the page: of what is lost, of what is blocked, of what may be."""
    findings, summary, transactions, timelines = samples.hanging()
    lost = samples.finding(
        rule="replica-divergence", severity="critical", topic="t", partition=0, message="lost", remedy="Copy it.",
    )  # fmt: skip
    undecided = [{**row, "class": "undecidable", "standing": "unknown"} for row in transactions[:1]]
    held = [{**undecided[0], "last_stable_offset": undecided[0]["first_offset"]}]
    for found, more, opened, anchor in (
        ([*findings, lost], {}, transactions, "do-about-1"),
        (findings, {}, transactions, "do-1"),
        ([], {"blocked": held, "counts": {}}, undecided, "do-1"),
    ):
        page = render_report(report_of(found, summary | more), opened, timelines)
        head = page[page.index("<header") : page.index("</header>")]
        assert f'<a href="#{anchor}">What to do</a>' in head
        assert f'id="{anchor}"' in page
