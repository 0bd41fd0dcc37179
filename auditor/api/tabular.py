"""Rows as programs take them: Arrow, pandas, Spark, dicts. What tables, findings and held partitions have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from auditor.api import notebook
from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError, require
from auditor.connectors.tables.schema import MEANINGS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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
        found: list[Fields] = self.to_arrow().to_pylist()
        return found

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
        found = self._read()
        return found if found.schema.equals(self.schema) else found.cast(self.schema)

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
            shown = self._held.slice(0, notebook.MAX_ROWS)
            rows: list[tuple[Any, ...]] = list(zip(*(column.to_pylist() for column in shown.columns), strict=True))
            return notebook.table_html(repr(self).strip("<>"), self.columns, rows, self.num_rows - shown.num_rows)
        means = MEANINGS.get(self.name, {})
        rows = [(field.name, field.type, means.get(field.name, "")) for field in self.schema]
        return notebook.table_html(repr(self).strip("<>"), ("column", "type", "what it holds"), rows)
