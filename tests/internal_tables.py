"""The tables of an internal topic record by record and by column, compared."""

from __future__ import annotations

import io

import pyarrow as pa

from auditor.base.errors import Limits
from auditor.connectors.codec.segment import read_segment
from auditor.connectors.logdir.internal_rows import InternalColumns, InternalRows
from auditor.connectors.schema import Key
from auditor.connectors.tables.rows import parts

LIMITS = Limits(max_batch_bytes=64 << 20)


def same_both_ways(topic: str, data: bytes, *, payload: bool = False) -> dict[str, pa.Table]:
    """The tables of a segment. Raises where rows, their order or what could not be read differ."""
    key: Key = ("cluster", 1, "broker-1", topic, 0)
    plain, quick = InternalRows(topic, LIMITS, payload=payload), InternalColumns(topic, LIMITS, payload=payload)
    for held in (False, True):
        for chunk in read_segment(io.BytesIO(data), len(data), file="0.log", limits=LIMITS, raw=True, keep_bytes=held):
            for part in parts(chunk):
                assert plain.add("0.log", part) == quick.add("0.log", part)
    rows, columns = plain.tables(key), quick.tables(key)
    assert rows.keys() == columns.keys()
    for table, wanted in rows.items():
        columns[table].validate(full=True)
        if not columns[table].equals(wanted):  # row by row only then: it takes long
            assert columns[table].to_pylist() == wanted.to_pylist()
        assert columns[table].schema == wanted.schema
    assert (plain.unreadable, plain.unknown) == (quick.unreadable, quick.unknown)
    return columns
