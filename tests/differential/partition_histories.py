"""Random histories of one partition with its log: leader appends at the log end, follower appends, truncations."""

from __future__ import annotations

from typing import Any

from tests.differential.histories import VERIFYING, WEIGHTS, History, last_offset

UNVERIFIED = 3
LEFT_OUT = ("truncate_and_reload", "restart", "corrupt_snapshot", "delete_snapshots_before", "set_map_end")


class LogHistory(History):
    """As :class:`History`, level "log". What was accepted is remembered, since a truncation replays it."""

    level = "log"

    def __init__(self, seed: int, policy: str, steps: int = 30) -> None:
        self.log: list[dict[str, Any]] = []
        self.labels: dict[int, str] = {}
        super().__init__(seed, policy, steps)

    def choose_weights(self, policy: str) -> dict[str, int]:
        chosen = {op: weight for op, weight in WEIGHTS.items() if op not in LEFT_OUT} | {"rebuild": 3}
        if policy.startswith("kip-890"):
            # A follower's append that fails half-way ends the verifications of its first half; no leader's can. And a
            # reload replays old markers, of which see marker_epoch. Neither is a leader's business, who verifies.
            chosen = chosen | VERIFYING | {"append_group": 0, "rebuild": 0}
        return chosen

    def apply(self, op: str, args: dict[str, Any]) -> None:
        super().apply(op, args)
        if op.startswith("append_") and self.results[-1].outcome == "accepted":
            kind = op.removeprefix("append_").replace("_control_batch", "_control")
            self.log += args["items"] if kind == "group" else [{"kind": kind, **args}]
        elif op in ("rebuild", "truncate_fully"):
            end = self.state["log_end"]
            self.log = [item for item in self.log if last_offset(item) < end] if op == "rebuild" else []
            # The log cuts its transaction index with its segments; the operations of the cases leave it alone.
            kept = [entry for entry in self.model.state.aborted if op == "rebuild" and entry.last_offset < end]
            self.model.state.aborted = kept
            self.state = self.model.whole_state()
            self.results[-1] = self.results[-1]._replace(state=self.state)

    def next_offset(self) -> int:
        return self.state["log_end"]

    def guard(self, args: dict[str, Any]) -> dict[str, Any]:
        """Give a batch the label of its producer's newest verification, or rarely of another one or of none."""
        label = self.labels.get(args["pid"])
        if self.labels and self.chance(0.1):
            label = self.random.choice([None, *self.labels.values()])
        return args if label is None else {**args, "guard": label}

    def rising(self, items: list[dict[str, Any]]) -> None:
        """Let no epoch fall in what is replicated, as in every leader's log.

        A reload takes a segment as one append, in which an epoch that falls back to the stored one forgets nothing.
        """
        seen = {int(pid): known["epoch"] for pid, known in self.state["producers"].items()}
        for item in self.log:
            if "pid" in item:
                seen[item["pid"]] = max(item["epoch"], seen.get(item["pid"], 0))
        for item in items:
            if "pid" in item:
                seen[item["pid"]] = item["epoch"] = max(item["epoch"], seen.get(item["pid"], 0))

    def known_again(self, args: dict[str, Any]) -> dict[str, Any]:
        """A producer that the map forgot while it was idle, and not the log, goes on with no lower epoch either.

        Where producers are verified nothing is reloaded, and :meth:`marker_epoch` has the last word.
        """
        if "transaction_verification" not in self.case["initial"]["config"] and (
            str(args["pid"]) not in self.state["producers"]
        ):
            stored = [item["epoch"] for item in self.log if item.get("pid") == args["pid"]]
            args["epoch"] = max([args["epoch"], *stored])
        return args

    def append_batch(self) -> dict[str, Any]:
        args = self.known_again(super().append_batch())
        if args["origin"] == "replication":
            self.rising([args])
        return self.guard(args)

    def append_marker(self) -> dict[str, Any]:
        args = self.known_again(super().append_marker())
        return self.replicated_control(args) if args["origin"] == "replication" else args

    def append_empty_control_batch(self) -> dict[str, Any]:
        return self.replicated_control(super().append_empty_control_batch())

    def replicated_control(self, args: dict[str, Any]) -> dict[str, Any]:
        """Of a producer that is never verified where :meth:`marker_epoch` has to be kept off a verification."""
        self.rising([args])
        return {**args, "pid": UNVERIFIED} if self.ends_verification(args["pid"], args["epoch"]) else args

    def start_verification(self) -> dict[str, Any]:
        """Never of an older epoch: 4.1.0 refuses that at once, the trunk of October 2024 at the append."""
        args = super().start_verification()
        self.labels[args["pid"]] = args["label"]
        stored = self.state["producers"].get(str(args["pid"]), {"epoch": 0})["epoch"]
        return {**args, "epoch": max(args["epoch"], stored)}

    def append_plain(self) -> dict[str, Any]:
        return {**super().append_plain(), "origin": "client"}

    def append_group(self) -> dict[str, Any]:
        args = super().append_group()
        self.rising(args["items"])
        return {**args, "origin": "replication"}

    def increment_log_start(self) -> dict[str, Any]:
        """To a batch: from within one, 4.1.0 would pin the LSO at its first offset, below the log start."""
        firsts = [item.get("offset", item.get("first_offset")) for item in self.log]
        return {"log_start": self.random.choice([*firsts, self.state["log_end"]])}

    def rebuild(self) -> dict[str, Any]:
        """A truncation to any offset, in the middle of a batch too, and the replay of what is left."""
        log_end = self.random.randint(0, max(0, self.state["log_end"] - 1))
        if self.chance(0.5):
            log_end = self.random.choice([0, *(last_offset(item) + 1 for item in self.log[:-1])])
        log_start = min(self.state["log_start"], log_end)
        # A broker that knows no producer before a truncation replays nothing after it, not even who expired meanwhile.
        nobody = not self.state["producers"] and self.state["first_unstable"] is None
        return {"log_start": log_start, "log_end": log_end, "now": self.now, "log": [] if nobody else self.log}
