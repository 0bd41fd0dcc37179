"""What the audits that programs hold have in common: they ask, say what is being done, and give tables."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from auditor import running
from auditor.api import notebook
from auditor.api.tabular import Table
from auditor.pipeline.runner import Runner
from auditor.pipeline.whole_audit import Audit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Face(ABC):
    """A thin face of one audit and of what it runs on."""

    _runner: Runner
    _shown: notebook.Shown

    @property
    @abstractmethod
    def _audit(self) -> Audit:
        """The audit. Errors: ``AuditInputError`` once nothing can be asked of it any more."""

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Around what may read: what goes wrong is said as people take it, and what is being done while it is."""
        try:
            with running.failures():
                yield
        finally:
            self._shown.done()

    def _session(self) -> SparkSession | None:
        """The session that the audit runs on; None: it runs without Spark."""
        session: SparkSession | None = getattr(self._runner, "spark", None)
        return session

    def _table(self, name: str, columns: pa.Schema) -> Table:
        """A table of the audit, which is read once its rows are asked for."""
        return Table(name, columns, partial(self._rows, name), partial(self._frame, name), self._session)

    def _rows(self, name: str) -> pa.Table:
        with self._asking():
            rows = self._audit.table(name)
            return rows if self._session() is None else rows.toArrow()

    def _frame(self, name: str, spark: SparkSession) -> DataFrame | None:
        """The table as a frame of the session that the audit runs on; None for another one."""
        with self._asking():
            return self._audit.table(name) if spark is self._session() else None
