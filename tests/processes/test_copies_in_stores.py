"""``auditor copy --out s3://…``: whatever the store does, a copy there is whole, and read as one here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.connectors.logdir import copy_view
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import remote_files
from auditor.connectors.stores import results as stores_results
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from auditor.copying import run
from auditor.copying.copy_job import COPYING
from auditor.copying.run import copy_logs
from auditor.copying.target import README, StoreTarget
from tests import corpora, failing_store
from tests.conftest import ROOT
from tests.copies import LIST, copy_of, old_copies
from tests.failing_store import BREAKS_OFF, TIMES_OUT, TOO_SHORT, UNANSWERED, FailingStore, Fault
from tests.growing import CHANGES, appended, batches, broker, offsets, rolled, rows_of, trimmed
from tests.whole.test_copies_written_over import Change, Later, accused, audited, began, says_that_it_is_both, went_on
from tests.whole.test_watched_copies import of_directory, settled, watching

OUT = "s3://copies/tonight"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingStore]:
    """A store with an empty bucket, which the standard variables lead to."""
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))
    monkeypatch.setenv("AUDITOR_STORE_PATIENCE", "60")
    (tmp_path / "bucket").mkdir()
    with failing_store.failing(copies=tmp_path / "bucket") as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        remote_files.filesystem.cache_clear()
        yield server
    remote_files.filesystem.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return broker(tmp_path / "in" / "broker-1")


def objects(server: FailingStore) -> set[str]:
    below = server.buckets["copies"]
    return {path.relative_to(below).as_posix() for path in below.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happened_it_is_as_a_new_one(
    s3: FailingStore, source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    copy_logs([str(source.parent)], OUT)
    change(source)
    done = copy_logs([str(source.parent)], OUT)
    copy_of(source.parent, tmp_path / "new")
    assert rows_of(OUT) == rows_of(str(tmp_path / "new"))
    here = {path.relative_to(tmp_path / "new").parent for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert {Path(name).relative_to("tonight").parent for name in objects(s3)} == here
    if change is appended:
        assert done.bytes_read == sum(map(len, (batches(5, 3), offsets(5, 3))))


def test_each_folder_that_changed_is_put_once(s3: FailingStore, source: Path) -> None:
    copy_logs([str(source.parent)], OUT)
    for change, folders in ((appended, ["__consumer_offsets-0", "t-0"]), (rolled, ["t-0"])):
        change(source)
        s3.log.clear()
        copy_logs([str(source.parent)], OUT)
        puts = Counter(
            request.key.removeprefix("tonight/") for request in s3.log if request.method == "PUT" and request.size
        )
        # Of the log directory when it began, and when it ended.
        assert puts == {f"broker-1/{name}/{LIST}": 1 for name in folders} | {f"broker-1/{LIST}": 2, README: 1}


def test_a_copy_that_breaks_off_anywhere_leaves_each_partition_whole(
    s3: FailingStore, source: Path, tmp_path: Path
) -> None:
    copy_logs([str(source.parent)], OUT)
    shutil.copytree(s3.buckets["copies"], tmp_path / "before")
    before = rows_of(OUT)["batches"]
    appended(source)
    trimmed(source)
    after = rows_of(str(source.parent))["batches"]
    of = lambda rows, folder: [r for r in rows if r["file"].startswith(folder)]  # noqa: E731
    for number in range(60):
        shutil.rmtree(s3.buckets["copies"])
        shutil.copytree(tmp_path / "before", s3.buckets["copies"])
        if not _breaks_off(source.parent, number):
            break
        found = rows_of(OUT)
        assert "decode_errors" not in found
        for folder in ("t-0", "t-1", "__consumer_offsets-0"):
            assert of(found["batches"], folder) in [of(state, folder) for state in (before, after)]
        copy_logs([str(source.parent)], OUT)
        assert rows_of(OUT)["batches"] == after
    assert number > 3


def test_a_copy_of_version_1_is_converted_there(s3: FailingStore, tmp_path: Path) -> None:
    old_copies(tmp_path)
    shutil.copytree(tmp_path / "held", s3.buckets["copies"] / "tonight", dirs_exist_ok=True)
    with pytest.raises(AuditInputError, match=r"auditor copy --out s3://copies/tonight$"):
        discover([f"{OUT}/broker-1"])
    assert copy_logs([], OUT).converted == 5
    assert {name.rpartition("/")[2] for name in objects(s3)} == {LIST, README}
    here = tmp_path / "held"
    copy_logs([], here)
    assert rows_of(OUT) == rows_of(str(here))


def many(root: Path, count: int) -> Path:
    """A broker with more partitions than are worked on at once, the coordinators' logs among them."""
    source = broker(root)
    for number in range(count):
        shutil.copytree(source / "t-0", source / f"many-{number}")
    for topic in ("__transaction_state", "__cluster_metadata"):
        shutil.copytree(source / "t-0", source / f"{topic}-0")
    return source


def test_a_store_is_asked_side_by_side_and_once_for_what_is_as_it_was(s3: FailingStore, tmp_path: Path) -> None:
    source = many(tmp_path / "in" / "broker-1", 150)
    s3.manner.latency_s = 0.02
    copy_logs([str(source.parent)], OUT)
    assert 1 < s3.most <= 8
    at = {request.key: number for number, request in enumerate(s3.log) if request.method == "PUT" and request.size}
    lists = {key.split("/")[-2]: number for key, number in at.items() if key.endswith(LIST)}
    data = [number for folder, number in lists.items() if folder.startswith(("t-", "many-"))]
    assert lists["__consumer_offsets-0"] < min(data)
    first_of = min(number for key, number in at.items() if "/__transaction_state-0/" in key)
    assert max(data) < first_of
    assert lists["__transaction_state-0"] < lists["__cluster_metadata-0"]
    s3.log.clear()
    s3.most = 0
    done = copy_logs([str(source.parent)], OUT)
    assert done.kept == done.segments == 155
    asked = Counter(request.method for request in s3.log)
    assert asked["LIST"] < 10  # of the store as a whole, not of each folder
    assert asked["GET"] <= len(lists) + 3
    assert asked["PUT"] == 3  # what says that it is no backup, that a copy is under way, and when folders were read
    assert s3.most > 16


def test_a_folder_that_cannot_be_written_ends_those_beside_it(s3: FailingStore, tmp_path: Path) -> None:
    source = many(tmp_path / "in" / "broker-1", 150)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AUDITOR_STORE_PATIENCE", "0.2")
        s3.manner.faults = [Fault("SlowDown", "many-7", "PUT")]
        with pytest.raises(OSError, match=r"SLOW_DOWN|SlowDown"):
            copy_logs([str(source.parent)], OUT)
    begun = {key.split("/")[-2] for key in objects(s3) if key.count("/") > 1}
    assert 0 < len(begun) < 150
    s3.manner.faults = []
    copy_logs([str(source.parent)], OUT)
    assert rows_of(OUT)["batches"] == rows_of(str(source.parent))["batches"]


class _Killed(BaseException):
    pass


def _breaks_off(source: Path, number: int) -> bool:
    """Copies up to the change of the store that has this number, counted from 0; whether there was one."""
    left = [number]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise _Killed
            return real(*args)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("replace", "remove"):
            patched.setattr(StoreTarget, name, counted(getattr(StoreTarget, name)))
        try:
            copy_logs([str(source)], OUT)
        except _Killed:
            return True
    return False


def test_a_fifth_of_all_requests_fails_and_the_copy_is_the_same(s3: FailingStore, source: Path, tmp_path: Path) -> None:
    codes = ("SlowDown", "InternalError", BREAKS_OFF, TOO_SHORT, UNANSWERED)
    s3.manner.faults = [Fault(what, share=0.04) for what in codes]
    s3.manner.faults += [Fault("ExpiredToken", method=method, share=0.04) for method in ("GET", "PUT")]
    s3.manner.faults.append(Fault(TIMES_OUT, count=1, share=0.04))
    for change in (None, appended, rolled, trimmed):
        if change is not None:
            change(source)
        copy_logs([str(source.parent)], OUT)
    failed = sum(request.what != "" for request in s3.log)
    assert 0.1 < failed / len(s3.log) < 0.35
    s3.manner.faults = []
    copy_of(source.parent, tmp_path / "new")
    assert rows_of(OUT) == rows_of(str(tmp_path / "new"))
    assert {name for name in objects(s3) if ".partial" in name} == set()


def test_a_store_that_refuses_in_the_middle_ends_the_copy_and_the_next_goes_on(
    s3: FailingStore, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUDITOR_STORE_PATIENCE", "0.2")
    s3.manner.faults = [Fault("SlowDown", "t-1", "PUT")]
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 4
    (said,) = capsys.readouterr().err.splitlines()
    assert "run again to continue" in said
    assert "SLOW_DOWN" in said or "SlowDown" in said
    s3.manner.faults = []
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 0
    assert rows_of(OUT)["batches"] == rows_of(str(source.parent))["batches"]


def test_a_wrong_call_is_one_line(
    s3: FailingStore, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUDITOR_STORE_PATIENCE", "0.2")
    (s3.buckets["copies"] / "mine").mkdir()
    (s3.buckets["copies"] / "mine" / "letter.txt").write_text("dear")
    for wrong, why in (
        ("s3://no-such-bucket/x", "cannot write to s3://no-such-bucket/x"),
        ("s3://copies/mine", "not an earlier copy"),
        ("nothing://copies/x", "nothing"),
    ):
        assert cli.main(["copy", str(source.parent), "--out", wrong]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert why in said
    s3.manner.faults = [Fault("InvalidAccessKeyId")]
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "credentials" in said
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in said
    s3.manner.faults = [Fault("AccessDenied", method="PUT")]
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"cannot write to {OUT}" in said


def test_a_copy_in_itself_is_refused(s3: FailingStore, source: Path) -> None:
    copy_logs([str(source.parent)], OUT)
    for out in (OUT, f"{OUT}/inside", "s3://copies"):
        with pytest.raises(AuditInputError, match="contain each other"):
            copy_logs([OUT], out)


def at_work(server: FailingStore) -> set[str]:
    """The objects by which copies say that they write."""
    return {name for name in objects(server) if COPYING in name}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are watched for less than a minute."""
    monkeypatch.setattr(stores_results, "RENEW_S", 0.05)
    monkeypatch.setattr(stores_results, "WATCHED_S", 2.0)


@pytest.mark.usefixtures("soon")
def test_two_copies_at_a_time_are_one(s3: FailingStore, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stores_results.alone_in(OUT, COPYING, "copy"):
        assert len(at_work(s3)) == 1
        assert cli.main(["copy", str(source.parent), "--out", OUT]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.endswith(f"another copy is writing to {OUT}; wait until it ends or choose another --out")
        assert {name.rpartition("/")[2][: len(COPYING)] for name in objects(s3)} == {COPYING}
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 0
    assert rows_of(OUT)["batches"] == rows_of(str(source.parent))["batches"]
    assert at_work(s3) == set()


@pytest.mark.usefixtures("soon")
def test_of_any_number_at_once_one_at_most_copies(s3: FailingStore) -> None:
    inside, most, ready = [0], [0], threading.Barrier(4)

    def copy(_number: int) -> bool:
        ready.wait()
        try:
            with stores_results.alone_in(OUT, COPYING, "copy"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.3)
                inside[0] -= 1
        except AuditInputError:
            return False
        return True

    for _ in range(4):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(copy, range(4)))
    assert most[0] <= 1
    with stores_results.alone_in(OUT, COPYING, "copy") as still_alone:
        still_alone("t-0")


@pytest.mark.usefixtures("soon")
def test_what_a_killed_copy_left_is_taken_away(s3: FailingStore, source: Path) -> None:
    (s3.buckets["copies"] / "tonight").mkdir()
    (s3.buckets["copies"] / "tonight" / f"{COPYING}of-the-killed").write_bytes(b"7")
    assert cli.main(["copy", str(source.parent), "--out", OUT]) == 0
    assert at_work(s3) == set()


@pytest.mark.usefixtures("soon")
def test_who_was_taken_for_killed_writes_no_more(s3: FailingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with stores_results.alone_in(OUT, COPYING, "copy") as still_alone:
        still_alone("t-0")
        (own,) = at_work(s3)
        (s3.buckets["copies"] / own).unlink()
        monkeypatch.setattr(stores_results, "WATCHED_S", 0.0)  # as if it had stood still
        with pytest.raises(OSError, match="another copy writes there"):
            still_alone("t-1")
    assert at_work(s3) == set()


def process(*words: str) -> tuple[int, str]:
    """Status and output of a command in a process of its own: Spark's workers of another test know of no such store."""
    call = [sys.executable, "-m", "auditor.cli", *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("master", ["inline[1]", pytest.param("local[2]", marks=pytest.mark.spark)])
def test_every_surface_reads_a_copy_there_as_one_here(s3: FailingStore, tmp_path: Path, master: str) -> None:
    """An audit, a what-if, a query and the API give the same bytes, on Spark those that a folder gives without."""
    import auditor

    name = "replicas-41"
    copy_logs([str(corpora.unpack(name))], OUT)
    copy_of(corpora.unpack(name), tmp_path / "tonight")
    as_of = str(corpora.manifest(name)["copied_at"])
    found = {}
    for path, how in ((OUT, master), (str(tmp_path / "tonight"), "inline[1]")):
        here = tmp_path / ("out-" + ("s3" if path == OUT else "here"))
        statuses = [
            process(what, path, "--out", str(here / what), "--master", how, "--as-of", as_of, "--quiet")[0]
            for what in ("audit", "what-if")
        ]
        text = "SELECT topic, count(*) AS n, sum(size) AS s FROM batches GROUP BY topic ORDER BY topic"
        rows = process("sql", text, path, "--master", how, "--format", "json")
        audit = auditor.open(path, as_of=as_of)
        said = [finding.message for finding in audit.findings]
        results = [(here / what / "findings.jsonl").read_bytes() for what in ("audit", "what-if")]
        found[path] = (statuses, rows, said, results)
    assert found[OUT] == found[str(tmp_path / "tonight")]
    assert found[OUT][1][1].count("\n") > 3


def test_a_copy_there_that_did_not_change_is_not_read_again_by_who_watches_it(
    s3: FailingStore, source: Path, tmp_path: Path
) -> None:
    copy_logs([str(source.parent)], OUT)
    watch, read = watching(OUT, tmp_path / "out")
    settled(watch)
    assert read == [3, 3]
    s3.log.clear()
    watch.look()
    asked = Counter(request.key for request in s3.log if request.method == "GET" and request.key.endswith(LIST))
    assert set(asked.values()) == {1}  # its list
    appended(source)
    copy_logs([str(source.parent)], OUT)
    settled(watch)
    assert watch.last is not None
    assert [f.to_json() for f in watch.last.findings] == of_directory(source.parent)


def test_what_a_later_copy_replaced_while_it_is_read_is_as_that_has_it(s3: FailingStore, source: Path) -> None:
    copy_logs([str(source.parent)], OUT)
    wanted = frozenset({"batches", "decode_errors"})
    pieces = plan(discover([OUT]), wanted)
    for change in (appended, rolled):
        change(source)
        copy_logs([str(source.parent)], OUT)
    copy_view.rows_of.cache_clear()  # who reads is another process than who copies
    found: dict[str, int] = Counter()
    for table, rows in (each for piece in pieces for each in read_piece(piece, wanted, How())):
        found[table] += rows.num_rows
    assert found == {"batches": 8 + 2 + 8}  # of files that were listed, not the segment behind them


def test_partitions_of_a_copy_there_are_those_of_one_log_directory(s3: FailingStore, source: Path) -> None:
    copy_logs([str(source.parent)], OUT)
    found = discover([f"{OUT}/broker-1/t-0", f"{OUT}/broker-1/t-1"])
    (log_dir,) = found.log_dirs
    assert [replica.folder for replica in log_dir.replicas] == ["t-0", "t-1"]


def changes_of(source: Path) -> list[Change]:
    """What a later copy into the store changes there, in the order in which it does."""
    found: list[Change] = []
    with pytest.MonkeyPatch.context() as patched:
        replace, remove = StoreTarget.replace, StoreTarget.remove

        def written(self: StoreTarget, name: str, path: Path, file: str = LIST) -> None:
            found.append(Change(f"{name}/{file}".lstrip("/"), path.read_bytes()))
            replace(self, name, path, file)

        def removed(self: StoreTarget, name: str, file: str) -> None:
            found.append(Change(f"{name}/{file}".lstrip("/"), None))
            remove(self, name, file)

        patched.setattr(StoreTarget, "replace", written)
        patched.setattr(StoreTarget, "remove", removed)
        copy_logs([str(source)], OUT)
    return found


def test_one_that_a_later_copy_is_written_over_while_it_is_audited_accuses_nobody(
    s3: FailingStore, tmp_path: Path
) -> None:
    """As in a folder (``tests/whole/test_copies_written_over.py``): of nights that contain each other it says so."""
    path = began(tmp_path / "in")
    copy_logs([str(path.parent)], OUT)
    shutil.copytree(s3.buckets["copies"], tmp_path / "before")
    went_on(path)
    changes = changes_of(path.parent)
    after, read = audited(OUT)
    assert (accused(after), says_that_it_is_both(after)) == (set(), False)
    both = 0
    for count in range(1, len(changes)):
        for when in (0, read // 3, 2 * read // 3):
            shutil.rmtree(s3.buckets["copies"])
            shutil.copytree(tmp_path / "before", s3.buckets["copies"])
            later = Later(s3.buckets["copies"] / "tonight", changes)
            audit, _ = audited(OUT, lambda number: later.goes_on(count if number == when else 0))  # noqa: B023
            assert accused(audit) == set(), (count, when)
            both += says_that_it_is_both(audit)
    assert both > len(changes)
