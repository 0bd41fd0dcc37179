"""``auditor audit --plan``: the listing counted, tasks as they would be made, estimates that follow what is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import MIB, AuditInputError
from auditor.cli import main
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.stores import storage
from auditor.dashboards.table_lines import plan_lines
from auditor.pipeline import plan as forecasting
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.plan import Slots, forecast
from tests import corpora

INLINE, SPARK = Slots("inline", 2, 0), Slots("Spark", 2, 2)


def plan_of(*paths: Path, slots: Slots = INLINE, **options: Any) -> dict[str, Any]:
    wanted = AuditOptions(tuple(map(str, paths)), Path(), **options)
    return forecast(discover(list(wanted.inputs)), wanted, slots)


def segments(folder: Path, topic: str, sizes: list[int]) -> Path:
    """A partition whose segments have sizes and no content."""
    (folder / "b").mkdir(exist_ok=True, parents=True)
    (folder / "b" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    target = folder / "b" / f"{topic}-0"
    target.mkdir()
    for number, size in enumerate(sizes):
        with (target / f"{number * 1000:020d}.log").open("wb") as f:
            f.truncate(size)
    return folder


def test_a_directory_is_counted_and_no_data_is_opened() -> None:
    path = corpora.unpack("replicas-41")
    opened: list[str] = []
    with storage.guarded({}, opened.append):
        plan = plan_of(path)
    assert not [name for name in opened if name.endswith((".log", ".index", ".timeindex", ".snapshot", ".txnindex"))]
    folders = [f for f in path.glob("broker-*/*-[0-9]*") if f.is_dir()]
    files = [file for folder in folders for file in folder.iterdir()]
    assert sum(d["partitions"] for d in plan["log_dirs"]) == len(folders) == plan["tasks"]["count"]
    assert sum(d["segments"] for d in plan["log_dirs"]) == len([f for f in files if f.suffix == ".log"])
    assert sum(d["bytes"] for d in plan["log_dirs"]) == sum(f.stat().st_size for f in files)
    assert sum(t["bytes"] for t in plan["topics"]) == sum(f.stat().st_size for f in files)
    kinds = {t["kind"]: t["partitions"] for t in plan["topics"]}
    names = [f.name.rpartition("-")[0] for f in folders]
    assert {kind: names.count(kind) for kind in kinds if kind.startswith("__")} == {
        kind: count for kind, count in kinds.items() if kind.startswith("__")
    }
    assert sum(kinds.values()) == len(folders)


def test_tasks_are_those_of_the_way_to_run(tmp_path: Path) -> None:
    """On Spark replicas are read in lists, and one far larger than the others in parts, a segment each."""
    for number in range(10):
        segments(tmp_path, f"small{number}", [MIB])
    assert plan_of(tmp_path, slots=INLINE)["tasks"]["count"] == 10
    assert plan_of(tmp_path, slots=SPARK)["tasks"]["count"] == 2
    segments(tmp_path, "large", [1500 * MIB] * 3)
    tasks = plan_of(tmp_path, slots=SPARK)["tasks"]
    assert (tasks["count"], tasks["in_parts"], tasks["replicas"]) == (2 + 3, 1, 11)
    assert tasks["largest"] == {"name": "b/large-0", "bytes": 4500 * MIB}
    assert plan_of(tmp_path, slots=Slots("Spark", None, 2))["tasks"]["count"] is None


def test_estimates_follow_the_input_and_what_is_asked(tmp_path: Path) -> None:
    """By the rates: a GiB of one topic; what tables and records add; replicas on two slots."""
    path = segments(tmp_path, "orders", [256 * MIB] * 4)
    plain = plan_of(path)["estimate"]
    least, most = forecasting.RATES[forecasting.OTHERS].read
    assert plain["cpu_seconds"] == pytest.approx([least, most], abs=0.06)
    assert plain["seconds"] == pytest.approx([1 + least, 1 + most], abs=0.06)  # one replica: one task
    tables = plan_of(path, tables=True)["estimate"]["cpu_seconds"]
    more = forecasting.RATES[forecasting.OTHERS].tables
    assert tables == pytest.approx([least + more[0], most + more[1]], abs=0.06)
    records = plan_of(path, records=True)["estimate"]["cpu_seconds"]
    assert records == pytest.approx([least + forecasting.RECORDS[0], most + forecasting.RECORDS[1]], abs=0.06)
    assert plan_of(path, slots=Slots("Spark", None, 2))["estimate"]["seconds"] is None
    assert plain["memory_bytes"]["comparing"] is None
    other = segments(tmp_path / "other", "orders", [256 * MIB] * 4)
    (other / "b" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=2\n")
    both = plan_of(path / "b", other / "b")["estimate"]
    assert both["cpu_seconds"] == pytest.approx([2 * least, 2 * most], abs=0.06)
    assert both["seconds"] == pytest.approx(plain["seconds"], abs=0.06)
    assert both["memory_bytes"]["comparing"] == [
        forecasting.WORKER_BYTES + forecasting.COMPARED_BYTES * batches
        for batches in ((2 << 30) // (64 << 10), 2 * 1_000_000)  # of longer logs sums are kept
    ]


def test_topics_are_chosen_as_for_an_audit(tmp_path: Path) -> None:
    segments(tmp_path, "orders", [MIB])
    segments(tmp_path, "payments", [2 * MIB])
    segments(tmp_path, "__consumer_offsets", [3 * MIB])
    chosen = plan_of(tmp_path, topics=("pay*",))
    assert {t["kind"]: t["bytes"] for t in chosen["topics"]} == {
        "__consumer_offsets": 3 * MIB, forecasting.OTHERS: 2 * MIB,
    }  # fmt: skip
    with pytest.raises(AuditInputError, match="--topic refunds matches no topic"):
        plan_of(tmp_path, topics=("refunds",))


def test_the_command_prints_it_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("healthy-41")
    words = ["audit", str(path), "--plan", "--master", "inline[2]"]
    assert main([*words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == plan_of(path)
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown == "".join(plan_lines(plan_of(path)))
    for part in ("log directory", "__transaction_state", "2 at a time (inline)", "Estimates", "memory: driver"):
        assert part in shown
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out").exists()
    capsys.readouterr()
    assert main([*words[:3], "--master", "local[7]"]) == 0
    assert "7 at a time (Spark)" in capsys.readouterr().out
    assert main([*words[:3], "--master", "spark://host:7077"]) == 0
    assert "of one core; divide by the cores of the cluster" in capsys.readouterr().out


def test_a_wrong_call_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(corpora.unpack("healthy-41"))
    for words, says in (
        (["--plan", "--format", "sarif"], "invalid --format 'sarif' with --plan: expected table or json"),
        (["--plan", "--master", "inline[x]"], "expected inline"),
    ):
        assert main(["audit", path, *words]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1
    assert main(["audit", str(tmp_path / "gone"), "--plan"]) == 2
    capsys.readouterr()
    assert main(["audit", path]) == 2, "without --plan there must be an --out where no terminal is"
    assert "--out" in capsys.readouterr().err


def test_names_from_the_input_hide_nothing(tmp_path: Path) -> None:
    plan = plan_of(segments(tmp_path, "orders", [MIB]))
    plan["log_dirs"][0]["log_dir"] = plan["tasks"]["largest"]["name"] = "a\x1b[2Jb"
    assert "\x1b" not in "".join(plan_lines(plan))
