"""What mutants are made of: files of real brokers and made ones, small, one list a kind."""

from __future__ import annotations

import functools
from pathlib import Path

from auditor.connectors import kafka_names
from auditor.connectors.codec.records import Record, records_of
from auditor.connectors.text.lines import sniff
from tests import corpora, formats
from tests.segments import batch, chunks, message, record, simple, wrapper

LARGEST = 4096  # bytes of a seed: decoders have no state that only long files reach, and short ones mutate faster
FEW = 40  # seeds of one kind from one corpus
SMALL_FILES = (
    *kafka_names.CHECKPOINT_KINDS,
    kafka_names.META,
    "partition.metadata",
    "leader-epoch-checkpoint",
    "quorum-state",
)
NEWER = ("__share_group_state", "__remote_log_metadata")  # in the corpora of formats alone
INTERNAL = ("__transaction_state", "__consumer_offsets", "__cluster_metadata", *NEWER)


def _made() -> list[bytes]:
    """Segments with each codec and format, which corpora hold in long batches only."""
    marker = record(0, bytes.fromhex("00000001"), bytes(6))
    headers = record(0, b"k", b"v", headers=[(b"h", b"x"), (b"n", None)])
    inner = [message(number, b"k", b"v") for number in range(3)]
    return [
        *(simple(3 * codec, codec=codec) + simple(3 * codec + 3, 2, codec=codec) for codec in range(5)),
        batch(marker, 1, attributes=0x30, producer_id=3, epoch=0) + batch(headers, 1, base_offset=1),
        message(0, b"k", b"v", 0) + message(1, None, b"v", 1) + simple(2),
        *(wrapper(2, inner, codec) + message(3, b"k", None) for codec in (1, 2, 3)),
        *(wrapper(2, [message(n, b"k", b"v", 0) for n in range(3)], codec, magic=0) for codec in (1, 2, 3)),
    ]


def _whole_batches(data: bytes) -> bytes:
    """As many batches from the beginning as fit; none where the first is too large."""
    end = 0
    for size in [int(size) for chunk in chunks(data) for size in chunk.batches.size]:
        if end + size > LARGEST:
            break
        end += size
    return data[:end]


def _head_of_text(data: bytes) -> bytes:
    return data[: data.rfind(b"\n", 0, LARGEST) + 1] or data[:LARGEST]


def packed(key: bytes | None, value: bytes | None) -> bytes:
    """A record of an internal topic as one seed: two bytes for the key's length, the key, the value."""
    return len(key or b"").to_bytes(2, "big") + (key or b"") + (value or b"")


def _internal(folder: Path) -> list[bytes]:
    found = []
    for path in sorted(folder.glob("*.log")) + sorted(folder.glob("*.checkpoint")):
        for chunk in chunks(path.read_bytes(), raw=True):
            for _, row in records_of(chunk.raw or [], chunk.batches, file="seed"):
                if isinstance(row, Record):
                    found.append(packed(row.key, row.value)[:LARGEST])
    return found


def _add(seeds: dict[str, set[bytes]], path: Path) -> None:
    data = path.read_bytes()
    kind = path.suffix.removeprefix(".")
    if not data:
        return
    if kind == "log":
        seeds["segment"].add(_whole_batches(data))
    elif kind in ("index", "timeindex", "txnindex"):
        seeds[kind].add(data[: 16 * {"index": 8, "timeindex": 12, "txnindex": 34}[kind]])
    elif kind == "snapshot":
        seeds["snapshot"].add(data[:LARGEST])
    elif path.name in SMALL_FILES:
        seeds[path.name].add(data)


@functools.cache
def by_kind() -> dict[str, list[bytes]]:
    """Seeds by the name of the target that reads them, in an order that depends on their bytes alone."""
    kinds = ("segment", "index", "timeindex", "txnindex", "snapshot", "dump", "console", *INTERNAL, *SMALL_FILES)
    all_seeds: dict[str, list[bytes]] = {kind: [] for kind in kinds}
    for name in corpora.names():
        seeds: dict[str, set[bytes]] = {kind: set() for kind in kinds}
        for path in sorted(corpora.unpack(name).rglob("*")):
            if path.is_file():
                _add(seeds, path)
            elif (topic := path.name.rpartition("-")[0]) in INTERNAL:
                seeds[topic] |= set(_internal(path))
        _take(seeds, all_seeds)
    for name in (*corpora.names(), *corpora.names(text=True)):
        seeds = {kind: set() for kind in kinds}
        for path in corpora.oracle(name).rglob("*"):
            if path.is_file() and (kind := sniff(path.read_bytes()[:65536])):
                seeds[kind].add(_head_of_text(path.read_bytes()))
        _take(seeds, all_seeds)
    all_seeds["segment"] += _made()
    all_seeds["rsm-manifest"] = sorted(path.read_bytes() for path in corpora.unpack("aiven-43").rglob("*.rsm-manifest"))
    for topic in NEWER:
        _take({topic: {seed for _, folder, _ in formats.printed(topic) for seed in _internal(folder)}}, all_seeds)
    all_seeds["transactions as read"] = all_seeds["__transaction_state"]
    all_seeds["offsets as read"] = all_seeds["__consumer_offsets"]
    return {kind: found for kind, found in all_seeds.items() if found}


def _take(seeds: dict[str, set[bytes]], into: dict[str, list[bytes]]) -> None:
    """A few of each kind, short ones first: they say as much."""
    for kind, found in seeds.items():
        into[kind] += sorted(found - {b""}, key=lambda data: (len(data), data))[:FEW]
