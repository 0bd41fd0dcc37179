"""What may not leave the house is not in a copy, and all else decodes as it did: a secret in every place for one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from auditor.connectors.codec.cluster_metadata import BLANKED, CONFIG
from auditor.connectors.codec.group_topics import ASSIGNMENT, GROUP_METADATA_VALUE, OFFSET_COMMIT_VALUE, SUBSCRIPTION
from auditor.connectors.codec.structs import Message
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.schema import DECODED
from auditor.connectors.tables.input_splits import plan
from auditor.connectors.tables.rows import How, read_piece
from tests import segments
from tests.copies import copy_of, everything, finds
from tests.unit.client_encoding import encode

SECRET = b"S3cret-0f-Somebody"
TEXT = SECRET.decode()
COMMIT_KEY = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
UUID = "AAAAAAAAAAAAAAAAAAAAAQ"


def of(message: Message, version: int, **values: Any) -> bytes:
    return struct.pack(">h", version) + encode(message, version, values)


def said(message: Message, **more: Any) -> bytes:
    """What a consumer says, with a secret of its own in it."""
    values: dict[str, Any] = {
        "topics": ["t"],
        "userData": SECRET,
        "ownedPartitions": [],
        "generationId": 1,
        "rackId": None,
    }
    if message is ASSIGNMENT:
        values = {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": SECRET}
    return of(message, 3, **values) + more.get("behind", b"")


def classic_group(protocol_type: str, subscription: bytes, assignment: bytes) -> bytes:
    member = {
        "memberId": "m", "groupInstanceId": "i", "clientId": "client", "clientHost": f"/{TEXT}", "rebalanceTimeout": 1,
        "sessionTimeout": 1, "subscription": subscription, "assignment": assignment,
    }  # fmt: skip
    values = {
        "protocolType": protocol_type, "generation": 3, "protocol": "range", "leader": "m", "currentStateTimestamp": 5,
        "members": [member],
    }  # fmt: skip
    return of(GROUP_METADATA_VALUE, 3, **values)


def key(kind: int, *texts: str) -> bytes:
    return struct.pack(">h", kind) + b"".join(struct.pack(">h", len(t)) + t.encode() for t in texts)


def compact(data: bytes) -> bytes:
    return bytes([len(data) + 1]) + data


# By hand, since kafka-python has no nullable structs: what members of consumer and streams groups are.
CLASSIC = b"\1" + struct.pack(">i", 9) + b"\2" + compact(b"range") + compact(SECRET) + b"\0\0"
CONSUMER_MEMBER = (
    b"\0\0\0" + compact(b"r") + compact(b"c") + compact(SECRET) + b"\2" + compact(b"t") + b"\0" + struct.pack(">i", 1)
    + b"\0\1\0" + bytes([len(CLASSIC)]) + CLASSIC
)  # fmt: skip
STREAMS_MEMBER = (
    b"\0\0\0\0" + compact(b"c") + compact(SECRET) + struct.pack(">ii", 1, 1) + compact(b"p") + b"\1" + compact(SECRET)
    + b"\0\x50\0\2" + compact(b"zone") + compact(SECRET) + b"\0\0"
)  # fmt: skip
OFFSETS = [
    *(
        (COMMIT_KEY, of(OFFSET_COMMIT_VALUE, version, offset=7, leaderEpoch=1, metadata=TEXT, commitTimestamp=1,
                        expireTimestamp=2, topicId=UUID))
        for version in range(5)
    ),
    (COMMIT_KEY, of(OFFSET_COMMIT_VALUE, 3, offset=7, leaderEpoch=1, metadata=TEXT, commitTimestamp=1) + SECRET),
    (COMMIT_KEY, b"\0\7" + SECRET),
    (COMMIT_KEY[:-1] + SECRET, b"\0\1" + SECRET),
    (b"\0\x28" + SECRET, SECRET),
    (key(2, "g"), classic_group("consumer", said(SUBSCRIPTION), said(ASSIGNMENT, behind=SECRET))),
    (key(2, "g"), classic_group("consumer", SECRET, b"")),
    (key(2, "g"), classic_group("connect", SECRET * 3, said(ASSIGNMENT))),
    (key(5, "g", "m"), CONSUMER_MEMBER),
    (key(19, "g", "m"), STREAMS_MEMBER),
    (key(3, "g"), b"\0\0\0\0\0\1\1\5" + bytes([len(SECRET)]) + SECRET),  # a tagged field that nobody knows
]  # fmt: skip


def metadata(api_key: int, body: bytes, version: int = 0) -> tuple[None, bytes]:
    return None, bytes([1, api_key, version]) + body


def setting(kind: int, name: str, value: str = TEXT) -> tuple[None, bytes]:
    values = {"resourceType": kind, "resourceName": "1", "name": name, "value": value}
    return metadata(4, encode(CONFIG, 0, values))


METADATA = [
    *(metadata(api_key, SECRET) for api_key in (10, 11, 18, 19, 22, 26, 99)),
    setting(4, "listener.name.x.ssl.keystore.password"), setting(4, "my.own"), setting(2, "my.own"),
    setting(2, "compression.password"), setting(32, "consumer.x"), setting(4, "log.retention.ms", "12345678"),
    setting(2, "cleanup.policy", "compact,delete"), metadata(
        2, b"\2t" + bytes(16) + b"\1\7" + bytes([len(SECRET)]) + SECRET
    ),
    metadata(2, b"\2t" + bytes(16) + b"\0" + SECRET), (SECRET, SECRET),
]  # fmt: skip


def batches(records: list[tuple[bytes | None, bytes]], codec: int = 0) -> bytes:
    """A batch a record, and one of all."""
    headers = [(SECRET, SECRET), (b"h", None)]
    singly = [
        segments.batch(segments.compress(codec, segments.record(0, k, v)), 1, base_offset=n, attributes=codec)
        for n, (k, v) in enumerate(records)
    ]
    body = b"".join(segments.record(n, k, v, headers=headers) for n, (k, v) in enumerate(records))
    return b"".join(singly) + segments.batch(
        segments.compress(codec, body), len(records), base_offset=len(records), attributes=codec
    )


def directory(root: Path, codec: int = 0) -> Path:
    broker = root / "source" / "broker-1"
    data = b"".join(segments.simple(3 * n, 3, codec, SECRET) for n in range(4))
    damaged = segments.batch(SECRET * 4, 3, base_offset=100)
    files = {
        "t-0": segments.simple(12, 1, codec, SECRET) + SECRET * 3 + data,
        "__consumer_offsets-0": batches(OFFSETS, codec) + damaged,
        "__cluster_metadata-0": batches(METADATA, codec) + damaged,
    }
    for name, content in files.items():
        (broker / name).mkdir(parents=True)
        (broker / name / f"{0:020}.log").write_bytes(content)
    (broker / "t-0" / f"{0:020}.log.deleted").write_bytes(data)
    (broker / "t-0" / "leftover").write_bytes(SECRET)
    (broker / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    (broker / "t-1.0123456789abcdef0123456789abcdef-delete" / f"{0:020}.log").write_bytes(data)
    (broker / "__cluster_metadata-0" / f"{30:020}-{1:010}.checkpoint").write_bytes(batches(METADATA, codec))
    (broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=Q0xVU1RFUi0tLS0tLS0tLQ\n")
    (root / "source" / "server.properties").write_text(
        f"node.id=1\nlog.retention.ms=777777\nssl.key.password={TEXT}\nmine={TEXT}\\\n   {TEXT}\n"
        f"# {TEXT}\n{TEXT}=1\nbroken=\\uzzzz{TEXT}\nlog.segment.bytes=1048576\n"
    )
    return root / "source"


def tables_of(path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    tables = frozenset(DECODED) - {"records"}
    for piece in plan(discover([str(path)]), tables):
        for name, rows in read_piece(piece, tables, How()):
            found.setdefault(name, []).extend(rows.to_pylist())
    return found


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_no_secret_is_in_a_copy_and_everything_else_is(tmp_path: Path, codec: int) -> None:
    source = directory(tmp_path, codec)
    done = copy_of(source, tmp_path / "copy")
    assert done.batches > 50
    assert any(SECRET in path.read_bytes() for path in source.rglob("*") if path.is_file()) or codec
    assert not finds(tmp_path / "copy", SECRET)
    assert finds(tmp_path / "copy", b"12345678")
    assert finds(tmp_path / "copy", b"777777")
    assert finds(tmp_path / "copy", b"compact,delete")


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_rows_of_the_tables_are_the_same(tmp_path: Path, codec: int) -> None:
    source = directory(tmp_path, codec)
    copy_of(source, tmp_path / "copy")
    was, now = tables_of(source), tables_of(tmp_path / "copy")
    assert {"batches", "offset_commits", "group_metadata"} <= was.keys() == now.keys()
    for name in was.keys() - {"decode_errors"}:
        zeros = "\\\\u0000" * len(TEXT)  # in a value as JSON
        assert repr(now[name]).replace(zeros, BLANKED) == repr(was[name]).replace(TEXT, BLANKED), name
    where = [[(e["file"], e["position"]) for e in found["decode_errors"]] for found in (now, was)]
    assert where[0] == where[1]
    assert not any("MemberMetadata" in e["detail"] for e in was["decode_errors"])


def test_the_text_that_is_looked_for_would_be_found(tmp_path: Path) -> None:
    """What stays is found by the same search, wherever it stands: in a list, in settings, in a stored batch."""
    copy_of(directory(tmp_path), tmp_path / "copy")
    whole = b"".join(everything(tmp_path / "copy"))
    for kept in (b"cluster.id", b"log.segment.bytes", b"range"):
        assert kept in whole
