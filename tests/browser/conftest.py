"""One headless Chromium of the system, driven by Playwright, that shows what a page did."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")


@dataclass
class Opened:
    """A page in the browser, what its console said that is not well, and whatever it asked for beside itself."""

    page: Page
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED, no Chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="NOT TESTED, no Playwright: run make test-browser")
    with sync_api.sync_playwright() as playwright:
        # In a container Chromium's own sandbox has no rights to start; the pages are ours.
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a file or address; options are those of a Playwright context (viewport, color_scheme, …)."""
    contexts = []

    def opens(target: Path | str, **options: Any) -> Opened:
        context = browser.new_context(**{"viewport": DESK, **options})
        contexts.append(context)
        opened = Opened(context.new_page())
        address = target.as_uri() if isinstance(target, Path) else target
        opened.page.on("console", lambda m: opened.faults.append(m.text) if m.type in ("error", "warning") else None)
        opened.page.on("pageerror", lambda error: opened.faults.append(str(error)))
        opened.page.on("dialog", lambda dialog: (opened.faults.append("dialog " + dialog.message), dialog.dismiss()))
        opened.page.on("request", lambda r: opened.requests.append(r.url))
        opened.page.goto(address)
        opened.requests = [url for url in opened.requests if url not in (address, "data:,")]
        return opened

    yield opens
    for context in contexts:
        context.close()
