"""Kept runs and what changed between them."""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditor.base import user_input
from auditor.base.at_rest import Fields, Values
from auditor.base.errors import AuditInputError, StoreTrouble
from auditor.base.words import few
from auditor.connectors.stores.results import ResultFolder, folder, why
from auditor.connectors.stores.retries import REFUSED
from auditor.rules.seen.view import GRAVE, SEVERITIES

# The runs kept in a folder or a store: Parquet below ``run_id=``, committed by a manifest that is written last.
#
#     DIR/run_id=20261121T040000.000000Z/findings/<attempt>.parquet    one folder a table: findings, logs, runs,
#                                       /manifest-<attempt>.json       report, and expectations where asked for
#
# A run is what the newest of its manifests lists. No name is used twice, so nothing is locked or renamed, here or in a
# store: a manifest that was not written whole is no JSON and counts for nothing, a rerun of the same run id replaces
# all
# of the run or nothing, and of two at a time one whole run is left. What was replaced goes then, and files that no
# manifest lists, which a killed run left, a day later. Any reader of Parquet takes the folders as a table partitioned
# by
# ``run_id``; :func:`files` gives exactly what is committed, also while a rerun is being written.


SCHEMA_VERSION = 1
MANIFEST, OLD = "manifest", "manifest.json"  # how names of manifests begin; what older ones were
MAX_RUN_ID = 200
LEFT = timedelta(days=1)  # so old is what a killed run left, and nobody is still writing it

History = Path | str  # a folder of this machine, or a URI


@dataclass(frozen=True, slots=True)
class Run:
    """A committed run: ``files`` by table, relative to the run's folder; times are ISO-8601 UTC.

    ``created_at`` is when the run id was first published and orders the runs; a rerun keeps it.
    """

    schema_version: int
    run_id: str
    created_at: str
    published_at: str
    facts: Fields
    files: dict[str, list[Fields]]


def new_run_id() -> str:
    """A run id that sorts by time."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def name_of(run_id: str) -> str:
    """The folder of a run. Errors: :class:`AuditInputError` for an id that makes no folder's name."""
    if not run_id or len(run_id) > MAX_RUN_ID or not run_id.isprintable():
        raise AuditInputError(f"run id {run_id!r} will not do; give 1 to {MAX_RUN_ID} printable characters")
    return f"run_id={quote(run_id, safe='')}"


def publish(history: History, run_id: str, tables: Mapping[str, pa.Table], facts: Values) -> Run:
    """Keeps a run's tables and ``facts`` (small JSON for listings), or replaces the run of that id as a whole.

    Errors: :class:`AuditInputError` where nothing can be written, or a newer auditor wrote the run;
    :class:`~auditor.base.errors.StoreTrouble` where a store refuses for now.
    """
    target, name, attempt = folder(history), name_of(run_id), uuid.uuid4().hex
    try:
        before = _newest(_manifests(target / name))
        files = {table: [_write(target / name, f"{table}/{attempt}.parquet", rows)] for table, rows in tables.items()}
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        run = Run(SCHEMA_VERSION, run_id, before.created_at if before else now, now, dict(facts), files)
        text = json.dumps(asdict(run), indent=1, sort_keys=True) + "\n"
        (target / name).put(f"{MANIFEST}-{attempt}.json", text.encode())
        _sweep(target / name)
        return run
    except REFUSED as error:
        raise AuditInputError(f"cannot write to {target.shown}: {why(error)}; choose another --history") from None


def _write(to: ResultFolder, name: str, table: pa.Table) -> Fields:
    marked = table.replace_schema_metadata({"auditor.commands.history.schema_version": str(SCHEMA_VERSION)})
    content = pa.BufferOutputStream()
    pq.write_table(marked, content)
    content_bytes = content.getvalue()
    to.put(name, content_bytes)
    return {
        "path": name,
        "rows": table.num_rows,
        "bytes": content_bytes.size,
        "sha256": hashlib.sha256(content_bytes).hexdigest(),
    }


def _sweep(of_run: ResultFolder) -> None:
    """Removes what the newest manifest has replaced, manifests first, and what is old and in none."""
    present = of_run.below()
    manifests = _manifests(of_run)
    if not manifests:  # whoever published behind this one has taken away what was listed here
        return
    last = max(manifests, key=lambda name: (manifests[name].published_at, name))
    replaced = [name for name in manifests if name != last]
    committed_paths, old = _paths(manifests[last]), datetime.now(UTC) - LEFT
    gone = {path for name in replaced for path in _paths(manifests[name])} - committed_paths
    for name, info in present.items():
        ours = name.endswith(".parquet") or name.startswith(MANIFEST)
        if (
            ours
            and name not in committed_paths
            and name not in manifests
            and info.mtime is not None
            and info.mtime < old
        ):
            gone.add(name)
    of_run.delete(replaced)
    of_run.delete(sorted(gone & present.keys()))


def _paths(run: Run) -> set[str]:
    return {file["path"] for files in run.files.values() for file in files}


def _manifests(of_run: ResultFolder) -> dict[str, Run]:
    """The whole manifests of a run by their names."""
    names = [name for name in of_run.below() if _is_manifest(name)]
    read = zip(names, of_run.get_all(names), strict=True)
    return {name: run for name, text in read if (run := _run(of_run.address(name), text)) is not None}


def _is_manifest(name: str) -> bool:
    return name.startswith(MANIFEST) and name.endswith(".json") and "/" not in name


def _run(shown: str, text: bytes | None) -> Run | None:
    """What a manifest says; None where it is gone or was not written whole."""
    try:
        run = Run(**json.loads(text or b""))
    except ValueError:
        return None
    except TypeError:
        raise AuditInputError(f"{shown} is no manifest of a run; remove the folder or restore it") from None
    if run.schema_version > SCHEMA_VERSION:
        raise AuditInputError(
            f"{shown} has schema version {run.schema_version}, this auditor knows {SCHEMA_VERSION}; upgrade it"
        )
    return run


def _newest(manifests: Mapping[str, Run]) -> Run | None:
    return max(manifests.values(), key=lambda run: run.published_at, default=None)


@dataclass(frozen=True, slots=True)
class HistoryContent:
    """What is in a history: the committed runs, the oldest first, and the ids of those begun and never committed."""

    runs: list[Run]
    uncommitted: list[str]


def content_of(history: History, cache: dict[str, Run] | None = None) -> HistoryContent:
    """The runs of a history, by one list of its files. ``known``: manifests that were read before, by their names,
    which gets those that are read now: no name is used twice. Errors: :class:`AuditInputError` where it cannot be read.
    """
    where, cache = folder(history), {} if cache is None else cache
    try:
        names = {name: inside for name, inside in where.folders().items() if name.startswith("run_id=")}
        manifests = [
            f"{name}/{file}" for name, inside in sorted(names.items()) for file in sorted(inside) if _is_manifest(file)
        ]
        unread = [name for name in manifests if name not in cache]
        texts = where.get_all(unread)
        if not names and not where.exists():
            raise AuditInputError(
                f"{where.shown} is no folder; 'auditor audit --history {where.shown}' keeps runs there"
            )
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"{where.shown} cannot be read: {why(error)}; check it and its credentials") from None
    read = {name: _run(where.address(name), text) for name, text in zip(unread, texts, strict=True)}
    # Of earlier releases manifest.json, which a rerun writes anew, is read each time.
    cache.update({name: run for name, run in read.items() if run is not None and not name.endswith(f"/{OLD}")})
    newest: dict[str, Run] = {}
    for name in manifests:
        run_folder, run = name.partition("/")[0], read[name] if name in read else cache[name]
        if run is not None and (run_folder not in newest or newest[run_folder].published_at < run.published_at):
            newest[run_folder] = run
    begun = names.keys() - newest.keys()
    runs = sorted(newest.values(), key=lambda run: (run.created_at, run.run_id))
    return HistoryContent(runs, sorted(unquote(name.removeprefix("run_id=")) for name in begun))


def committed(history: History) -> list[Run]:
    """The committed runs, the oldest first. Errors: as of :func:`kept`."""
    return content_of(history).runs


def cluster(run: Run) -> str:
    """The cluster that a run looked at: its id, several with commas between; empty where none is known."""
    return ",".join(run.facts.get("clusters") or ())


def named(run: Run) -> str:
    """The cluster as people call it: the names that the run was given, ids where it was given none."""
    given = run.facts.get("named") or {}
    return user_input.shown_cluster(cluster(run), {id: label["name"] for id, label in given.items()})


def scope_of(run: Run) -> str:
    """What it looked at, where not at all of its input by all rules (:attr:`AuditOptions.asked`)."""
    return str(run.facts.get("asked") or "")


def group(run: Run) -> str:
    """Which runs it can be compared with: those of its cluster that were asked alike. What another one was not asked
    is not gone."""
    return f"{cluster(run)} {scope_of(run)}".rstrip()


def shown(run: Run) -> str:
    """The same as people call it."""
    return f"{named(run)} {scope_of(run)}".rstrip()


def before(history: History, run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> Run | None:
    """The run made before ``run_id``, the latest when that is new or None; None where there is none.

    Of runs of the same ``clusters`` (sorted ids) that were ``asked`` alike alone; runs kept before these were are taken
    as such.
    """
    candidates = committed(history) if folder(history).exists() else ()
    return next(reversed(earlier(candidates, run_id, clusters, asked)), None)


def earlier(candidates: Iterable[Run], run_id: str | None, clusters: Sequence[str] = (), asked: str = "") -> list[Run]:
    """Of runs, the oldest first, those before ``run_id`` that can be compared with it; see :func:`before`."""
    comparable: list[Run] = []
    for run in candidates:
        if run.run_id == run_id:
            break
        if list(run.facts.get("clusters", clusters)) == list(clusters) and (run.facts.get("asked") or "") == asked:
            comparable.append(run)
    return comparable


def files(history: History, run: Run, table: str) -> list[str]:
    """Where the committed files of a table are, none where the run did not keep it."""
    of_run = folder(history) / name_of(run.run_id)
    return [of_run.address(file["path"]) for file in run.files.get(table, [])]


def read(history: History, run: Run, table: str, columns: list[str] | None = None) -> pa.Table:
    """A table of a run, or some ``columns`` of it.

    Errors: :class:`AuditInputError` for a table that was not kept, or files that went missing.
    """
    of_run, names = folder(history) / name_of(run.run_id), [file["path"] for file in run.files.get(table, [])]
    if not names:
        raise AuditInputError(f"run {run.run_id} kept no table {table!r}; it has {', '.join(sorted(run.files))}")
    try:
        contents = [of_run.get(name) for name in names]
        if None in contents:
            raise FileNotFoundError
        return pa.concat_tables([pq.ParquetFile(pa.BufferReader(one)).read(columns) for one in contents])
    except (*REFUSED, StoreTrouble) as error:
        raise AuditInputError(f"run {run.run_id} cannot be read: {why(error)}; publish it again") from None


def accepted(history: History, run: Run) -> frozenset[str]:
    """The fingerprints that the baseline of a run accepted; none where it had no baseline."""
    if run.facts.get("accepted", True) is None or "runs" not in run.files:
        return frozenset()
    if "baseline" in run.files:
        rows = read(history, run, "baseline", ["fingerprint", "over"]).to_pylist()
        return frozenset(row["fingerprint"] for row in rows if row["over"] is None)
    summary = json.loads(read(history, run, "runs", ["summary"])["summary"][0].as_py())
    return frozenset((summary.get("baseline") or {}).get("accepted", ()))


def accepted_count(run: Run) -> int:
    """How many findings the baseline of a run accepted; 0 for runs of the past, which do not say."""
    return sum((run.facts.get("accepted") or {}).values())


# Kept runs for who asks for them again and again: what was read of a run is kept, since no file of one changes.


WHO = ("fingerprint", "cluster_id", "severity", "topic", "partition", "transactional_id", "producer_id")
LOG = ("cluster_id", "topic", "partition")
MOST_BYTES = 256 << 20  # of tables in memory, the oldest of which then goes

Log = tuple[str | None, str | None, int | None]  # by LOG


@dataclass(slots=True)
class Shelf:
    """A history, and the tables that were read of it. Manifests are read once, tables again where they had to go."""

    history: History
    _manifests: dict[str, Run] = field(default_factory=dict)
    _tables: OrderedDict[tuple[object, ...], pa.Table] = field(default_factory=OrderedDict)
    _less: dict[tuple[str, ...], frozenset[Log]] = field(default_factory=dict)
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)  # pages are asked for side by side

    def runs(self) -> list[Run]:
        """What is committed now, the oldest first. Errors: as of :func:`runs.kept`."""
        return content_of(self.history, self._manifests).runs

    def read(self, run: Run, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A table of a run, or some columns of it. Errors: as of :func:`runs.read`."""
        asked = run.run_id, run.published_at, table, tuple(columns or ())
        with self._lock:
            content = self._tables.get(asked)
        if content is None:
            content = read(self.history, run, table, list(columns) if columns else None)
        with self._lock:
            before = self._tables.pop(asked, None)
            self._bytes += content.nbytes - (0 if before is None else before.nbytes)
            self._tables[asked] = content
            while self._bytes > MOST_BYTES and len(self._tables) > 1:
                _, gone = self._tables.popitem(last=False)
                self._bytes -= gone.nbytes
        return content

    def logs_less(self, then: Run, now: Run) -> frozenset[Log]:
        """The partitions of which one run had logs and another has none; none where either kept no list of them."""
        two = then.run_id, then.published_at, now.run_id, now.published_at
        if two not in self._less:
            log_sets = [
                set(zip(*(self.read(run, "logs", LOG)[name].to_pylist() for name in LOG), strict=True))
                for run in (then, now)
                if "logs" in run.files
            ]
            self._less[two] = frozenset(log_sets[0] - log_sets[1] if len(log_sets) > 1 else ())
        return self._less[two]

    def who(self, run: Run, accepted: bool = True) -> pa.Table:
        """A run's findings, by what is asked of many runs: :data:`WHO`. Not ``accepted``: without those that its
        baseline accepts."""
        findings = self.read(run, "findings", WHO)
        return findings if accepted else self.unaccepted(run, findings)

    def unaccepted(self, run: Run, findings: pa.Table) -> pa.Table:
        """Findings of a run without those that its baseline accepts: what is new and gone is asked of these."""
        names = accepted(self.history, run)
        if not names:
            return findings
        return findings.filter(
            pa.array([name not in names for name in findings["fingerprint"].to_pylist()], pa.bool_())
        )


# What changed between runs: a finding is gone where a run that looked for it does not have it any more.
#
# A run that could not read all of its input says of nothing that it is gone. Nor does one whose input lacks a broker,
# or
# a log directory of one, that the run with the finding had, or the log that it is about. What nobody looked for stands
# as
# it stood, until a run looks.


LATELY = 20  # runs before one, which it is compared with where the last of them saw less than it


class KeptFinding(NamedTuple):
    """A finding as a run has it: the last one of some that have it."""

    run: Run
    severity: str
    log: Log


class Changes(NamedTuple):
    """Findings by fingerprint: ``new`` and ``still`` as the run has them, ``gone`` and ``unseen``, for which it did not
    look, as the last run before it that has them."""

    new: dict[str, KeptFinding]
    gone: dict[str, KeptFinding]
    still: dict[str, KeptFinding]
    unseen: dict[str, KeptFinding]


def changes_of(shelf: Shelf, earlier: Sequence[Run], run: Run) -> Changes:
    """What a run changed; ``earlier``: the runs of its group before it, the oldest first. What a baseline accepts is
    gone when it is accepted, and new when it comes back.

    Cost: seven columns of the findings of the run and of the one before, of :data:`LATELY` where that saw less; three
    of the logs of runs that may have said that something is gone. Errors: as of :meth:`Shelf.read`.
    """
    stood: dict[str, KeptFinding] = {}
    for current in (*_since_whole(earlier, run), run):
        before, present = stood, found_in(shelf, current)
        missing = {name: was for name, was in before.items() if name not in present}
        unseen = {name: was for name, was in missing.items() if why_unseen(shelf, current, was)}
        stood = unseen | present
    return Changes(
        {name: finding for name, finding in present.items() if name not in before},
        {name: was for name, was in missing.items() if name not in unseen},
        {name: finding for name, finding in present.items() if name in before},
        unseen,
    )


def found_in(shelf: Shelf, run: Run, accepted: bool = False) -> dict[str, KeptFinding]:
    """A run's findings by fingerprint, of several with one the gravest. Not ``accepted``: without what its baseline
    accepts."""
    table, out = shelf.who(run, accepted), dict[str, KeptFinding]()
    of_each = (table[name].to_pylist() for name in ("fingerprint", "severity", *LOG))
    for name, severity, *log in zip(*of_each, strict=True):
        out.setdefault(name, KeptFinding(run, severity, (*log,)))
    return out


def rows(shelf: Shelf, findings: Mapping[str, KeptFinding]) -> list[Fields]:
    """The findings themselves, as their runs keep them and in their order; several may have one fingerprint."""
    out = []
    for run in {was.run.run_id: was.run for was in findings.values()}.values():
        table = shelf.unaccepted(run, shelf.read(run, "findings"))
        names = [name for name, was in findings.items() if was.run.run_id == run.run_id]
        out += table.filter(pc.is_in(table["fingerprint"], pa.array(names, pa.string()))).to_pylist()
    return out


def is_partial(earlier: Sequence[Run], run: Run) -> str:
    """Why a run does not answer for all that the runs of its group before it saw, in words; empty where it does."""
    return _partly([past.facts for past in earlier[-LATELY:]], run.facts)


def _partly(then: Sequence[Values], now: Values) -> str:
    if not now.get("complete", True):
        return "part of the input could not be read"
    lacks = sorted({name for facts in then for name in _lacks(now, facts)})
    return f"its input lacks {few(lacks)}, which an earlier run had" if lacks else ""


def why_unseen(shelf: Shelf, run: Run, was: KeptFinding) -> str:
    """Why a run without a finding does not say that it is gone, in words; empty where it is.

    A log that is not there was deleted where the run knows that it has all; else it may not have been copied.
    """
    return why_unseen_by_facts(was.run.facts, run.facts, lambda: was.log in shelf.logs_less(was.run, run))


def why_unseen_by_facts(then: Values, now: Values, lacks_log: Callable[[], bool]) -> str:
    """The same by the facts of the two runs: ``complete``, ``brokers`` and ``all_logs``; ``lacks_log``: whether the
    log is among those of the run with the finding, and not among those of the other."""
    why = _partly([then], now)
    if why or now.get("all_logs") or not lacks_log():
        return why
    return "its input lacks the log, which an earlier run had"


def _since_whole(earlier: Sequence[Run], run: Run) -> Sequence[Run]:
    """The runs before back to the last one that saw whatever the run can have seen."""
    late = earlier[-LATELY:]
    whole = (place for place in reversed(range(len(late))) if not is_partial((run,), late[place]))
    return late[next(whole, 0) :]


def _lacks(now: Values, then: Values) -> list[str]:
    """What of the brokers that another run had is not in the input; nothing where an earlier release kept either."""
    own, theirs = (facts.get("brokers") for facts in (now, then))
    if own is None or theirs is None:
        return []
    less = [name for name, dirs in theirs.items() if own.get(name, 0) < dirs]
    return [f"a log directory of {name}" if name in own else name for name in less]


# How the clusters stand whose runs are kept in one folder: each by its own runs, and whether one is overdue.


GAPS = 10  # between the latest runs, from which it is seen how often a cluster is audited
LEAST_GAPS = 2
HOUR_MS = 3_600_000  # runs closer than that are somebody's tries, no schedule


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """A cluster by its kept runs: ``name`` its id (several with commas, empty for none known); ``last`` its latest run.
    Runs that looked at a part of it stand apart, by what they were asked.

    ``new`` and ``gone``: findings against the run before, None where there is none. ``since``: the time judged by of
    the first of its runs from which on each had critical or error findings, None where the last has none.
    ``every_ms``: how often it is due, None where that is not known. ``silent_ms``: since its last run was published.
    ``partly``: why that does not answer for all that the runs before it saw, empty where it does.
    """

    name: str
    runs: int
    last: Run
    new: int | None
    gone: int | None
    since: str | None
    every_ms: int | None
    silent_ms: int
    partly: str

    @property
    def overdue(self) -> bool:
        """Whether a run should have come by now: it failed, or was not started."""
        return self.every_ms is not None and self.silent_ms > self.every_ms * 3 // 2

    @property
    def worst(self) -> str | None:
        """The worst severity of its last run."""
        return next((name for name in SEVERITIES if self.last.facts["counts"].get(name)), None)


def by_cluster(committed_runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by :func:`runs.group`, in the order given; first those that looked at all of their input."""
    groups: dict[str, list[Run]] = {}
    for entry in sorted(committed_runs, key=lambda run: scope_of(run) != ""):
        groups.setdefault(group(entry), []).append(entry)
    return groups


def in_front(groups: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Of :func:`by_cluster` those that say how their clusters stand: runs that looked at a part do where there are no
    others."""
    whole = {cluster(group_runs[-1]) for group_runs in groups.values() if not scope_of(group_runs[-1])}
    return {
        name: group_runs
        for name, group_runs in groups.items()
        if not scope_of(group_runs[-1]) or cluster(group_runs[-1]) not in whole
    }


def standings(
    shelf: Shelf, committed_runs: Sequence[Run], now: datetime, every_ms: int | None = None
) -> list[ClusterStanding]:
    """How each cluster stands, the worst first: by severity, then those that are overdue or were not read whole.

    ``every_ms``: how often each is due; None: as often as the median of its latest runs. Cost: the fingerprints of two
    runs a cluster.
    """
    clusters = [
        _standing(shelf, name, group_runs, now, every_ms) for name, group_runs in by_cluster(committed_runs).items()
    ]
    return sorted(clusters, key=_order)


def _order(standing: ClusterStanding) -> tuple[int, bool, bool, str]:
    severity = len(SEVERITIES) if standing.worst is None else SEVERITIES.index(standing.worst)
    return (
        severity if standing.worst in GRAVE else len(GRAVE),
        not standing.overdue,
        not standing.partly,
        standing.name,
    )


def _standing(
    shelf: Shelf, name: str, group_runs: Sequence[Run], now: datetime, every_ms: int | None
) -> ClusterStanding:
    new = gone = None
    if len(group_runs) > 1:
        change = changes_of(shelf, group_runs[:-1], group_runs[-1])
        new, gone = len(change.new), len(change.gone)
    since = None
    for run in reversed(group_runs):
        if not any(run.facts["counts"].get(severity) for severity in GRAVE):
            break
        since = run.facts.get("as_of")
    if scope_of(group_runs[-1]) and len(group_runs) <= LEAST_GAPS:
        every_ms = None  # somebody's question, which has no schedule
    elif every_ms is None:
        times = [datetime.fromisoformat(run.published_at) for run in group_runs[-GAPS - 1 :]]
        gaps = [(late - early).total_seconds() for early, late in itertools.pairwise(times)]
        every_ms = max(HOUR_MS, int(statistics.median(gaps) * 1000)) if len(gaps) >= LEAST_GAPS else None
    silent = int((now - datetime.fromisoformat(group_runs[-1].published_at)).total_seconds() * 1000)
    partly = is_partial(group_runs[:-1], group_runs[-1])
    return ClusterStanding(name, len(group_runs), group_runs[-1], new, gone, since, every_ms, max(0, silent), partly)
