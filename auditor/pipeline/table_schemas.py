"""The columns of every table, whatever it is made from."""

from __future__ import annotations

import pyarrow as pa

from auditor.connectors.tables.rows import table_schema
from auditor.connectors.tables.schema import DECODED
from auditor.pipeline import results
from auditor.pipeline.tables import derived_tables
from auditor.pipeline.what_if import verdicts


def schemas(payload: bool = False) -> dict[str, pa.Schema]:
    """The columns of each table by name; ``payload``: with the keys and values of records."""
    of = {name: table_schema(name, payload) for name in DECODED}
    of |= derived_tables.OF_FACTS
    of |= {"verdicts": verdicts.VERDICTS, "findings": results.FINDINGS_TABLE, "blocked": results.BLOCKED}
    return {name: of[name] for name in derived_tables.NAMES}
