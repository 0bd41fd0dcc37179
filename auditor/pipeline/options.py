"""Options of an audit, and its baseline."""

from __future__ import annotations

import datetime
import json
import re
import time
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from auditor.base import user_input
from auditor.base.at_rest import Fields, parsed
from auditor.base.errors import DEFAULT_LIMITS, OF_A_RULE, SEQUENCES, AuditInputError, Limits, parse_int, require
from auditor.base.user_input import Names, Scope, Since, moment_ms
from auditor.base.words import HISTORY_FORMATS, SEVERITIES
from auditor.model.policies import AUTO, CHOICES

# Options, validated (contract section 2).


LEVELS = (*SEVERITIES, "never")
DEFAULT_SPLIT_BYTES = 128 << 20


@dataclass(frozen=True)
class AuditOptions:
    """Options of ``auditor audit``. ``as_of`` is in ms, None for the newest broker-written time of the input.

    ``out``: a folder of this machine, or as text the URI of one elsewhere.
    ``max_findings``: of a rule in a partition, a hundred times as many in all; others are summed.
    ``bootstrap``: ``host:port`` that commands of remedies are given. ``baseline``: the file of accepted findings.
    ``remote``: folders with the remote part of tiered topics. ``at_once``: every file of the input is of one moment.
    ``whole``: all log directories of each broker are in the input.
    ``only_partitions`` (globs), ``only_brokers``, ``since``, ``may_lack``: what is read
    (:class:`auditor.base.user_input.Scope`).
    ``sum_key``: asks for sums of records (:mod:`auditor.replay.reading.record_sums`).
    ``fail_on_unsure``: fails also where a partition is held for longer than is normal, if it is held still.
    ``work``: a folder or URI where facts are kept, and found by the next run of the same input; ``resume``: there has
    been one.
    ``cluster_name``: what people call the one cluster of the input; ``clusters``: what they call which, by id.
    ``master``: ``inline``, ``inline[N]`` or the URL of a Spark; None for Spark on this machine, where there is one.
    """

    paths: tuple[str, ...]
    out: Path | str
    policy: str = AUTO
    records: bool = False
    fail_on: str = "error"
    rules: tuple[str, ...] = ()
    skip_rules: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    as_of: int | None = None
    master: str | None = None
    split_size: int = DEFAULT_SPLIT_BYTES
    limits: Limits = field(default=DEFAULT_LIMITS)
    tables: bool = False
    expectations: bool = False
    include_payload: bool = False
    history: Path | str | None = None
    history_format: str = "parquet"
    run_id: str | None = None
    max_findings: int = OF_A_RULE
    bootstrap: str | None = None
    baseline: Path | None = None
    remote: tuple[str, ...] = ()
    at_once: bool = False
    fail_on_unsure: bool = False
    whole: bool = False
    only_partitions: tuple[str, ...] = ()
    only_brokers: tuple[int, ...] = ()
    since: Since | None = None
    may_lack: bool = False
    sum_key: bytes = field(default=b"", repr=False)
    work: str | None = None
    resume: bool = False
    cluster_name: str | None = None
    clusters: Names = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Everything that is listed: the paths, and the directories of remote segments."""
        return (*self.paths, *self.remote)

    def __post_init__(self) -> None:
        if self.policy not in CHOICES:
            raise AuditInputError(f"invalid --policy {self.policy!r}: expected one of {', '.join(CHOICES)}")
        if self.fail_on not in LEVELS:
            raise AuditInputError(f"invalid --fail-on {self.fail_on!r}: expected one of {', '.join(LEVELS)}")
        if self.split_size < 1 << 16:
            raise AuditInputError("invalid --split-size: expected at least 65536 bytes")
        if self.max_findings < 1:
            raise AuditInputError("invalid --max-findings: expected at least 1")
        if self.resume and self.work is None:
            raise AuditInputError("--resume needs --work DIR")
        if self.history_format not in HISTORY_FORMATS:
            raise AuditInputError(f"invalid --history-format {self.history_format!r}: expected parquet or delta")
        if self.history_format == "delta":
            require("deltalake")
        if self.run_id is not None and self.history is None:
            raise AuditInputError("--run-id needs --history DIR")

    @property
    def scope(self) -> Scope:
        """The filter of what is read."""
        return Scope(self.topics, self.only_partitions, self.only_brokers, self.since, self.may_lack)

    @property
    def asked(self) -> str:
        """The filters as command-line options; empty if the audit covers all of its input with all rules.

        Audits with equal filters can be compared: what one has and another lacks is new or gone.
        """
        given = {
            "topic": self.topics,
            "only-partition": self.only_partitions,
            "only-broker": self.only_brokers,
            "since": (self.since.text,) if self.since else (),
            "rule": self.rules,
            "skip-rule": self.skip_rules,
        }
        return " ".join(f"--{name} {value}" for name, values in given.items() for value in sorted(map(str, values)))


def out_of(text: str) -> Path | str:
    """Return the meaning of ``--out`` and ``--history``: a URI as it is, anything else a path, ``file://`` too.

    Errors: :class:`AuditInputError`.
    """
    if "://" not in text:
        return Path(text)
    parts = user_input.parsed(text)
    return Path(urllib.parse.unquote(parts.path)) if parts.scheme == "file" else text


def folder_of(text: str) -> Path:
    """Return the local directory that an option names. Errors: :class:`AuditInputError` for a URI."""
    folder = out_of(text)
    if not isinstance(folder, Path):
        raise AuditInputError(f"{user_input.shown_uri(text)} is a URI: expected a directory on this host")
    return folder


def parse_time(text: str) -> int:
    """Parse ISO-8601 (UTC unless it says otherwise), epoch milliseconds, or ``now``, to ms."""
    if text == "now":
        return int(time.time() * 1000)
    if (number := parse_int(text)) is not None:
        return number
    if (moment := moment_ms(text)) is None:
        raise AuditInputError(f"invalid --as-of {text!r}: expected ISO-8601 (2026-11-21T04:00:00Z), epoch ms, or now")
    return moment


def limits_of(
    max_batch_bytes: int = DEFAULT_LIMITS.max_batch_bytes, max_batch_ratio: int = DEFAULT_LIMITS.max_batch_ratio
) -> Limits:
    """Return the limits with those that a caller may set. Errors: :class:`AuditInputError` for one that is too low."""
    if max_batch_bytes < 1 << 10 or max_batch_ratio < 1:
        raise AuditInputError("invalid --max-batch-bytes or --max-batch-ratio: expected at least 1024 and 1")
    return DEFAULT_LIMITS._replace(max_batch_bytes=max_batch_bytes, max_batch_ratio=max_batch_ratio)


def check_window(duplicate_window: int) -> None:
    """Raise ``AuditInputError`` for a duplicate window of the draft that is not below half of all sequence numbers."""
    if not 0 < duplicate_window < SEQUENCES // 2:
        raise AuditInputError(f"invalid --duplicate-window: expected 1 to {SEQUENCES // 2 - 1} sequence numbers")


# Baseline: the file of accepted findings, with reason, author and last day.
#
# An accepted finding stays in ``findings.jsonl``; it is counted apart, not printed, raises no alert, and does not
# count for ``--fail-on``. It comes back after its last day, and when its severity has risen above the accepted one.
# The day is compared with the evaluation time (``--as-of``, by default the newest broker-written time of the input),
# so that the same input and file give the same result whenever they are audited.


KEY = "accepted"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class AcceptedFinding:
    """An accepted finding.

    ``severity``: the highest that is accepted; ``until``: the last day (UTC), None for no end; ``rule``, ``where`` and
    ``cluster`` are for people. If the rule did not run, or the cluster (empty: any) was not audited, a missing finding
    means nothing.
    """

    fingerprint: str
    severity: str
    reason: str
    who: str
    until: datetime.date | None
    rule: str = ""
    where: str = ""
    cluster: str = ""

    def row(self) -> Fields:
        """Return the entry as stored in the file."""
        return asdict(self) | {"until": None if self.until is None else self.until.isoformat()}


ENTRY = tuple(each.name for each in fields(AcceptedFinding))


@dataclass(frozen=True, slots=True)
class Baseline:
    """A file of accepted findings by fingerprint; empty where none was given."""

    file: str = ""
    entries: Mapping[str, AcceptedFinding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A baseline compared with findings.

    ``accepted``: an entry or None for each finding in their order; ``back``: lapsed entries, with the reason; ``gone``:
    entries that no finding has.
    """

    accepted: Sequence[AcceptedFinding | None]
    back: Sequence[tuple[AcceptedFinding, str]] = ()
    gone: Sequence[AcceptedFinding] = ()


def compare(
    baseline: Baseline,
    findings: Iterable[tuple[str, str]],
    as_of_ms: int,
    looked_for: Iterable[str] | None,
    clusters: Iterable[str] = (),
) -> Verdicts:
    """Compare a baseline with findings, each a fingerprint and a severity.

    ``looked_for``: ids of the rules that ran, None where only a part of the input was audited, so that no finding can
    be called gone. ``clusters``: ids of the audited clusters.
    """
    accepted: list[AcceptedFinding | None] = []
    back: dict[str, tuple[AcceptedFinding, str]] = {}
    fingerprints = set()
    for fingerprint, severity in findings:
        entry = baseline.entries.get(fingerprint)
        fingerprints.add(fingerprint)
        why = "" if entry is None else _over(entry, severity, as_of_ms)
        if entry is not None and why:
            back[fingerprint] = entry, why
        accepted.append(None if why else entry)
    rules = frozenset(looked_for or ())
    cluster_ids = {"", *clusters}
    gone = [
        e
        for e in baseline.entries.values()
        if e.fingerprint not in fingerprints and (not e.rule or e.rule in rules) and e.cluster in cluster_ids
    ]
    return Verdicts(accepted, list(back.values()), gone if looked_for is not None else ())


def _over(entry: AcceptedFinding, severity: str, as_of_ms: int) -> str:
    """Why an entry does not apply to its finding any more; empty where it does."""
    if SEVERITIES.index(severity) < SEVERITIES.index(entry.severity):
        return f"suppressed as {entry.severity}, now {severity}"
    if entry.until is not None:
        end = datetime.datetime.combine(entry.until + datetime.timedelta(days=1), datetime.time(), datetime.UTC)
        if as_of_ms >= end.timestamp() * 1000:
            return f"expired on {entry.until.isoformat()}"
    return ""


def read_baseline(path: Path) -> Baseline:
    """Read the baseline at ``path``. Errors: :class:`AuditInputError` naming the file and the entry."""
    try:
        content = parsed(path.read_bytes())
    except OSError as error:
        raise AuditInputError(f"cannot read {path}: {error.strerror}; create one with 'auditor baseline'") from None
    except ValueError as error:
        raise AuditInputError(f"{path} is not a baseline: {error}; create one with 'auditor baseline'") from None
    rows = content.get(KEY) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise AuditInputError(f"{path} is not a baseline: it has no list {KEY!r}; create one with 'auditor baseline'")
    entries = [_entry(row, f"{path}: entry {number}") for number, row in enumerate(rows, 1)]
    return Baseline(str(path), {entry.fingerprint: entry for entry in entries})


def _entry(row: object, place: str) -> AcceptedFinding:
    if not isinstance(row, dict) or not _FINGERPRINT.fullmatch(str(row.get("fingerprint"))):
        raise AuditInputError(f"{place} has no fingerprint of 64 hex digits; create entries with 'auditor baseline'")
    if row.get("severity") not in SEVERITIES:
        raise AuditInputError(f"{place}: invalid severity: expected one of {', '.join(SEVERITIES)}")
    for name in ("reason", "who"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise AuditInputError(f"{place} has no {name}; add it")
    until = row.get("until")
    return AcceptedFinding(
        row["fingerprint"],
        row["severity"],
        row["reason"],
        row["who"],
        None if until is None else parse_day(until, place),
        *(str(row.get(name) or "") for name in ("rule", "where", "cluster")),
    )


def parse_day(text: object, place: str) -> datetime.date:
    """Parse a day such as ``2026-12-31``. Errors: :class:`AuditInputError`, beginning with ``place``."""
    try:
        return datetime.date.fromisoformat(str(text))
    except ValueError:
        raise AuditInputError(f"invalid {place} {text!r}: expected a date such as 2026-12-31") from None


def text_of(entries: Iterable[AcceptedFinding]) -> str:
    """Return the file's content, sorted by rule, place and fingerprint."""
    ordered = sorted(entries, key=lambda e: (e.rule, e.where, e.fingerprint))
    return json.dumps({KEY: [entry.row() for entry in ordered]}, indent=1, ensure_ascii=False) + "\n"
