"""The same history under other broker policies, as objects: what ``audit.what_if`` gives."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from auditor import running
from auditor.api import notebook
from auditor.api.finding_list import Findings
from auditor.api.open_options import AnyPath
from auditor.api.tabular import Session, Table
from auditor.base.at_rest import Fields, Values
from auditor.outputs import publish
from auditor.pipeline import summary
from auditor.pipeline.options import out_of
from auditor.pipeline.what_if_audit import WhatIfAudit


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a policy would have answered otherwise in one topic, with one error: runs of stored batches that follow each
    other, their batches and producers."""

    error: str
    topic: str
    runs: int
    batches: int
    producers: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What producer state would have cost a log directory: producers and estimated bytes at their peak and at the end.
    An upper bound: peaks of partitions need not have been at one time."""

    log_dir: str
    broker_id: int | None
    producers_peak: int
    bytes_peak: int
    producers_end: int
    bytes_end: int


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The history under one policy.

    ``runs``, ``batches`` and ``producers``: how many it would have answered otherwise than they were stored;
    ``refusals``: the same by error and topic. ``now``: log directories that worked under it. ``state``: of each log
    directory.
    """

    policy: str
    runs: int
    batches: int
    producers: int
    writes_to_a_forgotten_producer: int
    refusals: tuple[Refusals, ...]
    now: tuple[str, ...]
    state: tuple[ProducerState, ...]


class WhatIf:
    """The same history under each broker policy, as :meth:`OpenedAudit.what_if` gives it. Nothing is read before it is
    asked for, and nothing twice."""

    def __init__(
        self, audit: WhatIfAudit, asking: Callable[[], AbstractContextManager[None]], session: Session
    ) -> None:
        self._audit = audit
        self._asking = asking
        self._session = session

    @cached_property
    def result(self) -> Fields:
        """What ``what-if.json`` holds: refusals by policy, and each broker's producer state."""
        with self._asking():
            return self._audit.result

    @cached_property
    def policies(self) -> dict[str, PolicyOutcome]:
        """What each policy comes to, by its name: ``compared.policies["kip-890-p2"].batches``."""
        brokers = self.result["brokers"]
        return {row["policy"]: _outcome(row, brokers) for row in self.result["policies"]}

    @cached_property
    def verdicts(self) -> Table:
        """The table ``verdicts``: a row a run of stored batches that a policy would have answered otherwise."""
        with self._asking():
            return Table.of("verdicts", self._audit.held("verdicts"), self._session)

    @cached_property
    def findings(self) -> Findings:
        """What the policies would have changed, as findings."""
        with self._asking():
            return Findings(self._audit.findings, summary.findings_table(self._audit), self._session)

    def write(self, out: AnyPath) -> Path | str:
        """Writes what ``auditor what-if --out`` writes, and returns the folder or URI."""
        where = out_of(os.fspath(out))
        self._audit.options = dataclasses.replace(self._audit.options, out=where)
        with self._asking():
            running.write(self._audit, publish.publish_what_if)
        return where

    def __repr__(self) -> str:
        return f"<what if: {', '.join(self._audit.policies)}>"

    def _repr_html_(self) -> str:
        """A row a policy, once it was asked for: nothing is read for a look."""
        if "result" not in self.__dict__:
            return notebook.unread_html(repr(self), "its policies, verdicts and findings")
        rows = (
            (p.policy, len(p.now), p.runs, p.batches, p.producers, sum(state.bytes_peak for state in p.state))
            for p in self.policies.values()
        )
        names = ("policy", "log directories now", "runs", "batches", "producers", "bytes of state at peak")
        return notebook.table_html(repr(self).strip("<>"), names, rows)


def _outcome(row: Values, brokers: list[Fields]) -> PolicyOutcome:
    name = row["policy"]
    state = (ProducerState(b["log_dir"], b["broker_id"], **b["policies"][name]) for b in brokers)
    return PolicyOutcome(
        name,
        row["runs"],
        row["batches"],
        row["producers"],
        row["writes_to_a_forgotten_producer"],
        tuple(Refusals(**one) for one in row["errors"]),
        tuple(b["log_dir"] for b in brokers if b["policy_now"] == name),
        tuple(state),
    )
