"""A history under other policies: the conformance cases as oracle, then what a what-if adds to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auditor.connectors.codec.batches import FLAW_CRC, rows_of
from auditor.facts.replica_facts import ReplicaPolicyOutcome, state_bytes
from auditor.model import policies
from auditor.model import policies as model
from auditor.replay.producers import policy_kernel as pol
from auditor.replay.producers.audit_replay import ReplicaBounds
from auditor.replay.task import FAR, PolicySettings
from tests import corpora
from tests.made import batches, data, marker
from tests.unit.policy_worlds import World

CASES = json.loads((corpora.CONFORMANCE / "policies.json").read_text(encoding="utf-8"))["cases"]
CODES = {name: code for code, name in model.ERRORS.items()}
DAY = 86_400_000


def world(policy: str, **given: int) -> World:
    """A replica before its first batch, from offset 0, with sequences, nothing cleaned and no retention."""
    limits = {"check_ms": 600_000, "retention_ms": -1, "retention_bytes": -1, "expiration_ms": DAY}
    settings = {name: given.pop(name, value) for name, value in limits.items()}
    newest_time = given.pop("newest_time", FAR)
    nothing = {"log_start": 0, "intact_from": 0, "sequences": True, "broker_times": False,
               "kraft": False, "expiration_ms": DAY}  # fmt: skip
    bounds = ReplicaBounds(**{**nothing, **given})  # type: ignore[arg-type]
    return World([PolicySettings(policy, model.POLICIES[policy], **settings)], bounds, newest_time=newest_time)


def replay(policy: str, *rows: dict[str, Any], w: World | None = None, **given: int) -> World:
    w = w or world(policy, **given)
    w.take(rows_of(batches(*rows)))
    return w


def outcome(w: World) -> ReplicaPolicyOutcome:
    (only,) = w.finish().by_policy.values()
    return only


def verdicts(w: World, *names: str) -> list[Any]:
    names = names or ("error", "base_offset")
    return [tuple(int(row[name]) for name in names) for row in outcome(w).verdicts]


def replayable(case: dict[str, Any]) -> bool:
    """Cases of client appends and markers alone, in which verification plays no part."""
    if case["model"] != "producer_state" or case["initial"].get("config"):
        return False
    fits = {"append_batch": ("client",), "append_marker": ("coordinator", "client")}
    return all(step["args"].get("origin") in fits.get(step["op"], ()) for step in case["steps"])


def row_of(step: dict[str, Any]) -> dict[str, Any]:
    a = step["args"]
    if step["op"] == "append_marker":
        return marker(
            a["offset"],
            a["epoch"],
            pid=a["pid"],
            coordinator_epoch=a["coordinator_epoch"],
            commit=a["type"] == "COMMIT",
        )
    return data(
        a["first_offset"], a["first_seq"], a["last_offset"] - a["first_offset"] + 1, pid=a["pid"],
        producer_epoch=a["epoch"], max_timestamp=a["timestamp"], transactional=a["transactional"],
    )  # fmt: skip


@pytest.mark.parametrize("case", [c for c in CASES if replayable(c)], ids=lambda c: c["id"])
def test_the_first_answer_that_differs_is_that_of_the_conformance_case(case: dict[str, Any]) -> None:
    outcomes = [step["expect"]["outcome"] for step in case["steps"]]
    stop = next((k for k, outcome in enumerate(outcomes) if outcome != "accepted"), len(outcomes) - 1)
    found = verdicts(replay(case["policy"], *[row_of(step) for step in case["steps"][: stop + 1]]), "error")
    if outcomes[stop] == "accepted":
        assert found == []
    else:
        expect = case["steps"][stop]["expect"]
        assert found == [(CODES[expect["error"]] if outcomes[stop] == "error" else model.DUPLICATE,)]


def test_enough_cases_are_replayed_to_mean_something() -> None:
    chosen = [c for c in CASES if replayable(c)]
    assert len(chosen) >= 50
    assert {c["policy"] for c in chosen} == set(model.POLICIES)


def test_after_a_refusal_the_history_goes_on_as_stored() -> None:
    """One missing batch is one verdict, not one for every batch behind it."""
    assert verdicts(replay("kip-360", data(0, 0), data(1, 5), data(2, 6), data(3, 7))) == [(45, 1)]


def test_a_run_is_reported_once_with_its_length() -> None:
    rows = [data(0, 0), data(1, 5), data(2, 9), data(3, 20), data(4, 21), data(5, 40)]
    names = ("error", "base_offset", "batches", "records", "run_last_offset")
    assert verdicts(replay("kip-360", *rows), *names) == [(45, 1, 3, 3, 3), (45, 5, 1, 1, 5)]


def test_a_producer_first_seen_above_zero_is_unknown_only_where_nothing_was_removed_before() -> None:
    assert verdicts(replay("pre-kip-360", data(0, 40))) == [(59, 0)]
    assert verdicts(replay("kip-360", data(0, 40))) == []
    assert verdicts(replay("pre-kip-360", data(10, 40), log_start=10)) == []


def test_version_two_clients_must_begin_at_zero() -> None:
    names = ("error", "base_offset", "transactional")
    assert verdicts(replay("kip-890-p2", data(0, 40, transactional=True)), *names) == [(45, 0, 1)]
    assert verdicts(replay("kip-890-p2", data(0, 40))) == []
    assert verdicts(replay("pre-kip-360", data(0, 40)), *names) == [(59, 0, 0)]


def test_what_lies_below_the_log_start_is_known_and_not_judged() -> None:
    rows = [data(0, 40), data(1, 60), data(2, 61)]
    assert verdicts(replay("pre-kip-360", *rows, log_start=2)) == []


def test_retention_takes_the_producer_with_its_last_segment_before_kip_360() -> None:
    """Row 14 of the decision table: the next sequence is refused once the log start has passed all its data."""
    for policy, expected in (("pre-kip-360", [(59, 2)]), ("kip-360", []), ("latest-batch-only", [])):
        w = replay(policy, data(0, 0, max_timestamp=0), retention_ms=1_000, expiration_ms=10 * DAY)
        w.end_segment(1)
        w = replay(policy, data(1, 0, pid=2, max_timestamp=2_000), data(2, 1, max_timestamp=2_001), w=w)
        assert verdicts(w) == expected


def test_size_retention_takes_whole_segments() -> None:
    w = replay("pre-kip-360", data(0, 0), retention_bytes=150)
    w.end_segment(1)
    w = replay("pre-kip-360", data(1, 0, pid=2), data(2, 1), w=w)
    assert verdicts(w) == [(59, 2)]  # the log had 300 bytes by then, of which 100 were in the first segment


def test_expiry_makes_the_next_write_one_of_an_unknown_producer() -> None:
    """Row 22, with the sweep that brokers make every ten minutes."""
    rows = [data(0, 0, max_timestamp=0), data(1, 1, max_timestamp=DAY)]
    assert verdicts(replay("kip-360-text", *rows)) == [(59, 1)]
    w = replay("kip-360", *rows)
    assert verdicts(w) == []
    assert outcome(w).forgotten == 1
    early = [data(0, 0, max_timestamp=0), data(1, 1, max_timestamp=DAY - 1)]
    assert verdicts(replay("kip-360-text", *early)) == []


def test_no_producer_clock_is_believed_beyond_the_newest_time_of_the_input() -> None:
    rows = [data(0, 0, max_timestamp=0), data(1, 0, pid=2, max_timestamp=9 * DAY), data(2, 1, max_timestamp=1)]
    assert verdicts(replay("kip-360-text", *rows)) == [(59, 2)]
    assert verdicts(replay("kip-360-text", *rows, newest_time=1_000)) == []


def test_cleaned_and_unreadable_stretches_prove_nothing() -> None:
    assert verdicts(replay("kip-360", data(0, 0), data(9, 9), intact_from=5)) == []
    assert verdicts(replay("pre-kip-360", data(9, 9), intact_from=5)) == []
    assert verdicts(replay("kip-360", data(5, 0), data(6, 9), intact_from=5)) == [(45, 6)]
    broken = data(1, 1, flaws=FLAW_CRC)
    assert verdicts(replay("kip-360", data(0, 0), broken, data(2, 2))) == []
    assert verdicts(replay("kip-360", data(0, 0), broken, data(2, 2), data(3, 9))) == [(45, 3)]


def test_topics_whose_sequences_mean_nothing_are_judged_by_epochs_alone() -> None:
    rows = [data(0, 0, producer_epoch=1), data(1, 0, producer_epoch=1), data(2, 0)]
    assert verdicts(replay("kip-360", *rows, sequences=False)) == [(47, 2)]


def test_markers_of_old_epochs_and_old_coordinators_are_refused() -> None:
    rows = [marker(0, 3, coordinator_epoch=7), marker(1, 3, coordinator_epoch=6), marker(2, 2, coordinator_epoch=7)]
    assert verdicts(replay("kip-360", *rows)) == [(52, 1), (47, 2)]


def test_a_verdict_on_a_marker_has_no_sequences() -> None:
    """Nor those of the batch whose place in the replay's buffer it has."""
    w = replay("kip-360", *(data(offset, 5 + offset % 2, 1) for offset in range(8)))  # sequences 5, 6, 5, 6, ...
    rows = [marker(8, 3), marker(9, 2), marker(10, 1)]
    w = replay("kip-360", *rows, w=w)
    names = ("base_offset", "base_sequence", "last_sequence", "stored_before")
    assert [row for row in verdicts(w, *names) if row[0] >= 8] == [(9, -1, -1, 0)]


def test_the_draft_calls_what_was_never_written_a_duplicate() -> None:
    """An unknown producer is taken at 100; 50 then is within the window, and stored nowhere (semantics 2.5)."""
    names = ("error", "base_offset", "stored_before")
    assert verdicts(replay("latest-batch-only", data(0, 100), data(1, 50)), *names) == [(46, 1, 0)]
    repeated = [data(0, 0), data(1, 1), data(2, 2), data(3, 0)]
    assert verdicts(replay("latest-batch-only", *repeated), *names) == [(46, 3, 1)]


def test_a_range_of_an_earlier_run_is_remembered_within_its_epoch_only() -> None:
    names = ("base_offset", "stored_before")
    rows = [data(0, 100), data(1, 0), data(2, 100, producer_epoch=1), data(3, 50, producer_epoch=1)]
    assert verdicts(replay("latest-batch-only", *rows), *names)[-1] == (3, 0)
    rows = [data(0, 100), data(1, 40), data(2, 300), data(3, 100)]
    assert verdicts(replay("latest-batch-only", *rows), *names)[-1] == (3, 1)


def test_what_lies_below_the_log_start_was_stored_before() -> None:
    names = ("base_offset", "stored_before")
    below = [data(0, 0), data(1, 1), data(2, 2)]
    assert verdicts(replay("latest-batch-only", *below, data(3, 1), log_start=3), *names) == [(3, 1)]
    never = [data(0, 0), data(1, 5), data(2, 6)]
    assert verdicts(replay("latest-batch-only", *never, data(3, 3), log_start=3), *names) == [(3, 0)]


def test_state_is_weighed_at_its_peak() -> None:
    """224 bytes a producer and 40 a cached batch, five of them or, with the draft, one (semantics 2.6)."""
    rows = [data(k, k) for k in range(7)] + [data(7, 0, pid=2)]
    late = data(8, 1, pid=2, max_timestamp=2 * DAY)
    for policy, batches_kept in (("kip-360", 6), ("latest-batch-only", 2)):
        w = replay(policy, *rows, late)
        found = outcome(w)
        assert (found.producers_peak, found.bytes_peak) == (2, 2 * 224 + batches_kept * 40)
        assert (found.producers_end, found.bytes_end) == (1, 224 + 40)  # both had expired, one came back


def test_a_marker_of_a_new_epoch_empties_the_cache() -> None:
    w = replay("kip-890-p2", data(0, 0, transactional=True), data(1, 1, transactional=True), marker(2, 1))
    assert (outcome(w).producers_end, outcome(w).bytes_end, outcome(w).bytes_peak) == (1, 224, 224 + 80)


@pytest.mark.parametrize(
    "rows",
    [
        [data(0, 2**31 - 2, 2), data(2, 0)],
        [data(0, 2**31 - 2), data(1, 2**31 - 1), data(2, 0)],
        [data(0, 2**31 - 2), data(1, 2**31 - 1, 2)],
    ],
)
def test_wraparounds_are_counted(rows: list[dict[str, Any]]) -> None:
    w = replay("kip-360", *rows)
    assert (w.finish().wraps, verdicts(w)) == ((1, 0), [])


def test_more_verdicts_than_are_kept_are_counted() -> None:
    rows = [data(k, 7, pid=k) for k in range(pol.MAX_VERDICTS + 3)]
    w = replay("pre-kip-360", *rows)
    assert (len(outcome(w).verdicts), outcome(w).dropped) == (pol.MAX_VERDICTS, 3)


def test_unreadable_bytes_prove_nothing_about_what_spans_them() -> None:
    w = replay("kip-360", data(0, 0), data(1, 0, pid=2))
    w.note_unreadable(lost=True)
    replay("kip-360", data(2, 9), data(3, 10), data(4, 30), w=w)
    assert verdicts(w) == [(45, 4)]  # the first gap may be what could not be read; the second cannot
    replay("kip-360", data(5, 1, pid=2), w=w)
    assert verdicts(w) == [(45, 4)]


def test_the_most_sequences_under_way_are_those_of_five_batches_of_one_epoch() -> None:
    lengths = [100, 1, 2, 3, 4, 5, 6]
    rows = [data(sum(lengths[:k]), sum(lengths[:k]), n) for k, n in enumerate(lengths)]
    assert replay("kip-360", *rows).finish().span == 100 + 1 + 2 + 3 + 4
    later = [data(200, 0, 60, producer_epoch=1), data(260, 60, 61, producer_epoch=1)]
    assert replay("kip-360", *rows, *later).finish().span == 60 + 61


def test_policies_that_could_not_differ_are_replayed_once() -> None:
    settings = [PolicySettings(name, policy) for name, policy in model.POLICIES.items()]
    w = World(settings)
    w.take(rows_of(batches(data(0, 7))))
    found = w.finish().by_policy
    assert (len(w.policies.worlds), set(found)) == (
        len(model.POLICIES) - 1,
        set(model.POLICIES),
    )  # kip-360 and kip-890-p1
    assert {name for name, o in found.items() if len(o.verdicts)} == {"pre-kip-360", "kip-360-text"}


def test_brokers_of_0_11_had_no_unknown_producer() -> None:
    """Their answer is OUT_OF_ORDER_SEQUENCE_NUMBER: the error came with 1.0 (corrections.md)."""
    old = policies.policy_at("pre-kip-360", policies.shown_by(protocol="0.11.0-IV2"))
    for policy, error in ((old, 45), (policies.policy_at("pre-kip-360", policies.UNKNOWN), 59)):
        w = World([PolicySettings("x", policy)])
        w.take(rows_of(batches(data(0, 40))))
        assert verdicts(w) == [(error, 0)]


def test_state_is_priced_by_producers_and_batches() -> None:
    assert state_bytes(2, 7) == 2 * 224 + 7 * 40
