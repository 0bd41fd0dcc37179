"""The catalogue: every rule is a page, its code, its documentation and its place among the others."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING

from auditor import rules
from auditor.base.at_rest import Fields, Values
from auditor.base.words import did_you_mean
from auditor.rules.catalogue.kinds import (
    SECTIONS,
    Blocks,
    Check,
    Hold,
    Kind,
    Rule,
    Together,
    Unverified,
    found_by,
)
from auditor.rules.catalogue.needs import Need
from auditor.rules.catalogue.relations import By, Relation
from auditor.rules.catalogue.safeguards import Safeguard
from auditor.rules.seen.finding import GRAVE, OUTCOMES, SEVERITIES, Finding

if TYPE_CHECKING:
    from auditor.rules.seen.view import LogView

FAMILIES = (
    "producer state",
    "epochs",
    "transactions",
    "coordinator",
    "cross-checks",
    "consumer offsets",
    "record validation",
    "segment integrity",
    "replicas",
    "tiered storage",
    "capacity",
)


@dataclass(frozen=True, slots=True)
class Page:
    """A rule that asks several questions, as :func:`merged` declares it."""

    id: str
    family: str
    title: str
    sections: Mapping[str, str]
    kinds: tuple[str, ...]
    absorbed_by: tuple[By, ...]
    one_by: Relation | None


CATALOGUE: dict[str, Kind] = {}  # as declared: no rule is complete before :func:`load`
PAGES: dict[str, Page] = {}


def rule(
    id: str,
    *,
    family: str,
    severities: Mapping[str, str],
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
    outcomes: Mapping[str, str] = MappingProxyType({}),
    needs: tuple[Need, ...] = (),
) -> Callable[[Check], Check]:
    """Registers a check. Its docstring is the rule's page: a title line, then the sections of :data:`SECTIONS`.

    One that :func:`merged` names is a kind of that rule, and may leave to it the sections that it has. The arguments
    are the fields of :class:`Kind`.
    """

    def register(check: Check) -> Check:
        title, sections = _page(inspect.getdoc(check) or "")
        if family not in FAMILIES or id in CATALOGUE or not severities or set(severities) - set(SEVERITIES):
            raise AssertionError(f"rule {id}: {family=} {severities=} already there: {id in CATALOGUE}")
        if set(outcomes) - set(OUTCOMES) or (not outcomes and set(severities) & set(GRAVE)):
            raise AssertionError(f"rule {id}: {outcomes=}: critical and error findings need some of {OUTCOMES}")
        CATALOGUE[id] = Kind(
            id=id, family=family, severities=severities, title=title, sections=sections, check=check, records=records,
            time=time, what_if=what_if, absorbed_by=absorbed_by, voids=voids, blocks=blocks, hold=hold,
            decided=decided, prevented_by=prevented_by, moving=moving, before_start=before_start,
            unverified=unverified, together=together, outcomes=outcomes, needs=needs,
        )  # fmt: skip
        return check

    return register


def merged(
    id: str,
    text: str,
    *,
    family: str,
    kinds: tuple[str, ...],
    absorbed_by: tuple[By, ...] = (),
    one_by: Relation | None = None,
) -> None:
    """Declares a rule that asks several questions, ``kinds``: each is a check that :func:`rule` registers.

    ``text``: a title line, and the sections that its kinds leave to it; ``absorbed_by``: what explains findings of any
    of them, behind what each declares itself; ``one_by``: a finding for which this holds is explained by one of a kind
    that stands before its own in ``kinds``.
    """
    title, sections = _page(inspect.cleandoc(text))
    if family not in FAMILIES or id in PAGES:
        raise AssertionError(f"rule {id}: {family=} already there: {id in PAGES}")
    PAGES[id] = Page(id, family, title, sections, kinds, absorbed_by, one_by)


def _page(text: str) -> tuple[str, dict[str, str]]:
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", body, flags=re.M)
    sections = {name: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)}
    return title.strip(), sections


@functools.cache
def load() -> Mapping[str, Rule]:
    """The whole catalogue: every module of this folder is imported.

    Rules stand in the order of the families; within one, the module that opens it goes before those that continue it
    and import its name, these by their names; within a module, in the order of its pages;
    a rule of several kinds where the first of them is.

    Errors: AssertionError where a page lacks a section, where ``absorbed_by`` names what is no rule and no kind, or
    where kinds absorb each other.
    """
    for found in pkgutil.iter_modules(rules.__path__):
        if not found.ispkg:
            importlib.import_module(f"{rules.__name__}.{found.name}")
    owned = [kind for page in PAGES.values() for kind in page.kinds]
    if unknown := set(owned) - CATALOGUE.keys():
        raise AssertionError(f"no kinds are {sorted(unknown)}")
    alone = (
        Page(kind.id, kind.family, kind.title, kind.sections, (kind.id,), (), None)
        for kind in CATALOGUE.values()
        if kind.id not in owned
    )
    opened_in: dict[str, str] = {}
    for kind in CATALOGUE.values():
        opened_in.setdefault(kind.family, kind.check.__module__)
    pages = sorted([*alone, *PAGES.values()], key=lambda page: _place(page, opened_in))
    names = {name: (name,) for name in CATALOGUE} | {page.id: page.kinds for page in pages}
    made = [_made(page, names) for page in pages]
    raised = _raised(made, _order(made))
    whole = (replace(rule, kinds=tuple(replace(k, raised=raised[k.id]) for k in rule.kinds)) for rule in made)
    return MappingProxyType({each.id: each for each in whole})


@functools.cache
def kinds() -> Mapping[str, Kind]:
    """Each kind of findings by its id."""
    return MappingProxyType({kind.id: kind for kind in found_by(load().values())})


def named(name: str) -> tuple[Kind, ...]:
    """The kinds that a rule's id stands for, or a kind's; none for a name that is neither."""
    return load()[name].kinds if name in load() else tuple(filter(None, [kinds().get(name)]))


def meant(name: str) -> str:
    """Which rule or kind an id may have been meant for that neither has, as the end of a sentence; empty for none."""
    return did_you_mean(name, [*load(), *kinds()])


def rule_of(name: str) -> Rule | None:
    """The rule with this id, or with a kind of this id."""
    return load()[each[0].rule] if (each := named(name)) else None


def _made(page: Page, names: Mapping[str, tuple[str, ...]]) -> Rule:
    whole = []
    for number, name in enumerate(page.kinds):
        kind = CATALOGUE[name]
        sections = {**page.sections, **kind.sections}
        if missing := [section for section in SECTIONS if section not in sections]:
            raise AssertionError(f"rule {name}: {missing=}")
        before = (By(page.kinds[:number], page.one_by),) if page.one_by is not None and number else ()
        absorbed_by = (*kind.absorbed_by, *page.absorbed_by, *before)
        ties = tuple(tie for by in absorbed_by for tie in by.ties(names))
        changed = {"rule": page.id, "sections": sections, "absorbed_by": absorbed_by, "explained_by": ties}
        whole.append(replace(kind, **changed))  # type: ignore[arg-type]
    return Rule(id=page.id, family=page.family, title=page.title, sections=page.sections, kinds=tuple(whole))


def _place(page: Page, opened_in: Mapping[str, str]) -> tuple[int, bool, str, int]:
    first = CATALOGUE[page.kinds[0]]
    module, within = first.check.__module__, list(CATALOGUE).index(first.id)
    return FAMILIES.index(page.family), module != opened_in[page.family], module, within


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
    for each in chosen:
        yield from each.completed(each.check(log))


def described(rows: Iterable[Values]) -> list[Fields]:
    """Findings as rows, each with what is declared of its kind for pages under ``declared``; none for a rule of the
    past. A row of a run from before findings had an outcome has the usual one of its kind.

    Pages know no rule by name: they go by this. It is no field of a finding and is never written.
    """
    return [_described(row, kinds().get(row.get("kind") or row["rule"])) for row in rows]


def _described(row: Values, each: Kind | None) -> Fields:
    if each is None:
        return {**row, "declared": None}
    outcome = row.get("outcome") or each.outcome(row.get("severity") or "info")
    return {**row, "outcome": outcome, "declared": each.declared}
