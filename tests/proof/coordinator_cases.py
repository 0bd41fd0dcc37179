"""`coordinator` cases as the records that they leave in ``__transaction_state``, all in one log for one inline audit.

Legal ones give no finding of the coordinator's rules above info; a transition that the coordinator refuses as
illegal, written all the same, gives one. Each case has ids and times of its own, so that rules which judge by the
clock, under which each of them ends too early, are left aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from auditor.rules.catalogue import registry
from auditor.rules.seen.view import Finding
from tests.bare_broker import BEGAN, broker, finish
from tests.conformance.coordinator_adapter import run_model
from tests.coordinator_records import Coordinator
from tests.facts import opened
from tests.proof.case_logs import Held

NOTHING = "nothing is written: a request, its refusal, or what is asked of the state in memory"
AT_ONCE = "several ids are written to at once, in no order that the case tells"
PENDING = "it begins in the middle of a transition, whose record the case does not tell"
WRITTEN_AND_FAILED = ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")  # the record stays in the log
PRODUCERS = 1 << 40  # producer ids between two cases
APART_MS = 100_000_000  # between two cases: more than any of them takes
Args = dict[str, Any]


class Written(NamedTuple):
    """A record: its value in the words of the cases, None for a tombstone; or a coordinator that loads."""

    name: str
    value: Args | None
    loads: bool = False


def hold(cases: Sequence[Args], folder: Path) -> dict[str, Held]:
    """The cases by their ids, after one audit of them all."""
    log = Coordinator(broker(folder), 0)
    held: dict[str, Held] = {}
    illegal: set[str] = set()
    for number, case in enumerate(cases):
        reason, written = records(case)
        held[case["id"]] = Held([], reason)
        if reason:
            continue
        if refused := forbidden(case):
            illegal.add(case["id"])
            written.append(refused)
        write(log, case["id"], number, written)
    finish(log)
    audit = opened(folder, as_of=BEGAN + (len(cases) + 1) * APART_MS)
    said: dict[str, list[Finding]] = {}
    catalogue = registry.kinds()
    for finding in audit.findings:
        rule = catalogue[finding.kind]
        if rule.family == "coordinator" and not rule.time and finding.severity != "info":
            said.setdefault((finding.transactional_id or "").partition("/")[0], []).append(finding)
    for name in held:
        found = [f"{f.kind} at {f.offset}: {f.message}" for f in said.pop(name, [])]
        if name in illegal and not found:
            held[name] = Held(["a transition that the coordinator refuses, and no finding"])
        elif name not in illegal and found:
            held[name] = Held(found)
    if said:
        held["all of them"] = Held([f"{f.kind}: {f.message}" for findings in said.values() for f in findings])
    return held


def records(case: Args) -> tuple[str, list[Written]]:
    """Why no log can hold the case, empty where one can; and the records that it leaves, in their order."""
    initial = case.get("initial") or {}
    begun = {name: value if _empty(value) else sound(value) for name, value in (initial.get("txns") or {}).items()}
    case = case | {"initial": initial | {"txns": begun}}
    if any(fields.get("pending_state") for fields in begun.values()):
        return PENDING, []
    written = [Written(name, sound(value)) for name, value in begun.items() if value.get("producer_epoch", -1) >= 0]
    begins = len(written)
    model, count = run_model(case), 0
    for number, step in enumerate(case["steps"]):
        if step["op"] == "load":
            written += [Written("", None, loads=True), *_loaded(step["args"]["records"])]
        args = step.get("args", {})
        if args.get("append") in WRITTEN_AND_FAILED:
            written += _failed(case, number)
        state = model.apply(step["op"], args).state
        new, count = state["log_count"] - count, state["log_count"]
        if new > 1:
            return AT_ONCE, []
        if new == 1:
            last = state["last_log_record"]
            written.append(Written(last["tid"], None if last.get("tombstone") else last))
        elif step["op"] == "complete_transition" and step["expect"]["outcome"] == "ok":
            name = step["args"]["transactional_id"]
            written.append(Written(name, state["txns"][name]))
    if len(written) == begins and not forbidden(case):
        return NOTHING, []
    return "", written


def _failed(case: Args, number: int) -> Iterator[Written]:
    """The record of a step whose append failed after it was written: that which it writes where appends succeed."""
    twin = run_model(case)
    for step in case["steps"][:number]:
        before = twin.apply(step["op"], step.get("args", {})).state
    count = before["log_count"] if number else 0
    failed = case["steps"][number]
    state = twin.apply(failed["op"], failed["args"] | {"append": "ok"}).state
    if state["log_count"] == count + 1:
        last = state["last_log_record"]
        yield Written(last["tid"], None if last.get("tombstone") else last)


def _empty(value: Args) -> bool:
    return bool(value.get("state", "Empty") == "Empty")


def _loaded(read: list[Args]) -> Iterator[Written]:
    for record in read:
        if not record.get("unknown_key"):
            value = record.get("value")
            yield Written(record["transactional_id"], None if value is None else sound(value))


def sound(value: Args) -> Args:
    """What a case begins with, as a coordinator would have written it: unit tests make up what they do not look at."""
    if (state := value.get("state", "Empty")) == "Empty":
        return value | {"start_ts": -1, "partitions": []}
    started = value.get("start_ts", -1)
    ended: Args = {"partitions": []} if state.startswith("Complete") else {}
    return value | {"start_ts": started if started >= 0 else value.get("last_update_ts", 0)} | ended


def forbidden(case: Args) -> Written | None:
    """The record of a transition that the case has the coordinator refuse as illegal."""
    for step in case["steps"]:
        if step["op"] == "prepare_rotation" and step["expect"].get("error") == "ILLEGAL_STATE":
            args = step["args"]
            value = {"producer_id": args["new_producer_id"], "producer_epoch": 0, "state": "Empty"}
            return Written(args["transactional_id"], value | {"last_update_ts": args["now"]})
    return None


def write(log: Coordinator, case: str, number: int, written: list[Written]) -> None:
    """Writes the records of a case behind those of the others."""
    times = [w.value.get("last_update_ts", 0) for w in written if w.value]
    shift = BEGAN + number * APART_MS - min(times, default=0)
    now = shift + min(times, default=0)
    for one in written:
        if one.loads:
            log.load()
            continue
        if one.value is None:
            log.forget(f"{case}/{one.name}", now)
            continue
        value = one.value
        updated, start = value.get("last_update_ts", 0), value.get("start_ts", -1)
        now = max(now, shift + updated)
        version = value.get("client_tv", 0)
        log.state(
            f"{case}/{one.name}", value.get("state", "Empty"),
            (value["producer_id"] + number * PRODUCERS, value["producer_epoch"]), shift + updated,
            *sorted(value.get("partitions") or ()), start=start if start < 0 else shift + start,
            timeout=value.get("timeout_ms", 30_000), client=version, written=now,
        )  # fmt: skip
