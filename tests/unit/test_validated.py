"""Stored batches put to the model's validator: what Kafka's LogValidator says of such when they are sent."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from auditor.base.errors import DEFAULT_LIMITS
from auditor.facts.events import Culprits, EventKind, blank_events
from auditor.facts.replica_facts import LargestCreateTime, ReplicaFacts
from auditor.model import batch_validation as v
from auditor.replay.producers.kernel import AHEAD_MS
from auditor.replay.reading.chunks import batch_of, culprits_of
from auditor.replay.reading.record_checks import (
    TOLERANCE_MS,
    Sender,
    answers_of,
    counted,
    header_answers,
    packed_answers,
    unpacked_answers,
)
from tests.conformance.validator_adapter import _batch as produced
from tests.differential.record_sets import CODECS, RecordSets
from tests.reference.record_set import Rejected, ValidationMetrics
from tests.reference.validator import TopicSettings, validate
from tests.seeded_tests import seeded
from tests.segments import TIME, batch, chunks, compress, message, record, wrapper

FROM_CLIENTS = Sender(log_start=0, intact_from=0, clients=True, compacted=False)
COMPACTED = FROM_CLIENTS._replace(compacted=True)
NOT_INTACT = COMPACTED._replace(intact_from=100)
BY_COORDINATORS = COMPACTED._replace(clients=False)
CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def answer(data: bytes, sender: Sender) -> tuple[str | None, dict[str, int]]:
    """The error of the only batch, and what is counted."""
    (chunk,) = chunks(data, records=True, look=functools.partial(answers_of, sender=sender))
    if chunk.looked is None:
        return None, {}
    assert len(chunk.looked) == len(chunk.rows) == 1
    row = chunk.looked[0]
    counted = {name: int(row[name]) for name in v.METRICS if row[name]}
    return v.ERRORS.get(int(row["cause"])), counted


def keyed(*keys: bytes | None, deltas: tuple[int, ...] = ()) -> bytes:
    """Records by their keys."""
    return b"".join(record(delta, key, b"v") for delta, key in zip(deltas or range(len(keys)), keys, strict=True))


def altered(inner: bytes) -> bytes:
    """A message whose checksum is wrong."""
    return inner[:-1] + bytes([inner[-1] ^ 1])


K = b"k"
FOREIGN = [message(0, K, b"v"), message(1, K, b"v", 0), message(2, K, b"v", 0)]
DAMAGED = [message(0, None, b"v"), altered(message(1, K, b"v")), message(2, None, b"v"), altered(message(3, K, b"v"))]
KIND = [message(0, K, b"v"), message(1, K, b"v", attributes=2)]
INVALID, CORRUPT = "INVALID_RECORD", "CORRUPT_MESSAGE"


@pytest.mark.parametrize(
    ("data", "sender", "error", "counted"),
    [
        (batch(keyed(K, K), 2), COMPACTED, None, {}),
        (batch(keyed(None, None), 2), FROM_CLIENTS, None, {}),
        (batch(keyed(K, None, None), 3), COMPACTED, INVALID, {"no_key_compacted": 2}),
        (batch(compress(4, keyed(K, None)), 2, attributes=4), COMPACTED, INVALID, {"no_key_compacted": 1}),
        # the header goes before the records
        (batch(keyed(K, None), 2, delta=2), COMPACTED, INVALID, {"invalid_offset": 1}),
        (batch(keyed(K, None), 3, delta=1), COMPACTED, INVALID, {"invalid_offset": 1}),
        (batch(keyed(K), 1, base_offset=10, delta=-1), FROM_CLIENTS, INVALID, {"invalid_offset": 1}),
        (batch(keyed(K), 1, producer_id=7, epoch=0), FROM_CLIENTS, INVALID, {"invalid_sequence": 1}),
        (batch(keyed(K), 1, producer_id=0, epoch=0, sequence=0), FROM_CLIENTS, None, {}),
        # what does not parse is counted nowhere, but the keys before it are; the last declared is not looked at where
        # more follow (differential seed 7403, a broker of 4.1)
        (batch(keyed(K, None), 3), COMPACTED, INVALID, {"no_key_compacted": 1}),
        (batch(keyed(None, None, K), 2), COMPACTED, INVALID, {"no_key_compacted": 1}),
        (batch(keyed(K, K, K), 2), FROM_CLIENTS, INVALID, {}),
        (batch(keyed(K, K) + bytes(3), 2), FROM_CLIENTS, INVALID, {}),
        # numbers of records are the leader's to give
        (batch(keyed(K, K, K, deltas=(0, 2, 1)), 3), FROM_CLIENTS, None, {}),
        # inner messages: each of another format is counted, a wrong checksum ends it
        (wrapper(2, FOREIGN), FROM_CLIENTS, INVALID, {"invalid_magic": 2}),
        (wrapper(3, DAMAGED), FROM_CLIENTS, CORRUPT, {"invalid_checksum": 1}),
        (wrapper(3, DAMAGED), COMPACTED, CORRUPT, {"invalid_checksum": 1, "no_key_compacted": 1}),
        (wrapper(1, KIND), FROM_CLIENTS, INVALID, {}),
        (message(0, None, b"v"), COMPACTED, INVALID, {"no_key_compacted": 1}),
        # what the cleaner leaves
        (batch(keyed(K, K, deltas=(0, 4)), 2, delta=5), NOT_INTACT, None, {}),
        (batch(keyed(K, None, deltas=(0, 4)), 2, delta=5), NOT_INTACT, INVALID, {"no_key_compacted": 1}),
        (batch(b"", 0, delta=5), NOT_INTACT, None, {}),
        (batch(b"", 0, delta=5), FROM_CLIENTS, INVALID, {"invalid_offset": 1}),
        (batch(keyed(K), 2, delta=0), NOT_INTACT, INVALID, {"invalid_offset": 1}),
        # coordinators are not mistrusted, and write markers
        (batch(keyed(K, K), 2, delta=2), BY_COORDINATORS, None, {}),
        (batch(keyed(K, None), 2), BY_COORDINATORS, INVALID, {"no_key_compacted": 1}),
        (batch(keyed(K, K), 2, delta=3, producer_id=7, epoch=0, attributes=0x30), FROM_CLIENTS, None, {}),
        # not judged
        (batch(keyed(K, None), 2, delta=2), COMPACTED._replace(log_start=100), None, {}),
    ],
)
def test_what_a_leader_would_have_said(data: bytes, sender: Sender, error: str | None, counted: dict[str, int]) -> None:
    assert answer(data, sender) == (error, counted)


def test_a_wrong_checksum_goes_before_everything() -> None:
    data = bytearray(batch(keyed(K, None), 2, delta=2))
    data[-1] ^= 1
    (chunk,) = chunks(bytes(data) + batch(keyed(K), 1, base_offset=3), records=True)
    answers = header_answers(chunk.batches, COMPACTED)
    assert answers is not None
    assert answers["invalid_checksum"].tolist() == [1, 0]
    assert answers["invalid_offset"].tolist() == [0, 0]


def test_answers_are_those_of_their_batches() -> None:
    """Many in one chunk, some beyond what is opened at a time; on the way to another process too."""
    keys = [(K, None, None), (K,), (K, K), (None,)]
    data = b"".join(
        batch(keyed(*keys[number % 4]) + bytes(number % 7 == 0), len(keys[number % 4]), base_offset=3 * number, delta=2)
        for number in range(500)
    )
    sender = COMPACTED._replace(intact_from=10_000)
    (chunk,) = chunks(data, records=True, look=functools.partial(answers_of, sender=sender))
    assert chunk.looked is not None
    # of the bytes left behind the last record, the record before them is the one that is not looked at
    left = [number % 7 == 0 for number in range(500)]
    nulls = [[2, 0, 0, 1][number % 4] - (left[number] and number % 4 in (0, 3)) for number in range(500)]
    assert chunk.looked["no_key_compacted"].tolist() == nulls
    assert (chunk.looked["cause"] == v.UNREADABLE).tolist() == left
    moved = unpacked_answers(packed_answers(chunk.looked), len(chunk.rows))
    assert np.array_equal(moved, chunk.looked)


# --- what random record sets come to as bytes, beside what the model says of them as they are produced


def stored(sent: dict[str, Any]) -> bytes:
    """The bytes of a batch of a random record set."""
    codec, magic, records = CODEC_NUMBERS[sent["compression"]], sent["magic"], sent["records"]
    keys = [None if r["key"] is None else r["key"].encode() for r in records]
    if magic == 2:
        body = b"".join(
            record(r["offset"], key, b"v", r["timestamp"] - TIME) for r, key in zip(records, keys, strict=True)
        )
        return batch(
            compress(codec, body) if sent["declared_count"] > 0 else body, sent["declared_count"],
            delta=sent["last_offset_delta"], attributes=codec | 0x10 * sent["transactional"],
            base_offset=10, producer_id=sent["producer_id"],
            epoch=sent["producer_epoch"], sequence=sent["base_sequence"],
        )  # fmt: skip
    inner = []
    for r, key in zip(records, keys, strict=True):
        made = message(r["offset"], key, b"v", r["magic"], 2 * r["compressed"], r["timestamp"])
        inner.append(made if r["crc_ok"] else altered(made))
    return wrapper(len(inner) - 1, inner, codec, magic) if codec else inner[0]


def fits_a_log(args: dict[str, Any]) -> bool:
    """Whether a log can show the set: one batch of a client, whose stamps are its own."""
    (first, *more) = args["batches"]
    plain = first["timestamp_type"] == "CreateTime" and not first["control"]
    return not more and args["origin"] == "client" and plain and first["compression"] in CODECS[first["magic"]]


@seeded(60)
def test_random_record_sets_as_bytes(seed: int) -> None:
    """The clock is left aside on either side."""
    for step in RecordSets(seed).case["steps"]:
        args = step["args"]
        if not fits_a_log(args):
            continue
        (sent,) = args["batches"]
        settings = TopicSettings(sent["compression"], sent["magic"], args["compacted"])
        metrics, error = ValidationMetrics(), None
        try:
            validate([produced(sent)], settings, sent["compression"], "client", 0, 0, metrics)
        except Rejected as refused:
            error = refused.error
        counted = {name: count for name, count in metrics.as_dict().items() if count}
        assert answer(stored(sent), FROM_CLIENTS._replace(compacted=args["compacted"])) == (error, counted), args


def test_a_record_is_blamed_for_the_first_thing_that_is_wrong_with_it() -> None:
    """As LogValidator reports it: the key before the time. A leader counts nothing for deltas, but no log has such."""
    body = record(0, None, b"v", -900) + record(1, K, b"v", -900) + record(2, K, b"v", 900) + record(2, K, b"v")
    data = batch(body, 4)
    facts = ReplicaFacts(None, None, "d", "t", 0)
    facts.events = blank_events(1)
    facts.events["kind"], facts.events["segment"], facts.events["position"] = int(EventKind.NULL_KEY), 0, 0
    facts.ahead, facts.broker_time = LargestCreateTime(TIME, -1, -1, 0, 3, 0, 0), TIME - AHEAD_MS + 100
    old = facts.events.copy()
    old["kind"], old["broker_time"] = int(EventKind.RECORD_TIMESTAMP), TIME + TOLERANCE_MS
    facts.events = np.concatenate([facts.events, old])
    found = culprits_of(
        facts, lambda _n, at: batch_of(lambda size: data[at : at + size], DEFAULT_LIMITS), 500, COMPACTED
    )
    (blamed,) = found.values()
    assert blamed == Culprits(4, 4, -1, null_keys=(0,), flawed=(3,), old=(1,), ahead=((2, TIME + 900),))


def test_a_refused_batch_counts_in_one_counter_of_the_kip() -> None:
    """By what it is refused for; two batches with a fault each count in two."""
    look = functools.partial(answers_of, sender=COMPACTED)
    both = wrapper(3, [message(0, None, b"v"), altered(message(1, K, b"v"))])
    for data, expected in (
        (both, {"invalid_checksum": 1}),
        (batch(keyed(None, None), 2), {"no_key_compacted": 2}),
        (wrapper(1, [message(0, None, b"v")]) + wrapper(3, [message(2, K, b"v"), altered(message(3, K, b"v"))]),
         {"no_key_compacted": 1, "invalid_checksum": 1}),
    ):  # fmt: skip
        (chunk,) = chunks(data, records=True, look=look)
        assert chunk.looked is not None
        assert {name: count for name, count in counted(chunk.looked).items() if count} == expected
