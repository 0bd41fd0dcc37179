"""Directories as strangers publish them: what version control, volumes, containers and other systems leave in them.

None of it is Kafka's, so that an audit says the same as of the corpus as it was, and nothing more.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import corpora
from tests.audited import above_info
from tests.facts import logs_of, opened

COMPOSE = "services:\r\n  kafka:\r\n    image: apache/kafka:4.1.0\r\n    volumes: ['./data:/var/lib/kafka/data']\r\n"
APPLE_DOUBLE = struct.pack(">IIIIH", 0x00051607, 0x00020000, 0, 0, 0).ljust(4096, b"\0")
ZONE = b"[ZoneTransfer]\r\nZoneId=3\r\nReferrerUrl=C:\\Users\\me\\kafka.zip\r\n"
LOG4J = "[2026-09-21 14:13:20,001] INFO [KafkaServer id=1] started (kafka.server.KafkaServer)\n" * 50
TEXTS = ("*.properties", "*checkpoint", "partition.metadata", "quorum-state")


def put(path: Path, content: str | bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_dir())


def brokers(root: Path) -> list[Path]:
    return sorted(root.glob("broker-*/"))


def in_version_control(root: Path) -> None:
    """A home lab in git: branches and reflogs with names of partitions, packs, kept empty folders."""
    for folder in folders(root):
        put(folder / ".gitkeep")
    put(root / "broker-1" / ".gitignore", "*.lock\n!.gitkeep\n")
    put(root / ".gitattributes", "* -text\n")
    put(root / ".git" / "HEAD", "ref: refs/heads/orders-0\n")
    put(root / ".git" / "index", b"DIRC" + bytes(100))
    for name in ("refs/heads/orders-0", "logs/HEAD", "logs/refs/heads/orders-0"):
        put(root / ".git" / name, "0" * 40 + "\n")
    for ending in ("pack", "idx", "rev"):
        put(root / ".git" / "objects" / "pack" / f"pack-{'0' * 40}.{ending}", b"PACK" + bytes(60))
    put(root / ".git" / "objects" / "00" / ("1" * 38), bytes(20))
    put(root / "README.md", "# my kafka lab\n")
    put(root / ".github" / "workflows" / "ci.yml", "on: push\n")


def on_a_volume(root: Path) -> None:
    """An ext4 volume each, mounted at log.dirs."""
    for broker in brokers(root):
        (broker / "lost+found").mkdir(mode=0o700)


def with_carriage_returns(root: Path) -> None:
    """Checked out with core.autocrlf: BufferedReader.readLine and Properties read both line ends."""
    for pattern in TEXTS:
        for path in root.rglob(pattern):
            if path.suffix != ".checkpoint":
                path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))


def by_windows(root: Path) -> None:
    """Browsed by Explorer, and copied back through WSL from a downloaded archive."""
    for path in files(root):
        put(path.with_name(f"{path.name}:Zone.Identifier"), ZONE)
    for folder in folders(root):
        put(folder / "desktop.ini", "[.ShellClassInfo]\r\nIconResource=C:\\x.dll,1\r\n")
        put(folder / "Thumbs.db", b"\xd0\xcf\x11\xe0" + bytes(508))
        put(folder / "DESKTOP.INI")
    put(root / "System Volume Information" / "IndexerVolumeGuid", b"{\0")
    put(root / "$RECYCLE.BIN" / "desktop.ini", "[.ShellClassInfo]\r\n")


def by_macos(root: Path) -> None:
    """Zipped by the Finder: AppleDouble files beside each file, and again below __MACOSX."""
    for path in files(root):
        for place in (path.parent, root / "__MACOSX" / path.parent.relative_to(root)):
            put(place / f"._{path.name}", APPLE_DOUBLE)
    for folder in [root, *folders(root)]:
        put(folder / ".DS_Store", b"\0\0\0\1Bud1" + bytes(200))
    put(root / ".Spotlight-V100" / "VolumeConfiguration.plist", "<plist/>")
    put(root / ".fseventsd" / "fseventsd-uuid", "x")


def nested(root: Path) -> None:
    """Each broker in a folder of its own: broker1/data, with its settings beside."""
    for number, broker in enumerate(brokers(root), 1):
        place = root / f"broker{number}"
        place.mkdir()
        broker.rename(place / "data")
        settings = root / f"server-{broker.name.rpartition('-')[2]}.properties"
        if settings.exists():
            settings.rename(place / "server.properties")


def on_a_station(root: Path) -> None:
    """Shared from a network station and edited there: previews, swap files, files renamed while they were open."""
    for folder in folders(root):
        for path in [path for path in folder.iterdir() if path.is_file()]:
            put(folder / "@eaDir" / f"{path.name}@SynoEAStream", bytes(20))
    for path in files(root):
        if path.name.endswith("checkpoint") or path.name == "partition.metadata":
            for name in (f"{path.name}~", f"{path.name}.bak", f"Copy of {path.name}"):
                put(path.with_name(name), path.read_bytes())
        if path.suffix == ".log":
            put(path.with_name(f".{path.name}.aB3xY9"), path.read_bytes()[:100])
    put(root / "#recycle" / "desktop.ini")
    put(root / ".nfs00000000000000120000001", b"x")


def as_bitnami(root: Path) -> None:
    """/bitnami/kafka of an image: data and config, with files of its own."""
    for number, broker in enumerate(brokers(root), 1):
        place = root / f"kafka_{number}_data" / "_data" / "kafka"
        place.mkdir(parents=True)
        broker.rename(place / "data")
        settings = root / f"server-{broker.name.rpartition('-')[2]}.properties"
        put(place / "config" / "server.properties", settings.read_bytes())
        settings.unlink()
        put(place / "config" / "log4j2.yaml", "Configuration:\n")
        put(place / ".user_scripts_initialized")
        put(place / "config" / "certs" / "kafka.keystore.jks", bytes(64))


def as_confluent(root: Path) -> None:
    """/var/lib/kafka/data beside the data of ZooKeeper, whose files are called log.N and snapshot.N."""
    for broker in brokers(root):
        host = root / f"host-{broker.name.rpartition('-')[2]}"
        (host / "var/lib/kafka").mkdir(parents=True)
        broker.rename(host / "var/lib/kafka/data")
        settings = root / f"server-{broker.name.rpartition('-')[2]}.properties"
        put(host / "etc/kafka/server.properties", settings.read_bytes())
        settings.unlink()
        put(host / "var/lib/zookeeper/data/myid", "1\n")
        put(host / "var/lib/zookeeper/data/version-2/snapshot.0", b"ZKSN" + bytes(200))
        put(host / "var/lib/zookeeper/log/version-2/log.1", b"ZKLG" + bytes(4096))
        put(host / "etc/kafka/secrets/kafka.server.truststore.jks", bytes(64))
        put(host / "etc/confluent-control-center/control-center.properties", "bootstrap.servers=localhost:9092\n")


def with_compose_beside(root: Path) -> None:
    """docker-compose.yml and scripts beside the data, with what editors leave, and CRLF in the settings."""
    put(root / "docker-compose.yml", COMPOSE)
    put(root / "docker-compose.override.yaml", COMPOSE)
    put(root / ".env", "KAFKA_HEAP_OPTS=-Xmx512m\r\n")
    put(root / "scripts" / "create-topics.sh", "#!/bin/sh\nkafka-topics.sh --create --topic orders\n")
    put(
        root / "config" / "connect-standalone.properties",
        "bootstrap.servers=localhost:9092\noffset.storage.file.filename=/tmp/x\n",
    )
    put(root / "config" / "producer.properties", "bootstrap.servers=localhost:9092\n")
    for broker in brokers(root):
        put(broker / "meta.properties~", (broker / "meta.properties").read_bytes())
        put(broker / ".meta.properties.swp", b"b0VIM 8.2" + bytes(4087))
        put(broker / "meta.properties.bak", (broker / "meta.properties").read_bytes())
    for settings in root.glob("server-*.properties"):
        settings.write_bytes(settings.read_bytes().replace(b"\n", b"\r\n"))


def with_log4j_beside(root: Path) -> None:
    """The logs of the program, in the data directory (log.dirs=/opt/kafka/logs) and beside it."""
    for place in (*brokers(root), root / "logs"):
        for name in ("server.log", "controller.log", "state-change.log", "log-cleaner.log", "kafka-authorizer.log"):
            put(place / name, LOG4J)
        put(place / "server.log.2026-09-21-14", LOG4J)
        put(place / "kafkaServer-gc.log.0.current", "[0.004s][info][gc] Using G1\n")
        put(place / "kafkaServer.out", LOG4J)
        put(place / ".lock")


KINDS: list[tuple[Callable[[Path], None], str]] = [
    (in_version_control, "healthy-41"),
    (on_a_volume, "healthy-28"),
    (with_carriage_returns, "replicas-41"),
    (by_windows, "not-hanging-41"),
    (by_macos, "replicas-41"),
    (nested, "replicas-41"),
    (on_a_station, "hanging-36"),
    (as_bitnami, "live-copy-39"),
    (as_confluent, "healthy-28"),
    (with_compose_beside, "hanging-36"),
    (with_log4j_beside, "not-hanging-41"),
]
STARTS = ("start-fails",)  # a broker ends at a folder that is no partition


def said(root: Path, corpus: str) -> tuple[object, ...]:
    """Whether all was read, what is above info, and how far each replica was read."""
    manifest = corpora.manifest(corpus)
    audit = opened(root, as_of=manifest.get("as_of", manifest["copied_at"]))
    found = [f for f in above_info(audit.findings) if not f.kind.startswith(STARTS)]
    return (
        audit.incomplete(),
        sorted((f.kind, f.severity, f"{f.topic}-{f.partition}", f.broker_id or 0, f.message) for f in found),
        sorted(
            (c.topic, c.partition, c.broker_id or 0, c.own_start, c.log_end, c.high_watermark or 0, len(c.segments))
            for log in logs_of(audit)
            for c in log.replicas
        ),
    )


@pytest.mark.parametrize(("make", "corpus"), KINDS, ids=[f"{make.__name__}-{corpus}" for make, corpus in KINDS])
def test_what_is_not_kafkas_changes_nothing(tmp_path: Path, make: Callable[[Path], None], corpus: str) -> None:
    plain, published = corpora.copy(corpus, tmp_path / "plain"), corpora.copy(corpus, tmp_path / "published")
    make(published)
    assert said(published, corpus) == said(plain, corpus)


LINE_ENDS: dict[str, Callable[[bytes], bytes]] = {
    "carriage returns": lambda text: text.replace(b"\n", b"\r\n"),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"),
    "redirected by PowerShell": lambda text: text.decode().replace("\n", "\r\n").encode("utf-16"),
}


@pytest.mark.parametrize("ends", LINE_ENDS)
def test_dumps_of_containers_and_of_windows_are_read_as_others(tmp_path: Path, ends: str) -> None:
    texts = corpora.ROOT / "text-dumps" / "texts" / "hanging-36"
    for path in files(texts):
        put(tmp_path / path.relative_to(texts), LINE_ENDS[ends](path.read_bytes()))
    of_windows, plain = opened(tmp_path), opened(texts)
    assert [f.message for f in above_info(of_windows.findings)] == [f.message for f in above_info(plain.findings)]
    assert above_info(plain.findings)
    assert of_windows.exit_code() == plain.exit_code() == 1


def test_names_in_capitals_are_no_segments(tmp_path: Path) -> None:
    """A broker does not read them either; without a segment nothing is sound."""
    root = corpora.copy("healthy-41", tmp_path)
    for path in files(root):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            path.rename(path.with_name(path.name.upper()))
    assert opened(root, as_of=corpora.manifest("healthy-41")["copied_at"]).exit_code() == 3
