"""Very many open transactions: those that are not listed are counted without being made, and sums say the same."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence.horizons import LastMarker
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.rules.catalogue import registry
from auditor.rules.resolution import finding_limits
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import SEVERITIES, Finding, LogView
from bench import growth
from tests import made, segments
from tests.facts import logs_below

HOUR_MS = 3_600_000
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, COMPLETE_ABORT = 1, 2, 4, 5
RULES = (
    "hanging-transaction", "long-open-transaction", "transaction-pinned-at-log-start", "timeout-not-enforced",
    "stuck-prepare",
)  # fmt: skip


def record(n: int, state: int, timeout_ms: int) -> bytes:
    """What the coordinator wrote of producer ``n``, with this partition where the transaction goes on."""
    name, partitions = b"id-%d" % n, struct.pack(">i", 0)
    if state in (ONGOING, PREPARE_COMMIT):
        partitions = struct.pack(">ih", 1, 6) + b"orders" + struct.pack(">ii", 1, 0)
    value = struct.pack(">hqhib", 0, n, 0, timeout_ms, state) + partitions
    value += struct.pack(">qq", growth.NOW + n * 10_000, growth.NOW)
    return segments.record(0, struct.pack(">hh", 0, len(name)) + name, value)


def directory(root: Path, count: int, log_start: int) -> Path:
    """Open transactions whose coordinators stand differently: every fifth has none."""
    root.mkdir()
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    growth.open_transactions(root, count)
    states = (ONGOING, COMPLETE_COMMIT, PREPARE_COMMIT, COMPLETE_ABORT)
    known = [record(n, states[n % 5], 900_000 if n % 2 else 60_000) for n in range(count) if n % 5 < 4]
    (root / "__transaction_state-0").mkdir()
    written = b"".join(
        segments.batch(body, 1, base_offset=at, base_time=growth.NOW, max_time=growth.NOW)
        for at, body in enumerate(known)
    )
    (root / "__transaction_state-0" / f"{0:020}.log").write_bytes(written)
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {log_start}\n")
    return root


def judged(log: LogView, limit: int) -> list[Finding]:
    catalogue = registry.kinds()
    return list(finding_limits.judge_bounded(log, (catalogue[name] for name in RULES), limit))


def place(f: Finding) -> tuple[int, int]:
    assert f.offset is not None
    return SEVERITIES.index(f.severity), f.offset


def sums_of(beyond: Iterable[Finding]) -> dict[tuple[str, str], dict[str, Any]]:
    """What sums have to say of these: how many, from where to where, and what they all share."""
    out: dict[tuple[str, str], dict[str, Any]] = {}
    for f in beyond:
        said = out.setdefault((f.kind, f.severity), {"offsets": [], "shared": []})
        said["offsets"].append(f.offset)
        said["shared"].append({name: f.evidence.get(name) for name in finding_limits.SHARED})
    return {
        key: {
            "summed": len(each["offsets"]), "first_offset": min(each["offsets"]), "last_offset": max(each["offsets"]),
            **{name: each["shared"][0][name] for name in finding_limits.SHARED
               if all(one[name] == each["shared"][0][name] for one in each["shared"])},
        }
        for key, each in out.items()
    }  # fmt: skip


@pytest.mark.parametrize("log_start", [0, 60])
@pytest.mark.parametrize("as_of", [None, growth.NOW + 800_000, growth.NOW + 2 * HOUR_MS])
def test_listed_ones_and_sums_say_what_a_larger_limit_lists(tmp_path: Path, as_of: int | None, log_start: int) -> None:
    counted = 0
    for log in logs_below(directory(tmp_path / "broker-1", 120, log_start), as_of=as_of):
        everything = judged(log, 1_000)
        listed, sums = [], {}
        for f in judged(log, 7):
            if finding_limits.is_summed(f):
                sums[f.kind, f.severity] = {name: v for name, v in f.evidence.items() if name != "listed_by"}
            else:
                listed.append(f)
        wanted, beyond = [], []
        for name in RULES:
            mine = sorted((f for f in everything if f.kind == name), key=place)
            wanted += mine[:7]
            beyond += mine[7:]
        assert sorted(f.to_json() for f in listed) == sorted(f.to_json() for f in wanted)
        stated = {key: {name: v for name, v in each.items() if v is not None} for key, each in sums_of(beyond).items()}
        assert sums == stated
        counted += len(beyond)
    assert counted > 0


def test_a_pinned_one_whose_id_is_not_known_is_undecidable(tmp_path: Path) -> None:
    """Offsets 0 to 59 lie below the log start. Nothing is known of the id of every fifth. Of those that are complete
    the marker may have come behind the copy, in which all is of one millisecond."""
    logs = logs_below(directory(tmp_path / "broker-1", 120, 60), as_of=growth.NOW + 2 * HOUR_MS)
    (log,) = (log for log in logs if log.topic == "orders")
    rule = "transaction-pinned-at-log-start"
    found = {f.offset: f.evidence["confidence"] for f in judged(log, 1_000) if f.kind == rule}
    assert found == {n: "undecidable" if n % 5 in (1, 3, 4) else "proved" for n in range(60)}


def entry(n: int, state: str) -> StateRecord:
    """What the coordinator wrote of producer ``n`` at 1 ms: its transaction has a minute."""
    return StateRecord(
        0, n, 1, 0, f"id-{n}", state, n, 0, 60_000, frozenset({"orders-0"}), False, 1, 1, 0, "0.log", 0, 1
    )


@pytest.mark.parametrize(
    ("rule", "state", "worst"),
    [("timeout-not-enforced", "Ongoing", "error"), ("stuck-prepare", "PrepareCommit", "critical")],
)
def test_of_what_may_have_ended_since_the_counted_are_no_alarm_either(rule: str, state: str, worst: str) -> None:
    """Ten ids at offsets 0 to 9; a marker came behind the coordinator's log for each even one, for a later transaction
    of it. Three are listed, of those that are an alarm."""
    history = build_history(1, [entry(n, state) for n in range(10)])
    ended = {n: [LastMarker("orders-0", 1, 0, 20 * HOUR_MS, 10 * HOUR_MS, True)] for n in range(0, 10, 2)}
    cluster = Cluster(as_of=30 * HOUR_MS, newest_time=30 * HOUR_MS, coordinator=history, ended=ended)
    log = LogView([made.facts("__transaction_state", log_end=10)], cluster)
    found = list(finding_limits.judge_bounded(log, [registry.kinds()[rule]], 3))
    assert [(f.severity, f.offset) for f in found if not finding_limits.is_summed(f)] == [(worst, n) for n in (1, 3, 5)]
    sums = {f.severity: f.evidence for f in found if finding_limits.is_summed(f)}
    ends = {name: (e["summed"], e["first_offset"], e["last_offset"]) for name, e in sums.items()}
    assert ends == {worst: (2, 7, 9), "info": (5, 0, 8)}


def test_those_beyond_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 transactions that nobody ends, at offsets 0 to 29, ten are listed and twenty counted."""
    root = tmp_path / "broker-1"
    root.mkdir()
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    growth.open_transactions(root, 30)
    (log,) = logs_below(root)
    said: list[str] = []
    plain = LogView.finding

    def finding(self: LogView, severity: str, message: str, **fields: Any) -> Finding:
        said.append(message)
        return plain(self, severity, message, **fields)

    monkeypatch.setattr(LogView, "finding", finding)
    *listed, summed = judged(log, 10)
    assert [f.offset for f in listed] == [*range(10)]
    assert [summed.evidence[name] for name in ("summed", "first_offset", "last_offset")] == [20, 10, 29]
    assert {f.kind for f in (*listed, summed)} == {"long-open-transaction"}
    assert said == [*(f.message for f in listed), "20 more findings"]
