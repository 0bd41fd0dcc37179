"""What rests on batches whose checksum nobody has verified, as a copy without payload may leave it, is not decided."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from auditor.base.values import Values
from auditor.facts.replica_facts import ReplicaFacts
from auditor.facts.unverified import touches

THEN = "Whether these batches are as they were written is open: copy it again with auditor copy --checksums all."


def rests_on_open_checksums(replicas: Iterable[ReplicaFacts], fields: Values) -> str:
    """What to do where a finding with these fields rests on such batches of one of the replicas, else nothing.

    It rests on all from the lowest offset that it names: what is missed before a batch may stand in a damaged one.
    """
    at, until = fields.get("offset"), fields.get("last_offset")
    first, last = (None if offset is None else int(offset) for offset in (at, until))
    if first is not None:
        named = (value for name, value in fields.get("evidence", {}).items() if name.endswith("_offset"))
        last = max(first, first if last is None else last)
        first = min([first, *(int(value) for value in named if isinstance(value, (int, np.integer)) and value >= 0)])
    return THEN if any(touches(replica.unverified, first, last) for replica in replicas) else ""
