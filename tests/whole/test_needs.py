"""A log that has nothing which a rule needs never meets the rule: it must have had nothing to say of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from auditor.facts.events import NO_EVENTS
from auditor.facts.replica_facts import NO_ABORTED, NO_EXPOSED, NO_PRODUCERS, NO_TRANSACTIONS
from auditor.rules.catalogue import registry
from auditor.rules.catalogue.kinds import Need
from auditor.rules.catalogue.registry import HAS, Kind, there
from auditor.rules.seen.view import LogView
from tests import corpora
from tests.facts import corpus_logs

# What makes a log one without: the fields of its replicas that say so, and what they are then.
TAKEN_AWAY = {
    Need.EVENTS: {"events": NO_EVENTS},
    Need.ERRORS: {"errors": []},
    Need.AHEAD: {"ahead": None},
    Need.PRODUCERS: {"producers": NO_PRODUCERS},
    Need.TRANSACTIONS: {"transactions": NO_TRANSACTIONS},
    Need.ABORTED: {"aborted": NO_ABORTED},
    Need.EXPOSED: {"exposed": NO_EXPOSED},
    Need.SNAPSHOTS: {"snapshots": []},
    Need.SHARE_OFFSETS: {"share_offsets": []},
}  # fmt: skip
ASKED_ALWAYS = {"checkpoint-beyond-log-end"}  # nearly every log has checkpoints


def logs(name: str) -> tuple[LogView, ...]:
    as_of = corpora.manifest(name).get("as_of", corpora.manifest(name)["copied_at"])
    return corpus_logs(name, records=True, as_of=as_of)


def without(log: LogView, need: Need) -> LogView:
    replicas = [copy.copy(replica) for replica in log.replicas]
    for replica in replicas:
        for name, nothing in TAKEN_AWAY[need].items():
            setattr(replica, name, nothing)
    return LogView(replicas, log.cluster)


def not_asked(log: LogView) -> Iterator[Kind]:
    has = there(log)
    return (each for each in registry.kinds().values() if not each.what_if and not each.may_speak(has))


@pytest.mark.parametrize("name", [*corpora.judged(), *corpora.campaigns()])
def test_of_a_log_without_its_need_a_rule_has_nothing_to_say(name: str) -> None:
    for log in logs(name):
        for each in not_asked(log):
            assert not list(each.check(log)), (each.id, log.name)
        for need in TAKEN_AWAY.keys() & there(log):
            less = without(log, need)
            for each in not_asked(less):
                assert need not in each.needs or not list(each.check(less)), (each.id, need, log.name)


def test_each_need_is_told_apart_by_logs_of_real_brokers() -> None:
    names = (
        "altered-41",
        "clock-step5-43",
        "cut-off-43",
        "groups-43",
        "index-hides-abort-43",
        "legacy-0102",
        "tiered-43",
    )
    found = [there(log) for name in names for log in logs(name)]
    # Running brokers alone show the first, incidents the second, damaged directories the third (test_starts.py).
    for need in HAS.keys() - {Need.MEMORY, Need.LOST_FILES, Need.STARTS}:
        assert len({need in has for has in found}) == 2, need


def test_every_rule_declares_what_it_needs() -> None:
    undeclared = {each.id for each in registry.kinds().values() if not each.needs and not each.what_if}
    assert undeclared == ASKED_ALWAYS
    assert HAS.keys() == set(Need)
