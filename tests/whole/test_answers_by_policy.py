"""What a leader would have answered to a stored batch is told by its broker's policy: by --policy, and by what an input
shows. Answers are those of ProducerAppendInfo.checkSequence in the releases of each policy (KIP-360, KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.facts.events import EventKind
from auditor.model.policies import (
    CHOICES,
    DUPLICATE,
    DUPLICATE_SEQUENCE_NUMBER,
    OK,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
)
from tests import bare_broker
from tests.bare_broker import BEGAN, data, finish
from tests.controller_records import Controller
from tests.facts import logs_below
from tests.forge import Forged

LOG = "a-0"
FIRST, TRANSACTIONAL, AGAIN = 7, 8, 9  # producers: who begin above 0, and who has its last batch but one stored again
TRANSACTION_VERSION = "transaction.version"


def incident(root: Path, *folders: str) -> Path:
    """A partition with a batch of each kind that policies answer differently; ``folders``: what is there beside it."""
    path = bare_broker.broker(root, LOG, *folders)
    log = Forged(path, LOG)
    data(log, FIRST, 5, BEGAN)
    data(log, TRANSACTIONAL, 5, BEGAN, transactional=True)
    first = data(log, AGAIN, 0, BEGAN)
    data(log, AGAIN, 3, BEGAN + 1)
    log.next(first)
    finish(log)
    return path


def answers(root: Path, wanted: str = "auto") -> dict[int, int]:
    """What the audit says that the leader of the partition had answered, by producer."""
    log = next(log for log in logs_below(root, wanted=wanted) if log.topic == "a")
    events = [*log.events(EventKind.FIRST_NONZERO), *log.events(EventKind.SEQUENCE_OVERLAP)]
    return {int(e["producer_id"]): int(e["answer"]) for e in events}


# Of an unknown producer any first sequence is taken since 2.5, but of clients of version 2; the draft knows one batch.
SINCE_2_5 = {FIRST: OK, TRANSACTIONAL: OK, AGAIN: DUPLICATE}
BEFORE = {FIRST: UNKNOWN_PRODUCER_ID, TRANSACTIONAL: UNKNOWN_PRODUCER_ID, AGAIN: DUPLICATE}
VERSION_2 = SINCE_2_5 | {TRANSACTIONAL: OUT_OF_ORDER_SEQUENCE_NUMBER}
BY_NAME = {
    "auto": SINCE_2_5, "pre-kip-360": BEFORE, "kip-360-text": BEFORE, "kip-360": SINCE_2_5, "kip-890": SINCE_2_5,
    "kip-890-p1": SINCE_2_5, "kip-890-p2": VERSION_2,
    "latest-batch-only": SINCE_2_5 | {AGAIN: DUPLICATE_SEQUENCE_NUMBER},
}  # fmt: skip


@pytest.mark.parametrize("wanted", CHOICES)
def test_a_policy_that_is_asked_for_answers(tmp_path: Path, wanted: str) -> None:
    incident(tmp_path)
    assert answers(tmp_path, wanted) == BY_NAME[wanted]


def test_a_directory_without_a_cluster_id_is_of_brokers_before_2_4(tmp_path: Path) -> None:
    properties = incident(tmp_path) / "meta.properties"
    properties.write_text("version=0\nbroker.id=1\n")
    (tmp_path / "server-1.properties").write_text("broker.id=1\nlog.dirs=broker-1\n")
    assert answers(tmp_path) == BEFORE
    assert answers(tmp_path, "kip-360") == SINCE_2_5


def test_brokers_of_0_11_had_one_answer_for_both(tmp_path: Path) -> None:
    """UNKNOWN_PRODUCER_ID came with 1.0."""
    (incident(tmp_path) / "meta.properties").write_text("version=0\nbroker.id=1\n")
    settings = "broker.id=1\nlog.dirs=broker-1\ninter.broker.protocol.version=0.11.0\n"
    (tmp_path / "server-1.properties").write_text(settings)
    out = OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answers(tmp_path) == {FIRST: out, TRANSACTIONAL: out, AGAIN: DUPLICATE}


@pytest.mark.parametrize(("level", "expected"), [(0, SINCE_2_5), (1, SINCE_2_5), (2, VERSION_2)])
def test_the_feature_of_the_cluster_answers(tmp_path: Path, level: int, expected: dict[int, int]) -> None:
    """transaction.version 2 lets a leader know that a client of KIP-890 begins at 0; a policy by name stands above."""
    controller = Controller(incident(tmp_path, "__cluster_metadata-0"), BEGAN)
    controller.feature(TRANSACTION_VERSION, level)
    controller.save()
    assert answers(tmp_path) == expected
    assert answers(tmp_path, "kip-360") == SINCE_2_5
    assert answers(tmp_path, "pre-kip-360") == BEFORE
