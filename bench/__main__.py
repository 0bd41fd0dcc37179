"""``make bench``, or ``python -m bench [GROUP ...]``: measures, and writes the results to ``docs/lab-book.md``.

Groups: start, 64k, 400, shapes, growth, bytes, large, tables, records, internal, model, inline, parts, replicas,
what-if, watch, pages, store, driver, where, copies; all of them where none is named. ``BENCH_DIR`` is where files go
(default: the system's temporary folder), ``BENCH_FULL=1`` takes the full sizes, ``BENCH_RUNS`` (3) is how often each
side runs. Results of groups that are not named stay as they were.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from auditor.base.errors import AuditInputError
from bench import (
    audit_times,
    bytes_growth,
    coordinators,
    copying_costs,
    driver_load,
    growth,
    input_shapes,
    java,
    kept_pages,
    model,
    pictures,
    quiet,
    record_decoding,
    stores,
    table,
    ways,
    where,
)
from bench.inputs import Kind
from bench.sizes import Plan, from_environment

KEPT = java.BUILD.parent / "bench.json"  # rows of earlier groups
GROUPS: dict[str, Callable[[Plan], list[table.Row]]] = {
    "start": input_shapes.start,
    "64k": lambda plan: audit_times.measure("64 KiB batches", Kind("64k"), audit_times.Target(4, 1.8, cat=True), plan),
    "400": lambda plan: audit_times.measure(
        "400-byte batches", Kind("400"), audit_times.Target(40, 1.6, command=5), plan, slow_dump=True
    ),
    "shapes": input_shapes.shapes,
    "growth": growth.measure,
    "bytes": bytes_growth.measure,
    "large": input_shapes.large_batches,
    "tables": input_shapes.tables,
    "records": record_decoding.measure,
    "internal": coordinators.measure,
    "model": model.measure,
    "inline": ways.inline,
    "parts": ways.parts,
    "replicas": ways.replicas,
    "what-if": ways.what_if,
    "watch": ways.watch,
    "pages": kept_pages.measure,
    "store": stores.measure,
    "driver": driver_load.measure,
}
SECTIONS: dict[str, Callable[[Plan], str]] = {"where": where.measure, "copies": copying_costs.section}  # of the page


def main(words: list[str]) -> int:
    """Runs groups; 2 and one line where it cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[*GROUPS, *SECTIONS, []])
    wanted = parser.parse_args(words).groups or [*GROUPS, *SECTIONS]
    try:
        java.require()
        pictures.require()
        run(wanted, from_environment(), KEPT)
    except AuditInputError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


def run(wanted: list[str], plan: Plan, kept: Path) -> None:
    """Measures one group after the other, and writes the page after each."""
    rows: dict[str, list[list[object]]] = json.loads(kept.read_text()) if kept.exists() else {}
    kept.parent.mkdir(parents=True, exist_ok=True)  # a clean clone has no build/, and not every group makes it
    for group in wanted:
        began = time.monotonic()
        if group in SECTIONS:
            table.write(group, SECTIONS[group](plan))
        else:
            rows[group] = [list(row) for row in _marked(GROUPS[group](plan))]
            print("\n".join(table.Row(*row).line() for row in rows[group]))  # type: ignore[arg-type]
            kept.write_text(json.dumps(rows))
            measured = [table.Row(*row) for name in GROUPS for row in rows.get(name, [])]  # type: ignore[arg-type]
            sizes = "Full sizes" if plan.full else "Quick sizes"
            head = f"{table.machine()} {sizes}, medians of {plan.runs} runs, the sides in turn.\n\n"
            table.write("figures", head + table.table(measured))
        print(f"== {group}: {time.monotonic() - began:.0f} s", flush=True)


def _marked(rows: list[table.Row]) -> list[table.Row]:
    """Rows whose notes name the sides beside which others were at work."""
    disturbed = ", ".join(quiet.marks())
    return [row._replace(note="; ".join(filter(None, (row.note, f"**disturbed**: {disturbed}")))) for row in rows] if (
        disturbed) else rows  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
