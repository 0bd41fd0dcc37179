"""Who a log directory belongs to: cluster, broker, checkpoints at its top, and the settings of its broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from auditor.base.errors import DEFAULT_LIMITS, DecodeError, Limits
from auditor.base.numbers import parse_int
from auditor.connectors import names, storage
from auditor.connectors.codec.small_files import (
    OF_BROKERS,
    MetaProperties,
    Offsets,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_properties,
    may_show,
    sort_out,
)
from auditor.connectors.files import BrokerSettings, DataFile, LogDir
from auditor.connectors.naming import is_above
from auditor.connectors.storage import Place

JUDGED = "; what depends on it is judged by Kafka's default, or not at all"


class Identity(NamedTuple):
    """What the small files of a log directory say. ``note``: how the broker id was found, if not by its own word."""

    meta: MetaProperties | None
    broker_id: int | None
    source: str
    checkpoints: dict[str, Offsets]
    whole_checkpoints: frozenset[str]
    errors: list[DecodeError]
    note: str


def identify(place: Place, log_dir: str, small: dict[str, int], limits: Limits) -> Identity:
    """Read ``meta.properties`` and the offset checkpoints of a log directory; ``small``: name -> size in bytes."""
    errors: list[DecodeError] = []
    meta = None
    checkpoints: dict[str, Offsets] = {}
    whole = set()
    for name in sorted(small.keys() - {names.CLEAN_SHUTDOWN}):
        data = storage.read_file(place, name, limit=limits.small_file(name))
        if isinstance(data, DecodeError):
            errors.append(data)
        elif name == names.META:
            meta, wrong = decode_meta_properties(data, name)
            errors += wrong
        else:
            offsets, wrong = decode_offset_checkpoint(data, name)
            checkpoints[names.CHECKPOINT_KINDS[name]] = Offsets(offsets)
            errors += wrong
            if not wrong:
                whole.add(names.CHECKPOINT_KINDS[name])
    if meta and meta.broker_id is not None:
        return Identity(meta, meta.broker_id, names.META, checkpoints, frozenset(whole), errors, "")
    digits = names.trailing_digits(place.name)
    source, found = ("none", "no broker id: neither meta.properties nor its name gives one")
    if digits is not None:
        source, found = ("folder name", f"broker id {digits} taken from the folder's name, for want of meta.properties")
    return Identity(meta, digits, source, checkpoints, frozenset(whole), errors, f"{log_dir}: {found}")


def read_settings(where: Place, file: str, size: int) -> tuple[BrokerSettings, list[DecodeError]]:
    """The settings in a ``server.properties`` that matter to logs, none of them sensitive.

    Errors: the file cannot be read, ``bad_setting`` for lines that do not parse, since any setting may have stood
    there, and for each setting that an audit goes by whose value no broker takes.
    """
    data = storage.read_file(where, limit=DEFAULT_LIMITS.max_properties_bytes)
    if isinstance(data, DecodeError):
        return BrokerSettings(file, size, None, {}, frozenset(OF_BROKERS)), [data._replace(file=file)]
    values, wrong = decode_properties(data, file)
    found = sort_out({key: value for key, value in sorted(values.items()) if may_show(key)}, OF_BROKERS)
    errors = [error._replace(reason="bad_setting") for error in wrong]
    for key in sorted(found.refused):
        errors.append(DecodeError(file, 0, size, "bad_setting", f"{key} has a value that no broker takes{JUDGED}"))
    unknown = found.refused | found.elsewhere | frozenset(set(OF_BROKERS) - set(values) if wrong else ())
    broker_id = parse_int(values.get("node.id", values.get("broker.id", "")).strip(), 32)
    return BrokerSettings(file, size, broker_id, found.known, unknown, found.elsewhere), errors


def configure(log_dirs: Iterable[LogDir], settings: Iterable[tuple[Place, BrokerSettings]]) -> list[LogDir]:
    """Give each log directory the settings of its broker that lie nearest above it."""
    nearest_last = sorted(settings, key=lambda item: (item[0].path.count("/"), item[1].file))
    result = []
    for log_dir in log_dirs:
        for where, found in nearest_last:
            if (
                found.broker_id is not None
                and found.broker_id == log_dir.broker_id
                and is_above(where.parent, log_dir.place)
            ):
                log_dir = replace(log_dir, configs=found.configs, unknown_settings=found.unknown)
        result.append(log_dir)
    return result


def from_elsewhere(settings: BrokerSettings) -> str:
    """That the values of some settings do not stand in their file."""
    names = ", ".join(sorted(settings.elsewhere))
    return f"{settings.file} takes {names} from elsewhere, which is not in the input{JUDGED}"


def in_two_places(log_dirs: Iterable[LogDir]) -> list[str]:
    """Live partitions that stand in two log directories of one broker: Kafka refuses to start then."""
    seen: dict[tuple[str, int, str, int], str] = {}
    notes = []
    for log_dir in log_dirs:
        for replica in log_dir.replicas:
            if log_dir.broker_id is None or replica.topic is None or replica.partition is None:
                continue
            key = (log_dir.join_key, log_dir.broker_id, replica.topic, replica.partition)
            if key in seen:
                where = f"{seen[key]} and {log_dir.name}"
                notes.append(f"{replica.topic}-{replica.partition} is live in {where} of broker {log_dir.broker_id}")
            seen.setdefault(key, log_dir.name)
    return notes


def small_files(small: dict[str, int]) -> tuple[DataFile, ...]:
    """The small files of a log directory as data files, by name."""
    return tuple(
        DataFile(name, size, names.CHECKPOINT_KINDS.get(name, name), -1) for name, size in sorted(small.items())
    )
