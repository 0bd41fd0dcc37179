"""SQL over the tables without Spark: DuckDB over the Parquet parts that the workers wrote."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError
from auditor.inline import parquet_tables as writing
from auditor.pipeline import derived_tables
from auditor.rules.expectations.measures import MEASURES

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.isolation import Pool
    from auditor.pipeline.runner import Audited

# What Spark's SQL has and DuckDB calls otherwise, so that one text does for both.
MACROS = (
    "CREATE MACRO size(x) AS len(x)",
    "CREATE MACRO array_except(a, b) AS list_filter(a, lambda x: NOT list_contains(b, x))",
    "CREATE MACRO unix_millis(t) AS epoch_ms(t)",
)


def duckdb() -> ModuleType:
    """The module. Errors: :class:`AuditInputError` where it is not installed."""
    try:
        import duckdb as found
    except ImportError:
        raise AuditInputError(
            "SQL without Spark needs DuckDB, which is not installed; pip install duckdb, or give --master 'local[*]'"
        ) from None
    return found


def _connected() -> Any:
    connection = duckdb().connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first'")
    for macro in MACROS:
        connection.execute(macro)
    return connection


def _view(connection: Any, name: str, folder: Path) -> None:
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    connection.read_parquet(files).create_view(name)


def query(pool: Pool, audit: Audited, text: str, wanted: frozenset[str]) -> pa.Table:
    """The result of an SQL text over ``wanted`` tables. Errors: :class:`AuditInputError` for a text that is wrong."""
    from auditor.connectors import schema

    found = duckdb()
    with tempfile.TemporaryDirectory(prefix="auditor-sql-") as folder, _connected() as connection:
        for name in derived_tables.NAMES:
            if name in wanted:
                writing.write(pool, audit, name, Path(folder, name))
                _view(connection, name, Path(folder, name))
            elif name in schema.DECODED:  # SHOW TABLES and DESCRIBE know it
                derived_tables.write(schema.DECODED[name].empty_table(), Path(folder, name))
                _view(connection, name, Path(folder, name))
        try:
            return connection.sql(text).to_arrow_table()
        except found.Error as error:
            says = str(error).strip().splitlines()[0]
            raise AuditInputError(f"{says} (tables: {', '.join(derived_tables.NAMES)})") from None


def _quoted(sql: str) -> str:
    """SQL in which the column that DuckDB takes for a keyword stands as a name."""
    return re.sub(r"\boffset\b", '"offset"', sql)


def count(folder: Path, table: str) -> list[dict[str, Any]]:
    """What a measure counts in a written table, a row a key."""
    wanted = MEASURES[table]
    before = "".join(
        f", lag({_quoted(name)}) OVER (PARTITION BY {_quoted(', '.join(wanted.within))} "
        f"ORDER BY {_quoted(', '.join(wanted.order))}) "
        f"AS before_{name}"
        for name in wanted.before
    )
    counts = ["count(*) AS rows"]
    for check in wanted.checks:
        unique = ", ".join(f"{_quoted(name)} := {_quoted(name)}" for name in check.unique)
        broken = f"count(*) - count(DISTINCT struct_pack({unique}))" if unique else f"count_if({_quoted(check.broken)})"
        counts.append(f"{broken} AS {check.name}")
    key = ", ".join(wanted.key)
    with _connected() as connection:
        _view(connection, "judged", folder)
        text = (
            f"WITH found AS (SELECT *{before} FROM judged) SELECT {key}, {', '.join(counts)} FROM found "
            f"GROUP BY {key} ORDER BY {key}"
        )
        rows: list[dict[str, Any]] = connection.sql(text).to_arrow_table().to_pylist()
        return rows
