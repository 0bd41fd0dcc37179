"""Imports every family of rules, which registers them."""

from __future__ import annotations

import importlib

MODULES = (
    "producer_state", "epochs", "hanging", "closed_transactions", "transitions", "coordinator_log", "markers",
    "crosschecks", "committed_offsets", "validation", "integrity", "chain", "replicas", "capacity", "memory",
)  # fmt: skip


def load() -> None:
    """Registers all rules; a second call does nothing."""
    for name in MODULES:
        importlib.import_module(f"auditor.rules.{name}")
