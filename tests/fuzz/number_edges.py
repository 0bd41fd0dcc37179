"""Every number of every file at the ends of its type and around our limits, one or two at a time, checksums right.

The numbers are those that :class:`tests.fuzz.sealed_histories.History` writes, in the order of writing; a case replaces
some of them in a history that is sound otherwise.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from auditor.base.errors import LAST_MS, MOST_OFFSET, AuditInputError
from auditor.commands.decode import DecodeOptions, decode, lines, locate
from auditor.connectors.logdir.copy_format import LIST
from auditor.copying.run import copy_logs
from tests import copies
from tests.bare_broker import BEGAN
from tests.fuzz.every_way import Failure, apart, every_way
from tests.fuzz.mutated_directories import LIMITS, write
from tests.fuzz.sealed_histories import History
from tests.fuzz.seeds import by_kind
from tests.fuzz.targets import TARGETS

SEED = 54
HISTORIES = (49, 23, 36, 43)  # one of each age, of one broker, which together have every kind of file
OURS = (LAST_MS, MOST_OFFSET, 1 << 62, 1 << 53)
ENDS = (0, (1 << 63) - 1, -(1 << 63), (1 << 31) - 1, -(1 << 31), (1 << 15) - 1, -(1 << 15), 127, -128)
EDGES = sorted({edge + near for edge in (*ENDS, *OURS) for near in (-1, 0, 1)})
YEAR_MS = 365 * 24 * 3_600_000
ALIKE = 8  # numbers that one statement writes, after which the others are of the same field
Case = tuple[int, dict[int, int]]  # a history, and other values of its numbers by their place
INSIDE = ("number", "struct", "<genexpr>", "<dictcomp>", "<listcomp>")


class Number(NamedTuple):
    """A number that a history writes: its usual value, the bits of its field, and what tells its field from others."""

    usual: int
    bits: int
    field: tuple[str, int, str, int]

    @property
    def is_time(self) -> bool:
        return self.bits == 64 and abs(self.usual - BEGAN) < YEAR_MS

    @property
    def edges(self) -> list[int]:
        half = 1 << self.bits - 1
        return [edge for edge in EDGES if -half <= edge < half and edge != self.usual]


class Changed(History):
    """History ``number`` with other values for some of its numbers, and with all files as it wrote them."""

    def __init__(self, number: int, values: Mapping[int, int]) -> None:
        self.values, self.numbers = values, list[Number]()
        super().__init__(SEED, number)

    def number(self, usual: int, bits: int) -> int:
        frame, name = sys._getframe(1), ""
        while frame.f_code.co_name in INSIDE and frame.f_back is not None:
            name = name or str(frame.f_locals.get("name", ""))
            frame = frame.f_back
        statement = (frame.f_code.co_name, frame.f_lasti, name)
        before = self.numbers[-1].field if self.numbers else ("", 0, "", 0)
        place = min(before[3] + 1, ALIKE) if before[:3] == statement else 0
        self.numbers.append(Number(usual, bits, (*statement, place)))
        return self.values.get(len(self.numbers) - 1, usual)

    def _tamper(self) -> None:
        pass


def one_at_a_time(history: int) -> Iterator[Case]:
    """Every field of a history with each of its edges, where it is written for the second time, or once."""
    places: dict[tuple[str, int, str, int], list[int]] = {}
    numbers = Changed(history, {}).numbers
    for place, number in enumerate(numbers):
        places.setdefault(number.field, []).append(place)
    for listed in places.values():
        place = listed[:2][-1]
        yield from ((history, {place: edge}) for edge in numbers[place].edges)


def chosen(seed: int, count: int) -> Iterator[Case]:
    """Cases of all histories: one number, or one and a time that is written near it, as in the same batch."""
    random_ = random.Random(seed)
    for _ in range(count):
        history = random_.choice(HISTORIES)
        numbers = Changed(history, {}).numbers
        fields = sorted({number.field for number in numbers})
        field = random_.choice(fields)
        place = random_.choice([k for k, number in enumerate(numbers) if number.field == field])
        values = {place: random_.choice(numbers[place].edges)}
        times = [k for k in range(max(0, place - 9), min(len(numbers), place + 10)) if numbers[k].is_time]
        if times and random_.random() < 0.5:
            time = random_.choice(times)
            values[time] = random_.choice(numbers[time].edges)
        yield history, values


def failures(case: Case, save: Path | None = None) -> list[Failure]:
    """What goes wrong with a case; none where all is well. ``save``: a folder that its files stay in."""
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        root = save or Path(folder, "in")
        root.mkdir(parents=True, exist_ok=True)
        write(Changed(*case).tree, root)
        return apart(Path(folder), lambda: _all(root, Path(folder)))


def _all(root: Path, folder: Path) -> Iterator[Failure]:
    yield from every_way(root, folder, None)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        for records in (False, True):
            try:
                _decoded(str(path), records)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what this module looks for
                last = traceback.extract_tb(error.__traceback__)[-1]
                cause = f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {last.name}"
                yield Failure("decode", cause, traceback.format_exc())


def _decoded(file: str, records: bool) -> None:
    options = DecodeOptions((file,), records, False, False, LIMITS)
    with contextlib.suppress(AuditInputError):  # no file of Kafka's
        for piece in locate(options):
            for own, table, rows in decode(piece, options):
                assert all(lines(rows, "" if own else table, False))


def in_lists(seed: int, count: int) -> Iterator[tuple[str, Failure]]:
    """What goes wrong with a copy in one of whose lists a number is another: the number's place, and how it ends."""
    random_ = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        source, copy = Path(folder, "in"), Path(folder, "copy")
        write(Changed(random_.choice(HISTORIES), {}).tree, source)
        copy_logs([str(source)], copy, records=True)
        lists = {path: copies.listed(path.parent) for path in sorted(copy.rglob(LIST))}
        for k in range(count):
            path = random_.choice([*lists])
            place = random_.choice([*_integers(lists[path], ())])
            edge = random_.choice(EDGES)
            before = path.read_bytes()
            copies.relisted(path.parent, _with(lists[path], place, edge))
            (work := Path(folder, f"work-{k}")).mkdir()
            said = f"{path.relative_to(copy)} {place} {edge}"
            yield from ((said, failure) for failure in apart(work, lambda: every_way(copy, work, None)))
            path.write_bytes(before)


def _integers(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from _integers(item, (*place, key))
    if type(value) is int:
        yield place


def _with(value: Any, place: tuple[Any, ...], edge: int) -> Any:
    if not place:
        return edge
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[place[0]] = _with(value[place[0]], place[1:], edge)
    return changed


def in_decoders(seed: int, count: int) -> Iterator[tuple[str, str, str]]:
    """What any decoder raises where two, four or eight bytes of one of its seeds, or two such numbers, are edges: every
    field of every format, wherever it is. Gives the decoder, the bytes and the trace."""
    random_, seeds = random.Random(seed), by_kind()
    for _ in range(count):
        kind = random_.choice([kind for kind in TARGETS if kind in seeds])
        data, width = bytearray(random_.choice(seeds[kind])), random_.choice((2, 4, 8))
        edges = [edge for edge in EDGES if -(1 << 8 * width - 1) <= edge < 1 << 8 * width - 1]
        for _ in range(random_.choice((1, 2))):
            place = random_.randrange(max(1, len(data) - width + 1))
            data[place : place + width] = random_.choice(edges).to_bytes(width, "big", signed=True)
        try:
            TARGETS[kind](bytes(data))
        except Exception:  # noqa: BLE001 - whatever it is, it is what this module looks for
            yield kind, bytes(data).hex(), traceback.format_exc()
