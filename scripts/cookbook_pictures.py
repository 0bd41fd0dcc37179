"""Draws the pictures of docs/cookbook.md, of a corpus each, by the page's own questions: cookbook_pictures.py FOLDER

Plain SVG: text stays text, nothing in a file is a date of its making, and a picture made again is the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import auditor  # noqa: E402
from tests import corpora  # noqa: E402
from tests.cookbook import ASKED, recipes  # noqa: E402

WIDTH, LEFT, ROW, BAR = 720, 190, 26, 16
COLOURS = {"committed": "#3a7d5d", "by the client": "#c77f2a", "timed out": "#b3403a", "fenced": "#7a4d8b"}
STYLE = "text{font:12px sans-serif;fill:#555}line{stroke:#999}"


class Point(NamedTuple):
    """A dot: place from 0 to 1 both ways, and what it says."""

    x: float
    y: float
    says: str


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title><style>{STYLE}</style>", *parts, "</svg>\n"])


def _text(x: float, y: float, says: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(says)}</text>'


def bars(title: str, rows: Sequence[tuple[str, dict[str, int]]]) -> str:
    """A line per name, with a piece of it for each of :data:`COLOURS`."""
    most = max(sum(counts.values()) for _, counts in rows)
    wide = (WIDTH - LEFT - 60) / most
    parts = []
    for number, (name, counts) in enumerate(rows):
        y, x = number * ROW + 8.0, float(LEFT)
        parts.append(_text(LEFT - 8, y + 12, name, "end"))
        for kind, count in counts.items():
            if count:
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{count * wide:.1f}" height="{BAR}" fill="{COLOURS[kind]}">'
                    f"<title>{count} {kind}</title></rect>"
                )
                x += count * wide
        parts.append(_text(x + 6, y + 12, str(sum(counts.values()))))
    bottom, x = len(rows) * ROW + 28.0, float(LEFT)
    for kind, colour in COLOURS.items():
        parts.append(f'<rect x="{x:.1f}" y="{bottom - 10:.1f}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, bottom, kind))
        x += 110
    return _svg(bottom + 12, title, parts)


def dots(title: str, below: tuple[str, str], most: str, lines: Sequence[tuple[str, str, Sequence[Point]]]) -> str:
    """Lines of dots, each with its name and colour; ``below``: what stands at both ends, ``most`` at the top."""
    top, height, right = 24.0, 170.0, WIDTH - 20.0
    parts = [f'<line x1="60" y1="{top + height}" x2="{right}" y2="{top + height}"/>', _text(54, top + 6, most, "end")]
    parts += [_text(60, top + height + 18, below[0]), _text(right, top + height + 18, below[1], "end")]
    for number, (name, colour, points) in enumerate(lines):
        at = [(60 + p.x * (right - 60), top + height * (1 - p.y), p.says) for p in points]
        road = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in at)
        parts.append(f'<polyline points="{road}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{escape(says)}</title></circle>'
            for x, y, says in at
        ]
        parts.append(f'<rect x="{60 + number * 170}" y="4" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(74 + number * 170, 14, name))
    return _svg(top + height + 30, title, parts)


def aborts(rows: Sequence[dict[str, Any]]) -> str:
    """Who aborts most."""
    shown = [
        (row["transactional_id"], {"committed": row["decided"] - row["aborted"], "by the client": row["by_client"],
                                   "timed out": row["timed_out"], "fenced": row["fenced"]})
        for row in rows if row["decided"]
    ]  # fmt: skip
    return bars("Transactions of each id, committed and aborted, by who decided", shown[:12])


def durations(rows: Sequence[dict[str, Any]]) -> str:
    """Every transaction's duration in the order of beginnings: a corpus has no more than an hour of them."""
    first, last, most = rows[0]["began"], rows[-1]["began"], max(row["duration_ms"] for row in rows)
    lines = [
        (outcome.lower(), colour, [
            Point(_part(row["began"], first, last), row["duration_ms"] / most,
                  f"{row['transactional_id']}: {row['duration_ms']} ms")
            for row in rows if row["outcome"] == outcome
        ])
        for outcome, colour in (("COMMIT", COLOURS["committed"]), ("ABORT", COLOURS["timed out"]))
    ]  # fmt: skip
    return dots("How long each transaction took", (_clock(first), _clock(last)), f"{most} ms", lines)


def behind(rows: Sequence[dict[str, Any]]) -> str:
    """Offsets that readers waited for at each marker, a line per partition."""
    first, last = min(r["time"] for r in rows), max(r["time"] for r in rows)
    most = max(row["behind"] for row in rows)
    names = sorted({row["name"] for row in rows})[:4]
    lines = [
        (name, colour, [
            Point(_part(row["time"], first, last), row["behind"] / most, f"{name}: {row['behind']} offsets")
            for row in rows if row["name"] == name
        ])
        for name, colour in zip(names, COLOURS.values(), strict=False)
    ]  # fmt: skip
    return dots(
        "Offsets between the last stable offset and each marker", (_clock(first), _clock(last)), str(most), lines
    )


def _part(at: datetime, first: datetime, last: datetime) -> float:
    return (at - first) / (last - first) if last > first else 0.5


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"


DURATIONS = """
    SELECT transactional_id, began_earliest_at AS began, duration_ms, outcome FROM transactions
    WHERE duration_ms IS NOT NULL ORDER BY began
"""
BEHIND = """
    SELECT topic || '-' || partition AS name, marker_timestamp AS time, marker_offset + 1 - last_stable_offset AS behind
    FROM transaction_partitions
    WHERE leader_copy AND marker_offset >= 0 AND topic NOT IN ('__consumer_offsets') ORDER BY time
"""


def pictures() -> dict[str, str]:
    """Each picture by the name of its file."""
    sql = {recipe.title: recipe.sql for recipe in recipes()}
    first, second, third = (
        "Who aborts most, and why",
        "How long transactions take, by hour",
        "LSO lag over time",
    )
    asked = {"aborts": (first, sql[first], aborts), "durations": (second, DURATIONS, durations),
             "behind": (third, BEHIND, behind)}  # fmt: skip
    out = {}
    for name, (title, text, draw) in asked.items():
        corpus = ASKED[title][0]
        with auditor.open(
            corpora.unpack(corpus), master="inline[1]", as_of=corpora.manifest(corpus).get("copied_at")
        ) as audit:
            out[f"{name}.svg"] = draw(audit.sql(text).to_dicts())
    return out


if __name__ == "__main__":
    for file, content in pictures().items():
        (Path(sys.argv[1]) / file).write_text(content, encoding="utf-8")
