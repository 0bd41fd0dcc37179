"""Every partition that is held is named, and one verdict decides headline, exit status and metrics."""

from __future__ import annotations

import datetime
import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor.base.errors import AuditInputError
from auditor.dashboards import answers, report, terminal, wording
from auditor.dashboards.answers import report_of
from auditor.dashboards.wording import instant
from auditor.outputs.publish import run_report
from auditor.pipeline.options import parse_time
from auditor.pipeline.whole_audit import Audit
from auditor.rules.catalogue import registry
from auditor.rules.committed_offsets import readers
from tests import corpora
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Lab
from tests.unit.report_samples import finding
from tests.unit.test_rules_offsets import commit, log_of
from tests.whole.test_incidents_transactions import LATER, Bank

BUSY, PARTITION = "bank-busy", "bank.audit-1"
TIMES = ("since", "since_by_producer", "since_not_before", "since_not_after", "age_ms")


def said(audit: Audit) -> tuple[str, str]:
    """The terminal's first line and the page's headline."""
    rows, summary, out = (
        registry.described(f.to_dict() for f in audit.findings),
        run_report(audit).summary,
        io.StringIO(),
    )
    terminal.print_findings(report_of(rows, summary), out, 200)
    page = report.render_report(report_of(rows, summary), audit.judged["open"], audit.judged["timeline"])
    return out.getvalue().split("\n")[0], page.partition("<h1>")[2].partition("</h1>")[0]


def standings(audit: Audit) -> dict[str, str]:
    return {f"{row['topic']}-{row['partition']}": row["standing"] for row in audit.blocked}


def test_every_held_partition_is_named_whatever_its_age() -> None:
    """The four of the incident and the young one that the broker itself has as Ongoing; offsets are the broker's."""
    truth = corpora.manifest("hanging-36")
    audit = opened(corpora.unpack("hanging-36"), as_of=truth["copied_at"])
    expected = {f"{row['topic']}-{row['partition']}": "stuck" for row in truth["expect"]} | {PARTITION: "waiting"}
    assert standings(audit) == expected
    for row in audit.blocked:
        live = truth["live"][f"{row['topic']}-{row['partition']}"]
        assert (row["last_stable_offset"], row["log_end"]) == (live["lastStableOffset"], live["highWatermark"])
    # The clients of two of them had set their clocks two hours back; all began within the last minute of the run.
    assert max(row["age_ms"] for row in audit.blocked) < 60_000
    assert said(audit) == ("4 PARTITIONS BLOCKED", "4 partitions blocked")
    assert audit.exit_code() == 1


@pytest.mark.parametrize("stopped_cleanly", [False, True])
def test_lso_lag_is_one_number_on_terminal_page_and_timeline(tmp_path: Path, stopped_cleanly: bool) -> None:
    """High watermark minus LSO, as the broker had them. After a clean stop the stored high watermark counts; without
    one it is seconds old, and the log end counts. Here it is set to 2 below the log end."""
    truth = corpora.manifest("hanging-36")
    shutil.copytree(corpora.unpack("hanging-36"), tmp_path / "copy")
    (folder,) = (path.parent for path in (tmp_path / "copy").rglob("meta.properties"))
    checkpoint, live = folder / "replication-offset-checkpoint", dict(truth["live"])
    for name in (f"{row['topic']}-{row['partition']}" for row in truth["expect"]):
        topic, _, number = name.rpartition("-")
        end = live[name]["highWatermark"]
        text = re.sub(rf"(?m)^{re.escape(topic)} {number} \d+$", f"{topic} {number} {end - 2}", checkpoint.read_text())
        checkpoint.write_text(text)
        live[name] = {**live[name], "highWatermark": end - 2 * stopped_cleanly}
    if not stopped_cleanly:
        (folder / ".kafka_cleanshutdown").unlink()
    audit, out = opened(tmp_path / "copy", as_of=truth["copied_at"]), io.StringIO()
    shown = report_of(registry.described(f.to_dict() for f in audit.findings), run_report(audit).summary)
    terminal.print_findings(shown, out, 200)
    page = report.render_report(shown, audit.judged["open"], audit.judged["timeline"])
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for row in truth["expect"]:
        name, lso = f"{row['topic']}-{row['partition']}", row["lastStableOffset_stuck_at"]
        lag = live[name]["highWatermark"] - lso
        (line,) = (line for line in out.getvalue().splitlines() if line.startswith(f"{name} "))
        assert str(lag) in line.split()
        many = f"LSO lag {lag} offset{'' if lag == 1 else 's'}"
        assert f"offset {lso} {many}" in text
        assert f"LSO {lso}, {many}" in text[text.index("Timelines offsets") :]


def test_a_start_that_the_producers_clock_denies_is_a_range() -> None:
    """The steps of the run say when each late batch was sent, and that it was stamped two hours earlier."""
    truth = corpora.manifest("hanging-36")
    sent = {
        (step["topic"], step["partition"], step["baseOffset"]): (step["at"], step["timestamp"])
        for step in truth["steps"]
        if "late transactional batch" in step.get("what", "")
    }
    audit = opened(corpora.unpack("hanging-36"), as_of=truth["copied_at"])
    rows = audit.blocked
    late = [row for row in rows if row["standing"] == "stuck"]
    assert len(late) == 4
    for row in late:
        began, stamp = sent[row["topic"], row["partition"], row["first_offset"]]
        assert abs(stamp - parse_time(row["since_by_producer"])) < 1000
        assert parse_time(row["since_not_before"]) <= began
        assert row["since_not_after"] is None or began <= parse_time(row["since_not_after"])
        text = wording.begun(row)
        assert instant(row["since_not_before"]) in text
        assert instant(row["since_by_producer"]) in text
        (found,) = [f for f in audit.findings if (f.topic, f.partition) == (row["topic"], row["partition"])]
        assert {name: found.evidence.get(name) for name in TIMES} == {name: row[name] for name in TIMES}
    (calm,) = (row for row in rows if row not in late)
    assert wording.begun(calm) == instant(calm["since"])


def test_a_partition_alone_is_neither_red_nor_green(tmp_path: Path) -> None:
    folder = corpora.unpack("hanging-36") / "broker-1" / "bank.ledger-0"
    shutil.copytree(folder, tmp_path / "bank.ledger-0")
    audit = opened(tmp_path / "bank.ledger-0")
    (row,) = audit.blocked
    assert (row["standing"], row["at_least"], row["beyond_timeout"]) == ("unknown", True, None)
    assert audit.exit_code() == 0
    first, headline = said(audit)
    assert first == headline == "1 open transaction: status unknown (age unknown)"
    assert opened(tmp_path / "bank.ledger-0", as_of=parse_time("now")).exit_code() == 1


@pytest.mark.parametrize(("over_s", "standing", "status"), [(-1, "waiting", 0), (25, "waiting", 0), (31, "overdue", 1)])
def test_beyond_the_time_out_by_thirty_seconds_is_an_error(
    tmp_path: Path, over_s: int, standing: str, status: int
) -> None:
    lab = Lab(tmp_path, "hanging-36", PARTITION)
    (row,) = opened(lab.root, as_of=lab.as_of).blocked
    start = parse_time(row["since"])
    audit = opened(lab.root, as_of=start + row["timeout_ms"] + over_s * 1000)
    coordinator = corpora.manifest("hanging-36")["live_transactions"][BUSY]["startMs"]
    assert abs(start - coordinator) < 1000
    assert (standings(audit), audit.exit_code()) == ({PARTITION: standing}, status)


def without_leader(audit: Audit) -> None:
    """Lets the metadata say that a broker is up and that nobody leads the partition."""
    for settings in audit.settings.values():
        assert settings.metadata is not None
        brokers, partitions = settings.metadata.brokers, settings.metadata.partitions
        for number, broker in brokers.items():
            brokers[number] = broker._replace(fenced=False, in_controlled_shutdown=False)
        for key, state in partitions.items():
            gone = f"{state.topic}-{state.partition}" == PARTITION
            partitions[key] = state._replace(leader=-1 if gone else min(brokers))


def test_prepared_without_a_leader_is_an_error_at_once(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "hanging-36", PARTITION)
    began = opened(lab.root, as_of=lab.as_of).blocked[0]
    now = lab.as_of + 1_000
    coordinator = Coordinator(lab.broker(), 1)
    entry = {"start": parse_time(began["since"]), "timeout": began["timeout_ms"]}
    producer = (began["producer_id"], began["producer_epoch"])
    coordinator.state(BUSY, "PrepareCommit", producer, now, PARTITION, **entry)
    coordinator.save()
    young = opened(lab.root, as_of=now + 2_000)
    assert (standings(young), young.exit_code()) == ({PARTITION: "waiting"}, 0)
    for gone in (False, True):  # the partition's own replica is away too
        if gone:
            shutil.rmtree(lab.broker() / PARTITION)
        audit = opened(lab.root, as_of=now + 2_000)
        without_leader(audit)
        (found,) = [f for f in audit.findings if f.severity == "error" and f.kind != "partition-offline"]
        assert (found.kind, found.evidence["without_leader"]) == ("stuck-prepare", [PARTITION])
        assert PARTITION in found.message
        assert (standings(audit), audit.exit_code()) == ({PARTITION: "undeliverable"}, 1)
        assert said(audit)[1].startswith("1 partition blocked; ")  # and that the lab has not all of the copy


@pytest.mark.parametrize("options", [{"topics": ("nothing.of.it*",)}, {"rules": ("duplicate-key",), "records": False}])
def test_a_scope_that_matches_nothing_is_a_mistake(options: dict[str, Any]) -> None:
    catalogue = registry.kinds()
    if "rules" in options:
        options = options | {"rules": (next(r.id for r in catalogue.values() if r.records),)}
    audit = opened(corpora.unpack("hanging-36"), **options)
    with pytest.raises(AuditInputError):
        _ = audit.findings


def test_loss_of_acknowledged_records_goes_before_a_block() -> None:
    truth = corpora.manifest("hanging-36")
    audit = opened(corpora.unpack("hanging-36"), as_of=truth["copied_at"])
    loss = finding(rule="replica-missing-range", severity="critical", topic="t", partition=0, message="gone")
    rows, summary = [*registry.described(f.to_dict() for f in audit.findings), loss], run_report(audit).summary
    page = report.render_report(report_of(rows, summary), audit.judged["open"], [])
    headline = "4 partitions blocked; records at risk in 1 partition"
    assert f"<h1>{headline}</h1>" in page
    gone = finding(rule="replica-divergence", severity="critical", topic="t", partition=2)
    both = [*rows, loss, gone]
    page = report.render_report(report_of(both, summary), audit.judged["open"], [])
    assert "<h1>Records lost in 1 partition; 4 partitions blocked; also at risk</h1>" in page


def test_exit_status_and_verdict_agree() -> None:
    audit = opened(corpora.unpack("healthy-41"), as_of=corpora.manifest("healthy-41")["copied_at"])
    assert (audit.exit_code(), said(audit)[0][:18]) == (0, "No problems found.")


def test_the_clock_and_the_age_of_the_copy_are_said() -> None:
    summary = answers.summary({"as_of": "2026-11-21T04:00:00.000Z", "newest": "2026-11-21T01:59:00.000Z"})
    assert (
        answers.clock(summary | {"as_of_given": True})
        == "Evaluated at 2026-11-21 04:00:00 UTC; the copy is 2 h 1 min old"
    )
    wall = datetime.datetime(2026, 11, 24, 1, 59, tzinfo=datetime.UTC)
    said = answers.clock(summary | {"as_of_given": False, "as_of": summary["newest"]}, wall)
    newest = "the newest broker timestamp in the copy (3 d ago). Use --as-of now for the current time."
    assert said == f"Evaluated at 2026-11-21 01:59:00 UTC, {newest}"


def test_the_groups_that_read_a_blocked_topic_are_named() -> None:
    """One commit of group g in t-0, made by hand: see ``test_rules_offsets``."""
    log = log_of([commit(4, 20)])
    assert [row for row in readers(log) if row["topic"]] == [{"topic": "t", "partition": 0, "groups": ["g"], "more": 0}]


def test_a_partition_alone_is_neither_red_nor_green_and_its_age_is_not_zero() -> None:
    """Its newest time is that of the transaction itself: nothing can be said of how long it is open."""
    alone = next(corpora.unpack("hanging-36").glob("**/bank.ledger-0"))
    audit = opened(alone, as_of=None)
    summary = run_report(audit).summary
    out = io.StringIO()
    terminal.print_findings(report_of(run_report(audit).findings, summary), out, 200)
    text = out.getvalue()
    assert text.startswith("1 open transaction: status unknown (age unknown)\n")
    why = "the input shows neither its age nor whether it is still open"
    assert f"\nPossibly blocked. The copy does not show whether these transactions are still open ({why}):\n" in text
    assert "\nbank.ledger-0  03:51:19  producer id 1       77  Investigate first  " in text
    assert "0 ms" not in text
    assert "for 0 s" not in text
    assert audit.exit_code() == 0


def test_what_may_be_in_flight_is_not_counted_as_hanging(tmp_path: Path) -> None:
    """Data behind its marker: its coordinator may have gone on while a broker runs. Alerts go by the count."""
    bank = Bank(tmp_path)
    bank.write(LATER)
    for live, counted in ((False, {"hanging": 1}), (True, {"undecidable": 1})):
        bank.findings(live=live)
        audit = opened(bank.lab.root, as_of=bank.lab.as_of)
        assert run_report(audit).summary["open_transactions"] == counted
        assert audit.exit_code() == int(not live)


@pytest.mark.parametrize("checkpoint", [0, 71, 80])
def test_a_killed_broker_s_checkpoint_does_not_say_where_readers_stop(tmp_path: Path, checkpoint: int) -> None:
    """It is seconds old: the corpus' broker named 71 as the last stable offset of this partition."""
    lab = Lab(tmp_path, "hanging-36", "bank.ledger-0")
    lab.log("bank.ledger-0").checkpoint("replication-offset-checkpoint", checkpoint)
    (lab.broker() / ".kafka_cleanshutdown").unlink(missing_ok=True)
    audit = opened(lab.root, as_of=lab.as_of)
    (row,) = [row for row in audit.blocked if (row["topic"], row["partition"]) == ("bank.ledger", 0)]
    live = corpora.manifest("hanging-36")["live"]["bank.ledger-0"]
    assert (row["last_stable_offset"], row["high_watermark"]) == (live["lastStableOffset"], checkpoint)
    waiting = live["highWatermark"] - live["lastStableOffset"]
    assert answers.Open(row).waiting == waiting
    (found,) = [f for f in audit.findings if (f.kind, f.partition) == ("hanging-transaction", 0)]
    if checkpoint > live["lastStableOffset"]:
        assert f"{waiting} offsets before the log end" in found.message
    else:  # its data, stamped two hours back, came after the checkpoint: nobody knows when
        assert (found.severity, found.if_true) == ("info", "critical")
    (drawn,) = [row for row in audit.judged["timeline"] if (row["topic"], row["partition"]) == ("bank.ledger", 0)]
    assert drawn["lso"] == live["lastStableOffset"]
