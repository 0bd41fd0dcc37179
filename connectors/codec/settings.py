"""Which settings of a broker may be shown: an allow-list, since any other may be a password, a key or an address."""

from __future__ import annotations

import re

_SHOWN = re.compile(
    r"(?:log|message|producer\.id|transaction|transactional\.id|offsets|group|replica|unclean|min|num|default|auto"
    r"|delete|compression|leader|controlled|metadata\.log|broker\.id|node\.id|process\.roles|inter\.broker\.protocol)\b"
    r"[a-z0-9.]*"
)
_SENSITIVE = re.compile(r"password|secret|jaas|keystore|truststore|credential|token|license", re.IGNORECASE)


def may_show(name: str) -> bool:
    """Whether the value of this broker setting may leave the input; the names of all settings may."""
    return bool(_SHOWN.fullmatch(name)) and not _SENSITIVE.search(name)
