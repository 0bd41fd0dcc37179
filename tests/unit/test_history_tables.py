"""The tables of a history: ten clusters and thirty nights, runs that were killed, and runs of earlier releases."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.outputs import lake, runs
from tests import nights
from tests.unit.test_kept_runs import FACTS, finding, table

KILLED = (3, 15)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights") / "history"
    nights.make(folder, KILLED)
    return folder


def in_duckdb(tables: dict[str, Any]) -> list[tuple[Any, ...]]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(":memory:") as sql:
        sql.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            if isinstance(rows, str):
                sql.execute(f"CREATE VIEW {name} AS FROM {rows}")
            else:
                sql.register(name, rows)
        found = sql.execute(nights.BY_CLUSTER).fetchall()
    return [(*row[:-1], row[-1].astimezone(UTC)) for row in found]


def by_files(history: Path) -> list[tuple[Any, ...]]:
    return in_duckdb({name: nights.in_parquet(history, name) for name in nights.TABLES})


def by_delta(history: Path) -> list[tuple[Any, ...]]:
    deltalake = pytest.importorskip("deltalake")
    tables = {name: deltalake.DeltaTable(str(history / "delta" / name)) for name in nights.TABLES}
    return in_duckdb({name: of.to_pyarrow_table() for name, of in tables.items()})


def left(history: Path) -> list[Path]:
    return [path for path in history.glob("_unfinished/*/**/*") if path.is_file()]


def long_ago(history: Path) -> None:
    for path in left(history):
        os.utime(path, (time.time() - 7200,) * 2)


def test_a_killed_run_counts_nowhere_and_the_next_run_of_any_id_sweeps_it(history: Path, tmp_path: Path) -> None:
    assert by_files(history) == nights.expected(KILLED)
    assert left(history), "somebody may be writing it"
    again = shutil.copytree(history, tmp_path / "again")
    nights.publish(again, 0, 0)
    assert left(again), "of less than an hour ago"
    long_ago(again)
    nights.publish(again, 0, 0)
    assert not left(again)
    assert by_files(again) == nights.expected(KILLED)


def test_delta_tables_give_the_same(history: Path, tmp_path: Path) -> None:
    """Also after a run was killed between two of them, after a rerun, and where a run was taken away."""
    pytest.importorskip("deltalake")
    again = shutil.copytree(history, tmp_path / "again")
    lake.write(again)
    assert by_delta(again) == nights.expected(KILLED)
    nights.publish(again, *KILLED)
    lake.write(again)
    nights.publish(again, 0, 0)
    lake.write(again)
    lake.write(again)
    assert by_delta(again) == by_files(again) == nights.expected(None)
    shutil.rmtree(again / runs.name_of(nights.run_id(*KILLED)))
    lake.write(again)
    assert by_delta(again) == nights.expected(KILLED)


def test_a_killed_writer_of_delta_tables_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    nights.publish(tmp_path, 1, 1)
    write, written = deltalake.write_deltalake, list[str]()

    def killed(address: str, *given: Any, **named: Any) -> None:
        written.append(Path(address).name)
        if len(written) == 3:
            raise KeyboardInterrupt
        write(address, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(deltalake, "write_deltalake", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.write(tmp_path)
    assert "runs" not in written
    nights.publish(tmp_path, 1, 2)
    lake.write(tmp_path)
    counted = {name: deltalake.DeltaTable(str(tmp_path / "delta" / name)) for name in nights.TABLES}
    assert {name: len(of.to_pyarrow_table()) for name, of in counted.items()} == {
        "runs": 2, "findings": sum(nights.of_night(1, night)["errors"] for night in (1, 2)),
        "transaction_totals": 4, "lag_totals": 2,
    }  # fmt: skip


FILES = 4 + 1 + 1  # tables, summary, manifest


@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize("stop", [0, 3, 5, 6, 8, 11])
def test_wherever_a_run_is_killed_it_is_whole_or_not_there(tmp_path: Path, stop: int, rerun: bool) -> None:
    """Before its manifest is written it never was; later the next run of any id finishes it."""
    nights.publish(tmp_path, 1, 1)
    if rerun:
        nights.publish(tmp_path, 2, 2)
    before = runs.committed(tmp_path)
    nights.kill(tmp_path, 2, 2, stop)
    there = [run.run_id for run in runs.committed(tmp_path)]
    assert there in ([nights.run_id(1, 1)], [nights.run_id(1, 1), nights.run_id(2, 2)])
    if stop < FILES:
        assert runs.committed(tmp_path) == before
        duckdb = pytest.importorskip("duckdb")
        for name in nights.TABLES:
            ids = duckdb.sql(f"SELECT DISTINCT run_id FROM {nights.in_parquet(tmp_path, name)}").fetchall()
            assert {id for (id,) in ids} <= {run.run_id for run in before}
    long_ago(tmp_path)
    nights.publish(tmp_path, 3, 3)
    found = {run.run_id: run for run in runs.committed(tmp_path)}
    assert (nights.run_id(2, 2) in found) is (rerun or stop >= FILES)
    for name in nights.TABLES:
        for run in found.values():
            (one,) = tmp_path.glob(f"{runs.name_of(run.run_id)}/{name}/*.parquet")
            assert runs.files(tmp_path, run, name) == [str(one)]
            runs.read(tmp_path, run, name)
    assert not left(tmp_path)


def test_a_writer_whose_files_were_swept_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still for longer than an hour, so another run took it for killed."""
    stage = runs._stage

    def slow(where: Any, *given: Any) -> tuple[str, runs.Run]:
        attempt, run = stage(where, *given)
        next(Path(where.path, "_unfinished", attempt).glob("findings/*")).unlink()
        return attempt, run

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_stage", slow)
        with pytest.raises(runs.AuditFailure, match="run it again"):
            nights.publish(tmp_path, 1, 1)
    assert runs.content_of(tmp_path) == runs.HistoryContent([], [])


def test_a_killed_run_whose_manifest_is_read_in_part_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may give the beginning of an object: that is no reason to delete what is whole."""
    nights.publish(tmp_path, 1, 1)

    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            nights.publish(tmp_path, 2, 2)
    long_ago(tmp_path)
    whole = runs.ResultFolder.get

    def in_part(folder: Any, name: str, *most: Any) -> bytes | None:
        text = whole(folder, name, *most)
        return text[: len(text) // 3] if text is not None and folder.path.endswith("_unfinished") else text

    with monkeypatch.context() as patch:
        patch.setattr(runs.ResultFolder, "get", in_part)
        nights.publish(tmp_path, 3, 3)
    assert {run.run_id for run in runs.committed(tmp_path)} == {nights.run_id(1, 1), nights.run_id(3, 3)}
    nights.publish(tmp_path, 4, 4)
    assert nights.run_id(2, 2) in {run.run_id for run in runs.committed(tmp_path)}


def earlier(tmp_path: Path) -> dict[str, Any]:
    summary = {"as_of": FACTS["as_of"], "counts": {"by_severity": {"error": 1}}, "inputs": [], "logs": []}
    facts = FACTS | {"clusters": ["c"], "named": {"c": {"name": "prod"}}, "accepted": None, "counts": {"error": 1},
                     "verdict": {"tone": "bad", "headline": "1 error"}}  # fmt: skip
    nights.as_earlier_release(tmp_path, "old one", table(finding(partition=1)), facts, summary)
    return summary


def test_a_history_of_an_earlier_release_is_read_as_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = earlier(tmp_path)
    (run,) = runs.committed(tmp_path)
    assert runs.summary_of(tmp_path, run) == summary
    assert cli.main(["history", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("old one  evaluated at 2026-11-21T04:00:00.000Z")


def test_the_next_run_converts_it_in_place(tmp_path: Path) -> None:
    """Once, without losing the run or its place; what its release left of a killed run goes, too."""
    summary = earlier(tmp_path)
    (before,) = runs.committed(tmp_path)
    killed = tmp_path / "run_id=killed/findings" / f"{'1' * 32}.parquet"
    killed.parent.mkdir(parents=True)
    shutil.copy(next(tmp_path.glob("run_id=old*/findings/*")), killed)
    os.utime(killed, (time.time() - 7200,) * 2)
    nights.publish(tmp_path, 1, 1)
    old, new = runs.committed(tmp_path)
    assert (old.run_id, old.created_at, old.published_at) == (before.run_id, before.created_at, before.published_at)
    assert (old.schema_version, new.run_id) == (2, nights.run_id(1, 1))
    assert runs.summary_of(tmp_path, old) == summary
    assert runs.read(tmp_path, old, "findings").num_rows == 1
    assert not killed.parent.parent.exists()
    duckdb = pytest.importorskip("duckdb")
    totals = duckdb.sql(
        f"SELECT * FROM {nights.in_parquet(tmp_path, 'runs')} WHERE run_id = 'old one'"
    ).to_arrow_table()
    (row,) = totals.to_pylist()
    assert {name: row[name] for name in ("cluster_id", "cluster_name", "headline", "outcome", "error", "records",
                                         "bytes_unreadable", "tool_version", "as_of", "run_at")} == {
        "cluster_id": "c", "cluster_name": "prod", "headline": "1 error", "outcome": None, "error": 1, "records": 11,
        "bytes_unreadable": 2, "tool_version": "0.0.9", "as_of": datetime(2026, 11, 21, 4, tzinfo=UTC),
        "run_at": datetime(2026, 11, 21, 4, tzinfo=UTC),
    }  # fmt: skip
    files = sorted(tmp_path.rglob("run_id=old*/*/*"))
    nights.publish(tmp_path, 1, 2)
    assert sorted(tmp_path.rglob("run_id=old*/*/*")) == files, "once"


def test_a_damaged_run_of_an_earlier_release_stays_as_it_is(tmp_path: Path) -> None:
    earlier(tmp_path)
    (path,) = tmp_path.glob("run_id=old*/findings/*.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    nights.publish(tmp_path, 1, 1)
    assert [run.schema_version for run in runs.committed(tmp_path)] == [1, 2]
    assert path.exists()
