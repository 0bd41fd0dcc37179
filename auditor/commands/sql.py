"""``auditor sql``: SQL over an input that is only read while it is asked, in one query or a shell."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from auditor import running
from auditor.base.errors import AuditInputError
from auditor.commands.arguments import add_master, add_remote, add_scope, examples, path_options, utf8_stdout
from auditor.commands.rowtext import json_lines, table_lines
from auditor.pipeline.options import DEFAULT_SPLIT_BYTES, AuditOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.whole_audit import Audit


QUESTION = re.compile(r"\s*(select|with|show|describe|summarize|explain|from|values)\b|.*\s", re.I | re.S)
RECORDS = re.compile(r"\brecords\b", re.I)
TEXT = re.compile(r"\s*(select|with|show|describe|summarize|explain|from|values)\s", re.I)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "sql",
        help="query the decoded and derived tables with SQL, once or in a shell",
        epilog=examples(
            "auditor sql 'SELECT producer_id, count(*) FROM batches_once GROUP BY 1' /var/kafka-logs",
            "auditor sql /var/kafka-logs --master 'local[*]'",
        ),
    )
    p.add_argument(
        "words",
        nargs="+",
        metavar="[SQL] PATH",
        help='a query such as "SELECT producer_id, count(*) FROM batches_once GROUP BY 1" (without one: a shell), and '
        "paths as for audit",
    )
    p.add_argument(
        "--engine",
        choices=("spark", "duckdb"),
        help="SQL engine (default: duckdb where it is installed and no --master is given, else spark)",
    )
    p.add_argument("--format", default="table", choices=("table", "json"), help="human-readable table, or JSON Lines")
    add_scope(p)
    p.add_argument("--records", action="store_true", help="for findings and decode_errors: also decode every record")
    p.add_argument("--include-payload", action="store_true", help="include keys and values in the table records")
    p.add_argument("--as-of", metavar="TIME", help="evaluation time for timeouts: ISO-8601 or epoch ms")
    add_remote(p)
    add_master(p)
    p.add_argument(
        "--split-size", type=int, default=DEFAULT_SPLIT_BYTES, metavar="BYTES", help="bytes of a segment per task"
    )
    p.set_defaults(run=sql_run)


def sql_run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 3 if part of the input was unreadable."""
    from auditor.pipeline.what_if_audit import AuditWithVerdicts  # late: it imports all of an audit

    text, paths = split(args.words)
    args.master = master(args.engine, args.master)
    options = AuditOptions(
        paths,
        Path(),
        records=args.records,
        split_size=args.split_size,
        include_payload=args.include_payload,
        **path_options(args),
    )
    utf8_stdout()
    with running.failures(), running.runner(options) as runner:
        audit = AuditWithVerdicts(options, runner)
        if text is None:
            sql_shell_run(audit, lambda rows: show(rows, args.format))
        else:
            show(audit.query(text), args.format)
            _warn_of_copies_without_records(text, audit)
        status = 3 if audit.incomplete() else 0
        running.warn_of_empty(audit)
        audit.close()
    return status


def _warn_of_copies_without_records(text: str, audit: Audit) -> None:
    copies = [log_dir.name for log_dir in audit.inventory.log_dirs if log_dir.copied]
    if copies and RECORDS.search(text):
        sys.stderr.write(f"auditor: copies without payload have no records: {', '.join(copies)}\n")


def split(words: list[str]) -> tuple[str | None, tuple[str, ...]]:
    """Split the arguments into the SQL text, None if there is none, and the paths.

    Errors: :class:`AuditInputError` for a text without a path, or behind one.
    """
    if not QUESTION.match(words[0]) or os.path.exists(words[0]):  # of a text too long for a name, too
        if any(TEXT.match(word) for word in words[1:]):
            raise AuditInputError("SQL text after a path: expected auditor sql TEXT PATH...")
        return None, tuple(words)
    if len(words) == 1:
        raise AuditInputError("missing PATH after the SQL text: give a log directory")
    return words[0], tuple(words[1:])


def master(engine: str | None, given: str | None) -> str | None:
    """Return the master that ``--engine`` means: without either, DuckDB on this machine where it is installed.

    Errors: :class:`AuditInputError` if ``--master`` contradicts ``--engine``.
    """
    if engine is None:
        return given or ("inline" if importlib.util.find_spec("duckdb") else None)
    if given is not None and given.startswith("inline") != (engine == "duckdb"):
        raise AuditInputError(f"--engine {engine} does not run on --master {given}; give one of them")
    return given or ("inline" if engine == "duckdb" else "local[*]")


def show(rows: pa.Table, how: str) -> None:
    """Print a result as a table, or as JSON lines (``how`` is ``json``)."""
    batches = rows.to_batches() if how == "json" else rows.combine_chunks().to_batches()
    for batch in batches:
        sys.stdout.writelines(json_lines(batch) if how == "json" else table_lines(batch))
    if how == "table" and not rows.num_rows:
        sys.stdout.write("no rows\n")
    sys.stdout.flush()


# The shell. Readline comes with Python; what it lacks is not worth a dependency
# (docs/decisions/012-python-and-packages.md).


PROMPT, MORE = "sql> ", "...> "
ENDS = ("exit", "quit", "\\q")
KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "DESCRIBE", "SHOW TABLES", "count(*)")


def sql_shell_run(audit: Audit, show: Callable[[pa.Table], None]) -> None:
    """Answer questions until the input ends. A wrong question is reported on one line and the shell stays open.

    Errors: :class:`AuditInputError` for a wrong path, before the first question.
    """
    _ = audit.inventory
    interactive = sys.stdin.isatty()
    if interactive:
        sys.stdout.write(
            "SHOW TABLES lists tables, DESCRIBE name lists columns. End a query with a semicolon; exit to quit.\n"
        )
    with _line_editor(audit) if interactive else contextlib.nullcontext():
        for text in questions(interactive):
            try:
                show(audit.query(text))
            except AuditInputError as error:
                sys.stderr.write(f"auditor: {error}\n")


def questions(interactive: bool) -> Iterator[str]:
    """Read SQL texts, each ended by a semicolon, from stdin; ``interactive``: with a prompt."""
    lines: list[str] = []
    while True:
        try:
            line = input((MORE if lines else PROMPT) if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:  # discards the line and keeps the shell open
            sys.stdout.write("\n")
            lines = []
            continue
        if not lines and line.strip().rstrip(";").lower() in ENDS:
            return
        if line.strip():
            lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def words(payload: bool) -> list[str]:
    """Return the words to complete: keywords, tables, columns."""
    from auditor.pipeline import derived_tables

    tables = derived_tables.all_columns(payload)
    columns = {name for table in tables.values() for name in table.names}
    return sorted({*KEYWORDS, *tables, *derived_tables.VIEWS, *columns})


@contextlib.contextmanager
def _line_editor(audit: Audit) -> Iterator[None]:
    # Python may be built without readline.
    try:
        import readline
    except ImportError:
        yield
        return
    history = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "auditor", "sql_history")
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    candidates = words(audit.options.include_payload)

    def complete(start: str, place: int) -> str | None:
        matches = [word for word in candidates if word.lower().startswith(start.lower())]
        return matches[place] if place < len(matches) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>.;")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1000)
            readline.write_history_file(history)
