"""What makes a finding of one run the same as a finding of another: computed where it is needed, never a field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from auditor.rules import registry

OF_ONE_REPLICA = frozenset({"segment integrity", "replicas"})  # families whose findings are about one file or replica
PARTS = (
    "topic", "partition", "offset", "producer_id", "producer_epoch", "transactional_id", "group_id",
)  # fmt: skip


def fingerprint(finding: Mapping[str, Any], cluster_id: str | None) -> str:
    """SHA-256, in hex, of what the finding is about; message, evidence, severity and times do not count.

    ``finding`` has the contract's fields; ``cluster_id`` is that of the log directory it was found in, None where
    ``meta.properties`` does not show. The broker counts only for findings about one file or one replica, since the
    leader that stands for all replicas may change from run to run. Errors: KeyError for a rule that is not in the
    catalogue.
    """
    family = registry.load()[finding["rule"]].family
    broker_id = finding["broker_id"] if family in OF_ONE_REPLICA else None
    about = [finding["rule"], cluster_id, *(finding[name] for name in PARTS), broker_id]
    text = json.dumps(about, ensure_ascii=True, separators=(",", ":"))  # ASCII: lone surrogates must not fail
    return hashlib.sha256(text.encode("ascii")).hexdigest()
