"""The page of ``auditor compare --html``."""

from __future__ import annotations

from collections.abc import Sequence

from auditor.base.at_rest import Values
from auditor.dashboards import page
from auditor.dashboards.table_lines import (
    IMPACT_SHOWN,
    compared_offsets,
    compared_place,
    comparison_counts,
    without_right_groups,
)


def comparison_page(
    rows: Sequence[Values], partitions: int, records: tuple[int, int], incomplete: bool, names: tuple[str, str]
) -> str:
    """Return the result of a comparison of the inputs ``names`` as a self-contained page.

    ``incomplete``: whether part of the input was not read: then no differences are no answer.
    """
    rows = without_right_groups(rows)
    content = {"counts": comparison_counts(rows), "rows": rows[:IMPACT_SHOWN], "more": len(rows) - IMPACT_SHOWN}
    functions = {"offsets": compared_offsets, "place": compared_place}
    differs = any(row["differs"] for row in rows)
    return page.render(
        "comparison_page.html.j2", differs=differs, partitions=partitions, records=records, incomplete=incomplete,
        names=names, **content, **functions,
    )  # fmt: skip
