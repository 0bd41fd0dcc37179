"""What small files may become: each limit in entries, reached by one too many, and numbers that no program holds."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from kafka.record.util import calc_crc32c

from auditor.base.errors import DEFAULT_LIMITS, MIB, AuditInputError, setting_number
from auditor.connectors.codec import indexes
from auditor.connectors.codec import indexes as index_files
from auditor.connectors.codec.indexes import decode_offset_index, decode_time_index, decode_txn_index
from auditor.connectors.codec.small_files import (
    decode_leader_epochs,
    decode_offset_checkpoint,
    decode_partition_metadata,
    decode_properties,
)
from auditor.connectors.logdir.inventory import discover
from auditor.pipeline.options import parse_time
from tests import corpora
from tests.audited import opened

LINES = DEFAULT_LIMITS.max_checkpoint_entries
BAD = DEFAULT_LIMITS.max_bad_lines


@pytest.mark.parametrize("more", [0, 1])
def test_lines_of_a_checkpoint(more: int) -> None:
    """A leader-epoch checkpoint of 12 MB took 1 GiB."""
    head = b"0\n%d\n" % (LINES + more)
    lines = [b"%d %d\n" % (k, 3 * k) for k in range(LINES + more)]
    found, errors = decode_leader_epochs(head + b"".join(lines), "f")
    assert len(found) == LINES
    rest = sum(map(len, lines[LINES:]))
    assert [(e.reason, e.position, e.length) for e in errors] == (
        [("limit", len(head) + sum(map(len, lines[:LINES])), rest)] if more else []
    )


def test_lines_of_the_high_watermarks() -> None:
    head, lines = b"0\n%d\n" % (LINES + 1000), [b"t%d 0 %d\n" % (k, k) for k in range(LINES + 1000)]
    found, errors = decode_offset_checkpoint(head + b"".join(lines))
    assert len(found) == LINES
    read = len(head) + sum(map(len, lines[:LINES]))
    assert [(e.reason, e.position, e.length) for e in errors] == [("limit", read, sum(map(len, lines[LINES:])))]


def test_bad_lines_are_not_named_without_end() -> None:
    data = b"0\n9\n" + b"x\n" * 50_000
    tracemalloc.start()
    found, errors = decode_leader_epochs(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not found
    assert [e.reason for e in errors] == ["bad_line"] * (BAD + 1)
    assert errors[-1].position + errors[-1].length == len(data)
    assert sum(e.length for e in errors) == len(data) - 4
    assert peak < 4 * len(data)
    assert len(decode_partition_metadata(b"x\n" * 50_000)[1]) == BAD + 1
    assert len(decode_properties(b"a=\\u00zz\n" * 50_000)[1]) == BAD + 1


@pytest.mark.parametrize("more", [0, 1, 500])
def test_entries_of_the_indexes(more: int) -> None:
    count = DEFAULT_LIMITS.max_index_entries + more
    entries = np.stack([np.arange(1, count + 1), np.arange(1, count + 1)], axis=1).astype(">i4")
    index, errors = decode_offset_index(entries.tobytes() + bytes(80), 0)
    expected = [("limit", DEFAULT_LIMITS.max_index_entries * 8, more * 8)] if more else []
    assert [(e.reason, e.position, e.length) for e in errors] == expected
    assert (len(index.offset), index.zero_tail_bytes) == (DEFAULT_LIMITS.max_index_entries, 80)
    times = np.zeros(count, np.dtype([("time", ">i8"), ("offset", ">i4")]))
    times["time"] = np.arange(1, count + 1)
    found, errors = decode_time_index(times.tobytes(), 0)
    assert [e.reason for e in errors] == ["limit"] * bool(more)
    assert len(found.offset) == DEFAULT_LIMITS.max_index_entries


def test_entries_of_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    few = DEFAULT_LIMITS._replace(max_producer_entries=3)
    for module in (indexes, index_files):
        monkeypatch.setattr(module, "DEFAULT_LIMITS", few)
    body = struct.pack(">i", 5) + bytes(46 * 5)
    data = struct.pack(">hI", 1, calc_crc32c(body)) + body
    entries, errors = indexes.decode_snapshot(data)
    assert len(entries.producer_id) == 3
    assert [(e.reason, e.position, e.length) for e in errors] == [("limit", 10 + 46 * 3, 46 * 2)]
    found, errors = decode_txn_index(bytes(34 * 5))
    assert len(found.version) == 3
    assert [(e.reason, e.position, e.length) for e in errors] == [("limit", 34 * 3, 34 * 2)]


def test_entries_of_an_unknown_version_are_not_named_without_end() -> None:
    """Every second entry of another version: a run each."""
    entry = [struct.pack(">hqqqq", version, 1, 2, 3, 4) for version in (0, 7)]
    found, errors = decode_txn_index(b"".join(entry) * 5_000)
    assert len(found.version) == 10_000
    assert [(e.reason, e.position) for e in errors[:2]] == [("bad_version", 34), ("bad_version", 34 * 3)]
    assert len(errors) == BAD
    assert errors[-1].position + errors[-1].length == 10_000 * 34


NUMBERS = {
    "60000": 60000, " 7 ": 7, "+5": 5, "0": 0, "-1": None, "": None, "x": None, "1e3": None, "9" * 19: None,
    str(2**63 - 1): 2**63 - 1, str(2**63): None, "9" * 20: None, "9" * 5000: None, "\u0662": 2, "\u00b2": None,
    "0" * 5000 + "7": 7, "-" + "0" * 30: 0, "\x01 8\x1f": 8, "\u00a08": None, "+": None, "0" * 20 + "9" * 20: None,
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS, ids=lambda t: t[:24] or "none")
def test_settings_as_numbers(text: str) -> None:
    assert setting_number(text) == NUMBERS[text]
    assert setting_number(None) is None


def test_a_time_that_is_no_number_is_the_users_mistake() -> None:
    for text in ("9" * 5000, "\u00b2", "--5"):
        with pytest.raises(AuditInputError, match="invalid --as-of"):
            parse_time(text)


@pytest.mark.parametrize("value", ["99999999999999999999", "7" * 5000, "\u00b2", "nine"], ids=lambda v: v[:20])
def test_a_value_in_server_properties_ends_nothing(tmp_path: Path, value: str) -> None:
    """One ended the whole audit with 732 lines of trace; now each is left out, and said: exit 3."""
    names = ["producer.id.expiration.ms", "transactional.id.expiration.ms", "offsets.topic.num.partitions",
             "log.message.timestamp.before.max.ms", "log.message.timestamp.after.max.ms",
             "log.retention.hours"]  # fmt: skip
    settings = corpora.copy("hanging-36", tmp_path) / "server-1.properties"
    settings.write_text(settings.read_text() + "".join(f"{name}={value}\n" for name in names), encoding="utf-8")
    errors = [e.error for e in discover([str(tmp_path)]).errors]
    assert [(e.file, e.reason) for e in errors] == [("server-1.properties", "bad_setting")] * len(names)
    assert sorted(name for e in errors for name in names if name in e.detail) == sorted(names)
    assert not any(value in e.detail for e in errors)
    audit = opened(tmp_path)
    assert sum(f.kind == "hanging-transaction" for f in audit.findings) == 4
    assert audit.exit_code() == 3


def test_files_larger_than_their_kind_are_not_read(tmp_path: Path) -> None:
    broker = corpora.copy("hanging-36", tmp_path) / "broker-1"
    with (broker / "meta.properties").open("ab") as f:
        f.write(b"#" * MIB)
    errors = [e.error for e in discover([str(tmp_path)]).errors]
    assert [(e.file, e.reason) for e in errors] == [("meta.properties", "limit")]
