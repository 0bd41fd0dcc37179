"""Damages to a cleanly stopped log directory, each by itself; ``tests.broker.started.py`` has brokers start on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

LOG, METADATA = "orders-0", "__cluster_metadata-0"


class Damage(NamedTuple):
    """A damage: what it is done to (a pattern below the log directory; the last match counts), and how."""

    name: str
    pattern: str
    change: Callable[[Path], None]
    adds: bool = False  # makes what is not there

    def files(self, root: Path) -> list[str]:
        """What it changes, below the log directory."""
        return [path.relative_to(root).as_posix() for path in self._paths(root)]

    def applies(self, root: Path) -> bool:
        """Whether the directory has what it changes."""
        return self.adds or bool(self._paths(root))

    def do(self, root: Path) -> None:
        """Damage a directory."""
        for path in self._paths(root):
            self.change(path)

    def _paths(self, root: Path) -> list[Path]:
        if self.adds:
            return [root / self.pattern]
        return sorted(root.glob(self.pattern))[-1:]


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


def removed(path: Path) -> None:
    path.unlink()


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def folder(path: Path) -> None:
    path.mkdir()


def copied_as(name: str) -> Callable[[Path], None]:
    return lambda path: shutil.copyfile(path, path.with_name(name)) and None  # type: ignore[func-returns-value]


def written(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None  # type: ignore[func-returns-value]


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def behind(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes() + data) and None  # type: ignore[func-returns-value]


def second_zeros(path: Path) -> None:
    data = path.read_bytes()
    begin = 12 + int.from_bytes(data[8:12], "big")
    size = 12 + int.from_bytes(data[begin + 8 : begin + 12], "big")
    path.write_bytes(data[:begin] + b"\0" * size + data[begin + size :])


def first_removed(path: Path) -> None:
    sorted(path.glob("*.log"))[0].unlink()


def all_removed(path: Path) -> None:
    for log in path.glob("*.log"):
        log.unlink()


def other_id(path: Path) -> None:
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")


WAYS = {"empty": emptied, "zeros": zeros, "missing": removed, "cut": halved}


def _several(pattern: str, label: str, *ways: str) -> Iterator[Damage]:
    return (Damage(f"{label} {way}", pattern, WAYS[way]) for way in ways)


DAMAGES = [
    Damage("none", "meta.properties", lambda path: None),
    *_several("meta.properties", "meta.properties", "empty", "zeros", "missing"),
    *_several(".kafka_cleanshutdown", "clean shutdown", "empty", "missing"),
    *_several("bootstrap.checkpoint", "bootstrap.checkpoint", "zeros", "missing"),
    *_several(f"{METADATA}/quorum-state", "quorum-state", "empty", "zeros", "missing"),
    *_several(f"{METADATA}/*.checkpoint", "metadata checkpoint", "empty", "zeros", "cut", "missing"),
    *_several(f"{METADATA}/*.log", "metadata segment", "cut", "zeros", "missing"),
    Damage("metadata segment flipped", f"{METADATA}/*.log", flipped),
    *_several(f"{METADATA}/leader-epoch-checkpoint", "metadata leader epochs", "empty", "zeros", "missing"),
    *_several(f"{METADATA}/partition.metadata", "metadata partition.metadata", "zeros", "missing"),
    *_several("recovery-point-offset-checkpoint", "recovery points", "empty", "zeros", "missing"),
    *_several("replication-offset-checkpoint", "high watermarks", "empty", "zeros", "missing"),
    Damage("high watermarks with another version", "replication-offset-checkpoint", written("7\n0\n")),
    Damage("high watermarks with too few lines", "replication-offset-checkpoint", written("0\n3\norders 0 1\n")),
    *_several("log-start-offset-checkpoint", "log starts", "empty", "zeros", "missing"),
    Damage("cleaner checkpoint zeros", "cleaner-offset-checkpoint", written("\0" * 20), adds=True),
    *_several(f"{LOG}/partition.metadata", "partition.metadata", "empty", "zeros", "missing"),
    Damage("partition.metadata of another topic", f"{LOG}/partition.metadata", other_id),
    *_several(f"{LOG}/leader-epoch-checkpoint", "leader epochs", "empty", "zeros", "missing"),
    *_several(f"{LOG}/*.snapshot", "producer snapshot", "empty", "zeros", "missing"),
    Damage("producer snapshot without a number", f"{LOG}/*.snapshot", copied_as("abc.snapshot")),
    *_several(f"{LOG}/*.log", "active segment", "empty", "zeros", "missing", "cut"),
    Damage("active segment flipped", f"{LOG}/*.log", flipped),
    Damage("active segment with 4096 zeros behind", f"{LOG}/*.log", behind(b"\0" * 4096)),
    Damage("active segment with 17 zeros behind", f"{LOG}/*.log", behind(b"\0" * 17)),
    Damage("active segment with 18 zeros behind", f"{LOG}/*.log", behind(b"\0" * 18)),
    Damage("active segment with a size of 13 behind", f"{LOG}/*.log", behind(b"\0" * 11 + b"\x0d" + b"x" * 60)),
    Damage("active segment with a size of 14 behind", f"{LOG}/*.log", behind(b"\0" * 11 + b"\x0e" + b"x" * 60)),
    Damage("active segment with a size of -1 behind", f"{LOG}/*.log", behind(b"\0" * 8 + b"\xff" * 4 + b"x" * 60)),
    Damage("active segment with a size of 1 GiB behind", f"{LOG}/*.log", behind(b"\0" * 8 + b"\x40\0\0\0" + b"x" * 60)),
    Damage("active segment with its second batch zeros", f"{LOG}/*.log", second_zeros),
    Damage("first segment missing", LOG, first_removed),
    Damage("all segments missing", LOG, all_removed),
    Damage("segment without a number", f"{LOG}/*.log", copied_as("abc.log")),
    *_several(f"{LOG}/*.index", "offset index", "empty", "zeros", "missing", "cut"),
    *_several(f"{LOG}/*.timeindex", "time index", "empty", "zeros", "missing"),
    Damage("odd file in a partition", f"{LOG}/notes.txt", written("x"), adds=True),
    Damage("odd file in the log directory", "notes.txt", written("x"), adds=True),
    *(
        Damage(f"folder {name}", name, folder, adds=True)
        for name in (
            "lost+found", "backup", "orders-x", "-0", "orders-0.0123456789abcdef0123456789abcdef-delete",
            "orders-9.0123456789abcdef0123456789abcdef-stray", "orders-9.0123456789abcdef0123456789abcdef-future",
            ".hidden", "orders-5",
        )
    ),
]  # fmt: skip


def on_disk(name: str, partition: str = "orders-1") -> Damage:
    """A damage by its name, to another partition: of one of several log directories."""
    damage = next(damage for damage in DAMAGES if damage.name == name)
    return damage._replace(pattern=damage.pattern.replace(f"{LOG}/", f"{partition}/"))
