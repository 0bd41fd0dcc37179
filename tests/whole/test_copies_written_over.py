"""An audit of a copy that a later one is written over: findings of before or of after, else it says that it is both.

The changes that the later copy makes in its folder are recorded once. They are then made again, in their order, while
an audit reads: all at once at any moment, some and no more (a copy that was killed, or waits), and a few at each file.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from auditor.connectors.logdir import copy_view
from auditor.connectors.logdir import copy_view as logdir_copy_view
from auditor.connectors.logdir.copy_view import CopyView
from auditor.connectors.logdir.inventory import MIXED
from auditor.copying import folders, run
from auditor.copying.run import copy_logs
from auditor.copying.target import FolderTarget
from auditor.pipeline.whole_audit import Audit
from tests import corpora
from tests.bare_broker import BEGAN, broker, data, end
from tests.changing_directory import live_copy
from tests.conftest import NIGHTLY
from tests.coordinator_records import Coordinator
from tests.copies import LIST
from tests.facts import opened_all
from tests.forge import Forged
from tests.whole.test_copied_one_by_one import checkpointed_at, copied_until, newest_time

READ, NEXT_NIGHT = BEGAN + 1_000, 86_400_000  # ms
APPEND_TIME = 0x08
TRIALS = 200 if NIGHTLY else 12


@pytest.fixture(autouse=True)
def any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "RACY_NS", -(1 << 62))


class Change(NamedTuple):
    """A file of the copy that a later one writes, or takes away where ``content`` is None."""

    file: str
    content: bytes | None


class Later:
    """A later copy over the one in ``copy``, which does what it did when it was recorded."""

    def __init__(self, copy: Path, changes: list[Change]) -> None:
        self.copy, self.left = copy, list(changes)

    def goes_on(self, count: int) -> None:
        """The next changes are made. Whoever reads is another process, and knows of none."""
        for file, content in self.left[:count]:
            path = self.copy / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                new = path.with_name(".partial-new")
                new.write_bytes(content)
                new.replace(path)
            copy_view.rows_of.cache_clear()
            copy_view._small.clear()
        del self.left[:count]


def changes_of(source: Path, copy: Path) -> list[Change]:
    """What copying ``source`` over ``copy`` changes, in the order in which it does."""
    found: list[Change] = []
    with pytest.MonkeyPatch.context() as patched:
        replace, remove = FolderTarget.replace, FolderTarget.remove

        def replaced(self: FolderTarget, name: str, path: Path, file: str = LIST) -> None:
            found.append(Change(f"{name}/{file}".lstrip("/"), path.read_bytes()))
            replace(self, name, path, file)

        def removed(self: FolderTarget, name: str, file: str) -> None:
            found.append(Change(f"{name}/{file}".lstrip("/"), None))
            remove(self, name, file)

        patched.setattr(FolderTarget, "replace", replaced)
        patched.setattr(FolderTarget, "remove", removed)
        copy_logs([str(source)], copy)
    return found


def audited(copy: Path | str, before_each: Callable[[int], None] = lambda _number: None) -> tuple[Audit, int]:
    """An audit that calls ``before_each`` before it reads a list or a file, with its number; how many there were."""
    read, one_at_a_time = 0, threading.Lock()
    with pytest.MonkeyPatch.context() as patched:
        a_file, a_list = CopyView.open, logdir_copy_view.list_of

        def looks(real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object) -> object:
                nonlocal read
                with one_at_a_time:  # lists of a store are read side by side
                    before_each(read)
                    read += 1
                return real(*args)

            return call

        patched.setattr(CopyView, "open", looks(a_file))
        patched.setattr(logdir_copy_view, "list_of", looks(a_list))
        audit = opened_all([str(copy)])
        _ = audit.findings
    return audit, read


def accused(audit: Audit) -> set[tuple[str, str | None, int | None]]:
    """Whom somebody would be woken for."""
    found = {(f.kind, f.topic, f.partition) for f in audit.findings if f.severity != "info"}
    return found | {
        (row["rule"], row["topic"], row["partition"])
        for row in audit.blocked
        if row["standing"] not in ("waiting", "unknown")
    }


def says_that_it_is_both(audit: Audit) -> bool:
    return any(error.detail == MIXED for _, error in audit.unread()) and audit.exit_code() == 3


class Written(NamedTuple):
    """A copy, what a later one changes in it, who is accused by an audit of either, and how much one reads."""

    copy: Path
    changes: list[Change]
    accused: set[tuple[str, str | None, int | None]]
    read: int

    def over(self, work: Path, before_each: Callable[[Later, int], None]) -> Audit:
        """An audit while the later copy is written over it as ``before_each`` has it go on."""
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.copy, work)
        later = Later(work, self.changes)
        audit, _ = audited(work, lambda number: before_each(later, number))
        assert accused(audit) <= self.accused, [f.message for f in audit.findings if f.severity != "info"]
        if 0 < len(later.left) < len(self.changes):
            assert says_that_it_is_both(audit)
        return audit


def written(tmp_path: Path, source: Path, replaced: Callable[[], None], **moments: int) -> Written:
    """A copy of ``source``, and a later one when it was ``replaced``; ``first`` and ``second``: when, where the broker
    runs."""
    with runs_at(source, moments.get("first")):
        copy_logs([str(source)], tmp_path / "copy")
    replaced()
    shutil.copytree(tmp_path / "copy", tmp_path / "later")
    with runs_at(source, moments.get("second")):
        changes = changes_of(source, tmp_path / "later")
    (before, read), (after, _) = audited(tmp_path / "copy"), audited(tmp_path / "later")
    for audit in (before, after):
        assert not says_that_it_is_both(audit)
    return Written(tmp_path / "copy", changes, accused(before) | accused(after), read)


@contextlib.contextmanager
def runs_at(source: Path, now: int | None) -> Iterator[None]:
    """While brokers hold the locks of their directories, and it is ``now`` (ms); None: while none runs."""
    with contextlib.ExitStack() as locks, pytest.MonkeyPatch.context() as patched:
        for meta in source.glob("*/meta.properties") if now is not None else ():
            fcntl.lockf(locks.enter_context((meta.parent / ".lock").open("w")), fcntl.LOCK_EX)
            for module in (folders, run):
                patched.setattr(module, "now_ms", lambda: now)
        yield


def began(root: Path) -> Path:
    """A broker with a transaction that its coordinator has open, too."""
    path = broker(root, "pay-0", "other-0")
    (path / ".kafka_cleanshutdown").unlink()
    pay, other, coordinator = Forged(path, "pay-0"), Forged(path, "other-0"), Coordinator(path, 0)
    coordinator.state("app", "Ongoing", (7, 0), BEGAN, "pay-0", start=BEGAN)
    data(pay, 7, 0, BEGAN + 10, transactional=True)
    data(other, -1, -1, BEGAN + 500, epoch=-1).set(attributes=APPEND_TIME)
    for log in (pay, other, coordinator):
        log.save()
    return path


def went_on(path: Path) -> None:
    """The transaction has ended since, and a day later there is another one."""
    pay, other, coordinator = Forged(path, "pay-0"), Forged(path, "other-0"), Coordinator(path, 0)
    for state, time in (("PrepareCommit", BEGAN + 1_900), ("CompleteCommit", BEGAN + 2_000)):
        coordinator.state("app", state, (7, 0), time, *(["pay-0"] if state[0] == "P" else []), start=BEGAN)
    end(pay, pay.data()[0], True, BEGAN + 1_950)
    last = BEGAN + NEXT_NIGHT - 2_000
    coordinator.state("app", "Ongoing", (7, 0), last, "pay-0", start=last)
    data(pay, 7, 3, last + 10, transactional=True)
    data(other, -1, -1, last + 1_900, epoch=-1).set(attributes=APPEND_TIME)
    for log in (pay, other, coordinator):
        log.save()


@pytest.mark.parametrize("runs", [True, False])
def test_a_night_later_nobody_is_accused_whatever_moment_an_audit_begins_at(tmp_path: Path, runs: bool) -> None:
    """Each number of changes at each file that is read: half of the copies are of a night, half of the next."""
    path = began(tmp_path / "in")
    moments = {"first": READ, "second": BEGAN + NEXT_NIGHT} if runs else {}
    found = written(tmp_path, path.parent, lambda: went_on(path), **moments)
    assert found.accused == set()
    assert len(found.changes) == 5  # the mark, two logs and the coordinator, and when each was read
    both = 0
    for count in range(1, len(found.changes) + 1):
        for when in range(0, found.read, 1 if NIGHTLY else 4):

            def goes_on(later: Later, number: int, *, when: int = when, count: int = count) -> None:
                later.goes_on(count if number == when else 0)

            both += says_that_it_is_both(found.over(tmp_path / "work", goes_on))
    assert both > len(found.changes)


@pytest.mark.parametrize(("name", "gap", "runs"), [("groups-43", 60_000, False), ("groups-43", 30_000, True)])
def test_a_sound_cluster_stays_sound_while_it_is_copied_again(tmp_path: Path, name: str, gap: int, runs: bool) -> None:
    """Of one that was stopped in between, too: logs of before beside the checkpoints and the mark of the stop."""
    source, newest = live_copy(name, tmp_path / "in"), newest_time(corpora.unpack(name))
    for partition in sorted(source.glob("*/*-[0-9]*")):
        checkpointed_at(partition, newest - gap)
        copied_until(partition, newest - gap)

    def replaced() -> None:
        shutil.rmtree(source)
        live_copy(name, source) if runs else corpora.copy(name, source)

    moments = {"first": newest - gap + 50, "second": newest + 50} if runs else {}
    found, dice = written(tmp_path, source, replaced, **moments), random.Random(35)
    assert found.accused == set()
    for _ in range(TRIALS):
        how, when = dice.choice(("at once", "some", "bit by bit")), dice.randrange(found.read)
        count, share = dice.randrange(len(found.changes) + 1), 2 * dice.random() * len(found.changes) / found.read

        def goes_on(
            later: Later, number: int, *, how: str = how, when: int = when, count: int = count, share: float = share
        ) -> None:
            if how == "bit by bit":
                later.goes_on(int(share) + (dice.random() < share % 1))
            elif number == when:
                later.goes_on(count if how == "some" else len(later.left))

        found.over(tmp_path / "work", goes_on)
