"""What is worked out once of a log and kept for the next rule that asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from auditor.rules.seen.view import LogView

Given = ParamSpec("Given")
Found = TypeVar("Found")


def once(find: Callable[Concatenate[LogView, Given], Found]) -> Callable[Concatenate[LogView, Given], Found]:
    """Decorates a function of a log, and perhaps of values that can be keys: it is called once for a log and these.

    All who ask get the same object. What it gave is kept as long as the log's view: little, or of a bound.
    """

    @functools.wraps(find)
    def known(log: LogView, *values: Given.args, **named: Given.kwargs) -> Found:
        key = (find, *values)
        if key not in log.memo:
            log.memo[key] = find(log, *values, **named)
        found: Found = log.memo[key]
        return found

    return known
