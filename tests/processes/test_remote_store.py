"""The remote part of tiered topics in an S3-compatible store, where it lies in practice, in both layouts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from auditor.connectors.stores import storage
from auditor.pipeline.judge import accounting
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.whole_audit import Audit
from tests import corpora, store
from tests.facts import here, logs_of


@pytest.mark.parametrize(
    ("name", "one"), [("tiered-43", "*/plain-0-*/*270-*.log"), ("aiven-43", "flat-shop.mixed-*/0/*84-*.log")]
)
def test_a_remote_part_in_a_bucket_gives_the_findings_of_a_folder(
    name: str, one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = corpora.copy(name, tmp_path / "copies"), tmp_path / "remote"
    shutil.move(path / "remote", folder)
    damaged(folder, one)
    local = results(path, name, str(folder))
    assert "batch-crc-mismatch" in "".join(local[0])
    with store.serving() as environment:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        storage.filesystem.cache_clear()
        store.upload(folder, "tier", environment)
        assert results(path, name, "s3://tier") == local
    storage.filesystem.cache_clear()


def damaged(remote: Path, one: str) -> None:
    """A byte of a record in a segment that is stored as it was: its checksum does not fit."""
    (file,) = remote.glob(one)
    data = bytearray(file.read_bytes())
    data[100] ^= 0xFF
    file.write_bytes(data)


def results(path: Path, name: str, remote: str) -> tuple[list[str], dict[str, object], Counter[str], int]:
    """Findings, what each offset of the logs is, what was skipped and why, and how many bytes were found."""
    as_of = corpora.manifest(name)["copied_at"]
    audit = Audit(AuditOptions((str(path),), Path(), records=True, as_of=as_of, remote=(remote,)), here())
    offsets: dict[str, object] = {log.name: accounting(log.leader) for log in logs_of(audit)}
    skipped = Counter(f"{s.reason} {s.size}" for s in audit.inventory.skipped)
    return [f.to_json() for f in audit.findings], offsets, skipped, audit.inventory.bytes_found
