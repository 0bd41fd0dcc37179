"""`validator` cases as stored batches that an audit reads with --records: it counts and sees what LogValidator does.

What a leader takes is stored as it was sent, unless it has to write anew; what it refuses is written all the same.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from auditor.connectors.logdir.files import Replica, SegmentFile
from auditor.connectors.stores.storage import StorageLocation
from auditor.facts.events import EventKind
from auditor.facts.replica_facts import ReplicaFacts
from auditor.replay.reading.replica_reader import read_replica
from auditor.replay.task import ReplicaTask
from tests import segments
from tests.proof.case_logs import Held

Args = dict[str, Any]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FIRST = 10  # where a record set is stored, so that no offset in it can be below the log start
APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
# The counters of KIP-467 by the names in ReplicaFacts.sums; two of the cases' are one in Kafka.
COUNTERS = {
    "invalid_magic": ("invalid_magic",), "invalid_checksum": ("invalid_checksum",),
    "no_key_compacted": ("no_key_compacted",), "invalid_offset_or_sequence": ("invalid_offset", "invalid_sequence"),
}  # fmt: skip
STRUCTURE = {
    EventKind.CRC,
    EventKind.HEADER_FLAW,
    EventKind.COUNT_BELOW_SPAN,
    EventKind.RECORD_FLAW,
    EventKind.NULL_KEY,
}
# What no log can hold, and why.
REQUEST = "how a request was cut into batches, and who sent it, is in no log"
SIZES = "sizes are checked against settings of the moment, offsets of a request against the log's end of the moment"
CLOCK = "time-stamps are checked against the leader's clock"
REWRITTEN = "what the leader stores is not what was sent: it converts, or assigns offsets or times anew"
PROTOCOL = "what a protocol version allows was a matter of the request"
UNHELD_ERRORS = {
    "INVALID_TIMESTAMP": CLOCK, "UNSUPPORTED_COMPRESSION_TYPE": PROTOCOL, "UNSUPPORTED_FOR_MESSAGE_FORMAT": REWRITTEN,
    "MESSAGE_TOO_LARGE": SIZES, "RECORD_LIST_TOO_LARGE": SIZES, "OFFSETS_OUT_OF_ORDER": SIZES,
    "UNEXPECTED_APPEND_OFFSET": SIZES,
}  # fmt: skip


def hold(case: Args, folder: Path) -> Held:
    """Writes each record set of a case into the folder, one after the other, and reads it."""
    found: list[str] = []
    why = ""
    before: dict[str, int] = {}
    for number, step in enumerate(case["steps"]):
        expect = step["expect"]
        metrics = before | ((expect.get("state") or {}).get("metrics") or {})
        counted = {name: count - before.get(name, 0) for name, count in metrics.items()}
        before = metrics
        if reason := unheld(step["op"], step["args"], expect.get("error")):
            why = why or reason
        else:
            lines = differences(step["args"], expect.get("error"), counted, folder, op=step["op"])
            found += [f"step {number}: {line}" for line in lines]
    return Held(found, "" if found else why)


def unheld(op: str, args: Args, error: str | None) -> str:
    """Why no log can hold the record set, empty where one can."""
    batches = args["batches"]
    if op == "analyze":
        return "" if error == "CORRUPT_MESSAGE" else SIZES
    if args["origin"] != "client" or not batches:
        return REQUEST
    if len(batches) > 1 and (error is not None or batches[0]["magic"] == 2 or args["source_compression"] != "none"):
        return REQUEST
    if error in UNHELD_ERRORS:
        return UNHELD_ERRORS[error]
    if any(batch["control"] for batch in batches):
        return REQUEST
    if any(batch["magic"] != args["target_magic"] for batch in batches) or args["timestamp_type"] == "LogAppendTime":
        return REWRITTEN
    offsets = [record["offset"] for record in batches[0]["records"]]
    old = batches[0]["magic"] < 2 and args["source_compression"] != "none"
    return REWRITTEN if old and offsets != list(range(len(offsets))) else ""


def differences(
    args: Args, error: str | None, metrics: dict[str, int], folder: Path, op: str = "validate"
) -> list[str]:
    """What the audit says otherwise than the leader: its counters, and whether it sees anything wrong."""
    facts = read(args, folder, op)
    found = []
    counted = {name: facts.sums.get(name, 0) for name in COUNTERS}
    leaders = {ours: sum(metrics.get(name, 0) for name in theirs) for ours, theirs in COUNTERS.items()}
    several = sum(count > 0 for count in leaders.values()) > 1
    for ours, theirs in COUNTERS.items():
        # A leader goes on validating behind a wrong record, and may mark several of its meters for one batch, that of
        # keys once a record; the audit counts it in one of them.
        same = counted[ours] in (0, leaders[ours]) if several else counted[ours] == leaders[ours]
        if (error is None or any(name in metrics for name in theirs)) and not same:
            found.append(f"{ours}: ours {counted[ours]}, the leader's {leaders[ours]}")
    if several and sum(count > 0 for count in counted.values()) != 1:
        found.append(f"ours {counted}, the leader's {leaders}")
    events = {EventKind(int(kind)).name for kind in facts.events["kind"] if kind in STRUCTURE}
    events |= {error.reason for error in facts.errors}
    if bool(events) != (error is not None):
        found.append(f"the leader says {error or 'accepted'}, events {sorted(events) or 'none'}")
    return found


def read(args: Args, folder: Path, op: str) -> ReplicaFacts:
    """The facts of a log of this record set, read with its records."""
    if op == "analyze":
        data = bytearray(segments.simple(0))
        data[-1] ^= 1
    else:
        data = bytearray(b"".join(batch(one) for one in args["batches"]))
    (folder / f"{0:020}.log").write_bytes(data)
    replica = Replica("broker-1", "topic", 0, "", segments=(SegmentFile(f"{0:020}.log", 0, len(data)),))
    compacted = args.get("compacted", False)
    return read_replica(
        ReplicaTask(
            StorageLocation("", str(folder)),
            replica,
            None,
            1,
            "",
            clean_shutdown=True,
            compacted=compacted,
            cleaner_offset=0,
            records=True,
        )
    )


def batch(fields: Args) -> bytes:
    """A batch, or what stands for one in the old formats, as it was sent."""
    return _batch(fields) if fields["magic"] == 2 else _messages(fields)


def _batch(fields: Args) -> bytes:
    times = [record["timestamp"] for record in fields["records"]]
    base = times[0] if times else -1
    body = b"".join(
        segments.record(record["offset"], _key(record), b"value", record["timestamp"] - base)
        for record in fields["records"]
    )
    bits = CODECS[fields["compression"]] | (APPEND_TIME if fields["timestamp_type"] == "LogAppendTime" else 0)
    bits |= (TRANSACTIONAL if fields["transactional"] else 0) | (CONTROL if fields["control"] else 0)
    return segments.batch(
        segments.compress(CODECS[fields["compression"]], body), fields["declared_count"],
        base_offset=FIRST + fields["base_offset"], delta=fields["last_offset_delta"], attributes=bits, base_time=base,
        max_time=max(times, default=-1), producer_id=fields["producer_id"], epoch=fields["producer_epoch"],
        sequence=fields["base_sequence"],
    )  # fmt: skip


def _messages(fields: Args) -> bytes:
    codec, magic = CODECS[fields["compression"]], fields["magic"]
    bits = APPEND_TIME if fields["timestamp_type"] == "LogAppendTime" else 0
    absolute = FIRST if codec and not magic else 0
    inner = [_message(record, bits, absolute) for record in fields["records"]]
    if not codec:
        return b"".join(struct.pack(">q", FIRST + fields["base_offset"]) + one[8:] for one in inner)
    time = max(record["timestamp"] for record in fields["records"])
    return segments.wrapper(FIRST + fields["base_offset"] + len(inner) - 1, inner, codec, magic, time, bits)


def _message(record: Args, bits: int, absolute: int) -> bytes:
    bits |= 1 if record["compressed"] else 0
    bits = bits if record["magic"] else bits & 7
    made = bytearray(
        segments.message(
            absolute + record["offset"], _key(record), b"value", record["magic"], bits, record["timestamp"]
        )
    )
    if not record["crc_ok"]:
        made[12] ^= 1
    return bytes(made)


def _key(record: Args) -> bytes | None:
    return None if record["key"] is None else str(record["key"]).encode()
