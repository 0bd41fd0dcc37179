"""Random histories of one partition, as conformance cases: a seed decides all of it.

The model runs along while a history is made, so that most operations say something about its present state: the next
sequence, a retry of a cached batch, a marker of an open transaction. What the model answers is kept beside each step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tests.conformance.cases import Result
from tests.conformance.producer_state_adapter import run_model

MAX_SEQUENCE = 2_147_483_647
MAX_EPOCH = 32_767
PRODUCERS = (1, 2, 7, 4_000_000_000, 4_611_686_018_427_387_904)
START = 1_700_000_000_000
EXPIRATION_MS = 5_000

WEIGHTS = {
    "append_batch": 40,
    "append_marker": 14,
    "append_group": 8,
    "append_plain": 3,
    "append_empty_control_batch": 2,
    "advance_hw": 8,
    "increment_log_start": 3,
    "truncate_and_reload": 4,
    "truncate_fully": 1,
    "take_snapshot": 7,
    "restart": 2,
    "corrupt_snapshot": 1,
    "delete_snapshots_before": 1,
    "expire_producers": 4,
    "set_map_end": 1,
}
LATER = {"has_late_transaction": 3, "remove_stray_snapshots": 1}  # 2.7 and later
VERIFYING = {"start_verification": 6, "clear_verification": 1, "set_verification_enabled": 1}


class History:
    """A case under construction, and what the model answered to each of its steps."""

    level = "manager"

    def __init__(self, seed: int, policy: str, steps: int = 30) -> None:
        self.random = random.Random(f"{policy} {seed}")
        self.now = START
        self.case: dict[str, Any] = {
            "id": f"{policy} seed {seed}",
            "model": "producer_state",
            "policy": policy,
            "level": self.level,
            "initial": {"config": {"producer_id_expiration_ms": EXPIRATION_MS, "max_transaction_timeout_ms": 1_000}},
            "steps": [],
        }
        if policy.startswith("kip-890"):
            self.case["initial"]["config"]["transaction_verification"] = True
        weights = self.choose_weights(policy)
        self.operations, self.shares = list(weights), list(accumulate(weights.values()))
        self.model = run_model(self.case)
        self.results: list[Result] = []
        self.state = self.model.whole_state()
        self.producers = self.random.sample(PRODUCERS, self.random.randint(1, 3))
        for _ in range(steps):
            self.step()

    def choose_weights(self, policy: str) -> dict[str, int]:
        later = LATER if policy != "pre-kip-360" else {}
        verifying = VERIFYING if policy.startswith("kip-890") else {}
        return WEIGHTS | later | verifying

    def step(self) -> None:
        """Choose an operation, apply it to the model, and keep both."""
        op = self.random.choices(self.operations, cum_weights=self.shares)[0]
        self.now += self.random.choice((1, 1, 10, 500, 2_000))
        make: Callable[[], dict[str, Any]] = getattr(self, op)
        reload = self.truncate_and_reload() if op == "restart" else None
        self.apply(op, make())
        if reload:  # a broker that starts always reloads, and so never writes over a snapshot that is there
            self.apply("truncate_and_reload", reload)
        if self.state["map_end"] < self.state["hw"]:  # no log ends below its high watermark
            self.apply("advance_hw", {"hw": self.state["map_end"]})

    def apply(self, op: str, args: dict[str, Any]) -> None:
        """Apply an operation to the model; a snapshot's entries are kept too, since the case compares its bytes."""
        result = self.model.apply(op, args)
        if op == "take_snapshot":
            offset = result.returns["snapshot_offset"]
            result = result._replace(
                returns={**result.returns, "entries": self.model.state.snapshots.files.get(offset)}
            )
        self.case["steps"].append({"op": op, "args": args})
        self.results.append(result)
        self.state = result.state

    # --- choices ---

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def any_offset(self) -> int:
        """An offset of the log, its end included; often that of a snapshot."""
        known = self.state["snapshots"]
        if known and self.chance(0.4):
            return self.random.choice(known)
        return self.random.randint(0, self.state["map_end"])

    def next_offset(self) -> int:
        return self.state["map_end"] + (0 if self.chance(0.9) else self.random.randint(1, 5))

    def timestamp(self) -> int:
        """Mostly now; clients' clocks may be anywhere."""
        return self.now if self.chance(0.9) else self.random.choice((-1, 0, self.now - EXPIRATION_MS, self.now + 9_999))

    def epoch(self, known: dict[str, Any] | None) -> int:
        """Mostly the stored one."""
        if known is None:
            return self.random.choice((0, 0, 0, 1, 5, MAX_EPOCH))
        near = self.random.choices((0, 1, -1, 7), (80, 12, 6, 2))[0]
        return min(max(known["epoch"] + near, 0), MAX_EPOCH)

    def marker_epoch(self, pid: int) -> int:
        """As :meth:`epoch`, but never that of a verification of a transaction.version 2 client.

        4.1.0 lets such a verification live, since the marker closes the transaction before; the trunk of October 2024,
        which the policies follow, ends it with any marker.
        """
        epoch = self.epoch(self.state["producers"].get(str(pid)))
        if not self.ends_verification(pid, epoch):
            return epoch
        return epoch - 1 if epoch == MAX_EPOCH else epoch + 1

    def ends_verification(self, pid: int, epoch: int) -> bool:
        verification = self.model.state.verifications.entries.get(pid)
        return verification is not None and verification.supports_epoch_bump and verification.epoch == epoch

    def origin(self) -> str:
        return self.random.choices(("client", "replication", "coordinator"), (75, 18, 7))[0]

    def sequences(self, known: dict[str, Any] | None, epoch: int) -> tuple[int, int]:
        """First and last sequence of a batch: mostly the next, else retries, resets, gaps and overlaps."""
        size = self.random.choice((1, 1, 2, 5, 100))
        if known is None or not known["batch_count"] or known["epoch"] != epoch:
            first = self.random.choice((0, 0, 0, 0, 1, 17, MAX_SEQUENCE, MAX_SEQUENCE - 1))
        else:
            newest, oldest = known["last_seq"], known["first_seq"]
            if self.chance(0.1):  # exactly the newest batch again
                return wrapped(newest - known["offset_delta"]), newest
            distance = self.random.choices((1, 2, 0, -1, -size + 1, -10), (80, 4, 4, 4, 4, 4))[0]
            first = wrapped(newest + distance)
            if self.chance(0.08):
                first = self.random.choice((0, oldest, MAX_SEQUENCE))
        return first, wrapped(first + size - 1)

    # --- operations: the arguments of one ---

    def batch(self, offset: int, pid: int) -> dict[str, Any]:
        known = self.state["producers"].get(str(pid))
        epoch = self.epoch(known)
        first, last = self.sequences(known, epoch)
        is_open = known is not None and known["txn_first_offset"] is not None
        return {
            "pid": pid,
            "epoch": epoch,
            "first_seq": first,
            "last_seq": last,
            "first_offset": offset,
            "last_offset": offset + ((last - first) & MAX_SEQUENCE),
            "timestamp": self.timestamp(),
            "transactional": self.chance(0.95 if is_open else 0.5),
        }

    def marker(self, offset: int, pid: int) -> dict[str, Any]:
        known = self.state["producers"].get(str(pid))
        stored = known["coordinator_epoch"] if known else 0
        return {
            "pid": pid,
            "epoch": self.marker_epoch(pid),
            "offset": offset,
            "coordinator_epoch": max(0, stored + self.random.choices((0, 1, -1), (80, 14, 6))[0]),
            "timestamp": self.timestamp(),
            "type": self.random.choice(("COMMIT", "ABORT")),
        }

    def producer(self) -> int:
        return self.random.choice(self.producers)

    def append_batch(self) -> dict[str, Any]:
        return {**self.batch(self.next_offset(), self.producer()), "origin": self.origin()}

    def append_marker(self) -> dict[str, Any]:
        origin = "replication" if self.chance(0.2) else "coordinator"
        return {**self.marker(self.next_offset(), self.producer()), "origin": origin}

    def append_plain(self) -> dict[str, Any]:
        offset = self.next_offset()
        return {"first_offset": offset, "last_offset": offset + self.random.randint(0, 4)}

    def append_empty_control_batch(self) -> dict[str, Any]:
        pid = self.producer()
        return {"pid": pid, "epoch": self.marker_epoch(pid), "offset": self.next_offset(), "origin": "replication"}

    def append_group(self) -> dict[str, Any]:
        """Several batches in one append; later ones of a producer go on where the earlier left off."""
        offset = self.next_offset()
        items: list[dict[str, Any]] = []
        for _ in range(self.random.randint(2, 5)):
            pid = self.producer()
            kind = self.random.choices(("batch", "marker", "plain", "empty_control"), (60, 30, 5, 5))[0]
            if kind == "batch":
                item = self.batch(offset, pid)
                earlier = [old for old in items if old.get("pid") == pid and old["kind"] == "batch"]
                if earlier and self.chance(0.8):
                    size = item["last_offset"] - item["first_offset"]
                    first = wrapped(earlier[-1]["last_seq"] + 1)
                    item |= {"epoch": earlier[-1]["epoch"], "first_seq": first, "last_seq": wrapped(first + size)}
            elif kind == "marker":
                item = self.marker(offset, pid)
            elif kind == "plain":
                item = {"first_offset": offset, "last_offset": offset + 1}
            else:
                item = {"pid": pid, "epoch": self.marker_epoch(pid), "offset": offset}
            items.append({"kind": kind, **item})
            offset = last_offset(item) + 1
        return {"origin": "replication" if self.chance(0.7) else "client", "items": items}

    def advance_hw(self) -> dict[str, Any]:
        return {"hw": self.random.randint(self.state["hw"], max(self.state["hw"], self.state["map_end"]))}

    def increment_log_start(self) -> dict[str, Any]:
        return {"log_start": self.any_offset()}

    def truncate_and_reload(self) -> dict[str, Any]:
        log_end = self.state["map_end"] if self.chance(0.2) else self.any_offset() + self.random.choice((0, 0, 3))
        return {
            "log_start": min(self.random.choice((0, self.any_offset())), log_end),
            "log_end": log_end,
            "now": self.now,
        }

    def truncate_fully(self) -> dict[str, Any]:
        return {"offset": self.any_offset()}

    def take_snapshot(self) -> dict[str, Any]:
        return {}

    def restart(self) -> dict[str, Any]:
        return {}

    def corrupt_snapshot(self) -> dict[str, Any]:
        how = self.random.choice(("garbage", "empty", "truncated"))
        return {"offset": self.any_offset(), "how": how}

    def delete_snapshots_before(self) -> dict[str, Any]:
        return {"offset": self.any_offset()}

    def remove_stray_snapshots(self) -> dict[str, Any]:
        return {"segment_base_offsets": sorted({self.any_offset() for _ in range(self.random.randint(0, 3))})}

    def expire_producers(self) -> dict[str, Any]:
        return {"now": self.now + self.random.choice((0, 0, EXPIRATION_MS))}

    def has_late_transaction(self) -> dict[str, Any]:
        return {"now": self.now + self.random.choice((0, 300_000, 301_000, 302_000))}

    def set_map_end(self) -> dict[str, Any]:
        return {"map_end": self.state["map_end"] + self.random.randint(0, 5)}

    def start_verification(self) -> dict[str, Any]:
        pid = self.producer()
        known = self.state["producers"].get(str(pid))
        epoch = self.epoch(known)
        return {
            "pid": pid,
            "seq": self.sequences(known, epoch)[0],
            "epoch": epoch,
            "now": self.now,
            "label": f"guard-{len(self.results)}",
            "supports_epoch_bump": self.case["policy"] == "kip-890-p2" and self.chance(0.7),
        }

    def clear_verification(self) -> dict[str, Any]:
        return {"pid": self.producer()}

    def set_verification_enabled(self) -> dict[str, Any]:
        return {"enabled": self.chance(0.5)}


def last_offset(item: dict[str, Any]) -> int:
    """The last offset of an item in the words of the conformance cases."""
    return item["offset"] if "offset" in item else item["last_offset"]


def wrapped(sequence: int) -> int:
    """A sequence in the ring from 0 to 2147483647."""
    return sequence & MAX_SEQUENCE
