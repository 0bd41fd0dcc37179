"""Records a second of auditing the internal topics, beside Kafka's tool that decodes the same records to be read."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import coordinator_topics, sides
from bench.inputs import Made, space
from bench.record_decoding import seconds
from bench.sizes import Plan
from bench.table import Row, ratio

TARGET = 20.0
THEIRS = 10  # Kafka's tool reads one record of so many: it is slow, and linear
COLUMNS = 500.0  # thousand records a second and core, as rows of the topic's table
SMALL = 10  # the first point of each slope has one record of so many


class Topic(NamedTuple):
    """One of the two: how it is made, how Kafka's tool is asked to decode it.

    ``record_bytes``: stored, about. ``times``: of how many times as many records as planned the audit is timed; its
    further seconds must be several, or they drown in what a start varies by.
    """

    name: str
    make: Callable[[Path, int], Made]
    decoder: str
    table: str
    record_bytes: int
    times: int


TOPICS = (
    Topic(
        "__transaction_state", coordinator_topics.transactions, "--transaction-log-decoder", "transaction_log", 190, 1
    ),
    Topic("__consumer_offsets", coordinator_topics.commits, "--offsets-decoder", "offset_commits", 80, 4),
)


def measure(plan: Plan) -> list[Row]:
    """Two rows a topic: audited, and as a table."""
    return [row for topic in TOPICS for row in _rows(topic, plan)]


def _rows(topic: Topic, plan: Plan) -> list[Row]:
    """Further records over further seconds, the start of either side aside."""
    count = plan.coordinator_records * topic.times
    with space(plan.root, count * topic.record_bytes * 5 // 4) as folder:
        large = topic.make(folder / "large", count)
        small = topic.make(folder / "small", count // SMALL)
        theirs = topic.make(folder / "theirs", plan.coordinator_records // THEIRS)
        few = topic.make(folder / "few", plan.coordinator_records // THEIRS // SMALL)
        sides.warm([large, small, theirs, few])
        if (seen := sides.dumped(few.logs, topic.decoder)[1]) != few.records:
            raise RuntimeError(f"DumpLogSegments saw {seen} records of {few.records}")
        kept: dict[str, list[sides.Audited]] = {}
        first: list[float] = []
        times = sides.medians(
            sides.in_turn(
                {
                    "large": sides.auditing(kept, "large", [large.folder]),
                    "small": sides.auditing(kept, "small", [small.folder]),
                    "theirs": lambda: sides.dump(theirs.logs, topic.decoder),
                    "few": lambda: sides.dump(few.logs, topic.decoder),
                    "table": lambda: seconds(theirs, first, frozenset({topic.table})),
                },
                plan.runs,
            )
        )
    ours = (large.records - small.records) / (times["large"] - times["small"])
    kafka = (theirs.records - few.records) / (times["theirs"] - times["few"])
    private = statistics.median(one.private for one in kept["large"]) / (1 << 20)
    rows = theirs.records / times["table"] / 1e3
    first_rows = theirs.records / statistics.median(first) / 1e3
    return [ratio(
        f"`{topic.name}`, {large.records / 1e6:.3g} M records in one partition: whole audit, local[2], further records "
        f"a second, against DumpLogSegments {topic.decoder}",
        TARGET, ours / kafka, f"{ours / 1e3:.0f} against {kafka / 1e3:.0f} thousand/s",
        f"the whole command {times['large']:.1f} s, a worker's private memory {private:.0f} MiB; DumpLogSegments on "
        f"{theirs.records / 1e6:.3g} M records: {times['theirs']:.1f} s",
    ), Row(
        f"`{topic.name}` into columns of `{topic.table}` (Arrow), one core", f"{COLUMNS:.0f} thousand records/s",
        f"**{rows:.0f} thousand records/s**", rows >= COLUMNS, f"the first time in a process {first_rows:.0f}",
    )]  # fmt: skip
