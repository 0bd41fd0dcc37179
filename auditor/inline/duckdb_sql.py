"""SQL over the tables without Spark: DuckDB over the Parquet parts that the workers wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError, require
from auditor.pipeline import derived_tables
from auditor.rules.expectations import measures

if TYPE_CHECKING:
    import pyarrow as pa

BARE_OFFSET = re.compile(r'(?<!["\w])offset\b(?!["\w]|\s+\d)', re.I)  # not the clause OFFSET 10


def duckdb() -> ModuleType:
    """The module. Errors: :class:`AuditInputError` where it is not installed."""
    require("duckdb")
    import duckdb as found

    return found


def _connected() -> Any:
    connection = duckdb().connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first'")
    for name, is_ in measures.MACROS.items():
        connection.execute(f"CREATE MACRO {name} AS {is_}")
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


def count(folder: Path, table: str) -> list[Fields]:
    """What a measure counts in a written table, a row a key."""
    with _connected() as connection:
        _view(connection, "judged", folder)
        text = measures.counting(table, "judged", measures.DUCKDB)
        rows: list[Fields] = connection.sql(text).to_arrow_table().to_pylist()
        return rows
