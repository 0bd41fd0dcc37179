"""One finding with its evidence and its rule, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from auditor.base.at_rest import Values
from auditor.base.errors import AuditInputError
from auditor.dashboards.one_finding import explained
from auditor.rules.catalogue import registry


def one(rows: Iterable[Values], name: str) -> Values:
    """The finding whose fingerprint begins with ``name``; of several of one fingerprint the first.

    ``rows`` have the contract's fields and ``fingerprint``. Errors: :class:`AuditInputError` for none or several.
    """
    wanted = name.lower()
    found = {row["fingerprint"]: row for row in reversed(list(rows)) if row["fingerprint"].startswith(wanted)}
    if len(found) != 1 or not wanted:
        many = f"{len(found)} findings have" if found else "no finding has"
        raise AuditInputError(f"{many} a fingerprint that begins with {wanted!r}; the audit prints them")
    (row,) = found.values()
    return row


def text(row: Values, width: int, events: Sequence[Values] | None) -> str:
    """A finding explained; ``width`` in columns; ``events``: what the cluster did beside it, null where a run of the
    past does not say."""
    kind = registry.kinds().get(row.get("kind") or row["rule"])
    page = {} if kind is None else {"Title": kind.title, **kind.sections}
    return "\n".join(explained(row, page, width, events)) + "\n"
