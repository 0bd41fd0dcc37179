"""Which policy each broker worked under, by the strongest evidence in the input (rules.md, *How auto picks*)."""

from __future__ import annotations

from typing import NamedTuple

from auditor.connectors.files import LogDir
from auditor.pipeline.cluster_settings import ClusterSettings

METADATA_VERSION_3_6 = 12  # 3.6-IV0


class PolicyChoice(NamedTuple):
    """The policy of one log directory and the evidence for it."""

    log_dir: str
    policy: str
    why: str


def choose(log_dir: LogDir, cluster: ClusterSettings, value_versions: set[int], wanted: str) -> PolicyChoice:
    """The policy for one log directory. ``value_versions``: those of the cluster's ``__transaction_state`` records."""
    if wanted not in ("auto", "kip-890"):
        return PolicyChoice(log_dir.name, wanted, "asked for by --policy")
    features = cluster.metadata.features if cluster.metadata is not None else {}
    transaction_version = features["transaction.version"].level if "transaction.version" in features else 0
    if transaction_version >= 1:
        part = "kip-890-p2" if transaction_version >= 2 else "kip-890-p1"
        return PolicyChoice(log_dir.name, part, f"transaction.version {transaction_version} in __cluster_metadata")
    if 1 in value_versions:
        return PolicyChoice(log_dir.name, "kip-890-p2", "value version 1 in __transaction_state")
    if wanted == "kip-890":
        return PolicyChoice(log_dir.name, "kip-890-p1", "asked for by --policy; no transaction.version 2 in the input")
    level = features["metadata.version"].level if "metadata.version" in features else 0
    if level >= METADATA_VERSION_3_6:
        return PolicyChoice(log_dir.name, "kip-890-p1", f"metadata.version {level} in __cluster_metadata")
    if log_dir.meta is not None and log_dir.meta.cluster_id is None:
        return PolicyChoice(log_dir.name, "pre-kip-360", "meta.properties without cluster.id")
    return PolicyChoice(log_dir.name, "kip-360", "assumed: nothing in the input tells another")
