"""Findings, blocked partitions, tables and what-if results as objects."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints, overload

import numpy as np
from markupsafe import Markup

from auditor import running
from auditor.api.open_options import AnyPath, Several, check, numbers, several, text
from auditor.base.advice import Advice
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, require
from auditor.base.user_input import fits
from auditor.base.words import plural
from auditor.connectors.schema import TABLES, array_of
from auditor.dashboards.finding_groups import LEAST, Selection
from auditor.dashboards.wording import visible
from auditor.outputs import publish
from auditor.pipeline import summary
from auditor.pipeline.options import out_of
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import FIELDS, SEVERITIES, Finding
from auditor.transactions.record import BLOCKED

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


# HTML for notebooks. All text from the data is escaped.


MAX_ROWS = 200
MAX_HELD = 20  # partitions that are shown with the headline
COLORS = {"critical": "#b3261e", "error": "#c2410c", "warning": "#8a6100", "info": "#4b5563"}
PAUSE = 0.2  # seconds between two updates of the progress line
CELL = "text-align:left;vertical-align:top;padding:2px 10px"
TABLE = Markup("<p><b>{}</b></p><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")


class CellProgress:
    """A progress line below a notebook's cell, removed at the end."""

    silent = False

    def __init__(self) -> None:
        self.handle: Any = None
        self.shown_at = 0.0

    def say(self, text: str) -> None:
        """Show what is being done, at most every :data:`PAUSE` seconds."""
        if self.handle is not None and time.monotonic() - self.shown_at < PAUSE:
            return
        self.shown_at = time.monotonic()
        self._show(f"… {text}")

    def done(self) -> None:
        """Remove the line."""
        if self.handle is not None:
            self._show("")
            self.handle = None

    def _show(self, text: str) -> None:
        data = {"text/plain": text, "text/html": str(Markup("<i>{}</i>").format(visible(text)))}
        if self.handle is None:
            from IPython.display import display

            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


Shown = CellProgress | running.Progress


def progress(wanted: bool | None) -> Shown:
    """Return where progress is shown: below a notebook's cell, on stderr (``wanted``), or nowhere. ``None``: in
    notebooks only."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if wanted is not False and hasattr(shell, "kernel"):
        return CellProgress()
    return running.Progress(silent=not wanted)


@dataclass(frozen=True)
class Text:
    """Lines of text that a notebook shows unchanged."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(Markup("<pre>{}</pre>").format(self.text))


@dataclass(frozen=True)
class Page:
    """A whole HTML page. A notebook shows it in a sandboxed frame: its style stays inside, its script does not run."""

    html: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {len(self.html)} characters: a notebook shows it, .html has it>"

    def _repr_html_(self) -> str:
        frame = '<iframe sandbox style="width:100%;height:{}px;border:0" srcdoc="{}"></iframe>'
        return str(Markup(frame).format(self.height, self.html))


def as_text(findings: Sequence[Finding]) -> str:
    """Return the number of findings per severity."""
    counts = Counter(finding.severity for finding in findings)
    of_each = ", ".join(f"{counts[name]} {name}" for name in SEVERITIES if counts[name])
    return f"<{plural(len(findings), 'finding')}{': ' + of_each if of_each else ''}>"


def findings_html(findings: Sequence[Finding]) -> str:
    """Format the first findings as a table, in the order given."""
    names = ("severity", "rule", "where", "what", "fingerprint")
    more = len(findings) - MAX_ROWS
    return _table(as_text(findings).strip("<>"), names, map(_row, findings[:MAX_ROWS]), more, "more finding")


def unread_html(what: str, reads: str) -> str:
    """Format an object that is closed or not read yet; ``reads``: the attributes that read the input."""
    return str(Markup("<p>{}</p><p>{}</p>").format(what, f"{reads} read the input, once, and judge it"))


def table_html(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """Format rows as a table; ``more``: the number of rows that are not shown."""
    shown = (
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup('<td style="{}">{}</td>').format(CELL, "" if value is None else visible(str(value)))
                for value in row
            )
        )
        for row in rows
    )
    return _table(title, names, shown, more, "more row")


def _table(title: str, names: Sequence[str], rows: Iterable[Markup], more: int, noun: str) -> str:
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(CELL, name) for name in names)
    below = Markup("<p>{}</p>").format(f"{plural(more, noun)} not shown") if more > 0 else ""
    return str(TABLE.format(title, head, Markup("").join(rows), below))


def audit_html(headline: str, blocked: Sequence[Values], findings: Sequence[Finding]) -> str:
    """Format the blocked partitions with what to do, then the number of findings. ``blocked``: rows of the table
    ``blocked``."""
    answer = (
        Markup(blocked_html(headline, blocked)) if blocked else Markup("<p><b>{}</b></p>").format(visible(headline))
    )
    return str(Markup("{}<p>{}</p>").format(answer, as_text(findings).strip("<>")))


def blocked_html(title: str, blocked: Sequence[Values]) -> str:
    """Format the first blocked partitions: status, since when, by whom, and what to do."""
    names = ("partition", "how", "since", "held by", "what to do")
    more = len(blocked) - MAX_HELD
    return table_html(visible(title), names, map(_held, blocked[:MAX_HELD]), more)


def _held(row: Values) -> tuple[str, ...]:
    holder = row["transactional_id"] or f"producer {row['producer_id']}"
    since = "" if row["began_at"] is None else f"{row['began_at']:%Y-%m-%d %H:%M:%S}Z"
    return f"{row['topic']}-{row['partition']}", row["standing"], since, holder, row["remedy"] or ""


def _row(finding: Finding) -> Markup:
    place = "" if finding.topic is None else finding.topic
    place += "" if finding.partition is None else f"-{finding.partition}"
    place += "" if finding.offset is None else f" @ {finding.offset}"
    cells = (finding.rule, place, finding.message, finding.fingerprint[:12])
    first = Markup('<td style="{};color:{}"><b>{}</b></td>').format(CELL, COLORS[finding.severity], finding.severity)
    rest = (Markup('<td style="{}">{}</td>').format(CELL, visible(text)) for text in cells)
    return Markup("<tr>{}{}</tr>").format(first, Markup("").join(rest))


# Rows as Arrow, pandas, Spark and dicts.


# Returns the session that an audit runs on, None without Spark. Called only when a frame is asked for.
Session = Callable[[], "SparkSession | None"]
Item = TypeVar("Item")


def no_session() -> SparkSession | None:
    """The session of an audit without Spark."""
    return None


class Tabular(ABC):
    """Rows that convert to Arrow, pandas, Spark and dicts. Whatever takes Arrow data (``pyarrow.table``,
    ``polars.DataFrame``, DuckDB) takes them too."""

    _session: Session

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, held in memory."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame; whole numbers stay so where some are null (``Int64``).

        Errors: ``AuditInputError`` if pandas is not installed.
        """
        require("pandas")
        import pandas
        import pyarrow as pa

        nullable = {pa.int64(): pandas.Int64Dtype(), pa.int32(): pandas.Int32Dtype(), pa.int16(): pandas.Int16Dtype()}
        return self.to_arrow().to_pandas(types_mapper=nullable.get)

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """The rows as a DataFrame of ``spark``, classic or Connect, by default of the audit's own session.

        Errors: ``AuditInputError`` if neither exists.
        """
        session = spark or self._session()
        if session is None:
            raise AuditInputError("this audit runs without Spark; give a session: to_spark(spark)")
        return self._frame(session)

    def _frame(self, spark: SparkSession) -> DataFrame:
        from auditor.spark.spark_tables import local

        return local(spark, self.to_arrow())

    def to_dicts(self) -> list[Fields]:
        """The rows as dicts of plain values."""
        rows: list[Fields] = self.to_arrow().to_pylist()
        return rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule protocol."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class Table(Tabular):
    """A table of an audit, or the result of an SQL text: the same type and columns (docs/tables.md) with and without
    Spark. Rows are read once, on first use.

    ``name``: of the table, ``sql`` for a result; ``schema``: its columns in Arrow.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        read: Callable[[], pa.Table],
        frame: Callable[[SparkSession], DataFrame | None] | None = None,
        session: Session = no_session,
    ) -> None:
        self.name = name
        self.schema = schema
        self._read = read
        self._own_frame = frame
        self._session = session

    @classmethod
    def of(cls, name: str, rows: pa.Table, session: Session) -> Table:
        """Wrap rows that are in memory."""
        made = cls(name, rows.schema, lambda: rows, session=session)
        _ = made._held
        return made

    @cached_property
    def _held(self) -> pa.Table:
        rows = self._read()
        return rows if rows.schema.equals(self.schema) else rows.cast(self.schema)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.schema.names)

    @property
    def num_rows(self) -> int:
        """The number of rows. Reads them."""
        count: int = self._held.num_rows
        return count

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, held in memory. Query tables that do not fit there by ``audit.sql``."""
        return self._held

    def _frame(self, spark: SparkSession) -> DataFrame:
        # On the audit's own session a lazy frame, without rows in this process.
        frame = None if self._own_frame is None else self._own_frame(spark)
        return super()._frame(spark) if frame is None else frame

    def __repr__(self) -> str:
        rows = f"{self.num_rows} rows" if "_held" in self.__dict__ else "not read yet"
        return f"<table {self.name}: {rows}>"

    def _repr_html_(self) -> str:
        # The columns until rows were read: a notebook's display must not start an audit.
        if "_held" in self.__dict__:
            shown = self._held.slice(0, MAX_ROWS)
            rows: list[tuple[Any, ...]] = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
            return table_html(repr(self).strip("<>"), self.columns, rows, self.num_rows - shown.num_rows)
        means = TABLES[self.name].meanings if self.name in TABLES else {}
        rows = [(field.name, field.type, means.get(field.name, "")) for field in self.schema]
        return table_html(repr(self).strip("<>"), ("column", "type", "what it holds"), rows)


class TabularSequence(Sequence[Item], Tabular):
    """Objects with the table that has a row for each of them."""

    _items: tuple[Item, ...]
    _table: pa.Table

    @abstractmethod
    def _selected(self, items: Sequence[Item], table: pa.Table) -> Self:
        """The same type with some of the items and their rows."""

    def _some(self, places: Sequence[int]) -> Self:
        rows = self._table.take(array_of(np.array(places, np.int64)))
        return self._selected([self._items[place] for place in places], rows)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Item | Self:
        """One item by its place, or some of them."""
        return self._some(range(len(self))[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, held in memory."""
        return self._table


# Findings.


SCALARS = tuple(name for name in FIELDS if name not in ("evidence", "advice"))


class Findings(TabularSequence[Finding]):
    """The findings of an audit in the contract's order (critical first): an immutable sequence of :class:`Finding`.

    As Arrow it is the table ``findings`` (docs/tables.md): the contract's fields with ``timestamp`` as a timestamp,
    ``advice`` as a struct, and ``evidence`` as columns and a map. A notebook shows it as a table.
    """

    def __init__(self, findings: Sequence[Finding], table: pa.Table, session: Session = no_session) -> None:
        self._items = tuple(findings)
        self._table = table
        self._session = session

    def _selected(self, items: Sequence[Finding], table: pa.Table) -> Self:
        return type(self)(items, table, self._session)

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
        """Select findings by a condition and by the options of ``auditor audit``:
        ``findings.where(min_severity="error", partition="orders-*")``.

        Arguments:
            condition: A function of a finding: ``lambda f: f.offset == 7``.
            min_severity: ``critical``, ``error``, ``warning`` or ``info``: this one and those above.
            rule: Ids of rules, or of kinds of their findings; one or several.
            topic: Globs of topics; one or several.
            partition: Globs over ``TOPIC-N``, or a partition's number.
            broker: Ids of brokers.
            transactional_id: Globs of transactional ids.
            group: Globs of consumer groups.

        Errors: ``AuditInputError`` for an unknown severity or rule, and for an argument of another type.
        """
        check(locals(), get_type_hints(Findings.where))
        if min_severity not in SEVERITIES:
            raise AuditInputError(f"no severity named {min_severity!r}; one of {', '.join(SEVERITIES)}")
        if unknown := [name for name in several(rule) if not registry.named(name)]:
            raise AuditInputError(f"no rule named {unknown[0]!r}; 'auditor rules' lists them")
        kinds = {kind.id for name in several(rule) for kind in registry.named(name)}
        selection = Selection(
            min_severity, several(text(partition)), numbers(broker), several(transactional_id), several(group)
        )
        topics = several(topic)

        def fitting(finding: Finding) -> bool:
            return (
                selection.shows(finding.to_dict())
                and (not kinds or finding.kind in kinds)
                and (not topics or any(fits(finding.topic or "", glob) for glob in topics))
                and (condition is None or condition(finding))
            )

        return self._some([place for place, finding in enumerate(self) if fitting(finding)])

    def group_by(self, field: str) -> dict[Any, Findings]:
        """Group the findings by the value of a field, in the order of first appearance:
        ``{rule: len(group) for rule, group in findings.group_by("rule").items()}``.

        Errors: ``AuditInputError`` for an unknown field, or one without a single value.
        """
        if field not in SCALARS:
            raise AuditInputError(f"findings are not grouped by {field!r}; one of {', '.join(SCALARS)}")
        places: dict[Hashable, list[int]] = {}
        for place, finding in enumerate(self):
            places.setdefault(getattr(finding, field), []).append(place)
        return {value: self._some(group) for value, group in places.items()}

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprint of each finding, which is the same for the same cause in another run."""
        return [finding.fingerprint for finding in self]

    def to_dicts(self) -> list[Fields]:
        """Each finding as the object on its line of ``findings.jsonl``."""
        return [finding.to_dict() for finding in self]

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return findings_html(self._items)


# Blocked partitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition whose last stable offset is held back by an open transaction: a row of the table ``blocked``
    (docs/tables.md). Times are datetimes in UTC, ``advice`` is an object; ``transaction_class`` is the column
    ``class``."""

    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int
    status: str
    certainty: str
    standing: str
    transaction_class: str
    transactional_id: str | None
    framework: str | None
    application: str | None
    application_part: str | None
    framework_certainty: str | None
    framework_why: str | None
    producer_id: int | None
    producer_epoch: int | None
    began_at: datetime | None
    began_earliest_at: datetime | None
    began_latest_at: datetime | None
    began_by_producer_at: datetime | None
    age_ms: int
    at_least: bool
    held_at_least_ms: int | None
    timeout_ms: int | None
    beyond_timeout: bool | None
    state: str | None
    why: str
    first_offset: int | None
    last_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    log_end: int | None
    readable_end: int | None
    batches: int | None
    records: int | None
    bytes: int | None
    others: int
    readers: list[str]
    severity: str | None
    if_true: str | None
    rule: str | None
    fingerprint: str | None
    accepted: bool
    left_out: bool
    remedy: str
    advice: Advice | None

    @property
    def is_blocked(self) -> bool:
        """Whether it is blocked for longer than is normal, as far as the input shows."""
        return self.standing in BLOCKED

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


COLUMNS = tuple("class" if f.name == "transaction_class" else f.name for f in fields(BlockedPartition))


class Blocked(TabularSequence[BlockedPartition]):
    """The partitions with an open transaction, the worst first: blocked ones before those within their timeout, each
    group by age. As Arrow it is the table ``blocked``. A notebook shows it as a table with what to do."""

    def __init__(self, table: pa.Table, session: Session = no_session) -> None:
        self._table = table
        self._session = session
        self._rows: list[Fields] = table.to_pylist()
        self._items = tuple(map(_partition, self._rows))

    def _selected(self, items: Sequence[BlockedPartition], table: pa.Table) -> Self:
        return type(self)(table, self._session)

    def __repr__(self) -> str:
        blocked = sum(one.is_blocked for one in self)
        return f"<{blocked} blocked, {len(self) - blocked} others held>"

    def _repr_html_(self) -> str:
        return blocked_html(repr(self).strip("<>"), self._rows)


def _partition(row: Fields) -> BlockedPartition:
    advice = row["advice"]
    values = [row[name] for name in COLUMNS[:-1]]
    names = (f.name for f in fields(BlockedPartition))
    return BlockedPartition(**dict(zip(names, [*values, advice and Advice.of(advice)], strict=True)))


# The history under other broker policies.


@dataclass(frozen=True, slots=True)
class Refusals:
    """Stored batches of one topic that a policy would have rejected with one error: ``runs`` of consecutive batches,
    the ``batches`` and their ``producers``."""

    error: str
    topic: str
    runs: int
    batches: int
    producers: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The size of a log directory's producer state under a policy: producers and estimated bytes, at their peak and
    at the end. The peak is an upper bound: partitions need not peak at the same time."""

    log_dir: str
    broker_id: int | None
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The history under one policy.

    ``runs``, ``batches`` and ``producers``: how many it answers differently than they were stored; ``refusals``: the
    same by error and topic; ``now``: log directories that used this policy; ``state``: producer state by log directory.
    """

    policy: str
    runs: int
    batches: int
    producers: int
    writes_to_a_forgotten_producer: int
    refusals: tuple[Refusals, ...]
    now: tuple[str, ...]
    state: tuple[ProducerState, ...]


class WhatIf:
    """The same history under each broker policy, from :meth:`OpenedAudit.what_if`. Results are computed once, on
    first use."""

    def __init__(
        self, audit: WhatIfAudit, asking: Callable[[], AbstractContextManager[None]], session: Session
    ) -> None:
        self._audit = audit
        self._asking = asking
        self._session = session

    @cached_property
    def result(self) -> Fields:
        """The content of ``what-if.json``: rejections by policy, and each broker's producer state."""
        with self._asking():
            return self._audit.result

    @cached_property
    def policies(self) -> dict[str, PolicyOutcome]:
        """The outcome of each policy by its name: ``compared.policies["kip-890-p2"].batches``."""
        brokers = self.result["brokers"]
        return {row["policy"]: _outcome(row, brokers) for row in self.result["policies"]}

    @cached_property
    def verdicts(self) -> Table:
        """The table ``verdicts``: one row per run of stored batches that a policy would have answered differently."""
        with self._asking():
            return Table.of("verdicts", self._audit.held("verdicts"), self._session)

    @cached_property
    def findings(self) -> Findings:
        """The differences between the policies, as findings."""
        with self._asking():
            return Findings(self._audit.findings, summary.findings_table(self._audit), self._session)

    def write(self, out: AnyPath) -> Path | str:
        """Write the results of ``auditor what-if --out`` and return the directory or URI."""
        where = out_of(os.fspath(out))
        self._audit.options = dataclasses.replace(self._audit.options, out=where)
        with self._asking():
            running.write_by(self._audit, publish.publish_what_if)
        return where

    def __repr__(self) -> str:
        return f"<what if: {', '.join(self._audit.policies)}>"

    def _repr_html_(self) -> str:
        # Policies only once they were computed: a notebook's display must not start an audit.
        if "result" not in self.__dict__:
            return unread_html(repr(self), "its policies, verdicts and findings")
        rows = (
            (p.policy, len(p.now), p.runs, p.batches, p.producers, sum(state.bytes_peak for state in p.state))
            for p in self.policies.values()
        )
        names = ("policy", "log directories now", "runs", "batches", "producers", "bytes of state at peak")
        return table_html(repr(self).strip("<>"), names, rows)


def _outcome(row: Values, brokers: list[Fields]) -> PolicyOutcome:
    name = row["policy"]
    return PolicyOutcome(
        name,
        row["runs"],
        row["batches"],
        row["producers"],
        row["writes_to_a_forgotten_producer"],
        tuple(Refusals(**error) for error in row["errors"]),
        tuple(b["log_dir"] for b in brokers if b["policy_now"] == name),
        tuple(ProducerState(b["log_dir"], b["broker_id"], **b["policies"][name]) for b in brokers),
    )
