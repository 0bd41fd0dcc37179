"""URIs of stores as users give them: their parts, and how they are shown, without what is secret in them."""

from __future__ import annotations

import os
import urllib.parse

from auditor.base.errors import AuditInputError


def parsed(uri: str) -> urllib.parse.SplitResult:
    """The parts of a URI. Errors: :class:`AuditInputError` where it has none."""
    try:
        return urllib.parse.urlsplit(uri)
    except ValueError:
        hint = "write brackets and other signs of its user and password as %5B, %5D and so on"
        raise AuditInputError(f"a URI that cannot be parsed; {hint}") from None


def shown(text: str) -> str:
    """A path or URI for people: bytes that are not UTF-8 as ``\\xNN``, no user, password or options of a URI."""
    scheme, is_uri, rest = os.fsencode(text).decode("utf-8", "backslashreplace").partition("://")
    if not is_uri:
        return scheme
    user, at, after = rest.rpartition("@")
    if at and "?" in user:  # in a password or before an option: nobody knows
        return f"{scheme}://…"
    if at and "/" in user and ":" not in user:  # a name with an @ in it
        after = rest
    return f"{scheme}://{after.partition('?')[0]}"
