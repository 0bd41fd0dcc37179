"""The options of the Spark data sources, checked."""

from __future__ import annotations

import base64
import fnmatch
import json
import pickle
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.base.errors import AuditInputError
from auditor.base.limits import DEFAULT_LIMITS
from auditor.base.numbers import setting_number
from auditor.connectors.files import Inventory
from auditor.connectors.rows import How


@dataclass(frozen=True)
class Asked:
    """What a reader was asked for; ``split_size`` in bytes, ``refused``: files not to open by path, and why.

    ``inventory``: what is below the paths, where somebody has looked (:func:`shipped`).
    """

    paths: list[str]
    topics: list[str]
    split_size: int
    how: How
    refused: dict[str, str]
    inventory: Inventory | None = None

    def wants_topic(self, topic: str) -> bool:
        """Whether a topic is read; internal ones always are."""
        internal = topic.startswith("__")
        return not self.topics or internal or any(fnmatch.fnmatchcase(topic, glob) for glob in self.topics)


def asked(given: Mapping[str, str]) -> Asked:
    """The options of a reader, in any case. Errors: :class:`AuditInputError` for one that is wrong, or where
    no path is given."""
    options = {name.lower(): value for name, value in given.items()}
    paths = options.get("paths") or options.get("path")
    if not paths:
        raise AuditInputError("no path was given; give it to load(), or several as a JSON list in the option paths")
    return Asked(
        json.loads(paths) if "paths" in options else [paths], json.loads(options.get("topics", "[]")),
        _number(options, "splitSize", 128 << 20, 1 << 16), how_of(given), json.loads(options.get("refused", "{}")),
        _inventory(options.get("inventory", "")),
    )  # fmt: skip


def shipped(inventory: Inventory) -> str:
    """An inventory as the value of the option ``inventory``: some 75 bytes a partition copy of three segments."""
    return base64.b85encode(zlib.compress(pickle.dumps(inventory, 5), 1)).decode()


def _inventory(text: str) -> Inventory | None:
    found: Inventory | None = pickle.loads(zlib.decompress(base64.b85decode(text))) if text else None
    return found


def how_of(given: Mapping[str, str]) -> How:
    """Those that say how files are read, in any case. Errors: :class:`AuditInputError`."""
    options = {name.lower(): value for name, value in given.items()}
    limits = DEFAULT_LIMITS._replace(
        max_batch_bytes=_number(options, "maxBatchBytes", DEFAULT_LIMITS.max_batch_bytes, 1 << 10),
        max_batch_ratio=_number(options, "maxBatchRatio", DEFAULT_LIMITS.max_batch_ratio, 1),
    )
    return How(limits, _flag(options, "includePayload"), _flag(options, "deep"))


def _flag(options: Mapping[str, str], name: str) -> bool:
    return str(options.get(name.lower(), "false")).lower() == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = str(options.get(name.lower(), default))
    number = setting_number(text, least)
    if number is None:
        raise AuditInputError(f"option {name} is {text!r}; give a whole number of at least {least}")
    return number
