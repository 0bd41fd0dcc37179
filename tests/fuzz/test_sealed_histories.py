"""Histories with extreme numbers under right checksums, audited every way: ``FUZZ_SEALED`` of them, always the same;
``make nightly`` has others every night. And all that ever failed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from auditor.connectors.codec.batches import FLAW_CRC
from tests import segments
from tests.fuzz import every_way, sealed_histories
from tests.fuzz.every_way import Failure, apart, differences
from tests.fuzz.sealed_histories import AGES, EDGES, History

SEED = 54
SEALED = int(os.environ.get("FUZZ_SEALED", "8"))
ONCE = [
    (2, 47),  # offsets of __cluster_metadata that lie outside its segment: corrected in a copy alone
    (6, 13),  # a partition whose first segment is named beyond 2^60: its own start was not bounded as its end was
    (7, 601),  # a committed offset in a segment without a byte: its first batch was asked for
    (8, 116),  # a base offset between wrong ones, inferred from elsewhere than in the audit: records were exposed
    (8, 187),  # an offset index in no order, searched as if it were: exposed by what else was asked for
    (4, 10),  # a batch of a damaged magic that reads as another one: its records were blamed
]


@pytest.mark.parametrize("number", range(SEALED))
def test_extreme_numbers_under_right_checksums_are_audited_every_way(number: int) -> None:
    assert every_way.failures(SEED, number) == []


@pytest.mark.parametrize(("seed", "number"), ONCE)
def test_what_failed_once_is_audited(seed: int, number: int) -> None:
    assert every_way.failures(seed, number) == []


def test_a_history_that_ended_the_process_is_audited() -> None:
    """A return to sequence 0 without an older run: a kernel wrote outside its table."""
    assert [f for f in every_way.failures(1, 18) if f.cause.startswith(("signal", "exit"))] == []


def test_a_history_is_its_number() -> None:
    trees = [History(1, number).tree for number in range(12)]
    assert trees == [History(1, number).tree for number in range(12)]
    assert len({repr(sorted(tree)) for tree in trees}) > 8


def test_all_ages_and_extremes_are_drawn() -> None:
    histories = [History(1, number) for number in range(60)]
    assert {one.age for one in histories} == set(AGES)
    assert {one.brokers for one in histories} == {1, 2, 3}
    assert {one.share for one in histories} == set(sealed_histories.SHARES)
    drawn = Counter(one.number(5, 64) for one in histories for _ in range(200))
    assert len([edge for edge in EDGES if drawn[edge]]) > len(EDGES) // 2
    assert all(-(1 << 15) <= one.number(5, 16) < 1 << 15 for one in histories for _ in range(200))


def test_the_checksums_of_nearly_all_batches_are_right() -> None:
    """But for those whose magic is one of the edges: another checksum, of other bytes, would be theirs."""
    trees = [History(1, number).tree for number in range(10)]
    logs = [data for tree in trees for name, data in tree.items() if name.endswith(".log")]
    flaws = np.concatenate([chunk.batches.flaws for data in logs for chunk in segments.chunks(data)])
    assert len(flaws) > 500
    assert np.count_nonzero(flaws & FLAW_CRC) < len(flaws) / 50


def test_what_goes_wrong_in_a_process_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception on a way, a signal, an end of the process, gigabytes, and time."""

    def killed() -> Iterator[Failure]:
        yield Failure("plain", "first")
        os.kill(os.getpid(), signal.SIGSEGV)

    def fails() -> Iterator[Failure]:
        yield from ()
        raise ZeroDivisionError

    def large() -> Iterator[Failure]:
        bytearray(1 << 20).extend(b"x" * (256 << 20))  # what is mapped of files counts for the parent alone
        yield from ()

    def slow() -> Iterator[Failure]:
        began = time.process_time()
        while time.process_time() - began < 60:
            pass
        yield from ()

    assert [f.cause for f in apart(tmp_path, killed)] == ["first", "signal 11"]
    (tmp_path / "2").mkdir()
    assert [f.cause for f in apart(tmp_path / "2", fails)] == ["exit 1"]
    monkeypatch.setattr(every_way, "MOST_BYTES", 32 << 20)
    (tmp_path / "3").mkdir()
    assert [f.cause for f in apart(tmp_path / "3", large)] == ["memory"]
    monkeypatch.setattr(every_way, "PATIENCE_S", 1)
    (tmp_path / "4").mkdir()
    assert f"signal {signal.SIGPROF.value}" in [f.cause for f in apart(tmp_path / "4", slow)]


def test_findings_that_differ_are_named() -> None:
    one = '{"fingerprint":"a","rule":"r","severity":"error","message":"m","evidence":{"x":1}}'
    other = one.replace('"x":1', '"x":2')
    assert differences([one], [one]) == []
    assert differences([one], [other]) == ["~ r x: 1 | 2"]
    assert differences([one], every_way.NOTHING) == ["- r error: m"]
