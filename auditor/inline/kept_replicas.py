"""Facts of replicas that the driver has, and how their logs are shared out among processes.

They are packed once, some dozens of replicas together and no log torn apart, and handed to who judges as they are
packed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from auditor.base.at_rest import TOGETHER, Gathered, dumps, loads
from auditor.pipeline.cluster_context import Brief
from auditor.pipeline.runner import KeptFacts, Log, Replicas, briefs_of

LISTS_PER_PROCESS = 4
LIST_BYTES = 1 << 20  # of facts that are judged together: below, sending them costs more than judging
LARGE = 1 << 16  # bytes of one replica: most of them are columns, which are compressed already


class Bunch(NamedTuple):
    """The facts of all replicas of some logs, in order. ``size``: bytes of them. Packed, but for few large ones."""

    size: int
    content: bytes | list[KeptFacts]

    @property
    def rows(self) -> list[KeptFacts]:
        """A row a replica."""
        return loads(self.content) if isinstance(self.content, bytes) else self.content


class Logs:
    """The logs of some bunches, unpacked as they are read: what one task judges."""

    def __init__(self, bunches: Sequence[Bunch]) -> None:
        self.bunches = bunches

    def __iter__(self) -> Iterator[Log]:
        for bunch in self.bunches:
            for key, rows in itertools.groupby(bunch.rows, key=_log):
                yield key[0], [row.facts for row in rows]


class KeptReplicas(Replicas):
    """Facts that the driver has, or will have once somebody asks: ``read`` gives them, from the beginning each time.

    Who stops the reading, as with Ctrl-C in a notebook, may ask again: all is read then, not the rest alone.
    """

    def __init__(self, read: Callable[[], Iterable[KeptFacts]]) -> None:
        self._read = read
        self._bunches: list[Bunch] | None = None

    def _each(self) -> Iterator[KeptFacts]:
        """All facts, in the order of their logs. The first time they are packed as they pass."""
        if self._bunches is not None:
            for bunch in self._bunches:
                yield from bunch.rows
            return
        gathered = Gathered[KeptFacts](lambda row: row[:4])
        for row in self._read():
            gathered.append(row)
        bunches = []
        for rows in _bunched(gathered.merged()):
            size = sum(len(row.facts) for row in rows)
            large = size + sum(len(row.resume_point) for row in rows) > len(rows) * LARGE
            bunches.append(Bunch(size, rows if large else dumps(rows)))
            yield from rows
        self._bunches, self._read = bunches, tuple  # what it holds is not needed any more

    def bunches(self) -> list[Bunch]:
        """All facts, in the order of their logs, as they are packed."""
        if self._bunches is None:
            for _ in self._each():
                pass
        return self._bunches or []

    def rows(self) -> list[KeptFacts]:
        """All facts, in the order of their logs."""
        return list(self._each())

    def briefs(self) -> list[Brief]:
        """The briefs of all replicas."""
        return briefs_of(row.brief for row in self._each())

    def logs(self) -> Iterator[Log]:
        """The facts of each log, in the order of the logs."""
        return iter(Logs(self.bunches()))

    def replaced(self, again: Replicas) -> KeptReplicas:
        """The newer facts of each replica."""
        newer = {row[:4]: row for row in again.rows()}
        found = KeptReplicas(lambda: (newer.get(row[:4], row) for row in self._each()))
        found.bunches()
        return found

    def close(self) -> None:
        """Forgets them."""
        self._bunches = []


def _log(row: KeptFacts) -> tuple[str, str, int]:
    return row[:3]


def _bunched(rows: Iterable[KeptFacts]) -> Iterator[list[KeptFacts]]:
    """Rows in the order of their logs, so many together as are packed together, each log whole."""
    bunch: list[KeptFacts] = []
    size = 0
    for _, of_log in itertools.groupby(rows, key=_log):
        replicas = list(of_log)
        more = sum(len(row.facts) for row in replicas)
        if bunch and (len(bunch) + len(replicas) > TOGETHER or size + more > LIST_BYTES):
            yield bunch
            bunch, size = [], 0
        bunch += replicas
        size += more
    if bunch:
        yield bunch


def lists(replicas: KeptReplicas, processes: int) -> list[Logs]:
    """The logs of some replicas in their order, shared out among so many processes: about the same bytes each."""
    bunches = replicas.bunches()
    whole = sum(bunch.size for bunch in bunches)
    count = max(1, min(processes * LISTS_PER_PROCESS, -(-whole // LIST_BYTES)))
    before, places = 0, []
    for bunch in bunches:
        places.append((2 * before + bunch.size) * count // (2 * whole + 1))  # where its middle is
        before += bunch.size
    shared = itertools.groupby(zip(places, bunches, strict=True), key=lambda placed: placed[0])
    return [Logs([bunch for _, bunch in some]) for _, some in shared]
