"""What the story of a hanging transaction needs: a broker, plain or with SASL_SSL, clients, and Kafka's own tool."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError
from kafka.net import KafkaConnectionManager, NetworkSelector
from kafka.protocol.producer import ProduceRequest

from auditor.connectors.live.live_cluster import LATEST, READ_COMMITTED, LiveCluster
from auditor.dashboards.wording import pieces
from tests import segments
from tests.broker.cluster import Cluster
from tests.broker.jars import BUILD, CLASSPATH, NOT_STARTED

TOPIC = "payments"
TOOLS = "3.6.2"  # of kafka-tools; its transactions command speaks to any broker that knows KIP-664
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>auditor.broker</groupId><artifactId>tools</artifactId><version>{TOOLS}</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{TOOLS}</version>
  </dependency></dependencies>
</project>
"""
USER, PASSWORD = "auditor", "auditor-secret"
GUEST, GUEST_PASSWORD = "guest", "guest-secret"  # who may log in, and has no permission where permissions are asked for
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}" user_{GUEST}="{GUEST_PASSWORD}";'
)


@dataclass
class Access:
    """How to reach a broker: kafka-python's options, the broker's settings, the Java tools' properties."""

    client: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)


def secured(folder: Path) -> Access:
    """SASL_SSL with a certificate made on the spot; the one listener keeps its name."""
    folder.mkdir(parents=True)
    key, cert, store = folder / "key.pem", folder / "cert.pem", folder / "broker.p12"
    _run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert,
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")  # fmt: skip
    _run("openssl", "pkcs12", "-export", "-inkey", key, "-in", cert, "-out", store, "-passout", f"pass:{PASSWORD}")
    trust = folder / "trust.p12"
    _run("keytool", "-importcert", "-noprompt", "-alias", "broker", "-file", cert, "-keystore", trust,
         "-storetype", "PKCS12", "-storepass", PASSWORD)  # fmt: skip
    stores = {
        "ssl.truststore.location": str(trust), "ssl.truststore.password": PASSWORD, "ssl.truststore.type": "PKCS12",
    }  # fmt: skip
    tools = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS.split(" user_")[0] + ";",
        **stores,
    }  # fmt: skip
    broker = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN", "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD, "ssl.keystore.type": "PKCS12",
        "ssl.key.password": PASSWORD, **stores,
    }  # fmt: skip
    client = {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD, "ssl_cafile": str(cert),
    }  # fmt: skip
    return Access(client, broker, tools)


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def create_topic(cluster: Cluster, access: Access) -> None:
    """The topic of the story, with two partitions."""
    until = time.monotonic() + 60
    while True:
        try:
            with KafkaAdminClient(bootstrap_servers=cluster.servers, **access.client) as admin:
                admin.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})
            return
        except KafkaError:  # a broker that has just begun
            if time.monotonic() > until:
                raise
            time.sleep(1)


def transactions(producer: KafkaProducer, partition: int, count: int) -> None:
    """Healthy transactions, every third aborted."""
    for number in range(count):
        producer.begin_transaction()
        for k in range(3):
            producer.send(TOPIC, b"value %d" % k, partition=partition)
        producer.flush()
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def write_late(cluster: Cluster, access: Access, producer_id: int, epoch: int, sequence: int) -> int:
    """A transactional batch of a producer whose transaction is over, as a network may deliver it; its offset."""
    now = int(time.time() * 1000)
    bodies = b"".join(segments.record(k, None, b"late") for k in range(2))
    batch = segments.batch(bodies, 2, attributes=0x10, base_time=now, max_time=now, producer_id=producer_id,
                           epoch=epoch, sequence=sequence)  # fmt: skip
    topic = ProduceRequest.TopicProduceData(
        name=TOPIC, partition_data=[ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(
        transactional_id="story", acks=-1, timeout_ms=10_000, topic_data=[topic], min_version=3, max_version=11
    )
    net = NetworkSelector(**access.client)
    manager = KafkaConnectionManager(net, bootstrap_servers=[cluster.servers], **access.client)
    net.start()
    manager.bootstrap(30_000)

    async def send() -> Any:
        return await manager.send(request, node_id=1)

    try:
        answer = manager.run(send).responses[0].partition_responses[0]
    finally:
        manager.close()
        net.stop()
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def last_stable_offset(cluster: Cluster, access: Access) -> int:
    """Where read_committed consumers of the first partition stop."""
    with LiveCluster(cluster.servers, access.client) as live:
        return live.offsets(1, [(TOPIC, 0)], LATEST, READ_COMMITTED)[TOPIC, 0]


def tools_classpath() -> str:
    """The jars of Kafka's command-line tools."""
    project = BUILD / f"tools-{TOOLS}"
    jars = project / "jars"
    if not jars.exists():
        project.mkdir(parents=True, exist_ok=True)
        (project / "pom.xml").write_text(POM, encoding="utf-8")
        command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), CLASSPATH, f"-Dmdep.outputFile={jars}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            pytest.skip(f"{NOT_STARTED}: Maven cannot get Kafka's tools:\n{found.stdout[-500:]}")
    return jars.read_text(encoding="utf-8")


def execute(remedy: str, cluster: Cluster, access: Access) -> None:
    """Runs the last command of a remedy with Kafka's own tool, as a page offers it to be copied; B, which stands where
    no ``--bootstrap-server`` was given, is put in place."""
    script, *words = shlex.split([text for kind, text in pieces(remedy) if kind == "command"][-1])
    assert script == "kafka-transactions.sh"
    words = [cluster.servers if word == "B" else word for word in words]
    file = cluster.folder / "tools.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in access.tools.items()), encoding="utf-8")
    main = "org.apache.kafka.tools.TransactionsCommand"
    command = ["java", "-cp", tools_classpath(), main, "--command-config", str(file), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def findings(out: Path) -> list[dict[str, Any]]:
    """What an audit left, without the infos."""
    lines = (out / "findings.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["severity"] != "info"]
