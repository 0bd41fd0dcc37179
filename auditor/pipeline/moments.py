"""Until when each file of a log directory has all that was written: what absence in a copy can prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from auditor.connectors.names import METADATA_TOPIC
from auditor.rules.coordinator_history import LEAST_MARGIN_MS
from auditor.rules.named import DECIDING, SKEW_MS
from auditor.rules.view import TRANSACTION_STATE, Cluster
from auditor.rules.windows import SAME_CLOCK_MS

BYTES_A_MS = 20_000  # 20 MB/s, as slow as copies are


class ReadLog(NamedTuple):
    """A replica that was read, and the newest broker-written time in it (ms, -1 for none). ``text``: from dumps."""

    log_dir: str
    topic: str
    partition: int
    newest: int
    text: bool


def copying_ms(size: int) -> int:
    """How long, in ms, copying ``size`` bytes is taken to last where nothing shows that it took longer."""
    return min(LEAST_MARGIN_MS, SKEW_MS + size // BYTES_A_MS)


def settled(logs: list[ReadLog], cluster: Cluster, copying: int) -> dict[str, int]:
    """Of each log directory the time (ms) until which each of its files has all that was written there.

    That is its newest broker-written time less the time that copying took: ``copying``, or more where a file shows that
    it was copied earlier than that. Texts are made by hand, one after another: 15 minutes, whatever their size.
    """
    newest: dict[str, int] = {}
    slack: dict[str, int] = {}
    for log in logs:
        newest[log.log_dir] = max(log.newest, newest.get(log.log_dir, -1))
        slack[log.log_dir] = max(LEAST_MARGIN_MS if log.text else copying, slack.get(log.log_dir, -1))
    for log_dir, before in _copied_before(logs, cluster):
        slack[log_dir] = max(slack[log_dir], newest[log_dir] - before + SAME_CLOCK_MS)
    return {log_dir: time - slack[log_dir] for log_dir, time in newest.items() if time >= 0}


def _copied_before(logs: Iterable[ReadLog], cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Log directories with a time (ms) behind which a file of theirs has nothing, though there was something to write.

    A coordinator's log lacks the decision of a marker. The metadata log of a controller is written twice a second.
    """
    history = cluster.coordinator
    lacking = set() if history is None else set(history.outdated)
    for producer_id, markers in cluster.ended.items() if history is not None else ():
        entry = history.last_of_owner(producer_id) if history is not None else None
        if entry is None or entry.state in DECIDING:
            continue
        if any(time > entry.time + SKEW_MS or epoch > entry.producer_epoch for _, epoch, time, _ in markers):
            lacking.add(entry.partition)
    for log in logs:
        of_coordinator = log.topic == TRANSACTION_STATE and log.partition in lacking
        if log.newest >= 0 and (of_coordinator or log.topic == METADATA_TOPIC):
            yield log.log_dir, log.newest
