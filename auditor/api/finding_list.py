"""Findings as objects, as a table, as HTML: what ``audit.findings`` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from auditor.api import notebook
from auditor.base.extras import require
from auditor.rules.finding import Finding

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Findings(Sequence[Finding]):
    """The findings of an audit in the contract's order (critical first). A sequence of :class:`Finding` objects.

    In a notebook it shows itself as a table. Nothing in it changes any more.
    """

    def __init__(self, found: Sequence[Finding], table: pa.Table) -> None:
        self._found = tuple(found)
        self._table = table

    @overload
    def __getitem__(self, at: int) -> Finding: ...

    @overload
    def __getitem__(self, at: slice) -> Findings: ...

    def __getitem__(self, at: int | slice) -> Finding | Findings:
        """One finding by its place, or some of them."""
        if isinstance(at, slice):
            places = range(len(self))[at]
            return Findings([self._found[place] for place in places], self._table.take(list(places)))
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def where(self, condition: Callable[[Finding], bool]) -> Findings:
        """Those that meet a condition: ``findings.where(lambda f: f.severity == "critical")``."""
        places = [place for place, finding in enumerate(self._found) if condition(finding)]
        return Findings([self._found[place] for place in places], self._table.take(places))

    @property
    def fingerprints(self) -> list[str]:
        """The fingerprint of each: the same for the same cause in another run."""
        return [finding.fingerprint for finding in self._found]

    def to_arrow(self) -> pa.Table:
        """The table ``findings``: the contract's fields, ``timestamp`` as one, ``evidence`` and ``advice`` as JSON
        text, and ``cluster_id``, ``run_id``, ``confidence``."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """The same for pandas. Errors: ``AuditInputError`` where pandas is not installed."""
        require("pandas")
        return self._table.to_pandas()

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The same as a DataFrame of a session, classic or Connect."""
        from auditor.spark.spark_tables import local

        return local(spark, self._table)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Each finding as the object that ``findings.jsonl`` has on its line."""
        return [finding.to_dict() for finding in self._found]

    def __repr__(self) -> str:
        return notebook.as_text(self._found)

    def _repr_html_(self) -> str:
        return notebook.findings_html(self._found)
