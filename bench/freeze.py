"""Makes ``bench/batches``: batches of a real producer as a broker of 4.1 stored them, for :mod:`bench.inputs`.

``python -m bench.freeze`` starts the broker and takes half a minute; the files are kept in git, so that only a new kind
needs it.
"""

from __future__ import annotations

import struct
import subprocess
import tempfile
from pathlib import Path

from bench.java import VERSION, compiled
from tests.broker.cluster import Cluster

HERE = Path(__file__).parent
KEPT = 8  # batches of a kind
FIRST = 3  # the producer fills its first batches before it has a connection and knows how well records compress
# Name: bytes of a value, records sent, the settings of the producer.
KINDS = {
    "64k": (230, 8_000, ("batch.size=65536", "linger.ms=200")),
    "64k-lz4": (230, 60_000, ("batch.size=65536", "linger.ms=200", "compression.type=lz4")),
    "64k-zstd": (230, 60_000, ("batch.size=65536", "linger.ms=200", "compression.type=zstd")),
    "400": (91, 60, ("batch.size=412", "linger.ms=200")),
}


def batches(log: bytes) -> list[bytes]:
    """The batches of a whole segment."""
    found, at = [], 0
    while at < len(log):
        size = 12 + struct.unpack_from(">i", log, at + 8)[0]
        found.append(log[at : at + size])
        at += size
    return found


def _cluster(folder: str) -> Cluster:
    return Cluster(VERSION, Path(folder), auto_create_topics_enable="true")


def main() -> None:
    """Writes a file a kind."""
    with tempfile.TemporaryDirectory() as folder, _cluster(folder) as cluster:
        for name, (size, count, settings) in KINDS.items():
            command = [*compiled("Producer"), cluster.servers, name, str(count), str(size), *settings]
            subprocess.run([*command, "buffer.memory=67108864"], check=True)
        for name in KINDS:
            log = cluster.log_dir() / f"{name}-0" / f"{0:020d}.log"
            kept = batches(log.read_bytes())[FIRST : FIRST + KEPT]
            (HERE / "batches" / f"{name}.log").write_bytes(b"".join(kept))
            print(name, [len(batch) for batch in kept])


if __name__ == "__main__":
    main()
