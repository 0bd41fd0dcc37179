"""Kafka's words in plain ones: ``auditor rules ID`` and the report spell out those that they use."""

from __future__ import annotations

import re
from collections.abc import Iterable

GLOSSARY = {
    "aborted transaction": "Its records stay in the log; read_committed consumers leave them out.",
    "coordinator": (
        "The broker that keeps a transactional id's or a group's state, in a partition of __transaction_state"
        " or __consumer_offsets."
    ),
    "epoch": (
        "A number that goes up when a producer, coordinator or leader is replaced; whoever still uses a lower"
        " one is refused."
    ),
    "fenced": (
        "Refused because a newer epoch exists: an old producer may not write any more, a fenced broker may not lead."
    ),
    "high watermark": (
        "The offset up to which all in-sync replicas have a partition's records; consumers read no further."
    ),
    "in flight": (
        "Missing perhaps only because the files were copied at different times, or were being written: a newer copy "
        "shows which."
    ),
    "in-sync replicas": "The copies of a partition that have all that its leader has; one of them may become leader.",
    "last stable offset": (
        "The offset of the first record whose transaction is still open, at most the high watermark: "
        "read_committed consumers read no further. Also LSO."
    ),
    "log end": "The offset that the next record gets.",
    "log start": "The first offset that a partition still has; what lay below it is deleted.",
    "margin": (
        "What is allowed beyond a transaction's time-out before its partition counts as blocked: 30 s; where no "
        "time-out is known, 15 minutes are taken for it."
    ),
    "marker": (
        "A control record that ends a transaction in a partition: COMMIT or ABORT. Its coordinator has it written."
    ),
    "producer id": (
        "The number that a broker gives a producer; with epoch and sequence it tells a repeated write from a new one."
    ),
    "producer snapshot": (
        "A file beside a log with what the broker knew of each producer, so that it need not read the log again."
    ),
    "read_committed": "The isolation level of consumers that see only committed transactions.",
    "sequence": (
        "The number of a producer's record in a partition, counted up by one: a gap means loss, a repetition "
        "a duplicate."
    ),
    "time-out": "transaction.timeout.ms: how long a transaction may stay open before its coordinator aborts it.",
    "transaction.version": (
        "A feature level of the cluster: from 2 on each transaction has an epoch of its own (KIP-890)."
    ),
    "transactional id": "The name that a producer keeps over restarts; a new one of that name fences the old one.",
}
_OTHER = {
    "last stable offset": ("LSO",),
    "in-sync replicas": ("in-sync", "ISR"),
    "coordinator": ("coordinators",),
    "epoch": ("epochs",),
    "marker": ("markers",),
    "sequence": ("sequences",),
    "producer id": ("producer ids",),
    "producer snapshot": ("producer snapshots", "snapshots"),
    "time-out": ("timeout", "time-outs"),
    "aborted transaction": ("aborted transactions",),
    "transactional id": ("transactional ids",),
    "fenced": ("fences",),
    "log end": ("end of the log",),
}


def words_in(texts: Iterable[str]) -> dict[str, str]:
    """The words of the glossary that stand in some texts, each with what it means, by name. Cost: linear."""
    whole = "\n".join(texts)
    found = {}
    for name, said in GLOSSARY.items():
        forms = "|".join(re.escape(form) for form in (name, *_OTHER.get(name, ())))
        if re.search(rf"(?<![\w.])(?i:{forms})(?!\w)", whole):
            found[name] = said
    return found
