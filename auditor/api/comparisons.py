"""Comparisons in Python programs: auditor.compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_type_hints

from auditor import running
from auditor.api.objects import Table, Text, no_session
from auditor.api.open_options import AnyPath, Several, check, several
from auditor.base.errors import AuditInputError
from auditor.dashboards import table_lines
from auditor.dashboards.comparison_page import comparison_page
from auditor.pipeline import comparison
from auditor.pipeline.comparison import COMPARISON, CompareOptions
from auditor.pipeline.options import AuditOptions
from auditor.pipeline.summary import table_of
from auditor.replay.reading.record_sums import KEY_BYTES


@dataclass(frozen=True)
class Compared:
    """The result of :func:`auditor.compare`.

    ``table``: the rows, a table with the columns of docs/tables.md#comparison. ``differs``: whether a difference is not
    explained. ``incomplete``: whether part of the input was unreadable. ``partitions``, ``records_a``, ``records_b``:
    how many were compared. In a notebook it shows itself as the page of ``--html``.
    """

    table: Table
    differs: bool
    incomplete: bool
    partitions: int
    records_a: int
    records_b: int
    _done: comparison.Comparison = field(repr=False)
    _names: tuple[str, str] = field(repr=False)

    def text(self) -> Text:
        """The result as the command prints it."""
        done = self._done
        lines = table_lines.comparison_lines(done.shown, done.partitions, done.records, done.incomplete)
        return Text("".join(lines))

    def _repr_html_(self) -> str:
        done = self._done
        return comparison_page(done.shown, done.partitions, done.records, done.incomplete, self._names)


def compare(
    a: AnyPath, b: AnyPath, *, topic: Several = (), topic_map: Mapping[str, str] | None = None,
    sum_key: bytes | None = None, remote: Several = (), at_once: bool = False, master: str | None = None,
) -> Compared:  # fmt: skip
    """Compare two topics, clusters or backups by the content of their records, as ``auditor compare`` does.

    Arguments:
        a: The source: a log directory, a directory above several, or a URI.
        b: The mirror or the backup.
        topic: Only these topics of A (globs).
        topic_map: Topics of B by their name in A, where they differ by more than MirrorMaker's ``SOURCE.``.
        sum_key: Key of the sums, 32 bytes, for copies that were prepared with one; by default random.
        remote: Directories with remote segments of tiered topics.
        at_once: Each input is of one moment.
        master: ``inline`` (the default), ``inline[N]``, or a Spark master.

    Returns:
        The result. Both inputs have been read by then.

    Errors:
        ``AuditInputError``, one sentence, for a path that cannot be read, topics without a counterpart, and an argument
        of another type; ``AuditFailure`` where the comparison itself failed.
    """
    check(locals(), get_type_hints(compare))
    if sum_key is not None and len(sum_key) != KEY_BYTES:
        raise AuditInputError(f"sum_key has {len(sum_key)} bytes; give {KEY_BYTES}")
    names = str(a), str(b)
    theirs = AuditOptions((names[1],), Path(), at_once=at_once, remote=several(remote), master=master or "inline")
    ours = replace(theirs, paths=(names[0],), topics=several(topic))
    with running.failures(), running.runner(ours) as runner:
        done = comparison.compare((ours, theirs), runner, CompareOptions(topic_map or {}, sum_key))
    rows = Table.of("comparison", table_of(done.rows, COMPARISON), no_session)
    return Compared(rows, done.differs, done.incomplete, done.partitions, *done.records, done, names)
