"""The checks of each table that relate rows to each other and to other tables, and the SQL that counts violations.

What a column alone may hold is declared with its table (:meth:`DeclaredTable.may_be`); the suites take it from there.
``checks.toml`` has the rest: conditions on a row in SQL common to Spark and DuckDB, true where the row violates them;
columns that identify a row; and conditions on all rows of a key. Rows are joined by equal columns with other tables,
and with ``logs``, the replicas as the audit read them: decoding and reading count independently. The
counts are views with a row per log, which the suites judge. Cost: one pass over a table, with one sort where a check
needs the row before, and a hash join per other table.
"""

from __future__ import annotations

import pkgutil
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from auditor.base.errors import RECORD_AT, UNREAD, VENDOR
from auditor.connectors.schema import COMPRESSION_NAMES, LOGS, RECOVERY_STATES, TRANSACTION_STATES
from auditor.model.transaction_states import COMPLETION_OF, NEVER_WRITTEN, STATES_BY_ID

FRESH_MS = 24 * 3_600_000
LOG, DIR = ("log_dir", "topic", "partition"), ("log_dir",)
DUCKDB, SPARK = "duckdb", "spark"
DIALECTS = (DUCKDB, SPARK)


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a table: SQL that is true for a violating row; ``unique``: columns that no two rows share; ``of_all``:
    SQL over all rows of a key."""

    name: str
    says: str
    broken: str
    how: str = "row"
    severity: str = "critical"
    mostly: float = 1.0  # the part of the logs that has to keep it


@dataclass(frozen=True, slots=True)
class Measure:
    """The checks of a table, counted by ``key``.

    ``before``: columns of the row before, by ``within``, in ``order``. ``joins``: other tables, as in ``checks.toml``.
    """

    checks: tuple[Check, ...]
    key: tuple[str, ...] = LOG
    before: tuple[str, ...] = ()
    within: tuple[str, ...] = LOG
    order: tuple[str, ...] = ("file", "position")
    joins: tuple[str, ...] = ()


def _in(column: str, names: object) -> str:
    # True for a value that is none of these.
    return f"{column} NOT IN ({', '.join(repr(str(name)) for name in names)})"  # type: ignore[attr-defined]


# After compaction any state may follow another, except for states that are never written.
_STATES = [str(state) for state in STATES_BY_ID if state not in NEVER_WRITTEN]
_JUMP = " OR ".join(f"(state = '{s}' AND {_in('before_state', (str(p), str(s)))})" for p, s in COMPLETION_OF.items())
_NUMBER = " ".join(f"WHEN '{state}' THEN {number}" for number, state in enumerate(TRANSACTION_STATES))
_OUTCOMES, CLASSES = ("COMMIT", "ABORT"), ("active", "late", "hanging", "orphan", "ghost", "undecidable")
PARTITION = ("leader", "leader_epoch", "partition_epoch", "replicas", "isr", "adding_replicas", "removing_replicas",
             "eligible_leader_replicas", "last_known_elr", "leader_recovery_state")  # fmt: skip
_COMMITS = ("PrepareCommit", "CompleteCommit")
_UNKNOWN = ("unreadable", "missing", "remote", "left_out", "not_reached")
UNREAD_OFFSETS = " + ".join(f"coalesce(offsets_{name}, 0)" for name in _UNKNOWN)
# As errors.is_unread
_LISTED = ", ".join(repr(reason) for reason in sorted(UNREAD))
_UNREAD = f"(reason IN ({_LISTED}) OR (reason = 'unknown_key_type' AND detail LIKE '{RECORD_AT}%'))"
_IN_SQL = {
    "jump": _JUMP,
    "numbers": _NUMBER,
    "not_written": _in("state", _STATES),
    "commits": ", ".join(map(repr, _COMMITS)),
    "unread": _UNREAD,
    "not_an_error": _in("reason", ("vanished", VENDOR)),
    "not_class": _in("class", CLASSES),
    "partition_differs": " OR ".join(f"{name} IS DISTINCT FROM h_{name}" for name in PARTITION),
    "partition_newest": ", ".join(f"{name} = max_by({name}, coalesce(offset, -1))" for name in PARTITION),
    "unread_offsets": UNREAD_OFFSETS,
}


def _measures() -> dict[str, Measure]:
    tables = tomllib.loads((pkgutil.get_data(__name__, "checks.toml") or b"").decode())
    names = _IN_SQL | {
        name: Template(text.strip()).safe_substitute(_IN_SQL) for name, text in tables.pop("shared").items()
    }

    def lines(text: str) -> list[str]:
        return Template(text.strip()).safe_substitute(names).replace("\n  ", " ").splitlines()

    return {name: _measure(lines(own.pop("checks")), lines(own.pop("joins", "")), own) for name, own in tables.items()}


def _measure(checks: list[str], joins: list[str], own: Mapping[str, list[str]]) -> Measure:
    fields = (line.split(" | ") for line in checks)
    return Measure(tuple(_check(*one) for one in fields), joins=tuple(joins), **{n: tuple(v) for n, v in own.items()})


def _check(name: str, says: str, broken: str, *more: str) -> Check:
    how, _, rest = broken.partition(": ")
    severity = [word for word in more if not word[0].isdigit()] or ["critical"]
    mostly = [float(word) for word in more if word[0].isdigit()] or [1.0]
    return Check(name, says, *((rest, how) if how in ("unique", "all") else (broken, "row")), severity[0], mostly[0])


MEASURES = _measures()


# What a column may hold beside what its declaration says, by table and column: one of these values, or in these bounds.
_CONTROL = ("ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
SETS: dict[str, tuple[str, ...]] = {
    "batches.compression": COMPRESSION_NAMES,
    "batches.timestamp_type": ("CreateTime", "LogAppendTime", "NoTimestampType"),
    "batches.control_type": (*_CONTROL, "UNKNOWN"),
    "index_entries.kind": ("offset", "time"),
    "checkpoints.kind": ("recovery-point", "high-watermark", "log-start", "cleaner", "leader-epoch"),
    "transaction_log.state": tuple(_STATES),
    "partitions.leader_recovery_state": RECOVERY_STATES,
    "metadata_history.leader_recovery_state": RECOVERY_STATES,
    "transaction_partitions.outcome": _OUTCOMES,
    "transaction_partitions.class": CLASSES,
    "transaction_partitions.kind": ("closed", "open", "marker_only"),
    "transactions.state": tuple(_STATES),
    "transactions.outcome": _OUTCOMES,
    "lag.kind": ("consumer", "share"),
    "space.goes": ("log_start_offset", "retention_bytes", "retention_ms"),
    "space.setting_by": ("topic", "broker", "default", "internal"),
    "cleaner.stands": ("held", "faulty", "due", "below_ratio", "clean", "off"),
    "blocked.status": ("open", "overdue", "hanging", "prepared", "completed", "unknown"),
    "blocked.class": CLASSES,
}
LIMITS: dict[str, tuple[float, float]] = {
    "batches.magic": (0, 2),
    "batches.crc": (0, (1 << 32) - 1),
    "aborted_transactions.version": (0, 0),
    "transaction_log.value_version": (0, 1),
    "transaction_log.status": (0, 7),
    "offset_commits.value_version": (0, 4),
    "group_metadata.key_type": (2, 23),
    "group_metadata.generation": (-2, 1 << 31),
    "transactions.duration_least_ms": (-FRESH_MS, 1 << 62),  # brokers' clocks may be set
    "transactions.duration_ms": (-FRESH_MS, 1 << 62),
    "transactions.duration_most_ms": (-FRESH_MS, 1 << 62),
    "share_group_state.key_type": (0, 1),
    "remote_log_metadata.key_type": (0, 3),
    "metadata_history.version": (0, 9),
    "cleaner.dirty_ratio": (0, 1),
    "cleaner.min_dirty_ratio": (0, 1),
}

# Functions of Spark's SQL that DuckDB names otherwise, so that one text works for both
MACROS = {
    "size(x)": "len(x)",
    "array_except(a, b)": "list_filter(a, lambda x: NOT list_contains(b, x))",
    "unix_millis(t)": "epoch_ms(t)",
    "get_json_object(text, path)": "json_extract_string(text, path)",
}
AUDITED = Check(
    "not_audited",
    "rows are of logs that were audited",
    "l_there IS NULL OR cluster_id IS DISTINCT FROM l_cluster_id OR broker_id IS DISTINCT FROM l_broker_id",
)
ELSEWHERE = (
    "decode_errors",
    "transactions",
    "verdicts",
    "lag",
    "checkpoints",
    "rehearsal",
)  # tables with rows of logs that were not audited


def checks(table: str) -> tuple[Check, ...]:
    """Return all checks of a table."""
    return MEASURES[table].checks if table in ELSEWHERE else (AUDITED, *MEASURES[table].checks)


def counting(table: str, dialect: str) -> str:
    """Return the SQL that counts how many rows of a table violate each check, a row per key."""
    wanted = MEASURES[table]
    key, quote = ", ".join(wanted.key), '"' if dialect == DUCKDB else "`"
    window = f"PARTITION BY {', '.join(wanted.within)} ORDER BY {', '.join(f'{c} NULLS FIRST' for c in wanted.order)}"
    before = "".join(f", lag({name}) OVER ({window}) AS before_{name}" for name in wanted.before)
    counts = [f"max(coalesce({name}, l_{name})) AS {name}" for name in ("cluster_id", "broker_id")]
    counts += [key, "count(present) AS rows", *(f"{_count(check, dialect)} AS {check.name}" for check in checks(table))]
    joined = "".join(f"\nLEFT JOIN {_join(line, wanted.key)}" for line in wanted.joins)
    text = (
        f"SELECT {f',{chr(10)}  '.join(counts)}\nFROM (SELECT *, TRUE AS present{before} FROM {table})\n"
        f"FULL JOIN ({_logs(wanted.key)}) USING ({key}){joined}\nGROUP BY {key} ORDER BY {key}"
    )
    return re.sub(r"(?<!')\boffset\b(?!')", f"{quote}offset{quote}", text)  # the one column that is a keyword


def _count(check: Check, dialect: str) -> str:
    if check.how == "all":
        return f"CAST(coalesce({check.broken}, FALSE) AS BIGINT)"
    if check.how == "row":
        return f"CAST(coalesce(count_if(present AND ({check.broken})), 0) AS BIGINT)"
    names = check.broken.split(", ")
    fields = "struct_pack({})" if dialect == DUCKDB else "struct({})"
    row = fields.format(", ".join(f"{n} := {n}" if dialect == DUCKDB else n for n in names))
    unique = row if len(names) > 1 else names[0]  # a null is not known, and repeats nothing
    return f"count({unique}) - count(DISTINCT {unique})"


def _logs(key: tuple[str, ...]) -> str:
    if key == DIR:
        return (
            "SELECT log_dir, max(cluster_id) AS l_cluster_id, max(broker_id) AS l_broker_id, TRUE AS l_there "
            "FROM logs GROUP BY log_dir"
        )
    columns = ", ".join(f"{name} AS l_{name}" for name in LOGS.names if name not in (*key, "offsets_compacted"))
    more = f"{UNREAD_OFFSETS} AS l_unread, offsets_compacted AS l_compacted, TRUE AS l_there"
    return f"SELECT {', '.join(key)}, {columns}, {more} FROM logs"


def _join(line: str, key: tuple[str, ...]) -> str:
    # A table by equal columns: those of the key, or of the cluster alone for a prefix that ends with "*".
    about, _, wanted = line.partition(":")
    wanted, _, where = wanted.partition("WHERE")
    prefix, table, equal = [*about.split(" ", 2), ""][:3]
    pairs = [
        (own.strip(), (other or own).strip())
        for own, _, other in (e.partition("=") for e in equal.split(",") if e.strip())
    ]
    own_key = ["cluster_id"] if prefix.endswith("*") else [name for name in key if name not in dict(pairs)]
    name = prefix.rstrip("*")
    columns = [c.partition(" = ") for c in re.split(r", (?=\w+(?: = |, |$))", wanted.strip()) if c]
    taken = [f"{of or column} AS {name}_{column}" for column, _, of in columns]
    own, source = [*own_key, *(own for own, _ in pairs)], [*own_key, *(other for _, other in pairs)]
    own = ["coalesce(cluster_id, l_cluster_id)" if column == "cluster_id" else column for column in own]
    shown = [f"{column} AS {name}_key{number}" for number, column in enumerate(source)]
    grouped = f" GROUP BY {', '.join(source)}" if not columns or any("(" in of for _, _, of in columns) else ""
    text = f"SELECT {', '.join([*shown, *taken, f'TRUE AS {name}_there'])} FROM {table}"
    equal = " AND ".join(f"{column} = {name}_key{number}" for number, column in enumerate(own))
    return f"({text}{' WHERE ' + where.strip() if where else ''}{grouped}) AS {name} ON {equal}"
