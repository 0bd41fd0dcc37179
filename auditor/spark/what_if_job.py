"""The Spark jobs of a what-if: every copy under every policy, then the verdicts of each log with all that is known."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditor.connectors.schema import LOG_KEY, TIME
from auditor.facts.copy_facts import CopyFacts
from auditor.model.policies import ERRORS, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE
from auditor.pipeline.isolation import read_each
from auditor.pipeline.plan import spread
from auditor.replay.copy_reader import CopyTask
from auditor.replay.policy_kernel import VERDICT
from auditor.replay.policy_replay import CopyWorlds, Settings, replay_copy
from auditor.rules import registry
from auditor.rules.registry import Unverified
from auditor.rules.view import Cluster, LogView
from auditor.spark.scan import JUDGED, JUDGED_ARROW, LISTS_PER_CORE
from auditor.spark.streams import LOG, Row, by_log, in_batches, logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DUPLICATE_NAME = "DUPLICATE"  # no error: success with the offsets of a batch that the broker remembered

# One row a run of stored batches, or a marker, that another policy would have answered with ``error``. What begins with
# ``known_`` is what that broker would have known then, -1 for nothing. ``batches``, ``records``: of the run.
VERDICTS = pa.schema(
    [
        *LOG_KEY, ("file", pa.string()), ("position", pa.int64()), ("policy", pa.string()), ("error", pa.string()),
        ("base_offset", pa.int64()), ("last_offset", pa.int64()), ("run_last_offset", pa.int64()),
        ("producer_id", pa.int64()), ("producer_epoch", pa.int32()), ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()), ("known_epoch", pa.int32()), ("known_last_sequence", pa.int32()),
        ("max_timestamp", TIME), ("is_transactional", pa.bool_()), ("is_control", pa.bool_()), ("batches", pa.int64()),
        ("records", pa.int64()), ("stored_before", pa.bool_()),
    ]
)  # fmt: skip

PARTS = "join_key string, topic string, partition int, kind string, part binary"
PARTS_ARROW = pa.schema(
    [("join_key", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("kind", pa.string()),
     ("part", pa.binary())]
)  # fmt: skip


def read_worlds(
    spark: SparkSession, tasks: list[CopyTask], settings: Callable[[CopyTask], Settings], policies: tuple[str, ...]
) -> DataFrame:
    """Every copy under every policy, one row each. Nothing runs until it is asked for."""
    slots = max(1, spark.sparkContext.defaultParallelism * LISTS_PER_CORE)
    lists = [
        [(task, policies, settings(task)) for task in some if isinstance(task, CopyTask)]
        for some in spread([*tasks], slots)
    ]
    shipped = spark.sparkContext.broadcast(lists)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (n for batch in batches for n in batch.column(0).to_pylist()):
            worlds = read_each(shipped.value[number], _replay)
            rows = ((w.join_key, w.topic, w.partition, "worlds", pickle.dumps(w, 5)) for w in worlds)
            yield from in_batches(rows, PARTS_ARROW)

    return spark.range(0, len(lists), 1, max(1, len(lists))).mapInArrow(read, PARTS)


def _replay(work: tuple[CopyTask, tuple[str, ...], Settings]) -> CopyWorlds:
    return replay_copy(*work)


def judge(
    spark: SparkSession, facts: DataFrame, worlds: DataFrame, clusters: dict[str, Cluster]
) -> dict[str, list[dict[str, Any]]]:
    """Rows of kind finding, verdict, copy and log; the last as far as telling what could not be read needs it."""
    shipped = spark.sparkContext.broadcast(clusters)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def rows() -> Iterator[Row]:
            for (join_key, *_), found in logs(batches):
                parts: dict[str, list[Any]] = {"facts": [], "worlds": []}
                for kind, part in found:
                    parts[kind].append(pickle.loads(part))
                for kind, row in judge_log(parts["facts"], parts["worlds"], shipped.value[join_key]):
                    yield kind, json.dumps(row, ensure_ascii=False)

        yield from in_batches(rows(), JUDGED_ARROW)

    known = facts.selectExpr(*LOG, "'facts' AS kind", "facts AS part")
    judged = by_log(known.unionAll(worlds)).mapInArrow(work, JUDGED).toArrow()
    out: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("finding", "verdict", "copy", "log")}
    for kind, text in zip(judged.column("kind").to_pylist(), judged.column("row").to_pylist(), strict=True):
        out[kind].append(json.loads(text))
    return out


def judge_log(
    copies: list[CopyFacts], worlds: list[CopyWorlds], cluster: Cluster
) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the policies make of one log: verdicts and findings by its leader copy, sizes by every copy."""
    log = LogView(copies, cluster)
    for facts in log.copies:
        yield "log", {"errors": [e._asdict() for e in facts.errors]}
    for w in worlds:
        row = {name: value for name, value in asdict(w).items() if name not in ("worlds", "segments", "hours")}
        row["leader_copy"] = w.log_dir == log.leader.log_dir
        row["hours"] = [[hour, *numbers] for hour, numbers in sorted(w.hours.items())]
        row["worlds"] = {name: _sizes(world) for name, world in w.worlds.items()}
        yield "copy", row
    mine = next((w for w in worlds if w.log_dir == log.leader.log_dir), None)
    if mine is None:
        return
    verdicts = [*_stored(mine), *_unverified(log, tuple(mine.worlds))]
    verdicts.sort(key=lambda v: (v["policy"], v["base_offset"], v["producer_id"]))
    key = {name: getattr(log.leader, name) for name in ("cluster_id", "broker_id", "log_dir", "topic", "partition")}
    for v in verdicts:
        yield "verdict", key | v
    log.leader.tables["verdicts"] = pa.Table.from_pylist([key | v for v in verdicts], VERDICTS)
    catalogue = registry.load()
    for finding in registry.judge(log, (each for each in catalogue.values() if each.what_if)):
        yield "finding", finding.to_dict()


def _sizes(world: Any) -> dict[str, int]:
    return {name: value for name, value in asdict(world).items() if name != "verdicts"} | {
        "verdicts": len(world.verdicts)
    }


def _stored(w: CopyWorlds) -> Iterator[dict[str, Any]]:
    """The verdicts of the replays, as rows of the table."""
    plain = [name for name in VERDICT.names or () if name not in ("error", "segment", "transactional", "control")]
    for policy, world in w.worlds.items():
        for v in world.verdicts:
            row: dict[str, Any] = {name: v[name].item() for name in plain}
            row |= {
                "policy": policy,
                "error": ERRORS.get(int(v["error"]), DUPLICATE_NAME),
                "file": w.segments[v["segment"]] if v["segment"] >= 0 else None,
                "is_transactional": bool(v["transactional"]),
                "is_control": bool(v["control"]),
                "stored_before": bool(v["stored_before"]),
                "max_timestamp": row["max_timestamp"] if row["max_timestamp"] >= 0 else None,
            }
            yield row


def _unverified(log: LogView, policies: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Transactional data that verification would have refused (KIP-890): what the rules prove to be no one's.

    Version 2 raises the epoch with every marker, so that a late write is of an old epoch there.
    """
    catalogue = registry.load()
    told: set[tuple[int | None, int | None]] = set()
    rows = log.leader.transactions
    for f in registry.judge(log, (each for each in catalogue.values() if each.unverified)):
        if (f.producer_id, f.offset) in told or f.evidence.get("in_flight"):
            continue
        told.add((f.producer_id, f.offset))
        found = rows[(rows["producer_id"] == f.producer_id) & (rows["first_offset"] == f.offset)]
        if not len(found):
            continue
        for policy in policies:
            late = policy == "kip-890-p2" and catalogue[f.rule].unverified is Unverified.ENDED
            if policy.startswith("kip-890"):
                yield _refused(log, found[0], policy, INVALID_PRODUCER_EPOCH if late else INVALID_TXN_STATE)


def _refused(log: LogView, t: np.void, policy: str, error: int) -> dict[str, Any]:
    stamp = int(t["first_timestamp"])
    return {
        "policy": policy,
        "error": ERRORS[error],
        "file": log.leader.file(int(t["segment"])),
        "position": int(t["position"]),
        "base_offset": int(t["first_offset"]),
        "last_offset": int(t["first_offset"]),
        "run_last_offset": int(t["last_offset"]),
        "producer_id": int(t["producer_id"]),
        "producer_epoch": int(t["producer_epoch"]),
        **dict.fromkeys(("base_sequence", "last_sequence", "known_epoch", "known_last_sequence"), -1),
        "max_timestamp": stamp if stamp >= 0 else None,
        "is_transactional": True,
        "is_control": False,
        "batches": int(t["batches"]),
        "records": int(t["records"]),
        "stored_before": False,
    }
