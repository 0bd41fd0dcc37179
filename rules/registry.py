"""A rule is a page: its code, its documentation and its place among the others, listed in one catalogue."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from auditor import rules
from auditor.base.advice import Advice, Verdict
from auditor.rules.finding import Finding
from auditor.rules.relations import By
from auditor.rules.safeguards import Safeguard

if TYPE_CHECKING:
    from auditor.rules.view import LogView

Check = Callable[["LogView"], Iterable[Finding]]
# Of a rule's findings in a cluster those that stay where several have one cause, given the remedy of its page.
Together = Callable[[Sequence[Finding], Advice], list[Finding]]

SECTIONS = ("Checks", "Why it matters", "Can be wrong", "What to do", "Source")
FAMILIES = (
    "producer state", "epochs", "transactions", "coordinator", "cross-checks", "consumer offsets", "record validation",
    "segment integrity", "replicas", "tiered storage", "capacity",
)  # fmt: skip


class Hold(Enum):
    """Which rule speaks of an open transaction that holds readers back, by how it stands."""

    NOBODYS = "nobodys"  # no coordinator will ever decide it
    PINNED = "pinned"  # its data lies below the log start
    PREPARED = "prepared"  # decided, and a partition has not taken its marker
    OVERDUE = "overdue"  # open for longer than its time-out
    LONG = "long"  # within its time-out, or without any


class Blocks(Enum):
    """Who waits behind what a rule finds, above info."""

    READERS = "readers"  # the partition's read_committed consumers
    GROUP = "group"  # they, and the group that the finding names, which cannot fetch its offsets


class Unverified(Enum):
    """Why a leader that verifies with the coordinator refuses the data that a rule finds (KIP-890)."""

    ENDED = "its transaction has ended, and under transaction.version 2 so has its epoch"
    NOT_ADDED = "the transaction does not have the partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An audit rule: ``check`` yields findings for one log (all replicas of a partition), the rest says what they are.

    ``severity`` says in words how severe its findings are; ``records`` whether it needs ``--records``; ``time`` whether
    it depends on ``--as-of``; ``what_if`` whether it speaks in ``auditor what-if`` alone.

    What its findings have to do with others: ``absorbed_by`` names the rules that explain them and how, the first that
    does takes them; ``voids`` says that nothing else can be found in the same bytes.

    What they mean: ``blocks`` who waits; ``hold`` which open transactions it speaks of; ``decided`` whether the
    coordinator has decided the transaction, so that an abort would contradict it; ``prevented_by`` what
    prevents such, where it holds of one (:mod:`auditor.rules.prevention`). ``moving``: they may only have been seen in
    motion, so ``auditor live`` asks the leader again.
    ``before_start``: their infos are on what lies before the first offset, which is no news where reading began later.
    ``unverified``: why verification refuses such data. ``together``: which of its findings have one cause, and are one
    finding. ``loses``: critical ones say that acknowledged records are lost, or will be. ``former``: rules of the past
    that it asks the questions of, each with its family: they are its findings' kinds, by which fingerprints are made
    and which ``--rule``, ``--skip-rule`` and baselines take.
    """

    id: str
    family: str
    severity: str
    title: str
    sections: dict[str, str]
    check: Check
    records: bool = False
    time: bool = False
    what_if: bool = False
    absorbed_by: tuple[By, ...] = ()
    voids: bool = False
    blocks: Blocks | None = None
    hold: Hold | None = None
    decided: bool = False
    prevented_by: tuple[Safeguard, ...] = ()
    moving: bool = False
    before_start: bool = False
    unverified: Unverified | None = None
    together: Together | None = None
    loses: bool = False
    former: Mapping[str, str] = field(default_factory=dict)

    def family_of(self, kind: str) -> str:
        """The family that the fingerprints of a kind of its findings are made with."""
        return self.former.get(kind, self.family)

    @property
    def source(self) -> str:
        """Where the rule comes from: the KIP or document."""
        return self.sections["Source"]

    @property
    def advice(self) -> Advice:
        """What to do, in general; a finding says it with its own names."""
        return Advice(Verdict.LOOK, then=self.sections["What to do"])

    def completed(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Its findings, with source and advice of the rule where they say none of their own."""
        for finding in found:
            finding.source = finding.source or self.source
            finding.advice = finding.advice or self.advice
            yield finding

    @property
    def declared(self) -> dict[str, Any]:
        """What pages need of it, as plain data: see :func:`described`."""
        blocks = self.blocks.value if self.blocks else None
        return {"blocks": blocks, "decided": self.decided, "loses": self.loses}


CATALOGUE: dict[str, Rule] = {}


def rule(
    id: str,
    *,
    family: str,
    severity: str,
    records: bool = False,
    time: bool = False,
    what_if: bool = False,
    absorbed_by: tuple[By, ...] = (),
    voids: bool = False,
    blocks: Blocks | None = None,
    hold: Hold | None = None,
    decided: bool = False,
    prevented_by: tuple[Safeguard, ...] = (),
    moving: bool = False,
    before_start: bool = False,
    unverified: Unverified | None = None,
    together: Together | None = None,
    loses: bool = False,
    former: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Check], Check]:
    """Registers a check. Its docstring is the rule's page: a title line, then the sections of :data:`SECTIONS`.

    The arguments are the fields of :class:`Rule`.
    """

    def register(check: Check) -> Check:
        title, sections = _page(inspect.getdoc(check) or "")
        missing = [name for name in SECTIONS if name not in sections]
        if missing or family not in FAMILIES or id in CATALOGUE:
            raise AssertionError(f"rule {id}: {missing=} {family=} already there: {id in CATALOGUE}")
        CATALOGUE[id] = Rule(
            id=id, family=family, severity=severity, title=title, sections=sections, check=check, records=records,
            time=time, what_if=what_if, absorbed_by=absorbed_by, voids=voids, blocks=blocks, hold=hold,
            decided=decided, prevented_by=prevented_by, moving=moving, before_start=before_start,
            unverified=unverified, together=together,
            loses=loses, former=former,
        )  # fmt: skip
        return check

    return register


def _page(text: str) -> tuple[str, dict[str, str]]:
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", body, flags=re.M)
    sections = {name: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)}
    return title.strip(), sections


@functools.cache
def load() -> Mapping[str, Rule]:
    """The whole catalogue: every module of this folder is imported.

    Rules stand in the order of the families; within one, the module that opens it goes before those that continue it
    and import its name, these by their names; within a module, in the order of its pages.

    Errors: AssertionError where ``absorbed_by`` names a rule that is none, or rules that absorb each other.
    """
    for found in pkgutil.iter_modules(rules.__path__):
        if not found.ispkg:
            importlib.import_module(f"{rules.__name__}.{found.name}")
    opened_in: dict[str, str] = {}
    for each in CATALOGUE.values():
        opened_in.setdefault(each.family, each.check.__module__)
    ordered = sorted(CATALOGUE.values(), key=lambda r: _place(r, opened_in))
    _check_absorption(CATALOGUE)
    return MappingProxyType({each.id: each for each in ordered})


@functools.cache
def kinds() -> Mapping[str, Rule]:
    """The rule of each kind of findings: of its own id, and of the ids of rules that it stands for."""
    catalogue = load()
    former = {kind: each for each in catalogue.values() for kind in each.former}
    return MappingProxyType({**former, **catalogue})


def _place(each: Rule, opened_in: Mapping[str, str]) -> tuple[int, bool, str]:
    module = each.check.__module__
    return FAMILIES.index(each.family), module != opened_in[each.family], module


def _check_absorption(catalogue: Mapping[str, Rule]) -> None:
    """What absorbs what must end somewhere. A rule may absorb its own findings: the first of them stays."""
    causes = {each.id: {by.rule for by in each.absorbed_by} - {each.id} for each in catalogue.values()}
    if unknown := {name for names in causes.values() for name in names} - catalogue.keys():
        raise AssertionError(f"absorbed_by names no rule: {sorted(unknown)}")
    try:
        TopologicalSorter(causes).prepare()
    except CycleError as error:
        raise AssertionError(f"rules absorb each other: {' < '.join(error.args[1])}") from None


def judge(log: LogView, chosen: Iterable[Rule]) -> Iterator[Finding]:
    """Findings of the chosen rules about one log."""
    for each in chosen:
        yield from each.completed(each.check(log))


def described(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Findings as rows, each with what its rule declares for pages under ``declared``; none for a rule of the past.

    Pages know no rule by name: they go by this. It is no field of a finding and is never written.
    """
    found = ((row, kinds().get(row["rule"])) for row in rows)
    return [{**row, "declared": None if each is None else each.declared} for row, each in found]
