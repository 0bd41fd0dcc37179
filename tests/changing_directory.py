"""What a broker does to a directory while it is read: files grow, shrink, change names, go."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import corpora


def live_copy(name: str, target: Path) -> Path:
    """A corpus as it would look had the broker not been stopped."""
    corpora.copy(name, target)
    for mark in target.rglob(".kafka_cleanshutdown"):
        mark.unlink()
    return target


def data_files(folder: Path) -> list[Path]:
    """Files of partitions; without the coordinator's, since without them others' logs are judged by less."""
    found = [p for p in folder.glob("*/*/*") if p.is_file() and not p.parent.name.startswith("__transaction_state")]
    return sorted(p for p in found if p.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"))


def some(folder: Path, seed: int) -> list[Path]:
    files = data_files(folder)
    return random.Random(seed).sample(files, len(files) // 6)


def vanish(folder: Path) -> None:
    for path in some(folder, 1):
        path.unlink()


def shrink(folder: Path) -> None:
    for path in some(folder, 2):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def rename_files(folder: Path) -> None:
    """As retention does before it deletes."""
    for path in some(folder, 3):
        path.rename(f"{path}.deleted")


def rename_folders(folder: Path) -> None:
    """As the deletion of a topic does."""
    for path in {file.parent for file in some(folder, 4)}:
        path.rename(f"{path}.{'0123456789abcdef' * 2}-delete")


CHANGES = (vanish, shrink, rename_files, rename_folders)


@contextmanager
def changes_going_on(folder: Path, seed: int) -> Iterator[Callable[[int], bool]]:
    """Another thread truncates, appends, renames, deletes and puts back, all the time.

    Yields whether there have been fewer changes than a number: a fast reader reads until there were as many.
    """
    kept = {path: path.read_bytes() for path in data_files(folder)}
    done = threading.Event()
    changes = 0

    def disturb() -> None:
        nonlocal changes
        chance = random.Random(seed)
        paths = list(kept)
        while not done.is_set():
            path = chance.choice(paths)
            size = chance.randrange(len(kept[path]) + 1)
            how = chance.randrange(4)
            if how == 0:
                path.unlink(missing_ok=True)
            elif how == 1 and path.exists():
                path.rename(f"{path}.deleted")
            else:
                path.write_bytes(kept[path][:size] if how == 2 else kept[path])
            changes += 1
            done.wait(0.001)

    thread = threading.Thread(target=disturb)

    def fewer_than(number: int) -> bool:
        assert thread.is_alive(), "nothing disturbs the reader any more"
        return changes < number

    thread.start()
    try:
        yield fewer_than
    finally:
        done.set()
        thread.join()
