"""Input that holds nothing to judge: no output says that nothing is wrong."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import auditor
from auditor import cli, running
from auditor.base.errors import AuditInputError
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline.whole_audit import NO_TOPICS, EmptyInput, of_directories
from tests import corpora
from tests.facts import here, opened

CORPUS = "lag-rolls-43"  # its metadata log has the topics ab and op, and those of Kafka itself
NO_SEGMENTS = "no segment files in the input (.log)"
LEFT_OUT = (
    "no segment files in the input: the copy excluded the .log files of 4 partition directories, which have indexes "
    "and producer snapshots and checkpoints above 0"
)
EMPTY_SEGMENTS = "all segment files in the input (.log) are empty"
ONLY_METADATA = "no partitions in the input, only cluster metadata"
Said = tuple[int, str, str]  # exit code, stdout and stderr


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_inline", lambda _: here())


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    class Text(io.StringIO):
        def reconfigure(self, **_: object) -> None:
            """As of a real stream."""

    with contextlib.redirect_stdout(Text()) as out, contextlib.redirect_stderr(Text()) as err:
        yield out, err


def called(*words: object) -> Said:
    """A command in this process."""
    with _captured() as (out, err):
        status = cli.main([*map(str, words)])
    return status, out.getvalue(), err.getvalue()


def audited(path: Path, out: Path, *more: object) -> Said:
    return called("audit", path, "--out", out, "--master", "inline", *more)


def without_partitions(target: Path) -> Path:
    """A broker's directory with its small files alone."""
    target.mkdir(parents=True)
    (log_dir,) = corpora.unpack(CORPUS).glob("broker-1")
    shutil.copy(log_dir / "meta.properties", target)
    return target


def without_segments(target: Path) -> Path:
    """The same with the indexes and snapshots of its partitions."""
    (log_dir,) = corpora.unpack(CORPUS).glob("broker-1")
    shutil.copytree(log_dir, target, ignore=shutil.ignore_patterns("*.log", "__cluster_metadata-0"))
    assert list(target.rglob("*.index"))
    return target


def empty_segments(target: Path) -> Path:
    """The same with segments of no byte, as a copy that ended on a full disk."""
    for folder in without_segments(target).glob("*-0"):
        (folder / f"{0:020}.log").touch()
    return target


def only_metadata(target: Path) -> Path:
    """The same with the metadata log alone."""
    (log_dir,) = corpora.unpack(CORPUS).glob("broker-1")
    shutil.copytree(log_dir, target, ignore=shutil.ignore_patterns("ab-0", "op-0", "__consumer*", "__transaction*"))
    return target


def new_broker(target: Path) -> Path:
    """A broker's directory as it was before its cluster had a topic: its metadata log ends before the first."""
    (log,) = only_metadata(target).glob("__cluster_metadata-0/*.log")
    data, at = log.read_bytes(), 0
    while not any(name in data[at : _behind(data, at)] for name in (b"ab", b"op", b"__")):
        at = _behind(data, at)
    log.write_bytes(data[:at])
    for file in log.parent.glob("*.checkpoint"):
        assert b"__" not in file.read_bytes()
    for file in target.glob("*-checkpoint"):
        file.unlink()
    return target


def _behind(data: bytes, at: int) -> int:
    return int(at + 12 + struct.unpack_from(">i", data, at + 8)[0])


EMPTY: dict[str, tuple[Callable[[Path], Path], str]] = {
    "without-partitions": (without_partitions, NO_SEGMENTS),
    "without-segments": (without_segments, LEFT_OUT),
    "empty-segments": (empty_segments, EMPTY_SEGMENTS),
    "only-metadata": (only_metadata, ONLY_METADATA),
}


@pytest.mark.parametrize("name", EMPTY)
def test_no_output_says_that_nothing_is_wrong(name: str, tmp_path: Path) -> None:
    make, reason = EMPTY[name]
    path, out = make(tmp_path / "broker-1"), tmp_path / "out"
    status, said, err = audited(path, out, "--history", tmp_path / "history")
    assert (status, err.splitlines()) == (3, [f"auditor: {reason}"])
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is False
    assert summary["empty_input"] == reason
    assert (summary["verdict"]["tone"], summary["verdict"]["exit"]) == ("unsure", 3)
    assert summary["verdict"]["headline"].startswith(reason[0].upper() + reason[1:])
    assert called("dashboard", tmp_path / "history", "--export", tmp_path / "site")[0] == 0
    assert "  as of None" not in called("history", tmp_path / "history", "--format", "table")[1]
    pages = [out / "report.html", *(tmp_path / "site").rglob("*.html")]
    assert len(pages) > 2
    for text in (said, json.dumps(summary), *(page.read_text() for page in pages)):
        assert "1970-01-01" not in text
        assert "no problems" not in text.lower()
        assert not re.search(r'class="chip good|class="tone-good', text)
    assert all(reason[1:] in page.read_text() for page in pages if page.name in ("report.html", "index.html"))
    assert "kafka_audit_complete" in (out / "metrics.prom").read_text()
    assert _metric(out / "metrics.prom", "kafka_audit_complete") == 0


def _metric(file: Path, name: str) -> float:
    (line,) = (line for line in file.read_text().splitlines() if line.startswith(f"{name}{{"))
    return float(line.rpartition(" ")[2])


def test_formats_for_other_programs_say_so(tmp_path: Path) -> None:
    path = without_segments(tmp_path / "broker-1")
    _, junit, _ = audited(path, tmp_path / "junit", "--format", "junit")
    (error,) = ET.fromstring(junit).iter("error")
    assert error.get("message") == LEFT_OUT
    _, sarif, _ = audited(path, tmp_path / "sarif", "--format", "sarif")
    (invocation,) = json.loads(sarif)["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [row["message"]["text"] for row in invocation["toolExecutionNotifications"]] == [LEFT_OUT]


@pytest.mark.parametrize("words", [
    ("lag", "PATH"), ("space", "PATH"), ("cleaner", "PATH"),
    ("sql", "SELECT count(*) FROM batches", "PATH", "--engine", "duckdb"),
    ("what-if", "PATH", "--out", "OUT", "--master", "inline", "--quiet"),
    ("watch", "PATH", "--out", "OUT", "--master", "inline", "--interval", "0.01", "--until-idle", "0", "--quiet"),
], ids=lambda words: words[0])  # fmt: skip
def test_other_commands_end_alike(words: tuple[str, ...], tmp_path: Path) -> None:
    path = without_segments(tmp_path / "broker-1")
    places = {"PATH": path, "OUT": tmp_path / "out"}
    status, _, err = called(*(places.get(word, word) for word in words))
    assert (status, err.splitlines()) == (3, [f"auditor: {LEFT_OUT}"])


def test_a_copy_of_no_segments_says_so(tmp_path: Path) -> None:
    path = without_segments(tmp_path / "broker-1")
    status, _, err = called("copy", path, "--out", tmp_path / "out", "--quiet")
    assert (status, err.splitlines()) == (
        3,
        [f"auditor: {NO_SEGMENTS}: its partition directories are without their .log files"],
    )


def test_recheck_of_a_newer_input_without_segments(tmp_path: Path) -> None:
    assert audited(corpora.unpack("hanging-36"), tmp_path / "earlier", "--quiet")[0] == 1
    newer = without_segments(tmp_path / "broker-1")
    status, _, err = called("recheck", "--out", tmp_path / "earlier", newer)
    assert (status, err.splitlines()) == (3, [f"auditor: {LEFT_OUT}"])


def test_python_programs_hear_of_it(tmp_path: Path) -> None:
    with auditor.open(without_partitions(tmp_path / "broker-1"), master="inline[1]") as audit:
        assert audit.exit_status == 3
        assert (audit.summary["verdict"]["tone"], audit.summary["as_of"]) == ("unsure", None)


def test_a_given_time_is_the_time(tmp_path: Path) -> None:
    """Without any log, too: not the epoch."""
    found = opened(without_partitions(tmp_path / "broker-1"), as_of=1_795_838_417_137)
    assert found.as_of_text == "2026-11-28T04:00:17.137Z"


def test_a_new_broker_has_no_topics_yet(tmp_path: Path) -> None:
    path, out = new_broker(tmp_path / "broker-1"), tmp_path / "out"
    status, said, err = audited(path, out)
    assert status == 0
    assert said.startswith("No topics yet")
    assert err.startswith("auditor: no topics yet")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["complete"] is True
    assert summary["verdict"]["tone"] == "unsure"
    assert _metric(out / "metrics.prom", "kafka_audit_complete") == 1


def test_metadata_of_which_a_part_could_not_be_read_shows_no_new_broker(tmp_path: Path) -> None:
    inventory = discover([str(new_broker(tmp_path / "broker-1"))])
    ((key, known),) = opened(tmp_path / "broker-1").settings.items()
    assert of_directories(inventory, {key: known}) == NO_TOPICS
    for less in (replace(known, whole=False), replace(known, metadata=None)):
        assert of_directories(inventory, {key: less}) == EmptyInput(ONLY_METADATA)


def test_a_cluster_without_segments_beside_another_one(tmp_path: Path) -> None:
    """It is named: an all-clear for the other one is none for it."""
    with_data = corpora.unpack("healthy-41") / "broker-1"
    empty = without_partitions(tmp_path / "broker-1")
    settings = re.sub(r"cluster\.id=.*", "cluster.id=another", (empty / "meta.properties").read_text())
    (empty / "meta.properties").write_text(settings)
    status, said, err = called("audit", with_data, empty, "--out", tmp_path / "out", "--master", "inline")
    named = "no segment files of cluster another in the input (.log), or only empty ones"
    assert (status, err.splitlines()) == (3, [f"auditor: {named}"])
    assert said.startswith(named[0].upper() + named[1:])


def test_an_empty_disk_of_a_broker_with_others_is_no_empty_input(tmp_path: Path) -> None:
    with_data = corpora.unpack(CORPUS) / "broker-1"
    empty = without_partitions(tmp_path / "disk-2")
    status, _, err = called("audit", with_data, empty, "--out", tmp_path / "out", "--master", "inline", "--quiet")
    assert (status, err) == (0, "")


def test_filters_count_what_they_leave(tmp_path: Path) -> None:
    """A broker whose directory has no segment; a topic without any; and one that is not there, which is a mistake."""
    with_data = corpora.unpack(CORPUS) / "broker-1"
    shutil.copytree(with_data, tmp_path / "cluster" / "broker-1", ignore=shutil.ignore_patterns("00*.log"))
    for kept in ("__cluster_metadata-0", "__consumer_offsets-0", "ab-0"):
        shutil.copytree(with_data / kept, tmp_path / "cluster" / "broker-1" / kept, dirs_exist_ok=True)
    path = tmp_path / "cluster"
    for words, status in (((), 0), (("--topic", "ab"), 0), (("--topic", "op"), 3), (("--topic", "none"), 2)):
        if status == 2:
            with pytest.raises(AuditInputError):
                opened(path, topics=("none",)).exit_code()
        assert audited(path, tmp_path / f"out-{len(words)}-{status}", "--quiet", *words)[0] == status, words


def test_what_is_not_kafkas_is_a_usage_error(tmp_path: Path) -> None:
    status, _, err = audited(tmp_path, tmp_path / "out")
    assert status == 2
    assert err.startswith("auditor: nothing to audit in")


LOST: dict[str, tuple[str, str]] = {
    "every-log": ("*-0/*.log", "broker-1/__cluster_metadata-0 and 4 more"),
    "logs-of-a-partition": ("op-0/*.log", "broker-1/op-0"),
    "partition-directories": ("*-0", "broker-1/__cluster_metadata-0 and 4 more"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_copy_keeps_the_segments_that_its_source_has_lost(name: str, tmp_path: Path) -> None:
    pattern, lost = LOST[name]
    source, out = corpora.copy(CORPUS, tmp_path / "source"), tmp_path / "copy"
    assert called("copy", source, "--out", out, "--quiet")[0] == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    for found in (source / "broker-1").glob(pattern):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    status, said, err = called("copy", source, "--out", out)
    assert (status, said) == (3, "")
    assert err == (
        f"auditor: no segment files (.log) of {lost} in the input, but {out} has copies of them: nothing was copied; "
        "restore the files, or choose another --out\n"
    )
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_copy_keeps_the_segments_of_a_disk_that_is_empty(tmp_path: Path) -> None:
    source, out = corpora.copy(CORPUS, tmp_path / "source"), tmp_path / "copy"
    disk = source / "disk-2"
    disk.mkdir()
    shutil.copy(source / "broker-1" / "meta.properties", disk)
    shutil.move(source / "broker-1" / "op-0", disk)
    assert called("copy", source, "--out", out, "--quiet")[0] == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    shutil.rmtree(disk / "op-0")
    status, _, err = called("copy", source, "--out", out, "--quiet")
    assert (status, err[:51]) == (3, "auditor: no segment files (.log) of disk-2/op-0 in ")
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_a_copy_drops_partitions_that_its_source_no_longer_has(tmp_path: Path) -> None:
    """Their topic was deleted, while the broker has others."""
    source, out = corpora.copy(CORPUS, tmp_path / "source"), tmp_path / "copy"
    assert called("copy", source, "--out", out, "--quiet")[0] == 0
    shutil.rmtree(source / "broker-1" / "op-0")
    assert called("copy", source, "--out", out, "--quiet") == (0, "", "")
    assert not (out / "broker-1" / "op-0").exists()
