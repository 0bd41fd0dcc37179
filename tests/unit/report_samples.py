"""Sample input for what people look at, made from the ground truth of real corpora, never from our own output."""

from __future__ import annotations

import datetime
from typing import Any

from auditor.dashboards.answers import report_of
from auditor.dashboards.report import render_report
from auditor.rules.catalogue import registry
from tests import corpora

HOSTILE = "<script>alert(1)</script>\"'"
Report = tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]
_FIELDS = (
    "rule", "severity", "outcome", "broker_id", "topic", "partition", "offset", "last_offset", "producer_id",
    "producer_epoch", "transactional_id", "group_id", "timestamp", "file", "position", "message", "evidence", "remedy",
    "source",
)  # fmt: skip


def finding(**given: Any) -> dict[str, Any]:
    """A finding with all fields of the contract, null where not given, and what its rule declares."""
    row = {**dict.fromkeys(_FIELDS), "severity": "error", "message": "", "evidence": {}, **given}
    return registry.described([row])[0]


def rendered(
    findings: list[dict[str, Any]], summary: dict[str, Any], opened: list[dict[str, Any]], drawn: list[dict[str, Any]]
) -> str:
    """The report of a sample."""
    return render_report(report_of(findings, summary), opened, drawn)


def iso(ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, tz=datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def empty_summary(**given: Any) -> dict[str, Any]:
    return {
        "tool": {"name": "auditor", "version": "0.1.0"},
        "as_of": "2026-11-21T04:00:00.000Z",
        "policy": [],
        "counts": {},
        **given,
    }


def hanging() -> Report:
    """What a report on the corpus ``hanging-36`` is made from: its expected findings and its live broker's answers."""
    truth = corpora.manifest("hanging-36")
    findings, transactions = [], []
    for row in truth["expect"]:
        findings.append(_hanging_finding(row))
        transactions.append(_transaction(truth, row, "hanging", row["coordinator_state"]))
    busy = next(row for row in truth["must_not_flag"] if row.get("transactionalId") == "bank-busy")
    transactions.append(_transaction(truth, busy, "active", truth["live_transactions"]["bank-busy"]["state"]))
    logs = [_log(name, row) for name, row in sorted(truth["live"].items())]
    volume = truth["files"]["bytes"]
    summary = empty_summary(
        as_of=iso(truth["copied_at"]),
        policy=[{"log_dir": "broker-1", "policy": "kip-890", "why": "metadata.version 3.6 in __cluster_metadata"}],
        counts={"by_severity": {"critical": 4}, "by_rule": {"hanging-transaction": 4}},
        inputs=[{"log_dir": "broker-1", "cluster_id": "dGVzdA", "broker_id": 1, "files": truth["files"]["count"],
                 "bytes": volume}],
        bytes={"total": volume, "decoded": 90_000, "skipped": volume - 90_000, "unreadable": 0},
        batches=241, records=1432, logs=logs,
        skipped=[{"reason": "no log file", "files": 3, "bytes": volume - 90_000, "example": "broker-1/.lock"}],
        recovery=[{"log_dir": "broker-1", "starts": True, "truncates": [], "poison": [], "says": "nothing is cut"}],
        timings={"decode": 0.41, "judge": 0.12},
        prevention=[_prevention("transaction.partition.verification.enable=true")],
    )  # fmt: skip
    return findings, summary, transactions, [_timeline(truth, row) for row in truth["expect"]]


def _prevention(name: str) -> dict[str, Any]:
    return dict.fromkeys(("setting", "where", "why"), name) | {"findings": 4, "now": [name], "commands": [name]}


def hostile() -> Report:
    """Every name that comes from data is an attempt to break out of the page."""
    name = HOSTILE + "\x1b[31m\u202e"
    findings = [
        finding(
            rule="hanging-transaction", severity="critical", broker_id=1, topic=name, partition=0, offset=5,
            last_offset=9, producer_id=7, producer_epoch=0, transactional_id=name, group_id=name, file=name,
            position=3, timestamp=name, message=f"{name} hangs",
            evidence={name: name, "list": [name], "map": {name: name}, "missing": name, "in_flight": True},
            remedy=f"Run `kafka-transactions.sh abort --topic '{name}'` or {name}", source=name,
        ),
    ]  # fmt: skip
    place = {"log_dir": name, "topic": name, "partition": 0, "broker_id": 1}
    transactions = [
        {**place, "producer_id": 7, "producer_epoch": 0, "transactional_id": name, "class": "hanging",
         "first_offset": 5, "last_offset": 9, "since": name, "age_ms": 1000, "state": name, "batches": 1,
         "records": 5, "bytes": 100},
    ]  # fmt: skip
    bar = {"producer_id": 7, "producer_epoch": 0, "first_offset": 5, "last_offset": 9, "marker_offset": None,
           "outcome": None, "start": name, "end": None, "class": name}  # fmt: skip
    timelines = [{**place, "log_start": 0, "log_end": 20, "lso": 5, "transactions": [bar], "truncated": 0}]
    chain = {"snapshots": 2, "proved": 1, "broken": [{name: name}, name], "fraction": 0.5}
    accounting = {"data": 9, "marker": 1, "aborted": 5, "compacted": 3, "missing": 2, "total": 20}
    summary = empty_summary(
        prevention=[_prevention(name)],
        tool={"name": "auditor", "version": name},
        as_of=name,
        policy=[{"log_dir": name, "policy": name, "why": name}],
        inputs=[{"log_dir": name, "cluster_id": name, "broker_id": 1, "files": 1, "bytes": 1}],
        bytes={"total": 3, "decoded": 1, "skipped": 1, "unreadable": 1},
        skipped=[{"reason": name, "files": 1, "bytes": 1, "example": name}],
        unreadable=[{"log_dir": name, "file": name, "position": 0, "length": 1, "reason": name, "detail": name}],
        notes=[name],
        logs=[{**place, "log_start": 0, "log_end": 20, "hw": 20, "lso": 5, "offsets": accounting, "chain": chain}],
        recovery=[{"log_dir": name, "starts": False, "truncates": [{name: name}], "poison": [name], "says": name}],
        capacity={name: name, "rows": [{name: name}], "map": {name: name}},
        expectations={
            "evaluated": 2, "failed": 1, "passing": [name],
            "failing": [{"severity": "error", "suite": name, "says": name, "rows": 1, "broken": 1, "where": name,
                         "error": name}],
        },
        timings={name: 1.0},
    )  # fmt: skip
    return findings, summary, transactions, timelines


def _hanging_finding(row: dict[str, Any]) -> dict[str, Any]:
    start = row["firstOffset"]
    place = f"--topic {row['topic']} --partition {row['partition']}"
    return finding(
        rule="hanging-transaction", severity="critical", broker_id=1, topic=row["topic"], partition=row["partition"],
        offset=start, last_offset=row["lastOffset"], producer_id=row["producerId"], producer_epoch=row["producerEpoch"],
        transactional_id=row["transactionalId"], timestamp=iso(1795225879317),
        file=f"{row['topic']}-{row['partition']}/{start:020d}.log", position=0,
        message=f"Transaction of producer {row['producerId']} hangs: {row['cause']}",
        evidence={"class": "hanging", "confidence": "proved", "coordinator_state": row["coordinator_state"],
                  "expected": "a marker, or an Ongoing state that names the partition", "found": row["cause"]},
        remedy=f"Confirm with `kafka-transactions.sh --bootstrap-server B describe-producers {place}`; then "
               f"`kafka-transactions.sh --bootstrap-server B abort {place} --start-offset {start}`.",
        source="KIP-360, KIP-447",
    )  # fmt: skip


def _transaction(truth: dict[str, Any], row: dict[str, Any], kind: str, state: str) -> dict[str, Any]:
    since = 1795225879317 if kind == "hanging" else truth["live_transactions"][row["transactionalId"]]["startMs"]
    last = row.get("lastOffset", row["firstOffset"])
    return {
        "log_dir": "broker-1", "broker_id": 1, "topic": row["topic"], "partition": row["partition"],
        "producer_id": row["producerId"], "producer_epoch": row["producerEpoch"],
        "transactional_id": row["transactionalId"], "class": kind, "first_offset": row["firstOffset"],
        "last_offset": last, "since": iso(since), "age_ms": truth["copied_at"] - since, "state": state, "batches": 1,
        "records": row.get("records", last - row["firstOffset"] + 1), "bytes": 900,
    }  # fmt: skip


def _log(name: str, live: dict[str, Any]) -> dict[str, Any]:
    topic, _, partition = name.rpartition("-")
    end = live["highWatermark"]
    return {
        "log_dir": "broker-1", "topic": topic, "partition": int(partition), "broker_id": 1,
        "log_start": live["logStartOffset"], "log_end": end, "hw": end, "lso": live["lastStableOffset"],
        "offsets": {"data": end - 1, "marker": 1, "aborted": 0, "compacted": 0, "missing": 0, "total": end},
        "chain": {"snapshots": 2, "proved": 2, "broken": [], "fraction": 1.0},
    }  # fmt: skip


def _timeline(truth: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The open transaction, and those before it as the steps and the oracle's markers show them."""
    log = _log(f"{row['topic']}-{row['partition']}", truth["live"][f"{row['topic']}-{row['partition']}"])
    bars = []
    for step in truth["steps"]:
        sent = step["result"]["offsets"].get(str(row["partition"])) if step.get("op") == "send" else None
        if sent and step["topic"] == row["topic"] and step["result"]["producerId"] > 0:
            outcome = "ABORT" if step["id"] == "bank-abort" else "COMMIT"
            bars.append({
                "producer_id": step["result"]["producerId"], "producer_epoch": step["result"]["producerEpoch"],
                "first_offset": sent[0], "last_offset": sent[1], "marker_offset": sent[1] + 1, "outcome": outcome,
                "start": iso(step["at"]), "end": iso(step["at"] + 9), "class": None,
            })  # fmt: skip
    bars.append({
        "producer_id": row["producerId"], "producer_epoch": row["producerEpoch"], "first_offset": row["firstOffset"],
        "last_offset": row["lastOffset"], "marker_offset": None, "outcome": None, "start": None, "end": None,
        "class": "hanging",
    })  # fmt: skip
    keys = ("topic", "partition", "broker_id", "log_start", "log_end", "lso")
    return {**{key: log[key] for key in keys}, "transactions": bars, "truncated": 0}
