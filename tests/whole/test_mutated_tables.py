"""Tables of sound clusters pass all suites, and hardly a change of a table does: no column is there for nothing.

What an audit judges is judged here, by the same SQL and the same suites. A suite over rows looks at each column by
itself, so that it judges all columns of a table changed at once. A view is asked anew for each change.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from auditor import inline
from auditor.pipeline import summary
from auditor.pipeline.options import AuditOptions
from auditor.rules.expectations.measures import DUCKDB, MEASURES, checks
from tests import corpora
from tests.audited import published

# Clusters whose tables are taken: sound ones, and for tables that these leave empty, one with errors.
CLUSTERS = ("healthy-41", "groups-43", "tiered-43", "healthy-28", "replicas-41", "hanging-36", "altered-41")
DAY_MS = 24 * 3_600_000
Mutation = tuple[str, str, str]  # table, column (* for rows), what was done


@functools.cache
def tables_of(name: str) -> dict[str, pa.Table]:
    """The tables that an audit of a cluster wrote."""
    with tempfile.TemporaryDirectory() as folder:
        options = AuditOptions(
            (str(corpora.unpack(name)),), Path(folder) / "out", records=True, tables=True,
            as_of=corpora.manifest(name)["copied_at"],
        )  # fmt: skip
        audit = published(options)
        tables = {path.name: pq.read_table(path) for path in (Path(folder) / "out" / "tables").iterdir()}
    return tables | {"logs": summary.logs(audit)}


def mutated(column: pa.ChunkedArray, how: str) -> pa.ChunkedArray | None:
    """A column with each value changed; None where that does not apply to its type."""
    kind = column.type
    if how == "nulled":
        return pa.chunked_array([pa.nulls(len(column), kind)])
    if how == "emptied" and (pa.types.is_string(kind) or pa.types.is_list(kind) or pa.types.is_binary(kind)):
        empty: Any = [] if pa.types.is_list(kind) else "" if pa.types.is_string(kind) else b""
        return pa.chunked_array([pa.array([None if v is None else empty for v in column.to_pylist()], kind)])
    if how in ("scaled", "shifted") and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        most = {pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}.get(kind, float("inf"))
        values = [None if v is None else min(v * 10 if how == "scaled" else v + 1, most) for v in column.to_pylist()]
        return pa.chunked_array([pa.array(values, kind)])
    if how == "shifted" and pa.types.is_timestamp(kind):
        day = DAY_MS * (1000 if kind.unit == "us" else 1)
        return pc.add(column.cast(pa.int64()), day).cast(kind)
    return None


def changes(table: str) -> Iterator[tuple[Mutation, str, pa.Table]]:
    """Each change of a table, of the first cluster where it changes anything, with that cluster's name."""
    columns = tables_of(CLUSTERS[0])[table].column_names
    for how in ("nulled", "scaled", "shifted", "emptied"):
        for place, column in enumerate(columns):
            for name in CLUSTERS:
                rows = tables_of(name)[table]
                new = mutated(rows[column], how)
                if new is not None and rows.num_rows and not new.equals(rows[column]):
                    yield (table, column, how), name, rows.set_column(place, rows.schema.field(place), new)
                    break
    for name in CLUSTERS:
        rows = tables_of(name)[table]
        if rows.num_rows > 1:
            yield (table, "*", "dropped"), name, rows.take(list(range(0, rows.num_rows, 2)))
            yield (table, "*", "duplicated"), name, pa.concat_tables([rows, rows])
            yield (table, "*", "deleted"), name, rows.slice(0, 0)
            break


class Judge:
    """The views over the tables of a cluster, one of which may be another."""

    def __init__(self, name: str) -> None:
        from auditor.rules.expectations import suites

        self.connection = inline._connected()
        self.tables = tables_of(name)
        for table, rows in self.tables.items():
            self.connection.register(table, rows)
        self.connection.register("logs_before", self.tables["logs"].slice(0, 0))
        self.views = suites.views(DUCKDB)
        self.sound = {table: self.broken(table) for table in MEASURES if table in self.tables}

    def broken(self, table: str) -> set[str]:
        """The checks of a table that do not hold."""
        counts = self.connection.sql(self.views[f"{table}_counts"]).to_arrow_table()
        return {
            check.name
            for check in checks(table)
            if counts.num_rows and sum(n == 0 for n in counts[check.name].to_pylist()) / counts.num_rows < check.mostly
        }

    def catches(self, table: str, rows: pa.Table) -> bool:
        """Whether a view that reads the table counts anything that the sound one does not have."""
        readers = [own for own in self.sound if re.search(rf"\b(FROM|JOIN) {table}\b", self.views[f"{own}_counts"])]
        self.connection.register(table, rows)
        try:
            return any(self.broken(own) - self.sound[own] for own in sorted(readers, key=lambda own: own != table))
        finally:
            self.connection.register(table, self.tables[table])


judge = functools.cache(Judge)


def failing(table: str, rows: pa.Table) -> set[str]:
    """The columns of a table whose expectations are not met, `` `` for those of the whole table."""
    from auditor.rules.expectations import suites

    return {row["column"] for row in suites.run([(table, [rows.to_pandas()])]) if not row["success"]}


def survivors(table: str) -> tuple[set[Mutation], int]:
    """The changes of a table that no suite notices, and how many there are."""
    made = list(changes(table))
    together: dict[tuple[str, str], pa.Table] = {}
    for (_, column, how), name, rows in made:
        if column != "*":
            whole = together.get((name, how), tables_of(name)[table])
            place = whole.column_names.index(column)
            together[name, how] = whole.set_column(place, whole.schema.field(place), rows[column])
    noticed = {
        (table, column, how)
        for (name, how), rows in together.items()
        for column in failing(table, rows) - failing(table, tables_of(name)[table])
    }
    left = [(mutation, name, rows) for mutation, name, rows in made if mutation not in noticed]
    return {mutation for mutation, name, rows in left if not judge(name).catches(table, rows)}, len(made)


# Changes that nothing notices, by reason: a table and its columns with what was done.
ALONE = "no other column or table has anything of it"
FREE = "any value of its range is possible, and so is none"
UNNOTICED: dict[str, dict[str, str]] = {
    "a checksum and the bits that follow from it say nothing without the bytes": {
        "batches": "crc:shifted flaws:scaled flaws:shifted",
        "records": "flaws:scaled",
    },
    "versions of Kafka differ in what they write there": {
        "transaction_log": "client_transaction_version:nulled client_transaction_version:scaled "
        "client_transaction_version:shifted next_producer_epoch:nulled next_producer_epoch:shifted "
        "next_producer_id:nulled next_producer_id:shifted previous_producer_id:nulled previous_producer_id:shifted",
        "offset_commits": "leader_epoch:shifted topic_id:nulled",
        "group_metadata": "value_version:scaled value_version:shifted",
        "share_group_state": "value_version:shifted",
        "remote_log_metadata": "value_version:shifted",
        "metadata_history": "version:shifted fenced:nulled in_controlled_shutdown:nulled",
    },
    FREE: {
        "group_metadata": "leader:nulled protocol:nulled protocol_type:emptied regular_expression:nulled "
        "state_timestamp:nulled generation:scaled generation:shifted",
        "batches": "crc_ok:nulled",
        "metadata_history": "entity:emptied",
        "transaction_partitions": "began_earliest_at:nulled",
        "transactions": "groups:emptied",
        "lag": "first_offset:shifted readable_latest_at:nulled readable_latest_at:shifted readable_earliest_at:nulled",
        "space": "goes_at:nulled held_offset:nulled held_offset:shifted kept_by_file:nulled transactional_id:nulled "
        "undecided:nulled",
        "cleaner": "undecided:nulled",
        "producer_snapshots": "*:deleted *:dropped",
        "broker_configs": "entity:emptied",
        "blocked": "began_by_producer_at:nulled began_by_producer_at:shifted began_latest_at:nulled "
        "began_latest_at:shifted began_earliest_at:nulled state:nulled",
        "events": "written_at:nulled written_at:shifted",
        "decode_errors": "detail:emptied",
        "impact": "last_at:shifted transaction:nulled",
    },
    ALONE: {
        "share_group_state": "delivery_complete_count:shifted leader_epoch:shifted snapshot_epoch:scaled "
        "snapshot_epoch:shifted start_offset:shifted state_epoch:scaled state_epoch:shifted",
        "remote_log_metadata": "end_offset:shifted event_broker_id:scaled event_broker_id:shifted "
        "max_timestamp:shifted bytes:scaled bytes:shifted start_offset:shifted",
        "broker_configs": "*:dropped",
        "metadata_history": "broker_epoch:scaled broker_epoch:shifted node_id:scaled node_id:shifted",
        "decode_errors": "bytes:scaled bytes:shifted position:scaled position:shifted",
        "producer_states": "expires_at:shifted",
        "lag": "settled_records:scaled settled_records:shifted",
        "cleaner": "first_uncleanable_offset:shifted held_bytes:shifted",
        "blocked": "age_ms:scaled age_ms:shifted held_at_least_ms:shifted others:shifted",
        "events": "*:deleted *:dropped",
    },
}
LISTED: set[Mutation] = {
    (table, *entry.split(":"))  # type: ignore[misc]
    for of_reason in UNNOTICED.values()
    for table, entries in of_reason.items()
    for entry in entries.split()
}
JUDGED = [table for table in MEASURES if table != "verdicts"]  # of a what-if, which no audit judges


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table", JUDGED)
def test_each_change_of_a_table_fails_a_suite_or_is_listed(table: str) -> None:
    left, _ = survivors(table)
    assert left == {mutation for mutation in LISTED if mutation[0] == table}


def test_at_most_a_tenth_is_listed() -> None:
    assert len(LISTED) <= sum(1 for table in JUDGED for _ in changes(table)) / 10


SOUND = ("healthy-28", "healthy-41", "groups-43", "replicas-41", "tiered-43", "epochs-43", "hanging-011", "trimmed-11",
         "outage-37", "rolling-cold-copies-43", "two-incarnations-43-down", "index-residue-live-43")  # fmt: skip
HANGS = {"transaction_partitions": {"stuck"}, "blocked": {"blocked"}}


@pytest.mark.parametrize("name", SOUND)
def test_views_of_sound_clusters_count_nothing(name: str) -> None:
    expected = HANGS if name.startswith("hanging") else {}
    assert {table: broken for table, broken in judge(name).sound.items() if broken} == expected
