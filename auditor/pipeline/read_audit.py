"""An audit's first half: what there is, the settings of its clusters, and the facts of every replica."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from functools import cached_property
from typing import TYPE_CHECKING, Any

from auditor.base import user_input
from auditor.base.errors import AuditInputError, DecodeError
from auditor.base.words import plural
from auditor.connectors.logdir import scope
from auditor.connectors.logdir.files import Inventory
from auditor.connectors.logdir.inventory import discover
from auditor.connectors.logdir.scope import LeftOut
from auditor.connectors.logdir.tiered import with_remote
from auditor.connectors.stores import retries
from auditor.pipeline import empty_input, kept_facts, plan
from auditor.pipeline.cluster import cluster_settings
from auditor.pipeline.cluster.brief import Brief
from auditor.pipeline.cluster.cluster_settings import ClusterSettings
from auditor.pipeline.empty_input import EmptyInput
from auditor.pipeline.options import AuditOptions
from auditor.replay.reading.task import ReplicaTask, TextTask

if TYPE_CHECKING:
    from auditor.pipeline.runner import Replicas, Runner

Say = Callable[[str], None]


def beside(work: Callable[..., Any], *given: object) -> Future[Any]:
    """What ``work`` comes to, in a thread that the end of the program does not wait for."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(work(*given))
        except BaseException as error:  # noqa: BLE001
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


def nobody(text: str) -> None:
    """Notifies nobody."""


class ReadAudit:
    """What there is below ``options.paths``, and what a way to run reads of it: computed when asked for, and kept.

    ``timings``: seconds of each step so far; ``began``: when it was opened. ``fatal``: files that kill who reads them
    for a table, with their log directory. Errors, where the input is first asked for: :class:`AuditInputError`.
    """

    def __init__(self, options: AuditOptions, runner: Runner, say: Say = nobody) -> None:
        self.options = options
        self.runner = runner
        self.say = say
        runner.pool.waits = say
        self.timings: dict[str, float] = {}
        self.began = datetime.datetime.now(datetime.UTC)
        self.fatal: list[tuple[str, DecodeError]] = []
        self._opening: Future[Any] | None = None  # the settings, while they are read beside the runner's start
        self._steps: list[str] = []
        self._since = 0.0

    # open

    @cached_property
    def _found(self) -> Inventory:
        """What there is below the paths, the remote parts of logs for themselves."""
        with self.step("open"), retries.heard_by(self.say):
            found = discover(list(self.options.inputs), self.options.limits, self.options.scope)
        if self.options.remote and not found.remote:
            raise AuditInputError(
                f"no remote segments below {', '.join(map(user_input.shown_uri, self.options.remote))}; check --remote"
            )
        return found

    @cached_property
    def inventory(self) -> Inventory:
        """What there is below the paths, tiered logs with their remote part."""
        if not self._found.remote:
            return self._found
        known = {key: known.remote for key, known in self.settings.items()}
        return with_remote(self._found, known, self.options.scope)

    @cached_property
    def scoped(self) -> Inventory:
        """What is read of it. Errors: :class:`AuditInputError` where what was asked for fits nothing."""
        if not self.options.scope.leaves_out:
            return self.inventory
        inventory = self.inventory
        with self.step("open"), retries.heard_by(self.say):
            return scope.narrowed(inventory, self.options.scope)

    @property
    def cluster_ids(self) -> list[str]:
        """The ids of the clusters that are looked at, as far as they are known, sorted."""
        return sorted({id for id in self.inventory.cluster_ids.values() if id})

    @cached_property
    def left_out(self) -> LeftOut:
        """What the scope left out."""
        return scope.left_out(self.inventory, self.scoped)

    @cached_property
    def _opened(self) -> tuple[dict[str, ClusterSettings], list[tuple[str, DecodeError]]]:
        inventory = self._found
        with self.step("open"):
            if self._opening is not None:
                return self._opening.result()
            return cluster_settings.read_settings(inventory, self.options.limits, self.runner.pool)

    @property
    def settings(self) -> dict[str, ClusterSettings]:
        """The settings of each cluster by join key."""
        return self._opened[0]

    @cached_property
    def empty_input(self) -> EmptyInput | None:
        """Why the input, or all of it about one cluster, holds nothing to judge; None where it holds something."""
        asked = self.options.scope
        found = empty_input.of_directories(self.scoped, self.settings, asked)
        if found is None or not asked.may_lack:
            return found
        return empty_input.of_directories(self.inventory, self.settings)

    @property
    def outside(self) -> list[tuple[str, DecodeError]]:
        """What could not be read of the clusters' metadata, each with its log directory."""
        return self._opened[1]

    # read

    @cached_property
    def tasks(self) -> Sequence[ReplicaTask | TextTask]:
        """What there is to read: a task for every replica that is read."""
        return kept_facts.under_its_key(plan.replica_tasks(self.scoped, self.settings, self.options), self.options)

    @cached_property
    def replicas(self) -> Replicas:
        """The facts of every replica, where the runner has them."""
        if self.runner.slow_start and not self._found.remote and not self.is_known("_opened"):
            self._opening = beside(cluster_settings.read_settings, self._found, self.options.limits, self.runner.pool)
            try:
                self.ready()
            except BaseException:
                wait([self._opening])  # who closes the pool next must not do so beside it
                raise
        tasks = self.tasks
        self.ready()
        self.runner.progress = None if self.say is nobody else self._say_read
        return self.runner.read(tasks, kept_facts.folder(self.options))

    @cached_property
    def _planned_mb(self) -> float:
        return int(plan.bytes_of(self.tasks).sum()) / 1e6

    def _say_read(self, part: float) -> None:
        mb = self._planned_mb
        replicas = plural(len(self.tasks), "partition copy")
        self.say(f"reading {replicas}: {part * mb:,.1f} of {mb:,.1f} MB ({part:.0%})")

    def ready(self) -> None:
        """Waits until the runner has started."""
        self.runner.input_bytes = sum(log_dir.size for log_dir in self.inventory.log_dirs)
        with self.step(f"start {self.runner.name}"):
            self.runner.ready()

    @cached_property
    def briefs(self) -> list[Brief]:
        """Of every replica the little that is known everywhere."""
        replicas = self.replicas
        with self.step("read and replay"):
            self._say_read(0.0)
            found = replicas.briefs()
        if any(log_dir.texts for log_dir in self.inventory.log_dirs):  # else it is known before anything is read
            user_input.check(self.options.scope, ((b.topic, b.partition, b.broker_id) for b in found))
        return found

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Around a step's work: says its name and counts its time, without that of steps within it."""
        self._count()
        self._steps.append(name)
        self.say(name)
        try:
            yield
        finally:
            self._count()
            self._steps.pop()

    def _count(self) -> None:
        now = time.monotonic()
        if self._steps:
            name = self._steps[-1]
            self.timings[name] = round(self.timings.get(name, 0.0) + now - self._since, 3)
        self._since = now

    def is_known(self, name: str) -> bool:
        """Whether that was asked for before, so that asking again costs nothing."""
        return name in vars(self)

    def close(self) -> None:
        """Gives back what holds the facts; who asks for them again has them read again. The runner stays as it is."""
        if self.is_known("replicas"):
            vars(self).pop("replicas").close()
