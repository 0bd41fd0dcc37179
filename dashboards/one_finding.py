"""One finding in full, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from auditor.base.at_rest import Values
from auditor.dashboards import happened
from auditor.dashboards.text_columns import indented, wrap
from auditor.dashboards.wording import fact, instant, log_name, offsets, told, visible, who


def explained(row: Values, page: Mapping[str, str], width: int, events: Sequence[Values] | None) -> list[str]:
    """One finding with its evidence: ``row`` has the contract's fields and ``fingerprint``; ``page`` its rule's title
    and sections, empty for a rule of the past; ``width`` in columns; ``events``: the summary's ``cluster_events``, null
    where the summary has none."""
    lines = wrap(visible(f"{row['severity']} {row['rule']} · {row['fingerprint']}"), width)
    span = offsets(row["offset"], row["last_offset"])
    broker = "" if row["broker_id"] is None else f" on broker {row['broker_id']}"
    place = f"{log_name(row) or 'the cluster'}{f' at offsets {span}' if span else ''}{broker}"
    file = "" if row["file"] is None else f"{row['file']}" + (f" at byte {row['position']}" if row["position"] else "")
    for name, text in (
        ("Outcome", "" if row.get("outcome") in (None, "none") else str(row["outcome"])),
        ("Where", place),
        ("File", file),
        ("Who", who(row)),
        ("When", happened.when(row) or ""),
        ("What", row["message"]),
    ):
        lines += [f"{name}:", *indented(text, width, 2)] if text else []
    lines.append("Evidence:")
    for name, content in sorted((row["evidence"] or {}).items()):
        lines += indented(f"{name}: {fact(name, content)}", width, 2) if content is not None else []
    if did := happened.around(events or (), row):
        lines.append("What the cluster did:")
        for entry in did:
            lines += indented(f"{instant(entry.time) if entry.time else 'before'}: {entry.says}", width, 2)
    elif row["partition"] is not None:
        lines += ["What the cluster did:", *indented(f"not known: {happened.unknown(events, row)}", width, 2)]
    lines.append("What to do:")
    for part, text in told(row.get("advice"), row["remedy"] or ""):
        lines += [f"    {visible(text)}"] if part == "command" else indented(text, width, 2)
    for name in ("Title", "Checks", "Why it matters", "Can be wrong", "Source"):
        lines += (
            [f"{'The rule' if name == 'Title' else name}:", *indented(page[name], width, 2)] if name in page else []
        )
    return lines
