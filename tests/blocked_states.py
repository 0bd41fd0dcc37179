"""An open transaction of a real broker in each state of its coordinator, and all that people are shown of it."""

from __future__ import annotations

import html
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from auditor.dashboards import metrics, output_formats, report, terminal
from auditor.dashboards.wording import pieces
from auditor.outputs import alerts, printing
from auditor.outputs.publish import run_report
from auditor.pipeline.whole_audit import Audit
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.forge import Lab
from tests.terminal_text import expanded

Replicas = Callable[[Lab, int, bool], None]  # of the broker, from a time on (ms); whether COMMIT was decided
# The real 3.6 broker's own transaction, from its coordinator's last record: see the corpus' manifest.
BUSY, PARTITION, PRODUCER, SINCE, TIMEOUT = "bank-busy", "bank.audit-1", (6, 0), 1795233080779, 600_000
TAGS = re.compile(r"<script.*?</script>|<style.*?</style>|<[^>]+>", re.S)
ABORT, MINUTE = "kafka-transactions.sh --bootstrap-server B abort", 60_000
# What it comes to: the verdict, and how its first sentence begins behind it.
WAIT, ASK, KEEP, LET, SAFE, FIND, COMMIT = (
    ("wait", "nothing is lost: it ends by itself"), ("investigate_first", "it may be alive"),
    ("do_not_abort", "COMMIT was decided"), ("wait", "nothing is lost by it, and consumers wait"),
    ("safe_to_abort", ("stay unread", "stays unread", "was deleted already")),
    ("investigate_first", "find its client:"), ("commit_it", "COMMIT was decided"),
)  # fmt: skip
CONFIRM = "find-hanging --topic bank.audit"
MARKER, NOBODY = "WriteTxnMarkers request", ("nobody will end it", "nobody knows", "No transactional id owns")


def verdict_of(row: Mapping[str, Any]) -> tuple[str, Any]:
    """Which of them an advice is."""
    advice = row["advice"]
    begins: list[Any] = [v[1] for v in (WAIT, ASK, LET, FIND, KEEP)]
    said = next((words for words in begins if words in advice["why"]), SAFE[1])
    assert said != SAFE[1] or any(words in advice["why"] for words in SAFE[1])
    return advice["verdict"], said


# state: what the coordinator wrote ("+": with the epoch that transaction.version 2 bumps), minutes until the audit,
# the verdict with the data in the log and below its start, and how the partition stands
STATES = {
    "Ongoing, young": ((), 1, WAIT, WAIT, "waiting"),
    "Ongoing, late": ((), 60, FIND, FIND, "overdue"),
    "PrepareCommit, young": (("PrepareCommit",), 0, KEEP, KEEP, "waiting"),
    "PrepareCommit": (("PrepareCommit",), 60, KEEP, KEEP, "overdue"),
    "PrepareCommit of version 2": (("PrepareCommit+",), 60, KEEP, KEEP, "overdue"),
    "PrepareAbort": (("PrepareAbort",), 60, LET, LET, "overdue"),
    "CompleteCommit": (("PrepareCommit", "CompleteCommit"), 60, COMMIT, SAFE, "stuck"),
    "CompleteCommit of version 2": (("PrepareCommit+", "CompleteCommit+"), 60, COMMIT, SAFE, "stuck"),
    "CompleteAbort": (("PrepareAbort", "CompleteAbort"), 60, SAFE, SAFE, "stuck"),
    "expired after COMMIT": (("PrepareCommit", "CompleteCommit", "expired"), 60, COMMIT, SAFE, "stuck"),
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
    ("investigate_first", SAFE[1]): (
        ("bring a leader of",),
        (f"{ABORT} --topic", MARKER),
    ),  # nobody leads the partition
    ("act", KEEP[1]): (("the leader: put it first",), (f"{ABORT} --topic", MARKER)),  # another replica has the marker
    KEEP: (("an abort would drop records",), (f"{ABORT} --topic", MARKER)),
    COMMIT: (("an abort would drop records", MARKER), (f"{ABORT} --topic",)),
}


def forged(root: Path, state: str, below: bool, replicas: Replicas | None = None) -> Audit:
    """The broker's directory with the coordinator in ``state``; ``below``: the data deleted, its state not.

    ``replicas``: makes the other brokers' directories of it, and lets the controller say who is in sync.
    """
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
            coordinator.state(BUSY, name, producer, time, start=SINCE, timeout=TIMEOUT)
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
    if replicas is not None:
        replicas(lab, time, "Abort" not in state and "ABORT" not in state)
    return opened(root, as_of=time + minutes * MINUTE)


# An option without a value, with a word of the sentence behind it, which would be pasted too.
SWALLOWED = re.compile(
    r"--(?:describe|unavailable-partitions|under-min-isr-partitions|dry-run|execute|print-data-log|reset-offsets) [^-]"
)
COMMANDS = ("terminal", "page", "markdown", "slack", "pagerduty")  # surfaces that show what to paste


def surfaces(audit: Audit, folder: Path) -> dict[str, str]:
    """What people read, by its name, every run of blanks one space; the metrics are written into ``folder``."""
    run, out = run_report(audit), io.StringIO()
    terminal.print_findings(run, out, 80)
    metrics.write_metrics(folder / "metrics.prom", run)
    texts = {
        "terminal": expanded(out.getvalue()),
        "page": report.render_report(run, audit.judged["open"], audit.judged["timeline"]),
        "markdown": "".join(output_formats.rendered("markdown", run.findings, run, {}, "error")),
    }
    for name in ("csv", "sarif", "junit"):
        texts[name] = html.unescape("".join(output_formats.rendered(name, run.findings, run, {}, "error")))
    for row in run.findings:
        texts[f"explain {row['kind']}"] = printing.text(row, 80, run.summary.get("cluster_events"))
    news = alerts.News([row | {"cluster_id": None} for row in run.findings], (), (), None)
    texts["slack"] = json.dumps(alerts.slack(news))
    texts["pagerduty"] = json.dumps(alerts.pagerduty(news, "key"))
    texts["page"] = html.unescape(TAGS.sub("", texts["page"]))
    for row in run.findings:
        pasted = [text for kind, text in pieces(row["remedy"] or "") if kind == "command"]
        assert not [text for text in pasted if SWALLOWED.search(text)], row["kind"]
    return {name: " ".join(text.split()) for name, text in texts.items()}
