"""Findings of one cause are one finding: what a rule declares of its own findings, and the one that stands for them.

Only findings that are as grave as each other, and whose remedy is the same, go together: none is lowered by it, and
none loses a remedy of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from auditor.base.advice import Advice
from auditor.base.at_rest import Fields
from auditor.base.words import few as some
from auditor.rules.catalogue.kinds import Together
from auditor.rules.seen.finding import MADE_OF, Finding, iso_text
from auditor.rules.settled.floods import ENTRIES, SUMMED, is_summed

SHOWN = 20  # transactional ids of a finding that stands for several
OF_A_PLACE = ("offset", "last_offset", "file", "position")


def by_cause(
    cause: Callable[[Finding], Hashable], said: Callable[[Sequence[Finding]], str], *, few: int = 1, sums: bool = False
) -> Together:
    """Findings with the same cause are one.

    ``cause``: what a finding's cause is known by, None where it stands for itself; ``said``: the message on several;
    ``few``: so many are listed all the same; ``sums``: whether the cause may be asked of what stands for some that are
    not listed, too.
    """

    def fold(found: Sequence[Finding], advice: Advice) -> list[Finding]:
        groups: dict[Hashable, list[Finding]] = defaultdict(list)
        for number, f in enumerate(found):
            known = None if is_summed(f) and not sums else cause(f)
            of = advice if is_summed(f) else f.advice
            groups[number if known is None else (f.severity, f.outcome, f.if_true, of, known)].append(f)
        out: list[Finding] = []
        for group in groups.values():
            out += [_one_of(group, said, advice)] if len(group) > few else group
        return out

    return fold


def in_flight(said: str) -> Together:
    """What a copy of a log that was made too early lacks is one: ``said``, with ``{count}`` and ``{log}``."""

    def cause(f: Finding) -> Hashable:
        absent = f.offset is None and f.evidence.get("in_flight")
        return (f.topic, f.partition, f.evidence.get("log_dir")) if absent else None

    return by_cause(cause, lambda g: said.format(count=count(g), log=f"{g[0].topic}-{g[0].partition}"), sums=True)


def in_each_replica() -> Together:
    """What several replicas of a log show alike, in the same words, is one, which names their brokers."""

    def cause(f: Finding) -> Hashable:
        return f.topic, f.partition, f.offset, f.message

    return by_cause(cause, lambda g: f"{g[0].message}; alike on brokers {some(sorted({str(f.broker_id) for f in g}))}")


def count(group: Iterable[Finding]) -> int:
    """How many findings these are, those that a sum stands for too."""
    return sum(f.evidence.get(SUMMED, 1) for f in group)


def logs_of(group: Iterable[Finding]) -> list[str]:
    """The logs that findings are about, as ``topic-partition``."""
    return list(dict.fromkeys(f"{f.topic}-{f.partition}" for f in group))


def _one_of(group: Sequence[Finding], said: Callable[[Sequence[Finding]], str], advice: Advice) -> Finding:
    alike = {name: getattr(group[0], name) for name in MADE_OF if len({str(getattr(f, name)) for f in group}) == 1}
    names = logs_of(group)
    if len(names) > 1:
        alike |= dict.fromkeys(("topic", "partition", *OF_A_PLACE))
    own = next((f.advice for f in group if not is_summed(f)), advice)
    return Finding(**alike | {"message": said(group), "evidence": _evidence(group, names), "advice": own})


def _evidence(group: Sequence[Finding], names: Sequence[str]) -> Fields:
    """What all of them have alike, how many they are, where and whose, and what they explain."""
    first, listed = group[0].evidence, [f.evidence for f in group if not is_summed(f)]
    evidence = {name: first[name] for name in first if all(name in e and e[name] == first[name] for e in listed)}
    evidence |= {name: f.evidence[name] for f in group for name in ("listed_by",) if name in f.evidence}
    if len(dirs := list(dict.fromkeys(f.evidence.get("log_dir") for f in group))) > 1:
        evidence["log_dirs"] = dirs[:ENTRIES]
    evidence |= {"log_dir": first.get("log_dir"), "count": count(group)}
    if len(names) > 1:
        evidence |= {"partitions": list(names[:ENTRIES]), "partitions_in_all": len(names)}
    if ids := sorted({f.transactional_id for f in group if f.transactional_id is not None}):
        evidence |= {"transactional_ids": ids[:SHOWN], "transactional_ids_in_all": len(ids)}
    if times := sorted(f.timestamp for f in group if f.timestamp is not None):
        evidence |= {"first_time": iso_text(times[0]), "last_time": iso_text(times[-1])}
    if also := [other for f in group for other in f.evidence.get("also", ())]:
        evidence["also"] = also
    return evidence
