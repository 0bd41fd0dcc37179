"""Tables as they are declared: a line a column, with its name, its type and what it holds.

The same lines make the Arrow schemas and the reference page, so that no column is without a meaning.
"""

from __future__ import annotations

import pyarrow as pa

TIME = pa.timestamp("ms", tz="UTC")
JSON = {b"json": b"object"}  # metadata of a column of text that is JSON already
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "bool": pa.bool_(),
    "double": pa.float64(),
    "time": TIME,
    "ints": pa.list_(pa.int32()),
    "strings": pa.list_(pa.string()),
    "binary": pa.binary(),
    "json": pa.string(),
}

# What each column of each table holds, in a few words; filled where tables are declared.
MEANINGS: dict[str, dict[str, str]] = {}
# Of columns that hold the same wherever they stand.
EVERYWHERE = {
    "cluster_id": "`cluster.id` of `meta.properties`; null where it does not say",
    "broker_id": "`node.id` or `broker.id` of `meta.properties`, else the digits that the folder's name ends with; "
    "null where there are none",
    "log_dir": "the log directory, relative to the deepest folder above all PATHs",
    "topic": "the topic whose log it is",
    "partition": "the number of the partition whose log it is",
    "file": "the file it comes from, relative to `log_dir`",
    "position": "byte in `file` where it begins",
    "offset": "offset of the record",
    "record_timestamp": "timestamp of the record; null in console text",
    "tombstone": "whether the record deletes its key (a null value)",
    "value_version": "version of the value's schema; null for a tombstone",
    "producer_id": "id that the producer was given; -1: none",
    "producer_epoch": "epoch of that producer id; -1: none",
    "transactional_id": "`transactional.id` of the producer; null where no coordinator's log in the input shows it",
    "group_id": "`group.id` of the consumer, share or streams group",
    "topic_id": "id of the topic, as Kafka's tools print it (22 characters)",
}


def declared(table: str, key: list[pa.Field], text: str) -> pa.Schema:
    """The schema of ``table``: the ``key``'s columns, then a line each of ``text``: ``name:type what it holds``.

    A name of :data:`EVERYWHERE` may stand without words.
    """
    lines = [line.strip().partition(" ") for line in text.strip().splitlines()]
    columns = [(*word.split(":"), says.strip()) for word, _, says in lines]
    MEANINGS[table] = {field.name: EVERYWHERE[field.name] for field in key}
    MEANINGS[table] |= {name: says or EVERYWHERE[name] for name, _, says in columns}
    fields = [pa.field(name, TYPES[kind], metadata=JSON if kind == "json" else None) for name, kind, _ in columns]
    return pa.schema([*key, *fields])
