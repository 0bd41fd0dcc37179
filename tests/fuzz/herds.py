"""Herds: log directories of many mutated partition folders at once, so that hundreds of mutants share one audit.

A herd is its number. It has the settings of one seed of :mod:`mutated_directories`, and copies of small partition
folders of all seeds under other names, in most of which a file or more is mutated; half of the herds leave the internal
topics sound, so that what is mutated meets coordinators that are known. Each mutated file counts as a mutant. A herd
whose audit raises, or ends the process, is cut down to the mutants that it takes, in processes apart.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import mutate, patience
from tests.fuzz.mutated_directories import INTERNAL, Tree, audit_tree, kind_of, trees, write

FOLDERS = 150  # of a herd
LARGEST = 24 << 10  # bytes of a folder that is copied: what a long log brings is the decoders' fuzzing
PLACES = 50  # partitions of a topic, of those that copies are given
PATIENCE_S = 300  # of processor time


class Herd(NamedTuple):
    """A directory's files without their mutations, and those that are mutated instead."""

    sound: Tree
    mutants: Tree

    def tree(self, chosen: list[str] | None = None) -> Tree:
        """The directory with these mutants; None: with all."""
        return self.sound | {name: self.mutants[name] for name in (self.mutants if chosen is None else chosen)}


class Folder(NamedTuple):
    """A partition's folder of a seed: the topic, and the content of each file by its name."""

    topic: str
    files: Tree


@functools.cache
def folders() -> tuple[list[Folder], list[Folder]]:
    """The small partition folders of all seeds: of internal topics, and of others."""
    found: dict[bool, list[Folder]] = {True: [], False: []}
    for tree in trees():
        places: dict[str, Tree] = {}
        for name, data in sorted(tree.items()):
            place, _, file = name.rpartition("/")
            places.setdefault(place, {})[file] = data
        for place, files in places.items():
            topic = place.rpartition("/")[2].rpartition("-")[0]
            if any(file.endswith(".log") for file in files) and sum(map(len, files.values())) <= LARGEST:
                found[topic in INTERNAL].append(Folder(topic, files))
    return found[True], found[False]


def herd(seed: int, number: int) -> Herd:
    """Herd ``number``."""
    random_ = random.Random(seed << 40 | number)
    base = random_.choice(trees())
    sound, mutants = dict(base), Tree()
    internal, others = folders()
    mutated_coordinators = random_.random() < 0.5
    log_dirs = sorted({Path(name).parent.parent.as_posix() for name in base if name.endswith(".log")})

    def change(name: str) -> None:
        one = seed << 20 | number << 12 | len(mutants)
        mutants[name] = mutate.mutated(kind_of(name), [sound[name]], seed, one)

    for step in range(FOLDERS):
        of_coordinator = mutated_coordinators and random_.random() < 0.3
        folder = random_.choice(internal if of_coordinator else others)
        topic = folder.topic if of_coordinator else f"{folder.topic}-{step // PLACES}"
        place = Path(random_.choice(log_dirs), f"{topic}-{step % PLACES}").as_posix()
        sound |= {f"{place}/{file}": data for file, data in folder.files.items()}
        files = [f"{place}/{file}" for file, data in folder.files.items() if data]
        for name in random_.sample(files, min(len(files), random_.choice((0, 1, 2, 3, 8)))):
            change(name)
    for name in sorted(base):
        if base[name] and name.count("/") < 2 and random_.random() < 0.1:  # settings and checkpoints
            change(name)
    return Herd(sound, mutants)


def run_one(seed: int, number: int, save: Path | None = None) -> list[str]:
    """Cuts a herd down to the mutants that its failure takes; none where it does not fail. ``save``: a folder that gets
    the herd with these alone."""
    one = herd(seed, number)
    if ends_well(one.tree(), number):
        return []
    names = cut(sorted(one.mutants), lambda names: not ends_well(one.tree(names), number, quiet=True))
    if save is not None:
        save.mkdir(exist_ok=True)
        write(one.tree(names), save)
    return names


def ends_well(tree: Tree, number: int, *, quiet: bool = False) -> bool:
    """Whether files go the whole way in a process forked for it, which nothing that happens there leaves. ``quiet``:
    without a stack trace where they do not."""
    sys.stdout.flush()
    sys.stderr.flush()
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    status = 1
    try:
        if quiet:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        patience.ends_after(PATIENCE_S)
        audit_tree(tree, number)
        status = 0
    except Exception:  # noqa: BLE001 - whatever it is, it is what this program looks for
        traceback.print_exc()
    finally:
        os._exit(status)


def cut(names: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """As few of the names as still fail, by leaving out halves, quarters, and so on down to single ones."""
    size = max(1, len(names) // 2)
    while True:
        at = 0
        while at < len(names):
            rest = names[:at] + names[at + size :]
            if rest and fails(rest):
                names = rest
            else:
                at += size
        if size == 1:
            return names
        size = max(1, size // 2)
