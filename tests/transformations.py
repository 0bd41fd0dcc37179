"""Changes of an input that leave its cluster as it is: something added that says nothing about it, a part taken away,
directories renamed.

Each alters a copy of log directories in place. Files of the copy may be second names of a corpus's: one that is changed
is replaced.
"""

from __future__ import annotations

import base64
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests import segments
from tests.cluster_writers import LOG_APPEND_TIME, METADATA, Writers, batches_in, partitions, topic_id
from tests.controller_records import Controller
from tests.earlier_states import cut, moments, own
from tests.forge import Batch, Forged
from tests.whole.test_never_in_flight import Running

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
ANOTHER, ANOTHER_ID = "another-cluster", "b3RoZXItY2x1c3Rlci0tLQ"
OLDER = "older-backup"
UNRELATED, JUMPED = "unrelated", "jumped"  # topics that are added
INTERNAL = ("__transaction_state", "__consumer_offsets", "__cluster_metadata")
SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
NAMES = (
    "leader-epoch-checkpoint", "partition.metadata", "replication-offset-checkpoint", "meta.properties",
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)  # fmt: skip


class Transformation(NamedTuple):
    """A change of an input. ``kind``: add, without or renamed, and what; ``name``: which one; ``paths``: what was added
    that a finding may be about, relative to the input."""

    kind: str
    name: str
    make: Callable[[Path], None]
    paths: tuple[str, ...] = ()


def directories(root: Path) -> list[Path]:
    """The log directories of an input, relative to it."""
    found = {path.parent for path in root.rglob("meta.properties")}
    parents = {parent for path in found for parent in path.parents}
    return sorted(path.relative_to(root) for path in found | set(root.rglob("broker-*/")) - parents)


def every(root: Path) -> Iterator[Transformation]:
    """All that can be done with an input."""
    yield from additions(root)
    yield from removals(root)
    yield from renames(root)


def newest_time(root: Path) -> int:
    """The newest time that a broker wrote, ms."""
    return max(
        (
            batch["max_time"]
            for file in root.rglob("*.log")
            for batch in batches_in(file.read_bytes())
            if file.parent.name.startswith("__") or batch.control or batch["attributes"] & LOG_APPEND_TIME
        ),
        default=0,
    )


# What is added


def additions(root: Path) -> Iterator[Transformation]:
    newest = newest_time(root)
    if newest:
        for name, by in (("an hour earlier", -HOUR), ("an hour later", HOUR)):
            make = partial(_add_cluster, moment=newest + by, fell=False)
            yield Transformation(f"add a cluster, copied {name}", name, make, (ANOTHER,))
        make = partial(_add_cluster, moment=newest, fell=True)
        yield Transformation("add a cluster whose clock fell", "by 2 h", make, (ANOTHER,))
    for directory in _newest_copies(root):
        for moment in moments(root / directory, 2):
            make = partial(_add_backup, directory=directory, moment=moment)
            yield Transformation("add an older backup", f"{directory} {moment}", make, (f"{OLDER}/{directory.name}",))
        if newest and partitions(root / directory) and _has_batches(root / directory):
            for topic, times in ((UNRELATED, ()), (JUMPED, (0, 3 * DAY, MINUTE, 2 * MINUTE))):
                make = partial(add_partition, directory=directory, topic=topic, begin=newest - 7 * DAY, times=times)
                kind = "add a partition whose clock jumped" if times else "add an unrelated topic"
                yield Transformation(kind, str(directory), make, (f"{directory}/{topic}-0",))


def _newest_copies(root: Path) -> list[Path]:
    """The log directories, of several copies of one the newest."""
    found: dict[tuple[str, ...], Path] = {}
    for directory in sorted(directories(root), key=lambda path: newest_time(root / path)):
        file = root / directory / "meta.properties"
        ids = re.findall(
            r"^(?:(?:broker|node|cluster|directory)\.id)=.*", file.read_text() if file.exists() else "", re.M
        )
        found[tuple(sorted(ids)) or (str(directory),)] = directory
    return sorted(found.values())


def _has_batches(directory: Path) -> bool:
    """Whether the broker writes magic 2, so that a batch of it is no surprise."""
    return any(list(batches_in(file.read_bytes())) for file in directory.glob("*/*.log"))


def _add_cluster(root: Path, moment: int, fell: bool) -> None:
    """A sound cluster, copied while it ran; its directories have names of their own, its topics need not."""
    another = Running(root / ANOTHER)
    file = another.path / "meta.properties"
    file.write_text(re.sub("cluster.id=.*", f"cluster.id={ANOTHER_ID}", file.read_text()))
    times = [moment - number * 10 * MINUTE for number in range(20, 0, -1)]
    if fell:  # two hours ahead for a while, half an hour into it
        times[3:5] = [time + 2 * HOUR for time in times[3:5]]
    for time in times:
        another.other(time, another.held, another.busy)
    another.other(moment - 10 * SECOND, another.busy)
    another.save()


def _add_backup(root: Path, directory: Path, moment: int) -> None:
    """A copy of a log directory made earlier, while its broker ran. Its settings are those of the later one."""
    target = root / OLDER / directory.name
    target.parent.mkdir()
    shutil.copytree(root / directory, target)
    cut(target, moment, clean=False)


def add_partition(root: Path, directory: Path, topic: str, begin: int, times: tuple[int, ...]) -> None:
    """A partition of one replica, which no producer with an id writes; its broker stamps the batches of given times."""
    broker, folder = root / directory, root / directory / f"{topic}-0"
    own(broker)
    others = partitions(broker)
    folder.mkdir()
    for suffix in ("log", "index", "timeindex"):
        (folder / f"{0:020}.{suffix}").touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    if any(topic_id(path) for path in others):
        fresh = base64.urlsafe_b64encode(topic.encode().ljust(16, b"-")).decode().rstrip("=")
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {fresh}\n")
        _create(broker.parent, topic, fresh, _node(broker))
    log = Forged(broker, folder.name)
    for number, time in enumerate(times or (0, MINUTE, 2 * MINUTE)):
        header = {
            "attributes": LOG_APPEND_TIME if times else 0,
            "base_time": begin + time,
            "max_time": begin + time + 2,
        }
        log.append(Batch(segments.simple(3 * number, 3, **header)))
    log.checkpoint("replication-offset-checkpoint", log.end)
    log.checkpoint("recovery-point-offset-checkpoint", log.end)
    log.save()


def _create(group: Path, topic: str, fresh: str, node: int) -> None:
    """The controller's records of a topic with one replica, in the copies of the cluster's metadata log that are
    complete: the others had not fetched them yet."""
    logs = {path.parent: log for path in group.glob(f"*/{METADATA}") if (log := Forged(path.parent, METADATA)).all()}
    ends = {broker: (log.last.last, _last_epoch(log)) for broker, log in logs.items()}
    for broker, log in logs.items():
        if ends[broker] == max(ends.values()):
            for file in log.folder.iterdir():
                _unlink(file)
            controller = Controller(broker, log.last["max_time"])
            controller.create(topic, fresh, node)
            for batch in controller.log.all()[-2:]:
                batch.set(leader_epoch=_last_epoch(log))
            controller.save()


def _last_epoch(log: Forged) -> int:
    """The last leader epoch of a log, which may have begun at its end."""
    epoch, _ = (log.folder / "leader-epoch-checkpoint").read_text().splitlines()[-1].split()
    return max(int(epoch), log.last["leader_epoch"])


def _unlink(file: Path) -> None:
    """A file of its own in place of a second name."""
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data)


def _node(broker: Path) -> int:
    file = broker / "meta.properties"
    found = re.search(r"^(?:broker|node)\.id=(\d+)", file.read_text() if file.exists() else "", re.M)
    return int(found[1]) if found else int(re.sub(r"\D", "", broker.name) or 0)


# What is taken away


def removals(root: Path) -> Iterator[Transformation]:
    found = directories(root)
    for directory in found if len(found) > 1 else ():
        yield _without("a log directory", root, root / directory)
    folders = {path for directory in found for path in partitions(root / directory)}
    for topic in sorted({path.name.rpartition("-")[0] for path in folders}):
        kind = topic if topic in INTERNAL else "a topic"
        yield _without(kind, root, *(path for path in folders if path.name.rpartition("-")[0] == topic))
    for suffix in SUFFIXES:
        yield _without(suffix, root, *root.rglob(f"*-*/*{suffix}"))
    for name in NAMES:
        yield _without(name, root, *root.rglob(name))
    yield _without("server.properties", root, *root.rglob("server*.properties"))


def _without(kind: str, root: Path, *paths: Path) -> Transformation:
    names = tuple(sorted(str(path.relative_to(root)) for path in paths))
    name = names[0] if len(names) == 1 else f"{len(names)} files"
    return Transformation(f"without {kind}", name, partial(_remove, names=names))


def _remove(root: Path, names: tuple[str, ...]) -> None:
    for path in (root / name for name in names):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# Names


def renames(root: Path) -> Iterator[Transformation]:
    found = directories(root)
    if len(found) > 1:
        yield Transformation("renamed log directories", "in the other order", partial(_reverse, found=found))
    for directory in found:
        changes = Writers((root / directory).parent).changes
        known = {change.partition.topic_id for change in changes if change.partition is not None}
        for path in partitions(root / directory):
            if topic_id(path) in known and not path.name.startswith("__"):
                name = str(path.relative_to(root))
                old = path.with_name(f"old.{path.name}").relative_to(root)
                dated = path.with_name(f"{path.name}-20251128").relative_to(root)
                move, add = partial(_rename, name=name, to=old), partial(_double, name=name, to=dated)
                yield Transformation("renamed partition directory", name, move)
                yield Transformation("add a partition directory's copy", name, add)


def _reverse(root: Path, found: list[Path]) -> None:
    """The last directory by name becomes the first one. Digits stay as they are: an old broker's id is in them."""
    for number, directory in enumerate(sorted(found, reverse=True)):
        letter = chr(ord("a") + number)
        (root / directory).rename((root / directory).with_name(f"{letter}-{directory.name}"))
    tops = sorted({directory.parts[0] for directory in found if len(directory.parts) > 1}, reverse=True)
    for number, top in enumerate(tops):
        (root / top).rename(root / f"{chr(ord('a') + number)}-{top}")


def _rename(root: Path, name: str, to: Path) -> None:
    (root / name).rename(root / to)


def _double(root: Path, name: str, to: Path) -> None:
    shutil.copytree(root / name, root / to)


def some(root: Path, seed: str) -> list[Transformation]:
    """One of each kind, chosen by a seed."""
    found = list(every(root))
    return sorted({one.kind: one for one in random.Random(seed).sample(found, len(found))}.values())
