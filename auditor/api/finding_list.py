"""Findings as objects, as a table, as HTML: what ``audit.findings`` is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints, overload

import numpy as np

from auditor.api import notebook
from auditor.api.hints import check
from auditor.api.open_options import Several, numbers, several, text
from auditor.api.tabular import Session, Tabular, no_session
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.base.user_input import fits
from auditor.connectors.tables.schema import array_of
from auditor.dashboards.selection import LEAST, Selection
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import FIELDS, SEVERITIES, Finding

if TYPE_CHECKING:
    import pyarrow as pa

SCALARS = tuple(name for name in FIELDS if name not in ("evidence", "advice"))


class Findings(Sequence[Finding], Tabular):
    """The findings of an audit in the contract's order (critical first). A sequence of :class:`Finding` objects.

    In a notebook it shows itself as a table. Nothing in it changes any more.
    """

    def __init__(self, found: Sequence[Finding], table: pa.Table, session: Session = no_session) -> None:
        self._found = tuple(found)
        self._table = table
        self._session = session

    def _some(self, places: Sequence[int]) -> Findings:
        return Findings(
            [self._found[place] for place in places],
            self._table.take(array_of(np.array(places, np.int64))),
            self._session,
        )

    @overload
    def __getitem__(self, at: int) -> Finding: ...

    @overload
    def __getitem__(self, at: slice) -> Findings: ...

    def __getitem__(self, at: int | slice) -> Finding | Findings:
        """One finding by its place, or some of them."""
        return self._some(range(len(self))[at]) if isinstance(at, slice) else self._found[at]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def where(
        self,
        condition: Callable[[Finding], bool] | None = None,
        *,
        min_severity: str = LEAST,
        rule: Several = (),
        topic: Several = (),
        partition: Several | int = (),
        broker: int | Sequence[int] = (),
        transactional_id: Several = (),
        group: Several = (),
    ) -> Findings:
        """Those that meet a condition, and are what and where the options say, which mean what they mean to
        ``auditor audit``: ``findings.where(min_severity="error", partition="orders-*")``.

        Arguments:
            condition: A function of a finding: ``lambda f: f.offset == 7``.
            min_severity: ``critical``, ``error``, ``warning`` or ``info``: this one and those above.
            rule: Ids of rules, or of kinds of their findings; one or several.
            topic: Globs of topics; one or several.
            partition: Globs over ``TOPIC-N``, or a partition's number.
            broker: Ids of brokers.
            transactional_id: Globs of transactional ids.
            group: Globs of consumer groups.

        Errors: ``AuditInputError`` for a severity or rule that is none, and for what is of another type.
        """
        own = {
            "condition": condition,
            "min_severity": min_severity,
            "rule": rule,
            "topic": topic,
            "partition": partition,
            "broker": broker,
            "transactional_id": transactional_id,
            "group": group,
        }
        check(own, get_type_hints(Findings.where))
        if min_severity not in SEVERITIES:
            raise AuditInputError(f"no severity named {min_severity!r}; one of {', '.join(SEVERITIES)}")
        if unknown := [name for name in several(rule) if not registry.named(name)]:
            raise AuditInputError(f"no rule named {unknown[0]!r}; 'auditor rules' lists them")
        kinds = {kind.id for name in several(rule) for kind in registry.named(name)}
        asked, topics = (
            Selection(
                min_severity, several(text(partition)), numbers(broker), several(transactional_id), several(group)
            ),
            several(topic),
        )

        def fitting(finding: Finding) -> bool:
            return (
                asked.shows(finding.to_dict())
                and (not kinds or finding.kind in kinds)
                and (not topics or any(fits(finding.topic or "", glob) for glob in topics))
                and (condition is None or condition(finding))
            )

        return self._some([place for place, finding in enumerate(self._found) if fitting(finding)])

    def group_by(self, field: str) -> dict[Any, Findings]:
        """The findings by the value of a field, in the order in which the values come first:
        ``{rule: len(found) for rule, found in findings.group_by("rule").items()}``.

        Errors: ``AuditInputError`` for a field that is none, or has no single value.
        """
        if field not in SCALARS:
            raise AuditInputError(f"findings are not grouped by {field!r}; one of {', '.join(SCALARS)}")
        places: dict[Hashable, list[int]] = {}
        for place, finding in enumerate(self._found):
            places.setdefault(getattr(finding, field), []).append(place)
        return {value: self._some(found) for value, found in places.items()}

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprint of each: the same for the same cause in another run."""
        return [finding.fingerprint for finding in self._found]

    def to_arrow(self) -> pa.Table:
        """The table ``findings``: the contract's fields, ``timestamp`` as one, ``evidence`` and ``advice`` as JSON
        text, and ``cluster_id``, ``run_id``, ``confidence``."""
        return self._table

    def to_dicts(self) -> list[Fields]:
        """Each finding as the object that ``findings.jsonl`` has on its line."""
        return [finding.to_dict() for finding in self._found]

    def __repr__(self) -> str:
        return notebook.as_text(self._found)

    def _repr_html_(self) -> str:
        return notebook.findings_html(self._found)
