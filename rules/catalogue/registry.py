"""The catalogue of rules, and what each declares."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING

from auditor import rules
from auditor.base.advice import Advice, Verdict
from auditor.base.at_rest import Fields, Values
from auditor.base.words import did_you_mean, words_in
from auditor.rules.catalogue.kinds import FORMER_IDS, KINDS, PAGES, Blocks, Need, Unverified
from auditor.rules.catalogue.relations import By, Tie
from auditor.rules.catalogue.safeguards import Safeguard
from auditor.rules.lib.repairs import in_general
from auditor.rules.seen.view import GRAVE, NO_OUTCOME, SEVERITIES, Finding, highest
from auditor.transactions.record import Hold

if TYPE_CHECKING:
    from auditor.rules.seen.view import LogView


# The properties of a log that rules need. A rule is skipped for a log without any of its needs: a healthy log of plain
# data has hardly any, and there may be a million of them.


HAS: Mapping[Need, Callable[[LogView], bool]] = MappingProxyType(
    {
        Need.EVENTS: lambda log: any(len(c.events) for c in log.replicas),
        Need.ERRORS: lambda log: any(c.errors for c in log.replicas),
        Need.AHEAD: lambda log: log.leader.ahead is not None,
        Need.PRODUCERS: lambda log: len(log.leader.producers) > 0,
        Need.TRANSACTIONS: lambda log: any(len(c.transactions) for c in log.replicas),
        Need.STEPS: lambda log: len(log.leader.track) > 0 and log.leader.track["era"][-1] > 0,
        Need.ABORTED: lambda log: any(len(c.aborted) for c in log.replicas),
        Need.EXPOSED: lambda log: any(len(c.exposed) for c in log.replicas),
        Need.SNAPSHOTS: lambda log: any(c.snapshots for c in log.replicas),
        Need.REPLICAS: lambda log: len(log.replicas) > 1,
        Need.OF_ANOTHER: lambda log: len(log.of_another) > 0 or log.topic in log.cluster.incarnations.rivals,
        Need.REMOTE: lambda log: log.remote is not None,
        Need.ELECTIONS: lambda log: (log.topic, log.partition) in log.cluster.elections,
        Need.COORDINATOR: lambda log: log.cluster.coordinator is not None,
        Need.TRANSACTION_STATE: lambda log: log.topic == "__transaction_state",
        Need.CONSUMER_OFFSETS: lambda log: log.topic == "__consumer_offsets",
        Need.METADATA: lambda log: log.topic == "__cluster_metadata",
        Need.SHARE_OFFSETS: lambda log: len(log.leader.share_offsets) > 0,
        Need.LOST_FILES: lambda log: any(c.orphans or not c.segments for c in log.replicas),
        Need.STARTS: lambda log: any(c.log_dir in log.cluster.starts for c in log.replicas),
        Need.MEMORY: lambda log: log.leader.producer_memory is not None or log.leader.coordinator_memory is not None,
    }
)


def there(log: LogView) -> frozenset[Need]:
    """Return the needs that a log meets."""
    return frozenset([need for need, has in HAS.items() if has(log)])


# The declaration of a rule: its page, and of each of its kinds the severities, outcomes and evidence of its findings.


Check = Callable[["LogView"], Iterable[Finding]]
# Merges findings of a rule in a cluster that have one cause, given the advice of its page.
Together = Callable[[Sequence[Finding], Advice], list[Finding]]

SECTIONS = ("Checks", "Why it matters", "Can be wrong", "What to do", "Source")


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
    where it holds of one (:mod:`auditor.rules.catalogue.safeguards`). ``moving``: they may only have been seen in
    motion,
    so ``auditor live`` asks the leader again. ``before_start``: their infos are about the part before the first offset,
    which is no news where reading began later. ``unverified``: why verification refuses such data. ``together``: which
    of its findings have one cause, and are one finding.

    ``outcomes``: what its critical and error findings mean for records, readers and writers, of :data:`OUTCOMES`, the
    usual one first, each with when, as of ``severities``. A finding with another one than the usual one sets it.

    ``needs``: of which a log has to have one, else it is not asked (:mod:`auditor.rules.catalogue.registry`); none:
    every log is. ``evidence``: shapes of what is read again of its findings' evidence
    (:mod:`auditor.base.evidence_keys`), besides ``Evidence``, which all have.
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
    evidence: tuple[type, ...] = ()
    raised: tuple[str, ...] = ()  # further severities: a finding is as severe as what it explains

    @property
    def severity(self) -> str:
        """The severities of its findings, in words."""
        texts = [f"{name} {when}".strip() for name, when in self.severities.items()]
        higher = any(highest(name, *self.severities) == name for name in self.raised)
        return "; ".join(texts + ["inherits the severity of the finding it explains"] * higher)

    @property
    def source(self) -> str:
        """Its source: the KIP or document."""
        return self.sections["Source"]

    @property
    def advice(self) -> Advice:
        """The general advice; a finding has one with its own names."""
        return Advice(Verdict.INVESTIGATE_FIRST, afterwards=self.sections["What to do"])

    def may_speak(self, has: Collection[Need]) -> bool:
        """Return whether it may find anything in a log that meets these needs."""
        return not self.needs or any(need in has for need in self.needs)

    def completed(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield its findings with rule and kind, and with outcome, source and advice if they have none of their own.

        Errors: AssertionError for a finding of another kind, or with an outcome that the kind does not declare.
        """
        for finding in findings:
            if finding.kind not in ("", self.id):
                raise AssertionError(f"rule {self.id} yields a finding of {finding.kind}")
            if finding.outcome and finding.outcome not in self.outcomes:
                raise AssertionError(f"rule {self.id} does not declare the outcome {finding.outcome!r}")
            finding.rule, finding.kind = self.rule, self.id
            finding.outcome = self.outcome(finding.severity, finding.outcome)
            finding.source = finding.source or self.source
            if finding.advice is None:
                grave = finding.severity in GRAVE
                finding.advice = in_general(finding, self.sections["What to do"]) if grave else self.advice
            yield finding

    def outcome(self, severity: str, own: str = "") -> str:
        """The outcome of a finding of this severity; ``own``: what the finding itself sets, empty for the usual one.

        An info has none. A warning has one where it sets it, or where readers are blocked.
        """
        usual = severity in GRAVE or (self.blocks is not None and severity != "info")
        return (own if severity != "info" else "") or next(iter(self.outcomes if usual else ()), NO_OUTCOME)

    @property
    def declared(self) -> Fields:
        """Its fields for pages, as plain data: see :func:`auditor.rules.catalogue.registry.described`."""
        return {"blocks": self.blocks.value if self.blocks else None, "decided": self.decided}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A page of the catalogue with its kinds. ``sections``: the sections that its kinds share."""

    id: str
    family: str
    title: str
    sections: Mapping[str, str]
    kinds: tuple[Kind, ...]

    @property
    def severity(self) -> str:
        """The severities of its findings, in words; with several kinds, each kind has the details."""
        if len(self.kinds) == 1:
            return self.kinds[0].severity
        named = {name for kind in self.kinds for name in kind.severities}
        return f"{', '.join(name for name in SEVERITIES if name in named)}, by kind"

    @property
    def former_ids(self) -> tuple[str, ...]:
        """The ids by which earlier releases report its findings."""
        renamed = (former for former, id in FORMER_IDS.items() if id == self.id)
        return tuple(dict.fromkeys(name for name in (*(kind.id for kind in self.kinds), *renamed) if name != self.id))

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
        return tuple(dict.fromkeys(safeguard for kind in self.kinds for safeguard in kind.prevented_by))

    def said(self, section: str) -> list[tuple[str, str]]:
        """Return a section of its page: the shared text after "", and the text of each kind after its id."""
        of_all = self.sections.get(section, "")
        own = [
            ("" if len(self.kinds) == 1 else kind.id, kind.sections[section])
            for kind in self.kinds
            if kind.sections[section] != of_all
        ]
        return ([("", of_all)] if of_all else []) + own

    def text(self, section: str) -> str:
        """Return the section as running text."""
        return " ".join(f"{kind}: {text}" if kind else text for kind, text in self.said(section))


def found_by(rules: Iterable[Rule]) -> Iterator[Kind]:
    """Return the kinds of rules, in their order."""
    return (kind for rule in rules for kind in rule.kinds)


# The catalogue: every rule is a page, its code, its documentation and its place among the others.


CATALOGUE: dict[str, Kind] = {}  # as declared: no rule is complete before :func:`load`


def rule(
    id: str, *, when: Mapping[str, str] = MappingProxyType({}), together: Together | None = None
) -> Callable[[Check], Check]:
    """Registers the check of a kind that has a row in :data:`auditor.rules.catalogue.kinds.KINDS`.

    Its docstring is the rule's page: a title line, then the sections of :data:`SECTIONS`. One of a rule with several
    kinds may leave to that rule's page the sections that it has. ``when``: of severities and outcomes in the row, in
    which cases a finding has them; ``together``: see :class:`Kind`.

    Errors: AssertionError for an id without a row, for one that has a check, and for ``when`` beside the row.
    """

    def register(check: Check) -> Check:
        row = KINDS.get(id)
        if row is None or id in CATALOGUE:
            raise AssertionError(f"rule {id}: " + ("no row in KINDS" if row is None else "already there"))
        if unknown := set(when) - {*row.severities, *row.outcomes}:
            raise AssertionError(f"rule {id}: when={sorted(unknown)}: not in its row of KINDS")
        title, sections = _page(_docstring(check))
        CATALOGUE[id] = Kind(
            id=id,
            rule=row.rule,
            family=row.family,
            severities={name: when.get(name, "") for name in row.severities},
            outcomes={name: when.get(name, "") for name in row.outcomes},
            absorbed_by=row.absorbed_by,
            title=title,
            sections=sections,
            check=check,
            together=together,
            **row.marks,
        )
        return check

    return register


def _page(text: str) -> tuple[str, dict[str, str]]:
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", body, flags=re.M)
    sections = {name: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)}
    return title.strip(), sections


@functools.cache
def load() -> Mapping[str, Rule]:
    """The whole catalogue in the order of the table: every module of this directory is imported.

    Errors: AssertionError where a row has no check, where a page lacks a section, where ``absorbed_by`` names what is
    no rule and no kind, or where kinds absorb each other.
    """
    for module in pkgutil.iter_modules(rules.__path__):
        if not module.ispkg:
            importlib.import_module(f"{rules.__name__}.{module.name}")
    if without := KINDS.keys() - CATALOGUE.keys():
        raise AssertionError(f"no check registers {sorted(without)}")
    of_rules: dict[str, tuple[str, ...]] = {}
    for row in KINDS.values():
        of_rules[row.rule] = (*of_rules.get(row.rule, ()), row.id)
    names = {name: (name,) for name in KINDS} | of_rules
    made = [_made(rule, several, names) for rule, several in of_rules.items()]
    raised = _raised(made, _order(made))
    whole = (replace(rule, kinds=tuple(replace(k, raised=raised[k.id]) for k in rule.kinds)) for rule in made)
    return MappingProxyType({known_rule.id: known_rule for known_rule in whole})


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Each kind of findings by its id."""
    return MappingProxyType({kind.id: kind for kind in found_by(load().values())})


def kind_of(hold: Hold) -> str:
    """Return the kind of the findings about a transaction that holds readers back."""
    return next(kind.id for kind in kinds().values() if kind.hold is hold)


def current_id(rule_id: str) -> str:
    """Return the current id of a rule; the given one if it was not renamed."""
    return FORMER_IDS.get(rule_id, rule_id)


def named(name: str) -> tuple[Kind, ...]:
    """Return the kinds of the rule with this id or former id, or the kind with this id; none for an unknown id."""
    known = load().get(current_id(name))
    return known.kinds if known is not None else tuple(filter(None, [kinds().get(name)]))


def meant(name: str) -> str:
    """Return a suggestion for an unknown id, as the end of a sentence; empty for none."""
    return did_you_mean(name, [*load(), *kinds()])


def rule_of(name: str) -> Rule | None:
    """The rule with this id, or with a kind of this id."""
    return load()[matches[0].rule] if (matches := named(name)) else None


def _made(id: str, several: tuple[str, ...], names: Mapping[str, tuple[str, ...]]) -> Rule:
    """A rule with these kinds. One with a single kind has that one's page."""
    declared, first = PAGES.get(id), CATALOGUE[several[0]]
    title, of_all = (first.title, first.sections) if declared is None else _page(inspect.cleandoc(declared.text))
    whole = []
    for number, name in enumerate(several):
        kind = CATALOGUE[name]
        sections = {**of_all, **kind.sections}
        if missing := [section for section in SECTIONS if section not in sections]:
            raise AssertionError(f"rule {name}: {missing=}")
        before = () if declared is None or declared.one_by is None else (By(several[:number], declared.one_by),)
        absorbed_by = kind.absorbed_by + (before if number else ())
        ties = tuple(tie for by in absorbed_by for tie in by.ties(names))
        whole.append(replace(kind, sections=sections, absorbed_by=absorbed_by, explained_by=ties))
    family = next(row.rule_family for row in KINDS.values() if row.rule == id)
    return Rule(id=id, family=family, title=title, sections=of_all, kinds=tuple(whole))


def _docstring(check: Check) -> str:
    """The docstring of a check, from its source where Python runs with ``-OO`` and keeps none."""
    if sys.flags.optimize < 2:
        return inspect.getdoc(check) or ""
    (function,) = ast.parse(inspect.getsource(check)).body
    return ast.get_docstring(function) or "" if isinstance(function, ast.FunctionDef) else ""


def _order(made: Iterable[Rule]) -> list[str]:
    """The kinds, causes before what they explain. A kind may absorb its own findings: the first of them stays."""
    causes = {kind.id: {tie.kind for tie in kind.explained_by} - {kind.id} for kind in found_by(made)}
    if unknown := {name for names in causes.values() for name in names} - causes.keys():
        raise AssertionError(f"absorbed_by names no rule: {sorted(unknown)}")
    try:
        return list(TopologicalSorter(causes).static_order())
    except CycleError as error:
        raise AssertionError(f"rules absorb each other: {' < '.join(error.args[1])}") from None


def _raised(made: Iterable[Rule], order: list[str]) -> dict[str, tuple[str, ...]]:
    """Of each kind the severities that it does not declare, and may have for what it explains."""
    all_kinds = {kind.id: kind for kind in found_by(made)}
    reached = {name: set(kind.severities) for name, kind in all_kinds.items()}
    for name in reversed(order):
        for tie in all_kinds[name].explained_by:
            reached[tie.kind] |= reached[name]
    out = {}
    for name, kind in all_kinds.items():
        least = max(SEVERITIES.index(severity) for severity in kind.severities)
        further = [s for s in SEVERITIES[:least] if s in reached[name] and s not in kind.severities]
        out[name] = tuple(further)
    return out


def judge(log: LogView, chosen: Iterable[Kind]) -> Iterator[Finding]:
    """Findings of the chosen kinds about one log."""
    for kind in chosen:
        yield from kind.completed(kind.check(log))


def described(rows: Iterable[Values]) -> list[Fields]:
    """Findings as rows, each with what is declared of its kind for pages under ``declared``; none for a rule of the
    past. A row of a run from before findings had an outcome has the usual one of its kind.

    Pages know no rule by name: they go by this. It is no field of a finding and is never written.
    """
    return [_described(row, kinds().get(row.get("kind") or row["rule"])) for row in rows]


def _described(row: Values, kind: Kind | None) -> Fields:
    if kind is None:
        return {**row, "declared": None}
    outcome = row.get("outcome") or kind.outcome(row.get("severity") or "info")
    return {**row, "outcome": outcome, "declared": kind.declared}


# Rules as text: the catalogue and a rule's page, for terminals and for the docs.


WIDTH = 100


def catalogue(rules: Mapping[str, Rule]) -> str:
    """All rules by family: id, severity, title."""
    lines = []
    family = ""
    width = max(map(len, rules))
    for rule in rules.values():
        if rule.family != family:
            family = rule.family
            lines += ["", family.upper()]
        lines.append(f"  {rule.id:<{width}}  {rule.title}")
        lines += [f"  {'':<{width}}  {text}" for text in _severities(rule)]
    return "\n".join(lines[1:]) + "\n"


def _severities(rule: Rule) -> list[str]:
    """Return the severities of its findings; with several kinds, a line per kind."""
    if len(rule.kinds) == 1:
        return [_remarks(rule)]
    return [f"{kind.id}: {_remarks(kind)}" for kind in rule.kinds]


def _remarks(rule: Rule | Kind) -> str:
    more = [
        text
        for flag, text in (
            (rule.records, "needs --records"),
            (rule.time, "depends on --as-of"),
            (rule.what_if, "only in what-if"),
        )
        if flag
    ]
    return rule.severity + (f" ({', '.join(more)})" if more else "")


def _outcomes(kind: Kind) -> str:
    """Return the outcomes of its critical and error findings; with several, a finding has one of them."""
    return "; ".join(f"{name} {when}".strip() for name, when in kind.outcomes.items())


def causes(text: str) -> list[str]:
    """Split a *Can be wrong* into its causes, the commonest first: each sentence, and each part before a semicolon."""
    return [part.rstrip(".") for part in re.split(r"; (?![^(]*\))|(?<=[a-z0-9)])\. (?=[A-Z])", text)]


def _listed(rule: Rule) -> list[str]:
    lines = []
    for kind, text in rule.said("Can be wrong"):
        lines += [f"  {kind}:"] if kind else []
        for cause in causes(text):
            lines += textwrap.wrap(
                cause, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False
            )
    return lines


def page(rule: Rule) -> str:
    """Return the page of one rule."""
    lines = [rule.id, rule.title]
    outcomes = [(kind.id, _outcomes(kind)) for kind in rule.kinds if kind.outcomes]
    if len(rule.kinds) == 1:
        lines += [f"Kind of its findings: {kind.id}" for kind in rule.kinds if kind.id != rule.id]
        lines.append(f"Severity: {_remarks(rule)}")
        lines += [f"Outcome: {sentence}" for _, sentence in outcomes]
    else:
        lines += ["", "Severity, by kind of findings:"]
        lines += [line for text in _severities(rule) for line in _wrapped(text)]
        lines += ["", "Outcome of critical and error findings, by kind:"] if outcomes else []
        lines += [line for name, sentence in outcomes for line in _wrapped(f"{name}: {sentence}")]
    lines.append("")
    sections: dict[str, list[str]] = {}
    for name in SECTIONS:
        sections[name] = [f"{kind}: {text}" if kind else text for kind, text in rule.said(name)]
    if rule.absorbed_by:
        beside = dict.fromkeys(name for by in rule.absorbed_by for name in by.rules)
        sections["Reported as part of"] = [", ".join(beside)]
    if rule.prevented_by:
        sections["Prevented by"] = ["; ".join(safeguard.setting for safeguard in rule.prevented_by)]
    for name, texts in sections.items():
        listed = _listed(rule) if name == "Can be wrong" else [line for text in texts for line in _wrapped(text)]
        lines += [name + ":", *listed, ""]
    if words := words_in([rule.title, *(text for texts in sections.values() for text in texts)]):
        lines += [
            "Glossary:",
            *(line for word, says in words.items() for line in _wrapped(f"{word}: {says}", "    ")),
            "",
        ]
    return "\n".join(lines)


def _wrapped(text: str, further: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent=further, break_on_hyphens=False)
