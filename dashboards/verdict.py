"""One verdict for the headline, the first lines of the terminal and the metrics; the exit status follows the same rows.

It goes by ``blocked`` of the summary, where each row says how its partition stands (:class:`rules.blocking.Standing`),
and by the findings' severities. Loss of acknowledged records comes before any block.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.base.words import plural
from auditor.dashboards.answers import Blocked
from auditor.dashboards.wording import Finding, duration, instant

OLD_COPY_MS = 3_600_000  # from here on the age of the copy is said

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
    """``tone``: bad, warn, unsure or good. ``lost``: findings of acknowledged records that are lost. ``held``: who is
    blocked; ``named``: partitions that are held, but not for longer than is normal or known."""

    tone: str
    headline: str
    lost: Sequence[Finding]
    held: Sequence[Blocked]
    named: Sequence[Blocked]


def decide(
    rows: Sequence[Blocked], findings: Sequence[Finding], counts: Mapping[str, int], summary: Mapping[str, Any]
) -> Verdict:
    """The verdict on a run: ``rows`` are those of ``answers.blocked``, ``counts`` the findings by severity."""
    lost = [f for f in findings if f["severity"] == "critical" and (f.get("declared") or {}).get("loses")]
    held = [row for row in rows if row.holder.blocks]
    named = [row for row in rows if not row.holder.blocks]
    return Verdict(*_headline(lost, held, named, counts, summary), lost, held, named)


def _headline(
    lost: Sequence[Finding], held: Sequence[Blocked], named: Sequence[Blocked], counts: Mapping[str, int],
    summary: Mapping[str, Any],
) -> tuple[str, str]:  # fmt: skip
    blocked = f"{plural(len(held), 'partition')} {_are(len(held))} blocked"
    if lost:
        places = len({(f["topic"], f["partition"]) for f in lost})
        return "bad", f"Acknowledged records are lost or at risk in {plural(places, 'partition')}" + (
            f"; {blocked}" if held else ""
        )
    if held:
        return "bad", blocked
    bad = {name: count for name, count in counts.items() if count and name in ("critical", "error")}
    unknown = [row for row in named if row.holder.standing == "unknown"]
    nothing = "Nothing is known to be blocked" if unknown else "Nothing is blocked"
    if bad:
        grave = " and ".join(plural(count, f"{name} finding") for name, count in bad.items())
        return "bad" if "critical" in bad else "warn", f"{nothing}, but there {_are(next(iter(bad.values())))} {grave}"
    if unknown:
        many = plural(len(unknown), "partition")
        return "unsure", f"{many} {_are(len(unknown))} held by an open transaction, and nothing shows for how long"
    if summary["unreadable"] or summary["bytes"]["unreadable"]:
        return "unsure", "Nothing is blocked in what could be read; part of the input could not be read"
    wait = f"; {plural(len(named), 'partition')} {_are(len(named))} waiting, as is normal" if named else ""
    if counts.get("warning"):
        return "warn", f"Nothing is blocked; {plural(counts['warning'], 'warning')}{wait}"
    return "good", f"Nothing is blocked, and nothing is wrong in what was read{wait}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def clock(summary: Mapping[str, Any], now: datetime.datetime | None = None) -> str:
    """The time that ages go by, and how old the copy is. ``now``: the clock on the wall; None where the same input must
    give the same text."""
    said = f"As of {instant(summary['as_of'])}"
    newest, as_of = _moment(summary["newest"]), _moment(summary["as_of"])
    if not summary["as_of_given"]:
        said += " (the newest time that a broker wrote here; --as-of now takes the clock)" if newest else ""
        as_of = now
    if newest is not None and as_of is not None:
        old = int((as_of - newest).total_seconds() * 1000)
        said += f"; the copy is {duration(old)} old" if old > OLD_COPY_MS else ""
    return said


def _moment(iso: object) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(str(iso))
    except ValueError:
        return None


def held_for(row: Mapping[str, Any]) -> str:
    """For how long a partition is held, in words."""
    if row.get("age_ms") is None:
        return "for an unknown time"
    least = "at least " if row.get("at_least") else ""
    return f"for {least}{duration(row['age_ms'])}"
