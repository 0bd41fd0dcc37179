"""``auditor live`` as a user of its own: Java's properties, each kind of trust store, the ACLs of docs/live.md."""

# The broker decides by StandardAuthorizer; ACLs are made by Kafka's own tool, by the commands as the page has them.

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaProducer

from auditor import cli
from tests import keytool
from tests.broker.cluster import Cluster
from tests.broker.jars import classpath
from tests.cluster import live_story as story
from tests.conftest import ROOT

pytestmark = pytest.mark.cluster

VERSION = "3.6.2"
AUDITOR, SECRET = "auditor", "reader-secret"
STORE_PASSWORD = story.PASSWORD
GRANTS = re.findall(r"^kafka-acls\.sh (.*)$", (ROOT / "docs" / "live.md").read_text(encoding="utf-8"), re.MULTILINE)


@dataclass
class Setting:
    """A broker with an authorizer; ``admin`` is the file of its super user's properties."""

    cluster: Cluster
    folder: Path
    admin: Path

    def acls(self, line: str) -> None:
        """Kafka's own tool with the words of the page, its addresses and files put in place."""
        places = {"kafka:9092": self.cluster.servers, "admin.properties": str(self.admin)}
        words = [places.get(word, word) for word in shlex.split(line)]
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath(VERSION), "kafka.admin.AclCommand", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Error" not in done.stdout + done.stderr

    def live(self, store: str) -> tuple[int, dict[str, object], list[str]]:
        """Exit status, summary, and what was not answered, of an audit with a trust store of that kind."""
        out = self.folder / "out"
        file = self.folder / "client.properties"
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        file.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={jaas} username="{AUDITOR}" password="{SECRET}";\n{trust(self.folder, store)}'
        )
        status = cli.main([
            "live", "--bootstrap-server", self.cluster.servers, "--command-config", str(file), "--out", str(out),
            "--master", "inline", "--from", "start", "--quiet",
        ])  # fmt: skip
        text = (out / "summary.json").read_text(encoding="utf-8")
        assert SECRET not in text
        summary = json.loads(text)
        return status, summary, [note for note in summary["notes"] if note.startswith(("not answered", "not read"))]


def trust(folder: Path, store: str) -> str:
    """The properties of a trust store, which keytool made."""
    place = folder / "certificates" / f"trust.{store.lower()}"
    kind = f"ssl.truststore.type={store}\nssl.truststore.location={place}\n"
    return kind if store == "PEM" else f"{kind}ssl.truststore.password={STORE_PASSWORD}\n"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("access")
    certificates = folder / "certificates"
    access = story.secured(certificates)
    (certificates / "trust.pem").write_bytes((certificates / "cert.pem").read_bytes())
    (certificates / "trust.pkcs12").write_bytes((certificates / "trust.p12").read_bytes())
    words = ["keytool", "-importcert", "-noprompt", "-alias", "broker", "-file", str(certificates / "cert.pem")]
    words += ["-keystore", str(certificates / "trust.jks"), "-storetype", "JKS", "-storepass", STORE_PASSWORD]
    subprocess.run(words, check=True, capture_output=True)
    keytool.converted(certificates / "trust.jks", STORE_PASSWORD).rename(certificates / "trust.jks")
    jaas = "listener.name.plaintext.plain.sasl.jaas.config"
    settings = {
        jaas: access.broker[jaas].replace(f"user_{story.USER}", "user_admin").replace(f'"{story.USER}"', '"admin"')
    }
    settings[jaas] = settings[jaas].replace(";", f' user_{AUDITOR}="{SECRET}";')
    settings |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # the latter is what a controller's listener without TLS knows
    }
    admin = folder / "admin.properties"
    admin.write_text("".join(f"{k}={v}\n" for k, v in access.tools.items()).replace(f'"{story.USER}"', '"admin"'))
    story_client = access.client | {"sasl_plain_username": "admin"}
    with Cluster(VERSION, folder / "brokers", **access.broker | settings) as cluster:
        story.create_topic(cluster, story.Access(story_client))
        producer = KafkaProducer(bootstrap_servers=cluster.servers, transactional_id="one", **story_client)
        producer.init_transactions()
        story.transactions(producer, 0, 6)
        producer.close()
        made = Setting(cluster, folder, admin)
        for line in GRANTS:
            made.acls(line)
        yield made


@pytest.mark.parametrize("store", ["PEM", "JKS", "PKCS12"])
def test_what_the_page_grants_is_enough(setting: Setting, store: str) -> None:
    status, summary, refused = setting.live(store)
    assert refused == []
    assert status == 0
    logs = {(log["topic"], log["partition"]) for log in summary["live"]["logs"]}  # type: ignore[index]
    assert {(story.TOPIC, 0), (story.TOPIC, 1)} <= logs
    assert "__transaction_state" in {topic for topic, _ in logs}


@pytest.mark.parametrize("line", GRANTS)
def test_nothing_of_it_can_be_spared(setting: Setting, line: str) -> None:
    setting.acls(line.replace("--add", "--remove --force"))
    try:
        _, summary, refused = setting.live("PEM")
        logs = {log["topic"] for log in summary["live"]["logs"]}  # type: ignore[index]
        assert refused or story.TOPIC not in logs
    finally:
        setting.acls(line)
