"""What makes a test a unit test: no process of the auditor's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from auditor import running
from auditor.connectors.stores import retries
from auditor.processes.isolation import Pool
from tests.facts import here
from tests.sleepless import Ahead


def refuse(_: Pool) -> None:
    """Instead of what starts processes for readers."""
    raise AssertionError("a test in tests/unit would start a process; it belongs in tests/whole or tests/processes")


@pytest.fixture(autouse=True)
def in_this_process() -> Iterator[None]:
    """Commands with ``--master inline`` audit here, and nothing else starts readers apart."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "_inline", lambda master: here())
        patched.setattr(Pool, "_starter", property(refuse))
        patched.setattr(retries, "time", Ahead())  # a store that refuses is asked again at once
        yield
