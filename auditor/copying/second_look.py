"""Logs of a running broker that look held in a fresh copy are read once more, and their coordinators' behind them.

Data is read before its coordinator's log: a transaction that ended in between is open in the one and over in the
other. The times of both mostly tell (:mod:`auditor.rules.transactions.written_times`); what they do not is read again. Only
logs at whose end a transaction is open are looked at, which the copy knows of its own, and what judges them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from auditor.base.at_rest import Values
from auditor.connectors.logdir import names
from auditor.connectors.stores import results, storage
from auditor.connectors.tables.internal_rows import TRANSACTION_STATE
from auditor.copying.one_folder import Done
from auditor.model.transaction_states import partition_for
from auditor.pipeline.whole_audit import Audit
from auditor.rules.transactions.blocking import Standing

ROUNDS = 3
SLACK_MS = 60_000  # a producer's clock tells when its transaction began


def looked_again(
    out: Path | str,
    begun: int,
    first: Done,
    open_audit: Callable[[list[str]], Audit],
    copy_again: Callable[[frozenset[str]], Done],
) -> list[Done]:
    """Reads again what looks held in the copy that was ``begun`` (ms) and is in ``out``, three times at most:
    first whatever is not normal, then what is undecided and younger than the copy. What each round came to.

    ``first``: what the copy came to; one of no running broker is left alone. ``open_audit`` gives an audit of some
    PATHs; ``copy_again`` copies some folders once more. Errors: as of :func:`auditor.copying.run.copied`.
    """
    rounds: list[Done] = []
    held = first.unended if first.live else set()
    while held and len(rounds) < ROUNDS:
        rows = _blocked(open_audit([_path(out, name) for name in sorted(held | first.beside)]), out)
        since = begun - SLACK_MS if rounds else None
        rows = {name: row for name, row in rows.items() if name in held and _is_open(row, since)}
        held = set(rows)
        if held:
            rounds.append(copy_again(frozenset(held | _coordinators(first.beside, rows.values()))))
    return rounds


def _blocked(audit: Audit, out: Path | str) -> dict[str, Values]:
    """What is held by folders of the copy. Nothing else of an audit is kept while a copy goes on: of thousands of open
    transactions it has tens of MiB."""
    found = ((_folder(audit, out, row), row) for row in audit.blocked)
    return {name: row for name, row in found if name is not None}


def _path(out: Path | str, name: str) -> str:
    """A folder of the copy as a PATH."""
    if isinstance(out, Path):
        return str(out / name)
    return (results.folder(out) / name).uri


def _folder(audit: Audit, out: Path | str, row: Values) -> str | None:
    """The folder of the copy that a row of ``blocked`` is about; None for a partition that is not in it."""
    top = os.path.realpath(out) if isinstance(out, Path) else storage.remote_place(out).path
    for log_dir in audit.inventory.log_dirs:
        if log_dir.name == row["log_dir"]:
            name = f"{log_dir.place.path}/{row['topic']}-{row['partition']}"
            return name[len(top.rstrip("/")) + 1 :]
    return None


def _is_open(row: Values, since: int | None) -> bool:
    """Whether another look may change what a row says; ``since`` (ms): only where it is undecided, and no older."""
    if since is None:
        return bool(row["standing"] != Standing.WAITING.value)
    young = row["since"] is None or _ms(row["since"]) >= since
    return bool(row["standing"] == Standing.UNKNOWN.value and young)


def _coordinators(beside: Iterable[str], rows: Iterable[Values]) -> set[str]:
    """The folders of the coordinators' logs of what looks held; all of them where an id is not known."""
    says = {name: names.partition_folder(name.rpartition("/")[2]) for name in beside}
    numbers = {name: at.partition for name, at in says.items() if at is not None and at.topic == TRANSACTION_STATE}
    ids = {row["transactional_id"] for row in rows}
    if None in ids:
        return set(numbers)
    count = max(numbers.values(), default=0) + 1
    wanted = {partition_for(name, count) for name in ids}
    return {name for name, number in numbers.items() if number in wanted}


def rests_on(audit: Audit) -> dict[str, set[str]]:
    """The segments by their folders that findings point to, but for plain infos."""
    found: dict[str, set[str]] = {}
    for finding in audit.findings:
        if finding.file and finding.file.endswith(".log") and (finding.severity != "info" or finding.if_true):
            folder, _, name = f"{finding.evidence['log_dir']}/{finding.file}".rpartition("/")
            found.setdefault(folder, set()).add(name)
    return found


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
