"""What an earlier copy holds that a new one must not replace: other brokers, and logs whose segments are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from auditor.base.errors import AuditInputError
from auditor.connectors.codec.small_files import MetaProperties, decode_meta_properties
from auditor.connectors.logdir import names
from auditor.connectors.logdir.files import LogDir
from auditor.copying.folders import Folder
from auditor.copying.target import Target

Broker = tuple[str | None, int | None]  # cluster id and broker id


def check_owner(target: Target, log_dirs: Iterable[LogDir]) -> None:
    """Goes by ``meta.properties``, here and in the copy.

    Errors: :class:`AuditInputError` where the target has a copy of brokers none of which is in the input.
    """
    here = {_broker(log_dir.meta) for log_dir in log_dirs if log_dir.meta is not None}
    there = set(_brokers_of(target))
    if there and not here & there:
        cluster, broker = min(there, key=str)
        raise AuditInputError(
            f"{target.place.shown}: holds the copy of broker {broker} of cluster {cluster}, which is not in the input; "
            "give a folder of its own"
        )


def without_segments(target: Target, folders: Collection[Folder]) -> list[str]:
    """The partition directories of which the target has segments and the input has no ``.log`` file: a broker keeps
    one per log, so they are missing. Directories that the input does not have count where their log directory, or the
    whole input, has no ``.log`` file: then no topic was deleted, but a disk is empty or not mounted."""
    lacking = {folder.name for folder in folders if folder.topic is not None and not folder.aside}
    lacking -= (with_segments := {folder.name for folder in folders if folder.has_segments})
    empty = {folder.name for folder in folders if folder.name == folder.log_dir}
    empty -= {name.rpartition("/")[0] for name in with_segments}
    gone = target.folders() - {folder.name for folder in folders}
    if with_segments:
        gone = {name for name in gone if _is_partition(name) and name.rpartition("/")[0] in empty}
    return sorted(name for name in lacking | gone if _has_segments(target, name))


def _is_partition(name: str) -> bool:
    says = names.partition_folder(name.rpartition("/")[2])
    return says is not None and says.kind == "live"


def _has_segments(target: Target, name: str) -> bool:
    found = target.list_of(name)
    return found is not None and any(item.taken is not None and item.gone is None for item in found.files)


def _broker(meta: MetaProperties) -> Broker:
    return meta.cluster_id, meta.broker_id


def _brokers_of(target: Target) -> Iterable[Broker]:
    for name in target.folders():
        if names.partition_folder(name.rpartition("/")[2]) is not None:
            continue
        found = target.list_of(name)
        item = found.file(names.META) if found is not None else None
        data = None if item is None else item.content if item.kept is None else target.read(name, item.kept)
        if data is not None:
            meta, _ = decode_meta_properties(data, names.META)
            if meta is not None:
                yield _broker(meta)
