"""Findings by their cause: of one kind and, as far as that makes few, of one producer, transactional id or group; and
blocked partitions by who holds them.

The terminal and the report go by the same causes, so that a thousand partitions held by four producers are four.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from auditor.dashboards.answers import Blocked, Open
from auditor.dashboards.wording import SEVERITIES, Finding, kind, who

OWNERS = 8
_NAMES = ("transactional_id", "producer_id", "producer_epoch", "group_id")


@dataclass(frozen=True, slots=True)
class Cause:
    """Findings of one kind and severity that have one owner, or whose owners are too many to be told apart.

    ``who`` in words, empty where they name nobody; ``owners``: how many there are; ``findings`` in the order given.
    """

    rule: str
    kind: str
    severity: str
    who: str
    owners: int
    findings: Sequence[Finding]


def causes(findings: Sequence[Finding], most: int = OWNERS) -> list[Cause]:
    """The causes of ``findings``, worst severity first, else in the order in which the findings are given.

    A kind's findings go by owner where it has at most ``most`` of them. Where it has more, those with at least one in
    ``most`` of its findings stand for themselves, and all others together. Infos go by kind alone, unless they have
    one owner. Cost: linear.
    """
    by_kind: dict[tuple[str, str, str], dict[tuple[object, ...], list[Finding]]] = {}
    for finding in findings:
        owners = by_kind.setdefault((finding["severity"], finding["rule"], kind(finding)), {})
        owners.setdefault(_owner(finding), []).append(finding)
    found: list[Cause] = []
    for (severity, rule, name), owners in sorted(by_kind.items(), key=lambda item: SEVERITIES.index(item[0][0])):
        few = most if severity != SEVERITIES[-1] else 1
        total = sum(map(len, owners.values()))
        named = [mine for mine in owners.values() if len(owners) <= few or len(mine) * few >= total]
        rest = [mine for mine in owners.values() if not (len(owners) <= few or len(mine) * few >= total)]
        found += [Cause(rule, name, severity, _who(mine), 1, mine) for mine in named]
        if rest:
            said = f"{len(rest):,} {'more ' if named else ''}producers or groups"
            others = [f for mine in rest for f in mine]
            found.append(Cause(rule, name, severity, said if len(rest) > 1 else _who(others), len(rest), others))
    return found


def alone(finding: Finding) -> Cause:
    """A finding that stands for itself."""
    return Cause(finding["rule"], kind(finding), finding["severity"], who(finding), 1, [finding])


def _owner(finding: Finding) -> tuple[object, ...]:
    """Whose it is: a transactional id keeps its findings together through the producer ids that it has had."""
    name = finding["transactional_id"]
    return (name, None if name is not None else finding["producer_id"], finding["group_id"])


def _who(findings: Sequence[Finding]) -> str:
    """The owner in words, with what all its findings have in common: not the epoch, where there are several."""
    first = findings[0]
    return who({name: first[name] for name in _NAMES if all(f[name] == first[name] for f in findings)})


@dataclass(frozen=True, slots=True)
class Held:
    """Partitions that one producer holds, all standing alike and with the same advice, in the order given."""

    rows: Sequence[Blocked]

    @property
    def first(self) -> Open:
        """What holds the first of them: of rows as :func:`answers.blocked` gives them, for the longest."""
        return self.rows[0].holder

    @property
    def waiting(self) -> int | None:
        """How many offsets lie behind all of them; None where it is not known of each."""
        counts = [row.holder.waiting for row in self.rows]
        return sum(c for c in counts if c is not None) if None not in counts else None

    @property
    def readers(self) -> list[str]:
        """Groups that read committed offsets of their topics."""
        return sorted({str(name) for row in self.rows for name in row.holder.row.get("readers") or ()})

    @property
    def groups(self) -> list[str]:
        """Groups that cannot start."""
        return sorted({name for row in self.rows for name in row.groups})


def holders(rows: Sequence[Blocked]) -> list[Held]:
    """Blocked partitions by who holds them, in the order of the first of each. Cost: linear."""
    found: dict[tuple[object, ...], list[Blocked]] = {}
    for row in rows:
        holder = row.holder
        name = holder.row.get("transactional_id")
        owner = (name, holder.row["producer_id"] if name is None else None)
        found.setdefault((holder.cluster, *owner, holder.standing, holder.advice["verdict"]), []).append(row)
    return [Held(mine) for mine in found.values()]
