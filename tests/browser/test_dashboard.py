"""``auditor dashboard`` in a real browser: from the trend to a run's report in one click."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from auditor.commands import dashboard
from tests.browser.conftest import DESK, PHONE, Opened
from tests.unit import report_samples as samples
from tests.unit.test_dashboard import publish

Visit = Callable[..., Opened]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    history = tmp_path_factory.mktemp("history")
    findings = samples.hanging()[0]
    for n in range(6):
        publish(history, f"night-{n}", findings[:n])
    publish(history, samples.HOSTILE, [*findings, samples.hostile()[0][0] | {"topic": samples.HOSTILE}])
    with dashboard.serve(history, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_quietly_and_fits(address: str, visit: Visit, size: dict, scheme: str) -> None:
    opened = visit(address, viewport=size, color_scheme=scheme)
    assert opened.faults == []
    assert opened.requests == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert samples.HOSTILE in opened.page.locator("main").inner_text()


def test_one_click_from_the_trend_to_a_run_and_one_to_its_report(address: str, visit: Visit) -> None:
    opened = visit(address)
    opened.page.locator("#trend a").nth(2).evaluate("link => link.dispatchEvent(new MouseEvent('click'))")
    opened.page.wait_for_url("**/run/night-2.html")
    assert "1 new finding, 0 resolved, 1 unchanged" in opened.page.locator(".lead").inner_text()
    opened.page.get_by_role("link", name="Open report").click()
    assert opened.page.url == address + "report/night-2.html"
    assert opened.page.locator("#answers").is_visible()
    assert opened.faults == []


@pytest.mark.parametrize("size", [DESK, {"width": 420, "height": 900}], ids=["desk", "phone"])
def test_one_click_from_what_is_blocked_to_its_finding(address: str, visit: Visit, size: dict) -> None:
    opened = visit(address, viewport=size)
    opened.page.locator("#now li a.where").first.click()
    assert "/finding/" in opened.page.url
    assert opened.page.locator("#what .command button").first.inner_text() == "Copy"
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    opened.page.get_by_role("link", name="in its report").click()
    assert opened.page.locator("#answers").is_visible()
    assert opened.faults == []


def test_a_run_of_a_hostile_name_can_be_looked_at(address: str, visit: Visit) -> None:
    opened = visit(address)
    opened.page.locator("#runs tbody tr").first.get_by_role("link", name="report").click()
    assert opened.page.url.startswith(address + "report/~")
    assert opened.page.locator("#answers").is_visible()
    assert opened.faults == []
