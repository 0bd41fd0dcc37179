"""Random histories of one partition in which what the leader refuses is stored all the same, as followers store it.

A seed decides all of it. The model runs along, under the policy of the history: each batch is first asked of the
leader, and forced in where the answer is no. So the case (:attr:`StoredHistory.case`) can be given to Kafka's own
classes, and what is stored (:attr:`StoredHistory.log`) be written as segments.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from tests.conformance.cases import Result
from tests.conformance.producer_state_adapter import run_model
from tests.reference.snapshots import SnapshotEntry

MAX_SEQUENCE = 2_147_483_647
START = 1_700_000_000_000
ACCEPTED, DUPLICATE = "accepted", "duplicate"
SIZES = (1, 1, 2, 3, 5, 30)
FIRSTS = (0, 0, 0, 0, 7, MAX_SEQUENCE - 9, MAX_SEQUENCE)
CHOICES = {
    "goes_on": 50, "repeats": 9, "overlaps": 4, "skips": 4, "resets": 2, "bumps": 5, "falls_back": 4, "returns": 4,
    "ends": 10, "mixes": 1, "plain": 3,
}  # fmt: skip


class Stored(NamedTuple):
    """A batch of the log: the words of the conformance cases with ``kind``, and the steps that asked for it.

    The leader's answer is that of the first of these steps that is no. ``content``: which of several contents its
    records have: a retry is the same bytes.
    """

    item: dict[str, Any]
    asked: tuple[int, ...]
    content: int = 0


class Roll(NamedTuple):
    """A segment begins at ``offset``, where ``step`` took a snapshot of these entries."""

    offset: int
    step: int
    entries: list[SnapshotEntry]


@dataclass
class Client:
    """What a producer has sent in its epoch: first and last sequences, contents, times."""

    pid: int
    transactional: bool
    epoch: int
    sequence: int
    sent: list[tuple[int, int, int, int]] = field(default_factory=list)
    stood: int = -1  # where it stood before it repeated or skipped something
    older: int = 0  # its next sequence in the epoch before
    coordinator: int = 0
    open: bool = False


def after(sequence: int, by: int) -> int:
    """A sequence further on in the ring."""
    return (sequence + by) & MAX_SEQUENCE


def answer(stored: Stored, results: list[Any]) -> str:
    """What the leader said to a batch: accepted, duplicate or the name of an error.

    ``results``: of each step a :class:`Result`, or as :meth:`tests.differential.broker.Broker.run` gives it.
    """
    said = [r._asdict() if isinstance(r, Result) else r for r in (results[step] for step in stored.asked)]
    refused = [one.get("error") or one["outcome"] for one in said if one["outcome"] not in ("ok", ACCEPTED)]
    return refused[0] if refused else ACCEPTED


class StoredHistory:
    """A case and the log it leaves. ``log_start``: what lies below it is there, but below the log start."""

    def __init__(self, name: str, policy: str, steps: int = 0) -> None:
        self.random = random.Random(f"stored {policy} {name}")
        config = {"producer_id_expiration_ms": 86_400_000, "transaction_verification": policy.startswith("kip-890")}
        self.case: dict[str, Any] = {
            "id": f"{policy} {name}", "model": "producer_state", "policy": policy, "level": "log",
            "initial": {"config": config}, "steps": [],
        }  # fmt: skip
        self.model = run_model(self.case)
        self.results: list[Result] = []
        self.log: list[Stored] = []
        self.rolls: list[Roll] = []
        self.end, self.now, self.log_start = 0, START, 0
        self.lost: set[int] = set()  # producers that no broker of this policy can be brought to go on from
        count = self.random.randint(1, 3)
        self.clients = [self.client(pid) for pid in self.random.sample((1, 2, 7, 4_000_000_000), count)]
        names = list(CHOICES)
        shares = list(accumulate(CHOICES.values()))
        while steps > 0 and self.clients:
            steps -= 1
            self.now += self.random.choice((0, 1, 10))
            what: Callable[[Client], None] = getattr(self, self.random.choices(names, cum_weights=shares)[0])
            what(self.random.choice(self.clients))
            self.clients = [client for client in self.clients if client.pid not in self.lost]
            if self.chance(0.06):
                self.roll()
        if self.log and self.chance(0.25):
            self.log_start = self.random.choice(self.log[: len(self.log) // 2 + 1]).item["first_offset"]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def client(self, pid: int) -> Client:
        transactional = self.chance(0.6)
        return Client(pid, transactional, self.random.choice((0, 0, 3)), self.random.choice(FIRSTS))

    # --- the log ---

    def apply(self, op: str, args: dict[str, Any]) -> Result:
        """A step of the case; what the model says to it."""
        self.case["steps"].append({"op": op, "args": args})
        self.results.append(self.model.apply(op, args))
        return self.results[-1]

    def store(self, kind: str, args: dict[str, Any], content: int = 0) -> str:
        """Asks the leader to append a batch at the end of the log, and forces it in where it says no: its answer."""
        asked = []
        if kind == "batch" and args["transactional"] and self.case["initial"]["config"]["transaction_verification"]:
            args = args | {"guard": f"guard-{len(self.results)}"}
            verified = {"pid": args["pid"], "seq": args["first_seq"], "epoch": args["epoch"], "now": self.now}
            later = {"label": args["guard"], "supports_epoch_bump": self.case["policy"] == "kip-890-p2"}
            self.apply("start_verification", verified | later)
            asked.append(len(self.results) - 1)
        op = f"append_{kind}"
        self.apply(op, args)
        stored = Stored({"kind": kind, **args}, (*asked, len(self.results) - 1), content)
        said = answer(stored, self.results)
        if said != ACCEPTED:
            self.force(op, args | {"origin": "replication"})
        last = args.get("last_offset", self.end)
        stored.item.update({"first_offset": self.end, "last_offset": last})
        stored.item.setdefault("timestamp", self.now)
        self.log.append(stored)
        self.end = last + 1
        return said

    def force(self, op: str, args: dict[str, Any]) -> None:
        """Appends as a follower does, which does not ask whether it may."""
        forced = self.apply(op, args)
        if forced.error == "INVALID_TXN_STATE":
            # Plain data in its own transaction no broker takes in at all: as transactional it leaves the same.
            forced = self.apply(op, args | {"transactional": True})
        if forced.outcome != ACCEPTED:  # followers up to 2.4.0 refuse old markers too
            self.lost.add(args["pid"])
            self.apply("append_plain", {"first_offset": self.end, "last_offset": self.end, "origin": "client"})

    def data(self, client: Client, epoch: int, first: int, size: int, *, mixed: bool = False, **given: int) -> str:
        """A data batch. ``mixed``: of the other kind than its producer's; ``content`` and ``time`` as of a retry."""
        return self.store(
            "batch",
            {
                "pid": client.pid, "epoch": epoch, "first_seq": first, "last_seq": after(first, size - 1),
                "first_offset": self.end, "last_offset": self.end + size - 1,
                "timestamp": given.get("time", self.now), "transactional": client.transactional != mixed,
                "origin": "client",
            },
            given.get("content", 0),
        )  # fmt: skip

    def roll(self) -> None:
        """A segment ends, and a snapshot is taken."""
        offset = self.apply("take_snapshot", {}).returns["snapshot_offset"]
        if offset is not None:
            self.rolls.append(Roll(offset, len(self.results) - 1, self.model.state.snapshots.files[offset] or []))

    # --- what a client, or somebody else, does next ---

    def goes_on(self, client: Client) -> None:
        size, content = self.random.choice(SIZES), self.random.randint(0, 7)
        first = client.sequence
        self.data(client, client.epoch, first, size, content=content)
        client.sent.append((first, after(first, size - 1), content, self.now))
        client.sequence = after(first, size)
        client.open = client.open or client.transactional

    def repeats(self, client: Client) -> None:
        """Some batches on end once more; then it goes on where it stood, or from there."""
        if not client.sent:
            return self.goes_on(client)
        start = self.random.randrange(max(0, len(client.sent) - 9), len(client.sent))
        stop = min(len(client.sent), start + self.random.choice((1, 1, 2, 3)))
        for first, last, content, time in client.sent[start:stop]:
            self.data(client, client.epoch, first, ((last - first) & MAX_SEQUENCE) + 1, content=content, time=time)
        client.stood = client.sequence
        if self.chance(0.3):
            client.sequence = after(client.sent[stop - 1][1], 1)
        return None

    def overlaps(self, client: Client) -> None:
        """A batch that begins within one that is stored, perhaps beyond its end; it goes on from there."""
        if not client.sent:
            return self.goes_on(client)
        first, last, _, _ = self.random.choice(client.sent[-8:])
        inside = self.random.randint(0, (last - first) & MAX_SEQUENCE)
        client.stood, client.sequence = client.sequence, after(first, inside)
        return self.goes_on(client)

    def skips(self, client: Client) -> None:
        client.stood, client.sequence = client.sequence, after(client.sequence, self.random.randint(1, 20))
        self.goes_on(client)

    def returns(self, client: Client) -> None:
        """Back to where it stood."""
        if client.stood >= 0:
            client.sequence, client.stood = client.stood, -1
        self.goes_on(client)

    def resets(self, client: Client) -> None:
        client.stood, client.sequence = client.sequence, 0
        self.goes_on(client)

    def bumps(self, client: Client) -> None:
        client.older, client.sequence = client.sequence, 0 if self.chance(0.8) else self.random.randint(1, 9)
        client.epoch, client.sent, client.stood = client.epoch + 1, [], -1
        self.goes_on(client)

    def falls_back(self, client: Client) -> None:
        """One or two batches of an instance that was fenced."""
        if not client.epoch:
            return self.bumps(client)
        for _ in range(self.random.choice((1, 1, 2))):
            size = self.random.choice(SIZES)
            first = client.older if self.chance(0.7) else self.random.choice(FIRSTS)
            self.data(client, client.epoch - 1, first, size)
            client.older = after(first, size)
        client.open = client.open or client.transactional
        return None

    def ends(self, client: Client) -> None:
        """A marker, mostly a right one; it may bump the epoch, as an abort of the coordinator does."""
        if not client.transactional and self.chance(0.9):
            return self.goes_on(client)
        bump = self.random.choices((0, 1, -1), (84, 10, 6))[0]
        coordinator = client.coordinator + self.random.choices((0, 1, -1), (80, 14, 6))[0]
        epoch = max(0, client.epoch + bump)
        marker = {"pid": client.pid, "epoch": epoch, "offset": self.end, "coordinator_epoch": max(0, coordinator)}
        outcome = {"timestamp": self.now, "type": self.random.choice(("COMMIT", "ABORT")), "origin": "coordinator"}
        self.store("marker", marker | outcome)
        client.coordinator, client.open = max(client.coordinator, coordinator), False
        if epoch > client.epoch and self.chance(0.8):
            client.older, client.sequence, client.sent, client.stood = client.sequence, 0, [], -1
            client.epoch = epoch
        return None

    def mixes(self, client: Client) -> None:
        """Plain data of a transactional producer, or the reverse."""
        size, first = self.random.choice(SIZES), client.sequence
        self.data(client, client.epoch, first, size, mixed=True)
        client.sent.append((first, after(first, size - 1), 0, self.now))
        client.sequence = after(first, size)

    def plain(self, client: Client) -> None:
        """Records of no producer."""
        last = self.end + self.random.choice(SIZES) - 1
        self.store("plain", {"first_offset": self.end, "last_offset": last, "origin": "client"})


def scripted(name: str, policy: str, *ranges: tuple[int, int]) -> StoredHistory:
    """Batches of one plain producer with these first and last sequences; one with the same range is the same bytes."""
    made = StoredHistory(name, policy)
    client = Client(1, transactional=False, epoch=0, sequence=0)
    for number, (first, last) in enumerate(ranges):
        made.now += 1
        before = ranges.index((first, last))
        made.data(client, 0, first, last - first + 1, content=before, time=START + before)
        assert made.log[number].item["first_seq"] == first
    return made
