"""What is said of an open transaction in each state of its coordinator, with its data in the log and below its start.

Every surface that an on-call engineer may act on is made, and read for what it must say and must never say.
"""

from __future__ import annotations

import html
import io
import re
import shutil
from pathlib import Path

import pytest

from auditor.dashboards import metrics, output_formats, report, report_shapes, terminal, verdict
from auditor.outputs.publish import described_findings, summarise
from auditor.pipeline.whole_audit import Audit
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Lab

# The real 3.6 broker's own transaction, from its coordinator's last record: see the corpus' manifest.
BUSY, PARTITION, PRODUCER, SINCE, TIMEOUT = "bank-busy", "bank.audit-1", (6, 0), 1795233080779, 600_000
TAGS = re.compile(r"<script.*?</script>|<style.*?</style>|<[^>]+>", re.S)
ABORT, MINUTE = "kafka-transactions.sh --bootstrap-server B abort", 60_000
WAIT, ASK, KEEP, LET, SAFE = (
    "Wait", "Confirm before aborting", "Do not abort", "Let the coordinator finish", "Safe to abort",
)  # fmt: skip
FIND, CONFIRM = "Find its client first", "find-hanging --topic bank.audit"
MARKER, NOBODY = "WriteTxnMarkers request", ("nobody will end it", "nobody knows", "No transactional id owns")
# state: what the coordinator wrote ("+": with the epoch that transaction.version 2 bumps), minutes until the audit,
# the verdict with the data in the log and below its start, and how the partition stands
STATES = {
    "Ongoing, young": ((), 1, WAIT, WAIT, "waiting"),
    "Ongoing, late": ((), 60, FIND, FIND, "overdue"),
    "PrepareCommit, young": (("PrepareCommit",), 0, KEEP, KEEP, "waiting"),
    "PrepareCommit": (("PrepareCommit",), 60, KEEP, KEEP, "overdue"),
    "PrepareCommit of version 2": (("PrepareCommit+",), 60, KEEP, KEEP, "overdue"),
    "PrepareAbort": (("PrepareAbort",), 60, LET, LET, "overdue"),
    "CompleteCommit": (("PrepareCommit", "CompleteCommit"), 60, KEEP, SAFE, "stuck"),
    "CompleteCommit of version 2": (("PrepareCommit+", "CompleteCommit+"), 60, KEEP, SAFE, "stuck"),
    "CompleteAbort": (("PrepareAbort", "CompleteAbort"), 60, SAFE, SAFE, "stuck"),
    "expired after COMMIT": (("PrepareCommit", "CompleteCommit", "expired"), 60, KEEP, SAFE, "stuck"),
    "expired after ABORT": (("PrepareAbort", "CompleteAbort", "expired"), 60, SAFE, SAFE, "stuck"),
    "id unknown": (("unknown",), 60, SAFE, SAFE, "stuck"),
    "log absent, young": (("absent",), 0, ASK, ASK, "unknown"),
    "log absent": (("absent",), 60, ASK, ASK, "overdue"),
    "part of the log absent, young": (("unknown", "part absent"), 0, ASK, ASK, "unknown"),
    "part of the log absent": (("unknown", "part absent"), 60, ASK, ASK, "overdue"),
}
SAYS = {  # behind each verdict what has to be on every surface that shows commands, and what must not be
    WAIT: ((), (ABORT, MARKER, *NOBODY)),
    FIND: (("describe --transactional-id bank-busy", "Do not abort it by hand"), (ABORT, MARKER, *NOBODY)),
    LET: (("--unavailable-partitions",), (ABORT, MARKER, *NOBODY)),
    ASK: ((CONFIRM,), (f"{ABORT} --topic", MARKER, *NOBODY)),
    SAFE: ((f"{ABORT} --topic bank.audit --partition 1 --start-offset 0",), (MARKER, "decided COMMIT")),
    KEEP: (("Do not abort",), (f"{ABORT} --topic",)),
}


def forged(root: Path, state: str, below: bool) -> Audit:
    """The broker's directory with the coordinator in ``state``; ``below``: the data deleted, its state not."""
    lab, (steps, minutes, *_) = Lab(root, "hanging-36", PARTITION), STATES[state]
    log, coordinator, time = lab.log(PARTITION), Coordinator(lab.broker(), 1), lab.as_of
    data = log.all()[0]
    behind = data.copy()
    for step in steps:
        time += 1_000
        producer = (PRODUCER[0], PRODUCER[1] + step.endswith("+"))
        name = step.rstrip("+")
        if name == "unknown":
            data.set(producer_id=900)
            log.snapshots = {}
        elif name == "expired":
            coordinator.forget(BUSY, time)
        elif name.startswith("Prepare"):
            coordinator.state(BUSY, name, producer, time, PARTITION, timeout=TIMEOUT, start=SINCE)
        elif name.startswith("Complete"):
            coordinator.state(BUSY, name, producer, time, timeout=TIMEOUT)
    time += 2_000
    log.next(behind, base_time=time, max_time=time, producer_id=-1, epoch=-1, sequence=-1, attributes=0)
    log.checkpoint("replication-offset-checkpoint", log.end)
    if below:
        log.checkpoint("log-start-offset-checkpoint", data.last + 1)
    log.save()
    coordinator.save()
    gone = {"absent": "*", "part absent": "2"}.get(steps[-1] if steps else "")
    for path in lab.broker().glob(f"__transaction_state-{gone}") if gone else ():
        shutil.rmtree(path)
    return opened(root, as_of=time + minutes * MINUTE)


@pytest.mark.parametrize("below", [False, True], ids=["in the log", "below the log start"])
@pytest.mark.parametrize("state", STATES)
def test_every_surface_says_what_is_safe(tmp_path: Path, state: str, below: bool) -> None:
    audit = forged(tmp_path, state, below)
    advice, standing = STATES[state][3 if below else 2], STATES[state][4]
    (row,) = audit.blocked
    assert (row["advice"]["verdict"], row["standing"]) == (advice, standing)
    blocked = standing in ("stuck", "overdue")
    assert audit.exit_code() == int(blocked)
    texts = surfaces(audit, tmp_path)
    has, never = SAYS[advice]
    for name, text in {**texts, **{f.rule: f.remedy for f in audit.findings}}.items():
        assert not [phrase for phrase in never if phrase in text], name
        asked = blocked or (name == "page" and standing == "unknown")
        assert name not in texts or not asked or all(phrase in text for phrase in has), name
    with (tmp_path / "metrics.prom").open(encoding="utf-8") as lines:
        counted = [line for line in lines if line.startswith("kafka_audit_blocked") and not line.endswith(" 0.0\n")]
    assert [f'standing="{standing}"}} 1.0' in line for line in counted] == [True]
    never_ends = sum(summarise(audit)["open_transactions"].get(name, 0) for name in ("hanging", "orphan", "ghost"))
    assert bool(never_ends) == (standing == "stuck")
    if advice == KEEP and standing == "stuck":
        assert f"producerEpoch {PRODUCER[1] + ('version 2' in state)}, " in row["remedy"]
    if below and advice in (SAFE, FIND):
        assert "loses nothing" in row["remedy"]


def surfaces(audit: Audit, folder: Path) -> dict[str, str]:
    """What people read, by its name, every run of blanks one space; the metrics are written into ``folder``."""
    rows, summary, out = described_findings(audit), summarise(audit), io.StringIO()
    terminal.print_findings(rows, summary, out, 80)
    full = report_shapes.summary(summary)
    decided = verdict.of_run(report_shapes.whole(rows, report_shapes.FINDING), full)
    metrics.write_metrics(folder / "metrics.prom", rows, summary)
    texts = {
        "terminal": out.getvalue(),
        "page": report.render_report(rows, summary, audit.judged["open"], audit.judged["timeline"]),
        "markdown": "".join(output_formats.rendered("markdown", rows, decided, full, {}, "error")),
    }
    texts["page"] = html.unescape(
        re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", "", texts["page"], flags=re.S)
    )
    return {name: " ".join(text.split()) for name, text in texts.items()}
