"""A coordinator whose appends fail after they were written: the follower of its partition hangs for some seconds.

Two brokers hold ``__transaction_state`` (min.insync.replicas 2), broker 1 alone the data. While broker 2 is stopped,
each record that coordinator 1 writes stays unacknowledged until the transaction's time-out, and is written again.
Nothing is lost; the applications are told to try again, or fenced, and go on.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.cluster import Cluster, Driver, Made
from tests.broker.dumped import markers, state_records
from tests.broker.state_forms import decided, forms

LOG = "__transaction_state"
TOPIC = "bank.ledger"
TIMEOUT_MS = 2500  # of a transaction, and so of each append for it
STOPPED_S = 9.0
EXPIRATION_S = 25
HASTY = {
    "transaction.state.log.min.isr": "2", "transaction.state.log.num.partitions": "2",
    "broker.session.timeout.ms": "60000",  # who is stopped is not dead
    "replica.lag.time.max.ms": "6000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
    "transactional.id.expiration.ms": str(EXPIRATION_S * 1000),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "request.timeout.ms": "3000",  # and so of a tombstone's append
}  # fmt: skip
CLIENT = f"transaction.timeout.ms={TIMEOUT_MS} request.timeout.ms=2000 delivery.timeout.ms=60000 retry.backoff.ms=50"
WANTED = (
    "PrepareCommit PrepareCommit CompleteCommit", "PrepareCommit PrepareAbort", "PrepareAbort PrepareAbort",
    "CompleteCommit CompleteCommit", "Ongoing Ongoing", "Ongoing Empty", "Empty Empty", "Tombstone Tombstone",
    "Tombstone Ongoing",
)  # fmt: skip


class Bank:
    """Applications with a transactional id each, all of one broker's coordinator, and what they were told. Its follower
    is the other broker; broker 1 has the data."""

    def __init__(self, cluster: Cluster, run: Driver, coordinator: int = 1) -> None:
        self.cluster, self.run, self.follower = cluster, run, 3 - coordinator
        self.steps: list[str] = []
        run(f"topic {TOPIC} 2 1 on=1")
        run(f"load first {TOPIC} 1 n=1 parts=2")
        run("wait")
        self.partition = next(p for p in range(2) if int(run(f"leader {LOG} {p}")) == coordinator)

    def id_of(self, name: str) -> str:
        """The transactional id of an application: the first of its names that the coordinator's partition has."""
        return next(f"{name}-{k}" for k in range(99) if java_hash(f"{name}-{k}") % 2 == self.partition)

    def do(self, *lines: str) -> list[str]:
        """Commands one after another, and what they say, which is noted too."""
        said: list[str] = []
        for line in lines:
            began = int(time.time() * 1000)
            said.append(self.run(line, may_fail=True))
            self.steps.append(f"{began} {line.removesuffix(CLIENT).strip()}: {said[-1]}".removesuffix(": "))
        return said

    def born(self, *names: str) -> None:
        """New instances of applications, not yet initialized."""
        self.do(*(f"producer {name} transactional.id={self.id_of(name)} {CLIENT}" for name in names))

    def opened(self, *names: str, parts: int = 1) -> list[str]:
        """Transactions with a record in each partition."""
        return [
            said
            for name in names
            for said in self.do(f"begin {name}", *(f"send {name} {TOPIC} {p} 1 size=8" for p in range(parts)))
        ]

    def goes_on(self, *names: str) -> None:
        """Another transaction of each; whose producer may not, begins anew."""
        for name in names:
            said = [*self.opened(name), *self.do(f"commit {name}")]
            if any(each.startswith("error") for each in said):
                self.born(name)
                self.do(f"init {name}")
                self.opened(name)
                self.do(f"commit {name}")

    def loads(self, count: int = 6, ms: int = 3500) -> None:
        """Transactions as fast as they go: some are at their end whenever the follower stops."""
        for k in range(count):
            self.run(f"load {self.id_of(f'busy{k}')} {TOPIC} {ms} parts=2 n=1 size=8 pause=15 {CLIENT}")
        time.sleep(2.5)

    @contextmanager
    def follower_stopped(self, seconds: float = STOPPED_S) -> Iterator[None]:
        """The follower of the coordinator's log hangs for so long."""
        until = time.monotonic() + seconds
        self._signal(signal.SIGSTOP)
        yield
        time.sleep(max(0.0, until - time.monotonic()))
        self._signal(signal.SIGCONT)

    def until_marked(self, seconds: float = 20) -> None:
        """Wait until the first marker of what was decided is in the data's partition: the follower has it all then."""
        log = self.cluster.log_dir() / f"{TOPIC}-0" / f"{0:020}.log"
        until, before = time.monotonic() + seconds, log.stat().st_size
        while log.stat().st_size == before:
            if time.monotonic() > until:
                raise RuntimeError("no marker comes")
            time.sleep(0.001)

    def answered(self) -> None:
        """All that waited is answered."""
        self.steps.extend(sorted(filter(None, self.run("answers").split("; "))))
        self.run("wait")

    def _signal(self, how: signal.Signals) -> None:
        self.steps.append(f"{int(time.time() * 1000)} {how.name} to broker {self.follower}")
        self.cluster.signal(how, self.follower)

    def elsewhere(self) -> None:
        """A transaction of the other broker's coordinator."""
        name = next(f"elsewhere-{k}" for k in range(99) if java_hash(f"elsewhere-{k}") % 2 != self.partition)
        self.run(f"load {name} {TOPIC} 400 parts=2 n=1 size=8 pause=100")
        self.run("wait")


def java_hash(text: str) -> int:
    """``String.hashCode`` without its sign, as the coordinator's partition is chosen by."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def failed_appends(version: str, scratch: Path, target: Path, level: int) -> Made:
    """Commits, aborts, begins, fences, time-outs, first initializations and tombstones while the follower hangs, under
    a level of ``transaction.version``."""
    words = ("--feature", f"transaction.version={level}")
    with Cluster(version, scratch, 2, voters=1, heap="256m", format_words=words, **HASTY) as cluster:
        time.sleep(3)
        with Driver(cluster) as run:
            bank = Bank(cluster, run)
            for story in (_ends, _begins, _tombstones):
                bank.elsewhere()
                story(bank)
            bank.elsewhere()
        time.sleep(2)
        cluster.stop()
        at = cluster.copy(target)
    return _made(at, bank, target / "broker-1", WANTED)


def _made(at: int, bank: Bank, broker: Path, wanted: tuple[str, ...], *, killed: bool = False) -> Made:
    """With what the manifest says of the logs, told by Kafka's own tool; all that was wanted must have come up.

    Each completed decision has its marker, and has it once, unless its coordinator was ``killed``: the next one writes
    the markers of what it loads as decided once more.
    """
    version, partition = bank.cluster.version, bank.partition
    expect = {"finding": "coordinator_append_failed", "topic": LOG, "partition": partition, "severity": "info"}
    records = state_records(version, broker / f"{LOG}-{partition}")
    found = forms(records)
    states = [re.sub(r"[+]\d+", "", form) for form in found]
    if missing := [form for form in wanted if not any(form in each for each in states)]:
        raise RuntimeError(f"did not come up: {missing}")
    asked = decided([*records, *state_records(version, broker / f"{LOG}-{1 - partition}")])
    stored: Counter[tuple[str, int, int, str]] = Counter()
    for place in (f"{TOPIC}-0", f"{TOPIC}-1"):
        stored.update({(place, *marker): n for marker, n in markers(version, broker / place).items()})
    repeated = stored - asked
    assert not asked - stored, asked - stored
    assert killed or not repeated, repeated
    results = Counter((place, result) for place, _, _, result in stored.elements())
    counted = {f"{place} {result}": n for (place, result), n in sorted(results.items())}
    more = {"steps": bank.steps, "forms": found, "markers": counted}
    if killed:
        more["repeated"] = [f"{place} {producer}/{epoch} {result}" for place, producer, epoch, result in repeated]
    return Made(at, [expect], more)


def failed_then_loaded(version: str, scratch: Path, target: Path) -> Made:
    """The coordinator on broker 2 is killed when its follower has just caught up with what had failed: the one on
    broker 1 loads the last record of each id, though nobody was told that it is there, and writes markers again."""
    often = HASTY | {
        "broker.session.timeout.ms": "12000", "transactional.id.expiration.ms": "600000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }  # fmt: skip
    words = ("--feature", "transaction.version=1")  # where a begin reaches the coordinator before the data's broker
    with Cluster(version, scratch, 2, voters=1, heap="256m", format_words=words, **often) as cluster:
        time.sleep(3)
        with Driver(cluster) as run:
            bank = Bank(cluster, run, coordinator=2)
            left = ("committed", "aborted", "fenced", "begun", "again", "new")
            _left(bank, *left)
            bank.until_marked()
            bank.steps.append(f"{int(time.time() * 1000)} SIGKILL to broker 2")
            cluster.kill(2)
            bank.answered()
            time.sleep(18)  # until broker 1 leads
            cluster.start(2)
            cluster.await_port(2)
            time.sleep(5)
            bank.born(*left)
            bank.do(*(f"init {name}" for name in left))
            bank.goes_on(*left)
        time.sleep(2)
        cluster.stop()
        at = cluster.copy(target)
    return _made(at, bank, target / "broker-1", ("PrepareCommit PrepareAbort",), killed=True)


def _left(bank: Bank, *names: str) -> None:
    """Each in another state while the follower hangs, and of the clients nothing more is heard."""
    bank.born(*names)
    bank.do(*(f"init {name}" for name in names if name != "new"))
    bank.goes_on("begun", "again")
    bank.opened("committed", "aborted", "fenced")
    time.sleep(0.3)  # until all of that has reached the follower
    with bank.follower_stopped(2 * TIMEOUT_MS / 1000 + 1.2):  # a decision, then the time-out's
        bank.do("meanwhile commit committed", "meanwhile abort aborted", "meanwhile init new")
        bank.do("begin begun", f"meanwhile send begun {TOPIC} 0 1 size=8")
        bank.born("fenced", "again")
        bank.do("meanwhile init fenced", "meanwhile init again")
        time.sleep(0.7)
        bank.do(*(f"kill {name}" for name in names))


def _ends(bank: Bank) -> None:
    """Commits, aborts, fences, time-outs and initializations while the follower hangs."""
    commits = tuple(f"commit{k}" for k in range(4))
    ending = (*commits, "both", "abort", "fenced", "timed-out", "given-up")
    bank.born(*ending, "again")
    bank.do(*(f"init {name}" for name in (*ending, "again")))
    bank.goes_on("again")
    bank.born("new")
    bank.loads()
    bank.opened("both", parts=2)
    bank.opened(*(name for name in ending if name != "both"))
    with bank.follower_stopped():
        bank.do("meanwhile commit both", "meanwhile commit given-up", "meanwhile abort abort")
        bank.born("fenced", "again")
        bank.do("meanwhile init new", "meanwhile init fenced", "meanwhile init again")
        time.sleep(0.7)
        bank.do("kill given-up")
        bank.born("given-up")
        bank.do("meanwhile init given-up")
        for name in commits:  # one after another: who tries again before the coordinator sees the time-out commits
            bank.do(f"meanwhile commit {name}")
            time.sleep(0.4)
    bank.answered()
    bank.goes_on(*ending, "again", "new")


def _begins(bank: Bank) -> None:
    """The next begin of each, some in two partitions at once."""
    names = ("commit0", "both", "abort", "new")
    bank.loads()
    with bank.follower_stopped():
        for name in names:
            bank.do(f"begin {name}", f"meanwhile send {name} {TOPIC} 0 1 size=8")
        bank.do(f"meanwhile send both {TOPIC} 1 1 size=8")
    bank.answered()
    bank.do(*(f"commit {name}" for name in names))
    bank.goes_on(*names)


def _tombstones(bank: Bank) -> None:
    """Ids expire while the follower hangs; some go on in the middle of that, or at its end, the others come back. And
    a begin of whose client nothing more is heard."""
    early, late, idle = ("commit0", "both"), ("abort", "commit1"), "new"
    bank.born("begun")
    bank.do("init begun")
    bank.goes_on("commit1", "begun")
    time.sleep(EXPIRATION_S - 3)
    bank.goes_on("begun")
    time.sleep(0.5)
    bank.goes_on("again")  # which is being completed as the follower stops
    with bank.follower_stopped():
        bank.do("begin begun", f"meanwhile send begun {TOPIC} 0 1 size=8")
        time.sleep(1)
        bank.do("kill begun")
        bank.born("begun")
        bank.do("meanwhile init begun")
        for names, nap in ((early, 4), (late, 2.5)):
            time.sleep(nap)
            for name in names:
                bank.do(f"begin {name}", f"meanwhile send {name} {TOPIC} 0 1 size=8")
    bank.answered()
    bank.do(*(f"commit {name}" for name in (*early, *late)))
    time.sleep(2)
    bank.goes_on(*early, *late, idle, "begun")
