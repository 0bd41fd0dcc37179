"""What is installed on request: one line that says how, where a part is asked for that is not there."""

from __future__ import annotations

import importlib.util

from auditor.base.errors import AuditInputError

PACKAGE = "kafka-log-auditor"
# By the module that is imported: what it is there for, its package, and the extra that brings that; "": it comes alone.
EXTRAS = {
    "pyspark": ("running on Spark", "pyspark", "spark"),
    "py4j": ("running on Spark", "py4j", "spark"),
    "pandas": ("a pandas DataFrame", "pandas", ""),
    "grpc": ("Spark Connect", "grpcio", "connect"),
    "google": ("Spark Connect", "googleapis-common-protos", "connect"),
    "great_expectations": ("an expectation suite", "great-expectations", "expectations"),
    "kafka": ("reading a running cluster", "kafka-python", "live"),
    "cryptography": ("opening a PKCS12 or JKS store", "cryptography", "live"),
    "duckdb": ("SQL without Spark", "duckdb", "sql"),
}


def absent(module: str) -> AuditInputError | None:
    """What is said where ``module`` cannot be imported; None where no extra has it."""
    name = module.partition(".")[0]
    if name not in EXTRAS:
        return None
    purpose, package, extra = EXTRAS[name]
    return AuditInputError(f"{purpose} needs {package}, which is not installed; {install(package, extra)}")


def install(package: str, extra: str) -> str:
    """The command that brings a package, by the extra that has it, or alone."""
    return f"pip install '{PACKAGE}[{extra}]'" if extra else f"pip install {package}"


def require(module: str) -> None:
    """Errors: :class:`AuditInputError` where ``module`` of an extra is not installed. Imports nothing."""
    if importlib.util.find_spec(module) is None and (error := absent(module)) is not None:
        raise error
