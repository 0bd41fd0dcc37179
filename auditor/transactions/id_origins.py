"""Whose a transactional id is: its scheme, and what else in its cluster shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from auditor.base.transactional_ids import OF_A_POOL, IdOrigin, Sign, origin, schemes_of
from auditor.facts.coordinator_history import CoordinatorHistory
from auditor.model.groups import CONNECT, STREAMS

NEAR = 3  # numbers before and behind an id's own that are looked up
RISING = 3  # ids of a subtask whose transactions began in the order of their numbers
SUBTASKS = 1 << 15  # Flink's highest parallelism
RECORDS = 64  # of an id in a piece of its log that are looked at
LEADER = "connect-cluster-"
OF_WORKERS = ("connect-configs", "connect-offsets", "connect-status")  # of Kafka's connect-distributed.properties

Shown = tuple[bool, str, dict[str, str]]  # whether it is certain, the sign in words, and groups that it corrects


@dataclass
class Surroundings:
    """What a cluster shows beside its ids.

    ``groups``: the groups of Connect's workers and of Streams' threads; ``topics``: with their number of partitions;
    ``origins``: of the ids that were asked for.
    """

    history: CoordinatorHistory | None
    groups: Mapping[str, str]
    topics: Mapping[str, int]
    origins: dict[str, IdOrigin | None] = field(default_factory=dict)

    @cached_property
    def of_streams(self) -> list[str]:
        """The internal topics of Streams applications."""
        return [name for name in self.topics if name.endswith(("-changelog", "-repartition"))]

    def origin(self, transactional_id: str) -> IdOrigin | None:
        """Return the origin of an id. Cost: the first call may index all ids."""
        if transactional_id not in self.origins:
            self.origins[transactional_id] = recognize(transactional_id, self)
        return self.origins[transactional_id]

    def has_id(self, transactional_id: str) -> bool:
        """Whether a transactional id is known."""
        return self.history is not None and self.history.place(transactional_id)[0] is not None


def recognize(transactional_id: str, around: Surroundings) -> IdOrigin | None:
    """Return the origin of an id: the first that a second sign proves, otherwise the first that is likely."""
    likely: IdOrigin | None = None
    for scheme, parts in schemes_of(transactional_id):
        certain, sign, corrected = _SIGNS[scheme.sign](parts, around) or (False, "", {})
        if certain or (likely is None and (sign or scheme.alone)):
            likely = origin(scheme, parts | corrected, sign, certain=certain)
        if certain:
            break
    return likely


def _by_streams(parts: Mapping[str, str], around: Surroundings) -> Shown | None:
    application = parts["application"]
    if around.groups.get(application) == STREAMS:
        return True, f"the members of group {application} are threads of Kafka Streams", {}
    topic = next((name for name in around.of_streams if name.startswith(f"{application}-")), None)
    return None if topic is None else (True, f"{topic} is an internal topic of the application", {})


def _by_topic(parts: Mapping[str, str], around: Surroundings) -> Shown | None:
    # Both the prefix with the group and the topic may have dots.
    words = f"{parts['application']}.{parts['topic']}".split(".")
    for k in range(1, len(words)):
        head, topic = ".".join(words[:k]), ".".join(words[k:])
        if int(parts["partition"]) < around.topics.get(topic, 0):
            return False, f"{topic} has this partition", {"application": head, "topic": topic}
    return None


def _by_connect(parts: Mapping[str, str], around: Surroundings) -> Shown | None:
    # Both the group and the connector may have hyphens: the longest group that is known counts.
    if "connector" not in parts:
        sign = _of_group(parts["application"], around)
        return (True, sign, {}) if sign else None
    words = f"{parts['application']}-{parts['connector']}".split("-")
    for k in range(len(words) - 1, 0, -1):
        group, connector = "-".join(words[:k]), "-".join(words[k:])
        sign = _of_group(group, around)
        if not sign and around.has_id(LEADER + group):
            sign = f"{LEADER}{group} is the id of the group's leader"
        if sign and connector:
            return True, sign, {"application": group, "connector": connector}
    return None


def _of_group(group: str, around: Surroundings) -> str:
    if around.groups.get(group) == CONNECT:
        return f"group {group} has protocol type connect"
    own = OF_WORKERS if group == LEADER[:-1] else (f"mm2-offsets.{group.removesuffix('-mm2')}.internal",)
    return f"{own[0]} is an internal topic of the group" if all(topic in around.topics for topic in own) else ""


def _by_checkpoints(parts: Mapping[str, str], around: Surroundings) -> Shown | None:
    # A sink takes the number of each checkpoint once, one after another, from 1 on, in each subtask from 0 on. A pool
    # begins with 0, and takes its numbers in any order and again.
    application, subtask, number = parts["application"], int(parts["subtask"]), int(parts["number"])
    if around.has_id(f"{application}-{subtask}-0"):
        return False, "ids of this subtask are numbered from 0 on", {"numbered": f"producer {number} {OF_A_POOL}"}
    begun = {n: _in_turn(around, f"{application}-{n}-", number) for n in {0, 1, subtask} if n < SUBTASKS}
    most = max(map(len, begun.values()))
    if number not in begun.get(subtask, ()) or not begun[0] or most < RISING:
        return None
    return True, f"{most} ids of one subtask have one transaction each, in the order of their numbers", {}


def _in_turn(around: Surroundings, head: str, number: int) -> dict[int, int]:
    # When the transactions of the ids near a number began, ms, by number; none where they are not a sink's.
    near = {n: list(_begun(around.history, f"{head}{n}")) for n in range(max(0, number - NEAR), number + NEAR + 1)}
    begun = {n: starts[0] for n, starts in near.items() if starts}
    once, rising = all(len(starts) <= 1 for starts in near.values()), all(a < b for a, b in pairwise(begun.values()))
    return begun if once and rising and not around.has_id(f"{head}0") else {}


def _begun(history: CoordinatorHistory | None, transactional_id: str) -> Iterator[int]:
    # When the transactions of an id began, ms, each once.
    log, number = (None, 0) if history is None else history.place(transactional_id)
    for columns, span in () if log is None else log.rows_of(number):
        starts = columns["start"][span][:RECORDS]
        yield from np.unique(starts[starts >= 0]).tolist()


def _by_pool(parts: Mapping[str, str], around: Surroundings) -> Shown | None:
    first, other = (f"{parts['prefix']}{n}" for n in (0, max(1, int(parts["number"]) - 1)))
    certain = "Sink: " in first  # as Flink names the tasks of sinks
    pool = around.has_id(first) and around.has_id(other)
    return (certain, f"ids of one prefix are numbered from {first} on", {}) if pool else None


_SIGNS: Mapping[Sign, Callable[[Mapping[str, str], Surroundings], Shown | None]] = {
    Sign.CHECKPOINTS: _by_checkpoints,
    Sign.POOL: _by_pool,
    Sign.CONNECT: _by_connect,
    Sign.STREAMS: _by_streams,
    Sign.TOPIC: _by_topic,
}
