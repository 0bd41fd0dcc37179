"""URIs in what people read: never with a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.base import user_input
from auditor.base.errors import AuditInputError
from auditor.cli import main
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import StorageLocation
from auditor.pipeline.options import folder_of, out_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/a/b@c?d", "/a/b@c?d"),
        ("s3://bucket/x", "s3://bucket/x"),
        ("hdfs://nn:9000/audits/x", "hdfs://nn:9000/audits/x"),
        ("s3://bucket/x@y", "s3://bucket/x@y"),
        ("s3://KEY:SECRET@bucket/x?token=SECRET", "s3://bucket/x"),
        ("s3://KEY:SEC/RET@bucket/x", "s3://bucket/x"),
        ("s3://KEY:SEC?RET@bucket/x", "s3://…"),
        ("s3://bucket/x?endpoint=http://a:SECRET@b", "s3://…"),
    ],
)
def test_no_secret_of_a_uri_is_shown(text: str, said: str) -> None:
    assert user_input.shown_uri(text) == said


def test_places_whose_path_is_the_uri_hide_its_secrets() -> None:
    assert StorageLocation("memory://u:SECRET@host", "/u:SECRET@host/x").shown == "memory://host/x"
    assert StorageLocation("https://h?sig=SECRET", "https://h/x?sig=SECRET").shown == "https://h/x"


def test_a_malformed_uri_is_a_mistake_and_not_repeated() -> None:
    for ask in (storage.place, out_of, storage.filesystem):
        with pytest.raises(AuditInputError, match=r"invalid URI: escape special characters .* as %5B") as said:
            ask("s3://AKIA:se[cr]et@bucket/x")
        assert "cr" not in str(said.value).replace("brackets", "")


def test_an_empty_store_is_named_without_its_password(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import fsspec

    fsspec.filesystem("memory").mkdir("/u:SECRET@host/empty")
    assert main(["audit", "memory://u:SECRET@host/empty", "--out", str(tmp_path), "--master", "inline[1]"]) == 2
    assert "SECRET" not in capfd.readouterr().err


def test_where_only_a_folder_will_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", "s3://u:SECRET@b/runs"]) == 2
    said = "s3://b/runs is a URI: expected a directory on this host\n"
    assert capfd.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    "call",
    [
        ["explain", "0", "--out"],
        ["baseline", "--out"],
        ["recheck", "/", "--out"],
        ["copy", "/", "--out", "/no-such/folder", "--around", "0", "--run"],
    ],
)
def test_a_store_without_results_is_one_line_without_its_password(
    call: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*call, "memory://u:SECRET@b/runs"]) == 2
    assert capfd.readouterr().err == "auditor: memory://b/runs has no audit results; give the --out of an audit\n"


def test_a_file_uri_is_a_folder() -> None:
    assert folder_of("file:///a%20b") == Path("/a b")
