"""What tests of copies without payload share: a copy of a folder, and every byte that can be got out of one."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditor.connectors.logdir import copy_format
from auditor.connectors.logdir.copy_format import digest_of
from auditor.connectors.stores.retries import ignore
from auditor.copying.copy_job import CopyJob, CopyResult
from auditor.copying.run import copied, copy_logs
from tests.conftest import ROOT

LIST = "copied.parquet"


def listed(folder: Path) -> dict[str, Any]:
    """The list of a directory of a copy, as it stands in its file."""
    metadata = pq.read_metadata(folder / LIST).metadata
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(metadata[b"auditor.copy"])))
    return found


def rewritten(folder: Path, table: pa.Table, said: dict[str, Any]) -> None:
    """Other rows, in one row group, with a list."""
    out = io.BytesIO()
    pq.write_table(table, out, use_dictionary=False, store_schema=False)
    data = out.getvalue()
    footer = copy_format.footer_in(data)
    groups = data[4 : -len(footer) - 8]
    (folder / LIST).write_bytes(b"PAR1" + groups + bytes(copy_format._TRAILER.size) + data[-len(footer) - 8 :])
    relisted(folder, said | {"groups": [[4, len(groups), len(table), digest_of(groups)]]})


def old_copies(folder: Path) -> None:
    """The copies of version 1 that the last program wrote which did (``tests/whole/test_copies_of_version_1.py``)."""
    with tarfile.open(ROOT / "tests" / "data" / "copies-of-version-1.tar.xz") as archive:
        archive.extractall(folder, filter="data")


def relisted(folder: Path, said: dict[str, Any]) -> None:
    """The same file with another list."""
    data = (folder / LIST).read_bytes()
    footer = copy_format.footer_in(data)
    at = data.rindex(footer) - copy_format._TRAILER.size
    fields = copy_format.parsed_struct(footer)
    text = base64.b64encode(gzip.compress(json.dumps(said).encode(), mtime=0))
    fields[copy_format.METADATA] = 9, (12, [{1: (8, b"auditor.copy"), 2: (8, text)}])
    again = copy_format.packed_struct(fields)
    trailer = copy_format._TRAILER.pack(bytes.fromhex(digest_of(again)), again.rindex(text), len(text))
    (folder / LIST).write_bytes(data[:at] + trailer + again + len(again).to_bytes(4, "little") + b"PAR1")


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
        if path.name == LIST:
            yield json.dumps(said := listed(path.parent), ensure_ascii=False).encode()
            yield from (base64.b64decode(f["content"]) for f in said["files"] if "content" in f)
            for at, size in (f["kept"] for f in said["files"] if "kept" in f):
                yield gzip.decompress(data[at : at + size])
            for column in pq.read_table(path).columns:
                yield b"\0".join(x if isinstance(x, bytes) else str(x).encode() for x in column.to_pylist())


def finds(copy: Path, secret: bytes) -> bool:
    """Whether a text is anywhere in a copy."""
    return any(secret in data for data in everything(copy))


class _Killed(BaseException):
    pass


def breaks_off(copies: Callable[[], object], number: int) -> bool:
    """Copy up to the change of the target that has this number, counted from 0; return whether there was one."""
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise _Killed
            return real(*args, **more)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("replace", "unlink", "rename"):
            patched.setattr(os, name, counted(getattr(os, name)))
        try:
            copies()
        except _Killed:
            return True
    return False
