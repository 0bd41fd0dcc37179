"""Findings, blocked partitions and tables as objects."""

from __future__ import annotations

import dataclasses
import json
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
from typing import TYPE_CHECKING, Any, get_type_hints, overload

import numpy as np
from markupsafe import Markup

from auditor import running
from auditor.api.open_options import AnyPath, Several, check, numbers, several, text
from auditor.base.advice import Advice
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, require
from auditor.base.user_input import fits
from auditor.base.words import plural
from auditor.connectors.schema import MEANINGS, array_of
from auditor.dashboards.finding_groups import LEAST, Selection
from auditor.dashboards.wording import visible
from auditor.outputs import publish
from auditor.pipeline import summary
from auditor.pipeline.options import out_of
from auditor.pipeline.what_if_audit import WhatIfAudit
from auditor.rules.catalogue import registry
from auditor.rules.seen.view import FIELDS, SEVERITIES, Finding
from auditor.rules.transactions.blocking import BLOCKED

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


# How findings, explanations and timelines look in a notebook. What comes from the data is escaped.


MAX_ROWS = 200
MAX_HELD = 20  # partitions that are shown beside the headline
COLORS = {"critical": "#b3261e", "error": "#c2410c", "warning": "#8a6100", "info": "#4b5563"}
PAUSE = 0.2  # seconds between two lines about what is being done
CELL = "text-align:left;vertical-align:top;padding:2px 10px"


TABLE = Markup("<p><b>{}</b></p><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")


class CellProgress:
    """What is being done, on a line below a notebook's cell that is wiped at the end."""

    silent = False

    def __init__(self) -> None:
        self.handle: Any = None
        self.said_at = 0.0

    def say(self, text: str) -> None:
        """Shows what is being done now, unless something was shown a moment ago."""
        if self.handle is not None and time.monotonic() - self.said_at < PAUSE:
            return
        self.said_at = time.monotonic()
        self._show(f"… {text}")

    def done(self) -> None:
        """Wipes the line."""
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
    """Where a line says what is being done: below a notebook's cell, if ``wanted`` on standard error, or nowhere.
    None: in notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if wanted is not False and hasattr(shell, "kernel"):
        return CellProgress()
    return running.Progress(silent=not wanted)


@dataclass(frozen=True)
class Text:
    """Lines of text that a notebook shows as they are."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(Markup("<pre>{}</pre>").format(self.text))


@dataclass(frozen=True)
class Page:
    """A whole HTML page, which a notebook shows in a frame of its own: its style stays within, its script is dead."""

    html: str
    height: int

    def __repr__(self) -> str:
        return f"<page of {len(self.html)} characters: a notebook shows it, .html has it>"

    def _repr_html_(self) -> str:
        frame = '<iframe sandbox style="width:100%;height:{}px;border:0" srcdoc="{}"></iframe>'
        return str(Markup(frame).format(self.height, self.html))


def as_text(findings: Sequence[Finding]) -> str:
    """How many there are of each severity."""
    counts = Counter(finding.severity for finding in findings)
    of_each = ", ".join(f"{counts[name]} {name}" for name in SEVERITIES if counts[name])
    return f"<{plural(len(findings), 'finding')}{': ' + of_each if of_each else ''}>"


def findings_html(findings: Sequence[Finding]) -> str:
    """A table of the first findings, in their order."""
    head = Markup("").join(
        Markup('<th style="{}">{}</th>').format(CELL, name)
        for name in ("severity", "rule", "where", "what", "fingerprint")
    )
    rows = Markup("").join(map(_row, findings[:MAX_ROWS]))
    more = len(findings) - MAX_ROWS
    below = Markup("<p>{}</p>").format(f"{plural(more, 'more finding')} not shown") if more > 0 else ""
    return str(TABLE.format(as_text(findings).strip("<>"), head, rows, below))


def unread_html(what: str, reads: str) -> str:
    """Something of which nothing was read yet, or that is closed; ``reads``: what to ask for."""
    return str(Markup("<p>{}</p><p>{}</p>").format(what, f"{reads} read the input, once, and judge it"))


def table_html(title: str, names: Sequence[str], rows: Iterable[Sequence[Any]], more: int = 0) -> str:
    """Rows under their names, and how many are not shown."""
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(CELL, name) for name in names)
    shown = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup('<td style="{}">{}</td>').format(CELL, "" if value is None else visible(str(value)))
                for value in row
            )
        )
        for row in rows
    )
    below = Markup("<p>{}</p>").format(f"{plural(more, 'more row')} not shown") if more > 0 else ""
    return str(TABLE.format(title, head, shown, below))


def audit_html(headline: str, blocked: Sequence[Values], findings: Sequence[Finding]) -> str:
    """Who is blocked and what to do, rows of the table ``blocked`` in their order; below it how much was found."""
    answer = (
        Markup(blocked_html(headline, blocked)) if blocked else Markup("<p><b>{}</b></p>").format(visible(headline))
    )
    return str(Markup("{}<p>{}</p>").format(answer, as_text(findings).strip("<>")))


def blocked_html(title: str, blocked: Sequence[Values]) -> str:
    """The first partitions that are held: how, since when, by whom, and what to do."""
    names = ("partition", "how", "since", "held by", "what to do")
    more = len(blocked) - MAX_HELD
    return table_html(visible(title), names, map(_held, blocked[:MAX_HELD]), more)


def _held(row: Values) -> tuple[str, ...]:
    holder = row["transactional_id"] or f"producer {row['producer_id']}"
    since = "" if row["since"] is None else f"{row['since']:%Y-%m-%d %H:%M:%S}Z"
    return f"{row['topic']}-{row['partition']}", row["standing"], since, holder, row["remedy"] or ""


def _row(finding: Finding) -> Markup:
    place = "" if finding.topic is None else finding.topic
    place += "" if finding.partition is None else f"-{finding.partition}"
    place += "" if finding.offset is None else f" @ {finding.offset}"
    cells = (finding.rule, place, finding.message, finding.fingerprint[:12])
    first = Markup('<td style="{};color:{}"><b>{}</b></td>').format(CELL, COLORS[finding.severity], finding.severity)
    rest = (Markup('<td style="{}">{}</td>').format(CELL, visible(text)) for text in cells)
    return Markup("<tr>{}{}</tr>").format(first, Markup("").join(rest))


# Rows as programs take them: Arrow, pandas, Spark, dicts. What tables, findings and held partitions have in common.


# The session that an audit runs on; None: it runs without Spark. Asked for when a frame is.
Session = Callable[[], "SparkSession | None"]


def no_session() -> SparkSession | None:
    """That of an audit without Spark."""
    return None


class Tabular(ABC):
    """Rows that are had in every form. What takes Arrow's data by itself (``pyarrow.table``, ``polars.DataFrame``,
    DuckDB) takes these too."""

    _session: Session

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, held in memory."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows for pandas. Errors: ``AuditInputError`` where pandas is not installed."""
        require("pandas")
        return self.to_arrow().to_pandas()

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """The rows as a DataFrame of a session, classic or Connect; by default of the one that the audit runs on.

        Errors: ``AuditInputError`` without a session where the audit runs without Spark.
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
    """A table of an audit, or the answer to an SQL text: the same type whatever the audit runs on, with the same
    columns, which docs/tables.md explains. Nothing is read before its rows are asked for, and nothing twice.

    ``name``: of the table, ``sql`` for an answer; ``schema``: its columns as Arrow has them.
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
        """Rows that are there already."""
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
        """How many rows there are. Reads them."""
        count: int = self._held.num_rows
        return count

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table, held in memory; ``audit.sql`` asks tables that do not fit there."""
        return self._held

    def _frame(self, spark: SparkSession) -> DataFrame:
        """On the audit's own session a frame that reads when it is used, and holds nothing here."""
        frame = None if self._own_frame is None else self._own_frame(spark)
        return super()._frame(spark) if frame is None else frame

    def __repr__(self) -> str:
        rows = f"{self.num_rows} rows" if "_held" in self.__dict__ else "not read yet"
        return f"<table {self.name}: {rows}>"

    def _repr_html_(self) -> str:
        """Its first rows once they were read, else its columns: nothing is read for a look."""
        if "_held" in self.__dict__:
            shown = self._held.slice(0, MAX_ROWS)
            rows: list[tuple[Any, ...]] = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
            return table_html(repr(self).strip("<>"), self.columns, rows, self.num_rows - shown.num_rows)
        means = MEANINGS.get(self.name, {})
        rows = [(field.name, field.type, means.get(field.name, "")) for field in self.schema]
        return table_html(repr(self).strip("<>"), ("column", "type", "what it holds"), rows)


# Findings as objects, as a table, as HTML: what ``audit.findings`` is.


SCALARS = tuple(name for name in FIELDS if name not in ("evidence", "advice"))


class Findings(Sequence[Finding], Tabular):
    """The findings of an audit in the contract's order (critical first). A sequence of :class:`Finding` objects.

    In a notebook it shows itself as a table. Nothing in it changes any more.
    """

    def __init__(self, findings: Sequence[Finding], table: pa.Table, session: Session = no_session) -> None:
        self._found = tuple(findings)
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
        return {value: self._some(group) for value, group in places.items()}

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
        return as_text(self._found)

    def _repr_html_(self) -> str:
        return findings_html(self._found)


# Partitions that a transaction holds, as objects: what ``audit.blocked`` is.


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedPartition:
    """A partition whose last stable offset a transaction keeps below its end: a row of the table ``blocked``, whose
    columns docs/tables.md explains. Times are datetimes in UTC, ``advice`` is an object; ``transaction_class`` is the
    column ``class``."""

    cluster_id: str | None
    broker_id: int | None
    log_dir: str
    topic: str
    partition: int
    standing: str
    transaction_class: str
    transactional_id: str | None
    producer_id: int | None
    producer_epoch: int | None
    since: datetime | None
    since_not_before: datetime | None
    since_not_after: datetime | None
    since_by_producer: datetime | None
    age_ms: int
    at_least: bool
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
        """Whether it is held for longer than is normal, so far as the input shows."""
        return self.standing in BLOCKED

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


COLUMNS = tuple("class" if f.name == "transaction_class" else f.name for f in fields(BlockedPartition))


class Blocked(Sequence[BlockedPartition], Tabular):
    """The partitions that transactions hold, the worst first: blocked ones before those that only wait, and of these
    the one held longest. In a notebook it shows itself as a table with what to do."""

    def __init__(self, table: pa.Table, session: Session = no_session) -> None:
        self._table = table
        self._session = session
        self._rows: list[Fields] = table.to_pylist()
        self._found = tuple(map(_partition, self._rows))

    @overload
    def __getitem__(self, at: int) -> BlockedPartition: ...

    @overload
    def __getitem__(self, at: slice) -> Blocked: ...

    def __getitem__(self, at: int | slice) -> BlockedPartition | Blocked:
        """One partition by its place, or some of them."""
        if isinstance(at, slice):
            return Blocked(self._table.take(array_of(np.arange(len(self), dtype=np.int64)[at])), self._session)
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[BlockedPartition]:
        return iter(self._found)

    def to_arrow(self) -> pa.Table:
        """The table ``blocked``; ``advice`` is JSON text."""
        return self._table

    def __repr__(self) -> str:
        blocked = sum(one.is_blocked for one in self)
        return f"<{blocked} blocked, {len(self) - blocked} others held>"

    def _repr_html_(self) -> str:
        return blocked_html(repr(self).strip("<>"), self._rows)


def _partition(row: Fields) -> BlockedPartition:
    advice = json.loads(row["advice"] or "null")
    values = [row[name] for name in COLUMNS[:-1]]
    names = (f.name for f in fields(BlockedPartition))
    return BlockedPartition(**dict(zip(names, [*values, advice and Advice.of(advice)], strict=True)))


# The same history under other broker policies, as objects: what ``audit.what_if`` gives.


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a policy would have answered otherwise in one topic, with one error: runs of stored batches that follow each
    other, their batches and producers."""

    error: str
    topic: str
    runs: int
    batches: int
    producers: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What producer state would have cost a log directory: producers and estimated bytes at their peak and at the end.
    An upper bound: peaks of partitions need not have been at one time."""

    log_dir: str
    broker_id: int | None
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The history under one policy.

    ``runs``, ``batches`` and ``producers``: how many it would have answered otherwise than they were stored;
    ``refusals``: the same by error and topic. ``now``: log directories that worked under it. ``state``: of each log
    directory.
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
    """The same history under each broker policy, as :meth:`OpenedAudit.what_if` gives it. Nothing is read before it is
    asked for, and nothing twice."""

    def __init__(
        self, audit: WhatIfAudit, asking: Callable[[], AbstractContextManager[None]], session: Session
    ) -> None:
        self._audit = audit
        self._asking = asking
        self._session = session

    @cached_property
    def result(self) -> Fields:
        """What ``what-if.json`` holds: refusals by policy, and each broker's producer state."""
        with self._asking():
            return self._audit.result

    @cached_property
    def policies(self) -> dict[str, PolicyOutcome]:
        """What each policy comes to, by its name: ``compared.policies["kip-890-p2"].batches``."""
        brokers = self.result["brokers"]
        return {row["policy"]: _outcome(row, brokers) for row in self.result["policies"]}

    @cached_property
    def verdicts(self) -> Table:
        """The table ``verdicts``: a row a run of stored batches that a policy would have answered otherwise."""
        with self._asking():
            return Table.of("verdicts", self._audit.held("verdicts"), self._session)

    @cached_property
    def findings(self) -> Findings:
        """What the policies would have changed, as findings."""
        with self._asking():
            return Findings(self._audit.findings, summary.findings_table(self._audit), self._session)

    def write(self, out: AnyPath) -> Path | str:
        """Writes what ``auditor what-if --out`` writes, and returns the folder or URI."""
        where = out_of(os.fspath(out))
        self._audit.options = dataclasses.replace(self._audit.options, out=where)
        with self._asking():
            running.write(self._audit, publish.publish_what_if)
        return where

    def __repr__(self) -> str:
        return f"<what if: {', '.join(self._audit.policies)}>"

    def _repr_html_(self) -> str:
        """A row a policy, once it was asked for: nothing is read for a look."""
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
    state = (ProducerState(b["log_dir"], b["broker_id"], **b["policies"][name]) for b in brokers)
    return PolicyOutcome(
        name,
        row["runs"],
        row["batches"],
        row["producers"],
        row["writes_to_a_forgotten_producer"],
        tuple(Refusals(**one) for one in row["errors"]),
        tuple(b["log_dir"] for b in brokers if b["policy_now"] == name),
        tuple(state),
    )
