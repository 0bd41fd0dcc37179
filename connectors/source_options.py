"""The options of the Spark data sources, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.base.errors import DEFAULT_LIMITS, AuditInputError
from auditor.base.numbers import setting_number
from auditor.base.user_input import Scope, since_of
from auditor.connectors import inventory_json
from auditor.connectors.files import Inventory
from auditor.connectors.rows import How

FAR = 1 << 62
# The tables of what segments hold, which readStream gives.
STREAMED = (
    "batches",
    "records",
    "transaction_log",
    "offset_commits",
    "group_metadata",
    "share_group_state",
    "remote_log_metadata",
)


@dataclass(frozen=True)
class Asked:
    """What a reader was asked for; ``split_size`` in bytes, ``refused``: files not to open by path, and why.

    ``offsets``: from which offset to which one, both among them, segments are read; ``columns``: those that the rows
    have, all where there are none."""

    paths: list[str]
    scope: Scope
    split_size: int
    how: How
    refused: dict[str, str]
    offsets: tuple[int, int] = (0, FAR)
    columns: tuple[str, ...] = ()


def asked(given: Mapping[str, str]) -> Asked:
    """The options of a reader, in any case. Errors: :class:`AuditInputError` for one that is wrong, or where
    no path is given."""
    options = {name.lower(): value for name, value in given.items()}
    paths = options.get("paths") or options.get("path")
    if not paths:
        raise AuditInputError("no path was given; give it to load(), or several as a JSON list in the option paths")
    since = options.get("since")
    scope = Scope(
        tuple(map(str, _several(options, "topics"))),
        tuple(map(str, _several(options, "partitions"))),
        tuple(_numbers(options, "brokers")),
        None if since is None else since_of(since),
    )
    return Asked(
        json.loads(paths) if "paths" in options else [paths],
        scope,
        _number(options, "splitSize", 128 << 20, 1 << 16),
        how_of(given),
        json.loads(options.get("refused", "{}")),
        (_number(options, "fromOffset", 0, 0), _number(options, "toOffset", FAR, 0)),
        columns_of(given),
    )


def inventory_of(given: Mapping[str, str]) -> Inventory | None:
    """What is read below the paths, where the auditor has listed them already (option ``inventory``).

    Errors: :class:`AuditInputError` for a text that it did not make.
    """
    text = {name.lower(): value for name, value in given.items()}.get("inventory", "")
    return inventory_json.loads(text) if text else None


def streamed(table: str, given: Mapping[str, str]) -> None:
    """Errors: :class:`AuditInputError` for options that are wrong, or a table that has no streaming form."""
    asked(given)
    if table not in STREAMED:
        raise AuditInputError(f"{table} has no streaming form; {', '.join(STREAMED)} have: what logs append")


def fails(given: Mapping[str, str]) -> bool:
    """Whether a stream fails where something was deleted before it was read: the option ``failOnDataLoss``."""
    return _flag({"failondataloss": "true", **{name.lower(): value for name, value in given.items()}}, "failOnDataLoss")


def how_of(given: Mapping[str, str]) -> How:
    """Those that say how files are read, in any case. Errors: :class:`AuditInputError`."""
    options = {name.lower(): value for name, value in given.items()}
    limits = DEFAULT_LIMITS._replace(
        max_batch_bytes=_number(options, "maxBatchBytes", DEFAULT_LIMITS.max_batch_bytes, 1 << 10),
        max_batch_ratio=_number(options, "maxBatchRatio", DEFAULT_LIMITS.max_batch_ratio, 1),
    )
    return How(limits, _flag(options, "includePayload"), _flag(options, "deep"))


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that were asked for, none for all. Errors: :class:`AuditInputError`."""
    return tuple(map(str, _several({name.lower(): value for name, value in given.items()}, "columns")))


def _several(options: Mapping[str, str], name: str) -> list[object]:
    """A JSON list, or one value alone."""
    text = options.get(name, "[]")
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, list) else [found]


def _numbers(options: Mapping[str, str], name: str) -> list[int]:
    found = _several(options, name)
    numbers = [one for one in found if isinstance(one, int)]
    if len(numbers) < len(found):
        raise AuditInputError(f"option {name} is {options[name]!r}; give a JSON list of whole numbers")
    return numbers


def _flag(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name.lower(), "false")).lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = str(options.get(name.lower(), default))
    number = setting_number(text, least)
    if number is None:
        raise AuditInputError(f"option {name} is {text!r}; give a whole number of at least {least}")
    return number
