"""What could not be read never makes an alarm: files of real brokers' copies are taken away, alone and together.

Every kind of file in every run, every file in the nightly one."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.base.errors import DecodeError
from auditor.connectors.stores import storage
from auditor.connectors.stores.storage import BinaryFile, StorageLocation
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import SEVERITIES, Finding
from tests import corpora
from tests.conftest import NIGHTLY
from tests.facts import judge, logs_below

# What stands open is reported as open, no longer as hanging, when the coordinator's log that proves it cannot be read.
WEAKER = {"long-open-transaction", "lso-stuck"}
SHARES = (0.1, 0.3, 0.5, 0.7) if NIGHTLY else (0.2, 0.6)
TOGETHER = (
    "__transaction_state", "__cluster_metadata", "__consumer_offsets", "checkpoint", ".snapshot", "index", ".log",
)  # fmt: skip
CORPORA = (
    "healthy-28", "healthy-41", "not-hanging-41", "unknown-producer-23", "trimmed-28", "legacy-0102", "hanging-36",
)  # fmt: skip


def groups(folder: Path, corpus: str) -> Iterator[list[str]]:
    """What is taken away at once: a kind of file, all of a folder, some at random, a single file."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    chance = random.Random(7)
    yield from ([n for n in names if word in n] for word in TOGETHER)
    yield from ([n for n in names if chance.random() < share] for share in SHARES)
    folders = [[n for n in names if n.rpartition("/")[0] == f] for f in sorted({n.rpartition("/")[0] for n in names})]
    yield from some_of([*folders, *([n] for n in names if n.count("/") == 1 or chance.random() < 0.2)], corpus)


def some_of(found: list[list[str]], corpus: str) -> list[list[str]]:
    """A few that differ in kind, and others for each corpus; in the nightly run all."""
    if NIGHTLY:
        return found
    chance = random.Random(corpus)
    kinds = {kind_of(files): files for files in chance.sample(found, len(found))}
    return chance.sample(list(kinds.values()), min(5, len(kinds)))


def kind_of(files: list[str]) -> str:
    name = files[0]
    return "several" if len(files) > 1 else name if name.count("/") == 1 else Path(name).suffix


def audited(name: str) -> list[Finding]:
    catalogue = [r.id for r in registry.kinds().values() if not r.what_if]
    logs = logs_below(corpora.unpack(name), records=True, as_of=corpora.manifest(name)["copied_at"])
    return [f for f in judge(logs, *catalogue) if f.severity != "info"]


def about(f: Finding) -> tuple[object, ...]:
    return (f.kind, f.topic, f.partition, f.offset, f.producer_id, f.transactional_id, f.file)


@pytest.mark.parametrize("name", CORPORA)
def test_no_file_is_missed_into_an_alarm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = corpora.unpack(name)
    before = {about(f): SEVERITIES.index(f.severity) for f in audited(name)}
    hanging = {(f.topic, f.partition, f.producer_id) for f in audited(name) if f.kind == "hanging-transaction"}
    opening, gone = storage.open_file, set[str]()

    def open_file(where: StorageLocation, file: str = "", until: int | None = None) -> BinaryFile | DecodeError:
        if where.child(file).path in gone:
            return DecodeError(file, 0, -1, "unreadable", "AWS Error SLOW_DOWN")
        return opening(where, file, until=until)

    for module in [m for key, m in sys.modules.items() if key.partition(".")[0] == "auditor"]:
        if getattr(module, "open_file", None) is opening:
            monkeypatch.setattr(module, "open_file", open_file)
    for files in groups(folder, name):
        gone = {f"{folder}/{file}" for file in files}
        for f in audited(name):
            weaker = f.kind in WEAKER and (f.topic, f.partition, f.producer_id) in hanging
            known = SEVERITIES.index(f.severity) >= before.get(about(f), len(SEVERITIES))
            assert weaker or known, f"without {files[:3]} of {len(files)}: {f.severity} {f.kind}: {f.message}"
