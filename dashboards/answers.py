"""The answers that the report opens with: who is blocked, by whom, what is safe to do, what was not seen.

Everything here is drawn from findings, open transactions and the summary; nothing is judged again. What a rule's
findings mean here (who waits, whether an abort would contradict a decision) comes with them, under ``declared``. One
table says what each class of an open transaction (rule catalogue, *Classes of an open transaction*) means.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor.base.advice import WORDS, Advice, Verdict, joined, lead, steps, whole
from auditor.base.at_rest import Fields, Values
from auditor.base.words import plural
from auditor.dashboards.wording import SEVERITIES, Finding, log_name, sentences, size, told, unsaid

# What a class means, in one sentence an on-call engineer understands.
CLASSES = {
    "hanging": "Its coordinator has ended it, or never knew of this partition: no marker will come by itself.",
    "orphan": "No transactional id owns this producer id: nobody will ever end it.",
    "ghost": "Still open in the producer state, although its data lies below the log start.",
    "late": "Open for longer than its time-out; its coordinator still knows it.",
    "undecidable": "Hanging, slow, or ended since it was copied: the input does not show which.",
    "active": "Within its time-out and known to its coordinator: normal, it ends by itself.",
}
# What is shown in place of a class where its partition's standing says more.
KINDS = {
    "undeliverable": "Decided, but nobody leads the partition to take its marker: it does not end by itself.",
} | CLASSES
TRANSACTION_STATE = "__transaction_state"
_ENDS = ("lso", "hw", "log_end")  # of a row of a log
_PRODUCER = ("topic", "partition", "producer_id")
TONES = {
    Verdict.ACT: "act",
    Verdict.WAIT: "wait",
    Verdict.DO_NOT_ACT: "stop",
    Verdict.DO_NOT_ABORT: "stop",
    Verdict.LOOK: "ask",
}
STUCK = ("hanging", "orphan", "ghost")
RED = ("stuck", "overdue", "undeliverable")  # standings of a partition that is blocked


@dataclass(slots=True)
class Open:
    """An open transaction with what was found about it and how far its log has run on.

    ``row`` as handed to the report; ``cluster`` its id, where known; ``brokers`` that hold replicas of it; ``findings``
    about it, those of blocking rules first; ``log``: ``lso``, ``hw`` and ``log_end`` of its log in the summary.
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
    def lso(self) -> int | None:
        """The last stable offset that readers stop at."""
        if self.row.get("last_stable_offset") is not None:
            return int(self.row["last_stable_offset"])
        return (self.log or {}).get("lso", self.row.get("first_offset"))

    @property
    def waiting(self) -> int | None:
        """How many offsets lie between the LSO and how far readers would get but for open transactions, if known; in a
        run of the past up to the high watermark, or the log end where that is not known or lies below the LSO, as a
        killed broker leaves it."""
        log = self.log or {}
        ends = (
            self.row.get("readable_end"),
            self.row.get("high_watermark"),
            log.get("hw"),
            self.row.get("log_end"),
            log.get("log_end"),
        )
        known = [end for end in ends if end is not None]
        if not known or self.lso is None:
            return None
        return max(0, next((end for end in known if end >= self.lso), known[-1]) - self.lso)

    @property
    def standing(self) -> str:
        """How its partition stands, as the audit judged it; by its class where a run of the past does not say."""
        given = self.row.get("standing")
        old = {**dict.fromkeys(STUCK, "stuck"), "late": "overdue", "active": "waiting"}
        return str(given or old.get(self.row["class"], "unknown"))

    @property
    def kind(self) -> str:
        """What every surface calls it, a key of :data:`KINDS`: its class, or its standing, of summary and metrics."""
        if self.standing == "unknown" and self.row["class"] in STUCK:  # a newer copy may show that it has ended
            return "undecidable"
        return self.standing if self.standing in KINDS else str(self.row["class"])

    @property
    def blocks(self) -> bool:
        """Whether its readers are kept waiting for longer than is normal.

        Its standing says so. In a run of the past an error about it does too, or any finding above info, or else its
        class.
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
        """Of the finding about it; of a run of the past, whose rows do not say, of the first one that is known."""
        return self.row.get("fingerprint") or next((f.get("fingerprint") for f in self.findings), None)

    @property
    def left_out(self) -> bool:
        """Whether the rule that reports it was left out, by ``--rule`` or ``--skip-rule``, and no other reports it."""
        return self.blocks and bool(self.row.get("left_out"))

    @property
    def advice(self) -> Values:
        """What to do about it, as a row of :mod:`auditor.base.advice`: its own, with what its finding adds."""
        own = self._own
        mine = [f for f in self.findings if _declared(f, "blocks") and f["topic"] == self.row["topic"]]
        about = [a for f in mine if (a := whole(f.get("advice")))]
        alike = (a for a in about if (a["verdict"], a["cost"]) == (own["verdict"], own["cost"]))
        crossed = own["act"] and about and not any(a["act"] for a in about)  # another finding speaks against its acts
        return about[0] if crossed else next(alike, own)

    @property
    def _own(self) -> Values:
        return whole(self.row.get("advice")) or advise(self.row, self.findings)

    @property
    def lead(self) -> str:
        """The verdict with what it costs, in a sentence."""
        return lead(self.advice)

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        return WORDS[Verdict(self.advice["verdict"])]

    @property
    def tone(self) -> str:
        """How pages colour the verdict."""
        return TONES[Verdict(self.advice["verdict"])]

    @property
    def told(self) -> list[tuple[str, str]]:
        """What to do now, in lines: the verdict, sentences, commands. What is to be done lest it happens again, which
        the finding adds at its end, is left to who has more room."""
        given, own = self.advice, self._own
        if not joined(steps(given)):
            return [("text", self.lead), *sentences(self.remedy)]
        return told({**given, "then": own["then"]} if len(own["act"]) == len(given["act"]) else given, "")

    @property
    def remedy(self) -> str:
        """What stands below the verdict, with the commands to paste; of a run of the past the remedy as it was."""
        if below := joined(steps(self.advice)):
            return below
        about = [f for f in self.findings if _declared(f, "blocks")]
        given = [f.get("remedy") for f in about] + [self.row.get("remedy")] + [f.get("remedy") for f in self.findings]
        text = next((str(text) for text in given if text), "")
        return unsaid(text, str((self.row.get("advice") or {}).get("verdict") or ""))


@dataclass(slots=True)
class Blocked:
    """A partition whose read_committed readers stand still: the transaction that holds it, and how many more do.

    ``behind``: what was found about those others, by offset: readers go on only once they are ended too.
    """

    holder: Open
    others: int = 0
    groups: list[str] = field(default_factory=list)
    behind: list[Finding] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether a baseline accepts all that was found about its being blocked."""
        if (given := self.holder.row.get("accepted")) is not None:
            return bool(given)
        about = [f for f in self.holder.findings if _declared(f, "blocks")]
        return bool(about) and all(f.get("accepted") for f in about)


def open_transactions(transactions: Iterable[Values], findings: Sequence[Finding], summary: Values) -> list[Open]:
    """Every open transaction once (replicas on several brokers joined), with its findings: worst class, oldest
    first."""
    transactions = list(transactions)
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    logs = _logs(summary, map(_log, transactions))
    about = _by_producer(findings)
    found: dict[tuple[Hashable, ...], Open] = {}
    for row in transactions:
        cluster = clusters.get(row.get("log_dir"))
        key = (cluster, *(row[k] for k in ("topic", "partition", "producer_id", "producer_epoch", "first_offset")))
        entry = found.get(key)
        if entry is None:
            entry = found[key] = Open(row, cluster, log=logs.get(_log(row)), findings=_about(row, about))
        if row.get("broker_id") is not None and row["broker_id"] not in entry.brokers:
            entry.brokers.append(row["broker_id"])
    order = list(KINDS)
    return sorted(found.values(), key=lambda o: (order.index(o.kind), -(o.row.get("age_ms") or 0), o.name))


def blocked(transactions: Sequence[Open], findings: Sequence[Finding], summary: Values) -> list[Blocked]:
    """The partitions that a transaction holds, those that are blocked first, then oldest first: the summary's rows.

    A run of the past has none: there those of open transactions that block. A finding of a blocking rule that no open
    transaction was handed in for makes a row of its own.
    """
    held: dict[tuple[str | None, str], list[Open]] = {}
    given = _given(findings, summary)
    for entry in [e for e in transactions if e.blocks] if given is None else given:
        held.setdefault((entry.cluster, entry.name), []).append(entry)
    attached = {id(finding) for entry in (*transactions, *(given or ())) for finding in entry.findings}
    known = {name for _, name in held}
    alone = [
        (((f["evidence"] or {}).get("log_dir"), f["topic"], f["partition"]), f)
        for f in findings
        if _blocks_log(f) and id(f) not in attached and log_name(f) not in known
    ]
    logs = _logs(summary, (log for log, _ in alone))
    for log, finding in alone:
        entry = Open(_as_transaction(finding), findings=[finding], log=logs.get(log))
        held.setdefault((None, log_name(finding)), []).append(entry)
    kept_out: dict[str, set[str]] = {}
    for finding in findings:
        if finding["group_id"] is not None and _declared(finding, "blocks") == "group":
            kept_out.setdefault(log_name(finding), set()).add(str(finding["group_id"]))
    about, rows = _blocking(findings, summary), []
    for (cluster, name), entries in held.items():
        holder = min(entries, key=lambda o: -1 if o.row["first_offset"] is None else o.row["first_offset"])
        groups = sorted(kept_out.get(name, ()))
        given_others = holder.row.get("others")
        others = len({o.row["producer_id"] for o in entries}) - 1 if given_others is None else given_others
        mine = {id(finding) for finding in holder.findings}
        behind = [finding for finding in about.get((cluster, name), ()) if id(finding) not in mine]
        rows.append(Blocked(holder, others, groups, behind if others else []))
    return sorted(rows, key=lambda b: (not b.holder.blocks, -(b.holder.row.get("age_ms") or 0), *_place(b.holder.row)))


def _blocking(findings: Sequence[Finding], summary: Values) -> dict[tuple[str | None, str], list[Finding]]:
    """What was found about the transactions that hold a partition, by cluster and partition, by offset."""
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    found: dict[tuple[str | None, str], list[Finding]] = {}
    for finding in findings:
        if _blocks_log(finding) and finding["offset"] is not None and finding["producer_id"] is not None:
            of = clusters.get((finding["evidence"] or {}).get("log_dir")), log_name(finding)
            found.setdefault(of, []).append(finding)
    return {of: sorted(mine, key=lambda f: f["offset"]) for of, mine in found.items()}


def _place(row: Values) -> tuple[str, int]:
    """Topic and partition, for an order in which partition 2 goes before partition 10."""
    return str(row.get("topic")), -1 if row.get("partition") is None else row["partition"]


def _given(findings: Sequence[Finding], summary: Values) -> list[Open] | None:
    """The rows of the summary's ``blocked`` with their findings; None where the summary has none."""
    if summary.get("blocked") is None:
        return None
    clusters = {row.get("log_dir"): row.get("cluster_id") for row in summary.get("inputs", ())}
    logs, about = _logs(summary, map(_log, summary["blocked"])), _by_producer(findings)
    at_coordinator = _at_coordinator(findings)
    found = []
    for row in summary["blocked"]:
        entry = Open(row, clusters.get(row["log_dir"]), log=logs.get(_log(row)))
        entry.findings = _about(row, about)
        if not any(_declared(f, "blocks") for f in entry.findings):
            entry.findings = [*at_coordinator.get(row["transactional_id"], ()), *entry.findings]
        entry.brokers = [] if row["broker_id"] is None else [row["broker_id"]]
        found.append(entry)
    return found


def advised(finding: Finding) -> tuple[str, str]:
    """How pages colour the verdict of a finding's advice, and the verdict in a word or two; of a finding of the past,
    which has none, both empty."""
    given = whole(finding.get("advice"))
    verdict = Verdict(given["verdict"]) if given else None
    return (TONES[verdict], WORDS[verdict]) if verdict else ("", "")


def advise(row: Values, findings: Sequence[Finding]) -> Values:
    """As :mod:`rules.safety` judges, for a run of the past, whose rows have no advice, and for a finding alone."""
    verdict, cost = _judged(row, findings)
    return Advice(verdict, cost).row()


def _judged(row: Values, findings: Sequence[Finding]) -> tuple[Verdict, str]:
    state, kind = str(row.get("state") or ""), row["class"]
    decided = any(_declared(f, "decided") for f in findings)
    if state == "PrepareCommit" or (state == "CompleteCommit" and decided):
        return Verdict.DO_NOT_ACT, "COMMIT was decided, and an abort would drop records that the client was sure of"
    if state == "PrepareAbort" or decided:
        return Verdict.WAIT, "nothing is lost by it, and consumers wait until its marker is written"
    if kind == "active":
        return Verdict.WAIT, "nothing is lost: it ends by itself, at its time-out at the latest"
    if kind == "late":
        cost = "an abort cuts off one that may still be at work, while waiting costs its readers' time"
        return Verdict.LOOK, f"find its client: {cost}"
    if kind == "undecidable" or any(_unsure(f) for f in findings):
        return Verdict.LOOK, "it may be alive, and an abort then drops records that its client is about to commit"
    return Verdict.ACT, _cost_of_abort(row, state)


def tally(findings: Iterable[Finding], summary: Values) -> dict[str, int]:
    """Findings by severity, worst first, zeros included: the summary's counts, or counted where it has none."""
    given = summary.get("counts", {}).get("by_severity")
    counts = dict.fromkeys(SEVERITIES, 0) | dict(given or {})
    if given is None:
        for finding in unaccepted(findings):
            counts[finding["severity"]] += 1
    return counts


def suppressed(findings: Iterable[Finding], summary: Values) -> dict[str, int]:
    """Findings that a baseline suppresses, by severity: the summary's counts, or counted where it has none."""
    given = ((summary.get("baseline") or {}).get("counts") or {}).get("by_severity")
    if given is None:
        mine = [f["severity"] for f in findings if f.get("accepted")]
        given = {name: mine.count(name) for name in SEVERITIES}
    return {name: given[name] for name in SEVERITIES if given.get(name)}


def unaccepted(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that no baseline accepts."""
    return [f for f in findings if not f.get("accepted")]


def undecided(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that say themselves that they could not be decided, or that rest on what may have been in flight."""
    return [f for f in findings if _unsure(f)]


def missing(findings: Iterable[Finding]) -> list[str]:
    """What the undecided findings name as that which would decide them, each once, in the order given."""
    named: dict[str, None] = {}
    for finding in undecided(findings):
        lacking = (finding.get("evidence") or {}).get("missing") or ()
        items = [lacking] if isinstance(lacking, str) else lacking
        for item in items if isinstance(items, list) else ():
            named[str(item)] = None
    return list(named)


def _unsure(finding: Finding) -> bool:
    evidence = finding.get("evidence") or {}
    said = (evidence.get("confidence"), evidence.get("class"))
    return "undecidable" in said or bool(evidence.get("in_flight"))


def _cost_of_abort(row: Values, state: str) -> str:
    count, volume = row.get("records"), row.get("bytes")
    lost = "the transaction's records" if count is None else plural(count, "record")
    lost += "" if volume is None or volume < 0 else f" ({size(volume)})"  # text dumps do not show sizes
    verb = "becomes" if count == 1 else "become"
    said = f"{lost} {verb} aborted, which read_committed readers never see; nothing committed is touched"
    if state == "CompleteCommit":
        said += "; its last transaction ended in COMMIT, so tell its owner, who may count on them"
    return said


def _log(row: Values) -> tuple[Hashable, ...]:
    """What names the log of a row."""
    return row.get("log_dir"), row["topic"], row["partition"]


def _logs(summary: Values, wanted: Iterable[tuple[Hashable, ...]]) -> dict[tuple[Hashable, ...], Values]:
    """How far each of some logs goes."""
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
    """What was found in the coordinator's log about the open transaction of an id, which no data shows."""
    about: dict[str | None, list[Finding]] = {}
    for finding in findings:
        if finding["topic"] == TRANSACTION_STATE and finding["severity"] != "info" and _declared(finding, "blocks"):
            about.setdefault(finding["transactional_id"], []).append(finding)
    about.pop(None, None)
    return about


def _about(row: Values, about: Mapping[tuple[Hashable, ...], list[Finding]]) -> list[Finding]:
    """Findings at the transaction's own offsets, the blocking rules first, in the order given."""
    mine = [f for f in about.get(tuple(row[key] for key in _PRODUCER), ()) if _overlaps(f, row)]
    return sorted(mine, key=lambda f: not _declared(f, "blocks"))


def _overlaps(finding: Finding, row: Values) -> bool:
    if finding["offset"] is None or row["first_offset"] is None:
        return True
    last = finding["offset"] if finding["last_offset"] is None else finding["last_offset"]
    return bool(last >= row["first_offset"])


def _declared(finding: Finding, name: str) -> Any:
    """What the finding's rule declares; None where the rule is not known (any more)."""
    return (finding.get("declared") or {}).get(name)


def _blocks_log(finding: Finding) -> bool:
    """Whether it says that a log's readers wait: findings that point into ``__transaction_state`` do not.

    Such a finding makes a row of its own where no open transaction was handed in for it.
    """
    speaks = finding["topic"] not in (None, TRANSACTION_STATE) and finding["severity"] != "info"
    return speaks and _declared(finding, "blocks") is not None


def _as_transaction(finding: Finding) -> Fields:
    """What a finding alone says of the transaction that it is about."""
    evidence = finding.get("evidence") or {}
    kind = evidence.get("class")
    return {
        **{key: finding[key] for key in ("broker_id", "topic", "partition", "producer_id", "producer_epoch")},
        **{key: evidence.get(key) for key in ("age_ms", "batches", "records", "bytes")},
        **dict.fromkeys(("at_least", "readers", "since_by_producer", "since_not_before", "since_not_after")),
        "transactional_id": finding["transactional_id"],
        "first_offset": finding["offset"],
        "last_offset": finding["last_offset"],
        "since": finding["timestamp"],
        "class": kind if kind in CLASSES else "undecidable",
        "state": evidence.get("coordinator_state"),
    }
