"""Every incident that is forged here is held to one advice on every surface, whatever else its test asks; and stores
that refuse are asked again at once, for as long as the clock says that they would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.connectors.stores import retries
from auditor.pipeline.whole_audit import Audit
from tests import audited, one_advice
from tests.sleepless import Ahead


@pytest.fixture(autouse=True)
def stores_are_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> Ahead:
    """What readers sleep between two requests in this process, half a minute for a store that goes on refusing."""
    clock = Ahead()
    monkeypatch.setattr(retries, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def one_advice_everywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What an incident's audit says is looked at on every surface; other audits of this folder are not rendered."""
    if not request.module.__name__.rpartition(".")[2].startswith("test_incidents"):
        yield
        return
    folder: Path = tmp_path_factory.mktemp("surfaces")

    def look(audit: Audit) -> None:
        one_advice.everywhere(audit, folder)

    audited.LOOKS.append(look)
    yield
    audited.LOOKS.remove(look)
