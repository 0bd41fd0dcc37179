"""Options of auditor.open, checked against their types."""

from __future__ import annotations

import datetime
import inspect
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

from auditor.base import user_input
from auditor.base.at_rest import Values
from auditor.base.errors import DEFAULT_LIMITS, AuditInputError
from auditor.base.user_input import Since, since_of
from auditor.pipeline.options import AuditOptions, limits_of, parse_time

# Arguments held against their type hints: what is not of its type is a wrong call, said in one line.


_WORDS = {
    str: "a text",
    int: "a whole number",
    bool: "True or False",
    datetime.datetime: "a datetime",
    NoneType: "None",
    os.PathLike: "a path",
    Callable: "a function",
}
_SEVERAL = {str: "texts", int: "whole numbers", os.PathLike: "paths"}


def check(given: Values, hints: Values) -> None:
    """Holds each value against the hint of its name. Errors: :class:`AuditInputError` for the first that is of another
    type, with what it may be. True is no whole number."""
    for name, value in given.items():
        if not _fits(value, hints[name]):
            *others, last = dict.fromkeys(_words(hints[name]))
            takes = f"{', '.join(others)} or {last}" if others else last
            raise AuditInputError(f"{name} is {' '.join(reprlib.repr(value).split())}; give {takes}")


def _fits(value: Any, hint: Any) -> bool:
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if kind is Literal:  # which of them it is, is asked where it is known what they mean
        return any(isinstance(value, type(one)) for one in inside)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return False
    if issubclass(kind, Mapping):
        return all(_fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items())
    if kind in (tuple, list, Sequence):
        return not isinstance(value, str | bytes) and all(_fits(one, inside[0]) for one in value)
    return True


def _words(hint: Any) -> list[str]:
    """What a value may be, each kind once by itself."""
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return [word for one in inside for word in _words(one)]
    if kind is Literal:
        return [repr(one) for one in inside]
    if issubclass(kind, Mapping):
        return ["a dict by texts"]
    if kind in (tuple, list, Sequence):
        of = {get_origin(one) or one for one in (get_args(inside[0]) or inside[:1])}
        return [f"a list of {_SEVERAL[one]}" for one in (os.PathLike, str, int) if one in of][:1]
    return [_WORDS[kind]]


# What ``auditor.open`` takes by name, and how Python's values become what the audit goes by.
#
# The options of ``auditor audit`` under their names, ``-`` as ``_``; of one that is repeatable there, a list or a tuple
# here. Editors, notebooks and mypy see them; a test holds them against the command line's.


Time = str | int | datetime.datetime
Several = str | tuple[str, ...] | list[str]
AnyPath = str | os.PathLike[str]
Severity = Literal["critical", "error", "warning", "info", "never"]


class OpenOptions(TypedDict, total=False):
    """The options of :func:`auditor.open`. Each may be left out."""

    topic: Several
    """Read only the topics that match this glob, or one of several. Internal topics are always read."""
    only_partition: Several | int
    """Read only the partitions ``TOPIC-N`` that match, or those of this number; one or several."""
    only_broker: int | Sequence[int]
    """Read only the copies of this broker, or of these."""
    since: Time | None
    """Read logs from here on: an offset (a number), a ``datetime``, or ISO-8601. What a producer snapshot has open
    there is named all the same."""
    as_of: Time | None
    """The clock that time-outs are judged by: a ``datetime``, ISO-8601, epoch milliseconds or ``"now"``. Default: the
    newest broker-written time in the input."""
    rule: Several
    """Only this rule, or these."""
    skip_rule: Several
    """All but this rule, or these."""
    records: bool
    """Decode every record too (KIP-467 checks)."""
    policy: str
    """Which brokers' rules the log was written under; ``auto`` (the default) finds out."""
    at_once: bool
    """Every file is of one moment, as in a snapshot of the file system: nothing is put down to copying."""
    whole: bool
    """All log directories of each broker are in the input: a replica without a folder is lost, not left out."""
    remote: AnyPath | Sequence[AnyPath]
    """A folder with the remote part of tiered topics, or several, where it is not below the paths."""
    fail_on: Severity
    """``exit_status`` is 1 at findings of this severity or above; ``error`` by default."""
    fail_on_unsure: bool
    """``exit_status`` is 1 also where a partition is held for longer than is normal, if it is held still."""
    baseline: AnyPath | None
    """The file of accepted findings that ``auditor baseline`` writes."""
    max_findings: int
    """Of a rule in a partition, a hundred times as many in all; those beyond are summed."""
    cluster_name: str | None
    """What people call the one cluster of the input."""
    clusters: Mapping[str, str | Values] | AnyPath
    """What they call which, by cluster id: a name, or a table with ``name``, ``owner``, ``link`` and ``labels``; or a
    file, such as ``auditor.toml``, whose table ``[clusters]`` says so."""
    include_payload: bool
    """Let keys and values into the table ``records``."""
    work: AnyPath | None
    """A folder or URI where what was read of each partition is kept: the next audit of the same input reads nothing
    twice."""
    resume: bool
    """Go on in ``work``, which an earlier audit must have begun."""
    split_size: int
    """Of tables: bytes of a segment that a task reads."""
    max_batch_bytes: int
    """Bytes that a batch may take, plain."""
    max_batch_ratio: int
    """How many times its stored size a batch may become."""


_PLAIN = (
    "records",
    "policy",
    "at_once",
    "whole",
    "fail_on",
    "fail_on_unsure",
    "max_findings",
    "cluster_name",
    "include_payload",
    "resume",
    "split_size",
)


def audit_options(paths: Sequence[AnyPath], given: Values, **fixed: Any) -> AuditOptions:
    """The options as checked data; ``settled``: what is not one of :class:`OpenOptions`.

    Errors: ``AuditInputError`` for a name or value that is none, or is of another type.
    """
    if unknown := sorted(given.keys() - OpenOptions.__annotations__.keys()):
        raise AuditInputError(f"no option named {unknown[0]!r}; there are {', '.join(OpenOptions.__annotations__)}")
    check(given, get_type_hints(OpenOptions))
    of = given.get
    limits = {name: given[name] for name in ("max_batch_bytes", "max_batch_ratio") if name in given}
    work, baseline = of("work"), of("baseline")
    return AuditOptions(
        tuple(os.fspath(path) for path in paths),
        Path(),
        topics=several(of("topic", ())),
        only_partitions=several(text(of("only_partition", ()))),
        only_brokers=numbers(of("only_broker", ())),
        since=_since(of("since")),
        as_of=moment_of(of("as_of")),
        rules=several(of("rule", ())),
        skip_rules=several(of("skip_rule", ())),
        remote=_places(of("remote", ())),
        baseline=None if baseline is None else Path(baseline),
        work=None if work is None else os.fspath(work),
        clusters=_clusters(of("clusters", {})),
        limits=limits_of(**limits),
        **{name: given[name] for name in _PLAIN if name in given},
        **fixed,
    )


def signature(function: Any) -> inspect.Signature:
    """The signature of a function of ``**options``, with each option by itself: notebooks complete by it."""
    base = inspect.signature(function)
    own = [one for one in base.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    hints = get_type_hints(OpenOptions)
    defaults = {name: getattr(AuditOptions, name) for name in _PLAIN} | DEFAULT_LIMITS._asdict()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=hint)
        for name, hint in hints.items()
    ]
    return base.replace(parameters=[*own, *named])


def several(given: Several) -> tuple[str, ...]:
    """One text, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def text(given: Several | int) -> Several:
    """A number as the glob that it is."""
    return str(given) if isinstance(given, int) else given


def numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    """One number, or several."""
    return (given,) if isinstance(given, int) else tuple(given)


def _places(given: AnyPath | Sequence[AnyPath]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in ([given] if isinstance(given, str | os.PathLike) else given))


def moment_of(given: Time | None) -> int | None:
    """A moment in ms. Errors: :class:`AuditInputError` for what is none."""
    if given is None:
        return None
    return parse_time(given.isoformat() if isinstance(given, datetime.datetime) else str(given))


def _since(given: Time | None) -> Since | None:
    if given is None:
        return None
    return since_of(given.isoformat() if isinstance(given, datetime.datetime) else str(given))


def _clusters(given: Values | AnyPath) -> user_input.Names:
    if isinstance(given, Mapping):
        return user_input.of_table(given, "clusters")
    return user_input.of_file(Path(given))
