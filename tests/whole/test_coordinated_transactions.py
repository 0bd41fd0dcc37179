"""Whole transactions, and what SQL over them says, against what Kafka's own tools printed of the same directories."""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from auditor.base.errors import AuditInputError
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import opened
from tests.oracle import read_dump

DUMPED = ["healthy-41", "not-hanging-41"]  # whole, by a decoder that prints JSON
RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) .*? key: (\{.*?\}\}) payload: (\{.*\})$")
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
DAY = 86_400_000
RATES = """
    SELECT transactional_id, count(decided_at) AS decided, count(*) FILTER (outcome = 'ABORT') AS aborted,
           count(*) FILTER (outcome = 'ABORT' AND decided_by <> 'client') AS by_coordinator
    FROM transactions GROUP BY transactional_id
"""


class Told(NamedTuple):
    """A transaction as DumpLogSegments' transaction-log decoder has it; times in ms, None for not there."""

    transactional_id: str
    producer_id: int
    began: int
    decided: int | None
    complete: int | None
    outcome: str | None
    partitions: frozenset[str]


@functools.cache
def audit_of(corpus: str) -> Audit:
    return opened(corpora.unpack(corpus), as_of=corpora.manifest(corpus).get("copied_at"))


def ask(corpus: str, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = audit_of(corpus).query(text).to_pylist()
    return rows


def dumps(corpus: str, topic: str = "") -> list[tuple[str, Any]]:
    """The dumps of partitions that are whole, each partition once."""
    found = {}
    for path in sorted(corpora.oracle(corpus).glob(f"broker-*.{topic}*.log.txt")):
        found.setdefault(path.name.removesuffix(".log.txt").partition(".")[2], path)
    return [(name, path) for name, path in found.items() if read_dump(path).is_whole]


def told(corpus: str) -> list[Told]:
    """Every transaction of the dumps: begun with its first Ongoing record, over with its Complete record."""
    out = []
    for _, path in dumps(corpus, "__transaction_state-"):
        going: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if not (found := RECORD.match(line)) or not found[4].endswith("}}"):
                continue
            name = json.loads(found[3])["data"]["transactionalId"]
            value = json.loads(found[4])["data"]
            if value["transactionStatus"] in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT):
                going.setdefault(name, []).append((int(found[2]), value))
            if value["transactionStatus"] in (COMPLETE_COMMIT, COMPLETE_ABORT):
                out.append(_told(name, going.pop(name)))
        out += [_told(name, records) for name, records in going.items()]
    return out


def _told(name: str, records: list[tuple[int, dict[str, Any]]]) -> Told:
    by = {value["transactionStatus"]: (time, value) for time, value in records}
    prepare = by.get(PREPARE_COMMIT) or by.get(PREPARE_ABORT)
    complete = by.get(COMPLETE_COMMIT) or by.get(COMPLETE_ABORT)
    outcome = None if prepare is None else "COMMIT" if PREPARE_COMMIT in by else "ABORT"
    members = (prepare or by[ONGOING])[1]["transactionPartitions"]
    return Told(
        name, records[0][1]["producerId"], records[0][1]["transactionStartTimestampMs"],
        None if prepare is None else prepare[1]["transactionLastUpdateTimestampMs"],
        None if complete is None else complete[0], outcome,
        frozenset(f"{each['topic']}-{number}" for each in members for number in each["partitionIds"]),
    )  # fmt: skip


@pytest.mark.parametrize("corpus", DUMPED)
def test_a_row_is_a_transaction_of_the_coordinators_log(corpus: str) -> None:
    text = """
        SELECT *, epoch_ms(began_earliest_at) AS begun, epoch_ms(decided_at) AS decided,
               epoch_ms(ended_latest_at) AS complete FROM transactions
    """
    found = [
        Told(r["transactional_id"], r["producer_id"], r["begun"], r["decided"], r["complete"], r["outcome"],
             frozenset(r["partitions"]))
        for r in ask(corpus, text)
    ]  # fmt: skip
    expected = told(corpus)
    assert len(expected) > 3
    assert sorted(found, key=str) == sorted(expected, key=str)
    for row in ask(corpus, text):
        if row["complete"] is not None:
            assert row["duration_ms"] == row["complete"] - row["begun"]
            assert row["duration_least_ms"] <= row["duration_ms"] <= row["duration_most_ms"]
        assert (row["decided_by"] is None) == (row["outcome"] is None)


@pytest.mark.parametrize("corpus", DUMPED)
def test_records_and_bytes_are_those_between_the_markers_in_its_partitions(corpus: str) -> None:
    """One broker wrote all of it: a marker lies between its transaction's beginning and completion by one clock."""
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    whole = {name for name, _ in dumps(corpus)}
    known = [t for t in told(corpus) if t.complete is not None and t.partitions <= whole]
    for _, path in dumps(corpus):
        waiting: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for line in read_dump(path).lines:
            if line.is_record or line.fields.get("istransactional") != "true":
                continue
            producer = line.number("producerid")
            if line.fields["iscontrol"] == "false":
                waiting[producer][0] += line.number("count")
                waiting[producer][1] += line.number("size")
                continue
            records, size = waiting.pop(producer, [0, 0])
            for t in known:
                if t.producer_id == producer and t.began <= line.timestamp <= (t.complete or 0):
                    for at, value in enumerate((1, records, size)):
                        sums[producer, t.began][at] += value
    text = "SELECT *, epoch_ms(began_earliest_at) AS begun FROM transactions"
    rows = {(row["producer_id"], row["begun"]): row for row in ask(corpus, text)}
    assert len(known) > 3
    for t in known:
        row = rows[t.producer_id, t.began]
        assert [row["partitions_seen"], row["records"], row["bytes"]] == sums[t.producer_id, t.began]
    assert any(records for _, records, _ in sums.values())


@pytest.mark.parametrize("corpus", ["tiered-43", "healthy-41", "hanging-36", "epochs-43", "live-copy-39"])
def test_sql_and_the_finding_on_abort_rates_give_the_same_numbers(corpus: str) -> None:
    rates = {row.pop("transactional_id"): row for row in ask(corpus, RATES)}
    found = {f.transactional_id: f.evidence for f in audit_of(corpus).findings if f.rule == "transaction-abort-rate"}
    often = {
        name for name, row in rates.items()
        if row["decided"] >= 20
        and (row["aborted"] * 5 >= row["decided"] or row["by_coordinator"] * 20 >= row["decided"])
    }  # fmt: skip
    assert found.keys() == often
    for name, evidence in found.items():
        assert {column: evidence[column] for column in rates[name]} == rates[name]


def test_the_application_aborted_what_its_manifest_says() -> None:
    """20 of 40 aborted by the application."""
    (row,) = [row for row in ask("tiered-43", RATES) if row["transactional_id"] == "tiered-ab"]
    assert (row["decided"], row["aborted"], row["by_coordinator"]) == (40, 20, 0)


@pytest.mark.parametrize("corpus", ["healthy-41", "hanging-36", "replicas-41", "epochs-43"])
def test_the_key_joins_a_transaction_with_its_branches(corpus: str) -> None:
    """Also those of followers, and where two of a producer began within a millisecond (epochs-43); markers that ended
    nothing are told from transactions."""
    text = """
        SELECT w.transaction_key, w.partitions, w.records, list(DISTINCT t.topic || '-' || t.partition) AS branches,
               sum(t.records) FILTER (t.leader_copy) AS found
        FROM transactions w JOIN transaction_partitions t USING (transaction_key) GROUP BY ALL
    """
    rows = ask(corpus, text)
    assert len(rows) > 3
    for row in rows:
        assert set(row["branches"]) <= set(row["partitions"])
        assert row["records"] == row["found"]
    kinds = ask(
        corpus,
        "SELECT kind, min(first_offset) AS least, max(first_offset) AS most FROM transaction_partitions GROUP BY 1",
    )
    for row in kinds:
        assert (row["most"] == -1) if row["kind"] == "marker_only" else (row["least"] >= 0)
    alike = "SELECT count(DISTINCT transaction_key) AS keys, count(transaction_key) AS rows FROM transactions"
    assert all(row["keys"] == row["rows"] for row in ask(corpus, alike))


@pytest.mark.parametrize("corpus", [*DUMPED, "tiered-43", "replicas-41", "epochs-43"])
def test_without_a_coordinators_log_its_markers_tell_how_many_there_were(corpus: str, tmp_path: Path) -> None:
    """What the coordinators know is the truth: as many of each outcome, with as many records."""
    folder = tmp_path / "without"
    shutil.copytree(corpora.unpack(corpus), folder, ignore=shutil.ignore_patterns("__transaction_state-*"))
    without = opened(folder, as_of=corpora.manifest(corpus).get("copied_at"))
    text = """SELECT producer_id, outcome, records, bytes, partitions_seen, count(*) AS n
              FROM transactions WHERE records > 0 GROUP BY ALL ORDER BY ALL"""
    found, expected = without.query(text).to_pylist(), ask(corpus, text)
    names = ("producer_id", "outcome", "records", "bytes", "n")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    assert len(expected) > 3
    only = "SELECT count(state) + count(decided_at) + count(timeout_ms) + count(transaction_key) AS n FROM transactions"
    assert without.query(only).to_pylist() == [{"n": 0}]


def test_an_open_branch_that_its_coordinator_does_not_know_is_a_transaction_too() -> None:
    """As its manifest has them, after transactions that the coordinator had ended."""
    expected = {
        (f"{e['topic']}-{e['partition']}", e["producerId"])
        for e in corpora.manifest("hanging-36")["expect"] if e["finding"] == "hanging_transaction"
    }  # fmt: skip
    rows = ask("hanging-36", "SELECT * FROM transactions WHERE outcome IS NULL AND transaction_key IS NULL")
    assert {(*row["partitions"], row["producer_id"]) for row in rows} == expected
    assert all(row["decided_by"] is None and row["partitions_seen"] == 1 and row["records"] > 0 for row in rows)


def test_the_former_names_lead_to_the_present_ones() -> None:
    audit, text = audit_of("hanging-36"), "SELECT count(*) AS n FROM {}"
    (old,), (new,) = (ask("hanging-36", text.format(name)) for name in ("coordinated_transactions", "transactions"))
    assert old == new
    assert audit.table("coordinated_transactions").num_rows == new["n"]
    with pytest.raises(AuditInputError, match="in transaction_partitions: class, first_offset"):
        ask("hanging-36", "SELECT first_offset FROM transactions WHERE class = 'hanging'")


def test_groups_are_those_whose_offsets_were_sent_in_it() -> None:
    """As the dumps of ``__consumer_offsets`` have them: commits in transactions, up to the producer's marker."""
    known, expected = told("healthy-41"), defaultdict(set)
    for _, path in dumps("healthy-41", "__consumer_offsets-"):
        waiting: dict[str, set[str]] = defaultdict(set)
        producer = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if batch := re.match(r"baseOffset: .* producerId: (\S+) .* isTransactional: true isControl: (\w+)", line):
                producer = batch[1]
                for t in known if batch[2] == "true" else ():
                    at = int(re.search(r"CreateTime: (\d+)", line)[1])  # type: ignore[index]
                    if str(t.producer_id) == producer and t.began <= at <= (t.complete or 0):
                        expected[t.producer_id, t.began] |= waiting.pop(producer, set())
            elif line.startswith("baseOffset: "):
                producer = ""
            elif producer and (found := re.search(r' key: (\{"type":"1".*?\}\}) payload', line)):
                waiting[producer].add(json.loads(found[1])["data"]["group"])
    text = "SELECT producer_id, epoch_ms(began_earliest_at) AS begun, groups FROM transactions"
    carried = {(row["producer_id"], row["begun"]): set(row["groups"]) for row in ask("healthy-41", text)}
    assert {at: groups for at, groups in carried.items() if groups} == {at: g for at, g in expected.items() if g}
    assert len(expected) > 3


@pytest.mark.parametrize("corpus", ["hanging-36", "hanging-011"])
def test_blocked_has_who_holds_each_partition(corpus: str) -> None:
    expected = {
        (e["topic"], e["partition"], e["producerId"], e["firstOffset"])
        for e in corpora.manifest(corpus)["expect"] if e["finding"] == "hanging_transaction"
    }  # fmt: skip
    rows = ask(corpus, "SELECT * FROM blocked")
    stuck = [row for row in rows if row["standing"] == "stuck"]
    assert {(r["topic"], r["partition"], r["producer_id"], r["first_offset"]) for r in stuck} == expected
    assert rows[: len(stuck)] == stuck  # as the report's cards: those who wait for nothing come behind
    ages = [row["age_ms"] for row in stuck]
    assert ages == sorted(ages, reverse=True)


@pytest.mark.parametrize("corpus", ["healthy-41", "hanging-36"])
def test_a_producer_expires_by_what_its_broker_said_of_it(corpus: str) -> None:
    """A day, the default, behind the last time that DescribeProducers gave; never while its transaction is open."""
    text = "SELECT *, epoch_ms(expires_at) AS expires, epoch_ms(last_seen_at) AS seen FROM producer_states"
    states = {(f"{row['topic']}-{row['partition']}", row["producer_id"]): row for row in ask(corpus, text)}
    compared = 0
    for name, live in corpora.manifest(corpus)["live"].items():
        for said in live["producers"]:
            row = states[name, said["producerId"]]
            is_open = said["currentTransactionStartOffset"] >= 0
            assert row["expires"] == (None if is_open else said["lastTimestamp"] + DAY)
            compared += 1
    assert compared > 5


@pytest.mark.parametrize("corpus", ["healthy-41", "not-hanging-41"])
def test_a_producer_was_seen_when_brokers_wrote_markers(corpus: str) -> None:
    """Its own last marker's time, or that of the last one before its last batch, as DumpLogSegments has them."""
    text = "SELECT *, epoch_ms(last_seen_at) AS seen FROM producer_states"
    states = {(f"{row['topic']}-{row['partition']}", row["producer_id"]): row["seen"] for row in ask(corpus, text)}
    compared = 0
    for name, path in dumps(corpus):
        newest, seen = -1, {}
        for line in read_dump(path).lines:
            if line.is_record or line.fields.get("producerid", "-1") == "-1":
                continue
            if line.fields["iscontrol"] == "true":
                newest = max(newest, line.timestamp)
            seen[line.number("producerid")] = newest
        for producer, time in seen.items():
            if (name, producer) in states:
                assert states[name, producer] == (None if time < 0 else time), (name, producer)
                compared += time >= 0
    assert compared > 3
