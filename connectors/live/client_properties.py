"""Kafka client properties for kafka-python, and connection options. Imports no client library."""

from __future__ import annotations

import os
import re
import shlex
import ssl
import tempfile
from pathlib import Path
from typing import NamedTuple

from auditor.base.at_rest import Fields
from auditor.base.errors import MIB, AuditInputError, require, setting_number
from auditor.connectors.codec.small_files import logical_lines, split_property

# Java's property files, and the login lines (JAAS) in them.


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_OPTION = re.compile(r"""\s+([\w.-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""")
_LOGIN = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)


class Login(NamedTuple):
    """A parsed ``sasl.jaas.config``: a login module's class without its package, and its options."""

    module: str
    options: dict[str, str]


def properties(path: Path) -> dict[str, str]:
    """The properties of a file as ``java.util.Properties.load`` reads them: the last one of a name counts.

    Errors: :class:`AuditInputError` if it cannot be read.
    """
    try:
        text = path.read_bytes().decode("latin-1")
    except OSError:
        raise AuditInputError(f"cannot read {path}: --command-config expects a Java client properties file") from None
    values: dict[str, str] = {}
    for line in logical_lines(text):
        key, value = split_property(line.text)
        values[_plain(key)] = _plain(value)
    return values


def _plain(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        return chr(int(name[1:], 16)) if len(name) == 5 else _ESCAPES.get(name, name)

    return _ESCAPED.sub(value, text)


def login(text: str) -> Login | None:
    """Parse a login line, ``CLASS required NAME="VALUE" ...;``; None for any other text."""
    head = _LOGIN.match(text)
    if head is None:
        return None
    options: dict[str, str] = {}
    position = head.end()
    while match := _OPTION.match(text, position):
        options[match[1]] = _plain(match[2] if match[2] is not None else match[3] or match[4] or "")
        position = match.end()
    return Login(head[1].rpartition(".")[2], options) if text[position:].strip() == ";" else None


# Certificates and keys for Python's TLS, which only reads PEM. PKCS12 is read by ``cryptography``. Java's own stores
# (JKS, JCEKS) are not read: the error has the ``keytool`` line that converts them to PKCS12 (docs/decisions/015).


JAVA_STORES = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}  # by their first bytes
PEM_BEGIN = b"-----BEGIN "
PEM_BLOCK = re.compile(rb"(-----BEGIN [^-]+-----)(.+?)(-----END [^-]+-----)", re.DOTALL)
PEM_LINE = 64


class Pem(NamedTuple):
    """The content of a store as PEM: all certificates, and the private key with its chain (empty: none)."""

    certificates: bytes
    chain: bytes


def trust(context: ssl.SSLContext, certificates: bytes, where: str) -> None:
    """Make a TLS context trust what these certificates (PEM) sign. Errors: :class:`AuditInputError`."""
    try:
        context.load_verify_locations(cadata=_in_lines(certificates).decode("ascii"))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: not only roots are trusted
    except (ssl.SSLError, ValueError):
        raise AuditInputError(f"{where} has no readable certificates") from None


def identify(context: ssl.SSLContext, chain: bytes, password: str | None, where: str) -> None:
    """Give a TLS context a private key and its certificates (PEM). Errors: :class:`AuditInputError`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key.pem"
        _write(file, _in_lines(chain))
        try:
            context.load_cert_chain(file, password=lambda: password or "")
        except (ssl.SSLError, ValueError, OSError):
            raise AuditInputError(
                f"{where} gives no private key with its certificate, or its password is wrong"
            ) from None


def read(path: Path, password: str | None) -> Pem:
    """Read a store, PEM or PKCS12, recognised by its content.

    Errors: :class:`AuditInputError`, which names the file and no secret; for a Java key store, how to convert it.
    """
    try:
        stored = path.read_bytes()
    except OSError:
        raise AuditInputError(f"cannot read the store {path}") from None
    if PEM_BEGIN in stored:
        return Pem(_certificates(stored), stored)
    if java := JAVA_STORES.get(stored[:4]):
        files = f"-srckeystore {shlex.quote(str(path))} -destkeystore {shlex.quote(f'{path}.p12')}"
        raise AuditInputError(
            f"{path} is a {java} store, expected PEM or PKCS12; convert it, and set its location to the new file: "
            f"keytool -importkeystore {files} -srcstoretype {java} -deststoretype PKCS12"
        )
    return _from_pkcs12(stored, password, path)


def _in_lines(pem: bytes) -> bytes:
    # Python requires line breaks in PEM. A property that a file has over several lines (KIP-651's own examples: each
    # ends with a backslash) is one line of words, as Java reads it.
    def broken(block: re.Match[bytes]) -> bytes:
        begin, text, end = block.groups()
        if b"\n" in text.strip():
            return block[0]
        letters = b"".join(text.split())
        lines = (letters[start : start + PEM_LINE] for start in range(0, len(letters), PEM_LINE))
        return b"\n".join((begin, *lines, end, b""))

    return PEM_BLOCK.sub(broken, pem)


def _certificates(pem: bytes) -> bytes:
    return b"\n".join(re.findall(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL))


def _from_pkcs12(stored: bytes, password: str | None, path: Path) -> Pem:
    require("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        store = pkcs12.load_pkcs12(stored, password.encode() if password is not None else None)
    except ValueError:
        raise AuditInputError(
            f"cannot open the store {path}: its password is wrong, or it is not PEM or PKCS12"
        ) from None
    others = [item.certificate for item in store.additional_certs]
    own = [store.cert.certificate] if store.cert is not None else []
    pem = [item.public_bytes(serialization.Encoding.PEM) for item in (*own, *others)]
    if store.key is None:
        return Pem(b"".join(pem), b"")
    key = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pem(b"".join(pem), key + b"".join(pem))


def _write(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)


# Kafka's own client properties, as in ``--command-config`` of every Kafka tool, for kafka-python.
#
# Names and defaults: Kafka's CommonClientConfigs, SslConfigs (with the PEM of KIP-651) and SaslConfigs. An unsupported
# property ends the program: a connection that is less safe than configured would be worse than none.


PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGINS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
UNDERSTOOD = frozenset({
    "security.protocol", "client.id", "request.timeout.ms", "sasl.mechanism", "sasl.jaas.config",
    "sasl.kerberos.service.name", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password",
    "ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password",
    "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password", "ssl.protocol", "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
})  # fmt: skip
# Properties of other programs without effect on an audit: retries, and how to read or write.
IGNORED = frozenset({
    "bootstrap.servers", "default.api.timeout.ms", "retries", "retry.backoff.ms", "retry.backoff.max.ms",
    "reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms", "metadata.max.age.ms",
    "client.dns.lookup", "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
    "send.buffer.bytes", "receive.buffer.bytes", "group.id", "auto.offset.reset", "enable.auto.commit",
    "isolation.level", "acks", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
})  # fmt: skip


def connection(path: Path) -> Fields:
    """kafka-python's options for a file of Java client properties.

    Errors: :class:`AuditInputError`, which names the file and the property, and no value that may be secret.
    """
    given = properties(path)
    if unknown := sorted(given.keys() - UNDERSTOOD - IGNORED):
        raise AuditInputError(f"{path}: {unknown[0]} is not supported: expected {', '.join(sorted(UNDERSTOOD))}")
    given = {name: value.strip() for name, value in given.items()}
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise AuditInputError(f"{path}: invalid security.protocol: expected {', '.join(PROTOCOLS)}")
    settings: Fields = {"security_protocol": protocol}
    if "client.id" in given:
        settings["client_id"] = given["client.id"]
    if "request.timeout.ms" in given:
        timeout = setting_number(given["request.timeout.ms"])
        if timeout is None:
            raise AuditInputError(f"{path}: invalid request.timeout.ms: expected a whole number of ms")
        settings["request_timeout_ms"] = timeout
    if protocol.startswith("SASL"):
        settings |= _sasl(path, given)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _tls(path, given)
    return settings


def _sasl(path: Path, given: dict[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in LOGINS:
        raise AuditInputError(f"{path}: sasl.mechanism {mechanism} is not supported: expected {', '.join(LOGINS)}")
    text = given.get("sasl.jaas.config")
    credentials = login(text) if text is not None else None
    if credentials is None:
        raise AuditInputError(
            f"{path}: sasl.jaas.config is missing or invalid: expected a line such as {LOGINS[mechanism]} required ...;"
        )
    if credentials.module != LOGINS[mechanism]:
        raise AuditInputError(
            f"{path}: sasl.jaas.config has {credentials.module}, but {mechanism} needs {LOGINS[mechanism]}"
        )
    if mechanism == "GSSAPI":
        return _kerberos(path, given, credentials.options)
    if {"username", "password"} - credentials.options.keys():
        raise AuditInputError(f"{path}: sasl.jaas.config needs username and password")
    if credentials.options.get("tokenauth", "").lower() == "true":
        raise AuditInputError(f"{path}: delegation tokens (tokenauth) are not supported")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": credentials.options["username"],
        "sasl_plain_password": credentials.options["password"],
    }


def _kerberos(path: Path, given: dict[str, str], options: dict[str, str]) -> dict[str, str]:
    # kafka-python uses the ticket cache; only Java could open a keytab.
    if options.get("useKeyTab", "").lower() == "true":
        raise AuditInputError(f"{path}: keytabs are not supported: run kinit with it, and set useTicketCache=true")
    service = given.get("sasl.kerberos.service.name", options.get("serviceName"))
    if not service:
        raise AuditInputError(f"{path}: sasl.kerberos.service.name is missing")
    return {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": service}


def _tls(path: Path, given: dict[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise AuditInputError(f"{path}: invalid ssl.endpoint.identification.algorithm: expected https or empty")
    context.check_hostname = bool(algorithm)
    _versions(context, path, given)
    _trusted(context, given)
    _identity(context, given)
    return context


def _versions(context: ssl.SSLContext, path: Path, given: dict[str, str]) -> None:
    listed = given.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")
    versions = [VERSIONS[name.strip()] for name in listed if name.strip() in VERSIONS]
    if not versions or given.get("ssl.protocol", "TLSv1.3") not in ("TLS", *VERSIONS):
        raise AuditInputError(f"{path}: invalid ssl.protocol or ssl.enabled.protocols: expected {', '.join(VERSIONS)}")
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _trusted(context: ssl.SSLContext, given: dict[str, str]) -> None:
    # Without a trust store, the machine's certificates.
    if written := given.get("ssl.truststore.certificates"):
        trust(context, written.encode(), "ssl.truststore.certificates")
    elif place := given.get("ssl.truststore.location"):
        certificates = read(Path(place), given.get("ssl.truststore.password"))
        trust(context, certificates.certificates, f"the trust store {place}")
    else:
        context.load_default_certs()


def _identity(context: ssl.SSLContext, given: dict[str, str]) -> None:
    # For brokers that require a client certificate.
    password, of_key = given.get("ssl.keystore.password"), given.get("ssl.key.password")
    if written := given.get("ssl.keystore.key"):
        chain = "\n".join((written, given.get("ssl.keystore.certificate.chain", ""))).encode()
        identify(context, chain, of_key, "ssl.keystore.key")
    elif place := given.get("ssl.keystore.location"):
        identity = read(Path(place), password)
        identify(context, identity.chain, of_key, f"the key store {place}")


# Options of connections, and limits.


CONNECTION_OPTIONS = (
    "security_protocol",
    "ssl_check_hostname",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_crlfile",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "request_timeout_ms",
    "client_id",
    "api_version",
    "proxy_url",
)
MAX_BYTES, MAX_RATE = 1024 * MIB, 16 * MIB  # defaults: bytes read from a cluster in total, and per second
