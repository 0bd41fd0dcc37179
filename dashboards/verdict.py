"""One verdict for the headline, the first lines of the terminal and the metrics; the exit status follows the same rows.

It goes by ``blocked`` of the summary, where each row says how its partition stands (:class:`rules.blocking.Standing`),
and by the findings' severities. Loss of acknowledged records comes before any block.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from auditor.base.at_rest import Values
from auditor.base.user_input import was_read
from auditor.base.words import NO_TIMEOUT_MS, duration, plural
from auditor.dashboards import answers
from auditor.dashboards.answers import Blocked, unaccepted
from auditor.dashboards.wording import GRAVE, Finding, instant, visible

BACK = 3  # entries of a baseline that are named
OLD_COPY_MS = 3_600_000  # from here on the age of the copy is said
LOST, BLOCKED = "lost", "blocked"  # outcomes
LOSSES = {LOST: "lost", "unreadable": "unreadable", "at_risk": "at risk"}  # outcomes of lost data, the worst first

# What a standing means, in a few words.
STANDINGS = {
    "stuck": "nobody will end it",
    "overdue": "beyond its time-out",
    "undeliverable": "decided, but nobody leads the partition to take its marker",
    "unknown": "nothing in the input shows how long, or whether it is open still",
    "waiting": "within its time-out: normal, it ends by itself",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """``tone``: bad, warn, unsure or good; good only if ``open``, the number of critical and error findings that no
    baseline suppresses, is 0. ``lost``: those of them about records that are lost, unreadable or at risk. ``held``: who
    is blocked; ``named``: partitions that are held, but not for longer than is normal or known; ``accepted``: those
    whose being blocked a baseline accepts. ``suppressed``: findings that a baseline suppresses, by severity."""

    tone: str
    headline: str
    lost: Sequence[Finding]
    held: Sequence[Blocked]
    named: Sequence[Blocked]
    accepted: Sequence[Blocked] = ()
    open: int = 0
    suppressed: Mapping[str, int] = field(default_factory=dict)


def decide(rows: Sequence[Blocked], findings: Sequence[Finding], counts: Mapping[str, int], summary: Values) -> Verdict:
    """The verdict on a run: ``rows`` are those of ``answers.blocked``, ``counts`` the findings by severity."""
    lost = [f for f in unaccepted(findings) if is_loss(f)]
    accepted = [row for row in rows if row.holder.blocks and row.accepted]
    held = [row for row in rows if row.holder.blocks and not row.accepted and not row.holder.left_out]
    named = [row for row in rows if not row.holder.blocks or (row.holder.left_out and not row.accepted)]
    blocking = [f for f in unaccepted(findings) if f.get("outcome") == BLOCKED and f["severity"] in GRAVE]
    tone, headline = _headline(lost, held, blocking, named, counts, summary)
    if any((suppressed := answers.suppressed(findings, summary)).values()):
        headline = headline.replace("and nothing is wrong", "and nothing else is wrong")
        headline += f"; {counted(suppressed)} suppressed by the baseline"
    if accepted:
        many = plural(len(accepted), "partition")
        headline += f"; {many} {_are(len(accepted))} blocked as the baseline accepts"
        headline = headline.replace("Nothing is blocked", "Nothing else is blocked")
    if said := _scope(summary.get("scope") or {}):
        headline += f"; {said}"
    grave = sum(counts.get(name, 0) for name in GRAVE)
    return Verdict(tone, headline, lost, held, named, accepted, grave, suppressed)


def is_loss(finding: Finding) -> bool:
    """Whether a finding says that records are lost, or a critical one that they cannot be read or are at risk."""
    outcome, severity = finding.get("outcome"), finding["severity"]
    return (outcome == LOST and severity in GRAVE) or (outcome in LOSSES and severity == "critical")


def of_run(findings: Sequence[Finding], summary: Values) -> Verdict:
    """The verdict on a run, by its findings and its summary, both with every key of ``dashboards.report_shapes``."""
    return decide(answers.blocked((), findings, summary), findings, answers.tally(findings, summary), summary)


def _headline(
    lost: Sequence[Finding],
    held: Sequence[Blocked],
    blocking: Sequence[Finding],
    named: Sequence[Blocked],
    counts: Mapping[str, int],
    summary: Values,
) -> tuple[str, str]:
    blocked = f"{plural(len(held), 'partition')} {_are(len(held))} blocked"
    if lost:
        return "bad", "; ".join([_of_loss(lost), *([blocked] if held else [])])
    if held:
        return "bad", blocked
    bad = {name: count for name, count in counts.items() if count and name in GRAVE}
    unknown = [row for row in named if row.holder.standing == "unknown"]
    left_out = [row for row in named if row.holder.left_out]
    named = [row for row in named if not row.holder.left_out]
    nothing = "Nothing is known to be blocked" if unknown else "Nothing is blocked"
    if bad:
        grave = " and ".join(plural(count, f"{name} finding") for name, count in bad.items())
        tone = "bad" if "critical" in bad else "warn"
        if blocking:
            return tone, f"Readers or writers are blocked: {grave}"
        return tone, f"{nothing}, but there {_are(next(iter(bad.values())))} {grave}"
    if left_out:
        many = plural(len(left_out), "partition")
        return "unsure", f"{many} {_are(len(left_out))} blocked, which only a rule that was left out reports"
    if unknown:
        many = plural(len(unknown), "partition")
        lacking = "for how long" if any(_ageless(row.holder.row) for row in unknown) else "whether that is normal"
        return "unsure", f"{many} {_are(len(unknown))} held by an open transaction, and nothing shows {lacking}"
    if empty := summary.get("empty_input"):
        said = empty[:1].upper() + empty[1:]
        return "unsure", f"{said}; {plural(counts['warning'], 'warning')}" if counts.get("warning") else said
    if summary["unreadable"] or summary["bytes"]["unreadable"]:
        if not summary["batches"] and summary["bytes"]["unreadable"] == summary["bytes"]["total"]:
            return "unsure", "Nothing could be read"
        why = "is damaged" if summary.get("complete") else "could not be read"
        return "unsure", f"Nothing is blocked in what could be read; part of the input {why}"
    wait = f"; {plural(len(named), 'partition')} {_are(len(named))} waiting, as is normal" if named else ""
    if counts.get("warning"):
        return "warn", f"Nothing is blocked; {plural(counts['warning'], 'warning')}{wait}"
    unlooked = (summary.get("scope") or {}).get("without_records")
    return "unsure" if unlooked else "good", f"Nothing is blocked, and nothing is wrong in what was read{wait}"


def _of_loss(findings: Sequence[Finding]) -> str:
    """Name the worst outcome alone: lost records, else unreadable ones, else those at risk."""
    worst = min((f["outcome"] for f in findings), key=list(LOSSES).index)
    places = len({(f["topic"], f["partition"]) for f in findings if f["outcome"] == worst})
    return f"Records are {LOSSES[worst]} in {plural(places, 'partition')}"


def _scope(scope: Values) -> str:
    """What was left out: rules, what was not to be read, and what was not copied; empty where nothing was."""
    said = []
    if left_out := scope.get("rules_left_out"):
        said.append(f"{plural(left_out, 'rule')} of {left_out + scope['rules']} {_were(left_out)} left out")
    asked = (scope.get(name) for name in ("topics", "partitions", "brokers", "since"))
    if read := was_read(*asked):
        said.append(visible(read))
    left = scope.get("left_out") or {}
    if left.get("copies"):
        said.append(
            f"nothing is said of {plural(left['copies'], 'partition copy')} that {_were(left['copies'])} not read"
        )
    if left.get("without_state"):
        many = plural(left["without_state"], "partition copy")
        said.append(f"what was open before that is not known of {many}, for want of a producer snapshot")
    if unlooked := scope.get("without_records"):
        said.append(f"records of {plural(unlooked, 'batch')} were not looked at: the copy lacks what they come to")
    if lacking := scope.get("not_in_input"):
        said.append(f"{plural(lacking, 'replica')} of these brokers {_are(lacking)} not in the input")
    return ", and ".join(said)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def clock(summary: Values, now: datetime.datetime | None = None) -> str:
    """The time that ages go by, and how old the copy is. ``now``: the clock on the wall; None where the same input must
    give the same text."""
    said = f"As of {instant(summary['as_of'])}"
    newest, as_of = _moment(summary["newest"]), _moment(summary["as_of"])
    if summary["as_of"] is None or (not summary["as_of_given"] and as_of is not None and as_of.timestamp() == 0):
        return "As of an unknown time: nothing that was read shows one"
    chosen = newest is not None and not summary["as_of_given"]
    until = now if chosen else as_of
    old = 0 if newest is None or until is None else int((until - newest).total_seconds() * 1000)
    if old > OLD_COPY_MS:
        return f"{said}{' (or --as-of now)' if chosen else ''}; the copy is {duration(old)} old"
    return f"{said}, the newest in the input (--as-of now: the clock)" if chosen else said


def _moment(iso: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(str(iso))
    except ValueError:
        return None


def baseline(row: Values) -> str:
    """What a baseline accepts, in words: ``row`` is the summary's."""
    counts = {name: count for name, count in row["counts"]["by_severity"].items() if count}
    many = sum(counts.values())
    said = f"{counted(counts)} {_are(many)} accepted by {row['file']}, and only in findings.jsonl"
    back = [f"{entry['rule']} in {entry['where']} ({entry['why']})" for entry in row["back"]]
    more = f" and {len(back) - BACK} more" if len(back) > BACK else ""
    said += f"; not accepted any more: {'; '.join(back[:BACK])}{more}" if back else ""
    gone = len(row["gone"])
    said += f"; {plural(gone, 'entry')} of it {'matches' if gone == 1 else 'match'} nothing any more" if gone else ""
    return said


def counted(by_severity: Mapping[str, int]) -> str:
    """How many findings, and of which severities."""
    kinds = ", ".join(f"{count:,} {name}" for name, count in by_severity.items() if count)
    return plural(sum(by_severity.values()), "finding") + (f" ({kinds})" if kinds else "")


def stands(holder: answers.Open) -> str:
    """How a partition that is held stands; where its age is known, what is unknown is whether that is long."""
    row, standing = holder.row, holder.standing
    if standing == "unknown" and row["class"] in answers.STUCK:
        return "it looks abandoned, or its marker was written after this log was copied: a newer copy shows which"
    if standing == "unknown" and not _ageless(row):
        lacking = "" if row.get("timeout_ms") else "its time-out, or "
        return f"nothing in the input shows {lacking}whether it is open still"
    if standing in ("waiting", "overdue") and row.get("timeout_ms") == NO_TIMEOUT_MS:
        return "it has no time-out (two-phase commit): only its application ends it"
    if standing == "waiting" and holder.blocks:
        return "within its time-out, which is longer than readers should wait"
    return STANDINGS[standing]


def _ageless(row: Values) -> bool:
    return row.get("age_ms") is None or (row["age_ms"] == 0 and bool(row.get("at_least")))


def held_for(row: Values) -> str:
    """For how long a partition is held, in words."""
    return f"for {aged(row)}"


def aged(row: Values) -> str:
    """How old an open transaction is, in words. At least nothing is unknown: the newest time is the holder's own."""
    if _ageless(row):
        return "an unknown time"
    if row.get("since_by_producer") and row.get("since") == row.get("since_not_before"):  # it may have begun later
        least = "about " if row.get("at_least") else "at most "
    else:
        least = "at least " if row.get("at_least") else ""
    return f"{least}{duration(row['age_ms'])}"


def begun(row: Values) -> str:
    """Since when a transaction is open, in words: where its producer's clock contradicts what brokers wrote around it,
    both, as far as they are known; empty where nothing tells."""
    if not row.get("since"):
        return ""
    if not row.get("since_by_producer"):
        return instant(row["since"]) + ("" if row.get("since_not_before") else " by its records' time stamps")
    said, least, most = (
        instant(row[name]) if row.get(name) else "" for name in ("since", "since_not_before", "since_not_after")
    )
    bounds = [f"no earlier than {least}"] if least and least != said else []
    bounds += [f"no later than {most}"] if most and most != said else []
    said += " at the earliest" if said == least else " at the latest" if said == most else ""
    by = f" by the brokers{', ' + ', '.join(bounds) if bounds else ''}"
    return f"{said}{by}; its producer's clock says {instant(row['since_by_producer'])}"
