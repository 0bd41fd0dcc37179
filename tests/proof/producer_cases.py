"""`producer_state` cases as segments: each append that a case asks of a leader, behind those that it had accepted.

An append that was refused or answered as a duplicate is in no log of that case, so it gets one of its own, where it is
forced in behind what was accepted before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.proof import held_history
from tests.proof.case_logs import Held
from tests.proof.segment_files import first_offset
from tests.proof.stored_history import ACCEPTED, StoredHistory

MEMORY = "whether a verification is under way is in a broker's memory"
RELOADED = "what a broker still knows after it was started, or cut its log, is in its memory"
CLOCK = "when producers are forgotten is told by the broker's clock"
# What no log can hold, by the operation that an append stands behind.
UNHELD = {
    "start_verification": MEMORY, "clear_verification": MEMORY, "set_verification_enabled": MEMORY,
    "expire_producers": CLOCK, "restart": RELOADED, "rebuild": RELOADED, "truncate_and_reload": RELOADED,
    "truncate_fully": RELOADED, "set_map_end": RELOADED, "load_producer": RELOADED, "corrupt_snapshot": RELOADED,
    "create_snapshot_files": RELOADED, "delete_snapshots_before": RELOADED, "remove_stray_snapshots": RELOADED,
}  # fmt: skip
INTERNAL = "coordinators append data to internal topics alone, where sequences mean nothing"
PLAIN = "no batch of a producer"
NOTHING = "no append of a client or a coordinator"
VERIFIED = "an append without the verification that its broker asks for: a request, not a log"
SETTING = "the draft's threshold is no setting of any broker"
EVICTED = "a broker up to 2.3 forgets what lies below the log start when that moves: the log does not say when it did"
LEADERS = ("client", "coordinator")
Args = dict[str, Any]


class Answered:
    """An append of a case: its batches, and what the leader said; None where a follower took it, unasked."""

    def __init__(self, step: Args, level: str) -> None:
        args = step["args"]
        self.items = [dict(item) for item in args["items"]] if "items" in args else [args | {"kind": step["op"][7:]}]
        expect = step["expect"]
        self.outcome = expect["outcome"]
        asked = args.get("origin", "client") in LEADERS and len(self.items) == 1
        self.answer = (expect.get("error") or self.outcome) if asked else None
        # The map alone, without the log, does not look for duplicates.
        self.maybe_duplicate = level == "manager" and self.answer == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def hold(case: Args, folder: Path) -> Held:
    """Writes the logs of a case into the folder, one after the other, and reads them."""
    config = case["initial"].get("config", {})
    if reason := unheld(case, config):
        return Held([], reason)
    found: list[str] = []
    for log, log_start in logs(case):
        history = Cased(case["id"], case["policy"], log_start)
        for append in log:
            history.take(append)
        found += history.wrong or held_history.differences(history, history.results, folder, Counter())
    return Held(found)


def unheld(case: Args, config: Args) -> str:
    """Why no log can hold the case, empty where one can."""
    last = max((number for number, step in enumerate(case["steps"]) if step["op"].startswith("append_")), default=-1)
    before = case["steps"][: last + 1]
    if not any(step["op"] in ("append_batch", "append_marker", "append_group") for step in before):
        return PLAIN
    if not any(step["args"].get("origin") in LEADERS for step in before):
        return NOTHING
    if any(s["op"] == "append_batch" and s["args"]["origin"] == "coordinator" for s in before):
        return INTERNAL
    moved = any(step["op"] == "increment_log_start" for step in before)
    if moved and case["policy"] in ("pre-kip-360", "kip-360-text"):
        return EVICTED
    if config.get("transaction_verification"):
        return VERIFIED
    if "max_in_flight_sequence_number" in config:
        return SETTING
    return next((UNHELD[step["op"]] for step in before if step["op"] in UNHELD), "")


def logs(case: Args) -> Iterator[tuple[list[Answered], int]]:
    """What was accepted, with the log start behind it; before that a log for each append that was not."""
    accepted: list[Answered] = []
    log_start = case["initial"].get("log", {}).get("log_start", 0)
    for step in case["steps"]:
        if step["op"] == "increment_log_start" and step["expect"]["outcome"] == "ok":
            log_start = max(log_start, step["args"]["log_start"])
        if not step["op"].startswith("append_"):
            continue
        append = Answered(step, case["level"])
        if append.outcome == ACCEPTED:
            accepted.append(append)
        elif append.answer is not None:
            yield [*accepted, append], log_start
    yield accepted, log_start


class Cased(StoredHistory):
    """The log of a case; ``wrong``: where the model does not answer as the case does."""

    def __init__(self, name: str, policy: str, log_start: int) -> None:
        super().__init__(name, policy)
        self.log_start = log_start
        self.wrong: list[str] = []

    def take(self, append: Answered) -> None:
        """Stores the batches of an append, whatever the leader says to it."""
        for item in append.items:
            args = {name: value for name, value in item.items() if name not in ("kind", "guard")}
            first = first_offset(item)
            moved = max(self.end, first) - first
            for name in ("offset", "first_offset", "last_offset"):
                if name in args:
                    args[name] += moved
            self.now, self.end = args.get("timestamp", self.now), first + moved
            if not self.log:  # what lies below the first offset is below the log start
                self.log_start = max(self.log_start, self.end)
            kind = item["kind"]
            control = kind == "empty_control"
            origin = {"batch": "client", "marker": "coordinator"}.get(kind, "replication")
            if kind != "plain":
                args["origin"] = origin
            said = self.store("empty_control_batch" if control else kind, args)
            if append.answer not in (None, said) and not (append.maybe_duplicate and said == "duplicate"):
                self.wrong.append(f"offset {first}: the case says {append.answer}, the model {said}")
