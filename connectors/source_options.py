"""The options of the Spark data sources, checked."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.base.numbers import setting_number
from auditor.connectors.rows import How


@dataclass(frozen=True)
class Asked:
    """What a reader was asked for; ``split_size`` in bytes, ``refused``: files not to open by path, and why."""

    paths: list[str]
    topics: list[str]
    split_size: int
    how: How
    refused: dict[str, str]

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic is read; internal ones always are."""
        internal = topic.startswith("__")
        return not self.topics or internal or any(fnmatch.fnmatchcase(topic, glob) for glob in self.topics)


def asked(options: Mapping[str, str]) -> Asked:
    """The options of a reader. Errors: :class:`AuditInputError` for one that is wrong, and where no path is given."""
    paths = options.get("paths") or options.get("path")
    if not paths:
        raise AuditInputError("no path was given; give it to load(), or several as a JSON list in the option paths")
    return Asked(
        json.loads(paths) if "paths" in options else [paths], json.loads(options.get("topics", "[]")),
        _number(options, "splitSize", 128 << 20, 1 << 16), how_of(options), json.loads(options.get("refused", "{}")),
    )  # fmt: skip


def how_of(options: Mapping[str, str]) -> How:
    """Those that say how files are read. Errors: :class:`AuditInputError`."""
    limits = DEFAULT_LIMITS._replace(
        max_batch_bytes=_number(options, "maxBatchBytes", DEFAULT_LIMITS.max_batch_bytes, 1 << 10),
        max_batch_ratio=_number(options, "maxBatchRatio", DEFAULT_LIMITS.max_batch_ratio, 1),
    )
    return How(limits, _flag(options, "includePayload"), _flag(options, "deep"))


def _flag(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name, "false")).lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = str(options.get(name, default))
    number = setting_number(text, least)
    if number is None:
        raise AuditInputError(f"option {name} is {text!r}; give a whole number of at least {least}")
    return number
