"""What tests of copies without payload share: a copy of a folder, and every byte that can be got out of one."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditor.connectors.stores.retries import ignore
from auditor.copying.copy_job import CopyJob, CopyResult
from auditor.copying.run import copied, copy_logs

LIST = "copied.json.gz"


def copy_of(source: Path, out: Path) -> CopyResult:
    """Copies what is below ``source``."""
    return copy_logs([str(source)], out)


def copied_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the command copy in this process, where a test may change what it does."""
    monkeypatch.setattr(CopyJob, "apart", lambda job, work, say=ignore: job.follow(copied(job), say))


def everything(copy: Path) -> Iterator[bytes]:
    """The bytes of each file, and what they become when they are unpacked."""
    for path in sorted(p for p in copy.rglob("*") if p.is_file()):
        data = path.read_bytes()
        yield data
        if path.suffix == ".gz":
            yield (plain := gzip.decompress(data))
            if path.name == LIST:
                yield from (base64.b64decode(f["content"]) for f in json.loads(plain)["files"] if "content" in f)
        if path.suffix == ".parquet":
            for column in pq.read_table(path).columns:
                yield b"\0".join(x if isinstance(x, bytes) else str(x).encode() for x in column.to_pylist())


def finds(copy: Path, secret: bytes) -> bool:
    """Whether a text is anywhere in a copy."""
    return any(secret in data for data in everything(copy))
