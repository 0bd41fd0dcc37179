"""Adapter of the producer-state model: from the operations of the cases, to its state in the words of the README."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditor.base.errors import LAST_SEQUENCE
from auditor.model.policies import Policy, policy
from auditor.model.producers import NONE
from tests.conformance.cases import Result
from tests.reference.appends import Batch, EmptyControl, Item, Marker, Plain
from tests.reference.partition import Duplicate, Partition
from tests.reference.producer_state import ProducerState, Settings
from tests.reference.refusal import ILLEGAL_ARGUMENT, Refused
from tests.reference.snapshots import SnapshotEntry
from tests.reference.transactions import Completed

Args = dict[str, Any]


def run_model(case: dict[str, Any]) -> ProducerStateModel:
    """The model that ``case`` begins with."""
    config = dict(case["initial"].get("config", {}))
    chosen = policy(case["policy"])
    window = config.pop("max_in_flight_sequence_number", None)
    if window is not None and chosen.duplicate_window:
        chosen = chosen._replace(duplicate_window=window)
    return ProducerStateModel(chosen, Settings(**config), case["level"] == "log", case["initial"].get("log", {}))


class ProducerStateModel:
    """One partition of either level, and the labels that a case gives to verification guards."""

    def __init__(self, policy: Policy, settings: Settings, with_log: bool, log: Args) -> None:
        bounds = (log.get("log_start", 0), log.get("log_end", 0), log.get("hw", 0))
        self.state: ProducerState = (
            Partition(policy, settings, *bounds) if with_log else ProducerState(policy, settings)
        )
        self.guards: dict[str, tuple[int, object | None]] = {}  # label: producer id, guard

    def apply(self, op: str, args: Args) -> Result:
        """Apply one operation."""
        operation: Callable[..., Result | Args | None] = getattr(self, op)
        try:
            done = operation(**args)
        except Refused as refused:
            return Result("error", refused.error, {}, self.whole_state())
        if isinstance(done, Result):
            return done._replace(state=self.whole_state())
        return Result("ok", None, done or {}, self.whole_state())

    # --- appends ---

    def item(self, kind: str, args: Args) -> Item:
        """One item of an append from the words of the README."""
        if kind == "plain":
            return Plain(args["first_offset"], args["last_offset"])
        pid, epoch = args["pid"], args["epoch"]
        if kind == "empty_control":
            return EmptyControl(pid, epoch, args["offset"])
        if kind == "marker":
            aborted = args["type"] == "ABORT"
            return Marker(pid, epoch, args["coordinator_epoch"], args["offset"], args["timestamp"], aborted)
        if kind != "batch":
            raise ValueError(f"no item {kind!r}")
        span = (args["first_seq"], args["last_seq"], args["first_offset"], args["last_offset"])
        guard = self.guards.get(args.get("guard", ""), (pid, None))[1]
        return Batch(pid, epoch, *span, args["timestamp"], args["transactional"], guard)

    def append(self, items: list[Item], origin: str) -> Result:
        """One append of either level."""
        if isinstance(self.state, Partition):
            done = self.state.append_to_log(items, origin)
        else:
            done = self.state.append(items, origin)
        if isinstance(done, Duplicate):
            return Result("duplicate", None, done._asdict(), {})
        return Result("accepted", None, {"completed": [completed(c) for c in done]}, {})

    def append_batch(self, origin: str, **args: Any) -> Result:
        return self.append([self.item("batch", args)], origin)

    def append_marker(self, origin: str, **args: Any) -> Result:
        return self.append([self.item("marker", args)], origin)

    def append_plain(self, **args: Any) -> Result:
        return self.append([self.item("plain", args)], "client")

    def append_empty_control_batch(self, origin: str, **args: Any) -> Result:
        return self.append([self.item("empty_control", args)], origin)

    def append_group(self, origin: str, items: list[Args]) -> Result:
        return self.append([self.item(item["kind"], item) for item in items], origin)

    # --- offsets, snapshots, recovery ---

    def advance_hw(self, hw: int) -> None:
        self.state.advance_high_watermark(hw)

    def increment_log_start(self, log_start: int) -> None:
        self.state.increment_log_start(log_start)

    def truncate_and_reload(self, log_start: int, log_end: int, now: int) -> None:
        self.state.truncate_and_reload(log_start, log_end, now)

    def truncate_fully(self, **args: int) -> None:
        self.state.truncate_fully(**args)

    def take_snapshot(self) -> Args:
        return {"snapshot_offset": self.state.take_snapshot()}

    def restart(self) -> None:
        self.state.restart()
        self.guards.clear()  # a guard is an object in memory, and the numbers begin anew

    def rebuild(self, log: list[Args], **args: Any) -> None:
        self.state.rebuild([self.item(item["kind"], item) for item in log], **args)

    def corrupt_snapshot(self, offset: int, how: str) -> None:
        if offset not in self.state.snapshots.files or how not in ("garbage", "empty", "truncated"):
            raise Refused(ILLEGAL_ARGUMENT)
        self.state.snapshots.files[offset] = None

    def create_snapshot_files(self, offsets: list[int]) -> None:
        self.state.snapshots.files.update(dict.fromkeys(offsets))

    def delete_snapshots_before(self, offset: int) -> None:
        self.state.snapshots.delete_before(offset)

    def remove_stray_snapshots(self, segment_base_offsets: list[int]) -> None:
        self.state.snapshots.remove_stray(segment_base_offsets)

    def load_producer(self, pid: int, epoch: int, batch: Args | None, **args: Any) -> None:
        last = batch or {"last_seq": NONE, "last_offset": NONE, "offset_delta": 0, "timestamp": NONE}
        first_offset = NONE if args["txn_first_offset"] is None else args["txn_first_offset"]
        span = (last["last_seq"], last["last_offset"], last["offset_delta"])
        self.state.load(
            SnapshotEntry(pid, epoch, *span, args["last_timestamp"], args["coordinator_epoch"], first_offset)
        )

    def set_map_end(self, map_end: int) -> None:
        self.state.map_end = map_end

    # --- time and verification ---

    def expire_producers(self, now: int) -> None:
        self.state.expire(now)

    def has_late_transaction(self, now: int) -> Args:
        return {"late": self.state.has_late_transaction(now)}

    def start_verification(
        self, pid: int, seq: int, epoch: int, now: int, label: str, supports_epoch_bump: bool = False
    ) -> Args:
        guard = None
        if not (isinstance(self.state, Partition) and self.state.has_open_transaction(pid, epoch)):
            guard = self.state.verifications.start(pid, seq, epoch, now, supports_epoch_bump)
        self.guards[label] = (pid, guard)
        return {"guard_needed": guard is not None}

    def clear_verification(self, pid: int) -> None:
        self.state.verifications.clear(pid)

    def set_verification_enabled(self, enabled: bool) -> None:
        self.state.settings = self.state.settings._replace(transaction_verification=enabled)

    # --- state ---

    def whole_state(self) -> Args:
        """The state as the README writes it."""
        state = self.state
        producers = self.known()
        return {
            "producers": producers,
            "producer_ids": [int(pid) for pid in producers],
            "first_undecided": state.transactions.first_undecided(),
            "first_unstable": state.first_unstable(),
            "lso": state.last_stable_offset(),
            "hw": state.high_watermark,
            "log_start": state.log_start,
            "log_end": state.log_end,
            "map_end": state.map_end,
            "snapshots": sorted(state.snapshots.files),
            "aborted_txns": [index_entry(entry) for entry in state.aborted],
            "verification": {str(pid): self.verification(pid) for pid in state.verifications.entries},
        }

    def known(self) -> dict[str, Args]:
        """Every producer's entry by its id: first_* of the oldest cached batch, last_* of the newest.

        From the columns, not by the kernels' functions: a state is asked for after every step of a history, and calling
        a compiled function takes longer than what it does.
        """
        p = self.state.producers
        rows = int(p.meta[0])
        columns = (p.producer_id, p.epoch, p.coordinator_epoch, p.txn_first_offset, p.cached, p.newest)
        refreshed = self.state.policy.marker_refreshes
        times = p.last_timestamp if refreshed else p.timestamp
        rings = (p.last_sequence, p.last_offset, p.offset_delta)
        listed = (column[:rows].tolist() for column in (*columns, times, *rings))
        known = {}
        for row in sorted(zip(*listed, strict=True)):
            pid, epoch, coordinator_epoch, txn_first_offset, cached, newest, time, sequences, offsets, deltas = row
            oldest = (newest - cached + 1) % len(sequences)
            known[str(pid)] = {
                "epoch": epoch,
                "coordinator_epoch": coordinator_epoch,
                "txn_first_offset": None if txn_first_offset == NONE else txn_first_offset,
                "last_timestamp": time if cached or refreshed else NONE,
                "batch_count": cached,
                "last_seq": sequences[newest] if cached else NONE,
                "last_offset": offsets[newest] if cached else NONE,
                "first_seq": (sequences[oldest] - deltas[oldest]) & LAST_SEQUENCE if cached else NONE,
                "first_offset": offsets[oldest] - deltas[oldest] if cached else NONE,
                "offset_delta": deltas[newest] if cached else 0,
            }
        return known

    def verification(self, pid: int) -> Args:
        entry = self.state.verifications.entries[pid]
        labels = sorted(label for label, (owner, guard) in self.guards.items() if (owner, guard) == (pid, entry.guard))
        return {"lowest_seq": entry.lowest_sequence, "epoch": entry.epoch, "guards": labels}


def completed(closed: Completed) -> Args:
    """A completed transaction in the words of the README."""
    named = closed._asdict()
    return {"pid": named.pop("producer_id"), "lso": named.pop("last_stable_offset"), **named}


def index_entry(entry: Completed) -> Args:
    """An entry of the transaction index in the words of the README."""
    return {
        "pid": entry.producer_id,
        "first_offset": entry.first_offset,
        "last_offset": entry.last_offset,
        "last_stable_offset": entry.last_stable_offset,
    }
