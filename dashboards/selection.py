"""What is printed of a run: by severity, partition, broker, transactional id and group. Results have all of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from auditor.base.at_rest import Values
from auditor.base.user_input import fits, is_of
from auditor.dashboards.wording import SEVERITIES

LEAST = SEVERITIES[-1]


@dataclass(frozen=True, slots=True)
class Selection:
    """Of each kind any of its values will do, and every kind that has values must fit. Empty: everything.

    ``partitions``: globs over ``topic-partition``, or a partition's number alone; ``transactional_ids`` and ``groups``:
    globs; ``least``: the severity below which findings are not printed. ``infos``: a table lists infos too, which it
    counts where nobody asked for them.
    """

    least: str = LEAST
    partitions: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    infos: bool = False

    @property
    def narrow(self) -> bool:
        """Whether it leaves anything out."""
        return self != Selection(infos=self.infos)

    def holds(self, row: Values) -> bool:
        """Whether a finding or a partition that is held is where and whose the selection says, whatever its severity.

        A held partition is a group's where the group reads it: its ``readers``.
        """
        groups = [row.get("group_id"), *(row.get("readers") or ())]
        return (
            (not self.partitions or any(is_partition(row, glob) for glob in self.partitions))
            and (not self.brokers or row.get("broker_id") in self.brokers)
            and (not self.transactional_ids or named([row.get("transactional_id")], self.transactional_ids))
            and (not self.groups or named(groups, self.groups))
        )

    def shows(self, finding: Values) -> bool:
        """Whether a finding is printed."""
        return SEVERITIES.index(finding["severity"]) <= SEVERITIES.index(self.least) and self.holds(finding)

    def said(self) -> str:
        """The selection in words; empty where it leaves nothing out."""
        parts = [
            f"{what} {' or '.join(map(str, values))}"
            for what, values in (
                ("partition", self.partitions),
                ("broker", self.brokers),
                ("transactional id", self.transactional_ids),
                ("group", self.groups),
            )
            if values
        ]
        parts += [f"{self.least} and above"] if self.least != LEAST else []
        return ", ".join(parts)


ALL = Selection()


@dataclass(frozen=True, slots=True)
class Printing:
    """What a command prints, and how. ``format``: one of :data:`auditor.dashboards.output_formats.FORMATS`."""

    format: str = "table"
    quiet: bool = False
    verbose: bool = False
    selection: Selection = ALL


def is_partition(row: Values, glob: str) -> bool:
    """Whether a row is of a partition that ``--partition`` means; of several, whether one of them is."""
    if row.get("topic") is None or row.get("partition") is None:
        several = (row.get("evidence") or {}).get("partitions")
        names = several if isinstance(several, list) else []
        return any(glob == name.rpartition("-")[2] or fits(name, glob) for name in names)
    return is_of(row["topic"], row["partition"], glob)


def named(values: Iterable[Any], globs: Iterable[str]) -> bool:
    """Whether any of the values fits any of the globs."""
    texts = [str(value) for value in values if value is not None]
    return any(fits(text, glob) for glob in globs for text in texts)
