"""Tables written as Parquet parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from auditor.base.at_rest import loads
from auditor.base.errors import AuditInputError, DecodeError
from auditor.base.words import plural
from auditor.connectors.stores import retries
from auditor.connectors.stores.results import ResultFolder
from auditor.connectors.tables import input_splits
from auditor.connectors.tables.rows import How, Piece
from auditor.pipeline import derived_tables, summary, table_tasks
from auditor.pipeline.table_tasks import NOT_SHARED, TableRequest, WrittenPart, WrittenTables
from auditor.processes.isolation import Pool

if TYPE_CHECKING:
    from auditor.pipeline.runner import Audited


# Tables as Parquet: tasks write files under unique names into a staging directory and report them, the driver moves
# reported files to their place ([decision 13](docs/decisions/013-tables.md)).
#
# A task that dies, is repeated or runs twice leaves unreported files, which are removed with the staging directory:
# no row is there twice. A file is read once for all tables. In a store, reported files wait in the staging directory
# until all other results are uploaded (:mod:`auditor.outputs.delivery`).


STAGING = ".parts"
LISTS_PER_SLOT = 4  # so that slots end at about the same time,
LEAST_BYTES = 8 << 20  # but no list with less to read than this, nor any
MOST_BYTES = 512 << 20  # with more than this, which a task that dies would lose


RunTasks = Callable[["Audited", TableRequest], list[WrittenPart]]


def run_tasks(audit: Audited, wanted: TableRequest) -> list[WrittenPart]:
    """Run the tasks that write tables; return the parts that count.

    Files that kill their reader are added to ``audit.fatal``.
    """
    written = audit.runner.decode(audit, wanted) if wanted.decoded else []
    if not wanted.derived:
        return written
    runner, held, clusters = audit.runner, audit.replicas.held, summary.clusters_for(audit, wanted.derived)
    job = f"write {plural(len(wanted.derived), 'table')}"
    if wanted.of_logs:
        written += _parts(runner.over(held, partial(table_tasks.derive, wanted, clusters), job))
    if wanted.of_all:
        shares = partial(derived_tables.shares_of, clusters)
        written += _parts(runner.gather(held, shares, partial(table_tasks.gather, wanted, clusters), job))
    return written


def _parts(results: Iterable[bytes]) -> list[WrittenPart]:
    """Number parts by the order of what was worked over."""
    return [part._replace(task=number) for number, parts in enumerate(map(loads, results)) for part in parts]


def write(
    audit: Audited,
    tables: Sequence[str],
    folder: Path,
    staging: ResultFolder | None = None,
    run: RunTasks = run_tasks,
    columns: Mapping[str, Sequence[str]] = {},
) -> WrittenTables:
    """Write tables of an audit, each into a directory of its name below ``folder``; ``columns``: by table, else all.

    Tasks put their parts into ``staging`` where it is given: a store's directory of this run alone. Cost: the files of
    decoded tables are read once more. Errors: :class:`AuditInputError` where tasks run on machines that do not share
    the directory.
    """
    where = staging or ResultFolder("", str((folder / STAGING).absolute()))
    done = WrittenTables(folder, where, {})
    in_memory = {name: table for name in tables if (table := audit.held(name)) is not None}
    for name, table in in_memory.items():
        table_tasks.write(table, folder / name / "part-00000.parquet")
    others = [name for name in tables if name not in in_memory]
    if not others:
        return done
    options = audit.options
    derived = tuple(name for name in others if name in derived_tables.OF_FACTS)
    how = How(options.limits, options.include_payload, options.records, columns)
    shares = audit.copy_shares if any(map(how.counts, {*others} - {*derived})) else {}
    wanted = TableRequest(where, frozenset(others) - {*derived}, derived, how, shares)
    if staging is None:
        Path(where.path).mkdir(parents=True)
    try:
        _place(wanted, run(audit, wanted), done)
    finally:
        if staging is None:
            _remove(Path(where.path))
    if wanted.has_errors:
        audit.fatal += _refused_by_stores(done)
    if "decode_errors" in wanted.decoded and audit.outside:
        outside = derived_tables.metadata_errors(audit.inventory, audit.outside, shares)
        table_tasks.write(outside, folder / "decode_errors" / "part-outside.parquet")
    return done


def _place(wanted: TableRequest, parts: Iterable[WrittenPart], done: WrittenTables) -> None:
    """Move the parts to the directories of their tables, in task order; every table gets at least one file."""
    of_table: dict[str, list[WrittenPart]] = {name: [] for name in (*sorted(wanted.decoded), *wanted.derived)}
    for part in sorted(parts):
        if part.table == NOT_SHARED:
            raise AuditInputError(
                f"{done.folder.parent} is not there where Spark's workers run; with --tables they write too: give an "
                "--out on a mount that all share, or in a store (s3://, hdfs://)"
            )
        of_table[part.table].append(part)
    for name, parts_of_table in of_table.items():
        target = done.folder / name
        if not parts_of_table:
            table_tasks.write(wanted.columns(name).empty_table(), target / "part-00000.parquet")
        elif done.staging.uri:
            done.stored[name] = [part.file for part in parts_of_table]
        else:
            target.mkdir(exist_ok=True)
            for number, part in enumerate(parts_of_table):
                (Path(done.staging.path) / part.file).rename(target / file_name(number))


def file_name(number: int) -> str:
    """Return the name of a table's part, counted from 0."""
    return f"part-{number:05d}.parquet"


def _refused_by_stores(done: WrittenTables) -> list[tuple[str, DecodeError]]:
    """What a store refused while tables were written, which the earlier audit does not know."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = pc.starts_with(pc.field("detail"), retries.SAYS)
    names = ["log_dir", "file", "position", "bytes", "reason", "detail"]
    read = partial(pq.read_table, columns=names, filters=wanted)
    tables = [done.staging.reading(read, part) for part in done.stored.get("decode_errors", [])]
    tables += [read(path) for path in sorted((done.folder / "decode_errors").glob("*.parquet"))]
    rows = pa.concat_tables(tables).to_pylist()
    return sorted((row.pop("log_dir") or "", DecodeError(*row.values())) for row in rows)


def _remove(staging: Path) -> None:
    """Remove the staging directory, even if an abandoned attempt is still writing into it."""
    for _ in range(3):
        shutil.rmtree(staging, ignore_errors=True)


def lists(audit: Audited, wanted: TableRequest, slots: int, pool: Pool, refused: dict[str, str]) -> list[list[Piece]]:
    """Return the pieces to read for the decoded tables, in lists of similar size for so many slots.

    Where segments are cut, their indexes are read, in a process of ``pool``; ``refused`` as of its ``map``.
    """
    options = audit.options
    if not wanted.decoded:
        return []
    plan = partial(input_splits.plan, audit.scoped, wanted.decoded)
    if max((f.size for d in audit.scoped.log_dirs for c in d.replicas for f in c.files()), default=0) > (
        options.split_size
    ):
        ((_, pieces),) = pool.map([options.split_size], plan, refused=refused)
    else:
        pieces = plan(options.split_size)
    size = sum(map(input_splits.size, pieces))
    return input_splits.spread(pieces, max(1, min(slots * LISTS_PER_SLOT, size // LEAST_BYTES), size // MOST_BYTES))
