"""Random histories of one transactional id, by the reference coordinator over a log that fails at random.

Requests come from clients of which some hold epochs that are gone; the log answers each append as Kafka's may, and
keeps what it wrote though it said otherwise.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable

from auditor.model.transaction_states import TransactionValue
from tests.reference.coordinator import Coordinator, ProducerIdAndEpoch, coordinator_policy
from tests.reference.refusal import Refused
from tests.reference.transaction_store import OK, LogRecord, Prepared, TransactionStore

NAME = "app"
ANSWERS = (OK, OK, OK, "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")
WRITTEN = ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")


class KeepingStore(TransactionStore):
    """A store that keeps its log: each record with the coordinator epoch, and whether it was acknowledged."""

    def __init__(self) -> None:
        super().__init__(expiration_ms=50)
        self.log: list[tuple[TransactionValue | None, int, bool]] = []

    def append(self, transactional_id: str, prepared: Prepared, result: str = OK, retried: Iterable[str] = ()) -> None:
        if result in WRITTEN:
            self.log.append((prepared.value, self.coordinator_epoch, False))
        super().append(transactional_id, prepared, result, retried)

    def expire(self, now: int, result: str = OK) -> list[str]:
        gone = super().expire(now, result)
        self.log += [(None, self.coordinator_epoch, False)] * (result in WRITTEN) * len(gone)
        return gone

    def _written(self, record: LogRecord) -> None:
        super()._written(record)
        self.log.append((record.value, self.coordinator_epoch, True))


class Requests:
    """Random ones, from clients of which some hold epochs that are gone."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.store, self.now = rng, KeepingStore(), 0
        self.server_tv, first = rng.choice((0, 2)), rng.choice((0, 0, 32760))
        self.coordinator = Coordinator(self.store, coordinator_policy("kip-360"), self.server_tv, range(200, 10_000))
        self.held = [ProducerIdAndEpoch(100, first)]
        if first:
            value = TransactionValue(100, first, 40)
            self.store.load([LogRecord(NAME, value)], 0)
            self.store.log.append((value, 0, True))

    def any_one(self) -> None:
        """One request, which may be refused."""
        self.now += self.rng.choice((0, 1, 1, 5, 30))
        request = self.rng.choice((self.init, self.add, self.add, self.end, self.end, self.complete, self.complete,
                                   self.complete, self.time_out, self.expire, self.fail_over))  # fmt: skip
        with contextlib.suppress(Refused):
            request(self.rng.choice(ANSWERS))

    def init(self, answer: str) -> None:
        expected = self.rng.choice((None, None, self.held[-1]))
        given = self.coordinator.init_producer_id(NAME, self.rng.choice((40, 60)), self.now, expected, answer)
        self.held.append(given)

    def add(self, answer: str) -> None:
        names = self.rng.sample(("a-0", "a-1", "b-0"), self.rng.randint(1, 2))
        self.coordinator.add_partitions(NAME, self.rng.choice(self.held[-2:]), names, self.now, answer)

    def end(self, answer: str) -> None:
        result, producer = self.rng.choice(("COMMIT", "ABORT")), self.rng.choice(self.held[-2:])
        client_tv = self.rng.choice((0, self.server_tv))
        self.held.append(self.coordinator.end_txn(NAME, producer, result, client_tv, self.now, answer))

    def complete(self, answer: str) -> None:
        self.coordinator.complete_markers(NAME, answer)

    def time_out(self, answer: str) -> None:
        self.coordinator.abort_timed_out(self.now, answer)

    def expire(self, answer: str) -> None:
        self.store.expire(self.now, answer)

    def fail_over(self, answer: str) -> None:
        if self.rng.random() < 0.2:
            records = [LogRecord(NAME, value) for value, _, _ in self.store.log]
            self.coordinator.transitions.clear()
            self.coordinator.load(records, self.store.coordinator_epoch + 1, self.now)
