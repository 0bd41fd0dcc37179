"""Share groups against the logs that they consume: a real 4.3.1 cluster, as it is and cut."""

from __future__ import annotations

import json
import re
from pathlib import Path

from auditor.facts.offsets import ShareOffset
from auditor.rules.seen.view import Finding
from tests import corpora
from tests.facts import corpus_logs, judge, logs_below
from tests.forge import Forged

NAME, RULE = "groups-43", "share-offset-out-of-range"
_RECORD = re.compile(r"\| offset: \d+ .*? key: (\{.*?\}\}) payload: ?(.*)")


def states() -> list[ShareOffset]:
    logs = [log for log in corpus_logs(NAME) if log.topic == "__share_group_state"]
    return [state for log in logs for state in log.leader.share_offsets]


def printed() -> dict[tuple[str, str, int], tuple[int, int]]:
    """Start offset and last delivered offset of each group and partition, folded from what Kafka's tool printed."""
    found: dict[tuple[str, str, int], tuple[int, int]] = {}
    for text in sorted((corpora.FORMATS / NAME / "oracle").glob("*__share_group_state-*")):
        for line in text.read_text(encoding="utf-8").splitlines():
            if match := _RECORD.match(line):
                key = json.loads(match[1])
                at = (key["data"]["groupId"], key["data"]["topicId"], key["data"]["partition"])
                if not match[2].startswith("{"):  # a tombstone
                    found.pop(at, None)
                    continue
                value = json.loads(match[2])["data"]
                start, last = found.get(at, (-1, -1)) if key["type"] == "1" else (-1, -1)
                start = value["startOffset"] if value["startOffset"] >= 0 else start
                last = max([last, *(batch["lastOffset"] for batch in value["stateBatches"])])
                found[at] = (start, last if last >= start else -1)
    return found


def test_the_states_are_those_that_kafkas_tool_prints() -> None:
    ours = {(s.group_id, s.topic_id, s.partition): (s.start_offset, s.delivered) for s in states()}
    assert ours == printed() != {}


def test_a_healthy_cluster_has_no_finding() -> None:
    assert judge(corpus_logs(NAME), RULE) == []


def consumed(path: Path) -> tuple[ShareOffset, Forged]:
    """A group's state with something delivered, and the log that it consumes."""
    logs = logs_below(path)
    names = {log.leader.topic_id: log for log in logs}
    found = [s for log in logs for s in log.leader.share_offsets if s.delivered > s.start_offset > 1]
    state = max(found, key=lambda s: s.delivered)
    return state, Forged(path / "broker-1", f"{names[state.topic_id].topic}-{state.partition}")


def about(path: Path, state: ShareOffset) -> list[Finding]:
    found = judge(logs_below(path), RULE)
    return [f for f in found if (f.group_id, f.partition) == (state.group_id, state.partition)]


def test_a_log_that_lost_its_tail_ends_below_what_was_delivered(tmp_path: Path) -> None:
    path = corpora.copy(NAME, tmp_path)
    state, log = consumed(path)
    end = log.find(state.delivered)["base_offset"]
    log.cut(end)
    log.save()
    (f,) = about(path, state)
    assert (f.severity, f.topic, f.offset, f.last_offset) == ("error", log.topic, state.start_offset, state.delivered)
    assert f.evidence["log_end"] == end
    (path / "broker-1" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert [f.severity for f in about(path, state)] == [
        "error"
    ]  # the newest time is 30 s later: copying takes no longer


def test_records_that_were_deleted_before_they_were_settled(tmp_path: Path) -> None:
    path = corpora.copy(NAME, tmp_path)
    state, log = consumed(path)
    log.checkpoint("log-start-offset-checkpoint", state.start_offset + 1)
    (path / "broker-1" / log.folder.name / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {state.start_offset + 1}\n")
    (f,) = about(path, state)
    assert (f.severity, f.offset, f.evidence["log_start"]) == ("warning", state.start_offset, state.start_offset + 1)
