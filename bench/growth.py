"""``python -m bench.growth``: many small things of one kind, twice as many, and how the time of an audit grows.

Twice the input may take little more than twice the time; a pass over all for each of them would take four times.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from auditor.outputs.publish import publish
from bench.sizes import Plan
from bench.table import Row, at_most
from tests import segments
from tests.facts import opened

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


KINDS: dict[str, Callable[[Path, int], None]] = {
    "open transactions": open_transactions, "transactional ids": transactional_ids, "open and known": open_and_known,
    "groups": groups, "folders": folders,
}  # fmt: skip


def measured(kind: str, count: int) -> dict[str, float]:
    """Seconds of each step of an audit of ``count`` of a kind, in this process, report included, and of the whole in
    processor time, which what else runs leaves as it is."""
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder, "broker-1"), Path(folder, "out")
        root.mkdir()
        out.mkdir()
        (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
        KINDS[kind](root, count)
        began = time.process_time()
        audit = opened(root)
        with audit.step("publish"):
            publish(audit, out)
        took = {"whole": time.process_time() - began} | audit.timings
        shutil.rmtree(out)
        return took


def measure(plan: Plan) -> list[Row]:
    """A row a kind: twice as many may take little more than twice as long (n log n). Transactions are half a million
    in full sizes, all else a hundred thousand."""
    rows = []
    for kind in KINDS:
        measured(kind, 10)  # compiles
        count = 20_000 if not plan.full else 500_000 if kind == "open transactions" else 100_000
        half, full = (measured(kind, number)["whole"] for number in (count // 2, count))
        note = f"{full:.1f} against {half:.1f} s, one process, processor time"
        rows.append(at_most(f"{count:,} {kind}: time against half as many", 2.3, full / half, " times", note))
    return rows


def main() -> int:
    """Prints a line a kind."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append")
    parser.add_argument("--count", type=int, default=50_000)
    args = parser.parse_args()
    for kind in args.kind or KINDS:
        measured(kind, 10)  # compiles
        half, full = (measured(kind, count) for count in (args.count // 2, args.count))
        steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in full.items() if seconds >= 0.1)
        print(f"{kind}: {args.count} in {full['whole']:.1f} s, {full['whole'] / half['whole']:.1f} times half: {steps}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
