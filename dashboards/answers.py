"""The verdict of a run, its blocked partitions, and the shapes that pages are made from."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from auditor.base.advice import NOW, WORDS, Advice, Verdict, below, joined, lead, whole
from auditor.base.at_rest import Fields, Values
from auditor.base.evidence_keys import ClassEvidence, Evidence, OpenTransactionEvidence, read
from auditor.base.transactional_ids import COLUMNS
from auditor.base.user_input import was_read
from auditor.base.words import NO_TIMEOUT_MS, duration, few, plural
from auditor.dashboards.wording import (
    GRAVE,
    SEVERITIES,
    Finding,
    advice_lines,
    aged,
    ageless,
    are,
    begun,
    counted,
    instant,
    log_name,
    parsed_time,
    sentences,
    severity_count,
    short_fingerprint,
    size,
    unsaid,
    visible,
    who,
)

# Blocked partitions: what blocks them and what is safe to do.
#
# Everything follows from findings, open transactions and the summary; nothing is judged again. Findings have the
# declarations of their rule (what they block, whether a decision exists) under ``declared``.


# The classes of an open transaction (rule catalogue, *Classes of an open transaction*), in a sentence each.
CLASSES = {
    "hanging": "Its coordinator has completed it, or never knew of this partition: no marker will follow.",
    "orphan": "No transactional id owns this producer id: no coordinator will complete it.",
    "ghost": "Still open in the producer state, although its data is below the log start.",
    "late": "Open past its timeout; its coordinator still knows it.",
    "undecidable": "Hanging, slow, or completed after the copy was taken: the input does not show which.",
    "active": "Within its timeout and known to its coordinator: it ends by itself.",
}
# Standings that are shown instead of the class.
KINDS = {
    "undeliverable": "Decided, but the partition has no leader to write its marker: it does not end by itself."
} | CLASSES
TRANSACTION_STATE = "__transaction_state"
_ENDS = ("lso", "hw", "log_end")  # of a row of a log
_PRODUCER = ("topic", "partition", "producer_id")
TONES = {
    Verdict.SAFE_TO_ABORT: "act",
    Verdict.DO_NOT_ABORT: "stop",
    Verdict.COMMIT_IT: "stop",
    Verdict.INVESTIGATE_FIRST: "ask",
    Verdict.WAIT: "wait",
    Verdict.NOTIFY_OWNER: "ask",
    Verdict.ACT: "act",
    Verdict.NONE: "wait",
}
STUCK = ("hanging", "orphan", "ghost")
RED = ("stuck", "overdue", "undeliverable")  # standings of a partition that is blocked


@dataclass(slots=True)
class Open:
    """An open transaction with its findings and the state of its log.

    ``row``: as given to the report; ``cluster``: its id, if known; ``brokers``: those with replicas of it;
    ``findings``: those of blocking rules first; ``log``: ``lso``, ``hw`` and ``log_end`` of its log in the summary.
    """

    row: Values
    cluster: str | None = None
    brokers: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    log: Values | None = None

    @property
    def name(self) -> str:
        """Topic and partition."""
        return log_name(self.row)

    @property
    def by(self) -> str:
        """Whose transaction it is, in words."""
        return who(self.row) or "an unknown producer"

    @property
    def age(self) -> str:
        """For how long it is open, in words."""
        return aged(self.row)

    @property
    def began(self) -> str:
        """Since when it is open, in words; empty if unknown."""
        return begun(self.row)

    @property
    def status(self) -> str:
        """The status of its partition, in words."""
        return standing_text(self)

    @property
    def readers(self) -> Sequence[str]:
        """Groups that read committed records of its topic."""
        return self.row.get("readers") or ()

    @property
    def lso(self) -> int | None:
        """The last stable offset, where read_committed consumers stop."""
        if self.row.get("last_stable_offset") is not None:
            return int(self.row["last_stable_offset"])
        return (self.log or {}).get("lso", self.row.get("first_offset"))

    @property
    def waiting(self) -> int | None:
        """The number of offsets from the LSO to where consumers could read without open transactions, if known.

        In a run of an earlier release that is the high watermark, or the log end if that is unknown or below the LSO (a
        killed broker leaves it there).
        """
        log = self.log or {}
        ends = (
            self.row.get("readable_end"),
            self.row.get("high_watermark"),
            log.get("hw"),
            self.row.get("log_end"),
            log.get("log_end"),
        )
        ends_known = [end for end in ends if end is not None]
        if not ends_known or self.lso is None:
            return None
        return max(0, next((end for end in ends_known if end >= self.lso), ends_known[-1]) - self.lso)

    @property
    def standing(self) -> str:
        """The status of its partition; derived from its class in a run of a release without it."""
        given = self.row.get("standing")
        old = {**dict.fromkeys(STUCK, "stuck"), "late": "overdue", "active": "waiting"}
        return str(given or old.get(self.row["class"], "unknown"))

    @property
    def certainty(self) -> str:
        """How certain its status is: proved, likely or inconclusive."""
        return str(self.row.get("certainty") or ("inconclusive" if self.standing == "unknown" else "proved"))

    @property
    def kind(self) -> str:
        """The name of its status in all outputs, a key of :data:`KINDS`: its class, or its standing."""
        if self.standing == "unknown" and self.row["class"] in STUCK:  # a newer copy may show that it has ended
            return "undecidable"
        return self.standing if self.standing in KINDS else str(self.row["class"])

    @property
    def blocks(self) -> bool:
        """Whether it blocks consumers for longer than is normal.

        By its standing. In a run of an earlier release also by an error about it, or any finding above info, or else by
        its class.
        """
        if self.row.get("rule") is not None:
            return self.standing in RED
        if self.row.get("standing") is not None:
            errors = [f for f in self.findings if f["severity"] in ("critical", "error") and _declared(f, "blocks")]
            return self.standing in RED or bool(errors)
        if self.findings:
            return any(f["severity"] != "info" for f in self.findings)
        return self.row["class"] in (*STUCK, "late")

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of its finding; in a run of an earlier release that of the first one."""
        return self.row.get("fingerprint") or next((f.get("fingerprint") for f in self.findings), None)

    @property
    def finding_id(self) -> str:
        """The ID of its first finding that has one, else empty."""
        return next((name for f in self.findings if (name := short_fingerprint(f))), "")

    @property
    def left_out(self) -> bool:
        """Whether only a rule excluded by ``--rule`` or ``--skip-rule`` reports it."""
        return self.blocks and bool(self.row.get("left_out"))

    @property
    def advice(self) -> Values:
        """What to do about it, as a row of :mod:`auditor.base.advice`: its own advice, or that of its finding if
        both agree."""
        own = self._own
        blocking = [f for f in self.findings if _declared(f, "blocks") and f["topic"] == self.row["topic"]]
        about = [a for f in blocking if (a := whole(f.get("advice")))]
        alike = (a for a in about if (a["verdict"], a["why"]) == (own["verdict"], own["why"]))
        crossed = _acts(own) and about and not any(map(_acts, about))  # another finding speaks against its steps
        return about[0] if crossed else next(alike, own)

    @property
    def _own(self) -> Values:
        return whole(self.row.get("advice")) or advise(self.row, self.findings)

    @property
    def lead(self) -> str:
        """The verdict with its cost, as a sentence."""
        return lead(self.advice)

    @property
    def word(self) -> str:
        """The verdict in one or two words."""
        return WORDS[Verdict(self.advice["verdict"])]

    @property
    def tone(self) -> str:
        """The colour of the verdict on pages."""
        return TONES[Verdict(self.advice["verdict"])]

    @property
    def steps(self) -> list[tuple[str, str]]:
        """What to do now, as lines: verdict, sentences, commands. Prevention, which the finding adds at its end, is
        omitted."""
        given, own = self.advice, self._own
        if not joined(below(given)):
            return [("text", self.lead), *sentences(self.remedy)]
        same = len(own["steps"]) == len(given["steps"])
        return advice_lines({**given, "afterwards": own["afterwards"]} if same else given, "")

    @property
    def remedy(self) -> str:
        """The steps below the verdict with their commands; in a run of an earlier release its remedy."""
        if rest := joined(below(self.advice)):
            return rest
        about = [f for f in self.findings if _declared(f, "blocks")]
        given = [f.get("remedy") for f in about] + [self.row.get("remedy")] + [f.get("remedy") for f in self.findings]
        text = next((str(text) for text in given if text), "")
        return unsaid(text, str((self.row.get("advice") or {}).get("verdict") or ""))


@dataclass(slots=True)
class BlockedSummary:
    """A partition with blocked read_committed consumers: its first open transaction and the number of other ones.

    ``behind``: findings about the others, by offset; consumers stay blocked until these end, too.
    """

    holder: Open
    others: int = 0
    groups: list[str] = field(default_factory=list)
    behind: list[Finding] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether a baseline suppresses all findings about it."""
        if (given := self.holder.row.get("accepted")) is not None:
            return bool(given)
        about = [f for f in self.holder.findings if _declared(f, "blocks")]
        return bool(about) and all(f.get("accepted") for f in about)


def open_transactions(transactions: Iterable[Values], findings: Sequence[Finding], summary: Values) -> list[Open]:
    """Return each open transaction once (replicas joined) with its findings: the worst class, then the oldest first."""
    transactions = list(transactions)
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    logs = _logs(summary, map(_log, transactions))
    about = _by_producer(findings)
    entries: dict[tuple[Hashable, ...], Open] = {}
    for row in transactions:
        cluster = clusters.get(row.get("log_dir"))
        key = (cluster, *(row[k] for k in ("topic", "partition", "producer_id", "producer_epoch", "first_offset")))
        entry = entries.get(key)
        if entry is None:
            entry = entries[key] = Open(row, cluster, log=logs.get(_log(row)), findings=_about(row, about))
        if row.get("broker_id") is not None and row["broker_id"] not in entry.brokers:
            entry.brokers.append(row["broker_id"])
    order = list(KINDS)
    return sorted(entries.values(), key=lambda o: (order.index(o.kind), -(o.row.get("age_ms") or 0), o.name))


def blocked(transactions: Sequence[Open], findings: Sequence[Finding], summary: Values) -> list[BlockedSummary]:
    """Return the partitions with an open transaction, blocked ones first, then the oldest: the rows of the summary.

    A run of an earlier release has no such rows: there they are made of the open transactions that block. A finding of
    a blocking rule without an open transaction makes a row of its own.
    """
    by_partition: dict[tuple[str | None, str], list[Open]] = {}
    given = _given(findings, summary)
    for entry in [e for e in transactions if e.blocks] if given is None else given:
        by_partition.setdefault((entry.cluster, entry.name), []).append(entry)
    attached = {id(finding) for entry in (*transactions, *(given or ())) for finding in entry.findings}
    listed_names = {name for _, name in by_partition}
    alone = [
        ((read(Evidence, f["evidence"]).get("log_dir"), f["topic"], f["partition"]), f)
        for f in findings
        if _blocks_log(f) and id(f) not in attached and log_name(f) not in listed_names
    ]
    logs = _logs(summary, (log for log, _ in alone))
    for log, finding in alone:
        entry = Open(_as_transaction(finding), findings=[finding], log=logs.get(log))
        by_partition.setdefault((None, log_name(finding)), []).append(entry)
    kept_out: dict[str, set[str]] = {}
    for finding in findings:
        if finding["group_id"] is not None and _declared(finding, "blocks") == "group":
            kept_out.setdefault(log_name(finding), set()).add(str(finding["group_id"]))
    about, rows = _blocking(findings, summary), []
    for (cluster, name), entries in by_partition.items():
        holder = min(entries, key=lambda o: -1 if o.row["first_offset"] is None else o.row["first_offset"])
        groups = sorted(kept_out.get(name, ()))
        given_others = holder.row.get("others")
        others = len({o.row["producer_id"] for o in entries}) - 1 if given_others is None else given_others
        holder_findings = {id(finding) for finding in holder.findings}
        behind = [finding for finding in about.get((cluster, name), ()) if id(finding) not in holder_findings]
        rows.append(BlockedSummary(holder, others, groups, behind if others else []))
    return sorted(rows, key=lambda b: (not b.holder.blocks, -(b.holder.row.get("age_ms") or 0), *_place(b.holder.row)))


def _blocking(findings: Sequence[Finding], summary: Values) -> dict[tuple[str | None, str], list[Finding]]:
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    by_partition: dict[tuple[str | None, str], list[Finding]] = {}
    for finding in findings:
        if _blocks_log(finding) and finding["offset"] is not None and finding["producer_id"] is not None:
            of = clusters.get(read(Evidence, finding["evidence"]).get("log_dir")), log_name(finding)
            by_partition.setdefault(of, []).append(finding)
    return {of: sorted(rows, key=lambda f: f["offset"]) for of, rows in by_partition.items()}


def _place(row: Values) -> tuple[str, int]:
    # Partition 2 sorts before partition 10.
    return str(row.get("topic")), -1 if row.get("partition") is None else row["partition"]


def _given(findings: Sequence[Finding], summary: Values) -> list[Open] | None:
    # None if the summary has no such rows.
    if summary.get("blocked") is None:
        return None
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    logs, about = _logs(summary, map(_log, summary["blocked"])), _by_producer(findings)
    at_coordinator = _at_coordinator(findings)
    entries = []
    for row in summary["blocked"]:
        entry = Open(row, clusters.get(row["log_dir"]), log=logs.get(_log(row)))
        entry.findings = _about(row, about)
        if not any(_declared(f, "blocks") for f in entry.findings):
            entry.findings = [*at_coordinator.get(row["transactional_id"], ()), *entry.findings]
        entry.brokers = [] if row["broker_id"] is None else [row["broker_id"]]
        entries.append(entry)
    return entries


def advised(finding: Finding) -> tuple[str, str]:
    """Return the colour and the words of a finding's verdict; both empty for a finding without advice."""
    given = whole(finding.get("advice"))
    verdict = Verdict(given["verdict"]) if given else None
    return (TONES[verdict], WORDS[verdict]) if verdict else ("", "")


def advise(row: Values, findings: Sequence[Finding]) -> Values:
    """Return an advice as :mod:`rules.safety` gives it, for rows of earlier releases without one, and for a finding
    alone."""
    verdict, cost = _judged(row, findings)
    return Advice(verdict, cost).row()


def _judged(row: Values, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    state, kind = str(row.get("state") or ""), row["class"]
    decided = any(_declared(f, "decided") for f in findings)
    if state == "PrepareCommit" or (state == "CompleteCommit" and decided):
        return Verdict.DO_NOT_ABORT, "aborting would lose records that the client was told are committed"
    if state == "PrepareAbort" or decided:
        return Verdict.WAIT, "nothing is lost; consumers stay blocked until its marker is written"
    if kind == "active":
        return Verdict.WAIT, "nothing is lost: it ends by itself, at its timeout at the latest"
    if kind == "late":
        cost = "aborting kills its transaction; waiting keeps consumers blocked"
        return Verdict.INVESTIGATE_FIRST, f"is the client still running? {cost}"
    if kind == "undecidable" or any(_unsure(f) for f in findings):
        lost = "aborting would lose records that its client is about to commit"
        return Verdict.INVESTIGATE_FIRST, f"its client may still be running, and {lost}"
    return Verdict.SAFE_TO_ABORT, _cost_of_abort(row, state)


def _acts(advice: Values) -> bool:
    return bool(advice["steps"]) and advice["verdict"] in NOW


def tally(findings: Iterable[Finding], summary: Values) -> dict[str, int]:
    """Return the number of findings by severity, with zeros: the summary's counts, or counted if it has none."""
    given = summary.get("counts", {}).get("by_severity")
    counts = dict.fromkeys(SEVERITIES, 0) | dict(given or {})
    if given is None:
        for finding in unaccepted(findings):
            counts[finding["severity"]] += 1
    return counts


def suppressed_findings(findings: Iterable[Finding], summary: Values) -> dict[str, int]:
    """Return the number of suppressed findings by severity: the summary's counts, or counted if it has none."""
    given = ((summary.get("baseline") or {}).get("counts") or {}).get("by_severity")
    if given is None:
        severities = [f["severity"] for f in findings if f.get("accepted")]
        given = {name: severities.count(name) for name in SEVERITIES}
    return {name: given[name] for name in SEVERITIES if given.get(name)}


def unaccepted(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that no baseline suppresses."""
    return [f for f in findings if not f.get("accepted")]


def undecided(findings: Iterable[Finding]) -> list[Finding]:
    """Return the inconclusive findings, and those that may be due to writes in flight."""
    return [f for f in findings if _unsure(f)]


def missing(findings: Iterable[Finding]) -> list[str]:
    """Return the evidence that inconclusive findings lack, each once, in the order given."""
    named: dict[str, None] = {}
    for finding in undecided(findings):
        lacking = read(Evidence, finding.get("evidence")).get("missing") or ()
        items = [lacking] if isinstance(lacking, str) else lacking
        for item in items if isinstance(items, list) else ():
            named[str(item)] = None
    return list(named)


def _unsure(finding: Finding) -> bool:
    evidence = read(Evidence, finding.get("evidence"))
    labels = (evidence.get("confidence"), read(ClassEvidence, finding.get("evidence")).get("class"))
    return "undecidable" in labels or bool(evidence.get("in_flight"))


def _cost_of_abort(row: Values, state: str) -> str:
    count, volume = row.get("records"), row.get("bytes")
    lost = "the transaction's records" if count is None else plural(count, "record")
    lost += "" if volume is None or volume < 0 else f" ({size(volume)})"  # text dumps do not show sizes
    sentence = f"discards {lost} of the open transaction, and no committed record"
    if state == "CompleteCommit":
        sentence += ". Notify the owner: the id's last transaction was committed, so the application may need them"
    return sentence


def _log(row: Values) -> tuple[Hashable, ...]:
    return row.get("log_dir"), row["topic"], row["partition"]


def _logs(summary: Values, wanted: Iterable[tuple[Hashable, ...]]) -> dict[tuple[Hashable, ...], Values]:
    keys = set(wanted)
    rows = summary.get("logs", ()) if keys else ()
    return {key: {name: row[name] for name in _ENDS if name in row} for row in rows if (key := _log(row)) in keys}


def _by_producer(findings: Iterable[Finding]) -> dict[tuple[Hashable, ...], list[Finding]]:
    about: dict[tuple[Hashable, ...], list[Finding]] = {}
    for finding in findings:
        if finding["producer_id"] is not None and finding["topic"] is not None:
            about.setdefault(tuple(finding[key] for key in _PRODUCER), []).append(finding)
    return about


def _at_coordinator(findings: Iterable[Finding]) -> dict[str | None, list[Finding]]:
    # Findings in the coordinator's log about the open transaction of an id that no data shows.
    about: dict[str | None, list[Finding]] = {}
    for finding in findings:
        if finding["topic"] == TRANSACTION_STATE and finding["severity"] != "info" and _declared(finding, "blocks"):
            about.setdefault(finding["transactional_id"], []).append(finding)
    about.pop(None, None)
    return about


def _about(row: Values, about: Mapping[tuple[Hashable, ...], list[Finding]]) -> list[Finding]:
    overlapping = [f for f in about.get(tuple(row[key] for key in _PRODUCER), ()) if _overlaps(f, row)]
    return sorted(overlapping, key=lambda f: not _declared(f, "blocks"))


def _overlaps(finding: Finding, row: Values) -> bool:
    if finding["offset"] is None or row["first_offset"] is None:
        return True
    last = finding["offset"] if finding["last_offset"] is None else finding["last_offset"]
    return bool(last >= row["first_offset"])


def _declared(finding: Finding, name: str) -> Any:
    # None if the rule no longer exists.
    return (finding.get("declared") or {}).get(name)


def _blocks_log(finding: Finding) -> bool:
    # Findings in __transaction_state name no log that is blocked.
    speaks = finding["topic"] not in (None, TRANSACTION_STATE) and finding["severity"] != "info"
    return speaks and _declared(finding, "blocks") is not None


def _as_transaction(finding: Finding) -> Fields:
    evidence = read(OpenTransactionEvidence, finding.get("evidence"))
    kind = evidence.get("class")
    return {
        **{key: finding[key] for key in ("broker_id", "topic", "partition", "producer_id", "producer_epoch")},
        "age_ms": evidence.get("age_ms"),
        "batches": evidence.get("batches"),
        "records": evidence.get("records"),
        "bytes": evidence.get("bytes"),
        **{name: evidence.get(name) for name in COLUMNS},
        **dict.fromkeys(("at_least", "readers", "since_by_producer", "since_not_before", "since_not_after")),
        "transactional_id": finding["transactional_id"],
        "first_offset": finding["offset"],
        "last_offset": finding["last_offset"],
        "since": finding["timestamp"],
        "class": kind if kind in CLASSES else "undecidable",
        "state": evidence.get("coordinator_state"),
    }


# The verdict of a run, for headline, terminal and metrics; the exit code follows from the same rows.
# It depends on the rows of ``blocked`` in the summary and on the outcomes of critical and error findings.


OLD_COPY_MS = 3_600_000  # the age of older copies is shown
LOST, BLOCKED, NO_OUTCOME = "lost", "blocked", "none"  # outcomes
# What is affected by the other outcomes (:data:`auditor.dashboards.wording.OUTCOMES`), and how; the worst first.
AFFECTED = {
    LOST: ("record", "lost"),
    "hidden": ("committed record", "hidden"),
    "exposed": ("aborted record", "exposed"),
    "duplicated": ("record", "duplicated"),
    "reordered": ("record", "out of order"),
    "unreadable": ("record", "unreadable"),
    "refused": ("write", "refused"),
    "at_risk": ("record", "at risk"),
}
IN_FULL = 2  # outcomes that a headline gives with numbers; the others are named

STANDINGS = {
    "stuck": "hanging: no coordinator will complete it",
    "overdue": "overdue: open past its timeout",
    "undeliverable": "prepared: the partition has no leader to write its marker",
    "unknown": "unknown: the input shows neither its age nor whether it is still open",
    "waiting": "open: within its timeout, ends by itself",
}


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict of a run.

    ``tone``: bad, warn, unsure or good; good only if ``open``, the number of critical and error findings that no
    baseline suppresses, is 0. ``outcomes``: how many of them have which, the worst first; ``affected``: those with one
    of :data:`AFFECTED`. ``held``: blocked partitions; ``named``: partitions with an open transaction that is within its
    timeout or of unknown status; ``accepted``: blocked partitions that the baseline suppresses. ``suppressed``:
    suppressed findings by severity. ``lacking``: which replicas that the metadata names are missing from the input,
    and how many findings are inconclusive that would be critical or error, in words: nothing is green then.
    """

    tone: str
    headline: str
    affected: Sequence[Finding]
    held: Sequence[BlockedSummary]
    named: Sequence[BlockedSummary]
    accepted: Sequence[BlockedSummary] = ()
    open: int = 0
    suppressed: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    lacking: str = ""

    @property
    def calm(self) -> str:
        """The colour of a card with nothing to report."""
        return "unsure" if self.open or self.tone == "unsure" or self.lacking else "good"

    @property
    def lost(self) -> Sequence[Finding]:
        """The findings about lost records, which precede blocked partitions."""
        return [f for f in self.affected if f["outcome"] == LOST]


def decide(
    rows: Sequence[BlockedSummary], findings: Sequence[Finding], counts: Mapping[str, int], summary: Values
) -> RunVerdict:
    """Return the verdict. ``rows``: those of :func:`blocked`; ``counts``: findings by severity."""
    grave = [f for f in unaccepted(findings) if f["severity"] in GRAVE]
    affected = sorted((f for f in grave if f.get("outcome") in AFFECTED), key=badness)
    accepted = [row for row in rows if row.holder.blocks and row.accepted]
    blocked_rows = [row for row in rows if row.holder.blocks and not row.accepted and not row.holder.left_out]
    named = [row for row in rows if not row.holder.blocks or (row.holder.left_out and not row.accepted)]
    waits = [f for f in grave if f.get("outcome") == BLOCKED]
    outcomes = _outcomes(affected, blocked_rows, waits)
    tone, headline = _headline(outcomes, grave, named, counts, summary)
    if any((suppressed := suppressed_findings(findings, summary)).values()):
        headline = headline.replace("No problems", "No other problems").replace("no problems", "no other problems")
        headline += f"; {counted(suppressed)} suppressed by the baseline"
    if accepted:
        headline += f"; {plural(len(accepted), 'partition')} blocked (suppressed by the baseline)"
    if damaged := [row["kind"] for row in summary.get("coverage") or () if row["state"] == "damaged"]:
        headline += f"; damaged: {visible(', '.join(damaged))}"
    if scope_text := _scope(summary.get("scope") or {}):
        headline += f"; {scope_text}"
    doubted = sum(f["severity"] not in GRAVE and f.get("if_true") in GRAVE for f in unaccepted(findings))
    doubt = f"{plural(doubted, 'inconclusive finding')} (critical or error if confirmed)" if doubted else ""
    lacking = _lacking(summary.get("scope") or {})
    unsure = [*filter(None, (lacking, doubt if tone in ("good", "warn") else "", summary.get("unchecked")))]
    if unsure and tone == "good":  # what is unknown precedes what was not found
        tone, headline, unsure = "unsure", unsure[0], [*unsure[1:], headline[:1].lower() + headline[1:]]
    headline = "; ".join([headline[:1].upper() + headline[1:], *unsure])
    open_count = sum(counts.get(name, 0) for name in GRAVE)
    of_findings = Counter(f.get("outcome") for f in grave)
    by_outcome = {name: of_findings[name] for name in (LOST, BLOCKED, *AFFECTED, NO_OUTCOME) if of_findings[name]}
    return RunVerdict(
        tone,
        headline,
        affected,
        blocked_rows,
        named,
        accepted,
        open_count,
        suppressed,
        by_outcome,
        "; ".join(filter(None, (lacking, doubt))),
    )


def badness(finding: Finding) -> int:
    """The place of a finding's outcome among those of :data:`AFFECTED`, the worst first; their number for others."""
    known = finding["severity"] in GRAVE and finding.get("outcome") in AFFECTED
    return list(AFFECTED).index(finding["outcome"]) if known else len(AFFECTED)


@dataclass(frozen=True)
class RunReport:
    """A run as the page, the terminal, metrics, formats and the API show it. :func:`report_of` makes it.

    ``findings``: the fields of :data:`FINDING`, with what their kinds declare and what accepts them; ``summary``: what
    summary.json holds; ``full``: the same with every key. The rest is worked out once, when it is first asked for.
    """

    findings: Sequence[Finding]
    summary: Fields
    full: Fields

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Findings by severity, without suppressed ones."""
        return tally(self.findings, self.full)

    @cached_property
    def blocked(self) -> Sequence[BlockedSummary]:
        """The partitions with an open transaction."""
        return blocked((), self.findings, self.full)

    @cached_property
    def verdict(self) -> RunVerdict:
        """The verdict with its rows."""
        return decide(self.blocked, self.findings, self.counts, self.full)


def report_of(findings: Iterable[Values], given: Fields) -> RunReport:
    """Return the report of a run; keys that findings or summary lack are null."""
    return RunReport(with_all_keys(findings, FINDING), given, summary(given))


def _outcomes(
    affected: Sequence[Finding], blocked_rows: Sequence[BlockedSummary], waits: Sequence[Finding]
) -> list[tuple[str, str]]:
    # A clause per outcome with its word, the worst first. ``waits``: of blocked partitions, some without a row.
    held = f"{plural(len(blocked_rows), 'partition')} blocked"
    partitions = {(f["topic"], f["partition"]) for f in waits}
    if not blocked_rows:
        held = f"consumers or producers blocked in {plural(len(partitions), 'partition')}" if waits else ""
    clauses = [
        (affected_text([f for f in affected if f["outcome"] == outcome]), word)
        for outcome, (_, word) in AFFECTED.items()
    ]
    return [(text, word) for text, word in (clauses[0], (held, BLOCKED), *clauses[1:]) if text]


def affected_text(findings: Sequence[Finding]) -> str:
    """Return the number of affected records and partitions of findings with one outcome; empty without findings."""
    if not findings:
        return ""
    what, word = AFFECTED[findings[0]["outcome"]]
    numbers: dict[tuple[Hashable, ...], int | None] = {}  # once where several replicas have the same records
    for f in findings:
        evidence = read(Evidence, f["evidence"])
        number = evidence.get("records") or evidence.get("missing_records") or evidence.get("missing_offsets")
        numbers[f["topic"], f["partition"], f["offset"]] = number
    known = [number for number in numbers.values() if number is not None]
    many = sum(known) if len(known) == len(numbers) else None
    subject = f"{what}s" if many is None else plural(many, what)
    return f"{subject} {word} in {plural(len({place[:2] for place in numbers}), 'partition')}"


def _headline(
    outcomes: Sequence[tuple[str, str]],
    grave: Sequence[Finding],
    named: Sequence[BlockedSummary],
    counts: Mapping[str, int],
    summary: Values,
) -> tuple[str, str]:
    bad = {name: count for name, count in counts.items() if count and name in GRAVE}
    if outcomes:
        is_bad = "critical" in bad or outcomes[0][1] in (LOST, BLOCKED)
        also = [f"also {', '.join(word for _, word in outcomes[IN_FULL:])}"] if len(outcomes) > IN_FULL else []
        headline = "; ".join([*(text for text, _ in outcomes[:IN_FULL]), *also])
        return "bad" if is_bad else "warn", headline[:1].upper() + headline[1:]
    if bad:
        numbers = ", ".join(severity_count(name, count) for name, count in bad.items())
        return "bad" if "critical" in bad else "warn", f"{numbers}: {_rules(grave)}" if grave else numbers
    unknown = [row for row in named if row.holder.standing == "unknown"]
    left_out = [row for row in named if row.holder.left_out]
    named = [row for row in named if not row.holder.left_out]
    if left_out:
        return "unsure", f"{plural(len(left_out), 'partition')} blocked (reported only by excluded rules)"
    if unknown:
        ages = any(ageless(row.holder.row) for row in unknown)
        who = "it was" if len(unknown) == 1 else "they were"
        lacking = "age unknown" if ages else f"copy taken while {who} running"
        return "unsure", f"{plural(len(unknown), 'open transaction')}: status unknown ({lacking})"
    if empty := summary.get("empty_input"):
        reason = empty[:1].upper() + empty[1:]
        return "unsure", f"{reason}; {plural(counts['warning'], 'warning')}" if counts.get("warning") else reason
    if summary["unreadable"] or summary["bytes"]["unreadable"]:
        if not summary["batches"] and summary["bytes"]["unreadable"] == summary["bytes"]["total"]:
            return "unsure", "The input is unreadable"
        judged = any(row["reason"] != "not_judged" for row in summary["unreadable"])
        why = "damaged" if summary.get("complete") else "unreadable" if judged else "not checked"
        return "unsure", f"Part of the input is {why}; no problems in the rest"
    some = f"{plural(len(named), 'partition')} {'has' if len(named) == 1 else 'have'} open transactions"
    wait = f"; {some} (within timeout)" if named else ""
    if counts.get("warning"):
        return "warn", f"{plural(counts['warning'], 'warning')}{wait}"
    unlooked = (summary.get("scope") or {}).get("without_records")
    return "unsure" if unlooked else "good", f"No problems found{wait}"


def _rules(findings: Sequence[Finding]) -> str:
    rules = list(dict.fromkeys(str(f["rule"]).replace("-", " ") for f in findings))
    more = f" and {plural(len(rules) - IN_FULL, 'more rule')}" if len(rules) > IN_FULL else ""
    return ", ".join(rules[:IN_FULL]) + more


def _scope(scope: Values) -> str:
    clauses = []
    if left_out := scope.get("rules_left_out"):
        clauses.append(f"{left_out} of {plural(left_out + scope['rules'], 'rule')} excluded")
    asked = (scope.get(name) for name in ("topics", "partitions", "brokers", "since"))
    if read := was_read(*asked):
        clauses.append(visible(read))
    left = scope.get("left_out") or {}
    if left.get("copies"):
        clauses.append(f"{plural(left['copies'], 'replica')} excluded")
    if left.get("without_state"):
        many = plural(left["without_state"], "replica")
        clauses.append(f"earlier open transactions of {many} unknown (no producer snapshot)")
    if unlooked := scope.get("without_records"):
        clauses.append(f"records of {plural(unlooked, 'batch')} not checked (copied without --records)")
    return ", and ".join(clauses)


def _lacking(scope: Values) -> str:
    absent, lacking = scope.get("absent_brokers") or (), scope.get("not_in_input")
    who = f"broker{'s' * (len(absent) > 1)} {few(absent)} {are(len(absent))} not in the input" if absent else ""
    what = f"{plural(lacking, 'replica')} of these brokers {are(lacking)} not in the input" if lacking else ""
    return ", and ".join(filter(None, (who, what)))


def clock(summary: Values, now: datetime.datetime | None = None) -> str:
    """Return the evaluation time and the age of the copy in words. ``now``: the system time, None for reproducible
    text."""
    text = f"Evaluated at {instant(summary['as_of'])}"
    newest, as_of = parsed_time(summary["newest"]), parsed_time(summary["as_of"])
    if summary["as_of"] is None or (not summary["as_of_given"] and as_of is not None and as_of.timestamp() == 0):
        return "Evaluation time unknown: the input has no broker timestamp"
    chosen = newest is not None and not summary["as_of_given"]
    until = now if chosen else as_of
    old = 0 if newest is None or until is None else int((until - newest).total_seconds() * 1000)
    if not chosen:
        return f"{text}; the copy is {duration(old)} old" if old > OLD_COPY_MS else text
    ago = f" ({duration(old)} ago)" if old > OLD_COPY_MS else ""
    return f"{text}, the newest broker timestamp in the copy{ago}. Use --as-of now for the current time."


def standing_text(holder: Open) -> str:
    """Return the status of a partition in words; if its age is known, what is unknown is whether that is normal."""
    row, standing = holder.row, holder.standing
    if standing == "unknown" and row["class"] in STUCK:
        return "unknown: hanging, or its marker was written after this log was copied (re-check with a newer copy)"
    if standing == "unknown" and not ageless(row):
        lacking = "" if row.get("timeout_ms") else "its timeout, or "
        return f"unknown: the input does not show {lacking}whether it is still open"
    if standing in ("waiting", "overdue") and row.get("timeout_ms") == NO_TIMEOUT_MS:
        return "no timeout (two-phase commit): only its application can end it"
    if standing == "waiting" and holder.blocks:
        return "open: within its timeout, which is longer than consumers should wait"
    return f"probably {STANDINGS[standing]}" if holder.certainty == "likely" else STANDINGS[standing]


# The shapes that pages are made from, complete with nulls: a key that a run could not fill must not fail the report.
# Templates are strict: a name that is not listed here raises.


FINDING = (
    "rule", "kind", "fingerprint", "if_true", "severity", "outcome", "broker_id", "topic", "partition", "offset",
    "last_offset", "producer_id", "producer_epoch", "transactional_id", "group_id", "timestamp", "file", "position",
    "message", "evidence", "remedy", "advice", "source",
)  # fmt: skip
TRANSACTION = (
    "log_dir", "broker_id", "topic", "partition", "producer_id", "producer_epoch", "transactional_id", "class",
    "first_offset", "last_offset", "since", "since_by_producer", "since_not_before", "since_not_after", "age_ms",
    "state", "batches", "records", "bytes", "status", "certainty", "standing", "at_least", "held_at_least_ms", "advice",
    "readers", *COLUMNS,
)  # fmt: skip
TIMELINE = ("log_dir", "topic", "partition", "broker_id", "log_start", "log_end", "readable_end", "lso", "truncated")
BAR = (
    "producer_id", "producer_epoch", "first_offset", "last_offset", "marker_offset", "outcome", "start", "end", "class",
    "status",
)  # fmt: skip
SUMMARY = (
    "as_of", "as_of_given", "newest", "baseline", "batches", "records", "empty_input", "capacity", "expectations",
    "ran", "scope", "prevention", "unchecked", "impact", "rehearsal",
)  # fmt: skip
BLOCKED_ROW = (
    "log_dir", "broker_id", "topic", "partition", "last_stable_offset", "high_watermark", "log_end", "readable_end",
    "producer_id", "producer_epoch", "transactional_id", "first_offset", "last_offset", "since", "since_by_producer",
    "since_not_before", "since_not_after", "age_ms", "at_least", "held_at_least_ms", "timeout_ms", "beyond_timeout",
    "late_if_open", "class", "state", "why", "status", "certainty", "standing", "severity", "if_true", "rule",
    "fingerprint", "accepted", "left_out", "others", "batches", "records", "bytes", "advice", "remedy", "readers",
    *COLUMNS,
)  # fmt: skip
ASIDE = (
    "about", "topic", "partition", "broker_id", "bytes", "says", "group_id", "committed_records", "committed_most",
    "waiting_records", "open_records", "offsets", "undecided",
)  # fmt: skip
LOG = ("log_dir", "topic", "partition", "broker_id", "log_start", "log_end", "hw", "lso", "offsets", "chain")
_LISTS = {
    "policy": ("log_dir", "policy", "why"),
    "clusters": ("cluster_id", "name", "owner", "link", "labels"),
    "inputs": ("log_dir", "cluster_id", "broker_id", "files", "bytes"),
    "skipped": ("reason", "files", "bytes", "example"),
    "unreadable": ("log_dir", "file", "position", "length", "reason", "detail"),
    "blocked": BLOCKED_ROW,
    "recovery": ("log_dir", "starts", "truncates", "poison", "repairs", "next_release", "says"),
    "cluster_events": ("topic", "partition", "events", "left_out"),
    "asides": ASIDE,
}
_OFFSETS = ("data", "marker", "aborted", "compacted", "remote", "missing", "total")


def with_all_keys(rows: Iterable[Values], keys: Iterable[str]) -> list[Fields]:
    """Return each row with all of ``keys``, null where it lacks one."""
    empty = dict.fromkeys(keys)
    return [{**empty, **row} for row in rows]


def summary(given: Values) -> Fields:
    """Return a summary with every key that the report shows: null, or empty for lists, where it lacks one.

    Rows of logs, of which there may be a million, are completed one by one by :func:`log`.
    """
    full: Fields = {**dict.fromkeys(SUMMARY), **given}
    full["counts"] = dict(given.get("counts") or {})
    for key, keys in _LISTS.items():
        full[key] = with_all_keys(given.get(key) or (), keys)
    full["logs"] = given.get("logs") or ()
    full["blocked"] = full["blocked"] if "blocked" in given else None  # unknown in earlier releases
    if full["expectations"]:
        full["expectations"] = _expectations(full["expectations"])
    full["tool"] = {"name": "auditor", "version": "", **(given.get("tool") or {})}
    full["bytes"] = {"total": 0, "decoded": 0, "skipped": 0, "unreadable": 0, **(given.get("bytes") or {})}
    full["notes"], full["timings"] = list(given.get("notes") or ()), dict(given.get("timings") or {})
    return full


def log(given: Values) -> Fields:
    """Return a row of the summary's logs with every key that the report shows."""
    row = {**dict.fromkeys(LOG), **given}
    if row["offsets"]:
        row["offsets"] = {**dict.fromkeys(_OFFSETS, 0), **row["offsets"]}
    if row["chain"]:
        row["chain"] = {"snapshots": None, "proved": None, "fraction": None, "broken": [], **row["chain"]}
    return row


def _expectations(given: Values) -> Fields:
    # In an earlier release failed ones were sentences.
    failing = [row if isinstance(row, Mapping) else {"says": row} for row in given.get("failing") or ()]
    keys = {"severity": "error", **dict.fromkeys(("suite", "says", "rows", "broken", "where", "error"))}
    return {"evaluated": 0, "failed": 0, "passing": [], **given, "failing": [{**keys, **row} for row in failing]}


def timeline(given: Values) -> Fields:
    """Return a timeline with all keys, also of its transactions."""
    row: Fields = {**dict.fromkeys(TIMELINE), "readable_end": given.get("log_end"), **given}  # new in this release
    row["transactions"] = with_all_keys(row.get("transactions") or (), BAR)
    return row
