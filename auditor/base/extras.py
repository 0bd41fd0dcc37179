"""What is installed on request: one line that says how, where a part is asked for that is not there.

The line names requirements, never this program's own distribution: nobody owns that name in a public index, and whoever
registered it there would run code where the line is copied. ``pyproject.toml`` has the same requirements as extras.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys

from auditor.base.errors import AuditInputError

PANDAS, SHTAB = "pandas>=2.2,<3", "shtab>=1.7"
# By extra, what pip is asked for.
REQUIREMENTS = {
    "spark": ("pyspark>=4.0,<5", PANDAS),
    "connect": ("pyspark[connect]>=4.0,<5", PANDAS),
    "expectations": ("great-expectations>=1.24,<2", PANDAS),
    "live": ("kafka-python>=3.0", "cryptography>=42"),
    "sql": ("duckdb>=1.1",),
}
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
    return AuditInputError(f"{purpose} needs {package}, which is not installed; run: {install(extra)}")


def install(extra: str) -> str:
    """The command that installs what an extra brings for the running interpreter; pandas alone where it is none."""
    return install_command(REQUIREMENTS.get(extra, (PANDAS,)))


def install_command(requirements: tuple[str, ...]) -> str:
    """The command that installs some requirements for the running interpreter, quoted for a shell."""
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *requirements])


def require(module: str) -> None:
    """Errors: :class:`AuditInputError` where ``module`` of an extra is not installed. Imports nothing."""
    if importlib.util.find_spec(module) is None and (error := absent(module)) is not None:
        raise error
