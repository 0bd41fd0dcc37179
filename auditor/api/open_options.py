"""The options of auditor.open, checked against their types."""

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
from auditor.base.user_input import since_of
from auditor.pipeline.options import AuditOptions, limits_of, parse_time

# Checks of arguments against their type hints.


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
    """Check each value against its type hint; names without a hint are skipped. Errors: :class:`AuditInputError` for
    the first value of another type, with the accepted types. A bool is not accepted as an int."""
    for name, value in given.items():
        if name in hints and not _fits(value, hints[name]):
            *others, last = dict.fromkeys(_words(hints[name]))
            takes = f"{', '.join(others)} or {last}" if others else last
            raise AuditInputError(f"{name} is {' '.join(reprlib.repr(value).split())}; give {takes}")


def _fits(value: Any, hint: Any) -> bool:
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_fits(value, one) for one in inside)
    if kind is Literal:  # the value itself is checked where its meaning is known
        return any(isinstance(value, type(one)) for one in inside)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return False
    if issubclass(kind, Mapping):
        return all(_fits(key, inside[0]) and _fits(one, inside[1]) for key, one in value.items())
    if kind in (tuple, list, Sequence):
        return not isinstance(value, str | bytes) and all(_fits(one, inside[0]) for one in value)
    return True


def _words(hint: Any) -> list[str]:
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


# The options of ``auditor.open``: those of ``auditor audit`` with ``_`` for ``-``; repeatable ones take a list or a
# tuple. A test compares them with the command line's.


Time = str | int | datetime.datetime
Several = str | tuple[str, ...] | list[str]
AnyPath = str | os.PathLike[str]
Severity = Literal["critical", "error", "warning", "info", "never"]


class OpenOptions(TypedDict, total=False):
    """The options of :func:`auditor.open`. Each is optional."""

    topic: Several
    """Read only the topics that match this glob, or one of several. Internal topics are always read."""
    only_partition: Several | int
    """Read only the partitions ``TOPIC-N`` that match, or those of this number; one or several."""
    only_broker: int | Sequence[int]
    """Read only the copies of this broker, or of these."""
    since: Time | None
    """Read logs from an offset (a number), a ``datetime``, or an ISO-8601 time on. Transactions that were already open
    are still reported."""
    as_of: Time | None
    """The evaluation time of timeouts: a ``datetime``, ISO-8601, epoch milliseconds or ``"now"``. Default: the newest
    broker-written time in the input."""
    rule: Several
    """Only this rule, or these."""
    skip_rule: Several
    """All but this rule, or these."""
    records: bool
    """Decode every record too (KIP-467 checks)."""
    policy: str
    """Broker behaviour to assume; ``auto`` (the default) detects it from the input."""
    at_once: bool
    """The input is a point-in-time snapshot (LVM, ZFS): do not excuse differences by the time of copying."""
    whole: bool
    """All log directories of each broker are in the input: a replica without a directory is lost."""
    remote: AnyPath | Sequence[AnyPath]
    """Directories with the remote part of tiered topics that are not below the paths; one or several."""
    fail_on: Severity
    """``exit_status`` is 1 at findings of this severity or above; ``error`` by default."""
    fail_on_unsure: bool
    """``exit_status`` is also 1 if a partition may be blocked past its timeout but the input cannot confirm it."""
    baseline: AnyPath | None
    """The file of suppressed findings that ``auditor baseline`` writes."""
    max_findings: int
    """Findings listed per rule and partition; a hundred times as many in all. The rest is summed."""
    cluster_name: str | None
    """The name of the only cluster of the input."""
    clusters: Mapping[str, str | Values] | AnyPath
    """By cluster id a name, or a table with ``name``, ``owner``, ``link`` and ``labels``; or a file with such a table
    ``[clusters]``, as ``auditor.toml``."""
    include_payload: bool
    """Include keys and values in the table ``records``."""
    work: AnyPath | None
    """A directory or URI for the facts of each partition: the next audit of the same input reuses them."""
    resume: bool
    """Resume from ``work``; fail if it is empty."""
    split_size: int
    """Bytes of a segment per task, for tables."""
    max_batch_bytes: int
    """Maximum bytes of a batch, decompressed."""
    max_batch_ratio: int
    """Maximum ratio of decompressed to stored bytes of a batch."""


# Options that AuditOptions takes as they are.
_PLAIN = (
    "records", "policy", "at_once", "whole", "fail_on", "fail_on_unsure", "max_findings", "cluster_name",
    "include_payload", "resume", "split_size",
)  # fmt: skip


def audit_options(paths: Sequence[AnyPath], given: Values, **fixed: Any) -> AuditOptions:
    """Return the options as checked data; ``fixed``: fields of :class:`AuditOptions` that are no option of
    :class:`OpenOptions`.

    Errors: ``AuditInputError`` for an unknown name, or a value that is invalid or of another type.
    """
    if unknown := sorted(given.keys() - OpenOptions.__annotations__.keys()):
        raise AuditInputError(f"no option named {unknown[0]!r}; there are {', '.join(OpenOptions.__annotations__)}")
    check(given, get_type_hints(OpenOptions))
    of = given.get
    limits = {name: given[name] for name in ("max_batch_bytes", "max_batch_ratio") if name in given}
    work, baseline, since = of("work"), of("baseline"), of("since")
    return AuditOptions(
        tuple(os.fspath(path) for path in paths),
        Path(),
        topics=several(of("topic", ())),
        only_partitions=several(text(of("only_partition", ()))),
        only_brokers=numbers(of("only_broker", ())),
        since=None if since is None else since_of(_time_text(since)),
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
    """Return the signature of a function of ``**options`` with one parameter per option, for completion in
    notebooks."""
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
    """Return one text or several as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def text(given: Several | int) -> Several:
    """Return a partition number as a glob."""
    return str(given) if isinstance(given, int) else given


def numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    """Return one number or several as a tuple."""
    return (given,) if isinstance(given, int) else tuple(given)


def _places(given: AnyPath | Sequence[AnyPath]) -> tuple[str, ...]:
    return tuple(os.fspath(one) for one in ([given] if isinstance(given, str | os.PathLike) else given))


def moment_of(given: Time | None) -> int | None:
    """Return a time in epoch milliseconds. Errors: :class:`AuditInputError` for an invalid one."""
    return None if given is None else parse_time(_time_text(given))


def _time_text(given: Time) -> str:
    return given.isoformat() if isinstance(given, datetime.datetime) else str(given)


def _clusters(given: Values | AnyPath) -> user_input.Names:
    if isinstance(given, Mapping):
        return user_input.of_table(given, "clusters")
    return user_input.of_file(Path(given))
