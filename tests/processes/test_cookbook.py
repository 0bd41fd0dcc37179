"""Each recipe of the cookbook by DuckDB and in Python, against what Kafka's tools printed; on Spark: tests/spark."""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

import auditor
from tests import corpora
from tests.cookbook import Recipe, plain, recipes
from tests.oracle import read_dump

RECIPES = {recipe.title.split(",")[0]: recipe for recipe in recipes()}


@functools.cache
def opened(corpus: str) -> auditor.OpenedAudit:
    return auditor.open(corpora.unpack(corpus), master="inline[1]", as_of=corpora.manifest(corpus).get("copied_at"))


def by_sql(recipe: Recipe) -> list[dict[str, Any]]:
    return plain(opened(recipe.corpus).sql(recipe.sql).to_dicts())


@pytest.mark.parametrize("name", RECIPES)
def test_python_gives_what_sql_gives(name: str) -> None:
    recipe = RECIPES[name]
    given: dict[str, Any] = {"audit": opened(recipe.corpus)}
    exec(recipe.python, given)
    found = plain(given["answer"].to_dict("records"))
    assert len(found) > 0
    assert found == by_sql(recipe)


def dumped(corpus: str) -> dict[str, Any]:
    """The whole dumps of data partitions by name."""
    found = {p.name.removesuffix(".log.txt").partition(".")[2]: p for p in corpora.oracle(corpus).glob("*.log.txt")}
    read = {name: read_dump(path) for name, path in found.items()}
    return {name: dump.lines for name, dump in read.items() if dump.is_whole}


def test_the_application_that_aborts_is_first() -> None:
    """By its manifest 20 of 40, all of them its own decision."""
    first, *others = by_sql(RECIPES["Who aborts most"])
    assert first == {"transactional_id": "tiered-ab", "decided": 40, "aborted": 20, "by_client": 20, "timed_out": 0,
                     "fenced": 0}  # fmt: skip
    assert not any(row["aborted"] for row in others)


def test_durations_are_those_of_the_coordinators_records() -> None:
    from tests.whole.test_coordinated_transactions import told

    took = sorted(t.complete - t.began for t in told("healthy-41") if t.complete is not None)
    rows = by_sql(RECIPES["How long transactions take"])
    assert sum(row["complete"] for row in rows) == len(took) > 10
    assert max(row["longest_ms"] for row in rows) == took[-1]
    if len(rows) == 1:
        middle = (took[(len(took) - 1) // 2] + took[len(took) // 2]) / 2
        assert rows[0]["median_ms"] == middle


def test_bytes_are_those_of_the_dumped_batches() -> None:
    """The dumped partitions are some of all: asked of them alone."""
    expected: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    names = []
    for name, lines in dumped("healthy-41").items():
        if name.startswith("__"):
            continue
        names.append(name)
        for line in lines:
            if line.is_record or line.fields["iscontrol"] == "true":
                continue
            count = line.number("count")
            size = "below 10" if count < 10 else "10 to 99" if count < 100 else "100 and more"
            expected[line.fields["compresscodec"].lower(), size].update(
                batches=1, records=count, bytes=line.number("size")
            )
    recipe = RECIPES["Bytes by codec and batch size"]
    only = ", ".join(f"'{name}'" for name in names)
    text = recipe.sql.replace("NOT is_control", f"NOT is_control AND topic || '-' || partition IN ({only})")
    found = {(row.pop("compression"), row.pop("records_a_batch")): row
             for row in plain(opened("healthy-41").sql(text).to_dicts())}  # fmt: skip
    assert found == {key: dict(counts) for key, counts in expected.items()}
    assert len({codec for codec, _ in found}) > 3


def test_new_ids_are_those_of_the_steps() -> None:
    """Every producer id that a dumped data batch has, once."""
    recipe = RECIPES["Producer ids that come and go"]
    names = [name for name in dumped("healthy-41") if not name.startswith("__")]
    lines = [(name, line) for name in names for line in dumped("healthy-41")[name] if not line.is_record]
    ids = {(name, line.number("producerid")) for name, line in lines
           if line.number("producerid") >= 0 and line.fields["iscontrol"] == "false"}  # fmt: skip
    only = ", ".join(f"'{name}'" for name in names)
    text = recipe.sql.replace("NOT is_control", f"NOT is_control AND topic || '-' || partition IN ({only})")
    rows = opened("healthy-41").sql(text).to_dicts()
    assert sum(row["new_ids"] for row in rows) == len({producer for _, producer in ids}) > 3
    assert sum(row["rows_of_state"] for row in rows) == len(ids)


def test_who_waited_was_behind_by_all_since_the_open_transaction_began() -> None:
    """By the manifest tx-1 has one open from offset 0, tx-0 has none; the broker's index names the aborted ones."""
    most: Counter[str] = Counter()
    for row in by_sql(RECIPES["LSO lag over time"]):
        name = f"{row['topic']}-{round(row['partition'])}"
        most[name] = max(most[name], row["most_behind"])
    text = "SELECT max(last_offset) AS last, max(last_stable_offset) AS stable FROM aborted_transactions WHERE "
    (held,) = opened("tiered-43").sql(text + "topic = 'tx' AND partition = 1").to_dicts()
    assert held["stable"] == 0
    assert most["tx-1"] >= held["last"] + 1
    assert most["tx-0"] < most["tx-1"]


def test_offsets_are_those_of_the_dumped_commits() -> None:
    """Records of transactional batches in the dumps of ``__consumer_offsets``."""
    counted: Counter[tuple[str, str]] = Counter()
    for path in corpora.oracle("healthy-41").glob("*__consumer_offsets-*.log.txt"):
        inside = False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("baseOffset: "):
                inside = "isTransactional: true isControl: false" in line
            elif inside and (found := re.search(r'"group":"([^"]+)","topic":"([^"]+)"', line)):
                counted[found[1], found[2]] += 1
    rows = by_sql(RECIPES["Offsets that transactions commit"])
    assert {(row["group_id"], row["consumed_topic"]): row["offsets"] for row in rows} == dict(counted)
    assert all(0 < row["transactions"] <= row["offsets"] for row in rows)


def test_the_worst_day_has_each_transaction() -> None:
    rows = by_sql(RECIPES["What one transactional id did on its worst day"])
    assert Counter(row["outcome"] for row in rows) == {"ABORT": 20, "COMMIT": 20}


def test_producers_are_forgotten_a_day_after_what_the_broker_said() -> None:
    expected: dict[int, list[int]] = defaultdict(list)
    for live in corpora.manifest("healthy-41")["live"].values():
        for said in live["producers"]:
            if said["currentTransactionStartOffset"] < 0:
                expected[said["producerId"]].append(said["lastTimestamp"] + 86_400_000)
    rows = {row["producer_id"]: row for row in by_sql(RECIPES["Idle producers"])}
    assert len(expected) > 3
    for producer_id, times in expected.items():
        assert rows[producer_id]["first_forgotten"] <= min(times)
