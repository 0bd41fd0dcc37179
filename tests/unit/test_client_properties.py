"""Java's client properties for kafka-python: what each becomes, and what ends in a line that shows no secret."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

import auditor
from auditor import cli
from auditor.base.errors import AuditInputError
from auditor.connectors.live.client_properties import Login, connection, login, properties

PASSWORD = "s3cret-of-ours"
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="eve" password="{}";'


def file_of(folder: Path, text: str) -> Path:
    path = folder / "client.properties"
    path.write_text(text, encoding="latin-1")
    return path


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    """java.util.Properties.load: its documentation's own example, comments, escapes, lines that go on."""
    text = (
        "# one\n! two\nTruth = Beauty\n Truth:Beauty\nTruth\t\t:Beauty\n"
        "fruits   apple, banana, pear, \\\n            cantaloupe, \\\n            watermelon\n"
        "cheeses\na\\=b\\:c = \\u00e9\\t\\\\ \nlast=x\\\\\n"
    )
    assert properties(file_of(tmp_path, text)) == {
        "Truth": "Beauty", "fruits": "apple, banana, pear, cantaloupe, watermelon", "cheeses": "", "a=b:c": "é\t\\ ",
        "last": "x\\",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SCRAM.format("a;b c"), Login("ScramLoginModule", {"username": "eve", "password": "a;b c"})),
        ("PlainLoginModule required\n username='a'\n password=\"q\\\"r\" ;",
         Login("PlainLoginModule", {"username": "a", "password": 'q"r'})),
        ("PlainLoginModule REQUIRED user_a=b;", Login("PlainLoginModule", {"user_a": "b"})),
        ('x.PlainLoginModule required username="a"', None),  # no semicolon
        ("x.PlainLoginModule username=a;", None),
    ],
)  # fmt: skip
def test_a_login_line(text: str, found: Login | None) -> None:
    assert login(text) == found


def test_scram_over_plain_sockets(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nacks=all\nrequest.timeout.ms=7000\n"
    text += f"sasl.jaas.config={SCRAM.format('p w')}\n"
    assert connection(file_of(tmp_path, text)) == {
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "eve",
        "sasl_plain_password": "p w", "request_timeout_ms": 7000,
    }  # fmt: skip


def test_an_empty_file_is_plain_text(tmp_path: Path) -> None:
    assert connection(file_of(tmp_path, "")) == {"security_protocol": "PLAINTEXT"}


def test_kerberos_takes_the_ticket_that_is_there(tmp_path: Path) -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name=kafka\n"
    text += "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"
    found = connection(file_of(tmp_path, text))
    assert (found["sasl_mechanism"], found["sasl_kerberos_service_name"]) == ("GSSAPI", "kafka")
    with pytest.raises(AuditInputError, match="kinit"):
        connection(file_of(tmp_path, text.replace("useTicketCache", "useKeyTab")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ssl.cipher.suites=TLS_X", "ssl.cipher.suites"),
        ("security.protocl=SSL", "security.protocl"),
        ("security.protocol=TLS", "security.protocol"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER", "OAUTHBEARER is not supported"),
        (f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={SCRAM}", "PlainLoginModule"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN", "sasl.jaas.config"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=PlainLoginModule required;", "username"),
        ("request.timeout.ms=soon", "request.timeout.ms"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=LDAPS", "endpoint"),
        ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", "TLSv1.2"),
        (f"security.protocol=SSL\nssl.truststore.location=missing\nssl.truststore.password={PASSWORD}", "missing"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_named_without_a_secret(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_of(tmp_path, text.format(PASSWORD) if text.endswith(SCRAM) else text)
    call = ["live", "--bootstrap-server", "127.0.0.1:1", "--out", str(tmp_path / "out")]
    assert cli.main([*call, "--command-config", str(file)]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert PASSWORD not in said.err + said.out


def test_the_file_is_the_only_word_on_security(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path, "security.protocol=SSL\n")
    call = ["live", "--bootstrap-server", "127.0.0.1:1", "--out", str(tmp_path), "--command-config", str(file)]
    assert cli.main([*call, "--ssl-check-hostname", "false"]) == 2
    assert "--ssl-check-hostname" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main([*call, "--client-config", str(file)])


def test_python_takes_the_same_file(tmp_path: Path) -> None:
    with pytest.raises(AuditInputError, match="cipher"):
        auditor.open(bootstrap_server="127.0.0.1:1", command_config=file_of(tmp_path, "ssl.cipher.suites=X"))


class Identity:
    """A certificate for localhost that signs itself, with its key."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        self.certificate = (
            x509.CertificateBuilder(
                name, name, self.key.public_key(), x509.random_serial_number(), now - day, now + day
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden).decode()

    def pkcs12(self, password: str | None) -> bytes:
        hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        return pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, hidden)

    def server(self, folder: Path, wants: str) -> ssl.SSLContext:
        """A broker's side: it shows itself, and wants a certificate of its clients that ``wants`` signs."""
        (folder / "server.pem").write_text(self.key_pem() + self.pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=wants)
        return context


@pytest.fixture(scope="module")
def broker() -> Identity:
    return Identity()


@pytest.fixture(scope="module")
def client() -> Identity:
    return Identity()


def shake_hands(ours: ssl.SSLContext, theirs: ssl.SSLContext, host: str = "localhost") -> None:
    """A whole TLS handshake in memory. Raises what either side does not like."""
    to_them, to_us = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [ours.wrap_bio(to_us, to_them, server_hostname=host), theirs.wrap_bio(to_them, to_us, server_side=True)]
    for _ in range(6):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    with pytest.raises(ssl.SSLWantReadError):
        sides[1].read(1)  # TLS 1.3: only now does the broker's side refuse a client's certificate
    assert sides[0].version() is not None


@pytest.mark.parametrize(
    "kind", ["PEM", "PEM, no password", "PKCS12", "PKCS12, no password", "inline", "inline, password", "continued"]
)
def test_stores_make_a_connection(kind: str, tmp_path: Path, broker: Identity, client: Identity) -> None:
    (tmp_path / "trust.pem").write_text(broker.pem())
    (tmp_path / "key.pem").write_text(client.key_pem(PASSWORD) + client.pem())
    (tmp_path / "plain.pem").write_text(client.pem() + client.key_pem())
    (tmp_path / "key.p12").write_bytes(client.pkcs12(PASSWORD))
    (tmp_path / "plain.p12").write_bytes(client.pkcs12(None))
    lines = {
        "PEM": f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path}/key.pem\nssl.key.password={PASSWORD}",
        "PEM, no password": f"ssl.keystore.type=PEM\nssl.keystore.location={tmp_path}/plain.pem",
        "PKCS12, no password": f"ssl.keystore.type=PKCS12\nssl.keystore.location={tmp_path}/plain.p12",
        "PKCS12": f"ssl.keystore.location={tmp_path}/key.p12\nssl.keystore.password={PASSWORD}",
        "inline": "ssl.keystore.key=" + client.key_pem().replace("\n", "\\n")
        + "\nssl.keystore.certificate.chain=" + client.pem().replace("\n", "\\n"),
        "inline, password": "ssl.keystore.type=PEM\nssl.keystore.key="
        + client.key_pem(PASSWORD).replace("\n", "\\n") + f"\nssl.key.password={PASSWORD}"
        + "\nssl.keystore.certificate.chain=" + client.pem().replace("\n", "\\n"),
        "continued": "ssl.keystore.key=" + client.key_pem().strip().replace("\n", " \\\n  ")
        + "\nssl.keystore.certificate.chain=" + client.pem().strip().replace("\n", " \\\n  "),
    }  # fmt: skip
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={tmp_path}/trust.pem\n"
    if "inline" in kind:
        trust = "ssl.truststore.type=PEM\nssl.truststore.certificates=" + broker.pem().replace("\n", "\\n") + "\n"
    found = connection(file_of(tmp_path, f"security.protocol=SSL\n{trust}{lines[kind]}"))
    shake_hands(found["ssl_context"], broker.server(tmp_path, client.pem()))


def test_a_name_that_is_not_the_brokers_is_refused_but_where_the_file_says_so(
    tmp_path: Path, broker: Identity, client: Identity
) -> None:
    (tmp_path / "trust.pem").write_text(broker.pem())
    (tmp_path / "key.p12").write_bytes(client.pkcs12(PASSWORD))
    text = (
        f"security.protocol=SSL\nssl.truststore.location={tmp_path}/trust.pem\n"
        f"ssl.keystore.location={tmp_path}/key.p12\nssl.keystore.password={PASSWORD}\n"
    )
    server = broker.server(tmp_path, client.pem())
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(connection(file_of(tmp_path, text))["ssl_context"], server, "other.example")
    text += "ssl.endpoint.identification.algorithm=\n"
    shake_hands(connection(file_of(tmp_path, text))["ssl_context"], server, "other.example")


@pytest.mark.parametrize("name", ["key.p12", "key.pem", "other"])
def test_a_wrong_password_is_one_sentence(name: str, tmp_path: Path, client: Identity) -> None:
    (tmp_path / "key.p12").write_bytes(client.pkcs12(PASSWORD))
    (tmp_path / "key.pem").write_text(client.key_pem(PASSWORD) + client.pem())
    (tmp_path / "other").write_bytes(b"no store at all")
    text = f"security.protocol=SSL\nssl.keystore.location={tmp_path}/{name}\n"
    text += "ssl.keystore.password=wrong-one\nssl.key.password=wrong-one\n"
    with pytest.raises(AuditInputError, match="password is wrong") as raised:
        connection(file_of(tmp_path, text))
    assert "wrong-one" not in str(raised.value)
