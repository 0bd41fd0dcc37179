"""What `make bench` measures on is sound, and its arithmetic is that of its table."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatch

from auditor.base.errors import AuditInputError
from bench import inputs, sides, table
from bench.freeze import batches
from bench.inputs import Kind, make, space
from tests.facts import logs_of, opened


@pytest.mark.parametrize(
    "kind", [Kind("64k", 2), Kind("400", 2, 700), Kind("64k-lz4", 1), Kind("64k-zstd", 1)], ids=str
)
def test_inputs_are_sound_logs(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments a log; kafka-python takes every batch, and no rule finds anything."""
    monkeypatch.setattr(inputs, "SEGMENT_BYTES", 600_000)
    made = make(tmp_path, kind, 1_000_000 * kind.partitions)
    assert len(made.logs) == 2 * kind.partitions
    read = [DefaultRecordBatch(data) for path in made.logs for data in batches(path.read_bytes())]
    assert all(batch.validate_crc() for batch in read[:: 1 + len(read) // 20])
    assert len(read) == made.batches
    assert sum(batch.records_count for batch in read) == made.records
    assert {path: len(batches(path.read_bytes())) for path in made.logs} == {p: b for p, (b, _) in made.counts.items()}
    assert made.size == sum(path.stat().st_size for path in made.logs)

    audited = opened(made.folder, records=True)
    copies = [copy for log in logs_of(audited) for copy in log.copies]
    assert len(copies) == kind.partitions
    assert {len(c.producers) for c in copies} == {min(kind.producers, made.batches // kind.partitions)}
    assert audited.findings == []


def test_too_little_room_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(AuditInputError, match=r"\d GiB free .* set BENCH_DIR"), space(tmp_path, 1 << 60):
        pass


def test_room_is_given_back(tmp_path: Path) -> None:
    with space(tmp_path, 1) as folder:
        (folder / "file").write_text("x")
    assert not list(tmp_path.iterdir())


def test_sides_run_in_turn() -> None:
    order: list[str] = []

    def side(name: str, seconds: float) -> float:
        order.append(name)
        return seconds + len(order)

    times = sides.in_turn({"a": lambda: side("a", 10), "b": lambda: side("b", 20)}, 3)
    assert order == ["a", "b"] * 3
    assert {name: sides.medians(times)[name] for name in "ab"} == {"a": 13, "b": 24}


def test_a_slope_leaves_the_start_aside() -> None:
    assert sides.slope(6.0 + 4 * 0.5, 6.0 + 16 * 0.5, (4 << 30, 16 << 30)) == pytest.approx(0.5)


def test_a_target_that_is_missed_is_said_to_be() -> None:
    assert "| **no** |" in table.ratio("x", 4, 3.99, "").line()
    assert "| yes |" in table.ratio("x", 4, 4.0, "").line()
    assert "| **no** |" in table.at_most("x", 1.1, 1.11, "").line()


def test_only_its_section_of_the_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n")
    table.write("x", "new\n", page)
    assert page.read_text() == (
        "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n<!-- y: begin -->\nkept\n<!-- y: end -->\n"
    )
