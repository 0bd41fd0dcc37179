"""A rule is a page: its code and its documentation in one place, listed in one catalogue."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditor.rules.finding import Finding

if TYPE_CHECKING:
    from auditor.rules.view import LogView

Check = Callable[["LogView"], Iterable[Finding]]

SECTIONS = ("Checks", "Why it matters", "Can be wrong", "What to do", "Source")
FAMILIES = (
    "producer state", "epochs", "transactions", "coordinator", "cross-checks", "consumer offsets", "record validation",
    "segment integrity", "replicas", "capacity",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """An audit rule: ``check`` yields findings for one log (all copies of a partition), the rest documents it.

    ``severity`` says in words how severe its findings are; ``records`` whether it needs ``--records``; ``time`` whether
    it depends on ``--as-of``; ``what_if`` whether it speaks in ``auditor what-if`` alone.
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

    @property
    def source(self) -> str:
        """Where the rule comes from: the KIP or document."""
        return self.sections["Source"]

    @property
    def remedy(self) -> str:
        """What to do, in general; a finding says it with its own names."""
        return self.sections["What to do"]


CATALOGUE: dict[str, Rule] = {}


def rule(
    id: str, *, family: str, severity: str, records: bool = False, time: bool = False, what_if: bool = False
) -> Callable[[Check], Check]:
    """Registers a check. Its docstring is the rule's page: a title line, then the sections of :data:`SECTIONS`."""

    def register(check: Check) -> Check:
        title, sections = _page(inspect.getdoc(check) or "")
        missing = [name for name in SECTIONS if name not in sections]
        if missing or family not in FAMILIES or id in CATALOGUE:
            raise AssertionError(f"rule {id}: {missing=} {family=} already there: {id in CATALOGUE}")
        CATALOGUE[id] = Rule(id, family, severity, title, sections, check, records, time, what_if)
        return check

    return register


def _page(text: str) -> tuple[str, dict[str, str]]:
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(SECTIONS)}):", body, flags=re.M)
    sections = {name: " ".join(words.split()) for name, words in zip(parts[1::2], parts[2::2], strict=True)}
    return title.strip(), sections


def load() -> dict[str, Rule]:
    """The whole catalogue, every family imported, in the order of the families and of their pages."""
    from auditor.rules import families

    families.load()
    return dict(sorted(CATALOGUE.items(), key=lambda item: FAMILIES.index(item[1].family)))


def judge(log: LogView, chosen: Iterable[Rule]) -> Iterator[Finding]:
    """Findings of the chosen rules about one log."""
    for each in chosen:
        for finding in each.check(log):
            finding.source = finding.source or each.source
            finding.remedy = finding.remedy or each.remedy
            yield finding
