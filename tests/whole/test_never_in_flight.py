"""Partitions held in copies of running brokers: what no later record can excuse, beside what one still may.

A transactional id's coordinator partition is idle once the id is, and so may be the partition that it holds: neither
will ever have a later record. The broker's other logs go on, and they tell how long that has been so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import bare_broker
from tests.audited import above_info, audit_folder
from tests.bare_broker import BEGAN, data, end, finish
from tests.coordinator_records import Coordinator
from tests.forge import Batch, Forged

HELD, BUSY = "t-0", "u-0"
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
IDLE, GOES_ON = "b", "a"  # by String.hashCode their coordinators are partitions 0 and 1 of two
PRODUCER, OTHER = 100, 200


class Running:
    """A broker copied while it runs. Its ids ``b`` and ``a`` write to :data:`HELD` and :data:`BUSY`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        two = "transaction.state.log.num.partitions=2\n"
        self.path = bare_broker.broker(root, HELD, BUSY, "__transaction_state-1", settings=two)
        self.held, self.busy = Forged(self.path, HELD), Forged(self.path, BUSY)
        self.idle, self.goes_on = Coordinator(self.path, 0), Coordinator(self.path, 1)
        self.watermarks: dict[Forged, int] = {}  # as the last checkpoint has them: each log's end, where none was taken

    def checkpoint(self) -> None:
        """The watermarks are written down, of all logs as they are now."""
        logs = (self.held, self.busy, self.idle.log, self.goes_on.log)
        self.watermarks = {log: log.end if log.all() else 0 for log in logs}

    def write(self, time: int, epoch: int = 0, *, known: bool = True, log: Forged | None = None) -> Batch:
        """Three records of ``b`` in :data:`HELD`, or in another log; where ``known``, its coordinator wrote of the
        transaction before."""
        log = log or self.held
        if known:
            name = log.folder.name
            self.idle.state(IDLE, "Ongoing", (PRODUCER, epoch), time - 5, name, start=time - 5)
        sequence = self._next(log, PRODUCER, epoch)
        return data(log, PRODUCER, sequence, time, transactional=True, epoch=epoch)

    def decide(
        self, batch: Batch, time: int, *, commit: bool = True, raised: int = 0, marker: bool = True,
        log: Forged | None = None,
    ) -> None:  # fmt: skip
        """Both records of the coordinator, and the marker between them."""
        log, start = log or self.held, batch["base_time"] - 5
        epoch, decided = batch["epoch"] + raised, "Commit" if commit else "Abort"
        self.idle.state(IDLE, f"Prepare{decided}", (PRODUCER, epoch), time, log.folder.name, start=start)
        if marker:
            end(log, batch.copy().set(epoch=epoch), commit, time + 2)
        self.idle.state(IDLE, f"Complete{decided}", (PRODUCER, epoch), time + 4, start=start)

    @staticmethod
    def _next(log: Forged, producer: int, epoch: int = 0) -> int:
        """A producer's next sequence."""
        return sum(batch["count"] for batch in log.data(producer, epoch)) if log.all() else 0

    def other(self, time: int, *logs: Forged) -> None:
        """A transaction of ``a``, whose decision and markers are of this time."""
        names = [log.folder.name for log in logs]
        self.goes_on.state(GOES_ON, "Ongoing", (OTHER, 0), time - 20, *names, start=time - 20)
        written = [data(log, OTHER, self._next(log, OTHER), time - 10, transactional=True) for log in logs]
        self.goes_on.state(GOES_ON, "PrepareCommit", (OTHER, 0), time, *names, start=time - 20)
        for log, batch in zip(logs, written, strict=True):
            end(log, batch, True, time + 2)
        self.goes_on.state(GOES_ON, "CompleteCommit", (OTHER, 0), time + 4, start=time - 20)

    def save(self) -> None:
        """The directory as it is copied."""
        finish(self.held, self.busy, self.idle, self.goes_on)
        for log, offset in self.watermarks.items():
            log.checkpoint("replication-offset-checkpoint", offset)
        (self.path / ".kafka_cleanshutdown").unlink()

    def reported(self, after: int) -> list[tuple[str, str | None, int | None]]:
        """Severity, topic and offset of what is above info, looked at so many ms behind :data:`BEGAN`."""
        self.save()
        return [(f.severity, f.topic, f.offset) for f in above_info(audit_folder(self.root, BEGAN + after))]


@pytest.fixture
def broker(tmp_path: Path) -> Running:
    return Running(tmp_path)


def go_on(broker: Running) -> None:
    """Three days in which the broker works for others, none of whom is idle for long enough to be forgotten."""
    for half in range(1, 7):
        broker.other(BEGAN + half * DAY // 2, broker.busy)


# What holds the partition for good; each gives the offset


def no_marker(broker: Running) -> int:
    """Three days behind a decision that brought no marker."""
    batch = broker.write(BEGAN)
    broker.decide(batch, BEGAN + SECOND, marker=False)
    go_on(broker)
    return batch["base_offset"]


def never_known(broker: Running) -> int:
    """Three days behind data of which its coordinator wrote nothing, nor anything since: there would be a record."""
    broker.decide(broker.write(BEGAN), BEGAN + SECOND)
    late = broker.write(BEGAN + 2 * SECOND, known=False)
    broker.other(BEGAN + MINUTE, broker.held, broker.busy)  # its marker shows when the data was there
    go_on(broker)
    return late["base_offset"]


def epoch_behind(broker: Running) -> int:
    """Data of epoch 0 behind a marker of epoch 1, however young: no leader takes it (ProducerAppendInfo)."""
    broker.other(BEGAN - MINUTE, broker.held, broker.busy)
    broker.decide(broker.write(BEGAN), BEGAN + SECOND, commit=False, raised=1)
    broker.checkpoint()
    late = broker.write(BEGAN + 40 * SECOND, known=False)
    broker.other(BEGAN + 45 * SECOND, broker.busy)
    return late["base_offset"]


FOR_GOOD: dict[Callable[[Running], int], int] = {
    no_marker: 3 * DAY,
    never_known: 3 * DAY,
    epoch_behind: 45 * SECOND,
}  # and when the copy is made


@pytest.mark.parametrize("made", FOR_GOOD)
def test_what_no_later_record_can_excuse_is_critical(broker: Running, made: Callable[[Running], int]) -> None:
    offset = made(broker)
    assert broker.reported(FOR_GOOD[made]) == [("critical", "t", offset)]


# The same, but for what makes it right


@pytest.mark.parametrize("times", [1, 2])
def test_three_days_behind_decisions_that_brought_their_markers(broker: Running, times: int) -> None:
    for k in range(times):
        broker.decide(broker.write(BEGAN + 2 * k * SECOND), BEGAN + (2 * k + 1) * SECOND)
    broker.other(BEGAN + MINUTE, broker.held, broker.busy)
    go_on(broker)
    assert broker.reported(3 * DAY) == []


def test_a_decision_of_the_last_seconds_may_bring_its_marker_yet(broker: Running) -> None:
    broker.other(BEGAN - MINUTE, broker.busy)
    broker.checkpoint()
    broker.decide(broker.write(BEGAN), BEGAN + SECOND, marker=False)
    broker.other(BEGAN + 5 * SECOND, broker.busy)
    assert broker.reported(5 * SECOND) == []


def test_data_of_the_last_seconds_may_be_a_transaction_that_began_since(broker: Running) -> None:
    """Its coordinator's log was copied first, and the checkpoint was written before."""
    broker.other(BEGAN - MINUTE, broker.held, broker.busy)
    broker.decide(broker.write(BEGAN), BEGAN + SECOND)
    broker.checkpoint()
    broker.write(BEGAN + 40 * SECOND, known=False)
    broker.other(BEGAN + 45 * SECOND, broker.busy)
    assert broker.reported(45 * SECOND) == []


STAMPED = [
    pytest.param(BEGAN + 40 * SECOND, id="when it was written"),
    pytest.param(BEGAN - 2 * HOUR, id="two hours back"),
    pytest.param(BEGAN + SECOND // 2, id="within its last transaction"),
]


@pytest.mark.parametrize("stamp", STAMPED)
def test_data_of_event_times_may_be_a_transaction_that_began_since(broker: Running, stamp: int) -> None:
    """As Streams stamps: with the times of what it read. The producer's last transaction was in another partition."""
    broker.other(BEGAN - MINUTE, broker.held, broker.busy)
    broker.decide(broker.write(BEGAN, log=broker.busy), BEGAN + SECOND, log=broker.busy)
    broker.checkpoint()
    broker.write(stamp, known=False)
    broker.other(BEGAN + 45 * SECOND, broker.busy)
    assert broker.reported(45 * SECOND) == []


@pytest.mark.parametrize("known", [True, False], ids=["its coordinator has it", "its log was copied first"])
def test_data_of_the_epoch_that_a_marker_has_brought(broker: Running, known: bool) -> None:
    broker.other(BEGAN - MINUTE, broker.held, broker.busy)
    broker.decide(broker.write(BEGAN), BEGAN + SECOND, commit=False, raised=1)
    broker.checkpoint()
    broker.write(BEGAN + 40 * SECOND, 1, known=known)
    broker.other(BEGAN + 45 * SECOND, broker.busy)
    assert broker.reported(45 * SECOND) == []
