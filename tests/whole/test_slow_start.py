"""What an audit does while its way to run starts: it reads the clusters' settings, once, and nothing changes by it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.inline import InlineRunner
from auditor.pipeline import cluster_settings, whole_audit
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit, in_background
from tests import corpora
from tests.facts import here, opened


class _Slow(InlineRunner):
    """Has started when the settings have been read, and not before."""

    slow_start = True
    settings_read = threading.Event()

    def ready(self) -> None:
        assert self.settings_read.wait(60), "nobody reads the settings while this starts"


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which settings were read."""
    read, threads = cluster_settings.read_settings, list[str]()

    def heard(*given: object) -> object:
        threads.append(threading.current_thread().name)
        found = read(*given)  # type: ignore[arg-type]
        _Slow.settings_read.set()
        return found

    monkeypatch.setattr(cluster_settings, "read_settings", heard)
    _Slow.settings_read.clear()
    return threads


def test_settings_are_read_while_it_starts(reading: list[str]) -> None:
    path = corpora.unpack("hanging-36")
    audit = Audit(AuditOptions((str(path),), Path()), _Slow(here().pool))
    found = audit.findings
    assert len(reading) == 1
    assert reading[0] != threading.main_thread().name
    assert found == opened(path).findings
    assert audit.settings.keys() == opened(path).settings.keys()


def test_a_start_that_fails_waits_for_who_reads_the_settings(reading: list[str]) -> None:
    """Who closes the processes next would do so beside them."""

    class _Fails(InlineRunner):
        slow_start = True

        def ready(self) -> None:
            raise AuditInputError("Java not found")

    audit = Audit(AuditOptions((str(corpora.unpack("hanging-36")),), Path()), _Fails(here().pool))
    with pytest.raises(AuditInputError, match="Java not found"):
        _ = audit.replicas
    assert _Slow.settings_read.is_set()


def test_who_interrupts_the_findings_may_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = corpora.unpack("hanging-36")
    audit = opened(path)
    with monkeypatch.context() as patched:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(whole_audit, "resolve_each", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ = audit.findings
    assert audit.findings == opened(path).findings


def test_what_goes_wrong_beside_is_for_who_asks() -> None:
    def fails() -> None:
        raise MemoryError("too little")

    with pytest.raises(MemoryError, match="too little"):
        in_background(fails).result(60)
