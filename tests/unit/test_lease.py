"""auditor.connectors.stores.results where a store does not say who is there."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.stores import results, storage
from auditor.connectors.stores.storage import StorageLocation

PREFIX = ".running-"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RENEW_S", 0.02)


def deny(_where: StorageLocation, *, deep: bool) -> list[pafs.FileInfo]:
    """What a store answers to who may write and read, and not list."""
    raise PermissionError(13, "Permission denied")


def test_a_folder_that_cannot_be_listed_is_not_taken_for_one_without_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{PREFIX}of-another").write_bytes(b"..")
    monkeypatch.setattr(storage, "_infos", deny)
    with (
        pytest.raises(AuditInputError, match=r"cannot list .*Permission denied.*choose another --out"),
        results.alone_in(tmp_path.as_uri(), PREFIX, "run"),
    ):
        raise AssertionError("nobody knows who is there")
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}of-another"]


def test_a_list_that_is_refused_later_is_no_sign_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = storage._infos
    with results.alone_in(tmp_path.as_uri(), PREFIX, "run") as still_alone:
        monkeypatch.setattr(storage, "_infos", deny)
        time.sleep(0.3)  # some renewals
        monkeypatch.setattr(storage, "_infos", listed)
        still_alone("")
        next(tmp_path.iterdir()).unlink()
        time.sleep(0.3)
        with pytest.raises(OSError, match="another run writes there"):
            still_alone("")
