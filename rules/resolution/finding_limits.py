"""Bounds on the number of findings."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from auditor.base.advice import check
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import IN_ALL, OF_A_RULE
from auditor.base.evidence_keys import Evidence, read
from auditor.base.words import plural
from auditor.rules.catalogue.registry import Kind
from auditor.rules.seen.view import NO_OUTCOME, OUTCOMES, SEVERITIES, Finding, highest, in_order

if TYPE_CHECKING:
    from auditor.facts.replica_facts import ReplicaFacts
    from auditor.rules.seen.view import LogView


T = TypeVar("T")
ENTRIES = 1_000  # of a list in the evidence of a finding
SUMMED = "summed"  # in the evidence: how many findings this one stands for
SHARED = ("confidence", "in_flight", "log_dir")  # evidence that a sum has where all that it stands for have it


def is_summed(f: Finding) -> bool:
    """Whether a finding stands for several that are not listed."""
    return SUMMED in read(Evidence, f.evidence)


@dataclass(slots=True)
class Sum:
    """Findings of one kind and severity in one log that are counted, not stored. Offsets inclusive, None for none."""

    log_dir: str | None
    broker_id: int | None
    topic: str | None
    partition: int | None
    count: int = 0
    first: int | None = None
    last: int | None = None
    shared: Fields = field(default_factory=dict)
    if_true: str | None = None  # the highest of theirs
    outcome: str = NO_OUTCOME  # the first of theirs in the order of OUTCOMES

    def add(self, f: Finding) -> None:
        """Count a finding, or a sum."""
        shared = {name: f.evidence.get(name) for name in SHARED}
        if self.count:
            shared = {name: value for name, value in shared.items() if self.shared.get(name) == value}
        self.shared = shared
        self.count += read(Evidence, f.evidence).get("summed", 1)
        if f.if_true is not None:
            self.if_true = f.if_true if self.if_true is None else highest(f.if_true, self.if_true)
        self.outcome = min(self.outcome, f.outcome or NO_OUTCOME, key=OUTCOMES.index)
        evidence = read(Evidence, f.evidence)
        ends = [evidence["first_offset"], evidence["last_offset"]] if is_summed(f) else [f.offset]
        offsets = [offset for offset in (*ends, self.first, self.last) if offset is not None]
        self.first, self.last = min(offsets, default=None), max(offsets, default=None)

    def finding(self, kind: Kind, severity: str, limit: int) -> Finding:
        """Make the finding for the sum, with the command and the ``--max-findings`` that list them."""
        name, topic = f"{self.topic}-{self.partition}", str(self.topic)
        command = (
            f"auditor audit PATH --out DIR --rule {kind.id} --topic {quote(topic)} --max-findings {self.count + limit}"
        )
        if kind.what_if:
            text = f"SELECT * FROM verdicts WHERE topic = '{topic.replace(chr(39), chr(39) * 2)}'"
            command = f"auditor sql {quote(text)} PATH"
        where = "" if self.first is None else f", from offset {self.first} to {self.last}"
        evidence = {key: value for key, value in self.shared.items() if value is not None}
        evidence |= {SUMMED: self.count, "first_offset": self.first, "last_offset": self.last, "listed_by": command}
        return Finding(
            kind.rule,
            severity,
            self.broker_id,
            self.topic,
            self.partition,
            kind=kind.id,
            message=f"{plural(self.count, 'more finding')} of {kind.id} in {name}{where}, not listed separately",
            evidence={"log_dir": self.log_dir, **evidence},
            source=kind.source,
            if_true=self.if_true,
            outcome=self.outcome,
            advice=kind.advice.also(check(command, f"the output lists {self.count} more of them")),
        )


class Gravest(Generic[T]):
    """The findings of a rule that are listed: the most severe ones with the lowest offsets.

    The sort is stable. Memory: ``most`` findings.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0
        self._kept: list[tuple[int, int, int, T]] = []

    def add(self, severity: str, offset: int | None, item: T) -> T | None:
        """Add one, and return the one that is dropped for it, if any."""
        place = (-SEVERITIES.index(severity), -(-1 if offset is None else offset), -self.count, item)
        self.count += 1
        if len(self._kept) < self.most:
            heapq.heappush(self._kept, place)
            return None
        return heapq.heappushpop(self._kept, place)[-1]

    def listed(self) -> list[T]:
        """Return the findings kept, in the order they came."""
        return [item for *_, item in sorted(self._kept, key=lambda place: -place[2])]


def judge_bounded(log: LogView, chosen: Iterable[Kind], limit: int = OF_A_RULE) -> Iterator[Finding]:
    """Yield findings of the chosen kinds about one log, at most ``limit`` of each and a sum per severity.

    Memory: ``limit`` findings, whatever the log says.
    """
    log.most = limit
    for kind in chosen:
        try:
            for first in (findings := iter(kind.check(log))):  # most find nothing in most logs, and cost no more
                yield from _bounded(log, kind, kind.completed(itertools.chain((first,), findings)), limit)
        except Exception as error:  # noqa: BLE001
            log.fail(error, f"rule {kind.id}")


def _bounded(log: LogView, kind: Kind, findings: Iterable[Finding], limit: int) -> Iterator[Finding]:
    gravest: Gravest[Finding] = Gravest(limit)
    sums: dict[str, Sum] = {}
    try:
        for f in findings:
            if is_summed(f):
                sums.setdefault(f.severity, _sum_of(log)).add(f)
                continue
            _shorten(f)
            if (beyond := gravest.add(f.severity, f.offset, f)) is not None:
                sums.setdefault(beyond.severity, _sum_of(log)).add(beyond)
    except Exception as error:  # noqa: BLE001  the findings before it stay
        log.fail(error, f"rule {kind.id}")
    yield from gravest.listed()
    for severity, summed in sums.items():
        yield summed.finding(kind, severity, limit)


class Unmade(NamedTuple):
    """A finding that is not built yet: what decides whether it is listed, what a sum needs, and how to build it.

    ``doubt``: as in :meth:`auditor.rules.seen.view.LogView.finding`; ``severity`` is the one without doubt.
    """

    severity: str
    offset: int
    make: Callable[[], Finding]
    confidence: str = "proved"
    doubt: bool = False

    @property
    def said(self) -> str:
        """The severity that is reported."""
        return "info" if self.doubt else self.severity


def made(log: LogView, unmade: Iterable[Unmade]) -> Iterator[Finding]:
    """Yield the findings of a rule that may have very many: those that are listed are built, the rest are summed up.

    Cost: of one that is not listed, only judging its severity.
    """
    for first in (unmade := iter(unmade)):  # nothing is begun where there is none
        yield from _made(log, itertools.chain((first,), unmade))


def _made(log: LogView, unmade: Iterable[Unmade]) -> Iterator[Finding]:
    gravest: Gravest[Unmade] = Gravest(log.most)
    sums: dict[tuple[str, str, bool], list[int]] = {}  # how many, first and last offset
    for f in unmade:
        if (beyond := gravest.add(f.said, f.offset, f)) is None:
            continue
        alike = (beyond.severity, beyond.confidence, beyond.doubt)
        count, first, last = sums.get(alike, (0, beyond.offset, beyond.offset))
        sums[alike] = [count + 1, min(first, beyond.offset), max(last, beyond.offset)]
    yield from (f.make() for f in gravest.listed())
    for (severity, confidence, doubt), (count, first, last) in sums.items():
        yield summed(log, severity, count, first, last, doubt=doubt, shared={"confidence": confidence})


def summed(
    log: LogView,
    severity: str,
    count: int,
    first: int,
    last: int,
    replica: ReplicaFacts | None = None,
    shared: Values = MappingProxyType({}),
    doubt: bool = False,
    outcome: str = "",
) -> Finding:
    """Make the finding for many of one rule and severity that are not built, beyond ``log.most``.

    ``first``, ``last``: the lowest and highest of their offsets; ``shared``: evidence common to all of them.
    """
    evidence = {SUMMED: count, "first_offset": first, "last_offset": last, **shared}
    return log.finding(
        severity,
        plural(count, "more finding"),
        replica=replica,
        doubt=doubt,
        evidence=evidence,
        outcome=outcome,
    )


def _sum_of(log: LogView) -> Sum:
    return Sum(log.leader.log_dir, log.leader.broker_id, log.topic, log.partition)


def _shorten(f: Finding) -> None:
    # A list in the evidence may have as many entries as a record has partitions.
    for name, value in f.evidence.items():
        if isinstance(value, list) and len(value) > ENTRIES:
            f.evidence = {**f.evidence, name: value[:ENTRIES], f"{name}_in_all": len(value)}


class LimitedFindings:
    """The findings a run stores: ``IN_ALL`` times the limit of a rule in a log, and sums of the rest.

    The choice does not depend on the order. Memory: twice as many, and a sum for each kind and severity of a log.
    ``catalogue``: the kinds by id.
    """

    def __init__(self, catalogue: Mapping[str, Kind], of_a_rule: int) -> None:
        self.catalogue = catalogue
        self.of_a_rule = of_a_rule
        self.limit = of_a_rule * IN_ALL
        self._kept: list[Finding] = []
        self._sums: dict[tuple[Any, ...], Sum] = {}

    def add(self, f: Finding) -> None:
        """Add a finding."""
        if is_summed(f):
            self._sum(f)
            return
        self._kept.append(f)
        if len(self._kept) >= 2 * self.limit:
            self._fold()

    def findings(self) -> list[Finding]:
        """Return the stored findings and the sums, some of which may exceed the limit by one."""
        if len(self._kept) > self.limit:
            self._fold()
        sums = [s.finding(self.catalogue[key[0]], key[1], self.of_a_rule) for key, s in self._sums.items()]
        return [*self._kept, *sums]

    def _fold(self) -> None:
        self._kept = in_order(self._kept)
        for f in self._kept[self.limit :]:
            self._sum(f)
        del self._kept[self.limit :]

    def _sum(self, f: Finding) -> None:
        log_dir, topic, partition = read(Evidence, f.evidence).get("log_dir"), f.topic, f.partition
        folder, _, number = (f.file or "").rpartition("/")[0].rpartition("-")
        if folder and number.isdecimal():  # of the log that says it, however many others that one names
            topic, partition = folder, int(number)
        key = (f.kind, f.severity, log_dir, topic, partition)
        self._sums.setdefault(key, Sum(log_dir, f.broker_id, topic, partition)).add(f)
