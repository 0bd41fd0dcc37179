"""How time and memory of an audit grow with many small things of one kind; each as one run of the command.

``python -m bench.growth [--kind KIND] [--count N]`` prints a line per run; the group ``growth`` of ``make bench`` makes
rows of them, and the pictures of docs/performance.md (:mod:`bench.pictures`). Twice the input may take little more than
twice the time; a pass over all for each of them would take four times.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import pictures, quiet, sides
from bench.inputs import GIB, Kind, make, space
from bench.pictures import Point
from bench.sizes import Plan
from bench.table import Row, at_most
from tests import segments

NOW = 1_800_000_000_000


def _partition(root: Path, name: str, data: bytes) -> None:
    (root / name).mkdir(parents=True)
    (root / name / f"{0:020}.log").write_bytes(data)


def _batches(bodies: list[bytes], **header: int) -> bytes:
    """A batch of one record each."""
    return b"".join(
        segments.batch(body, 1, base_offset=at, base_time=NOW, max_time=NOW, **header) for at, body in enumerate(bodies)
    )


def open_transactions(root: Path, count: int) -> None:
    """Transactions in one partition that nobody ends, each of its own producer."""
    body = segments.record(0, b"k", b"v")
    batches = (
        segments.batch(body, 1, base_offset=n, attributes=0x10, producer_id=n, epoch=0, sequence=0, base_time=NOW,
                       max_time=NOW)
        for n in range(count)
    )  # fmt: skip
    _partition(root, "orders-0", b"".join(batches))


def transactional_ids(root: Path, count: int) -> None:
    """Ids in one partition of ``__transaction_state``, each in an ongoing transaction of one partition."""
    bodies = []
    for n in range(count):
        name = b"id-%d" % n
        value = struct.pack(">hqhibih", 0, n, 0, 60_000, 1, 1, 6) + b"orders" + struct.pack(">iiqq", 1, 0, NOW, NOW)
        bodies.append(segments.record(0, struct.pack(">hh", 0, len(name)) + name, value))
    _partition(root, "__transaction_state-0", _batches(bodies))


def open_and_known(root: Path, count: int) -> None:
    """Both: open transactions whose ids the coordinator has."""
    open_transactions(root, count)
    transactional_ids(root, count)


def groups(root: Path, count: int) -> None:
    """Groups that have committed an offset in one partition."""
    bodies = []
    for n in range(count):
        name = b"group-%d" % n
        key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h", 6) + b"orders" + struct.pack(">i", 0)
        bodies.append(segments.record(0, key, struct.pack(">hqihq", 3, n, -1, 0, NOW)))
    _partition(root, "__consumer_offsets-0", _batches(bodies))


def folders(root: Path, count: int) -> None:
    """Partitions with next to nothing in them."""
    data = segments.simple(0)
    for n in range(count):
        _partition(root, f"orders-{n}", data)


def producers(root: Path, count: int) -> None:
    """Producer ids in one partition, three batches of each."""
    made = make(root / "made", Kind("400", 1, count), 3 * count * BATCH)
    for path in made.folder.iterdir():
        path.rename(root / path.name)


class Shape(NamedTuple):
    """One kind: how it is made, how many at most in quick and in full sizes, the ways to run, the picture it stands in,
    bytes of disk each takes, about."""

    make: Callable[[Path, int], None]
    quick: int
    full: int
    masters: tuple[str, ...]
    picture: str
    disk: int


PICTURES = {"partitions": "partitions", "many": "of one kind, in one partition"}
SHARES = (0.01, 0.1, 0.5, 1)  # of the most, which are measured
TWICE = 2.3  # times the time that twice as many may take
VARIES = 0.3  # seconds that one start takes more than another
BATCH = 410  # bytes of a small batch, about
INLINE = "inline"
WHOLE = {INLINE: 6.0, "local[2]": 9.0}  # seconds that the command may take for so many partitions
PARTITIONS = 10_000
SHAPES: dict[str, Shape] = {
    "partitions": Shape(folders, 10_000, 100_000, (INLINE, "local[2]"), "partitions", 4_200),
    "open transactions": Shape(open_transactions, 50_000, 500_000, (INLINE,), "many", 100),
    "transactional ids": Shape(transactional_ids, 100_000, 1_000_000, (INLINE,), "many", 150),
    "open and known": Shape(open_and_known, 50_000, 500_000, (INLINE,), "many", 250),
    "groups": Shape(groups, 100_000, 1_000_000, (INLINE,), "many", 130),
    "producers": Shape(producers, 100_000, 1_000_000, (INLINE,), "many", 3 * BATCH),
}


def points(kind: str, count: int, masters: tuple[str, ...], parent: Path | None = None) -> list[Point]:
    """Runs of the command over ``count`` of a kind by several ways to run, on a quiet machine."""
    with space(parent, SHAPES[kind].disk * count + GIB) as folder:
        root = folder / "broker-1"
        root.mkdir()
        (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
        SHAPES[kind].make(root, count)
        return [_run(kind, count, master, root) for master in masters]


def _run(kind: str, count: int, master: str, root: Path) -> Point:
    ran = quiet.undisturbed(f"{count:,} {kind}", lambda: sides.audit([root], master=master, statuses=(0, 1)))
    return Point(kind, count, master, ran.seconds, ran.cpu, {name: most >> 20 for name, most in ran.memory.items()})


def measure(plan: Plan) -> list[Row]:
    """A row for each kind and way to run: twice as many may take little more than twice as long (n log n), what the
    smallest of all takes put aside. Draws the pictures."""
    found: dict[tuple[str, str], list[Point]] = {}
    for kind, shape in SHAPES.items():
        most = shape.full if plan.full else shape.quick
        for share in SHARES:
            for one in points(kind, int(most * share), shape.masters, plan.root):
                found.setdefault((kind, one.master), []).append(one)
                print(one.line(), flush=True)
    for name, counted in PICTURES.items():
        drawn = [one for (kind, _), series in found.items() if SHAPES[kind].picture == name for one in series]
        pictures.draw(name, counted, drawn)
    whole = [
        at_most(f"{PARTITIONS:,} partitions, {one.master}, whole command", WHOLE[one.master], one.seconds, " s")
        for (kind, _), series in found.items() for one in series if (kind, one.count) == ("partitions", PARTITIONS)
    ]  # fmt: skip
    return [*whole, *(_row(series) for series in found.values())]


def _row(series: list[Point]) -> Row:
    least, half, full = series[0], series[-2], series[-1]
    what = f"{full.count:,} {full.kind}, {full.master}: time against half as many, start aside"
    memory = ", ".join(f"{name} {mib} MiB" for name, mib in full.memory.items() if name != "all")
    note = f"{full.seconds:.1f} against {half.seconds:.1f} s, start {least.seconds:.1f}; {memory}"
    if half.seconds - least.seconds < VARIES:
        return Row(what, f"at most {TWICE:g} times", "not measured: less than a start varies by", None, note)
    return at_most(what, TWICE, (full.seconds - least.seconds) / (half.seconds - least.seconds), " times", note)


def main() -> int:
    """Prints a line per run."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--kind", choices=sorted(SHAPES), action="append")
    parser.add_argument("--count", type=int, default=50_000)
    args = parser.parse_args()
    for kind in args.kind or SHAPES:
        for count in (args.count // 2, args.count):
            for one in points(kind, count, SHAPES[kind].masters):
                print(one.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
