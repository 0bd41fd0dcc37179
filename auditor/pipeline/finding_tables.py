"""The tables findings and blocked."""

from __future__ import annotations

import json
import pkgutil

from auditor.connectors.schema import MadeOf, declared
from auditor.rules.seen.view import FIELDS

# Tables of what the rules found. A finding has the fields of ``findings.jsonl``, whose JSON Schema says what each is:
# here `timestamp` is one, `advice` a struct, common keys of `evidence` are columns, and more that SQL groups by.


_NUMBERED = dict.fromkeys(("broker_id", "partition", "producer_epoch"), "int")
_NUMBERED |= dict.fromkeys(("offset", "last_offset", "producer_id", "position"), "long")


def _finding_columns() -> str:
    """A line per field of a finding, as :func:`declared` takes it."""
    fields = json.loads(pkgutil.get_data("auditor.outputs", "finding.schema.json") or "")["properties"]
    types = _NUMBERED | {"timestamp": "time", "evidence": "map", "advice": "advice"}
    null = {n for n in FIELDS if "null" in fields[n].get("type", ()) or None in fields[n].get("enum", ())}
    about = ((n, fields[n]["description"].rstrip(".") + ("; else null" if n in null else "")) for n in FIELDS)
    return "\n".join(f"{name}:{types.get(name, 'string')} {text[0].lower()}{text[1:]}" for name, text in about)


FINDINGS_TABLE = declared(
    "findings",
    f"""
    a finding, by the fields of `findings.jsonl`. Common keys of `evidence` are columns, the others are a map of \
texts. What is no text there, and in `expected`, `found` and `missing`, is JSON. Kept runs have all of it as JSON
    SELECT rule, severity, count(*) AS findings FROM findings WHERE confidence = 'proved' GROUP BY ALL
    {_finding_columns()}
    cluster_id:string the cluster whose log it is about; null where no `meta.properties` says
    run_id:string the run, as `--history` keeps it; null where it is not kept
    confidence:string `proved`, `likely` or `undecidable`, from the evidence; null where the rule has none
    log_dir:string the log directory, relative to the deepest directory above all PATHs; null where it is about none
    expected:string the value that a sound log would have; null where the rule compares none
    found:string the value that was found instead; else null
    missing:string what would decide the finding; null where nothing is missing
    batches:long batches that it is about; null where the rule does not count them
    records:long records that it is about; null where the rule does not count them
""",
    of=MadeOf.FINDINGS,
    key=(),
)
# The partitions that a transaction holds, as the report's cards have them.
BLOCKED = declared(
    "blocked",
    """
    a partition that an open transaction keeps from being read, in the order of the report's cards: blocked ones \
first
    SELECT topic, partition, transactional_id, began_at, remedy FROM blocked WHERE standing <> 'waiting'
    status:string of the transaction: open, overdue, hanging, prepared, completed or unknown
    certainty:string of the status: proved, likely or inconclusive
    standing:string stuck, overdue or undeliverable (blocked too long), waiting (within its timeout), or unknown
    class:string of the transaction: `active`, `late`, `hanging`, `orphan`, `ghost` or `undecidable`
    transactional_id:string
    framework:string whose the id is, by how it is named: Flink, Kafka Connect, MirrorMaker, …; null where it shows none
    application:string its application: prefix, group or application.id; else null
    application_part:string the part of it with this id: subtask and checkpoint, connector and task, thread, …; else \
null
    framework_certainty:string proved by a second sign in the cluster, or likely; else null
    framework_why:string the class that names ids so, and the second sign; else null
    producer_id:long
    producer_epoch:int
    began_at:time since when it is held: the producer's time within what brokers wrote around it; null: unknown
    began_earliest_at:time the same, at the earliest, by brokers' clocks; null where it is not known
    began_latest_at:time the same, at the latest; null where it is not known
    began_by_producer_at:time what the producer's clock says, where that contradicts what brokers wrote; else null
    age_ms:long for how long, by the clock of the audit
    at_least:bool whether it may be longer: the evaluation time is unknown
    held_at_least_ms:long how long it is held at least by the times that brokers wrote behind it in the same log
    timeout_ms:int `transaction.timeout.ms` of the producer, ms; null where it is not known
    beyond_timeout:bool whether it is open for longer than that; null where that is not known
    state:string last state of the id in the coordinator's log; null where there is none
    why:string what the class rests on
    first_offset:long offset of the transaction's first record; null where no replica is in the input
    last_offset:long offset of its last record
    last_stable_offset:long how far readers get that read committed records alone
    high_watermark:long high watermark of the partition
    log_end:long end of its log
    readable_end:long how far they would get without the transaction
    batches:long batches of the transaction
    records:long records in them
    bytes:long bytes of these batches
    others:int further producers with an open transaction there
    readers:strings consumer groups with offsets in the topic, at most 20 of a partition of `__consumer_offsets`
    severity:string of the finding that says it; null where there is none
    if_true:string severity that it would have, where it is not known whether it is held still; else null
    rule:string kind of that finding
    fingerprint:string of the most severe finding about the blocking transaction; else null
    accepted:bool whether a baseline accepts it
    left_out:bool whether only a rule that did not run would report it
    remedy:string what to do
    advice:advice the same with its conditions and commands one by one
""",
    of=MadeOf.FINDINGS,
)
