"""Commands that findings give to copy: a name from the input is one word of them, whatever it holds."""

from __future__ import annotations

import shlex

import pytest

from auditor.facts.coordinator_history import StateRecord, build_history
from auditor.rules.catalogue import registry
from auditor.rules.lib import repairs
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import LogView
from tests import made

HOSTILE = "pay'; rm -rf ~; echo '$(id) `id` \"x\" ; --"
TOPIC = "__transaction_state"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (repairs.abort(HOSTILE, 3, 71), ["abort", "--topic", HOSTILE, "--partition", "3", "--start-offset", "71"]),
        (repairs.describe_producers(HOSTILE, 3), ["describe-producers", "--topic", HOSTILE, "--partition", "3"]),
        (repairs.describe_id(HOSTILE), ["describe", "--transactional-id", HOSTILE]),
        (repairs.find_hanging(HOSTILE), ["find-hanging", "--topic", HOSTILE]),
        (
            repairs.reset_offset(HOSTILE, HOSTILE, 3, 71),
            ["--group", HOSTILE, "--topic", f"{HOSTILE}:3", "--reset-offsets", "--to-offset", "71", "--dry-run"],
        ),
        (repairs.dump(HOSTILE, "--deep-iteration"), ["--files", HOSTILE, "--deep-iteration"]),
    ],
)
def test_a_name_is_one_word(command: str, words: list[str]) -> None:
    assert shlex.split(command)[-len(words) :] == words


def test_the_id_of_a_transaction_that_stands_still_is_one_word() -> None:
    """Any client may choose it; the coordinator only asks that it is not empty."""
    entry = StateRecord(0, 5, 0, 0, HOSTILE, "Ongoing", 7, 0, 60_000, frozenset({"t-0"}), False, 0, 0, 0, "0.log", 0, 1)
    cluster = Cluster(as_of=3_600_000, newest_time=3_600_000, coordinator=build_history(1, [entry]))
    log = LogView([made.facts(TOPIC)], cluster)
    (found,) = registry.judge(log, [registry.kinds()["timeout-not-enforced"]])
    assert shlex.split(found.advice.checks[0].command if found.advice else "")[:6] == [
        "kafka-transactions.sh", "--bootstrap-server", "B", "describe", "--transactional-id", HOSTILE,
    ]  # fmt: skip
