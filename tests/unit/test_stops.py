"""The gate before a broker is stopped or a folder is moved: every combination of what the metadata may show.

What has to come out is told here by other means than the gate's: whether anything could be lost, and who would know.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.base.advice import Advice, Moves, Step, Verdict
from auditor.base.advice import text as advice_text
from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.facts.replica_facts import ReplicaFacts
from auditor.model.policies import ReleaseEvidence
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.registry import Kind
from auditor.rules.lib import repairs
from auditor.rules.seen.cluster_view import Alone, Cluster
from auditor.rules.seen.view import LogView
from tests.facts import log_of
from tests.made import facts

OTHER, MINE = "s-7", ("t", 0)
ACT = Advice(Verdict.ACT, "it loses nothing", steps=(Step("stop broker 1, and start it"),), moves=Moves(1, (2,)))
SEEN = ("unknown", "alone", "others")  # what the metadata says of who is in sync
UNCLEAN = {"on": "true", "off": "false", "unset": None}
VOTERS: dict[str, tuple[int, ...]] = {
    "none": (),
    "others": (2, 3, 4),
    "alone": (1,),
    "of two": (1, 2),
    "of three": (1, 2, 3),
}


def cluster(seen: str, unclean: str = "unset", voters: str = "none", short: bool = False, **given: Any) -> Cluster:
    known = Cluster(as_of=0, newest_time=0, has_metadata=seen != "unknown", voters=VOTERS[voters], **given)
    known.alone_in_sync = {1: [OTHER]} if seen == "alone" else {}
    known.topic_configs = {"s": {repairs.UNCLEAN: value}} if (value := UNCLEAN[unclean]) else {}
    known.short_without = {1: (OTHER, 3)} if short else {}
    return known


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize(("seen", "unclean", "voters"), itertools.product(SEEN, UNCLEAN, VOTERS))
def test_every_state_of_a_broker_that_is_to_be_stopped(seen: str, unclean: str, voters: str, short: bool) -> None:
    advice = repairs.gated(cluster(seen, unclean, voters, short), 1, ACT)
    stalls = voters == "of two"  # one of two voters is no majority
    safe = seen == "others" and not stalls
    assert advice.verdict == ("act" if safe else "investigate_first")
    assert advice.acts == safe
    later = advice_text(advice.row()).partition("Take these steps only after all conditions are confirmed. ")[2]
    assert ("Stop broker 1, and start it" in later) != safe
    assert advice.moves == ACT.moves  # what is to be moved counts for other findings' advices, too
    assert ("writes with acks=all to 3 partitions (such as s-7) fail" in advice.side_effects) == short
    quorum = [look for look in advice.checks if "metadata-quorum" in look.command]
    assert bool(quorum) == (voters in ("of two", "of three"))


DEFECT = {
    "no release shown": {},
    "4.0 or newer": {1: ReleaseEvidence((4, 0))},
    "2.8": {1: ReleaseEvidence((2, 8), (2, 9))},
}


@pytest.mark.parametrize("releases", DEFECT)
@pytest.mark.parametrize("names", [(), ("leg-1",), tuple(f"leg-{n}" for n in range(9))], ids=len)
@pytest.mark.parametrize("ids", [None, 0, 2, 9])
@pytest.mark.parametrize("acts", [True, False])
def test_a_stop_names_what_it_puts_at_risk(releases: str, names: tuple[str, ...], ids: int | None, acts: bool) -> None:
    """Partitions without another in-sync replica, and the ids with data there; what comes first where the coordinator
    may skip their markers, which is said of releases where the input does not show one."""
    known = cluster("others", releases=DEFECT[releases], alone={1: Alone(names)} if names else {})
    if ids is not None:
        entries = [ongoing(f"id-{n}", n, names) for n in range(ids)]
        known.coordinator = build_history(1, entries)
    advice = repairs.at_risk(known, 1, ACT if acts else replace(ACT, verdict=Verdict.INVESTIGATE_FIRST, steps=()))
    text = advice_text(advice.row())
    assert "without another in-sync replica" in text
    assert all(name in text for name in names[:5])
    assert ("and 4 more" in text) == (len(names) == 9 or (ids == 9 and bool(names)))
    assert any(look.command.endswith("--describe") for look in advice.checks)
    if names:
        assert {"id-0", "id-1"} <= set(re.findall(r"id-\d", text)) or not ids
        assert ("the input does not show the transactional ids with data there" in text) == (ids is None)
    first = bool(names) and releases != "2.8"
    assert ("if brokers run 4.3.0, 4.3.1 or 4.4.0 (KAFKA-20734)" in text) == first
    assert ("udit again after the start in any case" in text) == first
    if first:
        assert ("describe --transactional-id id-0" in text) == bool(ids)
        assert ("kafka-transactions.sh --bootstrap-server B list" in text) == (ids in (None, 0, 9))
    if acts:
        assert advice.steps[-1] == ACT.steps[0]  # the last step


def test_which_partitions_wait_is_not_known_without_the_metadata() -> None:
    advice = repairs.at_risk(Cluster(0, 0), 1, ACT)
    assert "the input does not show the partitions of broker 1 without another in-sync replica" in advice.side_effects
    assert "KAFKA-20734" in advice.steps[0].do


def ongoing(name: str, producer_id: int, partitions: tuple[str, ...]) -> StateRecord:
    """A transaction under way."""
    return StateRecord(
        0, producer_id, 1_000, 0, name, "Ongoing", producer_id, 0, 60_000, frozenset(partitions), False, 1_000, 1_000,
        2, "f", 0, 1,
    )  # fmt: skip


STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", None)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["a", "b", "c", "d", "p-0-1"]), st.sampled_from(STATES), st.integers(0, 4),
        st.sets(st.sampled_from(["leg-0", "leg-1", "other-1"])),
    ),
    max_size=30,
)  # fmt: skip


@given(RECORDS, st.sets(st.sampled_from(["leg-0", "leg-1", "away-9"])), st.sets(st.integers(0, 4)),
       st.sampled_from(["", "a", "nobody"]))  # fmt: skip
def test_the_ids_with_data_in_some_partitions(
    records: list[tuple[int, str, str | None, int, set[str]]], names: set[str], producers: set[int], but: str
) -> None:
    """Against the records one by one: who names a partition, or had a producer id last, and is not forgotten."""
    entries = [
        StateRecord(
            partition,
            offset,
            offset,
            0,
            name,
            state,
            producer,
            0,
            60_000,
            frozenset(parts),
            False,
            offset,
            offset,
            2,
            "f",
            0,
            1,
        )
        for offset, (partition, name, state, producer, parts) in enumerate(records)
    ]
    history = build_history(2, sorted(entries, key=lambda e: (e.partition, e.offset)))
    of_id = {name: [e for e in entries if e.transactional_id == name] for name in {e.transactional_id for e in entries}}
    last = {name: max(mine, key=lambda e: (e.partition, e.offset)) for name, mine in of_id.items()}
    wanted = {name for name, mine in of_id.items() if any(e.partitions & names for e in mine)}
    wanted |= {name for producer in producers if (name := history.owner(producer)) is not None}
    left = [name for name in wanted if last[name].state is not None and name != but]
    total, first = history.ids_in(tuple(sorted(names)), tuple(sorted(producers)), but)
    assert (total, sorted(first)) == (len(left), sorted(left))
    is_open = [last[name].state in ("Ongoing", "PrepareCommit", "PrepareAbort") for name in first]
    assert is_open == sorted(is_open, reverse=True)


@pytest.mark.parametrize("kind", registry.kinds().values(), ids=list(registry.kinds()))
def test_every_page_that_stops_a_broker_says_what_to_see_to(kind: Kind) -> None:
    text = " ".join(kind.sections["What to do"].split())
    if re.search(r"stop the broker|the broker stopped|restart the broker", text):
        assert "partitions without another in-sync replica" in text


def view(levels: dict[str, int], isr: tuple[int, ...], eligible: tuple[int, ...], least: str | None) -> LogView:
    made = [facts(broker_id=broker, log_dir=f"broker-{broker}", folder="t-0") for broker in (1, 2, 3)]
    known = cluster(
        "others", levels=levels, in_sync={MINE: (*isr, *eligible)}, eligible={MINE: eligible} if eligible else {}
    )
    known.topic_configs = {"t": {repairs.MIN_IN_SYNC: least}} if least else {}
    return log_of(made, known)


def of(log: LogView, broker: int) -> ReplicaFacts:
    return next(c for c in log.replicas if c.broker_id == broker)


@pytest.mark.parametrize("elr", [0, 1])
@pytest.mark.parametrize("least", [None, "1", "2", "3"])
@pytest.mark.parametrize(
    ("isr", "eligible"), [((1, 2, 3), ()), ((1, 2), ()), ((2, 3), ()), ((2, 3), (1,)), ((2,), (1,))]
)
def test_an_emptied_replica_may_not_be_eligible_to_lead(
    elr: int, least: str | None, isr: tuple[int, ...], eligible: tuple[int, ...]
) -> None:
    """KIP-966: who leaves fewer in sync than min.insync.replicas stays eligible, whatever is in its folder."""
    log = view({repairs.ELR: elr}, isr, eligible, least)
    advice = repairs.refetch(log, of(log, 1))
    left = set(isr) - {1}
    stays_out = elr == 0 or (least is not None and len(left) >= int(least) and 1 not in eligible)
    assert advice.verdict == ("act" if stays_out else "investigate_first")
    assert ("empty replica cannot lead" in repr(advice.conditions)) == bool(elr)
    assert set(advice.moves.sources) == left


@pytest.mark.parametrize(("voters", "kraft", "done"), [
    ("none", 0, "keep"),  # nothing shows who votes
    ("of three", 0, "keep"),  # a static quorum
    ("of three", 1, "leave"),
    ("others", 0, "act"),  # an observer
    ("others", 1, "act"),
])  # fmt: skip
def test_a_vote_is_never_moved_away(voters: str, kraft: int, done: str) -> None:
    """KIP-853: a voter leaves before its log is taken, and joins with one that it has fetched."""
    replica = facts(broker_id=1, log_dir="broker-1", folder="__cluster_metadata-0", topic="__cluster_metadata")
    known = cluster("others", voters=voters, levels={repairs.KRAFT: kraft}, directory_ids={"broker-1": "dir id"})
    advice = repairs.refetch(log_of([replica], known), replica)
    assert advice.verdict == ("act" if done == "act" else "investigate_first")
    assert advice.acts == (done == "act")
    assert all("kafka-metadata-quorum.sh" in look.command for look in advice.checks[:1])
    said = advice_text(advice.row())
    steps = [said.find(words) for words in ("remove-controller", "format", "add-controller")]
    if done == "leave":
        assert 0 < said.index("only after all conditions are confirmed") < steps[0] < steps[1] < steps[2]
        assert "--controller-id 1 --controller-directory-id 'dir id'" in said
    else:
        assert steps == [-1, -1, -1]
    assert ("Do not move" in advice.afterwards) == (done == "keep")


def test_a_gate_holds_for_the_observer_too() -> None:
    """Of an observer that has a partition in sync alone, others of which wait to be elected."""
    replica = facts(broker_id=1, log_dir="broker-1", folder="__cluster_metadata-0", topic="__cluster_metadata")
    advice = repairs.refetch(log_of([replica], cluster("alone", "on", "others")), replica)
    assert (advice.verdict, advice.acts) == ("investigate_first", False)
