"""Kafka's own client properties, as every Kafka tool takes them by ``--command-config``, for kafka-python.

Names and defaults: Kafka's CommonClientConfigs, SslConfigs (with the PEM of KIP-651) and SaslConfigs. What is not
understood ends the program: a connection that is less safe than the file says would be worse than none.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError
from auditor.base.numbers import setting_number
from auditor.connectors import key_stores
from auditor.connectors.java_properties import login, properties

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
# What other programs want of such a file, and an audit does not: how often to try, and how to read or write.
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
        raise AuditInputError(
            f"{path}: {unknown[0]} is not understood; auditor live knows {', '.join(sorted(UNDERSTOOD))}"
        )
    given = {name: value.strip() for name, value in given.items()}
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise AuditInputError(f"{path}: security.protocol is one of {', '.join(PROTOCOLS)}")
    found: Fields = {"security_protocol": protocol}
    if "client.id" in given:
        found["client_id"] = given["client.id"]
    if "request.timeout.ms" in given:
        timeout = setting_number(given["request.timeout.ms"])
        if timeout is None:
            raise AuditInputError(f"{path}: request.timeout.ms is a whole number of ms")
        found["request_timeout_ms"] = timeout
    if protocol.startswith("SASL"):
        found |= _sasl(path, given)
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(path, given)
    return found


def _sasl(path: Path, given: dict[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in LOGINS:
        raise AuditInputError(f"{path}: sasl.mechanism {mechanism} is not supported; {', '.join(LOGINS)} are")
    text = given.get("sasl.jaas.config")
    said = login(text) if text is not None else None
    if said is None:
        raise AuditInputError(
            f"{path}: sasl.jaas.config is missing, or no line such as {LOGINS[mechanism]} required ...;"
        )
    if said.module != LOGINS[mechanism]:
        raise AuditInputError(f"{path}: sasl.jaas.config has {said.module}, but {mechanism} needs {LOGINS[mechanism]}")
    if mechanism == "GSSAPI":
        return _kerberos(path, given, said.options)
    if {"username", "password"} - said.options.keys():
        raise AuditInputError(f"{path}: sasl.jaas.config needs username and password")
    if said.options.get("tokenauth", "").lower() == "true":
        raise AuditInputError(f"{path}: delegation tokens (tokenauth) are not supported")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": said.options["username"],
        "sasl_plain_password": said.options["password"],
    }


def _kerberos(path: Path, given: dict[str, str], options: dict[str, str]) -> dict[str, str]:
    """The ticket cache is what kafka-python takes its ticket from, and a keytab would have to be opened by Java."""
    if options.get("useKeyTab", "").lower() == "true":
        raise AuditInputError(f"{path}: a keytab is not opened here; run kinit with it, and set useTicketCache=true")
    service = given.get("sasl.kerberos.service.name", options.get("serviceName"))
    if not service:
        raise AuditInputError(f"{path}: sasl.kerberos.service.name is missing")
    return {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": service}


def _tls(path: Path, given: dict[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https")
    if algorithm.lower() not in ("https", ""):
        raise AuditInputError(f"{path}: ssl.endpoint.identification.algorithm is https, or empty")
    context.check_hostname = bool(algorithm)
    _versions(context, path, given)
    _trusted(context, given)
    _identity(context, given)
    return context


def _versions(context: ssl.SSLContext, path: Path, given: dict[str, str]) -> None:
    listed = given.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")
    known = [VERSIONS[name.strip()] for name in listed if name.strip() in VERSIONS]
    if not known or given.get("ssl.protocol", "TLSv1.3") not in ("TLS", *VERSIONS):
        raise AuditInputError(f"{path}: ssl.protocol and ssl.enabled.protocols: of {', '.join(VERSIONS)}")
    context.minimum_version, context.maximum_version = min(known), max(known)


def _trusted(context: ssl.SSLContext, given: dict[str, str]) -> None:
    """Without a trust store, what this machine trusts."""
    if written := given.get("ssl.truststore.certificates"):
        key_stores.trust(context, written.encode(), "ssl.truststore.certificates")
    elif place := given.get("ssl.truststore.location"):
        found = key_stores.read(Path(place), given.get("ssl.truststore.password"), None)
        key_stores.trust(context, found.certificates, f"the trust store {place}")
    else:
        context.load_default_certs()


def _identity(context: ssl.SSLContext, given: dict[str, str]) -> None:
    """The private key, where brokers ask for a client's certificate."""
    password, of_key = given.get("ssl.keystore.password"), given.get("ssl.key.password")
    if written := given.get("ssl.keystore.key"):
        chain = "\n".join((written, given.get("ssl.keystore.certificate.chain", ""))).encode()
        key_stores.identify(context, chain, of_key, "ssl.keystore.key")
    elif place := given.get("ssl.keystore.location"):
        found = key_stores.read(Path(place), password, of_key)
        key_stores.identify(context, found.chain, of_key, f"the key store {place}")
