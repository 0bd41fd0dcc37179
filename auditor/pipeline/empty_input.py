"""Input that is Kafka's and holds nothing to judge: log directories without segment files, clusters without topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from auditor.base.user_input import EVERYTHING, Scope
from auditor.connectors.logdir.files import Inventory
from auditor.pipeline.cluster.cluster_settings import METADATA_TOPIC, ClusterSettings


class EmptyInput(NamedTuple):
    """Why nothing could be judged. ``is_new``: a new cluster, whose metadata shows that there is nothing yet."""

    reason: str
    is_new: bool = False


NO_SEGMENTS = EmptyInput("no segment files in the input (.log)")
ONLY_METADATA = EmptyInput("no partitions in the input, only cluster metadata")
EMPTY_SEGMENTS = EmptyInput("all segment files in the input (.log) are empty")
NO_SEGMENTS_OF = "no segment files of cluster {} in the input (.log), or only empty ones"
NO_TOPICS = EmptyInput("no topics yet: the cluster's metadata has none", is_new=True)
NOTHING_VISIBLE = EmptyInput("no partitions visible: empty cluster, or missing Describe permission")
NOTHING_READABLE = EmptyInput("no visible partition could be read: see the notes")


def of_directories(
    read: Inventory, settings: Mapping[str, ClusterSettings], scope: Scope = EVERYTHING
) -> EmptyInput | None:
    """Why a cluster among log directories gives nothing to judge; None where each gives something. ``read``: what
    ``scope`` leaves. The metadata log is not counted: it says which partitions there are, not what is in them. Nor are
    logs without a byte, unless the metadata log has some: then it is known that they may be empty."""
    found: dict[str, bool] = {}
    sizes: Counter[str] = Counter()
    has_metadata = has_segments = False
    for log_dir in read.log_dirs:
        named = [c for c in log_dir.replicas if c.segments and scope.names(c.topic, c.partition)]
        has_data = bool(log_dir.texts) or any(c.topic != METADATA_TOPIC for c in named)
        found[log_dir.join_key] = found.get(log_dir.join_key, False) or has_data
        has_metadata |= any(c.topic == METADATA_TOPIC for c in named)
        has_segments |= bool(named)
        sizes[log_dir.join_key] += len(log_dir.texts) + sum(s.size for c in named for s in c.segments)
    found = {key: has_data and sizes[key] > 0 for key, has_data in found.items()}
    empty = [key for key, has_data in found.items() if not has_data]
    unknown = [key for key in empty if not _is_new(settings.get(key))]
    if not empty:
        return None
    if not unknown:
        return NO_TOPICS if len(empty) == len(found) else None
    if len(empty) == len(found):
        if has_segments and not sizes.total():
            return EMPTY_SEGMENTS
        return ONLY_METADATA if has_metadata else NO_SEGMENTS
    ids = {d.join_key: d.cluster_id or d.name for d in read.log_dirs}
    return EmptyInput(NO_SEGMENTS_OF.format(", ".join(ids[key] for key in unknown)))


def _is_new(known: ClusterSettings | None) -> bool:
    """Whether all of a cluster's metadata could be read, and has no topic."""
    return known is not None and known.metadata is not None and known.whole and not known.metadata.topics
