"""A copy of a part is judged by what is there: files and folders of real brokers are left out, alone and together.

What no file shows is not known; only a gap that the other files bound is reported, as undecidable: the segment between
them is lost, or was not copied.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from auditor.rules.seen.view import SEVERITIES, Finding
from tests import corpora
from tests.audited import above_info, audit_folder
from tests.conftest import NIGHTLY
from tests.whole.test_files_that_cannot_be_read import WEAKER, about, groups, some_of

CORPORA = (
    "healthy-28", "healthy-41", "not-hanging-41", "unknown-producer-23", "trimmed-28", "legacy-0102", "hanging-36",
    "replicas-41",
)  # fmt: skip
GAPS = {"offset-hole", "sequence-gap", "committed-transaction-hole"}
NOT_INDEXED = {"aborted-transaction-not-indexed", "replica-abort-index-divergence"}
INDEX_ENTRY_BYTES = 34  # of a .txnindex: version, producer id, first, last and last stable offset
LACKS = {"checkpoint-beyond-log-end", "orphaned-index", "replica-missing-range"}


def parts(folder: Path, corpus: str) -> Iterator[list[str]]:
    """What is left out at once: as for what cannot be read, every segment alone, and all but one partition."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    folders = sorted({n.rpartition("/")[0] + "/" for n in names if n.count("/") == 2})
    chance = random.Random(11)
    alone = [[n] for n in names if n.endswith((".log", ".properties", ".kafka_cleanshutdown"))]
    only = [[n for n in names if not n.startswith(kept)] for kept in folders]
    some = [
        [n for n in names if n.startswith(tuple(chance.sample(folders, len(folders) // 2)))]
        for _ in range(3 if NIGHTLY else 1)
    ]
    yield from groups(folder, corpus)
    yield from some_of(alone + only, corpus)
    yield from some


def said_of_files(f: Finding, gone: list[str]) -> bool:
    """Whether a finding is about a file that is not there, while others say that it was."""
    folder = f"/{f.topic}-{f.partition}/"
    of_log = [name for name in gone if folder in name]
    if f.kind in GAPS:
        return f.evidence["confidence"] == "undecidable" and any(n.endswith(".log") for n in of_log)
    if f.kind == "start-fails":
        names = [name.partition("/")[2] for name in gone]
        return f.evidence["file"] in names or any(name.startswith("__cluster_metadata-0/") for name in names)
    if f.kind == "missing-segment":  # which may be about several partitions
        several = f.evidence.get("partitions")
        names = several if isinstance(several, list) else [] if several else [f"{f.topic}-{f.partition}"]
        return all(any(f"/{name}/" in n and n.endswith(".log") for n in gone) for name in names)
    if f.kind in LACKS:
        return any(n.endswith(".log") for n in of_log)
    # A segment with its other indexes, but without this one, is one whose index was lost.
    return f.kind in NOT_INDEXED and any(n.endswith(".txnindex") for n in of_log)


@pytest.mark.parametrize("name", CORPORA)
def test_no_file_is_left_out_into_an_alarm(name: str, tmp_path: Path) -> None:
    root, aside, as_of = tmp_path / "copy", tmp_path / "aside", int(corpora.manifest(name)["copied_at"])
    whole = corpora.copy(name, root)
    known = above_info(audit_folder(whole, as_of))
    before = {about(f): SEVERITIES.index(f.severity) for f in known}
    hanging = {(f.topic, f.partition, f.producer_id) for f in known if f.kind == "hanging-transaction"}
    for gone in list(parts(root, name)):
        shutil.copytree(root, aside, copy_function=link)
        for file in gone:
            (aside / file).unlink()
        for f in above_info(audit_folder(aside, as_of)):
            weaker = f.kind in WEAKER and (f.topic, f.partition, f.producer_id) in hanging
            same = SEVERITIES.index(f.severity) >= before.get(about(f), len(SEVERITIES))
            reported = f"without {gone[:3]} of {len(gone)}: {f.severity} {f.kind}: {f.message}"
            assert weaker or same or said_of_files(f, gone), reported
        shutil.rmtree(aside)


def link(source: str, target: str) -> None:
    """A file under a second name: nothing is written to it."""
    Path(target).hardlink_to(source)


@pytest.mark.parametrize("keep", ["00000000000000000000.log", "00000000000000000464.log"])
def test_a_single_file_raises_no_alarm(tmp_path: Path, keep: str) -> None:
    source = corpora.unpack("healthy-41") / "broker-1" / "shop.orders-0" / keep
    shutil.copy(source, tmp_path / keep)
    assert above_info(audit_folder(tmp_path, int(corpora.manifest("healthy-41")["copied_at"]))) == []


@pytest.mark.parametrize("index", [False, True])
def test_an_index_that_is_lost_is_distinguished_from_indexes_that_were_not_copied(tmp_path: Path, index: bool) -> None:
    root = corpora.copy("healthy-41", tmp_path)
    for file in root.glob("*/shop.orders-0/*index"):
        if file.suffix == ".txnindex" or not index:
            file.unlink()
    found = above_info(audit_folder(root, int(corpora.manifest("healthy-41")["copied_at"])))
    assert {f.kind for f in found} == ({"aborted-transaction-not-indexed"} if index else set())


def aborted_by_segment(log: Path) -> dict[str, int]:
    """How many aborted transactions each transaction index of a partition lists, by the broker."""
    return {path.name: path.stat().st_size // INDEX_ENTRY_BYTES for path in sorted(log.glob("*.txnindex"))}


def of_the_index(found: list[Finding], log: str) -> list[Finding]:
    return [f for f in found if f.kind == "aborted-transaction-not-indexed" and f"{f.topic}-{f.partition}" == log]


def test_a_lost_transaction_index_is_one_finding(tmp_path: Path) -> None:
    root = corpora.copy("healthy-41", tmp_path)
    folder = root / "broker-1" / "shop.orders-0"
    listed = aborted_by_segment(folder)
    lost = next(name for name, entries in listed.items() if entries > 1)
    (folder / lost).unlink()
    (f,) = above_info(audit_folder(root, int(corpora.manifest("healthy-41")["copied_at"])))
    assert (f.kind, f.severity, f.file) == ("aborted-transaction-not-indexed", "critical", f"shop.orders-0/{lost}")
    assert f.evidence["transactions"] == listed[lost]
    assert f.message.startswith(f"{listed[lost]} aborted transactions in shop.orders-0 ")


@pytest.mark.parametrize("name", ["healthy-41", "lively-25"])
def test_no_transaction_index_at_all_was_not_copied(tmp_path: Path, name: str) -> None:
    """Said once a log, however many it aborted; whether they are lost nobody can tell."""
    root = corpora.copy(name, tmp_path)
    assert sum(aborted_by_segment(root / "broker-1" / "shop.orders-0").values()) > 1
    for file in root.glob("*/*/*.txnindex"):
        file.unlink()
    found = audit_folder(root, int(corpora.manifest(name)["copied_at"]), records=False)
    assert not above_info(found)
    (f,) = of_the_index(found, "shop.orders-0")
    assert (f.severity, f.evidence["confidence"]) == ("info", "undecidable")
    assert "no .txnindex at all" in f.message
