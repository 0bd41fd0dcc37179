"""SQL over the tables without Spark: DuckDB over the Parquet parts that the workers wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from auditor.base.errors import AuditInputError
from auditor.base.extras import require
from auditor.pipeline import derived_tables
from auditor.rules.expectations.measures import MEASURES

if TYPE_CHECKING:
    import pyarrow as pa

# What Spark's SQL has and DuckDB calls otherwise, so that one text does for both.
MACROS = (
    "CREATE MACRO size(x) AS len(x)",
    "CREATE MACRO array_except(a, b) AS list_filter(a, lambda x: NOT list_contains(b, x))",
    "CREATE MACRO unix_millis(t) AS epoch_ms(t)",
)
BARE_OFFSET = re.compile(r'(?<!["\w])offset\b(?!["\w]|\s+\d)', re.I)  # not the clause OFFSET 10


def duckdb() -> ModuleType:
    """The module. Errors: :class:`AuditInputError` where it is not installed."""
    require("duckdb")
    import duckdb as found

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


def query(text: str, tables: Mapping[str, pa.Schema], parts: Callable[[], Mapping[str, Path]]) -> pa.Table:
    """The result of an SQL text over ``tables``. ``parts`` writes those that the text names: the folder of each.

    A wrong text is said before anything is written. Errors: :class:`AuditInputError` for it.
    """
    found = duckdb()
    with _connected() as connection:
        for name, columns in tables.items():
            connection.register(f"no_{name}", columns.empty_table())
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM no_{name}")
        try:
            kinds = [statement.type for statement in connection.extract_statements(text)]
            if len(kinds) != 1 or kinds[0] not in (found.StatementType.SELECT, found.StatementType.EXPLAIN):
                raise AuditInputError("one question at a time; give SELECT, WITH, DESCRIBE, SUMMARIZE or SHOW TABLES")
            connection.sql(text)
            for name, folder in parts().items():
                connection.execute(f"DROP VIEW {name}")
                _view(connection, name, folder)
            return connection.sql(text).to_arrow_table()
        except found.Error as error:
            raise AuditInputError(_one_line(error, text)) from None


def _one_line(error: Exception, text: str) -> str:
    """What DuckDB says is wrong, with the columns it would take, and what we know beyond that."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    helpful = ("Candidate bindings", "Did you mean")
    said = [lines[0].rstrip("!"), *(line for line in lines[1:] if line.startswith(helpful))]
    if "Table with name" in lines[0]:
        said[1:] = ["there are " + ", ".join(derived_tables.NAMES)]
    elif isinstance(error, duckdb().ParserException) and BARE_OFFSET.search(text):
        said.append('DuckDB takes offset for a keyword: write "offset", in double quotes')
    return "; ".join(said)


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
