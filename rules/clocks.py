"""Rules on clocks of brokers and times of records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from auditor.base.advice import Advice
from auditor.base.errors import setting_number
from auditor.base.evidence_keys import ClockSkewEvidence, read
from auditor.base.words import duration, few, plural
from auditor.evidence.cluster_clocks import Fall, Lag, beyond_ms, differences
from auditor.facts.coordinator_history import NamedTransactions
from auditor.facts.events import TOLERANCE_MS, Event, EventKind
from auditor.facts.replica_facts import LargestCreateTime
from auditor.model import policies
from auditor.model.batch_validation import FAR_MS, accepted_times
from auditor.rules.catalogue.registry import rule
from auditor.rules.seen.cluster_view import METADATA_TOPIC, TRANSACTION_STATE
from auditor.rules.seen.view import Finding, LogView, highest, iso, runs
from auditor.rules.validation import BatchPlace, blamed, error_code
from auditor.transactions.matching import ahead_by, markers_of, matching, naming

# Broker clocks that differ or moved backwards, by decisions, markers and their order.


RULE = "clock-skew"
MOST_LOOKED_AT = 10_000  # markers of a producer


def _once(findings: Sequence[Finding], advice: Advice) -> list[Finding]:
    # One finding for each wrong clock in place of one per pair of brokers and partition: its largest difference from
    # right ones. What two wrong ones differ by adds nothing.
    of: dict[tuple[int, ...], list[Finding]] = {}
    for f in findings:
        of.setdefault(tuple(_clocks(f)["brokers"]), []).append(f)
    pairs = {pair: of.pop(pair) for pair in list(of) if pair[0] != pair[1]}
    right = _right({pair: max((_clocks(f)["ahead_ms"] for f in some), key=abs) for pair, some in pairs.items()})
    compared = {broker for pair in pairs if not right.isdisjoint(pair) for broker in pair}
    wrong: dict[int, tuple[list[Finding], set[int]]] = {}
    for pair, some in pairs.items():
        it = max(pair, key=lambda broker: (broker not in right, broker not in compared, broker))
        counts = it not in compared or not right.isdisjoint(pair)
        for f in some:
            _clocks(f)["ahead_ms"] *= (1 if pair[1] == it else -1) * counts
        several, others = wrong.setdefault(it, ([], set()))
        several += some
        others |= {*pair} - {it} if counts else set()
    of |= {(*sorted(others), it): several for it, (several, others) in wrong.items()}
    return [_farthest(several, brokers) for brokers, several in of.items()]


def _right(pairs: dict[tuple[int, ...], int]) -> set[int | None]:
    # Of brokers that were compared, those with the clock that most agree with, otherwise with the one in the middle.
    ahead = differences(Lag(pair[0], pair[1], by, by) for pair, by in pairs.items() for _ in range(2))
    right = set[int | None]()
    for first in {first for _, first in ahead.values()}:
        its = sorted((by, broker) for broker, (by, other) in ahead.items() if other == first)
        from_middle = sorted(its, key=lambda one: (abs(2 * its.index(one) + 1 - len(its)), one[1]))
        near = ({b for by, b in its if not beyond_ms(by - own, one_clock=True)} for own, _ in from_middle)
        right |= max(near, key=len)
    return right


def _clocks(f: Finding) -> ClockSkewEvidence:
    return read(ClockSkewEvidence, f.evidence)


def _farthest(several: list[Finding], brokers: tuple[int, ...]) -> Finding:
    f = max(several, key=lambda f: (abs(_clocks(f)["ahead_ms"]), f.topic or "", f.partition or 0))
    first = min(several, key=lambda f: _clocks(f)["since"] or "")
    f.severity = highest(*(finding.severity for finding in several))
    f.evidence |= {"brokers": brokers, "partitions": len(several)}
    f.evidence |= {"since": _clocks(first)["since"], "since_by": _clocks(first)["since_by"]}
    if explained := [line for finding in several for line in _clocks(finding).get("also", ())]:
        f.evidence |= {"also": explained}
    f.message = _said(_clocks(f))
    return f


@rule(RULE, when={"info": "if two brokers differ by 30 s or less, or only one marker shows it"}, together=_once)
def clock_skew(log: LogView) -> Iterator[Finding]:
    """The clocks of two brokers differ, or one broker's clock jumped back

    Checks: a marker is written after its decision, and before its coordinator completes the transaction. Pairs with
    another order by more than a second show the least difference between the clocks of the coordinator's broker and of
    the partition's leader. If a broker wrote earlier times later (markers, LogAppendTime), its own clock jumped back.
    It is reported once per wrong clock, over all partitions, with the idle times of producers that the jump explains.
    The right clock is that of most brokers, otherwise the median one.
    Why it matters: these clocks control transaction timeouts, expiration and retention. Conclusions of this audit from
    times are less certain then.
    Can be wrong: a single marker that an operator wrote later looks like it (then info), and so does a directory
    assembled from two clusters.
    What to do: check the time service (chronyc tracking) of the named brokers; slew clocks instead of setting them.
    Source: TransactionMarkerChannelManager, KafkaApis.handleWriteTxnMarkersRequest
    """
    if log.topic in (METADATA_TOPIC, TRANSACTION_STATE) or log.leader.text:
        return
    yield from _back(log)
    yield from _apart(log)


def _back(log: LogView) -> Iterator[Finding]:
    here: dict[int, list[Fall]] = {}
    for fall in log.cluster.clocks.falls:
        if fall.log == log.name and fall.broker is not None:
            here.setdefault(fall.broker, []).append(fall)
    rows = log.leader.transactions
    rows = np.sort(rows[rows["marker_offset"] >= 0], order="marker_offset")
    for broker, of in here.items():
        first, by = min(of, key=lambda fall: fall.offset), max(fall.by_ms for fall in of)
        behind = rows[rows["marker_offset"] >= first.offset][:1]
        yield _finding(
            log, "warning", behind[0] if len(behind) else first.offset, (broker, broker), by, (first.was, broker)
        )


def _apart(log: LogView) -> Iterator[Finding]:
    named = naming(log)
    by_brokers: dict[tuple[int, int], list[tuple[int, tuple[int, int], np.void]]] = {}
    for producer_id in np.unique(named.rows["producer_id"]).tolist():
        of = matching(log, producer_id)
        matched = np.flatnonzero(of.numbers >= 0)
        markers, windows = markers_of(log, producer_id, matched), of.windows[of.numbers[matched]]
        ahead = ahead_by(windows, markers["marker_timestamp"])
        if not beyond_ms(ahead, one_clock=True).any():
            continue
        for k, writer in zip(range(MOST_LOOKED_AT), _writers(log, markers["marker_offset"]), strict=False):
            broker = _decided_by(log, named, windows[k])
            if writer is None or broker is None or writer == broker:
                continue  # its own clock went back between the two, which its markers show
            pair, sign = ((broker, writer), 1) if broker < writer else ((writer, broker), -1)
            prepared = int(windows["prepared"][k]), broker
            by_brokers.setdefault(pair, []).append((sign * int(ahead[k]), prepared, markers[k]))
    for pair, pairings in by_brokers.items():
        off = [pairing for pairing in pairings if beyond_ms(pairing[0], one_clock=True)]
        if 2 * len(off) > len(pairings):  # fewer are markers that came late, or were written by hand
            off.sort(key=lambda pairing: abs(pairing[0]))
            by, _, row = off[len(off) // 2]  # the median: a lost marker's neighbours mislead
            since = min(since for _, since, _ in off)
            far = beyond_ms(by) and len(off) > 1  # one alone may be a marker that was written by hand
            yield _finding(log, "warning" if far else "info", row, pair, by, since)


def _said(evidence: ClockSkewEvidence) -> str:
    # The time is that of one broker's clock; the other clock shows another.
    *others, it = evidence["brokers"]
    by, partitions = evidence["ahead_ms"], plural(evidence["partitions"], "partition")
    since = f"since {evidence['since']} by the clock of broker {evidence['since_by']}"
    if it in others:
        return f"Clock of broker {it} jumped back by {duration(by)} at {evidence['since']} (seen in {partitions})"
    word = "ahead of" if by > 0 else "behind"
    whose = f"{'broker' if len(others) == 1 else 'brokers'} {few(others)} ({since}; seen in {partitions})"
    return f"Clock of broker {it} is at least {duration(abs(by))} {word} that of {whose}"


def _decided_by(log: LogView, named: NamedTransactions, window: np.void) -> int | None:
    # None where another broker completed it: the marker is then between two clocks.
    partition, row, complete = (int(window[name]) for name in ("partition", "prepare_row", "complete_row"))
    _, columns = named.chunks[window["chunk"]]
    led, last = (
        log.cluster.led(TRANSACTION_STATE, partition, int(columns["leader_epoch"][number])) if number >= 0 else None
        for number in (row, complete)
    )
    if None not in (led, last) and led != last:
        return None
    history = log.cluster.coordinator
    return led if led is not None or history is None else history.brokers.get(partition)


def _writers(log: LogView, offsets: np.ndarray) -> list[int | None]:
    epochs = log.leader.leader_epochs
    if not epochs:
        return [log.leader.broker_id if len(log.replicas) == 1 else None] * len(offsets)
    starts = np.array([start for _, start in epochs])
    led = [log.cluster.led(log.topic, log.partition, epoch) for epoch, _ in epochs]
    if all(broker is None for broker in led) and len(log.replicas) == 1:
        led = [log.leader.broker_id] * len(epochs)
    return [led[max(0, index)] for index in (np.searchsorted(starts, offsets, "right") - 1).tolist()]


def _finding(
    log: LogView, severity: str, marker: np.void | int, brokers: tuple[int, int], by: int, since: tuple[int, int]
) -> Finding:
    # ``marker``: that, or an offset; ``by``: how many ms the last of the brokers is ahead; ``since``: a time (ms), and
    # the broker of that clock.
    evidence = {"brokers": brokers, "ahead_ms": by, "since": iso(since[0]), "since_by": since[1], "partitions": 1}
    place = {"offset": marker} if isinstance(marker, int) else {"marker": marker}
    return log.finding(
        severity, _said(read(ClockSkewEvidence, evidence)), **place, transactional_id=None, evidence=evidence
    )


# Record timestamps beyond a topic's limits, or other than their batch states (KIP-32, KIP-937).


AFTER_SETTINGS = ("message.timestamp.after.max.ms", "message.timestamp.difference.max.ms")


def when(time: Any) -> str | int:
    """Format a time as ISO-8601, or as ms where it is beyond any calendar."""
    return iso(int(time)) or int(time)


@rule("timestamp-out-of-range")
def timestamp_out_of_range(log: LogView) -> Iterator[Finding]:
    """Record timestamps are impossible or beyond the topic's limits

    Checks: a CreateTime timestamp is below -1, more than message.timestamp.before.max.ms before the append, or more
    than message.timestamp.after.max.ms after it. message.timestamp.difference.max.ms replaces an unset limit (until
    3.9; up to 3.5 it is the only limit). The newest broker-written time at or before the batch shows old ones, the next
    one after it shows those ahead, with five minutes of grace.
    Why it matters: retention and lookup by time are wrong. Leaders refuse such records as INVALID_TIMESTAMP.
    Can be wrong: the limits were changed since; the time of the append is an estimate.
    What to do: correct the producers' clocks; set the limits.
    Source: KIP-467, KIP-937; LogValidator
    """
    skip = {int(e["base_offset"]) for e in log.events(EventKind.BATCH_TIMESTAMP)}
    for run in runs(log.events(EventKind.RECORD_TIMESTAMP), "producer_id"):
        e = run[0]
        yield _odd_time(log, run, f"the earliest is {when(e['min_timestamp'])}", e["min_timestamp"], "old")
    after = _after_limit(log)
    if after is None:
        return
    for run in runs(
        (e for e in log.events(EventKind.TIMESTAMP_AHEAD) if int(e["base_offset"]) not in skip), "producer_id"
    ):
        e = run[0]
        newest = accepted_times(e["broker_time"] + TOLERANCE_MS, FAR_MS, after)[1]
        if e["timestamp"] > newest:
            what = f"{iso(int(e['timestamp']))} is ahead of the broker"
            yield _odd_time(log, run, what, e["timestamp"], "ahead", newest=newest)
    ahead = log.leader.ahead
    if (
        ahead is not None
        and ahead.base_offset not in skip
        and log.cluster.is_ahead_of_all(ahead.time, after + TOLERANCE_MS)
    ):
        place: BatchPlace = {"segment": ahead.segment, "position": ahead.position, "base_offset": ahead.base_offset}
        named = blamed(log, [place], "ahead", newest=log.cluster.newest_time + after + TOLERANCE_MS)
        code = error_code("INVALID_TIMESTAMP")
        yield at_ahead(log, ahead, limit_ms=after, culprits=named, **code)


def at_ahead(log: LogView, ahead: LargestCreateTime, **evidence: object) -> Finding:
    """Make the finding about such a batch."""
    stamp = iso(ahead.time) or ahead.time
    who = f"producer id {ahead.producer_id}" if ahead.producer_id >= 0 else "a producer without id"
    has_producer = ahead.producer_id >= 0
    return log.finding(
        "warning",
        f"Records of {who} in {log.name} at offset {ahead.base_offset} have timestamp {stamp}, ahead of all "
        "broker-written times",
        segment=ahead.segment,
        offset=ahead.base_offset,
        last_offset=ahead.last_offset,
        producer_id=ahead.producer_id if has_producer else None,
        producer_epoch=ahead.producer_epoch if has_producer else None,
        transactional_id=log.owner(ahead.producer_id) if has_producer else None,
        position=ahead.position,
        time_ms=ahead.time,
        evidence={"found": stamp, "broker_time": iso(log.cluster.newest_time), **evidence},
    )


def _after_limit(log: LogView) -> int | None:
    # As set, otherwise an hour since 4.0, and the older setting before.
    limit, broker = log.policy().after_max_ms, log.leader.broker_id
    since_4_0 = limit >= 0 or log.cluster.releases.get(broker, policies.UNKNOWN).least >= (4, 0)
    for name in AFTER_SETTINGS[:1] if since_4_0 else AFTER_SETTINGS:
        value = log.cluster.setting(log.topic, name) or log.cluster.broker_setting(broker, f"log.{name}")
        if value is not None:
            return setting_number(value)
        if log.cluster.is_unknown(broker, f"log.{name}"):
            return None
    return limit if limit >= 0 else None


def _odd_time(log: LogView, run: list[Event], what: str, time: int, kind: str, newest: int | None = None) -> Finding:
    e = run[0]
    return log.at_event(
        "warning",
        f"Timestamps out of range in {plural(len(run), 'batch')} of {log.name} from offset {e['base_offset']} on: "
        f"{what}",
        e,
        last_offset=run[-1]["last_offset"],
        evidence={
            "found": int(time),
            "batches": len(run),
            "culprits": blamed(log, run, kind, newest=newest),
            **error_code("INVALID_TIMESTAMP"),
        },
    )


@rule("batch-timestamp-mismatch")
def batch_timestamp_mismatch(log: LogView) -> Iterator[Finding]:
    """The largest timestamp of a batch does not match its records

    Checks: in a CreateTime batch that was never compacted, the header's largest timestamp differs from the largest of
    its records. The base timestamp need not be that of the first record: kafkajs writes the smallest.
    Can be wrong: compacted batches (not reported).
    What to do: write the records again; report the client library.
    Source: KIP-32; LogValidator
    """
    for run in runs(log.events(EventKind.BATCH_TIMESTAMP), "producer_id"):
        e = run[0]
        stated, expected = when(e["timestamp"]), when(e["found_max_timestamp"])
        yield log.at_event(
            "warning",
            f"The largest timestamp is {stated} in {plural(len(run), 'batch')} of {log.name} from offset "
            f"{e['base_offset']} on, but {expected} in the records",
            e,
            last_offset=run[-1]["last_offset"],
            evidence={
                "expected": expected,
                "found": stated,
                "first_record": when(e["found_base_timestamp"]),
                "base_timestamp": when(e["base_timestamp"]),
                "batches": len(run),
            },
        )
