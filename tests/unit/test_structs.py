"""The struct codec against the reference's bytes, kafka-python's encoder, and damage."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.base.errors import REASONS
from auditor.connectors.codec import cluster_metadata, group_topics, remote_log_metadata, transaction_log
from auditor.connectors.codec.structs import MAX_ELEMENTS, Field, Message, Problem, decode, read_uvarint, uuid_text
from tests.conftest import NIGHTLY
from tests.unit import client_encoding

MESSAGES = [
    transaction_log.KEY,
    transaction_log.VALUE,
    group_topics.OFFSET_COMMIT_KEY,
    group_topics.OFFSET_COMMIT_VALUE,
    *{kind.key for kind in group_topics.GROUP_TYPES.values()},
    *(kind.value for kind in group_topics.GROUP_TYPES.values()),
    group_topics.KEY,
    *(kind.value for kind in group_topics.TYPES.values()),
    *remote_log_metadata.MESSAGES.values(),
    *cluster_metadata.MESSAGES.values(),
    *cluster_metadata.CONTROL_MESSAGES.values(),
]
EVERY_VERSION = [
    pytest.param(message, version, id=f"{message.name}-v{version}")
    for message in sorted(MESSAGES, key=lambda message: message.name)
    for version in range(message.last_version + 1)
]
NOT_WRITTEN = {  # kafka-python knows neither structs that may be null nor float64
    "ConsumerGroupMemberMetadataValue", "StreamsGroupMemberMetadataValue", "ClientQuotaRecord",
}  # fmt: skip
WRITTEN = [case for case in EVERY_VERSION if case.values[0].name not in NOT_WRITTEN]
STRING = Message("S", (Field("s", "string"),))
STRINGS = Message("A", (Field("a", "[]string"),))
_NUMBER = (Field("n", "int8"),)
NULLABLE = Message(
    "N",
    (
        Field("s", "struct", _NUMBER, nullable=0),
        Field("t", "struct", _NUMBER, nullable=0, tag=0, default={"n": 9}),
    ),
)
TAGGED = Message("T", (Field("t", "int16", tag=2, default=0),))


@pytest.mark.parametrize(("raw", "number"), [("7f", 127), ("8001", 128), ("ac02", 300), ("ffffffff07", 2**31 - 1)])
def test_uvarints_of_the_reference(raw: str, number: int) -> None:
    assert read_uvarint(bytes.fromhex(raw), 0) == (number, len(raw) // 2)


@pytest.mark.parametrize("raw", ["", "80", "80808080", "ffffffff08", "ffffffff0f", "808080808001", "80" * 1000])
def test_varints_that_are_none(raw: str) -> None:
    problem = read_uvarint(bytes.fromhex(raw), 0)
    assert isinstance(problem, Problem)
    assert problem.reason == ("truncated" if len(raw) < 10 else "bad_size")


def test_the_uuid_of_the_reference() -> None:
    assert uuid_text(bytes.fromhex("bf91f351734e4b29a52b87d226ec318c")) == "v5HzUXNOSymlK4fSJuwxjA"


@pytest.mark.parametrize(("message", "version"), WRITTEN)
@settings(max_examples=200 if NIGHTLY else 8)
@given(data=st.data())
def test_what_kafka_python_writes_is_read(message: Message, version: int, data: st.DataObject) -> None:
    values = data.draw(client_encoding.values(message, version))
    raw = client_encoding.encode(message, version, values)
    assert decode(message, version, raw) == (values, len(raw))
    for length in range(len(raw)):
        problem = decode(message, version, raw[:length])
        assert isinstance(problem, Problem)
        assert problem.reason in ("truncated", "bad_size")
        assert problem.position <= length


@pytest.mark.parametrize(("message", "version"), EVERY_VERSION)
def test_no_bytes_raise(message: Message, version: int) -> None:
    chance = random.Random(f"{message.name} {version}")
    for _ in range(300):
        raw = bytes(chance.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x41)) for _ in range(chance.randrange(90)))
        decoded = decode(message, version, raw)
        if isinstance(decoded, Problem):
            assert decoded.reason in REASONS
            assert 0 <= decoded.position <= len(raw)
        else:
            assert decoded[1] <= len(raw)


def test_bytes_that_are_no_utf8_are_replaced_as_java_does() -> None:
    assert decode(STRING, 0, b"\x04a\xffb\0") == ({"s": "a\ufffdb"}, 5)


@pytest.mark.parametrize(
    ("message", "raw", "reason", "position"),
    [
        (STRING, "00", "bad_value", 0),  # null where it may not be
        (STRING, "ffffffff07", "bad_size", 0),  # longer than Kafka allows
        (STRING, "ff7f", "truncated", 2),
        (STRINGS, "ffffffff07", "bad_size", 0),  # more elements than bytes
        (STRINGS, "040101", "bad_size", 0),
        (STRINGS, "0300", "bad_size", 0),
        (TAGGED, "01 02 01 00", "truncated", 3),  # a tag shorter than its type
        (TAGGED, "01 02 03 000000", "bad_size", 3),  # and longer
        (TAGGED, "01 07 05 00", "truncated", 3),  # an unknown tag past the end
        (TAGGED, "ffffffff07", "truncated", 5),  # very many tags
    ],
)
def test_lengths_that_lie(message: Message, raw: str, reason: str, position: int) -> None:
    problem = decode(message, 0, bytes.fromhex(raw))
    assert isinstance(problem, Problem)
    assert (problem.reason, problem.position) == (reason, position)


def test_unknown_tags_are_stepped_over() -> None:
    assert decode(TAGGED, 0, bytes.fromhex("02 02 02 0007 09 03 aabbcc")) == ({"t": 7}, 10)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("ff 00", {"s": None, "t": {"n": 9}}),  # absent in the tag: its default
        ("01 07 00 00", {"s": {"n": 7}, "t": {"n": 9}}),
        ("ff 01 00 01 00", {"s": None, "t": None}),
        ("ff 01 00 03 01 08 00", {"s": None, "t": {"n": 8}}),
    ],
)
def test_structs_that_may_be_null(raw: str, value: dict[str, object]) -> None:
    """Source: Kafka's generated classes: a negative byte is null, in a tag a varint of 0."""
    data = bytes.fromhex(raw)
    assert decode(NULLABLE, 0, data) == (value, len(data))


def test_a_float() -> None:
    assert decode(Message("F", (Field("f", "float64"),)), 0, bytes.fromhex("4004000000000000 00")) == ({"f": 2.5}, 9)


def test_elements_are_limited() -> None:
    count = MAX_ELEMENTS + 1
    varint = bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, (count + 1) >> 14])
    problem = decode(STRINGS, 0, varint + b"\1" * count + b"\0")
    assert isinstance(problem, Problem)
    assert problem.reason == "limit"


def test_an_unknown_version_is_reported() -> None:
    for version in (-1, 1):
        problem = decode(STRING, version, b"\1\0")
        assert isinstance(problem, Problem)
        assert problem.reason == "bad_version"
