"""TOML files that people write."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from auditor.base.errors import AuditInputError
from auditor.base.values import Fields

LIMIT_BYTES = 1 << 20
MOST_OF_KEY = 80  # characters of a key in a message


def read(path: Path) -> Fields:
    """What a file says. Errors: :class:`AuditInputError` where it cannot be read, is too large or is no TOML."""
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise AuditInputError(f"{path} is larger than {LIMIT_BYTES} bytes; give a file of options")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise AuditInputError(f"cannot read {path}: {error.strerror}; give a TOML file, such as auditor.toml") from None
    except ValueError as error:  # of the encoding, or of TOML
        raise AuditInputError(f"{path} is no TOML: {error}; mend it, or give another file") from None
    except RecursionError:
        raise AuditInputError(f"{path} is nested too deeply; mend it, or give another file") from None


def shown_key(key: str) -> str:
    """A key as TOML writes it, shortened, so that no control character of a file gets into a terminal."""
    short = key if len(key) <= MOST_OF_KEY else f"{key[:MOST_OF_KEY]}..."
    return short if re.fullmatch(r"[\w.-]+", short, re.ASCII) else json.dumps(short)
