"""The audit of a running cluster: what is read comes from brokers, what is judged and published is as ever.

The findings point at offsets, never at files. What may only have been seen in motion is asked for once more.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.base.at_rest import Fields
from auditor.base.errors import AuditInputError, DecodeError
from auditor.base.words import plural
from auditor.connectors.logdir.files import Inventory, LogDir, Replica, SegmentFile
from auditor.connectors.logdir.scope import LeftOut
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.empty_input import NOTHING_READABLE, NOTHING_VISIBLE, EmptyInput
from auditor.pipeline.live.live_reading import Reading
from auditor.pipeline.live.live_tables import Tables
from auditor.pipeline.read_audit import Say, nobody
from auditor.pipeline.read_step import kept
from auditor.pipeline.whole_audit import Audit
from auditor.replay.reading.other_replicas import NOWHERE
from auditor.rules.catalogue import registry
from auditor.rules.seen.cluster_view import Cluster
from auditor.rules.seen.view import Finding

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.runner import Replicas, Runner


class LiveAudit(Audit):
    """An audit of one reading of a cluster, which must be open while findings are asked for."""

    def __init__(self, reading: Reading, runner: Runner, say: Say = nobody) -> None:
        super().__init__(reading.options, runner, say)
        self._reading = reading
        self.folder: Path | None = None
        self._ended: set[tuple[str | None, int | None, int | None, int | None]] = set()

    @cached_property
    def reading(self) -> Reading:
        """The reading, once it was done."""
        with self.step("read the cluster"), Tables(self.options, self.folder) as tables:
            self._reading.run(tables.watch)
        if not self._reading.brokers:
            raise AuditInputError("the cluster does not list its topics; check what this user may describe")
        return self._reading

    @cached_property
    def inventory(self) -> Inventory:
        """What was read, as if each broker were a log directory."""
        return inventory_of(self.reading)

    @property
    def scoped(self) -> Inventory:
        """What was read: nothing else was fetched."""
        return self.inventory

    @property
    def empty_input(self) -> EmptyInput | None:
        """Why there was nothing to judge: no partition is visible to this user, or none could be read."""
        reading = self.reading
        if not reading.logs:
            return None if reading.left_out else NOTHING_VISIBLE
        return None if reading.facts else NOTHING_READABLE

    @property
    def left_out(self) -> LeftOut:
        """The logs that the scope left out, and those of which it left out the beginning."""
        begun = sum(f.log_start > self.reading.begins(f) for f in self.reading.facts) if self.options.since else 0
        return LeftOut(self.reading.left_out, begun)

    @cached_property
    def _opened(self) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
        return {self.reading.join_key: self.reading.settings}, []

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of what was read, where the runner has them."""
        reading = self.reading
        self.ready()
        return self.runner.keep([kept(facts) for facts in reading.facts])

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        """Logs begin where the brokers say, not where reading began: committed offsets are judged by that."""
        known = super().clusters
        ends = self.reading.ends
        if (cluster := known.get(self.reading.join_key)) is not None:
            for name, bounds in cluster.bounds.items():
                start, end = ends.start.get(name, bounds.log_start), ends.end.get(name, bounds.log_end)
                cluster.bounds[name] = bounds._replace(log_start=start, log_end=max(end, bounds.log_end))
            cluster.leaders = {log.name: log.leader for log in self.reading.logs if log.leader >= 0}
            cluster.replicas = {log.name: len(log.replicas) for log in self.reading.logs}
            cluster.configs_by = "the brokers"
        return known

    @cached_property
    def findings(self) -> list[Finding]:
        """Those that still hold when the leaders are asked again."""
        found = super().findings
        ended = [finding for finding in found if self._has_ended(finding)]
        for finding in found:
            finding.file = finding.position = None
        self._ended = {(f.topic, f.partition, f.producer_id, f.offset) for f in ended}
        if ended:
            note = f"ended since, though open while the cluster was read: {plural(len(ended), 'transaction')}"
            self.inventory = dataclasses.replace(self.inventory, notes=(*self.inventory.notes, note))
        return [finding for finding in found if finding not in ended]

    @property
    def blocked(self) -> list[Fields]:
        """Without those whose holder has ended since."""
        _ = self.findings
        names = ("topic", "partition", "producer_id", "first_offset")
        return [row for row in super().blocked if tuple(row[name] for name in names) not in self._ended]

    @cached_property
    def _begun_inside(self) -> set[tuple[str | None, int | None]]:
        """Topic and partition of the logs that were not read from their start."""
        return {(f.topic, f.partition) for f in self.reading.facts if f.log_start > self.reading.begins(f)}

    def _has_ended(self, finding: Finding) -> bool:
        """Whether the leader says that a transaction is over which a finding has for open."""
        if not registry.kinds()[finding.kind].moving or finding.offset is None or finding.producer_id is None:
            return False
        assert finding.topic is not None
        assert finding.partition is not None
        name = (finding.topic, finding.partition)
        leaders = {log.name: log.leader for log in self.reading.logs}
        producers = self.reading.cluster.producers(leaders[name], [name]).get(name)
        if producers is None:
            return False
        begun = next((p.txn_first_offset for p in producers if p.producer_id == finding.producer_id), -1)
        return begun != finding.offset and not 0 <= begun < self._read_from[name]

    @cached_property
    def _read_from(self) -> dict[tuple[str, int], int]:
        """The offset that each log was read from: a transaction may have begun before it."""
        return {(facts.topic, facts.partition): facts.log_start for facts in self.reading.facts}

    def spared(self) -> Inventory | None:
        """Brokers are asked, not their folders."""
        return None

    def staged(self, folder: Path) -> None:
        """Tables are written while their rows pass by."""
        self.folder = folder / "tables" if self.options.tables else None

    def held(self, table: str) -> pa.Table | None:
        """Decoded tables were written while their rows passed by, or are in the facts."""
        from auditor.pipeline.live.live_tables import from_facts

        if table in ("findings", "blocked"):
            return super().held(table)
        return from_facts(self.reading.facts, table)

    def written_tables(self) -> list[str]:
        """All but what was written already."""
        from auditor.pipeline.live.live_tables import PASSING

        return [name for name in super().written_tables() if name not in PASSING]

    def of_summary(self) -> Fields:
        """What only a running cluster can show, under ``live``."""
        reading = self.reading
        ends = reading.ends
        logs = [
            {
                "topic": log.topic,
                "partition": log.partition,
                "leader": log.leader,
                "leader_epoch": log.leader_epoch,
                "isr": list(log.isr),
                "log_start": ends.start.get(log.name),
                "last_stable_offset": ends.stable.get(log.name),
                "log_end": ends.end.get(log.name),
                "replicas": {str(b): list(bounds) for b, bounds in sorted(ends.replicas.get(log.name, {}).items())},
            }
            for log in reading.logs
        ]
        about = {"cluster_id": reading.cluster_id, "brokers": reading.brokers, "bytes_read": reading.budget.used}
        return {"live": {**about, "from": reading.begin, "logs": logs}}


def inventory_of(reading: Reading) -> Inventory:
    """What was read, as if each broker were a log directory."""
    dirs = []
    for broker in reading.brokers:
        mine = [f for f in reading.facts if f.broker_id == broker]
        replicas = tuple(
            Replica(
                f.log_dir,
                f.topic,
                f.partition,
                f.folder,
                segments=(SegmentFile(f.segments[0], f.segment_bases[0], f.sums["bytes_total"]),),
            )
            for f in mine
        )
        name = f"broker-{broker}"
        dirs.append(
            LogDir(name, NOWHERE, reading.join_key, reading.cluster_id, broker, "the cluster", replicas=replicas)
        )
    return Inventory(tuple(dirs), (), (), (), tuple(reading.notes))
