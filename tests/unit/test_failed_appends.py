"""The frozen coordinators whose appends failed: their logs hold what Kafka's own tool printed when they were made."""

from __future__ import annotations

import re
import struct
from collections import Counter

import pytest

from auditor.connectors.codec.transaction_log import decode_transaction_log
from tests import corpora
from tests.unit.log_reader import Read, read_partition

NAMES = [name for name in corpora.campaigns() if name.startswith("failed-appends")]


def states(name: str) -> dict[int, tuple[str, str]]:
    """Transactional id and state of each record of the coordinator's partition."""
    (expected,) = corpora.manifest(name)["expect"]
    folder = corpora.unpack(name) / "broker-1" / f"{expected['topic']}-{expected['partition']}"
    found = {}
    for read in read_partition(folder):
        row, problem = decode_transaction_log(read.key, read.value)
        assert problem is None
        assert row is not None
        found[read.offset] = (row.transactional_id, "Tombstone" if row.tombstone else row.state)
    return found


def result_of(read: Read) -> str:
    assert read.key is not None
    return ("ABORT", "COMMIT")[struct.unpack(">hh", read.key)[1]]


@pytest.mark.parametrize("name", NAMES)
def test_each_form_stands_where_the_manifest_says(name: str) -> None:
    stored, forms = states(name), corpora.manifest(name)["forms"]
    assert forms
    for form, says in forms.items():
        who, _, offsets = says["first"].partition(" at ")
        found = [stored[int(offset)] for offset in offsets.split()]
        assert found == [(who, re.sub(r"\+\d+|\(new\)", "", state)) for state in form.split()]


@pytest.mark.parametrize("name", NAMES)
def test_both_replicas_have_the_same_records(name: str) -> None:
    (expected,) = corpora.manifest(name)["expect"]
    one, two = (corpora.unpack(name) / f"broker-{k}" / f"{expected['topic']}-{expected['partition']}" for k in (1, 2))
    assert list(read_partition(one)) == list(read_partition(two))


@pytest.mark.parametrize("name", NAMES)
def test_as_many_markers_as_the_manifest_says(name: str) -> None:
    counted: Counter[str] = Counter()
    for folder in sorted((corpora.unpack(name) / "broker-1").glob("bank.ledger-*")):
        counted.update(f"{folder.name} {result_of(read)}" for read in read_partition(folder) if read.is_control)
    assert counted == corpora.manifest(name)["markers"]
