"""The table ``events``: what the model of a correct broker found odd in a replica, before any rule judged it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from auditor.connectors.tables.schema import LOG_KEY, array_of, declared, from_columns, texts
from auditor.facts.events import PLACE, Kind, events_of
from auditor.facts.replica_facts import ReplicaFacts

EVENTS = declared(
    "events",
    LOG_KEY,
    """
    kind:string what was odd, such as sequence_gap, offset_hole or epoch_regression
    file:string
    position:long
    base_offset:long first offset of the batch that it is about
    last_offset:long last offset of it
    producer_id:long
    producer_epoch:int
    timestamp:time largest timestamp of the batch, as stored
    time:time when it was written, by brokers' clocks as far as the log shows
    leader_epoch:int epoch of the leader that appended it
    fields:json what its kind has besides, such as expected_sequence and found_sequence
""",
)
_NAMES = texts([kind.name.lower() for kind in Kind])
_NUMBERS = np.array([int(kind) for kind in Kind], np.int64)  # ascending


def rows(replica: ReplicaFacts) -> pa.RecordBatch:
    """A row an event of a replica, at most 10,000 of a kind."""
    found = replica.events
    columns = {name: found[name].copy() for name in PLACE if name in EVENTS.names}
    own = ({k: v for k, v in event.items() if k not in PLACE} for event in events_of(found, *Kind))
    columns |= {
        "kind": _NAMES.take(array_of(np.searchsorted(_NUMBERS, found["kind"]).astype(np.int64))),
        "file": texts([replica.file(number) for number in found["segment"].tolist()]),
        "fields": texts([json.dumps(fields) for fields in own]),
    }
    return from_columns(EVENTS, replica.table_key, len(found), columns)
