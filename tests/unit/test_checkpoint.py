"""The small text files: the brokers' own, the reference's examples, Java's rules, and damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base.errors import REASONS, parse_int
from auditor.connectors.codec.small_files import (
    EpochStart,
    MetaProperties,
    QuorumState,
    decode_clean_shutdown,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
    decode_properties,
    decode_quorum_state,
    is_uuid,
)
from tests import corpora

OFFSET_CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
DECODERS: list[Callable[[bytes], tuple[Any, list[Any]]]] = [
    decode_offset_checkpoint,
    decode_leader_epochs,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
    decode_clean_shutdown,
    decode_properties,
]


def reasons(errors: list[Any]) -> list[str]:
    return [error.reason for error in errors]


def test_every_small_file_of_every_broker_is_sound() -> None:
    by_name: dict[str, Callable[[bytes], tuple[Any, list[Any]]]] = dict.fromkeys(
        OFFSET_CHECKPOINTS, decode_offset_checkpoint
    )
    by_name |= {
        "leader-epoch-checkpoint": decode_leader_epochs,
        "meta.properties": decode_meta_properties,
        "partition.metadata": decode_partition_metadata,
        "quorum-state": decode_quorum_state,
        ".kafka_cleanshutdown": decode_clean_shutdown,
    }
    read = 0
    for name in corpora.names():
        for path in corpora.unpack(name).rglob("*"):
            if path.name in by_name and path.is_file():
                assert by_name[path.name](path.read_bytes())[1] == [], path
                read += 1
    assert read > 300


@pytest.mark.parametrize("name", corpora.names())
def test_checkpoints_say_what_the_broker_said_before_it_stopped(name: str) -> None:
    for partition, live in (corpora.manifest(name).get("live") or {}).items():
        topic, _, number = partition.rpartition("-")
        key = topic, int(number)
        broker = corpora.unpack(name) / "broker-1"
        marks, _ = decode_offset_checkpoint((broker / "replication-offset-checkpoint").read_bytes())
        if key in marks and name != "altered-41":
            assert marks[key] >= live["highWatermark"], partition
        starts = checkpoint(broker / "log-start-offset-checkpoint")
        if key in starts:
            assert starts[key] == live["logStartOffset"]
        epochs, _ = decode_leader_epochs((broker / partition / "leader-epoch-checkpoint").read_bytes())
        assert epochs == sorted(epochs)


def checkpoint(path: Path) -> dict[tuple[str, int], int]:
    return decode_offset_checkpoint(path.read_bytes())[0] if path.is_file() else {}


def test_brokers_and_clusters_are_reported() -> None:
    for name in corpora.names():
        meta, _ = decode_meta_properties((corpora.unpack(name) / "broker-1" / "meta.properties").read_bytes())
        assert meta.broker_id == 1
        assert (meta.cluster_id is None) == (name in ("legacy-0102", "unknown-producer-23"))  # none yet


def test_an_offset_checkpoint() -> None:
    found, errors = decode_offset_checkpoint(b"0\n3\na-b 0 7\na-b 12 0\nc.d 1 9223372036854775807\n")
    assert (found, errors) == ({("a-b", 0): 7, ("a-b", 12): 0, ("c.d", 1): 2**63 - 1}, [])
    assert decode_offset_checkpoint(b"") == ({}, [])
    assert decode_offset_checkpoint(b"0\r\n1\r\nt 0 1") == ({("t", 0): 1}, [])


def test_leader_epochs_of_the_reference() -> None:
    assert decode_leader_epochs(b"0\n3\n0 0\n2 37\n4 44\n") == (
        [EpochStart(0, 0), EpochStart(2, 37), EpochStart(4, 44)],
        [],
    )


@pytest.mark.parametrize(
    ("data", "found", "errors"),
    [
        (b"1\n1\nt 0 1\n", {}, [("bad_version", 0, 10)]),
        (b"t 0 1\n", {}, [("bad_value", 0, 6)]),
        (b"0\n2\nt 0 1\n", {("t", 0): 1}, [("bad_value", 2, 2)]),
        (b"0\nx\nt 0 1\n", {("t", 0): 1}, [("bad_value", 2, 2)]),
        (b"0\n2\nt 0\nt 1 5\n", {("t", 1): 5}, [("bad_line", 4, 4)]),
        (b"0\n2\nt 0 1 2\nt 1 5\n", {("t", 1): 5}, [("bad_line", 4, 8)]),
        (b"0\n2\nt -1 1\nt 1 5\n", {("t", 1): 5}, [("bad_line", 4, 7)]),
        (b"0\n2\nt 0 9223372036854775808\nt 1 5\n", {("t", 1): 5}, [("bad_line", 4, 24)]),
        (b"0\n1\nt 0 1\n\0\0\0\0", {("t", 0): 1}, [("not_text", 10, 4)]),
        (b"0\n1\nt 0 1\nt\xff 0 1\n", {("t", 0): 1}, [("not_text", 10, 7)]),
        (bytes(40), {}, [("not_text", 0, 40)]),
    ],
)
def test_damaged_checkpoints(data: bytes, found: dict[Any, int], errors: list[Any]) -> None:
    got, reported = decode_offset_checkpoint(data)
    assert got == found
    assert [(error.reason, error.position, error.length) for error in reported] == errors


def test_meta_properties_of_both_versions() -> None:
    old, errors = decode_meta_properties(b"#\n#Sat Nov 21\nversion=0\nbroker.id=7\ncluster.id=abc\n")
    assert (old, errors) == (MetaProperties(0, 7, "abc", None), [])
    new, errors = decode_meta_properties(b"node.id=3\ndirectory.id=d\nversion=1\ncluster.id=c\n")
    assert (new, errors) == (MetaProperties(1, 3, "c", "d"), [])
    assert decode_meta_properties(b"broker.id=0\n") == (MetaProperties(0, 0, None, None), [])
    unknown, errors = decode_meta_properties(b"version=2\nnode.id=x\n")
    assert (unknown.version, unknown.broker_id, reasons(errors)) == (2, None, ["bad_version", "bad_setting"])
    assert reasons(decode_meta_properties(bytes(20))[1]) == ["not_text"]


def test_partition_metadata() -> None:
    assert decode_partition_metadata(b"version: 0\ntopic_id: v5HzUXNOSymlK4fSJuwxjA") == ("v5HzUXNOSymlK4fSJuwxjA", [])
    for data in (b"", b"version: 0\n", b"version: 0\ntopic_id: " + b"A" * 22, b"version: 0\ntopic_id: short"):
        topic_id, errors = decode_partition_metadata(data)
        assert (topic_id, reasons(errors)) == (None, ["bad_value"])
    assert reasons(decode_partition_metadata(b"topic_id=x")[1]) == ["bad_line"]
    assert is_uuid("v5HzUXNOSymlK4fSJuwxjA")
    assert not is_uuid("v5HzUXNOSymlK4fSJuwx+A")


def test_quorum_state() -> None:
    sample = (
        b'{"clusterId":"","leaderId":7,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":7}],"data_version":0}'
    )
    assert decode_quorum_state(sample) == (QuorumState(0, 7, 1, -1, (7,)), [])
    dynamic = b'{"leaderId":1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"x","data_version":1}'
    assert decode_quorum_state(dynamic) == (QuorumState(1, 1, 2, 3, ()), [])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "bad_value"),
        (b"[]", "bad_value"),
        (b"[" * 100_000, "bad_value"),
        (b'{"data_version":"0"}', "bad_value"),
        (b'{"data_version":0,"leaderId":true}', "bad_value"),
        (b'{"data_version":0,"currentVoters":[{}]}', "bad_value"),
        (b'{"data_version":2}', "bad_version"),
        (b'{"leaderId":' + b"9" * 5000 + b"}", "bad_value"),
        (b" " * (1 << 20) + b"{}", "limit"),
    ],
)
def test_quorum_states_that_are_none(data: bytes, reason: str) -> None:
    state, errors = decode_quorum_state(data)
    assert (state, reasons(errors)) == (None, [reason])


def test_clean_shutdown_files() -> None:
    assert decode_clean_shutdown(b"") == (None, [])
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":1097}') == (1097, [])
    assert reasons(decode_clean_shutdown(b"{}")[1]) == ["bad_value"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("a=b", {"a": "b"}),
        ("  a : b ", {"a": "b "}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("a==b", {"a": "=b"}),
        (r"a\=b=c", {"a=b": "c"}),
        (r"a=C\:\\x\ty", {"a": "C:\\x\ty"}),
        (r"a=\u00e9\uD83D\uDE00", {"a": "é😀"}),
        (r"a=\uD83D", {"a": "\ufffd"}),
        ("a=b\\\n   c\nd=e", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nd=e", {"a": "b\\", "d": "e"}),
        ("# a=b\n! c=d\n\n\t\ne=f\r\n", {"e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=\\", {"a": ""}),
    ],
)
def test_properties_as_java_reads_them(line: str, wanted: dict[str, str]) -> None:
    assert decode_properties(line.encode("latin-1")) == (wanted, [])


def test_a_broken_escape_costs_its_line_only() -> None:
    found, errors = decode_properties(b"a=1\nb=\\u00g0\nc=2\n")
    assert found == {"a": "1", "c": "2"}
    assert [(error.reason, error.position, error.length) for error in errors] == [("bad_line", 4, 9)]


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [("7", 32, 7), ("+7", 32, 7), ("-2147483648", 32, -(2**31)), ("2147483648", 32, None), ("1_0", 64, None),
     ("٣", 64, 3), ("", 64, None), ("9" * 6000, 64, None), ("7\n", 64, None)],
)  # fmt: skip
def test_numbers_as_java_parses_them(text: str, bits: int, number: int | None) -> None:
    assert parse_int(text, bits) == number


@pytest.mark.parametrize("decode", DECODERS)
def test_every_cut_and_mutation_is_a_value(decode: Callable[[bytes], tuple[Any, list[Any]]]) -> None:
    chance = random.Random(7)
    for sample in (b"0\n2\nt 0 1\nt 1 5\n", b"version=1\nnode.id=3\nk=\\u0041\n", b'{"data_version":0,"leaderId":1}'):
        for length in range(len(sample)):
            assert all(error.reason in REASONS for error in decode(sample[:length])[1])
        for _ in range(500):
            data = bytearray(sample)
            for _ in range(3):
                data[chance.randrange(len(data))] = chance.choice(b'\0\n\r\\u0{["\xff\xc3 =:#-9')
            for error in decode(bytes(data))[1]:
                assert error.reason in REASONS
                assert 0 <= error.position <= error.position + error.length <= len(data)


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
def test_no_bytes_raise(decode: Callable[[bytes], tuple[Any, list[Any]]], data: bytes) -> None:
    assert all(error.reason in REASONS for error in decode(data)[1])
