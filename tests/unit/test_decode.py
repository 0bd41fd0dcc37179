"""``auditor decode``: its JSON lines against what Kafka's own tools printed of the same files, and what it promises."""

from __future__ import annotations

import base64
import json
import re
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from auditor import cli
from auditor.connectors import schema
from tests import corpora, oracle
from tests.segments import message, simple
from tests.unit import dumps
from tests.unit.log_reader import read_log

LOGS = list(oracle.logs())
BROKER = Path("broker-1")
TXN_LINE = re.compile(r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
ENTRY_LINE = re.compile(
    r"producerId: (\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+)"
)


@pytest.fixture
def decode(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
        assert cli.main(["decode", *map(str, arguments)]) == status
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def iso(ms: int) -> str | None:
    """The contract's form of a time, None for none."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=max(ms, 0))
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z" if ms >= 0 else None


def check_batch(line: oracle.Line, row: dict[str, Any]) -> None:
    """A line that DumpLogSegments printed of a batch of magic 2."""
    says = line.fields
    append_time = "logappendtime" in says
    printed = {
        "position": "position", "size": "size", "magic": "magic", "base_offset": "baseoffset",
        "last_offset": "lastoffset", "record_count": "count", "base_sequence": "basesequence",
        "last_sequence": "lastsequence", "producer_id": "producerid", "producer_epoch": "producerepoch",
        "partition_leader_epoch": "partitionleaderepoch", "crc": "crc",
    }  # fmt: skip
    assert {ours: row[ours] for ours, theirs in printed.items() if theirs in says} == {
        ours: int(says[theirs]) for ours, theirs in printed.items() if theirs in says
    }
    assert row["compression"] == says["compresscodec"].lower()
    assert row["crc_ok"] == (says["isvalid"] == "true")
    assert row["is_transactional"] == (says["istransactional"] == "true")
    assert row["is_control"] == (says.get("iscontrol", str(row["is_control"]).lower()) == "true")
    assert row["max_timestamp"] == iso(line.timestamp)
    assert row["timestamp_type"] == ("LogAppendTime" if append_time else "CreateTime")
    if "deletehorizonms" in says:
        horizon = re.search(r"\d+", says["deletehorizonms"])
        assert row["delete_horizon"] == (iso(int(horizon[0])) if horizon else None)


@pytest.mark.parametrize(("corpus", "dump", "folder"), LOGS, ids=[f"{c}-{d.name}" for c, d, _ in LOGS])
def test_batches_and_records_are_as_the_tool_says(corpus: str, dump: Path, folder: Path, decode: Any) -> None:
    files = sorted((corpora.unpack(corpus) / folder).glob("*.log"))
    batches = {path.name: [r for r in decode(path) if "table" not in r] for path in files}
    by_place = {(name, r["position"], r["base_offset"]): r for name, rows in batches.items() for r in rows}
    by_offset: dict[int, list[dict[str, Any]]] = {}
    for path in files:
        for row in decode("--records", path):
            by_offset.setdefault(row["offset"] if "table" not in row else -1, []).append(row)
    internal = folder.name.startswith("__")
    for line in oracle.read_dump(dump).lines:
        among = [line.file] if line.file else list(batches)
        if "baseoffset" in line.fields and not line.is_record:
            place = (line.number("position"), line.number("baseoffset"))
            (found,) = [by_place[name, *place] for name in among if (name, *place) in by_place]
            check_batch(line, found)
        elif not internal:
            check_record(line, by_offset[line.number("offset")])


def check_record(line: oracle.Line, rows: list[dict[str, Any]]) -> None:
    """A line of a record, or of 0.10 of a message."""
    sequence = int(line.fields.get("sequence", -1))
    row = next(r for r in rows if (r["sequence"] >= 0) == (sequence >= 0))
    assert row["timestamp"] == iso(line.timestamp)
    assert row["key_bytes"] == int(line.fields.get("keysize", -1))
    assert row["value_bytes"] == int(line.fields.get("valuesize", line.fields.get("payloadsize", -1)))
    assert row["sequence"] == sequence
    if "headerkeys" in line.fields:
        assert row["header_count"] == len([k for k in line.fields["headerkeys"].strip("[]").split(",") if k])
    if "endtxnmarker" in line.fields:
        assert row["is_control"]


@pytest.mark.parametrize("corpus", corpora.names())
def test_markers_are_as_the_tool_says(corpus: str, decode: Any) -> None:
    for _corpus, dump, folder in [item for item in LOGS if item[0] == corpus]:
        rows = {
            row["base_offset"]: row
            for path in sorted((corpora.unpack(corpus) / folder).glob("*.log"))
            for row in decode(path)
            if "table" not in row and row["is_control"]
        }
        for line in oracle.read_dump(dump).lines:
            if "endtxnmarker" in line.fields:
                row = rows[line.number("offset")]
                assert (row["control_type"], row["coordinator_epoch"]) == (
                    line.fields["endtxnmarker"], line.number("coordinatorepoch"),
                )  # fmt: skip


def sections(corpus: str, kind: str) -> list[tuple[Path, str]]:
    """Each file that the tool dumped, and what it printed of it."""
    texts = [text for text in sorted(corpora.oracle(corpus).glob(f"*.{kind}.txt")) if text.is_file()]
    parts = [part.partition("\n") for text in texts for part in text.read_text().split("Dumping ")[1:]]
    return [(corpora.unpack(corpus) / path.strip(), body) for path, _, body in parts]


@pytest.mark.parametrize("corpus", corpora.names())
def test_snapshots_are_as_the_tool_says(corpus: str, decode: Any) -> None:
    for path, body in sections(corpus, "snapshots"):
        rows = decode(path)
        said = ENTRY_LINE.findall(body)
        assert len(rows) == len(said)
        for row, (producer, epoch, coordinator, first) in zip(rows, said, strict=True):
            assert (row["producer_id"], row["producer_epoch"], row["coordinator_epoch"]) == (
                int(producer), int(epoch), int(coordinator),
            )  # fmt: skip
            number = re.search(r"\d+", first)
            assert row["current_txn_first_offset"] == (int(number[0]) if number else -1)
            assert row["snapshot_offset"] == int(path.stem)


@pytest.mark.parametrize("corpus", corpora.names())
def test_aborted_transactions_are_as_the_tool_says(corpus: str, decode: Any) -> None:
    for path, body in sections(corpus, "txnindex"):
        columns = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        rows = [tuple(row[name] for name in columns) for row in decode(path)]
        assert rows == [tuple(map(int, found)) for found in TXN_LINE.findall(body)]


def test_the_transaction_log_is_as_the_tool_says(decode: Any) -> None:
    compared = 0
    for _, folder, text in dumps.partitions("__transaction_state"):
        rows = {row["offset"]: row for path in sorted(folder.glob("*.log")) for row in decode("--records", path)}
        for offset, key, payload in dumps.records(text):
            if not key.startswith("{"):
                continue
            row = rows[offset]
            assert row["table"] == "transaction_log"
            assert row["transactional_id"] == json.loads(key)["data"]["transactionalId"]
            assert row["tombstone"] == (payload == "<DELETE>")
            if payload != "<DELETE>":
                check_transaction(row, json.loads(payload))
            compared += 1
    assert compared > 200


def check_transaction(row: dict[str, Any], value: dict[str, Any]) -> None:
    data = value["data"]
    assert row["value_version"] == int(value["version"])
    for ours, theirs in {"producer_id": "producerId", "producer_epoch": "producerEpoch", "status": "transactionStatus",
                         "timeout_ms": "transactionTimeoutMs"}.items():  # fmt: skip
        assert row[ours] == data[theirs]
    topics = data["transactionPartitions"]
    assert row["partitions"] == (
        None if topics is None else [f"{t['topic']}-{p}" for t in topics for p in t["partitionIds"]]
    )
    assert row["last_update_timestamp"] == iso(data["transactionLastUpdateTimestampMs"])
    assert row["start_timestamp"] == iso(data["transactionStartTimestampMs"])
    assert row["client_transaction_version"] == data.get("clientTransactionVersion", 0)


def test_the_columns_are_the_contracts(decode: Any) -> None:
    folder = corpora.unpack("healthy-41") / BROKER / "shop.orders-0"
    for table, name in {"batches": "*0.log", "producer_snapshots": "*.snapshot", "aborted_transactions": "*0.txnindex",
                        "index_entries": "*0.index", "checkpoints": "leader-epoch-checkpoint"}.items():  # fmt: skip
        rows = decode(*folder.glob(name))
        assert rows
        assert {tuple(row) for row in rows} == {tuple(schema.DECODED[table].names)}
    (row, *_) = decode(folder.parent / "recovery-point-offset-checkpoint")
    assert list(row) == schema.CHECKPOINTS.names
    assert row["broker_id"] == 1
    assert row["log_dir"] == "broker-1"


def test_offset_checkpoints_are_read_line_by_line(decode: Any) -> None:
    path = corpora.unpack("healthy-41") / BROKER / "replication-offset-checkpoint"
    said = [line.split() for line in path.read_text().splitlines()[2:]]
    rows = [(row["topic"], row["partition"], row["offset"]) for row in decode(path)]
    assert rows == [(topic, int(partition), int(offset)) for topic, partition, offset in said]


def test_index_entries_stand_where_the_bytes_say(decode: Any) -> None:
    path = corpora.unpack("healthy-28") / BROKER / "web.plain-0" / "00000000000000000805.index"
    data = path.read_bytes()
    entries = [int.from_bytes(data[at : at + 4]) + 805 for at in range(0, len(data), 8) if any(data[at : at + 8])]
    assert [row["offset"] for row in decode(path)] == entries
    assert entries


def test_keys_and_values_only_on_request(decode: Any) -> None:
    path = corpora.unpack("healthy-41") / BROKER / "shop.plain-0" / "00000000000000000000.log"
    stored = {read.offset: read for read in read_log_plain(path)}
    assert all("key" not in row and "value" not in row for row in decode("--records", path))
    rows = {row["offset"]: row for row in decode("--records", "--include-payload", path)}
    for offset, read in stored.items():
        for name, content in (("key", read.key), ("value", read.value)):
            assert rows[offset][name] == (None if content is None else base64.b64encode(content).decode())
    assert stored


def read_log_plain(path: Path) -> list[Any]:
    """The records of the batches without compression, up to the first one with it."""
    found = []
    try:
        for read in read_log(path):
            found.append(read)
    except (AssertionError, IndexError):
        return found
    return found


def test_metadata_records_are_known_by_name(decode: Any) -> None:
    folder = corpora.unpack("healthy-41") / BROKER / "__cluster_metadata-0"
    (checkpoint,) = folder.glob("*.checkpoint")
    for path in (folder / "00000000000000000000.log", checkpoint):
        rows = decode("--records", path)
        assert {"FeatureLevelRecord", "TopicRecord", "PartitionRecord"} <= {row["name"] for row in rows}
        topics = {row["fields"]["name"] for row in rows if row["name"] == "TopicRecord"}
        assert "shop.orders" in topics
        assert not [row for row in rows if "endPoints" in row["fields"]]
    assert any("endPoints" in row["fields"] for row in decode("--records", "--include-payload", checkpoint))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("meta.properties", {"broker_id": 1}),
        ("shop.orders-0/partition.metadata", None),
        ("__cluster_metadata-0/quorum-state", {"leader_id": 1}),
    ],
)
def test_small_files_are_one_row(name: str, fields: dict[str, Any] | None, decode: Any) -> None:
    (row,) = decode(corpora.unpack("healthy-41") / BROKER / name)
    if fields is None:
        text = (corpora.unpack("healthy-41") / BROKER / name).read_text()
        assert row["fields"]["topic_id"] in text
    else:
        assert fields.items() <= row["fields"].items()


def test_text_dumps_are_decoded_and_say_their_tables(decode: Any) -> None:
    folder = corpora.ROOT / "text-dumps" / "texts" / "hanging-36"
    path = folder / "dump-by-3.6.2.bank.ledger-0.txt"
    rows = decode(path)
    printed = [line for line in path.read_text().splitlines() if line.startswith("baseOffset:")]
    assert len([row for row in rows if row["table"] == "batches"]) == len(printed)
    assert {row["topic"] for row in rows} == {"bank.ledger"}
    console = decode(folder / "console-transaction-log.txt")
    assert {row["table"] for row in console} == {"transaction_log"}


def test_damage_is_reported_among_the_rows(decode: Any) -> None:
    path = corpora.unpack("altered-41") / BROKER / "bay.case-7" / "00000000000000000190.log"
    *batches, error = decode(path)
    assert {"table", *schema.DECODE_ERRORS.names} == set(error)
    assert (error["table"], error["position"], error["bytes"], error["reason"]) == (
        "decode_errors", 5183, 320, "truncated",
    )  # fmt: skip
    assert sum(row["size"] for row in batches) == 5183


def test_what_cannot_be_read_is_status_3(monkeypatch: pytest.MonkeyPatch, decode: Any, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(simple(0))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("auditor.connectors.stores.storage._open_local", refuse)
    (row,) = decode(path, status=3)
    assert (row["table"], row["reason"]) == ("decode_errors", "unreadable")


def test_a_deleted_segment_can_still_be_decoded(decode: Any, tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    (folder / "00000000000000000007.log.deleted").write_bytes(simple(7))
    (row,) = decode(folder / "00000000000000000007.log.deleted")
    assert (row["topic"], row["partition"], row["base_offset"]) == ("orders", 3, 7)


REMOTE = "plain-0-lY5Ag0WxThiDeo_Rj7sHRg"
SEGMENT = "00000000000000000672-V3nWe5i7QIKYLo_jHqnyow"


@pytest.mark.parametrize("name", [f"{SEGMENT}.index", "672_V3nWe5i7QIKYLo_jHqnyow.index"])
def test_an_index_of_a_remote_segment_counts_from_its_names_offset(name: str, decode: Any, tmp_path: Path) -> None:
    """As LocalTieredStorage names it, and as ``remote-log-index-cache`` does."""
    folder = tmp_path / REMOTE
    folder.mkdir()
    (folder / name).write_bytes(struct.pack(">ii", 25, 4101))
    (row,) = decode(folder / name)
    assert (row["topic"], row["partition"], row["offset"], row["log_position"]) == ("plain", 0, 697, 4101)


def test_the_other_files_of_a_remote_segment(decode: Any, tmp_path: Path) -> None:
    folder = tmp_path / REMOTE
    folder.mkdir()
    (folder / f"{SEGMENT}.timeindex").write_bytes(struct.pack(">qi", 1_700_000_000_000, 25))
    (folder / f"{SEGMENT}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 4, 698, 703, 704))
    (folder / f"{SEGMENT}.leader_epoch_checkpoint").write_bytes(b"0\n1\n0 672\n")
    (folder / f"{SEGMENT}.log").write_bytes(simple(672))
    (row,) = decode(folder / f"{SEGMENT}.timeindex")
    assert (row["offset"], row["timestamp"]) == (697, iso(1_700_000_000_000))
    (row,) = decode(folder / f"{SEGMENT}.txnindex")
    assert (row["producer_id"], row["first_offset"], row["last_offset"], row["last_stable_offset"]) == (
        4,
        698,
        703,
        704,
    )
    (row,) = decode(folder / f"{SEGMENT}.leader_epoch_checkpoint")
    assert (row["kind"], row["leader_epoch"], row["offset"]) == ("leader-epoch", 0, 672)
    (row,) = decode(folder / f"{SEGMENT}.log")
    assert (row["topic"], row["partition"], row["base_offset"]) == ("plain", 0, 672)


def test_the_objects_of_a_remote_segment(decode: Any) -> None:
    """What Aiven's plugin wrote: the segment in chunks, its indexes in one object, and one that is encrypted."""
    first, *_ = sorted(corpora.unpack("aiven-43").glob("remote/*/shop.packed-*/0/*.log"))
    rows = decode(first)
    assert {(row["topic"], row["partition"]) for row in rows} == {("shop.packed", 0)}
    assert (rows[0]["base_offset"], rows[-1]["last_offset"]) == (0, 78)  # the next one begins at 79
    was = corpora.unpack("aiven-43") / "broker-1" / "shop.packed-0" / f"{0:020}"
    entries = decode(first.with_suffix(".indexes"))
    aborted = [row for row in entries if "last_stable_offset" in row]
    assert len(aborted) == was.with_suffix(".txnindex.deleted").stat().st_size // 34
    (sealed,) = corpora.unpack("aiven-43").glob("remote/*/shop.sealed-*/0/*.log")
    (error,) = decode(sealed, status=3)
    assert error["reason"] == "encrypted"
    assert not decode(first.with_suffix(".rsm-manifest"), status=2)


def test_a_lone_file_of_any_name(decode: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.log").write_bytes(message(5, b"k", b"v", magic=0))
    (row,) = decode(tmp_path / "mine.log")
    assert (row["topic"], row["partition"], row["magic"], row["base_offset"]) == (None, None, 0, 5)
    assert (row["timestamp_type"], row["max_timestamp"]) == ("NoTimestampType", None)


@pytest.mark.parametrize("name", ["missing.log", ".", "what.is.this"])
def test_a_wrong_call_is_status_2(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "what.is.this").write_text("nothing of Kafka's")
    assert cli.main(["decode", str(tmp_path / name)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    path = corpora.unpack("healthy-41") / BROKER / "shop.orders-0" / "leader-epoch-checkpoint"
    assert cli.main(["decode", "--format", "table", str(path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-3:] == ["kind", "offset", "leader_epoch"]
    assert [row.split()[-3:] for row in rows] == [
        ["leader-epoch", offset, epoch]
        for epoch, offset in (line.split() for line in path.read_text().splitlines()[2:])
    ]
