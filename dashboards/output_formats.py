"""What an audit prints for other programs and for tickets: CSV, Markdown, SARIF, JUnit. The texts, nothing else.

All are made of the findings that are printed; the verdict at the top is that of the whole run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from auditor.base.at_rest import Values
from auditor.base.words import plural
from auditor.dashboards import remedies, report_shapes, verdict
from auditor.dashboards.junit import junit
from auditor.dashboards.row_formats import csv_lines, escaped, markdown_lines
from auditor.dashboards.sarif import sarif
from auditor.dashboards.wording import Finding, log_name, place, told, visible, who

FORMATS = ("table", "json", "markdown", "csv", "sarif", "junit")
OF_LISTS = ("table", "json", "markdown", "csv")  # what a list that holds no findings can be printed as
SHORT = 12  # digits of a fingerprint that are printed for people


def rendered(
    kind: str,
    findings: Sequence[Finding],
    decided: verdict.Verdict,
    summary: Values,
    rules: Mapping[str, Values],
    fail_on: str,
) -> Iterator[str]:
    """The text in parts. ``kind``: one of :data:`FORMATS` but table and json, which have ways of their own;
    ``findings``: those that are printed; ``rules``: those that ran."""
    if kind == "csv":
        yield from csv_lines(report_shapes.FINDING, findings)
    elif kind == "markdown":
        yield from _markdown(findings, decided, summary)
    elif kind == "sarif":
        yield sarif(findings, summary, rules, decided.headline)
    else:
        yield junit(findings, summary, rules, fail_on)


def list_lines(kind: str, rows: Sequence[Values]) -> Iterator[str]:
    """Rows with the same keys as JSON lines, Markdown or CSV; nothing for no rows."""
    heads = list(rows[0]) if rows else []
    if kind == "json":
        yield from (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    elif kind == "csv" and rows:
        yield from csv_lines(heads, rows)
    elif rows:
        yield from markdown_lines(heads, ([row[head] for head in heads] for row in rows))


def _markdown(findings: Sequence[Finding], decided: verdict.Verdict, summary: Values) -> Iterator[str]:
    """The verdict, who is blocked with the commands to copy, and the findings: to be pasted into a ticket."""
    yield f"# {escaped(decided.headline)}\n\n{escaped(verdict.clock(summary))}\n"
    for row in decided.held:
        holder = row.holder
        since = f", since {verdict.begun(holder.row)}" if holder.row.get("since") else ""
        by = escaped(who(holder.row) or "an unknown producer")
        stands = f"{verdict.held_for(holder.row)}{since}: {verdict.stands(holder)}"
        yield f"\n## {escaped(holder.name)} is blocked by {by}\n\n{escaped(stands)}\n\n"
        yield from _steps(holder.told)
    if decided.accepted:
        names = ", ".join(row.holder.name for row in decided.accepted)
        yield f"\nBlocked, which the baseline accepts: {escaped(names)}\n"
    for one in remedies.remedies(findings, decided.held)[: remedies.SHOWN]:
        where = log_name(one.first) or one.first["file"] or "the cluster"
        more = f" and {plural(one.count - 1, 'more finding')}" if one.count > 1 else ""
        yield f"\n## {escaped(' and '.join(one.rules))}: {escaped(where)}{more}\n\n"
        yield from _steps(told(one.first["advice"], one.text))
    yield "\n## Findings\n\n"
    if not findings:
        yield "None.\n"
        return
    heads = ("severity", "rule", "where", "who", "what", "fingerprint")
    yield from markdown_lines(
        heads,
        (
            (f["severity"], f["rule"], place(f), who(f), f["message"], (f.get("fingerprint") or "")[:SHORT])
            for f in findings
        ),
    )


def _steps(parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What to do; indented by four a command is code, whatever signs it holds."""
    said = [f"    {visible(text)}\n" if kind == "command" else f"{escaped(text)}\n" for kind, text in parts]
    yield "\n".join(said)
