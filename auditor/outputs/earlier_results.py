"""What an earlier audit left under its ``--out``, read back from a folder of this machine or a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.connectors.stores.results import folder, why
from auditor.connectors.stores.retries import REFUSED
from auditor.outputs.claim import SUMMARY
from auditor.rules.catalogue import registry
from auditor.rules.resolution.resolve import cluster_of, fingerprint


class Earlier(NamedTuple):
    """``findings``: each with its ``fingerprint``; ``summary``: what ``summary.json`` says; ``page``: where the report
    is, for a browser."""

    findings: list[Values]
    summary: Fields
    page: str


def read(out: Path | str) -> Earlier:
    """The results in the ``--out`` of an audit. A run from before findings had a fingerprint is given them, but for
    findings of rules that are no more.

    Errors: :class:`AuditInputError` for a folder without results, or whose results are not whole, and for a store that
    does not give them.
    """
    where, shown = folder(out), user_input.shown_uri(str(out)).rstrip("/")
    try:
        texts = where.get_all([SUMMARY, "findings.jsonl"])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"{shown} cannot be read: {why(error)}; check it and its credentials") from None
    try:
        if None in texts:
            raise FileNotFoundError
        summary = json.loads(texts[0] or b"")
        rows = [json.loads(line) for line in (texts[1] or b"").splitlines()]
    except (ValueError, FileNotFoundError):
        raise AuditInputError(f"{shown} holds no results of an audit; give the --out of one") from None
    page = where.address("report.html")
    return Earlier([*_with_fingerprints(rows, summary)], summary, page if where.uri else Path(page).resolve().as_uri())


def _with_fingerprints(rows: Iterable[Values], summary: Values) -> Iterator[Values]:
    of_dir = {row["log_dir"]: row["cluster_id"] for row in summary["inputs"]}
    for row in rows:
        if "fingerprint" in row:
            yield row
        elif row["rule"] in registry.kinds():
            yield {**row, "fingerprint": fingerprint(row, cluster_of(row, of_dir))}
