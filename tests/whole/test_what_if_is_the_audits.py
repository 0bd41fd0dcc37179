"""What-if against the audit: under the policy that wrote it, a log is refused nothing that the audit does not find.

The same holds of a log that was damaged since. Both rest on the bounds that every replay is given: two tests break one
each on purpose and see that those before them would fail.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auditor.base.errors import DecodeError
from auditor.model.policies import COMPARED
from auditor.pipeline.what_if_verdicts import judge_log
from auditor.replay.producers import audit_replay
from auditor.replay.reading.replica_reader import ReplicaReader
from auditor.rules.seen.view import Finding
from tests import audited, corpora, facts
from tests.whole.test_what_if import by_log, facts_below

Row = dict[str, Any]
ALL = corpora.names() + corpora.campaigns()
HANGING = "hanging-36"
SOUND = [name for name in ALL if not corpora.manifest(name)["expect"]]


def refused(path: Path) -> list[Row]:
    """The verdicts under the policy that wrote each log below a folder."""
    views = {facts.log_key(log.leader): log for log in facts.logs_below(path)}
    names = tuple({log.policy_name() for log in views.values()})
    return [
        row
        for key, replicas in by_log(facts_below(path, names)).items()
        for kind, row in judge_log(replicas, views[key].cluster)
        if kind == "verdict" and row["policy"] == views[key].policy_name()
    ]


@functools.cache
def found(path: Path) -> list[Finding]:
    """What the audit finds, whatever its severity."""
    return audited.audit_folder(path, None, records=False)


def unfounded(path: Path) -> list[Row]:
    """The verdicts whose batches no finding of the audit is about."""
    return [v for v in refused(path) if not any(_is_about(f, v) for f in found(path))]


def _is_about(f: Finding, v: Row) -> bool:
    if (f.topic, f.partition) != (v["topic"], v["partition"]) or f.producer_id not in (None, v["producer_id"]):
        return False
    last = f.offset if f.last_offset is None else f.last_offset
    return f.offset is not None and f.offset <= v["run_last_offset"] and v["base_offset"] <= (last or 0)


def test_there_are_sound_logs_enough() -> None:
    assert len(SOUND) >= 12
    assert sum(name.startswith("lively-") for name in SOUND) == 8


@pytest.mark.parametrize("name", SOUND)
def test_under_its_own_policy_a_sound_log_has_no_verdict(name: str) -> None:
    assert refused(corpora.unpack(name)) == []


@pytest.mark.parametrize("name", [name for name in ALL if name not in SOUND])
def test_the_audit_finds_whatever_the_present_policy_refuses(name: str) -> None:
    assert unfounded(corpora.unpack(name)) == []


# --- damage ---------------------------------------------------------------------------------------------------------


def starts(log: bytes) -> list[int]:
    """Where the batches of a sound segment begin, by the sizes that they state."""
    out, at = [], 0
    while at + 12 <= len(log) and (size := int.from_bytes(log[at + 8 : at + 12])) > 0:
        out.append(at)
        at += size + 12
    return out


def damaged(source: Path, target: Path, share: float) -> Path:
    """A copy of a folder in which, in each segment of four batches and more, the magic of one that lies so far within
    it (from 0 to 1) is no magic.
    """
    shutil.copytree(source, target)
    for log in sorted(target.rglob("*.log")):
        data = bytearray(log.read_bytes())
        at = starts(bytes(data))
        if len(at) > 3 and not log.parent.name.startswith("__"):
            data[at[int(len(at) * share)] + 16] ^= 0x40
            data[at[int(len(at) * share)] + 60] ^= 0x40  # nor the rest sound, or the magic would be known to be damaged
            log.write_bytes(data)
    return target


def answers(path: Path) -> set[tuple[Any, ...]]:
    """Which policy gives which answer in which log."""
    views = {facts.log_key(log.leader): log.cluster for log in facts.logs_below(path)}
    rows = (
        row
        for key, replicas in by_log(facts_below(path, COMPARED)).items()
        for kind, row in judge_log(replicas, views[key])
        if kind == "verdict"
    )
    return {(v["topic"], v["partition"], v["policy"], v["error"]) for v in rows}


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_one_flipped_byte_in_each_log_adds_no_answer(share: float, tmp_path: Path) -> None:
    sound = answers(corpora.unpack(HANGING))
    assert sound
    assert answers(damaged(corpora.unpack(HANGING), tmp_path / "logs", share)) <= sound


@pytest.mark.parametrize("name", ["healthy-28", "unknown-producer-23", "lively-25"])
def test_a_damaged_log_is_refused_nothing_that_the_audit_does_not_find(name: str, tmp_path: Path) -> None:
    assert unfounded(damaged(corpora.unpack(name), tmp_path / name, 0.5)) == []


# --- these tests fail when a bound does -----------------------------------------------------------------------------


def test_it_would_show_if_the_active_segment_alone_did_not_count_as_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what-if had it: a checkpoint that the cleaner of a running broker has not written yet says nothing is gone."""
    monkeypatch.setattr(audit_replay, "intact_from", lambda task: task.cleaner_offset or 0)
    wrong = [name for name in SOUND if name.startswith("lively-") and refused(corpora.unpack(name))]
    assert "lively-25" in wrong
    assert len(wrong) >= 3


def test_it_would_show_if_unreadable_bytes_were_noted_behind_their_chunk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def behind(self: ReplicaReader, b: np.ndarray, errors: list[DecodeError], newest: bool) -> None:
        self.replay_batches(b)
        for _ in errors:
            self.audit.note_unreadable(lost=True)

    path = damaged(corpora.unpack(HANGING), tmp_path / "logs", 0.5)
    sound = answers(corpora.unpack(HANGING))
    monkeypatch.setattr(ReplicaReader, "_replay_between_errors", behind)
    wrong = answers(path) - sound
    assert {policy for *_, policy, error in wrong if error == "OUT_OF_ORDER_SEQUENCE_NUMBER"} >= set(COMPARED[:4])
