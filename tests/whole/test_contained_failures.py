"""A part of an audit that raises becomes a row; everything else goes on, and the exit code says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.base import errors
from auditor.base.errors import FAILURES_RAISE, AuditInputError, attempt
from auditor.connectors.kafka_names import METADATA_TOPIC
from auditor.copying.run import OneFolder
from auditor.copying.taken_segments import SegmentsTaken
from auditor.outputs import publish
from auditor.pipeline import (
    cluster_context,
    cluster_settings,
    derived_tables,
    judge,
    what_if_verdicts,
    whole_audit,
)
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.pipeline.whole_audit import Audit
from auditor.replay.producers.policy_replay import PolicyReplay
from auditor.replay.reading import replica_reader
from auditor.rules.catalogue import registry
from auditor.rules.resolution import resolve
from auditor.rules.seen.view import Finding, LogView
from tests import corpora
from tests.audited import published
from tests.copies import copied_here
from tests.facts import here

NAME = "hanging-36"
TOPIC = "bank.audit"
HANGING = "hanging-transaction"
OF_TABLES = ((publish, "write_tables"), (derived_tables, "of_log"))


@pytest.fixture(autouse=True)
def contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: everywhere else in the tests a contained failure is one."""
    monkeypatch.delenv(FAILURES_RAISE)


def broken(*_given: object, **_named: object) -> Any:
    raise KeyError("since")


def broken_rows(*_given: object) -> Iterator[Any]:
    yield broken()


def failing_kinds(monkeypatch: pytest.MonkeyPatch, *names: str, **changed: Any) -> None:
    """Give some kinds of findings another check."""
    kinds = dict(registry.kinds())
    for name in names:
        kinds[name] = replace(kinds[name], **changed)
    monkeypatch.setattr(registry, "kinds", lambda: kinds)
    judge._asked.cache_clear()
    monkeypatch.setattr(judge, "_asked", judge._asked.__wrapped__)


def audited(out: Path, name: str = NAME, **options: Any) -> tuple[Audit, dict[str, Any]]:
    return audited_at(corpora.unpack(name), out, **options)


def audited_at(path: Path, out: Path, **options: Any) -> tuple[Audit, dict[str, Any]]:
    done = published(AuditOptions((str(path),), out, **options))
    return done, json.loads((out / "summary.json").read_text())


def not_judged(summary: dict[str, Any]) -> list[str]:
    return [row["detail"] for row in summary["unreadable"] if row["reason"] == "not_judged"]


def is_failed(done: Audit, summary: dict[str, Any]) -> bool:
    """Whether the results say in each place that something was not judged."""
    return done.exit_code() == 3 and summary["complete"] is False and summary["verdict"]["tone"] != "good"


def test_a_rule_that_raises_is_a_row_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, before = audited(tmp_path / "sound")
    assert HANGING in {f.kind for f in sound.findings}
    assert not not_judged(before)
    failing_kinds(monkeypatch, "clock-skew", check=broken, needs=())
    done, summary = audited(tmp_path / "failed")
    assert {f.fingerprint for f in done.findings} == {f.fingerprint for f in sound.findings}
    rows = not_judged(summary)
    assert len(rows) == len({(row["topic"], row["partition"]) for row in summary["logs"]})
    assert all(row.startswith("rule clock-skew could not judge ") for row in rows)
    assert all("KeyError: 'since'" in row and "please report" in row for row in rows)
    assert is_failed(done, summary)
    assert summary["blocked"] == before["blocked"]


def test_what_a_rule_found_before_it_raised_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = registry.kinds()[HANGING].check

    def breaks_off(log: LogView) -> Iterator[Finding]:
        yield from check(log)
        broken()

    failing_kinds(monkeypatch, HANGING, check=breaks_off)
    done, summary = audited(tmp_path)
    assert HANGING in {f.kind for f in done.findings}
    assert not_judged(summary)
    assert is_failed(done, summary)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (judge, "open_transactions"),
        (judge, "blocked_rows"),
        (judge, "readers"),
        (judge, "accounting"),
        (judge, "chain"),
        (judge, "_recovery"),
        (judge, "_timeline"),
        (judge.summary, "of_log"),
        (publish, "_prevention"),
        (publish, "_asides"),
        (whole_audit.rehearsal_table, "recovery"),
        (cluster_settings, "event_tasks"),
        (resolve, "without_conflicts"),
        (whole_audit, "sign"),
        (judge.summary, "run_state"),
        (publish, "report_page"),
        (publish, "write_tables"),
        (derived_tables, "of_log"),
    ],
)
def test_a_step_that_raises_loses_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    monkeypatch.setattr(module, name, broken_rows if name in ("blocked_rows", "of_log") else broken)
    done, summary = audited(tmp_path, tables=True)
    assert HANGING in {f.kind for f in done.findings}
    assert not_judged(summary)
    assert is_failed(done, summary)
    assert summary["blocked"] or name in ("blocked_rows", "open_transactions")
    assert (tmp_path / "tables").exists() is ((module, name) not in OF_TABLES)


@pytest.mark.parametrize("what_if", [False, True])
def test_a_log_of_which_no_view_can_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what_if: bool
) -> None:
    made = LogView.__post_init__

    def fails_once(log: LogView) -> None:
        if log.replicas[0].topic == TOPIC:
            broken()
        made(log)

    monkeypatch.setattr(LogView, "__post_init__", fails_once)
    options = AuditOptions((str(corpora.unpack(NAME)),), tmp_path)
    done = WhatIfAudit(options, here()) if what_if else Audit(options, here())
    _ = done.findings
    rows = [error.detail for _, error in done.unread() if error.reason == "not_judged"]
    assert len(rows) == 3  # partitions
    assert all(row.startswith(f"no rule could judge {TOPIC}-") and "KeyError: 'since'" in row for row in rows)
    assert done.exit_code() == 3


def test_findings_that_a_rule_cannot_merge_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_kinds(monkeypatch, HANGING, together=broken)
    done, summary = audited(tmp_path)
    assert HANGING in {f.kind for f in done.findings}
    assert [row for row in not_judged(summary) if row.startswith(f"rule {HANGING} could not merge its findings")]
    assert is_failed(done, summary)


@pytest.mark.parametrize("name", ["_cluster", "_coordinator", "_note_horizons"])
def test_a_cluster_of_which_nothing_is_known_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without its context rules would call sound what is not, and the other way round."""
    monkeypatch.setattr(cluster_context, name, broken)
    done, summary = audited(tmp_path)
    assert done.findings == []
    (row,) = not_judged(summary)
    assert row.startswith("no rule could judge the cluster of ")
    assert is_failed(done, summary)
    assert len(summary["logs"]) > 1


def test_metadata_that_cannot_be_merged_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_settings, "_merge_copies", broken)
    done, summary = audited(tmp_path, "hanging-43-killed")
    assert HANGING in {f.kind for f in done.findings}
    assert not_judged(summary)
    assert is_failed(done, summary)


def test_records_to_blame_that_cannot_be_named_leave_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reader, "culprits_of", broken)
    done, summary = audited(tmp_path, records=True)
    assert HANGING in {f.kind for f in done.findings}
    assert not_judged(summary)
    assert is_failed(done, summary)


def test_a_look_at_records_that_raises_leaves_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read again without it, and the hanging transaction in it is named as ever."""
    read = replica_reader.read_replica

    def fails_with_records(task: Any) -> Any:
        return broken() if task.records else read(task)

    _, before = audited(tmp_path / "plain")
    monkeypatch.setattr(replica_reader, "read_replica", fails_with_records)
    done, summary = audited(tmp_path / "records", records=True)
    assert {f.kind for f in done.findings if f.severity == "critical"} == {HANGING}
    assert summary["blocked"] == before["blocked"]
    rows = not_judged(summary)
    assert all(row.startswith("records or policies were skipped: KeyError") for row in rows)
    assert len(rows) == sum(row["topic"] != METADATA_TOPIC for row in summary["logs"])  # whose records are always read
    assert is_failed(done, summary)


def test_a_what_if_that_raises_leaves_the_other_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, path = what_if_verdicts._stored, corpora.unpack(NAME)

    def fails_once(facts: Any, outcomes: Any) -> Iterator[Any]:
        yield from broken() if facts.topic == TOPIC else stored(facts, outcomes)

    audit = WhatIfAudit(AuditOptions((str(path),), tmp_path), here())
    before = [row for row in audit.judged["replica"] if row["topic"] != TOPIC]
    monkeypatch.setattr(what_if_verdicts, "_stored", fails_once)
    audit = WhatIfAudit(AuditOptions((str(path),), tmp_path), here())
    assert [row for row in audit.judged["replica"] if row["topic"] != TOPIC] == before
    assert before
    assert audit.exit_code() == 3
    assert audit.result["complete"] is False


def test_policies_on_which_a_file_fails_are_left_out_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyReplay, "take", broken)
    audit = WhatIfAudit(AuditOptions((str(corpora.unpack(NAME)),), tmp_path), here())
    assert not audit.verdicts
    assert audit.exit_code() == 3


def test_a_file_that_cannot_be_copied_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, take = corpora.unpack(NAME), SegmentsTaken.take
    (victim, *_) = sorted(path for path in source.glob(f"broker-1/{TOPIC}-*/*.log") if path.stat().st_size)
    inside = victim.relative_to(source)

    def fails_once(taken: SegmentsTaken, place: Any, name: str, *given: Any, **named: Any) -> Any:
        failed = name.endswith(victim.name) and taken.folder == str(inside.parent)
        return broken() if failed else take(taken, place, name, *given, **named)

    monkeypatch.setattr(SegmentsTaken, "take", fails_once)
    copied_here(monkeypatch)
    assert cli.main(["copy", str(source), "--out", str(tmp_path / "copy"), "--limit-rate", "none"]) == 3
    assert "unreadable: 1 file" in capsys.readouterr().out
    done, summary = audited_at(tmp_path / "copy", tmp_path / "out")
    (row,) = [row for row in summary["unreadable"] if row["reason"] == "unreadable"]
    assert row["file"].endswith(f"{inside.parent.name}/{inside.name}")
    assert row["detail"].startswith("reading it failed: KeyError: 'since'")
    assert done.exit_code() == 3
    assert len(summary["logs"]) > 1


def test_a_folder_that_cannot_be_copied_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = OneFolder.take

    def fails_once(one: OneFolder, done: Any) -> None:
        if one.folder.topic == TOPIC:
            broken()
        take(one, done)

    monkeypatch.setattr(OneFolder, "take", fails_once)
    copied_here(monkeypatch)
    assert cli.main(["copy", str(corpora.unpack(NAME)), "--out", str(tmp_path / "copy"), "--limit-rate", "none"]) == 3
    assert f"{TOPIC}-0 was not copied: KeyError" in capsys.readouterr().err
    _, summary = audited_at(tmp_path / "copy", tmp_path / "out")
    assert len(summary["logs"]) > 1


def test_who_is_to_blame_is_not_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[errors.DecodeError] = []

    def mistaken() -> None:
        raise AuditInputError("give another path")

    with pytest.raises(AuditInputError):
        attempt(failures, "a look", mistaken, None)
    monkeypatch.setenv(FAILURES_RAISE, "1")
    with pytest.raises(KeyError):
        attempt(failures, "a look", broken, None)
    assert not failures
