"""Random record sets for the validator, as conformance cases: mostly sound, each with a few things wrong."""

from __future__ import annotations

import random
from typing import Any

NOW = 1_700_000_000_000
LIMIT_MS = 1_000
CODECS = {0: ("none", "gzip"), 1: ("none", "gzip", "snappy", "lz4"), 2: ("none", "gzip", "snappy", "lz4", "zstd")}


class RecordSets:
    """A case of ``steps`` record sets."""

    def __init__(self, seed: int, steps: int = 12) -> None:
        chosen = random.Random(f"validator {seed}")
        self.case: dict[str, Any] = {
            "id": f"validator seed {seed}",
            "model": "validator",
            "policy": "kip-467",
            "initial": {},
            "steps": [{"op": "validate", "args": _arguments(chosen)} for _ in range(steps)],
        }


def _often(chosen: random.Random, usual: Any, *others: Any) -> Any:
    return chosen.choice(others) if chosen.random() < 0.1 else usual


def _arguments(chosen: random.Random) -> dict[str, Any]:
    magic = chosen.choices((2, 1, 0), (60, 25, 15))[0]
    target_magic = _often(chosen, magic, 0, 1, 2)
    codec = chosen.choice(CODECS[magic])
    many = 1 if codec != "none" else chosen.randint(1, 4)
    count = many if magic < 2 else _often(chosen, 1, 2)
    batches = [_batch(chosen, magic, codec, index, many) for index in range(count)]
    origin = chosen.choices(("client", "coordinator", "replication"), (80, 15, 5))[0]
    if origin == "client" and magic == 2 and codec == "none" and chosen.random() < 0.03:
        batches = [{**batch, "records": []} for batch in batches]
    converts = target_magic < magic and codec == "none"
    if converts:  # 4.1.0 meets these with an internal error where it would convert them
        batches = [{**batch, "transactional": False, "control": False} for batch in batches]
    if converts or origin != "client":  # a conversion reads the records first; a broker trusts its own headers
        batches = [batch | _right_header(batch) for batch in batches]
    return {
        "batches": batches,
        "source_compression": codec,
        "target_compression": _often(chosen, codec, *CODECS[target_magic]) if codec in CODECS[target_magic] else "none",
        "compacted": chosen.random() < 0.3,
        "target_magic": target_magic,
        "timestamp_type": _often(chosen, "CreateTime", "LogAppendTime"),
        "before_max_ms": chosen.choice((LIMIT_MS, 2**63 - 1)),
        "after_max_ms": LIMIT_MS,
        "origin": origin,
        "now": NOW,
        "next_offset": chosen.choice((0, 0, 1234567890123)),
        "inter_broker_protocol": "latest",
    }


def _right_header(batch: dict[str, Any]) -> dict[str, Any]:
    size = len(batch["records"])
    first_sequence = 10 if batch["producer_id"] >= 0 else -1
    return {"last_offset_delta": size - 1, "declared_count": size, "base_sequence": first_sequence}


def _batch(chosen: random.Random, magic: int, codec: str, index: int, many: int) -> dict[str, Any]:
    """One batch; uncompressed ones of the old formats hold one record each, the ``index``-th of ``many``."""
    alone = magic < 2 and codec == "none"
    size = 1 if alone else chosen.randint(1, 5)
    producer_id = chosen.choice((-1, -1, 77)) if magic == 2 else -1
    stamped = magic > 0 and chosen.random() < 0.05
    records = [_record(chosen, magic, codec, number) for number in range(size)]
    if stamped:
        records = [{**record, "timestamp": NOW} for record in records]
    return {
        "magic": magic,
        "compression": codec,
        "base_offset": index if alone else 0,
        "last_offset_delta": _often(chosen, size - 1, size, size - 2, -1) if magic == 2 else size - 1,
        "declared_count": _often(chosen, size, size + 1, max(size - 1, 0), 0, -1) if magic == 2 else size,
        "producer_id": producer_id,
        "producer_epoch": 3 if producer_id >= 0 else -1,
        "base_sequence": _often(chosen, 10, 0, -1) if producer_id >= 0 else -1,
        "transactional": producer_id >= 0 and chosen.random() < 0.5,
        "control": magic == 2 and codec == "none" and chosen.random() < 0.05,
        "timestamp_type": "LogAppendTime" if stamped else "CreateTime",
        "records": records,
    }


def _record(chosen: random.Random, magic: int, codec: str, number: int) -> dict[str, Any]:
    wrapped = magic < 2 and codec != "none"
    near = (NOW - LIMIT_MS, NOW - LIMIT_MS - 1, NOW + LIMIT_MS, NOW + LIMIT_MS + 1, -1, 0)
    other_magic = 1 - magic if wrapped and chosen.random() < 0.04 else magic
    timestamp = _often(chosen, NOW - chosen.randint(0, LIMIT_MS), *near)
    return {
        "offset": _often(chosen, number, 0, number + 1) if magic < 2 and wrapped else number,
        "timestamp": timestamp if magic > 0 and other_magic > 0 else -1,
        "key": _often(chosen, "key", None),
        "magic": other_magic,
        "crc_ok": not wrapped or chosen.random() > 0.03,
        "compressed": wrapped and chosen.random() < 0.02,
    }
