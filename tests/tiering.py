"""Segments of a log moved to remote storage as its plugins would keep them, written from the formats alone.

LocalTieredStorage's layout is Kafka's own (its test jar). Aiven's is made from the description of its manifest and held
against what the plugin wrote on a real broker (the campaign ``aiven-43``).
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import NamedTuple

import cramjam

KINDS = {"index": "offset", "timeindex": "timestamp", "snapshot": "producerSnapshot", "epochs": "leaderEpoch",
         "txnindex": "transaction"}  # fmt: skip
LOCAL, PLAIN, COMPRESSED = "local", "objects", "compressed objects"
LAYOUTS = (LOCAL, PLAIN, COMPRESSED)


class Log(NamedTuple):
    """A partition whose segments are to be moved: its folder, the folder above remote segments, and ids."""

    folder: Path
    remote: Path
    topic_id: str

    @property
    def topic(self) -> str:
        return self.folder.name.rpartition("-")[0]

    @property
    def partition(self) -> str:
        return self.folder.name.rpartition("-")[2]


def tier(log: Log, segment_ids: dict[int, str], layout: str, chunk_bytes: int = 700) -> None:
    """Moves segments, by first offset, with the indexes that belong to them."""
    starts = sorted(int(path.stem) for path in log.folder.glob("*.log"))
    for start, segment_id in sorted(segment_ids.items()):
        end = starts[starts.index(start) + 1]
        taken = {kind: log.folder / f"{start:020}.{kind}" for kind in ("log", "index", "timeindex", "txnindex")}
        taken["snapshot"] = log.folder / f"{end:020}.snapshot"
        files = {kind: path.read_bytes() for kind, path in taken.items() if path.exists()}
        files["epochs"] = (log.folder / "leader-epoch-checkpoint").read_bytes()
        name = f"{start:020}-{segment_id}"
        if layout == LOCAL:
            _as_files(log.remote / f"{log.folder.name}-{log.topic_id}", name, files)
        else:
            folder = log.remote / f"{log.topic}-{log.topic_id}" / log.partition
            _as_objects(folder, name, files, chunk_bytes, compressed=layout == COMPRESSED)
        for kind, path in taken.items():
            if kind != "snapshot":
                path.unlink(missing_ok=True)
    for path in log.folder.glob("*.snapshot"):
        if int(path.stem) < max(starts) and int(path.stem) <= max(segment_ids):
            path.unlink()


def _as_files(folder: Path, name: str, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, data in files.items():
        (folder / f"{name}.{'leader_epoch_checkpoint' if kind == 'epochs' else kind}").write_bytes(data)


def _as_objects(folder: Path, name: str, files: dict[str, bytes], chunk_bytes: int, *, compressed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = files["log"]
    chunks = [log[at : at + chunk_bytes] for at in range(0, len(log), chunk_bytes)]
    index: dict[str, object] = {"originalChunkSize": chunk_bytes, "originalFileSize": len(log)}
    if compressed:
        chunks = [bytes(cramjam.zstd.compress(chunk)) for chunk in chunks]
        index |= {"type": "variable", "transformedChunks": packed([len(chunk) for chunk in chunks])}
    else:
        last = len(chunks[-1]) if chunks else 0
        index |= {"type": "fixed", "transformedChunkSize": chunk_bytes, "finalTransformedChunkSize": last}
    parts: dict[str, dict[str, int]] = {}
    indexes = b""
    for kind, called in KINDS.items():
        if kind in files:
            parts[called] = {"position": len(indexes), "size": len(files[kind])}
            indexes += files[kind]
    says = {"version": "1", "chunkIndex": index, "segmentIndexes": parts, "compression": compressed}
    (folder / f"{name}.log").write_bytes(b"".join(chunks))
    (folder / f"{name}.indexes").write_bytes(indexes)
    (folder / f"{name}.rsm-manifest").write_text(json.dumps(says))


def packed(sizes: list[int]) -> str:
    """Sizes of chunks as a manifest has them: how many, the smallest but for the last, the width of a difference to it,
    the differences, and the last; without the others where there is one, or none."""
    *others, last = sizes or [0]
    least = min(others, default=0)
    width = max((max(1, ((size - least).bit_length() + 7) // 8) for size in others), default=1)
    body = struct.pack(">iib", len(sizes), least, width) + b"".join((s - least).to_bytes(width) for s in others)
    data = body + struct.pack(">i", last) if others else struct.pack(">i", len(sizes))
    data += struct.pack(">i", last) if len(sizes) == 1 else b""
    return base64.b64encode(bytes(cramjam.zstd.compress(data))).decode()
