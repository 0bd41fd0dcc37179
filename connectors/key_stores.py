"""Certificates and keys as Java keeps them, for Python's TLS: PEM, PKCS12, and JKS where Java's keytool is there.

Python reads PEM alone. PKCS12 is read by ``cryptography``; JKS is turned into PKCS12 by keytool, which alone is kept up
to date with it (docs/decisions/015). Secrets reach it by its environment, never by a command line, and what is written
for a moment lies in a folder that only this user may enter.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from auditor.base.errors import AuditInputError, require

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
PEM_BEGIN = b"-----BEGIN "
PEM_BLOCK = re.compile(rb"(-----BEGIN [^-]+-----)(.+?)(-----END [^-]+-----)", re.DOTALL)
PEM_LINE = 64
KEYTOOL_S = 60


class Pem(NamedTuple):
    """What a store holds, as PEM: all certificates, and the private key with its chain (empty: none)."""

    certificates: bytes
    chain: bytes


def trust(context: ssl.SSLContext, certificates: bytes, where: str) -> None:
    """Lets a TLS context trust what these certificates (PEM) sign. Errors: :class:`AuditInputError`."""
    try:
        context.load_verify_locations(cadata=_in_lines(certificates).decode("ascii"))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java, which trusts what a store holds, be it no root
    except (ssl.SSLError, ValueError):
        raise AuditInputError(f"{where} holds no certificates that can be read") from None


def identify(context: ssl.SSLContext, chain: bytes, password: str | None, where: str) -> None:
    """Gives a TLS context a private key and its certificates (PEM). Errors: :class:`AuditInputError`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key.pem"
        _write(file, _in_lines(chain))
        try:
            context.load_cert_chain(file, password=lambda: password or "")
        except (ssl.SSLError, ValueError, OSError):
            raise AuditInputError(
                f"{where} gives no private key with its certificate, or its password is wrong"
            ) from None


def read(path: Path, password: str | None, key_password: str | None) -> Pem:
    """A store of any of the three kinds; which one it is, its first bytes say.

    Errors: :class:`AuditInputError`, which names the file and no secret.
    """
    try:
        stored = path.read_bytes()
    except OSError:
        raise AuditInputError(f"cannot read the store {path}") from None
    if PEM_BEGIN in stored:
        return Pem(_certificates(stored), stored)
    if stored[:4] in JKS_MAGIC:
        stored, password = _from_jks(path, password, key_password)
    return _from_pkcs12(stored, password, path)


def _in_lines(pem: bytes) -> bytes:
    """PEM with line breaks, which Python wants. A property that a file has over several lines (KIP-651's own examples:
    each ends with a backslash) is one line of words, as Java reads it."""

    def broken(block: re.Match[bytes]) -> bytes:
        begin, text, end = block.groups()
        if b"\n" in text.strip():
            return block[0]
        letters = b"".join(text.split())
        lines = (letters[at : at + PEM_LINE] for at in range(0, len(letters), PEM_LINE))
        return b"\n".join((begin, *lines, end, b""))

    return PEM_BLOCK.sub(broken, pem)


def _certificates(pem: bytes) -> bytes:
    return b"\n".join(re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL))


def _from_pkcs12(stored: bytes, password: str | None, path: Path) -> Pem:
    require("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        found = pkcs12.load_pkcs12(stored, password.encode() if password is not None else None)
    except ValueError:
        raise AuditInputError(f"cannot open the store {path}: its password is wrong, or it is no store") from None
    others = [each.certificate for each in found.additional_certs]
    own = [found.cert.certificate] if found.cert is not None else []
    pem = [each.public_bytes(serialization.Encoding.PEM) for each in (*own, *others)]
    if found.key is None:
        return Pem(b"".join(pem), b"")
    key = found.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pem(b"".join(pem), key + b"".join(pem))


def _from_jks(path: Path, password: str | None, key_password: str | None) -> tuple[bytes, str]:
    """The same as PKCS12, and its password."""
    keytool = _keytool()
    if keytool is None:
        raise AuditInputError(
            f"{path} is a JKS store, and Java's keytool, which reads those, is not on PATH; make it PKCS12: "
            f"keytool -importkeystore -srckeystore {path.name} -destkeystore store.p12 -deststoretype PKCS12"
        )
    # PKCS12 has no store without a password, and keytool none of less than six characters.
    secrets = {"AUDITOR_STORE": password or "", "AUDITOR_KEY": key_password or "", "AUDITOR_NEW": os.urandom(16).hex()}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "store.p12"
        words = [
            keytool,
            "-importkeystore",
            "-noprompt",
            "-srckeystore",
            str(path),
            "-srcstorepass:env",
            "AUDITOR_STORE",
            "-destkeystore",
            str(target),
            "-deststoretype",
            "PKCS12",
            "-deststorepass:env",
            "AUDITOR_NEW",
        ]
        if key_password is not None and key_password != password:
            words += ["-srcalias", _alias(keytool, path, secrets), "-srckeypass:env", "AUDITOR_KEY"]
            words += ["-destkeypass:env", "AUDITOR_NEW"]
        if _ran(words, secrets) is None or not target.exists():
            raise AuditInputError(f"keytool cannot open the store {path}; is its password, or its key's, wrong?")
        return target.read_bytes(), secrets["AUDITOR_NEW"]


def _alias(keytool: str, path: Path, secrets: dict[str, str]) -> str:
    """The name of the first private key in a store."""
    listed = _ran([keytool, "-list", "-keystore", str(path), "-storepass:env", "AUDITOR_STORE"], secrets) or ""
    names = re.findall(r"^(.+?), .*PrivateKeyEntry", listed, re.MULTILINE)
    if not names:
        raise AuditInputError(f"the store {path} holds no private key, or its password is wrong")
    return str(names[0])


def _keytool() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("keytool", path=f"{home}/bin" if home else None) or shutil.which("keytool")


def _ran(words: list[str], secrets: dict[str, str]) -> str | None:
    """What keytool printed; None where it failed. It asks nobody: its standard input is empty."""
    english = ["-J-Duser.language=en"]
    try:
        done = subprocess.run(
            [words[0], *english, *words[1:]],
            env=os.environ | secrets,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=KEYTOOL_S,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _write(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
