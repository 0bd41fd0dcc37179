"""Each offset range counts in one copy: what a cluster with three replicas holds is what one of them holds."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from auditor.connectors import schema
from auditor.evidence.which_copy import FAR, OneCopy, divided
from auditor.pipeline.derived_tables import ONCE
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.facts import opened

CORPUS = "replicas-41"  # three brokers with a replica each
OF_COPIES = [name for name, table in schema.TABLES.items() if table.copy_by is not None]
HELD = "SELECT topic, partition, count(DISTINCT base_offset) AS n FROM batches GROUP BY ALL ORDER BY ALL"
COUNTED = "SELECT topic, partition, count(*) AS n FROM batches WHERE leader_copy GROUP BY ALL ORDER BY ALL"


def audit_of(folder: Path) -> Audit:
    return opened(folder, as_of=corpora.manifest(CORPUS).get("copied_at"))


def ask(audit: Audit, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = audit.query(text).to_pylist()
    return rows


@pytest.mark.parametrize(
    ("reaches", "expected"),
    [
        ([(0, 9)], [[(-FAR, FAR)]]),
        ([(0, 9), (0, 9), (0, 9)], [[(-FAR, FAR)], [], []]),
        ([(5, 9), (0, 9)], [[(5, FAR)], [(-FAR, 5)]]),  # retention, or DeleteRecords, came to the leader first
        ([(0, 6), (0, 9)], [[(-FAR, 6)], [(6, FAR)]]),
        ([(3, 6), (0, 9), (0, 12)], [[(3, 6)], [(-FAR, 3), (6, 9)], [(9, FAR)]]),
        ([(0, 4), (6, 9), (2, 8)], [[(-FAR, 4)], [(6, FAR)], [(4, 6)]]),
        ([(7, 7), (7, 7)], [[(-FAR, FAR)], []]),
    ],
)
def test_a_copy_stands_for_what_those_before_it_lack(
    reaches: list[tuple[int, int]], expected: list[list[tuple[int, int]]]
) -> None:
    copies = [OneCopy("t", 0, f"d{n}", n, None, (0, end), end, -1, first) for n, (first, end) in enumerate(reaches)]
    assert divided(copies) == expected


@pytest.mark.parametrize("table", ["batches", "records"])
def test_three_replicas_count_as_one(table: str) -> None:
    folder = corpora.unpack(CORPUS)
    text = (
        f"SELECT topic, partition, count(*) AS n FROM {table} WHERE topic NOT LIKE '\\_\\_%' ESCAPE '\\' GROUP BY ALL"
    )
    whole = ask(audit_of(folder), text.replace(f"FROM {table}", f"FROM {table}_once") + " ORDER BY ALL")
    alone = ask(audit_of(folder / "broker-1"), text + " ORDER BY ALL")
    assert whole == alone
    assert alone


@pytest.mark.parametrize("lacking", ["first", "last", "all but the last"])
def test_copies_that_start_and_end_elsewhere_count_each_range_once(lacking: str, tmp_path: Path) -> None:
    """Segments are taken from one copy after the other, as by retention, a crash or a cut: what is left counts once."""
    for cut in range(1, 4):
        folder = tmp_path / str(cut)
        shutil.copytree(corpora.unpack(CORPUS), folder)
        for log in (folder / f"broker-{cut}").glob("[!_]*-*"):
            segments = sorted(log.glob("*.log"))
            gone = {"first": segments[:1], "last": segments[-1:], "all but the last": segments[:-1]}[lacking]
            for segment in gone if len(segments) > 1 else ():
                for file in log.glob(f"{segment.stem}.*"):
                    file.unlink()
        audit = audit_of(folder)
        assert ask(audit, COUNTED) == ask(audit, HELD)


def test_a_copy_in_two_directories_counts_once(tmp_path: Path) -> None:
    """A backup of a broker beside it."""
    folder = tmp_path / "both"
    shutil.copytree(corpora.unpack(CORPUS), folder)
    shutil.copytree(folder / "broker-2", folder / "backup")
    audit = audit_of(folder)
    assert ask(audit, COUNTED) == ask(audit, HELD)
    assert ask(audit, "SELECT count(*) AS n FROM batches WHERE leader_copy IS NULL") == [{"n": 0}]


@pytest.mark.parametrize("name", OF_COPIES)
def test_every_table_of_a_log_says_which_copy_counts(name: str) -> None:
    """Of one broker all of it."""
    audit = audit_of(corpora.unpack(CORPUS) / "broker-1")
    assert audit.table(name).schema.names[-1] == "leader_copy"
    assert ask(audit, f"SELECT count(*) AS n FROM {name} WHERE leader_copy IS NOT TRUE") == [{"n": 0}]


def test_views_count_once() -> None:
    audit = audit_of(corpora.unpack(CORPUS))
    for view, table in ONCE.items():
        text = "SELECT count(*) AS n FROM {}"
        assert ask(audit, text.format(view)) == ask(audit, text.format(table) + " WHERE leader_copy")


def test_copies_are_replayed_only_where_a_query_asks_which_counts() -> None:
    audit = audit_of(corpora.unpack(CORPUS))
    (every,) = ask(audit, "SELECT count(*) AS n, sum(size) AS bytes FROM batches WHERE topic = 'trio.log'")
    assert not audit.is_known("briefs")
    (once,) = ask(audit, "SELECT count(*) AS n FROM batches_once WHERE topic = 'trio.log'")
    assert audit.is_known("briefs")
    assert every["n"] == 3 * once["n"] > 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM batches",
        "SELECT count(DISTINCT b) FROM batches b",  # a row as a value
        "SUMMARIZE batches",
        "DESCRIBE batches",
        "FROM batches",
        "SELECT count(*) FROM batches NATURAL JOIN records",
        "SELECT COLUMNS('.*_offset') FROM batches",
        "WITH b AS MATERIALIZED (FROM batches) SELECT count(*) FROM (SELECT DISTINCT topic FROM b) JOIN b USING(topic)",
        "SELECT a.size FROM batches a LEFT JOIN batches b ON a.position = b.base_offset WHERE b.topic IS NULL",
        "SELECT topic FROM batches WHERE (topic, crc) IN (SELECT topic, max(crc) FROM batches GROUP BY 1)",
        "SELECT list(b.crc ORDER BY b.position) FROM batches b GROUP BY b.file",
    ],
)  # fmt: skip
def test_a_query_is_given_every_column_that_it_reads(text: str) -> None:
    """What it answers of the columns in its plan is what it answers of all of them."""
    alone = audit_of(corpora.unpack(CORPUS) / "broker-1")
    assert sorted(map(str, ask(alone, text))) == sorted(map(str, ask(with_all_columns(), text)))


@functools.cache
def with_all_columns() -> Audit:
    audit = audit_of(corpora.unpack(CORPUS) / "broker-1")
    for table in ("batches", "records"):
        ask(audit, f"SELECT * FROM {table}")
    return audit


def test_a_transaction_of_three_replicas_has_one_row_a_partition() -> None:
    text = """SELECT topic, partition, marker_offset, count(*) AS n FROM transaction_partitions
              WHERE leader_copy GROUP BY ALL HAVING n > 1 AND marker_offset >= 0"""
    audit = audit_of(corpora.unpack(CORPUS))
    assert ask(audit, text) == []
    assert ask(audit, text.replace("WHERE leader_copy", ""))


def test_names_of_views_are_words_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
    assert all(re.search(rf"`{view}`", page) for view in ONCE)
