"""What is installed on request: one line that says how, where a part is asked for that is not there."""

from __future__ import annotations

import importlib.util

from auditor.base.errors import AuditInputError

PACKAGE = "kafka-log-auditor"
# By the module that is imported: the extra that brings it, and what it is there for.
EXTRAS = {
    "pyspark": ("spark", "running on Spark"),
    "py4j": ("spark", "running on Spark"),
    "pandas": ("spark", "pandas"),
    "grpc": ("connect", "Spark Connect"),
    "google": ("connect", "Spark Connect"),
    "great_expectations": ("expectations", "--expectations"),
    "kafka": ("live", "reading a running cluster"),
    "cryptography": ("live", "opening a PKCS12 or JKS store"),
    "duckdb": ("sql", "SQL without Spark"),
}


def absent(module: str) -> AuditInputError | None:
    """What is said where ``module`` cannot be imported; None where no extra has it."""
    name = module.partition(".")[0]
    if name not in EXTRAS:
        return None
    extra, purpose = EXTRAS[name]
    return AuditInputError(f"{purpose} needs {name}, which is not installed; pip install '{PACKAGE}[{extra}]'")


def require(module: str) -> None:
    """Errors: :class:`AuditInputError` where ``module`` of an extra is not installed. Imports nothing."""
    if importlib.util.find_spec(module) is None and (error := absent(module)) is not None:
        raise error
