"""TOML files that people write."""

from __future__ import annotations

import tomllib
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.base.values import Fields


def read(path: Path) -> Fields:
    """What a file says. Errors: :class:`AuditInputError` where it cannot be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AuditInputError(f"cannot read {path}: {error.strerror}; give a TOML file, such as auditor.toml") from None
    except ValueError as error:  # of the encoding, or of TOML
        raise AuditInputError(f"{path} is no TOML: {error}; mend it, or give another file") from None
