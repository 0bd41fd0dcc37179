"""The tables that an audit wrote, for comparison."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def tables_of(out: Path) -> dict[str, tuple[pa.Schema, list[str]]]:
    """Schema and rows of every table; in which order rows come is nobody's promise."""
    read = {path.name: pq.read_table(path) for path in (out / "tables").iterdir()}
    return {name: (rows.schema, sorted(map(repr, rows.to_pylist()))) for name, rows in read.items()}
