"""Merge findings of one cause, and move explained findings into the evidence of their cause."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from auditor.base.advice import NOTHING_MOVES, Advice, Moves, Verdict, shown
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import DecodeError, attempt
from auditor.base.evidence_keys import AbsorbedImpact, Evidence, read
from auditor.base.words import few as some
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import Kind, Together
from auditor.rules.catalogue.relations import Tie
from auditor.rules.lib import repairs
from auditor.rules.resolution.finding_limits import ENTRIES, is_summed
from auditor.rules.seen.view import GRAVE, IMPACTS, MADE_OF, NO_OUTCOME, Finding, highest, in_order, iso_text

# Advices that conflict: a replica that one fetches again is no source for another.


Place = tuple[str | None, int | None]  # topic and partition


def without_conflicts(findings: Iterable[Finding]) -> list[Finding]:
    """Remove conflicts between the advices of a cluster's findings.

    No advice fetches from a replica that another advice moves away; without any source left nothing is moved.
    """
    listed = list(findings)
    moved: dict[Place, set[int]] = defaultdict(set)
    for f in listed:
        if f.advice is not None and f.advice.moves.away is not None:
            moved[f.topic, f.partition].add(f.advice.moves.away)
    for f in listed:
        if f.advice is not None and (gone := moved[f.topic, f.partition]):
            f.advice = _without(f.advice, gone, f"{f.topic}-{f.partition}")
    return listed


def _without(advice: Advice, gone: Collection[int], name: str) -> Advice:
    moves = advice.moves
    left = tuple(broker for broker in moves.sources if broker not in gone)
    if moves.leads in gone or (moves.sources and not left):
        crossed = [b for b in (*moves.sources, moves.leads) if b is not None and b in gone]
        damaged = [
            shown(f"broker {b} has an intact replica of {name} to fetch from", False, "another finding reports damage")
            for b in dict.fromkeys(crossed)
        ]
        then = "First copy the directories to a safe place: no replica is known to be intact"
        asked = advice.unless(*damaged)
        return replace(asked, verdict=Verdict.INVESTIGATE_FIRST, steps=(), afterwards=then, moves=NOTHING_MOVES)
    if left == moves.sources:
        return advice
    before, now = (repairs.isr_lists(name, brokers) for brokers in (moves.sources, left))
    dropped = {repairs.has_in_sync(name, broker) for broker in moves.sources if broker in gone}
    return replace(
        advice,
        conditions=tuple(
            replace(c, what=c.what.replace(before, now), expect=c.expect.replace(before, now))
            for c in advice.conditions
            if not any(c.what.startswith(what) for what in dropped)
        ),
        moves=Moves(moves.away, left, moves.leads),
    )


# One cause, one finding (rules.md): findings that another explains move into its evidence.
#
# Each rule declares what explains its findings (``absorbed_by``), so the order does not matter: an explained finding
# still explains others, and all of them move to the head of the chain.


def resolve(findings: Iterable[Finding], failures: list[DecodeError] | None = None) -> list[Finding]:
    """Return the findings that remain, in the contract's order. ``failures``: gets the rules that could not merge."""
    failures = [] if failures is None else failures
    catalogue = registry.kinds()
    listed = _but_for_void(list(findings), catalogue)
    cause = _explained(listed, catalogue)
    steps, head = _chains(cause)
    settled = [n for n in set(head.values()) if _is_settled(listed[n], catalogue)]
    for number in sorted(cause, key=lambda n: -steps[n]):  # the farthest first, so that severities climb
        _absorb(listed[cause[number]], listed[head[number]], listed[number])
    for number in settled:
        listed[number].if_true = None
    for number in set(head.values()):
        read(Evidence, listed[number].evidence)["also"].sort(
            key=lambda a: (a["rule"], a["topic"] or "", a["partition"] or 0, a["message"])
        )
    stay = [f for number, f in enumerate(listed) if number not in cause]
    return without_conflicts(in_order(_one_of_each_cause(stay, catalogue, failures)))


def resolve_each(
    findings: Iterable[Finding], cluster_of: Mapping[str, str], failures: list[DecodeError] | None = None
) -> list[Finding]:
    """Apply :func:`resolve` to each cluster's findings, in any order.

    ``cluster_of``: the cluster of each log directory. Different clusters share names of partitions, producers and ids.
    ``failures``: gets what could not be merged, whose findings stay as they are.
    """
    clusters, failures = defaultdict(list), [] if failures is None else failures
    for f in in_order(findings):
        clusters[cluster_of.get(read(Evidence, f.evidence).get("log_dir") or "")].append(f)
    return in_order(
        f
        for group in clusters.values()
        for f in attempt(failures, "findings of one cause were not merged", partial(resolve, group, failures), group)
    )


def _but_for_void(findings: list[Finding], catalogue: Mapping[str, Kind]) -> list[Finding]:
    # Nothing may rest on the bytes of a batch that is declared void.
    voiding = {name for name, declared in catalogue.items() if declared.voids}
    damaged = {_bytes(f) for f in findings if f.kind in voiding}
    return [f for f in findings if f.kind in voiding or f.position is None or _bytes(f) not in damaged]


def _bytes(f: Finding) -> tuple[Any, ...]:
    return read(Evidence, f.evidence).get("log_dir"), f.file, f.position


def _explained(findings: list[Finding], catalogue: Mapping[str, Kind]) -> dict[int, int]:
    # By number of the finding, the number of the one that explains it.
    declared = {f.kind: catalogue[f.kind].explained_by if f.kind in catalogue else () for f in findings}
    wanted = defaultdict(list)
    for tie in {tie for several in declared.values() for tie in several}:
        wanted[tie.kind].append(tie)
    causes: dict[Tie, dict[Any, list[int]]] = {tie: defaultdict(list) for several in wanted.values() for tie in several}
    for number, f in enumerate(findings):
        for tie in () if is_summed(f) else wanted.get(f.kind, ()):
            causes[tie][tie.relation.in_common(f)].append(number)
    out = {}
    for number, f in enumerate(findings):
        for tie in () if is_summed(f) else declared[f.kind]:
            near = causes[tie].get(tie.relation.in_common(f), ())
            before = (n for n in near if tie.kind != f.kind or n < number)  # of two alike the first stays
            first = next((n for n in before if tie.explains(findings[n], f)), None)
            if first is not None:
                out[number] = first
                break
    return out | _explained_by_sums(findings, catalogue, out)


def _explained_by_sums(
    findings: list[Finding], catalogue: Mapping[str, Kind], explained: Mapping[int, int]
) -> dict[int, int]:
    # A sum of a kind that explains it, over the same offsets of a log.
    sums = defaultdict(list)
    for number, f in enumerate(findings):
        if is_summed(f):
            sums[f.kind, f.topic, f.partition, read(Evidence, f.evidence).get("log_dir")].append(number)
    out = {}
    for number, f in enumerate(findings) if sums else ():
        for tie in catalogue[f.kind].explained_by if number not in explained and f.kind in catalogue else ():
            near = sums.get((tie.kind, f.topic, f.partition, read(Evidence, f.evidence).get("log_dir")), ())
            first = next((n for n in near if tie.kind != f.kind and _overlap(findings[n], f)), None)
            if first is not None and not tie.when:
                out[number] = first
                break
    return out


def _overlap(cause: Finding, f: Finding) -> bool:
    first, last = _offsets(f)
    begin, end = _offsets(cause)
    return None not in (first, begin) and first <= end and begin <= last


def _offsets(f: Finding) -> tuple[Any, Any]:
    evidence = read(Evidence, f.evidence)
    return (evidence["first_offset"], evidence["last_offset"]) if is_summed(f) else (f.offset, f.offset)


def _chains(cause: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    # The number of steps from each explained finding to the head of its chain, and that head.
    steps: dict[int, int] = {}
    head: dict[int, int] = {}
    for number in cause:
        path = [number]
        while path[-1] in cause and path[-1] not in steps:
            path.append(cause[path[-1]])
        top = path.pop()
        for step in reversed(path):
            steps[step] = steps.get(cause[step], 0) + 1
            head[step] = head.get(top, top)
    return steps, head


def _is_settled(f: Finding, catalogue: Mapping[str, Kind]) -> bool:
    # The record of its transaction is certain, whatever it explains.
    about = f.kind in catalogue and catalogue[f.kind].hold is not None
    return about and f.if_true is None and f.severity in GRAVE


def _absorb(cause: Finding, head: Finding, f: Finding) -> None:
    its_outcome = cause.outcome
    if f.severity != cause.severity or cause.outcome == NO_OUTCOME:  # the outcome is that of the higher severity
        cause.outcome = f.outcome if highest(cause.severity, f.severity) == f.severity else cause.outcome
    if cause.outcome != its_outcome and cause.outcome in IMPACTS:  # which is about the records of ``f``
        cause.evidence["ranges"] = []
    cause.severity = highest(cause.severity, f.severity)  # doubt has lowered both by now
    if cause.if_true or f.if_true:
        if_true = highest(cause.if_true or cause.severity, f.if_true or f.severity)
        cause.if_true = None if if_true == cause.severity else if_true
    also: AbsorbedImpact = {
        "rule": f.kind,
        "severity": f.severity,
        "topic": f.topic,
        "partition": f.partition,
        "message": f.message,
    }
    if f.outcome in IMPACTS and f.ranges:
        also |= {"outcome": f.outcome, "ranges": f.ranges, "log_dir": read(Evidence, f.evidence).get("log_dir")}
        also |= {"producer_id": f.producer_id, "transactional_id": f.transactional_id}
    read(Evidence, head.evidence).setdefault("also", []).append(also)


def _one_of_each_cause(
    findings: list[Finding], catalogue: Mapping[str, Kind], failures: list[DecodeError]
) -> list[Finding]:
    out, several = [], defaultdict(list)
    for f in findings:
        if f.kind in catalogue and catalogue[f.kind].together is not None:
            several[f.kind].append(f)
        else:
            out.append(f)
    for kind, group in several.items():
        declared = catalogue[kind]
        assert declared.together is not None
        merged = partial(declared.together, in_order(group), declared.advice)
        out += attempt(failures, f"rule {kind} could not merge its findings", merged, group)
    return out


# Merging findings of one cause, as rules declare it.
#
# Only findings of equal severity and remedy are merged, so none is lowered and no remedy is lost.


SHOWN = 20  # transactional ids of a finding that stands for several
OF_A_PLACE = ("offset", "last_offset", "file", "position")


def by_cause(
    cause: Callable[[Finding], Hashable], words: Callable[[Sequence[Finding]], str], *, few: int = 1, sums: bool = False
) -> Together:
    """Merge findings with the same cause.

    ``cause``: the key of a finding's cause, None where it stands for itself; ``words``: the message of a merged
    finding; ``few``: so many are listed separately; ``sums``: whether the cause also applies to sums of unlisted
    findings.
    """

    def fold(findings: Sequence[Finding], advice: Advice) -> list[Finding]:
        groups: dict[Hashable, list[Finding]] = defaultdict(list)
        for number, f in enumerate(findings):
            key = None if is_summed(f) and not sums else cause(f)
            of = advice if is_summed(f) else f.advice
            groups[number if key is None else (f.severity, f.outcome, f.if_true, of, key)].append(f)
        out: list[Finding] = []
        for group in groups.values():
            out += [_one_of(group, words, advice)] if len(group) > few else group
        return out

    return fold


def in_flight(template: str) -> Together:
    """Merge what an early copy of a log lacks; ``template`` with ``{count}`` and ``{log}``."""

    def cause(f: Finding) -> Hashable:
        absent = f.offset is None and read(Evidence, f.evidence).get("in_flight")
        return (f.topic, f.partition, read(Evidence, f.evidence).get("log_dir")) if absent else None

    return by_cause(cause, lambda g: template.format(count=count(g), log=f"{g[0].topic}-{g[0].partition}"), sums=True)


def in_each_replica() -> Together:
    """Merge findings that replicas of a log share word for word, and name their brokers."""

    def cause(f: Finding) -> Hashable:
        return f.topic, f.partition, f.offset, f.message

    return by_cause(
        cause, lambda g: f"{g[0].message}; the same on brokers {some(sorted({str(f.broker_id) for f in g}))}"
    )


def count(group: Iterable[Finding]) -> int:
    """Count findings, including those that a sum stands for."""
    return sum(read(Evidence, f.evidence).get("summed", 1) for f in group)


def logs_of(group: Iterable[Finding]) -> list[str]:
    """Return the logs that findings are about, as ``topic-partition``."""
    return list(dict.fromkeys(f"{f.topic}-{f.partition}" for f in group))


def _one_of(group: Sequence[Finding], words: Callable[[Sequence[Finding]], str], advice: Advice) -> Finding:
    alike = {name: getattr(group[0], name) for name in MADE_OF if len({str(getattr(f, name)) for f in group}) == 1}
    names = logs_of(group)
    if len(names) > 1:
        alike |= dict.fromkeys(("topic", "partition", *OF_A_PLACE))
    own = next((f.advice for f in group if not is_summed(f)), advice)
    return Finding(**alike | {"message": words(group), "evidence": _evidence(group, names), "advice": own})


def _evidence(group: Sequence[Finding], names: Sequence[str]) -> Fields:
    first, listed = group[0].evidence, [f.evidence for f in group if not is_summed(f)]
    evidence = {name: first[name] for name in first if all(name in e and e[name] == first[name] for e in listed)}
    evidence |= {name: f.evidence[name] for f in group for name in ("listed_by",) if name in f.evidence}
    if len(dirs := list(dict.fromkeys(read(Evidence, f.evidence).get("log_dir") for f in group))) > 1:
        evidence["log_dirs"] = dirs[:ENTRIES]
    evidence |= {"log_dir": first.get("log_dir"), "count": count(group)}
    if len(names) > 1:
        evidence |= {"partitions": list(names[:ENTRIES]), "partitions_in_all": len(names)}
    if ids := sorted({f.transactional_id for f in group if f.transactional_id is not None}):
        evidence |= {"transactional_ids": ids[:SHOWN], "transactional_ids_in_all": len(ids)}
    if times := sorted(f.timestamp for f in group if f.timestamp is not None):
        evidence |= {"first_time": iso_text(times[0]), "last_time": iso_text(times[-1])}
    if also := [other for f in group for other in read(Evidence, f.evidence).get("also", ())]:
        evidence["also"] = also
    return evidence


# Fingerprints: the identity of a finding across runs.


OF_ONE_REPLICA = frozenset({"segment integrity", "replicas"})  # families whose findings are about one file or replica
PARTS = ("topic", "partition", "offset", "producer_id", "producer_epoch", "transactional_id", "group_id")


def fingerprint(finding: Values, cluster_id: str | None) -> str:
    """Return the SHA-256, in hex, of what the finding is about; message, evidence, severity and times do not count.

    ``finding`` has the contract's fields; in a past run its rule is its kind. ``cluster_id`` is that of its log
    directory, None where ``meta.properties`` does not show it. The broker only counts for findings about one file or
    replica, since the leader replica may change between runs. Errors: KeyError for a kind that is not in the catalogue.
    """
    kind = finding.get("kind") or finding["rule"]
    broker_id = finding["broker_id"] if registry.kinds()[kind].family in OF_ONE_REPLICA else None
    about = [kind, cluster_id, *(finding[name] for name in PARTS), broker_id]
    text = json.dumps(about, ensure_ascii=True, separators=(",", ":"))  # ASCII: lone surrogates must not fail
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def cluster_of(finding: Values, cluster_ids: Mapping[str, str | None]) -> str | None:
    """Return the id of a finding's cluster.

    ``cluster_ids``: by log directory; if all are equal, it also applies to a finding without a log directory.
    """
    several = set(cluster_ids.values())
    only = next(iter(several)) if len(several) == 1 else None
    return cluster_ids.get(str(read(Evidence, finding["evidence"]).get("log_dir")), only)


def sign(finding: Finding, cluster_ids: Mapping[str, str | None]) -> None:
    """Give a finding its fingerprint. ``cluster_ids``: by log directory."""
    finding.outcome = finding.outcome or NO_OUTCOME
    row = finding.to_dict()
    finding.fingerprint = fingerprint(row, cluster_of(row, cluster_ids))
