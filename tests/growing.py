"""A small broker's directory, and what happens to one between two copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from auditor.connectors.logdir.inventory import discover
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from tests import segments

NAME = f"{0:020}.log"


def batches(first: int, count: int, **header: Any) -> bytes:
    return b"".join(segments.simple(3 * n, 3, **header) for n in range(first, first + count))


def offsets(first: int, count: int) -> bytes:
    key = b"\0\1\0\1g\0\1t\0\0\0\0"
    value = b"\0\1" + bytes(8) + b"\0\6secret" + bytes(16)
    return b"".join(
        segments.batch(segments.record(0, key, value), 1, base_offset=n) for n in range(first, first + count)
    )


def broker(root: Path) -> Path:
    """Makes the directory."""
    for folder, content in (("t-0", batches(0, 5)), ("t-1", batches(0, 2)), ("__consumer_offsets-0", offsets(0, 5))):
        (root / folder).mkdir(parents=True)
        (root / folder / NAME).write_bytes(content)
        (root / folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    return root


def rows_of(path: str | Path) -> dict[str, list[Any]]:
    wanted = frozenset({"batches", "decode_errors", "offset_commits", "index_entries", "checkpoints"})
    found: dict[str, list[Any]] = {}
    for piece in plan(discover([str(path)]), wanted):
        for name, some in read_piece(piece, wanted, How()):
            found.setdefault(name, []).extend(some.to_pylist())
    return found


def appended(source: Path) -> None:
    for folder, more in (("t-0", batches(5, 3)), ("__consumer_offsets-0", offsets(5, 3))):
        with (source / folder / NAME).open("ab") as f:
            f.write(more)


def appended_and_torn(source: Path) -> None:
    with (source / "t-0" / NAME).open("ab") as f:
        f.write(batches(5, 3)[:-10])


def rolled(source: Path) -> None:
    (source / "t-0" / f"{15:020}.log").write_bytes(batches(5, 2))


def cut_and_written_anew(source: Path) -> None:
    size = (source / "t-0" / NAME).stat().st_size
    with (source / "t-0" / NAME).open("r+b") as f:
        f.truncate(0)
        f.write(batches(0, 3) + batches(3, 5, producer_id=9, epoch=1, sequence=0))
    assert (source / "t-0" / NAME).stat().st_size > size


def cut(source: Path) -> None:
    os.truncate(source / "t-0" / NAME, len(batches(0, 2)))


def cleaned(source: Path) -> None:
    """As the cleaner does: another file of the name, with the times of the old one."""
    path = source / "t-0" / NAME
    times = path.stat().st_mtime_ns
    (source / "new").write_bytes(batches(1, 4) + batches(5, 1))
    os.utime(source / "new", ns=(times, times))
    (source / "new").rename(path)


def deleted(source: Path) -> None:
    shutil.rmtree(source / "t-1")


def set_aside(source: Path) -> None:
    (source / "t-1").rename(source / "t-1.0123456789abcdef0123456789abcdef-delete")


def made_anew(source: Path) -> None:
    shutil.rmtree(source / "t-1")
    (source / "t-1").mkdir()
    (source / "t-1" / NAME).write_bytes(batches(0, 2, producer_id=7, epoch=0, sequence=0))
    (source / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")


def trimmed(source: Path) -> None:
    rolled(source)
    (source / "t-0" / NAME).unlink()


CHANGES = [
    appended,
    appended_and_torn,
    rolled,
    cut_and_written_anew,
    cut,
    cleaned,
    deleted,
    set_aside,
    made_anew,
    trimmed,
]
