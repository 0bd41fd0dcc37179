"""report.html in a real browser: from a file, without a network, for eyes of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.dashboards.answers import report_of
from auditor.dashboards.report import render_report
from tests.browser.conftest import DESK, PHONE, Opened
from tests.unit import report_samples as samples

Visit = Callable[..., Opened]
SAMPLES = {
    "hanging": samples.hanging,
    "hostile": samples.hostile,
    "empty": lambda: ([], samples.empty_summary(), [], []),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name}.html" for name in SAMPLES}
    for name, path in paths.items():
        path.write_text(samples.rendered(*SAMPLES[name]()), encoding="utf-8")
    return paths


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_quietly_and_fits(pages: dict[str, Path], visit: Visit, name: str, size: dict, scheme: str) -> None:
    opened = visit(pages[name], viewport=size, color_scheme=scheme)
    assert opened.faults == []
    assert opened.requests == []
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size["width"]
    ground = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) > 3 * 128
    assert light == (scheme == "light")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no-script"])
def test_the_answers_and_the_timelines_can_be_seen(pages: dict[str, Path], visit: Visit, script: bool) -> None:
    page = visit(pages["hanging"], java_script_enabled=script).page
    assert page.locator("#answers > section").count() == 4
    assert "4 partitions blocked" in page.locator("h1").inner_text()
    assert page.locator("#q1").is_visible()
    assert page.locator("svg.picture").count() == 4
    for picture in page.locator("svg.picture").all():
        assert (picture.bounding_box() or {}).get("height", 0) > 60
    for row in samples.hanging()[0]:
        assert page.get_by_text(row["message"]).first.is_visible()


def test_a_table_sorts_both_ways(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["hanging"]).page
    table = page.locator("section[aria-labelledby=q1] table").first
    ages = [row["age_ms"] for row in samples.hanging()[2]]

    def order() -> list[int]:
        return [int(cell.get_attribute("data-sort") or -1) for cell in table.locator("tbody td:nth-child(3)").all()]

    button = table.get_by_role("button", name="Open since")
    button.click()
    assert order() == sorted(ages)
    button.press("Enter")
    assert order() == sorted(ages, reverse=True)
    assert table.locator("th[aria-sort=descending]").count() == 1


def test_findings_are_filtered_by_words_and_severity(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["hanging"]).page
    rows = page.locator("#findings details.rule > table > tbody > tr:visible")
    assert rows.count() == 4
    page.keyboard.press("/")
    page.keyboard.type("bank-zombie HANGING-transaction")
    page.locator("#filter-count").get_by_text("1 of 4 shown").wait_for()
    assert rows.count() == 1
    assert "bank-zombie" in rows.first.inner_text()
    page.locator("#filter").fill("")
    page.locator("#filter-count").get_by_text("4 of 4 shown").wait_for()
    page.locator("input[data-severity=critical]").uncheck()
    assert rows.count() == 0


def test_a_search_without_a_hit_offers_what_is_near(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["hanging"]).page
    near, count = page.locator("#near"), page.locator("#filter-count")
    assert not near.is_visible()
    page.locator("#filter").fill("bank-zomby")
    count.get_by_text("0 of 4 shown", exact=True).wait_for()
    near.get_by_role("button", name="bank-zombie", exact=True).click()
    count.get_by_text("1 of 4 shown", exact=True).wait_for()
    assert not near.is_visible()
    page.locator("#filter").fill("bank-zombie bank-stray")
    near.get_by_role("button", name="bank-stray: 1", exact=True).click()
    count.get_by_text("1 of 4 shown", exact=True).wait_for()
    page.locator("input[data-severity=critical]").uncheck()
    near.get_by_role("button", name="1 with other severities").click()
    count.get_by_text("1 of 4 shown", exact=True).wait_for()
    assert page.locator("input[data-severity=critical]").is_checked()
    page.locator("#filter").fill("quite something else: 0x7f")
    count.get_by_text("0 of 4 shown", exact=True).wait_for()
    assert near.inner_text() == "No matches."


def test_a_witness_unfolds_and_a_command_can_be_copied(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["hanging"]).page
    first = page.locator("#findings .witness").first
    assert not first.is_visible()
    page.locator("#unfold").click()
    first.wait_for(state="visible")
    command = page.locator("#answers .command").first
    command.get_by_role("button").click()
    selected = page.evaluate("window.getSelection().toString()")
    assert selected.split() == command.locator("code").inner_text().split()


def test_a_cause_opens_and_the_search_finds_what_has_no_row(visit: Visit, tmp_path: Path) -> None:
    row = samples.finding(rule="hanging-transaction", severity="critical", message="it hangs")
    findings = [
        {**row, "topic": "t", "partition": n, "producer_id": 4000 + n % 4, "fingerprint": f"{n:064x}"}
        for n in range(1000)
    ]
    path = tmp_path / "causes.html"
    path.write_text(render_report(report_of(findings, samples.empty_summary()), [], []), encoding="utf-8")
    opened = visit(path)
    page = opened.page
    causes = page.locator("#findings details.cause")
    assert [text.split(" ", 3)[:3] for text in causes.locator("summary .id").all_text_contents()] == [
        ["producer", "id", str(4000 + n)] for n in range(4)
    ]
    causes.first.locator("summary").first.click()
    assert causes.first.get_by_text("t-0", exact=True).is_visible()
    page.locator("#filter").fill("t-997")
    page.locator("#filter-count").get_by_text("0 of 1,000 shown, 1 more below").wait_for()
    assert page.locator("#elsewhere tbody td").all_inner_texts() == [
        "critical", "hanging-transaction", "t-997", "producer id 4001", "0" * 12
    ]  # fmt: skip
    page.locator("#filter").fill("t-0")
    page.locator("#filter-count").get_by_text("1 of 1,000 shown", exact=True).wait_for()
    assert not page.locator("#elsewhere").is_visible()
    assert opened.faults == []


def test_a_link_to_a_finding_unfolds_it(visit: Visit, tmp_path: Path) -> None:
    """As alerts link to it: its cause and its evidence are open, where without the link they are folded."""
    row = samples.finding(rule="hanging-transaction", severity="critical", message="it hangs", evidence={"class": "x"})
    findings = [
        {**row, "topic": "t", "partition": n, "producer_id": 4000 + n % 4, "fingerprint": f"{n:012x}".ljust(64, "0")}
        for n in range(40)
    ]
    path = tmp_path / "causes.html"
    path.write_text(render_report(report_of(findings, samples.empty_summary()), [], []), encoding="utf-8")
    name = findings[6]["fingerprint"][:12]
    assert not visit(path).page.locator(f'[id="{name}"]').is_visible()
    opened = visit(f"{path.as_uri()}#{name}")
    line = opened.page.locator(f'[id="{name}"]')
    assert line.is_visible()
    assert line.get_by_text("t-6", exact=True).is_visible()
    assert line.locator("details").first.get_attribute("open") is not None
    assert opened.faults == []


def test_a_link_to_a_finding_without_a_row_searches_for_it(visit: Visit, tmp_path: Path) -> None:
    row = samples.finding(rule="hanging-transaction", severity="critical", message="it hangs", topic="t")
    findings = [{**row, "partition": n, "fingerprint": f"{n:012x}".ljust(64, "0")} for n in range(1000)]
    path = tmp_path / "many.html"
    path.write_text(render_report(report_of(findings, samples.empty_summary()), [], []), encoding="utf-8")
    name = findings[-1]["fingerprint"][:12]
    opened = visit(f"{path.as_uri()}#{name}")
    assert opened.page.locator("#elsewhere tbody tr").all_inner_texts()[0].split()[2:] == ["t-999", "–", name]
    assert opened.faults == []


def test_the_keyboard_reaches_the_answers_first(pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages["hanging"]).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answers"
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#answers'")


def test_hostile_names_do_nothing_but_are_shown(pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages["hostile"])
    opened.page.locator("#unfold").click()
    opened.page.locator("#filter").fill("<script>")
    opened.page.locator("#filter-count").get_by_text("1 of 1 shown").wait_for()
    for button in opened.page.locator("th button:visible").all()[:12]:
        button.click()
    assert opened.faults == []
    assert opened.requests == []
    assert opened.page.locator("script").count() == 1
    assert samples.HOSTILE in opened.page.locator("#answers").inner_text()


def test_a_script_that_is_not_the_pages_own_cannot_run(pages: dict[str, Path], visit: Visit, tmp_path: Path) -> None:
    source = pages["empty"].read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(source.replace("</body>", "<script>document.title = 'run'</script></body>"), encoding="utf-8")
    opened = visit(broken)
    assert opened.page.title() != "run"
    assert any("Content Security Policy" in fault for fault in opened.faults)


def test_a_report_of_a_hundred_thousand_findings_opens(
    visit: Visit, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    _, summary, transactions, timelines = samples.hanging()
    findings = [
        samples.finding(
            rule=f"rule-{n % 40}", severity=("critical", "error", "warning", "info")[n % 4], topic=f"topic-{n % 300}",
            partition=n % 12, offset=n, last_offset=n + 9, producer_id=n % 5000, producer_epoch=1,
            message=f"finding number {n} of a long night", remedy="Compare replicas with `kafka-dump-log.sh`.",
            evidence={"expected": n, "found": n + 1, "class": "late", "log_dir": "b1"}, source="KIP-98",
        )
        for n in range(100_000)
    ]  # fmt: skip
    path = tmp_path / "report.html"
    path.write_text(render_report(report_of(findings, summary), transactions, timelines), encoding="utf-8")
    assert path.stat().st_size < 20_000_000
    opened = visit(path)
    assert opened.faults == []
    assert opened.page.locator("#findings tbody > tr").count() > 700
    timing = json.loads(opened.page.evaluate("JSON.stringify(performance.getEntriesByType('navigation')[0])"))
    record_property("bytes", path.stat().st_size)
    record_property("milliseconds", timing["loadEventEnd"])
    print(f"{path.stat().st_size:,} bytes, loaded after {timing['loadEventEnd']:.0f} ms")


def test_it_prints_on_a_few_sheets(pages: dict[str, Path], visit: Visit) -> None:
    """A4 as browsers set it: the tables of chains and offsets and the words stay folded, even where they were open."""
    page = visit(pages["hanging"]).page
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.locator("#accounting table").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#accounting table").is_visible()
    assert page.locator("#accounting summary").is_visible()
    assert not page.locator("nav").is_visible()
    hatches = "getComputedStyle(document.querySelector('#hatch-open').ownerSVGElement).display"
    assert page.evaluate(hatches) != "none"  # a pattern that is not laid out draws nothing
    page.emulate_media()
    closed = visit(pages["hanging"]).page.pdf(format="A4")
    assert 1 <= closed.count(b"/Type /Page\n") <= 4


def test_it_says_how_old_the_copy_is_by_the_readers_clock(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "old.html"
    summary = samples.empty_summary(newest="2026-11-21T04:00:00.000Z")
    path.write_text(render_report(report_of([], summary), [], []), encoding="utf-8")
    for now, said in (
        ("2026-11-23T07:15:30Z", "Copy age: 2 d 3 h"), ("2026-11-21T05:00:00Z", "Copy age: 1 h"),
        ("2026-11-21T04:00:30Z", "Copy age: less than 1 min"), ("2026-11-20T05:00:00Z", ""),
    ):  # fmt: skip
        page = visit("about:blank").page
        page.clock.install(time=now)
        page.goto(path.as_uri())
        assert said in page.locator("header .meta").first.inner_text()
        assert bool(said) == ("Copy age" in page.locator("header .meta").first.inner_text())
