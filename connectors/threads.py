"""Threads that wait for stores: one set a process, made when it is first needed, which a fork leaves behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Answer = TypeVar("Answer")

AT_ONCE = 64  # requests; as many connections :mod:`auditor.connectors.drivers` has pyarrow's S3 client make
_of_process: dict[int, ThreadPoolExecutor] = {}


def run(work: Callable[..., Answer], *given: object) -> Future[Answer]:
    """Begins ``work`` in a thread."""
    pool = _of_process.get(os.getpid())
    if pool is None:
        _of_process.clear()
        pool = _of_process[os.getpid()] = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")
    return pool.submit(work, *given)


def side_by_side(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """``work`` of each, in their order. Errors: the first that one raises."""
    if len(given) < 2:
        return [work(one) for one in given]
    return [future.result() for future in [run(work, one) for one in given]]


def apart(work: Callable[[Given], Answer], given: Sequence[Given]) -> list[Answer]:
    """As :func:`side_by_side`, of work that waits for such work itself: in threads of its own."""
    if len(given) < 2:
        return [work(one) for one in given]
    with ThreadPoolExecutor(min(len(given), AT_ONCE), thread_name_prefix="apart") as own:
        return list(own.map(work, given))
