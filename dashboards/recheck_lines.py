"""What became of what a run found, as lines of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from auditor.base.advice import pieces
from auditor.base.at_rest import Values
from auditor.dashboards.text_columns import wrap
from auditor.dashboards.wording import visible


def lines(told: Sequence[Values], notes: Sequence[str], width: int) -> Iterator[str]:
    """A line per question with its answer, what to do where one is still there, and how many have which answer; an
    advice is printed once. ``told``: rows of :meth:`auditor.outputs.recheck.Told.row`; ``notes``: what was not
    compared."""
    seen = []
    counts = Counter(row["answer"] for row in told)
    yield f"{len(told)} compared: " + ", ".join(f"{count} {answer}" for answer, count in counts.items())
    for row in told:
        yield ""
        yield from wrap(visible(f"{str(row['answer']).upper()}  {_about(row)}: {row['why']}"), width)
        advice = _advice(row)
        if advice in seen:
            continue
        seen.append(advice)
        for kind, said in advice:
            yield from (
                [f"    {visible(said)}"] if kind == "command" else [f"  {x}" for x in wrap(visible(said), width - 2)]
            )

    yield ""
    for note in notes:
        yield from wrap(f"{note[0].upper()}{note[1:]}.", width)


def _about(row: Values) -> str:
    place = f"{row['topic']}-{row['partition']}"
    at = "" if row["first_offset"] is None else f" at offset {row['first_offset']}"
    if row["fingerprint"] is not None:
        return f"{row['severity']} {row['rule']} {row['fingerprint'][:12]}{f', {place}{at}' if row['topic'] else ''}"
    return f"{place}{at}, by {row['transactional_id'] or 'producer ' + str(row['producer_id'])}"


def _advice(row: Values) -> list[tuple[str, str]]:
    if row["answer"] in ("over", "gone"):
        return []
    advice = (row["blocked"] or {}).get("advice") or (row["finding"] or {}).get("advice")
    return pieces(advice) if advice else []
