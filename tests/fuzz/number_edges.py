"""Every number of every file at the edges of its type and of our limits, one or two at a time, checksums right.

The numbers are those that :class:`tests.fuzz.sealed_histories.History` writes, in their order; a case replaces some of
them in a history that is sound otherwise.
"""

from __future__ import annotations

import contextlib
import io
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from auditor.base.errors import LAST_MS, MOST_OFFSET, AuditInputError
from auditor.commands.decode import DecodeOptions, decode, lines, locate
from tests.bare_broker import BEGAN
from tests.fuzz.every_way import Failure, apart, every_way
from tests.fuzz.mutated_directories import LIMITS, write
from tests.fuzz.sealed_histories import History

SEED = 54
HISTORIES = (1, 23, 36, 43)  # one of each age, of one broker, with every kind of file that brokers of it write
LIMITS_OF_OURS = (LAST_MS, MOST_OFFSET, 1 << 62, 1 << 53)
ENDS = (0, (1 << 63) - 1, -(1 << 63), (1 << 31) - 1, -(1 << 31), (1 << 15) - 1, -(1 << 15), 127, -128)
EDGES = sorted({edge + near for edge in (*ENDS, *LIMITS_OF_OURS) for near in (-1, 0, 1)})
YEAR_MS = 365 * 24 * 3_600_000


class Number(NamedTuple):
    """A number that a history writes: its usual value, and the bits of its field."""

    usual: int
    bits: int

    @property
    def is_time(self) -> bool:
        return self.bits == 64 and abs(self.usual - BEGAN) < YEAR_MS

    @property
    def edges(self) -> list[int]:
        """The values to try: the edges that fit, without a change of sign."""
        half = 1 << self.bits - 1
        return [edge for edge in EDGES if -half <= edge < half and edge != self.usual]


class Changed(History):
    """History ``number`` with other values for some of its numbers, by their place in the order of writing."""

    def __init__(self, number: int, values: Mapping[int, int]) -> None:
        self.values, self.numbers = values, list[Number]()
        super().__init__(SEED, number)

    def number(self, usual: int, bits: int) -> int:
        self.numbers.append(Number(usual, bits))
        return self.values.get(len(self.numbers) - 1, usual)

    def _tamper(self) -> None:
        """All files as they are."""


def cases(seed: int) -> Iterator[tuple[int, dict[int, int]]]:
    """Histories with what to change in them: numbers one at a time and times with another number, without end."""
    chosen = random.Random(seed)
    numbers = {history: Changed(history, {}).numbers for history in HISTORIES}
    while True:
        history = chosen.choice(HISTORIES)
        of = numbers[history]
        one = chosen.randrange(len(of))
        values = {one: chosen.choice(of[one].edges)}
        if chosen.random() < 0.5:
            near = range(max(0, one - 9), min(len(of), one + 10))  # of the same batch or record, most times
            times = [k for k in near if of[k].is_time and k != one]
            for k in times[:: max(1, len(times))] if times else ():
                values[k] = chosen.choice(of[k].edges)
        yield history, values


def failures(history: int, values: Mapping[int, int], save: Path | None = None) -> list[Failure]:
    """What goes wrong with a history with these numbers; none where all is well."""
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        root = save or Path(folder, "in")
        root.mkdir(parents=True, exist_ok=True)
        write(Changed(history, values).tree, root)
        return apart(Path(folder), lambda: _all(root, Path(folder)))


def _all(root: Path, folder: Path) -> Iterator[Failure]:
    yield from every_way(root, folder, None)
    for records in (False, True):
        try:
            _decoded([str(path) for path in sorted(root.rglob("*")) if path.is_file()], records)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this module looks for
            import traceback

            last = traceback.extract_tb(error.__traceback__)[-1]
            yield Failure(
                "decode", f"{type(error).__name__} {Path(last.filename).name}:{last.lineno}", traceback.format_exc()
            )


def _decoded(files: list[str], records: bool) -> None:
    for file in files:
        out = io.StringIO()
        with contextlib.suppress(AuditInputError):
            options = DecodeOptions((file,), records, False, False, LIMITS)
            for piece in locate(options):
                for own, table, rows in decode(piece, options):
                    out.writelines(lines(rows, "" if own else table, False))
