"""``auditor live`` with a client's certificate (mutual TLS) and with SCRAM, by a file of Java client properties."""

# The broker knows nobody but two names, by StandardAuthorizer: an answer shows that it took the client for one of them.

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaProducer

from auditor import cli
from tests import keytool
from tests.broker.cluster import Cluster
from tests.cluster import live_story as story

pytestmark = pytest.mark.cluster

VERSION = "4.1.0"
SECRET = "scram-secret"
KEY_SECRET = "key-secret"
STORE_PASSWORD = story.PASSWORD
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass
class Setting:
    """A broker with a listener for each way in; ``certificates`` has the stores of both sides."""

    cluster: Cluster
    folder: Path

    @property
    def certificates(self) -> Path:
        """Where the stores are."""
        return self.folder / "certificates"

    def live(self, listener: str, properties: dict[str, str]) -> tuple[int, Path]:
        """Exit status and ``--out`` of an audit through a listener."""
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificates / "cert.pem")}
        file, out = self.folder / "client.properties", self.folder / f"out-{listener}"
        file.write_text("".join(f"{name}={value}\n" for name, value in (trusted | properties).items()))
        shutil.rmtree(out, ignore_errors=True)
        status = cli.main([
            "live", "--bootstrap-server", f"127.0.0.1:{self.cluster.more_ports[0][listener]}", "--out", str(out),
            "--command-config", str(file), "--master", "inline", "--from", "start", "--quiet",
        ])  # fmt: skip
        return status, out

    def answered(self, listener: str, properties: dict[str, str]) -> None:
        """Everything is answered, and no secret is in what is written."""
        status, out = self.live(listener, properties)
        assert status == 0
        text = (out / "summary.json").read_text(encoding="utf-8")
        assert not [secret for secret in (SECRET, KEY_SECRET, STORE_PASSWORD) if secret in text]
        summary = json.loads(text)
        assert [note for note in summary["notes"] if note.startswith(("not answered", "not read"))] == []
        topics = {log["topic"] for log in summary["live"]["logs"]}
        assert {story.TOPIC, "__transaction_state"} <= topics


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def client_stores(folder: Path) -> None:
    """A client's key and certificate as PEM, PKCS12 and JKS, which the broker's trust store gets to know."""
    key, cert, store = folder / "client.key", folder / "client.crt", folder / "client.p12"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert,
        "-subj", "/CN=auditor")  # fmt: skip
    run("openssl", "pkcs8", "-topk8", "-in", key, "-out", folder / "client.enc", "-passout", f"pass:{KEY_SECRET}")
    for name, of_key in (("client.pem", key), ("client-encrypted.pem", folder / "client.enc")):
        (folder / name).write_bytes(of_key.read_bytes() + cert.read_bytes())
    run("openssl", "pkcs12", "-export", "-inkey", key, "-in", cert, "-out", store, "-name", "client",
        "-passout", f"pass:{STORE_PASSWORD}")  # fmt: skip
    run("keytool", "-importkeystore", "-noprompt", "-srckeystore", store, "-srcstoretype", "PKCS12", "-srcstorepass",
        STORE_PASSWORD, "-destkeystore", folder / "client.jks", "-deststoretype", "JKS", "-deststorepass",
        STORE_PASSWORD, "-destkeypass", KEY_SECRET, "-srcalias", "client", "-srckeypass", STORE_PASSWORD)  # fmt: skip
    run("keytool", "-importcert", "-noprompt", "-alias", "client", "-file", cert, "-keystore", folder / "trust.p12",
        "-storetype", "PKCS12", "-storepass", STORE_PASSWORD)  # fmt: skip


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("identity")
    stores = {k: v for k, v in story.secured(folder / "certificates").broker.items() if k.startswith("ssl.")}
    client_stores(folder / "certificates")
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = stores | {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MUTUAL:SSL,SCRAM:SASL_SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.scram.{name.lower()}.sasl.jaas.config": scram for name in MECHANISMS},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=auditor;User:auditor;User:ANONYMOUS",  # the last: the listeners without TLS
    }
    users = [word for name in MECHANISMS for word in ("--add-scram", f"{name}=[name=auditor,password={SECRET}]")]
    listeners = ("MUTUAL", "SCRAM")
    with Cluster(VERSION, folder / "brokers", listeners=listeners, format_words=tuple(users), **settings) as cluster:
        story.create_topic(cluster, story.Access())
        producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id="one")
        producer.init_transactions()
        story.transactions(producer, 0, 3)
        producer.close()
        yield Setting(cluster, folder)


@pytest.mark.parametrize("store", ["pem", "encrypted pem", "pem in the file", "pkcs12", "jks"])
def test_a_client_certificate_is_shown(setting: Setting, store: str) -> None:
    place = setting.certificates
    of_key = {"ssl.key.password": KEY_SECRET}
    if store == "pem in the file":  # KIP-651: a property over several lines
        said = {
            name: (place / file).read_text().strip().replace("\n", " \\\n")
            for name, file in (("ssl.keystore.key", "client.key"), ("ssl.keystore.certificate.chain", "client.crt"))
        }
    elif store.endswith("pem"):
        name = "client-encrypted.pem" if store.startswith("encrypted") else "client.pem"
        said = {"ssl.keystore.location": str(place / name)} | (of_key if store.startswith("encrypted") else {})
    else:
        file = place / "client.p12"
        if store == "jks":
            file = keytool.converted(place / "client.jks", STORE_PASSWORD, KEY_SECRET)
        said = {"ssl.keystore.location": str(file), "ssl.keystore.password": STORE_PASSWORD}
    kind = "PEM" if store.startswith(("pem", "encrypted")) else "PKCS12"
    setting.answered("MUTUAL", {"security.protocol": "SSL", "ssl.keystore.type": kind} | said)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_of_scram_is_known(setting: Setting, mechanism: str) -> None:
    setting.answered("SCRAM", scram(mechanism, SECRET))


def scram(mechanism: str, password: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="auditor" password="{password}";',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listener", "properties", "says"),
    [
        ("SCRAM", scram("SCRAM-SHA-512", "wrong-secret"), "rejected the login with SCRAM-SHA-512"),
        ("MUTUAL", {"security.protocol": "SSL"}, "cannot reach a cluster"),
    ],
    ids=["a wrong password", "no certificate"],
)
def test_who_is_not_known_is_one_line(
    setting: Setting, listener: str, properties: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = setting.live(listener, properties | {"request.timeout.ms": "5000"})
    said = capsys.readouterr().err
    assert status == 2
    assert said.count("\n") == 1
    assert says in said
    assert "wrong-secret" not in said
    assert not (out / "summary.json").exists()
    print(said, file=sys.stderr)
