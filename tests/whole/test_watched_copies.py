"""``auditor watch`` over a copy without payload that later copies are written over: what it reports is what an audit
of the directory finds, and nothing is read again for nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auditor.commands.watch import Watch, WatchRound
from auditor.copying import run
from auditor.copying.run import copy_logs
from auditor.outputs.printing import Journal
from auditor.pipeline.options import AuditOptions
from tests import corpora
from tests.facts import here, opened
from tests.growing import appended, batches, broker, cleaned, rolled, trimmed
from tests.processes.test_watch import CORPUS, as_of, grow, lines, still_open
from tests.unit.test_copied_checksums import COUNT, batch

AS_OF = 2_000_000_000_000  # ms


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are a test's own, and all have just been written."""
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


def watching(path: Path | str, out: Path, at: int = AS_OF) -> tuple[Watch, list[int]]:
    """A watch in this process, and how many replicas each reading was of."""
    out.mkdir()
    watch, read = Watch(AuditOptions((str(path),), out, as_of=at), here(), Journal(out)), list[int]()
    keep: Callable[..., None] = watch._keep

    def counted(entries: Any, tasks: list[Any]) -> None:
        read.append(len(tasks))
        keep(entries, tasks)

    watch._keep = counted  # type: ignore[method-assign]
    return watch, read


def settled(watch: Watch) -> WatchRound:
    """Looks until nothing changes, which is at the third look at the latest: what changed is read once more."""
    looks = [watch.look() for _ in range(3)]
    assert [look.changed for look in looks] == [True, True, False]
    return looks[0]


def of_directory(path: Path, at: int = AS_OF) -> list[str]:
    return [f.to_json() for f in opened(path, as_of=at).findings]


def test_a_copy_that_grows_is_reported_as_its_directory_is(tmp_path: Path) -> None:
    whole, source, copy, out = corpora.unpack(CORPUS), tmp_path / "in", tmp_path / "copy", tmp_path / "out"
    watch = None
    for share in (0.4, 0.7, 1):
        grow(whole, source, share)
        copy_logs([str(source)], copy)
        watch = watch or watching(copy, out, int(as_of()))[0]
        settled(watch)
        found = (out / "findings.jsonl").read_text().splitlines()
        assert found == of_directory(source, int(as_of()))
    assert any("hanging-transaction" in line for line in found)
    assert sorted(row["rule"] for row in still_open(lines(out))) == sorted(json.loads(line)["rule"] for line in found)


def test_whatever_becomes_of_the_directory_it_is_followed(tmp_path: Path) -> None:
    source, copy, out = broker(tmp_path / "in" / "broker-1"), tmp_path / "copy", tmp_path / "out"
    copy_logs([str(source.parent)], copy, keep_ms=86_400_000)
    watch, _ = watching(copy, out)
    settled(watch)
    for change in (appended, rolled, cleaned, trimmed, lambda path: shutil.rmtree(path / "t-1")):
        change(source)
        copy_logs([str(source.parent)], copy, keep_ms=86_400_000)
        while watch.look().changed:
            pass
        assert watch.last is not None
        assert [f.to_json() for f in watch.last.findings] == of_directory(source.parent)
    assert sum("held by a copy" in item.reason for item in watch.last.inventory.skipped) == 1


def test_what_is_verified_later_is_seen_though_no_file_has_another_size(tmp_path: Path) -> None:
    """A leap of sequences, which is undecided as long as nobody has verified the checksums around it."""
    source, copy = broker(tmp_path / "in" / "broker-1"), tmp_path / "copy"
    leap = b"".join(batch(n, sequence=n + (5 if n >= COUNT // 2 else 0)) for n in range(COUNT))
    (source / "t-0" / f"{0:020}.log").write_bytes(leap)
    copy_logs([str(source.parent)], copy, checksums="none")
    watch, _ = watching(copy, tmp_path / "out")
    settled(watch)
    assert watch.last is not None
    assert [f.to_json() for f in watch.last.findings] != of_directory(source.parent)
    copy_logs([str(source.parent)], copy, checksums="all")
    settled(watch)
    assert [f.to_json() for f in watch.last.findings] == of_directory(source.parent)


def test_a_partition_of_a_copy_is_watched_by_itself(tmp_path: Path) -> None:
    """Two PATHs in one log directory, which are one log directory."""
    source, copy = broker(tmp_path / "in" / "broker-1"), tmp_path / "copy"
    copy_logs([str(source.parent)], copy)
    options = AuditOptions(
        (str(copy / "broker-1" / "t-0"), str(copy / "broker-1" / "t-1")), tmp_path / "out", as_of=AS_OF
    )
    (tmp_path / "out").mkdir()
    watch = Watch(options, here(), Journal(tmp_path / "out"))
    settled(watch)
    assert watch.last is not None
    assert [log_dir.name for log_dir in watch.last.inventory.log_dirs] == ["broker-1"]
    with (source / "t-1" / f"{0:020}.log").open("ab") as f:
        f.write(batches(2, 3))
    copy_logs([str(source.parent)], copy)
    assert settled(watch).audit.inventory.log_dirs[0].replicas[1].segments[0].size == len(batches(0, 5))
