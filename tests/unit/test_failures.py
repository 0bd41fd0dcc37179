"""What ends a command or a call of the library: a failure is one, and Ctrl-C is none."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from auditor.base.errors import AuditFailure, StoreTrouble
from auditor.running import failures


def broken(folder: Path) -> None:
    with failures() as claimed:
        claimed.append(folder)
        raise RuntimeError("out of order")


def cancelled() -> None:
    """As a query of Spark's is by Ctrl-C."""
    with failures():
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("cancelled")


def test_what_ctrl_c_makes_fail_is_stopped() -> None:
    with pytest.raises(KeyboardInterrupt):
        cancelled()


def test_a_failure_after_an_earlier_ctrl_c_is_a_failure(tmp_path: Path) -> None:
    """Somebody stopped something else, and has an audit run as that is handled."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as ends:
        ends.callback(_fails, tmp_path)  # called while the other is handled
        raise KeyboardInterrupt
    assert (tmp_path / "failure.log").exists()


def _fails(folder: Path) -> None:
    with pytest.raises(AuditFailure, match="out of order"):
        broken(folder)


def test_a_store_that_goes_on_refusing_is_no_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(AuditFailure, match=r"the store says SlowDown.*run again, or wait longer") as said, failures():
        raise StoreTrouble("SlowDown")
    assert "bug" not in str(said.value)
