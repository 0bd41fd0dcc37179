"""What became of what a run had for held or in doubt, as lines of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from auditor.base.advice import pieces
from auditor.base.values import Values
from auditor.base.words import plural
from auditor.dashboards.text_columns import wrap
from auditor.dashboards.wording import visible


def lines(told: Sequence[Values], width: int) -> Iterator[str]:
    """A line a question with its answer, what to do where one is held still, and how many came out how; ``told``: rows
    of :meth:`auditor.pipeline.asked_again.Told.row`."""
    counts = Counter(row["answer"] for row in told)
    yield f"{plural(len(told), 'question')}: " + ", ".join(f"{count} {answer}" for answer, count in counts.items())
    for row in told:
        yield ""
        yield from wrap(visible(f"{str(row['answer']).upper()}  {_about(row)}: {row['why']}"), width)
        for kind, said in _advice(row):
            yield from (
                [f"    {visible(said)}"] if kind == "command" else [f"  {x}" for x in wrap(visible(said), width - 2)]
            )


def _about(row: Values) -> str:
    place = f"{row['topic']}-{row['partition']}"
    at = "" if row["first_offset"] is None else f" at offset {row['first_offset']}"
    if row["fingerprint"] is not None:
        return f"{row['rule']} {row['fingerprint']}, {place}{at}"
    return f"{place}{at}, by {row['transactional_id'] or 'producer ' + str(row['producer_id'])}"


def _advice(row: Values) -> list[tuple[str, str]]:
    advice = (row["blocked"] or {}).get("advice") or (row["finding"] or {}).get("advice")
    return pieces(advice) if advice else []
