"""Real Flink jobs on a real broker, killed between the pre-commit and the commit of a checkpoint: audited, then what
the advice says is done, and the numbers that the job writes are counted. Each has to be there once."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from tests.broker.as_printed import Operator, Row, of
from tests.broker.cluster import Cluster, Driver
from tests.broker.flink_jobs import NEWER, NUMBERS, PREFIX, TOPIC, FlinkJob
from tests.broker.jars import missing_tools

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools()))]

LAST = 4  # the checkpoint behind which the job is killed
JOBS = [("1.20.1", ""), ("2.0.0", "INCREMENTING"), ("2.0.0", "POOLING")]
IDLE_S = 36  # beyond the difference of clocks that is reckoned with (30 s)
SWEPT = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000"}
UNSWEPT = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "3600000"}
RESTORED = (
    r"(?:This|If this) is Flink: restore the job of orders \(subtask [01], (?:checkpoint \d|producer \d of its pool)"
    r"\) from the checkpoint or savepoint: this commits its transactions and aborts the others. A manual abort, "
    r"its timeout at (\S+), or a cancel without a restore loses records that the checkpoint counts as "
    r"written"
)


@dataclass
class Killed:
    """A job that was killed, and its cluster. ``open``: the numbers that no consumer gets, by partition."""

    job: FlinkJob
    run: Driver
    operator: Operator
    open: dict[int, list[int]]

    def numbers(self, isolation: str = "read_committed") -> list[int]:
        """What a consumer gets of both partitions."""
        return [n for p in (0, 1) for n in self.operator.reads(TOPIC, p, isolation, "show=values")]

    def states(self) -> dict[str, str]:
        """The state of each id of the job, by what Kafka's tool lists."""
        said = self.operator.paste(f"kafka-transactions.sh --bootstrap-server {self.job.cluster.servers} list")
        rows = [line.split() for line in said.splitlines() if line.startswith(PREFIX)]
        return {row[0]: row[3] for row in rows}

    def blocked(self, name: str, *how: str) -> list[Row]:
        """The rows of blocked partitions of an audit that was made, or of a live one, which ends with exit code 0."""
        out = self.operator.folder / name
        if how:
            assert cli.main([*how, "--bootstrap-server", self.job.cluster.servers, "--out", str(out), "--quiet"]) == 0
        rows: list[Row] = json.loads((out / "summary.json").read_text(encoding="utf-8"))["blocked"]
        return rows

    def missing(self) -> list[int]:
        """The numbers that a consumer does not get; no other comes more than once."""
        got = Counter(self.numbers())
        assert set(got.values()) == {1}
        return sorted({*range(NUMBERS)} - {*got})

    def held(self) -> dict[int, list[int]]:
        """The open numbers that the checkpoint counts as written, by partition: all others were sent again."""
        written = Counter(self.numbers("read_uncommitted"))
        return {p: [n for n in numbers if written[n] == 1] for p, numbers in self.open.items()}


def killed(cluster: Cluster, run: Driver, folder: Path, job: tuple[str, str], timeout_ms: int = 600_000) -> Killed:
    """A job that was killed behind checkpoint LAST. Its two newest transactions a subtask are open."""
    operator = Operator(cluster, run, folder)
    run(f"topic {TOPIC} 2 1")
    story = Killed(FlinkJob(cluster, folder, *job, timeout_ms=timeout_ms), run, operator, {})
    story.job.run(halt=LAST)
    for p in (0, 1):
        got, written = (
            {*operator.reads(TOPIC, p, how, "show=values")} for how in ("read_committed", "read_uncommitted")
        )
        story.open[p] = sorted(written - got)
        assert story.open[p]
    return story


def ids(job: FlinkJob) -> tuple[set[str], set[str]]:
    """The ids of the transactions that the last checkpoint holds, and of the newer ones."""
    held, newer = (1, 0) if job.naming == "POOLING" else (LAST, LAST + 1)
    return {f"{PREFIX}-{s}-{held}" for s in (0, 1)}, {f"{PREFIX}-{s}-{newer}" for s in (0, 1)}


def named(rows: list[Row], job: FlinkJob) -> list[float]:
    """Whether rows name the job and its way out; when their time-outs end, by their advice (s)."""
    due = []
    for row in rows:
        subtask, number = row["transactional_id"].split("-")[1:]
        pooled = job.naming == "POOLING"
        part = f"subtask {subtask}, " + (f"producer {number} of its pool" if pooled else f"checkpoint {number}")
        certainty = "likely" if pooled else "proved"
        assert (row["framework"], row["application"], row["application_part"]) == ("Flink", PREFIX, part)
        assert row["framework_certainty"] == certainty
        (end,) = re.findall(RESTORED, row["remedy"])
        due.append(datetime.fromisoformat(end).timestamp())
    return due


@pytest.mark.parametrize("job", JOBS, ids="-".join)
def test_a_restore_commits_what_the_checkpoint_holds(job: tuple[str, str], tmp_path: Path) -> None:
    """And aborts the newer transactions, whose numbers the job sends again."""
    begun = time.time()
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, job)
        held, newer = ids(story.job)
        assert {name for name, state in story.states().items() if state == "Ongoing"} == held | newer

        assert story.operator.audit("killed") == []
        for rows in (story.blocked("killed"), story.blocked("live", "live")):
            assert {row["partition"] for row in rows} == {0, 1}
            assert {row["status"] for row in rows} == {"open"}
            assert {row["transactional_id"] for row in rows} <= held | newer
            due = named(rows, story.job)
            assert all(begun < end - story.job.timeout_ms / 1000 < time.time() for end in due)
            assert not any("nothing is lost" in row["remedy"] for row in rows)

        story.job.run(story.job.stored(f"chk-{LAST}"))
        assert "Ongoing" not in story.states().values()
        assert story.missing() == []
        written = Counter(story.numbers("read_uncommitted"))
        assert sum(written.values()) == NUMBERS + NEWER
        assert sum(map(len, story.held().values())) == sum(map(len, story.open.values())) - NEWER
        assert story.operator.audit("restored") == []
        assert story.blocked("restored") == []


def test_a_restore_commits_what_is_overdue(tmp_path: Path) -> None:
    """A coordinator that aborts nothing for an hour."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **UNSWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, ("2.0.0", "INCREMENTING"), timeout_ms=8000)
        held, newer = ids(story.job)
        time.sleep(IDLE_S + 8)
        _coordinators_write_on(run)

        found = story.operator.audit("overdue")
        assert {row["kind"] for row in found} == {"timeout-not-enforced"}
        assert {row["transactional_id"] for row in found} == held | newer
        rows = story.blocked("overdue")
        assert {row["status"] for row in rows} == {"overdue"}
        assert all(end < time.time() for end in named(rows, story.job))
        for row in found:
            assert row["evidence"]["framework"] == "Flink"
            assert re.search(RESTORED, row["remedy"])
            assert "Do not abort it with kafka-transactions.sh" in row["remedy"]

        story.job.run(story.job.stored(f"chk-{LAST}"))
        assert story.missing() == []
        assert story.operator.audit("restored") == []


def _coordinators_write_on(run: Driver) -> None:
    """The coordinators of all ids: their logs then show what they did not do."""
    run("topic other 1 1")
    for k in range(12):
        run(f"load other{k} other 1 n=1")
    run("wait")


@pytest.mark.parametrize("job", JOBS, ids="-".join)
def test_a_timeout_loses_what_the_checkpoint_counts(job: tuple[str, str], tmp_path: Path) -> None:
    """No later audit shows it: the coordinator aborts what its producer did not end, as it should."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, job, timeout_ms=20_000)
        story.operator.audit("killed")
        due = named(story.blocked("killed"), story.job)
        assert max(due) > time.time()
        for _ in range(60):
            if "Ongoing" not in story.states().values():
                break
            time.sleep(1)
        assert "Ongoing" not in story.states().values()
        assert time.time() > min(due)  # not before the time that the audit names
        assert story.operator.audit("aborted") == []

        story.job.run(story.job.stored(f"chk-{LAST}"))
        missing = story.missing()
        assert missing == sorted(n for numbers in story.held().values() for n in numbers)
        assert len(missing) == sum(map(len, story.open.values())) - NEWER
        assert story.operator.audit("restored") == []


@pytest.mark.parametrize("job", JOBS[1:], ids="-".join)
def test_an_earlier_checkpoint_writes_it_again(job: tuple[str, str], tmp_path: Path) -> None:
    """Also what another client has aborted that started with the ids."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, job)
        for name in sorted(ids(story.job)[0]):
            run(f"producer {name} transactional.id={name}")
            run(f"init {name}")
        story.job.run(story.job.stored(f"chk-{LAST - 1}"))
        assert story.missing() == []
        written = Counter(story.numbers("read_uncommitted"))
        assert sum(written.values()) == NUMBERS + sum(map(len, story.open.values()))
        assert story.operator.audit("restored") == []


@pytest.mark.parametrize("job", JOBS[1:], ids="-".join)
def test_a_start_without_a_checkpoint_aborts_all(job: tuple[str, str], tmp_path: Path) -> None:
    """The job begins with the first number again: what was committed comes twice."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, job)
        before = Counter(story.numbers())
        story.job.run()
        assert "Ongoing" not in story.states().values()
        assert Counter(story.numbers()) == before + Counter(range(NUMBERS))
        assert story.operator.audit("begun") == []


@pytest.mark.parametrize("job", JOBS, ids="-".join)
def test_an_abort_by_hand_loses_what_it_says(job: tuple[str, str], tmp_path: Path) -> None:
    """Of one of the two partitions: the restored job commits the other one."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        story = killed(cluster, run, tmp_path, job)
        for start in _starts(story, ids(story.job)[0]):
            tool = f"kafka-transactions.sh --bootstrap-server {cluster.servers} abort --topic {TOPIC} --partition 0"
            story.operator.paste(f"{tool} --start-offset {start}")
        time.sleep(IDLE_S)
        _coordinators_write_on(run)

        said = story.operator.audit("aborted")
        assert [row["kind"] for row in said] == ["marker-without-decision"] * 2
        assert {(row["severity"], row["partition"]) for row in said} == {("warning", 0)}
        assert {row["transactional_id"] for row in said} == ids(story.job)[0]
        hidden = [re.findall(r"consumers never see (\d+) records? at ", row["remedy"]) for row in said]
        for row in said:
            assert "is Flink: the checkpoint that counts offset" in row["remedy"]

        story.job.run(story.job.stored(f"chk-{LAST}"))
        missing, held = story.missing(), story.held()
        assert missing == held[0]
        assert len(missing) == sum(int(count) for (count,) in hidden)
        found = story.operator.audit("restored")
        assert [row["kind"] for row in found] == ["split-decision"] * 2
        assert of([found[0]], "split-decision", TOPIC, 0)["outcome"] == "hidden"
        assert sum(row["evidence"]["records"] for row in found) == len(missing)
        assert all("is Flink: the checkpoint that counts offset" in row["remedy"] for row in found)


def _starts(story: Killed, held: set[str]) -> list[str]:
    """Where transactions of ids begin in partition 0, by what Kafka's tools list."""
    servers = story.job.cluster.servers
    tool = f"kafka-transactions.sh --bootstrap-server {servers}"
    listed = [line.split() for line in story.operator.paste(f"{tool} list").splitlines()]
    producers = {row[2] for row in listed if row and row[0] in held}
    described = story.operator.paste(f"{tool} describe-producers --topic {TOPIC} --partition 0")
    rows: list[Any] = [line.split() for line in described.splitlines()]
    return [row[-1] for row in rows if row and row[0] in producers]


@pytest.mark.parametrize("job", JOBS, ids="-".join)
def test_a_healthy_job_has_no_finding(job: tuple[str, str], tmp_path: Path) -> None:
    """40 checkpoints: an id of a pool is initialised before each transaction, which raises its epoch."""
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        operator = Operator(cluster, run, tmp_path)
        run(f"topic {TOPIC} 2 1")
        FlinkJob(cluster, tmp_path, *job, numbers=4000).run()
        assert sum(len(operator.reads(TOPIC, p)) for p in (0, 1)) == 4000
        assert operator.audit("done") == []


@pytest.mark.parametrize("release", ["1.20.1", "2.0.0"])
def test_a_stop_with_a_savepoint_commits_all(release: str, tmp_path: Path) -> None:
    with Cluster("4.3.1", tmp_path / "cluster", 1, heap="256m", **SWEPT) as cluster, Driver(cluster) as run:
        operator = Operator(cluster, run, tmp_path)
        run(f"topic {TOPIC} 2 1")
        story = Killed(FlinkJob(cluster, tmp_path, release), run, operator, {})
        story.job.run(halt=-5)
        assert "Ongoing" not in story.states().values()
        assert sorted(story.numbers()) == sorted(story.numbers("read_uncommitted"))
        assert 0 < len(story.numbers()) < NUMBERS
        assert operator.audit("stopped") == []
        assert story.blocked("stopped") == []
        story.job.run(story.job.stored("savepoint-*"))
        assert story.missing() == []
        assert len(story.numbers("read_uncommitted")) == NUMBERS
        assert operator.audit("restored") == []
