"""Two directories made from nothing that are compared: each test decides every record on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from auditor.pipeline.comparison import CompareOptions, Comparison, compare
from auditor.pipeline.options import AuditOptions
from tests import bare_broker, segments
from tests.bare_broker import BEGAN
from tests.controller_records import Controller
from tests.facts import here
from tests.forge import TRANSACTIONAL, Batch, Forged

LOG_APPEND_TIME = 0x08


class Sent(NamedTuple):
    """A record that a test sends: all that identifies it."""

    key: bytes | None
    value: bytes | None
    time: int
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def sent(*numbers: int) -> list[Sent]:
    """Records that differ in key, value and time (ms)."""
    return [Sent(b"key-%d" % n, b"value-%d" % n, BEGAN + 10 * n) for n in numbers]


class Directory:
    """A broker's log directory below ``root``; ``starts``: the first offset of all its partitions."""

    def __init__(self, root: Path, *folders: str, start: int = 0, settings: str = "") -> None:
        self.path = bare_broker.broker(root, *folders, start=start, settings=settings)
        self.logs = {name: Forged(self.path, name) for name in folders}
        for log in self.logs.values():
            if start:
                log.checkpoint("log-start-offset-checkpoint", start)

    def write(self, folder: str, records: Sequence[Sent], size: int = 3, **header: int) -> list[Batch]:
        """Append records in batches of ``size``; ``header``: fields of the batches."""
        log, made = self.logs[folder], []
        for begin in range(0, len(records), size):
            some = records[begin : begin + size]
            base = some[0].time
            body = b"".join(
                segments.record(k, r.key, r.value, r.time - base, r.headers) for k, r in enumerate(some)
            )  # fmt: skip
            at = log.end if log.all() else min(log.segments)
            fields = {"base_offset": at, "base_time": base, "max_time": max(r.time for r in some)} | header
            made.append(log.append(Batch(segments.batch(body, len(some), **fields))))
        return made

    def transaction(self, folder: str, records: Sequence[Sent], *, commit: bool, producer: int = 7) -> None:
        """Records of a transaction, and its marker."""
        made = self.write(folder, records, len(records), producer_id=producer, epoch=0, sequence=0,
                          attributes=TRANSACTIONAL)  # fmt: skip
        bare_broker.end(self.logs[folder], made[0], commit, records[-1].time)

    def only_partition(self, topic: str) -> None:
        """Let the metadata say that a topic has partition 0 alone."""
        folder = self.path / "__cluster_metadata-0"
        folder.mkdir()
        (folder / f"{0:020}.log").touch()
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self.controller = Controller(self.path, BEGAN)
        self.controller.create(topic, "b25lLXBhcnRpdGlvbi0tLQ", 1)
        self.logs["__cluster_metadata-0"] = self.controller.log

    def save(self) -> Path:
        """Write the files; return the directory."""
        bare_broker.finish(*self.logs.values())
        return self.path


def compared(a: Path, b: Path, topics: Iterable[str] = (), runner: Any = None, **options: Any) -> Comparison:
    """Compare two directories in this process."""
    ours = AuditOptions((str(a),), Path(), topics=tuple(topics))
    return compare((ours, AuditOptions((str(b),), Path())), runner or here(), CompareOptions(**options))


def places(done: Comparison, *kinds: str) -> list[tuple[Any, ...]]:
    """The rows (of some kinds) by kind, partition, offsets in A, offsets in B and records."""
    names = ("kind", "partition", "first_offset", "last_offset", "other_first_offset", "other_last_offset", "records")
    return [tuple(row[name] for name in names) for row in done.rows if not kinds or row["kind"] in kinds]
