"""Logs of a running broker that look held in a fresh copy are read once more, and their coordinators' behind them.

Data is read before its coordinator's log: a transaction that ended in between is open in the one and over in the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from auditor.base.limits import DEFAULT_LIMITS, Limits
from auditor.connectors.internal_rows import TRANSACTION_STATE
from auditor.copying.checksums import ALL
from auditor.copying.one_folder import Done
from auditor.copying.run import copied
from auditor.pipeline.whole_audit import Audit
from auditor.rules.blocking import Standing

ROUNDS = 3
SLACK_MS = 60_000  # a producer's clock tells when its transaction began


def looked_again(
    paths: Sequence[str], out: Path, begun: int, open_audit: Callable[[Path], Audit], limits: Limits = DEFAULT_LIMITS,
    checksums: str = ALL,
) -> list[Done]:  # fmt: skip
    """Reads again what looks held in the copy of PATHs that was ``begun`` (ms) and is in ``out``, three times at most:
    first whatever is undecided, then what is younger than the copy. What each round came to; a copy of no running
    broker is left alone.

    ``open_audit`` gives an audit of a folder; ``checksums``: which are verified. Errors: as of
    :func:`auditor.copying.run.copied`.
    """
    rounds: list[Done] = []
    while len(rounds) < ROUNDS:
        audit = open_audit(out)
        live = any(log_dir.read_at for log_dir in audit.inventory.log_dirs)
        held = _held(audit, begun - SLACK_MS if rounds else -1) if live else set()
        if not held:
            break
        rounds.append(copied(paths, out, limits, only=frozenset(held | _coordinators(audit)), checksums=checksums))
    return rounds


def rests_on(audit: Audit) -> dict[str, set[str]]:
    """The segments by their folders that findings point to, but for plain infos."""
    found: dict[str, set[str]] = {}
    for finding in audit.findings:
        if finding.file and finding.file.endswith(".log") and (finding.severity != "info" or finding.if_true):
            folder, _, name = f"{finding.evidence['log_dir']}/{finding.file}".rpartition("/")
            found.setdefault(folder, set()).add(name)
    return found


def _held(audit: Audit, since: int) -> set[str]:
    """Folders of partitions that may be held by what has ended meanwhile, and began no earlier than ``since`` (ms)."""
    return {
        f"{row['log_dir']}/{row['topic']}-{row['partition']}"
        for row in audit.blocked
        if row["standing"] == Standing.UNKNOWN.value and row["log_dir"] is not None
        and (row["since"] is None or _ms(row["since"]) >= since)
    }  # fmt: skip


def _coordinators(audit: Audit) -> set[str]:
    """The folders of the coordinators' logs."""
    return {
        f"{log_dir.name}/{replica.folder}"
        for log_dir in audit.inventory.log_dirs
        for replica in log_dir.replicas
        if replica.topic == TRANSACTION_STATE
    }


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
