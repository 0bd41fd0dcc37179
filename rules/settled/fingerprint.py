"""What makes a finding of one run the same as a finding of another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from auditor.base.at_rest import Values
from auditor.rules.catalogue import registry
from auditor.rules.seen.finding import NO_OUTCOME, Finding, in_order

OF_ONE_REPLICA = frozenset({"segment integrity", "replicas"})  # families whose findings are about one file or replica
PARTS = (
    "topic",
    "partition",
    "offset",
    "producer_id",
    "producer_epoch",
    "transactional_id",
    "group_id",
)


def fingerprint(finding: Values, cluster_id: str | None) -> str:
    """SHA-256, in hex, of what the finding is about; message, evidence, severity and times do not count.

    ``finding`` has the contract's fields; in a run of the past its rule is its kind. ``cluster_id`` is that of the log
    directory it was found in, None where ``meta.properties`` does not show. The broker counts only for findings about
    one file or one replica, since the leader that stands for all replicas may change from run to run. Errors: KeyError
    for a kind that is not in the catalogue.
    """
    kind = finding.get("kind") or finding["rule"]
    broker_id = finding["broker_id"] if registry.kinds()[kind].family in OF_ONE_REPLICA else None
    about = [kind, cluster_id, *(finding[name] for name in PARTS), broker_id]
    text = json.dumps(about, ensure_ascii=True, separators=(",", ":"))  # ASCII: lone surrogates must not fail
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def cluster_of(finding: Values, cluster_ids: Mapping[str, str | None]) -> str | None:
    """The id of a finding's cluster. ``cluster_ids``: of each log directory; where all have the same one, that of a
    finding that names none of them, too."""
    several = set(cluster_ids.values())
    only = next(iter(several)) if len(several) == 1 else None
    return cluster_ids.get(str((finding["evidence"] or {}).get("log_dir")), only)


def signed(findings: Iterable[Finding], cluster_ids: Mapping[str, str | None]) -> list[Finding]:
    """The findings in the contract's order, each with its fingerprint. ``cluster_ids``: of each log directory."""
    found = list(findings)
    for each in found:
        row = each.to_dict()
        each.fingerprint = fingerprint(row, cluster_of(row, cluster_ids))
        each.outcome = each.outcome or NO_OUTCOME
    return in_order(found)
