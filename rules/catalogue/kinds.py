"""What a rule declares of itself: its page, and of each of its questions what findings are, mean and rest on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from auditor.base.advice import Advice, Verdict
from auditor.base.at_rest import Fields
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.relations import By, Tie
from auditor.rules.catalogue.safeguards import Safeguard
from auditor.rules.seen.finding import GRAVE, NO_OUTCOME, SEVERITIES, Finding, highest

if TYPE_CHECKING:
    from auditor.rules.seen.view import LogView

Check = Callable[["LogView"], Iterable[Finding]]
# Of a rule's findings in a cluster those that stay where several have one cause, given the remedy of its page.
Together = Callable[[Sequence[Finding], Advice], list[Finding]]

SECTIONS = ("Checks", "Why it matters", "Can be wrong", "What to do", "Source")


class Hold(Enum):
    """Which findings speak of an open transaction that holds readers back, by how it stands."""

    NOBODYS = "nobodys"  # no coordinator will ever decide it
    PINNED = "pinned"  # its data lies below the log start
    PREPARED = "prepared"  # decided, and a partition has not taken its marker
    OVERDUE = "overdue"  # open for longer than its time-out
    LONG = "long"  # within its time-out, or without any


class Blocks(Enum):
    """Who waits behind what is found, above info."""

    READERS = "readers"  # the partition's read_committed consumers
    GROUP = "group"  # they, and the group that the finding names, which cannot fetch its offsets


class Unverified(Enum):
    """Why a leader that verifies with the coordinator refuses the data that is found (KIP-890)."""

    ENDED = "its transaction has ended, and under transaction.version 2 so has its epoch"
    NOT_ADDED = "the transaction does not have the partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One question: ``check`` yields findings for one log (all replicas of a partition), the rest says what they are.

    A rule with one question has its id. Where rules were merged each kind has a former rule's id, by which, with its
    ``family``, fingerprints are made, and which ``--rule``, ``--skip-rule`` and baselines take.

    ``severities``: those that its findings may have, the usual one first, each with when ("" where nothing needs to be
    said); ``records`` whether it needs ``--records``; ``time`` whether it depends on ``--as-of``; ``what_if`` whether
    it speaks in ``auditor what-if`` alone.

    What its findings have to do with others: ``absorbed_by`` names what explains them and how, the first that does
    takes them; ``voids`` says that nothing else can be found in the same bytes.

    What they mean: ``blocks`` who waits; ``hold`` which open transactions it speaks of; ``decided`` whether the
    coordinator has decided the transaction, so that an abort would contradict it; ``prevented_by`` what prevents such,
    where it holds of one (:mod:`auditor.rules.settled.prevention`). ``moving``: they may only have been seen in motion,
    so ``auditor live`` asks the leader again. ``before_start``: their infos are on what lies before the first offset,
    which is no news where reading began later. ``unverified``: why verification refuses such data. ``together``: which
    of its findings have one cause, and are one finding.

    ``outcomes``: what its critical and error findings mean for records, readers and writers, of :data:`OUTCOMES`, the
    usual one first, each with when, as of ``severities``. A finding with another one than the usual one sets it.

    ``needs``: of which a log has to have one, else it is not asked (:mod:`auditor.rules.catalogue.needs`); none: every
    log is.
    """

    id: str
    family: str
    severities: Mapping[str, str]
    title: str
    sections: Mapping[str, str]
    check: Check
    rule: str = ""
    records: bool = False
    time: bool = False
    what_if: bool = False
    absorbed_by: tuple[By, ...] = ()
    explained_by: tuple[Tie, ...] = ()  # the same, a cause each
    voids: bool = False
    blocks: Blocks | None = None
    hold: Hold | None = None
    decided: bool = False
    prevented_by: tuple[Safeguard, ...] = ()
    moving: bool = False
    before_start: bool = False
    unverified: Unverified | None = None
    together: Together | None = None
    outcomes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    raised: tuple[str, ...] = ()  # further severities: a finding is as severe as what it explains

    @property
    def severity(self) -> str:
        """How severe its findings are, in words."""
        said = [f"{name} {when}".strip() for name, when in self.severities.items()]
        graver = [name for name in self.raised if highest(name, *self.severities) == name]
        return "; ".join(said + [f"{name} where what it explains is" for name in graver])

    @property
    def source(self) -> str:
        """Where it comes from: the KIP or document."""
        return self.sections["Source"]

    @property
    def advice(self) -> Advice:
        """What to do, in general; a finding says it with its own names."""
        return Advice(Verdict.LOOK, then=self.sections["What to do"])

    def may_speak(self, has: Collection[Need]) -> bool:
        """Whether it may find anything in a log that has so much."""
        return not self.needs or any(need in has for need in self.needs)

    def completed(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Its findings as those of its rule, with outcome, source and advice where they say none of their own.

        Errors: AssertionError for an outcome that the kind does not declare.
        """
        for finding in found:
            if finding.outcome and finding.outcome not in self.outcomes:
                raise AssertionError(f"rule {self.id} does not declare the outcome {finding.outcome!r}")
            finding.rule = self.rule
            finding.outcome = self.outcome(finding.severity, finding.outcome)
            finding.source = finding.source or self.source
            finding.advice = finding.advice or self.advice
            yield finding

    def outcome(self, severity: str, own: str = "") -> str:
        """The outcome of a finding of this severity; ``own``: what the finding itself sets, empty for the usual one.

        An info has none. A warning has one where it sets it, or where readers are blocked.
        """
        usual = severity in GRAVE or (self.blocks is not None and severity != "info")
        return (own if severity != "info" else "") or next(iter(self.outcomes if usual else ()), NO_OUTCOME)

    @property
    def declared(self) -> Fields:
        """What pages need of it, as plain data: see :func:`auditor.rules.catalogue.registry.described`."""
        return {"blocks": self.blocks.value if self.blocks else None, "decided": self.decided}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A page of the catalogue, and the questions that it answers. ``sections``: what its kinds need not say each."""

    id: str
    family: str
    title: str
    sections: Mapping[str, str]
    kinds: tuple[Kind, ...]

    @property
    def severity(self) -> str:
        """How severe its findings are, in words; where there are several kinds, each says when."""
        if len(self.kinds) == 1:
            return self.kinds[0].severity
        named = {name for kind in self.kinds for name in kind.severities}
        return f"{', '.join(name for name in SEVERITIES if name in named)}, by kind"

    @property
    def records(self) -> bool:
        """Whether all of it needs ``--records``."""
        return all(kind.records for kind in self.kinds)

    @property
    def time(self) -> bool:
        """Whether some of it depends on ``--as-of``."""
        return any(kind.time for kind in self.kinds)

    @property
    def what_if(self) -> bool:
        """Whether it speaks in ``auditor what-if`` alone."""
        return all(kind.what_if for kind in self.kinds)

    @property
    def absorbed_by(self) -> tuple[By, ...]:
        """What explains findings of any of its kinds."""
        return tuple(dict.fromkeys(by for kind in self.kinds for by in kind.absorbed_by))

    @property
    def prevented_by(self) -> tuple[Safeguard, ...]:
        """What would have prevented findings of any of its kinds."""
        return tuple(dict.fromkeys(each for kind in self.kinds for each in kind.prevented_by))

    def said(self, section: str) -> list[tuple[str, str]]:
        """A section of its page: what holds for all of it, after "", and what each kind says itself, after its id."""
        of_all = self.sections.get(section, "")
        own = [
            ("" if kind.id == self.id and len(self.kinds) == 1 else kind.id, kind.sections[section])
            for kind in self.kinds
            if kind.sections[section] != of_all
        ]
        return ([("", of_all)] if of_all else []) + own

    def text(self, section: str) -> str:
        """The same as running text."""
        return " ".join(f"{kind}: {text}" if kind else text for kind, text in self.said(section))


def found_by(rules: Iterable[Rule]) -> Iterator[Kind]:
    """The questions of rules, in their order."""
    return (kind for rule in rules for kind in rule.kinds)
