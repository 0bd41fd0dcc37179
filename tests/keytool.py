"""Java's own key stores, converted by the command that the error message of ``auditor live`` has."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from auditor.base.errors import AuditInputError
from auditor.connectors.live import client_properties


def converted(store: Path, password: str, *key_passwords: str) -> Path:
    """The PKCS12 store that the named command makes of a Java store, with the same password."""
    with pytest.raises(AuditInputError) as raised:
        client_properties.read(store, None)
    message = str(raised.value)
    assert "\n" not in message
    words = shlex.split(message.partition(": ")[2])
    answers = "".join(
        f"{line}\n" for line in (password, password, password, *key_passwords)
    )  # new, again, of the store
    subprocess.run(words, input=answers, text=True, check=True, capture_output=True)
    return Path(words[words.index("-destkeystore") + 1])
