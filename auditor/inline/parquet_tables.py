"""The tables without Spark: workers write Parquet parts, so that no table passes through the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from auditor.base.errors import DecodeError
from auditor.connectors import pieces
from auditor.connectors.arrow import for_spark
from auditor.connectors.rows import How, Piece, read_piece, table_schema
from auditor.inline.kept_copies import KeptCopies, Log, lists
from auditor.pipeline import derived_tables
from auditor.pipeline.isolation import KILLS, Pool
from auditor.rules.view import Cluster

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited

LISTS_PER_PROCESS = 4
Numbered = tuple[int, list[Piece]]


def write(pool: Pool, audit: Audited, table: str, folder: Path) -> None:
    """Writes a table of an audit into a folder, in several parts. Files that kill their reader go to ``audit.fatal``.

    Cost: the table's files are read once more. Memory: a chunk of a segment a worker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    held = audit.held(table)
    if held is not None:
        derived_tables.write(held, folder)
        return
    if table in derived_tables.OF_FACTS:
        copies, clusters = audit.copies, audit.clusters
        assert isinstance(copies, KeptCopies)
        shares = list(enumerate(lists(copies, pool.size))) or [(0, [])]
        pool.all(shares, partial(_write_derived, clusters, table, folder))
        return
    _decode(pool, audit, table, folder)
    if table == "decode_errors" and audit.outside:
        derived_tables.write(derived_tables.outside(audit.inventory, audit.outside), folder, "part-outside.parquet")


def _decode(pool: Pool, audit: Audited, table: str, folder: Path) -> None:
    options = audit.options
    how = How(options.limits, options.include_payload, options.records)
    refused = audit.refused()
    known = dict(refused)
    plan = partial(pieces.plan, audit.inventory, frozenset({table}), wants_topic=options.wants_topic)
    ((_, found),) = pool.map([options.split_size], plan, refused=refused)
    shares = list(enumerate(pieces.spread(found, pool.size * LISTS_PER_PROCESS))) or [(0, [])]
    for _ in pool.map(shares, partial(_write_decoded, table, how, folder), refused=refused):
        pass  # a part is written
    audit.fatal += sorted(_named(audit, {path: why for path, why in refused.items() if path not in known}))


def _named(audit: Audited, refused: dict[str, str]) -> Iterator[tuple[str, DecodeError]]:
    """Files that killed, by log directory and name."""
    for log_dir in audit.inventory.log_dirs:
        for file in log_dir.files():
            path = f"{(file.place or log_dir.place).path}/{file.name}"
            if refused.get(path, "").startswith(KILLS):
                yield log_dir.name, DecodeError(file.name, 0, file.size, "unreadable", refused[path])


def _write_decoded(table: str, how: How, folder: Path, numbered: Numbered) -> None:
    number, found = numbered
    rows = (rows for piece in found for _, rows in read_piece(piece, frozenset({table}), how))
    _write(rows, table_schema(table, how.payload), folder, number)


def _write_derived(
    clusters: dict[str, Cluster], table: str, folder: Path, numbered: tuple[int, list[Log]]
) -> None:  # fmt: skip
    import pickle

    number, logs = numbered
    rows = (
        rows
        for join_key, facts in logs
        for rows in derived_tables.of_log([pickle.loads(one) for one in facts], clusters[join_key], table)
    )
    _write(rows, derived_tables.OF_FACTS[table], folder, number)


def _write(rows: Iterable[pa.RecordBatch], columns: pa.Schema, folder: Path, number: int) -> None:
    """One part, put in place whole: who comes after a worker that died writes it again."""
    part = folder / f".{number}.part"
    empty = for_spark(pa.RecordBatch.from_pylist([], schema=columns))
    with pq.ParquetWriter(part, empty.schema) as writer:
        writer.write_batch(empty)
        for batch in rows:
            writer.write_batch(for_spark(batch))
    part.rename(folder / f"part-{number:05d}.parquet")
