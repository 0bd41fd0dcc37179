"""Which policy each broker worked under, by the strongest evidence in the input (rules.md, *How auto picks*)."""

from __future__ import annotations

from typing import NamedTuple

from auditor.connectors.logdir.files import LogDir
from auditor.model import policies
from auditor.model.policies import UNKNOWN, Policy, policy_at, shown_by
from auditor.pipeline.cluster.cluster_settings import ClusterSettings


class PolicyChoice(NamedTuple):
    """The policy of one log directory and the evidence for it."""

    log_dir: str
    policy: str
    why: str


def choose(log_dir: LogDir, cluster: ClusterSettings, value_versions: set[int], wanted: str) -> PolicyChoice:
    """The policy for one log directory. ``value_versions``: those of the cluster's ``__transaction_state`` records."""
    if wanted not in (policies.AUTO, policies.VERIFIED):
        return PolicyChoice(log_dir.name, wanted, "asked for by --policy")
    parts = policies.PARTS[policies.VERIFIED]
    version = cluster.levels.get("transaction.version", 0)
    if version >= 1:
        part = policies.BY_TRANSACTION_VERSION[min(version, max(policies.BY_TRANSACTION_VERSION))]
        return PolicyChoice(log_dir.name, part, f"transaction.version {version} in __cluster_metadata")
    if 1 in value_versions:
        return PolicyChoice(log_dir.name, parts[-1], "value version 1 in __transaction_state")
    if wanted == policies.VERIFIED:
        return PolicyChoice(log_dir.name, parts[0], "asked for by --policy; no transaction.version 2 in the input")
    level = cluster.levels.get("metadata.version", 0)
    if (least := shown_by(level).rows[0].policy) in parts:
        return PolicyChoice(log_dir.name, least, f"metadata.version {level} in __cluster_metadata")
    if log_dir.meta is not None and log_dir.meta.cluster_id is None:
        return PolicyChoice(log_dir.name, policies.OLDEST, "meta.properties without cluster.id")
    return PolicyChoice(log_dir.name, policies.ASSUMED, "assumed: nothing in the input shows another one")


def candidates(log_dir: LogDir, cluster: ClusterSettings, wanted: str) -> set[str]:
    """The policies that :func:`choose` may come to once ``__transaction_state`` has been read."""
    return {choose(log_dir, cluster, versions, wanted).policy for versions in (set[int](), {1})}


def known_before(log_dir: LogDir, cluster: ClusterSettings, wanted: str) -> Policy:
    """What a log directory's broker decides by, as far as that is known before its logs are read: they may still show
    that it is another one (:func:`candidates`)."""
    name = choose(log_dir, cluster, set(), wanted).policy
    return policy_at(name, cluster.releases.get(log_dir.broker_id, UNKNOWN))
